"""Pages of the desk as a screen reader and a keyboard find them: landmarks, headings in order, labels."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mooring.desk.guide import Guide
from mooring.protocol.driver.questions import ask_about_study
from tests.desk.serving import Running, serving
from tests.protocol.driver.support import draft

FIELDS = ("input", "select", "textarea", "progress")
VOID = ("input", "meta", "link", "br")


@dataclass
class Structure(HTMLParser):
    """What stands on a page, in its order."""

    headings: list[int] = field(default_factory=list)
    landmarks: list[tuple[str, str]] = field(default_factory=list)
    unlabelled: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    handlers: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append(int(tag[1]))
        if tag in ("main", "nav", "footer"):
            self.landmarks.append((tag, given.get("aria-label") or ""))
        is_named = "label" in self.open or "aria-label" in given
        if tag in FIELDS and given.get("type") != "hidden" and not is_named:
            self.unlabelled.append(str(given.get("name", tag)))
        self.ids += [str(given["id"])] if "id" in given else []
        self.handlers += [name for name in given if name.startswith("on") or name == "tabindex"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / "patients.csv").write_text("age,sex,ill\n")
    with serving(tmp_path / "desk") as running:
        running.take("join", name="north", role="participant")
        yield running


def require_structure(page: str) -> None:
    structure = Structure()
    structure.feed(page)
    assert structure.headings[0] == 1
    assert structure.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(structure.headings, structure.headings[1:], strict=False))
    kinds = [kind for kind, _ in structure.landmarks]
    assert kinds.count("main") == 1
    assert all(label for kind, label in structure.landmarks if kind == "nav")
    assert "nav" in kinds
    assert not structure.unlabelled
    assert len(structure.ids) == len(set(structure.ids))
    assert not structure.handlers
    assert "<script" not in page


def test_every_page_has_landmarks_headings_in_order_and_a_label_at_each_field(
    desk: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = desk.application.workspace.root
    require_structure(desk.ask("GET", "/").text)
    require_structure(desk.ask("GET", "/draft").text)
    require_structure(desk.ask("GET", "/draft?source=patients.csv&mechanism=secure-sum").text)
    draft("sums").write(root / "study.toml")
    desk.take("fit", data="patients.csv")
    assert 'role="status"' in desk.ask("GET", "/").text or 'role="alert"' in desk.ask("GET", "/").text
    (root.parent / "post").mkdir()
    desk.application.guide.choose_place(str(root.parent / "post"))
    question = ask_about_study(draft("sums"))
    monkeypatch.setattr(Guide, "questions", (question,))
    page = desk.ask("GET", "/").text
    assert 'id="waiting" role="status" aria-live="polite"' in page
    require_structure(page)
    require_structure(desk.ask("GET", "/?steps").text)
