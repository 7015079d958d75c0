"""The perturbation, the public projection and the alignment as scikit-learn estimators, for pipelines.

Legend: F the public projection to h components; (O, Ψ) a participant's secret rigid map; σ the scale of its noise, W
standard normal; B an uploaded anchor representation of r rows, b the mean row of B; R the orthogonal matrix that aligns B.

A fitted `RigidPerturbation` holds a secret, and so does every copy or file of it: keep them where the rows are kept. The
protocol between organisations (`mooring join`, `mooring share`) keeps secrets in a vault and refuses a second upload of
the same rows; these estimators do neither.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from mooring.alignment import align, align_to_template
from mooring.errors import InputError
from mooring.geometry.rigid import RigidMap
from mooring.mechanisms.rotation.kernel import GeneratorNoise, add_noise, map_rows
from mooring.mechanisms.rotation.projection import gaussian_projection, public_svd_projection
from mooring.randomness import Streams
from mooring.theory import require_scale
from mooring.typing import Matrix

__all__ = ["AnchorAligner", "PublicProjection", "RigidPerturbation"]

_MOST_COMPONENTS = 30


class RigidPerturbation(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Rotate, reflect and shift rows by a secret rigid map, which `fit` draws at random.

    Parameters
    ----------
    data_noise_scale : float, default 0
        σ, the scale of the noise that `upload` adds. `transform` adds none, because its result is not uploaded.
    random_state : int, optional
        By default the map comes from the operating system's entropy. A seed is for experiments: it can be guessed.

    Attributes
    ----------
    secret_ : RigidMap
        (O, Ψ). Its printed form shows the width and nothing else.
    n_features_in_ : int

    Notes
    -----
    A rigid map by itself gives no guarantee; see `docs/methods.md`. `upload` derives its noise from the rows and from the
    randomness that `fit` drew the map from, so that the same rows give the same upload each time. An attacker could average
    fresh noise away.

    Examples
    --------
    >>> rows = np.random.default_rng(0).standard_normal((6, 3))
    >>> perturbation = RigidPerturbation(data_noise_scale=0.5).fit(rows)
    >>> bool(np.allclose(perturbation.inverse_transform(perturbation.transform(rows)), rows))
    True
    >>> bool(np.array_equal(perturbation.upload(rows), perturbation.upload(rows)))
    True
    """

    def __init__(self, *, data_noise_scale: float = 0.0, random_state: int | None = None) -> None:
        self.data_noise_scale = data_noise_scale
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: Any = None) -> RigidPerturbation:
        """Draw a secret map for rows of this width; nothing is learnt from the rows themselves."""
        width = _checked(self, X).shape[1]
        require_scale("data_noise_scale", self.data_noise_scale)
        self._streams = _streams(self.random_state)
        self.secret_ = RigidMap.sample(width, rng=self._streams.named("transform"))
        self._n_features_out = width
        return self

    def transform(self, X: npt.ArrayLike) -> Matrix:
        """Return X O + 1 Ψᵀ, without noise."""
        check_is_fitted(self)
        return np.asarray(map_rows(_checked(self, X, reset=False), self.secret_))

    def inverse_transform(self, X: npt.ArrayLike) -> Matrix:
        """Return the rows that `transform` maps to X."""
        check_is_fitted(self)
        return np.asarray(self.secret_.invert(check_array(X, dtype=np.float64)))

    def upload(self, X: npt.ArrayLike) -> Matrix:
        """Return what leaves the participant, X O + 1 Ψᵀ + σ W, with the same W for the same rows."""
        check_is_fitted(self)
        require_scale("data_noise_scale", self.data_noise_scale)
        rows = np.ascontiguousarray(_checked(self, X, reset=False))
        sigma = float(self.data_noise_scale)
        digest = hashlib.sha256(rows.tobytes()).hexdigest()
        noise = GeneratorNoise(self._streams.named(f"noise/{sigma.hex()}/{rows.shape}/{digest}"))
        return np.asarray(add_noise(map_rows(rows, self.secret_), sigma, noise))


