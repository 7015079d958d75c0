"""How secure sums describe themselves on pages and in governance drafts: the guarantee first."""

from __future__ import annotations

from mooring.mechanisms.sums.class_moments import ClassLayout
from mooring.mechanisms.sums.settings import SumLayouts, SumScheme, SumSettings
from mooring.mechanisms.sums.sums import SumLayout
from mooring.protocol.description import Description, Terms
from mooring.protocol.messages.study import Study
from mooring.protocol.sums.scheme import state_sum_guarantee, sum_promise, sum_scheme
from mooring.serialization import Rows, count_noun


def describe_sums(study: Study) -> Description:
    """Return what pages say about a study in which sealed sums over rows are shared; the study must have its roster."""
    scheme, settings = sum_scheme(study), sum_scheme(study).settings
    guarantee = state_guarantee(study)
    headings = {
        "protected": "Who is protected",
        "against": "Against whom",
        "sealing": "What is sealed",
        "assumptions": "Assumed",
        "limits": "Not covered",
    }
    protected = (
        [f"Protected: {guarantee['protected']} Against: {guarantee['against']}"] if "protected" in guarantee else []
    )
    total = "total" if settings.epsilon is None else "noisy total"
    noise = "No noise is added. Nothing is promised about what the total discloses of a row."
    if settings.epsilon is not None:
        noise = (
            f"Each participant adds discrete Gaussian noise. In a total of {scheme.quorum} contributions, of which "
            f"{settings.n_colluders} may come from colluders, the noise of the others adds up to what "
            f"ε = {settings.epsilon:g} and δ = {settings.delta:g} need."
        )
    return Description(
        kind="of secure sums",
        what_is_shared="sums over these rows",
        agreed=(
            f"{len(study.columns)} declared columns become {scheme.features.n_features} public features of norm one at most "
            f"({settings.features}). Each participant adds up their products {_state_products(scheme)}: "
            f"{scheme.layout.size:,} exact whole numbers, whatever the number of its rows.",
            noise,
            f"No number of rows and no count of classes leaves, apart from what the {total} discloses.",
            f"Combiners: {', '.join(scheme.combiners)}; {scheme.threshold.threshold} of them open the total.",
        ),
        scoring="Participants measure what joining gives: 'mooring predict --beside' scores the joint model, and a model of "
        "the participant's own rows, on the same labelled rows. The analyst has no rows to score a model on.",
        caveat="it gives no guarantee"
        if sum_promise(study) is None
        else "its guarantee covers what is stated, on the assumptions stated",
        terms=_state_terms(study, guarantee),
        shares_rows=False,
        promise=sum_promise(study),
        unit=settings.unit,
        headlines=(state_promise(study), *protected),
        guarantee=tuple((headings[name], words) for name, words in guarantee.items() if name in headings),
    )


def _state_products(scheme: SumScheme) -> str:
    """Return in words which products of features are added up: class by class, or also with the label."""
    return "with each other, class by class" if scheme.is_by_class else "with each other and with the label"


def state_promise(study: Study) -> str:
    """Return the question whether an attacker recognises a member, with the guarantee, or why there is none, as answer."""
    unit = sum_scheme(study).settings.unit
    return f"Can an attacker tell that a {unit} is in the data? {state_sum_guarantee(study)}"


def state_guarantee(study: Study) -> dict[str, str]:
    """Return sentences by topic; without a guarantee, only the topics guarantee, sealing and assumptions."""
    scheme, settings = sum_scheme(study), sum_scheme(study).settings
    n_combiners, threshold = len(scheme.combiners), scheme.threshold.threshold
    parties = scheme.parties
    colluders = count_noun(parties.n_colluders, "participant")
    if parties.n_helpers:
        colluders += f" and {count_noun(parties.n_colluding_helpers, 'helper')}"
    unit = "row"
    if settings.person:
        most = "any number of" if settings.rows_per_person == "mean" else f"at most {settings.rows_per_person}"
        unit = f"person, with {most} rows at one participant"
    twice = "For a person with several rows, ε counts once for each row."
    if settings.person:
        twice = "For a person with rows at several participants, ε counts once for each participant."
    public = ""
    if settings.epsilon is not None:
        public = (
            f" {study.range_source} Features and the split of the budget were fixed without looking at anybody's rows."
        )
    sentences = {
        "protected": f"Every {unit}, of every participant that follows the protocol.",
        "against": f"The analyst and up to {colluders} in collusion with it, with all that they hold and whatever they do, "
        "and everybody who has the model, with any further knowledge.",
        "guarantee": state_sum_guarantee(study),
        "sealing": f"Each contribution is split among {count_noun(n_combiners, 'combiner')}. Any {threshold} who follow "
        "the "
        f"protocol open the total of one list, of at least {scheme.quorum} contributions; {threshold} who together "
        "break it "
        f"can open every single contribution; fewer than {threshold} learn nothing about any contribution. "
        f"{scheme.state_absences()}",
        "assumptions": f"Collusion with the analyst is limited to {colluders}; the others follow the protocol, on rows that "
        f"go out in no other way, and fewer than {threshold} combining keys leak, then or later. The signing "
        "keys in the roster are the members' own, which comparing fingerprints shows. The ciphers "
        f"hold (ML-KEM-768 or X25519; ChaCha20-Poly1305, HKDF-SHA256, SHA3-256, Ed25519, SHA-256).{public}",
        "limits": f"What a vault spends in several such studies adds up; its ledger counts it. {twice} A participant "
        f"can invent up to {settings.most_rows:,} rows with valid values, and more if others share fewer, which falsifies "
        "the model unnoticed; a total of more rows than all participants together may add is refused.",
    }
    without_promise = ("guarantee", "sealing", "assumptions")
    return sentences if sum_promise(study) is not None else {name: sentences[name] for name in without_promise}


