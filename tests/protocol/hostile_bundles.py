"""Hostile bundles: forged by strangers, replayed, or signed by a participant that means harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from .hostile import (
    H,
    N,
    R,
    World,
    add,
    canonical,
    hostile,
    manifest_of,
    packed,
    parts,
    share_elsewhere,
    signed,
    small_study,
    with_metadata,
)

ARRAYS = "names, types and shapes"
MANIFEST = "manifest cannot be read"
SAYS = "exactly the expected fields"
WORDS = "other than text and whole numbers"
KIND = "of another kind or format"
FORM = "not in the one form allowed"
SIGNATURE = "signature does not match"
ROSTER = "not in the study's roster"
STUDY = "made for another study"
ROWS = "no rows, or claims more"
FINITE = "not finite"
LABELS = "labels that the study does not declare"
NORM = "times as large"
MOVED = "from the origin"
DIRECTION = "singular values"
FAR = "rows that lie farther"
ANCHOR = "anchor_representation"
ORDER_OF_THE_GROUP = 2**252 + 27742317777372353535851937790883648493


def tampered(name: str, reason: str, change: Any) -> None:
    """Register what somebody on the way can do: `change` gets the good file's bytes."""
    add("bundle", name, reason, lambda world, _: change(world.bundle))


def declare(name: str, reason: str, **fields: Any) -> None:
    """Register a bundle whose manifest says something else, and is signed as it stands."""
    add("bundle", name, reason, lambda world, _: world.signed_bundle(**fields))


def holding(name: str, reason: str, change: Any) -> None:
    """Register a bundle whose arrays are something else, and are signed as they stand."""
    add("bundle", name, reason, lambda world, _: world.signed_bundle(arrays=change(world.arrays())))


def worded(name: str, reason: str, change: Any) -> None:
    """Register a bundle whose manifest is written differently, and signed as it is written."""

    def make(world: World, _: Path) -> bytes:
        header, data = parts(world.bundle)
        text = change(header["__metadata__"]["manifest"])
        return packed({**header, **signed(world.vaults[0].signing_key, "bundle", {}, data, manifest=text)}, data)

    add("bundle", name, reason, make)


def signed_by(name: str, reason: str, signer: Any) -> None:
    """Register a bundle that somebody else signs; `signer` gets the world."""
    add("bundle", name, reason, lambda world, _: world.signed_bundle(signer=signer(world)))


# The manifest, written in another way, and signed so.
worded("manifest_with_spaces", FORM, lambda text: text.replace(",", ", "))
worded("manifest_with_a_line_break", FORM, lambda text: text + "\n")
worded("manifest_in_another_order", FORM, lambda text: json.dumps(dict(reversed(json.loads(text).items()))))
worded("manifest_with_a_field_twice", FORM, lambda text: text[:-1] + f',"rows":{N}}}')
worded("manifest_with_escapes", FORM, lambda text: text.replace('"bundle"', '"b\\u0075ndle"'))
worded("manifest_with_a_negative_zero", FORM, lambda text: text.replace(f'"rows":{N}', '"rows":-0'))
worded("manifest_of_a_space", MANIFEST, lambda text: " ")
worded("manifest_that_is_a_list", SAYS, lambda text: "[]")
worded("manifest_deeply_nested", MANIFEST, lambda text: "[" * 30_000)
worded("rows_of_five_thousand_digits", MANIFEST, lambda text: text.replace(f'"rows":{N}', f'"rows":{"9" * 5000}'))
worded("rows_not_a_number", WORDS, lambda text: text.replace(f'"rows":{N}', '"rows":NaN'))

