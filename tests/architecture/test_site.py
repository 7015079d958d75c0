"""The hook of the documentation's site. The site itself, and every link in it: make site."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from mooring.attacks import CollusionView, PairwiseView, SumView, attacks_on
from mooring.metrics.limits import LeakageLimit
from mooring.metrics.measures import MEASURES
from mooring.protocol.steps import list_steps


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", Path(__file__).parents[2] / "docs" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("suffix", "text", "fetched"),
    [
        (".html", '<script async src="https://a.example/b.js"></script>', ["https://a.example/b.js"]),
        (".html", "<link rel=stylesheet href=//a.example/b.css>", ["//a.example/b.css"]),
        (".html", '<img alt="" src="http://a.example/b.png">', ["http://a.example/b.png"]),
        (".html", '<a href="https://a.example">read</a> <img src="figures/b.svg"> <script src="../b.js">', []),
        (".css", "@import 'https://a.example/b.css';", ["https://a.example/b.css"]),
        (".css", ".a { background: url(//a.example/b.png) }", ["//a.example/b.png"]),
        (".css", ".a { mask: url('data:image/svg+xml,<svg xmlns=\"http://www.w3.org/2000/svg\"/>') }", []),
    ],
)
def test_what_a_page_would_fetch_is_found(reference: ModuleType, suffix: str, text: str, fetched: list[str]) -> None:
    assert reference.FETCHED[suffix].findall(text) == fetched


def test_tables_of_steps_have_a_line_for_each_step(reference: ModuleType) -> None:
    for name, steps in list_steps().items():
        head, rule, *lines = reference.render_steps(name).splitlines()
        assert [line.split(" | ")[2] for line in lines] == [f"`mooring {step.command}`" for step in steps]
        assert {line.count(" | ") for line in (head, *lines)} == {4}
        assert rule.count("|") == 6
    assert len(reference.render_steps("desk").splitlines()) > 10


def test_the_table_of_measures_has_the_name_by_which_a_limit_is_read(reference: ModuleType) -> None:
    cells = [line.strip("| ").split(" | ") for line in reference.render_measures().splitlines()[2:]]
    assert {name.strip("`") for _, name, *_ in cells} == MEASURES.keys()
    for _, name, _, *limit in cells:
        if limit:
            side = "at least" if "error" in limit[0] else "at most"
            assert LeakageLimit.parse(f"{limit[0].strip('`')} {side} 1").measure == name.strip("`")


def test_the_page_of_attacks_has_a_line_for_each(reference: ModuleType) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_path="attacks.md", src_uri="attacks.md"))
    text = reference.on_page_markdown((reference.ROOT / "docs" / "attacks.md").read_text(encoding="utf-8"), page)
    described = re.findall(r"^\| `([\w-]+)`(?: \(the paper\))? \| [^|]+ \|$", text, flags=re.M)
    attacks = [attack.name for view in (CollusionView, SumView, PairwiseView) for attack in attacks_on(view)]
    assert {name: described.count(name) for name in attacks} == dict.fromkeys(attacks, 1)


def test_the_page_of_files_shows_a_study_of_each_mechanism(reference: ModuleType) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_path="files.md", src_uri="files.md"))
    text = reference.on_page_markdown((reference.ROOT / "docs" / "files.md").read_text(encoding="utf-8"), page)
    assert [text.count(f'name = "{mechanism}"') for mechanism in ("rotation", "secure-sum")] == [1, 1]


def test_a_page_links_a_term_of_the_glossary_in_the_first_sentence_that_uses_it(reference: ModuleType) -> None:
    page = "# A quorum\n\n    quorum\n\n| quorum |\n\n`quorum` [quorum](a.md) Quorums are small. A quorum; a card.\n"
    linked = page.replace("Quorums are", "[Quorums](glossary.md#term-quorum) are")
    assert reference.link_terms(page) == linked
    glossary = reference.GLOSSARY.read_text(encoding="utf-8")
    assert {f"| {term}" in glossary for term in [*reference.list_terms(), *reference.EVERYDAY]} == {True}


def test_pages_link_files_in_the_repository_and_pages_on_the_site(reference: ModuleType) -> None:
    links = "[a](tutorials/a-b.py) [b](../src/mooring/learners/__init__.py)"
    written = f"{links}\n<!-- repository -->\nHere only.\n<!-- end -->\nc\n"
    page = SimpleNamespace(file=SimpleNamespace(src_path="api-x.md", src_uri="api-x.md"))
    assert reference.on_page_markdown(written, page) == "[a](tutorials/a-b.md) [b](api-learners.md)\nc\n"
    for source in reference.SOURCES:
        assert (Path(__file__).parents[2] / "src" / "mooring" / source).is_file()
