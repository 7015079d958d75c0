"""Pages of Markdown from templates, with paragraphs filled to one width since numbers of any length stand in them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from mooring.report.frame import load_template
from mooring_studies.figures.study_figures import Figure

WIDTH = 120
_AS_IS = ("|", "!", "#", "1. ", "---")
_UNLIMITED = 10**9


def render_markdown(template: str, values: Mapping[str, Any], *, width: int | None = WIDTH) -> str:
    """Fill a template and lay out what it says."""
    text = load_template(template, __package__).render(values)
    return "\n\n".join(_lay_out(block, width or _UNLIMITED) for block in re.split(r"\n{2,}", text.strip())) + "\n"


def write_line(*cells: Any) -> str:
    r"""A line of a table; a cell cannot end early.

    Examples
    --------
    >>> write_line("a|b", 3)
    '| a\\|b | 3 |'
    """
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def render_gallery(figures: Mapping[str, Sequence[Figure]], titles: Mapping[str, str], *, under: PurePath) -> str:
    """The page of all figures of the studies, each with what its caption says and none before it did."""
    captions = iter(_without_repetition(figure.caption for drawn in figures.values() for figure in drawn))
    studies = [
        {
            "title": titles.get(study, study),
            "figures": [
                {
                    "title": _without_data(figure.title),
                    "caption": next(captions),
                    "path": figure.path.relative_to(under).as_posix(),
                }
                for figure in drawn
            ],
        }
        for study, drawn in figures.items()
    ]
    return render_markdown("figures.md.jinja", {"studies": studies})


def _without_data(title: str) -> str:
    """A figure's title without the data's name before its colon, which the heading of its study says."""
    words = title.partition(": ")[2] or title
    return words[0].upper() + words[1:]


def _without_repetition(texts: Iterable[str]) -> list[str]:
    """Texts without the sentences that stand in an earlier one."""
    seen: set[str] = set()
    shortened = []
    for text in texts:
        sentences = re.split(r"(?<=\.) (?=[A-Z(])", text)
        shortened.append(" ".join(sentence for sentence in sentences if sentence not in seen))
        seen.update(sentences)
    return shortened


def _lay_out(block: str, width: int) -> str:
    if block.startswith(_AS_IS):
        return block
    if block.startswith("- "):
        items = re.split(r"\n(?=- )", block)
        return "\n".join(_fill(item, width, indent="  ") for item in items)
    return _fill(block, width)


def _fill(text: str, width: int, *, indent: str = "") -> str:
    words = re.sub(r"[ \n]+", " ", text).strip()
    return textwrap.fill(words, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
