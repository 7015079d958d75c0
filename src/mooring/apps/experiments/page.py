"""The page of a finished study: what was run, every figure with its caption, the paper's numbers beside ours, the facts.

One file, nothing from the network and no script at all; figures are images inside it. Whatever comes from a file is text
here, and goes through `escape`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from mooring.apps.experiments.figures.drawing import Figure
from mooring.apps.experiments.storing.finished import Finished
from mooring.apps.experiments.storing.progress import in_words
from mooring.apps.experiments.summary import CONTROLS, joining_pays, summarised

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
_SHOWN_SIZES = 12
_LONG = 200
_NOT_IN_TABLE = ("spec", "machine", "notes", "seconds", "data", "deployments", "command", "key", "seeds")
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
    sizes = summarised(finished.results)
    several = len(sizes) > 1
    rows, leaks = [], []
    for size in sizes[:_SHOWN_SIZES]:
        name = [escape(size_in_words(size))] if several else []
        controls = [percent(size["controls"].get(method)) for method in CONTROLS]
        rows.append([*name, *controls, percent(size["local_only"]), percent(size["pooled_raw"])])
        leaks += [[*name, *_noisy_cells(one)] for one in size["noisy"]]
    more = f"<p>{len(sizes) - _SHOWN_SIZES} more sizes are in the figures.</p>" if len(sizes) > _SHOWN_SIZES else ""
    first = [""] if several else []
    head = [*first, "C-GDP", "AA-I-GDP", "I-GDP", "local only", "pooled raw"]
    noisy_head = [*first, "noise", "draws", "accuracy", "as deployed", "strongest attack", "it links"]
    numbers, noisy_numbers = [k + several for k in range(5)], [k + several for k in (1, 2, 3, 5)]
    where = "" if several else f" with {escape(size_in_words(sizes[0]))}"
    return (
        f'<h2>In short</h2><p class="warn">{escape(_HONEST)}</p>'
        f"<p>Balanced accuracy without noise, in the first deployment{where}, beside what a participant has alone and what "
        f"pooling raw rows would give:</p>{_table(head, rows, numbers=numbers)}"
        "<p>With noise, over all draws: mean accuracy (with noise on test rows too, as in the paper; and as deployed, "
        "without it), the attack that is the strongest most often, and the least to the most that the strongest links of "
        f"ten look-alikes (chance 10 %):</p>{_table(noisy_head, leaks, numbers=noisy_numbers)}{more}{_joining(finished)}"
    )


def _noisy_cells(one: Mapping[str, Any]) -> list[str]:
    attack = escape(one["strongest_words"] or "not measured")
    scores = [percent(one["accuracy"]), percent(one["accuracy_clean"])]
    return [escape(one["words"]), str(one["draws"]), *scores, attack, between(one)]


def _joining(finished: Finished) -> str:
    better, total = joining_pays(finished.results)
    if not total:
        return ""
    return f"<p>Scored as deployed, {better} of {total} noisy draws beat training alone.</p>"


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
    return (
        f'<figure id="{escape(figure.name)}"><div class="wide"><img alt="{escape(figure.title)}" '
        f'src="data:{kind};base64,{data}"></div><figcaption><b>{escape(figure.title)}.</b> {escape(figure.caption)}'
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
                escape(str(one[name]))
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


def _facts(facts: Mapping[str, Any]) -> str:
    plain = [[escape(name), _cell(value)] for name, value in facts.items() if name not in _NOT_IN_TABLE]
    parts = ["<h2>Facts</h2>", _table(["fact", "value"], plain)]
    for name, words in (
        ("spec", "All settings"),
        ("seconds", "Seconds of each stage"),
        ("data", "Data files, SHA-256"),
    ):
        inner = facts.get(name)
        if isinstance(inner, Mapping) and inner:
            rows = [[escape(str(key)), _cell(value)] for key, value in inner.items()]
            parts.append(f"<details><summary>{words}</summary>{_table(['name', 'value'], rows)}</details>")
    return "".join(parts)


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


def size_in_words(size: Mapping[str, Any]) -> str:
    """A size of a study: its participants, and what each holds."""
    words = [f"{size['n_participants']} participants"] if "n_participants" in size else ["all"]
    words += [f"{size['identities_each']} identities each"] if "identities_each" in size else []
    words += [f"{size['rows_each']} rows each"] if "rows_each" in size else []
    return ", ".join(words)


def percent(value: float | None) -> str:
    """A share in percent, or a dash."""
    return "–" if value is None else f"{value:.1f} %"


def between(noisy: Mapping[str, Any]) -> str:
    """The least to the most that the strongest attack gets over a study's draws."""
    if noisy["leaked_least"] is None:
        return "–"
    return f"{noisy['leaked_least']:.0f} to {noisy['leaked_most']:.0f} %"


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return escape(f"{value:.6g}")
    if isinstance(value, Mapping):
        value = ", ".join(f"{key} {_cell(one)}" for key, one in value.items())
        return escape(value) if len(value) <= _LONG else f"{escape(value[: _LONG - 1])}…"
    if isinstance(value, list | tuple):
        text = ", ".join(f"{one:.6g}" if isinstance(one, float) else str(one) for one in value)
        return escape(text) if len(text) <= _LONG else f"{escape(text[: _LONG - 1])}…"
    return escape(str(value))


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
