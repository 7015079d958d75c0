"""MkDocs hook: runs the tutorials of docs/tutorials, shows what their cells print and draw, and makes the gallery.

The gallery also has the folders of examples/, whose README.md becomes a page.

A tutorial is a Python file in percent format: `# %% [markdown]` starts a cell of text, `# %%` a cell of code, and
`# %% alt="..."` one that draws with matplotlib, with the words for readers who cannot see the figure. Nothing of what cells
print or draw is kept in the repository.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import re
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot as plt
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "tutorials"
NAMES = (
    *("audit-your-table", "four-hospitals", "statistics-from-one-total"),
    *("paper-in-one-page", "write-your-own-attack"),
)
"""The tutorials in the order in which they are listed."""
EXAMPLES: dict[str, Path | tuple[str, int]] = {
    "heart": ROOT / "docs" / "figures" / "hospitals" / "each-participant.svg",
    "survival": ("statistics-from-one-total", 1),
    "own-csv": ("audit-your-table", 1),
}
"""The folders of examples/, each with a kept figure of the same data, or a tutorial on it and which of its pictures."""
STYLE = ROOT / "studies" / "mooring_studies" / "templates" / "figures.mplstyle"
TRANSPARENT = {"figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none"}
COLOURS = ["#4f86bd", "#d9822b", "#4f9d69", "#b0629f", "#9a7d5b"]
"""Colours of lines that can be distinguished on white and on dark pages."""
SEPARATOR = re.compile(r"^# %%(?: (\[markdown\]))?(?: alt=(\".*\"))?$", flags=re.M)
MARK = "<!-- outputs of cell {} -->"
README_LINK = re.compile(r"\]\(\.\./\.\./docs/")
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")


@dataclass(frozen=True)
class Cell:
    """A cell of a tutorial."""

    text: str
    """Markdown or code."""
    is_code: bool
    alternative: str = ""
    """What the cell draws, in words."""


@dataclass(frozen=True)
class Run:
    """What the cells of a tutorial gave."""

    outputs: dict[str, list[str]]
    """HTML, by the number of the cell."""
    pictures: list[str]
    """Those outputs that are pictures; the gallery shows the first."""
    seconds: float


RUNS: dict[str, Run] = {}
"""Runs of this build, by the tutorial's name."""


def read_cells(source: str) -> list[Cell]:
    """The cells of a file in percent format."""
    _, *parts = SEPARATOR.split(source)
    cells = []
    for is_text, alternative, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if is_text:
            lines = (re.sub("^# ?", "", line) for line in text.strip().splitlines())
            cells.append(Cell("\n".join(lines), is_code=False))
        else:
            cells.append(Cell(text.strip(), True, json.loads(alternative or '""')))
    return cells


def run_cells(name: str, cells: Sequence[Cell]) -> Run:
    """Run the cells of code in one namespace; an error or a warning ends the build and names the cell."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    outputs: dict[str, list[str]] = {}
    pictures: list[str] = []
    started = time.process_time()
    with _workplace():
        for number, cell in enumerate(cells, 1):
            if not cell.is_code:
                continue
            try:
                shown = list(_run_cell(cell, namespace, f"{name}, cell {number}"))
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
                raise PluginError(f"Tutorial {name}, cell {number} failed. {problem}\n{cell.text}") from error
            outputs[str(number)] = shown
            pictures += [html for html in shown if "<svg" in html]
    return Run(outputs, pictures, time.process_time() - started)


@contextmanager
def _workplace() -> Iterator[None]:
    """An empty folder to work in, figures in the site's style, and warnings as errors."""
    style = [STYLE, {"axes.prop_cycle": matplotlib.cycler(color=COLOURS), **TRANSPARENT}]
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder, chdir(folder), warnings.catch_warnings(), plt.style.context(style):
        warnings.simplefilter("error")
        plt.switch_backend("svg")
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = before
            plt.close("all")


def _run_cell(cell: Cell, namespace: dict[str, Any], name: str) -> Iterator[str]:
    """What a notebook shows of a cell: what it prints, the value of its last line, and its figures."""
    parsed = ast.parse(cell.text, name)
    last = parsed.body.pop() if isinstance(parsed.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(parsed, name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    if printed.getvalue():
        yield f"<pre>{escape(printed.getvalue())}</pre>"
    if value is not None and not type(value).__module__.startswith("matplotlib"):
        yield _show(value)
    for number in plt.get_fignums():
        if not cell.alternative:
            raise ValueError('The cell draws a figure without words for it: write them as # %% alt="...".')
        yield _draw(plt.figure(number), cell.alternative)
    plt.close("all")


def _show(value: Any) -> str:
    """A value as HTML; tables get the look of the page's."""
    if not hasattr(value, "_repr_html_"):
        return f"<pre>{escape(repr(value))}</pre>"
    html = re.sub(r"<style.*?</style>", "", value._repr_html_(), flags=re.S)
    html = re.sub(r'<table border="1" class="dataframe">', "<table>", html)
    return html.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")


def _draw(figure: Any, alternative: str) -> str:
    """A figure as SVG whose letters have the colour of the page's."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    return _prepare_svg(drawn.getvalue(), alternative)


def _prepare_svg(svg: str, alternative: str) -> str:
    """An SVG without background, whose letters have the colour of the page's."""
    svg = svg[svg.index("<svg") :].replace("#222222", "currentColor").replace("#000000", "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S).replace("fill: #ffffff", "fill: none")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(alternative)}" class="figure" ', 1)


def run_or_recall(name: str, source: str) -> Run:
    """Run a tutorial, or recall its run where neither it nor the package has changed since.

    With MOORING_TUTORIALS=skip, which is for checking links, pages have no outputs.
    """
    if os.environ.get("MOORING_TUTORIALS") == "skip":
        return Run({}, ["", ""], 0.0)
    parts = [source.encode(), Path(__file__).read_bytes(), STYLE.read_bytes(), (ROOT / "constraints.txt").read_bytes()]
    package = (path.read_bytes() for path in sorted((ROOT / "src").rglob("*")) if path.suffix in (".py", ".jinja"))
    key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in (*parts, *package))).hexdigest()
    kept = ROOT / "build" / "tutorials" / f"{name}.json"
    if kept.exists() and (record := json.loads(kept.read_text("utf-8"))).pop("key") == key:
        return Run(**record)
    run = run_cells(name, read_cells(source))
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"key": key, **asdict(run)}), encoding="utf-8")
    return run


