"""docs/assurance.md, from what `make fuzz` and `make mutants` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).parent
READERS = {
    "bundle": "a participant's upload, which the analyst reads",
    "map": "an analyst's map for a participant",
    "anchor": "the dealer's anchor file",
    "sealed anchor": "what a dealer sealed for the others",
    "card": "a newcomer's card, which the designer reads",
    "study": "the designer's study",
    "header": "a site's header, which the designer reads",
    "model": "an analyst's model (ONNX)",
    "projection": "a designer's projection",
    "csv": "a participant's table",
    "parquet": "a participant's table",
    "ledger": "a vault's ledger, damaged on the disk",
    "identity": "a vault's keys, damaged on the disk",
    "alignment.safetensors": "an analyst's work folder, damaged on the disk",
    "collaboration.parquet": "an analyst's work folder, damaged on the disk",
    "intake.json": "an analyst's work folder, damaged on the disk",
    "alignment.json": "an analyst's work folder, damaged on the disk",
    "flare requests": "a site's requests to the server",
    "flare files": "files that a site sends to the server in pieces",
    "flare answers": "a site's answers to tasks, which the server records",
    "flare result": "a result that a site fetches from the server in pieces",
    "flare task": "a server's task and its answers to a site",
    "flare app": "a job's app, which a site admits or refuses",
    "flare messages": "messages, requests and jobs, which a site's guard admits or refuses",
    "dask bundle": "a participant's upload, which a worker reads",
    "dask listing": "an object store's listing of uploads",
    "dask part": "a part of the matrix that another worker wrote",
    "sum bundle": "a participant's sealed sums, which analyst and combiners read",
    "sum box": "what a participant sealed for a combiner",
    "sum confirmation": "a combiner's word on bundles, which the analyst reads",
    "sum closing list": "the analyst's list, which combiners read",
    "sum share": "a combiner's share of the total, which the analyst reads",
    "sum result": "an analyst's model of sums, which participants read",
}
"""Whose bytes a target of fuzzing reads."""


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
        readers=READERS,
        mutants=mutants,
        n_inputs=sum(one["inputs"] for one in fuzz["targets"].values()),
        n_findings=sum(bool(one["finding"]) for one in fuzz["targets"].values()),
        killed=by_outcome["killed"],
        survivors=by_outcome["survived"],
        equivalent=by_outcome["equivalent"],
    )


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _escape_cell(text: str) -> str:
    """Text as it can stand in a cell of a table, within backquotes."""
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")


if __name__ == "__main__":
    main()
