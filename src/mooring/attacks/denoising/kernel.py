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
f = x̂ + N ∇ log p(x̂) it is a Laplacian. All of it is computed in coordinates in which N = I, and where participants differ,
about the target's own class means (`Population.estimate_shift`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np

from mooring.attacks.alignment_map import map_back_exactly
from mooring.attacks.class_moments import ClassMoments
from mooring.attacks.denoising.gaussian import Population, fit_population, fit_to_noisy_rows, split_error
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction
from mooring.attacks.view import Codes, CollusionView
from mooring.geometry.backend import identity_like, indices_beside, like, namespace_of, solve
from mooring.randomness import require_generator
from mooring.typing import Array

_SHARES_OF_KNOWN = (0.0, 0.3, 0.6, 0.85, 20, 80)  # c² for rows that are known; above 1, how many neighbours
_SHARES_OF_OTHERS = (0.0, 0.5, 0.8, 0.95)  # and for other participants' denoised rows
_FOLDS = 2
_MOST_SCORED = 600
_MOST_ATOMS = 4096  # of a class
_MOST_NUMBERS = 2**21  # of their covariances
_OF_CLASS = 0.05  # of its covariance, that is added to that of neighbours
_BLOCK_NUMBERS = 2**22
_HIDDEN = -1e300
_TARGET = -1  # the fold of which the target alone is left out


@dataclass(frozen=True, eq=False)
class Atoms:
    """Rows of one class in whitened coordinates, and which of the other participants each is of."""

    rows: Array
    owners: Codes


@dataclass(frozen=True, eq=False)
class Density:
    """What one mixture says of n rows, up to a factor that all rows and mixtures share."""

    log_value: Array
    """Of shape (n,)."""
    gradient: Array
    """∇ log p, of shape (n, h): the posterior mean less the row."""
    laplacian: Array
    """Of shape (n,): ∆p / p."""

    def plus(self, other: Density) -> Density:
        """The sum of both densities."""
        xp = namespace_of(self.log_value)
        top = xp.maximum(self.log_value, other.log_value)
        own, theirs = xp.exp(self.log_value - top), xp.exp(other.log_value - top)
        share = own / (own + theirs)
        return Density(
            top + xp.log(own + theirs),
            share[:, None] * self.gradient + (1 - share)[:, None] * other.gradient,
            share * self.laplacian + (1 - share) * other.laplacian,
        )

    def risk(self) -> float:
        """Stein's estimate of Σ ‖f − x‖², in units of the noise."""
        xp = namespace_of(self.log_value)
        squares = xp.sum(self.gradient * self.gradient, axis=1)
        return float(xp.sum(2 * self.laplacian - squares)) + float(np.prod(self.gradient.shape))


