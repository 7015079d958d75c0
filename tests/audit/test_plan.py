"""The plan: what it recommends, and when it recommends nothing."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mooring import Plan
from mooring.attacks import CollusionView, attacks_on, set_effort
from mooring.audit import AuditEffort, AuditSettings, LeakageLimit, PointResult, RotationPoint, utility
from mooring.audit.planning import planner
from mooring.audit.planning import search as searching
from mooring.audit.results.point_result import AttackOutcome, Leakage
from mooring.learners import Gain, Score
from mooring.metrics import Figure, Interval
from mooring.report.charts import draw_audit, tabulate_errors
from mooring.tables import Partition
from tests.auditing import planned, scores_of_audit
from tests.effort import LITTLE_EFFORT
from tests.record import check_record

ON_ROWS = [attack.name for attack in attacks_on(CollusionView)]

Refused = Callable[..., None]
Found = tuple[Plan, Path, list[Any]]
GRID = (AuditEffort().data_levels, AuditEffort().anchor_scales)
SEARCH = {"data_levels": (0.3, 0.6), "anchor_scales": (0.3,), "both_noises": ((0.05, 0.3), (0.1, 0.4)), "halvings": 1}
AT_ONE: dict[str, Any] = {"learner": "linear", "targets": [1]}
BY_ONE_ATTACK: dict[str, Any] = {
    "targets": [1],
    "attacks": ["procrustes"],
    "effort": replace(LITTLE_EFFORT, **SEARCH | {"both_noises": (), "halvings": 0}),
}


def study(n_participants: int, n_train: int, n_test: int, n_features: int, n_classes: int, apart: float) -> Partition:
    rng = np.random.default_rng(0)
    centres = apart * rng.standard_normal((n_classes, n_features))

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        classes = np.arange(n) % n_classes
        return centres[classes] + rng.standard_normal((n, n_features)), classes

    train, labels = zip(*(draw(n_train) for _ in range(n_participants)), strict=True)
    test, test_labels = zip(*(draw(n_test) for _ in range(n_participants)), strict=True)
    return Partition.from_parts(train, labels, test=test, test_labels=test_labels, rng=rng)


@pytest.fixture(scope="module", autouse=True)
def small_search() -> Any:
    """The same search over fewer noises, so that it takes seconds."""
    previous = set_effort(replace(LITTLE_EFFORT, **SEARCH))
    yield
    set_effort(previous)


@pytest.fixture(scope="module")
def many_small() -> Partition:
    """Eight participants with twelve rows each: joining pays."""
    return study(8, 12, 60, 6, 4, 1.2)


@pytest.fixture(scope="module")
def plan(many_small: Partition, tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder, collected = tmp_path_factory.mktemp("plan"), []
    options: dict[str, Any] = {**AT_ONE, "progress": lambda *words: collected.append(words)}
    return planned(many_small, limit="mean error at least 0.3", folder=folder, **options), folder, collected


def test_where_joining_pays_a_point_is_recommended(plan: Found) -> None:
    result = plan[0]
    assert result.answer == "pays"
    assert result.recommended.gain.low > 0
    for words in ("Recommended: AA-I-GDP", result.recommended.gain.sentence(), "lower bound"):
        assert words in result.verdict


def test_a_plan_is_as_on_record(plan: Found) -> None:
    result = plan[0]
    points = [list(vars(point.point).values()) for point in result.tried.points]
    assert result.recommended is not None
    best = [
        result.audit.chosen,
        result.answer,
        result.mechanism.as_dict(),
        [result.tried.points.index(point) for point in result.frontier],
    ]
    record = Path(__file__).parent / "record.json"
    check_record(record, "plan", [points, best])
    for name, audit in {"searched": result.tried, "reported": result.audit}.items():
        check_record(record, f"plan, {name} scores", scores_of_audit(audit), abs=0.02)


def test_what_a_plan_says_first_is_about_what_it_recommends(plan: Found) -> None:
    result = plan[0]
    assert result.audit.headline_point is result.recommended
    assert result.recommended.title in result.verdict
    assert f"σ = {result.recommended.data_noise_scale:.3g}" in result.recommended.title


def test_what_is_recommended_keeps_to_the_target_at_the_worse_end_of_every_attack(plan: Found) -> None:
    recommended = plan[0].recommended
    worst = recommended.worst("centred_error")
    assert worst[1].interval.low >= 0.3
    figures = [o.figures["centred_error"] for o in recommended.outcomes if "centred_error" in o.figures]
    assert min(figure.value for figure in figures) == worst[1].value
    assert [o.attack for o in recommended.outcomes if " + " not in o.attack] == ON_ROWS
    assert plan[0].audit.points == (recommended,)
    for point in plan[0].tried.points:  # every other point that was tried was audited with every attack too
        assert {o.attack.partition(" + ")[0] for o in point.outcomes} == set(ON_ROWS)


def test_no_point_that_keeps_to_the_target_scores_better(plan: Found) -> None:
    result = plan[0]
    tried = result.tried.points
    keeping = [point for point in tried if point.keeps_to(result.limit, room=2.0) and point.point.data_noise_level > 0]
    best = max(keeping, key=lambda item: item.deployed.value)
    assert best.title == result.recommended.title
    assert best.data_noise_scale == pytest.approx(result.recommended.data_noise_scale)
    assert len(keeping) < len(tried)  # some points do not keep to it, so there was something to choose


def test_the_search_comes_close_to_the_target_and_tries_other_shapes(plan: Found) -> None:
    points = [point.point for point in plan[0].tried.points]
    assert len(set(points)) == len(points)
    assert {point.n_components for point in points} > {6}
    assert {"aa-i-gdp-data-noise", "aa-i-gdp-anchor-noise", "aa-i-gdp-both-noise"} <= {p.method for p in points}
    assert any(point.data_noise_level not in (0.0, 0.3, 0.4, 0.6) for point in points)


def coordinates(plan: Plan) -> list[tuple[float, float]]:
    made = []
    for point in plan.tried.points:
        worst = point.worst(plan.limit.measure)
        if worst is not None and point.deployed is not None:
            made.append((point.deployed.value, worst[1].value * (1 if plan.limit.at_least else -1)))
    return made


@pytest.mark.parametrize("words", ["mean error at least 0.3", "linkage at most 50 %"])
def test_the_frontier_is_what_no_point_beats_in_both(plan: Found, words: str) -> None:
    refused_plan = Plan(LeakageLimit.parse(words), plan[0].tried, None, "")
    every = coordinates(refused_plan)
    best = coordinates(
        Plan(refused_plan.limit, type(refused_plan.audit)(*_but_points(refused_plan), refused_plan.frontier), None, "")
    )
    beaten = [mine for mine in every if any(a >= mine[0] and b >= mine[1] and (a, b) != mine for a, b in every)]
    assert sorted(best) == sorted(mine for mine in every if mine not in beaten)
    assert best == sorted(best, key=lambda pair: pair[1])  # the safest last
    assert 1 <= len(best) < len(every)


def _but_points(plan: Plan) -> tuple[Any, Any]:
    return plan.audit.description, plan.audit.references


def test_a_plan_becomes_json_and_back(plan: Found) -> None:
    result = plan[0]
    plain = json.loads(result.to_json(), parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert len(plain["search"]["points"]) == len(result.tried.points) > len(plain["audit"]["points"]) == 1
    again = Plan.from_json(result.to_json())
    assert (again.limit, again.verdict, again.recommended) == (result.limit, result.verdict, result.recommended)
    assert again.frontier == result.frontier


def test_the_recommended_point_and_the_target_are_drawn_and_every_point_has_a_line_of_its_own(plan: Found) -> None:
    drawn = draw_audit(plan[0])
    assert "recommended" in dict(drawn["frontier"].legend)
    assert "limit" in [shape.get("words") for shape in drawn["frontier"].shapes]
    assert len(tabulate_errors(plan[0].tried).points) == len(plan[0].tried.points)


def test_progress_never_goes_back_and_ends_at_the_total(plan: Found) -> None:
    done, total = ([words[k] for words in plan[2]] for k in (0, 1))
    assert done == sorted(done)
    assert total == sorted(total) or total[0] == 1
    assert all(a <= b for a, b in zip(done, total, strict=True))
    assert done[-1] == total[-1]


def test_an_interrupted_plan_goes_on_where_it_stopped(
    plan: Found, many_small: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, folder, _ = plan
    monkeypatch.setattr("mooring.audit.rotation.point.simulate", None)
    again = planned(many_small, limit="mean error at least 0.3", folder=folder, **AT_ONE)
    assert again.to_json() == result.to_json()


def test_no_row_is_both_searched_and_reported_on(many_small: Partition) -> None:
    searcher, reporter = planner._halve(many_small, None, AuditSettings(seed=3))
    rows = [
        np.concatenate([*auditor.partition.train_indices, *auditor.partition.test_indices])
        for auditor in (searcher, reporter)
    ]
    assert sorted(np.concatenate(rows)) == list(range(8 * (12 + 60)))
    assert {part.shape for part in (*searcher.partition.train, *reporter.partition.train)} == {(6, 6)}
    assert searcher.settings.seed == 3 != reporter.settings.seed


def test_the_gain_of_the_point_that_noise_chose_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels are noise, so that no point gains. Twenty plans; chosen and reported on the same rows, t is 4.3.

    A bias of one standard deviation of the gain is noticed with a probability of 99 %.
    """
    error = Figure("error", 0.9, Interval.unknown(), None, 1.0, None, 9, higher_is_worse=False)
    outcomes = (AttackOutcome("moments", {"centred_error": error}),)
    monkeypatch.setattr("mooring.audit.auditor.measure_leakage", lambda *given: Leakage(outcomes=outcomes))
    levels = {"data_levels": (0.5, 1, 2, 4, 8), "anchor_scales": (), "both_noises": (), "halvings": 0}
    options: dict[str, Any] = {"n_components": 3, "learner": "linear", "effort": replace(LITTLE_EFFORT, **levels)}
    gains = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        (rows, test), (labels, test_labels) = rng.standard_normal((2, 2, 8, 3)), rng.integers(0, 2, (2, 2, 8))
        parts = Partition.from_parts(rows, labels, test=[*test], test_labels=[*test_labels], rng=rng)
        plan = planned(parts, limit="mean error at least 0.5", **options, seed=seed)
        gains.append(plan.audit.headline_point.gain.value)
    assert abs(np.mean(gains)) < 2 * np.std(gains, ddof=1) / np.sqrt(len(gains))


