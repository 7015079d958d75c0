"""Who holds everybody up, what each member has done, and where files go: by the files that are at a place."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from mooring.errors import RefusedError
from mooring.protocol.driver.causes import Causes
from mooring.protocol.driver.routes import Route, bound_bytes, check_routed, find_member, list_routes, roles_of
from mooring.protocol.driver.standing import JOINED, list_standings, standing_of
from mooring.protocol.messages.study import Study
from mooring.protocol.registry import exchange_of
from mooring.protocol.workspace import Workspace
from mooring.report.step_pages import StepPages
from tests.protocol.rotation.support import sent
from tests.raising import raising
from tests.sites import numeric_study

STUDY = numeric_study(3)
PARTICIPANTS = ["site-0", "site-1", "site-2"]


def workspace_of(study: Study, folder: Path) -> Workspace:
    workspace = Workspace.at(folder, StepPages())
    study.write(workspace.study_file)
    return workspace


def route_of(step: str, sender: str, recipient: str = "", study: Study = STUDY) -> Route:
    """The first route of a step's files from a sender, to a recipient if one is given."""
    return next(
        route
        for route in list_routes(study)
        if (route.step.name, route.sender) == (step, sender) and (not recipient or recipient in route.arrivals)
    )


def test_who_holds_up_a_result_is_at_the_end_of_the_chain(tmp_path: Path) -> None:
    """The first participant makes the anchor, all share with it, and the analyst aligns all bundles, trains and delivers."""
    result = route_of("deliver", "analyst", "site-1")
    bundles = [route_of("share", name) for name in PARTICIPANTS]
    anchor = route_of("deal", "site-0")
    paths: set[str] = set()
    causes = Causes(workspace_of(STUDY, tmp_path), list_routes(STUDY), paths)
    assert causes.trace(result) == ["site-0"]
    assert causes.trace(bundles[2]) == causes.trace(bundles[0]) == causes.trace(anchor) == ["site-0"]
    paths.add(anchor.at_place.path)
    assert causes.trace(result) == PARTICIPANTS
    assert [causes.trace(bundle) for bundle in bundles] == [[name] for name in PARTICIPANTS]
    for k in range(2):
        paths.add(bundles[k].at_place.path)
        assert causes.trace(result) == PARTICIPANTS[k + 1 :]
    paths.add(bundles[2].at_place.path)
    assert causes.trace(result) == ["analyst"]
    paths.add(result.at_place.path)
    assert causes.trace(result) == ["analyst"]
    paths.discard(anchor.at_place.path)
    assert causes.trace(bundles[1]) == ["site-1"]  # what is there was sent, whatever else is gone


def test_a_table_says_what_each_member_has_done_and_what_is_left() -> None:
    routes = list_routes(STUDY)
    titles = {route.step.name: route.step.title for route in routes}
    deal, share, deliver = titles["deal"], titles["share"], titles["deliver"]
    nobody = {member.name: member for member in standing_of(STUDY, ())}
    assert list(nobody) == [*PARTICIPANTS, "analyst"]
    assert [nobody[name].role for name in ("site-0", "analyst")] == ["participant", "analyst"]
    assert (nobody["site-0"].done, nobody["site-0"].left) == ((JOINED,), (deal, share))
    assert (nobody["site-1"].done, nobody["site-1"].left) == ((JOINED,), (share,))
    assert (nobody["analyst"].done, nobody["analyst"].left) == ((JOINED,), (deliver,))
    paths = [route_of("deal", "site-0").at_place.path, route_of("share", "site-1").at_place.path]
    members = standing_of(STUDY, paths)
    assert list_standings(members) == [
        ("member", JOINED, deal, share, deliver),
        ("site-0", "done", "done", "–", ""),
        ("site-1", "done", "", "done", ""),
        ("site-2", "done", "", "–", ""),
        ("analyst", "done", "", "", "–"),
    ]


