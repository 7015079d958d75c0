"""Problems to measure on: uploads of a shared anchor, with noise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mooring import RigidMap, Streams, make_anchor


def noisy_uploads(
    n_participants: int, n_components: int, n_anchor_rows: int, noise: float, seed: int
) -> npt.NDArray[np.float64]:
    """Anchor representations of shape (p, r, d)."""
    streams = Streams.for_experiment(seed)
    anchor = make_anchor(n_anchor_rows, n_components, rng=streams.named("anchor"))
    maps = RigidMap.sample(n_components, rng=streams.named("maps"), batch_shape=(n_participants,))
    uploads = maps.apply(np.broadcast_to(anchor, (n_participants, *anchor.shape)))
    uploads += noise * streams.named("noise").standard_normal(uploads.shape)
    return np.asarray(uploads)
