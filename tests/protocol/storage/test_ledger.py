"""The ledger: whatever is shared, in whatever order, study or file, no row goes out twice with different noise."""

import hmac
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from mooring.errors import RefusedError, StorageError
from mooring.protocol.crypto.derivation import Stream
from mooring.protocol.crypto.keys import Secret
from mooring.protocol.rotation.bundle import verify_bundle
from mooring.protocol.storage.fingerprints import (
    Fingerprinter,
    RowSummary,
    find_known_rows,
    shrink_indices,
    summarise_rows,
)
from mooring.protocol.storage.ledger import Ledger, Spending, _entry
from mooring.tables.mapping import ColumnMapping, MappedTable, TableMapping
from mooring.tables.schema import Column, Label
from tests.raising import raising

FULL = 3  # studies of all columns; one more has fewer columns of the same records


def studies_of(small_study):
    full = [small_study, *(small_study.another(nonce=f"{k}" * 32) for k in range(1, FULL))]
    columns = small_study.study.columns[:3]
    return [*full, small_study.another(nonce="f" * 32, columns=columns, n_components=3)]


def test_no_row_goes_out_twice_with_different_noise(small_study):
    """The claim, as a machine that shares, loses power over order, files and studies, and restores backups.

    What is exempt: an overlap of at most 1 % of the rows, which no table here is long enough for; rows that only a part of
    another study's columns tells, unless all of them are shared again; and what a restored backup cannot know. Even then the
    same rows in the same study have the same bytes, and a participant one anchor representation a study.
    """
    studies = studies_of(small_study)

    class Sharing(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.vault = small_study.copy_of_vault("stateful")
            self.known: dict[int, frozenset[int]] = {}  # what the vault's ledger must know: study → rows
            self.backup: tuple[Path, dict[int, frozenset[int]]] | None = None
            self.issued: dict[tuple[int, frozenset[int]], bytes] = {}  # everything that ever left
            self.anchors: dict[int, bytes] = {}
            self.times = 0

        @rule(
            which=st.integers(0, FULL),
            first=st.sampled_from([0, 10, 20, 30]),
            count=st.sampled_from([10, 20, 30]),
            order=st.randoms(use_true_random=False),
        )
        def share(self, which, first, count, order):
            rows = list(range(first, first + count))
            order.shuffle(rows)
            chosen, study = frozenset(rows), studies[which]
            data, output = study.write_table("stateful.csv", rows), study.folder / "stateful.bundle"
            output.unlink(missing_ok=True)
            ignore = ("c3",) if which == FULL else ()
            try:
                shared = study.share(self.vault, data, output=output, ignore=ignore)
            except RefusedError:
                assert not output.exists()
                assert self.must_refuse(which, chosen)
                return
            assert not self.must_refuse(which, chosen)
            assert shared.reissued == (self.known.get(which) == chosen)
            content = output.read_bytes()
            assert self.issued.setdefault((which, chosen), content) == content
            anchor = verify_bundle(output, study.study).anchor_representation.tobytes()
            assert self.anchors.setdefault(which, anchor) == anchor
            self.known[which] = chosen

        def must_refuse(self, which: int, rows: frozenset[int]) -> bool:
            if which in self.known:
                return self.known[which] != rows
            return any(
                bool(rows & earlier) if (which == FULL) == (other == FULL) else rows == earlier
                for other, earlier in self.known.items()
            )

        @rule()
        def take_a_backup(self):
            folder = small_study.folder / "backup"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self.vault.folder, folder)
            self.backup = (folder, dict(self.known))

        @rule()
        def restore_the_backup(self):
            if self.backup is not None:
                shutil.rmtree(self.vault.folder)
                shutil.copytree(self.backup[0], self.vault.folder)
                self.known = dict(self.backup[1])

        @invariant()
        def every_row_is_in_one_upload_that_the_ledger_knows(self):
            full = [rows for which, rows in self.known.items() if which != FULL]
            assert sum(len(rows) for rows in full) == len(frozenset().union(*full))

        @invariant()
        def the_ledger_says_what_left(self):
            entries = {(entry.study, entry.n_rows) for entry in Ledger(self.vault.folder).entries() if entry.bundle}
            assert entries == {(studies[which].study.digest, len(rows)) for which, rows in self.known.items()}

    run_state_machine_as_test(
        Sharing,
        settings=settings(max_examples=25, stateful_step_count=16, deadline=None, derandomize=True, database=None),
    )


