"""A study's settings are read with care, and what it has finished outlives whatever ends a run."""

import errno
import json
import os
import signal
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from mooring_studies.settings import spec as spec_module
from mooring_studies.settings.spec import STUDIES, code_digest, digest, noise_draws, read_spec, spec_from
from mooring_studies.storage.store import ResultStore

from mooring.errors import StorageError
from mooring.randomness import Streams
from tests.raising import raising

SPECS = Path(spec_module.__file__).parent / "specs"
Refused = Callable[..., None]


def plain_spec(name: str = "mnist") -> dict[str, Any]:
    return tomllib.loads((SPECS / f"{name}.toml").read_text(encoding="utf-8"))


def with_change(path: str, value: Any, name: str = "mnist") -> dict[str, Any]:
    plain = plain_spec(name)
    *tables, key = path.split(".")
    inner: Any = plain
    for step in tables:
        inner = inner[int(step)] if step.isdigit() else inner.setdefault(step, {})
    inner[key] = value
    return plain


# Settings


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", STUDIES)
def test_every_shipped_study_can_be_read(name: str, quick: bool) -> None:
    spec = read_spec(name, quick=quick)
    assert (spec.name, spec.quick) == (name, quick)
    assert spec.title
    assert json.loads(json.dumps(spec.as_dict())) == spec.as_dict()


def test_the_settings_are_the_papers() -> None:
    mnist, celeba, many = read_spec("mnist"), read_spec("celeba"), read_spec("participants")
    assert (mnist.data.n_participants, mnist.data.n_components, mnist.data.n_anchor_rows) == ((10,), 100, 400)
    assert (celeba.data.n_participants, celeba.data.n_components, celeba.data.n_anchor_rows) == ((10,), 400, 1600)
    assert (mnist.data.projection, celeba.data.projection) == ("gaussian", "public-svd")
    for spec in (mnist, celeba):
        assert sum(scale.count for scale in spec.noise.data) == sum(scale.count for scale in spec.noise.anchor) == 200
    for spec in (mnist, celeba, many):
        assert (spec.solver.name, spec.solver.max_iterations, spec.solver.tolerance) == ("gpm", 500, 1e-7)
        assert (spec.network.epochs, spec.network.batch_size, spec.network.learning_rate) == (15, 256, 1e-3)
    assert many.data.allocations() == [(50, 19, (2, 5, 10, 20, 50)), (10, 98, (2, 5, 10))]
    assert [(scale.count, scale.low, scale.high) for scale in many.noise.anchor] == [(100, 0.0, 0.1)]


@pytest.mark.parametrize(
    ("path", "value", "what", "expected", "got"),
    [
        ("network.epoch", 3, "network.epoch", "absent", "a value"),
        ("nois", {}, "nois", "absent", "a value"),
        ("quick.network.epoch", 3, "network.epoch", "absent", "a value"),
        ("study.kind", "digit", "kind", "'digits'", "none of these"),
        ("network.epochs", 0, "network.epochs", "at least 1", "a smaller number"),
        ("network.epochs", True, "network.epochs", "a whole number", "true or false"),
        ("network.epochs", 2.5, "network.epochs", "a whole number", "a number"),
        ("network.learning_rate", float("nan"), "network.learning_rate", "finite", "NaN"),
        ("network", 3, "network", "a table", "a whole number"),
        ("data.n_participants", [10, 10], "n_participants", "different", "(10, 10)"),
        ("data.n_participants", 1, "data.n_participants", "at least 2", "a smaller number"),
        ("data.n_anchor_rows", 100, "n_anchor_rows", "above n_components", "100"),
        ("data.projection", "svd", "data.projection", "'public-svd'", "none of these"),
        ("noise.data.0.high", -1.0, "noise.data.0.high", "at least 0", "a smaller number"),
        ("noise.data.0.low", 9.0, "low and high", "rising", "9"),
        ("noise.anchor.1.unit", "rms", "noise.anchor.1.unit", "'absolute'", "none of these"),
        ("noise.both.0.anchor_hihg", 1.0, "noise.both.0.anchor_hihg", "absent", "a value"),
        ("noise.data", {}, "noise.data", "a list", "a table"),
        ("noise.anchor", [], "noise.anchor", "given", "nothing"),
        ("attacks.every", 0, "attacks.every", "at least 1", "a smaller number"),
        ("solver.name", "gmp", "solver.name", "'gpm'", "none of these"),
    ],
)
def test_a_mistake_in_a_file_is_named(
    path: str, value: Any, what: str, expected: str, got: str, refused: Refused
) -> None:
    refused(lambda: spec_from(with_change(path, value)), what=what, expected=expected, got=got)


# Noise levels and draws


def within(levels: np.ndarray, low: float, high: float) -> None:
    """All are inside, and reach both ends: that none of 100 is in an outer eighth has a chance of 2 in a million."""
    assert low < levels.min() < low + (high - low) / 8
    assert high - (high - low) / 8 < levels.max() < high


