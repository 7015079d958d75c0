"""`mooring align`, first half: bundles from a folder or any fsspec URL, each verified before an array of it is touched."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mooring.atomic_io import make_folder, write_atomically
from mooring.errors import MooringError, RefusedError, StorageError
from mooring.protocol.exchange import exchange_of
from mooring.protocol.messages.bundle import SUFFIX, Bundle
from mooring.protocol.messages.study import Study
from mooring.protocol.transport.addresses import is_url, make_printable, redact_command
from mooring.protocol.transport.inbox import Candidate, Copy, download_bundles, list_files
from mooring.serialization import Record
from mooring.typing import Progress

INTAKE_FILE, RECEIVED = "intake.json", "received"
MOST_BYTES = 200 * 10**9
_MOST_MEMORY, _MOST_RECORDED = 2**28, 10_000


@dataclass(frozen=True)
class RejectedBundle(Record):
    """A file that was not taken, and why."""

    file: str
    reason: str


@dataclass(frozen=True, eq=False)
class Intake:
    """What came."""

    bundles: tuple[Bundle, ...]
    """One a participant, verified, in the roster's order."""
    set_aside: tuple[RejectedBundle, ...]
    missing: tuple[str, ...]
    """Participants of whom there is no bundle that could be taken."""
    gone: tuple[str, ...] = ()
    """Those of them whose bundle was accepted before, and whose file is not there any more."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "accepted": [
                {"name": bundle.member.name, "digest": bundle.digest}
                | ({} if bundle.n_rows is None else {"rows": bundle.n_rows})
                for bundle in self.bundles
            ],
            "set_aside": [entry.as_dict() for entry in self.set_aside],
            "missing": list(self.missing),
            "gone": list(self.gone),
        }


def collect(
    study: Study,
    source: str | Path,
    folder: str | Path,
    *,
    most_bytes: int = MOST_BYTES,
    command: str = "",
    progress: Progress | None = None,
) -> Intake:
    """Take every bundle at `source` that holds up, and say of the others why they do not.

    Parameters
    ----------
    study : Study
        With its roster.
    source : str or path
        A folder, or a URL that fsspec knows (s3://, https://, memory://…); files that end in .bundle are looked at.
    folder : path
        The analyst's work folder: it remembers whose bundle was accepted, and holds what was downloaded.
    most_bytes : int
        Larger files are set aside unread.
    """
    study.require_roster()
    folder = Path(folder)
    make_folder(folder, mode=0o700, what="the work folder")
    record = IntakeRecord.read(folder, study)
    valid: list[tuple[str, Bundle]] = []
    origins: dict[Path, tuple[str, str]] = {}
    aside: list[RejectedBundle] = []
    for candidate in _list_candidates(source, folder, record.copies, most_bytes, progress):
        file, taken = make_printable(candidate.shown), None
        if isinstance(candidate.found, Path):
            taken = try_verify(candidate.found, study)
            if candidate.origin:
                origins[candidate.found] = candidate.origin
        if taken is None or isinstance(taken, str):
            aside.append(RejectedBundle(file, taken or str(candidate.found)))
            digest = ""
        else:
            valid.append((file, taken))
            digest = taken.digest
        for kept in (try_verify(path, study) for path in candidate.kept):
            if not isinstance(kept, str) and kept.digest != digest:
                valid.append((file, kept))
    intake = record.settle(valid, aside)
    record.copies = _list_copies(intake.bundles, origins, record.copies)
    record.write(intake, command)
    for path in origins:
        if path.name not in record.copies:
            with suppress(OSError):
                path.unlink()  # what was not taken is fetched again if it is looked at again: it need not fill the disk
    return intake


@dataclass
class IntakeRecord:
    """The work folder's record of bundles, which decides whose bundle counts."""

    folder: Path
    study: Study
    remembered: dict[str, str]
    """Of each participant whose bundle was accepted, now or before, the bundle's digest."""
    copies: dict[str, Copy]
    """Downloaded copies of accepted bundles, by their names in the work folder."""

    @classmethod
    def read(cls, folder: Path, study: Study) -> IntakeRecord:
        """Read what earlier runs accepted, of this study only."""
        path = folder / INTAKE_FILE
        try:
            if not path.is_file():
                return cls(folder, study, {}, {})
            if path.stat().st_size > _MOST_MEMORY:
                raise ValueError  # to forget whose bundle was accepted would let a second one in
            plain = json.loads(path.read_bytes())
            remembered = {str(name): str(digest) for name, digest in plain["remembered"].items()}
            same = plain["study"] == study.digest
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            cure = "Restore it, or start with another folder."
            raise StorageError("the record of bundles", reason="intake.json cannot be read", cure=cure) from None
        if remembered and not same:  # writing here would forget whose bundle was accepted there
            raise RefusedError(
                "the work folder",
                reason="it belongs to another study, or another version of this one",
                cure="Check --study, or give another --folder; what is in this one stays.",
            )
        return cls(folder, study, remembered, _read_copies(plain, remembered))

    def settle(self, valid: Iterable[tuple[str, Bundle]], aside: Sequence[RejectedBundle]) -> Intake:
        """Take one bundle a participant, of files and their verified bundles, and remember it; `aside` does not hold up."""
        theirs: dict[str, list[tuple[str, Bundle]]] = {member.name: [] for member in self.study.participants}
        for file, bundle in valid:
            theirs[bundle.member.name].append((file, bundle))
        bundles: list[Bundle] = []
        refused = [*aside]
        for name, own in theirs.items():
            taken, others = _choose_bundle(own, name, self.remembered.get(name))
            refused += others
            if taken is not None:
                bundles.append(taken)
                self.remembered[name] = taken.digest
        here = {bundle.member.name for bundle in bundles}
        missing = tuple(name for name in theirs if name not in here)
        gone = tuple(name for name in missing if name in self.remembered)
        return Intake(tuple(bundles), tuple(refused), missing, gone)

    def write(self, intake: Intake, command: str) -> None:
        """Write it to the work folder, with what came this time."""
        record = {
            "command": redact_command(command),
            **intake.as_dict(),
            "study": self.study.digest,
            "remembered": self.remembered,
            "copies": {name: copy.as_dict() for name, copy in self.copies.items()},
        }
        record["set_aside"] = record["set_aside"][:_MOST_RECORDED]  # anybody can fill an inbox; this is read again
        write_atomically(self.folder / INTAKE_FILE, json.dumps(record, indent=2).encode(), what="the record of bundles")


def _choose_bundle(
    theirs: list[tuple[str, Bundle]], name: str, accepted_before: str | None
) -> tuple[Bundle | None, list[RejectedBundle]]:
    """The one bundle of a participant that counts, and why the others do not."""
    kept: dict[str, tuple[str, Bundle]] = {}
    aside: list[RejectedBundle] = []
    # A file of the participant's own name goes first: who wrote over another's file is to be named, not the owner.
    for file, bundle in sorted(theirs, key=lambda own: own[0] != f"{name}{SUFFIX}"):
        if bundle.digest in kept:
            taken = kept[bundle.digest][0]
            aside.append(RejectedBundle(file, f"it is a copy of {taken}, the bundle of {name}, which was taken once"))
        else:
            kept[bundle.digest] = (file, bundle)
    if accepted_before is not None:
        again = f"another bundle of {name} was accepted before, and the first one counts"
        aside += [RejectedBundle(file, again) for digest, (file, _) in kept.items() if digest != accepted_before]
        known = kept.get(accepted_before)
        return (known[1] if known else None), aside
    if len(kept) > 1:
        reason = f"there are {len(kept)} different bundles of {name}, and nobody can say which one counts"
        return None, aside + [RejectedBundle(file, reason) for file, _ in kept.values()]
    return next((bundle for _, bundle in kept.values()), None), aside


def try_verify(path: Path, study: Study) -> Bundle | str:
    """A bundle that holds up, or the reason why it does not."""
    try:
        return exchange_of(study).verify_bundle(path, study)
    except (RefusedError, StorageError) as problem:
        return problem.reason
    except (MooringError, OSError, MemoryError):
        return "it cannot be read"


def _list_copies(
    bundles: Sequence[Bundle], origins: dict[Path, tuple[str, str]], before: dict[str, Copy]
) -> dict[str, Copy]:
    """Which files in the work folder are copies of accepted bundles, and of which objects at the source."""
    taken = {bundle.path: bundle.digest for bundle in bundles}
    now = {path.name: Copy(*origin, taken[path]) for path, origin in origins.items() if path in taken}
    known = {(copy.object, copy.digest) for copy in now.values()}
    return {name: copy for name, copy in before.items() if (copy.object, copy.digest) not in known} | now


def _read_copies(plain: dict[str, Any], remembered: dict[str, str]) -> dict[str, Copy]:
    """Copies of accepted bundles, as the record names them; one that cannot be made out is downloaded again."""
    try:
        copies = {
            str(name): Copy(str(entry["object"]), str(entry["mark"]), str(entry["digest"]))
            for name, entry in plain.get("copies", {}).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    accepted = set(remembered.values())
    return {name: copy for name, copy in copies.items() if copy.digest in accepted and Path(name).name == name}


def _list_candidates(
    source: str | Path, folder: Path, copies: dict[str, Copy], most_bytes: int, progress: Progress | None
) -> Iterator[Candidate]:
    """Every file that may be a bundle."""
    if is_url(source):
        yield from download_bundles(str(source), folder / RECEIVED, copies, most_bytes=most_bytes, progress=progress)
        return
    paths = list_files(source)
    for index, path in enumerate(paths):
        if progress:
            progress(index, len(paths))
        yield Candidate(path.name, _check_local(path, most_bytes))
    if progress and paths:
        progress(len(paths), len(paths))


def _check_local(path: Path, most_bytes: int) -> Path | str:
    try:
        if path.is_dir():
            return "it is a folder"
        if path.stat().st_size > most_bytes:
            return "it is larger than any bundle may be"
    except OSError:
        return "it is not there, or cannot be read"
    return path
