"""What one dishonest site of five can do to the others' model: docs/dishonest-site.md, from simulated tables.

Four honest sites have rows of slightly different distributions. The fifth uploads false rows or labels, from one row to a
million. Its rows are limited and screened, and a model is trained, by the functions that `mooring train` calls. Maps are not
simulated: honest anchor representations are aligned equally well with the dishonest site and without it. Each honest site's
loss is the score of the study without the dishonest site minus the score with it, on 1,000 new rows of that site.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.metrics import roc_auc_score

from benchmarks.machine import describe_machine, described
from mooring.learners import score_value, train_learner
from mooring.learners.fitting import MOST_ROWS, draw_rows, influence_rows, screening_rows
from mooring.metrics.intervals import student_interval
from mooring.protocol.rotation.analyst.training import LabelledRows, find_left_out

Rows = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]
Attack = Callable[[int, np.random.Generator], Rows]

N_HONEST, WIDTH, N_TEST = 4, 8, 1000
WEIGHTS = np.array([3.0, -2.0, 2.0, 1.5, -1.0, 1.0, 0.5, 0.0])
SIZES, SEEDS = (60, 200), range(5)
UPLOADS = (1, 10, 0, 20_000, 1_000_000)  # 0 stands for as many as an honest site
WEIGHT_LIMIT = 3.0
MOST_LOSS, MOST_LOSS_OF_FEW_LABELS = 3.0, 10.0
HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results" / "dishonest_site.json", HERE.parent / "docs" / "dishonest-site.md"


def draw_honest(n: int, rng: np.random.Generator, shift: float | npt.NDArray[np.float64] = 0.0) -> Rows:
    """Draw rows between −1 and 1, and classes that a plane separates but for some noise."""
    rows = np.clip(0.2 + shift + np.linspace(0.15, 0.4, WIDTH) * rng.standard_normal((n, WIDTH)), -1, 1)
    return rows, ((rows - 0.2) @ WEIGHTS + 0.5 * rng.standard_normal(n) > 0).astype(np.int64)


def flip(n: int, rng: np.random.Generator) -> Rows:
    """Flip every label."""
    rows, labels = draw_honest(n, rng)
    return rows, 1 - labels


def flip_one_side(n: int, rng: np.random.Generator) -> Rows:
    """Flip the labels of one class, so that all rows have the other one."""
    rows, labels = draw_honest(n, rng)
    return rows, 0 * labels


def invent_one_class(n: int, rng: np.random.Generator) -> Rows:
    """Invent rows anywhere in the ranges, all of one class."""
    return rng.uniform(-1, 1, (n, WIDTH)), np.ones(n, dtype=np.int64)


def take_corners(n: int, rng: np.random.Generator) -> Rows:
    """Invent rows at corners of the ranges, with the wrong class each."""
    rows = rng.choice([-1.0, 1.0], (n, WIDTH))
    return rows, ((rows - 0.2) @ WEIGHTS < 0).astype(np.int64)


def repeat_few(n: int, rng: np.random.Generator) -> Rows:
    """Repeat five rows with flipped labels."""
    rows, labels = draw_honest(5, rng)
    return rows[np.arange(n) % 5], 1 - labels[np.arange(n) % 5]


def randomise(n: int, rng: np.random.Generator) -> Rows:
    """Draw every label at random."""
    return draw_honest(n, rng)[0], rng.integers(0, 2, n)


ATTACKS: dict[str, Attack] = {
    "labels flipped": flip,
    "labels of one class flipped": flip_one_side,
    "labels at random": randomise,
    "invented rows of one class": invent_one_class,
    "rows at corners, labels flipped": take_corners,
    "five rows repeated, labels flipped": repeat_few,
}
LABELS_ONLY = ("labels flipped", "labels of one class flipped", "labels at random")


@dataclass(frozen=True)
class Cell:
    """The result of one attack: mean losses of the worst-off honest site, in points, with 95 % intervals over seeds."""

    rows_each: int
    attack: str
    rows_uploaded: int
    left_out: int
    """Number of seeds in which the dishonest site was left out."""
    honest_left_out: int
    """Number of honest sites left out, over all seeds."""
    auc: tuple[float, float, float]
    balanced_accuracy: tuple[float, float, float]

    @property
    def allowed(self) -> float:
        """The loss that is aimed at."""
        few = self.rows_uploaded <= self.rows_each and self.attack in LABELS_ONLY
        return MOST_LOSS_OF_FEW_LABELS if few else MOST_LOSS

    @property
    def loss(self) -> float:
        """The larger of both losses."""
        return max(self.auc[0], self.balanced_accuracy[0])


def score_model(sites: Sequence[Rows], tests: Sequence[Rows], learner: str) -> npt.NDArray[np.float64]:
    """Train on these sites' rows, and return AUC and balanced accuracy on each test set, in points."""
    rows, labels = (np.concatenate([site[k] for site in sites]) for k in range(2))
    model = train_learner(learner, rows, labels, kind="classes", seed=0).to_model(2)
    scores = []
    for test_rows, truth in tests:
        predicted, probabilities = model.predict_with_probabilities(test_rows)
        assert probabilities is not None
        scores.append((roc_auc_score(truth, probabilities[:, 1]), score_value(truth, predicted, kind="classes")))
    return 100 * np.array(scores)


