"""A combiner that waits tests boxes as bundles arrive, sends receipts, and answers the closing list by itself."""

import shutil
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from mooring.errors import RefusedError, StorageError
from mooring.protocol.sums.analyst.total import open_total
from mooring.protocol.sums.answers import read_receipt, write_closing_list
from mooring.protocol.sums.combiner.watch import Watch, watch_boxes
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
        put(path, "closing.list")

    def close() -> None:
        assert sum("the closing list" in words for words in lines) == 1
        for i in range(1, 4):
            put(given.check_boxes(i))
        assert given.close(receipts=STORE).tested_by == ("p0", "p1", "p2", "p3")
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
    assert open_total(given.study, given.work, STORE).participants == ("p0", "p1", "p2")
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
