"""Intake over workers: every bundle is verified where it is, and is taken or set aside by the rules of the local intake.

Bundles are verified in groups, which do not depend on how many workers there are. A group's anchor representations stay with
the worker that read them; whether they also come here is the caller's choice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mooring.atomic_io import make_folder, write_atomically
from mooring.engines.dask.bundle_locations import (
    BundleLocation,
    CachedStudy,
    RemoteBundle,
    kept_places,
    open_local_copy,
)
from mooring.engines.dask.cluster import Client, Future
from mooring.errors import MooringError, RefusedError, StorageError
from mooring.protocol.analyst.anchor_source import centre_anchors, has_full_rank
from mooring.protocol.analyst.intake import (
    INTAKE_FILE,
    MOST_BYTES,
    RECEIVED,
    Intake,
    RejectedBundle,
    _choose_bundle,
    _read_accepted,
    _read_copies,
)
from mooring.protocol.messages.bundle import Bundle, verify_bundle
from mooring.protocol.messages.study import Study
from mooring.typing import Matrix, Progress

GROUP_BYTES, MOST_IN_GROUP = 2**25, 256
_GROUP_FILE_BYTES = 2**26
_MOST_RECORDED = 10_000


@dataclass(frozen=True)
class VerifiedBundle:
    """What a worker says of a bundle that holds up: everything but its arrays."""

    file: str
    name: str
    digest: str
    n_rows: int
    anchor_digest: str
    place: BundleLocation
    has_full_rank: bool
    row: int
    """Where its anchor representation is in the group's stack."""


Checked = tuple[list[VerifiedBundle | RejectedBundle], Matrix]


@dataclass(frozen=True, eq=False)
class IntakeResult:
    """What came, and where its anchor representations are.

    Attributes
    ----------
    intake : Intake
    stacks : tuple of futures
        One a group, on some worker: anchor representations (k, r, h), centred, and their mean rows (k, h).
    where : dict
        Of each participant the group and the row in its stack.
    usable : set of str
        Whose anchor representation spans all directions.
    """

    intake: Intake
    stacks: tuple[Future, ...]
    where: dict[str, tuple[int, int]]
    usable: frozenset[str]


def collect_on_workers(
    client: Client,
    study: Study,
    places: Sequence[BundleLocation],
    folder: Path,
    *,
    anchors_here: bool,
    most_bytes: int = MOST_BYTES,
    command: str = "",
    progress: Progress | None = None,
) -> IntakeResult:
    """Take every bundle that holds up; the record of bundles is the one that the local intake writes."""
    from distributed import as_completed

    study.require_roster()
    make_folder(folder, mode=0o700, what="the work folder")
    remembered = _read_accepted(folder, study)
    kept = kept_places(places, folder.absolute() / RECEIVED, _read_copies(folder, remembered))
    places = [*places, *kept]
    at_work = client.submit(CachedStudy.of, study, pure=False)
    groups = in_groups(places, study)
    checked = [client.submit(check_group, at_work, group, most_bytes, pure=False) for group in groups]
    told = {client.submit(_facts, future, pure=False): k for k, future in enumerate(checked)}
    stacks = [client.submit(_stack if anchors_here else centred_stack, future, pure=False) for future in checked]
    facts: dict[int, list[VerifiedBundle | RejectedBundle]] = {}
    done = 0
    for future in as_completed(list(told)):
        k = told[future]
        facts[k] = future.result()
        done += len(groups[k])
        if progress:
            progress(done, len(places))
    stacks_here = [future.result() for future in stacks] if anchors_here else None
    valid, aside, whereabouts = _sort_bundles(study, [facts[k] for k in range(len(groups))], stacks_here, remembered)
    taken: list[RemoteBundle] = []
    members = [member.name for member in study.participants]
    for name in members:
        one, refused = _choose_bundle(valid.get(name, []), name, remembered.get(name))
        aside += refused
        if isinstance(one, RemoteBundle):
            taken.append(one)
            remembered[name] = one.digest
    here = {bundle.member.name for bundle in taken}
    missing = tuple(name for name in members if name not in here)
    intake = Intake(tuple(taken), tuple(aside), missing, tuple(name for name in missing if name in remembered))
    _write_record(folder, study, intake, remembered, command)
    found = {bundle.member.name: whereabouts[bundle.place.path] for bundle in taken}
    return IntakeResult(
        intake,
        () if anchors_here else tuple(stacks),
        {name: (k, one.row) for name, (k, one) in found.items()},
        frozenset(name for name, (_, one) in found.items() if one.has_full_rank),
    )


