"""The studies of tables and the landscape, on small made-up files and on scikit-learn's digits."""

import contextlib
import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from mooring_studies.comparison.results import Results
from mooring_studies.data import tables as tabular_data
from mooring_studies.data.tables import TableRows, load_census, load_hospitals
from mooring_studies.settings.sections import convert
from mooring_studies.settings.spec import Spec
from mooring_studies.storage.store import FACTS, ResultStore
from mooring_studies.tabular import jobs, landscape
from mooring_studies.tabular.deployment import Deployment, Point, leakage, make_deployment
from mooring_studies.tabular.landscape import LandscapeOptions, run_landscape
from mooring_studies.tabular.scores import scored, utility
from mooring_studies.tabular.study import TableOptions, partition_tables, run_tables

from mooring.attacks import ATTACKS
from mooring.errors import InputError, StorageError
from mooring.mechanisms import no_projection, public_svd_projection
from mooring.mechanisms.sums import PictureFeatures
from mooring.randomness import Streams
from mooring.tables import Column, Partition
from tests.raising import raising
from tests.studies.support import Counting

DENOISED = ("denoised", "kernel", "grid")
NOISY = ["aa-i-gdp-anchor-noise", "aa-i-gdp-data-noise", "aa-i-gdp-both-noise"]
SIZES = {"cleveland": 60, "hungarian": 50, "switzerland": 30, "va": 40}
OPTIONS: dict[str, Any] = {
    "source": "hospitals", "n_participants": 4, "rows_each": [0], "test_share": 0.3, "public_share": 0.0,
    "n_components": 0, "learners": ["linear", "svm"], "anchor_noise": [0.05, 0.4], "data_noise": [0.3, 2.0],
    "both_anchor": [0.1], "both_data": [0.5], "draws": 2,
    "attacks": ["known-secret", "known-anchor", "procrustes", "moments", "joint-moments"], "n_queries": 20,
    "alone": 4,
}  # fmt: skip


def heart_line(rng: np.random.Generator, ill: bool) -> str:
    """One patient: numbers that lean with the illness, a 0 for cholesterol and a gap now and then."""
    age, pressure, rate = rng.normal(50 + 8 * ill, 8), rng.normal(130, 15), rng.normal(150 - 20 * ill, 15)
    cholesterol = 0 if rng.random() < 0.2 else round(rng.normal(240, 40))
    pain, ecg, slope, thallium = rng.integers(1, 5), rng.integers(0, 3), rng.integers(1, 4), rng.choice([3, 6, 7])
    vessels = "?" if rng.random() < 0.3 else str(rng.integers(0, 4))
    sugar, angina = rng.integers(0, 2), int(rng.random() < 0.2 + 0.5 * ill)
    fields = [f"{age:.0f}", rng.integers(0, 2), pain, f"{pressure:.0f}", cholesterol, sugar, ecg, f"{rate:.0f}", angina]
    fields += [f"{rng.normal(1 + ill):.1f}", slope if rng.random() > 0.2 else -9, vessels, thallium]
    fields += [rng.integers(1, 5) if ill else 0]
    return ",".join(str(field) for field in fields)


