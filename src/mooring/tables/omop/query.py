"""What the text of a cohort's query says about its columns: where their values come from, and to which concepts they belong.

DuckDB returns the syntax tree of a query. Everything here follows from that tree, and nothing from rows. A column that is
computed in several steps is followed from name to name through the whole query, wherever names are defined. This may find
too many sources of a column. The module finds mistakes; it cannot stop somebody who hides an identifier on purpose, for
example by comparing it with every number.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mooring.errors import InputError, RefusedError
from mooring.tables.schema import can_be_shown

Tree: TypeAlias = Mapping[str, Any]

QUERY = "the cohort's query"
_NODES = ("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE")
_SOURCES = ("BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY", "EXPRESSION_LIST")
_OF_CONDITIONS = ("filter", "when_expr", "partitions", "orders", "order_bys")
_COUNTS = ("count", "count_star", "approx_count_distinct")
_KEEP_VALUES = {
    *("min", "max", "avg", "mean", "median", "mode", "first", "last", "any_value", "arg_min", "arg_max", "min_by"),
    *("max_by", "first_value", "last_value", "nth_value", "lag", "lead", "quantile", "quantile_cont", "quantile_disc"),
    *("round", "greatest", "least", "coalesce", "if", "ifnull"),
}
"""Functions whose result lies within the range of their arguments or, for words, is one of them."""
_WHOLE_ROW = "*"
_IDENTIFYING = re.compile(
    r"(person|provider|visit|visit_detail|location|specimen|note|episode)_source_value|rowid|note_(text|title)|provider_name|"
    r"address_[12]|zip|latitude|longitude|npi|dea|\*"
)
_VALUES = ("value_as_number", "value_as_concept_id", "value_source_value")


@dataclass(frozen=True)
class SelectedColumn:
    """A column of a cohort, as the query's text describes it."""

    name: str
    sources: frozenset[str] = frozenset()
    """Names of the columns that its values come from, in lower case; "*" stands for a whole row."""
    keeps_values: bool = True
    """Whether its values are values of these columns, or within their range."""
    words: tuple[str, ...] | None = None
    """The words that the query itself gives to the column; None if values come from elsewhere."""
    concepts: frozenset[int] = frozenset()
    """Concepts of the measurements that its values belong to."""
    codes: frozenset[str] = frozenset()
    """Codes of such concepts, where the query chooses measurements by code instead of by concept."""
    units: frozenset[int] = frozenset()
    """Concepts of the units that the query chooses."""
    concept_column: str = ""
    """The column of concepts, such as gender_concept_id, whose numbers or names it holds; empty if there is
    no such column, or more than one."""

    @property
    def identifying(self) -> frozenset[str]:
        """Its sources that may identify persons or single records."""
        return frozenset(name for name in self.sources if is_identifying(name))


def is_identifying(name: str) -> bool:
    """Return whether a column of OMOP tables may identify persons or single records.

    Examples
    --------
    >>> is_identifying("person_id"), is_identifying("gender_concept_id"), is_identifying("year_of_birth")
    (True, False, False)
    """
    name = name.lower()
    return bool(_IDENTIFYING.fullmatch(name)) or (
        name.endswith("_id") and not name.endswith(("concept_id", "care_site_id"))
    )


def describe_columns(tree: Tree, names: Sequence[str]) -> tuple[SelectedColumn, ...]:
    """Return what a query's text says of the columns of its result; raises an error for a form that cannot be followed."""
    try:
        query = _Query(tree)
        return tuple(map(query.describe, names))
    except RecursionError:
        raise _refuse("It is nested too deeply", "Divide it with WITH.") from None


def _walk(part: Any) -> Iterator[Tree]:
    """Yield all nodes of a tree."""
    if isinstance(part, dict):
        yield part
        part = part.values()
    elif not isinstance(part, list):
        return
    for each in part:
        yield from _walk(each)


@dataclass
class _Trace:
    """What has been found about one column so far."""

    is_narrow: bool = False
    """Whether a name with a table, such as t.x, is followed in that table only; the query must define the table."""
    sources: set[str] = field(default_factory=set)
    keeps_values: bool = True
    concepts: set[int] = field(default_factory=set)
    codes: set[str] = field(default_factory=set)
    units: set[int] = field(default_factory=set)
    concept_columns: set[str] = field(default_factory=set)
    visited: set[str] = field(default_factory=set)


