"""How rotation describes itself on pages and in governance drafts."""

from __future__ import annotations

from mooring.protocol.description import Description, Terms
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.scheme import dealing_member, rotation_of

_LIMITATIONS = (
    "A high fit with the others' anchor shows that an upload's anchor representation was made from the same anchor. It does "
    "not show that its rows and labels are true.",
    "Scores marked as simulated come from an audit, which split rows like those of the study among simulated participants. "
    "They are not scores of the study itself.",
)
_DISHONEST = (
    "Training uses at most {limit:g} times as many rows of a participant as the median participant has. It leaves out a "
    "participant if models of the others do not predict its labels, or if its rows make models worse for most others. A "
    "dishonest participant can still do some harm, and several together can do more. The page 'One dishonest site' of the "
    "documentation states how much harm was measured."
)
_NO_MAJORITY = (
    "With three participants or fewer, each is compared with two others at most. If one of these others is dishonest, they "
    "have no honest majority, and nothing shows whose rows are false."
)


def describe_rotation(study: Study) -> Description:
    """Return what pages say about a study in which rows are shared under secret maps."""
    return Description(
        what_is_shared="these rows",
        agreed=tuple(_list_agreed(study)),
        scoring="What joining gives was not measured here: 'mooring train' (analyst) or 'mooring predict' on labelled rows "
        "(participant) measures it.",
        caveat="the figures of leakage are lower bounds and no guarantee",
        terms=_state_terms(study),
        has_noisy_rows=rotation_of(study).data_noise_scale > 0,
        limitations=_list_limitations(study),
    )


def _list_limitations(study: Study) -> tuple[str, ...]:
    dishonest = _DISHONEST.format(limit=rotation_of(study).weight_limit)
    return (*_LIMITATIONS, dishonest, *([_NO_MAJORITY] if len(study.participants) <= 3 else []))


def _list_agreed(study: Study) -> list[str]:
    settings = rotation_of(study)
    sigma, v = settings.data_noise_scale, settings.anchor_noise_scale
    kept = "all of them are"
    if settings.projection != "none":
        kept = f"{settings.n_components} mixtures of them by a public projection ({settings.projection}) are"
    sentences = [
        f"{len(study.columns)} declared columns become {study.n_features} numbers a row; {kept} shared.",
        f"Method: {settings.described.title}. Every participant moves its rows by a secret rigid map of its own and uploads "
        f"once. An anchor of {settings.n_anchor_rows} rows, secret from the analyst, lets the uploads be aligned.",
        f"Noise on the rows themselves: Gaussian, of scale σ = {sigma:.3g} on every number of a row. Encoded numbers lie "
        "between −1 and 1. Attacks measure the effect of the noise; nothing is proved."
        if sigma > 0
        else "No noise on the rows themselves: each upload is an exact rigid image of them, or of what a projection keeps. "
        f"Whoever knows {settings.n_components + 1} of these rows from elsewhere (components + 1) recovers the upload.",
        f"Noise on the anchor: scale v = {v:.3g}. Anchor noise is no privacy guarantee: the uploaded rows carry none of it."
        if v > 0
        else "No noise on the anchor. (Anchor noise would be no privacy guarantee either.)",
    ]
    if study.label.kind != "none":
        sentences.append("Labels travel as they are: the analyst sees each row's label, by design.")
    return sentences


def _state_terms(study: Study) -> Terms:
    has_label, classes = study.label.kind != "none", study.label.kind == "classes"
    measures = [
        "One upload per participant and study. A ledger in each vault refuses other rows in this study. It also refuses an "
        "upload if more than 1 % of its rows were uploaded in another study, or any of them in secure sums."
    ]
    if classes:
        measures.append(
            f"A participant that has some rows of a class, but fewer than {study.smallest_class}, does not share."
        )
    again = "aligning and training" if has_label else "aligning"
    return Terms(
        what_leaves=_state_upload(study),
        who_sees=_state_views(study),
        not_colluding=_state_collusion(study),
        promises=(_state_promise(study),),
        measures=tuple(measures),
        files=(
            (
                "bundles (NAME.bundle)",
                "analyst's inbox and work folder, copies on the way",
                f"{again} again, letting latecomers in",
            ),
            ("aligned rows, maps (analysis/)", "analyst", "the same"),
            ("the upload and the anchor in vault/studies/", "each participant", "issuing the same bytes again"),
            (
                "keys and ledger of the vault",
                "each participant",
                "applying the participant's map; recognising rows that were shared. Without the ledger nothing stops a "
                "second upload of the same rows",
            ),
        ),
        outputs=(("the bundle", "the analyst"),),
        egress="an upload of rows: it holds one record a row, under a map",
        recall="bundle, once it was sent",
        model_goes_to="every participant whose upload is used, with the map that it needs",
        deleted="nothing by itself",
        not_covered=(
            "An analyst who colludes with a participant, and attackers with other knowledge of the persons: what they "
            "recover is measured by attacks, and no guarantee bounds it.",
        ),
        roles={dealing_member(study).name: "makes the anchor"} if study.participants else {},
    )


