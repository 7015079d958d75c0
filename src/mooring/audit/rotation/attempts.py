"""Attacks on the views of all targets, with and without each denoiser, and the reason if an attack gives no result."""

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

_SAME = 1e-9  # relative to the largest entry; smaller differences are rounding


@dataclass(frozen=True, eq=False)
class Attempt:
    """The result of one attack on one view: a reconstruction, or the reason why there is none."""

    attack: str
    denoiser: str | None
    """Name of the denoiser that replaced the rebuilt rows by their posterior mean, if there is one."""
    reconstruction: Reconstruction | None
    outcome: Literal["ran", "did not apply", "failed"] = "ran"
    """An attack fails if a matrix cannot be factorised or the rebuilt rows are not finite."""
    reason: str = ""
    """Why there is no reconstruction; empty if there is one."""

    @property
    def name(self) -> str:
        """The names of the attack and of its denoiser, such as 'joint-moments + kernel'."""
        return self.attack if self.denoiser is None else f"{self.attack} + {self.denoiser}"


def run_attack(attack: str | Attack, view: CollusionView, *, rng: np.random.Generator) -> Attempt:
    """Run an attack on a view of uploaded rows and return its result."""
    require_generator(rng)
    attack = resolve_attack(attack)
    return _attempted(attack.name, None, lambda: (attack.function(view, rng=rng),))[0]


def run_attack_batch(
    attack: str | Attack, views: Sequence[CollusionView], *, rng: np.random.Generator
) -> tuple[Attempt, ...]:
    """Run an attack on many views at once, as `mooring.attacks.run_batch` does; if the batch fails, all attempts fail."""
    require_generator(rng)
    attack = resolve_attack(attack)
    return _attempted(attack.name, None, lambda: run_batch(attack, views, rng=rng), len(views))


def run_denoising(
    name: str, reconstruction: Reconstruction, view: CollusionView, denoiser: str, *, rng: np.random.Generator
) -> Attempt:
    """Return the result of a denoiser that is applied to what the attack `name` rebuilt.

    `denoiser` is a name in `DENOISERS`.
    """
    require_generator(rng)
    return _attempted(name, denoiser, lambda: (DENOISERS[denoiser](reconstruction, view, rng=rng),))[0]


def _attempted(
    name: str, denoiser: str | None, attack: Callable[[], tuple[Reconstruction, ...]], n_views: int = 1
) -> tuple[Attempt, ...]:
    try:
        reconstructions = attack()
    except DoesNotApply as why:
        return (Attempt(name, denoiser, None, "did not apply", why.reason),) * n_views
    except Exception as problem:
        # torch has its own LinAlgError, which is not imported here
        if type(problem).__name__.strip("_") != "LinAlgError":
            raise
        reason = "The computation failed: a matrix could not be factorised."
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
    """The results of one attack, with or without one denoiser, on the views of all targets."""

    attempts: tuple[Attempt, ...]
    """The attempts, one per target."""
    plain: tuple[Attempt, ...]
    """The attempts of the same attack without the denoiser."""

    @property
    def name(self) -> str:
        """The names of the attack and of its denoiser, such as 'joint-moments + kernel'."""
        return next(
            (attempt.name for attempt in self.attempts if attempt.reconstruction is not None), self.attempts[0].name
        )

    @property
    def applies(self) -> bool:
        """Whether rows were rebuilt for any target, and for all targets whose rows the attack rebuilds without denoising."""
        pairs = list(zip(self.attempts, self.plain, strict=True))
        some = any(attempt.reconstruction is not None for attempt in self.attempts)
        return some and all(
            attempt.reconstruction is not None or plain.reconstruction is None for attempt, plain in pairs
        )

    @property
    def reasons(self) -> list[str]:
        """The reasons why the attack without a denoiser has no result for some of the targets."""
        return [attempt.reason for attempt in self.plain if attempt.reconstruction is None]

    @property
    def undenoised(self) -> list[Reconstruction]:
        """The reconstructions without a denoiser, for the targets to which the attack applies."""
        return [attempt.reconstruction for attempt in self.plain if attempt.reconstruction is not None]

    @property
    def evidence(self) -> list[Matrix] | None:
        """Log densities of the rows under the denoiser's population model, one per target; None if any target has none."""
        parts = [attempt.reconstruction and attempt.reconstruction.evidence for attempt in self.attempts]
        return None if any(part is None for part in parts) else [to_numpy(part) for part in parts]

    @property
    def records(self) -> Matrix | None:
        """The records that the denoiser decoded for all targets; None if any target has none."""
        parts = [attempt.reconstruction and attempt.reconstruction.records for attempt in self.attempts]
        return None if any(part is None for part in parts) else np.concatenate([to_numpy(part) for part in parts])


