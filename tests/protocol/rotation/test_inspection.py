"""What `mooring check` finds before anything leaves: one planted table a rule, a clean one, and the self-attack."""

import re
import time
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.attacks import CollusionView, attacks_on
from mooring.audit import AuditDescription, AuditResult, AuditSettings
from mooring.protocol.inspection import Inspection
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.local_model import measure_local_only
from mooring.protocol.rotation.participant import inspection
from mooring.protocol.rotation.participant.inspection import conclude, find_hazards, inspect
from mooring.protocol.rotation.scheme import study_projection
from mooring.report.charts import draw_audit
from mooring.report.study_page import render_check
from mooring.tables.encoder import EncodedRows
from mooring.tables.schema import Column, Label
from tests.auditing import how_much
from tests.record import check_record
from tests.study_settings import make_study

ON_ROWS = [attack.name for attack in attacks_on(CollusionView)]

RECORD = Path(__file__).parent / "record.json"
CLASSES = Label("ill", "classes", ("no", "yes"))
NUMBER = Label("stay", "number", (), -10.0, 10.0)
NOISE = {
    "aa-i-gdp": (0.0, 0.0),
    "aa-i-gdp-data-noise": (0.4, 0.0),
    "aa-i-gdp-anchor-noise": (0.0, 0.2),
    "aa-i-gdp-both-noise": (0.4, 0.2),
}


def study(m: int = 5, h: int | None = None, *, method: str = "aa-i-gdp-anchor-noise", **changes: Any) -> Study:
    h = h or m
    sigma, v = NOISE[method]
    plain: dict[str, Any] = {
        "name": "hearts",
        "nonce": "1" * 32,
        "columns": tuple(Column(f"c{k}", "number", -10, 10) for k in range(m)),
        "label": CLASSES,
        "method": method,
        "n_components": h,
        "n_anchor_rows": 4 * h,
        "data_noise_scale": sigma,
        "anchor_noise_scale": v,
        "projection": "none" if h == m else "gaussian",
    }
    return make_study(**(plain | changes))


def encoded(rows: np.ndarray, labels: np.ndarray | None = None) -> EncodedRows:
    return EncodedRows(rows, labels, np.zeros((rows.shape[0], 1)), 1)


def gaussian(n: int = 400, m: int = 5, seed: int = 0) -> np.ndarray:
    return np.clip(0.3 * np.random.default_rng(seed).standard_normal((n, m)), -1, 1)


def classes(n: int = 400, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, n)


def looked_at(rows: np.ndarray, labels: np.ndarray | None, agreed: Study) -> Inspection:
    return inspect(agreed, encoded(rows, labels), attacks=["procrustes"])


def hazards(rows: np.ndarray, labels: np.ndarray | None, agreed: Study) -> tuple[str, ...]:
    return find_hazards(agreed, encoded(rows, labels))


def test_a_clean_table_has_no_hazard() -> None:
    for seed in range(3):
        assert hazards(gaussian(seed=seed), classes(), study()) == ()


def planted(kind: str) -> tuple[np.ndarray, np.ndarray, Study]:
    rows, labels, agreed = gaussian(), classes(), study()
    match kind:
        case "integers":
            rows[:, 1] = np.round(rows[:, 1])
        case "constant":
            rows, agreed = np.column_stack([gaussian(m=11), np.full(400, 0.1)]), study(12)
        case "duplicates":
            rows[7] = rows[300]
        case "few rows":
            rows, labels, agreed = gaussian(12, 12), classes(12), study(12, smallest_class=1)
    return rows, labels, agreed


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("integers", "(whole numbers, yes or no): c1."),
        ("constant", ": c11."),
        ("duplicates", "1 of 400 rows is a duplicate"),
        ("few rows", "You have 12 rows, no more than the study's 12 components"),
    ],
)
def test_each_planted_hazard_is_found_and_no_other(kind: str, words: str) -> None:
    """What counts as a hazard of rows is tested with `mooring.audit.hazards`."""
    hazards_of_rows = hazards(*planted(kind))
    assert any(words in hazard for hazard in hazards_of_rows), hazards_of_rows
    if kind != "few rows":  # few rows have uneven variances too
        assert len(hazards_of_rows) == 1
    assert not any("projection" in hazard or "With noise" in hazard for hazard in hazards_of_rows)


