"""Studies, and the records and audits that their steps leave behind, for tests of the report."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mooring.audit import AuditDescription, AuditResult, NoiseUnit, PointResult, References, RotationPoint, SumPoint
from mooring.audit.results.decision import Decision, Remark
from mooring.audit.results.point_result import AttackOutcome, Examples
from mooring.learners import Gain, Score
from mooring.learners.evaluation import Importance, evaluate_classes
from mooring.metrics import EpsilonAudit, EpsilonBound, Figure, Interval
from mooring.protocol.analyst.delivery import Delivery
from mooring.protocol.analyst.intake import AcceptedBundle, IntakeRecord, RejectedBundle
from mooring.protocol.inspection import Inspection
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.prediction import AdjustmentRecord, PredictionRecord
from mooring.protocol.results import ShareResult
from mooring.protocol.rotation.analyst.alignment_state import AlignedParticipant, AlignmentRecord
from mooring.protocol.rotation.analyst.training_record import Training
from mooring.protocol.sums.analyst.total import Closing
from mooring.protocol.sums.analyst.training import SumTraining
from mooring.report.records import StudyRecords
from mooring.report.summary import Report
from mooring.serialization import Record
from mooring.tables.schema import Column, Label
from tests.keys import fixed_key, keyed_member
from tests.study_settings import make_study

NAMES = ("north", "south", "west")
COLUMNS = ("age", "weight", "height", "pressure")
SHARES = np.column_stack([1 - np.linspace(0.05, 0.95, 30), np.linspace(0.05, 0.95, 30)])


MADE = "2026-01-01 00:00 UTC"


def fixed(made: Report) -> Report:
    """The same report, made at one time by one version."""
    return replace(made, summary=replace(made.summary, made=MADE, versions={"mooring": "0"}))


def example_study(names: Sequence[str] = NAMES) -> Study:
    return make_study(
        name="hearts",
        nonce="00112233445566778899aabbccddeeff",
        columns=tuple(Column(name, "number", 0, 1) for name in COLUMNS),
        label=Label("ill", "classes", classes=("no", "yes")),
        method="aa-i-gdp-both-noise",
        n_components=4,
        n_anchor_rows=16,
        data_noise_scale=0.2,
        anchor_noise_scale=0.1,
        participants=tuple(keyed_member(name, fixed_key(k)) for k, name in enumerate(names, start=2)),
        analyst=Member("desk", "9" * 64),
    )


def score(value: float) -> Score:
    return Score("balanced accuracy", value, value - 0.03, value + 0.03, 200)


def gain(value: float, n: int) -> Gain:
    return Gain("balanced accuracy", value, value - 0.08, value + 0.08, n, 900)


def figure(name: str, value: float, *, chance: float, control: float, higher_is_worse: bool = True) -> Figure:
    return Figure(name, value, Interval(value * 0.9, value * 1.1), chance, control, None, 60, higher_is_worse)


def outcome(attack: str, error: float, value: float) -> AttackOutcome:
    figures = [
        figure("centred_error", error, chance=1.4, control=1.0, higher_is_worse=False),
        figure("exposed_tenth", 0.8 * error, chance=1.0, control=1.0, higher_is_worse=False),
        figure("linkage", value, chance=0.1, control=0.12),
        figure("membership_at_1_percent", value, chance=0.01, control=0.012),
        figure("membership_at_0.1_percent", value / 10, chance=0.001, control=0.001),
        figure("membership_auc", 0.5 + value / 2, chance=0.5, control=0.51),
    ]
    return AttackOutcome(
        attack, {figure.name: figure for figure in figures}, curve=((0.01, value), (0.1, 0.5), (1.0, 1.0))
    )


def example_audit(*, totals: bool = False, scale: float = 0.2) -> AuditResult:
    """Two points at which rows are shared, the first with the settings of `example_study`; with `totals`, sums beside."""
    rows = tuple(tuple(float(k + j) for j in range(4)) for k in range(2))
    words = tuple(tuple(f"{cell:.0f}" for cell in row) for row in rows)
    parts = ("original", "projection only", "rebuilt", "guessed without the upload")
    examples = Examples(
        "moments",
        {name: tuple(tuple(cell + 0.5 * k for cell in row) for row in rows) for k, name in enumerate(parts)},
        feature_names=COLUMNS,
        indices=(0, 1),
        columns=COLUMNS,
        words=dict.fromkeys(parts, words),
        row_numbers=(7, 3),
    )
    points = [
        PointResult(
            RotationPoint("aa-i-gdp-both-noise", 4, 16, 0.1, 0.5),
            scale,
            outcomes=(
                outcome("procrustes", 0.6, 0.3),
                outcome("moments", 0.4, 0.4),
                AttackOutcome("lattice", reason="noise"),
            ),
            deployed=score(0.8),
            noisy_test=score(0.75),
            gain=gain(0.1, 200),
            examples=examples,
            learner="linear",
        ),
        PointResult(
            RotationPoint("aa-i-gdp", 4, 16),
            outcomes=(outcome("known-anchor", 0.1, 0.9),),
            deployed=score(0.9),
            gain=gain(0.2, 200),
        ),
    ]
    if totals:
        bound = EpsilonBound(0.1, 0.6, 1e-5, 0.95, 1000)
        points += [
            PointResult(
                SumPoint(epsilon, 1e-5, 3, 1),
                outcomes=(outcome("leverage", 0.9, 0.012 if epsilon else 0.5),),
                beyond=(outcome("leverage", 0.9, 0.05),),
                deployed=score(0.85),
                gain=gain(0.15, 200),
                alone=score(0.69),
                epsilon=None if epsilon is None else EpsilonAudit(epsilon, epsilon, bound),
            )
            for epsilon in (1.0, None)
        ]
    description = AuditDescription(
        n_participants=3, n_rows=180, rows_each=(60, 60), n_features=4, colluders=("west",), targets=("north",),
        noise_unit=NoiseUnit.ENCODED, n_sum_features=5,
    )  # fmt: skip
    return AuditResult(description, References(score(0.7), score(0.92), 3, "linear"), tuple(points), ("A grid.",))


def analyst_records(names: Sequence[str] = NAMES) -> StudyRecords:
    """The last sent nothing that could be taken; the second's anchor does not fit; the first is left out of the training."""
    sent = names[:-1]
    return StudyRecords(
        intake=IntakeRecord(
            "study",
            tuple(AcceptedBundle(name, "ab" * 32, 60) for name in sent),
            (RejectedBundle(f"{names[-1]}.bundle", "its signature does not hold"),),
            tuple(names[-1:]),
            remembered=dict.fromkeys(sent, "ab" * 32),
            command="mooring align uploads",
        ),
        gathered=AlignmentRecord(
            tuple(AlignedParticipant(name, 60, "ab" * 32, 0.98, late=k == 0) for k, name in enumerate(sent) if k != 1),
            (AlignedParticipant(sent[1], 60, "ab" * 32, 0.31, flagged=True),),
            "aa-i-gdp-both-noise",
            12,
            "The step fell below the tolerance.",
            True,
            1e-9,
            0.04,
            "Shown to be the global optimum.",
            0.1,
            0.4,
            "",
            "mooring align uploads",
        ),
        training=Training(
            "linear",
            "classes",
            score(0.86),
            tuple((name, score(0.86)) for name in sent),
            tuple((name, score(0.7)) for name in sent),
            120,
            120,
            "cd" * 32,
            gain(0.16, 120),
            ((sent[0], score(0.5)),),
            command="mooring train",
        ),
        delivery=Delivery(tuple(sent[:1]), "cd" * 32, command="mooring deliver"),
    )


