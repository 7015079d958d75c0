"""`mooring align`, second half: verified bundles become one collaboration matrix.

Anchor representations are aligned where they are held: in this process (`LocalAnchors`), or on the workers of a cluster
(`mooring.engines.dask.reduction.AnchorsOnWorkers`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from mooring.alignment import Alignment, align, align_to_reference
from mooring.atomic_io import make_folder
from mooring.errors import InputError, RefusedError
from mooring.geometry.orthogonal import polar_factor
from mooring.protocol.analyst.trained_model import DELIVERY_FILE
from mooring.protocol.exchange_types import AlignMode
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.analyst.alignment_state import (
    STATE_FILE,
    AlignedParticipant,
    AlignmentRecord,
    AlignmentState,
    read_space,
    write_space,
)
from mooring.protocol.rotation.analyst.matrix_writer import MatrixWriter
from mooring.protocol.rotation.analyst.outliers import Fits, measure_fit, measure_fits, measure_honest_spread
from mooring.protocol.rotation.bundle import RowBundle, centre_anchors
from mooring.protocol.rotation.scheme import rotation_of
from mooring.theory import transition_scale
from mooring.typing import Matrix, Progress

_SAME_FIT = 1e-6  # far above what rounding to float32 changes
NOT_CHECKED = (
    "At this noise, or with so few components, an honest anchor representation fits the others hardly better than random "
    "numbers do. No upload was checked by its fit."
)
_NOT_CERTIFIED = "The alignment was computed on workers, where no proof of optimality is tried."


@dataclass(frozen=True, eq=False)
class SolvedAnchors:
    """The alignment of some anchor representations, their mean rows of shape (p, h), and how well each fits the others."""

    alignment: Alignment
    means: Matrix
    fits: Fits


@dataclass(frozen=True, eq=False)
class Newcomer:
    """The position of one anchor representation relative to a template: its fit, orthogonal matrix and mean row."""

    fit: float
    orthogonal: Matrix
    mean: Matrix


class AnchorSource(Protocol):
    """The anchor representations of verified bundles, wherever they are."""

    can_certify: bool

    def solve(
        self, bundles: Sequence[RowBundle], *, reference: int | None = None, certify: bool = False
    ) -> SolvedAnchors:
        """Align the representations of these bundles to each other or, with `reference`, to the one with this index."""

    def fit_to_template(self, template: Matrix, bundles: Sequence[RowBundle]) -> list[Newcomer]:
        """Fit the representation of each bundle to a template, separately."""


class LocalAnchors:
    """The anchor representations in this process's memory, one in each bundle."""

    can_certify = True

    def solve(
        self, bundles: Sequence[RowBundle], *, reference: int | None = None, certify: bool = False
    ) -> SolvedAnchors:
        """Align the representations of these bundles; with a reference, no proof of optimality is tried."""
        uploads = [bundle.anchor_representation for bundle in bundles]
        if reference is not None:
            solved = align_to_reference(uploads, reference=reference)
        else:
            solved = align(uploads, certify=certify)
        centred = [centre_anchors(upload) for upload in uploads]
        aligned = [block @ map.orthogonal for (block, _), map in zip(centred, solved.maps, strict=True)]
        return SolvedAnchors(solved, np.stack([mean for _, mean in centred]), measure_fits(aligned))

    def fit_to_template(self, template: Matrix, bundles: Sequence[RowBundle]) -> list[Newcomer]:
        """Fit the representation of each bundle to a template, separately."""
        return [fit_newcomer(template, *centre_anchors(bundle.anchor_representation)) for bundle in bundles]


def fit_newcomer(template: Matrix, centred: Matrix, mean: Matrix) -> Newcomer:
    """Fit one anchor representation, given as its centred rows and their mean, to a template."""
    return Newcomer(measure_fit(template, centred), np.asarray(polar_factor(centred.T @ template)), mean)


