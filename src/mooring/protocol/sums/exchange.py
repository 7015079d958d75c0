"""The exchange of secure sums: sealed shares leave, the analyst lists those of the total, and a model comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from mooring.errors import InputError, RefusedError, require_choice
from mooring.learners import LearnerLike
from mooring.learners.registry import AUTO, list_sum_learners, resolve_sum_learner
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.mechanisms.sums.settings import SECURE_SUM, SumSettings, make_features, make_layout
from mooring.mechanisms.sums.sums import PersonCounts
from mooring.protocol.exchange import Assessment, Exchange
from mooring.protocol.exchange_types import GatherOptions, MechanismDraft, SendableFile, TrainOptions
from mooring.protocol.forecast import StudyForecast
from mooring.protocol.messages.bundle import SUFFIX, Bundle
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import refuse_small_classes
from mooring.protocol.results import ShareResult, StepResult
from mooring.protocol.step import Addition, Step
from mooring.protocol.storage.vault import Floors, Vault
from mooring.protocol.sums import answers, bundle
from mooring.protocol.sums.analyst.delivery import prepare_sum_model
from mooring.protocol.sums.analyst.total import Closing, close_list, open_total
from mooring.protocol.sums.analyst.training import SumTraining, train_sums
from mooring.protocol.sums.bundle import SumBundle, most_sum_bundle_bytes, verify_sum_bundle
from mooring.protocol.sums.combiner.combination import check_boxes, combine_shares
from mooring.protocol.sums.description import describe_sums, list_sums
from mooring.protocol.sums.features import fit_features
from mooring.protocol.sums.participant.contribution import share_sums
from mooring.protocol.sums.result import model_schema, open_sum_model, specify_sum_model
from mooring.protocol.sums.scheme import (
    explain_missing_guarantee,
    state_sum_guarantee,
    sum_scheme,
    sum_settings,
)
from mooring.protocol.sums.steps import ADDITIONS, STEPS
from mooring.serialization import Rows, count_noun, read_entries
from mooring.tables.encoder import EncodedRows
from mooring.typing import Progress

if TYPE_CHECKING:
    from mooring.mechanisms.sums.answers import AskedAnswer


class SumExchange(Exchange):
    """What the protocol asks of secure sums."""

    name: ClassVar[str] = SECURE_SUM
    steps: ClassVar[tuple[Step, ...]] = STEPS
    additions: ClassVar[tuple[Addition, ...]] = ADDITIONS
    sendable: ClassVar[tuple[SendableFile, ...]] = (
        SendableFile(bundle.KIND, bundle.FIELDS, SUFFIX, is_sealed=True),
        *(
            SendableFile(kind, answers.FIELDS[kind], suffix, is_sealed=False)
            for kind, suffix in answers.SUFFIXES.items()
        ),
    )
    gathers_signed: ClassVar[bool] = True
    gather_record: ClassVar[str] = "closing"

    fit_public_file = staticmethod(fit_features)
    share = staticmethod(share_sums)
    open_result = staticmethod(open_sum_model)
    verify_bundle = staticmethod(verify_sum_bundle)
    most_bundle_bytes = staticmethod(most_sum_bundle_bytes)
    prepare_results = staticmethod(prepare_sum_model)
    specify_model = staticmethod(specify_sum_model)
    describe = staticmethod(describe_sums)

    @property
    def assessment(self) -> Assessment:
        """Attacks on the total."""
        from mooring.protocol.sums.participant import inspection

        return inspection

    def draft(self, entries: Mapping[str, Any], width: int, *, has_images: bool, has_label: bool) -> MechanismDraft:
        """Return all entries with defaults, so that people can see and change them; images get features of pictures."""
        settings = {key: value for key, value in entries.items() if key != "name"}
        settings |= {"features": "pictures"} if has_images else {}
        drafted = read_entries(SumSettings, settings, what="mechanism", cure="Correct it.")
        drafted.require_label(has_label)
        return MechanismDraft(drafted.as_dict())

    def prepare_public_file(self, entries: Mapping[str, Any], n_components: int | None) -> dict[str, Any]:
        """Return the entries without a fit of the features; a given `n_components` becomes the number of features."""
        unfitted = {key: value for key, value in entries.items() if key != "features_digest"}
        return unfitted if n_components is None else unfitted | {"n_features": n_components}

    def list_roles(self, study: Study, name: str) -> tuple[str, ...]:
        """Return the role of combiner for a member that is one of the combiners; empty for any other member."""
        return ("combiner",) if name in sum_scheme(study).combiners else ()

    def person_column(self, study: Study) -> str:
        """Return the column that names persons, which is not shared; empty if the study has none."""
        return sum_settings(study).person

    def require_floors(self, study: Study, floors: Floors) -> None:
        """Refuse a study below a participant's floors: on noise, ε, the threshold or the number of colluders."""
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

    def adapts_rows(self, study: Study) -> bool:
        """Return whether unfit cells are adapted: with noise, the guarantee forbids refusing a table because of one row."""
        return sum_settings(study).epsilon is not None

    def advise_sharing(self, study: Study) -> str:
        """Return advice from guarantee and forecast, since with noise no check of rows may decide; empty without noise."""
        if sum_settings(study).epsilon is None:
            return ""
        from mooring.audit.results.decision import decide_upload
        from mooring.protocol.sums.participant.inspection import weigh_study

        return decide_upload("sums over these rows", weigh_study(study, self.forecast(study))).answer

    def list_refusals(
        self, study: Study, n_rows: int, class_counts: Mapping[str, int] | None
    ) -> list[InputError | RefusedError]:
        """Return errors for too few rows and for small classes in a study without noise; with noise, none."""
        settings, refusals = sum_settings(study), list[InputError | RefusedError]()
        if settings.epsilon is None:
            refusals += refuse_small_classes(study, class_counts, "such rows can be read in sums")
            if n_rows < settings.least_rows:
                problem = f"The table has {n_rows} rows, but the study needs at least {settings.least_rows}."
                cure = "Collect more rows, or do not take part in this study."
                refusals.append(InputError("rows", problem=problem, cure=cure))
        return refusals

    def describe_persons(self, study: Study, persons: PersonCounts) -> list[str]:
        """Return a sentence on rows that are left out because the study limits the rows per person; empty if none are."""
        most = sum_settings(study).rows_per_person
        above = 0 if most == "mean" else persons.count_above(most)
        have = count_noun(above, "person has", "persons have")
        return (
            [f"{have} more than {most} rows; of each, 'mooring share' adds {most}, chosen by a key."] if above else []
        )

    def describe_share(self, study: Study, shared: ShareResult) -> tuple[str, str]:
        """Return what a bundle holds, in words, and whom to send it to."""
        settings, in_all = sum_scheme(study).settings, shared.epsilon_in_all
        again = "; it holds the rows that the table had then" if shared.reissued else ""
        to_combiners = f"sealed to {len(sum_scheme(study).combiners)} combiners, "
        if settings.epsilon is None or in_all is None:
            sums = f"sums over {count_noun(shared.n_rows, 'row')}, {to_combiners}without noise and without a guarantee"
            return sums + again, "Send it to the analyst."
        noise = f"with noise for epsilon = {settings.epsilon:g}, delta = {settings.delta:g} a {settings.unit}"
        if in_all > settings.epsilon:
            noise += f"; this vault has spent epsilon = {in_all:g} in all its studies, added up whatever rows each had"
        return f"sums over your rows, {to_combiners}{noise}{again}", "Send it to the analyst."

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
        """Combine shares of the listed bundles; without a list, test the boxes of all bundles. Only for combiners."""
        require_choice("step", step, ("combine",))
        if "list" not in files:
            return check_boxes(vault, study, files["bundles"], output=output)
        return combine_shares(vault, study, files["bundles"], Path(files["list"]), output=output, progress=progress)

    def gather(self, study: Study, bundles: Sequence[Bundle], folder: Path, options: GatherOptions) -> Closing:
        """Close the list of bundles; see `mooring.protocol.sums.analyst.total.close_list`."""
        if options.signing_key is None:
            cure = "Open the vault that the analyst joined with."
            raise InputError("signing_key", problem="Closing the list needs the analyst's signing key.", cure=cure)
        sum_bundles, command = cast(Sequence[SumBundle], bundles), options.command
        key, receipts = options.signing_key, options.receipts
        return close_list(study, sum_bundles, folder, key, receipts=receipts, command=command)

    def forecast(
        self, study: Study, *, n_rows: int = 0, n_participants: int = 0, encoded: EncodedRows | None = None
    ) -> StudyForecast | None:
        """Return what a study is likely to give; see `mooring.protocol.sums.forecast.forecast_sums`."""
        from mooring.protocol.sums.forecast import forecast_sums  # learners and answers take half a second to load

        return forecast_sums(study, n_rows=n_rows, n_participants=n_participants, encoded=encoded)

    def list_learners(self, study: Study) -> tuple[str, ...]:
        """Return the learners that sums of this study can train, "auto" first; without a label, only "auto"."""
        if study.label.kind == "none":
            return (AUTO,)
        return (AUTO, *list_sum_learners(study.label.kind, by_class=_is_by_class(study)))

    def require_learner(self, study: Study, learner: LearnerLike) -> None:
        """Refuse a learner that sums of this study cannot train; a study without a label refuses none."""
        if study.label.kind != "none":
            resolve_sum_learner(learner, study.label.kind, by_class=_is_by_class(study))

    def require_outcome(self, study: Study, outcome: str) -> None:
        """Refuse a column that the total does not predict."""
        model_schema(study, outcome)

    def train(self, study: Study, folder: Path, options: TrainOptions) -> SumTraining:
        """Open the total and train on it; see `mooring.protocol.sums.analyst.training.train_sums`."""
        if options.shares is None:
            problem = "Training on secure sums needs the combiners' shares of the total."
            cure = "Give their folder with --shares. Combiners write them with 'mooring combine'."
            raise InputError("--shares", problem=problem, cure=cure)
        outcome, learner, command = options.outcome, options.learner, options.command
        return train_sums(study, folder, options.shares, outcome=outcome, learner=learner, command=command)

    def open_total(self, study: Study, folder: Path, shares: str | Path) -> PairwiseTotal:
        """Open the general total; see `mooring.protocol.sums.analyst.total.open_total`."""
        return replace(open_total(study, folder, shares).pairwise, caveat=explain_missing_guarantee(study))

    def read_answers(self, folder: Path, study: Study | None = None) -> tuple[AskedAnswer, ...]:
        """Return the answers that a work folder holds; see `mooring.protocol.sums.analyst.asked`."""
        from mooring.protocol.sums.analyst import asked

        return asked.read_answers(folder, study) if (folder / "answers").is_dir() else ()

    def describe_study(self, study: Study) -> list[tuple[str, str]]:
        """Return what a study's settings mean, as pairs of a heading and a sentence."""
        settings = sum_settings(study)
        noise = "no noise" if settings.epsilon is None else f"noise for epsilon = {settings.epsilon:g}"
        by_class = ", by class," if _is_by_class(study) else ""
        lines = [
            ("Shares", f"sums over {settings.features}{by_class} with {noise}, secret-shared among the combiners"),
            ("Guarantee", state_sum_guarantee(study)),
            (
                "Rows",
                f"at most {settings.most_rows:,} of each participant; a total with more rows than these together is refused",
            ),
        ]
        if settings.impossible:
            lines.append(("Impossible", f"{'; '.join(settings.impossible)}. Synthetic rows have no such combination"))
        if not study.is_complete:
            return lines
        scheme, t = sum_scheme(study), sum_scheme(study).threshold.threshold
        pooled = scheme.pooled_epsilon
        opened = f"If {t} of them pool their keys, they open every single contribution"
        opened += ", which has no noise." if pooled is None else f", with epsilon = {pooled:.3g}."
        combiners = f"any {t} of {', '.join(scheme.combiners)} open a total of at least {scheme.quorum} contributions"
        return [*lines, ("Combiners", f"{combiners}. {opened}"), ("Absences", scheme.state_absences())]

    def list_shared(self, study: Study) -> Rows:
        """Return a table of the sums; see `mooring.protocol.sums.description.list_sums`."""
        settings = sum_settings(study)
        features = make_features(settings, study.schema, study.image_shape)
        return list_sums(settings, make_layout(settings, study.schema, features))

    def list_warnings(self, study: Study) -> list[str]:
        """Return a warning if every combiner must answer; empty otherwise, and without a roster."""
        if not study.is_complete or sum_scheme(study).threshold.threshold < len(sum_scheme(study).combiners):
            return []
        return ["Every combiner must answer: a single absent combiner stops the study."]


def _is_by_class(study: Study) -> bool:
    return sum_settings(study).count_class_components(study.schema) > 0


def _below_floor(reason: str) -> RefusedError:
    cure = "Ask the study's designer why; your own limits are set when you join."
    return RefusedError("the study", reason=reason, cure=cure)


EXCHANGE = SumExchange()
