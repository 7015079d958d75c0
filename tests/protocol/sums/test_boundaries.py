"""Where what parties of secure sums send, and what a participant's own check looks at, begins to be refused or left out."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mooring.audit import AuditDescription, AuditResult, PointResult, References, SumPoint
from mooring.audit.results.decision import Finding
from mooring.errors import InputError, RefusedError
from mooring.mechanisms.sums.prime_field import LARGEST, PRIME, encode_signed
from mooring.mechanisms.sums.sums import PersonCounts
from mooring.protocol.exchange_types import GatherOptions, TrainOptions
from mooring.protocol.participant.role import Participant
from mooring.protocol.registry import exchange_of
from mooring.protocol.storage.vault import Floors
from mooring.protocol.sums import exchange, features
from mooring.protocol.sums.analyst import total
from mooring.protocol.sums.analyst.total import open_total
from mooring.protocol.sums.answers import read_combined_share, write_combined_share, write_receipt
from mooring.protocol.sums.bundle import verify_sum_bundle, write_extract, write_sum_bundle
from mooring.protocol.sums.participant import inspection
from mooring.protocol.sums.participant.table_sums import _PersonWeights
from mooring.protocol.sums.result import specify_sum_model
from mooring.protocol.sums.scheme import sum_scheme
from mooring.tables import Partition, encoded_batches
from mooring.tables.encoder import EncodedRows
from mooring.tables.schema import Label
from tests.protocol.sums.support import SumStudy, make_sum_study
from tests.protocol.sums.test_secure_sums import list_entries, signed_list
from tests.protocol.sums.test_sums_by_class import picture_study
from tests.raising import raising


def study_without_noise(folder: Path, p: int = 2, **settings: Any) -> SumStudy:
    return make_sum_study(folder, p, epsilon=None, least_rows=80, **settings)


def share_by(given: SumStudy, people: range) -> list[Path]:
    return [given.share(i, data=given.table(i, 80)) for i in people]


def test_a_share_holds_numbers_of_the_field(folder: Path) -> None:
    given = study_without_noise(folder)
    size, key = sum_scheme(given.study).layout.size, given.vaults[0].signing_key
    for largest, fine in ((PRIME - 1, True), (PRIME, False)):
        elements = np.zeros(size, dtype=np.uint64)
        elements[-1] = largest
        write_combined_share(
            path := folder / "p0.share", given.study, elements, combiner=1, list_digest="0" * 64, signer=key
        )
        if fine:
            assert read_combined_share(path, given.study).elements.max() == largest
        else:
            with raising(RefusedError, "the share", reason="no share has"):
                read_combined_share(path, given.study)


@pytest.mark.parametrize(("largest", "reason"), [(LARGEST // 2, "what no rows have"), (LARGEST // 2 + 1, "no sums")])
def test_a_total_uses_half_of_the_field_as_the_other_half_is_for_noise(
    largest: int, reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = study_without_noise(folder)
    share_by(given, range(2))
    given.close()
    for i in (0, 1):
        given.combine(i)
    vector = np.full(sum_scheme(given.study).layout.size, -largest, dtype=np.int64)
    monkeypatch.setattr(total, "decode_signed", lambda _: vector)
    monkeypatch.setattr(total, "_check_content", lambda *_: ["what no rows have"])
    with raising(RefusedError, "the total", reason=reason):
        open_total(given.study, given.work, given.inbox)


def test_no_extract_is_made_of_a_bundle_that_was_replaced_since_it_was_verified(folder: Path) -> None:
    """By another one that its sender signed as well."""
    given = study_without_noise(folder)
    bundle = verify_sum_bundle(*share_by(given, range(1)), given.study)
    zeros: Any = np.zeros(sum_scheme(given.study).layout.size, dtype=np.uint64)
    write_sum_bundle(bundle.path, given.study, encode_signed(zeros.astype(np.int64)), given.vaults[0].signing_key)
    with raising(RefusedError, "the bundle", reason="changed after"):
        write_extract(bundle, given.study, 1, folder / "part")
    assert not (folder / "part").exists()


def test_too_few_bundles_for_a_list_are_counted_with_those_that_failed_a_test(folder: Path) -> None:
    given = study_without_noise(folder, 4, quorum=4)
    share_by(given, range(4))
    (_, failed), *others = list_entries(given)
    passed = {failed: False} | {digest: True for _, digest in others}
    write_receipt(given.inbox / "p1.receipt", given.study, passed, combiner=2, signer=given.vaults[1].signing_key)
    with raising(InputError, "bundles", expected="4 participants", got="3 of 4"):
        given.close(receipts=given.inbox)


def labelled(n: int, n_classes: int, seed: int = 0) -> EncodedRows:
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1, 1, (n, 2))
    return EncodedRows(rows, np.arange(n) % n_classes, rows, 1)


class Dealt(Exception):
    """The rows were split, and the attack would begin."""


@pytest.mark.parametrize(
    ("n_rows", "n_classes", "sizes"),
    [
        (16, 2, [4, 8, 0, 4]),
        (15, 2, None),
        (16, 1, None),
        (2000, 3, [500, 1000, 0, 500]),
        (2003, 3, [500, 1000, 0, 500]),  # of more, 2,000 are drawn
    ],
)
def test_of_ones_own_rows_a_quarter_attacks_a_half_beside_a_quarter_that_is_not_in_it(
    n_rows: int, n_classes: int, sizes: list[int] | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, part_sizes = make_sum_study(folder, p=2).study, list[int]()

    def deal(rows: list[np.ndarray], _: object, *, test: list[np.ndarray], **__: object) -> None:
        part_sizes.extend(len(part) for part in (*rows, *test))
        raise Dealt

    monkeypatch.setattr(inspection, "Partition", SimpleNamespace(from_parts=deal))
    if sizes is None:
        assert inspection._attack(study, labelled(n_rows, n_classes), 0) is None
        return
    with pytest.raises(Dealt):
        inspection._attack(study, labelled(n_rows, n_classes), 0)
    assert part_sizes == sizes


def test_a_check_attacks_a_total_in_which_one_honest_contribution_carries_the_noise(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores of models of parts of one's own rows are left out: they say nothing about joining."""
    study, asked = make_sum_study(folder, p=2, epsilon=2.0).study, dict[str, Any]()

    def audit(parts: Partition, **options: Any) -> AuditResult:
        asked.update(options, n_parts=parts.n_participants)
        results = tuple(PointResult(point, predicts_one_of=3) for point in options["points"])
        return AuditResult(AuditDescription(), References(None, None, 2), results, ("a warning",))

    monkeypatch.setattr(inspection, "run_audit", audit)
    attacked = inspection._attack(study, labelled(40, 3), 0)
    assert attacked is not None
    points = [(point.epsilon, point.quorum, point.n_colluders) for point in asked["points"]]
    assert points == [(2.0, 2, 1), (None, 2, 1)]
    assert asked["chosen"] == asked["points"][0]
    assert (asked["n_parts"], asked["settings"].colluders, asked["settings"].targets) == (2, (0,), (1,))
    assert (attacked.references, attacked.warnings) == (References(None, None, 0), ())
    assert [result.predicts_one_of for result in attacked.points] == [0, 0]