def screen(sites: Sequence[Rows], *, weight_limit: float, seed: int) -> tuple[list[Rows], list[int]]:
    """Limit and screen rows as `mooring train` does; return the rows to train on, and the sites that are left out."""
    drawn = draw_rows([len(rows) for rows, _ in sites], MOST_ROWS, seed, weight_limit=weight_limit)
    limited = [(rows[at], labels[at]) for (rows, labels), at in zip(sites, drawn, strict=True)]
    counts, salt = [len(rows) for rows, _ in limited], f"{seed + 1:x}"
    rows, labels = (np.concatenate([site[k] for site in limited]) for k in range(2))
    everything = LabelledRows(np.repeat(np.arange(len(sites)), counts), rows, labels)
    screened = everything.draw(screening_rows(counts, seed, salt=salt))
    influential = everything.draw(influence_rows(counts, seed, salt=salt))
    left_out = find_left_out(screened, influential, kind="classes", seed=seed).places.tolist()
    return [site for place, site in enumerate(limited) if place not in left_out], left_out


@cache
def prepare_honest(rows_each: int, seed: int, learner: str) -> tuple[list[Rows], list[Rows], npt.NDArray[np.float64]]:
    """Draw the honest sites' rows and tests, and score the study without the dishonest site."""
    rng = np.random.default_rng([seed, rows_each])
    shifts = rng.normal(0, 0.08, (N_HONEST, WIDTH))
    sites = [draw_honest(rows_each, rng, shift) for shift in shifts]
    tests = [draw_honest(N_TEST, rng, shift) for shift in shifts]
    return sites, tests, score_model(sites, tests, learner)


def run_attack(
    name: str,
    rows_each: int,
    rows_uploaded: int,
    *,
    weight_limit: float = WEIGHT_LIMIT,
    seeds: Sequence[int] = SEEDS,
    learner: str = "linear",
) -> Cell:
    """Measure one attack, over seeds."""
    losses, left_out, honest_left_out = [], 0, 0
    for seed in seeds:
        sites, tests, before = prepare_honest(rows_each, seed, learner)
        bad = ATTACKS[name](rows_uploaded, np.random.default_rng([seed, rows_each, rows_uploaded]))
        kept, out = screen([*sites, bad], weight_limit=weight_limit, seed=seed)
        left_out += N_HONEST in out
        honest_left_out += sum(place < N_HONEST for place in out)
        losses.append(before - score_model(kept, tests, learner))
    by_score = []
    for score in np.moveaxis(np.array(losses), -1, 0):  # scores; seeds, sites
        worst = score[:, score.mean(axis=0).argmax()]
        interval = student_interval(worst.mean(), worst.std(ddof=1) / len(worst) ** 0.5, n=len(worst))
        by_score.append((float(worst.mean()), interval.low, interval.high))
    return Cell(rows_each, name, rows_uploaded, left_out, honest_left_out, *by_score)


