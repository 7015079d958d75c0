"""What tests of image studies share."""

from collections.abc import Callable
from typing import Any

import pytest
from mooring_studies.images import leakage

from mooring.audit import Attempt


def stand_in_for_moments(patch: pytest.MonkeyPatch, attack: Callable[..., Any]) -> None:
    """Have image studies run another attack in place of the moments attack, which takes seconds."""
    one, many = leakage.run_attack, leakage.run_attack_batch

    def run_one(name: str, view: Any, *, rng: Any) -> Any:
        return iter([Attempt(name, False, attack(view, rng=rng))]) if name == "moments" else one(name, view, rng=rng)

    def run_many(name: str, views: Any, *, rng: Any) -> Any:
        if name != "moments":
            return many(name, views, rng=rng)
        return tuple(Attempt(name, False, attack(view, rng=rng)) for view in views)

    patch.setattr(leakage, "run_attack", run_one)
    patch.setattr(leakage, "run_attack_batch", run_many)
