"""What in one participant's own rows makes its secret map easy to break, with the columns named.

The rules are those of `mooring.audit.hazards`; here they are put to the rows of one participant, through the study's own
projection and noise, and say where either blunts them. Names and counts only, never a value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mooring.audit.hazards import (
    SEPARATED,
    constant_columns,
    count_duplicates,
    gridded_columns,
    reach_of_lattice_reduction,
    separated_variances,
)
from mooring.mechanisms.projection import Projection
from mooring.protocol.messages.study import Study
from mooring.typing import Matrix

_MOST_NAMES = 8
_MIXED = "The study's projection mixes the columns before they leave, which blunts this."
_BLURRED = "The study's private-data noise blurs this."


def hazards_of_rows(study: Study, rows: Matrix, projection: Projection) -> tuple[str, ...]:
    """Sentences about the rows, each a known way in; empty if none was found.

    Parameters
    ----------
    study : Study
    rows : array of shape (n, n_features)
        Encoded by the study.
    projection : Projection
        The study's.
    """
    n, h = rows.shape[0], study.n_components
    mixed = projection.kind != "none"
    noisy = study.data_noise_scale > 0
    found = _columns(study, rows, mixed=mixed, noisy=noisy)
    duplicates = count_duplicates(rows)
    if duplicates:
        found.append(
            _softened(
                f"{duplicates} of {n} rows are duplicates of another: without noise, equal rows stay equal in the upload.",
                blurred=noisy,
            )
        )
    zero = int((rows == 0).all(axis=1).sum())
    if zero:
        found.append(
            _softened(
                f"{zero} of {n} rows are zero throughout (every number in the middle of its range, no category): their "
                "image is the secret translation itself.",
                blurred=noisy,
            )
        )
    if n <= h:
        found.append(
            f"You have {n} rows, no more than the study's {h} components: every row that somebody knows weighs more, and "
            "the self-attack's figures are uncertain."
        )
    return (*found, *_spectrum(rows, projection, study.data_noise_scale))


def hazards_of_labels(study: Study, class_counts: dict[str, int] | None) -> tuple[str, ...]:
    """A sentence for each class that has rows, but fewer than the study allows: such rows stand out."""
    few = {} if class_counts is None else {k: n for k, n in class_counts.items() if 0 < n < study.smallest_class}
    return tuple(
        f"Class {name!r} has {count} {'row' if count == 1 else 'rows'}, fewer than the study's smallest_class of "
        f"{study.smallest_class}: labels travel as they are, and such rows stand out. Sharing them is refused."
        for name, count in few.items()
    )


def standing_warnings(study: Study) -> tuple[str, ...]:
    """What holds whatever the rows are, and must be said before anything leaves."""
    needed = study.n_components + 1
    known = (
        f"Known rows: somebody who knows {needed} of your rows from elsewhere (components + 1) recovers your secret "
        "transform, and with it all your rows, exactly where rows carry no noise."
    )
    if study.data_noise_scale > 0:
        known += (
            " Here rows carry noise, so known rows give the transform approximately, and the noise stays on the rest."
        )
        noise = "What protects your rows is the private-data noise; the anchor noise protects the anchor only."
    else:
        noise = (
            "This study puts no noise on the rows themselves: the upload is an exact image of them, and no anchor noise, "
            "however strong, protects rows."
        )
    labels = "Labels travel as they are: the analyst sees the label of every row, and how many rows you have."
    if study.label.kind == "none":
        labels = "The analyst sees how many rows you have."
    return known, noise, labels


def _columns(study: Study, rows: Matrix, *, mixed: bool, noisy: bool) -> list[str]:
    names = study.feature_names
    found = []
    gridded = gridded_columns(rows)
    if gridded.size:
        found.append(
            _softened(
                f"{gridded.size} of {len(names)} encoded columns take values on a grid (whole numbers, yes or no), which "
                f"without noise is {reach_of_lattice_reduction(len(names))}: {_named(names, gridded)}.",
                mixed=mixed,
                blurred=noisy,
            )
        )
    constant = constant_columns(rows)
    if constant.size:
        found.append(
            _softened(
                f"{constant.size} of {len(names)} encoded columns are constant in your rows, which ties a direction of "
                f"the secret map down: {_named(names, constant)}.",
                mixed=mixed,
            )
        )
    return found


def _spectrum(rows: Matrix, projection: Projection, noise_scale: float) -> list[str]:
    projected = np.asarray(projection.encode(rows))
    apart, gaps = separated_variances(projected)
    if apart == 0:
        return []
    words = (
        f"{apart} of the {gaps} gaps between your rows' largest variances exceed a factor of {SEPARATED:g}: the principal "
        "axes of the upload can be paired with those of rows like yours."
    )
    if noise_scale > 0:
        left, _ = separated_variances(projected, noise_scale=noise_scale)
        words += " The study's private-data noise closes all of them." if left == 0 else f" With noise, {left} remain."
    return [words]


def _softened(words: str, *, mixed: bool = False, blurred: bool = False) -> str:
    return " ".join([words, *([_MIXED] if mixed else []), *([_BLURRED] if blurred else [])])


def _named(names: Sequence[str], chosen: npt.NDArray[np.int64]) -> str:
    shown = ", ".join(names[k] for k in chosen[:_MOST_NAMES])
    more = chosen.size - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