class PublicProjection(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Project rows onto fewer components by a matrix that everybody may know.

    Parameters
    ----------
    n_components : int, optional
        h; by default as many as there are features, up to 30.
    kind : {"gaussian", "public-svd"}
        Independent normal directions, or the top singular vectors of the rows that `fit` is given. These rows must then be
        public, never a participant's.
    random_state : int, optional
        All participants need the same projection, and therefore the same seed.

    Attributes
    ----------
    projection_ : mooring.Projection
    n_features_in_ : int

    Examples
    --------
    >>> rows = np.random.default_rng(0).standard_normal((6, 4))
    >>> projection = PublicProjection(n_components=2, random_state=7).fit(rows)
    >>> projection.transform(rows).shape, projection.inverse_transform(projection.transform(rows)).shape
    ((6, 2), (6, 4))
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kind: Literal["gaussian", "public-svd"] = "gaussian",
        random_state: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kind = kind
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: Any = None) -> PublicProjection:
        """Make the projection. A Gaussian projection uses only the number of columns of X; the other kind uses its rows."""
        rows = _checked(self, X)
        if self.kind not in ("gaussian", "public-svd"):
            raise InputError(
                "kind", expected="gaussian or public-svd", got=repr(self.kind), cure="'gaussian' needs no public rows."
            )
        width = rows.shape[1]
        h = min(_MOST_COMPONENTS, width) if self.n_components is None else self.n_components
        rng = _streams(self.random_state).named("projection")
        if self.kind == "gaussian":
            self.projection_ = gaussian_projection(width, h, rng=rng)
        else:
            self.projection_ = public_svd_projection(rows, h, rng=rng)
        self._n_features_out = h
        return self

    def transform(self, X: npt.ArrayLike) -> Matrix:
        """Return X F."""
        check_is_fitted(self)
        return np.asarray(self.projection_.encode(_checked(self, X, reset=False)))

    def inverse_transform(self, X: npt.ArrayLike) -> Matrix:
        """Return X F†, the least-squares inverse."""
        check_is_fitted(self)
        return np.asarray(self.projection_.decode(check_array(X, dtype=np.float64)))


class AnchorAligner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Bring one participant's rows into the common space by its anchor representation.

    Parameters
    ----------
    template : array of shape (r, h), optional
        The common anchor to align to, such as `template_` of a fitted aligner. By default, the
        argument of `fit`, centred, is the template: the participant itself is then the reference.

    Attributes
    ----------
    map_ : RigidMap
        The alignment map T ↦ (T − 1 bᵀ) R.
    template_ : array of shape (r, h)
        The centred template.
    n_features_in_ : int

    Examples
    --------
    >>> from mooring import make_anchor
    >>> rng = np.random.default_rng(0)
    >>> anchor, rows = make_anchor(12, 3, rng=rng), rng.standard_normal((5, 3))
    >>> secrets = [RigidPerturbation().fit(anchor) for _ in range(3)]
    >>> aligners = AnchorAligner.fit_many([secret.transform(anchor) for secret in secrets])
    >>> together = [aligner.transform(secret.transform(rows)) for aligner, secret in zip(aligners, secrets)]
    >>> bool(np.allclose(together[0], together[2], atol=1e-6))  # as close as the solver's tolerance brings them
    True
    """

    def __init__(self, template: npt.ArrayLike | None = None) -> None:
        self.template = template

    @classmethod
    def fit_many(cls, anchor_representations: Sequence[npt.ArrayLike]) -> tuple[AnchorAligner, ...]:
        """Align all participants together (generalized Procrustes) and return one fitted aligner each, in their order."""
        uploads = [check_array(upload, dtype=np.float64) for upload in anchor_representations]
        alignment = align(uploads)
        fitted = []
        for upload, map in zip(uploads, alignment.maps, strict=True):
            aligner = cls(template=np.asarray(alignment.template))
            _checked(aligner, upload)
            fitted.append(aligner._settled(map, np.asarray(alignment.template)))
        return tuple(fitted)

    def fit(self, X: npt.ArrayLike, y: Any = None) -> AnchorAligner:
        """Find the rigid map that brings the anchor representation X closest to the template."""
        B = _checked(self, X)
        if self.template is None:  # the polar factor of BᵀB is I; a computed one may differ if B lacks full rank
            mean, d = B.mean(axis=0), B.shape[1]
            return self._settled(RigidMap(np.eye(d), -mean), B - mean)
        template = check_array(self.template, dtype=np.float64)
        template = template - template.mean(axis=0)
        return self._settled(align_to_template(B, template), template)

    def transform(self, X: npt.ArrayLike) -> Matrix:
        """Return (X − 1 bᵀ) R, the uploaded rows in the common space."""
        check_is_fitted(self)
        return np.asarray(self.map_.apply(_checked(self, X, reset=False)))

    def inverse_transform(self, X: npt.ArrayLike) -> Matrix:
        """Return rows of the common space as the participant would have uploaded them."""
        check_is_fitted(self)
        return np.asarray(self.map_.invert(check_array(X, dtype=np.float64)))

    def _settled(self, map: RigidMap, template: Matrix) -> AnchorAligner:
        self.map_, self.template_ = map, template
        self._n_features_out = map.n_components
        return self


def _checked(estimator: BaseEstimator, X: npt.ArrayLike, *, reset: bool = True) -> Matrix:
    """Return a finite float64 matrix. Its width must be the fitted one; with `reset`, its width becomes the fitted one."""
    return np.asarray(validate_data(estimator, X, dtype=np.float64, reset=reset))


def _streams(random_state: int | None) -> Streams:
    if random_state is None:
        return Streams.from_system()
    if not isinstance(random_state, Integral) or isinstance(random_state, bool):
        expected, got = "a whole number, or None for the system's entropy", type(random_state).__name__
        cure = "Give an integer seed for an experiment, and None otherwise."
        raise InputError("random_state", expected=expected, got=got, cure=cure)
    return Streams.for_experiment(int(random_state))
