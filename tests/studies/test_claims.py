import inspect
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from mooring_studies.comparison import claims, claims_page, curves, quantities
from mooring_studies.comparison.numbers import NOT_RUN, REASONS, Comparison
from mooring_studies.comparison.numbers import compare as compare_studies
from mooring_studies.comparison.paper import paper_claims, paper_number, paper_numbers
from mooring_studies.comparison.quantities import FUNCTIONS, NoAnswer
from mooring_studies.comparison.reading import Study
from mooring_studies.comparison.results import Results
from mooring_studies.data import faces

from mooring.theory import transition_scale

ANCHOR, PRIVATE, COUPLED = "aa-i-gdp-anchor-noise", "c-gdp-data-noise", "aa-i-gdp-data-noise"
PARTICIPANTS = (2, 5, 10, 20, 50)
BUILT = {
    number.args["what"]: number.value / 100 if number.unit == "%" else number.value
    for number in paper_numbers()
    if number.ours == "as_built" and number.value is not None
}
Rows = list[dict[str, Any]]


def compare(studies: dict[str, Any]) -> list[Comparison]:
    return compare_studies(studies, n_resamples=200)  # bands have tests of their own


def spec(**more: Any) -> dict[str, Any]:
    data = {"n_participants": [10], "n_components": 100, "n_anchor_rows": 400, "identities_each": []}
    ranges = {
        "data": [{"high": 4.0, "unit": "rms"}, {"high": 50.0, "unit": "absolute"}],
        "anchor": [{"high": 0.5, "unit": "absolute"}, {"high": 0.2, "unit": "absolute"}],
    }
    network = {"epochs": 15, "batch_size": 256, "learning_rate": 1e-3}
    solver = {"max_iterations": 500, "tolerance": 1e-7}
    return {"quick": False, "data": data, "noise": ranges, "network": network, "solver": solver} | more


def control(method: str, utility: float, **more: Any) -> dict[str, Any]:
    return {"deployment": 0, "n_participants": 10, "method": method, "draw": 0, "balanced_accuracy": utility} | more


def private_linkage(sigma: np.ndarray) -> np.ndarray:
    return 0.35 - 0.004 * sigma


def op_linkage(v: np.ndarray) -> np.ndarray:
    return 0.36 - 0.5 * v


def utility_of_anchor(v: np.ndarray) -> np.ndarray:
    return 0.9 - 0.6 * v


def digit_rows(deployment: int = 0, n: int = 200, shift: float = 0.0) -> Rows:
    """Straight lines throughout, so that every number to expect can be written down."""
    rng = np.random.default_rng(deployment)
    rows: Rows = [
        control("c-gdp", 0.91 + shift, **{"linkage:known-secret": 0.36}),
        control("aa-i-gdp", 0.91 + shift, **{"linkage:known-anchor": 0.36}),
        control("i-gdp", 0.55 + shift),
        control("pooled-raw", 0.93),
        control("local-only", 0.80),
        control("local-only", 0.84, draw=1),
    ]
    for draw, sigma in enumerate(np.sort(rng.uniform(0.0, 50.0, n))):
        utility, linkage = 0.9 - 0.016 * sigma + shift, private_linkage(sigma)
        common = {"draw": draw, "data_noise_scale": sigma, "balanced_accuracy_clean": utility + 0.05}
        rows.append(control(PRIVATE, utility, **common, **{"linkage:known-secret": linkage}))
        off = 0.001 if draw < 3 else 0.0
        anchored = {"linkage:known-anchor": linkage + off, "discrepancy": 1e-14 * (1 + draw / n)}
        rows.append(control(COUPLED, utility + 0.01, **common, **anchored))
    for draw, v in enumerate(np.sort(rng.uniform(0.0, 0.5, n))):
        linkage = op_linkage(v)
        attacks = {"linkage:procrustes": linkage, "linkage:pseudoinverse": linkage - 0.05, "linkage:alignment-map": 0.2}
        strong = draw % 8 == 0
        moments = {"linkage:moments": 0.9, "match:moments": 1.0} if strong else {}
        solved = {"converged": bool(v < 0.09), "solver_seconds": 2.0 if v < 0.09 else 30.0, "residual": 1e-3}
        noise = {"draw": draw, "anchor_noise_scale": v, "strongest_attacks": strong}
        rows.append(control(ANCHOR, utility_of_anchor(v) + shift, **noise, **attacks, **moments, **solved))
    return [row | {"deployment": deployment} for row in rows]


