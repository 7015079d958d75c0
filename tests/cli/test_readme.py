"""What the README and the documentation show is run, or at least read by the program, to the letter."""

import re
import shlex
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import typer

from mooring.cli.app import app

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*DOCS, ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "examples").rglob("*.md"))]
ELSEWHERE = {"extend", "flare"}
"""Pages whose Python is run by tests of their own: tests/test_extend.py, and tests/distributed/test_flare.py."""
PROGRAM: Any = typer.main.get_command(app)
NEEDS_IMAGES = "pack_faces"
PRINTED = {"methods": r"print\(.*?\)\s+# (.*)"}
"""Regular expressions of what a page says that its code prints."""
EXAMPLES = [
    pytest.param(page.stem, code, id=f"{page.stem}-{k}")
    for page in DOCS
    if page.stem not in ELSEWHERE
    for k, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S))
    if NEEDS_IMAGES not in code
]


@pytest.mark.parametrize(("page", "code"), EXAMPLES)
def test_an_example_of_the_documentation_runs_alone_and_prints_what_it_says(
    page: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with chdir(ROOT):
        exec(compile(code, page, "exec"), {"__name__": "example"})
    printed = capsys.readouterr().out.splitlines()
    if page in PRINTED:
        assert printed == re.findall(PRINTED[page], code, flags=re.MULTILINE)


def commands_in_blocks(text: str) -> Iterator[list[str]]:
    """Yield the words that follow `mooring` on each line of code, without comments and what follows in a shell."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, flags=re.M | re.S) + re.findall(
        r"^    .*(?:\n    .*)*", text, flags=re.M
    )
    for line in re.sub(r" *\\\n\s*", " ", "\n".join(blocks)).splitlines():
        shown = re.match(r" *(?:\$ )?mooring +(\S.*)", line)
        if shown:
            words = shlex.split(shown[1], comments=True)
            ends = [k for k, word in enumerate(words) if word in ("|", ">", ";", "&&")]
            yield words[: ends[0]] if ends else words


def commands_in_sentences(text: str) -> Iterator[list[str]]:
    """Yield the words that follow `mooring` in each piece of code inside a sentence."""
    for shown in re.findall(r"`mooring ([a-z][^`]*)`", re.sub(r"```.*?```", "", text, flags=re.S)):
        yield shlex.split(re.sub(r"\s+", " ", shown))


def find_command(words: list[str]) -> tuple[Any, list[str], Any]:
    """Return the command that the first words name, the words that are left, and the context that it is read in."""
    command = PROGRAM
    context = typer.Context(command, info_name="mooring")
    while hasattr(command, "get_command") and words and not words[0].startswith("-"):
        command, name = command.get_command(context, words[0]), words[0]
        assert command is not None, f"no command {name!r}"
        words, context = words[1:], typer.Context(command, info_name=name, parent=context)
    return command, words, context


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_command_that_a_page_shows_is_one_that_the_program_reads(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for words in commands_in_blocks(text):
        command, rest, context = find_command(words)
        if not hasattr(command, "get_command") and "--help" not in rest:
            command.make_context(command.name, [*rest], parent=context.parent)  # raises a usage error
    for words in commands_in_sentences(text):
        command, rest, context = find_command(words)
        known = {
            name for parameter in command.get_params(context) for name in (*parameter.opts, *parameter.secondary_opts)
        }
        asked = {word.split("=")[0] for word in rest if re.match(r"--[a-z]", word)}
        assert asked <= known, f"{' '.join(words)}: {asked - known}"


def test_commands_are_found_in_blocks_and_in_sentences() -> None:
    text = "    mooring share a.csv \\\n      --labels  # x\n\n`mooring plan\n--limit x`\n```sh\nmooring train | cat\n```\n"
    assert [*commands_in_blocks(text)] == [["train"], ["share", "a.csv", "--labels"]]
    assert [*commands_in_sentences(text)] == [["plan", "--limit", "x"]]
