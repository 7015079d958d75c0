"""A finished study in a few figures: what joining gives, what training alone gives, what the strongest attack gets."""

from __future__ import annotations

from typing import Any

import numpy as np

from mooring.apps.experiments.comparison.results import Kind, Results
from mooring.apps.experiments.figures.material import (
    accuracy_of,
    column,
    local_only,
    mean,
    pooled_raw,
    strongest,
    values,
)
from mooring.apps.experiments.figures.wording import METHOD_WORDS, attack_words

CONTROLS = ("c-gdp", "aa-i-gdp", "i-gdp")
NOISY = ("c-gdp-data-noise", "aa-i-gdp-data-noise", "aa-i-gdp-anchor-noise", "aa-i-gdp-both-noise")
_OWN_ROWS, _ALL_ROWS = "auc_own_clean", "balanced_accuracy_clean"
_BY = ("n_participants", "identities_each", "rows_each")


def summarised(results: Results) -> list[dict[str, Any]]:
    """One entry for each size of a study, in the first deployment; numbers are percent."""
    return [key | _figures(part) for key, part in _sizes(results.where(deployment=0))]


def joining_pays(results: Results) -> tuple[int, int]:
    """Of all noisy draws, as deployed: how many beat training alone, and how many could be compared.

    Where a study scored each participant's own model on that participant's own new rows, that is the comparison, by the
    area under the curve: scores on everybody's rows flatter joining.
    """
    better = total = 0
    for deployment in values(results, "deployment"):
        for _, part in _sizes(results.where(deployment=deployment)):
            alone, score = mean(100 * column(part.where(method="local-own"), _OWN_ROWS)), _OWN_ROWS
            if alone is None:
                alone, score = local_only(part), _ALL_ROWS
            joint = 100 * column(part.where(method=list(NOISY)), score)
            joint = joint[np.isfinite(joint)]
            if alone is not None:
                better, total = better + int((joint > alone).sum()), total + len(joint)
    return better, total


def _sizes(results: Results) -> list[tuple[dict[str, Any], Results]]:
    """The rows of each size of a study: participants, and what each of them holds."""
    groups: list[tuple[dict[str, Any], Results]] = [({}, results)]
    for name in _BY:
        apart = [
            (key | {name: int(value)}, part.only(column(part, name) == value))
            for key, part in groups
            for value in values(part, name)
        ]
        groups = apart or groups
    return groups


def _figures(part: Results) -> dict[str, Any]:
    return {
        "controls": {method: accuracy_of(part, method) for method in CONTROLS if len(part.where(method=method))},
        "local_only": local_only(part),
        "pooled_raw": pooled_raw(part),
        "noisy": [_noisy(part.where(method=method), method) for method in NOISY if len(part.where(method=method))],
    }


def _noisy(part: Results, method: str) -> dict[str, Any]:
    kind: Kind = "linkage" if part.attacks("linkage") else "match"
    envelope = strongest(part, kind)
    known = np.isfinite(envelope)
    names = part.attacks(kind) if known.any() else []
    wins = {name: int((100 * column(part, f"{kind}:{name}")[known] >= envelope[known]).sum()) for name in names}
    best = max(wins, key=lambda name: wins[name]) if wins else None
    return {
        "method": method,
        "words": METHOD_WORDS.get(method, method),
        "draws": len(part),
        "accuracy": mean(100 * column(part, "balanced_accuracy")),
        "accuracy_clean": mean(100 * column(part, "balanced_accuracy_clean")),
        "measure": kind if names else None,
        "strongest": best,
        "strongest_words": None if best is None else attack_words(best),
        "leaked": mean(envelope),
        "leaked_most": float(np.nanmax(envelope)) if known.any() else None,
        "leaked_least": float(np.nanmin(envelope)) if known.any() else None,
    }
