"""What the best of several attacks reaches by chance alone: the highest of several guesses lies above a guess.

Every attack is judged on the same galleries, so attacks agree to some degree, and the best of them gains less than the
best of as many independent ones: what is computed here is an upper bound. Galleries of one record agree as well, so
that the best gains more. How many independent galleries they amount to is not known; the number of records and that of
galleries are both given. It is the mean over draws that is computed: a single draw may lie above it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from mooring_studies.comparison.results import Kind, Results

N_CANDIDATES = 10  # of every gallery
_PARTS = ("parts", "cells", "deployments")  # where studies of several sizes note what belongs to one of them
_WAYS = {"linkage": 1, "match": 2}  # records are matched by distance and by angle, whichever finds more


def expect_best_guess(n_attacks: int, n_galleries: int, n_candidates: int = N_CANDIDATES) -> float:
    """The expected share of the best of so many attacks that all guess, each gallery and each attack on its own.

    The expected maximum of k independent Binomial(g, 1/c) counts is the sum of 1 − F(x)^k over x = 0 … g − 1.

    Examples
    --------
    >>> expect_best_guess(2, 1, n_candidates=2)
    0.75
    """
    from scipy.stats import binom

    below = binom.cdf(np.arange(n_galleries), n_galleries, 1 / n_candidates)
    return float(np.sum(1 - below**n_attacks)) / n_galleries


def count_rivals(rows: Results, kind: Kind) -> int:
    """How many attacks the strongest is the best of: the most that were measured on one of its draws."""
    judged = rows.only(np.isfinite(rows.strongest(kind)))
    measured = [np.isfinite(judged[f"{kind}:{name}"]) for name in judged.attacks(kind)]
    return int(np.sum(measured, axis=0).max()) if measured else 0


def count_galleries(facts: Mapping[str, Any], kind: Kind) -> tuple[int, int] | None:
    """The fewest and the most independent galleries that an attack of a study was judged by; None if none were noted."""
    counts = _noted(facts, kind)
    for name in _PARTS if not counts else ():
        parts = facts.get(name) or []
        for part in parts.values() if isinstance(parts, Mapping) else parts:
            counts += _noted(part, kind)
    return (min(counts), max(counts)) if counts else None


def estimate_max_of_k(rows: Results, facts: Mapping[str, Any], kind: Kind) -> tuple[float, float] | None:
    """The least and the most share that the strongest attack would reach on average by chance alone; None if unknown."""
    counts, n_attacks = count_galleries(facts, kind), count_rivals(rows, kind)
    if counts is None or n_attacks == 0:
        return None
    fewest, most = (expect_best_guess(_WAYS[kind] * n_attacks, count) for count in counts)
    return most, fewest


def describe_max_of_k(parts: Iterable[Results], facts: Mapping[str, Any], kind: Kind) -> str:
    """A sentence for a caption, with a blank before it: from what to what chance alone gives in the parts of a table.

    Nothing where the study did not note how many galleries it had, or no attack was run.
    """
    baselines = {count_rivals(rows, kind): estimate_max_of_k(rows, facts, kind) for rows in parts}
    known = [(n, baseline) for n, baseline in sorted(baselines.items()) if baseline is not None]
    if not known:
        return ""
    opening = "Linked by chance" if kind == "linkage" else "Matched by chance"
    shares = [share for _, baseline in known for share in baseline]
    counts = " to ".join(dict.fromkeys((str(known[0][0]), str(known[-1][0]))))
    return f" {opening}: {_percent(min(shares), max(shares))} (best of {counts})."


def _noted(part: Mapping[str, Any], kind: Kind) -> list[int]:
    """The records asked about, and, where an auditor links them, the galleries that they are shown in."""
    records, galleries = part.get("n_queries"), part.get("n_galleries")
    wanted = (records or galleries,) if kind == "match" else (records, galleries)
    return [int(count) for count in wanted if count]


def _percent(least: float, most: float) -> str:
    ends = dict.fromkeys((f"{100 * least:.1f}", f"{100 * most:.1f}"))
    return f"{' to '.join(ends)} %"
