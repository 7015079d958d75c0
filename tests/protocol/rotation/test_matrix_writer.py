"""How the writing of the collaboration matrix is split, what is kept of it, and how much of it is said to be done."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mooring.protocol.rotation.analyst.alignment import Backend, align_bundles
from mooring.protocol.rotation.analyst.collaboration_matrix import list_parts
from mooring.protocol.rotation.analyst.matrix_writer import MatrixWriter, WriteTask, _batches
from mooring.protocol.rotation.bundle import RowBundle
from tests.protocol.rotation.support import bundles_of, prepared, send, sent, sites_of
from tests.sites import numeric_study


def task(n_rows: int, *, block: int = 1, first: int = 0, last: int = 10**6) -> WriteTask:
    bundle: Any = SimpleNamespace(n_rows=n_rows, digest="bundle", member=SimpleNamespace(name="a"))
    space: Any = SimpleNamespace(map_digest=lambda index: f"map {index}")
    return WriteTask(Path(), bundle, space, block, first, last)


def test_a_part_has_sixteen_blocks_and_the_last_one_what_is_left() -> None:
    whole = task(100, block=2, last=4)
    ranges = [(whole.facts(k).start, whole.facts(k).stop) for k in range(4)]
    assert ranges == [(0, 32), (32, 64), (64, 96), (96, 100)]
    assert (whole.n_rows, task(100, block=2, first=2, last=4).n_rows, task(100, block=2, last=3).n_rows) == (
        100,
        36,
        96,
    )
    assert (whole.facts(0).bundle, whole.facts(0).map) == ("bundle", "map 0")


@pytest.mark.parametrize(
    ("rows", "n_components", "sizes"),
    [
        ([1] * 70, 1, [32, 32, 6]),
        ([1] * 64, 1, [32, 32]),
        ([2**16] * 5, 1, [2, 2, 1]),
        ([2**16 - 1] * 5, 1, [3, 2]),
        ([2**14] * 5, 4, [2, 2, 1]),
        ([2**20] * 2, 1, [1, 1]),
        ([], 1, []),
    ],
)
def test_small_participants_share_a_batch(rows: list[int], n_components: int, sizes: list[int]) -> None:
    tasks = [task(n) for n in rows]
    batches = list(_batches(iter(tasks), n_components))
    assert [len(batch) for batch in batches] == sizes
    assert [each for batch in batches for each in batch] == tasks


@dataclass(frozen=True, eq=False)
class AwayBundle(RowBundle):
    """A bundle whose file would have to be fetched."""

    @property
    def is_away(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("n_rows", "most_tasks", "ranges"),
    [
        (1, 4, [(0, 1)]),
        (16 * 100, 1, [(0, 100)]),
        (16 * 100, 4, [(0, 25), (25, 50), (50, 75), (75, 100)]),
        (16 * 99, 4, [(0, 25), (25, 50), (50, 75), (75, 99)]),
        (16 * 20, 4, [(0, 8), (8, 16), (16, 20)]),  # eight parts a task at least
        (16 * 8, 2, [(0, 8)]),
        (16 * 8 + 1, 2, [(0, 8), (8, 9)]),
    ],
)
def test_a_large_participant_is_split_into_tasks_unless_its_bundle_must_be_fetched(
    n_rows: int, most_tasks: int, ranges: list[tuple[int, int]], tmp_path: Path
) -> None:
    study = numeric_study(p=3)
    sent(study, tmp_path / "inbox", n=5)
    bundles = bundles_of(study, tmp_path / "inbox")
    space = align_bundles(study, bundles, tmp_path / "work", certify=False)
    large = replace(bundles[1], n_rows=n_rows)
    for bundle, expected in ((large, ranges), (AwayBundle(**vars(large)), [(0, ranges[-1][1])])):
        counts: dict[str, int] = {}
        tasks = list(MatrixWriter(most_tasks=most_tasks)._tasks(tmp_path, space, {"site-1": bundle}, 1, counts))
        assert [(each.first, each.last) for each in tasks] == expected
        assert counts == {"site-1": ranges[-1][1]}
        assert {each.name for each in tasks} == {"site-1"}
        assert tasks[0].space.map_digest(0) == space.map_digest(1)
        sent_along = tasks[0].space
        assert [len(part) for part in (sent_along.orthogonals, sent_along.means, sent_along.template)] == [1, 1, 0]
        assert tasks[0].bundle.anchor_representation.size == 0  # to another machine, if need be
    (whole,) = MatrixWriter()._tasks(tmp_path, space, {"site-1": large}, 1, {})
    assert (whole.first, whole.last) == (0, ranges[-1][1])  # in one process nobody reads a bundle twice


def test_parts_of_an_earlier_run_are_kept_and_progress_counts_rows(tmp_path: Path) -> None:
    study, done = numeric_study(p=4), list[tuple[float, float]]()
    work, _ = tmp_path / "work", sent(study, tmp_path / "inbox", [0, 1, 2])
    writer = MatrixWriter(rows_at_once=1)  # sixteen of 60 rows a part

    def align(mode: Any) -> Any:
        done.clear()
        bundles = bundles_of(study, tmp_path / "inbox")
        return align_bundles(
            study,
            bundles,
            work,
            mode=mode,
            certify=False,
            progress=lambda *now: done.append(now),
            backend=Backend(writer=writer),
        )

    align("first")
    assert {name: len(paths) for name, paths in list_parts(work).items()} == dict.fromkeys(
        ["site-0", "site-1", "site-2"], 4
    )
    assert (writer.kept, done) == (0, [(180, 180)])
    list_parts(work)["site-1"][2].unlink()
    align("again")
    assert (writer.kept, done) == (11, [(180, 180)])
    send(study, sites_of(study)[3], 3, tmp_path / "inbox")
    align("late")
    assert (writer.kept, done) == (0, [(240, 240)])  # the parts of others are not looked into
    assert [len(paths) for paths in list_parts(work).values()] == [4] * 4


def test_parts_beyond_the_last_and_those_of_others_are_removed(tmp_path: Path) -> None:
    study = numeric_study(p=3)
    work, _ = prepared(study, tmp_path)
    (whole,) = list_parts(work)["site-0"]
    for name in ("part-site-0-000001.parquet", "part-site-9-000000.parquet", "part-site-2-000007.parquet"):
        (whole.parent / name).write_bytes(whole.read_bytes())
    (whole.parent / "note.txt").write_text("ours")
    bundles = bundles_of(study, tmp_path / "inbox")
    align_bundles(study, bundles[:2], work, mode="again", certify=False)
    assert {name: len(paths) for name, paths in list_parts(work).items()} == {"site-0": 1, "site-1": 1}
    assert (whole.parent / "note.txt").exists()
