"""What all tests share: a repeatable Hypothesis profile, small studies, both array libraries, and a check of messages."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from mooring import InputError, RigidMap, make_anchor

settings.register_profile("mooring", derandomize=True, database=None, deadline=None, max_examples=25)
settings.load_profile("mooring")


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


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    return pytest.importorskip("torch")


@pytest.fixture(scope="session", params=["numpy", "torch"])
def on_backend(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Put a NumPy array on the array library under test."""
    return np.asarray if request.param == "numpy" else pytest.importorskip("torch").as_tensor


@pytest.fixture(scope="session")
def refused() -> Callable[..., None]:
    """Check that a call is refused with a message that says what, expected, got and cure."""

    def check(call: Callable[[], Any], *, what: str, expected: str, got: str) -> None:
        with pytest.raises(InputError) as caught:
            call()
        error = caught.value
        assert error.what == what
        assert expected in error.expected
        assert got in error.got
        assert error.cure.endswith(".")
        assert str(error) == f"{error.what} must be {error.expected}, got {error.got} instead. {error.cure}"

    return check
