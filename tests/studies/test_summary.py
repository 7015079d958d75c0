"""A finished study in a few figures: the page and the terminal have the same, and neither claims too much."""

import io
import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from mooring_studies.cli.output import print_summary
from mooring_studies.comparison.results import Results
from mooring_studies.page import render_study
from mooring_studies.settings.spec import read_spec
from mooring_studies.storage.store import Finished
from mooring_studies.summary import joining_pays, summarised
from rich.console import Console

from tests.record import check_snapshot

Row = dict[str, Any]
SNAPSHOTS = Path(__file__).parent / "snapshots"
BASE: Row = {"deployment": 0, "n_participants": 10, "draw": 0}


def control(method: str, score: float, **more: Any) -> Row:
    return BASE | {"method": method, "balanced_accuracy": score, "balanced_accuracy_clean": score} | more


def face_rows() -> list[Row]:
    """Two of three noisy draws are attacked fully; the auditor loses what a direct match finds."""
    noisy = BASE | {"method": "aa-i-gdp-anchor-noise", "balanced_accuracy": 0.7, "balanced_accuracy_clean": 0.75}
    full = {"strongest_attacks": True, "linkage:procrustes": 0.1, "match:procrustes": 0.2}
    return [
        *(control(method, 0.82) for method in ("c-gdp", "aa-i-gdp", "i-gdp", "pooled-raw")),
        control("local-only", 0.6),
        noisy | full | {"linkage:moments": 0.18, "match:moments": 1.0},
        noisy | full | {"draw": 1, "linkage:moments": 0.85, "match:moments": 0.998},
        noisy | {"draw": 2, "strongest_attacks": False, "linkage:procrustes": 0.1, "match:procrustes": 0.1},
    ]


def table_rows(deployments: int = 1) -> list[Row]:
    """By everybody's rows all four noisy draws beat training alone; by participants' own rows one does."""
    noisy = BASE | {"method": "aa-i-gdp-data-noise", "balanced_accuracy_clean": 0.78, "match:moments": 0.45}
    rows = [
        control("aa-i-gdp", 0.8),
        control("local-only", 0.647),
        BASE | {"method": "local-own", "auc_own_clean": 0.85},
        *(noisy | {"draw": k, "auc_own_clean": 0.84 + 0.02 * (k == 3)} for k in range(4)),
    ]
    return [row | {"deployment": k} for k in range(deployments) for row in rows]


def finished(study: str, rows: Sequence[Row], **facts: Any) -> Finished:
    return Finished(Results.from_rows(rows), {"study": study, "spec": read_spec(study).as_dict()} | facts, None)


def terminal_of(study: str, rows: Sequence[Row], *, width: int = 100) -> str:
    results = Results.from_rows(rows)
    better, of = joining_pays(results)
    result = {
        "study": study, "quick": False, "page": "index.html", "results": "results.parquet", "notes": ["a note"],
        "draws_that_beat_training_alone": {"better": better, "of": of}, "sizes": summarised(results),
        "comparisons": [],
    }  # fmt: skip
    out = io.StringIO()
    print_summary(Console(file=out, width=width), result)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize(("study", "rows"), [("celeba", face_rows()), ("hospitals", table_rows(deployments=2))])
def test_the_page_and_the_terminal_are_as_kept(study: str, rows: list[Row]) -> None:
    page = render_study(finished(study, rows, notes=["a note"], n_train=5, parts=[{"rms": 0.5}]), [], [])
    body = re.sub(r"(?s)^.*?<main[^>]*>|</main>.*$|<style.*?</style>", "", page)
    text = unescape(re.sub(r"<[^>]+>", "\n", body))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    check_snapshot(SNAPSHOTS / f"{study}-page.txt", "\n".join(filter(None, lines)) + "\n")
    check_snapshot(SNAPSHOTS / f"{study}-terminal.txt", terminal_of(study, rows))


@pytest.mark.parametrize(
    ("rows", "count"), [(table_rows(), (1, 4)), (face_rows(), (3, 3)), (table_rows(deployments=2), (2, 8))]
)
def test_draws_that_beat_training_alone_are_counted_by_own_rows_where_they_were_scored(
    rows: list[Row], count: tuple[int, int]
) -> None:
    assert joining_pays(Results.from_rows(rows)) == count


def test_the_measure_is_among_the_figures_of_every_size() -> None:
    (size,) = summarised(Results.from_rows(table_rows(deployments=2)))
    alone = size["training_alone"]
    assert (size["deployments"], alone["method"], alone["score"]) == (2, "local-own", "auc_own_clean")
    assert alone["reaches"] == pytest.approx(85)
    (size,) = summarised(Results.from_rows(face_rows()))
    assert (size["training_alone"]["method"], size["training_alone"]["score"]) == (
        "local-only",
        "balanced_accuracy_clean",
    )
    (size,) = summarised(Results.from_rows(face_rows()[:1]))
    assert size["training_alone"] is None


def test_what_is_matched_directly_stands_beside_what_is_linked() -> None:
    (size,) = summarised(Results.from_rows(face_rows()))
    (noisy,) = size["noisy"]
    assert (noisy["linked_least"], noisy["linked_most"]) == (pytest.approx(18), pytest.approx(85))
    assert (noisy["matched_least"], noisy["matched_most"]) == (pytest.approx(99.8), pytest.approx(100))
    assert (noisy["draws"], noisy["attacked_fully"]) == (3, 2)
