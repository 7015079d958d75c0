"""`mooring align`, second half: verified bundles become one collaboration matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.alignment import Alignment, align, align_to_reference
from mooring.alignment.problem import centred_newcomer
from mooring.errors import InputError
from mooring.geometry.orthogonal import polar_factor
from mooring.protocol.bundle import Bundle
from mooring.protocol.collaboration_file import TABLE_FILE, write_table
from mooring.protocol.common_space import CommonSpace, finite_or_none, read_space, with_newcomers, write_space
from mooring.protocol.durable import make_folder
from mooring.protocol.misfits import Fits, fit_to, fits_among
from mooring.protocol.study import Study
from mooring.protocol.tables import Progress
from mooring.theory import transition_scale

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Aligned:
    """What an alignment of bundles gives back.

    Attributes
    ----------
    space : CommonSpace
        Maps, template and record.
    set_aside : tuple of str
        Participants whose anchor representation does not fit the others', or cannot be aligned at all.
    newcomers : tuple of str
        Those who were admitted late, this time.
    """

    space: CommonSpace
    set_aside: tuple[str, ...]
    newcomers: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The record, for JSON."""
        return self.space.record


def align_bundles(
    study: Study,
    bundles: Sequence[Bundle],
    folder: str | Path,
    *,
    late: bool = False,
    certify: bool = True,
    command: str = "",
    progress: Progress | None = None,
) -> Aligned:
    """Align verified bundles and write the collaboration matrix.

    Parameters
    ----------
    study : Study
    bundles : sequence of Bundle
        One a participant, each verified.
    folder : path
        The analyst's work folder.
    late : bool, default False
        Keep the maps of everybody who is aligned already, and only admit those who are new.
    certify : bool, default True
        Whether to try to prove that the alignment is the best there is.
    command : str
        For the record.
    progress : callable, optional
        Called with rows written and rows in all.

    Returns
    -------
    Aligned
        Written, besides, as alignment.safetensors, alignment.json and collaboration.parquet.
    """
    folder = Path(folder)
    make_folder(folder, mode=0o700, what="the work folder")
    order = {member.name: index for index, member in enumerate(study.participants)}
    bundles = sorted(bundles, key=lambda bundle: order[bundle.member.name])
    if late:
        return _admit(study, bundles, folder, command, progress)
    usable = [bundle for bundle in bundles if _can_be_aligned(bundle)]
    if len(usable) < 2:
        raise InputError(
            "bundles",
            expected="those of two participants or more",
            got=f"{len(usable)} that can be aligned",
            cure="Alignment brings uploads together; wait for a second one.",
        )
    alignment, fits = _solved(study, usable)
    left, note = _without_misfits(study, usable, fits)
    flagged = [bundle for bundle in usable if bundle not in left]
    if certify or flagged:
        alignment, _ = _solved(study, left, certify=certify)
    values = {bundle.member.name: float(value) for bundle, value in zip(usable, fits.values, strict=True)}
    aside = [bundle for bundle in bundles if bundle not in left]
    record = _record(study, alignment, left, aside, values, command=command, note=_joined(note, _anchors(left)))
    h = study.n_components
    space = CommonSpace(
        study.digest,
        record,
        orthogonals=np.stack([np.asarray(map.orthogonal) for map in alignment.maps]).reshape(-1, h, h),
        means=np.stack([bundle.anchor_representation.mean(axis=0) for bundle in left]),
        template=np.ascontiguousarray(alignment.template),
        origin=np.ascontiguousarray(alignment.origin),
    )
    write_table(folder, study, space, {bundle.member.name: bundle for bundle in left}, progress)
    write_space(folder, space)
    return Aligned(space, tuple(bundle.member.name for bundle in aside))


def _solved(study: Study, bundles: Sequence[Bundle], *, certify: bool = False) -> tuple[Alignment, Fits]:
    uploads = [bundle.anchor_representation for bundle in bundles]
    if study.method_described.alignment == "reference":
        alignment = align_to_reference(uploads)
    else:
        alignment = align(uploads, certify=certify)
    aligned = [
        (upload - upload.mean(axis=0)) @ np.asarray(map.orthogonal)
        for upload, map in zip(uploads, alignment.maps, strict=True)
    ]
    return alignment, fits_among(aligned)


