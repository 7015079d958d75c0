"""Hostile containers: bundles whose layout is wrong, that are no files, or only seem large."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import numpy as np

from .hostile import (
    H,
    N,
    R,
    World,
    add,
    disguises,
    entries,
    hostile,
    packed,
    parts,
    reordered_metadata,
    signed,
    with_metadata,
)

CUT = "cut short"
HEADER = "header cannot be read"
METADATA = "no manifest and signature, or more"
ARRAYS = "names, types and shapes"
LENGTH = "length is not what its header says"
PLAIN = "not a regular file"
NORM = "times as large"


def tampered(name: str, reason: str, change: Any) -> None:
    """Register what somebody on the way can do: `change` gets the good file's bytes."""
    add("bundle", name, reason, lambda world, _: change(world.bundle))


def headed(name: str, reason: str, change: Any) -> None:
    """Register a change of the parsed header."""

    def make(world: World, _: Path) -> bytes:
        header, data = parts(world.bundle)
        return packed(change(header) or header, data)

    add("bundle", name, reason, make)


def _text(raw: bytes) -> str:
    return json.dumps(parts(raw)[0], separators=(",", ":"))


# The container.
tampered("nothing_at_all", CUT, lambda raw: b"")
tampered("one_byte", CUT, lambda raw: raw[:1])
tampered("a_length_and_no_more", CUT, lambda raw: raw[:8])
tampered("half_a_header", CUT, lambda raw: raw[:200])
tampered("header_length_of_eight_exabytes", CUT, lambda raw: (2**63).to_bytes(8, "little") + raw[8:])
tampered("header_length_of_all_ones", CUT, lambda raw: b"\xff" * 8 + raw[8:])
tampered("header_length_zero", CUT, lambda raw: bytes(8) + raw[8:])
tampered("header_length_beyond_the_file", CUT, lambda raw: len(raw).to_bytes(8, "little") + raw[8:])
tampered("header_of_27_megabytes", CUT, lambda raw: packed(b'{"__metadata__":{"a":"' + b"a" * 27 * 10**6 + b'"}}', b""))
tampered("deeply_nested_header", HEADER, lambda raw: packed(b"[" * 60_000 + b"]" * 5, b""))
tampered("deeply_nested_objects", HEADER, lambda raw: packed(b'{"a":' * 12_000, b""))
tampered("header_of_noise", HEADER, lambda raw: packed(bytes(range(128, 256)), raw[-64:]))
tampered("header_that_is_a_list", HEADER, lambda raw: packed("[1, 2, 3]", b""))
tampered("header_that_is_a_number", HEADER, lambda raw: packed("1" * 5000, b""))
tampered("header_in_utf_16", HEADER, lambda raw: packed(json.dumps(parts(raw)[0]).encode("utf-16"), parts(raw)[1]))
tampered("header_after_a_byte_order_mark", ARRAYS, lambda raw: packed("\ufeff" + _text(raw), parts(raw)[1]))
tampered("header_with_spaces", ARRAYS, lambda raw: packed(json.dumps(parts(raw)[0]), parts(raw)[1]))
tampered("one_trailing_byte", LENGTH, lambda raw: raw + b"\0")
tampered("one_byte_short", LENGTH, lambda raw: raw[:-1])
tampered("a_second_bundle_appended", LENGTH, lambda raw: raw + raw)
SIGNED = "not those that were signed"
FARTHER = "farther from its anchor"  # by chance, two numbers swapped are noticed before the signature is checked
tampered(
    "arrays_swapped", f"({SIGNED}|{FARTHER})", lambda raw: raw[:-208] + raw[-204:-200] + raw[-208:-204] + raw[-200:]
)
headed("no_metadata", HEADER, lambda header: {k: v for k, v in header.items() if k != "__metadata__"})
headed("metadata_of_numbers", HEADER, lambda header: {**header, "__metadata__": {"manifest": 1, "signature": 2}})
headed("metadata_that_is_text", HEADER, lambda header: {**header, "__metadata__": "manifest"})
headed("metadata_before_and_after", ARRAYS, lambda header: dict(reversed(header.items())))
headed("tensors_in_another_order", ARRAYS, lambda header: dict([*header.items()][:1] + [*header.items()][:0:-1]))
headed("a_tensor_more", ARRAYS, lambda header: {**header, "x": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})
headed("a_tensor_missing", ARRAYS, lambda header: {k: v for k, v in header.items() if k != "labels"})
headed("a_tensor_renamed", ARRAYS, lambda header: {k.replace("labels", "lаbels"): v for k, v in header.items()})
headed("overlapping_offsets", ARRAYS, lambda header: header["representation"].update(data_offsets=[0, 4 * N * H]))
headed("gapped_offsets", ARRAYS, lambda header: header["labels"].update(data_offsets=[4, 8]))
headed("negative_offsets", ARRAYS, lambda header: header["labels"].update(data_offsets=[-4, 0]))
headed(
    "offsets_of_floats", ARRAYS, lambda header: header["anchor_representation"].update(data_offsets=[0.0, 4.0 * R * H])
)
headed("transposed_shape", ARRAYS, lambda header: header["representation"].update(shape=[H, N]))
headed("flat_shape", ARRAYS, lambda header: header["representation"].update(shape=[N * H]))
headed("dtype_in_lower_case", ARRAYS, lambda header: header["labels"].update(dtype="f32"))
headed("shape_with_a_true", ARRAYS, lambda header: header["labels"].update(shape=[True]))
headed("a_field_more_in_a_tensor", ARRAYS, lambda header: header["labels"].update(compression="zip"))
tampered("metadata_in_another_order", METADATA, reordered_metadata)
tampered("metadata_with_a_note", METADATA, lambda raw: with_metadata(raw, note="hello"))
tampered("metadata_without_signature", METADATA, lambda raw: with_metadata(raw, signature=...))
tampered("a_tensor_twice", ARRAYS, lambda raw: packed(_text(raw)[:-1] + ',"labels":{}}', parts(raw)[1]))
tampered("metadata_twice", ARRAYS, lambda raw: packed('{"__metadata__":{"a":"b"},' + _text(raw)[1:], parts(raw)[1]))
tampered(
    "manifest_twice", ARRAYS, lambda raw: packed(_text(raw).replace('{"man', '{"manifest":"","man', 1), parts(raw)[1])
)


