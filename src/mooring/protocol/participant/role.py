"""A participant, step by step: join, make the anchor (as dealer), check, share, combine (as combiner), predict."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.atomic_io import write_atomically
from mooring.mechanisms.sums.sums import PersonCounts
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.reason import require_reasoned
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import CHECK_FILE, SUMMARY_FILE, find_membership, read_check
from mooring.protocol.registry import exchange_of
from mooring.protocol.results import CheckSummary, Consent, ShareResult, StepResult
from mooring.protocol.storage.fingerprints import RowCollector
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Floors, Vault
from mooring.serialization import Record, count_noun, read_record
from mooring.tables import TableFit
from mooring.tables.encoder import UnfitUse, check_fit
from mooring.tables.sampling import sample_rows
from mooring.typing import Progress, TableSource

if TYPE_CHECKING:  # attacks and learners take a second to load, which sharing need not wait for
    from mooring.protocol.inspection import Inspection
    from mooring.protocol.participant.prediction import PredictionRecord, Predictions, Scoring


@dataclass(frozen=True)
class Participant:
    """One organisation in one study. Each of its steps also has a command.

    Examples
    --------
    >>> import tempfile
    >>> from mooring.protocol.participant.membership import make_member
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     vault = Participant.join(Path(folder) / "vault")
    >>> make_member("st-mary", vault).name
    'st-mary'
    """

    study: Study
    vault: Vault = field(repr=False)

    @classmethod
    def join(cls, folder: Path, *, passphrase: str | None = None, floors: Floors | None = None) -> Vault:
        """Make keys and secrets in a new vault.

        Parameters
        ----------
        folder : Path
            Folder of the new vault.
        passphrase : str, optional
            Encrypts the keys. Without one they are stored as they are, and only the disk's encryption protects them.
        floors : Floors, optional
            What the vault demands of studies, such as the least noise.
        """
        return Vault.create(folder, passphrase=passphrase, floors=floors)

    @property
    def member(self) -> Member:
        """The participant's entry in the roster."""
        return find_membership(self.vault, self.study)

    def take(self, step: str, *, output: Path, progress: Progress | None = None, **files: str | Path) -> StepResult:
        """Take a step that only the study's mechanism has, and write its file.

        Parameters
        ----------
        step : str
            Rotation has "deal"; secure sums have "combine", for combiners.
        output : Path
            The file to write.
        **files : str or Path
            What the step needs; "deal" needs nothing. "combine" needs `bundles`, the folder or URL of all bundles, and
            writes a receipt for them. With `list`, the analyst's closing list, it writes this combiner's share of the total
            instead.
        """
        exchange = exchange_of(self.study)
        return exchange.take_step(step, self.vault, self.study, output=output, files=files, progress=progress)

    def check(
        self,
        data: TableSource,
        *,
        ignore: Collection[str] = (),
        seed: int = 0,
        command: str = "",
        progress: Progress | None = None,
    ) -> Inspection:
        """Check rows before anything leaves: whether they fit, what makes them easy to recover, and what attacks recover.

        The findings are kept in the vault, since `share` refuses rows that were not shown to keep the study's limits. A
        limit that one check of these rows finds exceeded remains exceeded, even if a check with another seed finds it kept.

        Parameters
        ----------
        data : path or data frame
            The rows to be shared.
        seed : int
            Random seed of the sample of rows and of the simulated attack.
        command : str
            The command that was run, for the record.
        """
        exchange = exchange_of(self.study)
        exchange.require_floors(self.study, self.vault.floors)
        options: dict[str, Any] = {"ignore": ignore, "person": exchange.person_column(self.study)}
        collector, adapts = RowCollector(self.vault.ledger_key, self.study.schema), exchange.adapts_rows(self.study)
        unfit: UnfitUse = "adapt" if adapts else "refuse"
        sample = sample_rows(self.study.schema, data, **options, unfit=unfit, seed=seed, each=collector.add)
        counts: dict[str, Any] = {"n_rows": sample.n_rows, "class_counts": sample.class_counts}
        inspection = exchange.assessment.inspect(self.study, sample.encoded, **counts, seed=seed, progress=progress)
        refusals = exchange.list_refusals(self.study, **counts)
        adapted = _describe_adapted(check_fit(self.study.schema, data, **options)) if adapts else []
        remarks = (*adapted, *exchange.describe_persons(self.study, collector.persons))
        inspection = replace(
            inspection,
            warnings=(*inspection.warnings, *remarks),
            rows_digest=collector.finish()[0].digest,
            hazards=(*map(str, refusals), *inspection.hazards),
            refused=tuple(str(refusal).removesuffix(f". {refusal.cure}") for refusal in refusals),
            command=command,
        )
        with self.vault.lock():
            earlier = read_check(self.vault, self.study)
            by_rows = {} if earlier is None else earlier.exceeded_by_rows
            before = by_rows.get(inspection.rows_digest, ())
            exceeded = tuple(dict.fromkeys([*before, *inspection.exceeded]))
            kept = exchange.assessment.conclude(self.study, replace(inspection, exceeded=exceeded))
            assert kept.decision is not None
            is_warning = bool(exceeded) or kept.decision.answer == "do not share"
            by_rows = by_rows | {kept.rows_digest: exceeded}
            decision = kept.decision
            summary = CheckSummary(kept.rows_digest, by_rows, decision.words, is_warning, command, decision.answer)
            self._write_record(SUMMARY_FILE, summary)
            self._write_record(CHECK_FILE, kept)
        return kept

    def keep_predictions(self, predictions: Predictions, *, command: str = "") -> PredictionRecord:
        """Write a summary of predictions to the vault, for the report, and return it; it holds no predicted value.

        If the rows had no labels, and so no score, an earlier record is kept except for its `release`. `command` is the
        command that was run.
        """
        from mooring.protocol.participant.prediction import PREDICT_FILE, PredictionRecord

        kept = replace(predictions.record, command=command)
        with self.vault.lock():
            path = self.vault.study_folder(self.study.folder_name) / PREDICT_FILE
            if kept.score is None and path.exists():
                earlier = read_record(PredictionRecord, path, what="the record", cure="Predict labelled rows again.")
                kept = replace(earlier, release=kept.release)
            self._write_record(PREDICT_FILE, kept)
        return kept

    def _write_record(self, name: str, record: Record) -> None:
        path = self.vault.study_folder(self.study.folder_name) / name
        write_atomically(path, record.to_json().encode(), mode=0o600, what="the vault")

    def share(
        self,
        data: TableSource,
        *,
        output: Path,
        anchor: Path | None = None,
        labels: bool = False,
        override: str = "",
        ignore: Collection[str] = (),
        command: str = "",
        progress: Progress | None = None,
    ) -> ShareResult:
        """Write the bundle that the study asks for, of rows or of secure sums. If written again, it has the same bytes.

        Parameters
        ----------
        data, output, ignore, progress
            The table, the bundle, columns that the study does not have, and a function that shows progress.
        labels : bool, default False
            Consent that the analyst sees the label of every row. A bundle of rows with labels is refused without it; sums do
            not show labels.
        anchor : Path, optional
            The study's anchor file; secure sums have none.
        override : str
            Who shares, and why, as 'NAME: REASON'. It is required if the check does not show that the study's limits are
            kept, and is then stored in the record of what was shared. Otherwise only its form is checked.
        command : str
            The command that was run, for that record.
        """
        require_reasoned("--override", override)
        return exchange_of(self.study).share(
            self.vault,
            self.study,
            data,
            output=output,
            consent=Consent(labels, override, command),
            anchor=anchor,
            ignore=ignore,
            progress=progress,
        )

    def recall_check(self) -> str:
        """Return what the last check decided about the rows that were shared, or that they were not checked last."""
        entry = Ledger(self.vault.folder).entry(self.study.digest)
        checked = read_check(self.vault, self.study)
        if entry is None or checked is None or checked.rows_digest != entry.rows_digest:
            return (
                "The last check, if any, was not of these rows. Run 'mooring check' on them to see what they disclose."
            )
        return f"The check of these rows: {checked.advice}"

    def predict(
        self,
        data: TableSource,
        *,
        result: str | Path,
        own_rows: TableSource | None = None,
        scoring: Scoring | None = None,
        ignore: Collection[str] = (),
        progress: Progress | None = None,
    ) -> Predictions:
        """Predict new rows with the joint model, on this machine.

        Parameters
        ----------
        data, own_rows, scoring, ignore, progress
            As for `predict_rows`.
        result : str or Path
            The folder that the analyst delivered, or its URL.
        """
        from mooring.protocol.participant.prediction import DEFAULT_SCORING, fetch_result, predict_rows

        with fetch_result(result, self.study) as folder:
            return predict_rows(
                self.vault,
                self.study,
                data,
                result=folder,
                own_rows=own_rows,
                scoring=scoring or DEFAULT_SCORING,
                ignore=ignore,
                progress=progress,
            )


