"""`mooring align`, first half: bundles from a folder or any fsspec URL, each verified before an array of it is touched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from mooring.atomic_io import make_folder, write_atomically
from mooring.errors import MooringError, RefusedError, StorageError
from mooring.protocol.messages.bundle import SUFFIX, Bundle
from mooring.protocol.messages.study import Study
from mooring.protocol.registry import exchange_of
from mooring.protocol.transport.addresses import is_url, make_printable, redact_command
from mooring.protocol.transport.inbox import Candidate, Copy, download_bundles, list_files
from mooring.serialization import Count, Record, read_record
from mooring.typing import Progress

INTAKE_FILE, RECEIVED = "intake.json", "received"
MOST_BYTES = 200 * 10**9
_MOST_MEMORY, _MOST_RECORDED = 2**28, 10_000


@dataclass(frozen=True)
class RejectedBundle(Record):
    """A file that was not taken, and why."""

    file: str
    reason: str


@dataclass(frozen=True)
class AcceptedBundle(Record):
    """A bundle that was taken."""

    name: str
    """The participant's."""
    digest: str
    """SHA-256 of the bundle."""
    rows: Count | None = None
    """None where the bundle does not say."""


@dataclass(frozen=True)
class IntakeRecord(Record):
    """What came, and whose bundle counts from now on, as the work folder keeps it."""

    study: str
    """The study's digest."""
    accepted: tuple[AcceptedBundle, ...] = ()
    set_aside: tuple[RejectedBundle, ...] = ()
    missing: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    """As in `Intake`."""
    remembered: dict[str, str] = field(default_factory=dict)
    """The digest of each participant's bundle that was accepted, now or before, by the participant's name."""
    copies: dict[str, Copy] = field(default_factory=dict)
    """Downloaded copies of accepted bundles, by their names in the work folder."""
    command: str = ""
    """How the step was asked for."""


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
    record: IntakeRecord | None = None
    """What the work folder keeps; None until it is written."""


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
    register = Register.read(folder, study)
    valid: list[tuple[str, Bundle]] = []
    origins: dict[Path, tuple[str, str]] = {}
    aside: list[RejectedBundle] = []
    for candidate in _list_candidates(source, folder, register.copies, most_bytes, progress):
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
    intake = register.settle(valid, aside)
    register.copies = _list_copies(intake.bundles, origins, register.copies)
    intake = register.write(intake, command)
    for path in origins:
        if path.name not in register.copies:
            with suppress(OSError):
                path.unlink()  # what was not taken is fetched again if it is looked at again: it need not fill the disk
    return intake


@dataclass
class Register:
    """The bundles that the work folder remembers, which decide whose bundle counts."""

    folder: Path
    study: Study
    remembered: dict[str, str]
    copies: dict[str, Copy]
    """As in `IntakeRecord`."""

    @classmethod
    def read(cls, folder: Path, study: Study) -> Register:
        """Read what earlier runs accepted, of this study only."""
        path, cure = folder / INTAKE_FILE, "Restore it, or start with another folder."
        if not path.is_file():
            return cls(folder, study, {}, {})
        # To forget whose bundle was accepted would let a second one in: what cannot be read is an error.
        record = read_record(IntakeRecord, path, what="the record of bundles", cure=cure, most_bytes=_MOST_MEMORY)
        if (
            record.remembered and record.study != study.digest
        ):  # writing here would forget whose bundle was accepted there
            raise RefusedError(
                "the work folder",
                reason="it belongs to another study, or another version of this one",
                cure="Check --study, or give another --folder; what is in this one stays.",
            )
        accepted = set(record.remembered.values())
        copies = {
            name: copy for name, copy in record.copies.items() if copy.digest in accepted and Path(name).name == name
        }
        return cls(folder, study, record.remembered, copies)

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

    def write(self, intake: Intake, command: str) -> Intake:
        """Write what came to the work folder; returns it with its record."""
        record = IntakeRecord(
            self.study.digest,
            tuple(AcceptedBundle(bundle.member.name, bundle.digest, bundle.n_rows) for bundle in intake.bundles),
            intake.set_aside[:_MOST_RECORDED],  # anybody can fill an inbox; this is read again
            intake.missing,
            intake.gone,
            self.remembered,
            self.copies,
            redact_command(command),
        )
        write_atomically(self.folder / INTAKE_FILE, record.to_json().encode(), what="the record of bundles")
        return replace(intake, record=record)


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
