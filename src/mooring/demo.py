"""The demonstration: a whole study of secure sums on scikit-learn's digits, in which every role runs the real commands.

Up to twenty participants have forty handwritten digits each. Every command runs in a process of its own, in its role's
folder. An audit of the same digits compares the study with the paper's method and with sums without noise. In a second
study, scikit-learn's diabetes table is split among four hospitals, and the analyst asks for a Table 1 and a regression.
"""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import os
import runpy
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_diabetes, load_digits

from mooring.attacks import Effort, current_effort, set_effort
from mooring.errors import MooringError
from mooring.learners.scores import METRICS, Gain
from mooring.mechanisms.sums.settings import SECURE_SUM
from mooring.metrics.intervals import mean_ratio, student_interval
from mooring.typing import Progress

ROWS_EACH = 40
PIXELS = tuple(f"pixel{k}" for k in range(64))
LABEL = "digit"
_EVERYBODY = 20  # fewer participants do not get more rows each
EPSILON = 2.0
_N_COMBINERS = 15
N_HOSPITALS, HOSPITAL_EPSILON = 4, 8.0
_N_PATIENTS = 442
_RANGES = {"age": (18, 90), "bmi": (15, 45), "pressure": (50, 140), "progression": (0, 400)}
# Modules that commands use are loaded once, in a process that is forked for each command. This is done on Linux only,
# because the linear algebra of macOS does not survive a fork, and Windows cannot fork. On those systems each process loads
# its own modules.
_START = "forkserver" if sys.platform == "linux" else "spawn"
_PRELOADED = [
    *("mooring.cli.app", "mooring.report.charts", "mooring.report.study_page", "mooring.protocol.analyst.delivery"),
    *("mooring.protocol.participant.role", "mooring.protocol.sums.participant.inspection"),
    *("pydantic", "cryptography.hazmat.backends", "scipy.stats"),
    *("sklearn.compose", "sklearn.dummy", "sklearn.ensemble"),
    *("sklearn.inspection", "sklearn.kernel_approximation", "sklearn.linear_model", "sklearn.svm"),
]


@dataclass(frozen=True)
class DemoResult:
    """The results of the commands, as they print them with --format json."""

    tables: Tables
    fingerprint: str
    predictions: tuple[dict[str, Any], ...]
    """The result of `mooring predict` for each participant."""
    audit: dict[str, Any]
    answers: tuple[dict[str, Any], ...]
    """The results of `mooring describe` and `mooring regress` in the study of four hospitals."""

    def mean_score(self, name: Literal["score", "local_only"]) -> float:
        """Return the balanced accuracy of the joint model, or of the models trained alone, averaged over participants."""
        return float(np.mean([record[name]["balanced_accuracy"] for record in self.predictions if record[name]]))

    def state_gain(self) -> str:
        """Return a sentence on the joint model's gain over models trained alone, with an interval over participants."""
        both = [(record["score"], record["local_only"]) for record in self.predictions if record["local_only"]]
        gains = np.array([[joint["balanced_accuracy"] - alone["balanced_accuracy"]] for joint, alone in both])
        value, error, n = mean_ratio(gains, np.ones_like(gains))
        interval = student_interval(value, error, n=n)
        gain = Gain(METRICS["classes"], value, interval.low, interval.high, n)
        side = "is not shown to pay" if gain.answer == "cannot tell" else gain.answer
        return f"Joining {side}: {gain} compared with training alone on plain pixels, on the same rows of {n} participants."


def run_demo(folder: Path, *, n_participants: int, seed: int, progress: Progress) -> DemoResult:
    """Run the demonstration in an empty or new folder; `seed` determines the splits and the audit."""
    tables = write_tables(folder, n_participants=n_participants, seed=seed)
    (folder / "post").mkdir()
    (folder / "analyst" / "inbox").mkdir(parents=True)
    with _command_processes() as pool:
        stage = _Stage(pool, tables, progress)
        return replace(_play(stage, folder, seed), answers=_play_questions(stage, folder / "hospitals", seed))


