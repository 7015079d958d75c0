"""MkDocs hook: pages of the reference, from the code, and a check that the built site fetches nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import mooring
from mooring.cli.app import app

ROOT = Path(__file__).parents[1]
# Title of a page, and what it describes: packages, by the names that they export, or single names of `mooring`.
PAGES = {
    "roles": (
        "Roles",
        ("mooring.Study", "mooring.Participant", "mooring.Analyst", "mooring.Streams", "mooring.errors"),
    ),
    "tables": ("Tables", ("mooring.tables",)),
    "mechanisms": ("Mechanisms", ("mooring.mechanisms", "mooring.mechanisms.secure_sum", "mooring.geometry")),
    "alignment": ("Alignment", ("mooring.alignment",)),
    "attacks": ("Attacks", ("mooring.attacks", "mooring.attacks.sums")),
    "metrics": ("Metrics", ("mooring.metrics",)),
    "audit": ("Audit", ("mooring.audit", "mooring.audit.sums")),
    "learners": ("Learners", ("mooring.learners",)),
    "estimators": ("Estimators", ("mooring.estimators",)),
    "theory": ("Theory", ("mooring.theory",)),
}
FETCHED = {
    ".html": re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)"),
    ".css": re.compile(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')]+)"),
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the API."""
    index = ["# API", "", "| page | what `import mooring` gives |", "|---|---|"]
    rest = list(mooring.__all__)
    for name, (title, parts) in PAGES.items():
        sections = [_describe(part) for part in parts]
        content = f"# {title}\n\n" + "\n".join(heading + _list_names(paths) for heading, paths in sections)
        files.append(File.generated(config, f"api-{name}.md", content=content))
        here = {path.rpartition(".")[2] for _, paths in sections for path in paths} & set(rest)
        index.append(f"| [{title}](api-{name}.md) | {', '.join(f'[`{one}`][mooring.{one}]' for one in sorted(here))} |")
        rest = [one for one in rest if one not in here and one != name]
    if rest:
        raise PluginError(f"No page of the API describes {', '.join(rest)}: add it to PAGES in docs/reference.py")
    files.append(File.generated(config, "api.md", content="\n".join(index)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Put the commands on their page."""
    if page.file.src_uri != "commands.md":
        return markdown
    return markdown + "\n" + "\n".join(_render_command(typer.main.get_command(app), "mooring"))


def on_post_build(config: MkDocsConfig) -> None:
    """Fail where a built page or style sheet would fetch something from the network."""
    fetched = [
        f"{path.name}: {address}"
        for path in sorted(Path(config.site_dir).rglob("*.*"))
        if path.suffix in FETCHED
        for address in FETCHED[path.suffix].findall(path.read_text(encoding="utf-8"))
    ]
    if fetched:
        raise PluginError("Pages must work offline, but would fetch " + ", ".join(fetched))


def _describe(part: str) -> tuple[str, list[str]]:
    """Heading and the paths of public names, read without importing what a package needs."""
    if part.rpartition(".")[2][0].isupper():
        return "", [part]
    place = ROOT / "src" / part.replace(".", "/")
    tree = ast.parse((place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).read_text("utf-8"))
    (exported,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return f"## `{part}`\n\n{ast.get_docstring(tree)}\n\n", [f"{part}.{name}" for name in ast.literal_eval(exported)]


def _list_names(paths: list[str]) -> str:
    """What mkdocstrings replaces by descriptions."""
    return "".join(f"::: {path}\n\n" for path in paths)


def _render_command(command: Any, name: str) -> Iterator[str]:
    context = typer.Context(command, info_name=name)
    words, *examples = re.split(r"^(?=(?:\w+ )*\w+: mooring )", command.help or "", flags=re.MULTILINE)
    level = "##" if name != "mooring" else "#"
    yield f"{level} {name}\n\n{words}\n"
    for example in examples:
        yield "```sh\n" + " ".join(example.partition(": ")[2].split()) + "\n```\n"
    options = [record for one in command.get_params(context) if (record := one.get_help_record(context))]
    yield "| option | what it does |\n|---|---|"
    for option, said in options:
        if option != "--help":
            yield f"| `{option}` | {said} |".replace("<", "&lt;")
    yield ""
    for child in getattr(command, "commands", {}):
        yield from _render_command(command.commands[child], f"{name} {child}")