def test_the_same_rows_in_any_order_and_writing_are_given_the_same_bytes(small_study):
    first, second = small_study.folder / "first.bundle", small_study.folder / "second.bundle"
    small_study.share(data=small_study.write_table("d.csv", range(20, 40)), output=first)
    moved = small_study.write_table("moved.csv", list(range(20, 40))[::-1])
    moved.write_text(moved.read_text().replace("\n0.", "\n+0.").replace(",0.", ",00."))
    assert small_study.share(data=moved, output=second).reissued
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("moment", ["before the share", "the intent"])
def test_a_backup_restored_from_before_the_share_gives_the_same_bytes(small_study, moment, monkeypatch):
    """Joined, backed up, shared, lost, restored, shared again, the file in another order: nothing was drawn afresh."""
    vault = small_study.vaults[1]
    if moment == "the intent":
        with monkeypatch.context() as patched:
            patched.setattr("mooring.protocol.rotation.participant.upload.encode_signed_header", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                small_study.share(output=small_study.folder / "none.bundle")
        assert [entry.bundle for entry in Ledger(vault.folder).entries()] == [None]
    shutil.copytree(vault.folder, small_study.folder / "backup")
    first, second = small_study.folder / "first.bundle", small_study.folder / "second.bundle"
    assert not small_study.share(output=first).reissued
    shutil.rmtree(vault.folder)
    shutil.copytree(small_study.folder / "backup", vault.folder)
    shuffled = small_study.write_table("shuffled.csv", np.random.default_rng(1).permutation(range(20, 40)).tolist())
    assert not small_study.share(data=shuffled, output=second).reissued  # the backup knows of nothing
    assert first.read_bytes() == second.read_bytes()


def test_a_lost_copy_of_the_bundle_is_made_again_to_the_same_bytes(small_study):
    first, second = small_study.folder / "first.bundle", small_study.folder / "second.bundle"
    small_study.share(output=first)
    for damage in (lambda path: path.unlink(), lambda path: path.write_bytes(b"torn")):
        (kept,) = small_study.vaults[1].folder.rglob("upload.bundle")
        damage(kept)
        assert small_study.share(output=second).reissued
        assert first.read_bytes() == second.read_bytes()


def test_rows_added_later_are_refused(small_study):
    first, second = small_study.folder / "first.bundle", small_study.folder / "second.bundle"
    small_study.share(output=first)
    for rows in (range(20, 41), range(20, 39), range(40, 60), [*range(20, 40), 20]):
        with raising(RefusedError, "a second upload", reason="in this study"):
            small_study.share(data=small_study.write_table("more.csv", list(rows)), output=second)
        assert not second.exists()
    assert small_study.share(output=second).reissued
    assert first.read_bytes() == second.read_bytes()


def test_the_anchor_representation_is_the_same_whatever_the_rows(small_study):
    """A participant that starts again from an old backup with more rows shows the analyst no second view of its map."""
    items = set()
    for rows in (range(20, 40), range(20, 50), range(0, 3)):
        vault, output = small_study.copy_of_vault("again"), small_study.folder / "out.bundle"
        small_study.share(vault, small_study.write_table("rows.csv", list(rows)), output=output)
        items.add(verify_bundle(output, small_study.study).anchor_representation.tobytes())
    assert len(items) == 1


def test_an_intent_that_was_never_finished_gives_way(small_study, monkeypatch):
    """Nothing has left before the ledger says that the bundle is finished."""
    with monkeypatch.context() as patched:
        patched.setattr("mooring.protocol.rotation.participant.upload.encode_signed_header", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            small_study.share(output=small_study.folder / "none.bundle")
    output = small_study.folder / "out.bundle"
    assert small_study.share(data=small_study.table(2), output=output).n_rows == 20
    elsewhere = small_study.another(nonce="f" * 32)
    assert not elsewhere.share(output=output).reissued  # rows of an intent alone were never seen by anybody


def seen(n_rows: range, n_columns: int = 3) -> RowSummary:
    key = Secret(bytes(32))
    values = np.random.default_rng(0).normal(size=(2000, n_columns))[n_rows.start : n_rows.stop]
    prints = Fingerprinter(key, [f"c{k}" for k in range(n_columns)])
    prints.add(values)
    return summarise_rows(key, prints.take(), prints.column_tags())[0]


def known(folder: Path, rows: RowSummary) -> Ledger:
    ledger = Ledger(folder)
    ledger.record_intent("0" * 64, "earlier", rows)
    ledger.record_bundle("0" * 64, "f" * 64)
    return ledger


@pytest.mark.parametrize(("shared", "refused"), [(3, False), (4, True)])
def test_an_overlap_of_one_percent_is_let_through_and_no_more(folder, shared, refused):
    """Two hospitals' tables may share a patient; the exception is bounded by the shorter of the two uploads."""
    ledger = known(folder, seen(range(0, 300)))
    rows = seen(range(300 - shared, 600 - shared))
    if refused:
        with raising(RefusedError, "a second upload", reason=f"{shared} of these rows"):
            ledger.record_intent("1" * 64, "later", rows)
    else:
        ledger.record_intent("1" * 64, "later", rows)


def test_a_small_upload_within_a_large_one_is_no_small_overlap(folder):
    """All ten rows of the first upload would have fresh noise, though they are one percent of the second."""
    ledger = known(folder, seen(range(0, 10)))
    with raising(RefusedError, "a second upload", reason="10 of these rows"):
        ledger.record_intent("1" * 64, "later", seen(range(0, 1000)))


def flip_bit(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:80]),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes() + b"\0"),
        lambda path: path.write_bytes(flip_bit(path.read_bytes(), 0)),
        lambda path: path.write_bytes(flip_bit(path.read_bytes(), 799)),
        lambda path: path.write_bytes(flip_bit(path.read_bytes(), 800)),
    ],
)
def test_a_ledger_that_lost_fingerprints_lets_nothing_through(folder, damage):
    ledger = known(folder, seen(range(0, 100)))
    (prints,) = folder.glob("*.prints")
    assert prints.name == f"rows-{'0' * 32}.prints"  # as in ledgers that are kept
    damage(prints)
    with raising(StorageError, "the ledger", reason="fingerprints"):
        ledger.record_intent("1" * 64, "later", seen(range(50, 150)))


