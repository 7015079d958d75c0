"""Attacks on the views of all targets: run by itself and through every denoiser, with a reason where one gave nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from mooring.attacks import DENOISERS, CollusionView, DoesNotApply, Reconstruction, resolve_attack, run_batch
from mooring.attacks.registry import Attack
from mooring.geometry.backend import namespace_of, to_numpy
from mooring.randomness import require_generator
from mooring.typing import Array, Matrix

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
        reconstructions = attack()
    except DoesNotApply as why:
        return (Attempt(name, denoiser, None, "did not apply", why.reason),) * n_views
    except Exception as problem:
        # torch's error is not NumPy's, nor one to import
        if type(problem).__name__.strip("_") != "LinAlgError":
            raise
        reason = "The arithmetic broke down: a matrix could not be factorised."
        return (Attempt(name, denoiser, None, "failed", reason),) * n_views
    return tuple(
        Attempt(name, denoiser, reconstruction)
        if _is_finite(reconstruction.rows)
        else Attempt(name, denoiser, None, "failed", "The rebuilt rows are not finite.")
        for reconstruction in reconstructions
    )


def _is_finite(rows: Array) -> bool:
    xp = namespace_of(rows)
    return bool(xp.all(xp.isfinite(rows)))


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """What one attack, by itself or through one denoiser, gave on the view of every target."""

    attempts: tuple[Attempt, ...]
    """One for each target."""
    plain: tuple[Attempt, ...]
    """The same attack before its rows were denoised."""

    @property
    def name(self) -> str:
        """The attack and what denoised its rows, such as 'joint-moments + kernel'."""
        return next((attempt.name for attempt in self.attempts if attempt.found is not None), self.attempts[0].name)

    @property
    def applies(self) -> bool:
        """Whether there are rows of some target, and of all to which the attack by itself applies."""
        pairs = list(zip(self.attempts, self.plain, strict=True))
        some = any(attempt.found is not None for attempt in self.attempts)
        return some and all(attempt.found is not None or plain.found is None for attempt, plain in pairs)

    @property
    def reasons(self) -> list[str]:
        """Why the attack by itself does not apply to some of the targets."""
        return [attempt.reason for attempt in self.plain if attempt.found is None]

    @property
    def undenoised(self) -> list[Reconstruction]:
        """What the attack by itself found, for the targets to which it applies."""
        return [attempt.found for attempt in self.plain if attempt.found is not None]

    @property
    def evidence(self) -> list[Matrix] | None:
        """Log densities of the rows under the denoiser's model of the population, for each target; None without them."""
        parts = [attempt.found and attempt.found.evidence for attempt in self.attempts]
        return None if any(part is None for part in parts) else [to_numpy(part) for part in parts]

    @property
    def records(self) -> Matrix | None:
        """The records that the denoiser decoded, of all targets; None without them."""
        parts = [attempt.found and attempt.found.records for attempt in self.attempts]
        return None if any(part is None for part in parts) else np.concatenate([to_numpy(part) for part in parts])


@dataclass(frozen=True, eq=False)
class AttackRuns:
    """Runs attacks on the views of all targets, one attack after the other.

    Rows that another attack rebuilt alike, as all do where maps are exact, are denoised once. Rows that the Gaussian leaves
    no better than a guess are not denoised further.
    """

    views: Sequence[CollusionView]
    seed: int
    is_hopeless: Callable[[Matrix], bool] | None = None
    """Whether rows of all targets are no nearer to the true ones than a guess; None where nobody knows."""
    _denoised: dict[tuple[int, str], list[tuple[Reconstruction, Attempt]]] = field(default_factory=dict)

    def run(self, attack: str | Attack) -> list[Rebuilt]:
        """The attack by itself, and then through each denoiser."""
        attack = resolve_attack(attack)
        rngs = [np.random.default_rng([self.seed, 3, k]) for k in range(len(self.views))]
        plain = tuple(run_attack(attack, view, rng=rng) for view, rng in zip(self.views, rngs, strict=True))
        rebuilt = [Rebuilt(plain, plain)]
        for denoiser in DENOISERS if rebuilt[0].applies else ():
            attempts = tuple(
                attempt if attempt.found is None else self._denoise(k, attack.name, attempt.found, denoiser, rngs[k])
                for k, attempt in enumerate(plain)
            )
            rebuilt.append(Rebuilt(attempts, plain))
            if denoiser == "gaussian" and rebuilt[-1].applies and self._gives_up(attempts):
                break
        return rebuilt

    def _gives_up(self, attempts: Sequence[Attempt]) -> bool:
        parts = [attempt.found.rows for attempt in attempts if attempt.found is not None]
        if self.is_hopeless is None or len(parts) < len(attempts):
            return False
        return self.is_hopeless(np.concatenate([to_numpy(part) for part in parts]))

    def _denoise(
        self, k: int, name: str, reconstruction: Reconstruction, denoiser: str, rng: np.random.Generator
    ) -> Attempt:
        earlier = self._denoised.setdefault((k, denoiser), [])
        for other, attempt in earlier:
            # only the Gaussian goes by the population that the attack learnt, where maps are exact
            if _are_alike(reconstruction, other) and (
                denoiser != "gaussian" or reconstruction.population is other.population
            ):
                return replace(attempt, attack=name)
        attempt = run_denoising(name, reconstruction, self.views[k], denoiser, rng=rng)
        earlier.append((reconstruction, attempt))
        return attempt


def _are_alike(first: Reconstruction, other: Reconstruction) -> bool:
    """Whether rows and their errors are the same but for rounding."""
    if first.data_noise_scale != other.data_noise_scale:
        return False
    xp = namespace_of(first.rows)
    errors = [
        xp.zeros_like(first.rows[0, 0]) if error is None else error for error in (first.row_error, other.row_error)
    ]
    gaps = [float(xp.max(xp.abs(a - b))) for a, b in ((first.rows, other.rows), errors)]
    return max(gaps) <= _SAME * float(xp.max(xp.abs(first.rows)))
