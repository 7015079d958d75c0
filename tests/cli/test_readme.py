"""What the README and pages show is run, to the letter."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("page", "printed"), [("get-started", r"print\(.*?\)\s+# (.*)"), ("attacks", r"^    # (.*)")])
def test_a_pages_example_prints_what_it_says(page: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(code, page, "exec"), {})
    assert capsys.readouterr().out.splitlines() == re.findall(printed, code, flags=re.MULTILINE)


def test_every_file_the_readme_names_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r"`((?:src|tests|benchmarks)/[^`]*)`", text)
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []
