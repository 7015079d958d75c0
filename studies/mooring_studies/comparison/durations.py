"""How long studies took, as their facts tell: the paper's own runs, what stands beside them, and waiting apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring_studies.comparison.claims import Facts

_PAPERS = ("preparing", "controls", "private-data noise", "anchor noise")
_WAITING = "waiting for the auditor"
_FIRST = "deployment 0,"
_STUDIES = ("mnist", "celeba", "participants")


def tabulate_durations(facts: Mapping[str, Facts]) -> list[dict[str, Any]]:
    """Seconds of each study that noted them, by part; `waiting` is None where the other seconds contain it.

    Examples
    --------
    >>> seconds = {"deployment 0, 10 participants: controls": 12.4, "deployment 1, 10 participants: controls": 30.0}
    >>> tabulate_durations({"mnist": {"seconds": seconds}})[0]
    {'study': 'mnist', 'machine': 'CPU', 'papers': 12.4, 'beside': 0.0, 'waiting': None, 'others': 30.0, 'all': 42.4}
    """
    return [_parts(study, facts[study]) for study in _STUDIES if study in facts and _seconds(facts[study])]


def total_duration(facts: Facts) -> str:
    """All seconds together, in words; empty where none were noted, which is not the same as no time."""
    seconds = sum(_seconds(facts).values())
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds" if seconds > 0 else ""


def first_deployment_durations(facts: Facts) -> str:
    """The seconds of each stage of the first deployment: what the paper ran, and what it did not, apart."""
    return ", ".join(f"{stage} {value:.0f} s" for stage, value in _stages(facts).items() if value >= 0.5)


def _parts(study: str, facts: Facts) -> dict[str, Any]:
    first, seconds = _stages(facts), _seconds(facts)
    papers = sum(value for stage, value in first.items() if stage in _PAPERS)
    others = sum(value for name, value in seconds.items() if name.startswith("deployment ") and _FIRST not in name)
    return {
        "study": study,
        "machine": str((facts.get("machine") or {}).get("gpu") or "CPU"),
        "papers": papers,
        "beside": sum(first.values()) - papers - first.get(_WAITING, 0.0),
        "waiting": first.get(_WAITING),
        "others": others,
        "all": sum(seconds.values()),
    }


def _stages(facts: Facts) -> dict[str, float]:
    """Seconds of the first deployment by stage, over all its numbers of participants."""
    stages: dict[str, float] = {}
    for name, value in _seconds(facts).items():
        where, _, stage = name.rpartition(": ")
        if where.startswith(_FIRST):
            stages[stage] = stages.get(stage, 0.0) + value
    return stages


def _seconds(facts: Facts) -> dict[str, float]:
    noted = facts.get("seconds")
    if not isinstance(noted, Mapping):
        return {}
    return {str(name): float(value) for name, value in noted.items() if isinstance(value, int | float)}
