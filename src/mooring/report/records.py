"""Reads audits, and the records that the steps of a study leave for its report; sizes and contents are checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mooring import AuditResult, Plan
from mooring.atomic_io import read_bounded
from mooring.audit import PointResult
from mooring.errors import InputError, RefusedError, StorageError
from mooring.mechanisms.sums.answers import AskedAnswer
from mooring.protocol.analyst.delivery import Delivery
from mooring.protocol.analyst.intake import IntakeRecord
from mooring.protocol.exchange import Exchange
from mooring.protocol.inspection import Inspection
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.prediction import PredictionRecord
from mooring.protocol.registry import exchange_of, list_exchanges
from mooring.protocol.results import GatherRecord, ShareResult, TrainingRecord
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import has_vault
from mooring.serialization import MOST_BYTES, Record, read_record


@dataclass(frozen=True)
class StudyRecords:
    """The records in a role's folder; None for a step that was not taken."""

    intake: IntakeRecord | None = None
    gathered: GatherRecord | None = None
    training: TrainingRecord | None = None
    delivery: Delivery | None = None
    check: Inspection | None = None
    share: ShareResult | None = None
    predict: PredictionRecord | None = None
    answers: tuple[AskedAnswer, ...] = ()
    """The answers that were read off the total."""
    checked_other_rows: bool = False
    """Whether the last check, which is left out here, was of other rows than those that were shared."""

    def list_commands(self) -> Iterator[tuple[str, str]]:
        """Yield each step that has a record, and the command that wrote the record, or that writes such records."""
        for name, (_, command) in _KINDS.items():
            if (record := getattr(self, name)) is not None:
                yield name, record.command or f"{command} …"
        for asked in self.answers:
            yield "answer", asked.command

    @property
    def are_gathered(self) -> bool:
        """Whether contributions have been gathered, so that participants have shared."""
        return self.gathered is not None or bool(self.answers)

    @property
    def is_check_alone(self) -> bool:
        """Whether nothing is recorded but a check."""
        return self == StudyRecords(check=self.check)

    @property
    def role(self) -> str:
        """The role whose records these are."""
        is_analyst = any(record is not None for record in (self.intake, self.gathered, self.training, self.delivery))
        is_analyst |= bool(self.answers)
        is_participant = any(record is not None for record in (self.check, self.share, self.predict))
        if is_analyst and is_participant:
            return "analyst and participant, whose records lie in one folder"
        if is_analyst or is_participant:
            return "analyst" if is_analyst else "participant"
        return "reader of an audit, without records of a study"


_KINDS: dict[str, tuple[type[Record], str]] = {
    "intake": (IntakeRecord, "mooring align"),
    "gathered": (GatherRecord, "mooring align"),
    "training": (TrainingRecord, "mooring train"),
    "delivery": (Delivery, "mooring deliver"),
    "check": (Inspection, "mooring check"),
    "share": (ShareResult, "mooring share"),
    "predict": (PredictionRecord, "mooring predict"),
}
"""The class of each step's record, and the command that writes it."""


def collect_records(folder: Path, study: Study | None = None, *, examples: bool = True) -> StudyRecords:
    """Read all records in a role's folder.

    Each mechanism has its own record of gathered contributions. Without a study, the folder may hold the record of any
    mechanism. A damaged record raises an error, because leaving it out would hide something. Without `examples`, the
    example rows of a self-attack are removed. Once rows have been shared, a check of other rows is left out.
    """
    if not folder.is_dir():
        raise StorageError(
            "the folder of the records",
            reason="there is no such folder",
            cure="Give the analyst's work folder, or a participant's vault.",
        )
    present: dict[str, Any] = {}
    exchanges = list_exchanges() if study is None else [exchange_of(study)]
    gathered = _find_gathered(folder, exchanges)
    if (folder / "training.json").exists():
        for exchange in exchanges:
            exchange.load_training_kind()
    for name, (kind, command) in _KINDS.items():
        file = gathered if name == "gathered" else f"{name}.json"
        if (folder / file).exists():
            present[name] = read_record(kind, folder / file, what=f"the record {file}", cure=f"Run '{command}' again.")
    answers = tuple(asked for exchange in exchanges for asked in exchange.read_answers(folder, study))
    records = StudyRecords(**present, answers=answers)
    check, share = records.check, records.share
    if share is not None and share.epsilon is not None:
        share = _with_current_epsilon(share, folder)
    if check is not None and share is not None and share.rows_digest != check.rows_digest:
        return replace(records, check=None, share=share, checked_other_rows=True)
    if check is not None and check.self_attack is not None and not examples:
        check = replace(check, self_attack=_without_examples(check.self_attack))
    return replace(records, check=check, share=share)