def participant_records(audit: AuditResult | None) -> StudyRecords:
    return StudyRecords(
        check=Inspection(
            60,
            {"no": 40, "yes": 20},
            ("3 of 4 columns take values on a grid.",),
            (),
            score(0.71),
            "A colluder would rebuild much of these rows.",
            data_noise_scale=0.2,
            anchor_noise_scale=0.1,
            rms=0.4,
            self_attack=audit,
            decision=Decision("Should you share these rows?", "do not share", (Remark("do not share", "Much leaks"),)),
            command="mooring check north.csv",
        ),
        share=ShareResult(60, "ef" * 32, True, command="mooring share north.csv"),
        predict=PredictionRecord(
            30,
            score(0.8),
            score(0.79),
            gain(0.01, 30),
            evaluate_classes(
                np.arange(30) % 2,
                (SHARES.argmax(axis=1), SHARES),
                (SHARES[::-1].argmax(axis=1), SHARES[::-1]),
                classes=("no", "yes"),
            ),
            ("AUC", (Importance("age", 0.25, 0.01),)),
            None,
            0,
            AdjustmentRecord(40, 2, True),
            "mooring predict new.csv",
        ),
    )


def sum_records(names: Sequence[str], audit: AuditResult | None = None) -> StudyRecords:
    """The records of an analyst and of a participant in a study of secure sums; the last participant is left out."""
    here = tuple(names[:-1])
    return StudyRecords(
        intake=IntakeRecord("study", tuple(AcceptedBundle(name, "ab" * 32) for name in names), command="mooring align"),
        gathered=Closing(here, {names[-1]: "its shares do not fit"}, (), (), "aa" * 32, command="mooring align"),
        training=SumTraining(
            "least-squares", "ill", "classes", here, (names[0],), 1.0, 1e-5, "row", 4000, "cd" * 32, False,
            command="mooring train",
        ),
        delivery=Delivery(tuple(names), "cd" * 32, command="mooring deliver"),
        check=Inspection(60, {"no": 40, "yes": 20}, (), (), score(0.71), "Little.", self_attack=audit),
        share=ShareResult(60, "ef" * 32, False, epsilon=1.0, spent=0.5),
    )  # fmt: skip


def list_files(records: StudyRecords) -> dict[str, Record]:
    """Records by the names of their files."""
    gathered = "closing" if isinstance(records.gathered, Closing) else "alignment"
    parts: dict[str, Any] = {**vars(records), gathered: records.gathered}
    return {
        f"{name}.json": record for name, record in parts.items() if isinstance(record, Record) and name != "gathered"
    }


def write_records(folder: Path, records: StudyRecords) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, record in list_files(records).items():
        (folder / name).write_text(record.to_json(), encoding="utf-8")
    return folder
