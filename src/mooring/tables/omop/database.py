"""A DuckDB file with OMOP tables, opened for reading, and the one SELECT that is run on it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from mooring.atomic_io import open_plain_file, read_bounded
from mooring.errors import InputError, MissingExtraError, RefusedError, StorageError
from mooring.tables.cells import describe_type, is_readable
from mooring.tables.omop.query import QUERY, SelectedColumn, describe_columns, require_names
from mooring.tables.omop.vocabulary import Ask, KnownColumn, look_up
from mooring.typing import Progress

FILE = "the OMOP file"
_MOST_BYTES = 2**20
_ROWS_AT_ONCE = 50_000
_WAIT = 0.2  # seconds
_SAFE = {
    "enable_external_access": "false",  # no other file, no network
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",  # a name of a Python variable is not a table
}
_EVENTS = {
    *("visit_occurrence", "condition_occurrence", "drug_exposure", "procedure_occurrence", "measurement"),
    *("observation", "observation_period", "death"),
}


@contextmanager
def open_database(path: Path) -> Iterator[OmopDatabase]:
    """Open a file for reading, as a context. Queries reach neither other files nor a network, and change no settings."""
    try:
        import duckdb
    except ModuleNotFoundError:
        raise MissingExtraError(needed_for="Reading OMOP tables", package="duckdb", extra="omop") from None
    with open_plain_file(path, what=FILE) as file:
        if file.read(12)[8:] != b"DUCK":
            got, cure = "a file of another kind", "Name the database file, which often ends in .duckdb or .db."
            raise InputError(FILE, expected="a DuckDB database", got=got, cure=cure)
    try:
        connection = duckdb.connect(str(path), read_only=True, config=dict(_SAFE))
    except duckdb.Error:
        reason = f"DuckDB {duckdb.__version__} cannot open it"
        cure = "It may be open for writing in another program, damaged, or written by a newer version of DuckDB."
        raise StorageError(FILE, reason=reason, cure=cure) from None
    with closing(connection):
        yield OmopDatabase(connection)


def read_query(path: Path) -> str:
    """Return the text of a file with a query."""
    try:
        return read_bounded(path, _MOST_BYTES, what=QUERY).decode("utf-8-sig")
    except UnicodeDecodeError:
        cure = "Name the file with the query, saved in UTF-8."
        raise InputError(QUERY, expected="text in UTF-8", got="other bytes", cure=cure) from None


class OmopDatabase:
    """A database with OMOP tables. Unqualified names of tables refer to the schemas that hold OMOP tables."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        tables: dict[str, set[str]] = {}
        asked = "SELECT table_schema, lower(table_name) FROM information_schema.tables"
        for schema, table in connection.execute(f"{asked} WHERE table_catalog = current_catalog()").fetchall():
            tables.setdefault(schema, set()).add(table)
        known = set().union(*tables.values())
        if "person" not in known or not known & _EVENTS:
            missing = "person" if "person" not in known else f"one of {', '.join(sorted(_EVENTS))}"
            cure = "Name the database of the OMOP common data model."
            raise InputError(FILE, problem=f"It has no OMOP tables: {missing} is missing.", cure=cure)
        self.has_concepts = "concept" in known
        order = sorted(
            tables, key=lambda schema: ("person" not in tables[schema], not tables[schema] & _EVENTS, schema)
        )
        path = ",".join('"' + schema.replace('"', '""') + '"' for schema in order)
        connection.execute("SET search_path = '" + path.replace("'", "''") + "'")
        ((is_locked,),) = connection.execute("SELECT current_setting('lock_configuration')").fetchall()
        if not is_locked:  # it is locked if this process already has the file open
            for setting in (
                "enable_progress_bar = true",
                "enable_progress_bar_print = false",
                "lock_configuration = true",
            ):
                connection.execute(f"SET {setting}")

    def prepare(self, text: str) -> CohortRows:
        """Parse a query, which must be one SELECT, and describe the columns of its result; no row is read."""
        statements = self._try(lambda: self._connection.extract_statements(text))
        kinds = [statement.type.name for statement in statements]
        if kinds != ["SELECT"]:
            got = "no statement" if not kinds else kinds[0] if len(kinds) == 1 else f"{len(kinds)} statements"
            cure = "Write one SELECT; intermediate tables are WITH … AS (SELECT …)."
            raise RefusedError(QUERY, reason=f"it must be one SELECT, and is {got}", cure=cure)
        if statements[0].named_parameters:
            raise InputError(QUERY, problem="It has parameters ($ or ?).", cure="Write their values into the query.")
        text = statements[0].query
        relation = self._try(lambda: self._connection.sql(text))
        names = tuple(relation.columns)
        require_names(names)
        ((serialized,),) = self._connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
        parsed = json.loads(serialized)
        if parsed.get("error"):
            problem = "Its syntax tree cannot be read."
            raise InputError(QUERY, problem=problem, cure="Write a plain SELECT, without PIVOT or DESCRIBE.")
        columns = describe_columns(parsed["statements"][0]["node"], names)
        schema = self._try(lambda: relation.limit(0).to_arrow_table()).schema
        types = [_type_to_write(name, schema.field(k).type) for k, name in enumerate(names)]
        return CohortRows(self, relation, pa.schema(list(zip(names, types, strict=True))), columns)

    def look_up(self, column: SelectedColumn) -> KnownColumn:
        """Return what the file's vocabulary and mooring's ranges say of a column."""
        return look_up(column, self._ask if self.has_concepts else None)

    @property
    def _ask(self) -> Ask:
        return lambda text, parameters: list(self._try(lambda: self._connection.execute(text, parameters).fetchall()))

    def _try(self, action: Any) -> Any:
        """Return what an action returns. DuckDB's errors are replaced by errors that may quote the query, but no row."""
        import duckdb

        try:
            return action()
        except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as problem:
            message = re.split(r"\n\s*\n?LINE |\n", str(problem))[0].strip(" .!")
            cure = "Correct the query."
            if "@" in message:
                cure = "Replace parameters of SqlRender such as @cdm_database_schema by the name of the schema."
            raise InputError(QUERY, problem=f"DuckDB cannot run it: {message}.", cure=cure) from None
        except duckdb.PermissionException:
            reason = "it, or a view that it uses, reads a file, a network or an extension"
            cure = "Only tables inside the database file can be read: copy into it what is outside."
            raise RefusedError(QUERY, reason=reason, cure=cure) from None
        except duckdb.InvalidInputException as problem:
            if "read-only" in str(problem):
                raise RefusedError(QUERY, reason="it writes", cure="Write one SELECT, which only reads.") from None
            raise _failed(problem) from None
        except duckdb.InterruptException:
            raise KeyboardInterrupt from None
        except duckdb.Error as problem:
            raise _failed(problem) from None

    def _wait_for(self, action: Any, progress: Progress | None) -> Any:
        """Return what a long action returns, and report its progress meanwhile."""
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(action)
            try:
                while not wait([future], _WAIT).done:
                    percent = 0.0
                    with suppress(Exception):  # not every version reports the progress of every query
                        percent = max(0.0, self._connection.query_progress())
                    if progress is not None:
                        progress(percent, 100.0)
            except BaseException:
                self._connection.interrupt()
                raise
            return future.result()


