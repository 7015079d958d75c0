"""How members agree on a study: drafts, cards and the complete study, at a place in memory."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mooring.protocol.driver.agreement import Agreement
from mooring.protocol.driver.journal import Journal
from mooring.protocol.driver.post import Event, Post
from mooring.protocol.driver.questions import Given
from mooring.protocol.messages.card import card_fingerprint, read_card
from mooring.protocol.messages.public_file import public_file_name
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_text import render_study
from mooring.protocol.participant.steps import join
from mooring.protocol.workspace import Workspace
from mooring.report.step_pages import StepPages
from tests.protocol.driver.support import MemoryPlace
from tests.protocol.support import write_member_card
from tests.sites import numeric_study
from tests.study_settings import change

DRAFT = replace(numeric_study(), participants=(), analyst=None)


class Joined:
    """A member who has joined, with the answers of a person and the events it was notified of."""

    def __init__(self, folder: Path, role: Any = "participant", **given: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.workspace, self.place = Workspace.at(folder, StepPages()), MemoryPlace()
        self.events, self.asked, self.yes = list[Event](), list[str](), True
        self.post = Post(self.place, Journal(self.workspace.vault_folder, "memory"), self.events.append)
        join(self.workspace, name="lab" if role == "analyst" else "north", role=role, accept_no_noise=True)
        self.post.journal.folder.mkdir(parents=True)
        self.agreement = Agreement(self.workspace, self.post, Given(is_analyst=role == "analyst", **given), self.answer)

    def answer(self, question: Any) -> bool:
        self.asked.append(question.kind)
        return self.yes

    def see(self, study: Study, sender: str = "lab") -> bool:
        """Put a study of a sender at the place, and take a pass."""
        self.place.content[f"{sender}/everybody/study.toml"] = render_study(study.as_dict()).encode()
        self.post.list()
        return self.agreement.advance()

    @property
    def kinds(self) -> list[str]:
        kinds = [event.kind for event in self.events]
        self.events.clear()
        return kinds

    def complete(self, analyst: str = "lab") -> Study:
        """A study whose roster has this member."""
        own = read_card(self.workspace.root / "north.card.toml")[1]
        (folder := self.workspace.root / "others").mkdir(exist_ok=True)
        other, lab = (write_member_card(folder, name)[1] for name in ("south", analyst))
        return DRAFT.with_members([own, other], lab)


@pytest.fixture
def member(tmp_path: Path) -> Joined:
    return Joined(tmp_path / "north")


def test_one_draft_is_taken_once_and_of_two_none(member: Joined) -> None:
    assert member.see(DRAFT)
    assert member.workspace.study.digest == DRAFT.digest
    assert "notice" in member.kinds
    assert not member.see(DRAFT)
    assert member.kinds == []
    other = replace(DRAFT, nonce="f" * 32)
    assert not member.see(other, "south")
    assert member.kinds == ["fetched", "notice"]
    assert member.workspace.study.digest == DRAFT.digest
    del member.place.content["lab/everybody/study.toml"]


def test_a_complete_study_is_agreed_to_by_a_persons_yes_alone(member: Joined) -> None:
    study = member.complete()
    member.yes = False
    assert not member.see(study)
    assert (member.asked, member.agreement.is_reached, member.workspace.has_study) == (["study"], False, False)
    member.yes = True
    assert member.see(study)
    assert member.agreement.is_reached
    assert member.workspace.study.digest == study.digest
    assert not Agreement(
        member.workspace, Post(member.place, Journal(member.workspace.root, ""), print), Given(), member.answer
    ).is_reached  # another vault has not agreed
    member.see(DRAFT, "south")  # a draft replaces no complete study
    assert member.workspace.study.digest == study.digest


def test_a_complete_study_that_is_not_its_analysts_or_lacks_this_member_is_not_asked_about(member: Joined) -> None:
    assert not member.see(member.complete(), "south")
    assert "refused" in member.kinds
    assert not member.see(replace(member.complete(), participants=numeric_study().participants))
    assert "notice" in member.kinds
    assert (member.asked, member.agreement.is_reached) == ([], False)


def test_an_analyst_chooses_the_cards_of_enough_members_and_its_own_last(tmp_path: Path) -> None:
    lab = Joined(tmp_path / "lab", "analyst", n_members=3)
    cards = [write_member_card(lab.workspace.root, name)[0] for name in ("north", "south")]
    assert lab.agreement.choose_cards() is None  # three are expected
    cards.append(write_member_card(lab.workspace.root, "first", role="helper")[0])
    chosen = lab.agreement.choose_cards()
    assert chosen is not None
    assert {path.name for path in chosen[0][:-1]} == {path.name for path in cards}
    assert chosen[0][-1].name == "lab.card.toml"
    assert {member.name for _, member in chosen[1]} == {"north", "south", "first"}


@pytest.mark.parametrize(
    ("roles", "fine"), [(("participant", "participant"), True), (("participant", "helper"), False)]
)
def test_a_study_has_two_participants_at_least(roles: tuple[str, ...], fine: bool, tmp_path: Path) -> None:
    lab = Joined(tmp_path / "lab", "analyst", n_members=1)
    for k, role in enumerate(roles):
        write_member_card(lab.workspace.root, f"m{k}", role=role)
    assert (lab.agreement.choose_cards() is not None) == fine


def test_fingerprints_that_were_accepted_beforehand_say_whose_cards_are_taken(tmp_path: Path) -> None:
    (folder := tmp_path / "lab").mkdir()
    known = [card_fingerprint("participant", write_member_card(folder, name)[1]) for name in ("a", "b", "c")]
    lab = Joined(folder, "analyst", accepted=known[:2])
    chosen = lab.agreement.choose_cards()
    assert chosen is not None
    assert [member.name for _, member in chosen[1]] == ["a", "b"]
    (folder / "b.card.toml").unlink()
    assert lab.agreement.choose_cards() is None


def test_an_analyst_fetches_the_cards_of_others_and_those_that_are_their_senders_only(tmp_path: Path) -> None:
    lab = Joined(tmp_path / "lab", "analyst")
    (folder := tmp_path / "others").mkdir()
    card = write_member_card(folder, "north")[0].read_bytes()
    for sender in ("north", "south"):
        lab.place.content[f"{sender}/everybody/{sender}.card.toml"] = card
    lab.post.list()
    assert lab.agreement.advance()
    assert sorted(path.name for path in lab.workspace.root.glob("*.card.toml")) == ["lab.card.toml", "north.card.toml"]
    assert {"refused", "fetched", "notice"} == set(lab.kinds)  # there is no draft yet
    assert not lab.agreement.advance()


PUBLIC = b"a public projection"
PROJECTED = change(DRAFT, projection="public-svd", n_components=3, projection_digest=hashlib.sha256(PUBLIC).hexdigest())
PUBLIC_FILE = public_file_name(PROJECTED)


def test_a_study_is_taken_once_its_public_file_is_there_and_the_one_that_it_names(member: Joined) -> None:
    assert not member.see(PROJECTED)
    assert (member.kinds, member.workspace.has_study) == (["fetched", "notice"], False)
    for sender, content, kinds in (("south", PUBLIC, []), ("lab", b"another", ["refused"])):
        member.place.content = {path: data for path, data in member.place.content.items() if path.endswith(".toml")}
        member.place.content[f"{sender}/everybody/{PUBLIC_FILE}"] = content
        member.post.list()
        assert not member.agreement.advance()
        assert (member.kinds, member.workspace.has_study) == (kinds, False)
    member.place.content[f"lab/everybody/{PUBLIC_FILE}"] = PUBLIC
    member.post.list()
    assert member.agreement.advance()
    assert member.kinds == ["fetched", "notice"]
    assert (member.workspace.root / PUBLIC_FILE).read_bytes() == PUBLIC
    assert member.workspace.study.digest == PROJECTED.digest
    (member.workspace.root / PUBLIC_FILE).write_bytes(b"changed")
    n_asked = member.place.n_asked
    member.place.content[f"lab/everybody/{PUBLIC_FILE}"] = PUBLIC + b"!"
    member.post.list()
    assert not member.agreement.advance()
    assert member.place.n_asked > n_asked  # what was changed here is fetched again


def put_at(member: Joined) -> dict[str, bytes]:
    member.post.list()
    member.agreement.put()
    return member.place.content


def test_a_member_puts_its_card_and_an_analyst_the_study_with_its_public_file(tmp_path: Path) -> None:
    north = Joined(tmp_path / "north")
    DRAFT.write(north.workspace.study_file)
    assert list(put_at(north)) == ["north/everybody/north.card.toml"]
    lab = Joined(tmp_path / "lab", "analyst")
    assert list(put_at(lab)) == ["lab/everybody/lab.card.toml"]
    DRAFT.write(lab.workspace.study_file)
    assert list(put_at(lab)) == ["lab/everybody/lab.card.toml", "lab/everybody/study.toml"]
    PROJECTED.write(lab.workspace.study_file)  # a later version replaces it
    (lab.workspace.root / PUBLIC_FILE).write_bytes(PUBLIC)
    content = put_at(lab)
    assert content["lab/everybody/study.toml"] == lab.workspace.study_file.read_bytes()
    assert content[f"lab/everybody/{PUBLIC_FILE}"] == PUBLIC
    (lab.workspace.root / PUBLIC_FILE).write_bytes(b"another")
    assert put_at(lab)[f"lab/everybody/{PUBLIC_FILE}"] == b"another"
    before = put_at(north)["north/everybody/north.card.toml"]
    join(north.workspace, name="north")  # with further combining keys
    assert put_at(north)["north/everybody/north.card.toml"] != before


def test_an_analyst_agrees_to_its_own_complete_study_and_tells_its_fingerprint(tmp_path: Path) -> None:
    lab = Joined(tmp_path / "lab", "analyst")
    DRAFT.write(lab.workspace.study_file)
    assert not lab.agreement.advance()
    assert not lab.agreement.is_reached
    own = read_card(lab.workspace.root / "lab.card.toml")[1]
    (folder := tmp_path / "others").mkdir()
    members = [write_member_card(folder, name)[1] for name in ("north", "south")]
    study = DRAFT.with_members(members, own)
    study.write(lab.workspace.study_file)
    assert lab.agreement.advance()
    assert lab.agreement.is_reached
    assert any(study.fingerprint in event.words for event in lab.events)
    assert lab.asked == []


def test_a_complete_study_in_the_folder_is_asked_about_as_one_at_the_place_is(member: Joined) -> None:
    member.complete().write(member.workspace.study_file)
    member.yes = False
    member.post.list()
    assert not member.agreement.advance()
    assert member.asked == ["study"]
    assert not member.see(member.workspace.study)
    assert member.asked == ["study"] * 2  # once for the one that is in both
    member.yes = True
    member.place.content.clear()
    member.post.list()
    assert member.agreement.advance()
    assert member.agreement.is_reached
    assert not member.agreement.advance()
    assert len(member.asked) == 3
    without = Agreement(member.workspace, Post(None, member.post.journal, print), Given(), member.answer)
    assert without.is_reached  # without a place, the folder's study is the one


def test_who_has_not_joined_agrees_to_nothing(member: Joined, tmp_path: Path) -> None:
    study = member.complete()
    (member.workspace.root / "north.card.toml").unlink()
    assert not member.see(study)
    assert (member.asked, member.workspace.has_study) == ([], False)
    assert not member.see(study, "south")


@pytest.mark.parametrize(("beyond", "kind"), [(0, "fetched"), (1, "refused")])
def test_a_card_and_a_study_are_fetched_up_to_the_size_to_which_they_are_read(
    beyond: int, kind: str, member: Joined, tmp_path: Path
) -> None:
    def filled(text: bytes, most: int) -> bytes:
        return text + b"#" * (most + beyond - len(text))

    lab = Joined(tmp_path / "lab", "analyst")
    (folder := tmp_path / "others").mkdir()
    card = write_member_card(folder, "south")[0].read_bytes()
    draft = render_study(DRAFT.as_dict()).encode()
    for who, path, content in (
        (lab, "south/everybody/south.card.toml", filled(card, 2**16)),
        (member, "lab/everybody/study.toml", filled(draft, 2**20)),
    ):
        who.place.content[path] = content
        who.post.list()
        who.agreement.advance()
        (event,) = (event for event in who.events if event.kind != "notice")
        assert (event.kind, "too large" in event.words) == (kind, bool(beyond))


def test_a_public_file_larger_than_any_is_not_fetched(member: Joined) -> None:
    member.place.content[f"lab/everybody/{PUBLIC_FILE}"] = range(2**28 + 1)  # type: ignore[assignment]  # has a length
    assert not member.see(PROJECTED)
    assert ["too large" in event.words for event in member.events if event.kind == "refused"] == [True]
