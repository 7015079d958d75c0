"""Intake over workers: every bundle is verified where it is, and is taken or set aside by the rules of the local intake.

Bundles are in a folder that every worker sees, or at any address that fsspec knows. They are verified in groups, which do
not depend on how many workers there are. A group's anchor representations stay with the worker that read them; whether they
also come here is the caller's choice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mooring.engines.dask.cluster import Client, Future
from mooring.protocol.analyst.anchor_source import centre_anchors, has_full_rank
from mooring.protocol.analyst.intake import MOST_BYTES, RECEIVED, Intake, IntakeRecord, RejectedBundle, try_verify
from mooring.protocol.messages.bundle import SUFFIX, Bundle
from mooring.protocol.messages.study import Study
from mooring.protocol.transport.addresses import is_url, local_path, make_printable
from mooring.protocol.transport.inbox import Copy, hash_name, list_files, list_objects, listed_size
from mooring.protocol.transport.object_stores import download, open_file_system
from mooring.typing import Matrix, Progress

GROUP_BYTES, MOST_IN_GROUP = 2**25, 256
_GROUP_FILE_BYTES = 2**26


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
    """Copies that a local run made of accepted objects: they count for as long as the listing names the object."""
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


Found = list[RemoteBundle | RejectedBundle]
Checked = tuple[Found, Matrix]


def collect_on_workers(
    client: Client,
    study: Study,
    places: Sequence[BundleLocation],
    folder: Path,
    *,
    anchors_here: bool,
    command: str = "",
    progress: Progress | None = None,
) -> tuple[Intake, tuple[Future, ...]]:
    """Take every bundle that holds up; the record of bundles is the one that the local intake writes.

    Returns
    -------
    Intake, and a tuple of futures
        Unless anchors are here, one a group on some worker: its anchor representations (k, r, h), centred, and their mean
        rows (k, h).
    """
    from distributed import as_completed

    record = IntakeRecord.read(folder, study)
    places = [*places, *kept_places(places, folder.absolute() / RECEIVED, record.copies)]
    at_work = client.submit(replace, study, pure=False)
    groups = in_groups(places, study)
    checked = [client.submit(check_group, at_work, group, MOST_BYTES, pure=False) for group in groups]
    told = {client.submit(_found, future, pure=False): k for k, future in enumerate(checked)}
    stacks = [client.submit(_stack if anchors_here else centred_stack, future, pure=False) for future in checked]
    found: dict[int, Found] = {}
    done = 0
    for future in as_completed(list(told)):
        k = told[future]
        found[k] = future.result()
        done += len(groups[k])
        if progress:
            progress(done, len(places))
    everything = [
        replace(one, group=k) if isinstance(one, RemoteBundle) else one for k in range(len(groups)) for one in found[k]
    ]
    remote = [one for one in everything if isinstance(one, RemoteBundle)]
    if anchors_here:
        arrays = [future.result() for future in stacks]
        remote = [replace(one, anchor_representation=arrays[one.group][one.row]) for one in remote]
    valid = [(one.place.shown, one) for one in _without_spare_copies(remote, record.remembered)]
    intake = record.settle(valid, [one for one in everything if isinstance(one, RejectedBundle)])
    record.write(intake, command)
    return intake, () if anchors_here else tuple(stacks)


def _without_spare_copies(bundles: Sequence[RemoteBundle], remembered: Mapping[str, str]) -> Iterator[RemoteBundle]:
    """A copy in the work folder counts only if it was accepted, and is not found at its source."""
    seen: set[str] = set()
    for one in bundles:  # copies come last
        if not one.place.kept or (one.digest not in seen and one.digest == remembered.get(one.member.name)):
            seen.add(one.digest)
            yield one


def in_groups(places: Sequence[BundleLocation], study: Study) -> list[list[BundleLocation]]:
    """Files that one task looks at: not too many, not too large together, and the same ones at every run."""
    one = 8 * study.n_anchor_rows * study.n_components
    most = max(1, min(MOST_IN_GROUP, GROUP_BYTES // one))
    groups: list[list[BundleLocation]] = []
    size = 0
    for place in places:
        if not groups or len(groups[-1]) >= most or size > _GROUP_FILE_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(place)
        size += place.size or 0
    return groups


def check_group(study: Study, places: Sequence[BundleLocation], most_bytes: int) -> Checked:
    """Verify some bundles; runs on a worker."""
    found: Found = []
    anchors: list[Matrix] = []
    for place in places:
        with open_local_copy(place, most_bytes=most_bytes) as path:
            bundle = path if isinstance(path, str) else try_verify(path, study)
        if not isinstance(bundle, Bundle):  # bundles of secure sums are small, and need no cluster
            assert isinstance(bundle, str)
            found += [] if place.kept else [RejectedBundle(place.shown, bundle)]  # of a broken copy the object counts
            continue
        elsewhere = {"anchor_representation": np.empty((0, study.n_components)), "path": Path(place.path)}
        told = vars(bundle) | elsewhere
        whole = has_full_rank(bundle.anchor_representation)
        found.append(RemoteBundle(**told, place=place, has_full_rank=whole, row=len(anchors)))
        anchors.append(bundle.anchor_representation)
    shape = (0, study.n_anchor_rows, study.n_components)
    return found, np.stack(anchors) if anchors else np.empty(shape)


def _found(checked: Checked) -> Found:
    return checked[0]


def _stack(checked: Checked) -> Matrix:
    return checked[1]


def centred_stack(checked: Checked) -> tuple[Matrix, Matrix]:
    """A group's anchor representations, centred, and their mean rows; these stay with the worker."""
    return centre_anchors(checked[1])
