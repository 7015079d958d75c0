"""A combiner that waits tests boxes as bundles arrive, sends receipts, and answers the closing list by itself."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest

from mooring.errors import RefusedError, StorageError
from mooring.protocol.analyst.role import Analyst
from mooring.protocol.results import StepResult
from mooring.protocol.sums import steps
from mooring.protocol.sums.analyst.total import Closing
from mooring.protocol.sums.analyst.training import SumTraining
from mooring.protocol.sums.answers import read_receipt, write_closing_list
from mooring.protocol.sums.combiner.watch import Watch, watch_boxes
from mooring.protocol.workspace import Workspace
from mooring.report.step_pages import StepPages
from tests import commands
from tests.protocol.sums.support import make_sum_study
from tests.protocol.sums.test_secure_sums import list_entries, resign
from tests.raising import raising

STORE = "memory://watched"


class Clock:
    """A wait in which the next thing happens, and after the last of them nothing more may be waited for."""

    def __init__(self, *happenings: Callable[[], object]) -> None:
        self.left = list(happenings)

    def __call__(self, seconds: float) -> None:
        assert seconds == 5.0
        self.left.pop(0)()


def test_a_combiner_waits_at_a_store_and_answers_the_list_by_itself(folder: Path) -> None:
    given, store, lines = make_sum_study(folder, p=4, quorum=3), fsspec.filesystem("memory"), list[str]()
    seen = list[dict[str, bool]]()
    (folder / "own").mkdir()

    def put(path: Path, name: str = "") -> None:
        store.pipe(f"/watched/{name or path.name}", path.read_bytes())

    def look() -> None:
        store.get_file("/watched/p0.receipt", str(path := folder / "seen"))
        seen.append(read_receipt(path, given.study).passed)

    def copy_boxes() -> None:
        look()
        resign(given, given.inbox / "p1.bundle", path := given.inbox / "p3.bundle", 3)
        put(path)

    def put_own_list() -> None:
        """A list that is no analyst's is refused, and the combiner waits on."""
        look()
        write_closing_list(
            path := folder / "p1.list", given.study, dict(list_entries(given)), given.vaults[1].signing_key
        )
        put(path, "a.list")  # it stays there, and comes before the analyst's

    def close() -> None:
        assert sum("the closing list" in words for words in lines) == 1
        for i in range(1, 4):
            put(given.check_boxes(i))
        lab = Analyst(given.study, given.work, given.analyst.signing_key)
        closing = lab.gather(lab.collect(STORE).bundles, receipts=STORE)
        assert isinstance(closing, Closing)
        assert closing.tested_by == ("p0", "p1", "p2", "p3")
        put(given.work / "closing.list")

    clock = Clock(
        lambda: [put(given.share(i)) for i in range(3)], lambda: None, copy_boxes, put_own_list, lambda: None, close
    )
    watch = Watch(STORE, STORE, STORE, folder / "own", 5.0)
    result = watch_boxes(given.vaults[0], given.study, watch, tell=lines.append, wait=clock)
    assert clock.left == []
    assert [sorted(passed.values()) for passed in seen] == [[True] * 3, [False, *[True] * 3]]
    assert result.output == str(folder / "own" / "p0.share")
    for i in range(1, 4):
        put(given.combine(i))
    training = Analyst(given.study, given.work).train(shares=STORE)
    assert isinstance(training, SumTraining)
    assert training.contributors == ("p0", "p1", "p2")
    again = watch_boxes(given.vaults[0], given.study, watch, wait=Clock())  # the same share, without waiting
    assert again.digest == result.digest


def test_what_time_does_not_mend_ends_the_wait(folder: Path) -> None:
    given = make_sum_study(folder, p=3)
    for i in range(3):
        given.share(i)
    watch = Watch(given.inbox, folder, folder / "sent", folder, 5.0)
    (folder / "sent").mkdir()
    given.vaults[0].destroy_combining_key(given.study.member("p0").combining_key)
    with raising(StorageError, "the combining key"):
        watch_boxes(given.vaults[0], given.study, watch, wait=Clock())
    stranger = make_sum_study(folder / "others", p=2)
    with pytest.raises(RefusedError):
        watch_boxes(stranger.vaults[0], given.study, watch, wait=Clock())


def test_the_command_waits_in_a_folder(folder: Path) -> None:
    given = make_sum_study(folder, p=3)
    for i in range(3):
        given.share(i)
    given.close()
    given.study.write(study := folder / "study.toml")
    shutil.copy(given.work / "closing.list", given.inbox)
    combine = ("combine", "--bundles", given.inbox, "--study", study, "--vault", folder / "v1")
    commands.run(*combine, "--watch", "--every", 1, place=folder)
    assert (given.inbox / "p1.share").read_bytes() == given.combine(1, name="again").read_bytes()
    commands.run(*combine, "--every", 1, code=2, what="--every")
    commands.run(*combine, "--watch", "--output", folder / "x", code=2, what="--output")


def test_a_combiner_looks_every_minute_where_the_bundles_are_unless_it_is_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, workspace = list[Watch](), SimpleNamespace(vault=None, study=None, root=tmp_path, show=str)

    def watch_once(vault: object, study: object, watch: Watch, *, tell: object) -> StepResult:
        seen.append(watch)
        return StepResult("p0.share", "digest", ())

    monkeypatch.setattr("mooring.protocol.sums.combiner.watch.watch_boxes", watch_once)
    steps.watch(workspace, bundles="a")  # type: ignore[arg-type]
    steps.watch(workspace, bundles="a", lists="b", to="c", seconds=5.0)  # type: ignore[arg-type]
    assert seen == [Watch("a", "a", "a", tmp_path, 60.0), Watch("a", "b", "c", tmp_path, 5.0)]
    assert seen[0] == Watch("a", "a", "a", tmp_path)


def test_who_tested_and_whose_bundle_is_listed_and_there_follows_from_the_files(folder: Path) -> None:
    given = make_sum_study(folder, p=3, epsilon=None, least_rows=50)
    workspace = Workspace.at(folder, StepPages())
    shutil.copytree(given.vaults[0].folder, workspace.vault_folder)
    given.study.write(workspace.study_file)
    assert (steps.list_combiners(workspace), steps.count_enough_combiners(workspace)) == (("p0", "p1", "p2"), 3)
    bundle = given.share(0, data=given.table(0, 50))
    shutil.copy(given.check_boxes(0), folder)
    assert (steps.list_receipts(workspace), steps._has_tested(workspace)) == (["p0"], True)
    for i in (1, 2):
        given.share(i, data=given.table(i, 50))
    assert (steps.list_receipts(workspace), steps._has_tested(workspace)) == (
        [],
        False,
    )  # of the bundles that came since
    for i in range(3):
        shutil.copy(given.check_boxes(i), folder)
    assert (steps.list_receipts(workspace), steps._has_tested(workspace)) == (["p0", "p1", "p2"], True)
    assert (steps.list_listed(workspace), steps.list_arrived(workspace)) == ([], [])
    given.close()
    shutil.copy(given.work / "closing.list", folder)
    assert steps.list_listed(workspace) == steps.list_arrived(workspace) == ["p0", "p1", "p2"]
    bundle.unlink()
    assert (steps.list_listed(workspace), steps.list_arrived(workspace)) == (["p0", "p1", "p2"], ["p1", "p2"])
    (folder / "closing.list").write_bytes(b"damaged")
    (folder / "p0.receipt").write_bytes(b"damaged")
    assert (steps.list_listed(workspace), steps._has_tested(workspace)) == ([], False)
    (folder / "p0.share").write_bytes(b"answered")
    assert steps._has_tested(workspace)