def digit_facts() -> dict[str, Any]:
    return {
        **{"study": "mnist", "spec": spec(), "n_train": 50_000, "n_validation": 10_000, "n_test": 10_000},
        **{"n_queries": 1004, "rms": 8.8, "mooring": "0.1.0", "seeds": [1, 2], "date": "2026-01-01"},
        "machine": {
            "processor": "A processor", "cores": 16, "gpu": "A GPU", "python": "3.12", "numpy": "2.2",
            "torch": "2.7",
        },
        "seconds": {"training": 100.0, "attacks": 200.0},
    }  # fmt: skip


@cache
def digit_comparisons() -> dict[str, Comparison]:
    return {
        comparison.number.id: comparison
        for comparison in compare({"mnist": (Results.from_rows(digit_rows()), digit_facts())})
    }


def participant_rows() -> Rows:
    """Utility 0.6 + 0.01 k − v and linkage 0.6 − 5 v at the k-th participant count; 19 identities only at 20 and 50."""
    rows: Rows = []
    for k, p in enumerate(PARTICIPANTS):
        for identities, off in ((98, 0.0), (19, -0.2)):
            if identities == 98 and p > 10:
                continue
            place = {"n_participants": p, "identities_each": identities}
            rows.append(control("i-gdp", 0.5 + 0.01 * k + off, **place))
            for draw, v in enumerate(np.linspace(0.0005, 0.0995, 100)):
                solved = {"converged": bool(v < 0.04), "linkage:procrustes": 0.6 - 5.0 * v}
                rows.append(
                    control(ANCHOR, 0.6 + 0.01 * k - v + off, **place, draw=draw, anchor_noise_scale=v, **solved)
                )
    return rows


@cache
def participant_comparisons() -> dict[str, Comparison]:
    data = {"n_participants": list(PARTICIPANTS), "n_components": 400, "n_anchor_rows": 1600}
    facts = {"spec": spec(data=data | {"identities_each": [[50, 19], [10, 99]]})}
    return {
        comparison.number.id: comparison
        for comparison in compare({"participants": (Results.from_rows(participant_rows()), facts)})
    }


def test_every_number_has_a_function_and_every_function_a_number() -> None:
    assert {number.ours for number in paper_numbers()} - {"as_built"} == set(FUNCTIONS)
    assert set(FUNCTIONS) > quantities.VARYING
    assert {claim.rule for claim in paper_claims()} == set(claims.RULES)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("mnist.linkage.control.c-gdp", 36.0),
        ("mnist.linkage.private.20", 27.0),
        ("mnist.linkage.private.50", 15.0),
        ("mnist.linkage.private.50.low", 15.0),
        ("mnist.linkage.private.50.high", 15.0),
        ("mnist.linkage.private.crossings", 0.0),
        ("mnist.linkage.anchor.mean.alignment-map", 20.0),
        ("mnist.linkage.anchor.0.15.procrustes", 28.5),
        ("mnist.linkage.anchor.0.15.pseudoinverse", 23.5),
        ("mnist.linkage.anchor.0.50.procrustes", 11.0),
        ("mnist.utility.control.i-gdp", 55.0),
        ("mnist.utility.private.5.c-gdp", 82.0),
        ("mnist.utility.private.10.aa-i-gdp", 75.0),
        ("mnist.utility.private.crossing.c-gdp", 0.35 / 0.016),
        ("mnist.utility.private.crossing.aa-i-gdp", 0.36 / 0.016),
        ("mnist.utility.anchor.plateau", 66.0),
        ("mnist.solver.transition", transition_scale(10, 100, 400)),
        # linkage 0.2 is σ = 37.5 and v = 0.32; linkage 0.3 is σ = 12.5 and v = 0.12
        ("mnist.tradeoff.20.private", 30.0),
        ("mnist.tradeoff.20.anchor", 70.8),
        ("mnist.tradeoff.20.advantage", 40.8),
        ("mnist.tradeoff.30.private", 70.0),
        ("mnist.tradeoff.30.anchor", 82.8),
        ("mnist.tradeoff.30.overlap", 0.0),
        ("mnist.beside.local-only", 82.0),
        ("mnist.beside.pooled-raw", 93.0),
        ("mnist.beside.clean.5", 87.0),
        ("mnist.beside.strongest.0.15", 90.0),
        ("mnist.beside.match.0.5", 100.0),
        ("mnist.setting.official-training", 60_000),
        ("mnist.setting.methods", 6),
        ("mnist.setting.data-noise", 50.0),
        ("mnist.setting.draws.anchor", 200),
        ("mnist.setting.queries", 1004),
    ],
)
def test_numbers_of_straight_lines_are_those_one_writes_down(entry: str, expected: float) -> None:
    assert digit_comparisons()[entry].ours == pytest.approx(expected, abs=0.02)


