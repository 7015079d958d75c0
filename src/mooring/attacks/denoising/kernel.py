"""Kernel denoising, in which the prior of a class is a mixture of Gaussians at the rows that the attacker has.

Legend: N = σ² I + E the covariance of the rebuilt rows' error; μ, Σ mean and covariance of a class.

The prior of a class is a mixture of Gaussians, one at each atom a_j. Atoms are shrunk to the mean, a_j ↦ μ + c (a_j − μ),
and each Gaussian has the covariance L = Σ − c² K, where K is the covariance of the atoms. For x̂ = x + ε, S = L + N and
ā = Σ_j w_j a_j with w_j ∝ exp(−½ (x̂ − a_j)ᵀ S⁻¹ (x̂ − a_j)), the posterior mean is

    E[x | x̂] = ā + L S⁻¹ (x̂ − ā).

There are two sets of atoms. The first set are known rows (public ones and the colluders'), with K = Σ, so that L =
(1 − c²) Σ. The second set are rows of other participants whose maps are known exactly, after denoising by the Gaussian of
the class, with K = Σ (Σ + σ² I)⁻¹ Σ. If many rows are known, an atom of the first set may instead be the mean of a row and
its nearest neighbours, with their covariance plus a little of Σ as L: the prior then follows the local shape of the class.
This choice, each set's c² and the number of neighbours are selected by Stein's unbiased estimate of the risk of
f = E[x | x̂],

    ‖x̂ − f‖² + 2 tr(N ∂f/∂x̂) − tr N,

which needs no true row. c² = 0 leaves a set out; if both sets are left out, a class is a Gaussian. The trace is exact: with
f = x̂ + N ∇ log p(x̂) it follows from a Laplacian. Everything is computed in coordinates in which N = I. If the target's
class means differ from those of other participants (`Population.estimate_shift`), atoms move to the target's means if that
lowers the estimated risk. Moving need not lower the risk, because class means also differ where participants have the same
kinds of rows in different proportions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np

from mooring.attacks.alignment_map import map_back_exactly
from mooring.attacks.class_moments import ClassMoments
from mooring.attacks.denoising.gaussian import Population, fit_population, fit_to_noisy_rows, split_error
from mooring.attacks.denoising.mixtures import (
    Atoms,
    Density,
    LocalShapes,
    Neighbourhoods,
    find_local_shapes,
    find_neighbourhoods,
    mix_atoms,
    mix_neighbourhoods,
)
from mooring.attacks.effort import Effort, current_effort
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction
from mooring.attacks.view import Codes, CollusionView
from mooring.geometry.backend import identity_like, indices_beside, namespace_of, solve
from mooring.randomness import require_generator
from mooring.typing import Array

ShapesByClass = dict[int, dict[int, LocalShapes]]
"""Local shapes of known rows, by class and number of neighbours."""
_FOLDS = 2
_MOST_SCORED = 600
_MOST_ATOMS = 4096  # per class
_SHARE_OF_FEW = 0.6  # c² of a class with too few known rows for neighbours
_TARGET = -1  # the fold that leaves out only the target


def denoise_by_kernels(
    reconstruction: Reconstruction,
    view: CollusionView,
    *,
    rng: np.random.Generator,
    shapes: ShapesByClass | None = None,
) -> Reconstruction:
    """Return rebuilt rows replaced by their posterior mean under a mixture of Gaussians for each class.

    The denoiser does not apply if the rows carry no known error in some direction, if there are no rows to use as atoms, or
    if the attack learnt the population without classes. `shapes` keeps the local shapes of known rows for later calls with
    the same view; errors must then be the same in all directions.
    """
    require_generator(rng)
    rows = reconstruction.rows
    xp = namespace_of(rows)
    noise, map_error = split_error(reconstruction, view)
    values, axes = xp.linalg.eigh(noise + map_error)
    if float(xp.min(values)) <= 1e-9 * float(xp.max(values)):
        raise DoesNotApply("In some directions the rebuilt rows carry no error, so atoms cannot be weighted.")
    whiten, unwhiten = ((axes * power) @ axes.T for power in (values**-0.5, values**0.5))
    prior = replace(KernelPrior.of(reconstruction, view, whiten), shapes=shapes, scale=float(values[0]) ** 0.5)
    scaled = rows @ whiten
    errors = {"noise": whiten @ noise @ whiten, "map_error": whiten @ map_error @ whiten}
    shift = prior.populations[_TARGET].estimate_shift(scaled, prior.codes, **errors)
    differs = float(xp.max(xp.abs(shift))) > 0
    tried = [prior.denoise(scaled, move, alone=differs) for move in (0 * shift, *([shift] if differs else []))]
    best = min(tried, key=lambda result: result.risk)
    shares, result, evidence = best.shares, best.rows @ unwhiten, best.evidence
    known = f"c² = {shares[0]:g}" if shares[0] <= 1 else f"{shares[0]} neighbours"
    note = f"kernels: {known} of known rows, {shares[1]:g} of others'"
    return replace(reconstruction, rows=result, evidence=evidence, notes=(*reconstruction.notes, note))


@dataclass(frozen=True, eq=False)
class Denoised:
    """The target's rows, denoised with one choice of kernels."""

    rows: Array
    evidence: Array
    """Log density of each row."""
    shares: tuple[float, float]
    """The shares, as for `KernelPrior.combined`."""
    risk: float
    """Stein's estimate of the risk over the target's rows."""


