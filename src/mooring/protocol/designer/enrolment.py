"""Enter members' cards in a study's roster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mooring.atomic_io import write_atomically
from mooring.errors import InputError
from mooring.protocol.messages.card import read_card
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import parse_study, read_text, render_member


def enrol_cards(path: Path, cards: Sequence[Path]) -> Study:
    """Check cards and enter them in the roster of a study's file, which is written again.

    Parameters
    ----------
    path : Path
        The study's file.
    cards : sequence of Path
        The analyst's may be among them.
    """
    read = [read_card(card) for card in cards]
    study = Study.read(path).with_members([member for role, member in read if role == "participant"])
    for role, member in read:
        if role == "analyst":
            study = study.with_members(analyst=member)
    write_roster(study, path)
    return study


def write_roster(study: Study, path: Path) -> None:
    """Write a study that has further members; the file's own comments and layout are kept where that is possible."""
    text = read_text(path)
    known = Study.from_dict(parse_study(text))
    new = [member for member in study.participants if known.member_with_key(member.signing_key) is None]
    text = text.rstrip("\n") + "\n" + "".join(render_member("[[participants]]", member.as_dict()) for member in new)
    if study.analyst is not None and known.analyst is None:
        text += render_member("[analyst]", study.analyst.as_dict())
    try:
        is_same = Study.from_dict(parse_study(text)) == study
    except InputError:
        is_same = False
    if is_same:
        write_atomically(path, text.encode(), what="the study's file")
    else:
        study.write(path)