def test_counts_are_those_of_the_rows() -> None:
    rows = Results.from_rows(digit_rows())
    v = rows.where(method=ANCHOR)["anchor_noise_scale"]
    comparisons, v_pt = digit_comparisons(), transition_scale(10, 100, 400)
    assert v_pt > 0.09
    assert comparisons["mnist.linkage.identical-pairs"].ours == 197
    assert comparisons["mnist.linkage.anchor.strongest"].ours == np.sum(op_linkage(v) >= 0.2)
    assert comparisons["mnist.solver.converged"].ours == np.sum(v < 0.09)
    assert comparisons["mnist.solver.capped"].ours == np.sum(v >= 0.09)
    assert comparisons["mnist.solver.converged-below"].ours == np.sum(v < 0.09)
    assert comparisons["mnist.solver.converged-above"].ours == 0
    assert comparisons["mnist.solver.largest-converged"].ours == v[v < 0.09].max()
    assert comparisons["mnist.solver.smallest-capped"].ours == v[v >= 0.09].min()
    assert comparisons["mnist.utility.discrepancy"].ours == pytest.approx(1.995e-14)
    assert comparisons["mnist.linkage.anchor.mean.procrustes"].ours == pytest.approx(100 * op_linkage(v).mean())


def test_faces_pair_two_curves_by_their_noise() -> None:
    """The same rows read as faces: OP links 11 % at v = 0.5, so 10 % is never reached; 75 % utility is at v = 0.25."""
    facts = digit_facts() | {"spec": spec(data=spec()["data"] | {"identities_each": [[10, 99]]})}
    comparisons = {
        comparison.number.id: comparison for comparison in compare({"celeba": (Results.from_rows(digit_rows()), facts)})
    }
    assert comparisons["celeba.tradeoff.75.anchor"].ours == pytest.approx(23.5, abs=0.01)
    assert comparisons["celeba.tradeoff.75.private"].ours == pytest.approx(35 - 0.4 * 9.375, abs=0.01)
    assert comparisons["celeba.tradeoff.i-gdp.private"].ours == pytest.approx(35 - 0.4 * 21.875, abs=0.01)
    assert comparisons["celeba.tradeoff.chance.anchor"].ours is None
    assert comparisons["celeba.tradeoff.chance.anchor"].note == quantities.NEVER
    assert comparisons["celeba.linkage.anchor.crossing.procrustes"].ours is None
    assert comparisons["celeba.solver.seconds.converged"].ours == 2.0
    assert comparisons["celeba.solver.seconds.capped"].ours == 30.0
    assert comparisons["celeba.setting.identities"].ours == 99
    assert comparisons["celeba.setting.identities.train"].ours == 69
    assert comparisons["celeba.setting.episodes"].ours == 990
    assert comparisons["celeba.setting.public"].note == quantities.NOT_RECORDED


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("participants.utility.0.01.p2", 59.0), ("participants.utility.0.01.p10", 61.0),
        ("participants.utility.0.01.p50", 43.0), ("participants.linkage.0.01.low", 55.0),
        ("participants.utility.linkage-50.p5", 59.0), ("participants.utility.linkage-20.p20", 35.0),
        ("participants.utility.i-gdp.p50", 34.0), ("participants.utility.far-end", 0.0),
        ("participants.solver.transition.p20", 0.05833), ("participants.solver.converged.p2", 40),
        ("participants.solver.converged-above.p2", 2), ("participants.solver.capped-below.p2", 0),
        ("participants.solver.capped-below.p50", 24), ("participants.setting.identities", 19),
        ("participants.setting.identities.validation", 3), ("participants.setting.draws", 100),
    ],
)  # fmt: skip
def test_participant_counts_are_read_from_the_largest_allocation(entry: str, expected: float) -> None:
    assert participant_comparisons()[entry].ours == pytest.approx(expected, abs=0.005)


