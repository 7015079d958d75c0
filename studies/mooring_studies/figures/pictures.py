"""What an attacker sees: rebuilt images beside their sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mooring_studies.figures import chart
from mooring_studies.figures.terms import GREY, INK, METHOD_WORDS, TITLES, attack_words

Images = NDArray[np.uint8]
_MARGIN = 2.25  # cells' widths left of the images, for the rows' words
_GAP, _UNDER, _EMPTY_UNDER = 0.08, 0.34, 0.10  # in cells: between columns, and below a row with and without words


def draw_pictures(study: str, pictures: Mapping[str, Any]) -> list[chart.Drawing]:
    """The grid of all sources, and one grid a source; nothing where no images were kept."""
    if "sources" not in pictures or not len(pictures["sources"]):
        return []
    drawings = [_draw_sources(study, pictures)]
    word = "digit" if study == "mnist" else "identity"
    for k in range(len(pictures["sources"])):
        name = int(pictures["labels"][k]) if study == "mnist" and "labels" in pictures else k
        drawings.append(_draw_source(study, pictures, k, f"{word}-{name}", f"{word} {name}"))
    return drawings


def _draw_sources(study: str, pictures: Mapping[str, Any]) -> chart.Drawing:
    title = f"{TITLES[study]}: what the attacker sees"
    sources = pictures["sources"]
    n_sources = len(sources)
    rows: list[tuple[str, Images, list[str]]] = [("source", sources, [])]
    if "projected" in pictures:
        rows.append(("projected,\nno noise", _stretch(pictures["projected"]), []))
    for words, images, noise, linkage in _rows(pictures):
        level = [k * len(images) // n_sources for k in range(n_sources)]
        chosen = np.stack([images[level[k], k] for k in range(n_sources)])
        rows.append((words, chosen, [_describe_cell(linkage[j], noise[j]) for j in level]))
    canvas = _draw_grid(title, rows, n_sources)
    return chart.describe(canvas, "reconstructions", "all_sources", ending="png")


def _draw_source(study: str, pictures: Mapping[str, Any], k: int, name: str, words: str) -> chart.Drawing:
    title = f"{TITLES[study]}: {words}, rebuilt"
    shown = list(_rows(pictures))
    n_columns = max([2, *(len(images) for _, images, _, _ in shown)])
    first = [pictures["sources"][k]]
    under = ["source"]
    if "projected" in pictures:
        first.append(_stretch(pictures["projected"])[k])
        under.append("projected")
    rows: list[tuple[str, Images, list[str]]] = [("the record", np.stack(first), under)]
    for row, images, noise, linkage in shown:
        rows.append((row, images[:, k], [_describe_cell(linkage[j], noise[j]) for j in range(len(images))]))
    return chart.describe(_draw_grid(title, rows, n_columns), name, "one_source", ending="png", words=words)


def _stretch(images: Images) -> Images:
    """Grey images with their brightest point white: a projection of few components leaves them nearly black.

    Colour images are left as they are, and so is every source.
    """
    if images.shape[-1] == 3:
        return images
    brightest = images.max(axis=(-2, -1), keepdims=True).clip(1)
    return np.asarray(np.round(images * (255.0 / brightest)), dtype=np.uint8)


def _rows(pictures: Mapping[str, Any]) -> list[tuple[str, Images, NDArray[np.float64], NDArray[np.float64]]]:
    """Words, images, noise and linkage (percent) of every attack's row."""
    names = [str(name) for name in pictures.get("rows", [])]
    return [
        (
            describe_row(name),
            _stretch(pictures[f"row{i}_images"]),
            np.asarray(pictures[f"row{i}_noise"], dtype=float),
            100 * np.asarray(pictures[f"row{i}_linkage"], dtype=float),
        )
        for i, name in enumerate(names)
    ]


def describe_row(name: str) -> str:
    r"""A row's method, its attack, and the letter of its noise, over lines that fit beside the images.

    Examples
    --------
    >>> describe_row("c-gdp-data-noise|known-secret+denoised")
    'private-data noise:\nknown secret,\ndenoised'
    """
    method, _, attack = name.partition("|")
    words = METHOD_WORDS.get(method, method).removeprefix("C-GDP, ")
    return f"{words}:\n" + attack_words(attack).replace(", ", ",\n") if attack else words


def _describe_cell(linkage: float, noise: float) -> str:
    known = "–" if np.isnan(linkage) else f"{linkage:.0f} %"
    return f"{known} · {noise:.2g}" if noise > 0 else f"{known} · no noise"


def _draw_grid(title: str, rows: list[tuple[str, Images, list[str]]], n_columns: int) -> Any:
    """All images as one picture, words beside and beneath."""
    heights = [1 + (_UNDER if under else _EMPTY_UNDER) for _, _, under in rows]
    across, down = _MARGIN + n_columns * (1 + _GAP), sum(heights)
    canvas, axes = chart.make_axes(title, height=chart.WIDTH * down / across + 0.55)
    panel = axes[0][0]
    panel.set_axis_off()
    top = 0.0
    for (words, images, under), height in zip(rows, heights, strict=True):
        panel.text(-0.12, top + 0.5, words, ha="right", va="center", fontsize=9, color=INK)
        for k, image in enumerate(images):
            left = k * (1 + _GAP)
            extent = (left, left + 1, top + 1, top)
            panel.imshow(image, cmap="gray", vmin=0, vmax=255, extent=extent, interpolation="nearest", aspect="auto")
            if k < len(under):
                panel.text(left + 0.5, top + 1.05, under[k], ha="center", va="top", fontsize=7.2, color=GREY)
        top += height
    panel.set_xlim(-_MARGIN, n_columns * (1 + _GAP))
    panel.set_ylim(down, 0)
    panel.set_aspect("equal")
    return canvas