def test_rows_of_classes_are_counted_and_an_empty_class_is_no_hazard() -> None:
    labels = np.zeros(400, dtype=np.int64)
    assert hazards(gaussian(), labels, study()) == ()
    labels[:3] = 1
    assert looked_at(gaussian(), labels, study()).class_counts == {"no": 397, "yes": 3}


def test_hazards_say_what_projection_and_noise_do() -> None:
    rows = gaussian()
    rows[:, 1] = np.round(10 * rows[:, 1]) / 10
    rows[0] = rows[1]
    rows[:, 4] *= 3
    mixed = hazards(rows, classes(), study(5, 3))
    assert any("grid" in hazard and "projection mixes" in hazard for hazard in mixed)
    loud: dict[str, Any] = {"method": "aa-i-gdp-data-noise", "data_noise_scale": 2.0}
    noisy, square = (hazards(rows, classes(), study(**loud, projection=kind)) for kind in ("none", "gaussian"))
    for hazards_of_case in (noisy, square):  # a square projection is public and undone with the map
        assert any("grid" in hazard and "1.99%" in hazard for hazard in hazards_of_case)  # erf(0.1 / (2 √2 · 2))
        assert not any("projection mixes" in hazard for hazard in hazards_of_case)
    assert any("duplicate" in hazard and "6.3" in hazard for hazard in noisy)  # 2 √10


@pytest.mark.parametrize("method", ["aa-i-gdp", "aa-i-gdp-both-noise"])
def test_known_rows_and_noise_are_always_spoken_of(method: str) -> None:
    inspection = looked_at(gaussian(), classes(), study(method=method))
    text = " ".join(inspection.warnings)
    assert " 6 " in text
    assert "lower bound" in inspection.verdict
    assert " 160 " in inspection.verdict
    odd = looked_at(gaussian(41), classes(41), study(method=method))
    assert " 16 " in odd.verdict  # the other 21 are attacked


def test_many_columns_are_named_in_part() -> None:
    rows = np.random.default_rng(0).integers(-3, 4, (100, 20)) / 3.0
    words = next(hazard for hazard in hazards(rows, classes(100), study(20)) if "grid" in hazard)
    assert "c7 and 12 more." in words
    assert "c8" not in words


@pytest.mark.parametrize(("method", "h"), [*((method, 3) for method in NOISE), ("aa-i-gdp-both-noise", 5)])
def test_the_self_attack_is_at_the_study_s_own_point_with_its_own_projection(method: str, h: int) -> None:
    agreed = study(5, h, method=method)
    inspection = inspect(agreed, encoded(gaussian(), classes()), attacks=["procrustes"])
    (result,) = inspection.self_attack.points
    assert result.data_noise_scale == pytest.approx(NOISE[method][0], abs=1e-9)
    assert (result.point.method, result.point.n_components, result.point.n_anchor_rows) == (method, h, 4 * h)
    assert result.point.anchor_noise_scale == NOISE[method][1]
    F = study_projection(agreed)
    shown = (np.asarray(result.examples.rows[name]) for name in ("projection only", "original"))
    assert np.allclose(*(F.encode(rows) for rows in shown), atol=0.01)
    rms = float(np.sqrt((F.encode(gaussian()) ** 2).mean()))
    assert inspection.rms == pytest.approx(rms)
    assert inspection.level == pytest.approx(NOISE[method][0] / rms)


def test_rows_without_noise_are_rebuilt_exactly_and_the_verdict_says_so() -> None:
    inspection = inspect(study(method="aa-i-gdp"), encoded(gaussian(), classes()))
    worst = inspection.self_attack.points[0].worst()
    assert worst is not None
    assert worst[1].value < 1e-6
    assert how_much(inspection.self_attack.points[0]) == "much"
    assert repr(worst[0]) in inspection.verdict


