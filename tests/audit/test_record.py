"""The search of a plan and the rules of hazards on record (see tests/record.py), on audits that cost nothing."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from mooring.attacks import (
    ATTACKS,
    Attack,
    DoesNotApply,
    LabelledFeatures,
    MembershipScores,
    Reconstruction,
    run,
)
from mooring.audit import (
    AuditDescription,
    AuditEffort,
    AuditSettings,
    EvaluationSpec,
    LeakageLimit,
    PointResult,
    RotationPoint,
)
from mooring.audit.hazards import (
    hazards_of_columns,
    hazards_of_labels,
    hazards_of_rows,
    rows_of_rare_values,
    separated_variances,
)
from mooring.audit.planning import Plan, planner
from mooring.audit.planning.plan import find_safety
from mooring.audit.planning.search import PointSearch
from mooring.audit.release import ReleaseRisk
from mooring.audit.results.audit_result import AuditResult
from mooring.audit.results.point_result import AttackOutcome, find_most_telling
from mooring.audit.results.statements import (
    list_exposed,
    state_strongest,
    state_total,
    warn_of_dissimilar_colluder,
    warn_of_linkage,
    warn_of_linked_rows,
)
from mooring.audit.rotation import evaluator, membership
from mooring.audit.rotation import release as row_release
from mooring.audit.rotation.attempts import AttackRuns, Attempt, Rebuilt, _are_alike
from mooring.audit.rotation.evaluator import LeakageEvaluator
from mooring.audit.rotation.simulation import simulate
from mooring.audit.sums import leakage
from mooring.audit.sums.point import SumPoint
from mooring.audit.utility import References
from mooring.learners import Gain, Score
from mooring.metrics import EpsilonAudit, EpsilonBound, Figure, Interval
from mooring.tables import Column, Partition
from tests.auditing import how_much
from tests.record import check_record

RECORD = Path(__file__).parent / "record.json"
NUMBER = re.compile(r"\d[\d.,%]*")


def figure(value: float, **beside: Any) -> Figure:
    levels = {"chance": None, "control": 1.0, "floor": None, "n": 9, "higher_is_worse": False}
    return Figure("x", value, **({"interval": Interval.unknown()} | levels | beside))


def search(
    error: Callable[[RotationPoint], float],
    limit: str,
    *,
    m: int = 40,
    r: int | None = None,
    scored: bool = True,
    n_public: int | None = None,
) -> PointSearch:
    """A search over audits whose error is a function of the point; more noise and fewer components score less."""

    def audit(at: RotationPoint) -> PointResult:
        score = (
            0.9 - 0.1 * at.data_noise_level - 0.05 * at.anchor_noise_scale - 1 / (at.n_components + at.n_anchor_rows)
        )
        deployed = Score("balanced accuracy", score, score - 0.05, score + 0.05, 60) if scored else None
        gain = Gain("balanced accuracy", score - 0.8, score - 0.81, score - 0.79, 60) if scored else None
        outcome = AttackOutcome("moments", {"centred_error": figure(error(at))})
        return PointResult(at, 2 * at.data_noise_level, outcomes=(outcome,), deployed=deployed, gain=gain)

    public = None if n_public is None else np.zeros((n_public, m))
    partition, settings = (
        SimpleNamespace(n_features=m, public=public),
        SimpleNamespace(projection="auto", effort=AuditEffort()),
    )
    alone = References(Score("balanced accuracy", 0.7, 0.6, 0.8, 60) if scored else None, None, 1)
    deployment = SimpleNamespace(rms=lambda h: 2.0)
    auditor: Any = SimpleNamespace(
        partition=partition,
        settings=settings,
        audit=audit,
        deployment=deployment,
        alone=SimpleNamespace(references=alone),
    )
    return PointSearch(auditor, LeakageLimit.parse(limit), None, r)


LANDSCAPES: dict[str, tuple[Callable[[RotationPoint], float], dict[str, Any]]] = {
    "data noise": (lambda at: at.data_noise_level, {"limit": "mean error at least 0.62"}),
    "much data noise": (lambda at: at.data_noise_level / 4, {"limit": "mean error at least 0.7", "r": 50}),
    "any noise": (lambda at: at.data_noise_level + 3 * at.anchor_noise_scale, {"limit": "mean error at least 0.8"}),
    "anchor noise": (lambda at: at.anchor_noise_scale, {"limit": "mean error at least 0.9"}),
    "fewer components": (
        lambda at: at.data_noise_level * 8 / at.n_components,
        {"limit": "mean error at least 0.5", "m": 9},
    ),
    "few features": (lambda at: at.data_noise_level, {"limit": "mean error at least 0.5", "m": 4}),
    "out of reach": (lambda at: 0.1, {"limit": "mean error at least 0.5"}),
    "at once": (lambda at: 0.9, {"limit": "mean error at least 0.5", "scored": False}),
    "few public rows": (lambda at: at.data_noise_level, {"limit": "mean error at least 0.5", "n_public": 11}),
}


def test_a_plan_names_the_least_epsilon_that_pays_on_the_rows_searched() -> None:
    def auditor(answers: dict[float | None, str | None]) -> Any:
        def audit(at: SumPoint) -> PointResult:
            answer = answers[at.epsilon]
            gain: Any = None if answer is None else SimpleNamespace(answer=answer)
            return PointResult(at, gain=gain)

        return SimpleNamespace(audit=audit, deployment=SimpleNamespace(label_kind="classes"))

    cases: list[tuple[dict[float | None, str | None], list[float], bool]] = [
        ({4.0: "pays", 2.0: "pays", 1.0: "does not pay", None: "pays"}, [2.0], True),
        ({4.0: "does not pay", 2.0: None}, [], True),
        ({4.0: None, None: "pays"}, [], False),
    ]
    search: Any = SimpleNamespace(say=lambda words: None)
    with patch.object(planner, "state_total", lambda item: ""):
        for answers, least, is_stated in cases:
            searcher, sums = auditor(answers), [SumPoint(epsilon) for epsilon in answers]
            tried, reported, words = planner._try_others(searcher, searcher, sums, search)
            assert [point.point.epsilon for point in tried] == list(answers)
            assert ([point.point.epsilon for point in reported], bool(words)) == (least, is_stated)


@pytest.mark.parametrize("name", LANDSCAPES)
def test_which_points_a_plan_tries_and_chooses_is_on_record(name: str) -> None:
    error, options = LANDSCAPES[name]
    collected: list[Any] = []
    answer = search(error, **options)
    answer.progress = lambda *words: collected.append(words[:2])
    answer.over_noise(8 if options.get("m", 40) > 8 else 4)
    answer.over_shape(widen=True)
    reported, recommended, words = answer.conclude(answer.auditor)
    answer.finish()
    assert "nan" not in words  # intervals are unknown here
    places = list(answer.tried.values())
    plan = Plan(answer.limit, SimpleNamespace(row_points=tuple(places)), recommended, words)  # type: ignore[arg-type]
    frontier = [places.index(point) for point in plan.frontier]
    tried = [list(vars(point).values())[1:] for point in answer.tried]
    chosen = [None if point is None else places.index(point) for point in (answer.best(), reported, recommended)]
    check_record(RECORD, f"search, {name}", [tried, chosen, plan.answer, frontier, collected])
    assert answer.conclude(search(lambda at: error(at) / 2, **options).auditor)[1] is None  # not kept on other rows


@pytest.mark.parametrize(("least", "is_named"), [(0.9, True), (0.1, False)])
def test_a_point_without_noise_is_named_beside_the_recommended_one_if_it_keeps_to_the_limit(
    least: float, is_named: bool
) -> None:
    """Such points score best, but are not recommended."""
    answer = search(lambda at: max(least, at.data_noise_level), "mean error at least 0.5")
    for level in (0.0, 0.6):
        answer.at(0.0, level, 8, 32)
    bare, noisy = answer.tried.values()
    _, recommended, words = answer.conclude(answer.auditor)
    assert recommended is not None
    assert recommended.point == noisy.point
    assert (f"({bare.title} keeps" in words) == is_named


def test_rules_of_hazards_are_on_record() -> None:
    """How many sentences there are about each table, and the numbers in them; small tables at the rules' limits."""
    rng = np.random.default_rng(0)
    smooth = rng.standard_normal((300, 4))
    tables = {
        "none": smooth,
        "apart": smooth * [4.0, 2.4, 1.0, 0.8],
        "two rows": smooth[:2],
        "three rows": smooth[:3],
        "zeros": 0 * smooth[:5],
    }
    for n_values in (20, 21, 201, 202):
        tables[f"{n_values} values"] = np.column_stack([smooth, np.arange(300) % n_values / 8])
    for n_rare in (1, 3, 4):
        tables[f"{n_rare} rare"] = np.column_stack([smooth, np.arange(300) < n_rare, np.zeros(300)])
    tables["duplicates"] = np.vstack([smooth, smooth[:3], np.zeros((2, 4))])
    tables |= {f"{width} columns": rng.integers(0, 3, (50, width)).astype(float) for width in (40, 41)}
    numbers = {}
    for name, rows in tables.items():
        sentences = [
            *hazards_of_columns(rows),
            *hazards_of_columns(rows, names=[f"c{k}" for k in "abcdefghijk" * 4], noise_scale=0.05),
            *hazards_of_columns(rows, mixed=True, noise_scale=0.3),
            *hazards_of_rows(rows),
            *hazards_of_rows(rows, projected=rows[:, :2], noise_scale=0.9),
        ]
        kept = [len(sentences), *map(NUMBER.findall, sentences)]
        reach = sum("within reach" in sentence for sentence in sentences)
        numbers[name] = [kept, reach, *separated_variances(rows), rows_of_rare_values(rows)]
    labels = [hazards_of_labels([np.array(part) for part in parts]) for parts in ([[1, 1, 2], [3, 3]], [[1, 1]])]
    check_record(RECORD, "hazards", [numbers, [re.findall(r"\d+", " ".join(label)) for label in labels]])