def denoise_by_kernels(
    reconstruction: Reconstruction, view: CollusionView, *, rng: np.random.Generator
) -> Reconstruction:
    """Replace the rebuilt rows by their posterior mean under a mixture of Gaussians for each class; see `Denoiser`.

    It does not apply where there is no error to take out, or there are no rows to make atoms of.

    Parameters
    ----------
    reconstruction : Reconstruction
        What an attack rebuilt.
    view : CollusionView
        What it was rebuilt from; its known rows are the atoms.
    rng : Generator
        Not drawn from.
    """
    require_generator(rng)
    rows = reconstruction.rows
    xp = namespace_of(rows)
    noise, map_error = split_error(reconstruction, view)
    values, axes = xp.linalg.eigh(noise + map_error)
    if float(xp.min(values)) <= 1e-9 * float(xp.max(values)):
        raise DoesNotApply("In some directions the rebuilt rows carry no error: there is nothing to weigh atoms by.")
    whiten, unwhiten = ((axes * power) @ axes.T for power in (values**-0.5, values**0.5))
    prior = KernelPrior.of(reconstruction, view, whiten)
    errors = {"noise": whiten @ noise @ whiten, "map_error": whiten @ map_error @ whiten}
    shift = prior.populations[_TARGET].estimate_shift(rows @ whiten, prior.codes, **errors)
    scaled, result, evidence = rows @ whiten - shift, xp.empty_like(rows), xp.empty_like(rows[:, 0])
    shares = prior.choose_shares(scaled)
    for k in np.unique(prior.codes):
        members = indices_beside(np.flatnonzero(prior.codes == k), rows)
        own = scaled[members, :]
        found = prior.combined(int(k), own, *shares)
        result[members, :] = (own + found.gradient + shift[members, :]) @ unwhiten
        evidence[members] = found.log_value - float(np.log(prior.count_atoms(int(k), *shares)))
    known = f"c² = {shares[0]:g}" if shares[0] <= 1 else f"{shares[0]} neighbours"
    note = f"kernels: {known} of known rows, {shares[1]:g} of others'"
    return replace(reconstruction, rows=result, evidence=evidence, notes=(*reconstruction.notes, note))


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
    _near: dict[tuple[int, int], tuple[Array, Array]] = field(default_factory=dict, repr=False)
    """By class and number of neighbours: their means and covariances."""

    @classmethod
    def of(cls, reconstruction: Reconstruction, view: CollusionView, whiten: Array) -> KernelPrior:
        """Gather atoms and fit the classes.

        Parameters
        ----------
        reconstruction : Reconstruction
            What an attack rebuilt, with the population that it learnt.
        view : CollusionView
            What it was rebuilt from.
        whiten : array of shape (h, h)
            Turns the error of rebuilt rows into a standard normal one.
        """
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
            {fold: one.seen_through(whiten) for fold, one in populations.items()},
        )

    def combined(self, k: int, rows: Array, of_known: float, of_others: float) -> Density:
        """The density of class k with these shares; without atoms, that of the Gaussian.

        Parameters
        ----------
        k : int
            Class.
        rows : array of shape (n, h)
            Whitened.
        of_known, of_others : float
            Share c² of a class's covariance that lies between atoms of known rows, and of other participants' rows,
            rather than around each; 0 leaves these atoms out. Above 1, how many neighbours a known row has.
        """
        return _sum(self._known(k, rows, of_known), self._others(k, rows, of_others, None)) or self._gaussian(k, rows)

    def count_atoms(self, k: int, of_known: float, of_others: float) -> int:
        """How many atoms class k has with these shares; the Gaussian's is one.

        Parameters
        ----------
        k : int
            Class.
        of_known, of_others : float
            Shares as in `combined`; 0 leaves these atoms out.
        """
        known = self.known[k].owners.size if self._uses_known(k, of_known) else 0
        return known + (self.others[k].owners.size if of_others > 0 and k in self.others else 0) or 1

    def choose_shares(self, rows: Array) -> tuple[float, float]:
        """The c² of both sets of atoms that Stein's estimate prefers, over the target's rows and the others'."""
        of_known = _SHARES_OF_KNOWN if self.known else (0.0,)
        of_others = _SHARES_OF_OTHERS if self.others else (0.0,)
        risks = np.zeros((len(of_known), len(of_others)))
        for k, scored, owners, fold in self._scored(rows):
            gaussian = self._gaussian(k, scored, fold)
            theirs = [self._others(k, scored, share, owners, fold) for share in of_others]
            for i, share in enumerate(of_known):
                own = self._known(k, scored, share, fold)
                risks[i] += [(_sum(own, one) or gaussian).risk() for one in theirs]
        best, theirs_best = np.unravel_index(int(risks.argmin()), risks.shape)
        return of_known[int(best)], of_others[int(theirs_best)]

    def _scored(self, rows: Array) -> Iterator[tuple[int, Array, Codes, int]]:
        """Rows to compare shares by, class by class: the target's, and where their noise is the same, others'."""
        folds = [fold for fold in self.populations if fold != _TARGET and self._has_same_noise]
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
        return _mixture(rows, Atoms(mean[None, :], np.zeros(1, dtype=np.intp)), covariance, None)

    def _uses_known(self, k: int, share: float) -> bool:
        """Whether class k has known rows, and if they are to have neighbours, enough of them."""
        return share > 0 and k in self.known and (share <= 1 or self.known[k].owners.size >= 2 * share)

    def _known(self, k: int, rows: Array, share: float, fold: int = _TARGET) -> Density | None:
        if not self._uses_known(k, share):
            return None
        mean, covariance = self._moments(k, fold)
        if share > 1:
            if (k, int(share)) not in self._near:
                self._near[k, int(share)] = _neighbourhoods(self.known[k].rows, int(share))
            means, around = self._near[k, int(share)]
            found = _mixture_of_neighbourhoods(rows, means, around + _OF_CLASS * covariance)
            return replace(found, log_value=found.log_value + float(np.log(self.known[k].owners.size / means.shape[0])))
        atoms = replace(self.known[k], rows=mean + share**0.5 * (self.known[k].rows - mean))
        return _mixture(rows, atoms, (1 - share) * covariance, None)

    def _others(self, k: int, rows: Array, share: float, owners: Codes | None, fold: int = _TARGET) -> Density | None:
        """The same for the others' rows, denoised; none is compared with rows of its own owner."""
        if share == 0 or k not in self.others:
            return None
        mean, covariance = self._moments(k, fold)
        gain = solve(covariance + self.noise, covariance)
        spread = covariance @ gain
        atoms = replace(self.others[k], rows=mean + share**0.5 * ((self.others[k].rows - mean) @ gain))
        return _mixture(rows, atoms, covariance - share * (spread + spread.T) / 2, owners)


