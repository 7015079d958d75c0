"""The paper's numbers beside ours: plain rows for JSON, HTML and CSV, and a page of Markdown (comparison.md.jinja)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mooring_studies.comparison.claims import FAILS, HOLDS, ILL_POSED, SHIFTED, Verdict, judge_claims
from mooring_studies.comparison.numbers import (
    LARGE_FACTOR,
    LARGE_POINTS,
    LARGE_SHARES,
    NOT_RUN,
    Comparison,
)
from mooring_studies.comparison.paper import Number
from mooring_studies.comparison.reading import ACCURACY, ANCHOR, Study, column_of, mean_and_deviation, mean_of
from mooring_studies.comparison.results import Results
from mooring_studies.markdown import render_markdown, write_line

_COLUMNS = (
    *("id", "study", "section", "kind", "says", "unit", "paper", "ours", "difference", "large", "note"),
    *("lowest", "highest", "paper_text", "ours_text", "spread_text", "difference_text"),
)
_FEW_DIGITS = 1e-3  # below this, numbers are written with a power of ten
_UNEVEN_NOISE = (0.0, 0.04, 0.08, 0.16, 0.25)
_PEOPLE_CALL = {"mnist": "digits", "celeba": "Faces"}


def render_comparison(comparisons: Sequence[Comparison], studies: Mapping[str, Results]) -> str:
    """The page of the paper's claims and what became of them, in Markdown, from the studies that were run."""
    claims = judge_claims(studies)
    outside = [
        reading.words
        for verdicts in claims
        for reading in verdicts[0].readings
        if verdicts[0].claim.rule == "falls" and reading.outside
    ]
    values = {
        **describe_comparison(comparisons),
        "n_claims": len(claims),
        "holding": [verdicts[0].claim for verdicts in claims if _weakest(verdicts) == HOLDS],
        "shifted": [verdicts[0].claim for verdicts in claims if _weakest(verdicts) == SHIFTED],
        "claims": [_describe_claim(verdicts) for verdicts in claims if _weakest(verdicts) in (FAILS, ILL_POSED)],
        "outside": outside,
        "uneven": describe_uneven(studies),
        "write_line": write_line,
    }
    return render_markdown("comparison.md.jinja", values)


def _weakest(verdicts: Sequence[Verdict]) -> str:
    """The weakest verdict on a claim, of the studies that it is about."""
    return max((verdict.verdict for verdict in verdicts), key=(HOLDS, SHIFTED, FAILS, ILL_POSED).index)


