"""A study and the records that its commands leave behind, for tests of the report."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mooring.learners.evaluation import evaluate_classes
from mooring.protocol.crypto.keys import sealing_key_of
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.study import Study
from mooring.tables.schema import Column, Label

COLUMNS = ("age", "weight", "height", "pressure")
SHARES = np.column_stack([1 - np.linspace(0.05, 0.95, 30), np.linspace(0.05, 0.95, 30)])


def example_study(names: Sequence[str]) -> Study:
    return Study(
        name="hearts",
        nonce="00112233445566778899aabbccddeeff",
        columns=tuple(Column(name, "number", 0, 1) for name in COLUMNS),
        label=Label("ill", "classes", classes=("no", "yes")),
        method="aa-i-gdp-both-noise",
        n_components=4,
        n_anchor_rows=16,
        data_noise_scale=0.2,
        anchor_noise_scale=0.1,
        participants=tuple(
            Member(name, f"{k}" * 64, sealing_key_of(f"{k}" * 64)) for k, name in enumerate(names, start=2)
        ),
        analyst=Member("desk", "9" * 64),
    )


def score(value: float) -> dict[str, Any]:
    return {"metric": "balanced accuracy", "value": value, "low": value - 0.03, "high": value + 0.03, "n": 200}


def gain(value: float, n: int) -> dict[str, Any]:
    return {
        "metric": "balanced accuracy", "value": value, "low": value - 0.08, "high": value + 0.08, "n": n,
        "n_needed": 900,
    }  # fmt: skip


def analyst_records(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The last sent nothing that could be taken; the second's anchor does not fit; the first is left out of the training."""
    sent = names[:-1]
    return {
        "intake": {
            "command": "mooring align uploads",
            "accepted": [{"name": name, "rows": 60, "digest": "ab" * 32} for name in sent],
            "set_aside": [{"file": f"{names[-1]}.bundle", "reason": "its signature does not hold"}],
            "missing": list(names[-1:]),
        },
        "alignment": {
            "command": "mooring align uploads",
            "participants": [
                {"name": name, "rows": 60, "fit": 0.98, "flagged": False, "late": k == 0}
                for k, name in enumerate(sent)
                if k != 1
            ],
            "set_aside": [{"name": sent[1], "rows": 60, "fit": 0.31, "flagged": True, "late": False}],
            "iterations": 12,
            "termination": "The step fell below the tolerance.",
            "converged": True,
            "residual": 1e-9,
            "misfit": 0.04,
            "certificate": {"certified": True, "words": "Shown to be the global optimum."},
            "anchor_noise_scale": 0.1,
            "transition_scale": 0.4,
            "note": None,
        },
        "training": {
            "command": "mooring train", "learner": "linear", "kind": "classes", "score": score(0.86),
            "participants": [{"name": name, "score": score(0.86)} for name in sent],
            "alone": [{"name": name, "score": score(0.7)} for name in sent], "gain": gain(0.16, 120),
            "left_out": [{"name": sent[0], "score": score(0.5)}], "rows": 120,
        },
        "delivery": {"command": "mooring deliver", "delivered": list(sent[:1]), "model_digest": "cd" * 32},
    }  # fmt: skip


def participant_records(audit: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        "check": {
            "command": "mooring check north.csv", "rows": 60, "class_counts": {"no": 40, "yes": 20},
            "hazards": ["3 of 4 columns take values on a grid."], "warnings": [], "local_only": score(0.71),
            "noise": {"data_noise_scale": 0.2, "rms": 0.4, "level": 0.5, "anchor_noise_scale": 0.1},
            "self_attack": audit, "verdict": "A colluder would rebuild much of these rows.",
        },
        "share": {"command": "mooring share north.csv", "rows": 60, "bundle_digest": "ef" * 32, "reissued": True},
        "predict": {
            "command": "mooring predict new.csv",
            "rows": 30,
            "score": score(0.8),
            "local_only": score(0.79),
            "gain": gain(0.01, 30),
            "evaluation": evaluate_classes(
                np.arange(30) % 2, (np.arange(30) % 2, SHARES), (np.arange(30) % 2, SHARES[::-1]), classes=("no", "yes")
            ).as_dict(),
            "importance": {"metric": "AUC", "columns": [{"name": "age", "drop": 0.25, "deviation": 0.01}]},
        },
    }  # fmt: skip


def write_records(folder: Path, records: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, record in records.items():
        (folder / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
    return folder
