"""A mixture of products of categorical distributions, fitted to a total by least squares.

In rows that are drawn from the mixture, each pair of columns has about the same distribution as in the rows of the total.

Legend: π the weights of K components; θ_kj the probabilities of the levels of column j in component k; c₀ and M_j the
constant's share and the contrasts as in the module `workload`; φ_k = (√c₀, M₁θ_k1, …).

The expected total of n rows of the mixture is n Σ_k π_k φ_k φ_kᵀ. The noise of a total has the same variance in all its
coordinates, so that least squares in these coordinates is maximum likelihood. Before the fit, the interactions of each pair
of columns are shrunk towards independence by the factor of James and Stein, since most of the noise is in interactions that
are small.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.linalg import block_diag
from scipy.optimize import minimize
from scipy.special import softmax

from mooring.mechanisms.sums.answers.readings import read_products
from mooring.mechanisms.sums.general.levels import Levels
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.mechanisms.sums.general.workload import Workload
from mooring.typing import Indices, Matrix, Vector

N_COMPONENTS = 100
_N_STEPS = 250
_SEED = 0  # components start at random; with a fixed seed, the same total gives the same mixture
_START_SPREAD = 0.7  # standard deviation of the components' first logits around the logits of the margins


@dataclass(frozen=True, eq=False)
class Mixture:
    """A distribution of rows, whose columns are independent within each component."""

    workload: Workload
    weights: Vector
    """π, of shape (K,)."""
    tables: tuple[Matrix, ...]
    """For each column, θ as a matrix of shape (K, number of levels)."""
    spreads: tuple[float, ...]
    """For each column, which share of the mass of neighbouring nodes is moved between them, so that squares are right."""

    def draw_places(self, n_rows: int, rng: np.random.Generator) -> Matrix:
        """Return each row's level in each column, of shape (n_rows, columns). A number may lie between two levels."""
        components = rng.choice(len(self.weights), n_rows, p=self.weights)
        places = []
        for levels, table, spread in zip(self.workload.columns, self.tables, self.spreads, strict=True):
            drawn = _draw_rows(table[components], rng)
            places.append(_move_between_nodes(drawn, len(levels.nodes), spread, rng))
        return np.column_stack(places)

    def weigh_places(self, places: Matrix) -> Matrix:
        """Return the weights that rows at these places have on all levels, of shape (n_rows, number of levels)."""
        blocks = []
        for levels, place in zip(self.workload.columns, places.T, strict=True):
            lower = np.floor(place).astype(np.int64)
            block = np.zeros((len(place), levels.n_levels))
            block[np.arange(len(place)), lower] = 1 - (place - lower)
            block[np.arange(len(place)), np.minimum(lower + 1, levels.n_levels - 1)] += place - lower
            blocks.append(block)
        return np.hstack(blocks)

    def sum_places(self, places: Matrix, n_rows: float) -> PairwiseTotal:
        """Return the total, without noise, of `n_rows` rows that are distributed like the rows at these places."""
        curves = []
        for levels, place in zip(self.workload.columns, places.T, strict=True):
            t = place - np.floor(place)
            if not levels.is_exact:
                curves.append(4 * t * (1 - t))
        weights = np.hstack([np.ones((len(places), 1)), self.weigh_places(places)])
        scale = n_rows / len(places)
        bubbles = scale * np.array([curve.sum() for curve in curves])
        return PairwiseTotal(self.workload, self.workload.assemble(scale * weights.T @ weights, bubbles))


def _move_between_nodes(levels: Indices, n_nodes: int, spread: float, rng: np.random.Generator) -> Vector:
    """Return places, some of which are moved from a node to between two nodes; the mean of each hat function is kept."""
    places = levels.astype(np.float64)
    if not spread:
        return places
    counts = np.bincount(levels, minlength=n_nodes)[:n_nodes].astype(np.float64)
    between = spread * np.minimum(counts[:-1], counts[1:]) / 2
    down, up = (np.pad(between, side) / np.maximum(counts, 1.0) for side in ((1, 0), (0, 1)))
    chance, distance = rng.random(len(levels)), rng.random(len(levels))
    node = np.minimum(levels, n_nodes - 1)
    moves_down = chance < down[node]
    moves = (levels < n_nodes) & (chance < (down + up)[node])
    return np.asarray(places + np.where(moves, np.where(moves_down, -distance, distance), 0.0))


def _draw_rows(probabilities: Matrix, rng: np.random.Generator) -> Indices:
    """Return one random level for each row of probabilities."""
    u = rng.random((len(probabilities), 1))
    levels = (np.cumsum(probabilities, axis=1) < u).sum(axis=1)
    return np.asarray(np.minimum(levels, probabilities.shape[1] - 1))