def make_notebook(cells: Sequence[Cell]) -> str:
    """A Jupyter notebook with the cells, without outputs."""
    code = {"execution_count": None, "outputs": []}
    written = [
        {
            "cell_type": "code" if cell.is_code else "markdown",
            "id": f"cell-{number}",
            "metadata": {},
            "source": cell.text,
            **(code if cell.is_code else {}),
        }
        for number, cell in enumerate(cells, 1)
    ]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": written, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def make_page(name: str, cells: Sequence[Cell], seconds: float) -> str:
    """The Markdown of a tutorial's page; its outputs are put in once it is HTML."""
    title, introduction = cells[0].text.split("\n", 1)
    links = f"[notebook]({name}.ipynb) or a [Python file]({name}.py)"
    note = (
        f"Its cells were run when this site was built, in {seconds:.1f} s of one core, without loading libraries. Download "
        f"it as a {links} for Jupyter or VS Code, which show the last value of a cell."
    )
    parts = [title, introduction, note]
    for number, cell in enumerate(cells[1:], 2):
        parts.append(f"```python\n{cell.text}\n```\n\n{MARK.format(number)}" if cell.is_code else cell.text)
    return "\n\n".join(parts)


def make_card(address: str, text: str, picture: str) -> str:
    """An entry of the gallery for a page: its picture, title and first sentence."""
    title, introduction = text.split("\n", 1)
    sentence = re.split(r"(?<=[.?])\s", LINK.sub(r"\1", introduction.strip()), maxsplit=1)[0]
    return (
        f'<a class="card" href="{address}"><div class="thumbnail" aria-hidden="true">{picture}</div>'
        f"<b>{escape(title.removeprefix('# '))}</b><span>{escape(sentence.replace('*', ''))}</span></a>"
    )


def read_example(name: str) -> str:
    """The page of an example: its README.md."""
    return README_LINK.sub("](../", (ROOT / "examples" / name / "README.md").read_text(encoding="utf-8"))


def find_picture(name: str) -> str:
    """The picture of an example."""
    place = EXAMPLES[name]
    if isinstance(place, Path):
        return _prepare_svg(place.read_text(encoding="utf-8"), name)
    return RUNS[place[0]].pictures[place[1]]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Run every tutorial, and add its page, its downloads and its entry in the gallery."""
    for name in NAMES:
        source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        cells = read_cells(source)
        RUNS[name] = run_or_recall(name, source)
        page = make_page(name, cells, RUNS[name].seconds)
        alone = LINK.sub(r"\1", source)  # a download has no pages beside it
        downloads = {".md": page, ".py": alone, ".ipynb": make_notebook(read_cells(alone))}
        for ending, content in downloads.items():
            path = f"tutorials/{name}{ending}"
            if (excluded := files.get_file_from_path(path)) is not None:
                files.remove(excluded)
            files.append(File.generated(config, path, content=content, inclusion=InclusionLevel.INCLUDED))
    for name in EXAMPLES:
        files.append(File.generated(config, f"examples/{name}.md", content=read_example(name)))
    return files


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Put the outputs behind their cells, and the pictures into the gallery."""
    folder, _, name = page.file.src_uri.removesuffix(".md").rpartition("/")
    if folder == "tutorials" and name in RUNS:
        for number, shown in RUNS[name].outputs.items():
            outputs = f'<div class="output" data-search-exclude>{"".join(shown)}</div>' if shown else ""
            html = html.replace(MARK.format(number), outputs)
    if page.file.src_uri == "gallery.md":
        tutorials = [
            make_card(
                f"tutorials/{name}.html", read_cells((FOLDER / f"{name}.py").read_text("utf-8"))[0].text, pictures[0]
            )
            for name, pictures in ((name, run.pictures) for name, run in RUNS.items())
        ]
        examples = [make_card(f"examples/{name}.html", read_example(name), find_picture(name)) for name in EXAMPLES]
        for mark, cards in (("tutorials", tutorials), ("examples", examples)):
            html = html.replace(f"<!-- {mark} -->", f'<div class="cards">{"".join(cards)}</div>')
    return html
