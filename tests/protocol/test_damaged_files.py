"""Every damaged file of one's own is refused with an error of mooring's, whatever it is and whoever reads it."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.analyst.delivery import deliver
from mooring.protocol.analyst.intake import collect
from mooring.protocol.messages.signed_file import TensorSpec, encode_header
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.prediction import predict_rows
from mooring.protocol.results import Consent
from mooring.protocol.rotation.analyst.alignment import align_bundles
from mooring.protocol.rotation.analyst.alignment_state import read_space
from mooring.protocol.rotation.analyst.collaboration_matrix import export, read_blocks
from mooring.protocol.rotation.analyst.training import train
from mooring.protocol.rotation.anchor import deal_anchor
from mooring.protocol.rotation.participant.upload import share_rows
from mooring.protocol.storage.vault import Vault
from mooring.report.records import collect_records
from mooring.report.summary import summarise
from tests.protocol.conftest import SmallStudy, make_small_study

Action = Callable[[], object]
WORK_FILES = {
    "intake.json": ("collect", "report"),
    "alignment.json": ("report",),
    "training.json": ("deliver", "report"),
    "delivery.json": ("report",),
    "alignment.safetensors": ("late", "blocks", "export", "deliver"),
    "collaboration/part-*-000000.parquet": ("blocks", "export"),
    "training.safetensors": ("deliver",),
}
VAULT_FILES = {
    "identity.json": ("share", "share elsewhere", "predict"),
    "ledger.sqlite": ("share", "share elsewhere", "predict"),
    "rows-*.prints": ("share elsewhere",),
    "studies/*/upload.bundle": ("share",),
    "studies/*/used.anchor": ("share", "predict"),
}
MOST_DAMAGES = 8  # a file, beside the first twelve; some hundred were tried, and fuzzing tries more
OTHERS = (None, True, -(2**70), "\ud800", [], {"a": None})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> SmallStudy:
    """A study gone through to the end, by a participant whose vault knows an upload in another study, too."""
    folder = tmp_path_factory.mktemp("finished")
    made = make_small_study(folder)
    (folder / "inbox").mkdir()
    for k, vault in enumerate(made.vaults):
        made.share(vault, made.table(k), output=folder / "inbox" / f"{k}.bundle")
    intake = collect(made.study, folder / "inbox", folder / "work")
    align_bundles(made.study, intake.bundles, folder / "work")
    train(made.study, folder / "work", learner="linear")
    deliver(made.study, folder / "work", folder / "results", made.analyst.signing_key)
    made.another(nonce="1" * 32).share(
        data=made.write_table("other.csv", range(60, 80)), output=folder / "other.bundle"
    )
    return made


def participant_actions(made: SmallStudy, name: str) -> list[Action]:
    """What reads a file of a vault."""

    def opened() -> Vault:
        return Vault.open(made.vaults[1].folder)

    def share(study: Study, rows: range) -> Action:
        table, anchor = made.write_table("again.csv", rows), made.folder / f"{study.digest[:16]}.anchor"
        deal_anchor(made.vaults[0], study, anchor)
        return lambda: share_rows(
            opened(), study, table, anchor=anchor, output=made.folder / "again.bundle", consent=Consent(labels=True)
        )

    result = made.folder / "results" / "hospital-1"
    actions: dict[str, Action] = {
        "share": share(made.study, range(20, 40)),
        "share elsewhere": share(made.another(nonce="2" * 32).study, range(20, 40)),
        "predict": lambda: predict_rows(opened(), made.study, made.table(2), result=result),
    }
    return [actions[word] for word in VAULT_FILES[name]]


def analyst_actions(made: SmallStudy, name: str) -> list[Action]:
    """What reads a file of the analyst's work folder; training reads the matrix by `read_blocks`, and takes longer."""
    work = made.folder / "work"
    actions: dict[str, Action] = {
        "collect": lambda: collect(made.study, made.folder / "inbox", work),
        "late": lambda: align_bundles(made.study, [], work, mode="late"),
        "blocks": lambda: list(read_blocks(work, made.study, read_space(work, made.study))),
        "export": lambda: export(work, made.folder / "exported.parquet", force=True),
        "deliver": lambda: deliver(made.study, work, made.folder / "results", made.analyst.signing_key),
        "report": lambda: report(work),
    }
    return [actions[word] for word in WORK_FILES[name]]


def report(folder: Path) -> None:
    summarise(None, collect_records(folder), None)


