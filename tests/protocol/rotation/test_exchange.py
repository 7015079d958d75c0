"""What rotation tells and asks of a participant: floors, classes, warnings, and the points of an audit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mooring.audit import AuditResult, PointResult, RotationPoint, SumPoint
from mooring.errors import InputError, RefusedError
from mooring.mechanisms.rotation.projection import no_projection
from mooring.protocol.exchange_types import AuditRequest
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.contrast import contrast_to_sums, list_contrast
from mooring.protocol.registry import get_exchange
from mooring.protocol.results import ShareResult
from mooring.protocol.rotation.exchange import EXCHANGE
from mooring.protocol.rotation.participant.inspection import find_point, list_audit_points, point_of
from mooring.protocol.storage.vault import Floors
from mooring.tables import Partition
from tests.raising import numbers_in, raising
from tests.sites import numeric_study
from tests.study_settings import change

NOISE = {"method": "aa-i-gdp-both-noise", "data_noise_scale": 0.3, "anchor_noise_scale": 0.05}
BOTH = change(numeric_study(), **NOISE)
WITHOUT = change(numeric_study(), method="aa-i-gdp", anchor_noise_scale=0.0)


@pytest.mark.parametrize(
    ("study", "floors", "reason"),
    [
        (BOTH, Floors(0.05, 0.3), ""),
        (BOTH, Floors(0.051, 0.3), "anchor noise"),
        (BOTH, Floors(0.05, 0.31), "private-data noise"),
        (numeric_study(v=0.05), Floors(0.05, 0.3), ""),  # a method without private-data noise
        (WITHOUT, Floors(), "no noise at all"),
        (WITHOUT, Floors(without_noise=True), ""),
        (numeric_study(v=0.01), Floors(), ""),  # what a vault asks for unless its owner says otherwise
        (numeric_study(v=0.0099), Floors(), "anchor noise"),
        (change(BOTH, data_noise_scale=0.05), Floors(), ""),
        (change(BOTH, data_noise_scale=0.049), Floors(), "private-data noise"),
    ],
)
def test_a_study_keeps_to_a_participants_floors_or_is_refused(study: Study, floors: Floors, reason: str) -> None:
    if not reason:
        EXCHANGE.require_floors(study, floors)
    else:
        with raising(RefusedError, "the study", reason=reason):
            EXCHANGE.require_floors(study, floors)


@pytest.mark.parametrize("method", ["c-gdp", "c-gdp-data-noise", "i-gdp"])
def test_a_study_is_of_a_method_that_aligns_by_an_anchor(method: str) -> None:
    with raising(InputError, "method", got=method):
        change(WITHOUT, method=method)


@pytest.mark.parametrize(
    ("counts", "refused"),
    [({"well": 3, "ill": 3}, []), ({"well": 3, "ill": 2}, ["ill"]), ({"well": 0, "ill": 1}, ["ill"]), (None, [])],
)
def test_a_class_of_some_rows_has_as_many_as_the_study_asks_for(counts: Any, refused: list[str]) -> None:
    refusals = EXCHANGE.list_refusals(numeric_study(), 6, counts)
    assert [name for name in ("well", "ill") for refusal in refusals if repr(name) in str(refusal)] == refused


def test_the_dealer_is_the_first_participant_unless_the_study_names_another() -> None:
    study = numeric_study()
    for dealer, expected in (("", "site-0"), ("site-2", "site-2")):
        named = change(study, dealer=dealer)
        roles = {member.name: EXCHANGE.list_roles(named, member.name) for member in study.participants}
        assert {name for name, own in roles.items() if own == ("dealer",)} == {expected}
        assert ("Dealer", expected) in EXCHANGE.describe_study(named)
    draft = replace(study, participants=(), analyst=None)
    assert "Dealer" not in dict(EXCHANGE.describe_study(draft))


def test_rows_need_an_envelope_and_sums_are_sealed_as_they_are() -> None:
    assert (EXCHANGE.seals_bundles, get_exchange("secure-sum").seals_bundles) == (False, True)


@pytest.mark.parametrize(("p", "n_warnings"), [(2, 1), (3, 1), (4, 0)])
def test_up_to_three_participants_are_warned_that_no_majority_need_be_honest(p: int, n_warnings: int) -> None:
    assert len(EXCHANGE.list_warnings(numeric_study(p))) == n_warnings


def test_a_study_is_described_by_its_noise_components_and_limits() -> None:
    described = dict(EXCHANGE.describe_study(change(BOTH, weight_limit=2.5, projection="gaussian", n_components=4)))
    assert numbers_in(described["Method"]) == {0.3, 0.05}
    assert numbers_in(described["Shares"]) == {4, 6}
    assert numbers_in(described["Anchor"]) == {24}
    assert numbers_in(described["Refuses"]) == {3}
    assert numbers_in(described["Weighs"]) == {2.5}
    of_less = [dict(EXCHANGE.describe_study(study))["Method"] for study in (numeric_study(v=0.05), WITHOUT)]
    assert [numbers_in(words) for words in of_less] == [{0.05}, set()]
    assert "no noise at all" in dict(EXCHANGE.describe_study(WITHOUT))["Method"]
    assert numbers_in(dict(EXCHANGE.describe_study(numeric_study()))["Method"]) == {0.05}
    assert numbers_in(EXCHANGE.describe_share(BOTH, ShareResult(7, "", False))[0]) == {7, 3}


ROWS = [np.array([[0.5, -0.5], [0.5, 0.5]]), np.array([[-0.5, 0.5], [0.5, -0.5]])]  # of root mean square 0.5
PARTS = Partition.from_parts(ROWS, None, rng=np.random.default_rng(0), test_share=0.0)
FLAT = no_projection(2)


def test_methods_are_compared_at_the_noise_asked_for_or_else_at_that_given() -> None:
    """The noise of rows is stated in units of their root mean square."""
    asked = AuditRequest(methods=("aa-i-gdp-both-noise", "aa-i-gdp"))
    points = list_contrast(PARTS, FLAT, asked, noises=(0.1, 0.25), n_anchor_rows=9)
    assert points == (
        RotationPoint("aa-i-gdp-both-noise", 2, 9, 0.1, 0.5),
        RotationPoint("aa-i-gdp", 2, 9, 0.0, 0.0),
    )
    asked = AuditRequest(("aa-i-gdp-both-noise",), (0.2, 0.3), (0.5,))
    points = list_contrast(PARTS, FLAT, asked, noises=(0.1, 0.25), n_anchor_rows=9)
    assert points == tuple(RotationPoint("aa-i-gdp-both-noise", 2, 9, v, 1.0) for v in (0.2, 0.3))
    assert list_contrast(PARTS, FLAT, AuditRequest(), noises=(0.1, 0.25), n_anchor_rows=9) == ()


def test_sums_are_compared_with_rows_under_some_noise() -> None:
    assert contrast_to_sums(PARTS, FLAT, AuditRequest()) == (RotationPoint("aa-i-gdp-data-noise", 2, 8, 0.0, 0.5),)
    (point,) = contrast_to_sums(PARTS, FLAT, AuditRequest(("aa-i-gdp-both-noise",)))
    assert point == RotationPoint("aa-i-gdp-both-noise", 2, 8, 0.1, 1.0)


def test_an_audit_begins_with_the_point_of_the_study_and_has_each_point_once() -> None:
    study = change(numeric_study(h=2, r=8), **NOISE)
    own = RotationPoint("aa-i-gdp-both-noise", 2, 8, 0.05, 0.6)
    assert point_of(study, 0.5) == own
    asked = AuditRequest(("aa-i-gdp-both-noise", "aa-i-gdp"), epsilons=(1.0, None, 1.0))
    assert list_audit_points(study, PARTS, asked) == (
        own,
        RotationPoint("aa-i-gdp", 2, 8, 0.0, 0.0),
        SumPoint(1.0),
        SumPoint(None),
    )
    without = change(study, method="aa-i-gdp", data_noise_scale=0.0, anchor_noise_scale=0.0)
    points = list_audit_points(without, PARTS, AuditRequest(("aa-i-gdp-both-noise",)))
    assert points[1] == RotationPoint("aa-i-gdp-both-noise", 2, 8, 0.1, 1.0)  # noise that the study does not have
    zeros = Partition.from_parts([0 * rows for rows in ROWS], None, rng=np.random.default_rng(0), test_share=0.0)
    assert (point_of(study, 0.0), point_of(without, 0.0)) == (None, RotationPoint("aa-i-gdp", 2, 8, 0.0, 0.0))
    with raising(InputError, "data file", got="zeros"):
        list_audit_points(study, zeros, AuditRequest())


@pytest.mark.parametrize(
    ("changes", "scale", "is_found"),
    [
        ({}, 0.3, True),
        ({}, 0.305, True),
        ({}, 0.307, False),  # more than two percent off
        ({"anchor_noise_scale": 0.0505}, 0.3, True),
        ({"anchor_noise_scale": 0.0512}, 0.3, False),
        ({"n_components": 5}, 0.3, False),
        ({"n_anchor_rows": 25}, 0.3, False),
        ({"method": "aa-i-gdp-anchor-noise", "data_noise_level": 0.0}, 0.3, False),
    ],
)
def test_the_point_of_a_study_is_found_among_those_of_an_audit(
    changes: dict[str, Any], scale: float, is_found: bool
) -> None:
    point = replace(RotationPoint("aa-i-gdp-both-noise", 6, 24, 0.05, 0.6), **changes)
    of_sums, result = (PointResult.__new__(PointResult) for _ in range(2))
    for candidate, its_point in ((of_sums, SumPoint(1.0)), (result, point)):
        object.__setattr__(candidate, "point", its_point)
        object.__setattr__(candidate, "data_noise_scale", scale)
    audited = AuditResult(None, None, (of_sums, result), ())  # type: ignore[arg-type]
    assert (find_point(BOTH, audited) is result) == is_found
