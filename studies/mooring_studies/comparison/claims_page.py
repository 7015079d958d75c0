"""The paper's numbers beside ours, as a page of Markdown and as plain rows for JSON and HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mooring_studies.comparison.claims import (
    FORMULA,
    LARGE_FACTOR,
    LARGE_POINTS,
    LARGE_SHARES,
    NOT_RUN,
    Comparison,
    Facts,
    Number,
)
from mooring_studies.comparison.durations import first_deployment, times, total

_TITLES = {
    "mnist": "Digits (MNIST)",
    "celeba": "Faces (CelebA)",
    "participants": "Faces, by the number of participants",
}
_SECTIONS = {
    "5.2.1": "Settings (section 5.2.1)",
    "5.2.2": "Results (section 5.2.2)",
    "5.3.1": "Settings (section 5.3.1)",
    "5.3.2": "Results (section 5.3.2)",
    "5.3.3": "Settings and results (section 5.3.3)",
}
_FEW_DIGITS = 1e-3  # below this, numbers are written with a power of ten


def markdown(comparisons: Sequence[Comparison], facts: Mapping[str, Facts]) -> str:
    """The page that lays every number of the paper's section 5 beside ours.

    Parameters
    ----------
    comparisons : sequence of Comparison
        From `compare`.
    facts : mapping of str to facts
        Of the studies that were run, by name.
    """
    parts = ["# The paper's numbers beside mooring's", _introduction(comparisons), *times(facts)]
    for study in dict.fromkeys(one.number.study for one in comparisons):
        own = [one for one in comparisons if one.number.study == study]
        parts += [f"## {_TITLES.get(study, study)}", _provenance(study, facts.get(study))]
        for section in dict.fromkeys(one.number.section for one in own):
            stated = [one for one in own if one.number.section == section and one.number.kind != "beside"]
            if stated:
                parts += [f"### {_SECTIONS.get(section, f'Section {section}')}", _table(stated)]
        alone = [one for one in own if one.number.kind == "beside"]
        if alone:
            parts += ["### Ours alone: what belongs beside these numbers", _table_of_ours(alone)]
    return "\n\n".join(parts) + "\n"


def as_dicts(comparisons: Iterable[Comparison]) -> list[dict[str, Any]]:
    """Every comparison as plain values: numbers for programs, and the same as people write them."""
    return [
        {
            "id": one.number.id,
            "study": one.number.study,
            "section": one.number.section,
            "kind": one.number.kind,
            "says": one.number.says,
            "unit": one.number.unit,
            "paper": one.number.value,
            "ours": one.ours,
            "difference": one.difference,
            "relative": one.relative,
            "large": one.large,
            "note": one.note,
            "lowest": None if one.spread is None else one.spread[0],
            "highest": None if one.spread is None else one.spread[1],
            "paper_text": paper_text(one.number),
            "ours_text": ours_text(one),
            "difference_text": difference_text(one),
            "spread_text": spread_text(one),
        }
        for one in comparisons
    ]


def paper_text(number: Number) -> str:
    """The paper's number, with the digits that it counts."""
    if number.value is None:
        return "–"
    return _with_unit(_written(number.value, number, _decimals(number)), number)


def ours_text(comparison: Comparison) -> str:
    """Our number with as many digits as the paper's; a dash where there is none."""
    if comparison.ours is None:
        return NOT_RUN if comparison.note == NOT_RUN else "–"
    return _with_unit(_ours(comparison.ours, comparison.number), comparison.number)


def spread_text(comparison: Comparison) -> str:
    """The lowest and the highest of ours over several deployments, and over how many if not all; empty for one."""
    read, of = comparison.read_in or (0, 0)
    told = f" ({read} of {of})" if read < of else ""
    if comparison.spread is None:
        return told.strip()
    low, high = (_ours(value, comparison.number) for value in comparison.spread)
    return _with_unit(low if low == high else f"{low} to {high}", comparison.number) + told


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
        return f"{_signed(difference, max(1, min(2, _decimals(number))))} points"
    if number.unit == "count" or comparison.relative is None:
        return _signed(difference, 0 if difference == round(difference) else 1)
    return f"{_signed(100 * comparison.relative, 1)} %"


