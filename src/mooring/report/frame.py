"""The frame of every page: templates, one style, charts as data, and a policy that allows no other script.

Names, reasons and commands come from files that others may have written. Templates escape them as text, and `embed_chart`
writes them as data; the page's policy, by digest of each script, holds even where that were forgotten.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template, select_autoescape
from markupsafe import Markup

INK, QUIET, ALARM, CALM, BLUE, SAND = "#1f2933", "#5f6c7b", "#b03a2e", "#2f7d4f", "#4878a8", "#e49444"
_SMALLEST_TEXT = 14


@cache
def load_template(name: str, package: str = __package__) -> Template:
    """A template of a package's folder `templates`; templates of every package may extend and import the frame's.

    Names ending in .html.jinja are escaped as HTML. A name that the values do not have is an error.
    """
    packages = dict.fromkeys((package, __package__))
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(one) for one in packages]),
        autoescape=select_autoescape(("html.jinja",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(name)


def render_page(name: str, values: Mapping[str, Any], *, package: str = __package__, charts: bool = True) -> str:
    """Fill a template that extends frame.html.jinja.

    Parameters
    ----------
    name : str
        The template's name.
    values : mapping
        What the template shows: `title` and whatever else it names.
    package : str
        Whose template it is.
    charts : bool
        Whether the page holds charts; without them it has no script at all.
    """
    scripts = {"plotly": _plotly(), "drawing": _asset("charts.js")} if charts else {}
    frame = {
        "style": Markup(_asset("page.css")),
        "scripts": {one: Markup(text) for one, text in scripts.items()},
        "digests": Markup(" ".join(_digest(text) for text in scripts.values())),
    }
    return load_template(name, package).render({**values, "frame": frame})


def render_sentence(template: str, macro: str, *values: Any, package: str = __package__) -> str:
    """One sentence as plain text, from a macro of a text template; line breaks of the template become spaces."""
    text = str(getattr(load_template(template, package).module, macro)(*values))
    return re.sub(r"[ \n]+", " ", text).strip()


def embed_chart(figure: Any, label: str) -> dict[str, Any]:
    """A Plotly figure as data for the page, drawn when it opens; `label` says what it shows.

    Text inside the figure is markup to Plotly: what comes from a file must have gone through `in_chart`.
    """
    from plotly.graph_objects import Figure

    shown = Figure(figure)
    shown.update_layout(font={"size": _SMALLEST_TEXT}, hoverlabel={"font": {"size": _SMALLEST_TEXT}}, autosize=True)
    shown.update_annotations(font_size=_SMALLEST_TEXT)
    for axes in (shown.update_xaxes, shown.update_yaxes):
        axes(title_font_size=_SMALLEST_TEXT)  # a phone is too narrow for larger ones
    data = shown.to_json(engine="json")
    for sign in "<>&":  # no text can end the element that holds it
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    return {"label": label, "height": int(shown.layout.height or 420), "data": Markup(data)}


def in_chart(text: str, most: int = 40) -> str:
    """Text from a file for use inside a figure: cut, and with no markup that Plotly would follow.

    Examples
    --------
    >>> in_chart("<a href='x'>north</a>")
    "&lt;a href='x'&gt;north&lt;/a&gt;"
    >>> in_chart("a-hospital-with-a-long-name", 10)
    'a-hospita…'
    """
    return escape(shorten(text, most), quote=False)


def shorten(text: str, most: int) -> str:
    """At most so many characters of a text."""
    return text if len(text) <= most else text[: most - 1] + "…"


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


@cache
def _asset(name: str) -> str:
    return (files(__package__) / "templates" / name).read_text(encoding="utf-8")


@cache
def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