def test_what_is_large_follows_the_rule_of_each_unit_and_has_a_reason() -> None:
    comparisons = digit_comparisons()
    assert comparisons["mnist.utility.private.10.c-gdp"].large  # 74 % beside 62.3 %
    assert comparisons["mnist.utility.private.10.c-gdp"].note == REASONS["draws"]
    assert not comparisons["mnist.utility.private.5.c-gdp"].large  # 82.0 % beside 82.0 %
    assert comparisons["mnist.utility.private.crossing.c-gdp"].large  # 21.9 beside 11.68
    assert not comparisons["mnist.utility.discrepancy"].large  # 2e-14 beside 6e-14: the same order
    assert comparisons["mnist.setting.queries"].large  # a setting: any difference
    assert not comparisons["mnist.setting.training"].large
    assert comparisons["mnist.linkage.anchor.strongest"].large == (
        abs(comparisons["mnist.linkage.anchor.strongest"].ours - 187) > 37.4
    )
    assert not any(
        "{" in comparison.note for comparison in [*comparisons.values(), *participant_comparisons().values()]
    )


def test_our_number_is_deployment_0s_and_the_spread_is_over_all() -> None:
    rows = digit_rows() + digit_rows(1, n=50, shift=0.02) + digit_rows(2, n=50, shift=-0.03)
    comparisons = {
        comparison.number.id: comparison for comparison in compare({"mnist": (Results.from_rows(rows), digit_facts())})
    }
    assert comparisons["mnist.utility.control.i-gdp"].ours == pytest.approx(55.0)
    assert comparisons["mnist.utility.control.i-gdp"].spread == pytest.approx((52.0, 57.0))
    assert comparisons["mnist.utility.anchor.0.10"].spread == pytest.approx((81.0, 86.0), abs=0.01)
    assert comparisons["mnist.solver.converged"].spread is None
    assert digit_comparisons()["mnist.utility.control.i-gdp"].spread is None


def test_a_study_that_was_not_run_gives_rows_that_say_so() -> None:
    comparisons = compare({})
    assert len(comparisons) == len(paper_numbers())
    assert all(
        comparison.ours is None and comparison.note == NOT_RUN and not comparison.large for comparison in comparisons
    )
    assert claims_page.describe_comparison(comparisons)["counts"]["results_had"] == 0


def test_an_empty_table_and_empty_facts_give_no_number_and_no_error() -> None:
    comparisons = compare({"mnist": (Results.from_rows([]), {}), "participants": (Results.from_rows([]), {})})
    measured = [
        comparison
        for comparison in comparisons
        if comparison.ours is not None and comparison.number.ours not in ("as_built", "n_methods")
    ]
    assert measured == []
    assert all(comparison.note for comparison in comparisons if comparison.ours is None)


def unread(function: str, study: Study, **args: Any) -> str:
    """Why a number cannot be read."""
    with pytest.raises(NoAnswer) as reason:
        FUNCTIONS[function](study, **args)
    return str(reason.value)


