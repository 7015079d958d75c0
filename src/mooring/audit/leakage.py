"""Run attacks on a simulated collaboration and measure what each recovered, beside chance, control and floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.attacks import REGISTRY, CollusionView, DoesNotApply, Reconstruction, denoised
from mooring.audit.evaluator import Looked, look
from mooring.audit.outcomes import HEADLINE, AttackOutcome, strongest
from mooring.audit.simulation import Simulation
from mooring.audit.specification import Lens
from mooring.errors import MissingExtraError
from mooring.geometry.backend import to_numpy
from mooring.typing import Matrix

DENOISED = " + denoising"
_AUDITED = 3


@dataclass(frozen=True, eq=False)
class Targets:
    """Who attacks whom, and with what extra knowledge.

    Attributes
    ----------
    colluders : tuple of int
    targets : tuple of int
        Attacked one after the other; their rows are measured together.
    n_known_rows, n_repeated_uploads : int
        As for `Simulation.view`.
    """

    colluders: tuple[int, ...]
    targets: tuple[int, ...]
    n_known_rows: int = 0
    n_repeated_uploads: int = 0


def measure_leakage(
    simulation: Simulation,
    whom: Targets,
    *,
    attacks: Sequence[str],
    lens: Lens,
    candidates: Matrix,
    candidate_labels: npt.NDArray[Any] | None,
    indices: tuple[npt.NDArray[Any], ...],
    reference_indices: npt.NDArray[Any],
    reference_rows: Matrix,
    seed: int,
) -> tuple[tuple[AttackOutcome, ...], dict[str, Any] | None]:
    """Run every attack, plain and denoised.

    Parameters
    ----------
    simulation : Simulation
    whom : Targets
    attacks : sequence of str
        Names in `mooring.attacks.REGISTRY`.
    lens : Lens
    candidates, candidate_labels
        Further rows, as they are, to fill galleries with.
    indices : tuple of arrays
        For each participant, where its rows stand among the records; for the lens's groups and attribute.
    reference_indices, reference_rows
        Held-out records of known persons, for identity linkage.
    seed : int

    Returns
    -------
    tuple of AttackOutcome, and examples of the strongest attack's rows or None
    """
    views = [
        simulation.view(
            whom.colluders,
            target,
            n_known_rows=whom.n_known_rows,
            n_repeated_uploads=whom.n_repeated_uploads,
        )
        for target in whom.targets
    ]
    scene = look(
        simulation,
        views,
        lens,
        candidates=candidates,
        candidate_labels=candidate_labels,
        indices=indices,
        reference_indices=reference_indices,
        reference_rows=reference_rows,
        seed=seed,
    )
    outcomes: list[AttackOutcome] = []
    rebuilt: dict[str, Matrix] = {}
    for name in attacks:
        for outcome, rows in _attacked(name, views, scene, seed):
            outcomes.append(outcome)
            if rows is not None:
                rebuilt[outcome.attack] = rows
    worst = strongest(outcomes)
    if worst is None:
        return tuple(outcomes), None
    for one in _most_telling(outcomes):
        shown = replace(one, figures={**one.figures, **scene.auditor_figures(rebuilt[one.attack])})
        outcomes[outcomes.index(one)] = shown
        worst = shown if one is worst else worst
    try:
        seen = replace(worst, figures={**worst.figures, **scene.image_figures(rebuilt[worst.attack])})
    except MissingExtraError as missing:  # the other figures are worth having without these two
        seen = replace(worst, notes=(*worst.notes, str(missing)))
    outcomes = [seen if one is worst else one for one in outcomes]
    return tuple(outcomes), scene.examples(rebuilt[worst.attack], worst.attack)


def _most_telling(outcomes: Sequence[AttackOutcome]) -> list[AttackOutcome]:
    """The attacks with the least error and the one that links most: those that the auditor looks at."""
    having = [one for one in outcomes if HEADLINE in one.figures]
    chosen = sorted(having, key=lambda one: one.figures[HEADLINE].value)[:_AUDITED]
    linking = strongest(outcomes, "linkage")
    return chosen if linking is None or any(one is linking for one in chosen) else [*chosen, linking]


def _attacked(
    name: str, views: Sequence[CollusionView], scene: Looked, seed: int
) -> list[tuple[AttackOutcome, Matrix | None]]:
    found: list[Reconstruction | None] = []
    reasons = []
    for k, view in enumerate(views):
        try:
            found.append(REGISTRY[name](view, rng=np.random.default_rng([seed, 3, k])))
        except DoesNotApply as why:
            found.append(None)
            reasons.append(why.reason)
        except Exception as problem:
            if not _is_linear_algebra(problem):
                raise
            found.append(None)
            reasons.append("The arithmetic broke down: a matrix could not be factorised.")
    if all(one is None for one in found):
        return [(AttackOutcome(name, reason=reasons[0]), None)]
    results = [_measured(name, views, found, scene, reasons)]
    better: list[Reconstruction | None] = []
    for one, view in zip(found, views, strict=True):
        try:
            better.append(None if one is None else denoised(one, view))
        except Exception as problem:
            if not isinstance(problem, DoesNotApply) and not _is_linear_algebra(problem):
                raise
            return results
    return [*results, _measured(name + DENOISED, views, better, scene, reasons)]


def _measured(
    name: str,
    views: Sequence[CollusionView],
    found: Sequence[Reconstruction | None],
    scene: Looked,
    reasons: Sequence[str],
) -> tuple[AttackOutcome, Matrix | None]:
    """Figures over all targets; where the attack does not apply to one of them, the attacker guesses without the upload."""
    parts, start = [], 0
    for view, one in zip(views, found, strict=True):
        n = int(view.target_upload.representation.shape[0])
        rows = scene.guessed(slice(start, start + n)) if one is None else np.asarray(to_numpy(one.rows))
        if rows is None:
            return AttackOutcome(name, reason=reasons[0]), None
        parts.append(rows)
        start += n
    rows = np.concatenate(parts)
    if not np.isfinite(rows).all():
        return AttackOutcome(name, reason="The attack gave numbers that are not finite."), None
    notes = dict.fromkeys(note for one in found if one is not None for note in one.notes)
    if reasons:
        notes[f"guessed without the upload for {len(reasons)} of {len(views)} targets: {reasons[0]}"] = None
    return AttackOutcome(name, scene.figures(rows), notes=(*notes, *scene.notes(rows))), rows


def _is_linear_algebra(problem: Exception) -> bool:
    """Whether NumPy or torch could not factorise a matrix; torch's error is not NumPy's, nor one to import."""
    return type(problem).__name__.strip("_") == "LinAlgError"