@dataclass(frozen=True)
class Backend:
    """Where the anchor representations are, and what writes the collaboration matrix; by default this process."""

    anchors: AnchorSource = field(default_factory=LocalAnchors)
    writer: MatrixWriter = field(default_factory=MatrixWriter)


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
    """Align verified bundles, one per participant, and write the alignment and the collaboration matrix to the work folder.

    With the mode "late", only newcomers are aligned, and everybody else keeps its map. With "first", an alignment whose
    results were delivered is not replaced, because the delivered maps and model would not fit the new one; with "again", it
    is replaced.
    """
    rotation_of(study)
    folder, backend = Path(folder), backend or Backend()
    make_folder(folder, mode=0o700, what="the work folder")
    order = {member.name: index for index, member in enumerate(study.participants)}
    bundles = sorted(bundles, key=lambda bundle: order[bundle.member.name])
    if mode == "late":
        return _admit(study, bundles, folder, backend, command, progress)
    if mode == "first":
        _require_not_delivered(folder)
    anchors = backend.anchors
    can_prove = certify and anchors.can_certify
    usable = [bundle for bundle in bundles if bundle.has_full_rank]
    if len(usable) < 2:
        got, cure = f"{len(usable)} that can be aligned", "Alignment brings uploads together; wait for a second one."
        raise InputError("bundles", expected="those of two participants or more", got=got, cure=cure)
    solved = anchors.solve(usable)
    fits = {bundle.member.name: float(fit) for bundle, fit in zip(usable, solved.fits.values, strict=True)}
    left, note = _set_outliers_aside(study, usable, solved, anchors)
    if rotation_of(study).described.alignment == "reference":
        solved = anchors.solve(left, reference=choose_reference([fits[bundle.member.name] for bundle in left]))
    elif can_prove or len(left) < len(usable):
        solved = anchors.solve(left, certify=can_prove)
    aside = _leave_out(bundles, left)
    note = _join_notes(note, _note_anchor_files(left), "" if can_prove or not certify else _NOT_CERTIFIED)
    entries = [_entry(bundle, fits[bundle.member.name]) for bundle in left]
    flagged = [replace(_entry(bundle, fits.get(bundle.member.name, 0.0)), flagged=True) for bundle in aside]
    record = AlignmentRecord.of(rotation_of(study), solved.alignment, entries, flagged, note=note, command=command)
    space = AlignmentState.of(study.digest, record, solved.alignment, solved.means)
    _keep(study, space, left, folder, backend.writer, progress)
    (folder / DELIVERY_FILE).unlink(missing_ok=True)  # it records results of the alignment before
    return space


def _keep(
    study: Study,
    space: AlignmentState,
    bundles: Sequence[RowBundle],
    folder: Path,
    writer: MatrixWriter,
    progress: Progress | None,
) -> None:
    """Write the rows of these bundles, then the alignment that they belong to."""
    writer.write(folder, study, space, {bundle.member.name: bundle for bundle in bundles}, progress)
    write_space(folder, space)


def _require_not_delivered(folder: Path) -> None:
    if (folder / DELIVERY_FILE).is_file() and (folder / STATE_FILE).is_file():
        raise RefusedError(
            "another alignment",
            reason="results were delivered from the one in this folder, and their maps and model would not fit another one",
            cure="Admit newcomers with --late (mode 'late'), and everybody else keeps its result; or align everybody again "
            "with --again (mode 'again'), then train and deliver to everybody.",
        )


def choose_reference(fits: Sequence[float]) -> int:
    """Return the index of the first participant whose fit is at least the median.

    Anchor representations without noise fit each other exactly. A representation that lacks a direction fits less well,
    though the difference may look like noise. If it were the reference, rounding errors would decide the sign of that
    direction, for every participant separately.
    """
    return int(np.flatnonzero(np.asarray(fits) >= np.median(fits) - _SAME_FIT)[0])


