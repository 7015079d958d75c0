"""A participant's upload as a file: representation, noisy anchor representation, labels, and nothing else.

Every number is float32, whatever it was before. The manifest names the study, the signer's key, the number of rows, the
anchor file and the digest of the arrays, and nothing else about the rows. Before the analyst reads an array, it checks the
signature, that the signer is in the roster, and that length, names, types and shapes are those of the study. Then it reads
the arrays block by block, and checks their digest, that all numbers are finite, that the study declares the labels, and
that the anchor representation and the rows can be those of an honest participant. The bounds of this last check follow from
the distributions of an honest participant's map and noise.

    B = A O + 1 Ψᵀ + v W',        Y = X O + 1 Ψᵀ + σ W.

Legend: A the anchor (r × h, centred, orthonormal columns); O orthogonal; Ψ, W and W' standard normal; X the encoded rows,
each of d numbers between −1 and 1, projected on h orthonormal directions; b and w̄ the mean rows of B and W'; w a row of W;
n = r − 1.

An honest participant is beyond each end of a bound with a probability of 1e-9 at most:

- b is Ψ + v w̄, where w̄ has variance 1/r: ‖b‖² / (1 + v²/r) is χ² with h degrees of freedom.
- ‖B − 1bᵀ‖² / v² is noncentral χ² with nh degrees of freedom and noncentrality h/v²; its tails are bounded as by Birgé
  (2001, Lemma 8.1).
- The singular values of B − 1bᵀ are those of (I 0)ᵀ + v G with G normal, n × h. Up to fluctuations, they lie between the
  edges of their law for large h. Each is v-Lipschitz in G, so that it deviates from its mean by v t with a probability of at
  most exp(−t²/2).
- A row of Y − 1bᵀ is a row of X O, which is no longer than √d, plus the noise σ w − v w̄.

Where v is so large that a direction may vanish in noise, an anchor representation of too low a rank passes these bounds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt
from scipy.special import chdtri

from mooring.alignment.problem import have_full_rank
from mooring.atomic_io import open_plain_file
from mooring.errors import RefusedError
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.signed_file import (
    Fields,
    Header,
    TensorSpec,
    measure_signed_header,
    read_signed_header,
    require_header,
)
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.scheme import rotation_of
from mooring.typing import Matrix

if TYPE_CHECKING:
    from hashlib import _Hash

KIND = "bundle"
FIELDS = ("study", "nonce", "rows", "anchor")
_WHAT = "the bundle"
_MOST_ROWS = 2**40
_BLOCK_BYTES = 2**24

FALSE_REFUSAL = 1e-9
"""Largest probability with which each end of a bound refuses an honest upload."""
_ROUNDING = 1e-3  # float32, and a projection that is orthonormal up to rounding
_GRID = 4001
_ASK_AGAIN = "Ask the participant to send its bundle again."
Single = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class RowBundle:
    """An upload that was verified."""

    member: Member
    """Who signed it."""
    digest: str
    """SHA-256 of the file."""
    n_rows: int
    anchor_digest: str
    """SHA-256 of the sealed anchor file that was used. If the dealer is honest, all participants use the same file."""
    anchor_representation: npt.NDArray[np.float64]
    """B_i, of shape (r, h), in float64."""
    has_full_rank: bool
    """Whether the anchor representation spans all directions; otherwise it would stop everybody's alignment."""
    path: Path
    _offsets: Mapping[str, int] = field(repr=False)
    _n_components: int = field(repr=False)
    _label_kind: str = field(repr=False)

    @property
    def is_away(self) -> bool:
        """Whether the file must be fetched before it can be read; False, because the file is on this machine."""
        return False

    @contextmanager
    def opened(self) -> Iterator[RowBundle]:
        """Yield the bundle with a file that this process can read."""
        yield self

    def blocks(
        self, rows_at_once: int = 65_536, *, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[Single, npt.NDArray[Any] | None]]:
        """Yield blocks of the rows from `start` up to, but without, `stop`, each with its labels, or None without labels."""
        stop = self.n_rows if stop is None else stop
        for first in range(start, stop, rows_at_once):
            count = min(rows_at_once, stop - first)
            rows = self._read("representation", first * self._n_components, count * self._n_components)
            labels = None
            if self._label_kind != "none":
                dtype = np.int64 if self._label_kind == "classes" else np.float64
                labels = self._read("labels", first, count).astype(dtype)
            yield rows.reshape(count, self._n_components), labels

    def representation(self) -> Single:
        """Return all rows, Y_i."""
        return next(self.blocks(self.n_rows))[0]

    def labels(self) -> npt.NDArray[Any] | None:
        """Return all labels: class numbers (int64) or numbers (float64); None if the study has no label."""
        return next(self.blocks(self.n_rows))[1]

    def _read(self, name: str, start: int, count: int) -> Single:
        with open_plain_file(self.path, what=_WHAT) as file:
            numbers = np.fromfile(file, dtype="<f4", count=count, offset=self._offsets[name] + 4 * start)
        if numbers.size < count:
            raise _refuse("it became shorter while it was read")
        return numbers.astype(np.float32)


