"""The designer's step that the desk offers: enter cards in the roster."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from mooring.protocol.workspace import Outcome, Workspace
from mooring.typing import Progress


def enrol(
    workspace: Workspace, *, cards: Collection[Path], command: str = "", progress: Progress | None = None
) -> Outcome:
    """Enter cards in the roster of a draft."""
    from mooring.protocol.designer.revision import enrol_cards
    from mooring.protocol.registry import exchange_of

    study = enrol_cards(workspace.study_file, list(cards))
    file = workspace.show(workspace.study_file)
    names, helpers = ([member.name for member in members] for members in (study.participants, study.helpers))
    analyst = study.analyst and study.analyst.name
    warnings = exchange_of(study).list_warnings(study) if study.is_complete else []
    helping = f" Helpers: {', '.join(helpers)}." if helpers else ""
    lines = [f"Participants: {', '.join(names) or 'nobody yet'}.{helping} Analyst: {analyst or 'nobody yet'}."]
    lines.append(
        f"The study is complete. Its fingerprint, to be compared by telephone: {study.fingerprint}"
        if study.is_complete
        else "Not complete yet: a study has two participants or more and an analyst. Enrol the others; the fingerprint "
        "changes with each."
    )
    record = {
        "study": file,
        "participants": names,
        "helpers": helpers,
        "analyst": analyst,
        "complete": study.is_complete,
        "fingerprint": study.fingerprint,
        "warnings": warnings,
    }
    hand_off = (f"Send {file} to everybody.",) if study.is_complete else ()
    return Outcome(study, record, tuple(lines), hand_off, notes=tuple(warnings))