@pytest.mark.parametrize(("bound", "kept"), [("0.5", False), ("0", True)])
def test_limits_of_the_study_that_rows_do_not_keep_are_named(bound: str, kept: bool) -> None:
    limit = f"error at least {bound}"
    agreed = replace(study(method="aa-i-gdp"), upload_limits=(limit,))
    inspection = inspect(agreed, encoded(gaussian(), classes()), attacks=["known-anchor"])
    assert inspection.exceeded == (() if kept else (limit,))
    assert (
        conclude(agreed, inspection).decision.answer == "do not share"
    )  # rows rebuilt exactly, however weak the limit
    nothing = inspect(agreed, encoded(gaussian()[:2], classes()[:2]), attacks=["known-anchor"])
    assert nothing.exceeded == (limit,)  # no attack, no trust


def test_strong_noise_on_rows_leaves_little() -> None:
    agreed = study(method="aa-i-gdp-data-noise", data_noise_scale=3.0, label=Label("", "none"))
    inspections = [inspect(agreed, encoded(gaussian(120)), attacks=["known-anchor"], seed=seed) for seed in range(6)]
    assert min(inspected.self_attack.points[0].worst()[1].value for inspected in inspections) > 0.8


@pytest.mark.parametrize(("scale", "n"), [(3.0, 24), (0.8, 30)])
def test_a_check_of_few_rows_states_one_decision_and_no_other_judgement(scale: float, n: int) -> None:
    agreed = study(method="aa-i-gdp-data-noise", data_noise_scale=scale)
    conclusion = conclude(agreed, inspect(agreed, encoded(gaussian(n), classes(n)), attacks=["known-anchor"]))
    page = unescape(render_check(agreed, conclusion))
    assert page.count('class="answer"') == 1
    assert all(page.count(sentence) == 1 for sentence in conclusion.decision.sentences)
    for amount in ("That is little", "That is something", "That is much"):
        assert amount not in conclusion.verdict
        assert amount not in page


def case_of(kind: str) -> tuple[Study, EncodedRows, dict[str, Any]]:
    rows, numbers = gaussian(60), gaussian(60, 1, seed=2)[:, 0]
    noisy, labels = study(method="aa-i-gdp-both-noise"), classes(60)
    match kind:
        case "classes":
            return study(), encoded(rows, labels), {}
        case "number, noise":
            return study(method="aa-i-gdp-data-noise", label=NUMBER), encoded(rows, numbers), {"seed": 3}
        case "no labels, projected":
            return study(5, 3, label=Label("", "none")), encoded(rows), {}
        case "a sample":
            return noisy, encoded(rows, labels), {"n_rows": 900, "class_counts": {"no": 898, "yes": 2}}
        case "some attacked":
            return noisy, encoded(rows, labels), {"n_rows_attacked": 24}
        case "rare":
            return study(), encoded(np.column_stack([rows[:, :4], np.arange(60) < 1]), labels), {}
        case "one class":
            return study(), encoded(rows, np.zeros(60, dtype=np.int64)), {}
        case "ten rows":
            return study(), encoded(rows[:10], labels[:10]), {}
        case "few rows":
            return study(), encoded(rows[:3], labels[:3]), {}
    return noisy, encoded(0 * rows, labels), {}  # rows all alike


