"""Drawings as data, which parts.html.jinja writes as SVG without any script.

Positions are in percent of the area, but letters and marks have sizes in pixels. On a phone, a drawing is therefore
narrower, and its text is as large as elsewhere. Names and titles may come from files that others wrote; the template
escapes them.
"""

from __future__ import annotations

import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# Colours that page.css defines, with other values for dark screens. A notebook does not load page.css, and shows the values
# that are given here.
INK, QUIET, PALE = "var(--ink, #1f2933)", "var(--quiet, #52606d)", "var(--frame, #8a96a3)"
ALARM, CALM = "var(--alarm, #b03a2e)", "var(--calm, #26703f)"
BLUE, SAND = "var(--blue, #3d6f9f)", "var(--sand, #a65f0c)"
# The hexadecimal colours can be seen on white and on black.
COLOURS = (BLUE, SAND, "#c4504a", "#4c8f8b", "#5b8f49", "#a08013", "#996a90", "#8a6a5a", QUIET, PALE)
DASHED, DOTTED = "7 5", "2 4"
_MOST_DESCRIBED = 40
_LETTER = 7.6  # width of a letter in the labels of the vertical axis, in pixels
_OUTLINES = {
    "circle": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0",
    "dot": "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0",
    "square": "M-5-5h10v10h-10z",
    "diamond": "M0-7l7 7l-7 7l-7-7z",
    "ring": "M-11 0a11 11 0 1 0 22 0a11 11 0 1 0-22 0",
}
Shape = dict[str, Any]


@dataclass(frozen=True)
class Axis:
    """One axis of a drawing: its title, its two ends (`low` may be the larger one), and its ticks with their labels."""

    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    @classmethod
    def even(cls, title: str, low: float, high: float, digits: str = ".3g") -> Axis:
        """Return an axis with about five steps at round numbers, which are written by the format `digits`.

        Examples
        --------
        >>> [words for _, words in Axis.even("", 0.0, 1.1, ".1f").ticks]
        ['0.0', '0.5', '1.0']
        >>> Axis.even("", -1.0, -4.0).high  # an empty range becomes one unit wide
        0.0
        """
        high = high if high > low else low + 1.0
        rough = (high - low) / 5
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(k * unit for k in (1, 2, 5, 10) if k * unit >= 0.999 * rough)
        whole = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        return cls(title, low, high, tuple((k * step, f"{k * step:{digits}}") for k in whole))

    @classmethod
    def shares(cls, title: str, low: float) -> Axis:
        """Return a logarithmic axis of shares, from `low` to 1; it begins at 0.1 if `low` is larger."""
        return cls(title, min(low, 0.1), 1.0, tuple((10.0**k, f"{10.0 ** (k + 2):g}%") for k in range(-6, 1)), log=True)

    @classmethod
    def names(cls, words: Sequence[str]) -> Axis:
        """Return an axis with one line for each name, the first at the top."""
        return cls("", len(words) - 0.4, -0.6, tuple(enumerate(words)))

    def place(self, value: float) -> float:
        """Return the place of a value, in percent of the distance from low to high; values outside are at the nearer end."""
        value, low, high = (math.log(max(x, 1e-9)) if self.log else x for x in (value, self.low, self.high))
        return round(100 * min(max((value - low) / (high - low), 0.0), 1.0), 2)

    def is_inside(self, value: float) -> bool:
        """Return whether a value lies between the ends."""
        return min(self.low, self.high) <= value <= max(self.low, self.high)


@dataclass(frozen=True)
class Area:
    """Two axes, and shapes placed by them."""

    x: Axis
    y: Axis

    def line(
        self,
        points: Iterable[tuple[float, float]],
        colour: str,
        *,
        dash: str = "",
        width: float = 2.0,
        title: str = "",
    ) -> Shape:
        """Return a line through points in the axes' units. The line is solid if `dash` is empty; `title` is its tooltip."""
        path = "L".join(f"{self.x.place(x):g} {100 - self.y.place(y):g}" for x, y in points)
        return {"kind": "line", "path": "M" + path, "colour": colour, "dash": dash, "width": width, "title": title}

    def mark(self, x: float, y: float, colour: str, outline: str = "circle", title: str = "") -> Shape:
        """Return a circle, dot, square or diamond at a point, or a ring around it."""
        shape = {"kind": "mark", "colour": colour, "outline": _OUTLINES[outline], "is_ring": outline == "ring"}
        return shape | {"x": self.x.place(x), "y": 100 - self.y.place(y), "title": title}

    def bar(self, k: int, value: float, colour: str, title: str = "") -> Shape:
        """Return a bar from zero to a value, beside the name with the index `k`."""
        low, high = sorted((self.x.place(0.0), self.x.place(value)))
        shape = {"kind": "bar", "x": low, "width": high - low, "y": 100 - self.y.place(k - 0.36), "title": title}
        return shape | {"height": self.y.place(k - 0.36) - self.y.place(k + 0.36), "colour": colour}

    def text(
        self, x: float, y: float, words: str, colour: str = INK, *, before: bool = False, over: bool | None = None
    ) -> Shape:
        """Return words beside a point: by default to its right, or, with `before`, above it and to its left.

        If `over` is given, the words are centred: above the point if it is true, below the point if it is false.
        """
        shape = {"kind": "text", "x": self.x.place(x), "y": 100 - self.y.place(y), "words": words, "colour": colour}
        if over is not None:
            return shape | {"anchor": "middle", "down": -10 if over else 21}
        return shape | ({"anchor": "end", "down": -6} if before else {"anchor": "start", "down": 5})


@dataclass(frozen=True)
class Chart:
    """A drawing."""

    label: str
    """A description for readers who cannot see it."""
    area: Area
    shapes: tuple[Shape, ...]
    """Shapes in the order in which they are drawn; the last one is on top."""
    legend: tuple[tuple[str, Shape], ...] = ()
    """Names, each with the line, bar or mark that it stands for."""
    height: int = 360
    """Height of the area, in pixels."""

    @property
    def described(self) -> str:
        """What is drawn, for readers who cannot see it: the titles of the first shapes that have one."""
        titles = [shape["title"] for shape in self.shapes if shape.get("title")]
        more = len(titles) - _MOST_DESCRIBED
        return "; ".join([*titles[:_MOST_DESCRIBED], *([f"and {more} more"] if more > 0 else [])])

    @property
    def left(self) -> int:
        """The number of pixels that the ticks and the title of the vertical axis need."""
        widest = max((len(words) for _, words in self.area.y.ticks), default=0)
        return round(_LETTER * widest) + (32 if self.area.y.title else 12)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from mooring.report.frame import load_template

        return str(load_template("parts.html.jinja").module.chart(self))  # type: ignore[attr-defined]


def shorten(text: str, most: int) -> str:
    """Return a text, cut to at most this many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def encode_png(pixels: npt.NDArray[np.floating[Any]]) -> str:
    """Return grey levels or colours between 0 and 1, of shape (height, width[, 3]), as a PNG in a data URL."""
    levels = (255 * np.clip(pixels, 0, 1)).round().astype(np.uint8)
    height, width = levels.shape[:2]
    colour = 2 if levels.ndim == 3 else 0
    lines = np.concatenate([np.zeros((height, 1), np.uint8), levels.reshape(height, -1)], axis=1)  # 0: no filter
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0),
        b"IDAT": zlib.compress(lines.tobytes()),
        b"IEND": b"",
    }
    sums = {name: zlib.crc32(name + data) for name, data in parts.items()}
    chunks = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", sums[name]) for name, data in parts.items()
    )
    return "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()
