"""Run attacks on a simulated collaboration and measure what each recovered, beside chance, control and floor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from mooring.attacks import (
    DENOISERS,
    CollusionView,
    DoesNotApply,
    Reconstruction,
    attacks_on,
    resolve_attack,
    run_batch,
)
from mooring.attacks.registry import Attack
from mooring.audit.evaluator import LeakageEvaluator
from mooring.audit.identification.membership import audit_row_noise
from mooring.audit.result import HEADLINE, AttackOutcome, Leakage, find_strongest
from mooring.audit.simulation import RowSimulation
from mooring.audit.specification import AuditSettings
from mooring.errors import MissingExtraError
from mooring.geometry.backend import namespace_of, to_numpy
from mooring.randomness import require_generator
from mooring.tables import Partition
from mooring.typing import Array, Matrix

_N_AUDITED = 3
_SAME = 1e-9  # of the largest entry: rows that differ by less differ by rounding


@dataclass(frozen=True, eq=False)
class Attempt:
    """One attack on one view: what it rebuilt, or why it rebuilt nothing."""

    attack: str
    denoiser: str | None
    """What replaced the rebuilt rows by their posterior mean, if anything did."""
    found: Reconstruction | None
    outcome: Literal["ran", "did not apply", "failed"] = "ran"
    """An attack fails where a matrix cannot be factorised, or the rebuilt rows are not finite."""
    reason: str = ""
    """Why there is nothing; empty where there is."""

    @property
    def name(self) -> str:
        """The attack and what denoised its rows, such as 'joint-moments + kernel'."""
        return self.attack if self.denoiser is None else f"{self.attack} + {self.denoiser}"


def run_attack(attack: str | Attack, view: CollusionView, *, rng: np.random.Generator) -> Attempt:
    """Run an attack on a view of uploaded rows."""
    require_generator(rng)
    attack = resolve_attack(attack)
    return _attempted(attack.name, None, lambda: (attack.function(view, rng=rng),))[0]


def run_attack_batch(
    attack: str | Attack, views: Sequence[CollusionView], *, rng: np.random.Generator
) -> tuple[Attempt, ...]:
    """Run an attack on many draws at once, as `mooring.attacks.run_batch` does.

    Returns
    -------
    tuple of Attempt
        One per view; where a batch breaks down, all of its attempts say so.
    """
    require_generator(rng)
    attack = resolve_attack(attack)
    return _attempted(attack.name, None, lambda: run_batch(attack, views, rng=rng), len(views))


def run_denoising(
    name: str, found: Reconstruction, view: CollusionView, denoiser: str, *, rng: np.random.Generator
) -> Attempt:
    """Denoise what an attack rebuilt of the target's upload in a view.

    Parameters
    ----------
    name : str
        The attack's.
    denoiser : str
        A name in `mooring.attacks.DENOISERS`.
    """
    require_generator(rng)
    return _attempted(name, denoiser, lambda: (DENOISERS[denoiser](found, view, rng=rng),))[0]


def _attempted(
    name: str, denoiser: str | None, attack: Callable[[], tuple[Reconstruction, ...]], n_views: int = 1
) -> tuple[Attempt, ...]:
    try:
        found = attack()
    except DoesNotApply as why:
        return (Attempt(name, denoiser, None, "did not apply", why.reason),) * n_views
    except Exception as problem:
        # torch's error is not NumPy's, nor one to import
        if type(problem).__name__.strip("_") != "LinAlgError":
            raise
        reason = "The arithmetic broke down: a matrix could not be factorised."
        return (Attempt(name, denoiser, None, "failed", reason),) * n_views
    return tuple(
        Attempt(name, denoiser, one)
        if _is_finite(one.rows)
        else Attempt(name, denoiser, None, "failed", "The rebuilt rows are not finite.")
        for one in found
    )


def _is_finite(rows: Array) -> bool:
    xp = namespace_of(rows)
    return bool(xp.all(xp.isfinite(rows)))


def measure_rows(simulation: RowSimulation, partition: Partition, settings: AuditSettings) -> Leakage:
    """Run every attack on every target's upload of rows, plain and through every denoiser.

    Test rows of the partition fill galleries, and are the held-out records of known persons for identity linkage. The
    settings must name the targets.
    """
    outcomes, examples = _measure_outcomes(simulation, partition, settings)
    return Leakage(outcomes, examples=examples, epsilon=audit_row_noise(simulation))


def _measure_outcomes(
    simulation: RowSimulation, partition: Partition, settings: AuditSettings
) -> tuple[tuple[AttackOutcome, ...], dict[str, Any] | None]:
    """What each attack recovered, and examples of the strongest attack's rows or None."""
    n_known, n_repeated = settings.n_known_rows, settings.n_repeated_uploads
    shown = [
        simulation.view(settings.colluders, target, n_known_rows=n_known, n_repeated_uploads=n_repeated)
        for target in settings.targets or ()
    ]
    columns, effort = settings.evaluation.columns, settings.effort
    views = [replace(view, columns=view.columns or columns, effort=effort) for view in shown]
    evaluator = LeakageEvaluator.of(simulation, views, partition, settings.evaluation, seed=settings.seed)
    outcomes: list[AttackOutcome] = []
    rebuilt: dict[str, Matrix] = {}
    attempts = AttemptLog(views, settings.seed, evaluator)
    for attack in attacks_on(CollusionView, settings.attacks):
        for outcome, rows in _outcomes_of(attack, attempts, evaluator):
            outcomes.append(outcome)
            if rows is not None:
                rebuilt[outcome.attack] = rows
    worst = find_strongest(outcomes)
    if worst is None:
        return tuple(outcomes), None
    outcomes = _with_membership(outcomes, attempts, evaluator)
    worst = find_strongest(outcomes)
    assert worst is not None
    for one in _most_telling(outcomes):
        audited = replace(one, figures={**one.figures, **evaluator.auditor_figures(rebuilt[one.attack])})
        outcomes[outcomes.index(one)] = audited
        worst = audited if one is worst else worst
    try:
        seen = replace(worst, figures={**worst.figures, **evaluator.image_figures(rebuilt[worst.attack])})
    except MissingExtraError as missing:  # the other figures are worth having without these two
        seen = replace(worst, notes=(*worst.notes, str(missing)))
    outcomes = [seen if one is worst else one for one in outcomes]
    uploaded = np.concatenate([to_numpy(view.target_upload.representation) for view in views])
    for measure, (name, figure) in evaluator.exposure(rebuilt, uploaded, attempts.records).items():
        if name not in rebuilt:  # rows as they were uploaded, which no attack has changed
            outcomes.append(AttackOutcome(name, {measure: figure}))
            continue
        k = next(k for k, one in enumerate(outcomes) if one.attack == name)
        outcomes[k] = replace(outcomes[k], figures={**outcomes[k].figures, measure: figure})
    return tuple(outcomes), evaluator.examples(rebuilt[worst.attack], worst.attack)