# What is no file, or one that only seems large.
add("bundle", "a_folder", PLAIN, lambda w, path: path.mkdir())
add("bundle", "a_pipe", PLAIN, lambda w, path: os.mkfifo(path))


@hostile("bundle", PLAIN)
def a_socket(world: World, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        here = os.getcwd()
        os.chdir(path.parent)  # a socket's path must be short
        try:
            end.bind(path.name)
        finally:
            os.chdir(here)


LINKS = {"itself": None, "nowhere": "not-there", "endless_zeros": "/dev/zero", "a_terminal": "/dev/tty"}
for word, target in LINKS.items():
    add("bundle", f"a_link_to_{word}", PLAIN, lambda world, path, to=target: path.symlink_to(to or path.name))


@hostile("bundle", CUT)
def a_terabyte_of_nothing(world: World, path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


@hostile("bundle", LENGTH)
def a_bundle_and_a_terabyte_of_nothing(world: World, path: Path) -> None:
    path.write_bytes(world.bundle)
    os.truncate(path, 2**40)


@hostile("bundle", NORM)
def gigabytes_of_signed_zeros(world: World, path: Path) -> None:
    """All that can be checked of this file without reading it is right, and it costs its sender nothing to make."""
    rows = 2**28
    shapes = {"anchor_representation": (R, H), "representation": (rows, H), "labels": (rows,)}
    arrays = {name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes.items()}
    fields = {"study": world.study.digest, "nonce": world.study.nonce, "rows": rows, "anchor": "0" * 64}
    header = packed({**signed(world.vaults[0].signing_key, "bundle", fields, b""), **entries(arrays)}, b"")
    path.write_bytes(header)
    os.truncate(path, len(header) + sum(array.nbytes for array in arrays.values()))


for word, content in disguises().items():
    add("bundle", word, f"({CUT}|{HEADER}|{METADATA})", lambda world, _, content=content: content)


add("bundle", "an_anchor_file", "(exactly the expected fields|another kind)", lambda w, _: w.anchor)
