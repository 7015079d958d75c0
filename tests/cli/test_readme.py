"""What the README shows is run, to the letter."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_readme_example_runs_and_prints_what_it_says(capsys: object) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()  # type: ignore[attr-defined]
    promised = re.findall(r"print\(.*?\)\s+# (.*)", code)
    assert printed == promised


def test_the_attacks_page_prints_what_it_says(capsys: object) -> None:
    text = (ROOT / "docs" / "attacks.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(code, "attacks.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()  # type: ignore[attr-defined]
    assert printed == re.findall(r"^    # (.*)", code, flags=re.MULTILINE)


def test_every_file_the_readme_names_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r"`((?:src|tests|benchmarks)/[^`]*)`", text)
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []
