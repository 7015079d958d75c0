"""What the tables and the landscape found, in plain words."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mooring_studies.comparison.findings_reading import (
    ANCHOR,
    largest_of,
    mean_of,
    percent,
    percent_over,
)
from mooring_studies.comparison.results import Results

_SCORE = "auc_own_clean"
RESOLVED_GAIN = 3.0
"""Percentage points: about twice the spread of a cell's gain between deployments. What is less is not told from nothing."""


def on_landscape(rows: Results) -> str:
    """Where joining pays, over rows, participants and noise."""

    def gain(method: str, column: str, level: float) -> list[tuple[int, int, float]]:
        found = []
        for p in rows.values("n_participants"):
            for each in rows.where(n_participants=p).values("rows_each"):
                here = rows.where(n_participants=p, rows_each=each)
                noisy = here.where(method=method)
                near = noisy.only(np.isclose(noisy[column], level))
                if len(near):
                    alone = mean_of(here.where(method="local-only")["balanced_accuracy_clean"])
                    found.append((int(p), int(each), 100 * (mean_of(near["balanced_accuracy_clean"]) - alone)))
        return found

    little, much = gain(ANCHOR, "anchor_noise_scale", 0.05), gain(ANCHOR, "anchor_noise_scale", 0.2)
    best = max(little, key=lambda one: one[2])
    paying = [one for one in much if one[2] > RESOLVED_GAIN]
    return f"""
## Where joining pays

Digits, {min(each for _, each, _ in little)} to {max(each for _, each, _ in little):,} rows a participant, 2 to
{max(p for p, *_ in little)} participants, new rows scored at home. Blue: joining gains over training alone.

![Where joining pays](figures/landscape/gain.svg)

Joining pays for many participants with few rows: {best[2]:.0f} points at v = 0.05 for {best[0]} participants with {best[1]}
rows each.{_pooled(rows, best)}
At v = 0.2 it gains more than {RESOLVED_GAIN:g} points in {len(paying)} of {len(much)} cells, none of them with
more than {max((each for _, each, _ in paying), default=0)} rows a participant. How closely the strongest attack rebuilds
records, as a share of the error of guessing (1 would be full protection):

![What the strongest attack leaves](figures/landscape/leakage-error.svg)
"""


def _pooled(rows: Results, cell: tuple[int, int, float]) -> str:
    """What pooling without protection would gain in a cell; nothing where it was not measured."""
    here = rows.where(n_participants=cell[0], rows_each=cell[1])
    alone, pooled = (
        mean_of(here.where(method=name)["balanced_accuracy_clean"]) for name in ("local-only", "pooled-raw")
    )
    return f" Pooled without protection they would gain {100 * (pooled - alone):.0f}." if np.isfinite(pooled) else ""


def on_tables(studies: Mapping[str, Results]) -> str:
    """Hospitals and census."""
    without = ("study", "most rows each", "alone", "pooled raw", "joint, no noise", "I-GDP", "matched")
    headings = (*without, "most noise on rows", "matched", "most anchor noise", "matched")
    lines = [
        "## Tables: four hospitals, and a census over fifty participants",
        "Scores on everybody's rows flatter joining: what counts for a participant is its own new rows. Below is the area "
        "under the curve on these, mean over participants and deployments, of each one's own model, of one on everybody's "
        "rows without protection, and of joint ones scored at home; and how often the strongest attack picks a row out of "
        "ten.",
        f"| {' | '.join(headings)} |\n"
        + "|---" * len(headings)
        + "|\n"
        + "\n".join(_table_line(name, part) for name, part in _apart(studies)),
        "To I-GDP, which uploads no anchor, the paper assigns no leakage. The strongest attack on it that we ran picks out "
        + "; ".join(_matched_of_i_gdp(name, part) for name, part in _apart(studies))
        + ". The scores are "
        "those of the default learner, which bends to rows that are turned in several ways at once; by the linear one I-GDP "
        "scores " + "; ".join(_linear_of_i_gdp(name, part) for name, part in _apart(studies)) + ".",
    ]
    for name, words in (("hospitals", "Four hospitals"), ("census", "Census")):
        if name in studies:
            lines.append(f"![{words}: does joining beat training alone?](figures/{name}/utility-auc.svg)")
    return "\n\n".join(lines)


def _apart(studies: Mapping[str, Results]) -> list[tuple[str, Results]]:
    return [(name, part) for name in ("hospitals", "census") for part in _by_rows(studies.get(name))]


def _matched_of_i_gdp(name: str, rows: Results) -> str:
    own = rows.where(method="i-gdp")
    return f"{percent_over(own.strongest('match'))} of the rows of {_sized(name, own)}"


def _linear_of_i_gdp(name: str, rows: Results) -> str:
    scores = [_score(rows.where(method=method), f"{_SCORE}:linear") for method in ("i-gdp", "aa-i-gdp")]
    return f"{percent(scores[0])} on {_sized(name, rows)}, and the joint model without noise {percent(scores[1])}"


def _sized(name: str, rows: Results) -> str:
    return f"{name} with {max(rows.where(method='i-gdp').values('rows_each'), default=0):g} rows at most each"


def _score(rows: Results, column: str) -> float:
    return mean_of(rows[column]) if column in rows else float("nan")


def _by_rows(rows: Results | None) -> list[Results]:
    """A study's rows, apart by how many each participant holds where that was varied."""
    if rows is None:
        return []
    sizes = rows.where(method="aa-i-gdp").values("rows_each")
    return [rows.where(rows_each=each) for each in sizes] if len(sizes) > 1 else [rows]


def _table_line(name: str, rows: Results) -> str:
    cells = [_score(rows.where(method=method), _SCORE) for method in ("local-own", "pooled-raw", "aa-i-gdp", "i-gdp")]
    cells.append(mean_of(rows.where(method="i-gdp").strongest("match")))
    for method, noise in (("aa-i-gdp-data-noise", "data_noise_scale"), (ANCHOR, "anchor_noise_scale")):
        noisy = rows.where(method=method)
        most = noisy.only(np.isclose(noisy[noise], largest_of(noisy[noise]), rtol=0.2))
        cells += [_score(most, _SCORE), mean_of(most.strongest("match"))]
    each = rows.where(method="aa-i-gdp").values("rows_each")
    return " | ".join(["", name, str(int(max(each))) if each else "", *map(percent, cells), ""]).strip()