def _with_current_epsilon(share: ShareResult, folder: Path) -> ShareResult:
    """Return the record with the ε that the vault has spent by now, which is not known outside the vault."""
    vault = folder.absolute().parent.parent
    spent = Ledger(vault).spent_epsilon() - (share.epsilon or 0.0) if has_vault(vault) else None
    return replace(share, spent=spent)


def _find_gathered(folder: Path, exchanges: Sequence[Exchange]) -> str:
    """Return the file name of the record of gathered contributions, which need not exist."""
    files = list(dict.fromkeys(f"{exchange.gather_record}.json" for exchange in exchanges))
    present = [file for file in files if (folder / file).exists()]
    if len(present) > 1:
        problem = f"The folder has records of several mechanisms: {', '.join(present)}."
        raise InputError("the records", problem=problem, cure="Name the study with --study.")
    return (present or files)[0]


def read_audit(path: Path, *, examples: bool = True) -> AuditResult | Plan:
    """Read what `mooring audit` or `mooring plan` wrote; without `examples`, no row is kept."""
    what, cure = "the audit", "Give the audit.json or plan.json that 'mooring audit' or 'mooring plan' wrote."
    try:
        text = read_bounded(path, MOST_BYTES, what=what)
    except RefusedError as problem:
        raise InputError(what, expected="an audit or a plan", got=problem.reason, cure=cure) from None
    if not _is_plan(text):
        result = AuditResult.from_json(text, what=what, cure=cure)
        return result if examples else _without_examples(result)
    plan = Plan.from_json(text, what=what, cure=cure)
    if examples:
        return plan
    best, search = plan.recommended, plan.search
    return replace(
        plan,
        audit=_without_examples(plan.audit),
        recommended=None if best is None else replace(best, examples=None),
        search=None if search is None else _without_examples(search),
    )


def _is_plan(text: bytes) -> bool:
    from pydantic_core import from_json

    try:
        plain = from_json(text)
    except ValueError:
        return False
    return isinstance(plain, dict) and "audit" in plain


def _without_examples(result: AuditResult) -> AuditResult:
    """Return the same audit without any row, original or rebuilt."""
    return replace(result, points=tuple(replace(point, examples=None) for point in result.points))


def read_plan_mechanism(path: Path) -> dict[str, Any]:
    """Read the mechanism that `mooring plan` recommends, as entries of a draft's [mechanism]."""
    what, cure = "the plan", "Give the plan.json that 'mooring plan --study' wrote."
    plan = read_record(Plan, path, what=what, cure=cure)
    if plan.mechanism is None:
        raise InputError(what, problem="The plan recommends no setting.", cure=plan.verdict)
    if not plan.has_known_noise:
        raise InputError(
            what,
            problem="The plan was made without a study, so its noise is not in the unit of a study's encoded rows.",
            cure="Draft the study first, then run 'mooring plan --study'.",
        )
    return {name: value for name, value in plan.mechanism.as_dict().items() if value is not None}


@dataclass(frozen=True)
class AttackedStudy:
    """An audit of a study's rows, or of rows like them."""

    title: str
    result: AuditResult
    """The audit. If a point has the study's settings, that point is the chosen one."""
    is_self_attack: bool
    study_point: PointResult | None = None
    """The point that has the study's own settings; None if no point is known to have them."""
    plan: Plan | None = None

    @property
    def study_result(self) -> AuditResult:
        """The result at the point with the study's settings alone; the whole result if there is no such point."""
        return self.result if self.study_point is None else replace(self.result, points=(self.study_point,), chosen=0)


def list_audits(study: Study | None, records: StudyRecords, audit: AuditResult | Plan | None) -> list[AttackedStudy]:
    """Return the check's self-attack, and the given audit or plan, each with its point that has the study's settings."""
    attacked = []
    self_attack = None if records.check is None else records.check.self_attack
    if self_attack is not None:
        study_point = self_attack.points[0] if self_attack.points else None
        chosen = self_attack if study_point is None else replace(self_attack, chosen=0)
        attacked.append(AttackedStudy("the self-attack", chosen, is_self_attack=True, study_point=study_point))
    if audit is not None:
        plan = audit if isinstance(audit, Plan) else None
        result = audit.audit if isinstance(audit, Plan) else audit
        study_point = None if study is None else exchange_of(study).assessment.find_point(study, result)
        result = result if study_point is None else replace(result, chosen=result.points.index(study_point))
        attacked.append(AttackedStudy("the audit", result, is_self_attack=False, study_point=study_point, plan=plan))
    return attacked
