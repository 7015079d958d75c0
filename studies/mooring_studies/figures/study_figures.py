"""All figures of a study, from its results, its facts and its pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from mooring.errors import InputError
from mooring_studies.comparison.curves import N_RESAMPLES
from mooring_studies.comparison.results import Results
from mooring_studies.figures.both_noises import draw_both_noises
from mooring_studies.figures.deployments import draw_deployments
from mooring_studies.figures.each_participant import draw_each_participant
from mooring_studies.figures.figure_file import Drawing, Figure, house_style, written
from mooring_studies.figures.fits import Fits
from mooring_studies.figures.landscape import draw_landscape
from mooring_studies.figures.linkage import draw_linkage, draw_linkage_strongest
from mooring_studies.figures.participants import draw_participants
from mooring_studies.figures.pictures import draw_pictures
from mooring_studies.figures.series import Material
from mooring_studies.figures.solver import draw_solver
from mooring_studies.figures.tabular import draw_tables
from mooring_studies.figures.tradeoff import draw_tradeoff, draw_tradeoff_as_deployed
from mooring_studies.figures.utility import draw_utility

_IMAGES = (
    draw_linkage,
    draw_linkage_strongest,
    draw_utility,
    draw_tradeoff,
    draw_tradeoff_as_deployed,
    draw_both_noises,
    draw_deployments,
    draw_solver,
)
_STUDIES: Mapping[str, tuple[Callable[[Material], list[Drawing]], ...]] = {
    "mnist": _IMAGES,
    "celeba": _IMAGES,
    "participants": (draw_participants,),
    "hospitals": (draw_tables, draw_each_participant),
    "census": (draw_tables, draw_each_participant),
    "landscape": (draw_landscape,),
}


def draw(
    study: str,
    results: Results,
    facts: Mapping[str, Any],
    pictures: Mapping[str, Any] | None,
    folder: Path,
    *,
    captions: MutableMapping[str, Figure] | None = None,
    n_resamples: int = N_RESAMPLES,
) -> list[Path]:
    """Draw a study's figures into a folder.

    Parameters
    ----------
    study : str
    results : Results
    facts : mapping
        What the run noted: see facts.json.
    pictures : mapping of str to array, or None
        Rebuilt images, as in pictures.npz; without them no images are drawn.
    folder : Path
        Made if it is not there.
    captions : mutable mapping, optional
        Filled with every figure by its name: path, title and caption, for a page.
    n_resamples : int, optional
        Bootstrap resamples of every band.

    Returns
    -------
    list of Path
        In the order in which a page shows them.

    Raises
    ------
    MissingExtraError
        Where matplotlib is not installed.
    """
    figures = draw_figures(study, results, facts, pictures, folder, n_resamples=n_resamples)
    if captions is not None:
        captions.update({figure.name: figure for figure in figures})
    return [figure.path for figure in figures]


def draw_figures(
    study: str,
    results: Results,
    facts: Mapping[str, Any],
    pictures: Mapping[str, Any] | None,
    folder: Path,
    *,
    n_resamples: int = N_RESAMPLES,
) -> list[Figure]:
    """The same, answering with titles and captions."""
    with house_style():
        drawings = drawn(study, results, facts, pictures, n_resamples=n_resamples)
        return [written(drawing, folder) for drawing in drawings]


def drawn(
    study: str,
    results: Results,
    facts: Mapping[str, Any],
    pictures: Mapping[str, Any] | None,
    *,
    n_resamples: int = N_RESAMPLES,
) -> Iterable[Drawing]:
    """Drawings one after the other, so that only one is in memory; call within `house_style`."""
    if study not in _STUDIES:
        raise InputError("study", expected=f"one of {', '.join(_STUDIES)}", got=repr(study), cure="Check the spelling.")
    material = Material(study, results, facts, Fits(n_resamples))
    for function in _STUDIES[study]:
        yield from function(material)
    if pictures is not None and _STUDIES[study] is _IMAGES:
        yield from draw_pictures(study, pictures)