def _set_outliers_aside(
    study: Study, bundles: Sequence[RowBundle], first: SolvedAnchors, anchors: AnchorSource
) -> tuple[list[RowBundle], str]:
    """Return the bundles that fit each other; or all bundles, with a note, if misfits cannot be identified."""
    low = _find_low(study, first.fits, first.alignment.template, first.fits.values.tolist())
    if low is None:
        return list(bundles), NOT_CHECKED
    left = [bundle for bundle, out in zip(bundles, low, strict=True) if not out]
    if len(left) == len(bundles):
        return left, ""
    if len(left) < 2 or 2 * len(left) < len(bundles):
        note = "Too many participants do not fit the others to say which of them are wrong: nobody was set aside."
        return list(bundles), note
    # Each suspect influenced the alignment with which it was compared. What counts is its fit to an alignment of the others.
    solved = anchors.solve(left)
    suspects, template = _leave_out(bundles, left), np.asarray(solved.alignment.template)
    fitted = anchors.fit_to_template(template, suspects)
    still = _find_low(study, solved.fits, template, [suspect.fit for suspect in fitted])
    if still is None:
        return list(bundles), NOT_CHECKED
    return _leave_out(bundles, [bundle for bundle, out in zip(suspects, still, strict=True) if out]), ""


def _find_low(study: Study, fits: Fits, template: Matrix, values: Sequence[float]) -> list[bool] | None:
    """Return whether each of `values` is too low, compared with the aligned participants' fits; None if that is unknown."""
    settings = rotation_of(study)
    v = settings.anchor_noise_scale
    if v >= transition_scale(fits.values.size, settings.n_components, settings.n_anchor_rows):
        return None
    return fits.find_low(values, measure_honest_spread(template, v))


def _admit(
    study: Study, bundles: Sequence[RowBundle], folder: Path, backend: Backend, command: str, progress: Progress | None
) -> AlignmentState:
    """Align newcomers to the template of an existing alignment; their maps and rows are added to it."""
    space = read_space(folder, study)
    fresh = [bundle for bundle in bundles if bundle.member.name not in space.names]
    # The fit of random numbers is measured against the template, which stands for the aligned participants.
    against = measure_fits([space.template, space.template])
    known = [entry.fit for entry in space.record.participants]
    among = Fits(np.asarray(known, dtype=np.float64), against.garbage, against.spread)
    fitted = backend.anchors.fit_to_template(space.template, fresh)
    low = _find_low(study, among, space.template, [newcomer.fit for newcomer in fitted])
    note = space.record.note
    if low is None:
        low, note = [False] * len(fresh), note if NOT_CHECKED in note else _join_notes(note, NOT_CHECKED)
    admitted = [
        (bundle, newcomer)
        for bundle, newcomer, out in zip(fresh, fitted, low, strict=True)
        if bundle.has_full_rank and not out
    ]
    newcomers = [bundle for bundle, _ in admitted]
    entries = [_entry(bundle, newcomer.fit, late=True) for bundle, newcomer in zip(fresh, fitted, strict=True)]
    names = {bundle.member.name for bundle in newcomers}
    aside = [replace(entry, flagged=True) for entry in entries if entry.name not in names]
    still_aside = [entry for entry in space.record.set_aside if entry.name not in {entry.name for entry in entries}]
    record = replace(
        space.record,
        participants=(*space.record.participants, *(entry for entry in entries if entry.name in names)),
        set_aside=(*still_aside, *aside),
        newcomers=tuple(bundle.member.name for bundle in newcomers),
    )
    if not admitted:
        return replace(space, record=record)
    joined = replace(
        space,
        record=replace(record, note=note, command=command),
        orthogonals=np.concatenate([space.orthogonals, [newcomer.orthogonal for _, newcomer in admitted]]),
        means=np.concatenate([space.means, [newcomer.mean for _, newcomer in admitted]]),
    )
    _keep(study, joined, newcomers, folder, backend.writer, progress)
    return joined


def _entry(bundle: RowBundle, fit: float, *, late: bool = False) -> AlignedParticipant:
    return AlignedParticipant(bundle.member.name, bundle.n_rows, bundle.digest, fit, late=late)


def _leave_out(bundles: Sequence[RowBundle], some: Collection[RowBundle]) -> list[RowBundle]:
    names = {bundle.member.name for bundle in some}
    return [bundle for bundle in bundles if bundle.member.name not in names]


def _note_anchor_files(bundles: Sequence[RowBundle]) -> str:
    if len({bundle.anchor_digest for bundle in bundles}) < 2:
        return ""
    return "Not everybody used the same anchor file. Ask the dealer whether the anchor was made twice."


def _join_notes(*notes: str) -> str:
    return " ".join(note for note in notes if note)