def _play_questions(stage: _Stage, folder: Path, seed: int) -> tuple[dict[str, Any], ...]:
    """Run a study of several questions in a folder: four hospitals upload once, and the analyst asks."""
    places = write_hospitals(folder, seed=seed)
    analyst, post = folder / "analyst", folder / "post"
    (analyst / "inbox").mkdir(parents=True)
    post.mkdir()
    draft = ["study", "init", str(places[0] / "rows.csv"), "--name", "hospitals", "--mechanism", SECURE_SUM]
    draft += ["--epsilon", f"{HOSPITAL_EPSILON:g}", "--expected-rows", str(_N_PATIENTS), "--output", "study.toml"]
    draft += [word for name, (low, high) in _RANGES.items() for word in ("--range", f"{name}={low}:{high}")]
    draft += ["--category", "sex=f,m", "--question", "tables", "--question", "regression"]
    stage.run("a second study", post, draft)
    stage.each("keys", lambda name: ["join", "--name", name, "--output", f"../post/{name}.card.toml"], places)
    joining = ["join", "--role", "analyst", "--name", "analyst", "--output", "../post/analyst.card.toml"]
    stage.run("keys", analyst, joining)
    stage.run("the roster", post, ["study", "enrol", *(f"{place.name}.card.toml" for place in (*places, analyst))])
    agreed = ["--study", "../post/study.toml"]
    share = ["share", "rows.csv", *agreed]
    stage.each("sharing sums", lambda name: [*share, "--output", f"../analyst/inbox/{name}.bundle"], places)
    stage.run("closing", analyst, ["align", *agreed, "--bundles", "inbox"])
    shutil.copy(analyst / "analysis" / "closing.list", post)
    combine = ["combine", *agreed, "--bundles", "../analyst/inbox", "--list", "../post/closing.list"]
    stage.each("combining", lambda name: [*combine, "--output", f"../analyst/inbox/{name}.share"], places)
    asked = (["describe", "--by", "sex"], ["regress", "progression ~ bmi + sex"])
    pages = [["--page", f"../../{words[0]}.html"] for words in asked]
    return tuple(
        stage.run("answers", analyst, [*words, *agreed, *page]) for words, page in zip(asked, pages, strict=True)
    )


def _play(stage: _Stage, folder: Path, seed: int) -> DemoResult:
    """Run every command of the study, in order."""
    tables, designer, analyst, post = stage.tables, folder / "designer", folder / "analyst", folder / "post"
    draft = ["study", "init", "columns.csv", "--name", "digits", "--label", LABEL, "--classes", ",".join("0123456789")]
    draft += ["--all-ranges", "0:16", "--image-shape", "8x8", "--mechanism", SECURE_SUM, "--epsilon", f"{EPSILON:g}"]
    stage.run("drafting the study", designer, draft)
    stage.each("keys", lambda name: ["join", "--name", name, "--output", f"../post/{name}.card.toml"])
    stage.run(
        "keys", analyst, ["join", "--role", "analyst", "--name", "analyst", "--output", "../post/analyst.card.toml"]
    )
    cards = [f"../post/{name}.card.toml" for name in (*tables.names, "analyst")]
    enrolled = stage.run("the roster", designer, ["study", "enrol", *cards])
    shutil.copy(designer / "study.toml", post)

    agreed = ["--study", "../post/study.toml"]
    stage.run("checking", tables.participants[0], ["check", "rows.csv", *agreed])
    share = ["share", "rows.csv", *agreed]
    stage.each("sharing sums", lambda name: [*share, "--output", f"../analyst/inbox/{name}.bundle"])
    combine = ["combine", *agreed, "--bundles", "../analyst/inbox"]
    combiners = tables.participants[:_N_COMBINERS]
    stage.each("testing", lambda name: [*combine, "--output", f"../analyst/inbox/{name}.receipt"], combiners)
    stage.run("closing", analyst, ["align", *agreed, "--bundles", "inbox", "--receipts", "inbox"])
    shutil.copy(analyst / "analysis" / "closing.list", post)
    combine += ["--list", "../post/closing.list"]
    stage.each("combining", lambda name: [*combine, "--output", f"../analyst/inbox/{name}.share"], combiners)
    stage.run("training", analyst, ["train", *agreed, "--shares", "inbox"])
    stage.run("delivering", analyst, ["deliver", *agreed, "--output", "results"])
    for place in tables.participants:
        shutil.copytree(analyst / "results" / place.name, place / "result")
    predict = ["predict", "new-rows.csv", *agreed, "--result", "result", "--beside", "rows.csv"]
    predictions = stage.each("scoring new rows", lambda name: predict)
    audit = ["audit", "everybodys-rows.csv", *agreed, "--participants", str(len(tables.names))]
    audit += ["--rows-each", str(ROWS_EACH), "--seed", str(seed), "--epsilon", "none"]
    audit += ["--method", "aa-i-gdp-anchor-noise", "--anchor-noise", "0.1"]  # the paper's method
    audited = stage.run("attacking", folder / "auditor", audit)
    page = ["report", "analysis", *agreed, "--audit", "../auditor/audit-report/audit.json"]
    stage.run("the report", analyst, [*page, "--output", "../report.html"])
    return DemoResult(tables, enrolled["fingerprint"], tuple(predictions), audited, ())


@contextmanager
def _command_processes() -> Iterator[ProcessPoolExecutor]:
    """Yield a pool that runs each command in a new process of one thread, with at most one process per processor."""
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    before = {name: os.environ.get(name) for name in threads}
    context = multiprocessing.get_context(_START)
    context.set_forkserver_preload(_PRELOADED)
    os.environ |= threads  # libraries in the processes read these variables when they are loaded
    try:
        if _START == "forkserver":
            _start_fork_server()
        with ProcessPoolExecutor(
            os.cpu_count(), context, initializer=_prepare_process, initargs=(current_effort(),), max_tasks_per_child=1
        ) as pool:
            yield pool
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ |= {} if value is None else {name: value}