def check_table_fit(
    study: Study, data: TableSource, *, ignore: Sequence[str] = (), progress: Progress | None = None
) -> tuple[TableFit, list[str]]:
    """Return how a table fits a study, and sentences on what `share` would refuse, adapt or leave out.

    The study needs no roster.

    Parameters
    ----------
    study : Study
    data : path or data frame
        The table.
    ignore : sequence of str
        Columns of the table that the study does not declare and that are ignored.
    progress : callable, optional
        Called with the amount of work that is done and the total amount.
    """
    exchange, persons = exchange_of(study), PersonCounts()
    options: dict[str, Any] = {"ignore": ignore, "person": exchange.person_column(study), "progress": progress}
    fit = check_fit(study.schema, data, each=lambda block: persons.add(block.persons), **options)
    refusals = exchange.list_refusals(study, fit.n_rows, fit.class_counts) if fit.fits else []
    adapted = _describe_adapted(fit) if exchange.adapts_rows(study) else []
    refused = [f"'mooring share' will refuse this table: {refusal}" for refusal in refusals]
    return fit, [*refused, *adapted, *exchange.describe_persons(study, persons)]


def _describe_adapted(fit: TableFit) -> list[str]:
    """Return a sentence on the cells and lines that `share` adapts or leaves out, if there are any."""
    if not fit.has_columns:  # the whole table is refused
        return []
    n_cells = sum(problem.n_cells for problem in fit.problems)
    unfit = f"{count_noun(n_cells, 'cell or line does', 'cells or lines do')} not fit the study"
    adapts = (
        "numbers are clipped, other cells are taken as missing or as 'other', and lines with a wrong number of fields and "
        "rows without a label or person are left out"
    )
    return [f"{unfit}. 'mooring share' does not refuse them: {adapts}."] if n_cells else []