def test_curves_are_not_read_in_a_gap_between_draws() -> None:
    rows = [row for row in digit_rows() if not 20.0 < row.get("data_noise_scale", 0.0) < 30.0]
    study, whole = (Study(Results.from_rows(each), digit_facts()) for each in (rows, digit_rows()))
    how = {"method": PRIVATE, "column": "balanced_accuracy"}
    level = quantities.fitted(whole, at=25, **how)
    linked = quantities.fitted(whole, at=25, method=PRIVATE, column="linkage:known-secret")
    in_a_gap: list[tuple[str, dict[str, Any]]] = [
        ("fitted", {"at": 25, **how}),
        ("fitted_band", {"at": 25, "end": "low", **how}),
        ("mean_fitted", {"low": 10, "high": 40, **how}),
        ("extreme_fitted", {"low": 22, "high": 24, "end": "high", **how}),
        ("crossing_of", {"level": level, **how}),
        ("utility_at_linkage", {"method": PRIVATE, "attack": "known-secret", "level": linked}),
    ]
    assert {unread(function, study, **args) for function, args in in_a_gap} == {quantities.GAP}
    assert unread("mean_fitted", study, low=40, high=80, **how) == quantities.OUTSIDE
    assert quantities.mean_fitted(study, low=30.5, high=40, **how) > 0
    assert quantities.crossing_of(whole, level=level, **how) == pytest.approx(25, abs=0.01)


def test_a_verdict_follows_from_what_is_true_and_how_near_the_numbers_are() -> None:
    i_gdp = paper_number("mnist.utility.control.i-gdp")

    def reading(*ours: float) -> claims.Reading:
        return claims.Reading("I-GDP", i_gdp, ours)  # the paper's is 56.3685 %

    near, far = reading(55.0, 58.0), reading(60.0, 66.0)
    assert claims.judge(True, [near]) == "holds"
    assert claims.judge(True, [near, far]) == "holds, shifted"
    assert claims.judge(False, [near]) == "does not"
    assert claims.judge(True, [near, reading()]) == claims.judge(None, [near]) == "ill-posed"
    nothing = Study(Results.from_rows([{"method": "local-only", "n_participants": 2, "identities_each": 10}]))
    assert {name for name, rule in claims.RULES.items() if rule(nothing) is not None} == {"crosses"}
    answers = {(): None, (None, True): None, (None, True, True): True, (True, False): False}
    assert {answer: claims.all_true(answer) for answer in answers} == answers
    assert [claims.in_most(readings) for readings in ([math.nan, 1.0], [None, 1.0, 2.0])] == [(), (1.0, 2.0)]
    assert [comparison.outside for comparison in (near, far, reading(90.0))] == [False, True, False]
    assert far.shown == (63.0, pytest.approx(4.243, abs=1e-3))


def test_the_strongest_attack_is_not_read_past_its_last_draw() -> None:
    v = np.linspace(0.0, 0.49, 20)
    rows = [
        {"method": ANCHOR, "draw": k, "anchor_noise_scale": value, "linkage:moments": 0.9 - 3 * max(0.0, value - 0.35)}
        for k, value in enumerate(v)
    ]
    study = Study(Results.from_rows(rows), {})
    read = [
        quantities.fitted(study, method=ANCHOR, column=column, at=at)
        for column in ("envelope:linkage", "linkage:moments")
        for at in (0.49, 0.5)
    ]
    assert read[0] == read[1] == read[2]
    assert read[3] < read[2]  # a curve of the paper's kind is read a little beyond its draws, as the paper does
    assert unread("fitted", study, method=ANCHOR, column="envelope:linkage", at=0.6) == quantities.OUTSIDE


@pytest.mark.parametrize(("low", "high", "end"), [(0.1, 1.0, "high"), (0.0, 0.9, "low")])
def test_a_share_that_is_read_off_a_curve_beyond_the_scale_is_still_one(low: float, high: float, end: Any) -> None:
    v = np.linspace(0.0, 0.5, 40)
    shares = np.where(v < 0.2, low, high)  # a step, on either side of which a spline goes too far
    rows = [
        {"method": ANCHOR, "draw": k, "anchor_noise_scale": value, "linkage:procrustes": shares[k]}
        for k, value in enumerate(v)
    ]
    study, how = Study(Results.from_rows(rows)), {"method": ANCHOR, "column": "linkage:procrustes"}
    curve, nearest = study.curve(**how), float(end == "high")
    at = float(v[np.argmax(np.abs(curve.at(v) - 0.5))])
    assert abs(float(curve.at(at)) - 0.5) > 0.51
    assert quantities.fitted(study, at=at, **how) == nearest
    assert quantities.fitted_band(study, at=at, end=end, **how) == nearest
    assert quantities.extreme_fitted(study, low=min(at, 0.1), high=max(at, 0.3), end=end, **how) == nearest


