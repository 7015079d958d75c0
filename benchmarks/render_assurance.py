"""docs/assurance.md, from what `make fuzz` and `make mutants` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).parent
SOURCES = HERE.parent / "src" / "mooring"
READERS = {
    "bundle": "a participant",
    "map": "the analyst",
    "anchor": "the dealer",
    "sealed anchor": "the dealer",
    "card": "a participant",
    "study": "the designer",
    "header": "a participant",
    "model": "the analyst",
    "projection": "the designer",
    "csv": "the reader's own disk",
    "parquet": "the reader's own disk",
    "ledger": "the reader's own disk",
    "identity": "the reader's own disk",
    "alignment.safetensors": "the reader's own disk",
    "collaboration.parquet": "the reader's own disk",
    "intake.json": "the reader's own disk",
    "alignment.json": "the reader's own disk",
    "flare requests": "a FLARE site",
    "flare files": "a FLARE site",
    "flare answers": "a FLARE site",
    "flare result": "the FLARE server",
    "flare task": "the FLARE server",
    "flare app": "the FLARE server",
    "flare messages": "the FLARE server",
    "dask bundle": "a participant",
    "dask listing": "an object store",
    "dask part": "another Dask worker",
    "sum bundle": "a participant",
    "sum box": "a participant",
    "sum receipt": "a combiner",
    "sum closing list": "the analyst",
    "sum share": "a combiner",
    "sum result": "the analyst",
    "sum model of a column": "the analyst",
    "mapping": "the reader's own disk",
    "matched table": "the reader's own disk",
    "records": "the reader's own disk",
    "place listing": "an object store",
    "envelope": "whoever carries files",
    "journal": "the reader's own disk",
}
"""Who wrote the bytes that a target of fuzzing reads, in the order of the targets."""


def main() -> None:
    """Write the page."""
    fuzz, mutants = (HERE / "results" / name for name in ("fuzz.json", "mutants.json"))
    text = render(_read(fuzz), _read(mutants) if mutants.exists() else None)
    (HERE.parent / "docs" / "assurance.md").write_text(text, encoding="utf-8")


def render(fuzz: dict[str, Any], mutants: dict[str, Any] | None) -> str:
    """The page, from the contents of both files of results; that of mutants may be missing.

    A mutant's outcome is killed or survived, as the run wrote it, or equivalent, as somebody judged it since, with a `why`.
    """
    loader = FileSystemLoader(HERE / "templates")
    environment = Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    environment.filters["cell"] = _escape_cell
    by_outcome: dict[str, list[dict[str, Any]]] = {"killed": [], "survived": [], "equivalent": []}
    for one in mutants["mutants"] if mutants else ():
        by_outcome[one["outcome"]].append(one)
    return environment.get_template("assurance.md.jinja").render(
        fuzz=fuzz,
        sources=_group_by_source(fuzz["targets"]),
        missing=[name for name in READERS if name not in fuzz["targets"]],
        mutants=mutants,
        n_inputs=sum(one["inputs"] for one in fuzz["targets"].values()),
        findings={name: one["finding"] for name, one in fuzz["targets"].items() if one["finding"]},
        killed=by_outcome["killed"],
        survivors=by_outcome["survived"],
        equivalent=by_outcome["equivalent"],
        removed={one["module"] for one in by_outcome["survived"] if not (SOURCES / one["module"]).exists()},
    )


def _group_by_source(targets: dict[str, dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Results by reader, for each source of bytes that has a reader with results."""
    grouped: dict[str, dict[str, dict[str, Any]]] = {}
    for name, source in READERS.items():
        if name in targets:
            grouped.setdefault(source, {})[name] = targets[name]
    return grouped


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _escape_cell(text: str) -> str:
    """Text as it can stand in a cell of a table, within backquotes."""
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")


if __name__ == "__main__":
    main()
