"""What a study of rotation declares beside what `tests/protocol/messages/test_limits.py` has: weights and the dealer."""

from types import SimpleNamespace
from typing import Any

import pytest

from mooring.errors import InputError
from mooring.mechanisms.rotation.settings import RotationSettings
from mooring.mechanisms.settings import MechanismSettings
from mooring.mechanisms.sums.settings import SumSettings
from mooring.tables.schema import Column, Schema
from tests.raising import raising

NUMBERS = Schema(tuple(Column(name, "number", 0, 1) for name in "abc"))


def declare(**options: Any) -> RotationSettings:
    return RotationSettings(**{"method": "aa-i-gdp", "n_components": 3, "n_anchor_rows": 12} | options)


@pytest.mark.parametrize(("last", "beyond"), [(1.0, 1 - 1e-9), (1e6, 1e6 + 1)])
def test_a_participant_has_the_weight_of_the_median_to_a_million_times_as_much(last: float, beyond: float) -> None:
    assert declare(weight_limit=last).weight_limit == last
    with raising(InputError, "weight_limit"):
        declare(weight_limit=beyond)
    assert declare().weight_limit == 3


@pytest.mark.parametrize("method", ["c-gdp", "i-gdp"])
def test_a_method_that_cannot_be_aligned_by_an_anchor_is_refused(method: str) -> None:
    with raising(InputError, "method"):
        declare(method=method)


def test_the_dealer_is_a_participant() -> None:
    roster: Any = [SimpleNamespace(name="north", holds_combining_key=False)]
    for dealer in ("", "north"):
        declare(dealer=dealer).require_roster(NUMBERS, (), roster)
    with raising(InputError, "dealer", got="'south'"):
        declare(dealer="south").require_roster(NUMBERS, (), roster)


@pytest.mark.parametrize(
    ("mechanism", "shows_labels", "seals_anchor", "takes_helpers"),
    [(MechanismSettings, True, False, False), (RotationSettings, True, True, False), (SumSettings, False, False, True)],
)
def test_labels_are_seen_unless_a_mechanism_sums_them_and_anchors_and_helpers_have_one_mechanism_each(
    mechanism: type[MechanismSettings], shows_labels: bool, seals_anchor: bool, takes_helpers: bool
) -> None:
    assert (mechanism.shows_labels, mechanism.seals_anchor) == (shows_labels, seals_anchor)
    assert mechanism.takes_helpers == takes_helpers


@pytest.mark.parametrize(
    ("entries", "got"), [({}, "nothing"), ({"name": "other"}, "none of these"), ({"name": 3}, "none of these")]
)
def test_a_mechanism_that_is_not_there_is_refused(entries: dict[str, Any], got: str) -> None:
    with raising(InputError, "mechanism", got=got):
        MechanismSettings.read(entries, NUMBERS)
