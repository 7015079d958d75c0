"""The exchange of rotation: rows under a secret map leave, are aligned by the anchor, and come back as map and model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mooring.errors import InputError, RefusedError, require_choice
from mooring.learners import LearnerLike
from mooring.learners.models import ModelSpec
from mooring.mechanisms.sums.sums import PersonCounts
from mooring.protocol.exchange import (
    AuditRequest,
    Deliverable,
    Exchange,
    GatherOptions,
    MechanismDraft,
    PublicFile,
    SendableFile,
    TrainOptions,
)
from mooring.protocol.messages.bundle import SUFFIX, Bundle
from mooring.protocol.messages.study import Study
from mooring.protocol.results import Consent, ShareResult, StepResult
from mooring.protocol.rotation import anchor, bundle
from mooring.protocol.rotation.bundle import RowBundle, verify_bundle
from mooring.protocol.rotation.perturbation import deal_anchor, open_anchor
from mooring.protocol.rotation.projection import study_projection
from mooring.protocol.rotation.result import MAP_FILE, MappedModel, bound_map_bytes, open_mapped_model, specify_model
from mooring.protocol.rotation.scheme import dealing_member, rotation_of
from mooring.protocol.rotation.steps import ADDITIONS, STEPS
from mooring.protocol.step import Addition, Step
from mooring.protocol.storage.vault import Floors, Vault
from mooring.serialization import count_noun
from mooring.tables.encoder import EncodedRows
from mooring.typing import Matrix, Progress, TableSource

if TYPE_CHECKING:  # attacks and learners take a second to load, which sharing need not wait for
    from mooring.audit import AuditResult, OperatingPoint, PointResult
    from mooring.learners.models import FeatureMap
    from mooring.mechanisms.rotation.projection import Projection
    from mooring.protocol.description import Description
    from mooring.protocol.inspection import Inspection
    from mooring.protocol.rotation.alignment import Aligned
    from mooring.protocol.rotation.training import Training
    from mooring.tables import Partition

_PROJECTIONS = {
    "none": "no projection",
    "gaussian": "a random projection that follows from the nonce",
    "public-svd": "a projection from public rows, in a file beside the study",
}


@dataclass(frozen=True)
class RotationExchange:
    """What the protocol asks of rotation."""

    name: str = "rotation"
    sendable: tuple[SendableFile, ...] = (
        SendableFile(bundle.KIND, bundle.FIELDS, SUFFIX, is_sealed=False),
        SendableFile(anchor.KIND, anchor.FIELDS, anchor.SUFFIX, is_sealed=True),
    )
    gathers_signed: bool = False
    steps: tuple[Step, ...] = STEPS
    additions: tuple[Addition, ...] = ADDITIONS
    gather_record: str = "alignment"

    def list_roles(self, study: Study, name: str) -> tuple[str, ...]:
        """The participant that deals the anchor is the dealer."""
        return ("dealer",) if dealing_member(study).name == name else ()

    def draft(self, entries: Mapping[str, Any], width: int) -> MechanismDraft:
        """Wide rows are projected, and a method has its usual noise, unless the entries say otherwise."""
        from mooring.protocol.rotation.draft import draft_rotation

        return draft_rotation(entries, width)

    def adapt_to_images(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Leave them as they are: pixels are columns."""
        return dict(entries)

    def prepare_public_file(self, entries: Mapping[str, Any], n_components: int | None) -> dict[str, Any]:
        """Take a Gaussian projection instead of the public one."""
        from mooring.protocol.rotation.draft import take_gaussian

        return take_gaussian(entries, n_components)

    def fit_public_file(self, study: Study, batches: Callable[[], Iterable[Matrix]]) -> PublicFile:
        """The projection on the principal directions of public rows."""
        from mooring.protocol.rotation.draft import project_on_public

        return project_on_public(study, batches)

    def audit_points(self, study: Study, parts: Partition, asked: AuditRequest) -> tuple[OperatingPoint, ...]:
        """The study's own point, other methods, and sums."""
        from mooring.protocol.rotation.inspection import list_audit_points

        return list_audit_points(study, parts, asked)

    def audit_projection(self, study: Study) -> Projection:
        """The study's own."""
        return study_projection(study)

    def audit_features(self, study: Study) -> FeatureMap:
        """Those that sums of the same columns would have."""
        from mooring.protocol.participant.contrast import drafted_features

        return drafted_features(study)

    def load_records(self) -> None:
        """Load the records of an alignment and of a training on aligned rows."""
        from mooring.protocol.rotation import alignment_state, training  # noqa: F401

    def describe(self, study: Study) -> Description:
        """What pages say; see `mooring.protocol.rotation.description`."""
        from mooring.protocol.rotation.description import describe_rotation

        return describe_rotation(study)

    def find_point(self, study: Study, result: AuditResult) -> PointResult | None:
        """The audited point that has the study's own settings, if there is one."""
        from mooring.protocol.rotation.description import find_rotation_point

        return find_rotation_point(study, result)

    def describe_study(self, study: Study) -> list[tuple[str, str]]:
        """What a study's settings mean, as pairs of a heading and a sentence."""
        settings = rotation_of(study)
        scales = ("private-data", settings.data_noise_scale), ("anchor", settings.anchor_noise_scale)
        noises = [f"{what} noise {scale:g}" for what, scale in scales if scale > 0]
        by = _PROJECTIONS[settings.projection]
        lines = [
            ("Method", f"{settings.described.title}, {', '.join(noises) or 'no noise at all'}"),
            ("Shares", f"{settings.n_components} components of {study.n_features}, by {by}"),
            ("Anchor", f"{settings.n_anchor_rows} rows"),
            ("Refuses", f"participants with fewer than {study.smallest_class} rows of a class (but some)"),
        ]
        return [*lines, ("Dealer", dealing_member(study).name)] if study.is_complete else lines

    def list_warnings(self, study: Study) -> list[str]:
        """None: nothing of rotation depends on how many members there are."""
        return []

    def person_column(self, study: Study) -> str:
        """None: the unit of rotation is a row."""
        return ""

    def require_floors(self, study: Study, floors: Floors) -> None:
        """Refuse a study whose noise is below a participant's floors."""
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
        self, study: Study, n_rows: int, class_counts: Mapping[str, int] | None, persons: PersonCounts | None
    ) -> list[InputError | RefusedError]:
        """A class with few rows is refused, since labels are visible."""
        from mooring.protocol.participant.membership import refuse_small_classes

        return [*refuse_small_classes(study, class_counts, "labels are visible to the analyst: such rows stand out")]

    def inspect(
        self,
        study: Study,
        encoded: EncodedRows,
        *,
        n_rows: int,
        class_counts: dict[str, int] | None,
        seed: int,
        progress: Progress | None,
    ) -> Inspection:
        """A part of the rows attacks another; see `mooring.protocol.rotation.inspection.inspect`."""
        from mooring.protocol.rotation.inspection import inspect

        return inspect(study, encoded, n_rows=n_rows, class_counts=class_counts, seed=seed, progress=progress)

    def conclude(self, study: Study, inspection: Inspection) -> Inspection:
        """The same inspection with its decision."""
        from mooring.protocol.rotation.inspection import conclude

        return conclude(study, inspection)

    def share(
        self,
        vault: Vault,
        study: Study,
        data: TableSource,
        *,
        output: Path,
        consent: Consent,
        anchor: Path | None,
        ignore: Collection[str],
        progress: Progress | None,
    ) -> ShareResult:
        """Write the bundle of these rows; see `mooring.protocol.rotation.upload.share_rows`."""
        from mooring.protocol.rotation.upload import share_rows

        if anchor is None:
            cure = "Give the file that the dealer sent."
            raise InputError("anchor", expected="given, to share rows", got="none", cure=cure)
        files: dict[str, Any] = {"anchor": anchor, "output": output}
        return share_rows(vault, study, data, **files, consent=consent, ignore=ignore, progress=progress)

    def describe_share(self, study: Study, shared: ShareResult) -> tuple[str, str]:
        """What a bundle holds, in words, and whom to send it to."""
        to_whom = "Send it to the analyst, and to nobody else: other participants know the anchor."
        return f"{count_noun(shared.n_rows, 'row')}, shuffled", to_whom

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
        """Deal the anchor; the dealer only."""
        require_choice("step", step, ("deal",))
        digest = deal_anchor(vault, study, output)
        sealed = f"Wrote {output.name}, sealed to {len(study.participants)} participants. Send it to each of them."
        return StepResult(str(output), digest, (sealed,))

    def verify_bundle(self, path: Path, study: Study) -> RowBundle:
        """Read a bundle of rows, or refuse it with a reason."""
        return verify_bundle(path, study)

    def most_bundle_bytes(self, study: Study) -> int:
        """How large a bundle can be."""
        return 200 * 10**9

    def gather(self, study: Study, bundles: Sequence[Bundle], folder: Path, options: GatherOptions) -> Aligned:
        """Align bundles; see `mooring.protocol.rotation.alignment.align_bundles`."""
        from mooring.protocol.rotation.alignment import align_bundles

        how: dict[str, Any] = {name: getattr(options, name) for name in ("mode", "certify", "command", "progress")}
        return align_bundles(study, cast(Sequence[RowBundle], bundles), folder, **how)

    def export(self, folder: Path, path: Path, *, force: bool) -> Path:
        """Copy the collaboration matrix."""
        from mooring.protocol.rotation.collaboration_matrix import export

        return export(folder, path, force=force)

    def list_learners(self, study: Study) -> tuple[str, ...]:
        """Learners whose models hold nobody's rows, "auto" first."""
        from mooring.learners import AUTO, LEARNERS

        return (AUTO, *(name for name, learner in LEARNERS.items() if learner.delivers))

    def require_learner(self, study: Study, learner: LearnerLike) -> None:
        """Refuse a learner whose model cannot be trained or delivered."""
        from mooring.learners import require_learner

        require_learner(learner, to_deliver=True)

    def train(self, study: Study, folder: Path, options: TrainOptions) -> Training:
        """Train on the aligned rows; see `mooring.protocol.rotation.training.train`."""
        from mooring.protocol.rotation.training import train

        how: dict[str, Any] = {name: getattr(options, name) for name in ("learner", "seed", "command", "progress")}
        return train(study, folder, **how)

    def prepare_results(self, study: Study, folder: Path) -> Deliverable:
        """Each aligned participant's map, and the model where one was trained."""
        from mooring.protocol.rotation.delivery import prepare_maps

        return prepare_maps(study, folder)

    def specify_model(self, study: Study) -> ModelSpec:
        """Aligned rows, and the label."""
        return specify_model(study)

    def own_result_files(self, study: Study) -> dict[str, int]:
        """The map."""
        return {MAP_FILE: bound_map_bytes(study)}

    def open_result(self, vault: Vault, study: Study, folder: Path) -> MappedModel:
        """Read a participant's own map and the model, or refuse them with a reason."""
        return open_mapped_model(vault, study, folder)


EXCHANGE: Exchange = RotationExchange()
