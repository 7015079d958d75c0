"""Grid denoising: the posterior of each cell over the values that its declared column can have.

Each declared column is a group of atoms in the encoded space, and a table is a latent-class model over them. Without a
projection each column stands by itself under the noise: the model is fitted to all rows at once, those of every participant
whose map is known exactly and those that the attacker has, and gives the posterior of every cell. A projection mixes the
columns: the model is fitted to known records, and cells are drawn one column after the other given all others (Gibbs
sampling), with a likelihood whose weight grows over the sweeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from mooring.attacks.alignment_map import map_back_exactly
from mooring.attacks.denoising.atoms import AtomGroup, make_atoms
from mooring.attacks.denoising.gaussian import split_error
from mooring.attacks.denoising.latent_classes import LatentClasses, fit_latent_classes
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction
from mooring.attacks.view import Codes, CollusionView
from mooring.geometry.backend import like, to_numpy
from mooring.randomness import require_generator
from mooring.typing import Array, Matrix

_MOST_ROWS = 8192  # with noise, that the model is fitted to
_FEWEST_ROWS = 8
_N_CHAINS = 2
_SWEEPS = 100
_REFITS = 3
_SHORT = 40  # sweeps before each
_MOST_DRAWN = 500
_ENOUGH = 1000  # known records
_SMOOTHING = 0.5  # of the noise
_fitted: WeakKeyDictionary[CollusionView, tuple[float, LatentClasses]] = WeakKeyDictionary()


def denoise_by_grids(
    reconstruction: Reconstruction, view: CollusionView, *, rng: np.random.Generator
) -> Reconstruction:
    """Replace the rebuilt rows by their posterior mean under a latent-class model of the declared columns; see `Denoiser`.

    It does not apply where no columns are declared, there is no error to take out, or nothing is known of the population.
    """
    require_generator(rng)
    if not view.columns:
        raise DoesNotApply("No columns are declared, so that nothing says which values there are.")
    error = to_numpy(sum(split_error(reconstruction, view)))
    if sum(part.shape[0] for part in view.reference_records) < _FEWEST_ROWS:
        raise DoesNotApply(f"A model of the columns needs {_FEWEST_ROWS} known records at least.")
    rows, codes = _plain(reconstruction.rows), _strata(view, [view.target])
    variance = float(np.trace(error)) / error.shape[0]
    model = _model_of(view, rows, variance)
    evidence = None
    if view.projection.kind == "none":
        weights = model.posterior(_likelihoods(model.groups, rows, variance), codes)
        logs = [group.log_likelihoods(rows, variance) for group in model.groups]
        evidence = like(model.log_evidence(logs, codes), reconstruction.rows)
        found = np.hstack([group.means(own, rows, variance) for group, own in zip(model.groups, weights, strict=True)])
    else:
        F = _plain(view.projection.matrix)
        chains = np.tile(rows, (_N_CHAINS, 1)), np.tile(codes, _N_CHAINS)
        drawn = CellSampler(model, F, variance).draw(*chains, _SWEEPS, rng)[0]
        weights = [own.reshape(_N_CHAINS, rows.shape[0], -1).mean(axis=0) for own in drawn]
        found = np.hstack([own @ group.atoms for group, own in zip(model.groups, weights, strict=True)]) @ F
    cells = np.hstack([group.atoms[own.argmax(axis=1)] for group, own in zip(model.groups, weights, strict=True)])
    return replace(
        reconstruction,
        rows=like(found, reconstruction.rows),
        records=like(cells, reconstruction.rows),
        evidence=evidence,
        notes=(*reconstruction.notes, "by the values that declared columns can have"),
    )


def _model_of(view: CollusionView, rows: Matrix, variance: float) -> LatentClasses:
    """The model of a view's columns, fitted once where all maps are known exactly: it is the same for every attack then."""
    exact = map_back_exactly(view)
    if not exact:
        return _fit(view, (rows, _strata(view, [view.target])), variance)
    stored = _fitted.get(view)
    if stored is None or abs(stored[0] - variance) > 1e-9 * variance:
        pooled = np.concatenate([_plain(one) for one in exact.values()])
        step = 1 + pooled.shape[0] // _MOST_ROWS
        noisy = pooled[::step], _strata(view, list(exact))[::step]
        stored = _fitted[view] = (variance, _fit(view, noisy, variance))
    return stored[1]


def _strata(view: CollusionView, participants: Sequence[int]) -> Codes:
    """Codes of the labels and owners of these participants' rows, one after the other; −1 stands for the public rows."""
    parts = [
        *(one.representation for one in view.uploads),
        *([] if view.public_rows is None else [view.public_rows.rows]),
    ]
    n_owners = len(view.uploads) + 1
    owners = np.repeat(np.asarray(participants) % n_owners, [parts[i].shape[0] for i in participants])
    return np.asarray(view.codes_of(participants) * n_owners + owners)


