"""The audit as a whole, on small synthetic tables."""

import itertools
import json
import math
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mooring
from mooring import METHODS, public_svd_projection
from mooring.attacks import ATTACKS, CollusionView, attacks_on
from mooring.attacks.decoding import learn_decoder
from mooring.audit import AuditResult, AuditSettings, EvaluationSpec, NoiseUnit, PointResult, RotationPoint
from mooring.audit.auditor import Auditor
from mooring.audit.results import checkpoints
from mooring.audit.utility import mean_score
from mooring.learners import Score
from mooring.metrics import Figure
from mooring.report.charts import draw_audit, list_images
from mooring.tables import Column, Partition, Records, partition
from tests.auditing import audited, class_rows, figures_of_audit, scores_of_audit
from tests.record import check_record

Refused = Callable[..., None]
RECORD = Path(__file__).parent / "record.json"
Parts = tuple[list[np.ndarray], list[np.ndarray]]
Audit = Callable[..., AuditResult]
ERRORS = ("centred_error", "relative_error", "decoded_error")
QUICK: dict[str, Any] = {"learner": "linear", "methods": ["aa-i-gdp-anchor-noise"], "anchor_noise_scales": [0.1]}

ON_ROWS = [attack.name for attack in attacks_on(CollusionView)]


def study(n_participants: int = 4, n_rows: int = 80, n_features: int = 5, seed: int = 0) -> Parts:
    rng = np.random.default_rng(seed)
    centres = 1.5 * rng.standard_normal((3, n_features))
    labels = [rng.integers(0, 3, n_rows) for _ in range(n_participants)]
    scales = np.linspace(2.0, 0.6, n_features)
    return [centres[label] + rng.standard_normal((n_rows, n_features)) * scales for label in labels], labels


def sound(result: AuditResult) -> AuditResult:
    """Check what every result must keep to, whatever the data: it becomes JSON and back, and never reads as clean."""
    text = result.to_json()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert AuditResult.from_json(text).to_json() == text
    assert draw_audit(result) is not None
    return result


@pytest.fixture(scope="module")
def parts() -> Parts:
    return study()


@pytest.fixture(scope="module")
def every(parts: Parts) -> AuditResult:
    """Every method, every attack, extra knowledge granted."""
    noise: dict[str, Any] = {"anchor_noise_scales": [0.2], "data_noise_levels": [0.6]}
    return audited(*parts, learner="linear", n_known_rows=4, n_repeated_uploads=2, **noise)


@pytest.fixture(scope="module")
def single(parts: Parts) -> AuditResult:
    """A single point, three of five components kept."""
    return audited(*parts, n_components=3, targets=[1], **QUICK)


def test_figures_and_scores_are_as_on_record(every: AuditResult, single: AuditResult) -> None:
    """Whatever an audit says, on tables that other tests audit anyway; see tests/record.py."""
    for name, result in (("every", every), ("one", single)):
        check_record(RECORD, name, figures_of_audit(result), rel=3e-3, abs=1e-4)
        check_record(RECORD, f"{name}, scores", scores_of_audit(result), abs=0.02)
        check_record(RECORD, f"{name}, description", described(result))
        check_record(RECORD, f"{name}, table", result.list_points())


def described(result: AuditResult) -> dict[str, Any]:
    return {key: value for key, value in result.description.as_dict().items() if key not in ("mooring", "machine")}


@pytest.mark.parametrize("kind", ["category", "number"])
def test_figures_of_persons_and_attributes_are_as_on_record(parts: Parts, kind: str) -> None:
    rows = np.concatenate(parts[0])
    attribute = rows[:, 0] + rows[:, 1] if kind == "number" else (rows[:, 0] > 0).astype(int)
    spec = EvaluationSpec(
        attribute=attribute, attribute_kind=kind, groups=np.arange(320) // 2, n_candidates=5, n_queries=60, n_examples=2
    )
    audit = audited(*parts, n_components=3, attacks=["procrustes", "moments"], evaluation=spec, targets=[1, 2], **QUICK)
    examples = audit.points[0].examples
    check_record(RECORD, f"persons, {kind}", [figures_of_audit(audit), examples and examples.rows], rel=3e-3, abs=2e-3)
    assert (audit.description.attribute, len(audit.description.targets)) == ("attribute", 2)


def test_attackers_and_the_control_have_the_public_rows() -> None:
    """One draw, audited with and without its public rows: guessing, moments and the decoder all gain by them."""
    rows, labels = class_rows(3, 100, 8)
    few = Records(rows=np.concatenate(rows), labels=np.concatenate(labels))
    given = partition(few, n_participants=5, rows_each=12, public_share=0.5, rng=np.random.default_rng(0))
    projection = public_svd_projection(given.public, 5, rng=np.random.default_rng(0))
    attribute = few.rows[:, 0] > 0
    options = {
        "projection": projection,
        "attacks": ["moments"],
        "learner": "linear",
        "targets": [1, 2, 3],
        "evaluation": EvaluationSpec(attribute=attribute),
    }
    noise = {"anchor_noise_scales": [0.5], "data_noise_levels": [0.3]}
    audit, unlabelled, private = (
        audited(replace(given, **changes), methods=["aa-i-gdp-both-noise"], **noise, **options)
        for changes in ({}, {"public_labels": None}, {"public": None, "public_labels": None})
    )
    (_, better), (_, plain) = (result.points[0].worst() for result in (audit, private))
    assert better.control < 0.98 * plain.control
    assert better.value < 0.95 * plain.value
    assert audit.points[0].worst("decoded_error")[1].value < private.points[0].worst("decoded_error")[1].value
    assert unlabelled.points[0].worst()[1] == plain  # of no use beside rows with labels


