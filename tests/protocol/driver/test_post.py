"""What a run fetches and puts, and what it says of it, at a place in memory."""

from pathlib import Path

import pytest

from mooring.atomic_io import hash_file
from mooring.errors import RefusedError
from mooring.protocol.driver import post
from mooring.protocol.driver.journal import Journal
from mooring.protocol.driver.post import AwayError, Event, Post
from mooring.protocol.messages.envelope import SUFFIX
from mooring.protocol.transport.place import PlacedFile
from tests.protocol.driver.support import MemoryPlace
from tests.raising import raising


class Member:
    """A member's folder, its post at a place in memory, and the events it was notified of."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.place, self.events = folder, MemoryPlace(), list[Event]()
        self.post = Post(self.place, Journal(folder / "vault", ""), self.events.append)
        self.post.journal.folder.mkdir(parents=True)

    @property
    def kinds(self) -> list[str]:
        """The kinds of events since this was last asked."""
        kinds = [event.kind for event in self.events]
        self.events.clear()
        return kinds

    def take(self, data: bytes | None = None, *, path: str = "lab/north/a", grows: bool = False) -> bool:
        """Take in a file after it was put there; one that begins with a B is bad."""
        if data is not None:
            self.place.content[path] = data
        self.post.list()
        return self.post.take_in(self.post.files[path], self.folder / "in" / "a", 10, refuse_bad, grows=grows)

    def put(self, data: bytes, *, name: str = "a", grows: bool = False) -> bool:
        (self.folder / name).write_bytes(data)
        self.post.list()
        return self.post.put(self.folder / name, PlacedFile("north", "lab", name), grows=grows)


def refuse_bad(path: Path) -> None:
    if path.read_bytes().startswith(b"B"):
        raise RefusedError("the file", reason="it is bad", cure="Ask for another.")


@pytest.fixture
def member(tmp_path: Path) -> Member:
    return Member(tmp_path)


def test_a_file_is_fetched_once_and_a_later_version_only_of_one_that_grows(member: Member) -> None:
    assert member.take(b"one")
    assert (member.folder / "in" / "a").read_bytes() == b"one"
    assert member.kinds == ["fetched"]
    assert not member.take()
    assert not member.take(b"two")
    assert member.place.n_asked == 1
    assert member.take(b"two", grows=True)
    assert (member.folder / "in" / "a").read_bytes() == b"two"
    assert member.kinds == ["fetched"]
    assert not (member.post.journal.folder / "fetched").exists()


def test_a_version_that_was_replaced_is_not_taken_again_and_said_to_be_older_once(member: Member) -> None:
    member.take(b"one")
    member.take(b"two", grows=True)
    assert member.kinds == ["fetched", "fetched"]
    assert not member.take(b"one", grows=True)
    assert member.kinds == ["notice"]
    assert not member.take(b"one", grows=True)
    assert member.kinds == []
    assert (member.folder / "in" / "a").read_bytes() == b"two"
    (member.folder / "in" / "a").unlink()
    assert not member.take(b"one", grows=True)  # not even where the newer one was lost
    assert not (member.folder / "in" / "a").exists()
    assert member.take(b"two", grows=True)  # what was lost here is fetched again


@pytest.mark.parametrize("bad", [b"Bad", b"far too large"])
def test_a_file_that_is_not_accepted_is_said_to_be_once_and_looked_at_again_once_it_is_another(
    bad: bytes, member: Member
) -> None:
    assert not member.take(bad)
    assert not member.take()
    assert (member.kinds, member.place.n_asked) == (["refused"], 1)
    assert not (member.folder / "in" / "a").exists()
    assert not (member.post.journal.folder / "fetched").exists()
    assert member.take(b"good")
    assert member.kinds == ["fetched"]


def test_a_place_that_is_away_is_no_refusal(member: Member) -> None:
    member.take(b"one", path="lab/north/b")
    member.place.content["lab/north/a"] = b"two"
    member.post.list()
    files = dict(member.post.files)
    member.place.is_away = True
    with pytest.raises(AwayError):
        member.post.take_in(files["lab/north/a"], member.folder / "other", 10, refuse_bad, grows=False)
    with pytest.raises(AwayError):
        member.put(b"mine")
    assert "away" in member.post.list()
    assert member.post.is_away
    assert member.post.files == {}
    member.place.is_away = False
    assert member.post.list() == ""
    assert not member.post.is_away


def test_a_file_is_put_once_and_replaced_only_where_it_grows(member: Member) -> None:
    assert member.put(b"one")
    assert member.kinds == ["put"]
    assert not member.put(b"one")
    assert not member.put(b"one")
    assert (member.kinds, member.place.n_put) == ([], 2)  # the second put tells that the same bytes are there
    with raising(RefusedError, "the place"):
        member.put(b"two")
    assert member.put(b"two", grows=True)
    assert member.place.content["north/lab/a"] == b"two"
    assert not member.post.put(member.folder / "none", PlacedFile("north", "lab", "none"), grows=True)


def test_an_envelope_that_was_put_stays_although_its_content_was_sealed_anew(member: Member) -> None:
    name = f"a{SUFFIX}"
    assert member.put(b"one", name=name)
    assert not member.put(b"sealed anew", name=name)
    assert member.place.content[f"north/lab/{name}"] == b"one"
    assert member.put(b"sealed anew", name=name, grows=True)
    del member.place.content[f"north/lab/{name}"]
    assert member.put(b"again", name=name)  # what the place lost is put again


def test_files_for_everybody_are_those_of_others(member: Member) -> None:
    for path in ("lab/everybody/a", "north/everybody/a", "lab/north/a", "south/everybody/b"):
        member.place.content[path] = b""
    member.post.list()
    assert [file.path for file in member.post.list_open("north", lambda _: True)] == [
        "lab/everybody/a",
        "south/everybody/b",
    ]
    assert [file.path for file in member.post.list_open("north", lambda file: file.name == "b")] == [
        "south/everybody/b"
    ]


def test_a_file_is_hashed_again_once_it_is_another(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []
    monkeypatch.setattr(post, "hash_file", lambda path, what: (hashed.append(path), hash_file(path, what=what))[1])
    (path := member.folder / "x").write_bytes(b"one")
    digest = member.post.hash_own(path)
    assert member.post.hash_own(path) == digest
    assert len(hashed) == 1
    path.write_bytes(b"other")
    assert member.post.hash_own(path) != digest
    assert len(hashed) == 2