def linked(share: float, control: float | None = None) -> Figure:
    return figure(share, chance=0.1, control=control, higher_is_worse=True)


def point(**figures: Figure) -> PointResult:
    at = RotationPoint("aa-i-gdp", 4, 16, 0.0, 0.0)
    return PointResult(at, outcomes=(AttackOutcome("moments", figures),))


@pytest.mark.parametrize(
    ("figures", "amount"),
    [
        ({"centred_error": figure(0.49)}, "much"),
        ({"centred_error": figure(0.5)}, "something"),
        ({"centred_error": figure(0.79)}, "something"),
        ({"centred_error": figure(0.8)}, "little"),
        ({"centred_error": figure(0.5, control=0.5)}, "little"),
        ({"centred_error": figure(0.1, control=0.0)}, "little"),
        ({"centred_error": figure(0.9), "linkage": linked(0.56)}, "much"),
        ({"centred_error": figure(0.9), "linkage": linked(0.54)}, "something"),
        ({"centred_error": figure(0.9), "linkage": linked(0.54, 0.4)}, "something"),
        ({"centred_error": figure(0.9), "linkage": linked(0.51, 0.4)}, "something"),
        ({"centred_error": figure(0.9), "exposed_row": figure(0.3, chance=0.4)}, "much"),
        ({"centred_error": figure(0.9), "exposed_row": figure(0.4, chance=0.4)}, "little"),
    ],
)
def test_how_much_leaks_by_the_rule_that_is_stated(figures: dict[str, Figure], amount: str) -> None:
    assert how_much(replace(point(**figures), data_noise_scale=0.3)) == amount


