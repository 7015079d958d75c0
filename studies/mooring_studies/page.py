"""The page of a finished study: what was run, every figure with its caption, the paper's numbers beside ours, the facts.

One file, nothing from the network and no script at all; figures are images inside it. Whatever comes from a file is text
here, and goes through `escape`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from mooring_studies import summary
from mooring_studies.figures.figure_file import Figure
from mooring_studies.settings.sections import IMAGE_KINDS
from mooring_studies.storage.finished import Finished
from mooring_studies.storage.progress import in_words

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
_SHOWN_SIZES = 12
_NOT_IN_TABLE = ("spec", "machine", "notes", "seconds", "data", "deployments", "command", "key", "seeds")
_TEXT_COLUMNS = ("", "noise", "strongest attack")
_NO_IMAGES = ("data", "network", "auditor", "noise", "attacks", "solver", "extra_draws")  # all is in their options
_NO_DIGITS = ("auditor", "data.n_train", "data.n_validation", "data.n_test")
_UNUSED: Mapping[str, Sequence[str]] = {
    "faces": _NO_DIGITS,
    "faces-by-participants": _NO_DIGITS,
    "tables": _NO_IMAGES,
    "landscape": _NO_IMAGES,
}
_HONEST = (
    "Every figure of leakage is what known attacks recover, and so a lower bound; a better attack may exist. Noise on "
    "anchors is no privacy guarantee."
)


def render_study(finished: Finished, figures: Sequence[Figure], comparisons: Sequence[Mapping[str, Any]]) -> str:
    """The page, as HTML.

    Parameters
    ----------
    finished : Finished
    figures : sequence of Figure
        As drawn, in the order in which they are shown.
    comparisons : sequence of mapping
        Rows of the comparison with the paper, as `claims_page.as_dicts` gives them.
    """
    facts = finished.facts
    spec = facts.get("spec") or {}
    title = str(spec.get("title") or finished.study)
    body = "".join(
        (
            f"<h1>{escape(title)}</h1>{_subtitle(finished.study, spec)}",
            _quick(spec),
            _in_short(finished),
            _run(facts, finished.study),
            "<h2>Figures</h2>" if figures else "",
            "".join(_figure(one) for one in figures),
            _comparison(comparisons),
            _facts(facts),
        )
    )
    made = f"Made on {facts.get('date', 'an unknown day')} with mooring {facts.get('mooring', 'of unknown version')}."
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>mooring: {escape(title)}</title><link rel="icon" href="data:,"><style>{_STYLE}</style></head><body>\n'
        f"<main>{body}</main>\n<footer><p>{escape(made)}</p></footer></body></html>\n"
    )


def _subtitle(study: str, spec: Mapping[str, Any]) -> str:
    section = spec.get("paper_section")
    words = f"section {section} of the paper" if section else "a study beyond the paper"
    return f'<p class="sub">The study ‘{escape(study)}’: {escape(words)}.</p>'


def _quick(spec: Mapping[str, Any]) -> str:
    if not spec.get("quick"):
        return ""
    return (
        '<p class="warn">This is a quick run: fewer rows, draws and epochs. It shows that everything works and roughly what '
        "comes out; it says nothing of whether the paper's numbers are met.</p>"
    )


def _in_short(finished: Finished) -> str:
    sizes = summary.summarised(finished.results)
    shown = sizes[:_SHOWN_SIZES]
    hidden = len(sizes) - len(shown)
    more = f"<p>{hidden} more size{' is' if hidden == 1 else 's are'} in the figures.</p>" if hidden else ""
    joining = summary.joining_in_words(*summary.joining_pays(finished.results), sizes)
    return (
        f'<h2>In short</h2><p class="warn">{escape(_HONEST)}</p>{_without_noise(shown, finished.facts)}'
        f"{_with_noise(shown)}{more}" + (f"<p>{escape(joining)}</p>" if joining else "")
    )


def _without_noise(sizes: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> str:
    columns = summary.control_columns(sizes)
    if not columns:
        return ""
    named = {"": [summary.size_in_words(size) for size in sizes]} if len(sizes) > 1 else {}
    words = summary.controls_in_words(columns, sizes)
    images = (facts.get("spec") or {}).get("kind") in IMAGE_KINDS
    note = f"<p>{escape(summary.POOLED_RAW_NOTE)}</p>" if images and {"C-GDP", "pooled raw"} <= {*columns} else ""
    return f"<p>{escape(words)}:</p>{_column_table(named | columns)}{note}"


def _with_noise(sizes: Sequence[Mapping[str, Any]]) -> str:
    lines = [(summary.size_in_words(size), one) for size in sizes for one in size["noisy"]]
    if not lines:
        return ""
    columns = summary.noisy_columns([one for _, one in lines])
    named = {"": [name for name, _ in lines]} if len(sizes) > 1 else {}
    words, meaning = summary.noisy_in_words(columns), summary.leakage_in_words(columns)
    table = _column_table(named | columns)
    return f"<p>{escape(words)}:</p>{table}" + (f"<p>{escape(meaning)}</p>" if meaning else "")


def _column_table(columns: Mapping[str, Sequence[str]]) -> str:
    """A table from columns of text."""
    rows = [[escape(cell) for cell in cells] for cells in zip(*columns.values(), strict=True)]
    return _table([*columns], rows, numbers=[k for k, name in enumerate(columns) if name not in _TEXT_COLUMNS])


def _run(facts: Mapping[str, Any], study: str) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in (facts.get("machine") or {}).items() if value)
    seconds = facts.get("seconds") or {}
    known = [value for value in seconds.values() if isinstance(value, int | float)]
    pairs = [
        ("Command", f"<code>{escape(str(facts.get('command', f'mooring reproduce {study}')))}</code>"),
        ("Machine", escape(machine or "not known")),
        ("Time", escape(in_words(sum(known)) if known else "not known")),
        ("Seeds", escape(", ".join(str(seed) for seed in facts.get("seeds") or ["not known"]))),
        ("Key of settings and code", f"<code>{escape(str(facts.get('key', 'not known')))}</code>"),
    ]
    notes = "".join(f"<li>{escape(str(note))}</li>" for note in facts.get("notes") or ())
    lines = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in pairs)
    return f'<h2>What was run</h2><dl class="identity">{lines}</dl>' + (f"<ul>{notes}</ul>" if notes else "")


def _figure(figure: Figure) -> str:
    data = base64.b64encode(figure.path.read_bytes()).decode()
    kind = _TYPES[figure.path.suffix]
    stop = "" if figure.title.endswith((".", "?", "!")) else "."
    return (
        f'<figure id="{escape(figure.name)}"><div class="wide"><img alt="{escape(figure.title)}" '
        f'src="data:{kind};base64,{data}"></div><figcaption><b>{escape(figure.title)}{stop}</b> {escape(figure.caption)}'
        "</figcaption></figure>"
    )


def _comparison(comparisons: Sequence[Mapping[str, Any]]) -> str:
    if not comparisons:
        return ""
    parts = [
        "<h2>The paper against mooring</h2><p>Every number that the paper states of this study, and ours from the first "
        "deployment. A shaded line differs by more than a rule allows, and names a likely reason, not a proved one.</p>"
    ]
    for kind, words in (("result", "Results"), ("setting", "Settings"), ("beside", "Ours alone")):
        own = [one for one in comparisons if one["kind"] == kind]
        if not own:
            continue
        head = ["section", "what", "paper", "mooring", "over deployments", "difference", "likely reason where large"]
        rows = [
            [
                escape(_one_if_same(str(one[name])))
                for name in ("section", "says", "paper_text", "ours_text", "spread_text", "difference_text", "note")
            ]
            for one in own
        ]
        marked = [k for k, one in enumerate(own) if one["large"]]
        one_section = len({row[0] for row in rows}) == 1
        keep = [k for k in range(one_section, len(head)) if any(row[k] not in ("", "–") for row in rows)]
        shown = [[row[k] for k in keep] for row in rows]
        numbers = [place for place, k in enumerate(keep) if 2 <= k <= 5]
        table = _table([head[k] for k in keep], shown, numbers=numbers, marked=marked)
        table = (
            f"<details><summary>{words}</summary>{table}</details>" if kind == "setting" else f"<h3>{words}</h3>{table}"
        )
        parts.append(table)
    return "".join(parts)


def _one_if_same(text: str) -> str:
    """A range whose ends are written alike, as one number."""
    return re.sub(r"^(\S+) to \1(?!\S)", r"\1", text)


def _facts(facts: Mapping[str, Any]) -> str:
    told = {name: value for name, value in facts.items() if name not in _NOT_IN_TABLE}
    long = [name for name, value in told.items() if _is_nested(value)]
    where = f"<p>Also in facts.json: {escape(', '.join(long))}.</p>" if long else ""
    plain = {name: value for name, value in told.items() if name not in long}
    parts = ["<h2>Facts</h2>", _pairs("fact", plain), where]
    for inner, words in (
        (_settings(facts.get("spec")), "All settings"),
        (facts.get("seconds"), "Seconds of each stage"),
        (facts.get("data"), "Data files, SHA-256"),
    ):
        if isinstance(inner, Mapping) and inner:
            parts.append(f"<details><summary>{words}</summary>{_pairs('name', inner)}</details>")
    return "".join(parts)


def _settings(spec: Any) -> dict[str, Any]:
    """Settings that a study of this kind uses, each of a section under both names."""
    found: dict[str, Any] = {}
    for name, value in (spec if isinstance(spec, Mapping) else {}).items():
        found |= {f"{name}.{key}": one for key, one in value.items()} if isinstance(value, Mapping) else {name: value}
    unused = _UNUSED.get(str(found.get("kind")), ())
    return {
        name: value
        for name, value in found.items()
        if name not in unused and name.partition(".")[0] not in unused and value not in ([], {})
    }


def _is_nested(value: Any) -> bool:
    """Whether a fact is a table itself, too long for a cell."""
    if isinstance(value, Mapping):
        return any(isinstance(one, Mapping | list) for one in value.values())
    return isinstance(value, list) and any(isinstance(one, Mapping) for one in value)


def _pairs(head: str, values: Mapping[str, Any]) -> str:
    return _table([head, "value"], [[escape(str(name)), escape(_text(value))] for name, value in values.items()])


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = (), marked: Sequence[int] = ()
) -> str:
    """A table in a box that scrolls by itself; cells are HTML, the columns in `numbers` right-aligned, some rows shaded."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "".join(f"<{tag}{' class=n' if k in numbers else ''}>{cell}</{tag}>" for k, cell in enumerate(cells))

    body = "".join(
        f"<tr{' class=large' if k in marked else ''}>{line(cells, 'td')}</tr>" for k, cells in enumerate(rows)
    )
    head_line = line([escape(name) for name in head], "th")
    return f'<div class="wide"><table><thead><tr>{head_line}</tr></thead><tbody>{body}</tbody></table></div>'


