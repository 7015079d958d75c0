"""All figures of a study, from its results, its facts and its pictures: drawn, and written with the same bytes each time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from mooring import InputError, MissingExtraError
from mooring.atomic_io import make_folder, write_atomically
from mooring_studies.comparison.curves import N_RESAMPLES
from mooring_studies.comparison.paper import paper_numbers
from mooring_studies.comparison.results import Results
from mooring_studies.figures import (
    chart,
    fits,
    frontier,
    landscape,
    noise_curves,
    participants,
    pictures,
    tabular,
    tradeoff,
)

_IMAGES = (
    noise_curves.draw_linkage,
    noise_curves.draw_linkage_strongest,
    noise_curves.draw_utility,
    tradeoff.draw_tradeoff,
    tradeoff.draw_tradeoff_as_deployed,
    tradeoff.draw_both_noises,
    noise_curves.draw_deployments,
    noise_curves.draw_solver,
)
_TABLES = (tabular.draw_tables, tabular.draw_each_participant)
_STUDIES: Mapping[str, tuple[Callable[[fits.Material], list[chart.Drawing]], ...]] = {
    "mnist": _IMAGES,
    "celeba": _IMAGES,
    "participants": (participants.draw_participants,),
    "uneven": (),  # a table says it
    "hospitals": _TABLES,
    "census": _TABLES,
    "landscape": (landscape.draw_landscape,),
    "sums": (),  # a table says it
    "alternatives": (frontier.draw_alternatives,),
}
_STYLE = Path(__file__).parents[1] / "templates" / "figures.mplstyle"
_GREYS = 32


@dataclass(frozen=True)
class Figure:
    """A figure on disk, and what a page says about it."""

    name: str
    path: Path
    title: str
    caption: str


@contextmanager
def house_style() -> Iterator[None]:
    """Everything drawn inside looks alike, whatever the user's own settings; they are put back afterwards."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError(needed_for="drawing figures", package="matplotlib", extra="studies") from None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rc_file(_STYLE, use_default_template=False)
        yield


def draw_figures(
    study: str,
    results: Results,
    facts: Mapping[str, Any],
    images: Mapping[str, Any] | None,
    folder: Path,
    *,
    n_resamples: int = N_RESAMPLES,
) -> list[Figure]:
    """Draw a study's figures into a folder; returns them in the order in which a page shows them."""
    with house_style():
        drawings = draw_study(study, results, facts, images, n_resamples=n_resamples)
        return [write_figure(drawing, folder) for drawing in drawings]


def draw_study(
    study: str,
    results: Results,
    facts: Mapping[str, Any],
    images: Mapping[str, Any] | None,
    *,
    n_resamples: int = N_RESAMPLES,
) -> Iterable[chart.Drawing]:
    """Drawings one after the other, so that only one is in memory; call within `house_style`. See `draw_figures`."""
    if study not in _STUDIES:
        raise InputError("study", expected=f"one of {', '.join(_STUDIES)}", got=repr(study), cure="Check the spelling.")
    material = fits.Material(study, results, facts, fits.Fits(n_resamples))
    for function in _STUDIES[study]:
        yield from (_mark_paper(drawing, study) for drawing in function(material))
    if images is not None and _STUDIES[study] is _IMAGES:
        yield from pictures.draw_pictures(study, images)


def locate_paper(study: str, figure: str) -> list[tuple[int, float, float]]:
    """Where the numbers that the paper states for one of its figures lie in ours: panel, across, up."""
    points: list[tuple[int, float, float]] = []
    for number in paper_numbers():
        args, value = number.args, number.value
        if number.study != study or number.kind != "result" or value is None:
            continue
        level = 100 * (args.get("level") or args.get("at") or 0.0)
        noisy = "linkage" if str(args.get("column", "")).startswith("linkage") else "utility"
        panel = int("anchor-noise" in args.get("method", ""))
        match (number.ours, "p" in args):
            case ("fitted", False):
                point = (noisy, panel, args["at"], value)
            case ("fitted", True):
                point = ("utility-by-noise", -1, args["at"], value)
            case ("crossing_of", _) if args.get("level"):
                point = (noisy, panel, value, level)
            case ("mean_of", False) if args["method"] in ("c-gdp", "aa-i-gdp"):
                point = (noisy, int(args["method"] == "aa-i-gdp"), 0.0, value)
            case ("on_linkage" | "utility_at_linkage", _):
                point = ("tradeoff", -1, level, value)
            case ("linkage_at_utility", _) if args.get("level"):
                point = ("tradeoff", -1, value, level)
            case ("largest_converged" | "smallest_capped", _):
                point = ("solver", 0, value, 500.0)
            case _:
                continue
        points += [point[1:]] if point[0] == figure else []
    return points


def _mark_paper(drawing: chart.Drawing, study: str) -> chart.Drawing:
    """The drawing with a black cross at every number that the paper states for it."""
    panels = [panel for panel in drawing.canvas.axes if panel.get_xlabel()]
    for panel, x, y in locate_paper(study, drawing.name) if panels else ():
        cross: dict[str, Any] = {"marker": "x", "color": "black", "markersize": 7, "markeredgewidth": 1.6, "zorder": 9}
        panels[panel].plot([x], [y], scalex=False, scaley=False, linestyle="none", label="_the paper's", **cross)
    return drawing


def write_figure(drawing: chart.Drawing, folder: Path) -> Figure:
    """Write a drawing; no date and no version goes in, so that redrawing gives the same bytes."""
    path = folder / f"{drawing.name}.{drawing.ending}"
    if drawing.ending == "svg":
        content = _save(drawing.canvas, format="svg", metadata={"Date": None, "Creator": None})
    else:
        content = _save_picture(drawing.canvas)
    make_folder(folder, what="the folder of figures")
    write_atomically(path, content, what=f"figure {path.name}")
    return Figure(drawing.name, path, drawing.title, drawing.caption)


def _save_picture(canvas: Any) -> bytes:
    """A picture as PNG; one without colours in few greys, which look the same as many and take a third of the bytes."""
    import numpy as np
    from PIL import Image

    picture = Image.open(BytesIO(_save(canvas, format="png", metadata={"Software": None}))).convert("RGB")
    pixels = np.asarray(picture)
    if (pixels == pixels[..., :1]).all():
        picture = picture.convert("L").quantize(_GREYS, dither=Image.Dither.NONE)
    content = BytesIO()
    picture.save(content, format="PNG", optimize=True)
    return content.getvalue()


def _save(canvas: Any, **options: Any) -> bytes:
    content = BytesIO()
    canvas.savefig(content, facecolor="white", **options)
    return content.getvalue()