def test_what_is_exposed_is_stated_and_only_above_chance() -> None:
    value = figure(0.75, chance=0.02, control=0.1, n=4, higher_is_worse=True)
    clauses = list_exposed(point(exposed_value=value, exposed_column=figure(0.3), exposed_row=figure(0.2, chance=0.3)))
    assert [re.findall(r"\d[\d.%]*", words) for words in clauses] == [
        ["75.0%", "4", "2.0%", "10.0%"],
        ["0.30", "1.00"],
        ["0.20", "0.30"],
    ]
    for chance in (0.3, None):
        assert list_exposed(point(exposed_row=figure(0.3, chance=chance))) == []


def test_whether_a_row_is_in_is_said_beside_chance() -> None:
    """At the lowest false positive rate that can be shown: of 68 other rows, 1 in 69."""
    recognised = figure(0.3, chance=1 / 69, control=0.015, higher_is_worse=True)
    for chance, others in ((1 / 69, "69"), (0.01, "100")):
        words = state_strongest(
            point(membership_at_1_percent=replace(recognised, chance=chance)), "membership_at_1_percent"
        )
        assert re.findall(r"\d[\d.]*", words) == ["1", others, "30.0", f"{100 * chance:.1f}", "1.5"]


def test_eight_columns_are_named_and_the_others_counted() -> None:
    rows = np.arange(20)[:, None] % np.arange(2, 11)
    for n, more in ((8, ": a, b, c, d, e, f, g, h. "), (9, ": a, b, c, d, e, f, g, h and 1 more. ")):
        assert more in hazards_of_columns(rows[:, :n].astype(float), names="abcdefghi")[0]


