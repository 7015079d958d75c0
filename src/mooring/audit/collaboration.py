"""A whole collaboration in one process: every participant's upload, the analyst's alignment, the collaboration matrix.

For studies, audits and demonstrations, where one program plays all parts and so holds all secrets. Between real
organisations each part runs where its data is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mooring.alignment import Alignment, align, align_to_reference
from mooring.alignment.solve import Solver
from mooring.errors import InputError
from mooring.geometry.backend import as_float64, namespace_of
from mooring.geometry.rigid import RigidMap
from mooring.mechanisms.kernel import GivenNoise, Upload, UploadNoise, coupled_noise, represent
from mooring.mechanisms.methods import Method, method_named
from mooring.randomness import Streams
from mooring.typing import Array


@dataclass(frozen=True, eq=False)
class Collaboration:
    """What a simulated collaboration produced.

    Attributes
    ----------
    method : Method
    uploads : tuple of Upload
        What the analyst saw.
    aligned : tuple of arrays of shape (n_i, d)
        Each participant's representation in the common space.
    alignment : Alignment or None
        None for methods without an anchor.
    secrets : tuple of RigidMap
        What the analyst did not see.
    """

    method: Method
    uploads: tuple[Upload, ...]
    aligned: tuple[Array, ...]
    alignment: Alignment | None
    secrets: tuple[RigidMap, ...] = field(repr=False)

    @property
    def collaboration_matrix(self) -> Array:
        """Z: all aligned rows, one participant after the other."""
        return namespace_of(*self.aligned).concat(list(self.aligned), axis=0)


def collaborate(
    method: Method | str,
    private_data: Sequence[Array],
    *,
    streams: Streams,
    anchor: Array | None = None,
    data_noise_scale: float | None = None,
    anchor_noise_scale: float | None = None,
    reference: int = 0,
    solver: Solver = "accelerated",
    certify: bool = False,
) -> Collaboration:
    """Run a method from private data to collaboration matrix.

    Parameters
    ----------
    method : Method or str
    private_data : sequence of arrays of shape (n_i, d)
        Already projected, one a participant.
    streams : Streams
        Participant i draws its map from the stream "participant/i/transform" and its noise from "participant/i/noise".
        Two methods run with the same streams are therefore matched: C-GDP uses the reference's map, and its private-data
        noise is coupled to AA-I-GDP's as in the equivalence corollary, so that their outputs coincide.
    anchor : array of shape (r, d), optional
    data_noise_scale, anchor_noise_scale : float, optional
        As for `represent`: to be stated, be it 0, for a method that has such a noise.
    reference : int, default 0
    solver, certify
        As for `align`; they matter to the methods with anchor noise only.

    Examples
    --------
    >>> import numpy as np
    >>> from mooring import make_anchor
    >>> rng = np.random.default_rng(0)
    >>> data = [rng.standard_normal((6, 3)) for _ in range(4)]
    >>> anchor = make_anchor(12, 3, rng=rng)
    >>> study = Streams.for_experiment(seed=1)
    >>> together = collaborate("aa-i-gdp", data, streams=study, anchor=anchor).collaboration_matrix
    >>> bool(np.allclose(together, collaborate("c-gdp", data, streams=study).collaboration_matrix))
    True
    """
    method = method_named(method) if isinstance(method, str) else method
    rows = [as_float64(part) for part in private_data]
    if not rows:
        raise InputError(
            "private_data",
            expected="that of at least one participant",
            got="none",
            cure="Pass one matrix a participant.",
        )
    widths = sorted({part.shape[-1] for part in rows if len(part.shape) == 2})
    if len(widths) != 1 or any(len(part.shape) != 2 for part in rows):
        raise InputError(
            "private_data",
            expected="matrices of one width",
            got=f"shapes {', '.join(str(tuple(part.shape)) for part in rows)}",
            cure="Project every participant's records in the same way.",
        )
    if not 0 <= reference < len(rows):
        raise InputError(
            "reference",
            expected=f"a participant's index, 0 to {len(rows) - 1}",
            got=str(reference),
            cure="Count participants from zero.",
        )
    own = [
        RigidMap.sample(int(part.shape[-1]), rng=streams.named(f"participant/{i}/transform")).moved_to(part)
        for i, part in enumerate(rows)
    ]
    secrets = [own[reference] if method.transform == "common" else secret for secret in own]
    uploads = []
    for i, part in enumerate(rows):
        noise = UploadNoise.drawn(streams.named(f"participant/{i}/noise"))
        if method.transform == "common" and (data_noise_scale or 0) > 0:
            drawn = streams.named(f"participant/{i}/noise").standard_normal(tuple(part.shape))
            W = namespace_of(part).asarray(drawn, device=part.device)
            noise = UploadNoise(GivenNoise(coupled_noise(W, own=own[i], reference=own[reference])))
        uploads.append(
            represent(
                method,
                part,
                secrets[i],
                noise=noise,
                anchor=anchor,
                data_noise_scale=data_noise_scale,
                anchor_noise_scale=anchor_noise_scale,
            )
        )
    alignment = _aligned(method, uploads, reference=reference, solver=solver, certify=certify)
    maps = [None] * len(uploads) if alignment is None else alignment.maps
    aligned = tuple(
        upload.representation if map is None else map.apply(upload.representation)
        for upload, map in zip(uploads, maps, strict=True)
    )
    return Collaboration(method, tuple(uploads), aligned, alignment, tuple(secrets))


def _aligned(
    method: Method, uploads: Sequence[Upload], *, reference: int, solver: Solver, certify: bool
) -> Alignment | None:
    representations = [upload.anchor_representation for upload in uploads]
    match method.alignment:
        case "none":
            return None
        case "reference":
            return align_to_reference(representations, reference=reference)
        case "procrustes":
            return align(representations, solver=solver, certify=certify)