def _state_views(study: Study) -> tuple[tuple[str, str], ...]:
    """Return pairs of a party and what it sees."""
    settings = rotation_of(study)
    labels = ", the label of every row" if study.label.kind != "none" else ""
    counts = ", how many rows of each class" if study.label.kind == "classes" else ""
    model = "the model" if study.label.kind != "none" else ""
    undone = "exactly (the anchor carries no noise)"
    if settings.anchor_noise_scale > 0:
        undone = "approximately (the anchor carries noise)"
    remains = "the noise on rows stays" if settings.data_noise_scale > 0 else "nothing else protects the rows then"
    return (
        (
            "the analyst",
            f"every bundle: rows under secret maps{labels}{counts}, how many rows each participant has, who takes part and "
            f"when; the aligned rows of all participants{model and '; ' + model}",
        ),
        (
            "every participant",
            f"the anchor, its own result{model and ', ' + model}; it is sent no other participant's bundle. A participant "
            f"that gets hold of another's bundle can undo its map {undone}; {remains}",
        ),
        (
            "whoever carries files",
            "no content of bundles and results that travel in their envelopes; only their sizes, and who sends when",
        ),
    )


def _state_collusion(study: Study) -> str:
    settings = rotation_of(study)
    known = "the anchor, every label" if study.label.kind != "none" else "the anchor"
    sentences = [
        "No formal guarantee is stated, whoever is honest.",
        f"An analyst who colludes with one participant has {known} and that participant's rows; what attackers then recover "
        "is measured, not bounded.",
        "Attackers with other knowledge, such as records of the same persons, may recover more.",
        f"Whoever knows {settings.n_components + 1} rows of a participant (components + 1) recovers its whole upload.",
        "The parties assume that the analyst does not collude with any participant.",
    ]
    if settings.data_noise_scale > 0:
        del sentences[3]
    return " ".join(sentences)


def _state_promise(study: Study) -> str:
    settings = rotation_of(study)
    sentences = [
        "This method gives no formal guarantee, and nothing here is a reason to call an upload anonymous.",
        "Rows in it can be linked to records that somebody has from elsewhere, and a known record can be recognised as part "
        "of it; how well depends on the data and is measured by attacks.",
        "Noise on rows makes this harder and proves nothing."
        if settings.data_noise_scale > 0
        else "Without noise on rows, an upload is an exact image of them, or of what a projection keeps.",
    ]
    if settings.anchor_noise_scale > 0:
        sentences.append("Noise on the anchor is no protection of rows: they carry none of it.")
    return " ".join(sentences)


def _state_upload(study: Study) -> tuple[str, ...]:
    settings = rotation_of(study)
    sigma, v, h = settings.data_noise_scale, settings.anchor_noise_scale, settings.n_components
    taken = "all of them are taken"
    if settings.projection != "none":
        taken = f"a public projection ({settings.projection}) makes {h} mixtures of them"
    noise = f"Gaussian noise of scale {sigma:g} is added" if sigma > 0 else "no noise is added to the rows"
    anchor_noise = f"with noise of scale {v:g}" if v > 0 else "without noise"
    label = f" It also holds every row's label '{study.label.column}', as it is." if study.label.kind != "none" else ""
    return (
        f"The method is {settings.described.title}. Every participant uploads one file (a bundle), once, to the analyst.",
        f"It holds, for every row, {h} numbers: the {len(study.columns)} declared columns become {study.n_features} numbers "
        f"between −1 and 1, {taken}, {noise}, and all rows are moved by one secret rigid map of the participant's own.",
        f"The bundle also holds {settings.n_anchor_rows} anchor rows under the same map ({anchor_noise}), which are random "
        f"numbers and nobody's records.{label}",
        "The bundle is signed, and travels in an envelope that is sealed to the analyst's key.",
    )