def test_an_audit_of_declared_columns_reads_their_values() -> None:
    rng = np.random.default_rng(6)
    columns = tuple(Column(name, "category", categories=("a", "b", "c")) for name in "xyz")
    rows = [np.eye(3)[rng.integers(0, 3, (60, 3))].reshape(60, 9) for _ in range(3)]
    options = {"methods": ["aa-i-gdp-data-noise"], "data_noise_levels": [0.5], "attacks": ["known-anchor"]}
    point, blurred = (
        audited(rows, evaluation=EvaluationSpec(columns=given), **options).points[0] for given in (columns, ())
    )
    assert point.worst()[0] == "known-anchor + grid"
    assert point.worst()[1].value < 0.6 * blurred.worst()[1].value
    spec = EvaluationSpec(
        columns=columns, feature_names=tuple(f"{letter}={value}" for letter in "xyz" for value in "abc")
    )
    options |= {"n_components": 4, "data_noise_levels": [0.3], "targets": [1]}
    _, read = audited(rows, evaluation=spec, **options).points[0].worst("column_accuracy")
    assert (
        read.value > 0.82
    )  # by the cells that the attack decides on; by its mean, through the projection and back, 0.79


def figures_of(result: PointResult, measure: str) -> list[Figure]:
    return [outcome.figures[measure] for outcome in result.outcomes if measure in outcome.figures]


def test_the_envelope_is_never_weaker_than_any_attack(every: AuditResult) -> None:
    for result in every.points:
        for measure in (*ERRORS, "linkage", "median_r2"):
            worst = result.worst(measure)
            values = [figure.value for figure in figures_of(result, measure)]
            assert len(values) > 2
            assert worst[1].value == (min if measure in ERRORS else max)(values)
            assert next(o for o in result.outcomes if o.attack == worst[0]).figures[measure] == worst[1]


def test_every_method_and_every_attack_stands_in_the_result_with_figures_or_a_reason(every: AuditResult) -> None:
    assert [result.point.method for result in every.points] == list(METHODS)
    for result in every.points:
        names = [outcome.attack for outcome in result.outcomes]
        assert len(set(names)) == len(names)
        assert [name for name in names if " + " not in name] == ON_ROWS
        for outcome in result.outcomes:
            assert outcome.applies == (outcome.reason is None)
            assert outcome.applies or (outcome.reason or "").endswith(".")
    ran = {outcome.attack for result in every.points for outcome in result.outcomes if outcome.applies}
    assert set(ON_ROWS) - ran <= {"lattice"}  # these rows lie on no grid
    assert {name.partition(" + ")[2] for name in ran} == {"", "gaussian", "kernel", "matching", "kernel + matching"}


def test_each_figure_stands_beside_chance_control_and_floor_and_has_an_interval(every: AuditResult) -> None:
    for result, measure in itertools.product(every.points, (*ERRORS, "linkage")):
        for figure in figures_of(result, measure):
            assert figure.interval.known
            assert figure.interval.low <= figure.value <= figure.interval.high
            assert None not in (figure.chance, figure.control, figure.floor)
            assert figure.n == every.points[0].outcomes[0].figures["centred_error"].n
            assert figure.higher_is_worse == (measure == "linkage")
    linked = every.points[0].worst("linkage")
    assert (linked[1].chance, linked[1].floor) == (0.1, 1.0)


def test_control_chance_and_floor_by_hand(parts: Parts, single: AuditResult) -> None:
    """What the colluder's class means and overall mean would score, and what the exact projected rows leave out."""
    deal = Partition.from_parts(*parts, rng=np.random.default_rng([0, 9]))
    projection = mooring.audit.deployment.make_projection(deal, "auto", 3, np.random.default_rng([0, 0, 3]))
    known, truth = projection.encode(deal.train[0]), projection.encode(deal.train[1])
    labels_of_target, classes = deal.train_labels[:2]
    guess = np.stack([known[labels_of_target == k].mean(axis=0) for k in classes])
    spread = np.linalg.norm(truth - truth.mean(axis=0))
    figure = figures_of(single.points[0], "centred_error")[0]
    assert figure.control == pytest.approx(np.linalg.norm(guess - truth) / spread)
    assert figure.chance == pytest.approx(np.linalg.norm(known.mean(axis=0) - truth) / spread)
    assert figure.floor == 0.0
    decoded = figures_of(single.points[0], "decoded_error")[0]
    raw = deal.train[1] - deal.train[1].mean(axis=0)
    ways = projection.decode, learn_decoder(projection, deal.train[0]).decode
    lost = [np.linalg.norm(decode(truth) - deal.train[1]) for decode in ways]
    assert decoded.floor == pytest.approx(min(lost) / np.linalg.norm(raw))
    assert decoded.floor > 0.1
    missed = [np.linalg.norm(decode(guess) - deal.train[1]) for decode in ways]
    assert decoded.control == pytest.approx(min(missed) / np.linalg.norm(raw))
    relative = figures_of(single.points[0], "relative_error")[0]
    assert relative.value * np.linalg.norm(truth) == pytest.approx(figure.value * spread)


def test_one_map_for_all_is_recovered_exactly_from_one_colluder(every: AuditResult) -> None:
    outcome = next(o for o in every.points[0].outcomes if o.attack == "known-secret")
    assert outcome.figures["centred_error"].value < 1e-9
    assert outcome.figures["linkage"].value == 1.0
    assert outcome.figures["median_r2"].value == pytest.approx(1.0)