# The manifest, saying something else.
declare("a_field_more", SAYS, host="ward-7")
declare("a_field_less", SAYS, nonce=...)
declare("rows_negative", ROWS, rows=-N)
declare("rows_zero", ROWS, rows=0)
declare("rows_a_float", WORDS, rows=float(N))
declare("rows_true", WORDS, rows=True)
declare("rows_null", WORDS, rows=None)
declare("rows_a_list", WORDS, rows=[N])
declare("rows_a_word", ROWS, rows=str(N))
declare("rows_of_a_trillion", ARRAYS, rows=2**40)
declare("rows_beyond_any_disk", ROWS, rows=2**40 + 1)
declare("rows_of_four_thousand_digits", ROWS, rows=10**4000)
declare("one_row_more_than_there_is", ARRAYS, rows=N + 1)
declare("kind_of_a_map", KIND, kind="map")
declare("format_of_tomorrow", KIND, format=2)
declare("format_a_word", KIND, format="1")
declare("another_study", STUDY, study="0" * 64)
declare("another_nonce", STUDY, nonce="f" * 32)
declare("study_a_number", STUDY, study=7)
declare("anchor_a_number", "does not say which anchor", anchor=7)
declare("anchor_too_short", "does not say which anchor", anchor="00")
declare("study_with_an_invisible_letter", STUDY, study="\u200b" + "0" * 63)
declare("study_with_half_a_character", STUDY, study="\ud800")
declare("data_a_number", "not those that were signed", data=7)
for word, key in {"a_number": 7, "empty": "", "no_hexadecimal": "z" * 64, "of_33_bytes": "00" * 33}.items():
    signed_by(f"signer_{word}", SIGNATURE, lambda world, key=key: _Named(world, key))


@hostile("bundle", SIGNATURE)
def signature_of_another_kind(world: World) -> bytes:
    header, data = parts(world.bundle)
    manifest = header["__metadata__"]["manifest"]
    other = signed(world.vaults[0].signing_key, "anchor", {}, data, manifest=manifest)
    return with_metadata(world.bundle, **other["__metadata__"])


signed_by("signed_by_another_than_it_names", SIGNATURE, lambda w: _Named(w, w.vaults[1].signing_key.public))
signed_by("signed_by_a_stranger", ROSTER, lambda w: type(w.analyst.signing_key).generate())
signed_by("signed_by_the_analyst", ROSTER, lambda w: w.analyst.signing_key)


@hostile("bundle", SIGNATURE)
def signature_plus_the_order_of_the_group(world: World) -> bytes:
    signature = bytes.fromhex(parts(world.bundle)[0]["__metadata__"]["signature"])
    s = int.from_bytes(signature[32:], "little") + ORDER_OF_THE_GROUP
    return with_metadata(world.bundle, signature=(signature[:32] + s.to_bytes(32, "little")).hex())


tampered("signature_of_zeros", SIGNATURE, lambda raw: with_metadata(raw, signature="00" * 64))
tampered("signature_of_small_order", SIGNATURE, lambda raw: with_metadata(raw, signature="01" + "00" * 63))
tampered("signature_too_short", SIGNATURE, lambda raw: with_metadata(raw, signature="00" * 32))
tampered("signature_empty", SIGNATURE, lambda raw: with_metadata(raw, signature=""))
tampered("signature_no_hexadecimal", MANIFEST, lambda raw: with_metadata(raw, signature="zz" * 64))
tampered("signature_in_capitals", FORM, lambda raw: with_metadata(raw, signature=_signature(raw).upper()))
tampered("signature_with_a_space", FORM, lambda raw: with_metadata(raw, signature=" " + _signature(raw)))


signed_by("signer_in_capitals", ROSTER, lambda w: _Named(w, w.vaults[0].signing_key.public.upper()))
for order, key in {"one": "01" + "00" * 31, "four": "00" * 32, "two": "ec" + "ff" * 30 + "7f"}.items():

    def small_order(world: World, _: Path, key: str = key) -> bytes:
        """A key of small order, under which one signature fits many messages."""
        raw = world.signed_bundle()
        fields = {**manifest_of(raw), "signer": key}
        return with_metadata(raw, manifest=canonical(fields), signature="01" + "00" * 63)

    add("bundle", f"signer_of_order_{order}", f"({SIGNATURE}|{ROSTER})", small_order)


