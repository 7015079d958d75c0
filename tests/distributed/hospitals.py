"""Three hospitals and an analyst: vaults, tables, a study and its anchor; and mooring's commands, run in their folders."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mooring.protocol.messages.card import Member
from mooring.protocol.participant.membership import make_member
from mooring.protocol.participant.role import Participant
from mooring.tables.schema import Column, Label
from tests import commands
from tests.study_settings import make_study

NAMES = ("north", "south", "east")
LABELS = {"classes": Label("ill", "classes", ("no", "yes")), "number": Label("days", "number", low=0, high=100)}
CALM = {"COLUMNS": "200", "TERM": "dumb", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
NOBODY = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MOORING_"))} | CALM


def founded(place: Path, *, kind: Literal["classes", "number"] = "classes") -> Path:
    """Everybody has joined, and study and anchor came to each one's folder in `place`."""
    vaults = {}
    for k, name in enumerate((*NAMES, "analyst")):
        (place / name).mkdir()
        vaults[name] = Participant.join(place / name / "vault")
        rng = np.random.default_rng([5, k])
        if name != "analyst":
            (place / name / "patients.csv").write_text(table(rng, 60, kind))
            (place / name / "new-patients.csv").write_text(table(rng, 15, kind))
    study = make_study(
        "ward",
        "7" * 32,
        columns=(
            Column("age", "number", 0, 120),
            Column("weight", "number", 0, 300),
            Column("smoker", "category", categories=("no", "yes")),
        ),
        label=LABELS[kind],
        method="aa-i-gdp-both-noise",
        n_components=4,
        n_anchor_rows=16,
        data_noise_scale=0.1,
        anchor_noise_scale=0.02,
    ).with_members(
        [make_member(name, vaults[name]) for name in NAMES], Member("analyst", vaults["analyst"].signing_key.public)
    )
    Participant(study, vaults["north"]).take("deal", output=place / "ward.anchor")
    for name in (*NAMES, "analyst"):
        study.write(place / name / "study.toml")
        if name != "analyst":
            shutil.copy(place / "ward.anchor", place / name / "ward.anchor")
    return place


def table(rng: np.random.Generator, rows: int, kind: str) -> str:
    """Some patients, as text."""
    lines = [f"age,weight,smoker,{LABELS[kind].column}"]
    for _ in range(rows):
        age, weight, smokes = rng.uniform(20, 90), rng.uniform(45, 130), bool(rng.integers(2))
        risk = age + 20 * smokes + rng.normal(0, 5)
        label = f"{0.5 * risk + 10:.3f}" if kind == "number" else "yes" if risk > 65 else "no"
        lines.append(f"{age:.6f},{weight:.6f},{'yes' if smokes else 'no'},{label}")
    return "\n".join(lines) + "\n"


def mooring(
    place: Path, *words: Any, environment: dict[str, str] = NOBODY, code: int = 0
) -> "subprocess.CompletedProcess[str]":
    """A command in a process of its own, with an environment of its own."""
    result = subprocess.run(
        [sys.executable, "-m", "mooring", *(str(word) for word in words)],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == code, f"mooring {' '.join(map(str, words))}\n{result.stdout}\n{result.stderr}"
    assert "Traceback" not in result.stderr
    return result


def quickly(place: Path, *words: Any, environment: dict[str, str] = NOBODY, code: int = 0) -> Any:
    """A command in this process, with an environment of its own: a second faster."""
    if "s3fs" in sys.modules:
        sys.modules["s3fs"].S3FileSystem.clear_instance_cache()  # they keep the address of a server from before
    forgotten = dict.fromkeys((name for name in os.environ if name.startswith(("AWS_", "MOORING_"))), None)
    now = {name: value for name, value in environment.items() if os.environ.get(name) != value}
    return commands.run(*words, code=code, place=place, **(forgotten | now))