def test_moments_beat_the_papers_attacks_on_anchor_noise(every: AuditResult) -> None:
    result = next(r for r in every.points if r.point.method == "aa-i-gdp-anchor-noise")
    error = {o.attack: o.figures["centred_error"].value for o in result.outcomes if "centred_error" in o.figures}
    paper = [error[name] for name, attack in ATTACKS.items() if attack.in_paper and name in error]
    assert min(error["moments"], error["joint-moments"]) < min(paper)


def test_a_result_becomes_json_and_back(every: AuditResult) -> None:
    text = sound(every).to_json()
    plain = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert len(plain["points"]) == len(METHODS)
    again = AuditResult.from_json(text)
    assert (again.trustworthy, again.headline) == (True, every.headline)
    assert again.points == every.points
    assert again.references == every.references
    assert every._repr_html_().startswith("<p><b>" + every.headline[:8])


def test_the_order_of_points_does_not_matter(parts: Parts) -> None:
    points = [
        RotationPoint("aa-i-gdp-data-noise", 5, 20, 0.0, 0.5),
        RotationPoint("aa-i-gdp-anchor-noise", 4, 16, 0.1),
        RotationPoint("c-gdp", 5, 20),
    ]
    some = ["known-secret", "procrustes", "principal-axes"]
    forward = audited(*parts, points=points, attacks=some, learner="linear")
    backward = audited(*parts, points=points[::-1], attacks=some, learner="linear")
    assert [r.as_dict() for r in forward.points] == [r.as_dict() for r in reversed(backward.points)]
    assert forward.references == backward.references
    alone = audited(*parts, points=points[1:2], attacks=some, learner="linear")
    assert alone.points[0] == forward.points[1]


def test_the_same_seed_gives_the_same_result_and_another_seed_another(parts: Parts) -> None:
    options = {**QUICK, "attacks": ["procrustes"]}
    first, again, other = (audited(*parts, seed=seed, **options).to_json() for seed in (3, 3, 4))
    assert first == again
    assert first != other


# --- utility ---------------------------------------------------------------------------------------------------------


def test_utility_stands_beside_local_only_and_pooled_raw(every: AuditResult) -> None:
    alone, pooled = every.references.local_only, every.references.pooled_raw
    assert every.references.n_alone == 4
    assert alone.with_interval() in every.joining
    assert alone.metric == "AUC"
    for result in every.points:
        assert result.deployed.n == pooled.n == 80
        assert (result.noisy_test is not None) == METHODS[result.point.method].data_noise


def test_c_gdp_and_exactly_aligned_i_gdp_are_worth_the_same_and_as_much_as_pooling(every: AuditResult) -> None:
    score = {result.point.method: result.deployed for result in every.points}
    assert score["c-gdp"] == score["aa-i-gdp"]
    assert score["aa-i-gdp"].value == every.references.pooled_raw.value  # type: ignore[union-attr]
    assert score["i-gdp"].value < score["aa-i-gdp"].value - 0.1  # type: ignore[union-attr]


def test_noise_on_test_rows_costs_what_a_deployment_does_not_pay() -> None:
    gaps = []
    for seed in range(6):
        points = [RotationPoint("aa-i-gdp-data-noise", 5, 20, 0.0, 1.5)]
        result = audited(*study(seed=seed), points=points, attacks=["known-anchor"], learner="linear").points[0]
        gaps.append(result.deployed.value - result.noisy_test.value)
    assert np.mean(gaps) > 0.1


def test_private_data_noise_is_in_units_of_the_root_mean_square_of_the_projected_rows(parts: Parts) -> None:
    """The exact anchor leaves the noise alone: σ √(nd) in norm, of 300 numbers, 4 % off by chance; bounds are 5 spreads."""
    point = RotationPoint("aa-i-gdp-data-noise", 5, 20, 0.0, 0.5)
    result = audited(*parts, points=[point], attacks=["known-anchor"], targets=[1], learner="linear").points[0]
    train = Partition.from_parts(*parts, rng=np.random.default_rng([0, 9])).train
    assert result.data_noise_scale == pytest.approx(0.5 * np.sqrt(np.mean(np.concatenate(train) ** 2)))
    noise = figures_of(result, "relative_error")[0].value * np.linalg.norm(train[1]) / np.sqrt(train[1].size)
    assert noise == pytest.approx(result.data_noise_scale, rel=0.2)


def test_numbers_to_predict_are_scored_by_r2() -> None:
    rows, _ = study()
    result = sound(audited(rows, [part[:, 0] + 0.1 * part[:, 1] for part in rows], **QUICK))
    assert result.trustworthy
    assert result.description.labels == "number"
    assert result.points[0].deployed.metric == "R²"
    assert result.points[0].deployed.value > 0.8
    control = figures_of(result.points[0], "centred_error")[0]
    assert control.control < control.chance  # type: ignore[operator]  # groups of the number say something of the rows


# --- going on after an interruption -----------------------------------------------------------------------------------


@pytest.fixture
def two_points(parts: Parts) -> Audit:
    stated = {**QUICK, "methods": ["aa-i-gdp-anchor-noise", "c-gdp"], "attacks": ["known-secret", "procrustes"]}
    return lambda *data, **options: audited(*(data or parts), **{**stated, **options})


class ComputedAgainError(Exception):
    """A simulation where a result on disk was to be loaded."""


