"""docs/assurance.md, from what `make fuzz` and `make mutants` wrote."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).parent
SOURCES = HERE.parent / "src" / "mooring"
READERS = (
    "bundle",
    "map",
    "anchor",
    "sealed anchor",
    "card",
    "study",
    "header",
    "model",
    "projection",
    "csv",
    "parquet",
    "ledger",
    "identity",
    "alignment.safetensors",
    "collaboration.parquet",
    "intake.json",
    "alignment.json",
    "flare requests",
    "flare files",
    "flare answers",
    "flare result",
    "flare task",
    "flare app",
    "flare messages",
    "dask bundle",
    "dask listing",
    "dask part",
    "sum bundle",
    "sum box",
    "sum receipt",
    "sum closing list",
    "sum share",
    "sum result",
    "sum model of a column",
    "mapping",
    "matched table",
    "records",
    "place listing",
    "envelope",
    "journal",
)
"""What each target of fuzzing reads, in the order of the targets."""


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
    by_outcome: dict[str, list[dict[str, Any]]] = {"killed": [], "survived": [], "equivalent": []}
    for one in mutants["mutants"] if mutants else ():
        by_outcome[one["outcome"]].append(one)
    return environment.get_template("assurance.md.jinja").render(
        fuzz=fuzz,
        missing=[name for name in READERS if name not in fuzz["targets"]],
        mutants=mutants,
        n_inputs=sum(one["inputs"] for one in fuzz["targets"].values()),
        findings={name: one["finding"] for name, one in fuzz["targets"].items() if one["finding"]},
        killed=by_outcome["killed"],
        survivors=by_outcome["survived"],
        equivalent=by_outcome["equivalent"],
        count_folders=_count_folders,
        removed={one["module"] for one in by_outcome["survived"] if not (SOURCES / one["module"]).exists()},
    )


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _count_folders(mutants: list[dict[str, Any]]) -> dict[str, int]:
    """How many of the mutants each folder below the package has, the most first."""
    return dict(Counter(one["module"].partition("/")[0] for one in mutants).most_common())


if __name__ == "__main__":
    main()