@pytest.mark.parametrize(
    "kind",
    [
        *("classes", "number, noise", "no labels, projected", "a sample", "some attacked"),
        *("rare", "one class", "ten rows", "few rows", "alike"),
    ],
)
def test_an_inspection_is_as_on_record(kind: str) -> None:
    agreed, rows, options = case_of(kind)
    inspection = inspect(agreed, rows, attacks=["procrustes"], **options)
    sentences = [re.findall(r"\d[\d.]*", words) for words in (*inspection.hazards, *inspection.warnings)]
    by_name = {
        key: getattr(inspection.self_attack.description, key)
        for key in ("rows_each", "targets", "attacks", "n_features")
    }
    seen = [inspection.n_rows, inspection.class_counts, inspection.rms, inspection.level, sentences, by_name]
    seen.append(None if inspection.local_only is None else inspection.local_only.as_dict())
    for at in inspection.self_attack.points:
        seen.append(None if at.examples is None else len(at.examples.rows["original"]))
        seen += [{name: figure.value for name, figure in outcome.figures.items()} for outcome in at.outcomes]
    check_record(RECORD, kind, seen, rel=3e-3, abs=1e-4)


def test_every_attack_is_tried_and_the_record_becomes_json_and_back() -> None:
    inspection = inspect(study(method="aa-i-gdp-both-noise"), encoded(gaussian(), classes()))
    tried = {outcome.attack.partition(" + ")[0] for outcome in inspection.self_attack.points[0].outcomes}
    assert tried == set(ON_ROWS)
    assert Inspection.from_json(inspection.to_json()) == inspection


def test_the_halves_share_no_row_and_keep_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    import mooring.protocol.rotation.participant.inspection as inspection

    seen = []
    run = inspection.run_audit
    monkeypatch.setattr(inspection, "run_audit", lambda dealt, **options: seen.append(dealt) or run(dealt, **options))
    rows, labels = gaussian(), (np.arange(400) % 10 == 0).astype(int)
    inspect(study(), encoded(rows, labels), n_rows_attacked=100, attacks=["procrustes"])
    colluder, target = seen[0].train
    assert colluder.shape == target.shape == (50, 5)
    assert not {row.tobytes() for row in colluder} & {row.tobytes() for row in target}
    assert [int(part.sum()) for part in seen[0].train_labels] == [5, 5]


def test_another_seed_is_another_self_attack_and_the_same_seed_the_same() -> None:
    rows = encoded(gaussian(60), classes(60))
    runs = [inspect(study(), rows, seed=k, attacks=["procrustes"]) for k in (0, 0, 1)]
    assert runs[0].as_dict() == runs[1].as_dict()
    assert runs[0].as_dict() != runs[2].as_dict()


@pytest.mark.parametrize("kind", ["classes", "one class", "number", "no labels", "alike", "zero"])
@pytest.mark.parametrize(
    ("n", "h", "method"),
    [
        (1, 1, "aa-i-gdp-anchor-noise"),
        *((n, 12, "aa-i-gdp-both-noise") for n in (4, 20)),
        (20, 1, "aa-i-gdp-anchor-noise"),
    ],
)
def test_few_rows_or_little_in_them_never_end_in_a_traceback(n: int, kind: str, h: int, method: str) -> None:
    m = 12
    rows, labels, label = gaussian(n, m), classes(n), CLASSES
    match kind:
        case "one class":
            labels[:] = 0
        case "number":
            labels, label = np.random.default_rng(0).standard_normal(n), NUMBER
        case "no labels":
            labels, label = None, Label()
        case "alike":
            rows[:] = 0.37
        case "zero":
            rows[:] = 0.0
    inspection = inspect(study(m, h, method=method, label=label), encoded(rows, labels))
    draw_audit(Inspection.from_json(inspection.to_json()).self_attack)
    if n < 4 or kind in ("alike", "zero"):
        assert inspection.self_attack.points == ()
        assert not inspection.self_attack.trustworthy
    if n < 10 or kind in ("one class", "no labels"):
        assert inspection.local_only is None


def test_local_only_is_cross_validated() -> None:
    labels = classes()
    inspection = inspect(study(), encoded(gaussian() + 0.8 * labels[:, None] - 0.4, labels), attacks=["procrustes"])
    noise = inspect(study(), encoded(gaussian(), labels), attacks=["procrustes"])
    assert inspection.local_only is not None
    assert noise.local_only is not None
    assert inspection.local_only.value > 0.95
    assert 0.4 < noise.local_only.value < 0.6  # a model scored on rows that it has seen would do better
    assert noise.local_only.n == 400
    numbers = gaussian() @ np.ones(5)
    stay = inspect(study(label=NUMBER), encoded(gaussian(), numbers), attacks=["procrustes"])
    assert stay.local_only is not None
    assert stay.local_only.metric == "R²"
    assert stay.local_only.value > 0.8