def _state_terms(study: Study, guarantee: dict[str, str]) -> Terms:
    scheme, settings = sum_scheme(study), sum_scheme(study).settings
    is_noisy, threshold = settings.epsilon is not None, scheme.threshold.threshold
    promises: tuple[str, ...] = (guarantee["guarantee"],)
    if sum_promise(study) is not None:
        promises = (
            f"ε = {settings.epsilon:g}, δ = {settings.delta:g}, unit: one {settings.unit}.",
            f"Who is protected: {guarantee['protected']}",
            f"Against whom: {guarantee['against']}",
            f"How much: {guarantee['guarantee']}",
            f"Assumed: {guarantee['assumptions']}",
            f"Not covered: {guarantee['limits']}",
        )
    return Terms(
        what_leaves=(
            f"The method is secure sums. Every participant uploads one file (a bundle), once. It holds "
            f"{scheme.layout.size:,} "
            f"sums over all its rows, of products of public features {_state_products(scheme)}; no row and no single "
            f"label is in it. Only the {'noisy ' if is_noisy else ''}total of all shows how many rows there are.",
            "Random noise is added to the sums before they leave." if is_noisy else "No noise is added to the sums.",
            f"The sums are split and encrypted to the combiners. {guarantee['sealing']}",
        ),
        who_sees=(
            (
                "the analyst",
                f"sealed bundles, who takes part and when, the total of one list of at least {scheme.quorum} "
                "contributions, "
                f"{'with' if is_noisy else 'without'} noise; the model",
            ),
            ("every combiner", "its own encrypted share of every contribution"),
            ("every participant", "its own result, the model"),
            (
                "whoever carries files",
                "sealed bundles, the list of those that are in the total, and shares of the total, enough of which open it",
            ),
        ),
        not_colluding=f"{guarantee['assumptions']} It is for each party named above to confirm that these hold.",
        promises=promises,
        measures=(
            "One contribution a participant and study. A ledger in each vault adds up what it spends over studies.",
            "A combiner answers one list, once, and then destroys the key that opens its shares.",
        ),
        files=(
            (
                "bundles, receipts, shares of the total",
                "analyst's inbox, combiners, copies on the way",
                f"opening the total. If the keys of {threshold} combiners leak, single contributions can be opened: delete "
                "bundles early",
            ),
            ("the opened total, records (analysis/)", "analyst", "training again"),
            ("keys and ledger of the vault", "each participant and helper", "counting what the vault spends"),
        ),
        outputs=(
            ("the bundle", "the analyst and the combiners"),
            ("receipt and share of the total, of a combiner", "the analyst"),
        ),
        egress="sealed sums: nobody can read them before the total is opened",
        recall="total, once it was opened",
        model_goes_to="every participant on the roster",
        deleted="one thing by itself: a combiner's key for this study, once the combiner has answered the list",
        not_covered=(
            guarantee["limits"]
            if sum_promise(study) is not None
            else "Attacks on the total and on the model: no guarantee bounds them.",
            f"{threshold} combiners who break the protocol together open every single contribution.",
        ),
        roles=dict.fromkeys(scheme.combiners, "combiner"),
        local_columns={settings.person: "says which rows belong to one person"} if settings.person else {},
    )


def list_sums(settings: SumSettings, layout: SumLayouts) -> Rows:
    """Return a table of the sums that a participant adds up: how many numbers, their weight, and their share of the budget.

    In the general total, the number of rows and the columns have weights, which sum to one, and the noise of a product of
    two columns falls with the product of their weights.
    """
    headings = ("sums", "numbers", "weight", "share of the budget")
    if isinstance(layout, ClassLayout):
        words = f"products of {layout.n_features - 1} features over the rows of each class"
        return [headings, (f"{words}: {layout.n_classes} classes", f"{layout.size:,}", "1", "100%")]
    if isinstance(layout, SumLayout):
        products, outcomes = layout.n_products, layout.size - layout.n_products
        of_products = settings.product_share
        return [
            headings,
            ("products of features", f"{products:,}", "1", f"{of_products:.0%}"),
            ("products of features and the label", f"{outcomes:,}", "1", f"{1 - of_products:.0%}"),
        ]
    workload = layout.workload
    lines = [("number of rows", "1", f"{workload.constant_share:.3f}", "")]
    for index, (levels, share) in enumerate(zip(workload.columns, workload.shares, strict=True)):
        squares = index in workload.bubbles
        what = "curve of 8 nodes, and squares" if squares else count_noun(levels.n_levels, "level")
        lines.append((f"{levels.name}: {what}", f"{levels.n_levels - 1 + squares:,}", f"{share:.3f}", ""))
    pairs = layout.size - 1 - sum(int(line[1]) for line in lines[1:])
    lines.append(("products of two columns", f"{pairs:,}", "", ""))
    return [headings, *lines, ("all", f"{layout.size:,}", "", "100%")]
