"""MkDocs hook: pages of the reference, from the code, and a check that the built site fetches nothing."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.testing import CliRunner

import mooring
from mooring.attacks import CollusionView, PairwiseView, SumView, attacks_on
from mooring.cli.app import app
from mooring.metrics.measures import MEASURES
from mooring.protocol.step import Item, Step
from mooring.protocol.steps import list_steps

ROOT = Path(__file__).parents[1]
ROLES = (
    *("Study", "draft_study", "DeclaredColumns", "DraftSettings", "RotationSettings"),
    *("check_table_fit", "issue_card"),
    *("enrol_cards", "Participant", "Scoring", "Analyst", "Streams", "errors"),
)
# Title of a page, and what it describes: packages, by the names that they export, or single names of `mooring`.
PAGES = {
    "roles": ("Roles", tuple(f"mooring.{name}" for name in ROLES)),
    "tables": ("Tables", ("mooring.tables",)),
    "mechanisms": ("Mechanisms", ("mooring.mechanisms", "mooring.mechanisms.sums", "mooring.geometry")),
    "answers": ("Answers", ("mooring.mechanisms.sums.answers",)),
    "alignment": ("Alignment", ("mooring.alignment",)),
    "attacks": ("Attacks", ("mooring.attacks",)),
    "metrics": ("Metrics", ("mooring.metrics",)),
    "audit": ("Audit", ("mooring.audit",)),
    "testing": ("Contract suites", ("mooring.testing",)),
    "learners": ("Learners", ("mooring.learners",)),
    "estimators": ("Estimators", ("mooring.estimators",)),
    "theory": ("Theory", ("mooring.theory",)),
}
VIEWS: dict[str, type] = {"rotation": CollusionView, "sums": SumView, "general total": PairwiseView}
"""What attackers see of each kind of study."""
ENUMERATIONS = (".NeighboringRelation", ".NoiseUnit", ".Termination")
FETCHED = {
    ".html": re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)"),
    ".css": re.compile(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')]+)"),
}


GLOSSARY = ROOT / "docs" / "glossary.md"
TERM = re.compile(r"^\| ([^|`]+?)(?=,| \(|  | \|)")
EVERYDAY = {
    *("auditor", "card", "deployment", "floor", "mechanism", "method", "participant", "receipt", "rotation", "share"),
    *("study", "threshold"),
}
"""Terms that are also words of everyday language, or that every page uses: the glossary has them, and no page links them."""
SOURCES = {
    "__init__.py": "api.md",
    "estimators.py": "api-estimators.md",
    "learners/__init__.py": "api-learners.md",
    "mechanisms/sums/answers/__init__.py": "api-answers.md",
    "protocol/__init__.py": "api-roles.md",
    "testing/__init__.py": "api-testing.md",
}
"""Files below src/mooring that pages link in the repository, and the pages of the API that take their place on the site."""
IN_REPOSITORY = re.compile(r"^<!-- repository -->$.*?^<!-- end -->\n", flags=re.M | re.S)
"""What pages say to those who read them in the repository, where what the site adds is not to be seen."""
NO_SENTENCE = re.compile(
    r"^```.*?^```|^(?:    |\||#|<!--).*?$|`[^`]*`|!?\[[^\]]*\]\([^)]*\)|<[^>]+>", flags=re.M | re.S
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the API."""
    index = ["# API", "", "What `import mooring` gives, each with its first sentence."]
    rest = list(mooring.__all__)
    for name, (title, parts) in PAGES.items():
        sections = [_describe(part) for part in parts]
        content = f"# {title}\n\n" + "\n".join(heading + _list_names(paths) for heading, paths in sections)
        files.append(File.generated(config, f"api-{name}.md", content=content))
        here = {path.rpartition(".")[2] for _, paths in sections for path in paths} & set(rest)
        index += ["", f"## [{title}](api-{name}.md)", "", "| name | what it is |", "|---|---|"]
        index += [f"| [`{one}`][mooring.{one}] | {_first_sentence(getattr(mooring, one))} |" for one in sorted(here)]
        if not here:
            index.append(f"| [`{parts[0]}`](api-{name}.md) | {_first_sentence(importlib.import_module(parts[0]))} |")
        rest = [one for one in rest if one not in here and one != name]
    if rest:
        raise PluginError(f"No page of the API describes {', '.join(rest)}: add it to PAGES in docs/reference.py")
    files.append(File.generated(config, "api.md", content="\n".join(index)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Put the commands, tables of steps, and drafts of studies on their pages, and link pages instead of files."""
    markdown = IN_REPOSITORY.sub("", markdown)
    markdown = re.sub(r"\]\(tutorials/([\w-]+)\.py\)", r"](tutorials/\1.md)", markdown)
    for source, target in SOURCES.items():
        markdown = markdown.replace(f"](../src/mooring/{source})", f"]({target})")
    markdown = re.sub(r"^<!-- steps: ([\w-]+) -->$", lambda marker: render_steps(marker[1]), markdown, flags=re.M)
    markdown = re.sub(r"^<!-- measures -->$", lambda _: render_measures(), markdown, flags=re.M)
    markdown = re.sub(r"^<!-- attacks: ([\w ]+) -->$", lambda marker: render_attacks(marker[1]), markdown, flags=re.M)
    if page.file.src_path == GLOSSARY.name:
        terms, heading, symbols = markdown.partition("## Symbols")
        return "\n".join(TERM.sub(_mark_term, line) for line in terms.splitlines()) + f"\n{heading}{symbols}"
    if not page.file.src_uri.startswith("api"):
        markdown = link_terms(markdown, up="../" * page.file.src_uri.count("/"))
    if page.file.src_uri == "commands.md":
        return "\n".join([markdown, *_render_commands()])
    if page.file.src_uri == "files.md":
        return re.sub(
            r"^    mooring (study init .*)$", lambda found: found[0] + _draft_study(found[1]), markdown, flags=re.M
        )
    return markdown


def list_terms() -> list[str]:
    """Terms of the glossary that pages link, as the glossary writes them."""
    terms = GLOSSARY.read_text(encoding="utf-8").partition("## Symbols")[0].splitlines()
    names = [found[1] for line in terms if (found := TERM.match(line))]
    return [name for name in names if name != "term" and name not in EVERYDAY]


def link_terms(markdown: str, up: str = "") -> str:
    """A page whose sentences link each term of the glossary where they use it first; `up` leads to the folder of pages."""
    left = {term.lower(): term for term in list_terms()}
    words = "|".join(map(re.escape, sorted(left, key=len, reverse=True)))
    uses = re.compile(rf"(?<![\w-])({words})(s?)(?![\w-])", flags=re.I)

    def link(use: re.Match[str]) -> str:
        term = left.pop(use[1].lower(), "")
        return f"[{use[0]}]({up}glossary.md#{_slug(term)})" if term else use[0]

    pieces, end = [], 0
    for kept in NO_SENTENCE.finditer(markdown):
        pieces += [uses.sub(link, markdown[end : kept.start()]), kept[0]]
        end = kept.end()
    return "".join([*pieces, uses.sub(link, markdown[end:])])


def _mark_term(found: re.Match[str]) -> str:
    return f'| <a id="{_slug(found[1])}"></a>{found[1]}'


def _slug(term: str) -> str:
    return f"term-{term.lower().replace(' ', '-')}"


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


def _first_sentence(described: Any) -> str:
    """The first sentence of what describes a name."""
    words = "All methods by name." if described is mooring.METHODS else inspect.getdoc(described)
    sentence = re.split(r"(?<=[.])\s", words or "", maxsplit=1)[0]
    return " ".join(sentence.split()).replace("|", "\\|")


def _describe(part: str) -> tuple[str, list[str]]:
    """Heading and the paths of public names, read without importing what a package needs."""
    place = ROOT / "src" / part.replace(".", "/")
    if not place.is_dir() and not place.with_suffix(".py").is_file():
        return "", [part]
    tree = ast.parse((place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).read_text("utf-8"))
    (exported,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return f"## `{part}`\n\n{ast.get_docstring(tree)}\n\n", [f"{part}.{name}" for name in ast.literal_eval(exported)]


def _list_names(paths: list[str]) -> str:
    """What mkdocstrings replaces by descriptions; of an enumeration, its members are what there is to tell."""
    members = "    options:\n      show_if_no_docstring: true\n      show_attribute_values: true\n"
    return "".join(f"::: {path}\n{members if path.endswith(ENUMERATIONS) else ''}\n" for path in paths)


def _render_commands() -> Iterator[str]:
    """Every command in the order of a study, under the heading that `mooring --help` has it under."""
    heading = None
    for name, command in _walk(typer.main.get_command(app), "mooring"):
        if command.rich_help_panel and command.rich_help_panel != heading:
            heading = command.rich_help_panel
            yield f"## {heading}\n"
        yield from _render_command(command, name)


def _walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    for child in command.list_commands(typer.Context(command)):
        found = command.commands[child]
        yield f"{name} {child}", found
        if hasattr(found, "commands"):
            yield from _walk(found, f"{name} {child}")


def _render_command(command: Any, name: str) -> Iterator[str]:
    words, *examples = re.split(r"^(?=[\w ]+: mooring )", command.help or "", flags=re.MULTILINE)
    yield f"### {name}\n\n{_escape(words)}\n"
    if examples:
        lines = (" ".join(example.partition(": ")[2].split()) for example in examples)
        yield "\n".join(["```sh", *lines, "```\n"])
    context = typer.Context(command, info_name=name)
    records = [record for one in command.get_params(context) if (record := one.get_help_record(context))]
    split = [(*option.partition(" <"), said) for option, said in records if option != "--help"]
    options = [f"| `{option}` {_escape(is_typed + kind)} | {_escape(said)} |" for option, is_typed, kind, said in split]
    if options:
        yield "\n".join(["| option | what it does |", "|---|---|", *options, ""])


def render_steps(which: str) -> str:
    """A table of the steps of a mechanism, or of those that the desk offers, for all mechanisms."""
    lists = list_steps()
    if which != "desk":
        head = ["| who | step | command | needs | makes |", "|---|---|---|---|---|"]
        return "\n".join([*head, *(_render_step(step) for step in lists[which])])
    head = ["| who | step | with | what it does |", "|---|---|---|---|"]
    for title, mechanisms in _find_mechanisms(lists).items():
        step = next(step for steps in lists.values() for step in steps if step.title == title)
        only = "" if len(mechanisms) == len(lists) else ", ".join(mechanisms)
        head += [f"| {step.role} | {title} | {only} | {step.explanation} |"] if step.run else []
    return "\n".join(head)


def render_attacks(on: str) -> str:
    """A table of the attacks on rotation, on sums or on the general total, and of what each uses."""
    head = ["| attack | what it uses |", "|---|---|"]
    lines = (
        f"| `{attack.name}`{' (the paper)' * attack.in_paper} | {attack.summary} |" for attack in attacks_on(VIEWS[on])
    )
    return "\n".join([*head, *lines])


def render_measures() -> str:
    """A table of the measures of leakage: what each is called in files and pages, what it counts, and how limits name it."""
    head = ["| figure | in files | what it is | in a limit |", "|---|---|---|---|"]
    lines = (
        f"| {measure.title} | `{name}` | {measure.explanation} | {measure.limit and f'`{measure.limit}`'} |"
        for name, measure in MEASURES.items()
    )
    return "\n".join([*head, *lines])


def _find_mechanisms(lists: Mapping[str, Sequence[Step]]) -> dict[str, list[str]]:
    titles = dict.fromkeys(step.title for steps in lists.values() for step in steps)
    return {
        title: [name for name, steps in lists.items() if title in {step.title for step in steps}] for title in titles
    }


def _render_step(step: Step) -> str:
    needs, makes = ("; ".join(_describe_item(item) for item in items) for items in (step.needs, step.makes))
    title = f"{step.title} (optional)" if step.is_optional else step.title
    return f"| {step.role} | {title} | `mooring {step.command}` | {needs} | {makes} |"


def _describe_item(item: Item) -> str:
    return f"{item.what}{' ' * bool(item.files)}{', '.join(f'`{name}`' for name in item.files)}"


def _draft_study(command: str) -> str:
    """What a `mooring study init` writes for a table of three columns; of secure sums, its method alone."""
    with tempfile.TemporaryDirectory() as folder:
        data, output = Path(folder, "patients.csv"), Path(folder, "study.toml")
        data.write_text("age,sex,ill\n", encoding="utf-8")
        words = [str(data) if word == data.name else word for word in command.split()]
        CliRunner().invoke(app, [*words, "--output", str(output)], catch_exceptions=False)
        text = output.read_text(encoding="utf-8")
    shown = text[text.index("[mechanism]") :].partition("\n\n")[0] if "secure-sum" in words else text
    return f"\n\n```toml\n{shown}\n```"


def _escape(text: str) -> str:
    """Text that Markdown shows as it is: `*`, `<` and `|` mean themselves in help."""
    return re.sub(r"[*<|_]", lambda found: f"&#{ord(found[0])};", text)
