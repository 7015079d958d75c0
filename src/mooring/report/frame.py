"""The frame that every page shares: one file, nothing from the network, and no script but the two named in its head.

Names, reasons and commands come from files that others may have written. They reach a page through `escape` (text) or
`chart` (data) and no other way; the page's policy, by digest of each script, holds even where that were forgotten.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

INK, QUIET, ALARM, CALM, BLUE, SAND = "#1f2933", "#5f6c7b", "#b03a2e", "#2f7d4f", "#4878a8", "#e49444"
_SMALLEST_TEXT = 14


def page(title: str, body: str, *, footer: str) -> str:
    """Put a body into the frame; `body` and `footer` are HTML, `title` is text."""
    plotly = get_plotlyjs()
    policy = (
        f"default-src 'none'; script-src {_allowed(plotly)} {_allowed(_SCRIPT)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>mooring: {escape(title)}</title><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style><script>{plotly}</script></head><body>\n"
        f"<main>{body}</main>\n<noscript><p class=warn>Charts need JavaScript; the numbers are in the tables.</p>"
        f"</noscript>\n<footer>{footer}</footer>\n<script>{_SCRIPT}</script></body></html>\n"
    )


def chart(figure: Any, label: str) -> str:
    """A Plotly figure as data inside the page, drawn when the page opens; `label` says what it shows.

    Text inside the figure is markup to Plotly: what comes from a file must have gone through `in_chart`.
    """
    shown = go.Figure(figure)
    shown.update_layout(font={"size": _SMALLEST_TEXT}, hoverlabel={"font": {"size": _SMALLEST_TEXT}}, autosize=True)
    shown.update_annotations(font_size=_SMALLEST_TEXT)
    for axes in (shown.update_xaxes, shown.update_yaxes):
        axes(title_font_size=_SMALLEST_TEXT)  # a phone is too narrow for larger ones
    data = shown.to_json(engine="json")
    for sign in "<>&":  # no text can end the element that holds it
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    height = int(shown.layout.height or 420)
    return (
        f'<figure class="chart" role="img" aria-label="{escape(label)}"><div style="height:{height}px"></div>'
        f'<script type="application/json">{data}</script></figure>'
    )


def in_chart(text: str, most: int = 40) -> str:
    """Text from a file for use inside a figure: cut, and with no markup that Plotly would follow.

    Examples
    --------
    >>> in_chart("<a href='x'>north</a>")
    "&lt;a href='x'&gt;north&lt;/a&gt;"
    >>> in_chart("a-hospital-with-a-long-name", 10)
    'a-hospita…'
    """
    return escape(text if len(text) <= most else text[: most - 1] + "…", quote=False)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = (), marked: int = 0) -> str:
    """A table in a box that scrolls by itself; cells are HTML, the columns in `numbers` right-aligned.

    The last `marked` rows are set off.
    """

    def line(cells: Sequence[str], tag: str, mark: str = "") -> str:
        inner = "".join(f"<{tag}{' class=n' if k in numbers else ''}>{cell}</{tag}>" for k, cell in enumerate(cells))
        return f"<tr{mark}>{inner}</tr>"

    body = "".join(line(cells, "td", " class=truth" if k >= len(rows) - marked else "") for k, cells in enumerate(rows))
    return f"<div class=wide><table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table></div>"


def items(texts: Sequence[str], otherwise: str) -> str:
    """Plain texts as a list, or what to say where there are none."""
    if not texts:
        return f"<p>{escape(otherwise)}</p>"
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


@cache
def _allowed(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1f2933; background: #fff; max-width: 64rem; margin: 2.5rem auto;
  padding: 0 1.2rem; overflow-wrap: break-word; -webkit-text-size-adjust: 100%; }
h1 { font-size: 1.7rem; line-height: 1.25; margin-bottom: .3rem; } h2 { font-size: 1.2rem; margin-top: 2.4rem; }
h3 { font-size: 1rem; margin-top: 1.6rem; }
p.sub { color: #52606d; margin-top: 0; }
.warn, .good, .plain { border-left: 4px solid #b03a2e; background: #fdf3f1; padding: .7rem 1rem; margin: 1rem 0; }
.warn > p, .good > p, .plain > p, .warn > ul { margin: .5rem 0 0; }
.good { border-color: #2f7d4f; background: #f0f8f3; } .plain { border-color: #7b8794; background: #f5f7fa; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #e4e7eb; vertical-align: top; }
.n { text-align: right; font-variant-numeric: tabular-nums; } .n small, .digest { white-space: nowrap; }
 tr.truth td { background: #f5f7fa; font-weight: 600; }
small { color: #5f6c7b; font-size: .875rem; }
code { background: #f5f7fa; padding: .1rem .3rem; font-size: .9rem; overflow-wrap: anywhere; }
.broad { min-width: 46rem; }
figure.chart { margin: 1rem 0; overflow: hidden; } figure.chart > div { width: 100%; }
.identity { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 1rem 0; }
.identity dt { color: #52606d; } .identity dd { margin: 0; overflow-wrap: anywhere; }
.identity dd.fingerprint { font: 600 1.15rem/1.4 ui-monospace, monospace; letter-spacing: .02em; }
.empty { color: #52606d; border: 1px dashed #b8c2cc; padding: .7rem 1rem; }
.signature { display: grid; grid-template-columns: 1fr 1fr; gap: 1.6rem 2rem; margin-top: 1.6rem; }
.signature span { border-bottom: 1px solid #1f2933; min-height: 2.6rem; display: block; }
.signature label { display: block; color: #52606d; font-size: .9rem; }
footer { color: #5f6c7b; font-size: .9rem; margin-top: 2.5rem; }
@media (max-width: 40rem) {
  body { margin: 1.2rem auto; padding: 0 1rem; } h1 { font-size: 1.4rem; }
  .identity { grid-template-columns: 1fr; gap: 0; } .identity dd { margin-bottom: .5rem; }
  .signature { grid-template-columns: 1fr; } th, td { min-width: 6rem; }
  th.n, td.n { min-width: 0; } td:last-child:not(.n) { min-width: 10rem; }
}
details { margin: .6rem 0; } summary { cursor: pointer; color: #5f6c7b; }
@media print {
  @page { margin: 16mm; }
  body { margin: 0; padding: 0; max-width: none; font-size: 10.5pt; color: #000; }
  .wide { overflow: visible; } .broad { min-width: 0; } table { font-size: 8.5pt; }
  th, td { padding: .2rem .35rem; } small, td code { font-size: inherit; } .n small { white-space: normal; }
  .warn, .good, .plain, tr.truth td, code { background: #fff; } small, footer, .identity dt, .empty { color: #000; }
  figure, tr, .warn, .good, .plain, .sign { break-inside: avoid; } h2, h3, h4, p:has(+ figure) { break-after: avoid; }
  a { color: inherit; text-decoration: none; } thead { display: table-header-group; }
}
"""

# Plotly gives every drawing a width in pixels, so paper, which is narrower than a screen, needs it drawn again.
_SCRIPT = """
(function () {
  var holders = [];
  document.querySelectorAll("figure.chart").forEach(function (box) {
    var holder = box.querySelector("div");
    try {
      var plain = JSON.parse(box.querySelector("script").textContent);
      if (box.clientWidth < 560) { plain.layout.margin = Object.assign({}, plain.layout.margin, {l: 46, r: 8}); }
      Plotly.newPlot(holder, plain.data, plain.layout, {displayModeBar: false, responsive: true});
      holders.push(holder);
    } catch (problem) { holder.textContent = "This chart could not be drawn; its numbers are in the tables."; }
  });
  function draw(pixels, size) {
    holders.forEach(function (holder) {
      Plotly.relayout(holder, {width: pixels, autosize: pixels === null});
      if (holder.data[0].texttemplate) { Plotly.restyle(holder, {"textfont.size": size}); }
    });
  }
  window.addEventListener("beforeprint", function () { draw(640, 9); });
  window.addEventListener("afterprint", function () { draw(null, 14); });
})();
"""