for word, change in {"study": {"nonce": "f" * 32}, "version": {"data_noise_scale": 0.4}}.items():

    def replayed(world: World, path: Path, change: Any = change) -> None:
        share_elsewhere(world, path, small_study("small", world.vaults, world.analyst, **change))

    add("bundle", f"replayed_from_another_{word}", STUDY, replayed)


# The arrays, signed by a participant that means harm.
for name in ("anchor_representation", "representation", "labels"):
    for word, value in {"nan": np.nan, "inf": np.inf, "minus_inf": -np.inf}.items():

        def spoilt(arrays: dict[str, Any], name: str = name, value: float = value) -> dict[str, Any]:
            array = arrays[name].copy()
            array.flat[-1] = value
            return {name: array}

        holding(f"{word}_in_{name}", FINITE, spoilt)

for word, value in {"beyond_the_last": 2.0, "negative": -1.0, "between_two": 0.5, "huge": 3e38}.items():
    holding(f"label_{word}", LABELS, lambda a, value=value: {"labels": np.append(a["labels"][1:], np.float32(value))})

for word, factor in {"a_thousand": 1000.0, "zero": 0.0, "one_and_a_quarter": 1.25, "beyond_float": 3e36}.items():
    holding(f"anchor_{word}_times", NORM, lambda a, f=factor: {ANCHOR: a[ANCHOR] * np.float32(f)})


def narrowed(array: np.ndarray, factor: float) -> np.ndarray:
    """One column hardly there, the others longer, and the same norm."""
    mean = array.mean(axis=0)
    centred = (array - mean) * np.array([factor, *[1] * (H - 1)])
    return np.asarray(centred * np.linalg.norm(array - mean) / np.linalg.norm(centred) + mean, dtype="<f4")


# Of 400,000 draws of anchor, map and noise, none with half of its rows zero was within the bounds of an honest one.
HALF = (np.arange(R) % 2)[:, None].astype("<f4")
holding("half_of_the_anchor_rows_zero", f"({NORM}|{MOVED}|{DIRECTION})", lambda a: {ANCHOR: a[ANCHOR] * HALF})
for word, shift in {"200": 200.0, "20": 20.0}.items():  # farther than 1e-9 of all maps move it, wherever that is
    holding(f"anchor_moved_by_{word}", MOVED, lambda a, x=shift: {ANCHOR: a[ANCHOR] + np.float32(x)})
    holding(f"rows_moved_by_{word}", FAR, lambda a, x=shift: {"representation": a["representation"] + np.float32(x)})
for word, factor in {"almost": 1e-3, "quite": 0.0, "half": 0.5}.items():
    holding(f"anchor_{word}_without_a_direction", DIRECTION, lambda a, f=factor: {ANCHOR: narrowed(a[ANCHOR], f)})
NOISE = np.random.default_rng(0).normal(size=(R, H)).astype("<f4")
holding("anchor_of_random_numbers", NORM, lambda a: {ANCHOR: NOISE})
for word, value in {"so_large_that_maps_overflow": 3e38, "larger_than_any_encoded_row": 1e3}.items():
    holding(f"rows_{word}", FAR, lambda a, x=value: {"representation": np.full((N, H), x, dtype="<f4")})

for word, dtype in {"doubles": "<f8", "whole_numbers": "<i8", "brain_floats": "<u2"}.items():
    holding(f"rows_of_{word}", ARRAYS, lambda a, d=dtype: {"representation": a["representation"].astype(d)})
holding("anchor_one_row_short", ARRAYS, lambda a: {"anchor_representation": a["anchor_representation"][1:].copy()})
holding("rows_one_column_more", ARRAYS, lambda a: {"representation": np.zeros((N, H + 1), dtype="<f4")})
holding("an_array_more", ARRAYS, lambda a: {"notes": np.zeros(3, dtype="|u1")})


class _Named:
    """The first participant's signing key under another name."""

    def __init__(self, world: World, public: Any) -> None:
        self.public, self.sign = public, world.vaults[0].signing_key.sign


def _signature(raw: bytes) -> str:
    return str(parts(raw)[0]["__metadata__"]["signature"])
