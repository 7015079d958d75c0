"""A corpus of hostile files: each is made from a good one by a small named function, and must be refused for its own reason.

`@hostile("bundle", reason)` registers a maker. It gets the world of one small study, in which every file is good, and
returns the bytes of a bad file, or writes one itself where bytes cannot say it (a folder, a pipe, a terabyte of nothing).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import pickle
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mooring.protocol.crypto.keys import BOX_OVERHEAD, SigningKey
from mooring.protocol.messages.study import Study
from mooring.protocol.results import Consent
from mooring.protocol.rotation.anchor import deal_anchor, open_anchor
from mooring.protocol.rotation.bundle import verify_bundle
from mooring.protocol.rotation.participant.upload import share_rows
from mooring.protocol.storage.vault import Vault
from tests.sites import vaulted_study, write_rows

NONCE = "0123456789abcdef" * 2
H, R, N = 3, 24, 40
TWO_CLASSES = {"classes": np.arange(2, dtype="<i4"), "class_shares": np.array([0.5, 0.5])}


@dataclass(frozen=True)
class Hostile:
    """One bad file: of which kind it pretends to be, how it is made, and what the refusal must say."""

    name: str
    kind: str
    reason: str
    make: Callable[[World, Path], bytes | None]

    def write(self, world: World, path: Path) -> Path:
        made = self.make(world, path)
        if made is not None:
            path.write_bytes(made)
        return path


@dataclass(frozen=True)
class World:
    """A study of two participants and an analyst, all of whose files are good."""

    folder: Path
    study: Study
    vaults: tuple[Vault, ...]
    analyst: Vault

    @property
    def bundle(self) -> bytes:
        return (self.folder / "good.bundle").read_bytes()

    @property
    def anchor(self) -> bytes:
        return (self.folder / "good.anchor").read_bytes()

    @property
    def model(self) -> bytes:
        return (self.folder / "good.model").read_bytes()

    @property
    def map(self) -> bytes:
        return (self.folder / "good.map").read_bytes()

    def matrix(self) -> np.ndarray:
        return open_anchor(self.vaults[0], self.study, self.folder / "good.anchor").matrix

    def arrays(self) -> dict[str, np.ndarray]:
        """What the good bundle holds."""
        bundle = verify_bundle(self.folder / "good.bundle", self.study)
        return {
            "anchor_representation": bundle.anchor_representation.astype("<f4"),
            "representation": bundle.representation(),
            "labels": bundle.labels().astype("<f4"),
        }

    def signed_bundle(
        self, *, arrays: Mapping[str, np.ndarray] | None = None, signer: SigningKey | None = None, **fields: Any
    ) -> bytes:
        """A bundle as a participant can make it that signs whatever it likes; a field of ... is left out."""
        arrays = {**self.arrays(), **(arrays or {})}
        data = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays.values())
        manifest = {
            "study": self.study.digest,
            "nonce": self.study.nonce,
            "rows": N,
            "anchor": hashlib.sha256(self.anchor).hexdigest(),
        }
        header = signed(
            self.vaults[0].signing_key if signer is None else signer, "bundle", {**manifest, **fields}, data
        )
        return packed({**header, **entries(arrays)}, data)

    def signed_anchor(self, sealed: bytes, *, signer: SigningKey | None = None, **fields: Any) -> bytes:
        """An anchor file as a dealer can make it that signs whatever it likes."""
        manifest = {"study": self.study.digest, "nonce": self.study.nonce}
        header = signed(
            self.vaults[0].signing_key if signer is None else signer, "anchor", {**manifest, **fields}, sealed
        )
        data, shape = np.frombuffer(sealed, dtype="|u1"), (len(self.study.participants), BOX_OVERHEAD + 32)
        arrays = {"sealed": data}
        if data.size > math.prod(shape):
            arrays = {"keys": data[: math.prod(shape)].reshape(shape), "sealed": data[math.prod(shape) :]}
        return packed({**header, **entries(arrays)}, sealed)

    def signed_map(
        self, *, arrays: Mapping[str, np.ndarray] | None = None, signer: SigningKey | None = None, **fields: Any
    ) -> bytes:
        """A map for the first participant as an analyst can make it that signs whatever it likes."""
        mean = self.arrays()["anchor_representation"].astype(np.float64).mean(axis=0)
        own_arrays = {"orthogonal": np.eye(H)[::-1].copy(), "mean": mean, "origin": np.zeros(H), **(arrays or {})}
        data = b"".join(np.ascontiguousarray(array).tobytes() for array in own_arrays.values())
        member = self.study.participants[0]
        manifest = {
            "study": self.study.digest,
            "participant": member.name,
            "key": member.signing_key,
            "bundle": hashlib.sha256(self.bundle).hexdigest(),
            "model": hashlib.sha256(self.model).hexdigest(),
        }
        header = signed(self.analyst.signing_key if signer is None else signer, "map", {**manifest, **fields}, data)
        return packed({**header, **entries(own_arrays)}, data)

    def signed_model(
        self, *, arrays: Mapping[str, np.ndarray] | None = None, signer: SigningKey | None = None, **fields: Any
    ) -> bytes:
        """A linear model, or any other that the fields say, as an analyst can make it that signs whatever it likes."""
        weights = np.random.default_rng(1).normal(size=(H, 2))
        linear = {"weights": weights, "intercepts": np.zeros(2), **TWO_CLASSES}
        held = linear if arrays is None else dict(arrays)
        data = b"".join(np.ascontiguousarray(array).tobytes() for array in held.values())
        sizes = {"inputs": H, "outputs": 2, "width": 0, "trees": 0, "nodes": 0, "leaves": 0}
        manifest = {"study": self.study.digest, "source": "0" * 64, "outcome": "", "function": "linear", **sizes}
        manifest["link"] = "softmax"
        header = signed(self.analyst.signing_key if signer is None else signer, "model", {**manifest, **fields}, data)
        return packed({**header, **entries(held)}, data)


CORPUS: list[Hostile] = []


def hostile(kind: str, reason: str) -> Callable[[Callable[..., bytes | None]], Callable[..., bytes | None]]:
    """Register a maker of a bad file; it takes the world, and a path if it writes the file itself."""

    def register(make: Callable[..., bytes | None]) -> Callable[..., bytes | None]:
        takes_path = make.__code__.co_argcount == 2
        call = make if takes_path else lambda world, _: make(world)
        add(kind, make.__name__, reason, call)
        return make

    return register


def add(kind: str, name: str, reason: str, make: Callable[[World, Path], bytes | None]) -> None:
    """Register one of many that a loop makes."""
    assert all((known.kind, known.name) != (kind, name) for known in CORPUS), f"{kind} {name} twice"
    CORPUS.append(Hostile(name, kind, reason, make))


def small_study(name: str, members: tuple[Vault, ...], analyst: Vault, *, nonce: str = NONCE, **changes: Any) -> Study:
    """A study of three numbers and two classes, with little anchor noise so that its norm is sharp."""
    named = {f"p{k}": vault for k, vault in enumerate(members)}
    return vaulted_study(named, analyst, H, R, name=name, nonce=nonce, **{"anchor_noise_scale": 0.01} | changes)


def build_world(folder: Path) -> World:
    """Go through the real steps once: join, deal, share."""
    vaults = tuple(Vault.create(folder / f"vault-{k}") for k in range(2))
    analyst = Vault.create(folder / "vault-of-the-analyst")
    world = World(folder, small_study("small", vaults, analyst), vaults, analyst)
    deal_anchor(vaults[0], world.study, folder / "good.anchor")
    write_table(folder / "rows.csv", np.random.default_rng(0))
    anchor, output = folder / "good.anchor", folder / "good.bundle"
    share_rows(vaults[0], world.study, folder / "rows.csv", anchor=anchor, output=output, consent=Consent(labels=True))
    (folder / "good.model").write_bytes(world.signed_model())
    (folder / "good.map").write_bytes(world.signed_map())
    return world


def share_elsewhere(world: World, output: Path, study: Study) -> None:
    """A good bundle of the first participant's in another study, by a copy of its vault that does not know of this one."""
    copy = output.parent / "elsewhere"
    copy.mkdir()
    shutil.copy(world.vaults[0].folder / "identity.json", copy)
    vault = Vault.open(copy)
    anchor = output.with_suffix(".anchor")
    deal_anchor(vault, study, anchor)
    share_rows(vault, study, world.folder / "rows.csv", anchor=anchor, output=output, consent=Consent(labels=True))


