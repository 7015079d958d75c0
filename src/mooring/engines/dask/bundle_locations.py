"""Bundles where they are: a folder that every worker sees, or any address that fsspec knows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mooring.protocol.messages.bundle import SUFFIX, Bundle
from mooring.protocol.transport.addresses import is_url, local_path, make_printable
from mooring.protocol.transport.inbox import Copy, hash_name, list_files, list_objects, listed_size
from mooring.protocol.transport.object_stores import download, open_file_system


@dataclass(frozen=True)
class BundleLocation:
    """One file: the address it was found under, its path there, its name for people, and its size if that is known.

    One that is `kept` is a copy in the work folder, of an object that was accepted before.
    """

    address: str
    path: str
    shown: str
    size: int | None
    is_folder: bool = False
    kept: bool = False

    @property
    def is_away(self) -> bool:
        """Whether it must be downloaded before it can be read."""
        return is_url(self.address)


@dataclass(frozen=True, eq=False)
class RemoteBundle(Bundle):
    """A bundle that some worker verified; its rows, and perhaps its anchor representation, are not in this process."""

    place: BundleLocation
    has_full_rank: bool
    """Whether its anchor representation spans all directions."""
    row: int
    """Where that is in the stack of its group."""
    group: int = 0


def list_bundles(source: str | Path) -> list[BundleLocation]:
    """Every file at `source` that could be a bundle, sorted by name; nothing is read yet."""
    if is_url(source):
        return [
            BundleLocation(
                str(source),
                str(entry["name"]),
                make_printable(str(entry["name"]).rstrip("/").rsplit("/", 1)[-1]),
                listed_size(entry),
                entry.get("type") == "directory",
            )
            for entry in list_objects(str(source))[1]
        ]
    return [
        BundleLocation(str(path.parent), str(path), make_printable(path.name), _size(path), path.is_dir())
        for path in list_files(local_path(source).absolute())
    ]


def kept_places(places: Sequence[BundleLocation], received: Path, copies: Mapping[str, Copy]) -> list[BundleLocation]:
    """Copies that a local run made of accepted objects: they count for as long as the listing names the object.

    Parameters
    ----------
    places : sequence of BundleLocation
        What the listing names.
    received : Path
        Folder of the copies.
    copies : mapping
        From a copy's name to the object that it is of.
    """
    shown = {hash_name(each.path): each for each in places if each.is_away}
    return [
        BundleLocation(str(received), str(received / name), shown[copy.object].shown, size, kept=True)
        for name, copy in sorted(copies.items())
        if copy.object in shown and (size := _size(received / name)) is not None
    ]


@contextmanager
def open_local_copy(place: BundleLocation, *, most_bytes: int) -> Iterator[Path | str]:
    """The file on this machine while the block runs, or why it cannot be looked at; a download is let go afterwards."""
    if place.is_folder:
        yield "it is a folder"
    elif place.size is not None and place.size > most_bytes:
        yield "it is larger than any bundle may be"
    elif not place.is_away:
        yield Path(place.path) if place.size is not None else "it is not there, or cannot be read"
    else:
        system, _ = open_file_system(place.address)
        with tempfile.TemporaryDirectory(prefix="mooring-", dir=_scratch()) as folder:  # of mode 0700
            target = Path(folder) / f"fetched{SUFFIX}"
            problem = download(
                system, place.path, target, size=place.size, most_bytes=most_bytes, what="the worker's own folder"
            )
            yield problem or target


def _scratch() -> str | None:
    """The folder that this worker may fill; None outside of a worker."""
    from distributed import get_worker

    try:
        return str(get_worker().local_directory)
    except ValueError:
        return None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
