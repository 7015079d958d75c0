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
    """The page, from the contents of both files of results."""
    loader = FileSystemLoader(HERE / "templates")
    template = Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    return template.get_template("assurance.md.jinja").render(
        fuzz=fuzz,
        mutants=mutants,
        n_inputs=sum(one["inputs"] for one in fuzz["targets"].values()),
        survivors=[one for one in mutants["mutants"] if one["outcome"] == "survived"],
    )


if __name__ == "__main__":
    main()
