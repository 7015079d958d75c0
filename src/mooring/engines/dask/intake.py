"""Intake on workers, which verify bundles and accept them or set them aside by the rules of the local intake.

Bundles are in a folder that every worker sees, or at an fsspec address. They are verified in groups that do not depend on
the number of workers. A group's anchor representations stay with the worker that read them, unless the caller requests
them for its own process.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

import numpy as np

from mooring.engines.dask.cluster import Client, Future
from mooring.errors import StorageError
from mooring.protocol.analyst.intake import MOST_BYTES, RECEIVED, Intake, Register, RejectedBundle, try_verify
from mooring.protocol.messages.bundle import SUFFIX
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.bundle import RowBundle, centre_anchors
from mooring.protocol.rotation.scheme import rotation_of
from mooring.protocol.transport.addresses import is_url, local_path, make_printable
from mooring.protocol.transport.inbox import Copy, hash_name, list_files, list_objects, listed_size
from mooring.protocol.transport.object_stores import TOO_LARGE, download, open_file_system
from mooring.typing import Matrix, Progress

GROUP_BYTES, FILES_AT_ONCE = 2**25, 256
_GROUP_FILE_BYTES = 2**26


@dataclass(frozen=True)
class BundleLocation:
    """The location of a file that may be a bundle."""

    address: str
    """The address that was listed."""
    path: str
    """The path at that address."""
    shown: str
    """The name to show."""
    size: int | None
    """The size in bytes, if known."""
    is_folder: bool = False
    kept: bool = False
    """Whether the file is a copy, kept in the work folder, of an object that was accepted before."""

    @property
    def is_away(self) -> bool:
        """Whether the file must be downloaded to be read."""
        return is_url(self.address)


@dataclass(frozen=True, eq=False)
class RemoteBundle(RowBundle):
    """A bundle that a worker verified. Its rows, and possibly its anchor representation, are not in this process."""

    place: BundleLocation
    row: int
    """Index of the bundle's anchor representation in the stack of its group."""
    group: int = 0

    @property
    def is_away(self) -> bool:
        """Whether the bundle's file must be downloaded to be read."""
        return self.place.is_away

    @contextmanager
    def opened(self) -> Iterator[RowBundle]:
        """Yield the bundle with a file that this worker can read; a download is removed afterwards."""
        with open_local_copy(self.place, most_bytes=MOST_BYTES) as path:
            if isinstance(path, str):
                cure = "Restore it and run the same command again. Finished parts are kept."
                reason = f"it was accepted, but now {path}"
                raise StorageError(f"the bundle of {self.member.name}", reason=reason, cure=cure)
            yield replace(self, path=path)


def list_bundles(source: str | Path) -> list[BundleLocation]:
    """Return the locations of files at `source` that may be bundles, sorted by name; no file is read yet."""
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
    """Return the local copies of accepted objects that are still listed."""
    shown = {hash_name(each.path): each for each in places if each.is_away}
    return [
        BundleLocation(str(received), str(received / name), shown[copy.object].shown, size, kept=True)
        for name, copy in sorted(copies.items())
        if copy.object in shown and (size := _size(received / name)) is not None
    ]


@contextmanager
def open_local_copy(place: BundleLocation, *, most_bytes: int) -> Iterator[Path | str]:
    """Yield the file's local path, or the reason why it cannot be read; a download is removed afterwards."""
    if place.is_folder:
        yield "it is a folder"
    elif place.size is not None and place.size > most_bytes:
        yield TOO_LARGE
    elif not place.is_away:
        yield Path(place.path) if place.size is not None else "it does not exist or cannot be read"
    else:
        system, _ = open_file_system(place.address)
        with tempfile.TemporaryDirectory(prefix="mooring-", dir=_scratch()) as folder:  # created with mode 0700
            target = Path(folder) / f"fetched{SUFFIX}"
            problem = download(
                system, place.path, target, size=place.size, most_bytes=most_bytes, what="the worker's own folder"
            )
            yield problem or target


def _scratch() -> str | None:
    """Return the folder for this worker's temporary files; None outside a worker."""
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


Verdicts = list[RemoteBundle | RejectedBundle]
Checked = tuple[Verdicts, Matrix]