def test_a_ledger_that_cannot_be_read_lets_nothing_through(small_study):
    small_study.share(output=small_study.folder / "out.bundle")
    (small_study.vaults[1].folder / "ledger.sqlite").write_bytes(b"torn" * 4096)
    with raising(StorageError, "the ledger"):
        small_study.another(nonce="f" * 32).share(output=small_study.folder / "second.bundle")
    assert not (small_study.folder / "second.bundle").exists()


def test_the_ledger_is_written_ahead_and_in_full(small_study):
    small_study.share(output=small_study.folder / "out.bundle")
    connection = sqlite3.connect(small_study.vaults[1].folder / "ledger.sqlite")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
    with Ledger(small_study.vaults[1].folder)._connect() as database:
        assert database.execute("PRAGMA synchronous").fetchone() == (2,)


def test_the_ledger_holds_neither_rows_nor_their_digest_without_the_key(small_study):
    """Fingerprints are keyed: another vault's of the same rows have nothing in common, so nobody can look rows up."""
    for i in (1, 2):
        small_study.share(small_study.vaults[i], small_study.table(1), output=small_study.folder / "out.bundle")
    (first,), (second,) = (Ledger(small_study.vaults[i].folder).entries() for i in (1, 2))
    assert first.rows_digest != second.rows_digest
    assert not set(first.column_tags) & set(second.column_tags)
    prints = [np.fromfile(next(small_study.vaults[i].folder.glob("*.prints")), dtype="<u8", count=20) for i in (1, 2)]
    assert not np.intersect1d(*prints).size
    held = b"".join(path.read_bytes() for path in small_study.vaults[1].folder.glob("*") if path.is_file())
    for record in small_study.records[20:40]:
        for value in record[:4]:
            assert np.float64(value).tobytes() not in held
            assert np.float32(value).tobytes() not in held


