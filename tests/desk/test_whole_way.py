"""A study from joining to the report on the desks of three participants and an analyst, by rotation and by sums."""

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
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
    (tmp_path / "north" / "wide.csv").write_text("age,pressure,smoker,ill,note\n50,100,no,no,x\n")
    return tmp_path


def copy(place: Path, source: str, *targets: str) -> None:
    """Carry files by hand, as the roles do: a pattern below the folder of all, to other folders."""
    for path in sorted(place.glob(source)):
        for target in targets:
            (place / target).mkdir(exist_ok=True)
            shutil.copy(path, place / target)


@pytest.fixture
def tabs(place: Path, chromium: str, tmp_path: Path) -> Iterator[Mapping[str, Tab]]:
    """A desk for each role, opened in a browser of its own."""
    with ExitStack() as stack:
        browser = stack.enter_context(open_chromium(chromium, tmp_path / "profile"))
        running = {role: stack.enter_context(serving(place / role)) for role in ROLES}
        yield {role: browser.open(one.application.session.address) for role, one in running.items()}


@pytest.mark.posix  # Chromium is driven over pipes that it inherits
def test_three_participants_and_an_analyst_go_from_joining_to_the_report_in_chromium(
    place: Path, tabs: Mapping[str, Tab]
) -> None:
    north, analyst = tabs["north"], tabs["analyst"]
    for role, tab in tabs.items():
        kind = "analyst" if role == "analyst" else "participant"
        assert f"{role}.card.toml" in tab.submit("#join form", name=role, role=kind)
    commands.run(*shlex.split(DRAFT), place=place / "post")
    copy(place, "post/study.toml", "analyst")
    assert "Took study.toml" in north.upload(place / "post" / "study.toml")
    assert "Took east.card.toml" in analyst.upload(*(place / name / f"{name}.card.toml" for name in NAMES))
    analyst.submit("#enrol form")
    copy(place, "analyst/study.toml", "south", "east")
    assert "Took study.toml" in north.upload(place / "analyst" / "study.toml", replace=True)

    tabs["east"].send("Page.reload")
    tabs["east"].submit("#deal form")
    copy(place, "east/ward.anchor", "north", "south")
    checked = north.submit("#check form", data="patients.csv")
    assert "Do not share" in checked  # 40 rows of three columns, with the least noise
    told = (
        "The last check, of the table as it was then (mooring check patients.csv): Should you share these rows? Do not"
    )
    assert told in north.find("document.querySelector('#share').innerText")
    refused = north.submit("#share form", data="patients.csv", labels=False)
    assert "consent for labels" in refused
    tabs["south"].send("Page.reload")
    for name in NAMES:
        assert "40 rows, shuffled" in tabs[name].submit("#share form", data="patients.csv", labels=True)

    analyst.upload(*(place / name / f"{name}.bundle" for name in NAMES))
    assert "Aligned 3 participants" in analyst.submit("#align form", mode="everybody")
    analyst.submit("#train form", learner="linear")
    assert "results/south" in analyst.submit("#deliver form")
    north.upload(*(place / "analyst" / "results" / "north").iterdir())
    assert "Wrote 20 predictions" in north.submit("#predict form", new="new.csv", beside="patients.csv")
    north.submit("#report form")
    north.find("location = document.querySelector('#outcome a').href")
    north.wait_for("!!document.querySelector('svg') && document.title.startsWith('mooring: ')")
    assert north.find("window.origin") == "null"
    assert (place / "north" / "predictions.csv").read_text().startswith("prediction,probability_no,probability_yes\n")


def test_secure_sums_by_three_desks_that_combine(place: Path) -> None:
    opened = r'<details class="step[^>]* id="(\w+)" open>'
    with ExitStack() as stack:
        desks = {role: stack.enter_context(serving(place / role)) for role in ROLES}
        for role, one in desks.items():
            one.take("join", name=role, role="analyst" if role == "analyst" else "participant")
        commands.run(*shlex.split(DRAFT + SUMS), place=place / "post")
        copy(place, "post/study.toml", "analyst")
        for name in NAMES:
            copy(place, f"{name}/*.card.toml", "analyst")
        copy(place, "analyst/study.toml", "north")
        desks["north"].take("fit", data="patients.csv")  # in a draft; enrolling is for whoever keeps it
        assert not re.findall(opened, desks["north"].ask("GET", "/").text)
        desks["north"].take("enrol", cards=["north.card.toml"])
        desks["analyst"].take("enrol", cards=[f"{role}.card.toml" for role in ROLES])
        copy(place, "analyst/study.toml", *NAMES)
        desks["north"].take("fit", data="patients.csv")
        assert re.findall(opened, desks["north"].ask("GET", "/").text) == ["check"]
        desks["north"].take("fit", data="wide.csv")
        assert re.findall(opened, desks["north"].ask("GET", "/").text) == ["fit"]
        desks["north"].take("fit", data="patients.csv")
        desks["north"].upload({"more.csv": b"?"})
        assert re.findall(opened, desks["north"].ask("GET", "/").text) == ["fit"]
        desks["north"].take("check", data="patients.csv")
        with serving(place / "north") as restarted:
            advice = "The last check, of the table as it was then (mooring check patients.csv): Should"
            assert all(advice in one.ask("GET", "/").text for one in (desks["north"], restarted))
        desks["north"].upload({"patients.csv": (place / "north" / "new.csv").read_bytes()}, replace=True)
        desks["south"].take("check", data="patients.csv")
        for name in NAMES:
            desks[name].take("share", data="patients.csv")
        waiting = desks["south"].ask("GET", "/").text  # nobody is sent to the report while a step waits
        assert re.findall(opened, waiting) == ["confirm"]
        copy(place, "*/*.bundle", "analyst/inbox", *(f"{name}/inbox" for name in NAMES))
        (place / "analyst" / "inbox" / "x.bundle").write_text("none")
        desks["analyst"].take("inbox")
        (place / "analyst" / "inbox" / "x.bundle").unlink()
        desks["north"].take("combine")
        for name in NAMES:
            assert "about 3 bundles" in desks[name].take("confirm")
        copy(place, "*/*.confirmation", "analyst/inbox")
        desks["analyst"].take("align")
        copy(place, "analyst/analysis/closing.list", *NAMES)
        for name in NAMES:
            desks[name].take("combine")
        copy(place, "*/*.share", "analyst/inbox")
        desks["analyst"].take("train", learner="auto")
        assert "results/east" in desks["analyst"].take("deliver")
        copy(place, "analyst/results/east/*", "east/result")
        assert "Wrote 20 predictions" in desks["east"].take("predict", new="new.csv")
        assert all("page/report.html" in desks[role].take("report") for role in ("east", "analyst"))
        (place / "east" / "report.html").write_text("signed")
        desks["east"].take("report")
        assert (place / "east" / "report.html").read_text() == "signed"
        desks["east"].take("report", force="yes")
        assert "<svg" in (place / "east" / "report.html").read_text()
