"""The exchange of rotation: rows under a secret map leave, are aligned by the anchor, and come back as map and model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mooring.errors import InputError, RefusedError, require_choice
from mooring.learners import LearnerLike
from mooring.learners.models import ModelSpec
from mooring.mechanisms.sums.sums import PersonCounts
from mooring.protocol.exchange import Deliverable, Exchange, GatherOptions, SendableFile, TrainOptions
from mooring.protocol.messages.bundle import SUFFIX, Bundle
from mooring.protocol.messages.study import Study
from mooring.protocol.results import Consent, ShareResult, StepResult
from mooring.protocol.rotation import anchor, bundle
from mooring.protocol.rotation.bundle import RowBundle, verify_bundle
from mooring.protocol.rotation.perturbation import deal_anchor, open_anchor
from mooring.protocol.rotation.result import MAP_FILE, MappedModel, bound_map_bytes, open_mapped_model, specify_model
from mooring.protocol.rotation.steps import ADDITIONS, STEPS
from mooring.protocol.step import Addition, Step
from mooring.protocol.storage.vault import Floors, Vault
from mooring.serialization import count_noun
from mooring.tables.encoder import EncodedRows
from mooring.typing import Progress, TableSource

if TYPE_CHECKING:  # attacks and learners take a second to load, which sharing need not wait for
    from mooring.audit import AuditResult, PointResult
    from mooring.protocol.description import Description
    from mooring.protocol.inspection import Inspection
    from mooring.protocol.rotation.alignment import Aligned
    from mooring.protocol.rotation.training import Training

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
        return ("dealer",) if study.dealing_member.name == name else ()

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
        scales = ("private-data", study.data_noise_scale), ("anchor", study.anchor_noise_scale)
        noises = [f"{what} noise {scale:g}" for what, scale in scales if scale > 0]
        return [
            ("Method", f"{study.method_described.title}, {', '.join(noises) or 'no noise at all'}"),
            ("Shares", f"{study.n_components} components of {study.n_features}, by {_PROJECTIONS[study.projection]}"),
            ("Anchor", f"{study.n_anchor_rows} rows"),
            ("Refuses", f"participants with fewer than {study.smallest_class} rows of a class (but some)"),
        ]

    def list_warnings(self, study: Study) -> list[str]:
        """None: nothing of rotation depends on how many members there are."""
        return []

    def person_column(self, study: Study) -> str:
        """None: the unit of rotation is a row."""
        return ""

    def require_floors(self, study: Study, floors: Floors) -> None:
        """Refuse a study whose noise is below a participant's floors."""
        method = study.method_described
        cure = "Ask the study's designer why; your own floors are set when you join."
        if not (method.data_noise or method.anchor_noise) and not floors.without_noise:
            raise RefusedError("the study", reason=f"its method, {study.method}, adds no noise at all", cure=cure)
        for used, scale, floor, noise in (
            (method.anchor_noise, study.anchor_noise_scale, floors.anchor_noise, "anchor noise"),
            (method.data_noise, study.data_noise_scale, floors.data_noise, "private-data noise"),
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
