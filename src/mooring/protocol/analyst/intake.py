"""`mooring collect`, with which `mooring align` begins: it verifies bundles from a folder or any fsspec URL."""

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
from mooring.protocol.transport.object_stores import TOO_LARGE
from mooring.serialization import Count, Record, read_record
from mooring.typing import Progress

INTAKE_FILE, RECEIVED = "intake.json", "received"
MOST_BYTES = 200 * 10**9
_MOST_MEMORY, _MOST_RECORDED = 2**28, 10_000


@dataclass(frozen=True)
class RejectedBundle(Record):
    """A file that was set aside, and why."""

    file: str
    reason: str


@dataclass(frozen=True)
class AcceptedBundle(Record):
    """A bundle that was accepted."""

    name: str
    """Name of the participant."""
    digest: str
    """SHA-256 of the bundle."""
    rows: Count | None = None
    """Number of rows; None if the bundle does not state it."""


@dataclass(frozen=True)
class IntakeRecord(Record):
    """The record in the work folder: the bundles that arrived, and the one that counts for each participant."""

    study: str
    """The study's digest."""
    accepted: tuple[AcceptedBundle, ...] = ()
    set_aside: tuple[RejectedBundle, ...] = ()
    missing: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    """Participants, as in `Intake`."""
    remembered: dict[str, str] = field(default_factory=dict)
    """The digest of the bundle that was accepted of each participant, now or before, by the participant's name."""
    copies: dict[str, Copy] = field(default_factory=dict)
    """Downloaded copies of accepted bundles, by the names of their files."""
    command: str = ""
    """The command that was run."""


@dataclass(frozen=True, eq=False)
class Intake:
    """The bundles that arrived."""

    bundles: tuple[Bundle, ...]
    """One verified bundle per participant, in the order of the roster."""
    set_aside: tuple[RejectedBundle, ...]
    missing: tuple[str, ...]
    """Participants without a bundle that could be accepted."""
    gone: tuple[str, ...] = ()
    """Missing participants whose bundle was accepted before, but was not found again."""
    record: IntakeRecord | None = None
    """The record in the work folder; None until it is written."""


def collect(
    study: Study,
    source: str | Path,
    folder: str | Path,
    *,
    most_bytes: int = MOST_BYTES,
    command: str = "",
    progress: Progress | None = None,
) -> Intake:
    """Accept one valid bundle per participant at `source`, and set all other files aside with a reason.

    `source` is a folder or a URL that fsspec knows (s3://, https://, memory://…). Only files whose names end in .bundle and
    that are no larger than `most_bytes` are read. The work folder keeps the record of accepted bundles, and downloads.
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
        if isinstance(candidate.path_or_reason, Path):
            taken = try_verify(candidate.path_or_reason, study)
            if candidate.origin:
                origins[candidate.path_or_reason] = candidate.origin
        if taken is None or isinstance(taken, str):
            aside.append(RejectedBundle(file, taken or str(candidate.path_or_reason)))
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
                path.unlink()  # files that were not accepted need not fill the disk
    return intake


@dataclass
class Register:
    """The accepted bundles that the work folder remembers; a participant's first accepted bundle counts."""

    folder: Path
    study: Study
    remembered: dict[str, str]
    copies: dict[str, Copy]
    """As in `IntakeRecord`."""

    @classmethod
    def read(cls, folder: Path, study: Study) -> Register:
        """Read which bundles of this study earlier runs accepted."""
        path, cure = folder / INTAKE_FILE, "Restore it, or start with another folder."
        if not path.is_file():
            return cls(folder, study, {}, {})
        # Without this record a second bundle of the same participant could be accepted, so an unreadable record is an error.
        record = read_record(IntakeRecord, path, what="the record of bundles", cure=cure, most_bytes=_MOST_MEMORY)
        if record.remembered and record.study != study.digest:  # writing here would lose that record
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
        """Accept one verified bundle per participant and remember it; `aside` lists the files that are not valid."""
        theirs: dict[str, list[tuple[str, Bundle]]] = {member.name: [] for member in self.study.participants}
        for file, bundle in valid:
            theirs[bundle.member.name].append((file, bundle))
        bundles: list[Bundle] = []
        refused = [*aside]
        for name, candidates in theirs.items():
            taken, others = _choose_bundle(candidates, name, self.remembered.get(name))
            refused += others
            if taken is not None:
                bundles.append(taken)
                self.remembered[name] = taken.digest
        here = {bundle.member.name for bundle in bundles}
        missing = tuple(name for name in theirs if name not in here)
        gone = tuple(name for name in missing if name in self.remembered)
        return Intake(tuple(bundles), tuple(refused), missing, gone)

    def write(self, intake: Intake, command: str) -> Intake:
        """Write the record to the work folder, and return the intake with it."""
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
    """Return the bundle of a participant that counts, None if none does, and the reasons why the others do not count."""
    kept: dict[str, tuple[str, Bundle]] = {}
    aside: list[RejectedBundle] = []
    # A file with the participant's name goes first, so that a copy under a different name is the one that is set aside.
    for file, bundle in sorted(theirs, key=lambda candidate: candidate[0] != f"{name}{SUFFIX}"):
        if bundle.digest in kept:
            taken = kept[bundle.digest][0]
            aside.append(RejectedBundle(file, f"it is a copy of {taken}, the bundle of {name}, which counts only once"))
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
    """Return the verified bundle, or the reason why it is not valid."""
    try:
        return exchange_of(study).verify_bundle(path, study)
    except (RefusedError, StorageError) as problem:
        return problem.reason
    except (MooringError, OSError, MemoryError):
        return "it cannot be read"


def _list_copies(
    bundles: Sequence[Bundle], origins: dict[Path, tuple[str, str]], before: dict[str, Copy]
) -> dict[str, Copy]:
    """Return the copies of accepted bundles, downloaded now or before, with the objects that they come from."""
    taken = {bundle.path: bundle.digest for bundle in bundles}
    now = {path.name: Copy(*origin, taken[path]) for path, origin in origins.items() if path in taken}
    known = {(copy.object, copy.digest) for copy in now.values()}
    return {name: copy for name, copy in before.items() if (copy.object, copy.digest) not in known} | now


def _list_candidates(
    source: str | Path, folder: Path, copies: dict[str, Copy], most_bytes: int, progress: Progress | None
) -> Iterator[Candidate]:
    """Yield every file that may be a bundle."""
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
            return TOO_LARGE
    except OSError:
        return "it is not there, or cannot be read"
    return path