def _fit(view: CollusionView, noisy: tuple[Matrix, Codes], variance: float) -> LatentClasses:
    """Fit to known records and to rows with noise; behind a projection to known records, and if few, to others as drawn."""
    F, sigma, rng = _plain(view.projection.matrix), variance**0.5, np.random.default_rng(0)  # the same for every attack
    known = np.concatenate([_plain(part) for part in view.reference_records]), _strata(view, view.reference_owners)
    mixed = view.projection.kind != "none"
    groups = tuple(
        make_atoms(view.columns, known[0], sigma, noisy[0] @ _plain(view.projection.decoder) if mixed else noisy[0])
    )
    own = [np.eye(len(group.atoms))[group.nearest(known[0])] for group in groups]
    most = max(int(part.max()) for part in (known[1], noisy[1], _strata(view, [view.target])))
    labels = np.arange(most + 1) // (len(view.uploads) + 1)

    def fitted(likelihoods: Sequence[Matrix], codes: Codes) -> LatentClasses:
        both = [np.concatenate(pair) for pair in zip(own, likelihoods, strict=True)]
        strata, spread = np.concatenate([known[1], codes]), _SMOOTHING * sigma
        return fit_latent_classes(groups, both, strata, labels=labels, spread=spread, rng=rng)

    if not mixed:
        return fitted(_likelihoods(groups, noisy[0], variance), noisy[1])
    model = fitted([part[:0] for part in own], noisy[1][:0])
    if known[0].shape[0] < _ENOUGH:
        some = slice(None, None, 1 + noisy[0].shape[0] // _MOST_DRAWN)
        rows, codes = noisy[0][some], noisy[1][some]
        for _ in range(_REFITS):
            drawn = CellSampler(model, F, variance).draw(rows, codes, _SHORT, rng)[1]
            model = fitted([np.eye(len(group.atoms))[cell] for group, cell in zip(groups, drawn, strict=True)], codes)
    return model


def _likelihoods(groups: Sequence[AtomGroup], rows: Matrix, variance: float) -> list[Matrix]:
    return [_scaled(group.log_likelihoods(rows, variance)) for group in groups]


@dataclass(frozen=True, eq=False)
class CellSampler:
    """A Gibbs sampler of records' cells behind a projection F, under a model of the columns and noise of a variance."""

    model: LatentClasses
    F: Matrix
    variance: float

    def draw(
        self, rows: Matrix, codes: Codes, n_sweeps: int, rng: np.random.Generator
    ) -> tuple[list[Matrix], list[Codes]]:
        """Draw the cells of projected rows, all rows at once and one column after the other.

        Returns
        -------
        Probabilities of every cell's atoms, the mean over the second half; and the atoms drawn last. One array a column.
        """
        groups, mixing = self.model.groups, np.log(self.model.mixing[codes])
        images = [group.atoms @ self.F[group.features] for group in groups]
        squares = [(image**2).sum(axis=1) / 2 for image in images]
        logs = [np.log(table) for table in self.model.tables]
        component = _draw(mixing, rng)[0]
        cells = [_draw(own[component], rng)[0] for own in logs]
        left = rows - sum(image[cell] for image, cell in zip(images, cells, strict=True))
        totals = [np.zeros((rows.shape[0], square.size)) for square in squares]
        burn_in = n_sweeps // 2
        for sweep in range(n_sweeps):
            precision = min(1.0, (sweep + 1) / burn_in) / self.variance
            component = _draw(mixing + sum(own[:, cell].T for own, cell in zip(logs, cells, strict=True)), rng)[0]
            for g, (image, square, own) in enumerate(zip(images, squares, logs, strict=True)):
                left += image[cells[g]]
                cells[g], probabilities = _draw(own[component] + precision * (left @ image.T - square), rng)
                left -= image[cells[g]]
                if sweep >= burn_in:
                    totals[g] += probabilities
        return [total / (n_sweeps - burn_in) for total in totals], cells


def _draw(logs: Matrix, rng: np.random.Generator) -> tuple[Codes, Matrix]:
    """One of the options of each row, by logarithms of their weights; and their probabilities."""
    weights = _scaled(logs)
    cumulative = weights.cumsum(axis=1)
    drawn = (cumulative < rng.random((logs.shape[0], 1)) * cumulative[:, -1:]).sum(axis=1)
    return drawn, weights / cumulative[:, -1:]


def _scaled(logs: Matrix) -> Matrix:
    return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))


def _plain(array: Array) -> Matrix:
    return np.asarray(to_numpy(array), dtype=np.float64)