def test_tables_that_only_look_alike_are_let_through(small_study):
    """Other rows with the same labels and a constant column in common are other rows."""
    small_study.share(output=small_study.folder / "out.bundle")
    other = small_study.another(nonce="f" * 32)
    assert not other.share(data=small_study.table(2), output=small_study.folder / "second.bundle").reissued


def test_fingerprints_tell_rows_apart_and_know_them_again():
    """100,000 rows of few different numbers, and each other order of two columns: no two alike by chance.

    For 64-bit prints the chance of any collision is below 1e-9; a print that lost half of its bits would have some with
    certainty (n²/2³³ > 1).
    """
    numbers, other = (
        np.arange(1, 101),
        [1, 2, 3.5, -1, -2, 4, 8, 16, 0.5, 0.25],
    )  # zeros have no part in a print, whatever the key
    grid = np.array(np.meshgrid(numbers, numbers, other)).reshape(3, -1).T
    prints = Fingerprinter(Secret(bytes(32)), ["a", "b", "c"])
    digests = prints.add(np.asfortranarray(grid, dtype=np.float64))
    assert np.unique(digests).size == grid.shape[0] == 100_000
    blocks = Fingerprinter(Secret(bytes(32)), ["a", "b", "c"])
    again = np.concatenate([blocks.add(grid[:7].astype(float)), blocks.add(grid[7:].astype(float))])
    assert np.array_equal(digests, again)
    assert blocks.column_tags() == prints.column_tags()
    moved = Fingerprinter(Secret(bytes(32)), ["c", "a", "b"]).add(np.ascontiguousarray(grid[:, [2, 0, 1]], dtype=float))
    assert np.array_equal(digests, moved)  # a column is known by its name, not by where it stands
    renamed = Fingerprinter(Secret(bytes(32)), ["a", "b", "d"]).add(grid.astype(float))
    keyed = Fingerprinter(Secret(bytes([1] * 32)), ["a", "b", "c"]).add(grid.astype(float))
    assert not np.intersect1d(digests, renamed).size
    assert not np.intersect1d(digests, keyed).size
    assert np.array_equal(prints.add(np.zeros((1, 3))), prints.add(-np.zeros((1, 3))))


def test_a_column_has_a_tag_once_it_varies_in_whatever_block():
    prints = Fingerprinter(Secret(bytes(32)), ["a", "b", "c"])
    prints.add(np.array([[1.0, 2.0, 3.0], [1.0, 2.5, 3.0]]))
    assert len(prints.column_tags()) == 1
    prints.add(np.array([[1.0, 2.0, 3.5]]))
    assert len(prints.column_tags()) == 2
    assert prints.n_rows == 3
    alone = Fingerprinter(Secret(bytes(32)), ["a"])
    alone.add(np.array([[0.0], [-0.0]]))  # the same number
    assert alone.column_tags() == ()


def test_rows_are_known_again_wherever_they_stand_and_equal_ones_once():
    prints, earlier = np.array([1, 1, 2, 3, 3, 9], dtype=np.uint64), np.array([1, 3, 9], dtype=np.uint64)
    assert find_known_rows(prints, earlier).tolist() == [True, False, False, True, False, True]
    assert find_known_rows(earlier, prints).tolist() == [True, True, True]


@pytest.mark.parametrize(("n_rows", "dtype"), [(2**32 - 1, np.uint32), (2**32, np.uint64)])
def test_indices_have_half_the_memory_below_two_to_the_32_rows(n_rows, dtype):
    shrunk = shrink_indices(np.arange(3), n_rows)
    assert (shrunk.dtype, shrunk.tolist()) == (dtype, [0, 1, 2])


def test_fingerprints_and_tags_of_columns_are_those_that_kept_ledgers_hold():
    """Another value would let rows that were shared before pass for new ones."""
    prints = Fingerprinter(Secret(bytes(32)), ["a", "b"])
    digests = prints.add(np.array([[1.0, -0.0], [0.1, -2.5], [1e300, 3.0]])).tolist()
    assert digests == [17478324747679696686, 887591132113380911, 12932664950489695819]
    assert prints.column_tags() == ("4495eb9d6a311b07c68928b29b1e1394", "2fba00332d36ea7ad7a6ea6fcac24654")


