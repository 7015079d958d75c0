"""A figure before and after it is written: same table, same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.errors import MissingExtraError, StorageError
from mooring_studies.figures.labels import GREY, INK, PALE

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_SETTINGS: dict[Any, Any] = {
    "figure.dpi": 100,
    "font.size": 10.5,
    "font.family": ["sans-serif"],
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.labelsize": 10.5,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": PALE,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 1.8,
    "svg.fonttype": "none",
    "svg.hashsalt": "mooring",
    "path.simplify": True,
}
_GREYS = 32


@dataclass(frozen=True)
class Drawing:
    """A figure that is not written yet.

    Attributes
    ----------
    name : str
        The file's name without its ending.
    title, caption : str
        In plain words, for a page.
    canvas : matplotlib.figure.Figure
    ending : str
        "svg" for charts, "png" for pictures.
    """

    name: str
    title: str
    caption: str
    canvas: Canvas
    ending: str = "svg"


@dataclass(frozen=True)
class Figure:
    """A figure on disk, and what a page says about it."""

    name: str
    path: Path
    title: str
    caption: str


@contextmanager
def house_style() -> Iterator[None]:
    """Everything drawn inside looks alike, whatever the user's own settings; they are put back afterwards.

    Raises
    ------
    MissingExtraError
        Where matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError(needed_for="drawing figures", package="matplotlib", extra="studies") from None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def _small_picture(canvas: Canvas) -> bytes:
    """A picture as PNG; one without colours in few greys, which the eye does not tell from many: a third of the bytes."""
    import numpy as np
    from PIL import Image

    whole = BytesIO()
    canvas.savefig(whole, format="png", metadata={"Software": None}, facecolor="white")
    picture = Image.open(whole).convert("RGB")
    pixels = np.asarray(picture)
    if (pixels == pixels[..., :1]).all():
        picture = picture.convert("L").quantize(_GREYS, dither=Image.Dither.NONE)
    small = BytesIO()
    picture.save(small, format="PNG", optimize=True)
    return small.getvalue()


def written(drawing: Drawing, folder: Path) -> Figure:
    """Write a drawing; no date and no version goes in, so that redrawing gives the same bytes."""
    path = folder / f"{drawing.name}.{drawing.ending}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if drawing.ending == "svg":
            drawing.canvas.savefig(path, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
        else:
            path.write_bytes(_small_picture(drawing.canvas))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StorageError(
            f"Figure {path.name}", reason=reason, cure="Free some space or choose another output folder."
        ) from error
    return Figure(drawing.name, path, drawing.title, drawing.caption)