def centre_anchors(anchor_representations: Matrix) -> tuple[Matrix, Matrix]:
    """Return anchor representations, of shape (..., r, h), minus their mean rows, and these mean rows."""
    means = anchor_representations.mean(axis=-2)
    return np.asarray(anchor_representations - means[..., None, :]), means


def bundle_tensors(study: Study, n_rows: int) -> dict[str, TensorSpec]:
    """Return the type and shape of each array of a bundle with `n_rows` rows."""
    h = rotation_of(study).n_components
    tensors = {
        "anchor_representation": TensorSpec("F32", (rotation_of(study).n_anchor_rows, h)),
        "representation": TensorSpec("F32", (n_rows, h)),
    }
    return tensors if study.label.kind == "none" else tensors | {"labels": TensorSpec("F32", (n_rows,))}


def bundle_fields(study: Study, *, n_rows: int, anchor_digest: str) -> dict[str, str | int]:
    """Return the fields of a bundle's manifest besides kind, format, signer and digest."""
    return {"study": study.digest, "nonce": study.nonce, "rows": n_rows, "anchor": anchor_digest}


def _find_offsets(study: Study, n_rows: int, data_start: int) -> dict[str, int]:
    """Return the position of each array in the file."""
    offsets, position = {}, data_start
    for name, spec in bundle_tensors(study, n_rows).items():
        offsets[name] = position
        position += spec.n_bytes
    return offsets


def find_data_start(study: Study, *, n_rows: int) -> int:
    """Return the position of the first array in a bundle with `n_rows` rows."""
    fields = bundle_fields(study, n_rows=n_rows, anchor_digest="0" * 64)
    return measure_signed_header(KIND, fields, bundle_tensors(study, n_rows))


def verify_bundle(path: Path, study: Study, *, block_bytes: int = _BLOCK_BYTES) -> RowBundle:
    """Read a bundle from somebody who is not trusted, or refuse it with a reason.

    Memory does not grow with what the file claims to hold: the claims are first compared with the file's length, and the
    arrays are read in blocks of `block_bytes`.
    """
    with open_plain_file(path, what=_WHAT) as file:
        header, fields = read_signed_header(file, kind=KIND, fields=FIELDS, what=_WHAT)
        member, n_rows = study.require_signer(fields, what=_WHAT), fields["rows"]
        if not (isinstance(fields["anchor"], str) and len(fields["anchor"]) == 64):
            raise _refuse("it does not say which anchor was used")
        if not isinstance(n_rows, int) or not 1 <= n_rows <= _MOST_ROWS:
            raise _refuse("it has no rows, or claims more than there can be")
        tensors = bundle_tensors(study, n_rows)
        require_header(header, tensors, what=_WHAT)
        hashes = whole, arrays = hashlib.sha256(header.raw), hashlib.sha256()

        def read(name: str) -> Iterator[Single]:
            return _read_checked(file, tensors[name], hashes, block_bytes)

        # In the order of the file: a bad anchor representation is refused before gigabytes of rows are read.
        anchor = np.concatenate([*read("anchor_representation")]).astype(np.float64)
        _require_anchor(anchor, study)
        mean, farthest = anchor.mean(axis=0).astype(np.float32), bound_row(study, n_rows)
        for rows in read("representation"):
            _require_rows(rows, mean, farthest)
        if "labels" in tensors:
            for labels in read("labels"):
                _require_labels(labels, study)
    if arrays.hexdigest() != fields["data"]:
        raise _refuse("its arrays are not those that were signed")
    return RowBundle(
        member,
        whole.hexdigest(),
        n_rows,
        str(fields["anchor"]),
        anchor,
        bool(have_full_rank(centre_anchors(anchor)[0])),
        path,
        _find_offsets(study, n_rows, header.data_start),
        rotation_of(study).n_components,
        study.label.kind,
    )


def read_bundle_header(path: Path) -> tuple[Header, Fields]:
    """Return a bundle's header and manifest after checking the signature; no study is needed, and no array is read."""
    with open_plain_file(path, what=_WHAT) as file:
        return read_signed_header(file, kind=KIND, fields=FIELDS, what=_WHAT)