def fit_mixture(total: PairwiseTotal, *, n_components: int = N_COMPONENTS, n_steps: int = _N_STEPS) -> Mixture:
    """Return a mixture that is fitted to a total by least squares."""
    workload, n = total.workload, max(total.n_rows, 1.0)
    target = _shrink_blocks(total)[: workload.n_features, : workload.n_features] / n
    shared = workload.shared[: workload.n_features, : workload.n_features]
    features = block_diag(
        *[
            contrasts * (levels.unit / workload.resolution)
            for levels, contrasts in zip(workload.columns, workload.integer_contrasts, strict=True)
        ]
    ).T
    constant = np.full((n_components, 1), workload.constant_integer / workload.resolution)
    firsts, columns = np.array([0, *workload.ends[:-1]]), workload.columns_of_levels
    start = np.concatenate([np.log(_find_margin(total, levels)) for levels in workload.columns])
    rng = np.random.default_rng(_SEED)
    logits = start + _START_SPREAD * rng.standard_normal((n_components, len(start)))

    def unpack(x: Vector) -> tuple[Vector, Matrix]:
        levels = x[n_components:].reshape(n_components, -1)
        powers = np.exp(levels - np.maximum.reduceat(levels, firsts, axis=1)[:, columns])
        return softmax(x[:n_components]), powers / np.add.reduceat(powers, firsts, axis=1)[:, columns]

    def objective(x: Vector) -> tuple[float, Vector]:
        weights, table = unpack(x)
        phi = np.hstack([constant, table @ features])
        error = np.where(shared, phi.T @ (weights[:, None] * phi) - target, 0.0)
        pulled = phi @ error
        of_weights = (pulled * phi).sum(axis=1)
        of_table = table * ((2 * weights[:, None] * pulled[:, 1:]) @ features.T)
        of_table -= table * np.add.reduceat(of_table, firsts, axis=1)[:, columns]
        gradient = np.concatenate([weights * (of_weights - weights @ of_weights), of_table.ravel()])
        return float((error**2).sum()) / 2, gradient

    first = np.concatenate([np.zeros(n_components), logits.ravel()])
    options = {"maxiter": n_steps, "ftol": 1e-12, "gtol": 1e-9}
    weights, table = unpack(minimize(objective, first, jac=True, method="L-BFGS-B", options=options).x)
    tables = np.split(table, workload.ends[:-1], axis=1)
    spreads = [
        _find_spread(total, levels, weights @ table) for levels, table in zip(workload.columns, tables, strict=True)
    ]
    return Mixture(workload, weights / weights.sum(), tuple(tables), tuple(spreads))


def _find_margin(total: PairwiseTotal, levels: Levels) -> Vector:
    """Return the shares of a column's levels; a share below a hundredth of a percent is raised to about this value."""
    constant = total.workload.constant
    pairs = [(total.workload.indicator(levels.name, name), constant) for name in levels.names]
    shares = np.maximum(read_products(total, pairs).values / max(total.n_rows, 1.0), 1e-4)
    return np.asarray(shares / shares.sum())


def _shrink_blocks(total: PairwiseTotal) -> Matrix:
    """Return S with the interactions of each pair of columns shrunk towards independence.

    The linear contrast of a number is shrunk separately, so that the noise of the other contrasts does not hide a trend.
    """
    S, workload = total.matrix.copy(), total.workload
    parts = list[tuple[int, slice]]()
    for column, (start, levels) in enumerate(zip(workload.starts, workload.columns, strict=True)):
        first = start + bool(levels.nodes)
        parts += [(column, slice(start, first)), (column, slice(first, start + levels.n_levels - 1))]
    for (column, rows), (other, columns) in combinations(parts, 2):
        independent = np.outer(S[rows, 0], S[0, columns]) / max(S[0, 0], 1e-9)
        interaction = S[rows, columns] - independent
        if column == other or interaction.size < 3:
            continue
        noise, squares = total.noise_variance / 2 * (interaction.size - 2), float((interaction**2).sum())
        S[rows, columns] = independent + max(0.0, 1 - noise / max(squares, 1e-300)) * interaction
        S[columns, rows] = S[rows, columns].T
    return S


def _find_spread(total: PairwiseTotal, levels: Levels, margin: Vector) -> float:
    """Return the share for `Mixture.spreads` with which the mean of t(1 − t) is that of the total; 0 for exact columns."""
    if levels.is_exact:
        return 0.0
    number, constant = total.workload.number(levels.name), total.workload.constant
    hats = total.workload.functional(levels.name, number.values**2)
    on_nodes, exact = read_products(total, [(hats, constant), (number, number)]).values
    step = levels.nodes[1] - levels.nodes[0]
    n_nodes = len(levels.nodes)
    between = np.minimum(margin[: n_nodes - 1], margin[1:n_nodes]).sum()  # t(1 − t) of a moved row has the mean 1/6
    return float(np.clip((on_nodes - exact) / step**2 / max(total.n_rows, 1.0) * 6 / max(between, 1e-9), 0, 1))