def run_table() -> Iterator[Cell]:
    """Measure every attack at every size, several at a time."""
    cells = [(name, n, uploaded or n) for n in SIZES for name in ATTACKS for uploaded in UPLOADS]
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        yield from processes.map(run_attack, *zip(*cells, strict=True))


def render(cells: Sequence[Cell], machine: str) -> str:
    """Return the page: the largest loss first, then a table of attacks and numbers of rows."""
    above = [cell for cell in cells if cell.loss > cell.allowed]
    many = [cell for cell in cells if cell.rows_uploaded > cell.rows_each or cell.attack not in LABELS_ONLY]
    few = [cell for cell in cells if cell not in many]
    lines = [
        "# One dishonest site",
        "",
        "What one dishonest site of five can do to the others' model in a study of rotation. "
        f"**The worst-off honest site lost up to {max(cell.loss for cell in many):.1f} points** of a score (mean over "
        f"seeds), and up to {max(cell.loss for cell in few):.1f} where the dishonest site falsified labels only and had no "
        f"more rows than an honest one. At most {MOST_LOSS:g} and {MOST_LOSS_OF_FEW_LABELS:g} points are aimed at; "
        f"cells above, in bold: {len(above)} of {len(cells)}. In one study in which the site is not noticed, the loss can "
        "be several times the mean. "
        f"Honest sites were left out {sum(cell.honest_left_out for cell in cells)} times in "
        f"{len(cells) * len(SEEDS) * N_HONEST:,}.",
        "",
        f"A study's `weight_limit` (here {WEIGHT_LIMIT:g}) bounds a site's rows in training by that multiple of the median "
        "site's; a site that clearly contradicts the others' models, or makes models much worse for most of them, is "
        "usually left out. With two sites no comparison can tell who is dishonest. Several sites that act together were "
        "not measured.",
        "",
        "Each cell has the loss in balanced accuracy or AUC, whichever is larger, with its 95 % interval, and in how many "
        f"of {len(SEEDS)} studies the site was left out. `python -m benchmarks.dishonest_site` measured it with the "
        f"learner `linear` on simulated tables (seeds 0 to {max(SEEDS)}, {machine}).",
        "",
    ]
    for rows_each in SIZES:
        uploads = [f"{uploaded or rows_each:,}" for uploaded in UPLOADS]
        lines += [
            f"## Honest sites with {rows_each} rows each",
            "",
            f"| the dishonest site uploads | {' | '.join(uploads)} rows |",
            "|---" * (1 + len(UPLOADS)) + "|",
        ]
        for name in ATTACKS:
            row = [_render_cell(cell) for cell in cells if (cell.rows_each, cell.attack) == (rows_each, name)]
            lines.append(f"| {name} | {' | '.join(row)} |")
        lines.append("")
    return "\n".join(lines)


def _render_cell(cell: Cell) -> str:
    mark = "**" if cell.loss > cell.allowed else ""
    mean, low, high = max(cell.auc, cell.balanced_accuracy)
    return f"{mark}{mean:z.1f}{mark} [{low:z.1f}, {high:z.1f}]; {cell.left_out}".replace("-", "−")


def main() -> None:
    """Measure everything, and write figures and page."""
    machine, cells = described(), []
    for cell in run_table():
        cells.append(cell)
        print(cell.attack, cell.rows_each, cell.rows_uploaded, _render_cell(cell), flush=True)
    content = {"machine": machine, "cells": [asdict(cell) for cell in cells]}
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(render_results(), encoding="utf-8")


def render_results() -> str:
    """Return the page of the figures on record."""
    content = json.loads(RESULTS.read_text(encoding="utf-8"))
    return render([Cell(**cell) for cell in content["cells"]], describe_machine(content["machine"]))


if __name__ == "__main__":
    main()