class _Query:
    def __init__(self, tree: Tree) -> None:
        self.top: Tree = tree
        self.named: dict[str, list[tuple[Tree, Tree]]] = {}  # each expression with the SELECT that it stands in
        self.tables: set[str] = set()
        self.steps: dict[str, Tree] = {}  # the queries to which WITH gives a name
        for part in _walk(tree):
            self._require_plain(part)
            for entry in (part.get("cte_map") or {}).get("map") or ():
                self.steps[str(entry["key"]).lower()] = entry["value"]["query_node"]
            if part.get("type") in _SOURCES and "alias" in part:
                self.tables |= {str(part.get(key) or "").lower() for key in ("alias", "table_name")} - {""}
        for part in _walk(tree):
            if part.get("type") in _NODES:
                for column in _outputs(part):
                    for name in filter(None, [_name_of(column[0][0])]):
                        self.named.setdefault(name, []).extend(column)
        for column in _outputs(tree):
            if not _name_of(column[0][0]) and column[0][0].get("class") != "STAR":
                raise _refuse("A computed column has no name", "Name each such column with AS.")

    def _require_plain(self, part: Tree) -> None:
        """Refuse forms that cannot be followed, for example because the tree does not say which name a column gets."""
        kind = str(part.get("type", ""))
        if kind.endswith("_NODE") and kind not in _NODES:
            raise _refuse("It is not a plain SELECT", "Use SELECT, WITH, JOIN, WHERE, GROUP BY and UNION.")
        source = part.get("from_table")
        sources = [source] if source else []
        while sources:
            source = sources.pop()
            if source["type"] == "JOIN":
                sources += [source["left"], source["right"]]
            elif source["type"] not in _SOURCES:
                word = source["type"].replace("_", " ").lower()
                raise _refuse(f"Its FROM has a {word}", "Select from tables, subqueries and their joins.")
            has_references = any(each.get("class") == "COLUMN_REF" for each in _walk(source))
            if source.get("column_name_alias") and source["type"] != "EXPRESSION_LIST":
                raise _refuse("Its FROM renames columns in a list", "Rename each column with AS in a SELECT.")
            if source["type"] == "EXPRESSION_LIST" and has_references:
                raise _refuse("Its VALUES hold columns", "Write only constants into VALUES.")
        if part.get("aliases") and "query_node" in part:
            raise _refuse("Its WITH renames columns in a list", "Rename each column with AS in the SELECT.")
        is_star = part.get("class") == "STAR"
        if is_star and any(part.get(key) for key in ("rename_list", "replace_list", "columns", "expr", "alias")):
            raise _refuse("A star (*) renames or replaces columns", "Name the columns instead.")
        if part.get("class") == "POSITIONAL_REFERENCE":
            raise _refuse("It names a column by its place (#1)", "Name the column instead.")
        if kind == "SET_OPERATION_NODE" and any(
            column[0][0].get("class") == "STAR" for child in _children(part) for column in _outputs(child)
        ):
            raise _refuse("A SELECT of a UNION has a star (*)", "Name the columns instead.")

    def describe(self, name: str) -> SelectedColumn:
        """Return what is known of a column of the result."""
        if not (name and name == name.strip() and can_be_shown(name)):
            raise _refuse("A column's name is empty or cannot be printed", "Name it with AS.")
        widest, trace = _Trace(), _Trace(is_narrow=True)
        for each in (widest, trace):
            self._follow({"class": "COLUMN_REF", "column_names": [name]}, self.top, each)
        concept_columns = sorted(trace.concept_columns) if trace.keeps_values else []
        return SelectedColumn(
            name,
            frozenset(widest.sources),
            trace.keeps_values,
            self._words(name.lower(), {name.lower()}),
            frozenset(trace.concepts),
            frozenset(trace.codes),
            frozenset(trace.units),
            concept_columns[0] if len(concept_columns) == 1 else "",
        )

    def _follow(self, part: Any, node: Tree, trace: _Trace) -> None:
        """Add the sources of an expression's values to the trace."""
        for each in part if isinstance(part, list) else []:
            self._follow(each, node, trace)
        if not isinstance(part, dict):
            return
        kind, form = part.get("class"), str(part.get("type"))
        if kind == "COLUMN_REF":
            self._follow_reference(part, node, trace)
        elif kind == "SUBQUERY":
            if part["subquery_type"] == "SCALAR":
                for column in _outputs(part["subquery"]["node"]):
                    for expression, inner in column:
                        self._follow(expression, inner, trace)
        elif kind == "STAR":
            trace.sources.add(_WHOLE_ROW)
        elif not (kind in ("COMPARISON", "BETWEEN") or form.startswith(("COMPARE_", "OPERATOR_IS_"))):
            called = str(part.get("function_name") or "").lower()
            if called in _COUNTS:
                trace.keeps_values = False
                return
            if called and called not in _KEEP_VALUES:
                trace.keeps_values = False
            self._choose(part.get("filter"), trace)
            for check in part.get("case_checks") or ():
                self._choose(check["when_expr"], trace)
            for key, inside in part.items():
                if key not in _OF_CONDITIONS:
                    self._follow(inside, node, trace)

    def _follow_reference(self, part: Tree, node: Tree, trace: _Trace) -> None:
        *tables, name = (str(word).lower() for word in part["column_names"])
        table = tables[-1] if tables else ""
        if not tables and name in self.tables and name not in self.named:
            trace.sources.add(_WHOLE_ROW)
        trace.sources.add(name)
        if name.endswith("_concept_id") and name != "value_as_concept_id":
            trace.concept_columns.add(name)
        if name == "concept_name":
            trace.concept_columns |= _columns_joined(node, table)
        if name in _VALUES:
            self._find_concepts(node, table, trace)
        if name not in trace.visited:
            trace.visited.add(name)
            defined = self.named.get(name, [])
            if trace.is_narrow and table:
                inside = [*map(id, self._selected_from(node.get("from_table"), table))]
                defined = [pair for pair in defined if id(pair[1]) in inside] or defined
            for expression, inner in defined:
                self._follow(expression, inner, trace)

    def _find_concepts(self, node: Tree, table: str, trace: _Trace) -> None:
        """Add the concepts that the SELECT with a value chooses or, if there are none, those that its subqueries choose."""
        if trace.concepts or trace.codes:
            return
        conditions = [node.get("where_clause"), *_join_conditions(node.get("from_table"))]
        for condition in conditions:
            self._choose(condition, trace, table)
        if not (trace.concepts or trace.codes):
            for inner in self._selected_from(node.get("from_table"), table):
                self._find_concepts(inner, "", trace)

    def _selected_from(self, source: Tree | None, table: str) -> Iterator[Tree]:
        """Yield the SELECTs in a FROM; if `table` is not empty, only those of the source with this name or alias."""
        if not source:
            return
        if source["type"] == "JOIN":
            yield from self._selected_from(source["left"], table)
            yield from self._selected_from(source["right"], table)
            return
        names = {str(source.get(key) or "").lower() for key in ("alias", "table_name")}
        if table and table not in names:
            return
        node = source["subquery"]["node"] if source["type"] == "SUBQUERY" else None
        step = node or self.steps.get(str(source.get("table_name") or "").lower())
        if step is not None:
            yield from (inner for inner in _walk(step) if inner.get("type") == "SELECT_NODE")

    def _choose(self, condition: Any, trace: _Trace, table: str = "") -> None:
        """Add the concepts, codes and units with which a condition compares columns."""
        for compared, of_table, constants in _comparisons(condition):
            if table and of_table and table != of_table and compared not in ("ancestor_concept_id", "concept_code"):
                continue
            whole = {int(word) for word in constants if re.fullmatch(r"[0-9]{1,10}", word)}
            if compared in ("measurement_concept_id", "observation_concept_id", "ancestor_concept_id"):
                trace.concepts |= whole
            elif compared == "unit_concept_id":
                trace.units |= whole
            elif compared == "concept_code":
                trace.codes |= set(constants)

    def _words(self, name: str, visited: Collection[str]) -> tuple[str, ...] | None:
        """Return the words that the query itself gives to a column; None if values come from elsewhere."""
        words: list[str] = []
        for expression, _ in self.named.get(name, ()):
            constants = self._constants(expression, visited)
            if constants is None:
                return None
            words += constants
        return tuple(dict.fromkeys(words)) or None

    def _constants(self, part: Tree, visited: Collection[str]) -> list[str] | None:
        literal = part.get("literal")
        if literal is not None:
            is_nothing = literal.get("kind") == "NULL_LITERAL"
            return [] if is_nothing else [literal["text"]] if literal.get("kind") == "STRING" else None
        if part.get("class") == "COLUMN_REF":
            name = str(part["column_names"][-1]).lower()
            words = None if name in visited else self._words(name, {*visited, name})
            return None if words is None else [*words]
        parts = [check["then_expr"] for check in part.get("case_checks") or ()]
        parts += [part["else_expr"]] if part.get("else_expr") else []
        called = str(part.get("function_name") or "").lower()
        if called in _KEEP_VALUES:
            arguments = [each["expression"] for each in part.get("arguments") or ()]
            parts = arguments[1:] if called == "if" else arguments
        if part.get("type") == "OPERATOR_COALESCE":
            parts = part["children"]
        every = [self._constants(each, visited) for each in parts]
        if not every or None in every:
            return None
        return [word for words in every for word in words or ()]