def test_images_are_shown_from_black_to_white() -> None:
    rng = np.random.default_rng(0)
    pixels = rng.choice([-1.0, -0.5, 0.5, 1.0], (60, 9))
    inspection = inspect(study(9, image_shape=(3, 3)), encoded(pixels, classes(60)), attacks=["procrustes"])
    examples = inspection.self_attack.points[0].examples
    assert examples is not None
    assert examples.image_shape == (3, 3)
    assert set(np.unique(examples.rows["original"])) <= {0.0, 0.25, 0.75, 1.0}


def test_rows_of_a_table_are_shown_in_words_and_the_most_exposed_first() -> None:
    rng = np.random.default_rng(0)
    rows, agreed = rng.choice([-1.0, -0.5, 0.5, 1.0], (60, 9)), study(9, method="aa-i-gdp-both-noise")
    shown = inspect(agreed, encoded(rows, classes(60)), attacks=["procrustes"]).self_attack.points[0].examples
    assert shown is not None
    assert shown.feature_names == shown.columns == tuple(f"c{k}" for k in range(9))
    chosen = rows[np.array(shown.row_numbers) - 1]
    assert np.array_equal(chosen, shown.rows["original"])
    assert shown.words["original"] == tuple(tuple(f"{10 * x:.1f}" for x in row) for row in chosen)
    error, guessing = (
        np.linalg.norm(np.array(shown.rows[name]) - chosen, axis=1)
        for name in ("rebuilt", "guessed without the upload")
    )
    assert (np.diff(error / guessing) >= 0).all()
    sample = inspect(agreed, encoded(rows, classes(60)), n_rows=61, attacks=["procrustes"]).self_attack.points[0]
    assert sample.examples is not None
    assert sample.examples.row_numbers is None


def test_nothing_found_quotes_a_value() -> None:
    rows = gaussian()
    rows[:, 0] = 0.4321987
    rows[5] = rows[6]
    inspection = inspect(study(), encoded(rows, classes()), attacks=["procrustes"])
    text = " ".join((*inspection.hazards, *inspection.warnings, inspection.verdict))
    assert "4321" not in text
    assert "4.32" not in text


def test_a_table_of_usual_size_takes_seconds() -> None:
    start = time.process_time()
    inspect(study(20, method="aa-i-gdp-both-noise"), encoded(gaussian(400, 20), classes()))
    assert time.process_time() - start < 15


def with_a_rare_column(n: int = 800) -> tuple[np.ndarray, Study]:
    """Four of 800 rows carry hiv = 1."""
    rows = np.column_stack([gaussian(n, 9), np.full(n, -1.0)])
    rows[[11, 203, 490, 777], 9] = 1.0
    columns = (*(Column(f"c{k}", "number", -10, 10) for k in range(9)), Column("hiv", "integer", 0, 1))
    return rows, study(10, method="aa-i-gdp-data-noise", data_noise_scale=0.3, columns=columns)


def test_the_verdict_follows_the_most_exposed_value_and_names_it() -> None:
    rows, agreed = with_a_rare_column()
    inspection = inspect(agreed, encoded(rows, classes(800)), attacks=["procrustes", "known-anchor"])
    worst = inspection.self_attack.points[0].worst()
    assert worst is not None
    assert worst[1].value > 0.65  # over all rows, there is little to see
    assert inspection.self_attack.points[0].worst("exposed_value")[1].value == 1
    assert how_much(inspection.self_attack.points[0]) == "much"
    rare = next(hazard for hazard in inspection.hazards if "rare values" in hazard)
    assert ": hiv (4 rows)." in rare
    grid = next(hazard for hazard in inspection.hazards if "grid" in hazard)
    assert "99.91%" in grid  # erf(2 / (2 √2 · 0.3))