def test_an_attack_is_hopeless_only_where_it_was_measured() -> None:
    """No measure, no guess or no rows: the other denoisers are tried, too."""
    truth = np.eye(3)
    guessing, knowing = (
        SimpleNamespace(truth=truth, guess=guess) for guess in (SimpleNamespace(by_class=truth + 0.1), None)
    )
    assert LeakageEvaluator.is_hopeless(guessing, truth + 1)  # type: ignore[arg-type]
    assert not LeakageEvaluator.is_hopeless(guessing, truth + 0.05)  # type: ignore[arg-type]
    assert not LeakageEvaluator.is_hopeless(knowing, truth + 1)  # type: ignore[arg-type]
    attempt, nothing = (Attempt("a", None, rows and SimpleNamespace(rows=truth)) for rows in (True, None))  # type: ignore[arg-type]
    for attempts, is_hopeless, gives_up in (
        ([attempt], lambda rows: True, True),
        ([attempt, nothing], lambda rows: True, False),
        ([attempt], None, False),
    ):
        assert AttackRuns([], 0, is_hopeless)._gives_up(attempts) is gives_up


def test_rows_are_denoised_again_unless_they_their_errors_and_their_noise_are_alike() -> None:
    rows, error = np.array([[2.0, -1.0], [0.5, 0.0]]), np.diag([0.3, 0.1])
    first: Any = SimpleNamespace(rows=rows, row_error=error, data_noise_scale=0.2)

    def is_alike(**changed: Any) -> bool:
        return _are_alike(first, SimpleNamespace(**{**vars(first), **changed}))  # type: ignore[arg-type]

    assert is_alike(rows=rows + 1e-12)
    assert not is_alike(rows=-rows)
    assert not is_alike(rows=rows + 1e-5)
    assert not is_alike(row_error=2 * error)
    assert not is_alike(row_error=None)
    assert not is_alike(data_noise_scale=None)
    free: Any = SimpleNamespace(rows=rows, row_error=None, data_noise_scale=0.2)
    assert _are_alike(free, free)


@pytest.mark.parametrize(
    ("train", "asked", "codes"),
    [
        (["b", "a", "c", "b"], ["c", "a", "z", "b", "A"], [2, 0, -1, 1, -1]),
        ([0.0, 1.5, 2.0, 9.0], [0.0, 1.0, 1.5, 7.0, 30.0], [0, 0, 0, 1, 1]),
    ],
)
def test_rows_of_nobody_have_the_codes_of_their_labels(train: list[Any], asked: list[Any], codes: list[int]) -> None:
    """Numbers have the code of the next known number, of which the lower two and the upper two are a group here."""
    known = np.array(train)
    of_rows = (known > 1.9).astype(int) if isinstance(train[0], float) else np.unique(known, return_inverse=True)[1]
    partition: Any = SimpleNamespace(train_labels=(known[:1], known[1:]))
    view: Any = SimpleNamespace(class_codes=lambda: (of_rows[:1], of_rows[1:]))
    assert membership._codes_like(partition, view, np.array(asked), len(asked)).tolist() == codes
    assert membership._codes_like(partition, view, None, 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("first", "second", "applies", "n_read"),
    [
        ([0.9, np.nan, 0.1], [0.2, 0.4, 0.3], True, 3),
        ([0.9, np.nan, 0.1], None, True, 3),
        ([np.nan, np.nan, 0.1], None, False, 0),
        ([0.9, np.nan, np.nan], None, False, 0),
        (None, None, False, 0),
    ],
)
def test_an_attack_on_sums_compares_the_members_and_others_that_it_scores(
    first: list[float] | None, second: list[float] | None, applies: bool, n_read: int
) -> None:
    """Two classes have three candidates each, and four of the six are members; one of each kind is enough."""
    views: Any = [(np.array([0, 1, 4]), first), (np.array([2, 3, 5]), second)]

    def score(view: list[float] | None, rng: np.random.Generator) -> MembershipScores:
        if view is None:
            raise DoesNotApply("No.")
        rows = LabelledFeatures(np.zeros((3, 1)), np.zeros((3, 0))) if view is first else None
        return MembershipScores(np.array(view), rows)

    outcome = leakage._attack(Attack("a", "", score), views, 4, None, 0)
    assert outcome.applies == applies
    if applies:
        assert outcome.figures["membership_auc"].n == (3 if second else 1)
        assert re.findall(r"\d+", " ".join(outcome.notes)) == [str(n_read)]


