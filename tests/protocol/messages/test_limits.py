"""Limits of what is read from others: what is exactly at one is taken, what is one beyond is refused."""

import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mooring import RigidMap, make_anchor
from mooring.errors import InputError, MooringError, RefusedError
from mooring.learners.models import MOST_TREES, ModelSpec
from mooring.mechanisms.sums.settings import SumSettings
from mooring.protocol.analyst.delivery import _require_release
from mooring.protocol.messages import model
from mooring.protocol.messages.card import read_card
from mooring.protocol.messages.result import Release
from mooring.protocol.messages.signed_file import (
    MOST_HEADER_BYTES,
    TensorSpec,
    encode_file,
    encode_header,
    read_header,
    require_header,
)
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import declared_columns, parse_study, read_plain
from mooring.protocol.messages.study_text import render_study, render_value
from mooring.protocol.registry import exchange_of
from mooring.protocol.rotation.anchor import most_anchor_bytes
from mooring.protocol.rotation.bundle import bound_norm, bound_row, bound_singular_values, verify_bundle
from mooring.protocol.sums import answers
from mooring.protocol.sums import bundle as sum_bundle
from mooring.protocol.sums.answers import LIST, RECEIPT, SHARE, _counted, most_answer_bytes
from mooring.tables.schema import Column, Label
from tests.protocol.support import write_member_card
from tests.raising import raising
from tests.record import check_record
from tests.sites import KEYS, numeric_study, write_bundle
from tests.study_settings import change

RECORD = Path(__file__).parent / "record.json"
STUDY = numeric_study()
WIDE = change(
    STUDY,
    columns=tuple(Column(f"x{k}", "number", low=-1, high=1) for k in range(10_001)),
    projection="gaussian",
    n_anchor_rows=10_001,
)
BROAD = change(WIDE, n_components=2048)
PUBLIC = {"projection": "public-svd", "projection_digest": "a" * 64}


@pytest.mark.parametrize(
    ("name", "study", "last", "beyond"),
    [
        ("n_anchor_rows", STUDY, {"n_anchor_rows": 7}, {"n_anchor_rows": 6}),
        ("n_anchor_rows", STUDY, {"n_anchor_rows": 200_000}, {"n_anchor_rows": 200_001}),
        ("n_components", WIDE, {"n_components": 10_000}, {"n_components": 10_001, "n_anchor_rows": 10_002}),
        ("n_components", BROAD, {"n_anchor_rows": 2**17}, {"n_anchor_rows": 2**17 + 1}),
        ("n_components", WIDE, {"n_components": 1}, {"n_components": 0}),
        ("n_components", STUDY, {"n_components": 6}, {"n_components": 5}),
        ("smallest_class", STUDY, {"smallest_class": 1}, {"smallest_class": 0}),
        ("image_shape", STUDY, {"image_shape": (2, 3)}, {"image_shape": (2, 2)}),
        ("projection_digest", WIDE, PUBLIC, {"projection_digest": "a" * 64}),
        ("projection_digest", WIDE, {"projection_digest": ""}, PUBLIC | {"projection_digest": "a" * 63}),
        ("anchor_noise_scale", STUDY, {"anchor_noise_scale": 1e-9}, {"anchor_noise_scale": 0.0}),
    ],
)  # fmt: skip
def test_a_study_is_taken_up_to_its_limits(name: str, study: Study, last: dict, beyond: dict) -> None:
    change(study, **last)
    with raising(InputError, name):
        change(study, **beyond)


def test_a_roster_is_two_participants_and_an_analyst_at_least() -> None:
    replace(STUDY, participants=STUDY.participants[:2]).require_roster()
    few, n = {"participants": STUDY.participants[:1]}, len(STUDY.participants)
    for changes, got in ((few, "participants: 1, analyst: one"), ({"analyst": None}, f"{n}, analyst: none")):
        with raising(InputError, "study", expected="two participants or more", got=got):
            replace(STUDY, **changes).require_roster()
    assert STUDY.with_members(analyst=STUDY.analyst).analyst == STUDY.analyst
    with raising(InputError, "roster", problem="only one"):
        STUDY.with_members(analyst=replace(STUDY.analyst, name="other"))


def test_a_fingerprint_is_the_digests_first_letters_in_seven_groups_of_four() -> None:
    groups = STUDY.fingerprint.split("-")
    assert [len(group) for group in groups] == [4] * 7
    assert base64.b32encode(bytes.fromhex(STUDY.digest)).decode().lower().startswith("".join(groups))
    assert STUDY.folder_name == f"trial-{STUDY.digest[:16]}"