def _without_misfits(study: Study, bundles: Sequence[Bundle], fits: Fits) -> tuple[list[Bundle], str]:
    """Those who fit each other, and a note where that could not be told."""
    v, h, r = study.anchor_noise_scale, study.n_components, study.n_anchor_rows
    if not fits.can_tell or v >= transition_scale(len(bundles), h, r):
        return list(bundles), (
            "At this noise, or with so few components, an honest anchor representation fits the others hardly better than "
            "garbage would: nobody was checked by its fit."
        )
    left = [bundle for bundle, near in zip(bundles, fits.near_garbage, strict=True) if not near]
    if len(left) == len(bundles):
        return left, ""
    if len(left) < 2 or 2 * len(left) < len(bundles):
        return list(
            bundles
        ), "Too many participants do not fit the others to say who is in the wrong: nobody was set aside."
    # A suspect took part in what it was compared with; what counts is how it fits those who are left, without it.
    alignment, among = _solved(study, left)
    template = np.asarray(alignment.template)
    cleared = [
        bundle
        for bundle in bundles
        if bundle not in left and not among.is_near_garbage(fit_to(template, _centred(bundle)))
    ]
    return [bundle for bundle in bundles if bundle in left or bundle in cleared], ""


def _admit(study: Study, bundles: Sequence[Bundle], folder: Path, command: str, progress: Progress | None) -> Aligned:
    space = read_space(folder, study)
    fresh = [bundle for bundle in bundles if bundle.member.name not in space.names]
    entries, maps, admitted, aside = [], [], {}, []
    # The template stands for the others: what garbage reaches against it is measured as it was among themselves.
    against = fits_among([space.template, space.template])
    known = [entry["fit"] for entry in space.record["participants"]]
    among = Fits(np.asarray(known, dtype=np.float64), against.garbage, against.spread)
    for bundle in fresh:
        fit = fit_to(space.template, _centred(bundle))
        if not _can_be_aligned(bundle) or among.is_near_garbage(fit):
            aside.append(bundle.member.name)
            continue
        R = polar_factor(_centred(bundle).T @ space.template)
        maps.append((np.asarray(R), bundle.anchor_representation.mean(axis=0)))
        entries.append(_entry(bundle, fit, late=True))
        admitted[bundle.member.name] = bundle
    if not admitted:
        return Aligned(space, tuple(aside))
    joined = with_newcomers(space, entries, maps, space.record["note"])
    joined.record["command"] = command
    write_table(folder, study, joined, admitted, progress)
    write_space(folder, joined)
    return Aligned(joined, tuple(aside), tuple(admitted))


def _record(
    study: Study,
    alignment: Alignment,
    left: Sequence[Bundle],
    aside: Sequence[Bundle],
    fits: dict[str, float],
    *,
    command: str,
    note: str,
) -> dict[str, Any]:
    proof = alignment.certificate
    return {
        "command": command,
        "participants": [_entry(bundle, fits[bundle.member.name], late=False) for bundle in left],
        "set_aside": [
            {**_entry(bundle, fits.get(bundle.member.name, 0.0), late=False), "flagged": True} for bundle in aside
        ],
        "method": study.method,
        "iterations": alignment.iterations,
        "termination": str(alignment.termination),
        "converged": alignment.converged,
        "residual": finite_or_none(alignment.residual),
        "misfit": finite_or_none(alignment.misfit),
        "certificate": None if proof is None else {"certified": bool(proof.certified), "words": str(proof)},
        "anchor_noise_scale": study.anchor_noise_scale,
        "transition_scale": transition_scale(len(left), study.n_components, study.n_anchor_rows),
        "note": note,
        "table": TABLE_FILE,
    }


def _entry(bundle: Bundle, fit: float, *, late: bool) -> dict[str, Any]:
    return {
        "name": bundle.member.name,
        "rows": bundle.n_rows,
        "digest": bundle.digest,
        "fit": fit,
        "flagged": False,
        "late": late,
    }


def _centred(bundle: Bundle) -> Matrix:
    upload = bundle.anchor_representation
    return np.asarray(upload - upload.mean(axis=0))


def _can_be_aligned(bundle: Bundle) -> bool:
    """Whether the anchor representation spans all directions; one that does not would stop everybody's alignment."""
    try:
        centred_newcomer(bundle.anchor_representation, template=bundle.anchor_representation)
    except InputError:
        return False
    return True


def _anchors(bundles: Sequence[Bundle]) -> str:
    if len({bundle.anchor_digest for bundle in bundles}) < 2:
        return ""
    return "Not everybody used the same file of the anchor: ask the dealer whether it was dealt twice."


def _joined(*notes: str) -> str:
    return " ".join(note for note in notes if note)
