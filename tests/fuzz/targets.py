"""Fuzz targets: whatever bytes come in, a reader returns or raises a MooringError.

A target reads bytes as whoever receives such a file does. Signed files are signed again after a mutation, and what is
sealed is sealed again, so that the layers behind signature and seal are reached.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from safetensors.numpy import save

from mooring.engines.flare.admission import refusal_of_app, refusal_of_meta
from mooring.engines.flare.chunks import FileExchange, IncomingFile
from mooring.errors import MooringError
from mooring.protocol.analyst.alignment import align_bundles
from mooring.protocol.analyst.alignment_state import RECORD_FILE, STATE_FILE, read_space
from mooring.protocol.analyst.collaboration_matrix import TABLE_FILE, read_blocks
from mooring.protocol.analyst.intake import INTAKE_FILE, IntakeRecord, collect
from mooring.protocol.crypto.keys import SigningKey, seal
from mooring.protocol.designer.draft import draft_study
from mooring.protocol.messages.bundle import verify_bundle
from mooring.protocol.messages.card import read_card, write_card
from mooring.protocol.messages.model import Model
from mooring.protocol.messages.projection import projection_file_name, study_projection
from mooring.protocol.messages.result import MAP_FILE, MODEL_FILE, read_result
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import parse_study, render_study
from mooring.protocol.participant.membership import make_member, open_anchor
from mooring.protocol.participant.upload import share_rows
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Vault
from mooring.report.records import collect_records
from mooring.tables import open_table, read_columns, read_encoded
from tests.protocol.hostile import H, World, build_world, canonical, packed, parts


@dataclass(frozen=True)
class Target:
    """One reader.

    Attributes
    ----------
    name : str
    read : callable
        Reads bytes; returns, or raises a MooringError.
    seeds : tuple of bytes
        Good inputs, from which mutation starts.
    """

    name: str
    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]

    def survives(self, data: bytes) -> bool:
        """Whether the bytes were read; False if they were refused. Any other exception is a finding."""
        try:
            self.read(data)
        except MooringError:
            return False
        return True


def build_targets(folder: Path) -> dict[str, Target]:
    """Make one small study with all its files in a folder, and a target for each reader of such a file."""
    world = build_world(folder)
    made = [*_messages(world), *_tables(world), *_records(world), *_flare(world)]
    return {target.name: target for target in made}


def _messages(world: World) -> list[Target]:
    study, (owner, reader), place = world.study, world.vaults, _place(world, "messages")
    member = study.participants[0]
    result, projected = _place(world, "result"), _place(world, "projected")
    (result / MODEL_FILE).write_bytes(world.model)

    def read_map(data: bytes) -> object:
        (result / MAP_FILE).write_bytes(sign_again(data, "map", world.analyst.signing_key))
        return read_result(result, study, member)

    def read_anchor(data: bytes) -> object:
        return open_anchor(reader, study, _write(place / "a.anchor", sign_again(data, "anchor", owner.signing_key)))

    def read_sealed(data: bytes) -> object:
        sealed = seal(data, [one.sealing_key for one in study.participants])
        return open_anchor(reader, study, _write(place / "s.anchor", world.signed_anchor(sealed)))

    def read_model(data: bytes) -> object:
        model = Model.load(data, n_components=H, kind="classes", n_classes=2, threads=1)
        return model.predict(np.zeros((2, H), dtype=np.float32))

    def read_projection(data: bytes) -> object:
        digest = hashlib.sha256(data).hexdigest()
        other = replace(study, n_components=2, projection="public-svd", projection_digest=digest, folder=projected)
        _write(projected / projection_file_name(other), data)
        return study_projection(other)

    def read_study(data: bytes) -> object:
        return Study.from_dict(parse_study(data.decode("utf-8", "replace"))).digest

    card = place / "one.card.toml"
    write_card(card, role="participant", member=make_member("p0", owner), signer=owner.signing_key)
    sealed_plain = reader.sealing_key.open(parts(world.anchor)[1])
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((H, 2)))[0]
    return [
        Target(
            "bundle",
            lambda data: verify_bundle(_write(place / "b", sign_again(data, "bundle", owner.signing_key)), study),
            (world.bundle,),
        ),
        Target("map", read_map, (world.map,)),
        Target("anchor", read_anchor, (world.anchor,)),
        Target("sealed anchor", read_sealed, (sealed_plain,)),
        Target("card", lambda data: read_card(_write(place / "c", data)), (card.read_bytes(),)),
        Target("study", read_study, (render_study(study.as_dict()).encode(), *_drafts(place))),
        Target("model", read_model, (world.model,)),
        Target("projection", read_projection, (save({"matrix": np.ascontiguousarray(basis)}),)),
    ]


def _tables(world: World) -> list[Target]:
    place, schema = _place(world, "tables"), world.study.schema

    def read_table(name: str) -> Callable[[bytes], object]:
        def read(data: bytes) -> object:
            path, refused = _write(place / name, data), None
            for reading in (
                lambda: read_encoded(schema, path),
                lambda: read_columns(open_table(path)),
                lambda: draft_study(path),
            ):
                try:
                    reading()
                except MooringError as problem:
                    refused = problem
            if refused is not None:
                raise refused
            return None

        return read

    rows = {f"c{k}": np.linspace(-1, 1, 8) for k in range(H)} | {"y": ["a", "b"] * 4}
    written = []
    for options in ({}, {"compression": "none", "use_dictionary": False}):
        pa.parquet.write_table(pa.table(rows), buffer := io.BytesIO(), **options)
        written.append(buffer.getvalue())
    return [
        Target("csv", read_table("t.csv"), ((world.folder / "rows.csv").read_bytes(), b'c0;c1;c2;y\n"1";2,5;;"a"\n')),
        Target("parquet", read_table("t.parquet"), tuple(written)),
    ]


def _records(world: World) -> list[Target]:
    study, work = world.study, _place(world, "work")
    inbox = _place(world, "inbox")
    (inbox / "p0.bundle").write_bytes(world.bundle)
    share_rows(
        world.vaults[1],
        study,
        world.folder / "rows.csv",
        anchor=world.folder / "good.anchor",
        output=inbox / "p1.bundle",
    )
    intake = collect(study, inbox, work)
    space = align_bundles(study, intake.bundles, work).space
    vault, ledger = world.vaults[0].folder, _place(world, "ledger")

    def read_ledger(data: bytes) -> object:
        for path in ledger.iterdir():
            path.unlink()
        _write(ledger / "ledger.sqlite", data)
        return Ledger(ledger).entries()

    def read_identity(data: bytes) -> object:
        return Vault.open(_write(_place(world, "identity") / "identity.json", data).parent)

    def read_in(name: str, read: Callable[[Path], object]) -> Target:
        good = (work / name).read_bytes()
        place = _place(world, f"damaged {name}")
        for path in work.iterdir():
            if path.is_file():
                (place / path.name).write_bytes(path.read_bytes())
        return Target(name, lambda data: read(_write(place / name, data).parent), (good,))

    return [
        Target("ledger", read_ledger, ((vault / "ledger.sqlite").read_bytes(),)),
        Target("identity", read_identity, ((vault / "identity.json").read_bytes(),)),
        read_in(STATE_FILE, lambda folder: read_space(folder, study)),
        read_in(TABLE_FILE, lambda folder: list(read_blocks(folder, study, space))),
        read_in(INTAKE_FILE, lambda folder: IntakeRecord.read(folder, study)),
        read_in(RECORD_FILE, collect_records),
    ]


def _flare(world: World) -> list[Target]:
    place = _place(world, "flare")

    def exchange_files(data: bytes) -> object:
        """A site's requests, one a line of JSON; a piece is text."""
        exchange = FileExchange()
        ticket = exchange.ticket(arrival=IncomingFile(place / "came", 10**4, lambda _: None), files={"f": place / "f"})
        for line in data.splitlines()[:20]:
            with suppress(ValueError, RecursionError):
                request = json.loads(line)
                if isinstance(request, dict):
                    piece = request.get("piece")
                    request |= {"ticket": ticket} | ({"piece": piece.encode()} if isinstance(piece, str) else {})
                    exchange.answer(request)
        exchange.close(ticket)
        (place / "came").unlink(missing_ok=True)
        return None

    def admit(data: bytes) -> object:
        with suppress(ValueError, RecursionError):
            refusal_of_meta(json.loads(data), "0" * 36)
        return refusal_of_app(data)

    (place / "f").write_bytes(b"0123")
    digest = hashlib.sha256(b"abc").hexdigest()
    asked: list[dict[str, Any]] = [
        {"do": "offer", "size": 3, "digest": digest},
        {"do": "put", "offset": 0, "piece": "abc"},
        {"do": "done"},
        {"do": "get", "file": "f", "offset": 0},
    ]
    return [
        Target("flare requests", exchange_files, ("\n".join(map(json.dumps, asked)).encode(),)),
        Target("flare job", admit, (b'{"name": "mooring", "min_clients": 2}', b"PK\x03\x04")),
    ]


def sign_again(data: bytes, kind: str, signer: SigningKey) -> bytes:
    """The same file with a good signature over whatever it says; as it is where no header can be read."""
    try:
        header, arrays = parts(data)
        fields = json.loads(header["__metadata__"]["manifest"])
        fields |= {"signer": signer.public, "data": hashlib.sha256(arrays).hexdigest()}
        manifest = canonical(fields)
    except (ValueError, KeyError, TypeError, RecursionError):
        return data
    signature = signer.sign(b"mooring " + kind.encode() + b" signature\n" + manifest.encode())
    header["__metadata__"] |= {"manifest": manifest, "signature": signature.hex()}
    return packed(header, arrays)


def _drafts(place: Path) -> tuple[bytes, ...]:
    path = _write(place / "header.csv", b"age,sex,weight,ill\n")
    return (draft_study(path, label="ill").encode(),)


def _place(world: World, name: str) -> Path:
    place = world.folder / "fuzz" / name.replace(" ", "-")
    place.mkdir(parents=True, exist_ok=True)
    return place


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