def test_a_studys_file_is_read_up_to_a_megabyte_and_90_000_entries(tmp_path: Path) -> None:
    text = render_study(STUDY.as_dict())
    path = tmp_path / "study.toml"
    for length, fine in ((2**20, True), (2**20 + 1, False)):
        path.write_text(text + "#" * (length - len(text)))
        assert taken(lambda: read_plain(path)) == fine
    signs = 90_000 - sum(text.count(sign) for sign in ",=[{.")
    assert taken(lambda: parse_study(text + "#" + "," * signs))
    assert not taken(lambda: parse_study(text + "#" + "," * (signs + 1)))
    assert taken(lambda: parse_study(text + "#\n" + "a." * 15 + "a = 1\n"))
    assert not taken(lambda: parse_study(text + "#\n" + "a." * 16 + "a = 1\n"))


@pytest.mark.parametrize(
    ("table", "entry", "fine", "refused"),
    [
        ("mechanism", "n_components", 6, 2**63 + 1), ("mechanism", "n_components", 6, True),
        ("mechanism", "anchor_noise_scale", 0.05, 10**309), ("rows", "image_shape", [1, 2, 3], [1, 1, 2, 3]),
        ("rows", "missing_words", ["x"], ["x", 3]), ("mechanism", "n_anchor_rows", 24, 24.0),
    ],
)  # fmt: skip
def test_an_entry_of_another_kind_is_refused(table: str, entry: str, fine: Any, refused: Any) -> None:
    plain = STUDY.as_dict()
    Study.from_dict(plain | {table: plain[table] | {entry: fine}})
    with raising(InputError, entry):
        Study.from_dict(plain | {table: plain[table] | {entry: refused}})


def test_what_a_studys_file_leaves_out_has_the_customary_value() -> None:
    """Four anchor rows a component, no noise, no projection, and no class of fewer than three rows."""
    plain = STUDY.as_dict()
    short = {key: plain[key] for key in ("format", "name", "nonce", "columns", "label")}
    study = Study.from_dict(short | {"mechanism": {"name": "rotation", "method": "aa-i-gdp"}})
    assert (study.mechanism.n_components, study.mechanism.n_anchor_rows, study.smallest_class) == (6, 24, 3)
    assert (study.mechanism.data_noise_scale, study.mechanism.anchor_noise_scale, study.mechanism.projection) == (
        0.0,
        0.0,
        "none",
    )
    settings = {"mechanism": study.mechanism, "columns": study.columns, "label": study.label}
    assert Study(study.name, study.nonce, **settings) == study  # in Python as in a file
    for format in (0, 2, "3", None):
        assert not taken(lambda format=format: Study.from_dict({**plain, "format": format}))


def taken(call: Callable[[], object]) -> bool:
    try:
        call()
    except MooringError:
        return False
    return True


@pytest.mark.parametrize(
    ("n_columns", "words"),
    [(128, [f"{k}" for k in range(512)]), (256, [f"{k:01024}" for k in range(64)])],
    ids=["65,536 features", "16,777,216 letters"],
)
def test_columns_are_declared_up_to_a_width_and_a_number_of_letters(n_columns: int, words: list[str]) -> None:
    def declares(*counts: int) -> bool:
        names = iter(range(2 * n_columns))
        entries = [{"names": [f"c{next(names)}" for _ in range(count)], **kind} for count in counts]
        return taken(lambda: declared_columns({"columns": entries}))

    kind: dict[str, Any] = {"kind": "category", "categories": words}
    assert declares(n_columns)
    assert declares(n_columns - 1, 1)
    assert not declares(n_columns + 1)
    assert not declares(n_columns, 1)


def test_a_card_is_read_up_to_64_kilobytes(tmp_path: Path) -> None:
    path, member = write_member_card(tmp_path, "north")
    text = path.read_text()
    path.write_text(text + "#" * (65536 - len(text)))
    assert read_card(path) == ("participant", member)
    path.write_text(text + "#" * (65537 - len(text)))
    assert not taken(lambda: read_card(path))


