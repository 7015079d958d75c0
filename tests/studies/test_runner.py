"""A whole study on a handful of invented digits: every row is there, whatever ended a run or was short of memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mooring_studies import runner
from mooring_studies.data.digits import DigitRows
from mooring_studies.images import digit_study, face_study, image_study
from mooring_studies.images.digit_study import DigitStudy
from mooring_studies.images.leakage import NOT_SHOWN
from mooring_studies.images.row_writer import RowWriter
from mooring_studies.networks import ensemble as ensembles
from mooring_studies.settings.spec import Spec, spec_from
from mooring_studies.storage.store import ResultStore

from mooring.attacks.procrustes import procrustes
from mooring.attacks.reconstruction import reconstruct
from mooring.geometry.rigid import RigidMap
from mooring.randomness import Streams
from tests.studies.support import Counting, stand_in_for_moments

torch = pytest.importorskip("torch")
P, H, R, SEED = 3, 100, 110, 4
DRAWS = {"data": 3, "anchor": 3, "both": 2}
IDENTITY = {"deployment", "n_participants", "method", "draw", "anchor_noise_scale", "data_noise_scale"}
UTILITY = {"balanced_accuracy", "balanced_accuracy_clean", "accuracy", "validation_balanced_accuracy", "best_epoch"}
SOLVER = {"iterations", "converged", "residual", "step", "solver_seconds"}
DENOISED = ("denoised", "kernel")
ON_ANCHORS = ("pseudoinverse", "procrustes", "alignment-map", "moments")
ON_ANCHORS += tuple(f"{attack}+{how}" for attack in ("procrustes", "moments") for how in DENOISED)
Row = dict[str, Any]


def small_spec(*, draws: dict[str, int] | None = None, **study: Any) -> Spec:
    counts = DRAWS if draws is None else draws
    ranges = {
        "data": {"high": 1.0, "unit": "rms"},
        "anchor": {"high": 0.05},
        "both": {"anchor_high": 0.05, "data_high": 1.0},
    }
    return spec_from(
        {
            "study": {"name": "mnist", "title": "Digits", "kind": "digits", "seed": SEED, **study},
            "data": {"n_participants": P, "n_components": H, "n_anchor_rows": R},
            "network": {"epochs": 1, "batch_size": 100},
            "noise": {kind: [{"count": count, **ranges[kind]}] for kind, count in counts.items() if count},
            "extra_deployments": {"draws": 1},
        }
    )


@cache
def invented() -> DigitRows:
    """Ten digits, each a pattern of its own with skewed noise on it."""
    rng = np.random.default_rng(6)
    patterns = rng.uniform(0, 160, (10, 784))
    labels = {"train": np.arange(360) % 10, "test": np.arange(300) % 10}
    images = {
        name: np.clip(patterns[codes] + rng.gamma(2.0, 30.0, (len(codes), 784)), 0, 255).astype(np.uint8)
        for name, codes in labels.items()
    }
    return DigitRows(images["train"], labels["train"], images["test"], labels["test"], {"digits": "0" * 64})


def stand_in(view: Any, *, rng: Any) -> Any:
    """In place of the moments attack, which takes seconds with a hundred components."""
    if view.target_upload.anchor_representation is not None:
        return procrustes(view, rng=rng)
    like = view.target_upload.representation
    return reconstruct(
        view, RigidMap(torch.eye(H, dtype=like.dtype), like.mean(dim=0)), row_error=torch.eye(H).double()
    )


@pytest.fixture(scope="module", autouse=True)
def small_world() -> Iterator[None]:
    """Invented digits, an auditor that sees blurred pixels, a quick stand-in for the slowest attack."""
    blur = torch.rand(784, 60, generator=torch.Generator().manual_seed(0)) - 0.5
    auditor = SimpleNamespace(
        embedded=lambda images: torch.nn.functional.normalize(images @ blur, dim=1), validation_accuracy=0.9
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digit_study, "load_digits", lambda folder: invented())
        patch.setattr(digit_study, "find", lambda data_dir, name: Path(name))
        patch.setattr(DigitStudy, "n_validation", 60)
        patch.setattr(DigitStudy, "auditor", auditor)
        stand_in_for_moments(patch, stand_in)
        yield


def run(folder: Path, spec: Spec | None = None) -> SimpleNamespace:
    """Run a study, and return the rows, facts and pictures of its store, and the progress that it reported."""
    counter = Counting()
    with ResultStore(folder, "key", {}) as store:
        runner.run_study(small_spec() if spec is None else spec, store=store, progress=counter)
        return SimpleNamespace(
            rows=store.rows(), facts=store.kept("facts"), pictures=store.kept("pictures"), told=counter, folder=folder
        )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    return run(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def by_twos(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image_study, "_MOST_AT_ONCE", 2)
        return run(tmp_path_factory.mktemp("by-twos"))


def by_name(rows: list[Row]) -> dict[tuple[Any, ...], Row]:
    named = {(row["deployment"], row["n_participants"], row["method"], row["draw"]): row for row in rows}
    assert len(named) == len(rows), "a draw is there twice"
    return named


def assert_same(rows: list[Row], expected: list[Row], *, flips: float = 1e-6) -> None:
    """The same rows and columns with the same numbers; `flips` is how far rounding may move a share of right answers."""
    here, there = by_name(rows), by_name(expected)
    assert here.keys() == there.keys()
    for name, row in there.items():
        assert here[name].keys() == row.keys(), name
        for column, value in row.items():
            if column == "solver_seconds" or isinstance(value, str):
                continue
            shares = column in UTILITY or column.startswith(("match:", "linkage:"))
            tolerance = flips if shares and column != "best_epoch" else 1e-6
            assert here[name][column] == pytest.approx(value, rel=1e-6, abs=tolerance), (name, column)


def only(rows: list[Row], method: str) -> list[Row]:
    return sorted((row for row in rows if row["method"] == method), key=lambda row: row["draw"])


def columns_of(*attacks: str) -> set[str]:
    kinds = ("linkage:{}", "linkage:{}+learned", "match:{}", "error:{}")
    return {kind.format(attack) for kind in kinds for attack in attacks}


# ------------------------------------------------------------------------------------------------- a run from end to end


def test_every_method_has_every_draw_with_its_columns(whole: SimpleNamespace) -> None:
    expected: dict[str, tuple[int, set[str]]] = {
        "c-gdp": (1, columns_of("known-secret")),
        "aa-i-gdp": (1, columns_of("known-anchor") | {"discrepancy"}),
        "i-gdp": (1, columns_of("moments", "moments+denoised", "moments+kernel")),
        "pooled-raw": (1, set()),
        "local-only": (P, set()),
        "c-gdp-data-noise": (3, columns_of("known-secret", "known-secret+denoised", "known-secret+kernel")),
        "aa-i-gdp-data-noise": (
            3,
            columns_of("known-anchor", "known-anchor+denoised", "known-anchor+kernel") | {"discrepancy"},
        ),
        "aa-i-gdp-anchor-noise": (3, columns_of(*ON_ANCHORS) | SOLVER),
        "aa-i-gdp-both-noise": (
            2,
            (columns_of(*ON_ANCHORS) | SOLVER)
            - {f"linkage:{attack}{how}" for attack in NOT_SHOWN for how in ("", "+learned")},
        ),
    }
    assert {row["method"] for row in whole.rows} == set(expected)
    for method, (count, columns) in expected.items():
        rows = only(whole.rows, method)
        assert [row["draw"] for row in rows] == list(range(count)), method
        for row in rows:
            assert set(row) == IDENTITY | UTILITY | columns | {"strongest_attacks"}, method
            shares = [value for name, value in row.items() if name.startswith(("linkage:", "match:", "balanced"))]
            assert all(0 <= value <= 1 for value in shares)
            assert (row["deployment"], row["n_participants"]) == (0, P)


def test_numbers_are_what_theory_says(whole: SimpleNamespace) -> None:
    rows = by_name(whole.rows)
    for method, attack in (("c-gdp", "known-secret"), ("aa-i-gdp", "known-anchor")):
        control = rows[0, P, method, 0]
        assert control[f"error:{attack}"] < 1e-12
        assert control[f"match:{attack}"] == 1
        assert control[f"linkage:{attack}"] == whole.facts["linkage_floor"] > 0.2
    for draw in range(3):
        common, anchored = (rows[0, P, f"{method}-data-noise", draw] for method in ("c-gdp", "aa-i-gdp"))
        assert anchored["discrepancy"] < 1e-12
        assert anchored["error:known-anchor"] == pytest.approx(common["error:known-secret"], rel=1e-9)
        assert anchored["match:known-anchor"] == common["match:known-secret"]
        assert common["balanced_accuracy"] == pytest.approx(anchored["balanced_accuracy"], abs=0.02)
    for row in only(whole.rows, "aa-i-gdp-anchor-noise"):  # the rows carry no noise: scored as deployed
        assert row["balanced_accuracy_clean"] == row["balanced_accuracy"]
    noisy = only(whole.rows, "c-gdp-data-noise")
    assert any(row["balanced_accuracy_clean"] != row["balanced_accuracy"] for row in noisy)


def test_results_do_not_depend_on_how_many_draws_are_computed_at_once(
    whole: SimpleNamespace, by_twos: SimpleNamespace
) -> None:
    assert_same(by_twos.rows, whole.rows, flips=0.02)
    for name, array in whole.pictures.items():
        if name.endswith("_images"):
            assert np.abs(by_twos.pictures[name].astype(int) - array).max() <= 1, name
        else:
            np.testing.assert_array_equal(by_twos.pictures[name], array, name)


# -------------------------------------------------------------------------------------------------- ended and resumed


class PowerLoss(Exception):
    """What ends a run in these tests."""


def counted(patch: pytest.MonkeyPatch, name: str, calls: list[Any], *, fail_at: int | None = None) -> None:
    """Have a function of the study's module tell which draws it is asked for, and fail at one of the calls."""
    function = getattr(image_study, name)

    def wrapped(deployment: Any, scales: Any, draws: Any, **options: Any) -> Any:
        calls.append(list(draws))
        if fail_at == len(calls):
            raise PowerLoss
        return function(deployment, scales, draws, **options)

    patch.setattr(image_study, name, wrapped)


