"""A study from joining to the report on the desks of three participants and an analyst, by rotation and by sums."""

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests import commands
from tests.desk.chromium import Tab, open_chromium
from tests.desk.serving import serving

NAMES = ("north", "south", "east")
ROLES = (*NAMES, "analyst")
DRAFT = "study init columns.csv --name ward --label ill --classes no,yes"
DRAFT += " --range age=0:120 --range pressure=50:250 --category smoker=no,yes"
SUMS = " --method secure-sum --epsilon 2"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder each, with tables; and a drafted study."""
    rng = np.random.default_rng(5)
    for role in (*ROLES, "post"):
        (tmp_path / role).mkdir()
    (tmp_path / "post" / "columns.csv").write_text("age,pressure,smoker,ill\n")
    for name in NAMES:
        for file, count in (("patients.csv", 40), ("new.csv", 20)):
            age, pressure, smokes = rng.uniform(20, 90, count), rng.uniform(80, 200, count), rng.integers(0, 2, count)
            ill = age / 90 + 0.4 * smokes + rng.normal(0, 0.1, count) > 0.8
            words = np.array(["no", "yes"])
            rows = zip(age, pressure, words[smokes], words[ill.astype(int)], strict=True)
            lines = [f"{a:.5f},{b:.5f},{c},{d}" for a, b, c, d in rows]
            (tmp_path / name / file).write_text("\n".join(["age,pressure,smoker,ill", *lines]) + "\n")
    return tmp_path


@dataclass(frozen=True)
class Desks:
    """A desk for each role, opened in a browser of its own, and the folders between which files are carried by hand."""

    place: Path
    tabs: Mapping[str, Tab]

    def carry(self, pattern: str, source: str, *roles: str) -> None:
        """Put files of one role into the desks of others, through their pages."""
        for role in roles:
            tab = self.tabs[role]
            tab.attach(*sorted((self.place / source).glob(pattern)))
            assert "Took" in tab.submit("#upload", replace=True)


@pytest.fixture
def desks(place: Path, chromium: str, tmp_path: Path) -> Iterator[Desks]:
    with ExitStack() as stack:
        browser = stack.enter_context(open_chromium(chromium, tmp_path / "profile"))
        running = {role: stack.enter_context(serving(place / role)) for role in ROLES}
        yield Desks(place, {role: browser.open(one.application.session.address) for role, one in running.items()})


@pytest.mark.posix  # Chromium is driven over pipes that it inherits
def test_three_participants_and_an_analyst_go_from_joining_to_the_report_in_chromium(desks: Desks) -> None:
    place, tabs, analyst = desks.place, desks.tabs, desks.tabs["analyst"]
    for role, tab in tabs.items():
        kind = "analyst" if role == "analyst" else "participant"
        assert f"{role}.card.toml" in tab.submit("#join form", name=role, role=kind)
    commands.run(*shlex.split(DRAFT), place=place / "post")
    desks.carry("study.toml", "post", "analyst", "north")
    assert "40 rows fit the study" in tabs["north"].submit("#fit form", data="patients.csv")
    for name in NAMES:
        desks.carry(f"{name}.card.toml", name, "analyst")
    assert "compare this by telephone" in analyst.submit("#enrol form")
    desks.carry("study.toml", "analyst", *NAMES)

    assert "sealed to 3 participants" in tabs["east"].submit("#deal form")  # who was enrolled first
    desks.carry("ward.anchor", "east", "north", "south")
    checked = tabs["north"].submit("#check form", data="patients.csv")
    assert "mooring check patients.csv" in checked
    refused = tabs["north"].submit("#share form", data="patients.csv", labels=False)
    assert "consent for labels" in refused
    assert re.search(r"expected\s+given\s+got\s+none\s+cure\s+The analyst sees", refused)
    for name in NAMES:
        assert "40 rows, shuffled" in tabs[name].submit("#share form", data="patients.csv", labels=True)
        desks.carry(f"{name}.bundle", name, "analyst")

    assert "3 bundles hold up, 0 do not, 0 are missing" in analyst.submit("#inbox form")
    assert "Aligned 3 participants" in analyst.submit("#align form", mode="everybody")
    assert "Trained 'linear' on 120 rows" in analyst.submit("#train form", learner="linear")
    assert "results/south" in analyst.submit("#deliver form")
    desks.carry("results/north/*", "analyst", "north")
    predicted = tabs["north"].submit("#predict form", new="new.csv", beside="patients.csv")
    assert "Wrote 20 predictions" in predicted
    assert "overwrite" in tabs["north"].submit("#predict form", new="new.csv")
    for role in ("north", "analyst"):
        tabs[role].submit("#report form")
        tabs[role].find("document.querySelector('#outcome a').removeAttribute('target')")
        tabs[role].find("document.querySelector('#outcome a').click()")
        assert tabs[role].wait_for("!!document.querySelector('svg') && document.title.startsWith('mooring: ')")
        assert tabs[role].find("window.origin") == "null"
    north = place / "north"
    assert (north / "predictions.csv").read_text().startswith("prediction,probability_no,probability_yes\n")
