"""The demonstration: a whole study on scikit-learn's digits, every step of every role by its real command.

Twenty participants with forty handwritten digits each; each role works in a process and a folder of its own.
"""

from __future__ import annotations

import csv
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

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

from mooring.errors import MooringError

ROWS_EACH = 40
N_PUBLIC = 297
PIXELS = tuple(f"pixel{k}" for k in range(64))
LABEL = "digit"
_EVERYBODY = 20  # fewer participants do not get more rows each
N_COMPONENTS = 30
DATA_NOISE = 1.0
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class DemoResult:
    """What the commands answered, as they print it with --format json.

    Attributes
    ----------
    tables : Tables
    fingerprint : str
    predictions : tuple of dict
        One a participant.
    audit : dict
    """

    tables: Tables
    fingerprint: str
    predictions: tuple[dict[str, Any], ...]
    audit: dict[str, Any]


def run_demo(folder: Path, *, n_participants: int, seed: int, progress: Progress) -> DemoResult:
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
    stage.each("checking", lambda name: ["check", "rows.csv", *agreed, "--anchor", "../post/digits.anchor"])
    share = ["share", "rows.csv", *agreed, "--anchor", "../post/digits.anchor", "--labels"]
    stage.each("sharing", lambda name: [*share, "--output", f"../analyst/inbox/{name}.bundle"])
    stage.run("aligning", analyst, ["align", *agreed, "--bundles", "inbox"])
    stage.run("training", analyst, ["train", *agreed])
    stage.run("delivering", analyst, ["deliver", *agreed, "--output", "results"])
    for place in tables.participants:  # in confidence, as bundles are
        shutil.copytree(analyst / "results" / place.name, place / "result")
    predict = ["predict", "new-rows.csv", *agreed, "--result", "result", "--beside", "rows.csv"]
    predictions = stage.each("scoring new rows", lambda name: predict)
    audit = ["audit", "everybodys-rows.csv", *agreed, "--participants", str(len(tables.names))]
    audit += ["--rows-each", str(ROWS_EACH), "--seed", str(seed)]
    audit += ["--method", "aa-i-gdp-data-noise", "--data-noise", "0.4"]  # less noise, for contrast,
    audit += ["--method", "aa-i-gdp-anchor-noise", "--anchor-noise", "0.1"]  # and the paper's noise on the anchor alone
    audited = stage.run("attacking", folder / "auditor", audit)
    page = ["report", "analysis", *agreed, "--audit", "../auditor/audit-report/audit.json"]
    stage.run("the report", analyst, [*page, "--output", "../report.html"])
    return DemoResult(tables, enrolled["fingerprint"], tuple(predictions), audited)


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


@dataclass(frozen=True)
class Tables:
    """Where everything lies.

    Attributes
    ----------
    folder : Path
        Of the whole demonstration.
    participants : tuple of Path
        One folder each, with rows.csv (to be shared) and new-rows.csv (seen later, to be scored).
    public : Path
        Rows that belong to nobody, for the public projection.
    everything : Path
        All participants' rows, which no real study has in one place; for the audit.
    """

    folder: Path
    participants: tuple[Path, ...]
    public: Path
    everything: Path

    @property
    def names(self) -> tuple[str, ...]:
        """The participants' names."""
        return tuple(folder.name for folder in self.participants)


def write_tables(folder: Path, *, n_participants: int, seed: int) -> Tables:
    """Deal the digits out: forty rows a participant to share, about as many to score later, and public ones."""
    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(digits))
    public, rest = order[:N_PUBLIC], order[N_PUBLIC:]
    rest = rest[np.argsort(digits[rest], kind="stable")]  # class by class, dealt round: everybody has every digit
    tables = Tables(
        folder,
        tuple(folder / f"clinic-{k + 1:02}" for k in range(n_participants)),
        folder / "designer" / "public.csv",
        folder / "auditor" / "everybodys-rows.csv",
    )
    shared = []
    for k, place in enumerate(tables.participants):
        own = rest[k :: max(n_participants, _EVERYBODY)]
        takes_part = np.isin(np.arange(own.size), np.linspace(0, own.size - 1, ROWS_EACH).round().astype(int))
        _write(place / "rows.csv", images[own[takes_part]], digits[own[takes_part]])
        _write(place / "new-rows.csv", images[own[~takes_part]], digits[own[~takes_part]])
        shared.append(own)
    _write(tables.public, images[public], digits[public])
    everybody = np.concatenate(shared)
    _write(tables.everything, images[everybody], digits[everybody])
    return tables


def _write(path: Path, images: npt.NDArray[np.float64], digits: npt.NDArray[np.int64]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*PIXELS, LABEL])
        writer.writerows([*row, digit] for row, digit in zip(images.astype(int).tolist(), digits.tolist(), strict=True))
