"""What figures of tables read: noise levels matched between deployments, gains over training alone, groups of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mooring_studies.figures.labels import (
    ALIGNED_DATA_NOISE,
    ANCHOR_NOISE,
    AUC_AXIS,
    BOTH_NOISES,
    CLEAN_AXIS,
    DATA_NOISE,
    LOCAL_OWN,
)
from mooring_studies.figures.series import column, control, mean, percent, values

if TYPE_CHECKING:
    from mooring_studies.comparison.results import Results

Array = NDArray[np.float64]
_OTHER_SIZE = 1.5  # as many times more rows make another group; splits of one study differ by a row or two


def noisy_methods(rows: Results) -> dict[str, str]:
    """Words for the noisy methods of a table; private-data noise is one, whichever of its two coupled forms was run."""
    data = DATA_NOISE if len(rows.where(method=DATA_NOISE)) else ALIGNED_DATA_NOISE
    return {data: "private-data noise", ANCHOR_NOISE: "anchor noise", BOTH_NOISES: "both noises"}


@dataclass(frozen=True)
class Worth:
    """A measure of what a model is worth: its column as deployed, that on rows with noise, and its axis."""

    clean: str
    noisy: str | None
    axis: str


ACCURACY = Worth("balanced_accuracy_clean", "balanced_accuracy", CLEAN_AXIS)
RANKING = Worth("auc_own_clean", None, AUC_AXIS)


def levels(rows: Results, scale: str, name: str) -> tuple[Array, Array]:
    """Noise levels, and a percentage at each: one row a deployment, draws averaged.

    The k-th level of every deployment is one level: σ is a multiple of the rows' size, which differs a little between
    deployments. Deployments with fewer levels than others, unfinished ones, are left out.
    """
    across, up = [], []
    for deployment in values(rows, "deployment"):
        own = rows.where(deployment=deployment)
        x, y = column(own, scale), percent(own, name)
        good = np.isfinite(x) & np.isfinite(y)
        places, which = np.unique(np.round(x[good], 9), return_inverse=True)
        if len(places):
            across.append(places)
            up.append(np.bincount(which, weights=y[good]) / np.bincount(which))
    if not across:
        return np.empty(0), np.empty((0, 0))
    most = max(len(places) for places in across)
    kept = [k for k, places in enumerate(across) if len(places) == most]
    return np.mean([across[k] for k in kept], axis=0), np.stack([up[k] for k in kept])


def means_by_setting(rows: Results, *series: Array) -> list[Array]:
    """Every series averaged over the runs of one setting of the noise, whatever their deployment and draw.

    A setting is v and the place of σ among a deployment's: σ is a multiple of the rows' size, which differs a little.
    """
    v, sigma = (np.round(np.nan_to_num(column(rows, f"{name}_noise_scale")), 9) for name in ("anchor", "data"))
    deployment, place = column(rows, "deployment"), np.zeros(len(rows))
    for one in np.unique(deployment):
        own = deployment == one
        place[own] = np.unique(sigma[own], return_inverse=True)[1]
    good = np.isfinite(np.stack(series)).all(axis=0)
    if not good.any():
        return [np.empty(0) for _ in series]
    which = np.unique(np.stack([v, place])[:, good], axis=1, return_inverse=True)[1].ravel()
    return [np.bincount(which, weights=each[good]) / np.bincount(which) for each in series]


def paired_gains(rows: Results, joint: Results, name: str) -> Array:
    """Points that a joint model gains over training alone, own rows: one number a deployment, draws averaged."""
    found = []
    for deployment in values(rows, "deployment"):
        alone = control(rows.where(deployment=deployment), LOCAL_OWN, name)
        joined = mean(percent(joint.where(deployment=deployment), name))
        if alone is not None and joined is not None:
            found.append(joined - alone)
    return np.array(found)


def strongest_noise(rows: Results) -> Results:
    """The rows with the strongest noise of every deployment."""
    noise = np.nan_to_num(column(rows, "anchor_noise_scale")) + np.nan_to_num(column(rows, "data_noise_scale"))
    deployment = column(rows, "deployment")
    most = {one: noise[deployment == one].max() for one in np.unique(deployment)}
    return rows.only(np.array([noise[k] == most[one] for k, one in enumerate(deployment)], dtype=bool))


def by_rows(results: Results) -> Iterator[tuple[str, Results]]:
    """Parts of the table by rows a participant, where a study has several, in words."""
    sizes = values(results, "rows_each")
    starts = [size for k, size in enumerate(sizes) if k == 0 or size > _OTHER_SIZE * sizes[k - 1]]
    if len(starts) < 2:
        yield "", results
        return
    rows_each = column(results, "rows_each")
    for start, end in zip(starts, [*starts[1:], np.inf], strict=True):
        inside = (rows_each >= start) & (rows_each < end)
        yield f", {int(start)} rows each", results.only(inside)
