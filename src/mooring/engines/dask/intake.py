"""Intake over workers: every bundle is verified where it is, and is taken or set aside by the rules of the local intake.

Bundles are verified in groups, which do not depend on how many workers there are. A group's anchor representations stay with
the worker that read them; whether they also come here is the caller's choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mooring.engines.dask.bundle_locations import BundleLocation, RemoteBundle, kept_places, open_local_copy
from mooring.engines.dask.cluster import Client, Future
from mooring.protocol.analyst.anchor_source import centre_anchors, has_full_rank
from mooring.protocol.analyst.intake import MOST_BYTES, RECEIVED, Intake, IntakeRecord, RejectedBundle, try_verify
from mooring.protocol.messages.bundle import Bundle
from mooring.protocol.messages.study import Study
from mooring.typing import Matrix, Progress

GROUP_BYTES, MOST_IN_GROUP = 2**25, 256
_GROUP_FILE_BYTES = 2**26

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

    Parameters
    ----------
    study : Study
        With its roster.
    anchors_here : bool
        Whether anchor representations come to this process.

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
    """Verify some bundles; runs on a worker.

    Parameters
    ----------
    study : Study
    places : sequence of BundleLocation
        Of the bundles.
    most_bytes : int
        Of a bundle; a larger one is not fetched.
    """
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
