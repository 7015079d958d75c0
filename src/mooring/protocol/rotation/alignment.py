"""`mooring align`, second half: verified bundles become one collaboration matrix."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mooring.atomic_io import make_folder
from mooring.errors import InputError, RefusedError
from mooring.protocol.analyst.trained_model import DELIVERY_FILE
from mooring.protocol.exchange import AlignMode
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.alignment_state import (
    STATE_FILE,
    AlignedParticipant,
    AlignmentRecord,
    AlignmentState,
    add_newcomers,
    finite_or_none,
    read_space,
    write_space,
)
from mooring.protocol.rotation.anchor_source import AnchorSolution, AnchorSource, LocalAnchors
from mooring.protocol.rotation.bundle import RowBundle
from mooring.protocol.rotation.collaboration_matrix import OneFile, TableWriter, remove_other_forms
from mooring.protocol.rotation.outliers import Fits, measure_fits, measure_honest_spread
from mooring.protocol.rotation.scheme import rotation_of
from mooring.theory import transition_scale
from mooring.typing import Matrix, Progress

_SAME_FIT = 1e-6  # far above what rounding to float32 changes
_NOT_CHECKED = (
    "At this noise, or with so few components, an honest anchor representation fits the others hardly better than garbage "
    "would: nobody was checked by its fit."
)
_NOT_CERTIFIED = "The steps were reduced over workers, where no proof of optimality is tried."


@dataclass(frozen=True)
class Backend:
    """Where the anchor representations are, and who writes the collaboration matrix; this process by default."""

    anchors: AnchorSource = field(default_factory=LocalAnchors)
    table: TableWriter = field(default_factory=OneFile)


def align_bundles(
    study: Study,
    bundles: Sequence[RowBundle],
    folder: str | Path,
    *,
    mode: AlignMode = "first",
    certify: bool = True,
    command: str = "",
    progress: Progress | None = None,
    backend: Backend | None = None,
) -> AlignmentState:
    """Align verified bundles and write the collaboration matrix.

    Parameters
    ----------
    bundles : sequence of RowBundle
        One a participant, each verified.
    mode : {"first", "late", "again"}
        "late" keeps the maps of everybody who is aligned already, and only admits those who are new. "again" makes a new
        space although results were delivered from the last one, which "first" refuses: what was delivered does not fit
        what is trained next, and everybody needs a new result.
    certify : bool, default True
        Whether to try to prove that the alignment is the best there is.

    Returns
    -------
    AlignmentState
        Written, besides, as alignment.safetensors, alignment.json and collaboration.parquet.
    """
    rotation_of(study)
    folder, backend = Path(folder), backend or Backend()
    anchors, table = backend.anchors, backend.table
    make_folder(folder, mode=0o700, what="the work folder")
    order = {member.name: index for index, member in enumerate(study.participants)}
    bundles = sorted(bundles, key=lambda bundle: order[bundle.member.name])
    if mode == "late":
        return _admit(study, bundles, folder, backend, command, progress)
    if mode == "first":
        _require_not_delivered(folder)
    usable = [bundle for bundle, whole in zip(bundles, anchors.check_rank(bundles), strict=True) if whole]
    if len(usable) < 2:
        got, cure = f"{len(usable)} that can be aligned", "Alignment brings uploads together; wait for a second one."
        raise InputError("bundles", expected="those of two participants or more", got=got, cure=cure)
    solved = anchors.solve(usable)
    fits = solved.fits
    left, note = _set_outliers_aside(study, usable, solved, anchors)
    values = {bundle.member.name: float(value) for bundle, value in zip(usable, fits.values, strict=True)}
    if rotation_of(study).described.alignment == "reference":
        solved = anchors.solve(left, reference=choose_reference([values[bundle.member.name] for bundle in left]))
    elif (certify and anchors.can_certify) or len(left) < len(usable):
        solved = anchors.solve(left, certify=certify and anchors.can_certify)
    aside = _leave_out(bundles, left)
    note = _join_notes(note, _note_anchor_files(left), "" if anchors.can_certify or not certify else _NOT_CERTIFIED)
    record = _record(study, solved, left, aside, values, command=command, note=note, table=table.name)
    space = AlignmentState(study.digest, record, solved.orthogonals, solved.means, solved.template, solved.origin)
    table.write(folder, study, space, {bundle.member.name: bundle for bundle in left}, progress)
    write_space(folder, space)
    remove_other_forms(folder, table.name)
    (folder / DELIVERY_FILE).unlink(missing_ok=True)  # of the last alignment
    return space


def _require_not_delivered(folder: Path) -> None:
    if (folder / DELIVERY_FILE).is_file() and (folder / STATE_FILE).is_file():
        raise RefusedError(
            "another alignment",
            reason="results were delivered from the one in this folder, and their maps and model would not fit another one",
            cure="Admit newcomers with --late (mode 'late'), and everybody else keeps its result; or align everybody again "
            "with --again (mode 'again'), then train and deliver to everybody.",
        )


def choose_reference(fits: Sequence[float]) -> int:
    """The first participant that fits the others as most do.

    Anchors without noise fit each other exactly. One that lacks a direction does not, though it may pass for noise; were it
    the reference, the others would be turned over in that direction, each as rounding errors have it.
    """
    return int(np.flatnonzero(np.asarray(fits) >= np.median(fits) - _SAME_FIT)[0])


def _set_outliers_aside(
    study: Study, bundles: Sequence[RowBundle], first: AnchorSolution, anchors: AnchorSource
) -> tuple[list[RowBundle], str]:
    """Those who fit each other, and a note where that could not be told."""
    low = _find_low(study, first.fits, first.template, first.fits.values.tolist())
    if low is None:
        return list(bundles), _NOT_CHECKED
    left = [bundle for bundle, out in zip(bundles, low, strict=True) if not out]
    if len(left) == len(bundles):
        return left, ""
    if len(left) < 2 or 2 * len(left) < len(bundles):
        note = "Too many participants do not fit the others to say who is in the wrong: nobody was set aside."
        return list(bundles), note
    # A suspect took part in what it was compared with; what counts is how it fits those who are left, without it.
    solved = anchors.solve(left)
    suspects = _leave_out(bundles, left)
    found = anchors.fit_to_template(solved.template, suspects)
    still = _find_low(study, solved.fits, solved.template, [own.fit for own in found])
    if still is None:
        return list(bundles), _NOT_CHECKED
    return _leave_out(bundles, [bundle for bundle, out in zip(suspects, still, strict=True) if out]), ""


def _find_low(study: Study, fits: Fits, template: Matrix, values: Sequence[float]) -> list[bool] | None:
    """Which of these fits to a template do not go with those of the participants who were aligned to it; None if untold."""
    settings = rotation_of(study)
    v = settings.anchor_noise_scale
    if v >= transition_scale(fits.values.size, settings.n_components, settings.n_anchor_rows):
        return None
    return fits.find_low(values, measure_honest_spread(template, v))


def _admit(
    study: Study, bundles: Sequence[RowBundle], folder: Path, backend: Backend, command: str, progress: Progress | None
) -> AlignmentState:
    anchors, table = backend.anchors, backend.table
    space = read_space(folder, study)
    here = set(space.names)
    fresh = [bundle for bundle in bundles if bundle.member.name not in here]
    entries, maps, admitted, aside = [], [], {}, []
    # The template stands for the others: what garbage reaches against it is measured as it was among themselves.
    against = measure_fits([space.template, space.template])
    known = [entry.fit for entry in space.record.participants]
    among = Fits(np.asarray(known, dtype=np.float64), against.garbage, against.spread)
    fitted = anchors.fit_to_template(space.template, fresh)
    low = _find_low(study, among, space.template, [own.fit for own in fitted])
    note = space.record.note
    if low is None:
        low, note = [False] * len(fresh), note if _NOT_CHECKED in note else _join_notes(note, _NOT_CHECKED)
    for bundle, whole, own, out in zip(fresh, anchors.check_rank(fresh), fitted, low, strict=True):
        if not whole or out:
            aside.append(replace(_entry(bundle, own.fit, late=True), flagged=True))
            continue
        maps.append((own.orthogonal, own.mean))
        entries.append(_entry(bundle, own.fit, late=True))
        admitted[bundle.member.name] = bundle
    newly = {*admitted, *(entry.name for entry in aside)}
    still_aside = [entry for entry in space.record.set_aside if entry.name not in newly]
    changes: dict[str, Any] = {"set_aside": (*still_aside, *aside), "newcomers": tuple(admitted)}
    if not admitted:
        return replace(space, record=replace(space.record, **changes))
    joined = add_newcomers(space, entries, maps, note)
    table.write(folder, study, joined, admitted, progress)
    joined = replace(joined, record=replace(joined.record, **changes, command=command, table=table.name))
    write_space(folder, joined)
    remove_other_forms(folder, table.name)
    return joined


def _record(
    study: Study,
    solved: AnchorSolution,
    left: Sequence[RowBundle],
    aside: Sequence[RowBundle],
    fits: dict[str, float],
    *,
    command: str,
    note: str,
    table: str,
) -> AlignmentRecord:
    return AlignmentRecord(
        participants=tuple(_entry(bundle, fits[bundle.member.name]) for bundle in left),
        set_aside=tuple(replace(_entry(bundle, fits.get(bundle.member.name, 0.0)), flagged=True) for bundle in aside),
        method=rotation_of(study).method,
        iterations=solved.iterations,
        termination=solved.termination,
        converged=solved.converged,
        residual=finite_or_none(solved.residual),
        misfit=finite_or_none(solved.misfit),
        certificate=None if solved.certificate is None else str(solved.certificate),
        anchor_noise_scale=rotation_of(study).anchor_noise_scale,
        transition_scale=transition_scale(len(left), rotation_of(study).n_components, rotation_of(study).n_anchor_rows),
        note=note,
        table=table,
        command=command,
        is_certified=solved.certificate is not None and solved.certificate.certified,
    )


def _entry(bundle: RowBundle, fit: float, *, late: bool = False) -> AlignedParticipant:
    return AlignedParticipant(bundle.member.name, bundle.n_rows, bundle.digest, fit, late=late)


def _leave_out(bundles: Sequence[RowBundle], some: Collection[RowBundle]) -> list[RowBundle]:
    names = {bundle.member.name for bundle in some}
    return [bundle for bundle in bundles if bundle.member.name not in names]


def _note_anchor_files(bundles: Sequence[RowBundle]) -> str:
    if len({bundle.anchor_digest for bundle in bundles}) < 2:
        return ""
    return "Not everybody used the same file of the anchor: ask the dealer whether it was dealt twice."


def _join_notes(*notes: str) -> str:
    return " ".join(note for note in notes if note)