def test_noise_levels_are_uniform_in_the_ranges_of_the_file_and_in_its_order() -> None:
    spec, streams = read_spec("mnist"), Streams.for_experiment(3)
    v, sigma = noise_draws(spec, "data", streams, 8.85)
    assert v.tolist() == [0.0] * 200
    within(sigma[:100], 0, 4 * 8.85)  # in units of the rows' root mean square
    within(sigma[100:], 35, 50)
    v, sigma = noise_draws(spec, "anchor", streams, 8.85)
    assert sigma.tolist() == [0.0] * 200
    within(v[:100], 0, 0.5)
    within(v[100:], 0, 0.2)
    v, sigma = noise_draws(spec, "both", streams, 8.85)
    within(v, 0, 0.3)
    within(sigma, 0, 20)
    assert len(v) == len(sigma) == 200
    assert abs(np.corrcoef(v, sigma)[0, 1]) < 0.25  # over three standard errors of 200 independent pairs


def test_noise_levels_repeat_and_differ_between_kinds_ranges_and_deployments() -> None:
    spec = read_spec("mnist")
    draw = noise_draws(spec, "anchor", Streams.for_experiment(3), 1.0)[0]
    assert np.array_equal(draw, noise_draws(spec, "anchor", Streams.for_experiment(3), 1.0)[0])
    assert not np.allclose(draw[:100] / 0.5, draw[100:] / 0.2)
    assert not np.allclose(draw, noise_draws(spec, "anchor", Streams.for_experiment(4), 1.0)[0])


@pytest.mark.parametrize("kind", ["data", "anchor", "both"])
def test_fewer_draws_of_a_range_are_its_first_ones(kind: Any) -> None:
    streams = Streams.for_experiment(3)
    few, many = read_spec("mnist", draws=10), read_spec("mnist")
    counts = [level.count for level in getattr(few.noise, kind)]
    full = [level.count for level in getattr(many.noise, kind)]
    for noise_few, noise_many in zip(
        noise_draws(few, kind, streams, 2.0), noise_draws(many, kind, streams, 2.0), strict=True
    ):
        starts = np.cumsum([0, *full])[:-1]
        expected = np.concatenate(
            [noise_many[start : start + count] for start, count in zip(starts, counts, strict=True)]
        )
        assert np.array_equal(noise_few, expected)


# The key


def test_the_key_tells_settings_and_code_apart_and_not_words() -> None:
    spec = read_spec("mnist")
    key = digest(spec, "code")
    assert key == digest(read_spec("mnist"), "code")
    assert key == digest(replace(spec, title="other", takes="long"), "code")
    others = [
        digest(spec, "other code"),
        digest(read_spec("mnist", quick=True), "code"),
        digest(read_spec("mnist", draws=199), "code"),
        digest(read_spec("mnist", deployments=4), "code"),
        digest(replace(spec, seed=1), "code"),
        digest(replace(spec, options={"a": 1}), "code"),
        digest(replace(spec, solver=type(spec.solver)(tolerance=1e-8)), "code"),
    ]
    assert len({key, *others}) == 1 + len(others)


def test_the_code_digest_covers_what_results_depend_on_and_no_more(tmp_path: Path, monkeypatch: Any) -> None:
    matters = ["mooring/attacks/moments.py", "mooring/learners/registry.py"]
    matters += ["mooring_studies/runner.py", "mooring_studies/settings/spec.py"]
    paths = ["mooring/cli/app.py", "mooring/report/frame.py", "mooring/demo.py", "mooring_studies/page.py"]
    paths += ["mooring_studies/figures/chart.py", "mooring_studies/comparison/curves.py"]
    for name in (*matters, *paths):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    monkeypatch.setattr(spec_module.mooring, "__file__", str(tmp_path / "mooring" / "__init__.py"))
    monkeypatch.setattr(spec_module, "__file__", str(tmp_path / "mooring_studies" / "settings" / "spec.py"))
    fresh = code_digest.__wrapped__
    before = fresh()
    for name in paths:
        (tmp_path / name).write_text("x = 2\n")
        assert fresh() == before, name
    for name in matters:
        (tmp_path / name).write_text("x = 2\n")
        assert fresh() != before, name
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "mooring" / "attacks" / "new.py").write_text("")
    assert fresh() != before


# Rows on disk

FACTS = {"mooring": "0.9", "date": "2026-01-02"}
ROW = {"deployment": 0, "n_participants": 10, "method": "i-gdp", "draw": 0, "balanced_accuracy": 0.5}


def opened(folder: Path, key: str = "k1") -> ResultStore:
    return ResultStore(folder, key, FACTS)


