"""Verified bundles in one space: who is aligned, who comes late, what an interruption leaves."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mooring import atomic_io
from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.analyst.delivery import deliver
from mooring.protocol.messages.signed_file import encode_header
from mooring.protocol.rotation.analyst import alignment
from mooring.protocol.rotation.analyst import collaboration_matrix as collaboration_file
from mooring.protocol.rotation.analyst.alignment import Backend, LocalAnchors, align_bundles, choose_reference
from mooring.protocol.rotation.analyst.alignment_state import (
    STATE_FILE,
    _tensors,
    decode_record,
    read_space,
    write_space,
)
from mooring.protocol.rotation.analyst.training import train
from mooring.protocol.rotation.result import MAP_FILE
from mooring.theory import transition_scale
from tests.permissions import has_mode
from tests.protocol.rotation.support import bundles_of, prepared, send, sent, sites_of, spread_of, with_garbage
from tests.raising import raising
from tests.report.example_records import analyst_records
from tests.sites import ANALYST, numeric_study


@pytest.mark.parametrize("method", ["aa-i-gdp-anchor-noise", "aa-i-gdp"])
def test_everybodys_rows_meet_in_one_space(method: str, tmp_path: Path) -> None:
    study, inbox, work = numeric_study(method=method, v=0.001), tmp_path / "inbox", tmp_path / "work"
    sites = sent(study, inbox)
    aligned = align_bundles(study, bundles_of(study, inbox), work)
    assert aligned.record.is_whole
    assert has_mode(work, 0o700)
    assert spread_of(aligned, sites, range(4)) < 0.02
    table = pq.read_table(work / "collaboration")
    assert table.column_names == ["participant", "label", *(f"z{k + 1}" for k in range(6))]
    assert str(table.schema.field("z1").type) == "float"
    rows = np.column_stack([table[f"z{k + 1}"].to_numpy() for k in range(6)]).astype(np.float64)
    raw = np.concatenate([site.rows for site in sites])
    distances = np.linalg.norm(rows[::17, None] - rows[None, ::17], axis=2)
    assert np.allclose(distances, np.linalg.norm(raw[::17, None] - raw[None, ::17], axis=2), atol=0.05)
    words = [study.label.classes[label] for site in sites for label in site.labels]
    assert table["label"].to_pylist() == words
    assert table["participant"].to_pylist() == [f"site-{who}" for who in range(4) for _ in range(60)]
    record = json.loads((work / "alignment.json").read_text())
    assert (record["certificate"] is None) == (method == "aa-i-gdp")
    assert [entry["name"] for entry in record["participants"]] == [f"site-{k}" for k in range(4)]
    assert min(entry["fit"] for entry in record["participants"]) > 0.99


def test_one_bundle_cannot_be_aligned(tmp_path: Path) -> None:
    study = numeric_study()
    sent(study, tmp_path / "inbox", [2])
    with raising(InputError, "bundles", cure="wait for a second"):
        align_bundles(study, bundles_of(study, tmp_path / "inbox"), tmp_path / "work")


def test_newcomers_are_admitted_and_nobody_else_moves(tmp_path: Path) -> None:
    study, inbox, work = numeric_study(p=5, v=0.01), tmp_path / "inbox", tmp_path / "work"
    sites = sent(study, inbox, [0, 1, 3])
    align_bundles(study, bundles_of(study, inbox), work)
    deliver(study, work, tmp_path / "before", ANALYST)
    before = read_space(work, study)
    (inbox / "site-0.bundle").unlink()
    send(study, sites[4], 4, inbox)
    send(study, with_garbage(study, sites[2]), 2, inbox)
    aligned = align_bundles(study, bundles_of(study, inbox), work, mode="late")
    assert (aligned.record.newcomers, [*aligned.record.list_left_out()]) == (("site-4",), ["site-2"])
    after = read_space(work, study)
    assert [entry.late for entry in after.record.participants] == [False, False, False, True]
    assert after.names == ("site-0", "site-1", "site-3", "site-4")
    assert after.orthogonals[:3].tobytes() == before.orthogonals.tobytes()
    assert spread_of(after, sites, [0, 1, 3, 4]) < 0.1
    deliver(study, work, tmp_path / "after", ANALYST)
    for who in (0, 1, 3):
        kept = [(tmp_path / when / f"site-{who}" / MAP_FILE).read_bytes() for when in ("before", "after")]
        assert kept[0] == kept[1]
    counts = pq.read_table(work / "collaboration")["participant"].to_pylist()
    assert [counts.count(f"site-{who}") for who in range(5)] == [60, 60, 0, 60, 60]
    assert align_bundles(study, bundles_of(study, inbox), work, mode="late").record.newcomers == ()


def test_after_delivery_everybody_is_aligned_anew_only_if_asked_for(tmp_path: Path) -> None:
    study, inbox, work = numeric_study(), tmp_path / "inbox", tmp_path / "work"
    sites = sent(study, inbox, [0, 1, 2])
    for _ in range(2):  # nothing is delivered yet
        align_bundles(study, bundles_of(study, inbox), work)
    deliver(study, work, tmp_path / "results", ANALYST)
    before = {path: path.read_bytes() for path in work.iterdir() if path.is_file()}
    send(study, sites[3], 3, inbox)
    with raising(RefusedError, "another alignment", cure="--again"):
        align_bundles(study, bundles_of(study, inbox), work)
    assert {path: path.read_bytes() for path in work.iterdir() if path.is_file()} == before
    again = align_bundles(study, bundles_of(study, inbox), work, mode="again")
    assert len(again.names) == 4
    align_bundles(study, bundles_of(study, inbox), work)  # of this alignment nothing is delivered


def test_late_needs_an_alignment_to_join(tmp_path: Path) -> None:
    study = numeric_study()
    sent(study, tmp_path / "inbox")
    with raising(StorageError, "the alignment", cure="mooring align"):
        align_bundles(study, bundles_of(study, tmp_path / "inbox"), tmp_path / "work", mode="late")


def test_a_bundle_that_changes_while_it_is_read_stops_the_alignment(tmp_path: Path) -> None:
    study, inbox = numeric_study(), tmp_path / "inbox"
    sites = sent(study, inbox)
    bundles = bundles_of(study, inbox)
    send(study, replace(sites[1], rows=-sites[1].rows), 1, inbox)
    with raising(RefusedError, "the bundle", reason="site-1 changed"):
        align_bundles(study, bundles, tmp_path / "work")
    written = [path.name for path in (tmp_path / "work").rglob("*") if path.is_file()]
    assert written == ["part-site-0-000000.parquet"]  # no alignment, and no part of the bundle that changed


def test_an_interrupted_alignment_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = numeric_study()
    work, _ = prepared(study, tmp_path)
    kept = (work / "alignment.safetensors").read_bytes()
    align_bundles(study, bundles_of(study, tmp_path / "inbox")[1:], work)
    (work / "alignment.safetensors").write_bytes(kept)
    with raising(StorageError, "the collaboration matrix", reason="interrupted"):
        train(study, work)


def test_a_kill_at_every_write_leaves_what_was_or_what_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = numeric_study(v=0.01)
    work, _ = prepared(study, tmp_path)
    sites = sites_of(study)
    (tmp_path / "inbox" / "site-3.bundle").unlink()
    align_bundles(study, bundles_of(study, tmp_path / "inbox"), work, certify=False)
    send(study, sites[3], 3, tmp_path / "inbox")
    before = read_space(work, study).orthogonals.tobytes()
    bundles = bundles_of(study, tmp_path / "inbox")
    replaced, calls = os.replace, 0
    for kill_at in range(4):
        calls = 0

        def failing(*paths: Any) -> None:
            nonlocal calls
            calls += 1
            if calls > kill_at:  # noqa: B023
                raise KeyboardInterrupt
            replaced(*paths)

        monkeypatch.setattr(atomic_io.os, "replace", failing)
        if kill_at < 3:
            with pytest.raises(KeyboardInterrupt):
                align_bundles(study, bundles, work, mode="late")
        monkeypatch.setattr(atomic_io.os, "replace", replaced)
        assert read_space(work, study).orthogonals[:3].tobytes() == before
        if read_space(work, study).names[-1] == "site-3":
            break
    align_bundles(study, bundles, work, mode="late")
    assert read_space(work, study).orthogonals[:3].tobytes() == before
    assert sum(len(rows) for _, rows, _ in collaboration_file.read_blocks(work, study, read_space(work, study))) == 240


@pytest.mark.parametrize(("n_components", "rows"), [(1, 65_536), (100, 41_943), (10**6, 256)])
def test_blocks_have_as_many_rows_as_memory_allows(n_components: int, rows: int) -> None:
    assert collaboration_file.choose_block_rows(n_components) == rows


def test_the_first_participant_that_fits_as_most_do_is_the_reference() -> None:
    assert choose_reference([0.5, 0.9, 0.91, 0.92]) == 2
    assert choose_reference([1.0 - 1e-7, 1.0, 1.0]) == 0
    assert choose_reference([0.9, 1.0, 1.0]) == 1
    assert [choose_reference([1.0 - off, 1.0, 1.0]) for off in (0.9e-6, 1.1e-6)] == [0, 1]  # float32 rounds by less


@pytest.mark.parametrize(
    ("low", "goes_on"),
    [([1, 1, 1, 0], False), ([1, 1, 0, 0], True), ([1, 0], False), ([1, 0, 0], True), ([1, 1, 1, 0, 0], False)],
)
def test_where_more_than_half_do_not_fit_nobody_is_set_aside(low: list[int], goes_on: bool) -> None:
    class Solved(Exception):
        """Those who are left were aligned by themselves."""

    def solve(left: list[Any]) -> None:
        raise Solved(left)

    fits = SimpleNamespace(values=np.ones(len(low)), find_low=lambda *_: [bool(flag) for flag in low])
    first: Any = SimpleNamespace(fits=fits, alignment=SimpleNamespace(template=np.eye(8, 3)))
    bundles: Any = list(range(len(low)))
    anchors: Any = SimpleNamespace(solve=solve)
    if goes_on:
        with pytest.raises(Solved) as caught:
            alignment._set_outliers_aside(numeric_study(), bundles, first, anchors)
        assert caught.value.args[0] == [bundle for bundle, out in zip(bundles, low, strict=True) if not out]
    else:
        left, note = alignment._set_outliers_aside(numeric_study(), bundles, first, anchors)
        assert (left, bool(note)) == (bundles, True)


ENTRY = {"name": "a", "digest": "d", "rows": 1, "fit": 0.5}


@pytest.mark.parametrize(
    ("changes", "fine"),
    [
        ({}, True),
        ({"rows": 2**48 - 1}, True),
        ({"rows": 2**48}, False),
        ({"rows": 0}, False),
        ({"rows": True}, False),
        ({"rows": 1.0}, False),
        ({"fit": 1}, True),
        ({"fit": "1"}, False),
        ({"fit": math.nan}, False),
        ({"other": 1}, False),
        ({"digest": 3}, False),
        ({"name": "b"}, False),
    ],
)
def test_a_record_of_an_alignment_is_read_if_every_entry_is_whole(changes: dict[str, Any], fine: bool) -> None:
    plain = analyst_records().gathered.as_dict() | {"participants": [ENTRY | changes, ENTRY | {"name": "b"}]}
    for record, n, whole in ((plain, 2, fine), (plain, 3, False), (plain | {"note": 1}, 2, False)):
        text = np.frombuffer(json.dumps(record).encode(), dtype=np.uint8)
        if whole:
            assert [entry.name for entry in decode_record(text, n).participants] == ["a", "b"]
        else:
            with raising(RefusedError, "the alignment", reason="damaged"):
                decode_record(text, n)


def test_row_groups_that_nobody_wrote_are_refused(tmp_path: Path) -> None:
    whole = pa.table({"participant": ["a"], "z1": [1.0]})
    not_text = pa.array([b"\xff"], pa.binary()).view(pa.string())
    for table, fine in (
        (whole, True),
        (whole.rename_columns(["label", "z1"]), False),
        (whole.set_column(0, "participant", not_text), False),
    ):
        pq.write_table(table, tmp_path / "t.parquet", store_schema=False)
        if fine:
            assert len(list(collaboration_file.read_row_groups(tmp_path / "t.parquet"))) == 1
        else:
            with raising(StorageError):
                list(collaboration_file.read_row_groups(tmp_path / "t.parquet"))


@pytest.mark.parametrize("certify", [True, False])
def test_an_alignment_that_cannot_be_certified_says_so_where_that_was_asked(
    certify: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = numeric_study()
    sent(study, tmp_path / "inbox")
    bundles = bundles_of(study, tmp_path / "inbox")
    notes = []
    for can in (True, False):
        monkeypatch.setattr(alignment.LocalAnchors, "can_certify", can)
        record = align_bundles(study, bundles, tmp_path / f"{can}", certify=certify).record
        assert (record.certificate is not None) == (can and certify)
        notes.append(alignment._NOT_CERTIFIED in record.note)
    assert notes == [False, certify]


@pytest.mark.parametrize("array", ["orthogonals", "means", "template", "origin"])
def test_a_map_with_a_number_that_is_not_finite_is_damaged(array: str, tmp_path: Path) -> None:
    study = numeric_study(p=2)
    work, _ = prepared(study, tmp_path, n=5)
    space = read_space(work, study)
    values = getattr(space, array).copy()
    values.flat[-1] = np.inf
    write_space(work, replace(space, **{array: values}))
    with raising(RefusedError, "the alignment", reason="damaged"):
        read_space(work, study)


def test_bundles_made_with_two_anchor_files_are_noted(tmp_path: Path) -> None:
    study = numeric_study()
    sent(study, tmp_path / "inbox")
    bundles = bundles_of(study, tmp_path / "inbox")
    notes = []
    for digests in (("0", "0", "0", "0"), ("0", "0", "1", "0")):
        made = [replace(bundle, anchor_digest=digest) for bundle, digest in zip(bundles, digests, strict=True)]
        space = align_bundles(study, made, tmp_path / "work", mode="again", certify=False)
        notes.append("anchor file" in space.record.note)
    assert notes == [False, True]


def test_anchors_are_solved_a_second_time_for_a_proof_only_where_everybody_fits(tmp_path: Path) -> None:
    study, solved = numeric_study(p=3), list[bool]()
    sent(study, tmp_path / "inbox", n=5)
    bundles = bundles_of(study, tmp_path / "inbox")

    class Counted(LocalAnchors):
        def solve(self, bundles: Any, *, reference: int | None = None, certify: bool = False) -> Any:
            solved.append(certify)
            return super().solve(bundles, reference=reference, certify=certify)

    for certify, calls in ((False, [False]), (True, [False, True])):
        solved.clear()
        align_bundles(study, bundles, tmp_path / "work", certify=certify, backend=Backend(Counted()))
        assert solved == calls


def test_an_upload_without_full_rank_is_set_aside_unmeasured_and_comes_no_more_in_late(tmp_path: Path) -> None:
    study, work = numeric_study(), tmp_path / "work"
    sent(study, tmp_path / "inbox", n=5)
    first, *others = bundles_of(study, tmp_path / "inbox")
    for mode in ("first", "late"):
        record = align_bundles(
            study, [replace(first, has_full_rank=False), *others], work, mode=mode, certify=False
        ).record
        (aside,) = record.set_aside
        assert (aside.name, aside.flagged, aside.late) == ("site-0", True, mode == "late")
        assert (aside.fit == 0, record.newcomers) == ((True, None) if mode == "first" else (False, ()))


@pytest.mark.parametrize(("share", "is_known"), [(1 - 1e-9, True), (1.0, False)])
def test_fits_tell_nothing_from_the_transition_on(share: float, is_known: bool) -> None:
    study, template = numeric_study(v=share * transition_scale(4, 6, 24)), np.eye(24, 6)
    fits: Any = SimpleNamespace(values=np.ones(4), find_low=lambda values, spread: [False] * len(values))
    assert alignment._find_low(study, fits, template, [0.5]) == ([False] if is_known else None)


@pytest.mark.parametrize(
    ("n_bytes", "reason"), [(-1, "too large"), (0, "length"), (2**28, "length"), (2**28 + 1, "too large")]
)
def test_the_record_in_an_alignment_has_up_to_256_mb(n_bytes: int, reason: str, tmp_path: Path) -> None:
    study = numeric_study(p=2)
    metadata = {"study": study.digest, "participants": "2", "record": str(n_bytes)}
    header = encode_header(_tensors(2, *study.mechanism.anchor_shape, max(n_bytes, 0)), metadata)
    (tmp_path / STATE_FILE).write_bytes(header)
    with raising(RefusedError, "the alignment", reason=reason):
        read_space(tmp_path, study)


def test_an_alignment_of_others_than_the_studys_participants_is_refused(tmp_path: Path) -> None:
    study = numeric_study(p=3)
    work, _ = prepared(study, tmp_path, n=5)
    space = read_space(work, study)
    first, *rest = space.record.participants
    write_space(work, replace(space, record=replace(space.record, participants=(replace(first, name="x"), *rest))))
    with raising(RefusedError, "the alignment", reason="not in the study"):
        read_space(work, study)