@pytest.fixture(scope="module")
def few_large() -> Partition:
    """Three participants with all the rows they need: too few test rows to tell whether joining pays."""
    return study(3, 60, 20, 3, 2, 6.0)


def test_where_rows_are_too_few_to_tell_the_plan_says_how_many_it_would_need(few_large: Partition) -> None:
    """A few points more on the 30 rows of a half: neither 'pays' nor 'does not pay'."""
    plan = planned(few_large, limit="mean error at least 0.2", learner="linear", **BY_ONE_ATTACK)
    gain = plan.recommended.gain
    assert gain.low < 0 < gain.value
    assert gain.n_needed > gain.n == 30
    assert Plan.from_json(plan.to_json()).answer == plan.answer == "cannot tell"
    assert "Recommended:" not in plan.verdict
    assert gain.sentence() in plan.verdict


def test_where_joining_is_shown_not_to_pay_nothing_is_recommended(
    few_large: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Gain("balanced accuracy", -0.1, -0.15, -0.05, 60, 30)
    measured = utility.measure_utility
    monkeypatch.setattr(
        "mooring.audit.auditor.measure_utility",
        lambda *given, **options: replace(measured(*given, **options), gain=lost),
    )
    plan = planned(few_large, limit="mean error at least 0.2", learner="linear", **BY_ONE_ATTACK)
    assert plan.recommended is plan.answer is plan.mechanism is plan.mechanism_lines() is None
    assert lost.sentence() in plan.verdict
    assert plan.audit.headline_point.keeps_to(plan.limit)
    assert "recommended" not in dict(draw_audit(plan)["frontier"].legend)
    assert Plan.from_json(plan.to_json()).recommended is None


@pytest.mark.definitions
def test_the_noise_that_a_plan_tries_grows_by_a_half_to_all_and_pairs_are_of_the_same_scales() -> None:
    effort = AuditEffort()
    for scales in (effort.data_levels, effort.anchor_scales):
        ratios = np.array(scales[1:]) / scales[:-1]
        assert ratios.min() >= 1.5 - 1e-9
        assert ratios.max() <= 2 + 1e-9
    assert set(effort.both_noises) <= {(v, level) for v in effort.anchor_scales for level in effort.data_levels}
    assert len(set(effort.both_noises)) == len(effort.both_noises)
    assert max(level for _, level in effort.both_noises) < max(effort.data_levels)


def test_a_search_without_a_grid_ends() -> None:
    tried: list[float] = []
    search: Any = SimpleNamespace(
        _keeps=lambda noise: tried.append(noise) or noise >= 3.0, effort=AuditEffort(halvings=1)
    )
    searching.PointSearch._bisect(search, lambda noise: noise, [])  # type: ignore[arg-type,return-value]
    assert tried == [5.0, 2.5]


def test_a_target_that_nothing_meets_is_said_to_be_out_of_reach(few_large: Partition) -> None:
    plan = planned(few_large, limit="mean error at least 5", learner="linear", **BY_ONE_ATTACK)
    assert plan.recommended is None
    assert plan.audit.headline_point.data_noise_scale > 1  # the safest
    assert "Recommended:" not in plan.verdict


def test_rows_without_noise_are_never_recommended_however_badly_attacks_do(few_large: Partition) -> None:
    """With no attack but a weak one every point looks safe; the noiseless ones are named, and not recommended."""
    options: dict[str, Any] = {"learner": "linear", "targets": [1], "attacks": ["independent-components"]}
    plan = planned(few_large, limit="mean error at least 0.1", n_components=3, **options)
    bare = [point for point in plan.tried.points if point.point.data_noise_level == 0 and point.keeps_to(plan.limit)]
    assert bare
    assert plan.recommended is None or plan.recommended.point.data_noise_level > 0


def test_without_labels_the_safest_point_is_named_and_utility_is_said_to_be_unknown(few_large: Partition) -> None:
    plan = planned(list(few_large.train), limit="mean error at least 0.3", **BY_ONE_ATTACK)
    assert plan.recommended.keeps_to(plan.limit)
    assert plan.frontier == ()


def test_a_score_that_is_undefined_is_no_reason_to_join(few_large: Partition) -> None:
    alike = [np.full(60, 0.5) for _ in range(3)]
    plan = planned(list(few_large.train), alike, limit="mean error at least 0.2", learner="linear", **BY_ONE_ATTACK)
    assert "nan" not in plan.verdict


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"limit": "safe please"}, "limit"),
        ({"n_components": 4}, "n_components"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": []}, "n_components"),
        ({"targets": [0]}, "targets"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    few_large: Partition, options: dict[str, Any], what: str, refused: Refused
) -> None:
    refused(lambda: planned(few_large, learner="linear", **options), what, "", "")


@pytest.mark.definitions
def test_the_noises_that_are_tried_are_the_documented_ones() -> None:
    words = " ".join((Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8").split())
    for noise, grid in (("σ / s", GRID[0]), ("v", GRID[1])):
        assert f"({noise} of {', '.join(f'{scale:g}' for scale in grid)})" in words


@pytest.mark.parametrize(
    ("v", "given", "tried"), [(0.1, None, {12, 24, 48}), (0.1, 24, {24}), (0.0, None, {24}), (0.0, 24, {24})]
)
def test_other_anchors_are_tried_where_the_anchor_carries_noise_and_none_is_given(
    v: float, given: int | None, tried: set[int]
) -> None:
    error = Figure("error", 0.9, Interval.unknown(), None, 1.0, None, 9, higher_is_worse=False)
    auditor: Any = SimpleNamespace(
        partition=SimpleNamespace(n_features=6, public=None),
        settings=SimpleNamespace(projection="none"),
        deployment=SimpleNamespace(rms=lambda h: 1.0),
        audit=lambda at: PointResult(at, 0.1, outcomes=(AttackOutcome("moments", {"centred_error": error}),)),
    )
    search = searching.PointSearch(auditor, LeakageLimit.parse("mean error at least 0.5"), None, given)
    search.at(v, 0.5, 6, 24)
    search.over_shape(widen=True)
    assert {point.n_anchor_rows for point in search.tried} == tried


@pytest.mark.parametrize(("score", "chosen"), [(0.8, 0.9), (None, 0.6)])
def test_of_points_with_one_score_the_safest_is_best_and_without_scores_the_one_with_least_noise(
    score: float | None, chosen: float
) -> None:
    search = searching.PointSearch(SimpleNamespace(), LeakageLimit.parse("mean error at least 0.5"), None, None)  # type: ignore[arg-type]
    for error in (0.6, 0.9, 0.7):
        figure = Figure("error", error, Interval.unknown(), None, 1.0, None, 9, higher_is_worse=False)
        point, outcome = (
            searching.point_with_noise(0.0, error, n_components=6, n_anchor_rows=24),
            AttackOutcome("moments"),
        )
        deployed = None if score is None else Score("balanced accuracy", score, 0.7, 0.9, 60)
        point_result = PointResult(
            point, error, outcomes=(replace(outcome, figures={"centred_error": figure}),), deployed=deployed
        )
        search.tried[point] = point_result
    best = search.best()
    assert best is not None
    assert best.data_noise_scale == chosen


def test_a_point_without_a_score_is_no_better_than_one_with() -> None:
    point = searching.point_with_noise(0.0, 0.5, n_components=6, n_anchor_rows=24)
    nan, low = (Score("balanced accuracy", value, 0.0, 1.0, 60) for value in (float("nan"), 0.1))
    results = [PointResult(point, 0.5, deployed=score) for score in (None, nan, low)]
    assert max(results, key=searching._score).deployed is low


def test_a_limit_that_these_rows_cannot_measure_is_refused_at_the_first_point(refused: Refused) -> None:
    deployment = SimpleNamespace(rms=lambda h: 1.0)
    auditor: Any = SimpleNamespace(deployment=deployment, audit=lambda at: PointResult(at, 0.1))
    search = searching.PointSearch(auditor, LeakageLimit.parse("linkage at most 10 %"), None, None)
    refused(lambda: search.at(0.0, 0.5, 6, 24), "limit", "can be taken", "linkage")


@pytest.mark.parametrize("asked", ["error at least 0.5", "linkage at most 20 %", "membership at most 5 % at 1 %"])
def test_a_plan_says_what_attacks_get_by_the_limit_and_by_the_other_measures(asked: str) -> None:
    plan: Any = SimpleNamespace(limit=LeakageLimit.parse(asked))
    asked_for = plan.limit.measure
    names = [asked_for, *(name for name in ("linkage", "membership_at_1_percent") if name != asked_for)]
    figure = Figure("x", 0.25, Interval(0.2, 0.3), 0.1, 0.5, None, 10, True)
    outcomes = tuple(AttackOutcome(f"one for {name}", {name: figure}) for name in names)
    point = PointResult(RotationPoint("aa-i-gdp", 3, 12), outcomes=outcomes)
    words = searching.PointSearch._describe_leakage(plan, point)
    assert re.findall(r"one for (\w+)", words) == names
    assert words.count("25.0% [20.0%, 30.0%]") == len(names)


@pytest.mark.parametrize(("low", "is_kept"), [(0.551, True), (0.549, False)])
def test_while_searching_a_limit_is_kept_with_room_of_twice_the_interval(low: float, is_kept: bool) -> None:
    """An error of 0.6: with 0.551 to 0.6, twice the distance to the end leaves 0.502, and with 0.549 it leaves 0.498."""
    search = searching.PointSearch(SimpleNamespace(), LeakageLimit.parse("mean error at least 0.5"), None, None)  # type: ignore[arg-type]
    error = Figure("error", 0.6, Interval(low, 0.7), None, 1.0, None, 9, higher_is_worse=False)
    outcome = AttackOutcome("moments", {"centred_error": error})
    assert search._keeps(PointResult(RotationPoint("aa-i-gdp", 3, 12), outcomes=(outcome,))) == is_kept


def test_what_is_searched_and_what_is_reported_is_drawn_as_on_record(many_small: Partition) -> None:
    searcher, reporter = planner._halve(many_small, None, AuditSettings(seed=3))
    record = Path(__file__).parent / "record.json"
    check_record(record, "halves", [reporter.settings.seed, searcher.partition.train_indices])


def test_widths_are_those_asked_for_from_one_to_the_number_of_features(refused: Refused) -> None:
    auditor: Any = SimpleNamespace(
        partition=SimpleNamespace(n_features=4), deployment=SimpleNamespace(default_n_components=3)
    )
    for asked, widths in ((None, (3,)), (1, (1,)), (4, (4,)), ([1, 4], (1, 4))):
        assert planner._widths(asked, auditor) == widths
    for asked in (0, 5, [1, 0], [5, 2], []):
        refused(lambda asked=asked: planner._widths(asked, auditor), "n_components", "between 1 and 4", "")
