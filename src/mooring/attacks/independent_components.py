"""Independent components: FastICA finds columns in the upload, if they are nearly independent and not Gaussian.

FastICA finds components without collusion. These are then paired with columns: by the distribution of values if the attacker
knows rows of a colluder or public ones, and otherwise in the order of their variances.
"""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from mooring.attacks.effort import Effort
from mooring.attacks.principal_axes import translation_for
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, reconstruct
from mooring.attacks.view import CollusionView
from mooring.geometry.backend import like, namespace_of, to_numpy
from mooring.geometry.orthogonal import svd_polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.typing import Matrix

_QUANTILES = np.linspace(0.02, 0.98, 49)
_MOST_COMPONENTS = 200


def independent_components(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Find independent directions in the upload and pair each with a column."""
    Y = to_numpy(view.target_upload.representation)
    n, h = Y.shape
    if n <= h + 1:
        raise DoesNotApply(f"There must be more rows than components; the target has {n} rows and {h} components.")
    if h > _MOST_COMPONENTS:
        raise DoesNotApply(f"FastICA is run for up to {_MOST_COMPONENTS} components; here there are {h}.")
    directions = _directions(Y, rng, view.effort)
    known = view.reference_rows
    sources = (Y - Y.mean(axis=0)) @ np.linalg.inv(directions).T  # the directions are only approximately orthogonal
    pairs, signs = _paired(sources, None if known is None else to_numpy(known))
    orthogonal = np.empty((h, h))
    orthogonal[pairs] = (signs * sources.std(axis=0))[:, None] * directions.T  # row j of O is the image of column j
    reference = view.target_upload.representation
    turned = like(svd_polar_factor(orthogonal), reference)
    xp = namespace_of(reference)
    mean = xp.zeros_like(reference[0, :]) if known is None else xp.mean(known, axis=0)
    return reconstruct(view, RigidMap(turned, translation_for(view, turned, mean)))


def _directions(Y: Matrix, rng: np.random.Generator, effort: Effort) -> Matrix:
    """Return the unit directions (columns) of the independent components in the upload."""
    from sklearn.decomposition import FastICA
    from sklearn.exceptions import ConvergenceWarning

    most = effort.component_rows
    chosen = Y if Y.shape[0] <= most else Y[rng.choice(Y.shape[0], most, replace=False)]
    values = np.linalg.eigvalsh(np.cov(chosen.T).reshape(Y.shape[1], Y.shape[1]))
    if values[0] <= 1e-12 * values[-1]:
        raise DoesNotApply("The upload does not vary in every direction, so its components cannot be separated.")
    seed = int(rng.integers(2**31))
    ica = FastICA(whiten="unit-variance", random_state=seed, max_iter=effort.component_iterations, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a rough estimate is still useful
        ica.fit(chosen)
    mixing = np.asarray(ica.mixing_)
    return np.asarray(mixing / np.linalg.norm(mixing, axis=0))


def _paired(sources: Matrix, known: Matrix | None) -> tuple[npt.NDArray[np.intp], Matrix]:
    """Return the column that each component is paired with, and its sign."""
    if known is None:
        order = np.argsort(-sources.var(axis=0))
        pairs = np.empty(order.size, dtype=np.intp)
        pairs[order] = np.arange(order.size)
        return pairs, np.where((sources**3).mean(axis=0) < 0, -1.0, 1.0)
    observed = np.quantile(sources, _QUANTILES, axis=0).T
    wanted = np.quantile(known - known.mean(axis=0), _QUANTILES, axis=0).T
    straight = ((observed[:, None, :] - wanted[None]) ** 2).mean(axis=2)
    turned = ((-observed[:, None, ::-1] - wanted[None]) ** 2).mean(axis=2)
    _, pairs = linear_sum_assignment(np.minimum(straight, turned))
    components = np.arange(pairs.size)
    return pairs, np.where(turned[components, pairs] < straight[components, pairs], -1.0, 1.0)
