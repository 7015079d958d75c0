"""The exchange of secure sums: sealed shares leave, a list of them is closed, and one model of their total comes back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mooring.errors import InputError, RefusedError, require_choice
from mooring.learners import LearnerLike
from mooring.learners.models import ModelSpec
from mooring.mechanisms.sums.settings import SECURE_SUM, SumSettings
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
from mooring.protocol.step import Addition, Step
from mooring.protocol.storage.vault import Floors, Vault
from mooring.protocol.sums import bundle
from mooring.protocol.sums.bundle import SumBundle, most_sum_bundle_bytes, verify_sum_bundle
from mooring.protocol.sums.features import study_features
from mooring.protocol.sums.result import SumResultModel, open_sum_model, specify_sum_model
from mooring.protocol.sums.scheme import sum_scheme, sum_settings
from mooring.protocol.sums.steps import ADDITIONS, STEPS
from mooring.serialization import count_noun, read_entries
from mooring.tables.encoder import EncodedRows
from mooring.typing import Matrix, Progress, TableSource

if TYPE_CHECKING:  # attacks and learners take a second to load, which sharing need not wait for
    from mooring.audit import AuditResult, OperatingPoint, PointResult
    from mooring.learners.models import FeatureMap
    from mooring.mechanisms.rotation.projection import Projection
    from mooring.protocol.description import Description
    from mooring.protocol.inspection import Inspection
    from mooring.protocol.sums.total import Closing
    from mooring.protocol.sums.training import SumTraining
    from mooring.tables import Partition


@dataclass(frozen=True)
class SumExchange:
    """What the protocol asks of secure sums."""

    name: str = SECURE_SUM
    sendable: tuple[SendableFile, ...] = (SendableFile(bundle.KIND, bundle.FIELDS, SUFFIX, is_sealed=True),)
    gathers_signed: bool = True
    steps: tuple[Step, ...] = STEPS
    additions: tuple[Addition, ...] = ADDITIONS
    gather_record: str = "closing"

    def list_roles(self, study: Study, name: str) -> tuple[str, ...]:
        """Participants that hold shares are combiners."""
        return ("combiner",) if name in sum_scheme(study).combiners else ()

    def draft(self, entries: Mapping[str, Any], width: int) -> MechanismDraft:
        """All entries, so that people see and change them."""
        own = {key: value for key, value in entries.items() if key != "name"}
        return MechanismDraft(read_entries(SumSettings, own, what="mechanism", cure="Correct it.").as_dict())

    def adapt_to_images(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Take features of pictures."""
        return {**entries, "features": "pictures"}

    def prepare_public_file(self, entries: Mapping[str, Any], n_components: int | None) -> dict[str, Any]:
        """Take features of pictures that are not fitted."""
        own = {key: value for key, value in entries.items() if key != "features_digest"}
        return own if n_components is None else own | {"n_features": n_components}

    def fit_public_file(self, study: Study, batches: Callable[[], Iterable[Matrix]]) -> PublicFile:
        """Features of pictures, fitted to public ones."""
        from mooring.protocol.sums.features import fit_features

        return fit_features(study, batches())

    def audit_points(self, study: Study, parts: Partition, asked: AuditRequest) -> tuple[OperatingPoint, ...]:
        """The study's own sums, at other ε too, and uploads of rows."""
        from mooring.protocol.sums.inspection import list_audit_points

        return list_audit_points(study, parts, asked)

    def audit_projection(self, study: Study) -> Projection:
        """That of rows which a draft of the same columns would upload."""
        from mooring.protocol.participant.contrast import drafted_projection

        return drafted_projection(study)

    def audit_features(self, study: Study) -> FeatureMap:
        """The study's own."""
        return study_features(study)

    def load_records(self) -> None:
        """Load the records of a closing list and of a training on the total."""
        from mooring.protocol.sums import total, training  # noqa: F401

    def describe(self, study: Study) -> Description:
        """What pages say; see `mooring.protocol.sums.description`."""
        from mooring.protocol.sums.description import describe_sums

        return describe_sums(study)

    def find_point(self, study: Study, result: AuditResult) -> PointResult | None:
        """The audited point that has the study's own settings, if there is one."""
        from mooring.protocol.sums.description import find_sum_point

        return find_sum_point(study, result)

    def describe_study(self, study: Study) -> list[tuple[str, str]]:
        """What a study's settings mean, as pairs of a heading and a sentence."""
        settings = sum_settings(study)
        noise = "no noise" if settings.epsilon is None else f"noise for epsilon = {settings.epsilon:g}"
        lines = [
            ("Shares", f"sums over {settings.features} with {noise}, secret-shared among the combiners"),
            ("Guarantee", settings.state_guarantee()),
        ]
        if not study.is_complete:
            return lines
        scheme, t = sum_scheme(study), sum_scheme(study).threshold.threshold
        pooled = scheme.pooled_epsilon
        opened = f"If {t} of them pool their keys, they open every single contribution"
        opened += ", which has no noise." if pooled is None else f", with epsilon = {pooled:.3g}."
        combiners = f"any {t} of {', '.join(scheme.combiners)} open a total of at least {scheme.quorum} contributions"
        return [*lines, ("Combiners", f"{combiners}. {opened}"), ("Absences", scheme.state_absences())]

    def list_warnings(self, study: Study) -> list[str]:
        """A sentence where no combiner may be away."""
        if not study.is_complete or sum_scheme(study).threshold.threshold < len(sum_scheme(study).combiners):
            return []
        return ["Every combiner must answer: a single absent combiner stops the study."]

    def person_column(self, study: Study) -> str:
        """The column that names persons and stays at home."""
        return sum_settings(study).person

    def require_floors(self, study: Study, floors: Floors) -> None:
        """Refuse a study without noise, with more ε, or with fewer who must pool keys than a participant accepts."""
        scheme, settings = sum_scheme(study), sum_settings(study)
        if settings.epsilon is None and not floors.without_noise:
            raise _below_floor("its sums carry no noise, and it gives no guarantee")
        pooled = "epsilon of one contribution, should combiners pool keys,"
        for what, value, most in (
            ("epsilon", settings.epsilon, floors.most_epsilon),
            (pooled, scheme.pooled_epsilon, floors.most_pooled_epsilon),
        ):
            if value is not None and value > most:
                raise _below_floor(f"its {what} of {value:.3g} is above your limit of {most:g}")
        for what, number, least in (
            ("threshold", scheme.threshold.threshold, floors.threshold),
            ("number of colluders", settings.n_colluders, floors.n_colluders),
        ):
            if number < least:
                raise _below_floor(f"its {what} of {number} is below your limit of {least}")

    def list_refusals(
        self, study: Study, n_rows: int, class_counts: Mapping[str, int] | None, persons: PersonCounts | None
    ) -> list[InputError | RefusedError]:
        """Few rows or small classes are refused without noise, and persons with more rows than the study allows."""
        from mooring.protocol.participant.membership import refuse_small_classes

        settings, refusals = sum_settings(study), list[InputError | RefusedError]()
        if settings.epsilon is None:  # beside noise, a class may be small
            refusals += refuse_small_classes(study, class_counts, "such rows can be read in sums")
            if n_rows < settings.least_rows:
                problem = f"The table has {n_rows} rows, but the study needs at least {settings.least_rows}."
                cure = "Collect more rows, or do not take part in this study."
                refusals.append(InputError("rows", problem=problem, cure=cure))
        if persons is None or not settings.person:
            return refusals
        most = settings.rows_per_person
        if most == "mean" and persons.has_nameless:
            problem, cure = "Some rows name no person.", "Leave those rows out, or name the person of each."
            refusals.append(InputError("rows of a person", problem=problem, cure=cure))
        elif most != "mean" and persons.most > most:
            above = count_noun(persons.count_above(most), "person has", "persons have")
            got, expected = f"up to {persons.most} ({above} more than {most})", f"{most} at most, as the study says"
            cure = (
                f"Keep at most {most} rows of each person, chosen without looking at the label; rows that name no "
                "person count as one person's. Or ask for rows_per_person = 'mean', which uses each person's mean."
            )
            refusals.append(InputError("rows of a person", expected=expected, got=got, cure=cure))
        return refusals

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
        """Attack the rows' own sums; see `mooring.protocol.sums.inspection.inspect_sums`."""
        from mooring.protocol.sums.inspection import inspect_sums

        return inspect_sums(study, encoded, n_rows=n_rows, class_counts=class_counts, seed=seed, progress=progress)

    def conclude(self, study: Study, inspection: Inspection) -> Inspection:
        """The same inspection with its decision."""
        from mooring.protocol.sums.inspection import conclude_sums

        return conclude_sums(study, inspection)

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
        """Write the bundle of these rows' sums; see `mooring.protocol.sums.contribution.share_sums`."""
        from mooring.protocol.sums.contribution import share_sums

        return share_sums(vault, study, data, output=output, consent=consent, ignore=ignore, progress=progress)

    def describe_share(self, study: Study, shared: ShareResult) -> tuple[str, str]:
        """What a bundle holds, in words, and whom to send it to."""
        settings, in_all = sum_scheme(study).settings, shared.epsilon_in_all
        sums = f"sums over {count_noun(shared.n_rows, 'row')}, sealed to {len(sum_scheme(study).combiners)} combiners, "
        if settings.epsilon is None:
            return sums + "without noise and without a guarantee", "Send it to the analyst."
        noise = f"with noise for epsilon = {settings.epsilon:g}, delta = {settings.delta:g} a {settings.unit}"
        if in_all is None:
            noise += "; these rows were shared without noise before, so no guarantee over all studies remains"
        elif in_all > settings.epsilon:
            noise += f"; with earlier studies these rows have spent epsilon = {in_all:g} in all"
        return sums + noise, "Send it to the analyst."

    def require_anchor(self, vault: Vault, study: Study, path: Path) -> None:
        """Refuse any anchor: sums have none."""
        raise InputError("anchor", problem="Secure sums do not use an anchor.", cure="Leave the anchor out.")

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
        """Confirm bundles before the list is closed, or combine one's shares of the listed bundles; combiners only."""
        from mooring.protocol.sums.contribution import combine_shares, confirm_bundles

        require_choice("step", step, ("confirm", "combine"))
        if step == "confirm":
            return confirm_bundles(vault, study, files["bundles"], output=output)
        return combine_shares(vault, study, files["bundles"], Path(files["list"]), output=output, progress=progress)

    def verify_bundle(self, path: Path, study: Study) -> SumBundle:
        """Read a bundle of sealed shares, or refuse it with a reason."""
        return verify_sum_bundle(path, study)

    def most_bundle_bytes(self, study: Study) -> int:
        """How large a bundle can be."""
        return most_sum_bundle_bytes(study)

    def gather(self, study: Study, bundles: Sequence[Bundle], folder: Path, options: GatherOptions) -> Closing:
        """Close the list of bundles; see `mooring.protocol.sums.total.close_list`."""
        from mooring.protocol.sums.total import close_list

        if options.signing_key is None:
            cure = "Open the vault that the analyst joined with."
            raise InputError("signing_key", problem="Closing the list needs the analyst's signing key.", cure=cure)
        given, command = cast(Sequence[SumBundle], bundles), options.command
        key, confirmations = options.signing_key, options.confirmations
        return close_list(study, given, folder, key, confirmations=confirmations, command=command)

    def export(self, folder: Path, path: Path, *, force: bool) -> Path:
        """Refuse, because secure sums have no collaboration matrix."""
        cure = "Nobody's rows reach the analyst. Export the model instead, to a file that ends in .onnx."
        raise InputError("study", problem="A study of secure sums has no collaboration matrix.", cure=cure)

    def list_learners(self, study: Study) -> tuple[str, ...]:
        """Learners of sums, "auto" first."""
        from mooring.learners.registry import AUTO, SUM_LEARNERS

        return (AUTO, *(name for name, learner in SUM_LEARNERS.items() if study.label.kind in learner.kinds))

    def require_learner(self, study: Study, learner: LearnerLike) -> None:
        """Refuse a learner that sums do not train."""
        from mooring.learners.registry import resolve_sum_learner

        if study.label.kind != "none":
            resolve_sum_learner(learner, study.label.kind)

    def train(self, study: Study, folder: Path, options: TrainOptions) -> SumTraining:
        """Open the total and train on it; see `mooring.protocol.sums.training.train_sums`."""
        from mooring.protocol.sums.training import train_sums

        if options.shares is None:
            problem = "Training on secure sums needs the combiners' shares of the total."
            cure = "Give their folder with --shares. Combiners write them with 'mooring combine'."
            raise InputError("--shares", problem=problem, cure=cure)
        return train_sums(study, folder, options.shares, learner=options.learner, command=options.command)

    def prepare_results(self, study: Study, folder: Path) -> Deliverable:
        """The model of the total, for everybody."""
        from mooring.protocol.sums.delivery import prepare_sum_model

        return prepare_sum_model(study, folder)

    def specify_model(self, study: Study) -> ModelSpec:
        """Encoded rows, through the study's features, and the label."""
        return specify_sum_model(study)

    def own_result_files(self, study: Study) -> dict[str, int]:
        """None: the model is all that everybody gets."""
        return {}

    def open_result(self, vault: Vault, study: Study, folder: Path) -> SumResultModel:
        """Read the delivered model of the total, or refuse it with a reason."""
        return open_sum_model(vault, study, folder)


def _below_floor(reason: str) -> RefusedError:
    cure = "Ask the study's designer why; your own limits are set when you join."
    return RefusedError("the study", reason=reason, cure=cure)


EXCHANGE: Exchange = SumExchange()
