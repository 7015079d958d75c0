"""Run attacks on a simulated collaboration and measure what each recovered, beside chance, control and floor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from mooring.attacks import REGISTRY, CollusionView, DoesNotApply, Reconstruction, denoise, run_batch
from mooring.audit.evaluator import LeakageEvaluator
from mooring.audit.result import HEADLINE, AttackOutcome, find_strongest
from mooring.audit.simulation import Simulation
from mooring.audit.specification import AuditSettings
from mooring.errors import MissingExtraError
from mooring.geometry.backend import namespace_of, to_numpy
from mooring.randomness import require_generator
from mooring.tables import Partition
from mooring.typing import Array, Matrix

DENOISED = " + denoising"
_N_AUDITED = 3


@dataclass(frozen=True, eq=False)
class Attempt:
    """One attack on one view: what it rebuilt, or why it rebuilt nothing.

    Attributes
    ----------
    attack : str
    is_denoised : bool
        Whether the rebuilt rows were replaced by their posterior mean.
    found : Reconstruction or None
    outcome : {"ran", "did not apply", "failed"}
        An attack fails where a matrix cannot be factorised, or the rebuilt rows are not finite.
    reason : str
        Why there is nothing; empty where there is.
    """

    attack: str
    is_denoised: bool
    found: Reconstruction | None
    outcome: Literal["ran", "did not apply", "failed"] = "ran"
    reason: str = ""


def run_attack(name: str, view: CollusionView, *, rng: np.random.Generator) -> Iterator[Attempt]:
    """Run an attack on a view; where it gives rows, denoise them as well.

    Parameters
    ----------
    name : str
        A name in `mooring.attacks.REGISTRY`.
    view : CollusionView
    rng : numpy.random.Generator

    Yields
    ------
    Attempt
        The attack as it is; and the denoised one, if the first gave rows.
    """
    require_generator(rng)
    (plain,) = _attempted(name, False, lambda: (REGISTRY[name](view, rng=rng),))
    yield plain
    if plain.found is not None:
        yield run_denoising(name, plain.found, view)


def run_attack_batch(name: str, views: Sequence[CollusionView], *, rng: np.random.Generator) -> tuple[Attempt, ...]:
    """Run an attack on many draws at once, as `mooring.attacks.run_batch` does.

    Parameters
    ----------
    name : str
        A name in `mooring.attacks.REGISTRY`.
    views : sequence of CollusionView
    rng : numpy.random.Generator

    Returns
    -------
    tuple of Attempt
        One a view; where a batch breaks down, all of its attempts say so.
    """
    require_generator(rng)
    return _attempted(name, False, lambda: run_batch(name, views, rng=rng), len(views))


def run_denoising(name: str, found: Reconstruction, view: CollusionView) -> Attempt:
    """Denoise what an attack rebuilt of the target's upload in a view.

    Parameters
    ----------
    name : str
        The attack's.
    found : Reconstruction
    view : CollusionView
    """
    return _attempted(name, True, lambda: (denoise(found, view),))[0]


def _attempted(
    name: str, is_denoised: bool, attack: Callable[[], tuple[Reconstruction, ...]], n_views: int = 1
) -> tuple[Attempt, ...]:
    try:
        found = attack()
    except DoesNotApply as why:
        return (Attempt(name, is_denoised, None, "did not apply", why.reason),) * n_views
    except Exception as problem:
        # torch's error is not NumPy's, nor one to import
        if type(problem).__name__.strip("_") != "LinAlgError":
            raise
        reason = "The arithmetic broke down: a matrix could not be factorised."
        return (Attempt(name, is_denoised, None, "failed", reason),) * n_views
    return tuple(
        Attempt(name, is_denoised, one)
        if _is_finite(one.rows)
        else Attempt(name, is_denoised, None, "failed", "The rebuilt rows are not finite.")
        for one in found
    )


def _is_finite(rows: Array) -> bool:
    xp = namespace_of(rows)
    return bool(xp.all(xp.isfinite(rows)))


def measure_leakage(
    simulation: Simulation, partition: Partition, settings: AuditSettings
) -> tuple[tuple[AttackOutcome, ...], dict[str, Any] | None]:
    """Run every attack on every target, plain and denoised.

    Parameters
    ----------
    simulation : Simulation
        Of the training rows of `partition`.
    partition : Partition
        Its test rows fill galleries, and are the held-out records of known persons for identity linkage.
    settings : AuditSettings
        With targets named.

    Returns
    -------
    tuple of AttackOutcome, and examples of the strongest attack's rows or None
    """
    views = [
        simulation.view(
            settings.colluders,
            target,
            n_known_rows=settings.n_known_rows,
            n_repeated_uploads=settings.n_repeated_uploads,
        )
        for target in settings.targets or ()
    ]
    evaluator = LeakageEvaluator.of(simulation, views, partition, settings.evaluation, seed=settings.seed)
    outcomes: list[AttackOutcome] = []
    rebuilt: dict[str, Matrix] = {}
    for name in settings.attack_names:
        for outcome, rows in _outcomes_of(name, views, evaluator, settings.seed):
            outcomes.append(outcome)
            if rows is not None:
                rebuilt[outcome.attack] = rows
    worst = find_strongest(outcomes)
    if worst is None:
        return tuple(outcomes), None
    for one in _most_telling(outcomes):
        audited = replace(one, figures={**one.figures, **evaluator.auditor_figures(rebuilt[one.attack])})
        outcomes[outcomes.index(one)] = audited
        worst = audited if one is worst else worst
    try:
        seen = replace(worst, figures={**worst.figures, **evaluator.image_figures(rebuilt[worst.attack])})
    except MissingExtraError as missing:  # the other figures are worth having without these two
        seen = replace(worst, notes=(*worst.notes, str(missing)))
    outcomes = [seen if one is worst else one for one in outcomes]
    for measure, (attack, figure) in evaluator.exposure(rebuilt).items():
        k = next(k for k, one in enumerate(outcomes) if one.attack == attack)
        outcomes[k] = replace(outcomes[k], figures={**outcomes[k].figures, measure: figure})
    return tuple(outcomes), evaluator.examples(rebuilt[worst.attack], worst.attack)


def _most_telling(outcomes: Sequence[AttackOutcome]) -> list[AttackOutcome]:
    """The attacks with the least error and the one that links most: those that the auditor looks at."""
    having = [one for one in outcomes if HEADLINE in one.figures]
    chosen = sorted(having, key=lambda one: one.figures[HEADLINE].value)[:_N_AUDITED]
    linking = find_strongest(outcomes, "linkage")
    return chosen if linking is None or any(one is linking for one in chosen) else [*chosen, linking]


def _outcomes_of(
    name: str, views: Sequence[CollusionView], evaluator: LeakageEvaluator, seed: int
) -> list[tuple[AttackOutcome, Matrix | None]]:
    attempts = [list(run_attack(name, view, rng=np.random.default_rng([seed, 3, k]))) for k, view in enumerate(views)]
    plain = [one[0] for one in attempts]
    reasons = [one.reason for one in plain if one.found is None]
    if len(reasons) == len(views):
        return [(AttackOutcome(name, reason=reasons[0]), None)]
    results = [_measured(name, plain, evaluator, reasons)]
    last = [one[-1] for one in attempts]  # denoised, or the attack itself where it rebuilt nothing
    if any(one.is_denoised and one.found is None for one in last):
        return results
    return [*results, _measured(name + DENOISED, last, evaluator, reasons)]


def _measured(
    name: str, attempts: Sequence[Attempt], evaluator: LeakageEvaluator, reasons: Sequence[str]
) -> tuple[AttackOutcome, Matrix | None]:
    """Figures over all targets; where the attack does not apply to one of them, the attacker guesses without the upload."""
    parts = []
    for own, one in zip(evaluator.target_slices, attempts, strict=True):
        rows = evaluator.guessed(own) if one.found is None else np.asarray(to_numpy(one.found.rows))
        if rows is None:
            return AttackOutcome(name, reason=reasons[0]), None
        parts.append(rows)
    rows = np.concatenate(parts)
    notes = dict.fromkeys(note for one in attempts if one.found is not None for note in one.found.notes)
    if reasons:
        notes[f"guessed without the upload for {len(reasons)} of {len(attempts)} targets: {reasons[0]}"] = None
    return AttackOutcome(name, evaluator.figures(rows), notes=(*notes, *evaluator.notes(rows))), rows
