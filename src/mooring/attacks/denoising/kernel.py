"""Kernel denoising: the prior of a class is a mixture of Gaussians at the rows of it that the attacker has.

Legend: N = σ² I + E the covariance of the rebuilt rows' error; μ, Σ mean and covariance of a class; a_j its atoms.

The prior of a class is a mixture of Gaussians, one at each atom. Atoms are drawn to the mean, a_j ↦ μ + c (a_j − μ), and
each carries the covariance L = Σ − c² K that the drawn-in atoms, whose own covariance is K, leave of Σ. Of x̂ = x + ε,
S = L + N, ā = Σ_j w_j a_j with w_j ∝ exp(−½ (x̂ − a_j)ᵀ S⁻¹ (x̂ − a_j)), the posterior mean is

    E[x | x̂] = ā + L S⁻¹ (x̂ − ā).

There are two sets of atoms: rows that the attacker has as they are (public ones, the colluders'), of which K = Σ, so that
L = (1 − c²) Σ; and the other participants' rows where their maps are known exactly, denoised by the Gaussian of the class,
of which K = Σ (Σ + σ² I)⁻¹ Σ. Where many rows are known, an atom may instead be the mean of a row and its nearest ones, and
L their covariance, with a little of Σ: the prior then follows how the class bends. Which of both, each set's c² and the
number of neighbours are chosen by Stein's unbiased estimate of the risk of f = E[x | x̂],

    ‖x̂ − f‖² + 2 tr(N ∂f/∂x̂) − tr N,

which needs no true row; 0 leaves the set out, and without both a class is a Gaussian. The trace is exact: with
f = x̂ + N ∇ log p(x̂) it is a Laplacian. All of it is computed in coordinates in which N = I. Where the target's class means
are unlike the others' (`Population.estimate_shift`), atoms move with them if by that estimate this pays: a class may also
lie elsewhere because it has other shares of the same kinds of rows.
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
    Neighbourhoods,
    find_neighbourhoods,
    mix_atoms,
    mix_neighbourhoods,
)
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction
from mooring.attacks.view import Codes, CollusionView
from mooring.geometry.backend import identity_like, indices_beside, namespace_of, solve
from mooring.randomness import require_generator
from mooring.typing import Array

_SHARES_OF_KNOWN = (0.0, 0.3, 0.6, 0.9, 20, 80)  # c² for rows that are known; above 1, how many neighbours
_SHARES_OF_OTHERS = (0.0, 0.5, 0.8, 0.95)  # and for other participants' denoised rows
_FOLDS = 2
_MOST_SCORED = 600
_MOST_ATOMS = 4096  # of a class
_SHARE_OF_FEW = 0.6  # c² of a class of too few known rows to have neighbours
_TARGET = -1  # the fold of which the target alone is left out


def denoise_by_kernels(
    reconstruction: Reconstruction, view: CollusionView, *, rng: np.random.Generator
) -> Reconstruction:
    """Replace the rebuilt rows by their posterior mean under a mixture of Gaussians for each class; see `Denoiser`.

    It does not apply where there is no error to take out, or there are no rows to make atoms of.
    """
    require_generator(rng)
    rows = reconstruction.rows
    xp = namespace_of(rows)
    noise, map_error = split_error(reconstruction, view)
    values, axes = xp.linalg.eigh(noise + map_error)
    if float(xp.min(values)) <= 1e-9 * float(xp.max(values)):
        raise DoesNotApply("In some directions the rebuilt rows carry no error: there is nothing to weigh atoms by.")
    whiten, unwhiten = ((axes * power) @ axes.T for power in (values**-0.5, values**0.5))
    prior, scaled = KernelPrior.of(reconstruction, view, whiten), rows @ whiten
    errors = {"noise": whiten @ noise @ whiten, "map_error": whiten @ map_error @ whiten}
    shift = prior.populations[_TARGET].estimate_shift(scaled, prior.codes, **errors)
    differs = float(xp.max(xp.abs(shift))) > 0
    tried = [prior.denoise(scaled, one, alone=differs) for one in (0 * shift, *([shift] if differs else []))]
    best = min(tried, key=lambda one: one.risk)
    shares, result, evidence = best.shares, best.rows @ unwhiten, best.evidence
    known = f"c² = {shares[0]:g}" if shares[0] <= 1 else f"{shares[0]} neighbours"
    note = f"kernels: {known} of known rows, {shares[1]:g} of others'"
    return replace(reconstruction, rows=result, evidence=evidence, notes=(*reconstruction.notes, note))


@dataclass(frozen=True, eq=False)
class Denoised:
    """The target's rows by one choice of kernels."""

    rows: Array
    evidence: Array
    """Log density of each row."""
    shares: tuple[float, float]
    """As `KernelPrior.combined` takes them."""
    risk: float
    """Stein's estimate over the target's rows."""


