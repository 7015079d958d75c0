"""A place takes signed files once, never changes them, and lists nothing that no member puts there."""

import hashlib
import os
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.messages.envelope import seal_file
from mooring.protocol.messages.public_file import public_file_name
from mooring.protocol.transport.place import EVERYBODY, Place, PlacedFile, parse_path
from mooring.protocol.transport.transfer import OccupiedError
from tests.protocol.support import write_member_card
from tests.protocol.transport.support import QUICK, make_bundle, make_study
from tests.raising import raising
from tests.sites import KEYS

FILE = PlacedFile("site-0", "analyst", "site-0.bundle")


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, memory: Any, tmp_path: Path) -> Place:
    if request.param == "store":
        return Place("memory://ward/study")
    (tmp_path / "ward").mkdir()
    return Place(str(tmp_path / "ward"))


def paths(place: Place) -> list[str]:
    return [file.path for file in place.list_files()]


def test_a_file_that_is_put_is_listed_and_fetched_whole(place: Place, bundle: Path, tmp_path: Path) -> None:
    assert place.list_files() == []
    assert not place.put(bundle, FILE)
    assert place.put(bundle, FILE)  # a second time nothing is written
    (listed,) = place.list_files()
    assert (listed.path, listed.size) == (FILE.path, bundle.stat().st_size)
    with raising(RefusedError, reason="larger"):  # not a place that is away, for which everybody would wait
        place.fetch(listed, tmp_path / "fetched", most_bytes=bundle.stat().st_size - 1)
    assert not (tmp_path / "fetched").exists()
    place.fetch(listed, tmp_path / "fetched", most_bytes=bundle.stat().st_size)
    assert (tmp_path / "fetched").read_bytes() == bundle.read_bytes()


def test_other_bytes_are_not_replaced_unless_asked_but_half_a_file_is(
    place: Place, bundle: Path, tmp_path: Path
) -> None:
    place.put(bundle, FILE)
    second = tmp_path / "second.bundle"
    make_bundle(second, 0, seed=1)
    with raising(OccupiedError, "address"):
        place.put(second, FILE, waits=QUICK)
    place.put(second, FILE, replace=True)
    place.fetch(FILE, tmp_path / "fetched", most_bytes=10**6)
    assert (tmp_path / "fetched").read_bytes() == second.read_bytes()
    if not place.address.startswith("memory"):
        half = Path(place.address) / FILE.path
        half.write_bytes(bundle.read_bytes()[:1000])
        assert not place.put(bundle, FILE)
        assert half.read_bytes() == bundle.read_bytes()


def test_only_cards_studies_and_signed_files_are_put(place: Place, bundle: Path, tmp_path: Path) -> None:
    table = tmp_path / "patients.csv"
    table.write_text("age\n40\n")
    for name in ("patients.csv", "site-0.bundle", "study.toml", "site-0.card.toml"):
        with pytest.raises((RefusedError, InputError)):
            place.put(table, PlacedFile("site-0", EVERYBODY, name))
    bundle.write_bytes(bundle.read_bytes()[:-1])
    with raising(RefusedError, "the file", reason="incomplete"):
        place.put(bundle, FILE)
    assert place.list_files() == []
    card, member = write_member_card(tmp_path, "north")
    place.put(card, PlacedFile(member.name, EVERYBODY, card.name))
    assert paths(place) == ["north/everybody/north.card.toml"]


@pytest.mark.posix
def test_links_hidden_files_and_other_depths_are_not_listed(tmp_path: Path) -> None:
    place, folder = Place(str(tmp_path)), tmp_path / "north" / "everybody"
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("s")
    (folder / "link.bundle").symlink_to(tmp_path / "secret")
    (folder / ".hidden.bundle").write_text("h")
    (folder / "deeper").mkdir()
    (tmp_path / "south").symlink_to(tmp_path / "north")
    (folder / "plain.bundle").write_text("p")
    assert paths(place) == ["north/everybody/plain.bundle"]
    with raising(RefusedError, reason="link"):
        place.fetch(PlacedFile("north", "everybody", "link.bundle"), tmp_path / "fetched", most_bytes=10)
    with raising(RefusedError, reason="larger"):
        place.fetch(PlacedFile("north", "everybody", "plain.bundle"), tmp_path / "fetched", most_bytes=0)
    assert not (tmp_path / "fetched").exists()


@pytest.mark.posix
def test_a_place_with_links_or_folders_for_files_sends_nobodys_file_elsewhere(tmp_path: Path, bundle: Path) -> None:
    """Whoever may write at the place could point a member's folder to any other, or stand in the way of a file."""
    outside, ward = tmp_path / "outside", tmp_path / "ward"
    for folder in (outside / "analyst", ward / "site-1" / "analyst" / "site-1.bundle"):
        folder.mkdir(parents=True)
    (ward / "site-0").symlink_to(outside)
    (ward / "site-2").mkdir()
    (ward / "site-2" / "analyst").symlink_to(outside / "analyst")
    (outside / "analyst" / "site-0.bundle").write_bytes(b"another file")
    place = Place(str(ward))
    for number in range(3):
        file = PlacedFile(f"site-{number}", "analyst", f"site-{number}.bundle")
        with raising(RefusedError, "the file", reason="a link or a folder"):
            place.put(bundle, file, replace=True)
        with raising(RefusedError, reason="a link or a folder"):
            place.fetch(file, tmp_path / "fetched", most_bytes=10**6)
    assert [path.name for path in outside.rglob("*")] == ["analyst", "site-0.bundle"]
    assert place.list_files() == []


