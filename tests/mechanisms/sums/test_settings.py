"""What a study of sums declares: limits, to the last step, and what follows where nothing is stated."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mooring.errors import InputError
from mooring.mechanisms.rotation.projection import Projection
from mooring.mechanisms.settings import MechanismSettings
from mooring.mechanisms.sums.class_moments import ClassLayout
from mooring.mechanisms.sums.features.columns import RowFeatures, TableFeatures
from mooring.mechanisms.sums.features.pictures import PictureFeatures
from mooring.mechanisms.sums.general.impossible import find_combination, read_combination
from mooring.mechanisms.sums.general.survival import Survival, find_survival_columns
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.mechanisms.sums.guarantee import SumPrivacy, bound_odds, calibrate_sums, state_odds
from mooring.mechanisms.sums.secret_sharing import Threshold
from mooring.mechanisms.sums.settings import SumScheme, SumSettings, make_general_workload, make_layout, make_scheme
from mooring.mechanisms.sums.sums import Outcome, PersonCounts, SumAccumulator, SumLayout
from mooring.tables.schema import Column, Label, Schema
from tests.raising import numbers_in, raising

NUMBERS = Schema((Column("a", "number", 0, 1),))
ROSTER = [f"p{i}" for i in range(20)]
LAYOUT = SumLayout(12, Outcome(2))  # 78 products and 12 outcomes


def privacy(**options: Any) -> SumPrivacy:
    return SumPrivacy(**{"epsilon": 1.0, "delta": 1e-5, "quorum": 5, "n_colluders": 1} | options)


def scheme(p: int = 20, **options: Any) -> SumScheme:
    return make_scheme(SumSettings(**options), LAYOUT, RowFeatures(11), ROSTER[:p])


def noise_at(quorum: int) -> object:
    """Noise on a product of one feature: 2⁴ times 4.91² over half the budget, shared by the quorum."""
    return calibrate_sums(SumLayout(1, Outcome(2), 2), SumPrivacy(1.0, 1e-5, quorum, 0, 1, 0.5))


@pytest.mark.parametrize(
    ("what", "make", "last", "beyond"),
    [
        ("n_colluders", lambda c: SumSettings(n_colluders=c), 1, 0),
        ("least_rows", lambda n: SumSettings(least_rows=n), 1, 0),
        ("least_rows", lambda n: SumSettings(least_rows=n, most_rows=50), 50, 51),
        ("most_rows", lambda n: scheme(20, most_rows=n), LAYOUT.most_rows // 20, LAYOUT.most_rows // 20 + 1),
        ("expected_rows", lambda n: SumSettings(expected_rows=n), 0, -1),
        ("kept_share", lambda share: SumSettings(kept_share=share), 1.0, 1 + 1e-9),
        ("kept_share", lambda share: SumSettings(kept_share=share), 1e-300, 0.0),
        ("delta", lambda delta: SumSettings(delta=delta), 1e-3, math.nextafter(1e-3, 1)),
        ("features_digest", lambda n: SumSettings(features="pictures", features_digest=n * "a"), 64, 65),
        ("epsilon", lambda epsilon: privacy(epsilon=epsilon), 1e-300, 0.0),
        ("delta", lambda delta: privacy(delta=delta), 1 - 1e-16, 1.0),
        ("quorum", lambda c: privacy(n_colluders=c), 0, -1),
        ("quorum", lambda c: privacy(n_colluders=c), 4, 5),
        ("rows_per_person", lambda m: privacy(rows_per_person=m), 1, 0),
        ("product_share", lambda share: privacy(product_share=share), 1 - 1e-16, 1.0),
        ("resolution", noise_at, 24, 25),
        ("quorum", lambda quorum: scheme(3, quorum=quorum), 2, 1),
        ("quorum", lambda quorum: scheme(3, quorum=quorum), 3, 4),
        ("epsilon", lambda n: scheme(18, epsilon=None, quorum=18, least_rows=n), 50, 49),  # a tenth of 900 rows
        ("height", lambda side: PictureFeatures(side, 5, n_components=1), 4, 3),
        ("height", lambda side: PictureFeatures(side, 4, n_components=1), 256, 257),
        ("width", lambda side: PictureFeatures(5, side, n_components=1), 4, 3),
        ("width", lambda side: PictureFeatures(4, side, n_components=1), 256, 257),
        ("n_channels", lambda n: PictureFeatures(4, 4, n, n_components=1), 4, 5),
        ("seed", lambda seed: PictureFeatures(4, 4, n_components=1, seed=seed), 2**63, 2**63 + 1),
        ("n_components", lambda n: PictureFeatures(4, 4, n_components=n), 64 + 16, 64 + 16 + 1),
        ("n_features", lambda n: SumLayout(n, Outcome(2)), 4096, 4097),
        ("n_features", lambda n: SumLayout(n, Outcome(2)), 1, 0),
        ("n_features", lambda n: ClassLayout(n, 2), 2895, 2896),  # 2 · 2895 · 2896 / 2 sums of 2²³
        ("n_features", lambda n: ClassLayout(n, 2), 2, 1),
        ("n_features", lambda n_classes: ClassLayout(2, n_classes), 2, 1),
        ("rows", lambda n: SumAccumulator(SumLayout(1, Outcome(2), 2**29)).add(np.ones((n, 1)), np.zeros(n)), 1, 2),
        ("n_hats", lambda n: TableFeatures(NUMBERS, n_hats=n), 3, 2),
        (
            "projection",
            lambda off: Projection(math.sqrt(1 + off) * np.eye(2), "", "").require_orthonormal(),
            9e-9,
            1.1e-8,
        ),
    ],
)
def test_limits_hold_to_the_last_step(what: str, make: Callable[[Any], object], last: Any, beyond: Any) -> None:
    make(last)
    with raising(InputError, what):
        make(beyond)


@pytest.mark.parametrize("p", [20, 10_000])
def test_noise_stays_within_what_a_participant_can_draw_and_all_can_share(p: int) -> None:
    """A variance of 2⁹⁶ for one, and for all a standard deviation of a sixteenth of a quarter of the largest magnitude."""
    names, for_one_row = [f"p{i}" for i in range(p)], calibrate_sums(LAYOUT, privacy(quorum=p)).on_outcomes
    most = math.isqrt(min(2**96, (2**58 // 16) ** 2 // p) // for_one_row)
    assert most > 1000

    def apply(rows_per_person: int) -> SumScheme:
        settings = SumSettings(person="who", rows_per_person=rows_per_person, quorum=p, most_rows=10)
        return make_scheme(settings, LAYOUT, RowFeatures(11), names)

    assert apply(most - 1).noise is not None
    with raising(InputError, "epsilon"):
        apply(most + 1)


def test_sums_without_noise_state_how_many_rows_they_need_and_have() -> None:
    with raising(InputError, "epsilon") as caught:
        scheme(18, epsilon=None, quorum=18, least_rows=49)
    assert numbers_in(caught.value.problem) == {90, 900, 18, 49, 18 * 49}


@pytest.mark.parametrize("is_asked", [False, True])
@pytest.mark.parametrize("given", [*range(5)])
def test_survival_is_asked_for_with_all_its_entries_or_has_none(is_asked: bool, given: int) -> None:
    entries = {"time": "days", "event": "died", "occurred": "yes", "edges": (0.0, 9.0)}
    options: dict[str, Any] = {f"survival_{name}": value for name, value in [*entries.items()][:given]}
    options["questions"] = ("tables", "survival") if is_asked else ("tables",)
    if given == 4 * is_asked:
        survival = Survival(**entries) if is_asked else None  # type: ignore[arg-type]
        assert SumSettings(**options).survival == survival
        return
    with raising(InputError, "questions"):
        SumSettings(**options)


LONG = "x" * 1000
DAYS = Schema((Column("days", "number", 0, 9), Column("sex", "category", categories=("f", "m"))))
COLUMNS = make_workload(DAYS)


@pytest.mark.parametrize(
    ("quoted", "make"),
    [
        ({60}, lambda: TableFeatures(NUMBERS, log_scaled=frozenset({LONG}))),
        ({80}, lambda: SumSettings(questions=(LONG,))),  # type: ignore[arg-type]
        ({60}, lambda: read_combination(LONG)),
        ({120}, lambda: find_combination(COLUMNS.columns, {LONG: "f"})),
        ({60, 120}, lambda: find_combination(COLUMNS.columns, {LONG: "f", "sex": "f"})),
        ({60}, lambda: find_survival_columns(Survival(LONG, "sex", "f", (0.0, 1.0)), COLUMNS.columns)),
        ({60}, lambda: find_survival_columns(Survival("days", "sex", LONG, (0.0, 1.0)), COLUMNS.columns)),
        ({60}, lambda: COLUMNS.column(LONG)),
        ({60}, lambda: COLUMNS.indicator("sex", LONG)),
    ],
)
def test_of_a_long_word_from_a_studys_file_an_error_quotes_the_beginning(
    quoted: set[int], make: Callable[[], object]
) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert {len(run) for run in re.findall("xx+", str(caught.value))} == quoted


def test_lines_have_more_weight_where_no_model_is_asked_for() -> None:
    """Models use the curves of numbers, too: the linear contrast has 3 times their squared norm, and 10 times without."""
    for questions, weight in ((("model", "tables"), 3), (("tables", "regression"), 10)):
        workload = make_general_workload(SumSettings(questions=questions), DAYS)  # type: ignore[arg-type]
        assert {levels.linear_weight for levels in workload.columns} == {weight}
    assert {levels.linear_weight for levels in COLUMNS.columns} == {3}


def test_what_a_study_does_not_state_follows_from_its_roster() -> None:
    """The first fifteen combine; with the default quorum lists overlap, and the threshold is the least."""
    assert MechanismSettings.read({"name": "secure-sum"}, NUMBERS) == SumSettings()
    for p, quorum, threshold in ((3, 3, 3), (4, 4, 3), (10, 10, 6), (16, 16, 9), (17, 16, 9), (20, 19, 9)):
        declared = scheme(p)
        assert (declared.quorum, declared.threshold) == (
            quorum,
            Threshold(min(p, 15), threshold, 1, lists_overlap=True),
        )
        assert declared.combiners == tuple(ROSTER[: min(p, 15)])
        assert declared.privacy == privacy(quorum=quorum)
        assert declared.noise == calibrate_sums(LAYOUT, declared.privacy)
    assert scheme(epsilon=None, least_rows=100).noise is None
    assert scheme(10, quorum=9).threshold == Threshold(10, 8, 1)  # lists of nine need not overlap
    assert scheme(10, quorum=9, threshold=9).threshold == Threshold(10, 9, 1)
    for options in ({"quorum": 9, "threshold": 7}, {"threshold": 5}):
        with raising(InputError, "threshold"):
            scheme(10, **options)
    with raising(InputError, "combiners", got="'q'"):
        scheme(combiners=("p0", "q"))


def test_a_study_states_who_may_be_absent_and_what_pooled_keys_open() -> None:
    assert numbers_in(scheme(4).state_absences()) == {1, 4}
    assert numbers_in(scheme(20).state_absences()) == {1, 20, 6, 15}
    assert scheme(20, quorum=20).pooled_epsilon == pytest.approx(5.25, abs=0.01)
    assert scheme(20, n_colluders=19, quorum=20, combiners=ROSTER).pooled_epsilon == pytest.approx(1.0, abs=0.01)
    assert scheme(epsilon=None, least_rows=100).pooled_epsilon is None


def test_settings_are_written_as_they_are_read() -> None:
    common = {"n_colluders": 1, "combiners": [], "threshold": 0, "quorum": 0, "least_rows": 10, "product_share": 0.5}
    common |= {"most_rows": 100_000, "kept_share": 1.0, "questions": ["model"]}
    for options, fields_of_case in (
        ({"epsilon": None}, {"epsilon": "none", "delta": 1e-5, "features": "columns", "n_hats": 5}),
        (
            {"epsilon": 2, "features": "fourier", "log_scaled": ("a",)},
            {"epsilon": 2.0, "delta": 1e-5, "features": "fourier", "n_features": 200, "log_scaled": ["a"]},
        ),
        (
            {"person": "who", "rows_per_person": 3, "delta": 1e-6},
            {"epsilon": 1.0, "delta": 1e-6, "features": "columns", "n_hats": 5, "person": "who", "rows_per_person": 3},
        ),
    ):
        settings = SumSettings(**options)  # type: ignore[arg-type]
        assert settings.as_dict() == {"name": "secure-sum", **common, **fields_of_case}
        assert MechanismSettings.read(settings.as_dict(), NUMBERS) == settings
    for options in ({"person": "who", "rows_per_person": "means"}, {"rows_per_person": 2}, {"rows_per_person": "mean"}):
        with raising(InputError, "rows_per_person"):
            SumSettings(**options)
    for schema, what in ((NUMBERS, "label"), (Schema(NUMBERS.columns, Label("y", "number", low=0, high=1)), "person")):
        with raising(InputError, what):
            make_layout(SumSettings(person="a" if what == "person" else ""), schema, RowFeatures(1))


def test_sums_stay_within_the_field_and_rows_of_persons_are_counted() -> None:
    half = 2**60 - 1  # the largest magnitude, of which half is left for the noise
    assert SumLayout(3, Outcome(2)).most_rows == half // 2**33  # F = 2²⁰
    assert SumLayout(3, Outcome(0), resolution=16).most_rows == half // (2 * 16 * 2**20)  # F Y = 2⁸ 2¹²
    assert SumLayout(3, Outcome(5), resolution=2**20).most_rows == half // (2 * 2**40)
    assert ClassLayout(3, 3).most_rows == half // (2 * 2**34)
    fine, sums = 2**26 - 1, SumAccumulator(SumLayout(1, Outcome(2), resolution=2**26))
    sums.add(np.full((127, 1), fine / 2**26), np.ones(127))
    assert (sums.vector.tolist(), sums.n_rows) == ([127 * fine**2, 127 * fine * 2**20], 127)
    counts = PersonCounts()
    counts.add(np.array([1.0, 2.0, 1.0, 3.0, 2.0, 1.0]))
    assert [counts.count_above(most) for most in range(4)] == [3, 2, 1, 0]


def test_what_a_promise_means_is_stated_as_a_bound() -> None:
    assert (bound_odds(2.0, 1e-4), bound_odds(60.0, 0.0)) == pytest.approx((math.exp(2) + 0.01, math.exp(50)))
    guarantee = SumSettings(8.0, person="who").state_guarantee()
    assert guarantee.startswith(state_odds(8.0, 1e-5, "person"))
    assert numbers_in(guarantee) >= {100, 2981, 8, 1e-5}
    assert "person" in guarantee
    assert numbers_in(state_odds(1.0, 1e-5)) >= {2.72}


def test_a_column_of_persons_that_cannot_be_printed_is_refused() -> None:
    for name in ("\x1b[2J", "a\nb", "\u202ereversed"):
        with raising(InputError, "person"):
            SumSettings(1.0, person=name)