@dataclass(frozen=True, eq=False)
class AttackRuns:
    """Runs attacks on the views of all targets, one attack after the other.

    If several attacks rebuild the same rows, as they do if maps are exact, these rows are denoised once. Rows that are no
    better than a guess after the Gaussian denoiser are not denoised further.
    """

    views: Sequence[CollusionView]
    seed: int
    is_hopeless: Callable[[Matrix], bool] | None = None
    """Returns whether the rebuilt rows of all targets have at least the error of a guess; None if this is not known."""
    _denoised: dict[tuple[int, str], list[tuple[Reconstruction, Attempt]]] = field(default_factory=dict, repr=False)

    def run(self, attack: str | Attack) -> list[Rebuilt]:
        """Return the results of an attack without a denoiser, and then with each denoiser."""
        attack = resolve_attack(attack)
        rngs = [np.random.default_rng([self.seed, 3, k]) for k in range(len(self.views))]
        plain = tuple(run_attack(attack, view, rng=rng) for view, rng in zip(self.views, rngs, strict=True))
        rebuilt = [Rebuilt(plain, plain)]
        for denoiser in DENOISERS if rebuilt[0].applies else ():
            attempts = tuple(
                attempt
                if attempt.reconstruction is None
                else self._denoise(k, attack.name, attempt.reconstruction, denoiser, rngs[k])
                for k, attempt in enumerate(plain)
            )
            rebuilt.append(Rebuilt(attempts, plain))
            if denoiser == "gaussian" and rebuilt[-1].applies and self._gives_up(attempts):
                break
        return rebuilt

    def _gives_up(self, attempts: Sequence[Attempt]) -> bool:
        parts = [attempt.reconstruction.rows for attempt in attempts if attempt.reconstruction is not None]
        if self.is_hopeless is None or len(parts) < len(attempts):
            return False
        return self.is_hopeless(np.concatenate([to_numpy(part) for part in parts]))

    def _denoise(
        self, k: int, name: str, reconstruction: Reconstruction, denoiser: str, rng: np.random.Generator
    ) -> Attempt:
        earlier = self._denoised.setdefault((k, denoiser), [])
        for other, attempt in earlier:
            # if maps are exact, only the Gaussian denoiser uses the population that the attack has learnt
            if _are_alike(reconstruction, other) and (
                denoiser != "gaussian" or reconstruction.population is other.population
            ):
                return replace(attempt, attack=name)
        attempt = run_denoising(name, reconstruction, self.views[k], denoiser, rng=rng)
        earlier.append((reconstruction, attempt))
        return attempt


def _are_alike(first: Reconstruction, other: Reconstruction) -> bool:
    """Return whether rows and their errors are equal up to rounding."""
    if first.data_noise_scale != other.data_noise_scale:
        return False
    xp = namespace_of(first.rows)
    errors = [
        xp.zeros_like(first.rows[0, 0]) if error is None else error for error in (first.row_error, other.row_error)
    ]
    gaps = [float(xp.max(xp.abs(a - b))) for a, b in ((first.rows, other.rows), errors)]
    return max(gaps) <= _SAME * float(xp.max(xp.abs(first.rows)))
