"""Plays a whole study through the real commands, every step of every role in a process and a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mooring.demo.rows import LABEL, ROWS_EACH, Tables, write_tables
from mooring.errors import MooringError

N_COMPONENTS = 30
DATA_NOISE = 1.0
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Played:
    """What the commands answered, as they print it with --format json.

    Attributes
    ----------
    tables : Tables
    fingerprint : str
    checks, predictions : tuple of dict
        One a participant.
    alignment, training, audit : dict
    report : Path
    """

    tables: Tables
    fingerprint: str
    checks: tuple[dict[str, Any], ...]
    predictions: tuple[dict[str, Any], ...]
    alignment: dict[str, Any]
    training: dict[str, Any]
    audit: dict[str, Any]
    report: Path


def play(folder: Path, *, n_participants: int, seed: int, progress: Progress) -> Played:
    """Run the demonstration in an empty or new folder."""
    tables = write_tables(folder, n_participants=n_participants, seed=seed)
    stage = _Stage(tables, progress)
    designer, analyst, post = folder / "designer", folder / "analyst", folder / "post"
    post.mkdir()
    (analyst / "inbox").mkdir(parents=True)

    draft = ["study", "init", "public.csv", "--name", "digits", "--label", LABEL, "--classes", ",".join("0123456789")]
    draft += ["--all-ranges", "0:16", "--image-shape", "8x8", "--components", str(N_COMPONENTS)]
    stage.run("drafting the study", designer, [*draft, "--data-noise", str(DATA_NOISE)])
    stage.run("a public projection", designer, ["study", "project", "public.csv", "--ignore", LABEL])
    stage.each("keys", lambda name: ["join", "--name", name, "--output", f"../post/{name}.card.toml"])
    stage.run("keys", analyst, ["join", "--analyst", "--name", "analyst", "--output", "../post/analyst.card.toml"])
    cards = [f"../post/{name}.card.toml" for name in (*tables.names, "analyst")]
    enrolled = stage.run("the roster", designer, ["study", "enrol", *cards])
    for path in designer.glob("*.projection.safetensors"):
        shutil.copy(path, post)
    shutil.copy(designer / "study.toml", post)

    agreed = ["--study", "../post/study.toml"]
    stage.run("the anchor", tables.participants[0], ["deal", *agreed, "--output", "../post/digits.anchor"])
    checks = stage.each("checking", lambda name: ["check", "rows.csv", *agreed, "--anchor", "../post/digits.anchor"])
    inbox = "../analyst/inbox"
    stage.each(
        "sharing",
        lambda name: [
            *("share", "rows.csv", *agreed, "--anchor", "../post/digits.anchor", "--labels"),
            *("--output", f"{inbox}/{name}.bundle"),
        ],
    )
    alignment = stage.run("aligning", analyst, ["align", *agreed, "--bundles", "inbox"])
    training = stage.run("training", analyst, ["train", *agreed])
    stage.run("delivering", analyst, ["deliver", *agreed, "--output", "results"])
    for place in tables.participants:  # in confidence, as bundles are
        shutil.copytree(analyst / "results" / place.name, place / "result")
    predictions = stage.each(
        "scoring new rows",
        lambda name: [
            "predict",
            "new-rows.csv",
            *agreed,
            "--result",
            "result",
            "--beside",
            "rows.csv",
        ],
    )
    audit = ["audit", "everybodys-rows.csv", *agreed, "--participants", str(len(tables.names))]
    audit += ["--rows-each", str(ROWS_EACH), "--seed", str(seed)]
    audit += ["--method", "aa-i-gdp-data-noise", "--data-noise", "0.4"]  # less noise, for contrast,
    audit += ["--method", "aa-i-gdp-anchor-noise", "--anchor-noise", "0.1"]  # and the paper's noise on the anchor alone
    audited = stage.run("attacking", folder / "auditor", audit)
    page = [
        "report",
        "analysis",
        *agreed,
        "--audit",
        "../auditor/audit-report/audit.json",
        "--output",
        "../report.html",
    ]
    stage.run("the report", analyst, page)
    return Played(
        tables,
        enrolled["fingerprint"],
        tuple(checks),
        tuple(predictions),
        alignment,
        training,
        audited,
        folder / "report.html",
    )


class _Stage:
    """Runs commands and keeps count."""

    def __init__(self, tables: Tables, progress: Progress) -> None:
        self._tables, self._progress = tables, progress
        self._done, self._total = 0, 10 + 4 * len(tables.names)

    def each(self, words: str, command: Callable[[str], list[str]]) -> list[dict[str, Any]]:
        """Every participant runs its command in its own folder; as many at once as there are processors."""
        with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
            return list(
                threads.map(lambda place: self.run(words, place, command(place.name)), self._tables.participants)
            )

    def run(self, words: str, place: Path, command: Sequence[str]) -> dict[str, Any]:
        """One command, in one folder, in one process."""
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        found = subprocess.run(
            [sys.executable, "-m", "mooring", *command, "--format", "json"],
            cwd=place,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        if found.returncode != 0:
            raise MooringError(f"'mooring {' '.join(command)}' failed in {place.name}:\n{found.stderr.strip()}")
        self._done += 1
        self._progress(self._done, self._total, words)
        answer: dict[str, Any] = json.loads(found.stdout)
        return answer