def test_what_no_setting_changes_is_what_the_code_does() -> None:
    """The auditor's and the network's layers, as they are built, give the numbers that the comparison shows."""
    torch = pytest.importorskip("torch")
    from mooring.metrics.digit_auditor import _untrained_network

    layers, head = _untrained_network(torch, int(BUILT["digit image: side"]), int(BUILT["digit classes"]), 0)
    image, sides, filters = torch.zeros(1, 1, 28, 28), [], []
    for layer in layers:
        image = layer(image)
        if isinstance(layer, torch.nn.MaxPool2d):
            sides.append(image.shape[-1])
            assert layer.kernel_size == layer.stride == BUILT["network: pooling side"]
        if isinstance(layer, torch.nn.Conv2d):
            filters.append(layer.out_channels)
            assert layer.kernel_size == (BUILT["auditor: filter side"],) * 2
            assert layer.padding == (BUILT["auditor: padding"],) * 2
        if isinstance(layer, torch.nn.Flatten):
            assert image.shape[1] == BUILT["auditor: features"]
    assert filters == [BUILT[f"auditor: filters, {name} layer"] for name in ("first", "second", "third")]
    assert sides == [BUILT[f"auditor: side after {name} pooling"] for name in ("first", "second")]
    assert (image.shape[1], head.out_features) == (BUILT["auditor: embedding"], BUILT["digit classes"])


def test_the_network_is_the_one_that_is_trained() -> None:
    from mooring_studies.networks import DIGITS, FACES

    assert (DIGITS.side, DIGITS.padding) == (BUILT["digit network: input side"], BUILT["digit network: padding"])
    assert DIGITS.side + 2 * DIGITS.padding == BUILT["digit network: padded side"]
    assert (FACES.side, DIGITS.n_classes, FACES.n_classes) == (BUILT["face network: input side"], 10, 2)
    shapes = {name: tuple(shape) for name, shape in DIGITS.shapes().items()}
    first, second, side = BUILT["network: filters, first layer"], BUILT["network: filters, second layer"], 5
    assert shapes["convolution1.weight"] == (first, 1, side, side)
    assert shapes["convolution2.weight"] == (second, first, side, side)
    assert shapes["hidden.weight"] == (BUILT["network: hidden units"], BUILT["digit network: features"])
    padded = BUILT["digit network: padded side"]
    sides = [padded - 4, (padded - 4) // 2, (padded - 4) // 2 - 4]
    names = ("side after first layer", "side after first pooling", "side after second layer")
    assert sides == [BUILT[f"digit network: {name}"] for name in names]


def test_galleries_images_and_roles_are_those_of_the_studies() -> None:
    from mooring_studies import roles
    from mooring_studies.data import digits
    from mooring_studies.images.digit_study import draw_projection

    from mooring.metrics import build_galleries

    defaults = inspect.signature(faces.face_galleries).parameters
    assert defaults["n_candidates"].default == BUILT["gallery: candidates"]
    assert defaults["galleries_per_query"].default == BUILT["galleries an identity"]
    assert inspect.signature(build_galleries).parameters["n_candidates"].default == BUILT["gallery: candidates"]
    assert math.prod(faces.IMAGE_SHAPE) == BUILT["face image: features"]
    assert (BUILT["digit image: side"], BUILT["face image: side"]) == (digits.SIDE, faces.SIDE)
    assert (BUILT["colluder's index"], BUILT["target's index"]) == (roles.COLLUDER, roles.TARGET)
    assert BUILT["gallery: distractors"] == BUILT["gallery: candidates"] - 1
    projection = draw_projection(784, 100, rng=np.random.default_rng(0))
    assert np.std(projection.matrix) == pytest.approx(BUILT["projection: spread of entries"], abs=0.02)
    assert BUILT["gallery: chance"] == 1 / BUILT["gallery: candidates"]
    assert (BUILT["spline: interior knots"], BUILT["bands: resamples"]) == (curves.N_KNOTS, curves.N_RESAMPLES)
    assert BUILT["bands: level"] == curves.LEVEL