def untyped_errors(path: Path, content: Sequence[bytes], actions: Sequence[Action]) -> list[str]:
    """What goes wrong in another way than by an error of mooring's, with each content of a file in turn."""
    files = {file: file.read_bytes() for file in path.parent.rglob("*") if file.is_file()}
    collected = []
    for number, damaged in enumerate([*content[:12], *content[12 :: 1 + len(content) // MOST_DAMAGES]]):
        for action in actions:
            path.write_bytes(damaged)
            for side in path.parent.glob(f"{path.name}-*"):  # SQLite's
                side.unlink()
            try:
                action()
            except (InputError, RefusedError, StorageError):
                pass
            except Exception as problem:
                collected.append(f"damage {number}: {problem!r}")
            for before, data in files.items():
                if not before.is_file() or before.read_bytes() != data:
                    before.write_bytes(data)
    return collected


def damages(data: bytes) -> Iterator[bytes]:
    """Cut short, emptied, replaced, and with a byte changed at places spread over the file."""
    yield from (data[: len(data) * part // 4] for part in range(4))
    yield from (data[:-1], data + b"\0", bytes(len(data)), b"\xff" * len(data), b"[" * 100_000, b"null", b"[]", b"{}")
    for place in range(0, len(data), max(1, len(data) // 25)):
        yield data[:place] + bytes([data[place] ^ 0x11]) + data[place + 1 :]


def other_values(plain: Any) -> Iterator[Any]:
    """The same JSON with one value replaced or left out, at every place."""
    yield from OTHERS
    if isinstance(plain, dict):
        for key, value in plain.items():
            yield {name: entry for name, entry in plain.items() if name != key}
            yield from (plain | {key: other} for other in other_values(value))
    elif isinstance(plain, list) and plain:
        yield from ([other, *plain[1:]] for other in other_values(plain[0]))
        yield [*plain, plain[0]]


def sqlite_damages(data: bytes, folder: Path) -> Iterator[bytes]:
    """A ledger with other values in a column, and without one."""
    path = folder / "damaged.sqlite"
    columns = ("study", "name", "rows_digest", "n_rows", "column_tags", "bundle", "override", "exceeded")
    values = ("NULL", "-1", "1.5", "x'ff00'", "''", "'a'", "9223372036854775807", "CAST(x'ff' AS TEXT)")
    changes = [f"UPDATE uploads SET {column} = {value}" for column in columns for value in values]
    changes += [f"ALTER TABLE uploads DROP COLUMN {column}" for column in columns[1:]]
    for change in [*changes, "DROP TABLE uploads", "ALTER TABLE uploads ADD COLUMN more"]:
        path.write_bytes(data)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            try:
                connection.execute("CREATE TABLE loose AS SELECT * FROM uploads")
                connection.execute("DROP TABLE uploads")
                connection.execute("ALTER TABLE loose RENAME TO uploads")
                connection.execute(change)
            except sqlite3.OperationalError:
                continue
        yield path.read_bytes()


def state_damages(data: bytes) -> Iterator[bytes]:
    """An alignment whose header fits, and whose record or arrays do not."""
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    metadata = header.pop("__metadata__")
    place = start + header["record"]["data_offsets"][0]
    tensors = {name: TensorSpec(entry["dtype"], tuple(entry["shape"])) for name, entry in header.items()}
    for other in other_values(json.loads(data[place:])):
        text = json.dumps(other).encode()
        specs = tensors | {"record": TensorSpec("U8", (len(text),))}
        yield encode_header(specs, metadata | {"record": str(len(text))}) + data[start:place] + text
    for value in (np.nan, np.inf, 1e300):
        for offset in (start, place - 8):
            yield data[:offset] + np.float64(value).tobytes() + data[offset + 8 :]


def table_damages(path: Path, folder: Path) -> Iterator[bytes]:
    """A collaboration matrix of other columns, labels, rows or metadata."""
    table, other = pq.read_table(path), folder / "other.parquet"
    metadata = table.schema.metadata
    tables = [table.drop([name]) for name in table.column_names]
    tables += [table.slice(0, 0), table.slice(0, 3), pa.concat_tables([table, table])]
    for name in table.column_names:
        place = table.column_names.index(name)
        for values in (
            pa.nulls(table.num_rows),
            pa.array(["\u0001"] * table.num_rows),
            pa.array(np.full(table.num_rows, np.nan)),
        ):
            tables.append(table.set_column(place, name, values))
    for table_name in tables:
        pq.write_table(table_name.replace_schema_metadata(metadata), other)
        yield other.read_bytes()
    for text in (b"", b"null", b"[]", b"{", b"[" * 100_000, b"\xff"):
        pq.write_table(table.replace_schema_metadata(dict.fromkeys(metadata, text)), other)
        yield other.read_bytes()


@pytest.mark.parametrize("name", WORK_FILES)
def test_a_damaged_file_of_the_analysts_work_folder_raises_an_error_of_moorings(
    name: str, finished: SmallStudy, tmp_path: Path
) -> None:
    path = next((finished.folder / "work").glob(name))
    data = path.read_bytes()
    actions = analyst_actions(finished, name)
    for action in actions:
        action()
    content = [*damages(data)]
    if path.suffix == ".json":
        content += [json.dumps(other).encode() for other in other_values(json.loads(data))]
    if name == "alignment.safetensors":
        content += state_damages(data)
    if path.suffix == ".parquet":
        content += table_damages(path, tmp_path)
    assert untyped_errors(path, content, actions) == []


@pytest.mark.parametrize("name", VAULT_FILES)
def test_a_damaged_file_of_a_vault_raises_an_error_of_moorings(name: str, finished: SmallStudy, tmp_path: Path) -> None:
    vault = finished.vaults[1].folder
    (path, *_) = (
        path for path in sorted(vault.glob(name)) if "studies" not in name or finished.study.folder_name in str(path)
    )
    actions = participant_actions(finished, name)
    if name == "ledger.sqlite":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = path.read_bytes()
    content = [*damages(data)]
    if name == "ledger.sqlite":
        content += sqlite_damages(data, tmp_path)
    assert untyped_errors(path, content, actions) == []


def test_a_record_with_a_participant_without_a_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "alignment.json").write_text('{"participants": [{"name": null, "rows": 3}]}')
    with pytest.raises(InputError):
        report(tmp_path)