@pytest.mark.parametrize("unit", [1.0, 1e5, 1e-5])
def test_the_outlying_tenth_is_farthest_from_its_class_in_units_of_the_spread(unit: float) -> None:
    """Whatever the unit of the rows, and if two of their columns add up to a third."""
    rng = np.random.default_rng(1)
    codes = np.repeat([0, 1], [30, 20])
    rows = rng.standard_normal((50, 2)) * [3.0, 0.2] + 7 * codes[:, None]
    centred = rows - np.array([rows[codes == k].mean(axis=0) for k in (0, 1)])[codes]
    distances = ((centred @ np.linalg.inv(np.linalg.cholesky(centred.T @ centred)).T) ** 2).sum(axis=1)
    dependent = unit * np.column_stack([rows, rows.sum(axis=1) / 3])
    members = [membership.Candidates(dependent[some], codes[some]) for some in (slice(0, 25), slice(25, 40))]
    others = [membership.Candidates(dependent[40:], codes[40:])]
    found = membership._find_outlying(members, others)
    assert set(np.flatnonzero(found)) == set(np.argsort(-distances[:40])[:4])


@pytest.mark.parametrize(
    ("method", "target", "place"), [("aa-i-gdp-anchor-noise", 2, 1), ("c-gdp", 3, 2), ("i-gdp", 2, None)]
)
def test_the_holder_of_a_record_is_sought_among_all_uploads_but_the_colluders(
    method: str, target: int, place: int | None
) -> None:
    """By chance it is named in proportion to the rows; without a common space nobody is sought."""
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((n, 2)) for n in (10, 20, 30, 40)]
    scale = 0.05 if method == "aa-i-gdp-anchor-noise" else 0.0
    view = simulate(rows, method=method, anchor_noise_scale=scale, rng=rng).view((0,), target)
    reconstruction = run("moments", view, rng=rng)
    assert isinstance(reconstruction, Reconstruction)
    uploads, found, share = membership._LikelihoodAttack.of(view, reconstruction, seed=0).all_uploads(view)
    if place is None:
        assert (uploads, share) == ([], 0.0)
    else:
        assert [upload.codes.size for upload in uploads] == [20, 30, 40]
        assert (found, share) == (place, len(rows[target]) / 90)