def _sort_bundles(
    study: Study,
    groups: Sequence[Sequence[VerifiedBundle | RejectedBundle]],
    stacks: Sequence[Matrix] | None,
    remembered: Mapping[str, str],
) -> tuple[dict[str, list[tuple[str, Bundle]]], list[RejectedBundle], dict[str, tuple[int, VerifiedBundle]]]:
    """Return valid bundles by participant, those set aside, and by path the group and the facts of each valid one."""
    valid: dict[str, list[tuple[str, Bundle]]] = {}
    aside: list[RejectedBundle] = []
    whereabouts: dict[str, tuple[int, VerifiedBundle]] = {}
    members = {member.name: member for member in study.participants}
    for k, found in ((k, each) for k, group in enumerate(groups) for each in group):
        if isinstance(found, RejectedBundle):
            aside.append(found)
            continue
        theirs = valid.setdefault(found.name, [])
        still_there = any(bundle.digest == found.digest for _, bundle in theirs)
        if found.place.kept and (still_there or found.digest != remembered.get(found.name)):
            continue
        bundle = RemoteBundle(
            members[found.name],
            found.digest,
            found.n_rows,
            found.anchor_digest,
            np.empty((0, study.n_components)) if stacks is None else stacks[k][found.row],
            Path(found.place.path),
            {},
            study.n_components,
            study.label.kind,
            found.place,
        )
        theirs.append((found.file, bundle))
        whereabouts[found.place.path] = (k, found)
    return valid, aside, whereabouts


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
    found: list[VerifiedBundle | RejectedBundle] = []
    anchors: list[Matrix] = []
    for place in places:
        with open_local_copy(place, most_bytes=most_bytes) as path:
            if isinstance(path, str):
                bundle: Bundle | RejectedBundle = RejectedBundle(place.shown, path)
            else:
                bundle = _verified(path, study, place.shown)
        if isinstance(bundle, RejectedBundle):
            found += [] if place.kept else [bundle]  # of a copy that is broken, only the object counts
            continue
        whole = has_full_rank(bundle.anchor_representation)
        found.append(
            VerifiedBundle(
                place.shown,
                bundle.member.name,
                bundle.digest,
                bundle.n_rows,
                bundle.anchor_digest,
                place,
                whole,
                len(anchors),
            )
        )
        anchors.append(bundle.anchor_representation)
    shape = (0, study.n_anchor_rows, study.n_components)
    return found, np.stack(anchors) if anchors else np.empty(shape)


def _verified(path: Path, study: Study, shown: str) -> Bundle | RejectedBundle:
    try:
        return verify_bundle(path, study)
    except (RefusedError, StorageError) as problem:
        return RejectedBundle(shown, problem.reason)
    except (MooringError, OSError, MemoryError):
        return RejectedBundle(shown, "it cannot be read")


def _facts(checked: Checked) -> list[VerifiedBundle | RejectedBundle]:
    return checked[0]


def _stack(checked: Checked) -> Matrix:
    return checked[1]


def centred_stack(checked: Checked) -> tuple[Matrix, Matrix]:
    """A group's anchor representations, centred, and their mean rows; these stay with the worker."""
    return centre_anchors(checked[1])


def _write_record(folder: Path, study: Study, intake: Intake, remembered: dict[str, str], command: str) -> None:
    record: dict[str, Any] = {
        "command": command,
        **intake.as_dict(),
        "study": study.digest,
        "remembered": remembered,
    }
    copies = _read_copies(folder, remembered)  # of downloads that a local run made; there are none here
    record["copies"] = {name: copy.as_dict() for name, copy in copies.items()}
    record["set_aside"] = record["set_aside"][:_MOST_RECORDED]
    write_atomically(folder / INTAKE_FILE, json.dumps(record, indent=2).encode(), what="the record of bundles")
