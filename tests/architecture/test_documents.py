"""The documentation names tests and files that there are."""

import re
from pathlib import Path

import pytest

from mooring.mechanisms.sums.guarantee import bound_share

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
