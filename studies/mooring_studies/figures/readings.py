"""What figures read out of a result table: means, noise levels matched between deployments, gains, groups of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mooring.typing import Vector
from mooring_studies.comparison.results import Kind, Results
from mooring_studies.figures import terms

_OTHER_SIZE = 1.5  # as many times more rows make another group; splits of one study differ by a row or two


def mean(series: Vector) -> float | None:
    """The mean of what is finite; None where nothing is."""
    good = series[np.isfinite(series)]
    return float(good.mean()) if len(good) else None


def mean_of(results: Results, method: str, name: str) -> float | None:
    """A method's mean, in percent."""
    return mean(results.where(method=method).percent(name))


def accuracy_of(results: Results, method: str) -> float | None:
    """Mean balanced accuracy of a method without noise, in percent."""
    noisy = mean_of(results, method, "balanced_accuracy")
    return mean_of(results, method, "balanced_accuracy_clean") if noisy is None else noisy


def references(results: Results) -> dict[str, Any]:
    """What utilities are compared with, as `chart.draw_comparisons` takes it: training alone, pooled raw records, sums."""
    return {
        "local": accuracy_of(results, terms.LOCAL_ONLY),
        "pooled": accuracy_of(results, terms.POOLED_RAW),
        "sums": sums_of(results, "balanced_accuracy"),
    }


def sums_of(results: Results, name: str) -> dict[str, float | None]:
    """What models from secure sums score, in percent, by the words of their lines."""
    rows = results.where(method=terms.SECURE_SUM)
    if not len(rows):
        return {}
    return {words: mean(rows.where(epsilon=epsilon).percent(name)) for words, epsilon in terms.SUMS.items()}


def leakage_of(results: Results, method: str, kind: Kind) -> float | None:
    """What the strongest attack finds on average on a method, such as one without noise."""
    return mean(results.where(method=method).leakage(kind))


def noiseless_method(rows: Results) -> str:
    """The joint method without noise that a table has."""
    return terms.ALIGNED if len(rows.where(method=terms.ALIGNED)) else terms.COMMON


def name_noisy_methods(rows: Results) -> dict[str, str]:
    """Words for the noisy methods of a table; private-data noise is one, whichever of its two coupled forms was run."""
    data = terms.DATA_NOISE if len(rows.where(method=terms.DATA_NOISE)) else terms.ALIGNED_DATA_NOISE
    return {data if method == terms.DATA_NOISE else method: words for method, (words, _) in terms.NOISY.items()}


@dataclass(frozen=True)
class Worth:
    """A measure of what a model is worth: its column as deployed, that on rows with noise, and its axis."""

    clean: str
    noisy: str | None
    axis: str


ACCURACY = Worth("balanced_accuracy_clean", "balanced_accuracy", terms.CLEAN_AXIS)
RANKING = Worth("auc_own_clean", None, terms.AUC_AXIS)


def match_levels(rows: Results, scale: str, name: str) -> tuple[Vector, Vector]:
    """Noise levels, and a percentage at each: one row a deployment, draws averaged.

    The k-th level of every deployment is one level: σ is a multiple of the rows' size, which differs a little between
    deployments. Deployments with fewer levels than others, unfinished ones, are left out.
    """
    across, up = [], []
    for deployment in rows.values("deployment"):
        part = rows.where(deployment=deployment)
        x, y = part.numbers(scale), part.percent(name)
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


def average_by_setting(rows: Results, *series: Vector) -> list[Vector]:
    """Every series averaged over the runs of one setting of the noise, whatever their deployment and draw.

    A setting is v and the place of σ among a deployment's: σ is a multiple of the rows' size, which differs a little.
    """
    v, sigma = (np.round(np.nan_to_num(rows.numbers(f"{name}_noise_scale")), 9) for name in ("anchor", "data"))
    deployment, place = rows.numbers("deployment"), np.zeros(len(rows))
    for number in np.unique(deployment):
        inside = deployment == number
        place[inside] = np.unique(sigma[inside], return_inverse=True)[1]
    good = np.isfinite(np.stack(series)).all(axis=0)
    if not good.any():
        return [np.empty(0) for _ in series]
    which = np.unique(np.stack([v, place])[:, good], axis=1, return_inverse=True)[1].ravel()
    return [np.bincount(which, weights=each[good]) / np.bincount(which) for each in series]


def split_by_rows(results: Results) -> Iterator[tuple[str, Results]]:
    """Parts of the table by rows a participant, where a study has several, in words."""
    sizes = results.values("rows_each")
    starts = [size for k, size in enumerate(sizes) if k == 0 or size > _OTHER_SIZE * sizes[k - 1]]
    if len(starts) < 2:
        yield "", results
        return
    rows_each = results.numbers("rows_each")
    for start, end in zip(starts, [*starts[1:], np.inf], strict=True):
        inside = (rows_each >= start) & (rows_each < end)
        yield f", {int(start)} rows each", results.only(inside)