def _most_telling(outcomes: Sequence[AttackOutcome]) -> list[AttackOutcome]:
    """The attacks with the least error and the one that links most: those that the auditor looks at."""
    having = [one for one in outcomes if HEADLINE in one.figures]
    chosen = sorted(having, key=lambda one: one.figures[HEADLINE].value)[:_N_AUDITED]
    linking = find_strongest(outcomes, "linkage")
    return chosen if linking is None or any(one is linking for one in chosen) else [*chosen, linking]


def _with_membership(
    outcomes: Sequence[AttackOutcome], attempts: AttemptLog, evaluator: LeakageEvaluator
) -> list[AttackOutcome]:
    """The same outcomes, some with what the attack's rows tell by likelihood, before they are denoised.

    Those of the most telling attacks, and of attacks that learn the population on the way; denoised ones by the density that
    the denoiser has fitted to the population.
    """
    test, n_views = evaluator.membership, len(evaluator.target_slices)
    telling = {one.attack for one in _most_telling(outcomes)}
    learning = {name for name, found in attempts.plain.items() if any(one.population is not None for one in found)}
    measured = []
    for one in outcomes:
        base = one.attack.partition(" + ")[0]
        found, evidence = attempts.plain.get(base, []), attempts.evidence.get(one.attack)
        is_asked = base in learning or one.attack in telling or any(name.startswith(f"{base} + ") for name in telling)
        if test is not None and is_asked and len(found) == n_views and (one.attack == base or evidence is not None):
            one = test.measure(one, found, evidence)
        measured.append(one)
    return measured


