"""docs/assurance.md, from what `make fuzz` and `make mutants` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).parent


def main() -> None:
    """Write the page."""
    text = render(*(json.loads((HERE / "results" / name).read_text("utf-8")) for name in ("fuzz.json", "mutants.json")))
    (HERE.parent / "docs" / "assurance.md").write_text(text, encoding="utf-8")


def render(fuzz: dict[str, Any], mutants: dict[str, Any]) -> str:
    """The page, from the contents of both files of results.

    A mutant's outcome is killed or survived, as the run wrote it, or equivalent, as somebody judged it since, with a `why`.
    """
    loader = FileSystemLoader(HERE / "templates")
    environment = Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    environment.filters["cell"] = _escape_cell
    by_outcome: dict[str, list[dict[str, Any]]] = {"killed": [], "survived": [], "equivalent": []}
    for one in mutants["mutants"]:
        by_outcome[one["outcome"]].append(one)
    return environment.get_template("assurance.md.jinja").render(
        fuzz=fuzz,
        mutants=mutants,
        n_inputs=sum(one["inputs"] for one in fuzz["targets"].values()),
        n_findings=sum(bool(one["finding"]) for one in fuzz["targets"].values()),
        killed=by_outcome["killed"],
        survivors=by_outcome["survived"],
        equivalent=by_outcome["equivalent"],
    )


def _escape_cell(text: str) -> str:
    """Text as it can stand in a cell of a table, within backquotes."""
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")


if __name__ == "__main__":
    main()