def _read_checked(file: BinaryIO, spec: TensorSpec, hashes: Iterable[_Hash], block_bytes: int) -> Iterator[Single]:
    """Yield an array block by block, after checking that its numbers are finite; a vector has rows of one number."""
    width = spec.shape[1] if len(spec.shape) == 2 else 1
    step = 4 * width * max(1, block_bytes // (4 * width))
    for start in range(0, spec.n_bytes, step):
        block = file.read(wanted := min(step, spec.n_bytes - start))
        if len(block) < wanted:
            raise _refuse("it became shorter while it was read")
        for each in hashes:
            each.update(block)
        values = np.frombuffer(block, dtype="<f4").reshape(-1, width)
        if not np.isfinite(values).all():
            raise _refuse("it holds numbers that are not finite")
        yield values


def _require_labels(values: Single, study: Study) -> None:
    if study.label.kind == "classes":
        fine = bool(((values >= 0) & (values < len(study.label.classes)) & (values == np.rint(values))).all())
    else:
        slack = 1e-6 * (study.label.high - study.label.low)
        fine = bool(((values >= study.label.low - slack) & (values <= study.label.high + slack)).all())
    if not fine:
        raise _refuse("it holds labels that the study does not declare")


def _require_rows(rows: Single, mean: Single, farthest: float) -> None:
    with np.errstate(over="ignore"):
        moved = rows - mean
        squares = np.einsum("ij,ij->i", moved, moved)
    if not squares.max() <= farthest**2:
        raise _refuse("it holds rows that lie farther from its anchor representation than any row of the study does")


def _require_anchor(representation: npt.NDArray[np.float64], study: Study) -> None:
    """Refuse an anchor representation that `explain_anchor` finds fault with: it would misplace its participant's rows."""
    reason = explain_anchor(representation, study)
    if reason is not None:
        raise RefusedError(
            _WHAT, reason=reason, cure="Ask the participant whether it used the study's anchor and noise."
        )


def _refuse(reason: str) -> RefusedError:
    return RefusedError(_WHAT, reason=reason, cure=_ASK_AGAIN)


def explain_anchor(representation: Matrix, study: Study) -> str | None:
    """Return the reason why an anchor representation cannot belong to this study; None if it can."""
    settings = rotation_of(study)
    r, h, v = settings.n_anchor_rows, settings.n_components, settings.anchor_noise_scale
    mean = representation.mean(axis=0)
    centred = representation - mean
    squared_norm, expected = float((centred**2).sum()), h * (1 + v**2 * (r - 1))
    low, high = bound_norm(r, h, v)
    if not low <= squared_norm <= high:
        return f"its anchor representation is {math.sqrt(squared_norm / expected):.3g} times as large as the study makes it"
    distance, farthest = float(np.linalg.norm(mean)), math.sqrt((1 + v**2 / r) * float(chdtri(h, FALSE_REFUSAL)))
    if not distance <= farthest:
        return (
            f"its anchor representation lies {distance:.3g} from the origin, and an honest one at most {farthest:.3g}"
        )
    values = np.sqrt(np.maximum(np.linalg.eigvalsh(centred.T @ centred)[[0, -1]], 0.0))
    least, most = bound_singular_values(r, h, v)
    if not (least <= values[0] and values[1] <= most):
        return (
            f"the singular values of its anchor representation are {values[0]:.3g} to {values[1]:.3g}, "
            f"and those of an honest one are {least:.3g} to {most:.3g}"
        )
    return None


def bound_norm(n_rows: int, n_components: int, noise_scale: float) -> tuple[float, float]:
    """Return bounds on the squared norm of a centred anchor representation."""
    r, h, v = n_rows, n_components, noise_scale
    mean, x = h * (1 + v**2 * (r - 1)), -math.log(FALSE_REFUSAL)
    spread = 2 * math.sqrt(((r - 1) * h * v**4 + 2 * h * v**2) * x)
    return (1 - _ROUNDING) * mean - spread, (1 + _ROUNDING) * mean + spread + 2 * v**2 * x


def bound_singular_values(n_rows: int, n_components: int, noise_scale: float) -> tuple[float, float]:
    """Return bounds on the singular values of a centred anchor representation.

    Notes
    -----
    Let x be v²h times the Stieltjes transform, at z, of the law of the squared singular values (Dozier and Silverstein,
    2007), and z(x) the inverse function. The squared lower edge is the maximum of z(x) over x > 0, and the squared upper
    edge is the minimum of z(x) over −1 < x < 0.
    """
    n, h, v = n_rows - 1, n_components, noise_scale
    bulk, share = v**2 * (n - h), v**2 * h
    above, below = np.geomspace(1e-7, 1e4, _GRID), -np.geomspace(1e-7, 1 - 1e-7, _GRID)

    def z(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray((1 / (1 + x) + bulk - share / x) / (1 + x))

    slack = v * math.sqrt(-2 * math.log(FALSE_REFUSAL)) + _ROUNDING
    return math.sqrt(max(0.0, float(z(above).max()))) - slack, math.sqrt(float(z(below).min())) + slack


def bound_row(study: Study, n_rows: int) -> float:
    """Return a bound on the distance of each of `n_rows` rows from the mean row of the anchor representation."""
    settings, reach = rotation_of(study), math.sqrt(study.n_features)
    r, h, v = settings.n_anchor_rows, settings.n_components, settings.anchor_noise_scale
    noise = settings.data_noise_scale * math.sqrt(float(chdtri(h, FALSE_REFUSAL / n_rows)))
    of_mean = v * math.sqrt(float(chdtri(h, FALSE_REFUSAL)) / r)
    return (1 + _ROUNDING) * reach + noise + of_mean
