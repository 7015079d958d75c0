"""Every file that means harm is refused: for its own reason, within a second, and without the memory that it claims."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mooring.errors import RefusedError, StorageError
from mooring.protocol.analyst.intake import collect
from mooring.protocol.participant.prediction import predict_rows
from mooring.protocol.rotation.anchor import open_anchor
from mooring.protocol.rotation.bundle import verify_bundle
from tests.raising import raising

from . import hostile_anchors, hostile_bundles, hostile_containers, hostile_results
from .hostile import CORPUS, Hostile, World, build_world

pytestmark = pytest.mark.posix  # pipes, sockets and links among them
KINDS = ("bundle", "anchor", "map", "model")
MOST_SECONDS, MOST_MEMORY = 1.0, 8 * 2**20
assert all((hostile_anchors, hostile_bundles, hostile_containers, hostile_results))  # they have filled the corpus


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = build_world(tmp_path_factory.mktemp("world"))
    for kind in KINDS:  # what a library does at its first call is not what is timed
        taking(kind, world.folder / f"good.{kind}", world, tmp_path_factory.mktemp("first"))()
    return world


def taking(kind: str, path: Path, world: World, place: Path) -> Callable[[], object]:
    """How whoever receives a file of this kind takes it; what travels beside it is good."""
    if kind == "bundle":
        return lambda: verify_bundle(path, world.study)
    if kind == "anchor":
        return lambda: open_anchor(world.vaults[1], world.study, path)
    result = place / "result"
    result.mkdir()
    if kind == "map":
        beside, map_file, model_file = world.folder / "good.model", path, world.folder / "good.model"
    else:
        beside, model_file = path, path
        map_file = place / "its-map"
        map_file.write_bytes(world.signed_map(model=_digest(beside)))
    (result / "map.safetensors").symlink_to(map_file)
    (result / "model.safetensors").symlink_to(model_file)
    return lambda: predict_rows(world.vaults[0], world.study, world.folder / "rows.csv", result=result)


def _digest(path: Path) -> str:
    small = path.is_file() and path.stat().st_size < 2**30
    return hashlib.sha256(path.read_bytes()).hexdigest() if small else "0" * 64


def refused(take: Callable[[], object]) -> tuple[RefusedError | StorageError, float, int]:
    """The refusal, and the seconds and the bytes of memory that it took."""
    tracemalloc.start()
    start = time.perf_counter()
    try:
        with pytest.raises((RefusedError, StorageError)) as caught:
            take()
        return caught.value, time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("bad", CORPUS, ids=lambda bad: f"{bad.kind}-{bad.name}")
def test_a_hostile_file_is_refused_for_its_own_reason_at_once_and_without_its_memory(
    bad: Hostile, world: World, tmp_path: Path
) -> None:
    path = bad.write(world, tmp_path / "file")
    take = taking(bad.kind, path, world, tmp_path)
    for _ in range(3):  # a busy machine is no fault of the file's
        error, seconds, memory = refused(take)
        if seconds < MOST_SECONDS:
            break
    assert re.search(bad.reason, error.reason), error
    assert error.what
    assert error.cure.endswith(".")
    assert str(path) not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None  # a traceback would show what came before
    assert seconds < MOST_SECONDS
    assert memory < MOST_MEMORY


@pytest.mark.parametrize("kind", KINDS)
def test_the_good_file_that_all_of_them_are_made_from_is_taken(kind: str, world: World, tmp_path: Path) -> None:
    assert taking(kind, world.folder / f"good.{kind}", world, tmp_path)() is not None


def test_makers_of_hostile_files_can_make_good_ones_too(world: World, tmp_path: Path) -> None:
    """Else all that is signed by a participant or an analyst would be refused for a mistake of ours."""
    made = {"bundle": world.signed_bundle(), "map": world.signed_map(), "model": world.signed_model()}
    for kind, content in made.items():
        (tmp_path / f"of-{kind}").mkdir()
        (tmp_path / kind).write_bytes(content)
        assert taking(kind, tmp_path / kind, world, tmp_path / f"of-{kind}")() is not None
    (tmp_path / "anchor").write_bytes(
        world.signed_anchor(hostile_anchors.sealed(world, hostile_anchors.inner(world, world.matrix())))
    )
    assert np.array_equal(open_anchor(world.vaults[1], world.study, tmp_path / "anchor").matrix, world.matrix())
    assert made["bundle"] == world.bundle  # there is one way only to write it


def test_numbers_that_are_odd_but_harmless_are_taken(world: World, tmp_path: Path) -> None:
    rows = world.arrays()["representation"].copy()
    rows[0] = [1e-45, -0.0, np.finfo(np.float32).tiny]
    (tmp_path / "file").write_bytes(world.signed_bundle(arrays={"representation": rows}))
    assert np.array_equal(verify_bundle(tmp_path / "file", world.study).representation(), rows)


def test_a_map_that_reflects_is_taken(world: World, tmp_path: Path) -> None:
    mirror = np.diag([-1.0, 1.0, 1.0])
    (tmp_path / "file").write_bytes(world.signed_map(arrays={"orthogonal": mirror, "origin": np.full(3, 0.9e6)}))
    assert taking("map", tmp_path / "file", world, tmp_path)() is not None


def test_a_model_that_the_map_does_not_name_is_refused(world: World, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(hostile_results.other_model(world))
    good = taking("model", tmp_path / "other", world, tmp_path)
    assert good() is not None
    (tmp_path / "result" / "map.safetensors").unlink()
    (tmp_path / "result" / "map.safetensors").symlink_to(world.folder / "good.map")
    with raising(RefusedError, "the model", reason="that the map is for"):
        good()


def test_the_analyst_sets_all_hostile_bundles_aside_and_takes_the_good_one(world: World, tmp_path: Path) -> None:
    """Also those that others make of a participant's bundle: nobody but the participant can put it in doubt."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    bad = [case for case in CORPUS if case.kind == "bundle"]
    for bad_case in bad:
        place = tmp_path / bad_case.name
        place.mkdir()
        bad_case.write(world, place / "file").rename(inbox / f"{bad_case.name}.bundle")
    shutil.copy(world.folder / "good.bundle", inbox / "p0.bundle")
    shutil.copy(world.folder / "good.bundle", inbox / "a copy.bundle")
    intake = collect(world.study, inbox, tmp_path / "work")
    assert [bundle.member.name for bundle in intake.bundles] == ["p0"]
    assert intake.missing == ("p1",)
    assert {entry.file for entry in intake.set_aside} == {f"{case.name}.bundle" for case in bad} | {"a copy.bundle"}
    assert all(entry.reason for entry in intake.set_aside)


def test_the_corpus_is_large_and_its_reasons_tell_what_is_wrong() -> None:
    counts = Counter(bad.kind for bad in CORPUS)
    assert len(CORPUS) >= 60
    assert set(counts) == set(KINDS)
    assert min(counts.values()) >= 30
    reasons = {kind: {bad.reason for bad in CORPUS if bad.kind == kind} for kind in KINDS}
    assert min(len(reason) for reason in reasons.values()) >= 10