def test_a_run_that_was_ended_keeps_finished_chunks_and_goes_on_with_the_rest(
    by_twos: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_study, "_MOST_AT_ONCE", 2)
    with monkeypatch.context() as patch:
        counted(patch, "aligned_draws", [], fail_at=2)
        with pytest.raises(PowerLoss):
            run(tmp_path)
    with ResultStore(tmp_path, "key", {}) as store:
        kept = store.rows()
    left = {(0, P, "aa-i-gdp-anchor-noise", 2), *((0, P, "aa-i-gdp-both-noise", draw) for draw in range(2))}
    assert by_name(by_twos.rows).keys() - by_name(kept).keys() == left
    coupled: list[Any] = []
    aligned: list[Any] = []
    trained: list[Any] = []
    with monkeypatch.context() as patch:
        counted(patch, "coupled_draws", coupled)
        counted(patch, "aligned_draws", aligned)
        train = ensembles._trained
        patch.setattr(ensembles, "_trained", lambda rows, *a, **k: (trained.append(len(rows)), train(rows, *a, **k))[1])
        resumed = run(tmp_path)
    assert (coupled, aligned, trained) == ([], [[2], [10**6, 10**6 + 1]], [1, 2])
    assert_same(resumed.rows, by_twos.rows)
    for name, array in by_twos.pictures.items():
        np.testing.assert_array_equal(resumed.pictures[name], array, name)