def test_one_study_gets_one_upload_a_vault_and_each_vault_its_own(small_study):
    first, second = small_study.folder / "first.bundle", small_study.folder / "second.bundle"
    small_study.share(small_study.vaults[1], output=first)
    small_study.share(small_study.vaults[2], output=second)
    ours, theirs = (verify_bundle(path, small_study.study) for path in (first, second))
    assert not np.allclose(ours.anchor_representation, theirs.anchor_representation)


def test_noise_of_another_version_of_the_study_is_other_noise(small_study, monkeypatch):
    """Less noise for the same rows, from a restored backup: the two bundles must not share their noise.

    The noise itself is compared, over 80 numbers of rows and 40 of the anchor: unrelated ones stay below 0.85 (five
    standard errors of 40), the same ones at another scale reach 1.
    """
    collected = []
    for scale in (0.3, 0.6):
        study, arrays = small_study.another(data_noise_scale=scale, anchor_noise_scale=scale / 4), []
        for silent in (False, True):
            with monkeypatch.context() as patched:
                if silent:
                    patched.setattr(Stream, "normals", _without_noise(Stream.normals))
                output = small_study.folder / "out.bundle"
                study.share(small_study.copy_of_vault("again"), output=output)
            (kept,) = (small_study.folder / "again").rglob("upload.bundle")
            raw = np.frombuffer(kept.read_bytes()[-4 * 20 * 5 - 4 * 10 * 4 :], dtype="<f4")
            arrays.append((raw[:40].astype(float), raw[40:120].astype(float)))
        collected.append([noisy - clean for noisy, clean in zip(*arrays, strict=True)])
    for ours, theirs in zip(*collected, strict=True):
        assert np.abs(ours).max() > 0.01
        assert abs(np.corrcoef(ours, theirs)[0, 1]) < 0.85


def _without_noise(normals):
    """Zeros for what is added to 40 numbers of the anchor and 80 of the rows; the map's 20 numbers as they are."""

    def silent(self, start, count):
        return np.zeros(count) if count in (40, 80) else normals(self, start, count)

    return silent


def test_a_little_of_each_of_many_earlier_uploads_is_much(folder):
    """One percent of each of ten uploads would be a tenth of the rows with a second noise."""
    ledger = Ledger(folder)
    for k in range(10):
        ledger.record_intent(f"{k:x}" * 64, f"study {k}", seen(range(100 * k, 100 * k + 100)))
        ledger.record_bundle(f"{k:x}" * 64, "f" * 64)
    values = np.random.default_rng(0).normal(size=(2000, 3))
    chosen = np.concatenate([values[:1000:100], values[1000:1090]])
    prints = Fingerprinter(Secret(bytes(32)), ["c0", "c1", "c2"])
    prints.add(chosen)
    rows = summarise_rows(Secret(bytes(32)), prints.take(), prints.column_tags())[0]
    with raising(RefusedError, "a second upload", reason="10 of these rows") as caught:
        ledger.record_intent("a" * 64, "later", rows)
    assert "several studies" in caught.value.reason


@pytest.mark.parametrize(("n_rows", "refused"), [(200, False), (199, True)])
def test_of_all_earlier_uploads_together_one_percent_may_be_shared_again(folder, n_rows, refused):
    """One row of each of two uploads."""
    ledger = Ledger(folder)
    for k in range(2):
        ledger.record_intent(f"{k}" * 64, f"study {k}", seen(range(300 * k, 300 * k + 300)))
        ledger.record_bundle(f"{k}" * 64, "f" * 64)
    values = np.random.default_rng(0).normal(size=(2000, 3))[[0, 300, *range(600, 598 + n_rows)]]
    prints = Fingerprinter(Secret(bytes(32)), ["c0", "c1", "c2"])
    prints.add(values)
    rows = summarise_rows(Secret(bytes(32)), prints.take(), prints.column_tags())[0]
    if refused:
        with raising(RefusedError, "a second upload", reason="several studies"):
            ledger.record_intent("a" * 64, "later", rows)
    else:
        assert ledger.record_intent("a" * 64, "later", rows).n_rows == n_rows