def test_files_of_a_study_are_read_up_to_what_they_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight bytes a number of the anchor, with a header, nonce and tag, and a box a recipient; eight a number of the map."""
    study, header = numeric_study(p=5, h=7, r=30), 2**16 + 8
    assert most_anchor_bytes(study) == 168 + 8 * 30 * 7 + 12 + 16 + 5 * (1088 + 32 + 16 + 32) + header
    assert exchange_of(study).result_files(study) == {
        "map.safetensors": 8 * 7 * 9 + header,
        "model.safetensors": 128 * 2**20,
    }
    sums: Any = SimpleNamespace(mechanism=SumSettings(), participants=study.participants)
    monkeypatch.setattr(answers, "sum_scheme", lambda _: SimpleNamespace(layout=SimpleNamespace(size=11)))
    assert exchange_of(sums).result_files(sums) == {"model.safetensors": 128 * 2**20}
    monkeypatch.setattr(sum_bundle, "sum_bundle_tensors", lambda _: {"a": TensorSpec("U8", (3, 5))})
    assert sum_bundle.most_sum_bundle_bytes(sums) == 15 + header
    sizes = {RECEIPT: 4 * 5 * (32 + 1), LIST: 5 * 2 * 32, SHARE: 8 * 11}
    assert {kind: most_answer_bytes(sums, kind) for kind in sizes} == {kind: n + header for kind, n in sizes.items()}


@pytest.mark.parametrize("word", ["plain", "Zürich", "東京"])
def test_a_header_is_ascii_and_its_arrays_begin_at_a_multiple_of_eight(word: str) -> None:
    header = encode_header({"a": TensorSpec("F32", (2, 2))}, {"name": word})
    assert header[8:].isascii()
    assert len(header) % 8 == 0
    assert int.from_bytes(header[:8], "little") == len(header) - 8


def test_an_array_may_be_empty_and_has_no_negative_side(tmp_path: Path) -> None:
    spec, path = {"a": TensorSpec("F32", (0, 2))}, tmp_path / "file"
    path.write_bytes(encode_file({"a": np.ones((0, 2))}, spec, {}))
    with path.open("rb") as file:
        header = read_header(file, what="it")
    require_header(header, spec, what="it")
    with raising(RefusedError, "it", reason="negative"):
        require_header(header, {"a": TensorSpec("F32", (-1, 2))}, what="it")


def test_a_header_is_read_up_to_64_kb(tmp_path: Path) -> None:
    spec = {"a": TensorSpec("F32", (2,))}
    empty = len(encode_file({"a": np.ones(2)}, spec, {"note": ""})) - 16  # its length, and the array
    for n_letters, fine in ((2**16 - empty, True), (2**16 - empty + 8, False)):
        path = tmp_path / "file"
        path.write_bytes(encode_file({"a": np.ones(2)}, spec, {"note": "x" * n_letters}))
        with path.open("rb") as file:
            assert taken(lambda file=file: read_header(file, what="it")) == fine


# ------------------------------------------------------------------------------------------------------------- bundles


def written(path: Path, study: Study, n_rows: int, labels: np.ndarray | None, *, scale: float = 0.5) -> Path:
    rng = np.random.default_rng(0)
    secret = RigidMap.sample(study.mechanism.n_components, rng=rng)
    rows = scale * np.ones((n_rows, study.mechanism.n_components))
    anchor = np.asarray(secret.apply(make_anchor(study.mechanism.n_anchor_rows, study.mechanism.n_components, rng=rng)))
    parts = {"representation": np.asarray(secret.apply(rows)), "anchor_representation": anchor, "labels": labels}
    write_bundle(path, study, **parts, signer=KEYS[0])
    return path


@pytest.mark.parametrize("ends", [(-1000.0, 1000.0), (0.0, 250.0), (1900.0, 2100.0)])
def test_number_labels_are_taken_up_to_their_ends_and_rounding(tmp_path: Path, ends: tuple[float, float]) -> None:
    study, width = replace(numeric_study(kind="number"), label=Label("y", "number", (), *ends)), ends[1] - ends[0]
    for label, fine in (
        (ends[1] + 0.9e-6 * width, True),
        (ends[0] - 0.9e-6 * width, True),
        (ends[1] + 5e-6 * width, False),
        (ends[0] - 5e-6 * width, False),
    ):
        path = written(tmp_path / "b", study, 3, np.array([label, sum(ends) / 2, ends[0]]))
        assert taken(lambda path=path, study=study: verify_bundle(path, study)) == fine, label  # fmt: skip


def test_class_labels_are_whole_numbers_below_the_number_of_classes(tmp_path: Path) -> None:
    for labels, fine in (([0, 1], True), ([0, 2], False), ([-1, 1], False), ([0.5, 1], False)):
        path = written(tmp_path / "b", STUDY, 2, np.array(labels))
        assert taken(lambda path=path: verify_bundle(path, STUDY)) == fine


def test_a_bundle_has_a_row_at_least_and_is_read_in_blocks(tmp_path: Path) -> None:
    bundle = verify_bundle(written(tmp_path / "one", STUDY, 1, np.array([1])), STUDY)
    assert (bundle.n_rows, bundle.labels().tolist()) == (1, [1])
    assert not taken(lambda: verify_bundle(written(tmp_path / "none", STUDY, 0, np.zeros(0)), STUDY))
    path = written(tmp_path / "b", STUDY, 50, np.arange(50) % 2)
    whole = verify_bundle(path, STUDY)
    in_blocks = verify_bundle(path, STUDY, block_bytes=100)
    assert in_blocks.digest == whole.digest
    parts = list(in_blocks.blocks(7, start=3, stop=48))
    assert [len(rows) for rows, _ in parts] == [7] * 6 + [3]
    assert np.array_equal(np.concatenate([rows for rows, _ in parts]), whole.representation()[3:48])
    assert np.concatenate([labels for _, labels in parts]).tolist() == whole.labels().tolist()[3:48]


def test_rows_are_taken_as_far_as_the_corner_of_the_encoded_box(tmp_path: Path) -> None:
    for scale, fine in ((1.0, True), (1.1, False)):
        path = written(tmp_path / "b", STUDY, 2, np.zeros(2), scale=scale)
        assert taken(lambda path=path: verify_bundle(path, STUDY)) == fine


def test_bounds_of_uploads_are_as_on_record() -> None:
    """Their false refusals and their width are tested against the exact laws in test_bundle."""
    noisy = change(STUDY, method="aa-i-gdp-both-noise", data_noise_scale=0.3)
    projected = change(noisy, columns=WIDE.columns[:9], projection="gaussian")
    by_name = {
        f"{r}, {h}, {v}": [*bound_norm(r, h, v), *bound_singular_values(r, h, v)]
        for r, h, v in [(24, 3, 0.01), (52, 13, 0.1), (31, 30, 0.3), (80, 20, 0.0), (10, 2, 1.0)]
    }
    rows = [bound_row(study, n) for study in (noisy, projected) for n in (1, 1000)]
    check_record(RECORD, "bounds", [by_name, rows], rel=1e-5)


# -------------------------------------------------------------------------------------------------------------- models


def test_a_model_is_taken_up_to_the_size_allowed() -> None:
    sizes = {"outputs": 2, "width": 0, "trees": 0, "nodes": 0, "leaves": 0}
    fields = {"function": "linear", "link": "softmax", **sizes}
    most = model.MOST_MODEL_BYTES - MOST_HEADER_BYTES - 8
    widest = (most // 8 - 5) // 2  # two weights of an input, two offsets, two shares, and two classes of half the size
    for n_inputs, fine in ((6, True), (widest, True), (widest + 1, False)):
        spec = ModelSpec(n_inputs, 2)
        assert taken(lambda: model._list_tensors({**fields, "inputs": n_inputs}, spec)) == fine  # noqa: B023
    with raising(RefusedError, "the model", reason="128 MB"):
        model._list_tensors({**fields, "inputs": widest + 1}, spec)
    spec, fields = ModelSpec(6, 2), {**fields, "inputs": 6}
    assert sum(tensor.n_bytes for tensor in model._list_tensors(fields, spec).values()) == 8 * (6 * 2 + 5)
    trees = {**fields, "function": "trees", "width": 2, "trees": MOST_TREES, "nodes": MOST_TREES, "leaves": MOST_TREES}
    assert taken(lambda: model._list_tensors(trees, spec))
    assert not taken(lambda: model._list_tensors(trees | {"trees": MOST_TREES + 1}, spec))


def test_a_risk_is_a_share_and_within_the_studys_limit_up_to_the_limit_itself() -> None:
    study = replace(numeric_study(), model_limit="membership at most 1 %")

    def read(risk: str, override: str = "") -> Release | None:
        return Release.from_fields({"risk": risk, "override": override}, study)

    assert (read("0"), read("0.010000")) == (Release(0.0), Release(0.01))
    assert read("1", "board: a trial") == Release(1.0, "board: a trial")
    assert _require_release(study, 0.01, "board: a trial", remedy="") == Release(0.01)
    assert _require_release(study, 0.02, "board: a trial", remedy="") == Release(0.02, "board: a trial")
    for risk, reason in ((0.011, "1.1%"), (1.0, "no measurement")):
        with raising(RefusedError, "the delivery", reason=reason):
            _require_release(study, risk, "", remedy="")
    assert _require_release(numeric_study(), 1.0, "", remedy="") is None
    for risk, override in (("0.010001", ""), ("-0.01", ""), ("1.01", "board: a trial"), ("x", ""), ("0", "board")):
        assert not taken(lambda risk=risk, override=override: read(risk, override))
    assert Release.from_fields({}, numeric_study()) is None


def test_a_list_is_wrapped_from_101_signs_on_and_whole_numbers_are_written_as_such() -> None:
    assert [render_value(["a" * n]).count("\n") for n in (96, 97)] == [0, 2]
    assert [render_value(["a" * 46, "b" * n]).count("\n") for n in (50, 51)] == [2, 3]
    numbers = [render_value(value) for value in (3.0, 1e15 - 1, 1e15, -0.0, 0.5, True)]
    assert numbers == ["3", "999999999999999", "1000000000000000.0", "-0.0", "0.5", "1"]


def test_an_answer_has_an_entry_at_least_and_no_more_than_there_can_be() -> None:
    tensors = _counted("a", 5, most=3)
    assert [tensors({"count": n})["a"].shape for n in (1, 3)] == [(1, 5), (3, 5)]
    assert not any(taken(lambda n=n: tensors({"count": n})) for n in (0, 4, "2"))