def test_columns_are_sought_in_forty_of_six_hundred_rows_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is trained on half of them; columns that do not vary are not asked for."""
    rng, asked = np.random.default_rng(0), []
    parts = [rng.standard_normal((n, 44)) for n in (301, 300)]
    for part in parts:
        part[:, :2] = 1.0
    simulation: Any = SimpleNamespace(
        map_new_rows=lambda i, rows, data_noise_scale: rows, collaboration_matrix=np.concatenate(parts)
    )
    columns = (Column("c", "category", categories=("x", "y")), *(Column(f"n{k}", "number", -5, 5) for k in range(42)))
    evaluation = SimpleNamespace(columns=columns)
    deployment: Any = SimpleNamespace(
        label_kind="number",
        partition=SimpleNamespace(train=parts, train_labels=[part[:, 0] for part in parts]),
        settings=SimpleNamespace(seed=1, evaluation=evaluation),
    )
    risk = ReleaseRisk({}, {}, 16, 601)
    monkeypatch.setattr(row_release, "measure_trained_release", lambda *given, **options: risk)
    monkeypatch.setattr(row_release, "train_learner", lambda learner, rows, *given, **options: asked.append(len(rows)))
    monkeypatch.setattr(
        row_release,
        "_invert",
        lambda fitted, simulation, records, labels, half, groups: asked.append((len(records), half, groups)),
    )
    found = row_release.measure_point_release(simulation, deployment, learner="linear")
    n_trained, (n_records, half, groups) = asked
    assert (n_trained, n_records, half) == (300, 600, 300)
    assert [group.tolist() for group in groups] == [[k] for k in range(2, 42)]
    assert found is not None
    assert found.n_columns == 40


def test_an_attack_that_does_not_apply_to_one_target_is_measured_by_a_guess_or_not_at_all() -> None:
    rows = np.eye(2)
    reconstruction: Any = SimpleNamespace(rows=rows, notes=("n",), evidence=None, records=None)
    attempts = Attempt("a", None, reconstruction), Attempt("a", None, None, "did not apply", "No.")
    part = Rebuilt(attempts, attempts)
    for guess in (rows + 5, None):
        evaluator: Any = SimpleNamespace(
            target_slices=[0, 1], guessed=lambda _, guess=guess: guess, notes=lambda _: ("m",)
        )
        gathered = LeakageEvaluator._gather(evaluator, part)
        if guess is None:
            assert gathered is None
        else:
            assert gathered is not None
            assert np.array_equal(gathered, np.vstack([rows, guess]))
            notes = LeakageEvaluator._notes(evaluator, part, gathered)
            assert (notes[0], notes[2]) == ("n", "m")


def test_the_attack_that_links_most_is_looked_at_whatever_its_error() -> None:
    cases = {"far": (0.8, 0.1), "near": (0.3, 0.2), "nearer": (0.2, 0.3), "further": (0.85, 0.1), "linking": (0.9, 0.9)}
    outcomes = [
        AttackOutcome(name, {"centred_error": figure(error), "linkage": linked(share)})
        for name, (error, share) in cases.items()
    ]
    assert [outcome.attack for outcome in find_most_telling(outcomes)] == ["nearer", "near", "far", "linking"]
    assert [outcome.attack for outcome in find_most_telling(outcomes[:3])] == ["nearer", "near", "far"]


def test_whether_a_result_is_trustworthy_and_what_it_measured() -> None:
    """With and without all that may be missing."""
    score, gain = Score("accuracy", 0.8, 0.7, 0.9, 40), Gain("accuracy", 0.1, 0.02, 0.2, 40)
    known = figure(0.4, control=0.9, floor=0.2, interval=Interval(0.3, 0.5, 0.95))
    bare = point(centred_error=figure(0.6, control=None))
    scored = replace(point(centred_error=known, linkage=linked(0.5)), deployed=score, gain=gain)
    worse = replace(point(centred_error=figure(0.1)), point=RotationPoint("c-gdp", 4, 16, 0.0, 0.0), usable=False)
    unmeasured = replace(scored, outcomes=())
    both, error_only, nothing = [0.4, 0.5], [0.1, None], [None, None]
    cases: list[tuple[list[PointResult], int | None, dict[str, Any], bool, list[float | None]]] = [
        ([scored], None, {}, True, both),
        ([bare, scored], 1, {"attacks": ("moments",)}, True, both),
        ([bare, scored, worse], None, {"attacks": tuple(ATTACKS)}, True, both),
        ([worse], None, {"attacks": tuple(ATTACKS)[1:]}, True, error_only),
        ([replace(scored, gain=None)], None, {}, True, both),
        ([scored, unmeasured], None, {}, False, both),
        ([], None, {}, False, nothing),
    ]
    for points, chosen, description, is_trustworthy, figures in cases:
        for alone in (score, replace(score, value=float("nan")), None):
            result = AuditResult(AuditDescription(**description), References(alone, None, 2), tuple(points), (), chosen)
            assert result.trustworthy is is_trustworthy
            at = result.headline_point
            measured = [None if at is None else at.worst(measure) for measure in ("centred_error", "linkage")]
            assert [None if worst is None else worst[1].value for worst in measured] == figures
            assert result.headline
            assert result.joining


def test_the_table_of_sums_is_on_record() -> None:
    """With all that may be measured and with nothing, below and above what the guarantee allows."""
    score, gain = Score("accuracy", 0.8, 0.7, 0.9, 40), Gain("accuracy", 0.1, 0.02, 0.2, 40)
    measured = EpsilonAudit(2.0, 1.9, EpsilonBound(0.5, 1.25, 1e-5, 0.95, 9))
    results = []
    for epsilon in (None, 0.1, 2.0, 9.0):
        at = SumPoint(epsilon, 1e-5, 5, 1)
        for rate in (0.005, 0.5):
            beside = {"higher_is_worse": True, "chance": 0.01, "interval": Interval(rate - 0.004, rate + 0.1)}
            names = ("membership_auc", "membership_at_1_percent", "membership_at_0.1_percent")
            outcome = AttackOutcome("register", {name: figure(rate, **beside) for name in names})
            bound, usable = measured if epsilon else None, rate < 0.1
            whole = PointResult(
                at, usable=usable, outcomes=(outcome,), deployed=score, gain=gain, epsilon=bound, alone=score
            )
            results += [whole, PointResult(at, outcomes=(AttackOutcome("register", reason="No."),))]
            assert [bool(state_total(result)) for result in results[-2:]] == [True, False]
    table = AuditResult({}, References(None, None, 0), tuple(results)).list_points()
    check_record(RECORD, "the table of sums", [list(line) for line in table])


def test_warnings_begin_where_they_say() -> None:
    near, far = (point(centred_error=figure(0.5, control=control)) for control in (1.2, 1.21))
    assert warn_of_dissimilar_colluder([near]) == ()
    assert len(warn_of_dissimilar_colluder([near, far, far])) == 1
    assert warn_of_linkage(0.19, 0.1) is None
    assert "2.0 times" in (warn_of_linkage(0.2, 0.1) or "")
    assert warn_of_linkage(0.5, 0.0) is None
    far, near = (point(centred_error=figure(0.9), linkage=linked(share)) for share in (0.5, 0.15))
    assert "5.0 times" in (warn_of_linked_rows(far) or "")
    assert [warn_of_linked_rows(result) for result in (near, point(centred_error=figure(0.9)), None)] == [None] * 3


@pytest.mark.parametrize(("noise_scale", "wide"), [(0.0, 2), (2.0, 2), (6.0, 1), (12.0, 0)])
def test_noise_adds_its_variance_to_those_that_are_told_apart(noise_scale: float, wide: int) -> None:
    """Variances of 64, 16 and 4; with noise of 2, 68, 20 and 8; of 6, 100, 52 and 40."""
    rows = np.random.default_rng(0).standard_normal((4000, 3))
    rows = (rows - rows.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(rows.T))).T * [8.0, 4.0, 2.0]
    assert separated_variances(rows, noise_scale=noise_scale) == (wide, 2)


def test_rows_are_shown_in_words_of_every_column() -> None:
    columns = (Column("sex", "category", categories=("f", "m")), Column("age", "integer", 20, 60))
    rows = np.array([[1.0, 0.0, -1.0], [0.2, 0.7, 0.5]])
    assert EvaluationSpec(columns=columns).decode(rows) == (("f", "20"), ("m", "50"))


def test_points_are_safer_where_the_strongest_attack_recovers_less_and_least_where_none_was_measured() -> None:
    near, far = (point(centred_error=figure(error), linkage=linked(1 - error)) for error in (0.2, 0.6))
    for limit in map(LeakageLimit.parse, ("mean error at least 0.5", "linkage at most 0.5")):
        assert find_safety(near, limit) < find_safety(far, limit)
        assert find_safety(point(), limit) == -1


def test_images_are_drawn_from_black_to_white_whatever_their_range() -> None:
    spec, rows = EvaluationSpec(image_shape=(1, 3), pixel_range=(-1.0, 3.0)), np.array([[-5.0, 0.0, 3.0]])
    assert (spec.shown(rows).tolist(), spec.data_range) == ([[0.0, 0.25, 1.0]], 4.0)


def test_a_value_of_nothing_has_no_sign() -> None:
    spec = EvaluationSpec(feature_scales=((-0.0, 2.0), (10.0, 4.0)))
    assert [spec.value_name(0, -0.0), spec.value_name(1, -2.5)] == ["1 = 0", "2 = 0"]


@pytest.mark.parametrize(("n_rows", "n_targets"), [(200, 1), (120, 1), (119, 2), (60, 2), (59, 3), (4, 3)])
def test_so_many_are_attacked_that_120_rows_are_but_no_more_than_three(n_rows: int, n_targets: int) -> None:
    rng = np.random.default_rng(0)
    parts = Partition.from_parts([rng.standard_normal((n_rows, 2)) for _ in range(6)], rng=rng, test_share=0.0)
    assert AuditSettings(colluders=(1,)).for_data(parts).targets == (0, 2, 3)[:n_targets]


def test_two_take_part_at_least_and_rows_are_not_shown() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((5, 2)) for _ in range(2)]
    parts = Partition.from_parts(rows, rng=rng, test_share=0.0)
    assert AuditSettings().for_data(parts).targets == (1,)
    shown = repr(simulate(rows, method="aa-i-gdp", rng=rng))
    hidden = ("anchor", "records", "private_data", "labels", "uploads", "secrets", "streams")
    assert [name for name in hidden if f" {name}=" in shown] == []
    alike = np.full((7, 2), 1e9 + 0.1)
    assert not evaluator._centred(alike).any()


@pytest.mark.parametrize(("share", "is_alike"), [(0.8e-9, True), (1.2e-9, False)])
def test_rows_are_alike_up_to_a_billionth_of_the_largest_entry(share: float, is_alike: bool) -> None:
    first, other = (
        SimpleNamespace(rows=np.array([[4.0, 0.0], [0.0, more]]), row_error=None, data_noise_scale=None)
        for more in (1.0, 1.0 + 4 * share)
    )
    assert _are_alike(first, other) == is_alike  # type: ignore[arg-type]


def test_the_first_hundred_images_are_measured() -> None:
    pytest.importorskip("skimage")
    rng = np.random.default_rng(0)
    images = rng.random((101, 9))
    of_all: Any = SimpleNamespace(
        spec=EvaluationSpec(image_shape=(3, 3)),
        records=images,
        truth=images,
        guess=None,
        seed=0,
        _cleaned=lambda rows: (rows, np.zeros_like(rows)),
    )
    rebuilt = np.vstack([images[:100] + 0.1, np.zeros((1, 9))])
    figures = LeakageEvaluator.image_figures(of_all, rebuilt)
    assert {figure.n for figure in figures.values()} == {100}
    assert figures["psnr"].value == pytest.approx(20.0)
    assert (figures["psnr"].floor or 0) > 300
    assert {figure.control for figure in figures.values()} == {None}


@pytest.mark.parametrize(
    ("n_asked", "places"), [(1, [0]), (2, [0, 4]), (3, [0, 2, 4]), (9, [0, 1, 2, 3, 4]), (0, None)]
)
def test_images_that_are_shown_lie_evenly_between_the_first_and_the_last(
    n_asked: int, places: list[int] | None
) -> None:
    """Whatever was rebuilt, so that attacks can be compared; of a table, the rows that were rebuilt best."""
    rows = np.random.default_rng(0).random((5, 4))
    rebuilt = rows + np.array([[0.5], [0.1], [0.4], [0.2], [0.3]])

    def shown(spec: EvaluationSpec) -> tuple[int, ...] | None:
        of_all: Any = SimpleNamespace(
            spec=spec,
            records=rows,
            truth=rows,
            guess=None,
            indices=np.arange(100, 105),
            decoder=SimpleNamespace(decode_preferred=lambda projected: projected),
        )
        examples = LeakageEvaluator.examples(of_all, rebuilt, "a")
        return None if examples is None else examples.indices

    of_images = shown(EvaluationSpec(image_shape=(2, 2), n_examples=n_asked))
    assert of_images == (None if places is None else tuple(100 + place for place in places))
    of_table = shown(EvaluationSpec(n_examples=n_asked))
    assert of_table == (None if places is None else (101, 103, 104, 102, 100)[:n_asked])
