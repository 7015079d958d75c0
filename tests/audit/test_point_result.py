"""What a result of one point accepts as examples, and how points and recommendations are listed."""

import tomllib
from contextlib import nullcontext
from typing import Any

import pytest

from mooring.audit import AuditDescription, AuditResult, LeakageLimit, Plan, PointResult, References, RotationPoint
from mooring.audit.results.point_result import Examples
from mooring.audit.rotation.point import RecommendedRotation
from mooring.errors import InputError
from tests.raising import raising

ROWS = ((1.0, 2.0, 3.0, 4.0), (5.0, 6.0, 7.0, 8.0))
WORDS = (("a", "b", "c"), ("d", "e", "f"))
WHOLE: dict[str, Any] = {
    "rows": {"original": ROWS, "rebuilt": ROWS, "projection only": ROWS},
    "columns": ("x", "y", "z"),
}
WHOLE |= {"words": {"original": WORDS, "rebuilt": WORDS}, "row_numbers": (4, 9)}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({}, None),
        ({"row_numbers": None}, None),
        ({"columns": (), "words": {}}, None),
        ({"image_shape": (2, 2)}, None),
        ({"image_shape": (1, 2, 2)}, None),
        ({"rows": {"original": ROWS}}, "examples"),
        ({"rows": {"rebuilt": ROWS}}, "examples"),
        ({"rows": {"original": ROWS, "rebuilt": ROWS[:1]}}, "examples"),
        ({"rows": {"original": ROWS, "rebuilt": (ROWS[0], ROWS[1][:3])}}, "examples"),
        ({"words": {"original": WORDS}}, "examples"),
        ({"words": {"original": WORDS, "rebuilt": WORDS[:1]}}, "examples"),
        ({"columns": ("x", "y")}, "examples"),
        ({"image_shape": (2, 3)}, "image_shape"),
        ({"image_shape": (4,)}, "image_shape"),
        ({"image_shape": (1, 1, 2, 2)}, "image_shape"),
        ({"rows": {"original": ROWS, "rebuilt": ROWS}, "image_shape": (2, 2)}, "image_shape"),
        ({"row_numbers": (4,)}, "row_numbers"),
    ],
)
def test_examples_are_rows_of_one_shape_in_numbers_and_in_words(changes: dict[str, Any], what: str | None) -> None:
    with nullcontext() if what is None else raising(InputError, what):
        Examples("moments", **{**WHOLE, **changes})


@pytest.mark.parametrize(("n_components", "scale"), [(None, None), (7, 0.25)])
def test_a_recommendation_is_written_as_a_table_of_a_study_with_what_is_known(
    n_components: int | None, scale: float | None
) -> None:
    """Noise whose unit in a study is not known stands in a comment, in the unit of the rows."""
    recommended = PointResult(RotationPoint("aa-i-gdp-both-noise", 7, 28, 1 / 3, 0.5), 0.123456)
    mechanism = RecommendedRotation("aa-i-gdp-both-noise", n_components, 28, scale, 1 / 3, "none")
    audit = AuditResult(AuditDescription(), References(None, None, 0), (recommended,))
    lines = Plan(LeakageLimit.parse("error at least 0.5"), audit, recommended, "", mechanism).mechanism_lines()
    assert lines is not None
    known = {"n_components": n_components, "data_noise_scale": scale}
    assert tomllib.loads(lines)["mechanism"] == {
        "name": "rotation",
        "method": "aa-i-gdp-both-noise",
        "n_anchor_rows": 28,
        "anchor_noise_scale": 0.333333,
        "projection": "none",
        **{name: value for name, value in known.items() if value is not None},
    }
    assert ("# data_noise_scale: 0.123 here" in lines) == (scale is None)


@pytest.mark.parametrize(("widths", "is_told"), [((4,), False), ((4, 4), False), ((4, 5), True)])
def test_points_of_several_widths_are_told_apart_by_it(widths: tuple[int, ...], is_told: bool) -> None:
    points = tuple(
        PointResult(RotationPoint("aa-i-gdp-anchor-noise", h, 4 * h, 0.1 * (k + 1))) for k, h in enumerate(widths)
    )
    table = AuditResult(AuditDescription(), References(None, None, 0), points).list_points()
    titles = [line[0] for line in table[1:]]
    assert [f"h={h}" in title for h, title in zip(widths, titles, strict=True)] == [is_told] * len(widths)
