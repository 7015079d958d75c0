"""Grid denoising: the posterior of each cell over the values that its declared column can have.

The values that a declared column can have are points of the encoded space, its atoms, and a table follows a latent-class
model over these atoms. Without a projection, the noise affects each column separately. The model is then fitted to known
rows and, at the same time, to rows of every participant whose map is known exactly or was estimated by the attack, and gives
the posterior of every cell. A projection mixes the columns. The model is then fitted to known records and, if these are few,
also to drawn cells of noisy rows. Cells are drawn column by column, each given all other columns (Gibbs sampling), with a
likelihood whose weight grows over the sweeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

_FEWEST_ROWS = 8
_SMOOTHING = 0.5  # in units of the noise
_fitted: WeakKeyDictionary[CollusionView, tuple[float, tuple[LatentClasses, ...]]] = WeakKeyDictionary()


def denoise_by_grids(
    reconstruction: Reconstruction, view: CollusionView, *, rng: np.random.Generator
) -> Reconstruction:
    """Return rebuilt rows replaced by their posterior mean under a latent-class model of the declared columns.

    The result also has the likeliest record of each row. The denoiser does not apply if no columns are declared, if the
    rows carry no known error, or if the attacker knows too few records.
    """
    require_generator(rng)
    if not view.columns:
        raise DoesNotApply("No columns are declared, so the possible values of cells are not known.")
    error = to_numpy(sum(split_error(reconstruction, view)))
    if sum(part.shape[0] for part in view.reference_records) < _FEWEST_ROWS:
        raise DoesNotApply(f"A model of the columns needs at least {_FEWEST_ROWS} known records.")
    rows, codes = _plain(reconstruction.rows), _strata(view, [view.target])
    variance = float(np.trace(error)) / error.shape[0]
    models = _models_of(view, {view.target: rows, **reconstruction.others}, variance)
    evidence, groups = None, models[0].groups
    if view.projection.kind == "none":
        denoised, densities, weights = _read(models, rows, codes, variance)
        evidence = like(densities, reconstruction.rows)
    else:
        F = _plain(view.projection.matrix)
        n_chains = view.effort.grid_chains
        chains = np.tile(rows, (n_chains, 1)), np.tile(codes, n_chains)
        drawn = CellSampler(models[0], F, variance).draw(*chains, view.effort.grid_sweeps, rng)[0]
        weights = [part.reshape(n_chains, rows.shape[0], -1).mean(axis=0) for part in drawn]
        denoised = np.hstack([part @ group.atoms for group, part in zip(groups, weights, strict=True)]) @ F
    cells = np.hstack([group.atoms[part.argmax(axis=1)] for group, part in zip(groups, weights, strict=True)])
    return replace(
        reconstruction,
        rows=like(denoised, reconstruction.rows),
        records=like(cells, reconstruction.rows),
        evidence=evidence,
        notes=(*reconstruction.notes, "by the values that declared columns can have"),
    )


def denoise_together(
    view: CollusionView, rows_of: Mapping[int, Matrix], variance: float
) -> tuple[dict[int, Matrix], dict[int, float]]:
    """Return the denoised rows of several participants, and the log density of each participant's rows together.

    The models are fitted to all of these rows and to the known records. Rows are not projected, and the error of every
    number has the same variance.
    """
    models = _fit(view, rows_of, variance)
    read = {i: _read(models, rows, _strata(view, [i]), variance) for i, rows in rows_of.items()}
    return {i: part[0] for i, part in read.items()}, {i: float(part[1].sum()) for i, part in read.items()}


def _read(
    models: Sequence[LatentClasses], rows: Matrix, codes: Codes, variance: float
) -> tuple[Matrix, Matrix, list[Matrix]]:
    """Return the posterior means of rows, their log densities, and the probabilities of each column's atoms.

    Probabilities and densities are averaged over the models, which have the same atoms; logarithms are taken afterwards.
    """
    groups = models[0].groups
    logs = [group.log_likelihoods(rows, variance) for group in groups]
    read = [model.posterior(logs, codes) for model in models]
    weights = [sum(parts) / len(models) for parts in zip(*(weights for weights, _ in read), strict=True)]
    densities = np.logaddexp.reduce([density for _, density in read]) - np.log(len(models))
    means = [group.means(part, rows, variance) for group, part in zip(groups, weights, strict=True)]
    return np.hstack(means), densities, weights


def _models_of(view: CollusionView, rows_of: Mapping[int, Matrix], variance: float) -> tuple[LatentClasses, ...]:
    """Return the models of a view's columns.

    If all maps are known exactly, models are fitted once for a view and a variance, and serve all attacks.
    """
    exact = map_back_exactly(view)
    if not exact:
        return _fit(view, rows_of, variance)
    stored = _fitted.get(view)
    if stored is None or abs(stored[0] - variance) > 1e-9 * variance:
        rows = {i: _plain(part) for i, part in exact.items()}
        stored = _fitted[view] = (variance, _fit(view, rows, variance, most=view.effort.grid_rows))
    return stored[1]


def _strata(view: CollusionView, participants: Sequence[int]) -> Codes:
    """Return a code of label and owner for each row of these participants, in order; −1 stands for the public rows."""
    parts = [
        *(upload.representation for upload in view.uploads),
        *([] if view.public_rows is None else [view.public_rows.rows]),
    ]
    n_owners = len(view.uploads) + 1
    owners = np.repeat(np.asarray(participants) % n_owners, [parts[i].shape[0] for i in participants])
    return np.asarray(view.codes_of(participants) * n_owners + owners)


def _fit(
    view: CollusionView, rows_of: Mapping[int, Matrix], variance: float, *, most: int | None = None
) -> tuple[LatentClasses, ...]:
    """Fit models to known records and participants' noisy rows, of which some are left out if there are more than `most`.

    The models differ in where their fit starts. Behind a projection there is only one model, which is fitted to noisy rows
    only if few records are known. Noisy rows always help to set the ranges of columns without a declared range.
    """
    pooled = np.concatenate(list(rows_of.values()))
    step = 1 if most is None else 1 + pooled.shape[0] // most
    noisy = pooled[::step], _strata(view, list(rows_of))[::step]
    F, sigma = _plain(view.projection.matrix), variance**0.5
    rng = np.random.default_rng(0)  # a fixed seed, so that all attacks get the same models
    known = np.concatenate([_plain(part) for part in view.reference_records]), _strata(view, view.reference_owners)
    mixed = view.projection.kind != "none"
    groups = tuple(
        make_atoms(view.columns, known[0], sigma, noisy[0] @ _plain(view.projection.decoder) if mixed else noisy[0])
    )
    certain = [np.eye(len(group.atoms))[group.nearest(known[0])] for group in groups]
    last = max(int(part.max()) for part in (known[1], noisy[1], _strata(view, [view.target])))
    labels = np.arange(last + 1) // (len(view.uploads) + 1)

    def fitted(likelihoods: Sequence[Matrix], codes: Codes) -> LatentClasses:
        both = [np.concatenate(pair) for pair in zip(certain, likelihoods, strict=True)]
        strata, spread = np.concatenate([known[1], codes]), _SMOOTHING * sigma
        effort = view.effort
        return fit_latent_classes(
            groups,
            both,
            strata,
            labels=labels,
            spread=spread,
            rng=rng,
            n_classes=effort.projected_classes if mixed else effort.latent_classes,
            n_rounds=effort.class_rounds,
        )

    if not mixed:
        likelihoods = _likelihoods(groups, noisy[0], variance)
        return tuple(fitted(likelihoods, noisy[1]) for _ in range(view.effort.grid_models))
    model = fitted([part[:0] for part in certain], noisy[1][:0])
    if known[0].shape[0] < view.effort.refit_below:
        some = slice(None, None, 1 + noisy[0].shape[0] // view.effort.refit_rows)
        rows, codes = noisy[0][some], noisy[1][some]
        for _ in range(view.effort.grid_refits):
            drawn = CellSampler(model, F, variance).draw(rows, codes, view.effort.refit_sweeps, rng)[1]
            model = fitted([np.eye(len(group.atoms))[cell] for group, cell in zip(groups, drawn, strict=True)], codes)
    return (model,)


def _likelihoods(groups: Sequence[AtomGroup], rows: Matrix, variance: float) -> list[Matrix]:
    return [_scaled(group.log_likelihoods(rows, variance)) for group in groups]


@dataclass(frozen=True, eq=False)
class CellSampler:
    """A Gibbs sampler of the cells of records behind a projection F, given a model of the columns and the noise variance."""

    model: LatentClasses
    F: Matrix
    variance: float

    def draw(
        self, rows: Matrix, codes: Codes, n_sweeps: int, rng: np.random.Generator
    ) -> tuple[list[Matrix], list[Codes]]:
        """Draw the cells of projected rows, column by column for all rows at once.

        Returns the mean probabilities of every cell's atoms over the second half of the sweeps, and the atoms drawn last;
        one array per column.
        """
        groups, mixing = self.model.groups, np.log(self.model.mixing[codes])
        images = [group.atoms @ self.F[group.features] for group in groups]
        squares = [(image**2).sum(axis=1) / 2 for image in images]
        logs = [np.log(table) for table in self.model.tables]
        component = _draw(mixing, rng)[0]
        cells = [_draw(table[component], rng)[0] for table in logs]
        left = rows - sum(image[cell] for image, cell in zip(images, cells, strict=True))
        totals = [np.zeros((rows.shape[0], square.size)) for square in squares]
        burn_in = n_sweeps // 2
        for sweep in range(n_sweeps):
            precision = min(1.0, (sweep + 1) / burn_in) / self.variance
            component = _draw(mixing + sum(table[:, cell].T for table, cell in zip(logs, cells, strict=True)), rng)[0]
            for g, (image, square, table) in enumerate(zip(images, squares, logs, strict=True)):
                left += image[cells[g]]
                cells[g], probabilities = _draw(table[component] + precision * (left @ image.T - square), rng)
                left -= image[cells[g]]
                if sweep >= burn_in:
                    totals[g] += probabilities
        return [total / (n_sweeps - burn_in) for total in totals], cells


def _draw(logs: Matrix, rng: np.random.Generator) -> tuple[Codes, Matrix]:
    """Return a random option for each row, and the options' probabilities, from the logarithms of the options' weights."""
    weights = _scaled(logs)
    cumulative = weights.cumsum(axis=1)
    drawn = (cumulative < rng.random((logs.shape[0], 1)) * cumulative[:, -1:]).sum(axis=1)
    return drawn, weights / cumulative[:, -1:]


def _scaled(logs: Matrix) -> Matrix:
    return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))


def _plain(array: Array) -> Matrix:
    return np.asarray(to_numpy(array), dtype=np.float64)