# ---------------------------------------------------------------------------------------------------- short of memory


# ------------------------------------------------------------------------------------- faces, and many participants


def test_what_is_shared_between_numbers_of_participants_is_not_between_deployments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A map found in one deployment is another's target's in none."""
    plain = {
        "study": {"name": "participants", "title": "Faces", "kind": "faces-by-participants", "deployments": 2},
        "data": {
            "n_participants": [2, 4],
            "n_components": 400,
            "n_anchor_rows": 401,
            "identities_each": [[4, 19], [2, 98]],
        },
        "noise": {"anchor": [{"count": 1, "high": 0.1}]},
    }
    made: list[tuple[Any, dict[str, Any]]] = []

    class Faces:
        checksums = {"faces": "0"}  # noqa: RUF012
        notes = ()

        def __init__(self, spec: Spec, **options: Any) -> None:
            pass

        def prepare(self, streams: Streams, **allocation: int) -> Any:
            return allocation

    class Study:
        seconds: dict[str, float] = {}  # noqa: RUF012

        def __init__(self, spec: Spec, prepared: Any, writer: RowWriter, **options: Any) -> None:
            made.append((prepared, {**options, "keep_rebuilt": writer.keep_rebuilt}))

        def run(self, *, after_each: Any) -> None:
            after_each()
            _, options = made[-1]
            options["found_before"][len(made)] = options["alignments"][len(made)] = "found"

    monkeypatch.setattr(face_study, "FaceStudy", Faces)
    monkeypatch.setattr(runner, "ImageStudy", Study)
    monkeypatch.setattr(runner, "_facts_of", lambda prepared: {})
    with ResultStore(tmp_path, "key", {}) as store:
        runner.run_study(spec_from(plain), store=store, progress=Counting())
    sizes = [(row["most"], row["identities_each"], row["n_participants"]) for row, _ in made]
    assert sizes == 2 * [(4, 19, 2), (4, 19, 4), (2, 98, 2)]
    assert [set(options["found_before"]) for _, options in made] == [{1, 2}, {1, 2}, {3}, {4, 5}, {4, 5}, {6}]
    assert [set(options["alignments"]) for _, options in made] == 3 * [{1, 2, 3}] + 3 * [{4, 5, 6}]
    for _, options in made:
        assert not options["reference_control"]
        assert not options["keep_rebuilt"]
        assert options["unaudited"] == {"pseudoinverse", "alignment-map"}