class CohortRows:
    """A query whose columns are known and whose rows are not read yet."""

    def __init__(
        self, database: OmopDatabase, relation: Any, schema: pa.Schema, columns: tuple[SelectedColumn, ...]
    ) -> None:
        self._database, self._relation = database, relation
        self.schema, self.columns = schema, columns

    def read(self, progress: Progress | None = None) -> Iterator[Any]:
        """Run the query, and yield its rows as record batches that are not empty."""
        reader = self._database._try(
            lambda: self._database._wait_for(lambda: self._relation.to_arrow_reader(_ROWS_AT_ONCE), progress)
        )
        while True:
            try:
                batch = self._database._try(reader.read_next_batch)
                arrays = [
                    column.cast(field.type, safe=field.type != pa.date32())
                    for column, field in zip(batch.columns, self.schema, strict=True)
                ]
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as problem:  # pyarrow raises DuckDB's errors as these
                raise _failed(problem) from None
            if batch.num_rows:
                yield pa.record_batch(arrays, schema=self.schema)


def _failed(problem: Exception) -> InputError:
    """Return the error of a query that failed while it ran. DuckDB's message is left out, since it may quote a cell."""
    kind = type(problem).__name__.removesuffix("Exception")
    cure = "Run it in DuckDB itself to see its message, which may quote a record and is left out here."
    return InputError(QUERY, problem=f"It failed while it ran ({kind}).", cure=cure)


def _type_to_write(name: str, kind: Any) -> Any:
    """Return the type in which a column of numbers, words, truth values or days is written; refuse other types."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.date32()
    if not is_readable(kind) or pa.types.is_binary(kind) or pa.types.is_null(kind):
        got = f"values of type {describe_type(kind)}"
        cure = "Select a number, a word, a truth value or a date; CAST makes one of another type."
        raise InputError(f"column {name!r}", expected="made of numbers, words or days", got=got, cure=cure)
    if pa.types.is_decimal(kind):
        return pa.int64() if kind.scale == 0 else pa.float64()
    return pa.string() if pa.types.is_dictionary(kind) else kind


def list_identifying(columns: Sequence[SelectedColumn], person: str) -> dict[str, frozenset[str]]:
    """Return the columns that may identify persons or single records, by name, with the sources that may do so.

    The column `person`, which names the persons, is left out.
    """
    return {column.name: column.identifying for column in columns if column.name != person and column.identifying}