def _text(value: Any) -> str:
    """A value as a reader would write it."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        between = "; " if any(isinstance(one, Mapping | list | tuple) for one in value) else ", "
        return between.join(map(_text, value))
    return str(value)


_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1f2933; background: #fff; max-width: 68rem; margin: 2.5rem auto;
  padding: 0 1.2rem; overflow-wrap: break-word; -webkit-text-size-adjust: 100%; }
h1 { font-size: 1.7rem; line-height: 1.25; margin-bottom: .3rem; } h2 { font-size: 1.2rem; margin-top: 2.4rem; }
p.sub, .identity dt, figcaption, footer, summary { color: #52606d; } p.sub { margin-top: 0; }
.warn { border-left: 4px solid #b03a2e; background: #fdf3f1; padding: .7rem 1rem; margin: 1rem 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #e4e7eb; vertical-align: top; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.large td { background: #fdf3f1; } h3 { font-size: 1rem; margin-top: 1.6rem; }
code { background: #f5f7fa; padding: .1rem .3rem; font-size: .9rem; overflow-wrap: anywhere; }
figure { margin: 1.6rem 0 2.4rem; } figure img { display: block; width: 100%; height: auto; }
figcaption { font-size: .95rem; margin-top: .4rem; } figcaption b { color: #1f2933; }
.identity { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 1rem 0; }
.identity dd { margin: 0; overflow-wrap: anywhere; }
details { margin: .6rem 0; } summary { cursor: pointer; } footer { font-size: .9rem; margin-top: 2.5rem; }
@media (max-width: 40rem) {
  body { margin: 1.2rem auto; padding: 0 1rem; } h1 { font-size: 1.4rem; }
  .identity { grid-template-columns: 1fr; gap: 0; } .identity dd { margin-bottom: .5rem; }
  figure img { min-width: 44rem; } th, td { min-width: 8rem; } th.n, td.n { min-width: 0; }
}
@media print {
  @page { margin: 16mm; } body { margin: 0; padding: 0; max-width: none; font-size: 10.5pt; color: #000; }
  .wide { overflow: visible; } table { font-size: 8.5pt; } figure, tr, .warn { break-inside: avoid; }
  figure img { min-width: 0; } thead { display: table-header-group; }
}
"""
