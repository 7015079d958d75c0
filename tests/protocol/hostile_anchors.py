"""Hostile anchors: changed on the way, made by somebody else, or made so that noise protects less."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mooring.protocol.crypto.keys import SealingKey, Secret, lock, seal_box
from mooring.protocol.rotation.anchor import _context

from .hostile import H, World, add, disguises, entries, packed, reordered_metadata, with_metadata

SEALED = "not sealed to your key, or it is damaged"
SHAPE = "names, types and shapes"
INSIDE = f"(its content is not an anchor|{SHAPE})"
SOMEBODY = "signed by somebody else"
STUDY = "made for another study"


def inner(world: World, matrix: np.ndarray, *, study: str = "") -> bytes:
    metadata = {"__metadata__": {"study": study or world.study.digest}}
    return packed({**metadata, **entries({"anchor": matrix})}, np.ascontiguousarray(matrix).tobytes())


def sealed(world: World, plain: bytes, recipients: Sequence[str] = ()) -> bytes:
    """Sealed keys and encrypted content, as they follow each other in a file, sealed to others if they are given."""
    key, members = Secret.draw(), world.study.participants
    keys = recipients or [member.sealing_key for member in members]
    boxes = (
        seal_box(key.reveal(), to, info=_context(world.study, member)) for to, member in zip(keys, members, strict=True)
    )
    return b"".join(boxes) + lock(plain, key)


def add_anchor(name: str, reason: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Register what a dealer can seal and sign: `change` gets the good anchor."""
    add("anchor", name, reason, lambda w, _: w.signed_anchor(sealed(w, inner(w, change(w.matrix())))))


def dealer(world: World) -> Any:
    return world.vaults[0].signing_key


def good(world: World) -> bytes:
    return sealed(world, inner(world, world.matrix()))


def tampered(name: str, reason: str, change: Callable[[bytes], bytes]) -> None:
    add("anchor", name, reason, lambda world, _: change(world.anchor))


def declare(name: str, reason: str, **fields: Any) -> None:
    add("anchor", name, reason, lambda w, _: w.signed_anchor(good(w), **fields))


def made(name: str, reason: str, sealed_by: Callable[[World], bytes], signer: Callable[[World], Any] = dealer) -> None:
    """Register a file of other sealed bytes, or of another signer."""
    add("anchor", name, reason, lambda w, _: w.signed_anchor(sealed_by(w), signer=signer(w)))


add_anchor("a_hundred_times", "orthonormal", lambda A: 100 * A)
add_anchor("a_hundredth", "orthonormal", lambda A: A / 100)
add_anchor("a_millionth_too_large", "orthonormal", lambda A: (1 + 1e-6) * A)
add_anchor("all_zero", "orthonormal", lambda A: 0 * A)
add_anchor("one_column_twice", "orthonormal", lambda A: A[:, [0, 1, 1]])
add_anchor("one_column_large", "orthonormal", lambda A: A * np.array([1, 1, 50.0]))
add_anchor("moved_a_little", "centred", lambda A: A + 1e-3)
add_anchor("orthonormal_and_off_centre", "centred", lambda A: np.linalg.qr(A + 1.0)[0])
add_anchor("of_rank_zero_and_huge", "centred", lambda A: np.full_like(A, 1e300))
for word, value in {"nan": np.nan, "inf": np.inf, "minus_inf": -np.inf}.items():
    add_anchor(
        f"with_{word}", "finite", lambda A, value=value: np.where(np.arange(A.size).reshape(A.shape) == 5, value, A)
    )
add_anchor("in_single_precision", INSIDE, lambda A: A.astype("<f4"))
add_anchor("transposed", INSIDE, lambda A: A.T.copy())
add_anchor("one_row_short", INSIDE, lambda A: A[1:].copy())
add_anchor("of_h_rows_only", INSIDE, lambda A: np.eye(H))
add_anchor("without_rows", INSIDE, lambda A: A[:0].copy())
add_anchor("too_narrow", INSIDE, lambda A: A[:, 1:].copy())
add_anchor("of_another_shape", INSIDE, lambda A: A.reshape(-1, 1))

declare("for_another_study", STUDY, study="0" * 64)
declare("for_another_nonce", STUDY, nonce="0" * 32)
declare("with_a_note", "exactly the expected fields", note="hello")
tampered("damaged_seal", "not those that were signed", lambda raw: raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:])
tampered("one_byte_short", "length is not what", lambda raw: raw[:-1])
tampered("one_byte_more", "length is not what", lambda raw: raw + b"\0")
tampered("nothing_at_all", "cut short", lambda raw: b"")
tampered("unsigned", "no manifest and signature", lambda raw: with_metadata(raw, signature=...))
tampered("metadata_in_another_order", "no manifest and signature", reordered_metadata)


made("dealt_by_another_participant", SOMEBODY, good, lambda w: w.vaults[1].signing_key)
made("dealt_by_the_analyst", SOMEBODY, good, lambda w: w.analyst.signing_key)
made(
    "sealed_to_others_only",
    SEALED,
    lambda w: sealed(w, inner(w, w.matrix()), [SealingKey.generate().public for _ in w.study.participants]),
)
made(
    "sealed_to_one_for_another",
    SEALED,
    lambda w: sealed(w, inner(w, w.matrix()), [member.sealing_key for member in reversed(w.study.participants)]),
)
made("encrypted_with_a_key_that_nobody_has", SEALED, lambda w: good(w)[: 1168 * 2] + good(w)[1168 * 2 :])
made("not_sealed_at_all", SHAPE, lambda w: inner(w, w.matrix()))
made("sealed_for_another_study", INSIDE, lambda w: sealed(w, inner(w, w.matrix(), study="0" * 64)))
made("sealed_with_something_after_it", INSIDE, lambda w: sealed(w, inner(w, w.matrix()) + b"more"))
made("sealed_nothing", INSIDE, lambda w: sealed(w, b""))
made("sealed_a_pickle", INSIDE, lambda w: sealed(w, disguises()["a_pickle"]))
made("sealed_claim_of_a_huge_header", INSIDE, lambda w: sealed(w, b"\0" * 7 + b"\x80" + inner(w, w.matrix())[8:]))


add("anchor", "a_bundle", "(exactly the expected fields|another kind)", lambda w, _: w.bundle)
add("anchor", "a_folder", "not a regular file", lambda w, path: path.mkdir())
for word in ("a_pickle", "a_zip_archive", "plain_safetensors"):
    add("anchor", word, "(cut short|header cannot|no manifest)", lambda world, _, word=word: disguises()[word])