def test_the_same_rows_with_another_label_or_under_other_names_are_the_same_rows(small_study):
    """What carries noise is the columns: a study of another label, with a row more, would be a second draw."""
    small_study.share(data=small_study.write_table("first.csv", range(20, 40)), output=small_study.folder / "1.bundle")
    for names, rows in ((["c0", "c1", "c2", "c3", "z"], range(20, 41)), (["d0", "d1", "d2", "d3", "z"], range(20, 40))):
        data = small_study.write_table("other.csv", rows)
        data.write_text(data.read_text().replace("c0,c1,c2,c3,y", ",".join(names)))
        columns = tuple(Column(name, "number", -5, 5, outside="clip") for name in names[:4])
        other = small_study.another(columns=columns, label=Label("z", "classes", ("a", "b")))
        with raising(RefusedError, "a second upload", reason="already been uploaded"):
            other.share(data=data, output=small_study.folder / "2.bundle")
        assert not (small_study.folder / "2.bundle").exists()


# -------------------------------------------------------------------- a study's author cannot make rows look like others

STAGES = ["1", "2", "3", "2", "1", "3", "2", "1", "2", "3", "1", "1", "2", "3", "3", "2", "1", "2", "3", "1"]
AGES = [str(30 + 7 * k % 23) for k in range(20)]
SEEN = [f"2020-01-{1 + 3 * k % 28:02d}" for k in range(20)]


def write_clinic(small_study) -> Path:
    path = small_study.folder / "clinic.csv"
    lines = [f"{stage},{age},{SEEN[k]},{'ab'[k % 2]}" for k, (stage, age) in enumerate(zip(STAGES, AGES, strict=True))]
    path.write_text("\n".join(["stage,age,seen,y", *lines]) + "\n")
    return path


STAGE = Column("stage", "category", categories=("1", "2", "3"))
AGE = Column("age", "number", 0, 120, missing="fill")
DATE = Column("seen", "date", 0, 365, day="2020-01-01")


@pytest.mark.parametrize(
    ("columns", "missing_words"),
    [
        ((Column("stage", "category", categories=("1.0", "2.0", "3.0")), AGE, DATE), ()),
        ((Column("stage", "category", categories=("1.00", "+2", "3e0")), AGE, DATE), ()),
        ((STAGE, AGE, DATE), (AGES[0], AGES[1], AGES[2], AGES[3])),
        ((STAGE, AGE, DATE), (f"{AGES[0]}.0", "unknown")),
        ((STAGE, replace(AGE, missing_words=(AGES[0], "unknown")), DATE), ()),
        ((STAGE, AGE, replace(DATE, missing="fill", missing_words=(SEEN[0],))), ()),
        ((STAGE, AGE, Column("seen", "age", 0, 99, day="2026-01-01")), ()),
        ((STAGE, AGE, replace(DATE, day="2019-06-01")), ()),
        ((STAGE, AGE, Column("seen", "category", categories=tuple(sorted(SEEN)))), ()),
        ((Column("stage", "integer", 1, 3), AGE, DATE), ()),
        ((Column("stage", "number", 0, 9), Column("age", "category", categories=tuple(sorted(set(AGES)))), DATE), ()),
    ],
    ids=[
        "points", "spellings", "missing numbers", "missing words", "missing in a column", "missing day", "age",
        "another day", "days as words", "integer", "kinds swapped",
    ],
)  # fmt: skip
def test_another_declaration_of_the_same_cells_is_a_second_upload(small_study, columns, missing_words):
    """Averaging over 16 such studies left a quarter of the noise. Every kind, spelling and missing word is the author's."""
    data = write_clinic(small_study)
    width = sum(column.width for column in (STAGE, AGE, DATE))
    first = small_study.another(columns=(STAGE, AGE, DATE), n_components=width, n_anchor_rows=4 * width)
    first.share(data=data, output=small_study.folder / "first.bundle")
    width = sum(column.width for column in columns)
    second = small_study.another(
        nonce="e" * 32, columns=columns, missing_words=missing_words, n_components=width, n_anchor_rows=4 * width
    )
    with raising(RefusedError, "a second upload"):
        second.share(data=data, output=small_study.folder / "second.bundle")