def _describe_claim(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """A claim as a line of the page's table."""
    claim, judged = verdicts[0].claim, [verdict.verdict for verdict in verdicts]

    def both(write: Callable[[Verdict], str]) -> str:
        if len(verdicts) == 1:
            return write(verdicts[0])
        return ". ".join(f"{_PEOPLE_CALL[verdict.claim.study]}: {write(verdict)}" for verdict in verdicts)

    alike = len(set(judged)) == 1
    by_study = zip(verdicts, judged, strict=True)
    verdict = (
        f"**{judged[0]}**"
        if alike
        else ", ".join(f"{_PEOPLE_CALL[verdict.claim.study].lower()} **{word}**" for verdict, word in by_study)
    )
    return {
        "says": claim.says,
        "verdict": f"[{verdict}](figures/{claim.figure})",
        "paper": both(_papers) if verdicts[0].readings else "less under anchor noise, by its attacks and scoring",
        "ours": both(_ours_of),
    }


def _papers(verdict: Verdict) -> str:
    """The paper's numbers, each with what it is of; for a row of values of one symbol, the symbol once."""
    words = [reading.words for reading in verdict.readings]
    numbers = "; ".join(_shown(reading.number, reading.paper) for reading in verdict.readings)
    symbols = {label.partition(" = ")[0] for label in words}
    if len(words) > 2 and len(symbols) == 1 and all(" = " in label for label in words):
        return f"{symbols.pop()} = {', '.join(label.partition(' = ')[2] for label in words)}: {numbers}"
    return "; ".join(f"{reading.words}: {_shown(reading.number, reading.paper)}" for reading in verdict.readings)


def _ours_of(verdict: Verdict) -> str:
    """Our readings, each as mean ± standard deviation; † where the paper's lies outside of all of them."""
    if verdict.linked:
        return ", ".join(
            f"{noise} {mean:.1f} ± {deviation:.1f}"
            for noise, (mean, deviation) in zip(("anchor", "private"), verdict.linked, strict=True)
        )
    texts = []
    for reading in verdict.readings:
        if not reading.ours:
            texts.append("no such number")
            continue
        mean, deviation = (_shown(reading.number, value) for value in reading.shown)
        texts.append((f"{mean} ± {deviation}" if len(reading.ours) > 1 else mean) + "†" * reading.outside)
    return "; ".join(texts)


def _shown(number: Number, value: float) -> str:
    return f"{value:.1f}" if number.unit == "%" else f"{value:.3g}"


def describe_uneven(studies: Mapping[str, Results]) -> list[dict[str, Any]]:
    """Compare uneven with even participants in the deployments of both: mean and deviation of each, by noise.

    Figures are for I-GDP, from the draws on which every attack was run.
    """
    if not {"celeba", "uneven"} <= set(studies):
        return []
    columns = {
        "linked": "envelope:linkage",
        "matched": "envelope:match",
        "accuracy": ACCURACY,
    }

    def line(noise: str, read: Callable[[Study, str], float]) -> dict[str, Any]:
        deployments = studies["uneven"].values("deployment")
        pairs = {
            name: [
                mean_and_deviation([read(Study(studies[study].where(deployment=k)), column) for k in deployments])
                for study in ("celeba", "uneven")
            ]
            for name, column in columns.items()
        }
        return {"noise": noise, **pairs}

    def between(low: float, high: float) -> Callable[[Study, str], float]:
        def read(study: Study, column: str) -> float:
            rows = study.draws(ANCHOR)
            noise = rows["anchor_noise_scale"]
            chosen = (noise >= low) & (noise < high) & np.isfinite(rows["linkage:moments"])
            return mean_of(column_of(rows, column)[chosen])

        return read

    lines = [line(f"{low:g} to {high:g}", between(low, high)) for low, high in pairwise(_UNEVEN_NOISE)]
    without = line("no anchor (I-GDP)", lambda study, column: mean_of(column_of(study.draws("i-gdp"), column)))
    return [*lines, without]


def write_comparison(comparisons: Sequence[Comparison]) -> str:
    """Every number of the paper beside ours, and those of ours that belong beside them, as CSV."""
    rows = [{name: row[name] for name in _COLUMNS} for row in as_dicts(comparisons)]
    text = io.StringIO()
    table = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def describe_comparison(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """What the page states about all numbers, as plain values: counts and rules."""
    return {
        "counts": _count(comparisons),
        "rules": {
            "points": LARGE_POINTS,
            "factor": LARGE_FACTOR,
            "count": 100 * LARGE_SHARES["count"],
            "other": 100 * LARGE_SHARES[""],
        },
    }


def _count(comparisons: Sequence[Comparison]) -> dict[str, int]:
    """How many settings and results the paper states, and how many of them were read, and differ."""
    settings = [comparison for comparison in comparisons if comparison.number.kind == "setting"]
    results = [comparison for comparison in comparisons if comparison.number.kind == "result"]
    alike = [comparison for comparison in settings if comparison.ours is not None]
    measured = [comparison for comparison in results if comparison.ours is not None]
    return {
        "settings": len(settings),
        "settings_large": sum(comparison.large for comparison in alike),
        "results": len(results),
        "results_had": len(measured),
        "results_large": sum(comparison.large for comparison in measured),
    }


def as_dicts(comparisons: Iterable[Comparison]) -> list[dict[str, Any]]:
    """Every comparison as plain values: numbers for programs, and the same as people write them."""
    return [
        {
            **{name: getattr(comparison.number, name) for name in ("id", "study", "section", "kind", "says", "unit")},
            "paper": comparison.number.value,
            **{name: getattr(comparison, name) for name in ("ours", "difference", "relative", "large", "note")},
            "lowest": None if comparison.spread is None else comparison.spread[0],
            "highest": None if comparison.spread is None else comparison.spread[1],
            "paper_text": paper_text(comparison.number),
            "ours_text": ours_text(comparison),
            "difference_text": difference_text(comparison),
            "spread_text": spread_text(comparison),
        }
        for comparison in comparisons
    ]


def paper_text(number: Number) -> str:
    """The paper's number, with the digits that it counts."""
    if number.value is None:
        return "–"
    return _with_unit(_written(number.value, number, number.decimals), number)


def ours_text(comparison: Comparison) -> str:
    """Our number with as many digits as the paper's; a dash where there is none."""
    if comparison.ours is None:
        return NOT_RUN if comparison.note == NOT_RUN else "–"
    return _with_unit(_ours(comparison.ours, comparison.number), comparison.number)


def spread_text(comparison: Comparison) -> str:
    """The lowest and the highest of ours over several deployments, and over how many if not all; empty for one."""
    read, of = comparison.read_in or (0, 0)
    share = f" ({read} of {of})" if read < of else ""
    if comparison.spread is None:
        return share.strip()
    low, high = (_ours(value, comparison.number) for value in comparison.spread)
    return _with_unit(low if low == high else f"{low} to {high}", comparison.number) + share


def difference_text(comparison: Comparison) -> str:
    """Ours less the paper's: points for shares, a factor for orders of magnitude, else per cent of the paper's."""
    number, difference = comparison.number, comparison.difference
    if difference is None or number.value is None:
        return ""
    if number.kind == "setting" and not comparison.large:
        return "same"
    if number.order_only:
        return f"× {(number.value + difference) / number.value:.2g}"
    if number.unit == "%":
        return f"{_signed(difference, max(1, min(2, number.decimals)))} points"
    if number.unit == "count" or comparison.relative is None:
        return _signed(difference, 0 if difference == round(difference) else 1)
    return f"{_signed(100 * comparison.relative, 1)} %"


def _places(value: float) -> int:
    """How many decimals a number has, of ten digits at most."""
    text = f"{value:.10g}"
    return len(text.partition(".")[2]) if "e" not in text else 0


def _ours(value: float, number: Number) -> str:
    """One of our numbers, as finely as the paper has it; a setting as it is."""
    if number.kind == "setting":
        return _written(value, number, _places(round(value, 4)))
    if number.unit == "count":
        return _written(value, number, min(1, _places(value)))
    if number.unit == "s":  # the paper's machine took minutes where another takes a hundredth of a second
        return _written(value, number, max(number.decimals, _places_of_digits(value, 2)))
    return _written(value, number, max(1 if number.unit == "%" else 2, number.decimals))


def _places_of_digits(value: float, n_digits: int) -> int:
    """How many decimals show so many significant digits."""
    return max(0, n_digits - 1 - math.floor(math.log10(abs(value)))) if value else 0


def _written(value: float, number: Number, decimals: int) -> str:
    if number.order_only or 0 < abs(value) < _FEW_DIGITS:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa} × 10^{int(exponent)}"
    return f"{value:,.{decimals}f}"


def _with_unit(text: str, number: Number) -> str:
    return f"{text} {number.unit}" if number.unit in ("%", "s") else text


def _signed(value: float, decimals: int) -> str:
    text = f"{abs(value):,.{decimals}f}"
    return text if float(text.replace(",", "")) == 0 else ("+" if value > 0 else "−") + text
