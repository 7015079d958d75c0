"""Gaussian denoising: the posterior mean of a rebuilt row under one Gaussian per class.

A rebuilt row is the true row plus an error: private-data noise of known scale, and the effect of a slightly wrong map. Under
a Gaussian for each class, fitted to the rows that the attacker has, the posterior mean is a linear map of the rebuilt row.
Without denoising, an audit would overstate the protection by private-data noise.

Legend: E is the covariance of the wrong map's effect; x ~ N(μ_k, Σ_k), x̂ = x + ε with ε ~ N(0, σ² I + E), and

    E[x | x̂] = μ_k + Σ_k (Σ_k + σ² I + E)⁻¹ (x̂ − μ_k).

Participants may differ, and μ_k is estimated from few rows: the target's n_k rows of class k have the mean μ_k + δ_k with
δ_k ~ N(0, (t + 1/N_k) Σ_k), where N_k is the effective number of rows behind μ_k. The mean of the rebuilt rows estimates δ_k
with an error of covariance (Σ_k + σ² I) / n_k + E, as if a wrong map moved all rows in the same way. t is common to all
classes, and zero unless the means differ more than chance explains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mooring.attacks.class_moments import ClassMoments, weighted_sum
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction
from mooring.attacks.view import Codes, CollusionView
from mooring.geometry.backend import identity_like, indices_beside, like, namespace_of, to_numpy, transpose
from mooring.randomness import require_generator
from mooring.typing import Array

_ROUNDS = 30
_BEYOND_CHANCE = 2.0  # standard deviations beyond which differences count
_TINY = 1e-300
Counts = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Population:
    """A Gaussian for each class, without noise."""

    means: Array
    """Mean of each class, of shape (K, h)."""
    covariances: Array
    """Covariance of each class, of shape (K, h, h)."""
    counts: Counts
    """Number of rows without noise that would determine each mean equally well, of shape (K,); at least 1."""

    def transformed_by(self, symmetric: Array) -> Population:
        """Return the population of rows multiplied by a symmetric matrix."""
        return replace(self, means=self.means @ symmetric, covariances=symmetric @ self.covariances @ symmetric)

    def estimate_shift(self, rows: Array, codes: Codes, *, noise: Array, map_error: Array) -> Array:
        """Return E[δ_k], the estimated shift of a participant's class means, for each of its rebuilt rows.

        `noise` and `map_error` are σ² I and E. All shifts are zero if the differences are within chance (t = 0).
        """
        xp = namespace_of(rows)
        classes, places, sizes = np.unique(codes, return_inverse=True, return_counts=True)
        observed = ClassMoments.of(rows, places, classes.size)
        chosen = indices_beside(classes, rows)
        spread, known = self.covariances[chosen, ...], like(1 / self.counts[classes], rows)[:, None, None]
        gap = (observed.means - self.means[chosen, :])[..., None]
        error = (spread + noise) / like(sizes, rows)[:, None, None] + map_error
        expected = error + known * spread
        freedom = gap.shape[0] * gap.shape[1]  # degrees of freedom of the sum of squares below
        beyond = float(xp.sum(gap * xp.linalg.solve(expected, gap))) - freedom - _BEYOND_CHANCE * (2 * freedom) ** 0.5
        scale = float(xp.sum(xp.linalg.diagonal(xp.linalg.solve(expected, spread))))
        if beyond <= 0 or scale <= 0:
            return xp.zeros_like(rows)
        between = (beyond / scale + known) * spread
        shifts = (between @ xp.linalg.solve(between + error, gap))[..., 0]
        return shifts[indices_beside(places, rows), :]


def denoise_by_gaussians(
    reconstruction: Reconstruction, view: CollusionView, *, rng: np.random.Generator
) -> Reconstruction:
    """Return rebuilt rows replaced by their posterior mean under a Gaussian for each class.

    The denoiser does not apply if the rows carry no known error, or if there are fewer than two rows to learn the population
    from.
    """
    require_generator(rng)
    noise, map_error = split_error(reconstruction, view)
    error = noise + map_error
    xp = namespace_of(error)
    codes, population = fit_population(reconstruction, view)
    shift = population.estimate_shift(reconstruction.rows, codes, noise=noise, map_error=map_error)
    rows = reconstruction.rows - shift
    result = xp.empty_like(rows)
    classes = np.unique(codes)
    covariances = population.covariances[indices_beside(classes, rows), ...]
    gains = xp.linalg.solve(covariances + error, covariances)  # both are symmetric, so this is the transposed gain
    for index, k in enumerate(classes):
        members = indices_beside(np.flatnonzero(codes == k), rows)
        mean = population.means[int(k), :]
        result[members, :] = mean + (rows[members, :] - mean) @ gains[index, ...]
    return replace(reconstruction, rows=result + shift, notes=(*reconstruction.notes, "denoised"))


def split_error(reconstruction: Reconstruction, view: CollusionView) -> tuple[Array, Array]:
    """Return σ² I and E, the covariances of noise and map error in rebuilt rows; raise `DoesNotApply` if both are zero."""
    rows = reconstruction.rows
    xp = namespace_of(rows)
    left = view.data_noise_scale if reconstruction.data_noise_scale is None else reconstruction.data_noise_scale
    noise = left**2 * identity_like(rows)
    map_error = 0 * noise if reconstruction.row_error is None else reconstruction.row_error
    if float(xp.max(xp.abs(noise + map_error))) == 0:
        raise DoesNotApply("The rebuilt rows carry no known error, so there is nothing to denoise.")
    return noise, map_error


def fit_population(reconstruction: Reconstruction, view: CollusionView) -> tuple[Codes, Population]:
    """Return the class of each of the target's rows, and the population of every class.

    The population is the one that the attack learnt, or else is fitted to the rows that the attacker has; with fewer than
    two such rows, `DoesNotApply` is raised. An unknown class gets the moments of all rows. If the population was learnt
    without classes, all rows are in one class.
    """
    codes, population = view.codes_of([view.target]), reconstruction.population
    variance = view.data_noise_scale**2
    if population is None:
        rows = view.reference_rows
        if rows is None or rows.shape[0] < 2:
            raise DoesNotApply("Without rows of a colluder or public rows, nothing is known about the population.")
        known_codes = view.reference_codes()
        population = ClassMoments.of(rows, known_codes, 1 + int(max(known_codes.max(), codes.max())))
        variance = 0.0  # these rows carry no noise
    elif codes.max() >= population.counts.size:
        codes = np.zeros_like(codes)
    return codes, class_priors(population, variance)


def class_priors(population: ClassMoments, noise_variance: float) -> Population:
    """Return the mean and covariance of every class without the noise; an unknown class gets those of all rows.

    Covariances are shrunk as `_prior` describes.
    """
    xp = namespace_of(population.means)
    priors = _prior(population, noise_variance=noise_variance)
    known = like(population.counts > 0, population.means)
    means = xp.where(known[:, None] > 0, population.means, population.overall_mean)
    covariances = xp.where(known[:, None, None] > 0, priors[:-1, ...], priors[-1:, ...])
    return Population(
        means, covariances, _effective_counts(0 * population.counts, population.counts, covariances, noise_variance)
    )


def _prior(population: ClassMoments, *, noise_variance: float) -> Array:
    """Return the covariance of each class and, last, the covariance of all rows, both without the noise.

    The covariances of classes are shrunk to their mean, and all covariances are then shrunk to a multiple of the identity.
    The mean of a class with few rows is itself uncertain, which adds 1/n_k of the covariance.
    """
    xp = namespace_of(population.means)
    h = population.means.shape[1]
    within = population.within
    share = like(h / (h + population.counts), population.means)[:, None, None]
    classes = (1 - share) * population.covariances + share * within
    centred = population.means - population.overall_mean
    weights = like(population.counts / population.n_rows, centred)
    overall = within + weighted_sum(weights, centred[:, :, None] * centred[:, None, :])
    stacked = xp.concat([classes, overall[None, ...]], axis=0)
    counts = np.append(np.maximum(population.counts, 1), population.n_rows)
    level = xp.sum(xp.linalg.diagonal(stacked), axis=-1) / h
    few = like(h / (h + 4 * population.n_rows), stacked)
    shrunk = (1 - few) * stacked + few * level[:, None, None] * identity_like(stacked)
    return _without_noise(shrunk, noise_variance) * like(1 + 1 / counts, stacked)[:, None, None]


def _without_noise(covariances: Array, variance: float) -> Array:
    """Return covariances with a known noise variance subtracted, with eigenvalues of at least zero."""
    if variance == 0:
        return covariances
    xp = namespace_of(covariances)
    values, axes = xp.linalg.eigh(covariances)
    left = xp.clip(values - variance, min=0.0)
    return (axes * left[..., None, :]) @ transpose(axes)


def fit_to_noisy_rows(known: ClassMoments, noisy: ClassMoments, noise_variance: float) -> Population:
    """Return the mean and covariance of every class, from known rows and rows with noise.

    Covariances maximise the likelihood of both (expectation maximisation). They are shrunk to their mean over classes, which
    is shrunk to a multiple of the identity. Rows with noise are thereby weighted by their information in each direction.
    If the noise variance were subtracted from their covariance instead, such rows would have full weight, and chance would
    dominate small variances.
    """
    xp = namespace_of(known.means)
    both = known.merged(noisy)
    h, means, overall = known.means.shape[1], both.means, both.overall_mean
    counts = [like(part.counts, means)[:, None, None] for part in (known, noisy)]
    gaps = [part.means - means for part in (known, noisy)]
    about = [
        part.covariances + gap[:, :, None] * gap[:, None, :] for part, gap in zip((known, noisy), gaps, strict=True)
    ]

    def expected(covariances: Array) -> Array:
        """Return the expected sum of all rows' squares about their class means, given these covariances."""
        gains = xp.linalg.solve(covariances + noise_variance * identity_like(covariances), covariances)
        left = transpose(gains) @ about[1] @ gains + covariances - covariances @ gains
        return counts[0] * about[0] + counts[1] * (left + transpose(left)) / 2

    n = both.n_rows
    within = both.within[None, ...]
    for _ in range(_ROUNDS):
        level = xp.sum(xp.linalg.diagonal(within)) / h
        total = xp.sum(expected(within + 0 * about[0]), axis=0)[None, ...]
        within = (total + h / 4 * level * identity_like(within)) / (n + h / 4)
    classes = within + 0 * about[0]
    for _ in range(_ROUNDS):
        classes = (expected(classes) + h * within) / (counts[0] + counts[1] + h)
    centred = means - overall
    spread = weighted_sum(like(both.counts / n, means), centred[:, :, None] * centred[:, None, :])
    seen = like(both.counts > 0, means)
    uncertain = like(1 + 1 / np.maximum(both.counts, 1), means)[:, None, None]
    covariances = xp.where(seen[:, None, None] > 0, uncertain * classes, within + spread)
    counted = _effective_counts(known.counts, noisy.counts, covariances, noise_variance)
    return Population(xp.where(seen[:, None] > 0, means, overall), covariances, counted)


def _effective_counts(known: Counts, noisy: Counts, covariances: Array, noise_variance: float) -> Counts:
    """Return, for each class, how many noiseless rows would determine its mean equally well on average; at least 1."""
    variances = to_numpy(namespace_of(covariances).linalg.diagonal(covariances)).mean(axis=-1)
    share = variances / np.maximum(variances + noise_variance, _TINY)
    return np.asarray(np.maximum(known + share * noisy, 1.0))