def _introduction(comparisons: Sequence[Comparison]) -> str:
    results = [one for one in comparisons if one.number.kind == "result"]
    settings = [one for one in comparisons if one.number.kind == "setting"]
    alike = [one for one in settings if one.ours is not None]
    built = sum(one.number.ours == "as_built" for one in alike)
    found = [one for one in results if one.ours is not None]
    computed = sum(one.number.ours == FORMULA for one in found)
    return (
        "Every number that section 5 of the paper states, in its order, and what mooring's own run gives for it. The "
        "paper's transforms, anchors, noise and networks are its own draws; ours are others, so agreement means 'about "
        "the same', not 'the same digits'.\n\n"
        f"The section states {len(settings)} settings and {len(results)} results. Of the settings, {len(alike) - built} "
        f"were read back from runs and {built} are constants that a test holds against the code; "
        f"{sum(one.large for one in alike)} differ. Of the results, {len(found)} were had, {computed} of them by a formula "
        f"alone; {sum(one.large for one in found)} differ by much, and {len(results) - len(found)} could not be read from "
        "our runs.\n\n"
        f"'By much' is a rule: more than {LARGE_POINTS:g} percentage points for a share; more than "
        f"{100 * LARGE_SHARES['count']:g} % for a count or seconds; more than {100 * LARGE_SHARES['']:g} % for other "
        f"numbers, or a factor of {LARGE_FACTOR:g} where only the order of magnitude matters; any difference for a "
        "setting. Counts of "
        "draws are compared after scaling them to the paper's number of draws. Only then is a reason given: the likely "
        "one, not one that was proved. Our number is that of deployment 0; 'over deployments' is the lowest and the "
        "highest over all that were run, with other splits, transforms, anchors and noise. These have fewer draws; where a "
        "number could not be read in all of them, such as from a curve with too few draws near, '(3 of 5)' says in how "
        "many it was. Linkage is a lower bound on what leaks: a stronger attack may link more. The strongest attack we know "
        "is the best of several, chosen after the fact, so that it lies above 10 % even where all of them guess; 'by luck "
        "alone' says how far on average. The "
        "last table of each study has what the paper does not show."
    )


def _provenance(study: str, facts: Facts | None) -> str:
    if facts is None:
        return f"Not run yet. Run it with `mooring reproduce {study}`."
    machine = facts.get("machine") or {}
    spec = facts.get("spec") or {}
    command = facts.get("command") or f"mooring reproduce {study}" + (" --quick" if spec.get("quick") else "")
    hardware = [str(machine[name]) for name in ("gpu", "processor") if machine.get(name)]
    hardware += [f"{machine['cores']} cores"] if machine.get("cores") else []
    versions = [f"mooring {facts['mooring']}"] if facts.get("mooring") else []
    versions += [f"{name} {machine[name]}" for name in ("python", "numpy", "torch") if machine.get(name)]
    told = [
        ("Rerun with", f"`{command}`"),
        ("machine", ", ".join(hardware)),
        ("versions", ", ".join(versions)),
        ("draws of each noise after the first deployment", _later_draws(facts)),
        ("seeds", ", ".join(str(seed) for seed in facts.get("seeds") or [])),
        ("date", str(facts.get("date") or "")),
        ("time", total(facts)),
        ("of which the first deployment", first_deployment(facts)),
    ]
    sentence = "; ".join(
        f"{name}: {value}" if k else f"{name} {value}" for k, (name, value) in enumerate(told) if value
    )
    notes = "".join(f"\n- {note}" for note in facts.get("notes") or [])
    return f"{sentence}." + (f"\n{notes}" if notes else "")


def _later_draws(facts: Facts) -> str:
    """How many draws of each noise the deployments after the first have; empty where there are none."""
    several = len(facts.get("seeds") or []) > 1
    draws = ((facts.get("spec") or {}).get("extra_deployments") or {}).get("draws")
    return str(draws) if several and draws else ""


def _table(comparisons: Sequence[Comparison]) -> str:
    lines = [
        "| what | paper | mooring | over deployments | difference | likely reason where large |",
        "|---|---|---|---|---|---|",
    ]
    for one in comparisons:
        cells = (one.number.says, paper_text(one.number), ours_text(one), spread_text(one), difference_text(one))
        lines.append(_line(*cells, "" if one.note == NOT_RUN else one.note))
    return "\n".join(lines)


def _table_of_ours(comparisons: Sequence[Comparison]) -> str:
    lines = ["| what | mooring | over deployments |", "|---|---|---|"]
    lines += [_line(one.number.says, ours_text(one), spread_text(one)) for one in comparisons]
    return "\n".join(lines)


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _decimals(number: Number) -> int:
    """How many decimals the paper writes."""
    return _places(number.value or 0.0) if number.decimals is None else number.decimals


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
        return _written(value, number, max(_decimals(number), _places_of_digits(value, 2)))
    return _written(value, number, max(1 if number.unit == "%" else 2, _decimals(number)))


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
