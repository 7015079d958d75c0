"""The frame of every page: templates, one style, and a policy that allows no script and nothing from elsewhere.

Names, reasons and commands come from files that others may have written. Templates escape them as text; the page's policy
holds even where that were forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template, select_autoescape


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


def render_page(name: str, values: Mapping[str, Any], *, package: str = __package__) -> str:
    """Fill a template that extends frame.html.jinja.

    Parameters
    ----------
    name : str
        The template's name.
    values : mapping
        What the template shows: `title` and whatever else it names.
    package : str
        Whose template it is.
    """
    return load_template(name, package).render(values)


def render_sentence(template: str, macro: str, *values: Any, package: str = __package__) -> str:
    """One sentence as plain text, from a macro of a text template; line breaks of the template become spaces.

    Parameters
    ----------
    template, macro : str
        File of a template, and its macro.
    *values : object
        The macro's arguments.
    package : str, optional
        Where the templates are.
    """
    text = str(getattr(load_template(template, package).module, macro)(*values))
    return re.sub(r"[ \n]+", " ", text).strip()
