"""The exchange of rotation: rows leave under secret maps, the anchor aligns them, and maps and a model come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from mooring.errors import InputError, RefusedError, require_choice
from mooring.learners import AUTO, LEARNERS, LearnerLike, require_learner
from mooring.protocol.exchange import Assessment, Exchange
from mooring.protocol.exchange_types import Deliverable, GatherOptions, SendableFile, TrainOptions
from mooring.protocol.messages.bundle import SUFFIX, Bundle
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import refuse_small_classes
from mooring.protocol.results import ShareResult, StepResult
from mooring.protocol.rotation import anchor, bundle
from mooring.protocol.rotation.analyst.alignment import align_bundles
from mooring.protocol.rotation.analyst.alignment_state import AlignmentRecord
from mooring.protocol.rotation.analyst.collaboration_matrix import export
from mooring.protocol.rotation.anchor import deal_anchor, open_anchor
from mooring.protocol.rotation.bundle import RowBundle, verify_bundle
from mooring.protocol.rotation.description import describe_rotation
from mooring.protocol.rotation.draft import draft_rotation, project_on_public, take_gaussian
from mooring.protocol.rotation.participant.upload import share_rows
from mooring.protocol.rotation.result import MAP_FILE, bound_map_bytes, open_mapped_model, specify_model
from mooring.protocol.rotation.scheme import dealing_member, rotation_of
from mooring.protocol.rotation.steps import ADDITIONS, STEPS
from mooring.protocol.step import Addition, Step
from mooring.protocol.storage.vault import Floors, Vault
from mooring.serialization import count_noun
from mooring.typing import Progress

if TYPE_CHECKING:
    from mooring.protocol.rotation.analyst.training_record import Training

_PROJECTIONS = {
    "none": "without a projection",
    "gaussian": "by a random projection that follows from the nonce",
    "public-svd": "by a projection from public rows, in a file beside the study",
}


class RotationExchange(Exchange):
    """What the protocol asks of rotation."""

    name: ClassVar[str] = "rotation"
    steps: ClassVar[tuple[Step, ...]] = STEPS
    additions: ClassVar[tuple[Addition, ...]] = ADDITIONS
    sendable: ClassVar[tuple[SendableFile, ...]] = (
        SendableFile(bundle.KIND, bundle.FIELDS, SUFFIX, is_sealed=False),
        SendableFile(anchor.KIND, anchor.FIELDS, anchor.SUFFIX, is_sealed=True),
    )
    gather_record: ClassVar[str] = "alignment"

    draft = staticmethod(draft_rotation)
    prepare_public_file = staticmethod(take_gaussian)
    fit_public_file = staticmethod(project_on_public)
    share = staticmethod(share_rows)
    open_result = staticmethod(open_mapped_model)
    verify_bundle = staticmethod(verify_bundle)
    export = staticmethod(export)
    specify_model = staticmethod(specify_model)
    describe = staticmethod(describe_rotation)

    @property
    def assessment(self) -> Assessment:
        """Attacks on rows under a secret map."""
        from mooring.protocol.rotation.participant import inspection

        return inspection

    def list_roles(self, study: Study, name: str) -> tuple[str, ...]:
        """Return the role of dealer for the participant that makes the anchor; empty for any other member."""
        return ("dealer",) if dealing_member(study).name == name else ()

    def require_floors(self, study: Study, floors: Floors) -> None:
        """Refuse a study with less noise than a participant's floors demand, or with none if the floors demand noise."""
        settings = rotation_of(study)
        method = settings.described
        cure = "Ask the study's designer why; your own floors are set when you join."
        if not (method.data_noise or method.anchor_noise) and not floors.without_noise:
            raise RefusedError("the study", reason=f"its method, {settings.method}, adds no noise at all", cure=cure)
        for used, scale, floor, noise in (
            (method.anchor_noise, settings.anchor_noise_scale, floors.anchor_noise, "anchor noise"),
            (method.data_noise, settings.data_noise_scale, floors.data_noise, "private-data noise"),
        ):
            if used and scale < floor:
                reason = f"its {noise} of {scale:g} is below your floor of {floor:g}"
                raise RefusedError("the study", reason=reason, cure=cure)

    def list_refusals(
        self, study: Study, n_rows: int, class_counts: Mapping[str, int] | None
    ) -> list[InputError | RefusedError]:
        """Return an error for each class that has rows, but fewer than the study demands, because labels are visible."""
        return [*refuse_small_classes(study, class_counts, "labels are visible to the analyst: such rows stand out")]

    def describe_share(self, study: Study, shared: ShareResult) -> tuple[str, str]:
        """Return what a bundle holds, in words, and whom to send it to."""
        to_whom = "Send it to the analyst alone: it is not sealed, and other participants know the anchor."
        limit = f"{rotation_of(study).weight_limit:g} times the rows of the median participant"
        used = f"training uses at most {limit}, drawn at random if you have more"
        return f"{count_noun(shared.n_rows, 'row')}, shuffled; {used}", to_whom

    def require_anchor(self, vault: Vault, study: Study, path: Path) -> None:
        """Refuse an anchor that is not the dealer's, or not sealed to this participant."""
        open_anchor(vault, study, path)

    def take_step(
        self,
        step: str,
        vault: Vault,
        study: Study,
        *,
        output: Path,
        files: Mapping[str, str | Path],
        progress: Progress | None,
    ) -> StepResult:
        """Make the anchor; only the dealer can do this."""
        require_choice("step", step, ("deal",))
        digest = deal_anchor(vault, study, output)
        sealed = f"Wrote {output.name}, sealed to {len(study.participants)} participants."
        return StepResult(str(output), digest, (sealed,), hand_off="Send it to each of them.")

    def own_result_files(self, study: Study) -> dict[str, int]:
        """Return the name of the file with the participant's map, and the largest size of this file in bytes."""
        return {MAP_FILE: bound_map_bytes(study)}

    def most_bundle_bytes(self, study: Study) -> int:
        """Return the largest possible size of a bundle in bytes."""
        return 200 * 10**9

    def gather(self, study: Study, bundles: Sequence[Bundle], folder: Path, options: GatherOptions) -> AlignmentRecord:
        """Align bundles; see `mooring.protocol.rotation.analyst.alignment.align_bundles`."""
        rows = cast(Sequence[RowBundle], bundles)
        return align_bundles(
            study,
            rows,
            folder,
            mode=options.mode,
            certify=options.certify,
            command=options.command,
            progress=options.progress,
        ).record

    def list_learners(self, study: Study) -> tuple[str, ...]:
        """Return the learners whose models hold nobody's rows, "auto" first."""
        return (AUTO, *(name for name, learner in LEARNERS.items() if learner.delivers))

    def require_learner(self, study: Study, learner: LearnerLike) -> None:
        """Refuse a learner whose model cannot be trained or delivered."""
        require_learner(learner, to_deliver=True)

    def train(self, study: Study, folder: Path, options: TrainOptions) -> Training:
        """Train on the aligned rows; see `mooring.protocol.rotation.analyst.training.train`."""
        from mooring.protocol.rotation.analyst.training import train

        return train(
            study,
            folder,
            learner=options.learner,
            seed=options.seed,
            command=options.command,
            progress=options.progress,
        )

    def load_training_kind(self) -> type[Training]:
        """Return the class of training records; importing this class also imports the audit."""
        from mooring.protocol.rotation.analyst.training_record import Training

        return Training

    def prepare_results(self, study: Study, folder: Path) -> Deliverable:
        """Return each aligned participant's map, and the model if one was trained."""
        from mooring.protocol.rotation.analyst.delivery import prepare_maps

        return prepare_maps(study, folder)

    def describe_study(self, study: Study) -> list[tuple[str, str]]:
        """Return what a study's settings mean, as pairs of a heading and a sentence."""
        settings = rotation_of(study)
        scales = ("private-data", settings.data_noise_scale), ("anchor", settings.anchor_noise_scale)
        noises = [f"{what} noise {scale:g}" for what, scale in scales if scale > 0]
        by = _PROJECTIONS[settings.projection]
        lines = [
            ("Method", f"{settings.described.title}, {', '.join(noises) or 'no noise at all'}"),
            ("Shares", f"{settings.n_components} components of {study.n_features}, {by}"),
            ("Anchor", f"{settings.n_anchor_rows} rows"),
            ("Refuses", f"participants that have some rows of a class, but fewer than {study.smallest_class}"),
            ("Weighs", f"a participant by at most {settings.weight_limit:g} times the rows of the median participant"),
        ]
        return [*lines, ("Dealer", dealing_member(study).name)] if study.is_complete else lines

    def list_warnings(self, study: Study) -> list[str]:
        """Return a warning for three participants or fewer, because each is compared with two others at most."""
        if len(study.participants) > 3:
            return []
        return [
            "With three participants or fewer, each is compared with two others at most. If one of these others is "
            "dishonest, they have no honest majority, and nothing shows whose labels or rows are false."
        ]


EXCHANGE = RotationExchange()