@pytest.mark.parametrize("h", [11, 6])
def test_carriers_of_a_rare_category_are_found_through_a_projection_too(h: int) -> None:
    rows, agreed = with_a_rare_column()
    rare = (rows[:, 9:] + 1) / 2
    columns = (*agreed.columns[:9], Column("hiv", "category", categories=("no", "yes")))
    agreed = study(11, h, method="aa-i-gdp-data-noise", data_noise_scale=0.3, columns=columns)
    inspection = inspect(
        agreed, encoded(np.hstack([rows[:, :9], 1 - rare, rare]), classes(800)), attacks=["known-anchor"]
    )
    assert inspection.self_attack.points[0].worst("exposed_value")[1].value >= 0.75
    assert how_much(inspection.self_attack.points[0]) == "much"


def test_rows_of_rare_values_are_attacked_up_to_a_quarter_and_the_colluder_holds_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = gaussian(400)
    rows[:, 1] = np.r_[np.repeat(np.arange(1, 11), 3), np.zeros(370)] / 10  # 30 of 400 rows carry a rare value
    dealt: list[Any] = []

    def audit(partition: Any, **_: Any) -> AuditResult:
        dealt.append([np.asarray(part) for part in partition.train])
        return AuditResult(AuditDescription(rows_each=(1, 1)), None, (), ())  # type: ignore[arg-type]

    monkeypatch.setattr(inspection, "run_audit", audit)
    for n_attacked in (80, 200, 3, 380):
        inspect(study(label=Label()), encoded(rows), n_rows_attacked=n_attacked, attacks=["procrustes"])
    rare = [[int((part[:, 1] > 0).sum()) for part in halves] for halves in dealt]
    assert [[len(part) for part in halves] for halves in dealt] == [[40, 40], [100, 100], [2, 2], [190, 190]]
    assert rare[0][1] >= 20
    assert rare[1] == [0, 30]  # all of them, since a quarter is 50
    inspect(study(label=Label()), encoded(rows[:60]), attacks=["procrustes"])
    assert [len(part) for part in dealt[-1]] == [24, 24]  # a fifth is nobody's


def test_what_is_too_slow_or_too_small_for_a_self_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inspection._quick_enough(400) == (tuple(ON_ROWS), ())
    names, notes = inspection._quick_enough(401)
    assert set(ON_ROWS) - set(names) == {"moments", "joint-moments", "refine"}
    assert len(notes) == 1
    asked: list[AuditSettings] = []

    def audit(*_: Any, settings: AuditSettings, **__: Any) -> AuditResult:
        asked.append(settings)
        return AuditResult(AuditDescription(rows_each=(1, 1)), None, (), ())  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(inspection, "run_audit", audit)
        result = inspect(study(401, label=Label()), encoded(gaussian(20, 401))).self_attack
    assert (asked[0].attacks, result.warnings) == (names, notes)
    for n, run in ((3, False), (4, True)):
        inspected = looked_at(gaussian(n), None, study(label=Label()))
        assert bool(inspected.self_attack.points) == run
    labels = classes(10)
    assert looked_at(gaussian(10), labels, study()).local_only is not None
    assert looked_at(gaussian(9), labels[:9], study()).local_only is None


def test_a_model_of_many_rows_is_of_some_of_them() -> None:
    number = Label("weight", "number", low=-9.0, high=9.0)
    for n, n_used in ((50, 50), (60, 50)):
        for labels, label in ((classes(n), {}), (gaussian(n)[:, 0], {"label": number})):
            score = measure_local_only(study(**label), gaussian(n), labels, 0, most_rows=50)
            assert score is not None
            assert score.n == n_used
    described = looked_at(gaussian(3), None, study(label=Label())).self_attack.description
    assert (described.n_participants, described.rows_each) == (2, (1, 2))
    assert (described.colluders, described.targets) == (("a part of your rows",), ("another part",))