@dataclass(frozen=True, eq=False)
class AttemptLog:
    """Attacks on every view, plain and denoised.

    Rows that another attack rebuilt alike, as all do where maps are exact, are denoised once. Rows that the Gaussian leaves
    no better than a guess are not denoised further.
    """

    views: Sequence[CollusionView]
    seed: int
    evaluator: LeakageEvaluator | None = None
    plain: dict[str, list[Reconstruction]] = field(default_factory=dict)
    evidence: dict[str, list[Matrix]] = field(default_factory=dict)
    records: dict[str, Matrix] = field(default_factory=dict)
    _denoised: dict[tuple[int, str], list[tuple[Reconstruction, Attempt]]] = field(default_factory=dict)

    def run(self, attack: str | Attack) -> list[list[Attempt]]:
        """The attack by itself on every view, and then through each denoiser; some attempts may have found nothing."""
        attack = resolve_attack(attack)
        name = attack.name
        rngs = [np.random.default_rng([self.seed, 3, k]) for k in range(len(self.views))]
        plain = [run_attack(attack, view, rng=rng) for view, rng in zip(self.views, rngs, strict=True)]
        self.plain[name] = [one.found for one in plain if one.found is not None]
        attempts = [plain]
        for denoiser in DENOISERS if any(one.found is not None for one in plain) else ():
            one_each = [
                one if one.found is None else self._denoise(k, name, one.found, denoiser, rngs[k])
                for k, one in enumerate(plain)
            ]
            attempts.append(one_each)
            if _applies_alike(plain, one_each):
                evidence = [one.found and one.found.evidence for one in one_each]
                if all(one is not None for one in evidence):
                    self.evidence[one_each[0].name] = [to_numpy(one) for one in evidence]
                records = [one.found.records for one in one_each if one.found and one.found.records is not None]
                if len(records) == len(one_each):
                    self.records[one_each[0].name] = np.concatenate([to_numpy(part) for part in records])
                if denoiser == "gaussian" and self._is_hopeless(one_each):
                    break
        return attempts

    def _is_hopeless(self, attempts: Sequence[Attempt]) -> bool:
        """Whether the rows are no nearer to the true ones than the mean of their class."""
        if self.evaluator is None or self.evaluator.guess is None or any(one.found is None for one in attempts):
            return False
        rows = np.concatenate([to_numpy(one.found.rows) for one in attempts if one.found is not None])
        truth, guess = self.evaluator.truth, self.evaluator.guess.by_class
        return float(((rows - truth) ** 2).sum()) >= float(((guess - truth) ** 2).sum())

    def _denoise(self, k: int, name: str, found: Reconstruction, denoiser: str, rng: np.random.Generator) -> Attempt:
        earlier = self._denoised.setdefault((k, denoiser), [])
        for other, attempt in earlier:
            # only the Gaussian goes by the population that the attack learnt, where maps are exact
            if _are_alike(found, other) and (denoiser != "gaussian" or found.population is other.population):
                return replace(attempt, attack=name)
        attempt = run_denoising(name, found, self.views[k], denoiser, rng=rng)
        earlier.append((found, attempt))
        return attempt


def _are_alike(one: Reconstruction, other: Reconstruction) -> bool:
    """Whether rows and their errors are the same but for rounding."""
    if one.data_noise_scale != other.data_noise_scale:
        return False
    xp = namespace_of(one.rows)
    errors = [xp.zeros_like(one.rows[0, 0]) if error is None else error for error in (one.row_error, other.row_error)]
    gaps = [float(xp.max(xp.abs(a - b))) for a, b in ((one.rows, other.rows), errors)]
    return max(gaps) <= _SAME * float(xp.max(xp.abs(one.rows)))


def _outcomes_of(
    attack: Attack, attempts: AttemptLog, evaluator: LeakageEvaluator
) -> list[tuple[AttackOutcome, Matrix | None]]:
    plain, *denoised = attempts.run(attack)
    reasons = [one.reason for one in plain if one.found is None]
    if len(reasons) == len(plain):
        return [(AttackOutcome(attack.name, reason=reasons[0]), None)]
    alike = [one_each for one_each in denoised if _applies_alike(plain, one_each)]
    return [_measured(one_each, evaluator, reasons) for one_each in (plain, *alike)]


def _applies_alike(plain: Sequence[Attempt], denoised: Sequence[Attempt]) -> bool:
    """Whether a denoiser found something wherever the attack by itself did."""
    return all(two.found is not None or one.found is None for one, two in zip(plain, denoised, strict=True))


def _measured(
    attempts: Sequence[Attempt], evaluator: LeakageEvaluator, reasons: Sequence[str]
) -> tuple[AttackOutcome, Matrix | None]:
    """Figures over all targets; where the attack does not apply to one of them, the attacker guesses without the upload."""
    name = next(one.name for one in attempts if one.found is not None)
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
