"""Fuzz targets: whatever bytes come in, a reader returns or raises a MooringError.

A target reads bytes as whoever receives such a file does. Signed files are signed again after a mutation, and what is
sealed is sealed again, so that the layers behind signature and seal are reached.
"""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from safetensors.numpy import save

from mooring.errors import MooringError
from mooring.protocol.analyst.intake import INTAKE_FILE, Register, collect
from mooring.protocol.designer.draft import draft_study
from mooring.protocol.designer.header import Header, read_header
from mooring.protocol.designer.merge import draft_merged, merge_headers
from mooring.protocol.messages.card import read_card, write_card
from mooring.protocol.messages.model import MODEL_FILE
from mooring.protocol.messages.public_file import public_file_name
from mooring.protocol.messages.result import read_delivered_model
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import parse_study
from mooring.protocol.messages.study_text import render_study
from mooring.protocol.participant.membership import make_member
from mooring.protocol.results import Consent
from mooring.protocol.rotation.analyst.alignment import align_bundles
from mooring.protocol.rotation.analyst.alignment_state import RECORD_FILE, STATE_FILE, AlignmentState, read_space
from mooring.protocol.rotation.analyst.collaboration_matrix import PARTS_FOLDER, list_parts, read_blocks
from mooring.protocol.rotation.anchor import open_anchor
from mooring.protocol.rotation.bundle import verify_bundle
from mooring.protocol.rotation.participant.upload import share_rows
from mooring.protocol.rotation.result import MAP_FILE, read_result
from mooring.protocol.rotation.scheme import study_projection
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Vault
from mooring.report.records import collect_records
from mooring.tables import Column, open_table, read_columns
from mooring.tables.encoder import check_fit, read_encoded
from tests.fuzz.engine_targets import dask_targets, flare_targets
from tests.fuzz.site_targets import site_targets
from tests.fuzz.sum_targets import sum_targets
from tests.fuzz.target import Target, make_place, sign_again, write_file
from tests.protocol.hostile import H, World, build_world
from tests.protocol.hostile_anchors import inner, sealed
from tests.sites import specifier_of
from tests.study_settings import change


def build_targets(folder: Path) -> dict[str, Target]:
    """Make one small study with all its files in a folder, and a target for each reader of such a file.

    Keys and secrets are the same at every time, so that inputs kept from an earlier run are of the same study.
    """
    count = itertools.count()
    with patch("secrets.token_bytes", lambda n=32: hashlib.shake_256(b"fuzz %d" % next(count)).digest(n)):
        world = build_world(folder)
        sums = sum_targets(world)
    records, space = _records(world)
    engines = [*flare_targets(world), *dask_targets(world, space)]
    made = [*_messages(world), *_tables(world), *records, *engines, *sums, *site_targets(world)]
    return {target.name: target for target in made}


_DATE = Column("seen", "date", 0, 365, day="2020-01-01", missing="fill", missing_words=("-9", "never"))
_BORN = Column("born", "age", 0, 120, day="2020-01-01")