def collect_on_workers(
    client: Client,
    study: Study,
    places: Sequence[BundleLocation],
    folder: Path,
    *,
    anchors_here: bool,
    files_at_once: int = FILES_AT_ONCE,
    command: str = "",
    progress: Progress | None = None,
) -> tuple[Intake, tuple[Future, ...]]:
    """Accept every valid bundle, and write the same record as the local intake.

    Returns the intake and, unless `anchors_here`, a future of each group's centred anchor representations (`centred_stack`).
    """
    from distributed import as_completed

    register = Register.read(folder, study)
    places = [*places, *kept_places(places, folder.absolute() / RECEIVED, register.copies)]
    at_work = client.submit(replace, study, pure=False)
    groups = in_groups(places, study, files_at_once)
    checked = [client.submit(check_group, at_work, group, MOST_BYTES, pure=False) for group in groups]
    verdicts = {client.submit(itemgetter(0), future, pure=False): k for k, future in enumerate(checked)}
    stacks = [client.submit(itemgetter(1) if anchors_here else centred_stack, future, pure=False) for future in checked]
    by_group: dict[int, Verdicts] = {}
    done = 0
    for future in as_completed(list(verdicts)):
        k = verdicts[future]
        by_group[k] = future.result()
        done += len(groups[k])
        if progress:
            progress(done, len(places))
    everything = [
        replace(verdict, group=k) if isinstance(verdict, RemoteBundle) else verdict
        for k in range(len(groups))
        for verdict in by_group[k]
    ]
    remote = [verdict for verdict in everything if isinstance(verdict, RemoteBundle)]
    if anchors_here:
        arrays = [future.result() for future in stacks]
        remote = [replace(bundle, anchor_representation=arrays[bundle.group][bundle.row]) for bundle in remote]
    valid = [(bundle.place.shown, bundle) for bundle in _without_spare_copies(remote, register.remembered)]
    intake = register.settle(valid, [verdict for verdict in everything if isinstance(verdict, RejectedBundle)])
    intake = register.write(intake, command)
    return intake, () if anchors_here else tuple(stacks)


def _without_spare_copies(bundles: Sequence[RemoteBundle], remembered: Mapping[str, str]) -> Iterator[RemoteBundle]:
    """Yield the bundles, but a copy in the work folder only if it was accepted and no source has the same bytes any more."""
    seen: set[str] = set()
    for bundle in bundles:  # copies come last
        is_accepted = bundle.digest not in seen and bundle.digest == remembered.get(bundle.member.name)
        if not bundle.place.kept or is_accepted:
            seen.add(bundle.digest)
            yield bundle


def in_groups(
    places: Sequence[BundleLocation], study: Study, files_at_once: int = FILES_AT_ONCE
) -> list[list[BundleLocation]]:
    """Return the files in groups, one per task, of limited number and total size. Every run makes the same groups."""
    anchor_bytes = 8 * math.prod(rotation_of(study).anchor_shape)
    most = max(1, min(files_at_once, GROUP_BYTES // anchor_bytes))
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
    """Verify some bundles on a worker; return verdicts, and the stack of the valid bundles' anchor representations.

    There is no verdict on a broken copy in the work folder.
    """
    verdicts: Verdicts = []
    anchors: list[Matrix] = []
    for place in places:
        with open_local_copy(place, most_bytes=most_bytes) as path:
            bundle = path if isinstance(path, str) else try_verify(path, study)
        if isinstance(bundle, str):  # why it is refused
            if not place.kept:  # a broken copy does not matter, because its source is verified, too
                verdicts.append(RejectedBundle(place.shown, bundle))
            continue
        assert isinstance(bundle, RowBundle)  # studies of other mechanisms need no cluster
        elsewhere = {"anchor_representation": np.empty((0, rotation_of(study).n_components)), "path": Path(place.path)}
        fields = vars(bundle) | elsewhere
        verdicts.append(RemoteBundle(**fields, place=place, row=len(anchors)))
        anchors.append(bundle.anchor_representation)
    shape = (0, *rotation_of(study).anchor_shape)
    return verdicts, np.stack(anchors) if anchors else np.empty(shape)


def centred_stack(checked: Checked) -> tuple[Matrix, Matrix]:
    """Return a group's centred anchor representations and their mean rows, which stay with the worker."""
    return centre_anchors(checked[1])
