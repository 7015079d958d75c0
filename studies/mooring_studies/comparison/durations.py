"""How long studies took, as their facts tell: the paper's own runs, what stands beside them, and waiting apart."""

from __future__ import annotations

from collections.abc import Mapping

from mooring_studies.comparison.claims import Facts

_PAPERS = ("preparing", "controls", "private-data noise", "anchor noise")
_WAITING = "waiting for the auditor"
_FIRST = "deployment 0,"
_HEADINGS = ("study", "machine", "the paper's runs", "beside them", _WAITING, "other deployments", "all")
_NAMES = {"mnist": "digits", "celeba": "faces", "participants": "faces, by the number of participants"}


def times(facts: Mapping[str, Facts]) -> list[str]:
    """A heading, a sentence and a table; nothing where no study noted its times.

    Parameters
    ----------
    facts : mapping of str to facts
        Of the studies that were run, by name.

    Examples
    --------
    >>> seconds = {"deployment 0, 10 participants: controls": 12.4, "deployment 1, 10 participants: controls": 30.0}
    >>> print(times({"mnist": {"seconds": seconds, "machine": {"gpu": "a GPU"}}})[-1].splitlines()[-1])
    | digits | a GPU | 12 s |  | – | 30 s | 42 s |
    """
    lines = [_line(study, facts[study]) for study in _NAMES if study in facts and _seconds(facts[study])]
    if not lines:
        return []
    return [
        "## How long they took",
        "In the first deployment, the paper's runs are its methods with all draws and all attacks, our strongest among "
        "them; beside them stand pooled rows, training alone, and both noises at once. The auditor works while the rest "
        f"goes on; '{_WAITING}' is how long the rest stood still for it, '–' where the other seconds contain it. 'All' is "
        "all that was timed; what was not is in the notes.",
        "\n".join(["| " + " | ".join(_HEADINGS) + " |", "|---" * len(_HEADINGS) + "|", *lines]),
    ]


def total(facts: Facts) -> str:
    """All seconds together, in words; empty where none were noted, which is not the same as no time."""
    seconds = sum(_seconds(facts).values())
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds" if seconds > 0 else ""


def first_deployment(facts: Facts) -> str:
    """The seconds of each stage of the first deployment: what the paper ran, and what it did not, apart."""
    stages = _stages(facts)
    return ", ".join(f"{stage} {value:.0f} s" for stage, value in stages.items() if value >= 0.5)


def _line(study: str, facts: Facts) -> str:
    first, seconds = _stages(facts), _seconds(facts)
    papers = sum(value for stage, value in first.items() if stage in _PAPERS)
    waiting = first.get(_WAITING, 0.0)
    others = sum(value for name, value in seconds.items() if name.startswith("deployment ") and _FIRST not in name)
    beside = sum(first.values()) - papers - waiting
    machine = facts.get("machine") or {}
    told = [f"{value:.0f} s" if value >= 0.5 else "" for value in (papers, beside, waiting, others)]
    cells = told if _WAITING in first else [*told[:2], "–", told[3]]
    return (
        "| "
        + " | ".join((_NAMES[study], str(machine.get("gpu") or "CPU"), *cells, f"{sum(seconds.values()):.0f} s"))
        + " |"
    )


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