def write_heart(folder: Path, sizes: dict[str, int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    header = ",".join(f"X{k}" for k in range(1, 15))
    for hospital, n in sizes.items():
        lines = [header, *(heart_line(rng, bool(k % 2)) for k in range(n))]
        (folder / f"processed.{hospital}.data").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def small_hospitals() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tabular_data, "HOSPITALS", SIZES)
        yield


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of files that no test changes."""
    folder = tmp_path_factory.mktemp("data")
    write_heart(folder / "heart_disease", SIZES)
    return folder


@pytest.fixture
def heart(hospitals: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(hospitals, tmp_path / "data"))


def table_spec(**options: Any) -> Spec:
    return Spec(name="hospitals", title="", kind="tables", seed=3, deployments=2, options=OPTIONS | options)


def run(spec: Spec, data_dir: Path, folder: Path, progress: Counting | None = None) -> tuple[list[dict], dict]:
    """What the study leaves: its rows, and its facts."""
    study: Callable[..., None] = run_tables if spec.kind == "tables" else run_landscape
    with ResultStore(folder, "key", {}) as store:
        with contextlib.suppress(KeyboardInterrupt):
            study(spec, data_dir=data_dir, store=store, progress=progress or Counting())
        return store.rows(), store.kept(FACTS) or {}


# --- the files -------------------------------------------------------------------------------------------------------


def test_hospitals_are_groups_in_order_and_the_label_is_any_illness(heart: Path) -> None:
    records = load_hospitals(heart).records
    assert records.group_names == ("cleveland", "hungarian", "switzerland", "va")
    assert np.bincount(records.groups).tolist() == list(SIZES.values())
    assert records.label_names == ("ill", "well")
    assert np.bincount(records.labels).tolist() == [sum(n // 2 for n in SIZES.values())] * 2


def test_what_nobody_measured_is_missing_and_not_zero(heart: Path) -> None:
    tables = load_hospitals(heart)
    names = tables.records.feature_names
    unknown = tables.columns["X5"].is_null().to_numpy()
    assert 0.1 < unknown.mean() < 0.3
    np.testing.assert_array_equal(unknown, tables.records.rows[:, names.index("X5: missing")] == 1)
    train = dealt_of(tables).train[0]
    filled = train[train[:, names.index("X5: missing")] == 1, names.index("X5")]
    assert np.unique(filled).size == 1  # the median, in place of zeros far below all others
    assert abs(filled[0]) < 0.5
    assert "X11=missing" in names  # -9 among categories
    assert "X12: missing" in names  # ? among numbers


@pytest.mark.parametrize("damage", ["fewer lines", "half a line", "words", "half a gz"])
def test_half_a_file_is_refused_with_the_cure(heart: Path, damage: str) -> None:
    path = heart / "heart_disease" / "processed.cleveland.data"
    text = path.read_text(encoding="utf-8")
    if damage == "half a gz":
        path.unlink()
        whole = gzip.compress(text.encode())
        path.with_name(f"{path.name}.gz").write_bytes(whole[: len(whole) // 2])
    else:
        lines = text.splitlines()
        broken = {
            "fewer lines": lines[:-5],
            "half a line": [*lines[:-1], "63,1,1"],
            "words": [*lines[:-1], "x," * 13 + "x"],
        }
        path.write_text("\n".join(broken[damage]), encoding="utf-8")
    with raising(StorageError, cure="UCI"):
        load_hospitals(heart)


def test_the_census_is_one_table_of_both_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabular_data, "CENSUS_FILES", {"adult.data": 2, "adult.test": 2})
    who = "{}, Private, 1, HS-grad, {}, Divorced, Sales, Wife, White, {}, 0, {}, 40, Peru, {}\n"
    (tmp_path / "adult.data").write_text(
        who.format(30, 9, "Male", 0, "<=50K") + who.format(40, 10, "Female", 5, ">50K")
    )
    test = "|1x3 Cross validator\n" + who.format(50, 11, "Male", 0, "<=50K.") + who.format(60, 12, "?", 7, ">50K.")
    (tmp_path / "adult.test").write_text(test)
    records = load_census(tmp_path).records
    assert records.label_names == ("<=50K", ">50K")
    assert records.labels.tolist() == [0, 1, 0, 1]
    assert {"age", "years of education", "sex=missing", "loss"} <= set(records.feature_names)
    assert not [name for name in records.feature_names if name.startswith(("weight", "education"))]


# --- scaling ---------------------------------------------------------------------------------------------------------


def dealt_of(tables: TableRows, **options: Any) -> Partition:
    chosen = convert(OPTIONS | {"public_share": 0.1} | options, TableOptions)
    return partition_tables(tables, chosen, 0, Streams.for_experiment(4))[0]


def with_other_values(heart: Path, chosen: np.ndarray) -> TableRows:
    """The same files, but for age, cholesterol and the number of vessels in these rows; the last becomes a gap."""
    at = 0
    for hospital, n in SIZES.items():
        path = heart / "heart_disease" / f"processed.{hospital}.data"
        lines = path.read_text(encoding="utf-8").splitlines()
        for k in chosen[(chosen >= at) & (chosen < at + n)] - at:
            fields = lines[1 + k].split(",")
            fields[0], fields[4], fields[11] = "9000", "70000", "?"
            lines[1 + k] = ",".join(fields)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        at += n
    return load_hospitals(heart)


def test_no_value_of_a_test_row_has_a_part_in_the_scaling(heart: Path) -> None:
    tables = load_hospitals(heart)
    before = dealt_of(tables)
    after = dealt_of(with_other_values(heart, np.concatenate(before.test_indices)))
    age, vessels = (tables.records.feature_names.index(name) for name in ("X1", "X12"))
    for rows, other in zip((*before.train, before.public), (*after.train, after.public), strict=True):
        np.testing.assert_array_equal(rows, other)
    assert min(part[:, age].min() for part in after.test) > 100  # they were changed indeed
    assert np.unique(np.concatenate(after.test)[:, vessels]).size == 1  # the median of the others


@pytest.mark.parametrize("which", ["train", "public"])
def test_training_and_public_rows_make_the_scaling(heart: Path, which: str) -> None:
    tables = load_hospitals(heart)
    before = dealt_of(tables)
    chosen = np.concatenate(before.train_indices) if which == "train" else before.public_indices
    after = dealt_of(with_other_values(heart, chosen))
    age = tables.records.feature_names.index("X1")
    assert np.abs(before.test[0][:, age] - after.test[0][:, age]).max() > 0.1


# --- deployments ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    rng = np.random.default_rng(1)
    labels = [np.arange(60) % 2 for _ in range(8)]
    rows = [rng.standard_normal((60, 5)) * [3, 2, 1, 1, 0.5] + 2 * label[:, None] for label in labels]
    data = Partition.from_parts(rows[:4], labels[:4], test=rows[4:], test_labels=labels[4:], rng=rng)
    columns = tuple(Column(f"x{k}", "number", inferred=True, centre=0.0, spread=1.0) for k in range(5))
    sizes = {"n_anchor_rows": 20, "n_queries": 40}
    return make_deployment(data, no_projection(5), streams=Streams.for_experiment(2), columns=columns, **sizes)


def played(deployment: Deployment, method: str, draw: int = 0, v: float = 0.0, sigma: float = 0.0) -> Any:
    return deployment.simulate(Point(method, draw, v, sigma))


def test_between_draws_only_the_noise_changes(deployment: Deployment) -> None:
    first, second, again = (played(deployment, "aa-i-gdp-both-noise", draw, 0.1, 0.5) for draw in (0, 1, 0))
    for secret, other in zip(first.secrets, second.secrets, strict=True):
        np.testing.assert_array_equal(secret.orthogonal, other.orthogonal)
    assert first.anchor is second.anchor
    for name in ("representation", "anchor_representation"):
        here, there, repeated = (getattr(simulation.uploads[2], name) for simulation in (first, second, again))
        assert np.abs(here - there).min() > 0
        np.testing.assert_array_equal(here, repeated)
    tested = [
        simulation.map_new_rows(0, deployment.rows.test[0], data_noise_scale=0.5) for simulation in (first, first)
    ]
    np.testing.assert_array_equal(*tested)


def test_without_anchor_noise_a_colluder_has_every_row_exactly(deployment: Deployment) -> None:
    for method, attack in (("aa-i-gdp", "known-anchor"), ("c-gdp", "known-secret")):
        columns = leakage(deployment, played(deployment, method), attacks=OPTIONS["attacks"], seed=0)
        assert columns[f"match:{attack}"] == 1
        assert columns[f"error:{attack}"] < 1e-10
        assert 0.5 < columns["error:guessing"] < 1.2


def test_denoising_is_measured_and_helps_against_much_private_data_noise(deployment: Deployment) -> None:
    columns = leakage(
        deployment, played(deployment, "aa-i-gdp-data-noise", sigma=4.0), attacks=["known-anchor"], seed=0
    )
    assert columns["error:known-anchor+denoised"] < 0.8 * columns["error:known-anchor"]


def without_result(columns: dict[str, Any], attacks: list[str]) -> set[str]:
    """Attacks that left no column, a denoised one only where the plain one left some."""
    plain = {name for name in attacks if f"error:{name}" not in columns}
    denoised = {f"{name}+{denoiser}" for name in attacks if name not in plain for denoiser in DENOISED}
    return plain | {name for name in denoised if f"error:{name}" not in columns}


@pytest.mark.parametrize(
    ("method", "v", "sigma"),
    [
        ("c-gdp", 0.0, 0.0),
        ("i-gdp", 0.0, 0.0),
        ("aa-i-gdp", 0.0, 0.0),
        ("aa-i-gdp-anchor-noise", 0.2, 0.0),
        ("aa-i-gdp-both-noise", 0.2, 0.5),
    ],
)
def test_every_attack_has_a_result_or_a_reason(deployment: Deployment, method: str, v: float, sigma: float) -> None:
    columns = leakage(deployment, played(deployment, method, v=v, sigma=sigma), attacks=OPTIONS["attacks"], seed=0)
    wanted = without_result(columns, OPTIONS["attacks"])
    assert wanted
    assert set(columns["attacks_not_run"].split(",")) == wanted
    reasons = json.loads(columns["attacks_not_run_because"])
    assert reasons.keys() == wanted
    assert all(reason.startswith(("did not apply: ", "did not run: ")) for reason in reasons.values())
    assert ("did not run: " in str(reasons.get("procrustes"))) == (method == "aa-i-gdp")


def test_an_attack_that_failed_is_told_apart_from_one_that_does_not_apply(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(view: Any, *, rng: Any) -> Any:
        raise np.linalg.LinAlgError("Singular matrix")

    def endless(view: Any, *, rng: Any) -> Any:
        reconstruction: Any = ATTACKS["procrustes"](view, rng=rng)
        return replace(reconstruction, rows=np.full_like(reconstruction.rows, np.inf))

    def broken(value: Any, view: Any, *, rng: Any) -> Any:
        raise np.linalg.LinAlgError("SVD did not converge")

    for name, function in (("moments", failing), ("lattice", endless)):
        monkeypatch.setitem(ATTACKS, name, replace(ATTACKS[name], function=function))
    monkeypatch.setattr("mooring.audit.rotation.attempts.DENOISERS", {"gaussian": broken})
    simulation = played(deployment, "aa-i-gdp-both-noise", v=0.2, sigma=0.5)
    columns = leakage(deployment, simulation, attacks=["moments", "lattice", "procrustes", "known-anchor"], seed=0)
    reasons = json.loads(columns["attacks_not_run_because"])
    assert {name: reason.partition(":")[0] for name, reason in reasons.items()} == {
        "known-anchor": "did not apply",
        **dict.fromkeys(("moments", "lattice", "procrustes+denoised"), "failed"),
    }
    assert "error:procrustes" in columns


def test_only_the_paper_s_score_has_noise_on_test_rows(deployment: Deployment) -> None:
    quiet = utility(deployment.rows, played(deployment, "aa-i-gdp"), learners=["linear"], seed=0)
    loud = utility(deployment.rows, played(deployment, "aa-i-gdp-data-noise", sigma=3.0), learners=["linear"], seed=0)
    assert quiet["balanced_accuracy"] == quiet["balanced_accuracy_clean"]
    assert loud["balanced_accuracy"] < loud["balanced_accuracy_clean"] - 0.05
    assert loud["balanced_accuracy_clean"] > quiet["balanced_accuracy"] - 0.1


def test_each_one_s_own_score_is_over_its_own_test_rows() -> None:
    truth = [np.array([0, 1]), np.array([0, 0, 1, 1])]
    values = np.array([0, 1, 1, 0, 1, 0])
    columns = scored(truth, clean=values, noisy=1 - values)
    assert columns["own:0"] == 1.0
    assert columns["own:1"] == 0.5
    assert columns["balanced_accuracy_clean"] == pytest.approx(4 / 6)
    assert columns["balanced_accuracy"] == pytest.approx(2 / 6)
    assert "own:0" not in scored([np.array([0, 1])] * 11, clean=np.zeros(22), noisy=np.zeros(22))


# --- the studies -----------------------------------------------------------------------------------------------------


QUICK = {"anchor_noise": [0.2], "data_noise": [0.5], "both_anchor": [], "learners": ["linear"]}
QUICK |= {"attacks": ["known-anchor", "procrustes"]}


@pytest.fixture(scope="module")
def finished(hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict], dict]:
    return run(table_spec(**QUICK), hospitals, tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("projected", [{}, {"public_share": 0.2, "n_components": 8}])
def test_tables_are_attacked_through_every_denoiser_and_the_envelope_is_never_weaker_than_the_gaussian_alone(
    hospitals: Path, tmp_path: Path, projected: dict[str, Any]
) -> None:
    results = Results.from_rows(run(table_spec(**QUICK, **projected), hospitals, tmp_path)[0])
    for method, attack in zip(NOISY, ("procrustes", "known-anchor"), strict=False):
        part = results.where(method=method)
        for kind, sign in (("error", 1), ("match", -1)):
            by_name = {name: sign * part[f"{kind}:{attack}+{name}"] for name in DENOISED}
            assert np.isfinite(list(by_name.values())).all()
            assert (sign * part.envelope(kind) <= by_name["denoised"]).all()
    columns = results.where(method="aa-i-gdp-data-noise")  # cells have few values, which a Gaussian does not know
    assert columns["error:known-anchor+grid"].mean() < 0.98 * columns["error:known-anchor+denoised"].mean()


def test_attackers_of_a_table_know_its_columns_and_the_public_rows(hospitals: Path) -> None:
    options = convert(OPTIONS | {"public_share": 0.2, "n_components": 8}, TableOptions)
    streams, tables = Streams.for_experiment(4), load_hospitals(hospitals)
    records, columns, projection = partition_tables(tables, options, 0, streams)
    made = make_deployment(records, projection, n_anchor_rows=32, n_queries=20, streams=streams, columns=columns)
    view = made.simulate(Point("aa-i-gdp")).view()
    assert [column.name for column in view.columns] == [column.name for column in tables.schema.columns]
    assert sum(column.width for column in view.columns) == view.projection.n_features == records.n_features
    np.testing.assert_array_equal(view.reference_records[1], records.public)
    known, codes = np.concatenate(view.reference_records) @ projection.matrix, view.reference_codes()
    np.testing.assert_allclose(view.reference_rows, known)
    for label, guess in zip(view.codes_of([1]), made.guess, strict=True):
        np.testing.assert_allclose(guess, known[codes == label].mean(axis=0))


@pytest.mark.parametrize("steps", [1, 9])
def test_a_run_that_was_stopped_goes_on_to_the_same_rows(
    hospitals: Path, finished: tuple[list[dict], dict], tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring_studies.tabular.jobs._SECONDS_UNTIL_KEPT", 0.0)
    spec, (whole, rows_kept) = table_spec(**QUICK), finished
    some, facts = run(spec, hospitals, tmp_path, Counting(until=steps))
    assert 0 < len(some) < len(whole)
    assert facts == {}
    again, facts = run(spec, hospitals, tmp_path)
    assert again[: len(some)] == some
    assert again == whole
    assert facts["n_train"] > 0
    assert facts["attacks_not_run"] == rows_kept["attacks_not_run"] != {}  # also of rows from before the stop
    assert facts["notes"] == rows_kept["notes"]
    assert "seconds" not in facts  # stages have them, and add up those of stopped runs
    with monkeypatch.context() as nothing:  # a finished study does nothing more
        nothing.setattr(jobs, "measured", Mock(side_effect=AssertionError))
        assert run(spec, hospitals, tmp_path)[0] == whole


@pytest.mark.parametrize(
    ("change", "what", "fields"),
    [
        ({"drawz": 3}, "drawz", {"got": "a value"}),
        ({"learners": ["wave"]}, "learners", {"got": "'wave'"}),
        ({"attacks": ["procrustez"]}, "attacks", {"got": "'procrustez'"}),
        ({"source": "hospital"}, "source of [options]", {"got": "'hospital'"}),
        ({"n_components": 3}, "public_share of [options]", {"got": "0"}),
    ],
)
def test_options_that_cannot_be_are_refused(
    heart: Path, tmp_path: Path, change: dict[str, Any], what: str, fields: dict[str, str]
) -> None:
    with raising(InputError, what, **fields):
        run(table_spec(**change), heart, tmp_path / "out")


# --- the landscape ---------------------------------------------------------------------------------------------------

SMALL = {
    "rows_each": [20, 60, 5000], "n_participants": [2, 10], "most_rows": 50_000, "repeated_up_to": 100,
    "n_components": 12, "n_anchor_rows": 48, "n_public": 5000, "n_test": 200, "learners": ["svm"],
    "anchor_noise": [0.05, 0.3], "data_noise": [0.5], "attacks": ["known-anchor", "procrustes"], "n_queries": 50,
    "alone": 4,
}  # fmt: skip
LANDSCAPE = Spec(name="landscape", title="", kind="landscape", seed=1, deployments=2, options=SMALL)


@pytest.fixture(scope="module")
def small_landscape(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A landscape where MNIST is not there, and its folder."""
    folder, progress = tmp_path_factory.mktemp("landscape"), Counting()
    rows, facts = run(LANDSCAPE, folder / "nothing", folder / "out", progress)
    return SimpleNamespace(rows=rows, facts=facts, progress=progress, folder=folder)


def test_every_cell_of_the_landscape_has_pooled_raw_beside_local_only(small_landscape: SimpleNamespace) -> None:
    results, facts = Results.from_rows(small_landscape.rows), small_landscape.facts
    for cell in facts["cells"]:
        here = results.where(**{name: cell[name] for name in ("deployment", "n_participants", "rows_each")})
        pooled = here.where(method="pooled-raw")
        assert pooled["draw"].tolist() == [0.0]
        assert pooled["data_noise_scale"].tolist() == pooled["anchor_noise_scale"].tolist() == [0.0]
        # A Gaussian kernel does not care how rows are turned: without noise, joining loses nothing.
        joint = here.where(method="aa-i-gdp")
        for score in ("balanced_accuracy", "balanced_accuracy_clean"):
            assert pooled[score][0] == pytest.approx(joint[score][0], abs=1e-9)
        assert pooled["balanced_accuracy"][0] > here.where(method="local-only")["balanced_accuracy"].mean()


def test_secure_sums_of_a_cell_are_of_its_rows(small_landscape: SimpleNamespace) -> None:
    digits, options = landscape._load(small_landscape.folder / "nothing"), convert(SMALL, LandscapeOptions)
    streams = Streams.for_experiment(1)
    pool = landscape._pool(digits, options, streams)
    parts = landscape._deployment(pool, 20, 3, options, streams).rows
    rows, features = landscape._sum_rows(digits, pool, parts).rows, PictureFeatures(8, 8)
    projection = public_svd_projection(
        np.delete(digits.train.rows, pool.train_places, axis=0), options.n_components, rng=streams.named("projection")
    )
    for i in range(3):
        pictures = digits.train.rows[pool.train_places[parts.train_indices[i]]]
        np.testing.assert_allclose(features.apply(2 * pictures - 1)[:, :-1], rows.train[i])
        gram = (
            projection.encode(pictures) @ projection.encode(pictures).T
        )  # rows of a public SVD in another order agree
        np.testing.assert_allclose(gram, parts.train[i] @ parts.train[i].T, rtol=1e-6)
    assert rows.train_labels is parts.train_labels
    assert [len(part) for part in rows.test] == [len(part) for part in parts.test]


def test_rows_that_a_landscape_lacks_are_added_and_no_other_is_computed(
    small_landscape: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ResultStore(tmp_path, "key", {}) as store:
        store.append(row for row in small_landscape.rows if row["method"] != "pooled-raw")
    monkeypatch.setattr(jobs, "measured", Mock(side_effect=AssertionError))
    rows, _ = run(LANDSCAPE, tmp_path / "nothing", tmp_path)
    assert [row["method"] for row in rows[-5:]] == ["pooled-raw"] * 5  # four cells, one of them in two deployments
    assert len(rows) == len(small_landscape.rows)
    assert all(row in small_landscape.rows for row in rows)


def test_half_of_mnist_is_an_error_and_no_reason_for_other_digits(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"half")
    with raising(StorageError, cure="MNIST"):
        run(LANDSCAPE, tmp_path, tmp_path / "out")
