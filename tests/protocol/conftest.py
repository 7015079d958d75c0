"""Fixtures of the protocol's tests: a tiny study with vaults, an anchor and tables, and actions in separate processes."""

import os
import shutil
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.messages.study import Study
from mooring.protocol.results import Consent, ShareResult
from mooring.protocol.rotation.anchor import deal_anchor
from mooring.protocol.rotation.participant.upload import share_rows
from mooring.protocol.storage.vault import Vault
from tests.sites import vaulted_study
from tests.study_settings import change

Record = tuple[float | str, ...]
N_COLUMNS, N_ROWS, N_RECORDS = 4, 20, 80
EXIT_CODES: dict[type[Exception], int] = {RefusedError: 3, StorageError: 4, InputError: 5}


@dataclass(frozen=True, eq=False)
class SmallStudy:
    """A study of three participants in a folder of its own."""

    folder: Path
    study: Study
    """Four numbers and a label of two classes; noise on rows and anchor."""
    vaults: tuple[Vault, ...]
    """The vaults, one a participant; the first participant makes the anchor."""
    analyst: Vault
    anchor: Path
    """The anchor's file."""
    records: list[Record] = field(repr=False)
    """Values of the columns c0 … c3 and the label y; all different. Participant i's table holds 20i … 20i + 19."""

    def table(self, i: int = 0) -> Path:
        """The table of participant i."""
        return self.write_table(f"table-{i}.csv", range(N_ROWS * i, N_ROWS * (i + 1)))

    def write_table(self, name: str, rows: Sequence[int]) -> Path:
        """A table of these records, in this order."""
        path = self.folder / name
        lines = [",".join([*(f"c{k}" for k in range(N_COLUMNS)), "y"])]
        lines += [",".join(str(value) for value in self.records[row]) for row in rows]
        path.write_text("\n".join(lines) + "\n")
        return path

    def another(self, **changes: Any) -> "SmallStudy":
        """The same people and records in another study, which has its anchor, too."""
        study = change(self.study, **changes)
        anchor = self.folder / f"{study.digest[:16]}.anchor"
        deal_anchor(self.vaults[0], study, anchor)
        return replace(self, study=study, anchor=anchor)

    def share(self, vault: Vault | None = None, data: Path | None = None, *, output: Path, **rest: Any) -> ShareResult:
        """Share a participant's table, by default that of participant 1, whose vault is untouched, as it made no anchor."""
        data = self.table(1) if data is None else data
        rest = {"anchor": self.anchor, "output": output, "consent": Consent(labels=True), **rest}
        return share_rows(vault or self.vaults[1], self.study, data, **rest)

    def copy_of_vault(self, name: str, i: int = 1) -> Vault:
        """A copy of a participant's vault as it is now, as a backup would be; what was there is removed."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.vaults[i].folder, folder)
        return replace(self.vaults[i], folder=folder)


def make_records(count: int = N_RECORDS) -> list[Record]:
    rng = np.random.default_rng(20_26)
    numbers = rng.normal(size=(count, N_COLUMNS)).round(4)
    return [(*(float(x) for x in numbers[k]), "ab"[k % 2]) for k in range(count)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a process that is killed loses nothing there, and fsync takes no time."""
    memory = Path("/dev/shm")
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, ignore_cleanup_errors=True) as name:
        yield Path(name)


def make_small_study(folder: Path) -> SmallStudy:
    vaults = tuple(Vault.create(folder / f"vault-{i}") for i in range(3))
    analyst = Vault.create(folder / "vault-analyst")
    named = {f"hospital-{i}": vault for i, vault in enumerate(vaults)}
    study = vaulted_study(named, analyst, N_COLUMNS, 10, smallest_class=1)
    anchor = folder / "small.anchor"
    deal_anchor(vaults[0], study, anchor)
    return SmallStudy(folder, study, vaults, analyst, anchor, make_records())


@pytest.fixture
def small_study(folder: Path) -> SmallStudy:
    return make_small_study(folder)


@pytest.fixture(scope="session")
def start() -> Callable[[Callable[[], object]], int]:
    """Start an action in a fork, which exits with 0, or 3 if it was refused, 4 for storage, 5 for input, 1 for a bug."""

    def start(action: Callable[[], object]) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # of forks beside threads: the libraries here survive it
            pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            action()
            code = 0
        except tuple(EXIT_CODES) as problem:
            code = EXIT_CODES[type(problem)]
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    return start


@pytest.fixture(scope="session")
def exit_code(start: Callable[[Callable[[], object]], int]) -> Callable[[Callable[[], object]], int]:
    """Run an action in a fork and return its exit code; a signal's number is negative."""

    def run(action: Callable[[], object]) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(start(action), 0)[1])

    return run


@pytest.fixture
def at_once(start: Callable[[Callable[[], object]], int]) -> Callable[[list[Callable[[], object]]], list[int]]:
    """Run actions in as many processes that begin together, and return their exit codes."""

    def run(actions: list[Callable[[], object]]) -> list[int]:
        reading, writing = os.pipe()

        def waiting(action: Callable[[], object]) -> Callable[[], None]:
            def wait() -> None:
                os.close(writing)
                os.read(reading, 1)  # ends when the parent closes its end
                action()

            return wait

        pids = [start(waiting(action)) for action in actions]
        os.close(reading)
        os.close(writing)
        return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]

    return run
