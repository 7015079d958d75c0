"""The measures of `make bench`, each one a function that returns rows of a table."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass

import mooring
from benchmarks.contenders import Result, conjugate_gradient, loop, mooring_solver, qc_procrustes
from benchmarks.problems import noisy_uploads
from mooring.theory import transition_scale


@dataclass(frozen=True)
class Row:
    """One measured ratio, beside what was to be reached."""

    measure: str
    obvious: str
    ours: str
    ratio: float
    reach: float
    note: str = ""
    good: bool = True

    @property
    def met(self) -> bool:
        return self.good and self.ratio <= self.reach


def against_the_loop(p: int, d: int, r: int, noise: float, *, seeds: range, reach: float, library: bool) -> list[Row]:
    """Time until objective and fixed-point residual are at least as good as the loop's when it stops."""
    loops: list[Result] = []
    ours: list[Result] = []
    libraries: list[Result] = []
    for seed in seeds:
        uploads = noisy_uploads(p, d, r, noise, seed)
        loops.append(loop(uploads))
        ours.append(mooring_solver(uploads, objective=loops[-1].objective, gap=loops[-1].gap))
        if library:
            libraries.append(conjugate_gradient(uploads, gap=loops[-1].gap))
    name = f"({p}, {d}, {r}), v = {noise:g}"
    gain = sum(mine.objective - theirs.objective for mine, theirs in zip(ours, loops, strict=True)) / len(ours)
    rows = [_compared(f"{name}, against the loop", loops, ours, reach, note=f"objective {gain:+.3f} on average")]
    if library:
        short = sum(theirs.objective - obvious.objective for theirs, obvious in zip(libraries, loops, strict=True))
        note = f"its objective is {short / len(loops):+.3f} against the loop's"
        rows.append(_compared(f"{name}, against pymanopt's conjugate gradient", libraries, ours, 1 / 3, note=note))
    return rows


def against_qc_procrustes(noise: float) -> list[Row]:
    """The generic library for generalized Procrustes, once: it is slow."""
    uploads = noisy_uploads(10, 100, 400, noise, 0)
    theirs = qc_procrustes(uploads)
    ours = mooring_solver(uploads, objective=theirs.objective, gap=1e-6)
    note = f"objective {ours.objective - theirs.objective:+.3f}"
    return [_compared(f"(10, 100, 400), v = {noise:g}, against qc-procrustes", [theirs], [ours], 1.0, note=note)]


def growth(counts: tuple[int, ...] = (10, 50, 250, 1000)) -> list[Row]:
    """Time a participant as the number of participants grows; half the transition scale, so the work is of one kind."""
    each = {count: _seconds_each(count) for count in counts}
    first, worst = each[counts[0]], max(each[count] for count in counts[1:])
    words = ", ".join(f"{count}: {1000 * seconds:.2f} ms" for count, seconds in each.items())
    row = Row(
        "(p, 50, 200): time a participant, most over that at p = 10",
        f"{1000 * first:.2f} ms",
        f"{1000 * worst:.2f} ms",
        worst / first,
        1.5,
        words,
    )
    return [row]


def many_participants(count: int = 10_000) -> list[Row]:
    """Does a very large collaboration run at all?"""
    uploads = noisy_uploads(count, 50, 200, 0.5 * transition_scale(count, 50, 200), 0)
    began = time.perf_counter()
    alignment = mooring.align(uploads)
    seconds = time.perf_counter() - began
    ratio = seconds / count / _seconds_each(1000)
    measure = f"({count}, 50, 200): time a participant over that at p = 1000"
    note = f"{alignment.iterations} iterations"
    return [Row(measure, "", f"{seconds:.1f} s in all", ratio, 1.5, note, good=alignment.converged)]


def _seconds_each(count: int) -> float:
    uploads = noisy_uploads(count, 50, 200, 0.5 * transition_scale(count, 50, 200), 0)
    return min(_seconds(uploads) for _ in range(3)) / count


def memory(share: float) -> list[Row]:
    """Peak resident memory of a process that aligns (50, 400, 1600), its uploads and Python included."""
    code = (
        "import json, mooring\n"
        "from pathlib import Path\n"
        "from benchmarks.problems import noisy_uploads\n"
        "def peak():\n"
        "    lines = Path('/proc/self/status').read_text().splitlines()\n"
        "    return next(int(line.split()[1]) for line in lines if line.startswith('VmHWM'))\n"
        f"uploads = noisy_uploads(50, 400, 1600, {share} * mooring.theory.transition_scale(50, 400, 1600), 0)\n"
        "before = peak()\n"
        "alignment = mooring.align(uploads, max_iterations=60)\n"
        "print(json.dumps([before, peak(), alignment.iterations]))\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    before, peak, iterations = json.loads(answer.stdout)
    note = f"{before / 1e6:.2f} GB with the uploads alone; {iterations} iterations, of at most 60"
    return [
        Row(
            f"(50, 400, 1600), v = {share:g} v_PT: peak memory over 1.5 GB",
            "1.50 GB",
            f"{peak / 1e6:.2f} GB",
            peak / 1.5e6,
            1.0,
            note,
        )
    ]


def _seconds(uploads: object) -> float:
    began = time.perf_counter()
    mooring.align(uploads)
    return time.perf_counter() - began


def _compared(measure: str, theirs: list[Result], ours: list[Result], reach: float, *, note: str) -> Row:
    obvious, mine = sum(result.seconds for result in theirs), sum(result.seconds for result in ours)
    good = all(result.good for result in ours)
    iterations = f"{_mean_iterations(theirs)} and {_mean_iterations(ours)} iterations"
    return Row(
        measure,
        f"{obvious / len(theirs):.2f} s",
        f"{mine / len(ours):.2f} s",
        mine / obvious,
        reach,
        f"{iterations}; {note}" + ("" if good else "; NOT as good on every seed"),
        good,
    )


def _mean_iterations(results: list[Result]) -> str:
    counted = [result.iterations for result in results if result.iterations >= 0]
    return f"{sum(counted) / len(counted):.0f}" if counted else "uncounted"
