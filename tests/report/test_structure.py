"""Every page can be read with a screen reader, in the dark and without telling colours apart."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

import mooring.report
from mooring.mechanisms.sums.answers import AskedAnswer
from mooring.report.answer_page import render_answer
from mooring.report.plot import COLOURS
from mooring.report.records import StudyRecords
from mooring.report.study_page import render_check, render_report
from mooring.report.summary import summarise
from tests.protocol.sums.support import make_sum_study
from tests.report.example_records import example_audit, example_study, participant_records
from tests.report.test_answer_page import CURVES, RATIOS, SHARES
from tests.report.test_report import make_pages

STYLE = (Path(mooring.report.__file__).parent / "templates" / "page.css").read_text(encoding="utf-8")
VOID = ("meta", "link", "br", "img", "input", "hr")
TEXT = (
    ("ink", "paper"),
    ("quiet", "paper"),
    ("alarm", "paper"),
    ("calm", "paper"),
    ("blue", "paper"),
    ("sand", "paper"),
)
TEXT += (
    ("ink", "shade"),
    ("quiet", "shade"),
    ("ink", "alarm-shade"),
    ("quiet", "alarm-shade"),
    ("alarm", "alarm-shade"),
)
TEXT += (("ink", "calm-shade"), ("quiet", "calm-shade"), ("calm", "calm-shade"))


@dataclass
class Structure(HTMLParser):
    """What a screen reader makes of a page."""

    open: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    headings: list[int] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    cards: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        inside = [name for name, _ in self.open]
        is_hidden = any("aria-hidden" in attributes for _, attributes in self.open)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "img" and not given.get("alt"):
            self.unnamed.append("img")
        named = given.get("aria-hidden") or (given.get("role") == "img" and given.get("aria-label"))
        if tag == "svg" and "svg" not in inside and not is_hidden and not named:
            self.unnamed.append("svg")
        self.cards += "decision" in (given.get("class") or "").split()
        if tag not in VOID and not (self.get_starttag_text() or "").endswith("/>"):
            self.open.append((tag, given))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    study, sums = example_study(), make_sum_study(tmp_path_factory.mktemp("sums"), 4, epsilon=1.0).study
    answers = tuple(
        AskedAnswer(f"mooring {k}", sums.digest, answer) for k, answer in enumerate((CURVES, RATIOS, SHARES))
    )
    return {
        **make_pages(study, sums),
        "check": render_check(study, participant_records(example_audit()).check),
        "answers": render_report(summarise(sums, StudyRecords(answers=answers))),
        "answer": render_answer(CURVES, question="mooring survival"),
    }


def test_headings_are_in_order_pictures_have_names_and_a_page_has_one_decision(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        structure = Structure()
        structure.feed(page)
        assert structure.open == [], name
        assert structure.headings[0] == 1, name
        assert structure.headings.count(1) == structure.tags.count("main") == 1, name
        assert all(after <= before + 1 for before, after in pairwise(structure.headings)), (name, structure.headings)
        assert structure.unnamed == [], name
        assert structure.cards == (name != "answer"), name
        assert '<html lang="en">' in page


def test_a_page_opens_with_at_most_four_pictures_before_its_tables(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        if name == "answer":
            continue
        opening = page.split('<div class="pictures">')[1]
        before = page.split('<div class="pictures">')[0]
        assert 1 <= opening.count("<section><h2>") <= 4, name
        assert "<table" not in before.split("</style>")[1], name
        assert not re.search(r"<(table|details)", opening[: opening.rindex("</section>\n</div>")]), name


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    lower, higher = sorted((luminance(first), luminance(second)))
    return (higher + 0.05) / (lower + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_marks_stand_out_on_light_and_on_dark_screens(scheme: str) -> None:
    """WCAG 2.1, AA: 4.5 for text and 3 for what is drawn."""
    light, dark = re.findall(r":root \{[^}]*?(--paper[^}]*)\}", STYLE)
    colours = dict(re.findall(r"--([\w-]+): (#\w+)", light if scheme == "light" else dark))
    for text, ground in TEXT:
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    names = [re.match(r"var\(--(\w+),", colour) for colour in COLOURS]
    marks = [colours[name[1]] if name else colour for name, colour in zip(names, COLOURS, strict=True)]
    for mark in (*marks, colours["frame"]):
        assert contrast(mark, colours["paper"]) >= 3.0, mark


def test_a_notebook_shows_the_colours_of_the_light_page() -> None:
    light = dict(re.findall(r"--([\w-]+): (#\w+)", STYLE.split("@media")[0]))
    templates = (Path(mooring.report.__file__).parent).rglob("*.*")
    text = "".join(path.read_text(encoding="utf-8") for path in templates if path.suffix in (".py", ".jinja"))
    fallbacks = re.findall(r"var\(--([\w-]+), (#\w+)\)", text)
    assert fallbacks
    assert {name: light[name] for name, _ in fallbacks} == dict(fallbacks)
