"""Fuzz targets of files that a role keeps for itself, of a site's own table with its mapping, and of a place's listing."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mooring.errors import MooringError
from mooring.protocol.driver.journal import Journal
from mooring.protocol.messages.envelope import open_envelope, seal_file
from mooring.protocol.transport.place import Place
from mooring.report.records import read_audit
from mooring.serialization import Record, read_record
from mooring.tables import Column, Label, Schema
from mooring.tables.encoder import check_fit
from mooring.tables.mapping import MappedTable, TableMapping, read_mapping
from mooring.tables.suggestion import render_mapping, suggest_mapping
from tests.fuzz.engine_targets import FakeStore, as_lines, read_lines
from tests.fuzz.target import Target, make_place, sign_again, write_file
from tests.protocol.hostile import World
from tests.report.example_records import analyst_records, example_audit, list_files, participant_records, sum_records

_SCHEMA = Schema(
    (
        Column("gender", "category", categories=("female", "male")),
        Column("seen", "date", 0, 20_000, day="1970-01-01", missing="fill"),
        Column("weight", "number", 0, 200, missing="fill", outside="clip"),
    ),
    Label("ill", "classes", classes=("no", "yes")),
)
_TABLE = b"sex;seen;weight;ill;note\nF;31.01.2020;70,5;ja;a\nM;;-9;nein;b\nX;1.2.1999;1.070;ja;c\n"
_MAPPING = b"""decimal = ","
date_format = "%d.%m.%Y"
missing_words = ["-9"]
ignore = ["note"]
[columns.gender]
source = "sex"
other = "male"
[columns.gender.words]
F = "female"
[columns.ill.words]
ja = "yes"
nein = "no"
"""


def site_targets(world: World) -> list[Target]:
    """A target for records, mappings, tables that are matched, and listings of a place."""
    place = make_place(world, "site")
    table = write_file(place / "table.csv", _TABLE)

    def read_by_mapping(data: bytes) -> object:
        mapping = read_mapping(write_file(place / "mapping.toml", data)).fit_to(_SCHEMA)
        return mapping.describe(), check_fit(_SCHEMA, MappedTable(table, mapping))

    def match_table(data: bytes) -> object:
        path = write_file(place / "own.csv", data)
        suggested = suggest_mapping(_SCHEMA, path, TableMapping())
        check_fit(_SCHEMA, MappedTable(path, suggested.mapping.fit_to(_SCHEMA)))
        return read_mapping(write_file(place / "suggested.toml", render_mapping(suggested).encode()))

    return [
        Target("mapping", read_by_mapping, (_MAPPING, b"")),
        Target("matched table", match_table, (_TABLE,)),
        _record_target(place),
        _place_target(world, place),
        _envelope_target(world, place),
        _journal_target(world),
    ]


def _envelope_target(world: World, place: Path) -> Target:
    study, (sender, reader) = world.study, world.vaults
    content, sealed = write_file(place / "content", b"a result"), place / "sealed"
    signer, recipient = sender.signing_key, study.participants[1]
    seal_file(content, sealed, study=study, recipient=recipient, signer=signer)

    def read_envelope(data: bytes) -> object:
        path = write_file(place / "got", sign_again(data, "envelope", signer))
        open_envelope(path, place / "opened", study=study, reader=reader, name="content", senders={signer.public})
        return (place / "opened").read_bytes()

    return Target("envelope", read_envelope, (sealed.read_bytes(),))


def _journal_target(world: World) -> Target:
    """The record of a member's runs, which decides what is fetched and put again."""
    vault = make_place(world, "vault of runs")
    journal = Journal(vault, "/ward")
    with journal.lock():
        journal.agree(world.study.digest)
        journal.note_taken("north/everybody/north.card.toml", "1" * 64)
        journal.note_put("lab/everybody/study.toml", "2" * 64)
    path = journal.folder / "journal.json"
    return Target(
        "journal", lambda data: [write_file(path, data), Journal(vault, "/ward").entries][1], (path.read_bytes(),)
    )


def _record_target(place: Path) -> Target:
    records = [analyst_records(), participant_records(example_audit()), sum_records(("north", "south"))]
    made: list[Record] = [record for of_role in records for record in list_files(of_role).values()]
    kinds = tuple(dict.fromkeys(type(record) for record in made))

    def read_records(data: bytes) -> object:
        """Whatever record it is; it is refused if it is none."""
        path, refused = write_file(place / "record.json", data), list[MooringError]()
        for kind in kinds:
            try:
                return read_record(kind, path, what="the record", cure="")
            except MooringError as problem:
                refused.append(problem)
        return read_audit(path, examples=False)

    seeds = [record.to_json().encode() for record in (*made, example_audit(), example_audit(totals=True))]
    return Target("records", read_records, tuple(seeds))


class _FakePlace(FakeStore):
    """A store that lists files below a folder as fsspec's `find` does."""

    def find(self, root: str, **_: Any) -> dict[str, dict[str, Any]]:
        """Return the entries by their path, wherever that is."""
        return {str(entry.get("name")): entry for entry in self.ls(root, detail=True)}


def _place_target(world: World, folder: Path) -> Target:
    listed = [
        {"name": "/ward/north/everybody/north.card.toml", "size": 3, "type": "file", "ETag": "1"},
        {"name": "/ward/north", "type": "directory"},
        {"name": "/ward/../../secret", "size": "3"},
    ]

    def read_listing(data: bytes) -> object:
        store = _FakePlace(read_lines(data), world.bundle)
        with patch("mooring.protocol.transport.place.open_folder", lambda _: (store, "/ward")):
            place = Place("memory://ward")
            files = place.list_files()
            for file in files:
                with suppress(MooringError):
                    place.fetch(file, folder / "fetched", most_bytes=2**16)
            return files

    return Target("place listing", read_listing, (as_lines(*listed),))