def test_a_mapping_to_other_words_of_a_study_is_a_second_upload(small_study):
    """A study that names columns and words anew makes a site map them; what the site's table says is the same."""
    path = small_study.folder / "own.csv"
    lines = [f"{'FMX'[k % 3]};{'WE'[k % 7 % 2]};{20 + k % 31},5;{1 + k % 28}.1.2020;{'ab'[k % 2]}" for k in range(20)]
    path.write_text("\n".join(["sex;area;size;seen;y", *lines]) + "\n")
    for nonce, names, words in (
        ("d" * 32, ("gender", "region", "size"), {"F": "female", "M": "male", "W": "west", "E": "east"}),
        ("e" * 32, ("sex", "side", "length"), {"F": "woman", "M": "man", "W": "left", "E": "right"}),
    ):
        gender, region, size = names
        columns = (
            Column(gender, "category", categories=(words["F"], words["M"], "other")),
            Column(region, "category", categories=(words["W"], words["E"]), missing="fill"),
            Column(size, "number", 0, 100, missing="fill"),
            Column("seen", "date", 0, 365, day="2020-01-01", missing="fill"),
        )
        h = sum(column.width for column in columns)
        study = small_study.another(nonce=nonce, columns=columns, n_components=h, n_anchor_rows=4 * h)
        mapping = TableMapping(
            decimal=",",
            date_format="%d.%m.%Y",
            missing_words=() if nonce[0] == "d" else ("20.5", "1.1.2020"),
            columns={
                gender: ColumnMapping("sex", words={"F": words["F"], "M": words["M"]}, other="other"),
                region: ColumnMapping("area", words={"W": words["W"], "E": words["E"]}),
                size: ColumnMapping("size"),
            },
        )
        output, data = small_study.folder / f"{nonce[0]}.bundle", MappedTable(path, mapping.fit_to(study.study.schema))
        if nonce[0] == "d":
            study.share(data=data, output=output)
            continue
        with raising(RefusedError, "a second upload"):
            study.share(data=data, output=output)


@pytest.mark.parametrize("n_copies", [1, 20_000])  # a few rows, and more than are hashed at a time
def test_the_digest_of_rows_does_not_depend_on_their_order(n_copies):
    """Rows with one fingerprint are put in the order of their labels, wherever among the others they stand."""
    prints, labels = np.array([7, 3, 3, 9, 5, 5, 5], dtype=np.uint64), np.array([0, 1, 0, 1, 2, 0, 1])
    rng, digests = np.random.default_rng(0), set()
    for _ in range(20 if n_copies == 1 else 2):
        order = rng.permutation(n_copies * prints.size) % prints.size
        digests.add(summarise_rows(Secret(bytes(32)), prints[order], ["a"], labels[order])[0].digest)
    ordered = np.repeat(np.array([3, 3, 5, 5, 5, 7, 9], "<u8"), n_copies).tobytes()
    ordered += np.repeat(np.array([0, 1, 0, 1, 2, 0, 1], "<f4"), n_copies).tobytes()
    assert digests == {hmac.new(bytes(32), ordered, "sha256").hexdigest()}


@pytest.mark.parametrize(("n_same", "refused"), [(2, False), (3, True)])
def test_as_many_rows_with_more_than_half_of_the_columns_are_the_same_rows(folder, n_same, refused):
    """However their other columns are spelt; rows of whom nothing else is known again."""
    ledger, later = known(folder, seen(range(0, 300), 4)), seen(range(300, 600), 4)
    tags = (*ledger.entries()[0].column_tags[:n_same], *later.column_tags[n_same:])
    if refused:
        with raising(RefusedError, "a second upload", reason="these rows"):
            ledger.record_intent("1" * 64, "later", replace(later, column_tags=tags))
    else:
        ledger.record_intent("1" * 64, "later", replace(later, column_tags=tags))