def _outputs(node: Tree) -> list[list[tuple[Tree, Tree]]]:
    """Return, for each column of a SELECT or UNION, its expressions, each with the SELECT that it stands in."""
    if node.get("type") == "SELECT_NODE":
        return [[(expression, node)] for expression in node["select_list"]]
    columns = [_outputs(child) for child in _children(node)]
    width = max(map(len, columns), default=0)
    return [[pair for child in columns if k < len(child) for pair in child[k]] for k in range(width)]


def _children(node: Tree) -> list[Tree]:
    return [*node.get("children", ()), *(node[key] for key in ("left", "right", "child") if node.get(key))]


def _name_of(expression: Tree) -> str:
    """Return the name that an expression has in a SELECT; empty if the query gives none, so that DuckDB makes one up."""
    if expression.get("alias"):
        return str(expression["alias"]).lower()
    return str(expression["column_names"][-1]).lower() if expression.get("class") == "COLUMN_REF" else ""


def _join_conditions(source: Tree | None) -> Iterator[Any]:
    if source and source["type"] == "JOIN":
        yield source.get("condition")
        yield from _join_conditions(source["left"])
        yield from _join_conditions(source["right"])


def _comparisons(condition: Any) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the columns that = or IN compares with constants: name and table in lower case, and the constants."""
    for part in _walk(condition):
        sides = part.get("children") if part.get("type") == "COMPARE_IN" else [part.get("left"), part.get("right")]
        if part.get("type") not in ("COMPARE_EQUAL", "COMPARE_IN") or part.get("class") == "SUBQUERY" or not sides:
            continue
        columns = [side for side in sides if side and side.get("class") == "COLUMN_REF"]
        constants = [str(side["literal"].get("text")) for side in sides if side and side.get("literal")]
        if len(columns) == 1 and constants:
            *tables, name = (str(word).lower() for word in columns[0]["column_names"])
            yield name, tables[-1] if tables else "", constants


def _columns_joined(node: Tree, table: str) -> set[str]:
    """Return the columns, such as gender_concept_id, on which a table of concepts is joined."""
    joined_columns = set()
    for condition in (node.get("where_clause"), *_join_conditions(node.get("from_table"))):
        for part in _walk(condition):
            sides = [part.get("left"), part.get("right")]
            if part.get("type") == "COMPARE_EQUAL" and all(
                side and side.get("class") == "COLUMN_REF" for side in sides
            ):
                names = [[str(word).lower() for word in side["column_names"]] for side in sides if side]
                for first, second in (names, names[::-1]):
                    is_named = len(first) == 1 or not table or first[-2] == table
                    if first[-1] == "concept_id" and is_named and second[-1].endswith("_concept_id"):
                        joined_columns.add(second[-1])
    return joined_columns


def _refuse(problem: str, cure: str) -> RefusedError:
    return RefusedError(QUERY, reason=f"{problem[0].lower()}{problem[1:]}", cure=cure)


def require_names(names: Sequence[str]) -> None:
    """Raise an `InputError` if two columns of the result have the same name, whatever its letter case."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            problem = f"Two columns of the result are called {name!r}."
            raise InputError(QUERY, problem=problem, cure="Give each of them its own name, with AS.")
        seen.add(name.lower())
