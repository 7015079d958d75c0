"""The documentation names tests and files that there are."""

import json
import re
from pathlib import Path

import pytest

from mooring.mechanisms.sums.class_moments import LEAST_SIGNAL
from mooring.mechanisms.sums.guarantee import bound_share, calibrate_multiplier
from mooring.theory import sufficient_scale, transition_scale

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/README.md")]
FOLDERS = "benchmarks|clients|docs|examples|installation|results|src|studies|tests"


@pytest.fixture(scope="module")
def names_of_tests() -> set[str]:
    texts = [path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/*.py")]
    return {name for text in texts for name in re.findall(r"def (test_\w+)", text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_tests_and_files_that_a_page_names_exist(page: Path, names_of_tests: set[str]) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"(?:`|::)(test_\w+)`", text)) <= names_of_tests
    for path in re.findall(rf"`((?:{FOLDERS})/[\w/.-]*\w)(?:`|::)", text):
        assert (ROOT / path).exists() or path.startswith(("benchmarks/results", "docs/benchmarks")), path
    for target in re.findall(r"\]\((?!\w+:)([^)#]+)[)#]", text):
        assert (page.parent / target).exists(), target


def test_pages_state_the_bound_on_members_recognised_that_the_guarantee_gives() -> None:
    text = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+)(?: \||:)", text, flags=re.M)
    assert len(rows) == 5
    for epsilon, stated in rows:
        decimals = len(stated.partition(".")[2])
        assert f"{100 * bound_share(float(epsilon), 1e-5):.{decimals}f}" == stated
    for page in ("privacy", "figures", "findings"):
        assert f"{100 * bound_share(1.0, 1e-5):.2f}" in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def test_pages_state_the_rows_and_noise_scales_that_the_code_computes() -> None:
    methods, theory = (
        " ".join((ROOT / "docs" / name).read_text("utf-8").split()) for name in ("methods.md", "theory.md")
    )
    rows = {
        epsilon: 10 * round(LEAST_SIGNAL * calibrate_multiplier(epsilon, 1e-5) * epsilon / 10) for epsilon in (1, 2, 8)
    }
    assert f"nε/K of about {rows[1]} at ε = 1, {rows[2]} at 2 and {rows[8]} at 8" in methods
    scales = ", ".join(f"{transition_scale(p, 400, 1600):.5f}" for p in (2, 5, 10, 20, 50))
    assert f"| 2, 5, 10, 20, 50 | 400 | 1600 | {scales} |" in theory
    size = (10, 100, 400)
    assert f"allows v up to {sufficient_scale(*size):.1e}; v_PT is {transition_scale(*size):.4f}" in theory.replace(
        "e-7", "e-07"
    )


def test_the_first_page_states_what_was_measured_under_anchor_noise() -> None:
    measured = json.loads((ROOT / "benchmarks" / "results" / "leakage.json").read_text(encoding="utf-8"))
    (digits,) = (entry["rows"] for entry in measured.values() if entry["name"].startswith("MNIST"))
    rows = [row for row in digits if row["attack"] == "moments" and row["v"] is not None]
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert (
        f"rebuilds MNIST with an error of {max(100 * row['error'] for row in rows):.0f} %, and links every row" in text
    )
    assert {row["linkage"] for row in rows} == {1.0}
