"""What an auditor of images sees in an attacker's reconstructions, for many draws at once.

Three measures over the same queries: linkage as in the paper (an auditor's embedding of the decoded image, ten-way
galleries, cosine); a match straight in the projected space, where no auditor can lose what the reconstruction holds; and
the relative error. Linkage is also measured through a decoder that the attacker learnt, where there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mooring.metrics import Galleries, linked_shares, relative_errors
from mooring.typing import Array, Matrix
from mooring_studies.images.execution import pieces_that_fit

_NUMBERS_AT_ONCE = 2**26
LEARNED = "+learned"
"""Behind the name of an attack whose rebuilt rows were decoded by the attacker's own decoder."""

Embedder = Callable[[Array], Array]
"""Turns float32 images of shape (n, d), clamped to [0, 1], into unit vectors of shape (n, k), on the images' device."""


@dataclass(frozen=True, eq=False)
class Decoder:
    """An affine map from projected rows to pixels."""

    matrix: Array = field(repr=False)
    offset: Array | None = field(default=None, repr=False)

    def images(self, rows: Array) -> Array:
        """Pixels in [0, 1] of rows of shape (n, h)."""
        pixels = rows.to(self.matrix.dtype) @ self.matrix
        if self.offset is not None:
            pixels += self.offset
        return pixels.clamp_(0.0, 1.0)


@dataclass(frozen=True, eq=False)
class ImageEvaluator:
    """The queries of one deployment, and how reconstructions of them, of shape (D, q, h) for D draws, are judged."""

    queries: Array = field(repr=False)
    """The target's projected rows that the attacker rebuilds, of shape (q, h), in float64."""
    references: Array = field(repr=False)
    """The auditor's embeddings of the clean candidates, of shape (c, k)."""
    galleries: Galleries = field(repr=False)
    """Which candidates each query is shown with: queries count rows of `queries`, candidates rows of `references`."""
    match_galleries: Galleries = field(repr=False)
    """The same for matching in the projected space, where the candidates are the clean queries themselves."""
    decoder: Decoder = field(repr=False)
    """F†, as in the paper."""
    embed: Embedder = field(repr=False)
    """The auditor."""
    shown: npt.NDArray[np.int64] = field(repr=False)
    """Indices of the queries that pictures show, of shape (k,)."""
    learned_decoder: Decoder | None = field(default=None, repr=False)
    """The attacker's own, learnt from the colluder's images, where it sees more than F† does."""
    works_beside: bool = False
    """Whether the auditor works on another device than all the rest, and so beside it."""

    def error(self, rebuilt: Array) -> Matrix:
        """‖X̂ − X‖_F / ‖X‖_F, a draw."""
        return relative_errors(self.queries, rebuilt)

    def match(self, rebuilt: Array) -> Matrix:
        """The share of galleries in which the nearest candidate is the true one, by distance or by angle."""
        return linked_shares(rebuilt, self.queries, self.match_galleries)

    def linkage_of(self, embedded: Array) -> Matrix:
        """The share in which the auditor names the true candidate, by its view of the queries, of shape (D, q, k)."""
        return linked_shares(embedded, self.references, self.galleries, metrics=("cosine",))

    def linkages(self, attack: str, rebuilt: Array) -> dict[str, Matrix]:
        """The linkage columns of an attack: through F†, and through the learned decoder where there is one."""
        columns = {f"linkage:{attack}": self.linkage(rebuilt)}
        if self.learned_decoder is not None:
            columns[f"linkage:{attack}{LEARNED}"] = self.linkage(rebuilt, self.learned_decoder)
        return columns

    def linkage(self, rebuilt: Array, decoder: Decoder | None = None) -> Matrix:
        """The share of galleries in which the auditor names the true candidate, a draw of shape (q, h)."""
        n_draws, q, h = rebuilt.shape
        return self.linkage_of(self.embedded(rebuilt.reshape(n_draws * q, h), decoder).reshape(n_draws, q, -1))

    def embedded(self, rebuilt: Array, decoder: Decoder | None = None) -> Array:
        """The auditor's view of reconstructions of shape (n, h); by F† unless another decoder is given."""
        import torch

        used = self.decoder if decoder is None else decoder
        step = max(1, _NUMBERS_AT_ONCE // used.matrix.shape[1])
        seen = pieces_that_fit(lambda part: self.embed(used.images(part)), rebuilt, step)
        return torch.cat([vectors for _, vectors in seen])