@dataclass(frozen=True, eq=False)
class KernelPrior:
    """Atoms, means and covariances of every class, in coordinates in which the error's covariance is the identity."""

    codes: Codes
    """Classes of the target's rows, of shape (n,)."""
    known: Mapping[int, Atoms]
    """Known rows, by class."""
    others: Mapping[int, Atoms]
    """Noisy rows of other participants, by class."""
    noise: Array
    """Covariance of the other participants' noise, of shape (h, h)."""
    populations: Mapping[int, Population]
    """Populations by fold of participants, fitted to all rows except the target's and those of the fold. Fold −1 leaves out
    only the target."""
    effort: Effort = field(default_factory=current_effort)
    """Holds the shares that are tried."""
    shapes: ShapesByClass | None = None
    """Local shapes without noise that earlier calls found. Only set if the error is the same in all directions."""
    scale: float = 1.0
    """The scale of the error, which `shapes` are used with."""
    _near: dict[int, dict[int, Neighbourhoods]] = field(default_factory=dict, repr=False)
    """Neighbourhoods by class and number of neighbours."""

    @classmethod
    def of(cls, reconstruction: Reconstruction, view: CollusionView, whiten: Array) -> KernelPrior:
        """Return the atoms and the fitted classes. `whiten` turns the error of rebuilt rows into a standard normal one."""
        codes, population = fit_population(reconstruction, view)
        if not np.array_equal(codes, view.codes_of([view.target])):
            raise DoesNotApply("The population was learnt without classes, which kernels need.")
        theirs = {i: rows for i, rows in map_back_exactly(view).items() if i != view.target}
        if not theirs:
            return cls._whitened(view, codes, {}, {_TARGET: population}, whiten)
        their_codes = [view.codes_of([i]) for i in theirs]
        known_codes = view.reference_codes()
        n_classes = 1 + max(int(part.max()) for part in (codes, known_codes, *their_codes))
        known = ClassMoments.of(view.reference_rows, known_codes, n_classes)
        pairs = zip(theirs.values(), their_codes, strict=True)
        seen = [ClassMoments.of(rows, row_codes, n_classes) for rows, row_codes in pairs]
        populations = {}
        for fold in (_TARGET, *range(_FOLDS if len(seen) > 1 else 0)):
            kept = [part for place, part in enumerate(seen) if place % _FOLDS != fold]
            noisy = reduce(ClassMoments.merged, kept)
            populations[fold] = fit_to_noisy_rows(known, noisy, view.data_noise_scale**2)
        return cls._whitened(view, codes, theirs, populations, whiten)

    @classmethod
    def _whitened(
        cls,
        view: CollusionView,
        codes: Codes,
        theirs: Mapping[int, Array],
        populations: Mapping[int, Population],
        whiten: Array,
    ) -> KernelPrior:
        classes = np.unique(codes)
        owners = np.concatenate(
            [np.zeros(0, np.intp), *(np.full(r.shape[0], k) for k, r in enumerate(theirs.values()))]
        )
        others = {}
        if theirs:
            pooled = namespace_of(whiten).concat(list(theirs.values()), axis=0)
            others = _by_class(pooled @ whiten, view.codes_of(list(theirs)), owners, classes)
        known_codes = view.reference_codes()
        return cls(
            codes,
            _by_class(view.reference_rows @ whiten, known_codes, np.zeros_like(known_codes), classes),
            others,
            view.data_noise_scale**2 * whiten @ whiten,
            {fold: population.transformed_by(whiten) for fold, population in populations.items()},
            view.effort,
        )

    def denoise(self, rows: Array, shift: Array, *, alone: bool) -> Denoised:
        """Return the target's whitened rows, denoised with the shares of the lowest estimated risk. Atoms move by `shift`.

        If `alone`, the risk is estimated from the target's rows alone.
        """
        xp, unshifted = namespace_of(rows), rows - shift
        shares = self.choose_shares(unshifted, alone=alone)
        result, evidence, risk = xp.empty_like(rows), xp.empty_like(rows[:, 0]), 0.0
        for k in np.unique(self.codes):
            members = indices_beside(np.flatnonzero(self.codes == k), rows)
            density = self.combined(int(k), unshifted[members, :], *shares)
            result[members, :] = rows[members, :] + density.gradient
            evidence[members] = density.log_value - float(np.log(self.count_atoms(int(k), *shares)))
            risk += density.risk()
        return Denoised(result, evidence, shares, risk)

    def combined(self, k: int, rows: Array, of_known: float, of_others: float) -> Density:
        """Return the density of class k at whitened rows; without atoms, that of the Gaussian.

        `of_known` and `of_others` are the shares c² of known and of other participants' rows; 0 leaves a set out. Above 1,
        `of_known` is the number of neighbours.
        """
        return _sum(self._known(k, rows, of_known), self._others(k, rows, of_others, None)) or self._gaussian(k, rows)

    def count_atoms(self, k: int, of_known: float, of_others: float) -> int:
        """Return the number of atoms of class k with these shares; 1 for the Gaussian."""
        known = self.known[k].owners.size if of_known > 0 and k in self.known else 0
        return known + (self.others[k].owners.size if of_others > 0 and k in self.others else 0) or 1

    def choose_shares(self, rows: Array, *, alone: bool = False) -> tuple[float, float]:
        """Return the shares with the lowest estimated risk; with `alone`, only the target's rows enter the estimate."""
        of_known = self.effort.known_shares if self.known else (0.0,)
        of_others = self.effort.other_shares if self.others else (0.0,)
        if len(of_known) == len(of_others) == 1:
            return of_known[0], of_others[0]
        risks = np.zeros((len(of_known), len(of_others)))
        for k, scored, owners, fold in self._scored(rows, alone=alone):
            gaussian = self._gaussian(k, scored, fold)
            theirs = [self._others(k, scored, share, owners, fold) for share in of_others]
            for i, share in enumerate(of_known):
                known = self._known(k, scored, share, fold)
                risks[i] += [(_sum(known, density) or gaussian).risk() for density in theirs]
        best, theirs_best = np.unravel_index(int(risks.argmin()), risks.shape)
        return of_known[int(best)], of_others[int(theirs_best)]

    def _scored(self, rows: Array, *, alone: bool) -> Iterator[tuple[int, Array, Codes, int]]:
        """Yield the rows by which shares are compared: each time a class, rows, their owners, and the fold to leave out.

        The rows are the target's and, unless `alone`, those of other participants if their noise equals the target's error.
        """
        folds = [fold for fold in self.populations if fold != _TARGET and self._has_same_noise and not alone]
        n_others = sum(atoms.owners.size for atoms in self.others.values()) if folds else 0
        step = 1 + n_others // _MOST_SCORED
        for k in np.unique(self.codes):
            members = np.flatnonzero(self.codes == k)
            yield int(k), rows[indices_beside(members, rows), :], np.full(members.size, _TARGET), _TARGET
            for fold in folds if int(k) in self.others else ():
                atoms = self.others[int(k)]
                chosen = np.flatnonzero(atoms.owners % _FOLDS == fold)[::step]
                if chosen.size:
                    yield int(k), atoms.rows[indices_beside(chosen, rows), :], atoms.owners[chosen], fold

    def _moments(self, k: int, fold: int) -> tuple[Array, Array]:
        population = self.populations[fold]
        return population.means[k, ...], population.covariances[k, ...]

    @property
    def _has_same_noise(self) -> bool:
        xp = namespace_of(self.noise)
        return float(xp.max(xp.abs(self.noise - identity_like(self.noise)))) < 1e-6

    def _gaussian(self, k: int, rows: Array, fold: int = _TARGET) -> Density:
        mean, covariance = self._moments(k, fold)
        return mix_atoms(rows, Atoms(mean[None, :], np.zeros(1, dtype=np.intp)), covariance, None)

    def _known(self, k: int, rows: Array, share: float, fold: int = _TARGET) -> Density | None:
        if share == 0 or k not in self.known:
            return None
        if share > 1:
            if k not in self._near:
                self._near[k] = self._find_near(k)
            if int(share) in self._near[k]:
                near = self._near[k][int(share)]
                density = mix_neighbourhoods(rows, near)
                thinned = self.known[k].owners.size / near.means.shape[0]
                return replace(density, log_value=density.log_value + float(np.log(thinned)))
            share = _SHARE_OF_FEW
        mean, covariance = self._moments(k, fold)
        atoms = replace(self.known[k], rows=mean + share**0.5 * (self.known[k].rows - mean))
        return mix_atoms(rows, atoms, (1 - share) * covariance, None)

    def _find_near(self, k: int) -> dict[int, Neighbourhoods]:
        rows, covariance = self.known[k].rows, self._moments(k, _TARGET)[1]
        numbers = [int(number) for number in self.effort.known_shares if number > 1]
        most, scale = self.effort.kernel_centres, self.scale
        if self.shapes is None:
            return find_neighbourhoods(rows, covariance, numbers, most=most)
        if k not in self.shapes:
            self.shapes[k] = find_local_shapes(scale * rows, scale**2 * covariance, numbers, most=most)
        return {number: shapes.with_noise(scale) for number, shapes in self.shapes[k].items()}

    def _others(self, k: int, rows: Array, share: float, owners: Codes | None, fold: int = _TARGET) -> Density | None:
        """Return the density of other participants' denoised rows; a row is not compared with rows of its own owner."""
        if share == 0 or k not in self.others:
            return None
        mean, covariance = self._moments(k, fold)
        gain = solve(covariance + self.noise, covariance)
        spread = covariance @ gain
        atoms = replace(self.others[k], rows=mean + share**0.5 * ((self.others[k].rows - mean) @ gain))
        return mix_atoms(rows, atoms, covariance - share * (spread + spread.T) / 2, owners)


def _sum(first: Density | None, second: Density | None) -> Density | None:
    return first.plus(second) if first is not None and second is not None else first or second


def _by_class(rows: Array, codes: Codes, owners: Codes, classes: Codes) -> dict[int, Atoms]:
    """Return the rows of each class, thinned out if there are very many."""
    atoms = {}
    for k in classes:
        members = np.flatnonzero(codes == k)
        members = members[:: 1 + members.size // _MOST_ATOMS]
        if members.size:
            atoms[int(k)] = Atoms(rows[indices_beside(members, rows), :], owners[members])
    return atoms