@pytest.mark.parametrize(("expected_rows", "n_rows"), [(0, 240), (500, 500)])
def test_ones_own_rows_are_taken_for_everybodys_where_no_number_is_expected(
    expected_rows: int, n_rows: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, asked = make_sum_study(folder, p=4, expected_rows=expected_rows).study, list[dict[str, Any]]()
    monkeypatch.setattr(inspection, "forecast_sums", lambda _, **options: asked.append(options))
    inspection._forecast(study, rows := labelled(60, 3), 60)
    assert asked == [{}, {"n_rows": n_rows, "encoded": rows}]


@pytest.mark.parametrize(("n_rows", "n_warnings"), [(40, 0), (41, 1)])
def test_a_check_of_a_sample_says_so(
    n_rows: int, n_warnings: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attacked = AuditResult(AuditDescription(), References(None, None, 0), (PointResult(SumPoint(1.0, 1e-5, 2, 1)),))
    for name, result in (("_attack", attacked), ("measure_local_only", None), ("_forecast", (None, None))):
        monkeypatch.setattr(inspection, name, lambda *_, result=result: result)
    monkeypatch.setattr(inspection, "_verdict", lambda *_: "")
    study = make_sum_study(folder, p=2).study
    assert len(inspection.inspect(study, labelled(40, 3), n_rows=n_rows).warnings) == n_warnings


def person_blocks(given: SumStudy, names: list[str], rows_at_once: int = 8) -> Iterator[EncodedRows]:
    table = given.table(0, len(names), names)
    return encoded_batches(given.study.schema, table, person="who", unfit="adapt", rows_at_once=rows_at_once)


@pytest.mark.parametrize("rows_per_person", ["mean", 2])
def test_a_table_whose_persons_changed_between_its_two_readings_is_refused(folder: Path, rows_per_person: Any) -> None:
    given = make_sum_study(folder, p=2, person="who", rows_per_person=rows_per_person)
    names = [f"id {k // 2}" for k in range(20)]

    def weigh(second: list[str]) -> None:
        weights = _PersonWeights(given.vaults[0], given.study, person_blocks(given, names))
        for block in person_blocks(given, second):
            weights.next_rows(block, np.ones(len(block.rows), dtype=np.bool_))
        weights.require_end()

    weigh(names)
    for changed in (names[:-1], [*names, "id 0"], [*names[:4], *names[6:], "new", "new"], names[:16]):
        with raising(InputError, "rows of a person"):
            weigh(changed)


def test_rows_beyond_a_persons_most_are_told_where_there_is_a_most(folder: Path) -> None:
    persons = PersonCounts()
    persons.add(np.array([1.0] * 9 + [2.0]))
    for rows_per_person, n_sentences in (("mean", 0), (8, 1), (9, 0)):
        study = make_sum_study(folder / f"{rows_per_person}", 2, person="who", rows_per_person=rows_per_person).study
        assert len(exchange_of(study).describe_persons(study, persons)) == n_sentences


@pytest.mark.parametrize(
    ("epsilon", "pooled", "reason"),
    [(8.0, 1000.0, ""), (8.1, 1000.0, "epsilon of 8.1"), (8.0, 1001.0, "pool keys"), (None, None, "no noise")],
)
def test_a_vault_takes_part_up_to_an_epsilon_of_8_and_of_1000_pooled_unless_its_owner_says_otherwise(
    epsilon: float | None, pooled: float | None, reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_sum_study(folder, p=2, epsilon=epsilon, least_rows=80).study
    scheme = SimpleNamespace(pooled_epsilon=pooled, threshold=SimpleNamespace(threshold=2))
    monkeypatch.setattr(exchange, "sum_scheme", lambda _: scheme)
    if not reason:
        exchange_of(study).require_floors(study, Floors())
    else:
        with raising(RefusedError, "the study", reason=reason):
            exchange_of(study).require_floors(study, Floors())


@pytest.mark.parametrize("sizes", [(6000, 4000, 5), (6000, 6000), (10_001,), (10_000,)])
def test_features_are_fitted_to_the_first_ten_thousand_public_pictures(
    sizes: tuple[int, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, seen, read = picture_study(folder).study, list[np.ndarray](), list[int]()
    rows = np.random.default_rng(0).uniform(-1, 1, (sum(sizes), 16))

    def batches() -> Iterator[np.ndarray]:
        for part in np.split(rows, np.cumsum(sizes)[:-1]):
            read.append(len(part))
            yield part

    def fit(of: Any, grey: np.ndarray) -> Any:
        assert of.n_channels == 1
        seen.append(grey)
        return SimpleNamespace(projection=SimpleNamespace(mean=grey.mean(axis=0), matrix=grey[:2]))

    monkeypatch.setattr(features, "fit_to_public", fit)
    features.fit_features(study, batches)
    np.testing.assert_allclose(seen[0], rows[:10_000])
    assert len(read) == (2 if len(sizes) > 1 else 1)  # what nobody uses is not read


@pytest.mark.parametrize(("n", "fine"), [(12, True), (11, False), (0, False)])
def test_features_need_as_many_public_pictures_as_there_are_of_them(
    n: int, fine: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, rows = picture_study(folder).study, np.random.default_rng(0).uniform(-1, 1, (n, 16))
    fitted = SimpleNamespace(projection=SimpleNamespace(mean=rows, matrix=rows))
    monkeypatch.setattr(features, "fit_to_public", lambda *_: fitted)
    if fine:
        features.fit_features(study, lambda: [rows])
    else:
        with raising(InputError, "public rows", expected="12 ", got=str(n)):
            features.fit_features(study, lambda: [rows] if n else [])


def test_a_list_names_a_contribution_at_least_and_no_more_than_there_are_participants(folder: Path) -> None:
    given = study_without_noise(folder)
    share_by(given, range(2))
    entries = list_entries(given)
    for listed in ([], [*entries, entries[0]]):
        with raising(RefusedError, "the file", reason="more entries"):
            given.combine(0, closing=signed_list(given, listed))


@pytest.mark.parametrize("epsilon", [1.0, None])
def test_a_study_of_sums_says_what_pooled_keys_show_and_what_the_guarantee_advises(
    epsilon: float | None, folder: Path
) -> None:
    study = make_sum_study(folder, 4, epsilon=epsilon, least_rows=2000, expected_rows=4000, questions=("tables",)).study
    described, pooled = dict(exchange_of(study).describe_study(study)), sum_scheme(study).pooled_epsilon
    assert (pooled is None) == (epsilon is None)
    assert ("no noise" in described["Combiners"]) == (epsilon is None)
    assert epsilon is None or f"epsilon = {pooled:.3g}" in described["Combiners"]
    assert bool(exchange_of(study).advise_sharing(study)) == (epsilon is not None)
    draft = replace(study, participants=(), analyst=None)
    assert described.keys() - dict(exchange_of(study).describe_study(draft)).keys() == {"Combiners", "Absences"}
    assert exchange_of(study).list_warnings(draft) == []


@pytest.mark.parametrize(("p", "n_warnings"), [(3, 1), (4, 0)])
def test_a_study_whose_combiners_must_all_answer_says_so(p: int, n_warnings: int, folder: Path) -> None:
    study = make_sum_study(folder, p).study
    assert len(exchange_of(study).list_warnings(study)) == n_warnings


def test_without_a_label_no_model_is_trained_and_no_learner_refused(folder: Path) -> None:
    study = make_sum_study(folder, 2, questions=("tables",)).study
    tables, pages = replace(study, label=Label()), exchange_of(study)
    assert (pages.list_learners(tables), len(pages.list_learners(study)) > 1) == (("auto",), True)
    pages.require_learner(tables, "svm")
    with raising(InputError, "learner"):
        pages.require_learner(study, "svm")
    for without in (tables, replace(study, mechanism=replace(study.mechanism, questions=("model",)))):
        with raising(RefusedError, "the model", reason="does not predict"):
            specify_sum_model(without, "height" if without.label.classes else "")
    with raising(InputError, "--shares"):
        pages.train(study, folder, TrainOptions())
    with raising(InputError, "signing_key"):
        pages.gather(study, (), folder, GatherOptions())


def test_features_that_are_fitted_anew_lose_the_digest_of_the_old_ones(folder: Path) -> None:
    entries: dict[str, Any] = {"features": "pictures", "n_features": 12, "features_digest": "0" * 64}
    prepare = exchange_of(make_sum_study(folder, 2).study).prepare_public_file
    assert prepare(entries, None) == {"features": "pictures", "n_features": 12}
    assert prepare(entries, 5) == {"features": "pictures", "n_features": 5}


def test_without_noise_a_limit_on_what_attacks_may_find_is_weighed_by_the_attack_on_ones_own_rows(folder: Path) -> None:
    given = study_without_noise(folder, upload_limits=("membership at most 5 %",))
    inspection = Participant(given.study, given.vaults[0]).check(given.table(0, 200))
    assert inspection.self_attack is not None
    assert inspection.decision is not None
    assert inspection.decision.answer == "do not share"
    (finding,) = (reason for reason in inspection.decision.reasons if isinstance(reason, Finding))
    assert finding.limit == 0.05 < finding.value
