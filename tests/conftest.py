"""What all tests share: a repeatable Hypothesis profile, small studies, both array libraries, and a check of messages."""

import gc
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from typer.main import get_command

from mooring import InputError, RigidMap, make_anchor
from mooring.attacks import ATTACKS, set_effort
from mooring.audit import AuditEffort
from mooring.learners import LEARNERS
from mooring.protocol.crypto.keys import unlock_with_passphrase
from tests.effort import LEAST_EFFORT, LITTLE_EFFORT
from tests.raising import raising

_MEMORY, _ENOUGH = Path("/dev/shm"), 4 * 2**30  # of a run, less than one is there at a time
if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ENOUGH:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))  # of tmp_path: a disk waits for every file written
settings.register_profile(
    "mooring",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no fault of a test
)
settings.load_profile("mooring")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip on Windows what needs POSIX: tests marked so, and those whose fixtures fork."""
    for item in items if os.name == "nt" else ():
        if item.get_closest_marker("posix") or "start" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.skip(reason="needs POSIX permissions, links, signals or forks"))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from searching the objects that tests are made of, of which there are 700,000."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let libraries that look for leaks at the end find none."""
    gc.unfreeze()


_FULL_EFFORT = (
    "tests.attacks.",
    "tests.architecture.",
    "tests.audit.test_record",
    "tests.learners.",
)


_LEAST_EFFORT = (
    "tests.cli.",
    "tests.desk.",
    "tests.distributed.",
    "tests.engines.",
    "tests.protocol.",
    "tests.report.",
    "tests.test_extend",
)


@pytest.fixture(scope="module", autouse=True)
def effort(request: pytest.FixtureRequest) -> Iterator[None]:
    """Use little effort in audits, which are most of the tests' time; tests of attacks and records use the default."""
    is_full, is_least = map(request.module.__name__.startswith, (_FULL_EFFORT, _LEAST_EFFORT))
    previous = set_effort(AuditEffort() if is_full else LEAST_EFFORT if is_least else LITTLE_EFFORT)
    yield
    set_effort(previous)


@pytest.fixture(scope="module")
def fewer_features() -> Iterator[None]:
    """Register 'random-fourier' with 100 features instead of 800, on which training and screening spend most time."""
    from sklearn.kernel_approximation import RBFSampler

    learner = LEARNERS["random-fourier"]
    settings = replace(
        learner.linear, features=lambda h, seed: RBFSampler(gamma=1 / h, n_components=100, random_state=seed)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LEARNERS, "random-fourier", replace(learner, make=settings.make, linear=settings))
        yield


_OF_MANY_STEPS = (
    "tests.desk.",
    "tests.protocol.analyst.",
    "tests.protocol.driver.",
    "tests.protocol.participant.",
    "tests.protocol.test_",
)
_SLOW_ATTACKS = (
    "moments",
    "joint-moments",
    "refine",
    "independent-components",
    "lattice",
    "pseudoinverse",
    "known-rows",
)


@pytest.fixture(scope="module", autouse=True)
def quicker_steps(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let steps take less time where there are many: without the slower attacks on rows, and with fewer features."""
    if not request.module.__name__.startswith(_OF_MANY_STEPS):
        yield
        return
    request.getfixturevalue("fewer_features")
    every = dict(ATTACKS)
    for name in _SLOW_ATTACKS:
        del ATTACKS[name]
    yield
    ATTACKS.clear()  # so that attacks are in their order again
    ATTACKS.update(every)


unlock_once = cache(unlock_with_passphrase)


@pytest.fixture(scope="module", autouse=True)
def less_waiting() -> Iterator[None]:
    """Open once what a passphrase locks: it takes at least a quarter of a second of processor time to open anything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mooring.protocol.storage.vault.unlock_with_passphrase", unlock_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def commands_built_once() -> Iterator[None]:
    """Build the commands once: Typer's runner builds all of them, a tenth of a second, for each that it runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield


@dataclass(frozen=True, eq=False)
class Study:
    """An anchor, the participants' secret maps, and what they upload of the anchor (p × r × d)."""

    anchor: np.ndarray
    secrets: tuple[RigidMap, ...]
    uploads: np.ndarray


@pytest.fixture(scope="session")
def make_study() -> Callable[..., Study]:
    def make(n_participants: int, n_components: int, n_anchor_rows: int, *, noise: float = 0.0, seed: int = 0) -> Study:
        rng = np.random.default_rng(seed)
        anchor = make_anchor(n_anchor_rows, n_components, rng=rng)
        secrets = tuple(RigidMap.sample(n_components, rng=rng) for _ in range(n_participants))
        uploads = [secret.apply(anchor) + noise * rng.standard_normal(anchor.shape) for secret in secrets]
        return Study(anchor, secrets, np.stack(uploads))

    return make


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    return pytest.importorskip("torch")


@pytest.fixture(scope="session", params=["numpy", "torch"])
def on_backend(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Put a NumPy array on the array library under test."""
    return np.asarray if request.param == "numpy" else pytest.importorskip("torch").as_tensor


@pytest.fixture(scope="session")
def refused() -> Callable[..., None]:
    """Check that a call is refused: the error's `what`, parts of its `expected` and `got`, and a cure in a sentence."""

    def check(call: Callable[[], Any], what: str, expected: str, got: str) -> None:
        with raising(InputError, what, expected=expected, got=got) as caught:
            call()
        error = caught.value
        assert str(error) == f"{error.problem} {error.cure}"

    return check


@pytest.fixture(scope="session")
def chromium() -> str:
    """The program: $CHROMIUM, or one on the path. Without one, tests fail in CI and skip elsewhere."""
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    program = next((location for name in names if name and (location := shutil.which(name))), None)
    if program is None:
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say("Chromium is not installed: pages were not opened in a browser. Install it, or name it in $CHROMIUM.")
    return str(program)


@pytest.fixture(scope="session")
def browse(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Open a page in headless Chromium."""
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --hide-scrollbars"

    def open_page(path: Path, *options: str, width: int = 1200) -> subprocess.CompletedProcess[str]:
        profile = tmp_path_factory.mktemp("profile")
        command = [chromium, *flags.split(), f"--user-data-dir={profile}", f"--window-size={width},900"]
        command += [*options, path.resolve().as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)

    return open_page
