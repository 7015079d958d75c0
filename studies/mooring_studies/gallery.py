"""All figures of the studies on one page of Markdown, each with its caption."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from mooring_studies.figures.figure_file import Figure

_WIDTH = 120
_OPENING = """# Figures

Every figure of the studies, with what it shows. They are drawn from the tables in `results/` by `make figures`; figures that
show faces are drawn where the study is run, and not kept here. [findings.md](findings.md) says what to make of them."""


def gallery(figures: Mapping[str, Sequence[Figure]], titles: Mapping[str, str], *, under: PurePath) -> str:
    """The page.

    Parameters
    ----------
    figures : mapping of str to figures
        By the study's name.
    titles : mapping of str to str
        What each study is called.
    under : path
        The folder that the page will lie in: pictures are named from there.
    """
    parts = [_OPENING]
    for study, own in figures.items():
        parts.append(f"## {titles.get(study, study)}")
        for figure in own:
            place = figure.path.relative_to(under).as_posix()
            caption = textwrap.fill(figure.caption, _WIDTH, break_on_hyphens=False)
            parts.append(f"### {figure.title}\n\n![{figure.title}]({place})\n\n{caption}")
    return "\n\n".join(parts) + "\n"