def write_table(path: Path, rng: np.random.Generator, n_rows: int = N) -> None:
    write_rows(path, rng.normal(size=(n_rows, H)), ["ab"[k % 2] for k in range(n_rows)])


def disguises() -> dict[str, bytes]:
    """Files of other kinds under a name of ours; the pickle would write a file if anybody loaded it."""
    table, archive, zipped = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(table, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savez(archive, rows=np.zeros((N, H), dtype="<f4"))
    with zipfile.ZipFile(zipped, "w") as file:
        file.writestr("rows.csv", "c0,c1\n")
    header = {"rows": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    return {
        "a_pickle": pickle.dumps(Canary("loaded-by-somebody")),
        "a_pickle_of_protocol_0": pickle.dumps(Canary("loaded-by-somebody"), protocol=0),
        "an_array_of_objects": table.getvalue(),
        "an_npz_archive": archive.getvalue(),
        "a_zip_archive": zipped.getvalue(),
        "a_gzip_stream": gzip.compress(bytes(10**6)),
        "a_page_that_says_not_found": b"<!doctype html><title>404</title>",
        "plain_safetensors": packed(header, bytes(4)),
        "text_of_zeros": b"0" * 4096,
    }


class Canary:
    """Unpickling it makes a file of this name: a program that does so can be caught at it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


def canonical(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def signed(
    signer: SigningKey, kind: str, fields: Mapping[str, Any], data: bytes, *, manifest: str = ""
) -> dict[str, Any]:
    """The metadata of a signed file, right by the letter of the format whatever the fields say."""
    entries = {"kind": kind, "format": 1, "signer": signer.public, "data": hashlib.sha256(data).hexdigest(), **fields}
    manifest = manifest or canonical({name: value for name, value in entries.items() if value is not ...})
    signature = signer.sign(b"mooring " + kind.encode() + b" signature\n" + manifest.encode())
    return {"__metadata__": {"manifest": manifest, "signature": signature.hex()}}


def entries(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The entries of a header for arrays one after the other."""
    names = {"f4": "F32", "f8": "F64", "i4": "I32", "u1": "U8", "i8": "I64", "u2": "BF16"}
    spans, position = {}, 0
    for name, array in arrays.items():
        end = position + array.nbytes
        dtype = names[array.dtype.str[1:]]
        spans[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [position, end]}
        position = end
    return spans


def packed(header: Mapping[str, Any] | str | bytes, data: bytes, *, length: int | None = None) -> bytes:
    """A file in the safetensors layout; a header given as text is taken as it is."""
    text = json.dumps(header, separators=(",", ":")) if isinstance(header, Mapping) else header
    raw = text.encode() if isinstance(text, str) else text
    raw += b" " * (-len(raw) % 8)
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data


def parts(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and data of a file."""
    length = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def manifest_of(raw: bytes) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(parts(raw)[0]["__metadata__"]["manifest"])
    return record


def with_metadata(raw: bytes, **changes: Any) -> bytes:
    """The file with parts of its metadata replaced (... leaves one out)."""
    header, data = parts(raw)
    metadata = {**header["__metadata__"], **changes}
    header["__metadata__"] = {name: value for name, value in metadata.items() if value is not ...}
    return packed(header, data)


def reordered_metadata(raw: bytes) -> bytes:
    """The same manifest and the same good signature, the other way round."""
    header, data = parts(raw)
    header["__metadata__"] = dict(reversed(header["__metadata__"].items()))
    return packed(header, data)