def _sum(first: Density | None, second: Density | None) -> Density | None:
    return first.plus(second) if first is not None and second is not None else first or second


def _mixture(rows: Array, atoms: Atoms, kernel: Array, owners: Codes | None) -> Density:
    """A Gaussian of this covariance at every atom, with noise of unit covariance."""
    xp = namespace_of(rows)
    S = kernel + identity_like(kernel)
    inverse = solve(S, identity_like(S))
    scaled = atoms.rows @ inverse
    squares = xp.sum(scaled * atoms.rows, axis=1) / 2
    bends = xp.sum(scaled * scaled, axis=1)  # |S⁻¹ a|²
    level = -xp.linalg.slogdet(S)[1] / 2
    step = max(1, _BLOCK_NUMBERS // atoms.rows.shape[0])
    parts = []
    for start in range(0, max(1, rows.shape[0]), step):
        own = rows[start : start + step, :]
        turned = own @ inverse
        logs = own @ scaled.T - squares
        if owners is not None:
            same = owners[start : start + step, None] == atoms.owners
            logs = xp.where(like(same, logs) > 0, _HIDDEN, logs)
        top = xp.max(logs, axis=1)
        weights = xp.exp(logs - top[:, None])
        total = xp.sum(weights, axis=1)
        weights = weights / total[:, None]
        middle = weights @ scaled  # S⁻¹ ā
        gradient = middle - turned
        # ∆p / p = Σ_j w_j |S⁻¹ (a_j − x)|² − tr S⁻¹
        bent = weights @ bends - 2 * xp.sum(middle * turned, axis=1) + xp.sum(turned * turned, axis=1)
        value = top + xp.log(total) - xp.sum(own * turned, axis=1) / 2 + level
        parts.append((value, gradient, bent - xp.sum(xp.linalg.diagonal(inverse))))
    return Density(*(xp.concat([part[k] for part in parts], axis=0) for k in range(3)))


def _neighbourhoods(rows: Array, n_neighbours: int) -> tuple[Array, Array]:
    """Mean and covariance of the nearest rows of each row; of some rows, where all covariances would be too large."""
    xp, h = namespace_of(rows), rows.shape[1]
    some = rows[:: 1 + rows.shape[0] * h**2 // _MOST_NUMBERS, :]
    distances = xp.sum(rows * rows, axis=1) - 2 * some @ rows.T
    nearest = xp.argsort(distances, axis=1)[:, :n_neighbours]
    means, covariances = xp.empty_like(some), xp.empty((some.shape[0], h, h), dtype=rows.dtype, device=rows.device)
    step = max(1, _BLOCK_NUMBERS // (n_neighbours * h))
    for start in range(0, some.shape[0], step):
        at = slice(start, start + step)
        near = xp.reshape(rows[xp.reshape(nearest[at, :], (-1,)), :], (-1, n_neighbours, h))
        means[at, :] = xp.mean(near, axis=1)
        off = near - means[at, None, :]
        covariances[at, :, :] = xp.matrix_transpose(off) @ off / n_neighbours
    return means, covariances


def _mixture_of_neighbourhoods(rows: Array, means: Array, covariances: Array) -> Density:
    """A Gaussian of its own covariance at every mean, with noise of unit covariance."""
    xp = namespace_of(rows)
    S = covariances + identity_like(covariances[0, ...])
    inverse, levels = xp.linalg.inv(S), -xp.linalg.slogdet(S)[1] / 2
    traces = xp.sum(xp.linalg.diagonal(inverse), axis=1)
    step = max(1, _BLOCK_NUMBERS // int(np.prod(means.shape)))
    parts = []
    for start in range(0, max(1, rows.shape[0]), step):
        off = means[:, None, :] - rows[None, start : start + step, :]
        turned = off @ inverse
        logs = levels[:, None] - xp.sum(off * turned, axis=2) / 2
        top = xp.max(logs, axis=0)
        weights = xp.exp(logs - top)
        total = xp.sum(weights, axis=0)
        weights = weights / total
        bent = xp.sum(weights * (xp.sum(turned * turned, axis=2) - traces[:, None]), axis=0)
        parts.append((top + xp.log(total), xp.sum(weights[:, :, None] * turned, axis=0), bent))
    return Density(*(xp.concat([part[k] for part in parts], axis=0) for k in range(3)))


def _by_class(rows: Array, codes: Codes, owners: Codes, classes: Codes) -> dict[int, Atoms]:
    """Rows of each class, thinned out where they are very many."""
    found = {}
    for k in classes:
        members = np.flatnonzero(codes == k)
        members = members[:: 1 + members.size // _MOST_ATOMS]
        if members.size:
            found[int(k)] = Atoms(rows[indices_beside(members, rows), :], owners[members])
    return found