def test_rows_come_back_as_they_were_given(tmp_path: Path) -> None:
    numbers = {"draw": np.int64(0), "x": np.float64(0.1), "converged": np.bool_(True), "identities_each": None}
    first = [{"method": "a", **numbers}, {"method": "b", "draw": 1, "iterations": 500, "x": float("nan")}]
    expected = [{"method": "a", "draw": 0, "x": 0.1, "converged": True}, {"method": "b", "draw": 1, "iterations": 500}]
    with opened(tmp_path) as store:
        store.append(first)
        store.append([])
        store.append([{"method": "c", "draw": 2}])
        assert store.rows() == [*expected, {"method": "c", "draw": 2}]
    with opened(tmp_path) as store:
        assert store.rows() == [*expected, {"method": "c", "draw": 2}]
        assert store.notes == []
        assert isinstance(store.rows()[0]["converged"], bool)
    assert len(list((tmp_path / "store" / "k1").glob("rows-*"))) == 2


def append_until_killed(folder: Path, when: str) -> None:
    store = opened(folder)
    for draw in range(3):
        if draw == 2 and when == "writing":
            os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
        store.append([{"method": "i-gdp", "draw": draw}])
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.posix
@pytest.mark.parametrize(("when", "there"), [("between", {0, 1, 2}), ("writing", {0, 1})])
def test_a_run_that_is_killed_loses_no_finished_chunk(when: str, there: set[int], tmp_path: Path) -> None:
    process = get_context("fork").Process(target=append_until_killed, args=(tmp_path, when))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: the libraries here survive it
        process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with opened(tmp_path) as store:  # the killed process's lock went with it
        assert store.done(method="i-gdp") == there
        missing = [draw for draw in range(4) if draw not in there]
        store.append([{"method": "i-gdp", "draw": draw} for draw in missing])
        if when == "writing":
            assert len(store.notes) == 1
    with opened(tmp_path) as store:
        assert sorted(row["draw"] for row in store.rows()) == [0, 1, 2, 3]
        assert store.notes == []  # told once


def spoiled(content: bytes, how: str) -> bytes:
    if how == "cut":
        return content[: len(content) // 2]
    if how == "empty":
        return b""
    if how == "other":
        return b"not a table"
    at = 40  # inside the first column's data page
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


@pytest.mark.parametrize("how", ["cut", "empty", "other", "flipped"])
def test_a_chunk_that_cannot_be_read_is_set_aside_and_its_rows_are_to_do_again(how: str, tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for draw in range(3):
            store.append([ROW | {"draw": draw, "x": draw + 0.25}])
    path = tmp_path / "store" / "k1" / "rows-000002.parquet"
    broken = spoiled(path.read_bytes(), how)
    path.write_bytes(broken)
    with opened(tmp_path) as store:
        assert store.done(method="i-gdp") == {0, 2}
        assert len(store.notes) == 1
        assert path.name in store.notes[0]
        assert path.with_name(path.name + ".unreadable").read_bytes() == broken  # never lost silently
        store.append([ROW | {"draw": 1}])
    with opened(tmp_path) as store:
        assert store.done(method="i-gdp") == {0, 1, 2}
    assert path.with_name(path.name + ".unreadable").read_bytes() == broken


@pytest.mark.parametrize(
    ("name", "before", "now", "what"),
    [
        ("faces.parquet", "a" * 64, "b" * 64, "faces.parquet"),
        ("rows from", "scikit-learn's digits", "MNIST", "the data set that this run takes its rows from"),
    ],
)
def test_rows_of_two_inputs_do_not_mix(
    name: str, before: str, now: str, what: str, tmp_path: Path, refused: Refused
) -> None:
    with opened(tmp_path) as store:
        store.bind(name, before)
        store.bind("model.onnx", "c" * 64)
    with opened(tmp_path) as store:
        store.bind(name, before)
        refused(lambda: store.bind(name, now), what=what, expected=before[:16], got=now[:16])
        refused(lambda: store.bind("model.onnx", "d" * 64), what="model.onnx", expected="cccc", got="dddd")


def test_two_processes_do_not_work_on_one_store(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        with raising(StorageError, reason="another run") as caught:
            opened(tmp_path)
        assert "--output" in str(caught.value)
        opened(tmp_path, "k2").close()  # another key is another store
        store.append([ROW])
    script = "import sys; from pathlib import Path; from mooring_studies.storage.store import ResultStore\n"
    script += (
        "s = ResultStore(Path(sys.argv[1]), 'k1', {}); sys.stdout.write('in\\n'); sys.stdout.flush(); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        with raising(StorageError, reason="another run"):
            opened(tmp_path)
        process.communicate()
    with opened(tmp_path) as store:
        assert store.done(method="i-gdp") == {0}


def test_a_full_disk_is_said_and_costs_no_finished_row(tmp_path: Path, monkeypatch: Any) -> None:
    with opened(tmp_path) as store:
        store.append([ROW])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
            with raising(StorageError, "the results", reason="full"):
                store.append([ROW | {"draw": 1}])
        assert store.done(method="i-gdp") == {0}
        store.append([ROW | {"draw": 1}])
    with opened(tmp_path) as store:
        assert store.done(method="i-gdp") == {0, 1}
        assert store.notes == []