@pytest.mark.parametrize(
    "changed",
    [
        {0: None}, {1: 7}, {2: b"x"}, {3: -1}, {3: "3"}, {3: True}, {3: 2.0}, {4: None}, {5: 1}, {6: 1}, {7: b"x"},
        {8: "more"}, {5: ...},
    ],
)  # fmt: skip
def test_an_entry_of_another_form_is_damaged(changed):
    fine = {0: "study", 1: "name", 2: "digest", 3: 0, 4: "a b", 5: None, 6: "", 7: ""}
    assert (_entry(list(fine.values())).n_rows, _entry(list(fine.values())).column_tags) == (0, ("a", "b"))
    with raising(StorageError, "the ledger", reason="an entry"):
        _entry([value for value in (fine | changed).values() if value is not ...])


def test_a_vault_spends_up_to_the_limit_and_no_more_whatever_its_rows(folder):
    ledger, rows, others = Ledger(folder), seen(range(100)), seen(range(100, 200))
    first = Spending(1.5, "key 0", 4.0)
    ledger.record_intent("0" * 64, "earlier", rows, spending=first)
    assert ledger.spent_epsilon("1" * 64) == 0.0  # until its bundle is there, it may not have left
    ledger.record_bundle("0" * 64, "f" * 64)
    second = replace(first, epsilon=2.5, combining_key="key 1")
    assert (ledger.spent_epsilon("1" * 64), ledger.spent_epsilon("0" * 64)) == (1.5, 0.0)
    for part in (rows, others, seen(range(0))):
        with raising(RefusedError, "the upload", reason="epsilon = 4.1 in all its studies"):
            ledger.record_intent("1" * 64, "later", part, spending=replace(second, epsilon=2.6))
        with raising(RefusedError, "the upload", reason="without noise"):
            ledger.record_intent("1" * 64, "later", part, spending=replace(second, epsilon=None))
    ledger.record_intent("1" * 64, "later", others, spending=second)
    with raising(RefusedError, "the study", reason="combining key"):
        ledger.record_intent("2" * 64, "third", others, spending=first)


def test_rows_that_left_without_a_guarantee_are_kept_out_of_sums_with_one_row_by_row(folder):
    """As many rows with equal columns do not decide: a row that never left before would change their number."""
    ledger = Ledger(folder)
    for k, spending in enumerate((None, Spending(None, "key 0", 4.0))):
        ledger.record_intent(f"{k}" * 64, f"study {k}", seen(range(100 * k, 100 * k + 100)), spending=spending)
        ledger.record_bundle(f"{k}" * 64, "f" * 64)
    noisy = Spending(1.0, "key 1", 4.0)
    for known in (99, 100):
        with raising(RefusedError, "the upload", reason="without a guarantee"):
            ledger.record_intent("2" * 64, "later", seen(range(known, known + 1)), spending=noisy)
    fresh = replace(seen(range(200, 300)), column_tags=seen(range(100)).column_tags)
    assert ledger.record_intent("2" * 64, "later", fresh, spending=noisy).n_rows == 100


def test_not_one_row_that_was_summed_is_shared_by_rotation(folder):
    """For rows that were shared by rotation before, one of a hundred is tolerated."""
    ledger = Ledger(folder)
    for k, spending in enumerate((Spending(1.0, "key 0", 4.0), None)):
        ledger.record_intent(f"{k}" * 64, f"study {k}", seen(range(200 + 300 * k, 300 + 300 * k)), spending=spending)
        ledger.record_bundle(f"{k}" * 64, "f" * 64)
    with raising(RefusedError, "a second upload", reason="secure sums"):
        ledger.record_intent("2" * 64, "later", seen(range(201)))
    assert ledger.record_intent("2" * 64, "later", seen(range(300, 501))).n_rows == 201


@pytest.mark.parametrize("spending", [None, Spending(1.0, "key 1", 4.0)])
def test_rows_of_an_intent_alone_may_be_shared_in_another_study(folder, spending):
    ledger, rows = Ledger(folder), seen(range(100))
    ledger.record_intent("0" * 64, "earlier", rows)
    assert ledger.record_intent("1" * 64, "later", rows, spending=spending).n_rows == 100
    ledger.record_bundle("0" * 64, "f" * 64)
    with pytest.raises(RefusedError):
        ledger.record_intent("2" * 64, "third", rows, spending=spending and replace(spending, combining_key="key 2"))