@dataclass(frozen=True, eq=False)
class KernelPrior:
    """Atoms, means and covariances of every class, in coordinates in which the error's covariance is the identity."""

    codes: Codes
    """Of shape (n,): classes of the target's rows."""
    known: Mapping[int, Atoms]
    others: Mapping[int, Atoms]
    """By class: rows that are known, and other participants' noisy ones."""
    noise: Array
    """Of shape (h, h): covariance of the others' noise."""
    populations: Mapping[int, Population]
    """By fold of participants: fitted to all rows but the target's and those of the fold. −1 leaves out the target
    alone."""
    _near: dict[int, dict[int, Neighbourhoods]] = field(default_factory=dict, repr=False)
    """By class and number of neighbours."""

    @classmethod
    def of(cls, reconstruction: Reconstruction, view: CollusionView, whiten: Array) -> KernelPrior:
        """Gather atoms and fit the classes."""
        codes, population = fit_population(reconstruction, view)
        if not np.array_equal(codes, view.codes_of([view.target])):
            raise DoesNotApply("The population was learnt without regard to classes, which kernels go by.")
        theirs = {i: rows for i, rows in map_back_exactly(view).items() if i != view.target}
        if not theirs:
            return cls._whitened(view, codes, {}, {_TARGET: population}, whiten)
        their_codes = [view.codes_of([i]) for i in theirs]
        known_codes = view.reference_codes()
        n_classes = 1 + max(int(part.max()) for part in (codes, known_codes, *their_codes))
        known = ClassMoments.of(view.reference_rows, known_codes, n_classes)
        seen = [ClassMoments.of(rows, own, n_classes) for rows, own in zip(theirs.values(), their_codes, strict=True)]
        populations = {}
        for fold in (_TARGET, *range(_FOLDS if len(seen) > 1 else 0)):
            kept = [one for place, one in enumerate(seen) if place % _FOLDS != fold]
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
            {fold: one.transformed_by(whiten) for fold, one in populations.items()},
        )

    def denoise(self, rows: Array, shift: Array, *, alone: bool) -> Denoised:
        """Denoise the target's whitened rows by the shares that Stein's estimate prefers."""
        xp, own = namespace_of(rows), rows - shift
        shares = self.choose_shares(own, alone=alone)
        result, evidence, risk = xp.empty_like(rows), xp.empty_like(rows[:, 0]), 0.0
        for k in np.unique(self.codes):
            members = indices_beside(np.flatnonzero(self.codes == k), rows)
            found = self.combined(int(k), own[members, :], *shares)
            result[members, :] = rows[members, :] + found.gradient
            evidence[members] = found.log_value - float(np.log(self.count_atoms(int(k), *shares)))
            risk += found.risk()
        return Denoised(result, evidence, shares, risk)

    def combined(self, k: int, rows: Array, of_known: float, of_others: float) -> Density:
        """The density of class k with these shares; without atoms, that of the Gaussian."""
        return _sum(self._known(k, rows, of_known), self._others(k, rows, of_others, None)) or self._gaussian(k, rows)

    def count_atoms(self, k: int, of_known: float, of_others: float) -> int:
        """How many atoms class k has with these shares; the Gaussian's is one."""
        known = self.known[k].owners.size if of_known > 0 and k in self.known else 0
        return known + (self.others[k].owners.size if of_others > 0 and k in self.others else 0) or 1

    def choose_shares(self, rows: Array, *, alone: bool = False) -> tuple[float, float]:
        """What `combined` takes, as Stein's estimate prefers, over the target's rows and, unless `alone`, over others'."""
        of_known = _SHARES_OF_KNOWN if self.known else (0.0,)
        of_others = _SHARES_OF_OTHERS if self.others else (0.0,)
        risks = np.zeros((len(of_known), len(of_others)))
        for k, scored, owners, fold in self._scored(rows, alone=alone):
            gaussian = self._gaussian(k, scored, fold)
            theirs = [self._others(k, scored, share, owners, fold) for share in of_others]
            for i, share in enumerate(of_known):
                own = self._known(k, scored, share, fold)
                risks[i] += [(_sum(own, one) or gaussian).risk() for one in theirs]
        best, theirs_best = np.unravel_index(int(risks.argmin()), risks.shape)
        return of_known[int(best)], of_others[int(theirs_best)]

    def _scored(self, rows: Array, *, alone: bool) -> Iterator[tuple[int, Array, Codes, int]]:
        """Rows to compare shares by, class by class: the target's, and where their noise is the same, others'."""
        folds = [fold for fold in self.populations if fold != _TARGET and self._has_same_noise and not alone]
        n_others = sum(one.owners.size for one in self.others.values()) if folds else 0
        step = 1 + n_others // _MOST_SCORED
        for k in np.unique(self.codes):
            own = np.flatnonzero(self.codes == k)
            yield int(k), rows[indices_beside(own, rows), :], np.full(own.size, _TARGET), _TARGET
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
                numbers = [int(one) for one in _SHARES_OF_KNOWN if one > 1]
                self._near[k] = find_neighbourhoods(self.known[k].rows, self._moments(k, _TARGET)[1], numbers)
            if int(share) in self._near[k]:
                near = self._near[k][int(share)]
                found = mix_neighbourhoods(rows, near)
                thinned = self.known[k].owners.size / near.means.shape[0]
                return replace(found, log_value=found.log_value + float(np.log(thinned)))
            share = _SHARE_OF_FEW
        mean, covariance = self._moments(k, fold)
        atoms = replace(self.known[k], rows=mean + share**0.5 * (self.known[k].rows - mean))
        return mix_atoms(rows, atoms, (1 - share) * covariance, None)

    def _others(self, k: int, rows: Array, share: float, owners: Codes | None, fold: int = _TARGET) -> Density | None:
        """The same for the others' rows, denoised; none is compared with rows of its own owner."""
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
    """Rows of each class, thinned out where they are very many."""
    found = {}
    for k in classes:
        members = np.flatnonzero(codes == k)
        members = members[:: 1 + members.size // _MOST_ATOMS]
        if members.size:
            found[int(k)] = Atoms(rows[indices_beside(members, rows), :], owners[members])
    return found
