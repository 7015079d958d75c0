"""The analyst's alignment on Dask: the same maps, rows and records as locally, in parts that every reader knows."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("distributed")

from distributed import Client

from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.analyst.intake import collect
from mooring.protocol.rotation.analyst.alignment import align_bundles
from mooring.protocol.rotation.analyst.alignment_state import read_space
from mooring.protocol.rotation.analyst.collaboration_matrix import export, list_parts, part_path
from mooring.protocol.rotation.analyst.training import train
from mooring.protocol.rotation.bundle import verify_bundle
from tests.raising import raising
from tests.sites import rewrite_bundle

from .dask_study import Made, align_on_dask, aligned_locally, make, matrix, same_arrays


def breaks_one(made: Made) -> None:
    path = made.inbox / "site-4.bundle"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))
    (made.inbox / "copy.bundle").write_bytes((made.inbox / "site-1.bundle").read_bytes())
    (made.inbox / "junk.bundle").write_bytes(b"no bundle")
    (made.inbox / "folder.bundle").mkdir()


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("kind", ["classes", "number", "none"])
def test_maps_matrix_and_records_are_those_of_the_local_engine(
    client: Client, tmp_path: Path, kind: str, away: bool
) -> None:
    made = make(tmp_path, kind=kind)
    breaks_one(made)
    aligned = aligned_locally(made, tmp_path / "here")
    source = f"local://{made.inbox}" if away else made.inbox  # an address: every task downloads for itself
    collected: list[tuple[float, float]] = []
    alignment = align_on_dask(
        client, made.study, source, tmp_path / "there", rows_at_once=7, writing=lambda a, b: collected.append((a, b))
    )
    assert collected[-1] == (1600, 1600)
    assert not alignment.reduced
    assert same_arrays(aligned, alignment.space)
    ours, theirs = matrix(made.study, tmp_path / "there"), matrix(made.study, tmp_path / "here")
    assert ours.names == theirs.names
    assert np.abs(ours.rows - theirs.rows).max() < 1e-6
    assert (ours.labels is None) == (kind == "none")
    assert np.array_equal(ours.labels, theirs.labels)
    assert len(list_parts(tmp_path / "there")["site-0"]) == 4  # 400 rows, 16 blocks of seven a part
    intakes = [json.loads((tmp_path / place / "intake.json").read_text()) for place in ("here", "there")]
    assert sorted(intakes[0].pop("set_aside"), key=str) == sorted(intakes[1].pop("set_aside"), key=str)
    assert intakes[0]["accepted"] == intakes[1]["accepted"]
    assert intakes[0]["remembered"] == intakes[1]["remembered"]
    assert intakes[0]["missing"] == intakes[1]["missing"] == ["site-4"]
    records = [json.loads((tmp_path / place / "alignment.json").read_text()) for place in ("here", "there")]
    assert records[0] == records[1]


def test_everybody_reads_parts_of_workers_as_it_reads_those_of_one_process(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path)
    aligned_locally(made, tmp_path / "here")
    align_on_dask(client, made.study, made.inbox, tmp_path / "there", rows_at_once=10)
    for place in ("here", "there"):
        export(tmp_path / place, tmp_path / f"{place}.parquet")
    ours, theirs = (pq.read_table(tmp_path / f"{place}.parquet") for place in ("there", "here"))
    assert ours.schema.names == theirs.schema.names
    assert ours["participant"].to_pylist() == theirs["participant"].to_pylist()
    assert ours["label"].to_pylist() == theirs["label"].to_pylist()
    assert np.allclose(ours["z1"].to_numpy(), theirs["z1"].to_numpy(), atol=1e-6)
    scores = [train(made.study, tmp_path / place, learner="linear").score.value for place in ("here", "there")]
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)


def test_an_accepted_bundle_stays_the_one_that_counts(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path)
    first = align_on_dask(client, made.study, made.inbox, tmp_path / "work").intake
    path = made.inbox / "site-2.bundle"
    before = path.read_bytes()
    garbled(made, 2)
    other = align_on_dask(client, made.study, made.inbox, tmp_path / "work").intake
    assert other.gone == ("site-2",)
    assert [entry.reason.partition(" was ")[0] for entry in other.set_aside] == ["another bundle of site-2"]
    (made.inbox / "site-2.bundle").rename(tmp_path / "other")
    aligned_locally(made, tmp_path / "here")  # other maps for the others, too: no part of before is kept
    assert np.abs(matrix(made.study, tmp_path / "work").rows - matrix(made.study, tmp_path / "here").rows).max() < 1e-6
    path.write_bytes(before)
    back = align_on_dask(client, made.study, made.inbox, tmp_path / "work").intake
    assert [bundle.digest for bundle in back.bundles] == [bundle.digest for bundle in first.bundles]


@pytest.mark.parametrize("broken", [False, True])
def test_a_copy_of_an_accepted_bundle_counts_when_its_object_was_replaced(
    client: Client, tmp_path: Path, broken: bool
) -> None:
    made, work = make(tmp_path), tmp_path / "work"
    source = f"local://{made.inbox}"
    first = collect(made.study, source, work)  # downloads, and keeps what was accepted
    same = align_on_dask(client, made.study, source, work).intake
    assert not same.set_aside
    garbled(made, 2)
    if broken:
        for copy in (work / "received").iterdir():
            copy.write_bytes(copy.read_bytes()[:-1])
    intake = align_on_dask(client, made.study, source, work).intake
    assert [entry.reason.partition(" was ")[0] for entry in intake.set_aside] == ["another bundle of site-2"]
    assert intake.gone == (("site-2",) if broken else ())
    if not broken:
        assert [bundle.digest for bundle in intake.bundles] == [bundle.digest for bundle in first.bundles]
        assert "site-2" in list_parts(work)
        assert json.loads((work / "intake.json").read_text())["copies"]


def test_how_far_maps_move_is_never_taken_for_granted() -> None:
    from mooring.engines.dask.reduction import step

    rng = np.random.default_rng(0)
    stack = rng.standard_normal((3, 8, 2)), np.zeros((3, 2))
    first, other = rng.standard_normal((2, 8, 2))
    change = step(stack, (0, 1, 2), 0, first, other, "", 0)  # as for maps to a reference, where no maps are kept
    (U, _, Vt), (W, _, Xt) = (np.linalg.svd(np.swapaxes(stack[0], 1, 2) @ S) for S in (first, other))
    assert change.moved_squared == pytest.approx(float(((U @ Vt - W @ Xt) ** 2).sum()))
    assert change.moved_squared > 0.1


@pytest.mark.parametrize("method", ["aa-i-gdp-anchor-noise", "aa-i-gdp"])
def test_steps_reduced_over_workers_give_the_same_alignment_up_to_one_turn(
    client: Client, tmp_path: Path, method: str
) -> None:
    made = make(tmp_path, p=11, method=method)
    (made.inbox / "site-4.bundle").write_bytes(b"no bundle")
    aligned = aligned_locally(made, tmp_path / "here", certify=False)
    # There are several groups, of which one holds a broken bundle.
    options = {"reduce_over_workers": True, "files_at_once": 3}
    alignment = align_on_dask(client, made.study, made.inbox, tmp_path / "there", **options)
    assert alignment.reduced
    here, there = aligned, read_space(tmp_path / "there", made.study)
    assert here.names == there.names
    U, _, Vt = np.linalg.svd(np.einsum("pij,pik->jk", there.orthogonals, here.orthogonals))
    turn = U @ Vt
    assert np.abs(there.orthogonals @ turn - here.orthogonals).max() < 1e-6
    assert np.allclose(there.means, here.means, atol=1e-12)
    assert np.abs(there.template @ turn - here.template).max() < 1e-6
    fits = [[entry.fit for entry in space.record.participants] for space in (here, there)]
    assert np.allclose(*fits, atol=1e-6)
    assert there.record.converged
    assert there.record.misfit == pytest.approx(here.record.misfit, rel=1e-5)
    assert there.record.residual < 1e-7
    assert (
        np.abs(matrix(made.study, tmp_path / "there").rows @ turn - matrix(made.study, tmp_path / "here").rows).max()
        < 1e-5
    )


@pytest.mark.parametrize("reduced", [False, True])
def test_too_few_bundles_are_told_and_what_came_is_remembered(client: Client, tmp_path: Path, reduced: bool) -> None:
    made = make(tmp_path)
    for path in list(made.inbox.iterdir())[1:]:
        path.unlink()
    with raising(InputError, "bundles", expected="two participants or more"):
        align_on_dask(client, made.study, made.inbox, tmp_path / "work", reduce_over_workers=reduced)
    assert len(json.loads((tmp_path / "work" / "intake.json").read_text())["remembered"]) == 1
    (tmp_path / "empty").mkdir()
    with raising(InputError, "bundles", got="0 that can be aligned"):
        align_on_dask(client, made.study, tmp_path / "empty", tmp_path / "work", reduce_over_workers=reduced)
    assert len(json.loads((tmp_path / "work" / "intake.json").read_text())["remembered"]) == 1
    with raising(StorageError, "the folder of bundles", reason="does not exist"):
        align_on_dask(client, made.study, tmp_path / "nowhere", tmp_path / "work")


def test_who_does_not_fit_is_set_aside_over_workers_too(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path, p=6)
    garbled(made, 3)
    aligned = aligned_locally(made, tmp_path / "here", certify=False)
    assert aligned.record.list_left_out().keys() == {"site-3"}
    for reduced in (False, True):
        alignment = align_on_dask(
            client, made.study, made.inbox, tmp_path / f"there-{reduced}", reduce_over_workers=reduced, certify=False
        )
        assert alignment.space.record.list_left_out().keys() == {"site-3"}
        assert "site-3" not in list_parts(tmp_path / f"there-{reduced}")


def garbled(made: Made, who: int) -> None:
    """Permute the rows of an anchor representation, in a bundle that is signed all the same."""
    path = made.inbox / f"site-{who}.bundle"
    drawn = np.random.default_rng(99).permutation(verify_bundle(path, made.study).anchor_representation)
    rewrite_bundle(path, made.study, made.keys[who], anchor_representation=drawn)


@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("first", ["local", "dask"])
def test_late_joiners_move_nobody(client: Client, tmp_path: Path, first: str, reduced: bool) -> None:
    made = make(tmp_path)
    late = made.inbox / "site-3.bundle"
    kept = late.read_bytes()
    late.unlink()
    work = tmp_path / "work"
    if first == "local":
        aligned_locally(made, work)
    else:
        align_on_dask(client, made.study, made.inbox, work, rows_at_once=9)
    before = matrix(made.study, work)
    late.write_bytes(kept)
    alignment = align_on_dask(client, made.study, made.inbox, work, mode="late", reduce_over_workers=reduced)
    assert alignment.space.record.newcomers == ("site-3",)
    after = matrix(made.study, work)
    assert np.array_equal(after.rows[: len(before.rows)], before.rows)
    assert after.names[len(before.names) :] == ["site-3"] * 400
    again = align_bundles(made.study, collect(made.study, made.inbox, work).bundles, work)
    assert set(again.names) == set(matrix(made.study, work).names) == set(after.names)


def test_a_late_joiner_at_home_reads_the_parts_of_the_others(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path)
    late, work = made.inbox / "site-3.bundle", tmp_path / "work"
    kept = late.read_bytes()
    late.unlink()
    align_on_dask(client, made.study, made.inbox, work, rows_at_once=9)
    before = matrix(made.study, work).rows
    late.write_bytes(kept)
    aligned_locally(made, work, mode="late")
    assert np.array_equal(matrix(made.study, work).rows[: len(before)], before)


def test_a_part_that_is_missing_or_of_other_maps_is_noticed(client: Client, tmp_path: Path) -> None:
    made, work = make(tmp_path), tmp_path / "work"
    align_on_dask(client, made.study, made.inbox, work, rows_at_once=9)
    part = part_path(work, "site-1", 1)
    kept = part.read_bytes()
    part.unlink()
    with raising(StorageError, "the collaboration matrix", reason="interrupted"):
        matrix(made.study, work)
    part.write_bytes(kept[: len(kept) // 2])
    with raising(StorageError, "the collaboration matrix", reason="cannot be read"):
        matrix(made.study, work)
    part.write_bytes(kept)
    matrix(made.study, work)
    (work / "collaboration" / ".0123.partial").write_bytes(b"")
    (made.inbox / "site-0.bundle").unlink()
    other = tmp_path / "other"
    align_on_dask(client, made.study, made.inbox, other, rows_at_once=9)
    part.write_bytes(part_path(other, "site-1", 1).read_bytes())
    with raising(StorageError, "the collaboration matrix", reason="interrupted"):
        matrix(made.study, work)
    mended = align_on_dask(client, made.study, made.inbox, other, rows_at_once=11)
    assert mended.parts_kept == 0  # other rows a part
    assert len(list_parts(other)["site-1"]) == 3
    assert "site-0" not in list_parts(other)


def test_a_bundle_that_changes_after_it_was_verified_is_refused(client: Client, tmp_path: Path) -> None:
    made, work = make(tmp_path), tmp_path / "work"

    def tampers(_: object) -> None:  # a label, after it was verified
        path = made.inbox / "site-2.bundle"
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(bytes(data))

    with raising(RefusedError, "the bundle", reason="site-2 changed"):
        align_on_dask(client, made.study, made.inbox, work, on_intake=tampers)
    with raising(StorageError, "the alignment", reason="none in this folder"):
        read_space(work, made.study)
    assert "site-2" not in list_parts(work)  # no part of it that a later run would keep