@pytest.fixture
def no_more_simulations(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def fail(*args: Any, **options: Any) -> None:
        raise ComputedAgainError

    return lambda: monkeypatch.setattr("mooring.audit.rotation.point.simulate", fail)


def test_a_second_run_loads_what_the_first_found(two_points: Audit, tmp_path: Path, no_more_simulations: Any) -> None:
    first = two_points(folder=tmp_path / "new" / "points")
    assert first.to_json() == two_points().to_json()
    no_more_simulations()
    assert two_points(folder=tmp_path / "new" / "points").to_json() == first.to_json()
    names = sorted(path.name for path in (tmp_path / "new" / "points").iterdir())
    assert [bool(re.fullmatch(r"point-[0-9a-f]{24}\.json", name)) for name in names] == [True, True]


def without_figures(whole: bytes) -> bytes:
    plain = json.loads(whole)
    return json.dumps({**plain, "outcomes": [{**plain["outcomes"][0], "figures": None}]}).encode()


HARM: tuple[Callable[[bytes], bytes], ...] = (
    *(lambda _, s=s: s for s in (b"", b"null", b"[]", b"{}", b'{"point": {"method": "x"}}', b"\xff\xfe")),
    lambda whole: whole[: len(whole) // 2],
    without_figures,
)


def test_a_damaged_file_is_computed_again(two_points: Audit, tmp_path: Path) -> None:
    first = two_points(folder=tmp_path)
    path = sorted(tmp_path.iterdir())[0]
    whole = path.read_bytes()
    for harm in HARM:
        path.write_bytes(harm(whole))
        assert two_points(folder=tmp_path).to_json() == first.to_json()
        assert path.read_bytes() == whole
        assert len(list(tmp_path.iterdir())) == 2


OTHER: tuple[dict[str, Any], ...] = (
    {"seed": 1},
    {"attacks": ["procrustes", "known-secret"]},
    {"learner": "svm"},
    {"targets": [2]},
    {"colluders": [0, 3]},
    {"n_known_rows": 3},
    {"n_repeated_uploads": 1},
    {"evaluation": EvaluationSpec(n_examples=0)},
    {"evaluation": EvaluationSpec(n_candidates=5)},
    {"evaluation": EvaluationSpec(attribute=np.arange(320) % 2)},
    {"evaluation": EvaluationSpec(embedding=np.sign)},
    {"n_components": 4},
    {"n_anchor_rows": 11},
)


def test_other_settings_do_not_load_what_was_found_with_these(
    two_points: Audit, tmp_path: Path, no_more_simulations: Any
) -> None:
    two_points(folder=tmp_path)
    no_more_simulations()
    for other in OTHER:
        with pytest.raises(ComputedAgainError):
            two_points(folder=tmp_path, **other)


def test_other_rows_labels_lenses_and_seeds_do_not_load_what_was_found_with_these(
    two_points: Audit, parts: Parts, tmp_path: Path, no_more_simulations: Any
) -> None:
    deal, lens = (
        Partition.from_parts(*parts, rng=np.random.default_rng(0)),
        EvaluationSpec(attribute=np.arange(320) % 7),
    )
    for data in (parts, (deal,)):
        two_points(*data, folder=tmp_path, evaluation=lens)
    no_more_simulations()
    rows, labels = [part.copy() for part in parts[0]], [part.copy() for part in parts[1]]
    rows[3][5, 2] += 1e-9
    labels[2][0] += 1
    for data, options in (
        ((rows, parts[1]), {}),
        ((parts[0], labels), {}),
        ((parts[0], None), {}),
        ((deal,), {"seed": 1}),
        (parts, {"evaluation": replace(lens, attribute_kind="number")}),
        (parts, {"evaluation": replace(lens, feature_names=tuple("abcde"))}),
        (parts, {"evaluation": replace(lens, others=(parts[0][0][:9], None))}),
    ):
        with pytest.raises(ComputedAgainError):
            two_points(*data, **{"folder": tmp_path, "evaluation": lens, **options})


def test_the_code_counts_wherever_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, digest_code = checkpoints.code_digest(), checkpoints.code_digest.__wrapped__
    copy = shutil.copytree(Path(mooring.__file__).parent, tmp_path / "cli" / "mooring")
    monkeypatch.setattr(checkpoints, "__file__", str(copy / "audit" / "results" / "checkpoints.py"))
    assert digest_code() == here
    for name, counts in (("cli/app.py", False), ("metrics/linkage.py", True)):
        (copy / name).write_text("")
        assert (digest_code() != here) is counts


def test_a_folder_that_cannot_be_made_is_refused(two_points: Audit, tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "taken").write_text("a file")
    refused(lambda: two_points(folder=tmp_path / "taken"), "folder", "can be made", "")


def test_progress_never_goes_back_and_ends_at_the_total(two_points: Audit) -> None:
    collected: list[tuple[int, int, str]] = []
    two_points(progress=lambda *words: collected.append(words))
    done = [step[0] for step in collected]
    assert done == sorted(done)
    assert done[:2] == [0, 1]
    assert {step[1] for step in collected} == {3}
    assert collected[-1][:2] == (3, 3)
    assert collected[1][2] == "AA-I-GDP (anchor noise), v = 0.1"


def test_an_audit_describes_its_rows_and_settings() -> None:
    rng = np.random.default_rng(0)
    rows, labels = zip(*((rng.standard_normal((n, 2)), np.arange(n) % 2) for n in (20, 31, 17)), strict=True)
    tests = [rng.standard_normal((n, 2)) for n in (5, 0, 7)]
    split = Partition.from_parts(
        rows, labels, rng=rng, test=tests, test_labels=[np.zeros(len(part), int) for part in tests]
    )
    settings = AuditSettings(attacks=["moments"], colluders=(2,), targets=(1,), n_known_rows=3, seed=4)
    described = Auditor.of(split, None, settings).describe()
    assert (described.n_participants, described.n_rows, described.rows_each) == (3, 68, (17, 31))
    assert (described.n_features, described.n_test_rows, described.labels) == (2, 12, "classes")
    assert (described.colluders, described.targets) == ((split.names[2],), (split.names[1],))
    assert (described.attacks, described.n_known_rows, described.n_repeated_uploads) == (("moments",), 3, 0)
    assert (described.attribute, described.seed) == (None, 4)


# --- data that is hard to audit ---------------------------------------------------------------------------------------


def test_one_class_only_and_no_labels_at_all(parts: Parts) -> None:
    rows, labels = parts
    one_class = sound(audited(rows, [0 * part for part in labels], **QUICK))
    unlabelled = sound(audited(rows, **QUICK))
    assert one_class.trustworthy
    assert unlabelled.trustworthy
    figure = figures_of(unlabelled.points[0], "centred_error")[0]
    assert figure.control == figure.chance
    assert unlabelled.references.local_only is None
    assert unlabelled.points[0].deployed is None
    assert "frontier" not in draw_audit(unlabelled)
    assert unlabelled.points[0].worst()[1].value == one_class.points[0].worst()[1].value  # type: ignore[index]


Change = Callable[[list[np.ndarray], list[np.ndarray]], tuple[Any, ...]]
HARD: dict[str, tuple[Change, bool | None, str]] = {
    "constant column": (lambda X, y: ([np.c_[p[:, :4], np.full(80, 0.1)] for p in X], y), True, "constant"),
    "two rows each": (lambda X, y: ([p[:2] for p in X], [p[:2] for p in y]), None, "no more rows"),
    "no more rows than components": (lambda X, y: ([p[:6] for p in X], [p[:6] for p in y]), True, "no more rows"),
    "all zero": (lambda X, y: ([0 * p for p in X], y), False, ""),
}


@pytest.mark.parametrize("case", HARD)
def test_data_that_is_hard_to_audit_is_warned_of_or_not_trusted(case: str, parts: Parts) -> None:
    change, trustworthy, words = HARD[case]
    result = sound(audited(*change(*parts), **QUICK))
    assert trustworthy is None or result.trustworthy == trustworthy
    assert not words or any(words in warning for warning in result.warnings)


def test_two_participants(parts: Parts) -> None:
    result = sound(audited(parts[0][:2], parts[1][:2], **QUICK))
    assert result.trustworthy
    assert result.description.targets == ("participant 2",)


def test_a_colluder_with_no_class_in_common_with_the_target(parts: Parts) -> None:
    rows, labels = parts
    result = sound(audited(rows, [0 * part + k for k, part in enumerate(labels)], **QUICK))
    assert result.trustworthy
    figure = figures_of(result.points[0], "centred_error")[0]
    assert figure.control == figure.chance


def test_rows_that_are_all_alike_never_read_as_safe(parts: Parts) -> None:
    """Their spread is zero, so an error relative to it is undefined: not a number of 10¹⁴ that meets every target."""
    rows = [parts[0][0], np.full((80, 5), 0.1), *parts[0][2:]]
    result = sound(audited(rows, parts[1], targets=[1], attacks=["procrustes"], **QUICK))
    assert not result.trustworthy


def test_numbers_that_are_all_alike(parts: Parts) -> None:
    result = sound(audited(parts[0], [np.full(80, 0.5) for _ in parts[0]], attacks=["procrustes"], **QUICK))
    assert math.isnan(result.points[0].deployed.value)


def test_no_test_rows(parts: Parts) -> None:
    deal = Partition.from_parts(*parts, rng=np.random.default_rng(0), test_share=0.0)
    result = sound(audited(deal, **QUICK))
    assert result.trustworthy
    assert result.references.local_only is None
    assert result.points[0].worst("linkage") is not None


def test_an_analyst_without_colluders(parts: Parts) -> None:
    result = sound(audited(*parts, colluders=(), **QUICK))
    figure = figures_of(result.points[0], "centred_error")[0]
    assert figure.chance is figure.control is None
    reasons = {outcome.attack: outcome.reason for outcome in result.points[0].outcomes}
    assert reasons["procrustes"] is not None


@pytest.mark.parametrize("attacks", [["known-rows"], []])
def test_where_no_attack_could_be_run_nothing_reads_as_safe(parts: Parts, attacks: list[str]) -> None:
    result = sound(audited(*parts, attacks=attacks, **QUICK))
    assert not result.trustworthy
    assert result.points[0].worst() is None
    assert result.points[0].examples is None
    assert not AuditResult.from_json(result.to_json()).trustworthy
    assert not AuditResult(result.description, result.references, ()).trustworthy


def test_one_point_without_an_attack_spoils_the_audit(parts: Parts) -> None:
    result = sound(audited(*parts, methods=["c-gdp", "i-gdp"], attacks=["known-secret"], learner="linear"))
    assert result.points[0].worst() is not None
    assert not result.trustworthy


def test_an_attack_whose_arithmetic_breaks_down_is_named_and_the_others_go_on(parts: Parts) -> None:
    def broken(view: Any, *, rng: np.random.Generator) -> Any:
        raise np.linalg.LinAlgError("SVD did not converge")

    def wild(view: Any, *, rng: np.random.Generator) -> Any:
        reconstruction = ATTACKS["procrustes"].function(view, rng=rng)
        return replace(reconstruction, rows=reconstruction.rows * np.nan)

    changed = {"pseudoinverse": broken, "moments": wild}
    spoilt = [replace(ATTACKS[name], function=function) for name, function in changed.items()]
    result = sound(audited(*parts, attacks=[*spoilt, "procrustes"], **QUICK))
    outcomes = {outcome.attack: outcome for outcome in result.points[0].outcomes}
    for attack in changed:
        assert outcomes[attack].reason
        assert not outcomes[attack].figures
    assert result.trustworthy


# --- what is asked for ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "what", "got"),
    [
        ({"attacks": ["guess"]}, "attack", "'guess'"),
        ({"targets": [0, 1]}, "targets", "[0, 1]"),
        ({"targets": []}, "targets", "[]"),
        ({"targets": [9]}, "target", "9"),
        ({"colluders": [4]}, "colluders", "[4]"),
        ({"colluders": [0, 1, 2, 3]}, "targets", "[]"),
        ({"methods": ["x"]}, "method", "'x'"),
        ({"points": []}, "points", "none"),
        ({"n_components": 9}, "n_components", "9"),
        ({"n_components": 3, "projection": "none"}, "n_components", "3"),
        ({"n_components": 3, "projection": "public-svd"}, "projection", "'public-svd'"),
        ({"learner": "x"}, "learner", "'x'"),
        ({"n_known_rows": 500}, "n_known_rows", "500"),
        (
            {"evaluation": EvaluationSpec(columns=(Column("a", "number", 0, 1),))},
            "evaluation.columns",
            "columns with 1",
        ),
    ],
)
def test_what_cannot_be_audited_is_refused(
    parts: Parts, options: dict[str, Any], what: str, got: str, refused: Refused
) -> None:
    refused(lambda: audited(*parts, **{**QUICK, **options}), what, "", got)


def test_a_study_of_one_and_labels_beside_a_deal_are_refused(parts: Parts, refused: Refused) -> None:
    rows, labels = parts
    refused(lambda: audited(rows[:1], labels[:1], **QUICK), "datasets", "two", "1")
    deal = Partition.from_parts(rows, labels, rng=np.random.default_rng(0))
    refused(lambda: audited(deal, labels, **QUICK), "labels", "absent if", "arrays")


@pytest.mark.parametrize("device", ["cuda", "gpu"])
def test_a_device_that_is_not_there_is_refused(parts: Parts, device: str, refused: Refused, torch: Any) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    refused(lambda: audited(*parts, device=device, **QUICK), "device", "", device)


def test_an_audit_on_torch_finds_what_one_on_numpy_finds(parts: Parts, single: AuditResult, torch: Any) -> None:
    """'cpu:0' takes the same branches of the code as 'cuda'."""
    other = audited(*parts, n_components=3, targets=[1], device="cpu:0", **QUICK)
    for mine, theirs in zip(single.points[0].outcomes, other.points[0].outcomes, strict=True):
        assert (mine.attack, mine.reason) == (theirs.attack, theirs.reason)
        if "centred_error" in mine.figures and not mine.attack.startswith("independent"):
            assert mine.figures["centred_error"].value == pytest.approx(theirs.figures["centred_error"].value, abs=1e-3)
    assert other.points[0].deployed == single.points[0].deployed


# --- lenses -----------------------------------------------------------------------------------------------------------


def test_rows_of_one_person_are_linked_across_records() -> None:
    """Each person has four nearly equal rows; the rows held out tell who a rebuilt row is."""
    rng = np.random.default_rng(0)
    people = 3.0 * rng.standard_normal((60, 5))
    who = np.repeat(np.arange(60), 4)
    rows = np.split(people[who] + 0.05 * rng.standard_normal((240, 5)), 3)
    result = sound(audited(rows, attacks=["procrustes"], evaluation=EvaluationSpec(groups=who), **QUICK))
    worst = result.points[0].worst("identity_linkage")
    figure = worst[1]
    assert figure.chance == 0.1
    assert figure.value > 0.8
    assert figure.floor == 1.0
    assert figure.control < 0.4  # type: ignore[operator]


def test_an_attribute_that_is_not_shared_is_inferred(parts: Parts) -> None:
    rows = np.concatenate(parts[0])
    attribute = (rows[:, 0] > np.median(rows[:, 0])).astype(int)
    result = sound(audited(*parts, attacks=["procrustes"], evaluation=EvaluationSpec(attribute=attribute), **QUICK))
    worst = result.points[0].worst("attribute")
    assert worst[1].value > 0.8
    assert worst[1].control < worst[1].value  # type: ignore[operator]
    assert worst[1].interval.known
    number = EvaluationSpec(attribute=rows @ np.ones(5), attribute_kind="number")
    worst = audited(*parts, attacks=["procrustes"], evaluation=number, **QUICK).points[0].worst("attribute")
    assert worst[1].value > 0.8


def test_attributes_that_cannot_be_learned_are_left_out(parts: Parts) -> None:
    constant = EvaluationSpec(attribute=np.zeros(320, dtype=int))
    assert audited(*parts, attacks=["procrustes"], evaluation=constant, **QUICK).points[0].worst("attribute") is None


def test_an_auditor_compares_decoded_rows(parts: Parts) -> None:
    seen: list[int] = []

    def embedding(rows: np.ndarray) -> np.ndarray:
        seen.append(rows.shape[1])
        return rows[:, :3]

    result = sound(
        audited(*parts, n_components=3, attacks=["procrustes"], evaluation=EvaluationSpec(embedding=embedding), **QUICK)
    )
    worst = result.points[0].worst("exact_source_linkage")
    assert set(seen) == {5}
    assert worst[1].chance == 0.1
    assert worst[1].control is not None
    assert worst[1].floor >= worst[1].value - 0.1  # type: ignore[operator]


@pytest.fixture(scope="module")
def digits() -> AuditResult:
    pytest.importorskip("skimage")
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    rows = [images[k * 60 : (k + 1) * 60] / 16 for k in range(3)]
    labels_of_sites = [labels[k * 60 : (k + 1) * 60].astype(np.int64) for k in range(3)]
    attacks, evaluation = ["procrustes", "alignment-map", "principal-axes"], EvaluationSpec(image_shape=(8, 8))
    return audited(rows, labels_of_sites, n_components=10, attacks=attacks, evaluation=evaluation, **QUICK)


def test_figures_of_images_are_as_on_record(digits: AuditResult) -> None:
    check_record(RECORD, "digits", figures_of_audit(digits), rel=3e-3, abs=1e-4)


def test_images_are_measured_and_kept_for_the_strongest_attack(digits: AuditResult) -> None:
    result = sound(digits).points[0]
    worst = result.worst()
    for outcome in result.outcomes:
        assert ("psnr" in outcome.figures) == ("ssim" in outcome.figures) == (outcome.attack == worst[0])
    psnr = result.worst("psnr")
    assert psnr[1].control < psnr[1].value <= psnr[1].floor  # type: ignore[operator]
    assert result.examples.attack == worst[0]
    shown = {name: np.asarray(rows) for name, rows in result.examples.rows.items()}
    assert set(shown) == {"original", "projection only", "rebuilt", "guessed without the upload"}
    for rows in shown.values():
        assert rows.shape == (6, 64)
        assert rows.min() >= 0.0
        assert rows.max() <= 1.0
    error = {name: np.linalg.norm(rows - shown["original"]) for name, rows in shown.items()}
    assert 0 == error["original"] < error["projection only"] <= error["rebuilt"]
    assert len(list_images(digits)) >= 4


def test_without_examples_no_row_leaves_the_audit(parts: Parts, tmp_path: Path) -> None:
    rows = [part.copy() for part in parts[0]]
    for part in rows:
        part[:, 4] = 77.123  # a canary in every row
    options: dict[str, Any] = {**QUICK, "attacks": ["procrustes"]}
    with_rows = audited(rows, parts[1], evaluation=EvaluationSpec(n_examples=7), **options)
    assert "77.123" in with_rows.to_json()
    assert len(with_rows.points[0].examples.rows["original"]) == 7
    shown = np.array([*with_rows.points[0].examples.rows.values()])
    assert np.array_equal(shown, shown.round(3))  # what a page shows of a cell, and no more
    without = audited(rows, parts[1], evaluation=EvaluationSpec(n_examples=0), folder=tmp_path, **options)
    assert without.points[0].examples is None
    drawn = [repr(figure) for figure in draw_audit(without).values()]
    for text in (without.to_json(), *drawn, *(path.read_text() for path in tmp_path.iterdir())):
        assert "77.1" not in text
        assert "77.0" not in text


def test_examples_are_taken_out_of_what_an_earlier_run_left(parts: Parts, tmp_path: Path) -> None:
    options = {**QUICK, "attacks": ["procrustes"], "folder": tmp_path}
    audited(*parts, evaluation=EvaluationSpec(n_examples=1), **options)
    (first,) = tmp_path.glob("point-*.json")
    assert json.loads(first.read_text())["examples"] is not None
    audited(*parts, evaluation=EvaluationSpec(n_examples=0), **options)
    kept = list(tmp_path.glob("point-*.json"))
    assert len(kept) == 2
    assert all(json.loads(path.read_text())["examples"] is None for path in kept)
    for left in ('{"examples": {}, "x": NaN}', "{}", "no JSON"):  # not of an audit's writing
        first.write_text(left)
        mooring.audit.results.checkpoints._take_examples_out(first)
        assert not first.exists()


def test_one_target_that_an_attack_cannot_touch_does_not_hide_the_others(parts: Parts) -> None:
    """Independent components need more rows than columns; the third participant has too few."""
    rows, labels = parts
    short = [rows[0], rows[1], rows[2][:7]], [labels[0], labels[1], labels[2][:7]]
    options = {**QUICK, "methods": ["i-gdp"], "attacks": ["independent-components"]}
    both = audited(*short, targets=[1, 2], **options).points[0].outcomes[0]
    alone = audited(*short, targets=[1], **options).points[0].outcomes[0]
    neither = audited(*short, targets=[2], **options).points[0].outcomes[0]
    assert both.applies
    assert alone.applies
    assert not neither.applies


NUMBER = r"[-+−]?\d[\d.]*%?"


def test_every_figure_of_the_first_sentences_is_one_of_the_chosen_point(every: AuditResult) -> None:
    alone = every.references.local_only
    for k, point in enumerate(every.points):
        chosen = replace(every, chosen=k)
        scores = f"{alone.with_interval()} {point.deployed.with_interval()} {point.gain}"
        known = {"80%", f"{point.gain.n}", *re.findall(NUMBER, scores)}
        for measure in ("centred_error", "exposed_tenth", "linkage"):
            text = point.worst(measure)[1].describe()
            known |= {text.value, text.chance, text.control, *(text.interval or ())}
        about = point.gain.sentence().rpartition("about ")[2].split(" ")[0] if point.gain.n_needed else ""
        words = f"{chosen.headline} {chosen.joining}".replace(f"about {about} ", "").replace(point.title, "")
        assert point.title in chosen.headline
        assert point.title in chosen.joining
        assert set(re.findall(NUMBER, words.replace(". ", " "))) <= known
        for measure in ("centred_error", "linkage"):
            assert f"'{point.worst(measure)[0]}'" in words
        assert not any(other.title in words for other in every.points if other.title not in point.title)


def test_without_a_choice_the_headline_is_the_worst_point_that_a_study_can_use(every: AuditResult) -> None:
    """C-GDP leaks as much as any, and no study can have it."""
    noisy = replace(
        every, points=tuple(point for point in every.points if point.point.method not in ("aa-i-gdp", "i-gdp"))
    )
    usable = [point for point in noisy.points if METHODS[point.point.method].uses_anchor]
    headline = noisy.headline_point
    assert headline in usable
    assert headline.worst()[1].value == min(other.worst()[1].value for other in usable)
    assert headline.worst()[1].value > min(other.worst()[1].value for other in noisy.points)
    assert headline.title in noisy.headline
    assert not noisy.headline_point.title.startswith("C-GDP")
    assert AuditResult.from_json(replace(every, chosen=2).to_json()).chosen == 2


def test_an_audit_with_few_attacks_says_so_first(parts: Parts) -> None:
    result = audited(*parts, **{**QUICK, "attacks": ["pseudoinverse"]})
    assert f"1 of {len(ON_ROWS)}" in result.headline


def test_a_colluder_unlike_the_target_is_warned_of(parts: Parts) -> None:
    rows, labels = parts
    strange = audited([rows[0] + 30.0, *rows[1:]], labels, **{**QUICK, "attacks": ["procrustes"]})
    alike = audited(rows, labels, **{**QUICK, "attacks": ["procrustes"]})
    assert len(strange.warnings) == len(alike.warnings) + 1


def test_joining_is_judged_by_paired_differences_on_the_same_rows(every: AuditResult) -> None:
    """At every point the difference of the two scores, with an interval of its own; older results have none."""
    for point_result in every.points:
        gain = point_result.gain
        assert gain.value == pytest.approx(point_result.deployed.value - every.references.local_only.value)
        assert gain.n == point_result.deployed.n
        assert gain.low < gain.value < gain.high
        # both score the same rows: narrower than the joint model's interval against a point would have it
        assert gain.high - gain.low < 1.5 * (point_result.deployed.high - point_result.deployed.low)
    plain = json.loads(every.to_json())
    for point in plain["points"]:
        del point["gain"]
    older = AuditResult.from_json(json.dumps(plain))
    assert older.points[0].gain is None


def test_rows_of_one_person_count_once_in_the_comparison(parts: Parts) -> None:
    rows, labels = parts
    groups = np.arange(sum(len(part) for part in labels)) // 4
    options = {**QUICK, "attacks": ["procrustes"]}
    by_row, by_person = (
        audited(rows, labels, evaluation=EvaluationSpec(groups=given), **options).points[0].gain
        for given in (None, groups)
    )
    assert by_person.value == by_row.value
    assert (by_person.low, by_person.high) != (by_row.low, by_row.high)


def test_noise_is_said_in_the_unit_of_the_rows(parts: Parts) -> None:
    """σ itself, as many digits as a study has, and never in units of s."""
    grid = {"methods": ["aa-i-gdp-data-noise"], "data_noise_scales": [0.7], "attacks": ["procrustes"]}
    result = audited(*parts, **grid, noise_unit=NoiseUnit.ENCODED)
    (point,) = result.points
    assert point.data_noise_scale == pytest.approx(0.7)
    assert point.point.data_noise_level != pytest.approx(0.7, rel=0.1)
    assert point.title.endswith("σ = 0.7")
    assert AuditResult.from_json(result.to_json()).points[0].title == point.title
    assert point.title in result.headline
    assert result.noise_unit is NoiseUnit.ENCODED
    assert "between −1 and 1" in result.noise_unit.words
    assert [unit.in_study(0.5) for unit in NoiseUnit] == [0.5, None, 1.0, None]


def test_without_scikit_image_only_the_image_figures_are_missing(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skimage.metrics", None)
    rows = [np.clip(np.tile(part, 13)[:, :64], 0, 1) for part in parts[0]]
    evaluation = EvaluationSpec(image_shape=(8, 8))
    result = audited(rows, parts[1], evaluation=evaluation, n_components=4, **{**QUICK, "attacks": ["procrustes"]})
    (worst,) = [o for o in result.points[0].outcomes if any("scikit-image" in note for note in o.notes)]
    assert "ssim" not in worst.figures
    assert "centred_error" in worst.figures


def test_the_mean_of_one_score_or_two_has_the_mean_of_their_intervals() -> None:
    one, other = (Score("accuracy", value, value - 0.1, value + 0.2, 9) for value in (0.3, 0.5))
    assert mean_score([one]) == one
    both = mean_score([one, other])
    assert (both.value, both.low, both.high) == pytest.approx((0.4, 0.3, 0.6))


def test_the_interval_of_training_alone_is_that_of_a_mean_over_participants() -> None:
    """0.2, 0.4, 0.6, 0.8: mean 0.5, standard deviation 0.258, and 1.96 times half of it is 0.253."""
    mean = mean_score([Score("balanced accuracy", value, 0.0, 1.0, 9) for value in (0.2, 0.4, 0.6, 0.8)])
    assert (mean.value, mean.low, mean.high) == pytest.approx((0.5, 0.247, 0.753), abs=1e-3)
    ends = [mean_score([Score(name, value, -9.0, 1.0, 9) for value in (-0.9, 0.0, 0.9)]) for name in ("R²", "accuracy")]
    assert [end.low for end in ends] == [pytest.approx(-1.018, abs=1e-3), 0.0]
    assert [end.high for end in ends] == [1.0, 1.0]
