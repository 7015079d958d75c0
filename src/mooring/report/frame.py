"""The frame of every page: templates, one style, and a policy that allows no script and nothing from elsewhere.

Names, reasons and commands come from files that others may have written. Templates escape them as text, and the page's
policy holds even if a template forgets to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template, select_autoescape

__all__ = ["load_template", "render_page", "render_sentence"]


@cache
def load_template(name: str, package: str = __package__) -> Template:
    """Return a template from the folder `templates` of a package.

    The template may extend and import the templates of `mooring.report`. Templates whose names end in .html.jinja escape
    values as HTML. A missing value raises an error.
    """
    packages = dict.fromkeys((package, __package__))
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=select_autoescape(("html.jinja",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(name)


def render_page(name: str, values: Mapping[str, Any], *, package: str = __package__) -> str:
    """Return a page: a package's template that extends frame.html.jinja, filled with the values that it names."""
    return load_template(name, package).render(values)


def render_sentence(template: str, macro: str, *values: Any, package: str = __package__) -> str:
    """Return one sentence as plain text, from a macro of a text template; line breaks of the template become spaces."""
    text = str(getattr(load_template(template, package).module, macro)(*values))
    return re.sub(r"[ \n]+", " ", text).strip()
