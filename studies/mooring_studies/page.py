"""From a finished study's files to what people look at: figures, the comparison with the paper, and the page.

One file in the frame that all of mooring's pages share, without any script; figures are images inside it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mooring.report.frame import render_page
from mooring_studies import summary
from mooring_studies.comparison.results import to_plain
from mooring_studies.figures.study_figures import Figure
from mooring_studies.settings.sections import IMAGE_KINDS
from mooring_studies.storage.progress import in_words
from mooring_studies.storage.store import Finished, read_finished

PAGE, CLAIMS = "index.html", "claims.json"
_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
_SHOWN_SIZES = 12
_NOT_IN_TABLE = ("spec", "machine", "notes", "seconds", "data", "deployments", "command", "key", "seeds")
_COMPARED = ("section", "says", "paper_text", "ours_text", "spread_text", "difference_text", "note")
_NO_IMAGES = ("data", "network", "auditor", "noise", "attacks", "solver", "extra_draws")  # all is in their options
_NO_DIGITS = ("auditor", "data.n_train", "data.n_validation", "data.n_test")
_UNUSED: Mapping[str, Sequence[str]] = {
    "faces": _NO_DIGITS,
    "faces-by-participants": _NO_DIGITS,
    "tables": _NO_IMAGES,
    "landscape": _NO_IMAGES,
    "sums": _NO_IMAGES,
    "alternatives": _NO_IMAGES,
}


def present(folder: Path) -> list[Figure]:
    """Draw a finished study's figures, compare it with the paper, and write its page."""
    from mooring.atomic_io import write_atomically
    from mooring_studies.comparison.claims_page import as_dicts

    finished = read_finished(folder)
    figures = draw_figures(finished, folder / "figures")
    comparisons = compare_with_paper({finished.study: finished}, only=finished.study)
    rows = to_plain(as_dicts(comparisons))
    content = json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomically(folder / CLAIMS, content.encode(), what="the comparison with the paper")
    page = render_study(finished, figures, rows)
    write_atomically(folder / PAGE, page.encode(), what="the page")
    return figures


def draw_figures(finished: Finished, folder: Path) -> list[Figure]:
    """Draw every figure of a study into a folder."""
    from mooring_studies.figures import study_figures

    return study_figures.draw_figures(finished.study, finished.results, finished.facts, finished.pictures, folder)


def compare_with_paper(studies: Mapping[str, Finished], *, only: str | None = None) -> list[Any]:
    """The paper's numbers beside those of some studies; `only` leaves out what belongs to others."""
    from mooring_studies.comparison.numbers import compare

    comparisons = compare({name: (study.results, study.facts) for name, study in studies.items()})
    return [comparison for comparison in comparisons if only is None or comparison.number.study == only]


def render_study(finished: Finished, figures: Sequence[Figure], comparisons: Sequence[Mapping[str, Any]]) -> str:
    """The page, as HTML."""
    values = describe_study(finished, figures, comparisons)
    return render_page("study.html.jinja", values, package=__package__)


