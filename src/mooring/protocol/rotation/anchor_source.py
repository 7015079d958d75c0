"""Where anchor representations are, and what an alignment asks of them: solved here, or wherever they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mooring.alignment import align, align_to_reference
from mooring.alignment.certificate import Certificate
from mooring.alignment.problem import have_full_rank
from mooring.geometry.orthogonal import polar_factor
from mooring.protocol.rotation.bundle import RowBundle
from mooring.protocol.rotation.outliers import Fits, measure_fit, measure_fits
from mooring.typing import Matrix


@dataclass(frozen=True, eq=False)
class AnchorSolution:
    """Maps of some participants, how they were found, and how well each fits the others."""

    orthogonals: Matrix
    """Of shape (p, h, h)."""
    means: Matrix
    """Of shape (p, h)."""
    template: Matrix
    """Of shape (r, h)."""
    origin: Matrix
    """Of shape (h,)."""
    iterations: int
    termination: str
    converged: bool
    residual: float
    misfit: float
    certificate: Certificate | None
    """As in `mooring.alignment.Alignment`."""
    fits: Fits


@dataclass(frozen=True, eq=False)
class Newcomer:
    """How one participant lies to a template: its fit, its map's orthogonal part, and the mean row."""

    fit: float
    orthogonal: Matrix
    mean: Matrix


class AnchorSource(Protocol):
    """The anchor representations of verified bundles, wherever they are."""

    can_certify: bool

    def check_rank(self, bundles: Sequence[RowBundle]) -> list[bool]:
        """Whether each spans all directions; one that does not would stop everybody's alignment."""

    def solve(
        self, bundles: Sequence[RowBundle], *, reference: int | None = None, certify: bool = False
    ) -> AnchorSolution:
        """Align these, in this order.

        Parameters
        ----------
        reference : int, optional
            The one of them to whose coordinates the others are brought; without it, all are aligned to each other.
        certify : bool, default False
            Whether to try to prove that no better alignment exists; not with a reference.
        """

    def fit_to_template(self, template: Matrix, bundles: Sequence[RowBundle]) -> list[Newcomer]:
        """Fit each by itself to a template."""


class LocalAnchors:
    """The anchor representations in this process's memory, one in each bundle."""

    can_certify = True

    def check_rank(self, bundles: Sequence[RowBundle]) -> list[bool]:
        """Whether each spans all directions."""
        return [has_full_rank(bundle.anchor_representation) for bundle in bundles]

    def solve(
        self, bundles: Sequence[RowBundle], *, reference: int | None = None, certify: bool = False
    ) -> AnchorSolution:
        """Align these.

        Parameters
        ----------
        bundles, reference, certify
            As for `AnchorSource.solve`.
        """
        uploads = [bundle.anchor_representation for bundle in bundles]
        centred = [centre_anchors(upload) for upload in uploads]
        if reference is not None:
            found = align_to_reference(uploads, reference=reference)
        else:
            found = align(uploads, certify=certify)
        orthogonals = np.stack([np.asarray(map.orthogonal) for map in found.maps])
        return AnchorSolution(
            orthogonals=orthogonals,
            means=np.stack([mean for _, mean in centred]),
            template=np.ascontiguousarray(found.template),
            origin=np.ascontiguousarray(found.origin),
            iterations=found.iterations,
            termination=str(found.termination),
            converged=found.converged,
            residual=found.residual,
            misfit=found.misfit,
            certificate=found.certificate,
            fits=measure_fits([own @ R for (own, _), R in zip(centred, orthogonals, strict=True)]),
        )

    def fit_to_template(self, template: Matrix, bundles: Sequence[RowBundle]) -> list[Newcomer]:
        """Fit each by itself to a template."""
        return [fit_newcomer(template, *centre_anchors(bundle.anchor_representation)) for bundle in bundles]


def centre_anchors(anchor_representations: Matrix) -> tuple[Matrix, Matrix]:
    """Anchor representations of shape (..., r, h), centred, and their mean rows."""
    means = anchor_representations.mean(axis=-2)
    return np.asarray(anchor_representations - means[..., None, :]), means


def fit_newcomer(template: Matrix, centred: Matrix, mean: Matrix) -> Newcomer:
    """Fit one anchor representation to a template.

    Parameters
    ----------
    template : array of shape (r, h)
    centred : array of shape (r, h)
        The anchor representation without its mean row.
    mean : array of shape (h,)
    """
    return Newcomer(measure_fit(template, centred), np.asarray(polar_factor(centred.T @ template)), mean)


def has_full_rank(anchor_representation: Matrix) -> bool:
    """Whether an anchor representation of finite numbers spans all directions."""
    return bool(have_full_rank(centre_anchors(anchor_representation)[0]))