def test_a_file_under_a_name_that_nobody_looks_for_is_not_put(place: Place, bundle: Path) -> None:
    """A name without the ending of its kind was taken for a folder, and the file lay where no member lists it."""
    with raising(RefusedError, "the file"):
        place.put(bundle, PlacedFile("site-0", "analyst", "site-0.dat"))
    for sender in ("..", "Site", "a/b"):
        with raising(InputError, "the file's name"):
            place.put(bundle, PlacedFile(sender, "analyst", "site-0.bundle"))
    assert place.list_files() == []


@pytest.mark.posix
def test_a_folder_that_one_member_closes_or_takes_away_hides_nobody_elses_files(
    tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, scan = Place(str(tmp_path)), os.scandir
    for number in range(3):
        place.put(bundle, PlacedFile(f"site-{number}", "analyst", f"site-{number}.bundle"))

    def deny(folder: Any) -> Any:
        if folder == tmp_path / "site-0":
            raise PermissionError
        if folder == tmp_path / "site-1" / "analyst":
            raise FileNotFoundError
        return scan(folder)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", deny)
        assert paths(place) == ["site-2/analyst/site-2.bundle"]


@given(st.text(st.sampled_from("aA0._-/\\\0 é"), max_size=12))
def test_a_path_that_is_listed_stays_below_the_place(path: str) -> None:
    file = parse_path(path)
    assert file is None or (file.path == path and path.count("/") == 2 and not {"..", ".", ""} & {*path.split("/")})


def test_a_folder_that_is_away_is_not_created(tmp_path: Path, bundle: Path) -> None:
    place = Place(str(tmp_path / "drive"))
    for call in (place.list_files, lambda: place.put(bundle, FILE)):
        with raising(StorageError, "the place", reason="not there"):
            call()
    assert not (tmp_path / "drive").exists()
    with raising(InputError, "the place"):
        Place("https://store/ward?X-Amz-Signature=1")


@pytest.mark.parametrize(("scheme", "depth"), [("s3", None), ("gs", None), ("sftp", 3)])
def test_a_store_without_folders_is_listed_by_one_request(
    scheme: str, depth: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Store:
        depths: ClassVar[list[int | None]] = []

        def invalidate_cache(self) -> None:
            pass

        def find(self, root: str, maxdepth: int | None, detail: bool) -> dict[str, dict[str, object]]:
            self.depths.append(maxdepth)
            names = ("north/everybody/north.card.toml", "north/everybody/old/north.card.toml", "other.txt")
            return {f"{root}/{name}": {"type": "file", "size": 1} for name in names}

    monkeypatch.setattr("mooring.protocol.transport.place.open_folder", lambda address: (Store(), "ward"))
    assert [file.path for file in Place(f"{scheme}://ward").list_files()] == ["north/everybody/north.card.toml"]
    assert Store.depths == [depth]


@pytest.mark.parametrize(("n", "fine"), [(50_000, True), (50_001, False)])
def test_a_place_lists_up_to_fifty_thousand_files(
    n: int, fine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Place, "_list_folder", lambda _: repeat(PlacedFile("a", "b", "c"), n))
    if fine:
        assert len(Place(str(tmp_path)).list_files()) == n
    else:
        with raising(StorageError, "the place", reason="50,000"):
            Place(str(tmp_path)).list_files()


def test_what_is_public_or_sealed_goes_over_any_connection_and_rows_do_not(
    memory: Any, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = SimpleNamespace(meta=SimpleNamespace(endpoint_url="http://minio.example:9000"))
    monkeypatch.setattr(type(memory), "s3", client, raising=False)
    place, study = Place("memory://ward/study"), make_study()
    card, member = write_member_card(tmp_path, "north")
    study.write(tmp_path / "study.toml")
    public = tmp_path / public_file_name(study)
    public.write_bytes(b"numbers")
    seal_file(bundle, tmp_path / "a.bundle.sealed", study=study, recipient=member, signer=KEYS[0])
    digests = (hashlib.sha256(b"numbers").hexdigest(),)
    for path in (card, tmp_path / "study.toml", public, tmp_path / "a.bundle.sealed"):
        assert not place.put(path, PlacedFile("north", EVERYBODY, path.name), public=digests)
    assert len(place.list_files()) == 4
    with raising(RefusedError, "the bundle", reason="http://"):
        place.put(bundle, FILE)
    with raising(RefusedError, "the file", reason="not the public file"):
        place.put(public, PlacedFile("north", EVERYBODY, public.name))