def describe_study(
    finished: Finished, figures: Sequence[Figure], comparisons: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Everything that the page shows, in plain values; parameters as of `render_study`."""
    facts = finished.facts
    spec = facts.get("spec") or {}
    shown = {name: value for name, value in facts.items() if name not in _NOT_IN_TABLE}
    details = {"settings": _settings(facts.get("spec")), "seconds": facts.get("seconds"), "data": facts.get("data")}
    kinds = {kind: [row for row in comparisons if row["kind"] == kind] for kind in ("result", "setting", "beside")}
    return {
        "title": str(spec.get("title") or finished.study),
        "study": finished.study,
        "paper_section": spec.get("paper_section"),
        "quick": bool(spec.get("quick")),
        "summary": describe_summary(finished),
        "run": _run(facts, finished.study),
        "figures": [_figure(figure) for figure in figures],
        "comparisons": {kind: _comparison(rows) for kind, rows in kinds.items() if rows},
        "facts": {name: _text(value) for name, value in shown.items() if not _is_nested(value)},
        "nested_facts": [name for name, value in shown.items() if _is_nested(value)],
        "details": {
            name: {str(key): _text(inner_value) for key, inner_value in inner.items()}
            for name, inner in details.items()
            if isinstance(inner, Mapping) and inner
        },
        "made": {"date": facts.get("date"), "mooring": facts.get("mooring")},
    }


def describe_summary(finished: Finished) -> dict[str, Any]:
    """The main figures as tables, each with a sentence on what it shows; None for one without figures."""
    if "case" in finished.results:
        sentence, columns = summary.case_columns(finished.study, finished.results)
        table = {"sentence": sentence, **_table(columns), "note": ""}
        return {"n_hidden": 0, "joining": "", "controls": table, "noisy": None}
    sizes = summary.summarised(finished.results)
    shown = sizes[:_SHOWN_SIZES]
    better, total = summary.joining_pays(finished.results)
    named = [summary.say_size(size) for size in shown]
    controls = summary.control_columns(shown)
    lines = [(name, noise) for name, size in zip(named, shown, strict=True) for noise in size["noisy"]]
    noisy = summary.noisy_columns([noise for _, noise in lines]) if lines else {}
    several = len(shown) > 1
    images = (finished.facts.get("spec") or {}).get("kind") in IMAGE_KINDS
    return {
        "n_hidden": len(sizes) - len(shown),
        "joining": summary.say("joining", better, total, sizes) if total else "",
        "controls": {
            "sentence": summary.say("controls", [*controls], "" if several else named[0]),
            **_table(({"": named} if several else {}) | controls),
            "note": summary.say("pooled_raw") if images and {"C-GDP", "pooled raw"} <= {*controls} else "",
        }
        if controls
        else None,
        "noisy": {
            "sentence": summary.say("noisy", [*noisy]),
            **_table(({"": [name for name, _ in lines]} if several else {}) | noisy),
            "note": summary.say("leakage", [*noisy]),
        }
        if lines
        else None,
    }


def _table(columns: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """A table from columns of text; `numbers` are the places of columns to align right."""
    return {
        "head": [*columns],
        "rows": [list(cells) for cells in zip(*columns.values(), strict=True)],
        "numbers": [k for k, name in enumerate(columns) if name not in ("", "mechanism", "noise", "strongest attack")],
    }


def _run(facts: Mapping[str, Any], study: str) -> dict[str, Any]:
    machine = ", ".join(f"{name} {value}" for name, value in (facts.get("machine") or {}).items() if value)
    known = [value for value in (facts.get("seconds") or {}).values() if isinstance(value, int | float)]
    return {
        "command": facts.get("command", f"mooring reproduce {study}"),
        "machine": machine,
        "time": in_words(sum(known)) if known else "",
        "seeds": ", ".join(map(str, facts.get("seeds") or [])),
        "key": facts.get("key"),
        "notes": list(facts.get("notes") or ()),
    }


def _figure(figure: Figure) -> dict[str, str]:
    data = base64.b64encode(figure.path.read_bytes()).decode()
    return {
        "name": figure.name,
        "title": figure.title,
        "stop": "" if figure.title.endswith((".", "?", "!")) else ".",
        "caption": figure.caption,
        "source": f"data:{_TYPES[figure.path.suffix]};base64,{data}",
    }


def _comparison(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A table of the paper's numbers beside ours, without columns that are empty, or the same section throughout."""
    cells = {name: [_one_if_same(str(row[name])) for row in rows] for name in _COMPARED}
    empty = {name for name, texts in cells.items() if not {*texts} - {"", "–"}}
    empty |= {"section"} if len({*cells["section"]}) == 1 else set()
    shown = _table({name: texts for name, texts in cells.items() if name not in empty})
    numbers = [k for k, name in enumerate(shown["head"]) if name.endswith("_text")]
    return shown | {"numbers": numbers, "large": [k for k, row in enumerate(rows) if row["large"]]}


def _one_if_same(text: str) -> str:
    """A range whose ends are written alike, as one number."""
    return re.sub(r"^(\S+) to \1(?!\S)", r"\1", text)


def _settings(spec: Any) -> dict[str, Any]:
    """Settings that a study of this kind uses, each of a section under both names."""
    settings: dict[str, Any] = {}
    for name, value in (spec if isinstance(spec, Mapping) else {}).items():
        settings |= (
            {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, Mapping) else {name: value}
        )
    unused = [*_UNUSED.get(str(settings.get("kind")), ()), *([] if settings.get("sums.epsilons") else ["sums"])]
    return {
        name: value
        for name, value in settings.items()
        if name not in unused and name.partition(".")[0] not in unused and value not in ([], {})
    }


def _is_nested(value: Any) -> bool:
    """Whether a fact is a table itself, too long for a cell."""
    if isinstance(value, Mapping):
        return any(isinstance(inner, Mapping | list) for inner in value.values())
    return isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value)


def _text(value: Any) -> str:
    """A value as a reader would write it."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        between = "; " if any(isinstance(inner, Mapping | list | tuple) for inner in value) else ", "
        return between.join(map(_text, value))
    return str(value)