def _start_fork_server() -> None:
    """Start the process that loads modules for all commands, so that an interrupt does not end it with a traceback."""
    from multiprocessing import forkserver

    if threading.current_thread() is not threading.main_thread():  # only the main thread can set signals
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, handler)


def _prepare_process(effort: Effort) -> None:
    """Let an interrupt end the command of this process, and set the effort of its attacks."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    set_effort(effort)


def _run_command(place: Path, words: Sequence[str]) -> tuple[int, str, str]:
    """Run a command in a folder, in a process of its own; return its exit code, its output and its errors."""
    os.chdir(place)
    sys.argv = ["mooring", *words]
    output, errors, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(output), redirect_stderr(errors):
        try:
            runpy.run_module("mooring", run_name="__main__")
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return code, output.getvalue(), errors.getvalue()


@dataclass
class _Stage:
    """Runs commands and reports progress."""

    pool: ProcessPoolExecutor
    tables: Tables
    progress: Progress
    done: int = 0

    def run(self, words: str, place: Path, command: Sequence[str]) -> dict[str, Any]:
        """Run one command in one folder."""
        return self._answer(words, place, command, self._start(place, command))

    def each(
        self, words: str, command: Callable[[str], list[str]], places: Sequence[Path] = ()
    ) -> list[dict[str, Any]]:
        """Run a command in each of `places` (by default every participant's folder), at most one per processor at a time."""
        started = [
            (place, asked := command(place.name), self._start(place, asked))
            for place in places or self.tables.participants
        ]
        return [self._answer(words, *running) for running in started]

    def _start(self, place: Path, command: Sequence[str]) -> Future[tuple[int, str, str]]:
        return self.pool.submit(_run_command, place, [*command, "--format", "json"])

    def _answer(
        self, words: str, place: Path, command: Sequence[str], running: Future[tuple[int, str, str]]
    ) -> dict[str, Any]:
        code, output, errors = running.result()
        if code != 0:
            raise MooringError(f"'mooring {' '.join(command)}' failed in {place.name}:\n{errors.strip()}")
        self.done += 1
        n = len(self.tables.names)
        self.progress(self.done, 15 + 3 * n + 2 * min(n, _N_COMBINERS) + 3 * N_HOSPITALS, words)
        answer: dict[str, Any] = json.loads(output)
        return answer


@dataclass(frozen=True)
class Tables:
    """The folders of the demonstration, and their tables."""

    folder: Path
    participants: tuple[Path, ...]
    """One folder per participant, with rows.csv (to share) and new-rows.csv (to predict later)."""
    everything: Path
    """All participants' rows for the audit, which no real study has in one place."""

    @property
    def names(self) -> tuple[str, ...]:
        """The participants' names."""
        return tuple(folder.name for folder in self.participants)


def write_tables(folder: Path, *, n_participants: int, seed: int) -> Tables:
    """Write the tables of all roles; each participant has forty rows to share, and other rows to predict later."""
    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(digits))
    order = order[np.argsort(digits[order], kind="stable")]  # class by class, so that every participant has every digit
    tables = Tables(
        folder,
        tuple(folder / f"clinic-{k + 1:02}" for k in range(n_participants)),
        folder / "auditor" / "everybodys-rows.csv",
    )
    shared = []
    for k, place in enumerate(tables.participants):
        rows = order[k :: max(n_participants, _EVERYBODY)]
        takes_part = np.isin(np.arange(rows.size), np.linspace(0, rows.size - 1, ROWS_EACH).round().astype(int))
        _write(place / "rows.csv", images[rows[takes_part]], digits[rows[takes_part]])
        _write(place / "new-rows.csv", images[rows[~takes_part]], digits[rows[~takes_part]])
        shared.append(rows)
    _write(folder / "designer" / "columns.csv", images[:0], digits[:0])
    everybody = np.concatenate(shared)
    _write(tables.everything, images[everybody], digits[everybody])
    return tables


def write_hospitals(folder: Path, *, seed: int) -> list[Path]:
    """Split the patients of scikit-learn's diabetes table among four hospitals, each with a folder and rows.csv."""
    values, progression = load_diabetes(return_X_y=True, scaled=False)
    places = [folder / f"hospital-{k + 1}" for k in range(N_HOSPITALS)]
    parts = np.array_split(np.random.default_rng(seed).permutation(len(values)), N_HOSPITALS)
    for place, rows in zip(places, parts, strict=True):
        place.mkdir(parents=True)
        with (place / "rows.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["age", "sex", "bmi", "pressure", "progression"])
            for (age, sex, bmi, pressure), after in zip(values[rows, :4], progression[rows], strict=True):
                writer.writerow([int(age), "fm"[int(sex) - 1], round(bmi, 1), round(pressure), int(after)])
    return places


def _write(path: Path, images: npt.NDArray[np.float64], digits: npt.NDArray[np.int64]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*PIXELS, LABEL])
        writer.writerows([*row, digit] for row, digit in zip(images.astype(int).tolist(), digits.tolist(), strict=True))
