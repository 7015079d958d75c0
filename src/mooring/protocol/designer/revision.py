"""Changes of a study's file: further members in its roster, or the digest of a public file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from mooring.atomic_io import write_atomically
from mooring.errors import InputError
from mooring.protocol.messages.card import Member, Role, read_card, spend_combining_key
from mooring.protocol.messages.public_file import public_file_name
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import parse_study, read_plain, read_text
from mooring.protocol.messages.study_text import render_member
from mooring.protocol.registry import get_exchange
from mooring.serialization import count_noun
from mooring.tables.encoder import encoded_batches
from mooring.typing import Progress


def enrol_cards(path: Path, cards: Sequence[Path]) -> Study:
    """Check cards, enter them in the roster, and write the study's file again; the analyst's card may be among them.

    The combining key that the study uses is taken out of its card's file.
    """
    read, study = {card: read_card(card) for card in cards}, Study.read(path)

    def list_names(members: Sequence[Member], role: Role) -> list[str]:
        return [
            member.name for member in (*members, *(member for its_role, member in read.values() if its_role == role))
        ]

    rosters = list_names(study.participants, "participant"), list_names(study.helpers, "helper")
    combining = set(study.mechanism.list_combiners(*rosters))
    for card, (role, member) in read.items():
        if member.name not in combining:
            member = replace(member, combining_key="", combining_proof="")
        elif not member.combining_key:
            problem = f"The card of {member.name!r} has no combining key left: each study of secure sums uses one."
            cure = "Ask for a new card: 'mooring join' writes one from the vault that is there."
            raise InputError(f"card {card.name!r}", problem=problem, cure=cure)
        read[card] = role, member
    participants, helpers, analysts = (
        [member for its_role, member in read.values() if its_role == role]
        for role in ("participant", "helper", "analyst")
    )
    study = study.with_members(participants, helpers=helpers)
    for member in analysts:
        study = study.with_members(analyst=member)
    write_roster(study, path)
    for card, (_, member) in read.items():
        if member.combining_key:
            spend_combining_key(card)
    return study


def write_roster(study: Study, path: Path) -> None:
    """Write a study that has further members. The comments and layout of the file are kept if that is possible."""
    text = read_text(path)
    known = Study.from_dict(parse_study(text))
    text = text.rstrip("\n") + "\n"
    for header, members, before in (
        ("[[participants]]", study.participants, known.participants),
        ("[[helpers]]", study.helpers, known.helpers),
    ):
        text += "".join(render_member(header, member.as_dict()) for member in members if member not in before)
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


@dataclass(frozen=True)
class ProjectedStudy:
    """A study that names its public file."""

    study: Study
    digest: str
    """SHA-256 of the file."""
    description: str
    """What the file holds."""


def project_study(
    path: str | Path,
    public_rows: str | Path,
    *,
    components: int | None = None,
    ignore: Sequence[str] = (),
    progress: Progress | None = None,
) -> ProjectedStudy:
    """Make a study's public file from public rows, and write its digest into the study.

    Parameters
    ----------
    path : path
        The study's file, which is written again. The public file is written beside it.
    public_rows : path
        A table of public rows, never of a participant's rows, with the study's columns. Its labels are not read.
    components : int, optional
        Number of components; by default, that of the study.
    """
    path = Path(path)
    plain = read_plain(path)
    # The draft lacks the file's digest, so it is read with settings that need no file.
    mechanism = plain.get("mechanism")
    entries = dict(mechanism) if isinstance(mechanism, dict) else {}
    exchange = get_exchange(entries.get("name"))
    prepared = exchange.prepare_public_file(entries, components)
    study = Study.from_dict(plain | {"mechanism": prepared}, folder=path.parent)
    if study.participants:
        problem = (
            f"The study has a roster, and {count_noun(len(study.participants), 'participant')} agreed on it as it is."
        )
        raise InputError("study", problem=problem, cure="Make the projection before anybody is enrolled.")
    batches = partial(encoded_batches, study.schema, public_rows, labels="ignore", ignore=ignore, progress=progress)
    public = exchange.fit_public_file(study, lambda: (batch.rows for batch in batches()))
    from safetensors.numpy import save

    content = save({name: np.ascontiguousarray(array, dtype=np.float64) for name, array in public.arrays.items()})
    digest = hashlib.sha256(content).hexdigest()
    projected = replace(study, mechanism=public.name_in(digest))
    write_atomically(path.parent / public_file_name(study), content, what="the public file")
    projected.write(path)
    return ProjectedStudy(projected, digest, public.description)