def _messages(world: World) -> list[Target]:
    study, (owner, reader), place = world.study, world.vaults, make_place(world, "messages")
    member = study.participants[0]
    result, projected = make_place(world, "result"), make_place(world, "projected")
    trained = make_place(world, "trained")
    (result / MODEL_FILE).write_bytes(world.model)

    def read_map(data: bytes) -> object:
        (result / MAP_FILE).write_bytes(sign_again(data, "map", world.analyst.signing_key))
        return read_result(result, study, member)

    def read_anchor(data: bytes) -> object:
        return open_anchor(reader, study, write_file(place / "a.anchor", sign_again(data, "anchor", owner.signing_key)))

    def read_sealed(data: bytes) -> object:
        return open_anchor(reader, study, write_file(place / "s.anchor", world.signed_anchor(sealed(world, data))))

    def read_model(data: bytes) -> object:
        write_file(trained / MODEL_FILE, sign_again(data, "model", world.analyst.signing_key))
        return read_delivered_model(trained, study, specifier_of(study)).model.predict(np.zeros((2, H)))

    def read_projection(data: bytes) -> object:
        digest = hashlib.sha256(data).hexdigest()
        other = change(study, n_components=2, projection="public-svd", projection_digest=digest, folder=projected)
        write_file(projected / public_file_name(other), data)
        return study_projection(other)

    def read_study(data: bytes) -> object:
        return Study.from_dict(parse_study(data.decode("utf-8", "replace"))).digest

    def merge_header(data: bytes) -> object:
        headers = [read_header(write_file(place / "h", data)), Header("b", study.columns, ("id",))]
        return draft_merged(merge_headers(headers), name="s", label=None)

    header = Header("a", (*study.columns, _DATE, _BORN), ("id",), ("notes",)).render().encode()
    card = place / "one.card.toml"
    write_card(card, role="participant", member=make_member("p0", owner), signer=owner.signing_key)
    sealed_plain = inner(world, open_anchor(reader, study, write_file(place / "a.anchor", world.anchor)).matrix)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((H, 2)))[0]
    return [
        Target(
            "bundle",
            lambda data: verify_bundle(write_file(place / "b", sign_again(data, "bundle", owner.signing_key)), study),
            (world.bundle,),
        ),
        Target("map", read_map, (world.map,)),
        Target("anchor", read_anchor, (world.anchor,)),
        Target("sealed anchor", read_sealed, (sealed_plain,)),
        Target("card", lambda data: read_card(write_file(place / "c", data)), (card.read_bytes(),)),
        Target("study", read_study, (render_study(study.as_dict()).encode(), *_drafts(place))),
        Target("header", merge_header, (header,)),
        Target("model", read_model, (world.model,)),
        Target("projection", read_projection, (save({"matrix": np.ascontiguousarray(basis)}),)),
    ]


def _tables(world: World) -> list[Target]:
    place, schema = make_place(world, "tables"), world.study.schema

    def read_table(name: str) -> Callable[[bytes], object]:
        def read(data: bytes) -> object:
            path, refused = write_file(place / name, data), None
            for reading in (
                lambda: read_encoded(schema, path),
                lambda: check_fit(schema, path),
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


def _records(world: World) -> tuple[list[Target], AlignmentState]:
    study, work = world.study, make_place(world, "work")
    inbox = make_place(world, "inbox")
    (inbox / "p0.bundle").write_bytes(world.bundle)
    share_rows(
        world.vaults[1],
        study,
        world.folder / "rows.csv",
        anchor=world.folder / "good.anchor",
        output=inbox / "p1.bundle",
        consent=Consent(labels=True),
    )
    intake = collect(study, inbox, work)
    space = align_bundles(study, intake.bundles, work)
    vault, ledger = world.vaults[0].folder, make_place(world, "ledger")

    def read_ledger(data: bytes) -> object:
        for path in ledger.iterdir():
            path.unlink()
        write_file(ledger / "ledger.sqlite", data)
        return Ledger(ledger).entries()

    def read_identity(data: bytes) -> object:
        return Vault.open(write_file(make_place(world, "identity") / "identity.json", data).parent)

    def read_in(name: str, read: Callable[[Path], object], title: str = "") -> Target:
        good = (work / name).read_bytes()
        place = make_place(world, f"damaged {title or name}")
        (place / PARTS_FOLDER).mkdir()
        for path in (*work.iterdir(), *(work / PARTS_FOLDER).iterdir()):
            if path.is_file():
                (place / path.relative_to(work)).write_bytes(path.read_bytes())
        return Target(title or name, lambda data: [write_file(place / name, data), read(place)][1], (good,))

    part = str(next(iter(list_parts(work).values()))[0].relative_to(work))
    made = [
        Target("ledger", read_ledger, ((vault / "ledger.sqlite").read_bytes(),)),
        Target("identity", read_identity, ((vault / "identity.json").read_bytes(),)),
        read_in(STATE_FILE, lambda folder: read_space(folder, study)),
        read_in(part, lambda folder: list(read_blocks(folder, study, space)), "collaboration.parquet"),
        read_in(INTAKE_FILE, lambda folder: Register.read(folder, study)),
        read_in(RECORD_FILE, collect_records),
    ]
    return made, space


def _drafts(place: Path) -> tuple[bytes, ...]:
    path = write_file(place / "header.csv", b"age,sex,weight,ill\n")
    return (draft_study(path, label="ill").encode(),)