def test_before_a_study_is_agreed_on_those_whose_own_card_is_there_have_joined() -> None:
    paths = (
        "south/everybody/south.card.toml",
        "north/everybody/north.card.toml",
        "west/everybody/north.card.toml",
        "east/lab/east.card.toml",
        "lab/everybody/study.toml",
        "stray.card.toml",
    )
    members = standing_of(None, paths)
    assert [(member.name, member.role, member.done, member.left) for member in members] == [
        ("north", "", (JOINED,), ()),
        ("south", "", (JOINED,), ()),
    ]


def test_files_for_one_member_go_in_an_envelope_and_those_for_all_as_they_are() -> None:
    bundle, anchor = route_of("share", "site-1"), route_of("deal", "site-0")
    assert (bundle.only_recipient, bundle.at_place.path) == ("analyst", "site-1/analyst/site-1.bundle.sealed")
    assert bundle.arrivals == {"analyst": "inbox/site-1.bundle"}
    assert (anchor.only_recipient, anchor.at_place.path) == ("", "site-0/everybody/trial.anchor")
    assert anchor.arrivals == dict.fromkeys(PARTICIPANTS, "trial.anchor")
    results = [route for route in list_routes(STUDY) if route.step.name == "deliver"]
    assert {route.source for route in results} == {
        f"results/{name}/{file}.safetensors" for name in PARTICIPANTS for file in ("map", "model")
    }
    assert {route.arrivals[route.only_recipient] for route in results} == {
        "result/map.safetensors",
        "result/model.safetensors",
    }
    assert [route.step.name for route in list_routes(STUDY) if route.grows] == ["deliver"] * 6


def test_roles_are_those_of_the_roster() -> None:
    assert roles_of(STUDY, "site-0") == ("everybody", "participant", "dealer")
    assert roles_of(STUDY, "site-1") == ("everybody", "participant")
    assert roles_of(STUDY, "analyst") == ("everybody", "analyst", "designer")
    assert roles_of(STUDY, "aunt") == ("everybody", "helper")
    found = find_member(STUDY, "analyst")
    assert (found, find_member(STUDY, "nobody")) == (STUDY.analyst, None)


def test_a_file_at_a_place_is_bounded_a_percent_beyond_the_largest_bundle() -> None:
    most = exchange_of(STUDY).most_bundle_bytes(STUDY)
    assert most < bound_bytes(STUDY) <= 1.01 * most


@pytest.mark.parametrize(("most_of_bundles", "most"), [(2**30, 2**30), (2**28 + 100, 2**28 + 100), (1000, 2**28)])
def test_a_file_that_is_no_bundle_may_have_a_quarter_of_a_gigabyte(
    most_of_bundles: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = SimpleNamespace(most_bundle_bytes=lambda _: most_of_bundles)
    monkeypatch.setattr("mooring.protocol.driver.routes.exchange_of", lambda _: exchange)
    assert bound_bytes(STUDY) == int(1.01 * most)


def test_a_file_of_another_sender_or_study_or_form_is_not_of_the_route(tmp_path: Path) -> None:
    route = route_of("share", "site-0")
    sent(STUDY, tmp_path, n=5)
    whole, other = tmp_path / "site-0.bundle", tmp_path / "site-1.bundle"
    open_route = replace(route, arrivals={"analyst": "a", "site-1": "a"})
    assert check_routed(whole, open_route, STUDY) == STUDY.participants[0].signing_key
    with raising(RefusedError, "the file", reason="not signed by site-0"):
        check_routed(other, open_route, STUDY)
    with raising(RefusedError, "the file", reason="sealed"):
        check_routed(whole, route, STUDY)  # a bundle for the analyst alone comes in an envelope
    with raising(RefusedError, "the file", reason="another study"):
        check_routed(whole, open_route, replace(STUDY, nonce="1" * 32))


@pytest.mark.parametrize("study", [STUDY, numeric_study(3, kind="none")], ids=["label", "no label"])
def test_every_file_that_arrives_has_one_sender_and_one_path(study: Study) -> None:
    arrivals = [(name, path) for route in list_routes(study) for name, path in route.arrivals.items()]
    assert len(set(arrivals)) == len(arrivals)
    paths = [route.at_place.path for route in list_routes(study)]
    assert len(set(paths)) == len(paths)
