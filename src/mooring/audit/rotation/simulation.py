"""A simulated collaboration: every participant's upload, the analyst's alignment, and what an attacker sees of them.

Audits, plans and the experiments in `studies/` use this simulation. One program has all rows and all secrets, so that the
result of an attack can be compared with the truth. In a study between organisations, each party runs its own part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from mooring.alignment import Alignment, Solver, align, align_to_reference
from mooring.attacks.view import Colluder, CollusionView, PublicRows, check_roles
from mooring.audit.simulation import JointModel
from mooring.errors import InputError
from mooring.geometry.backend import as_float64, indices_beside, like, namespace_of, to_numpy
from mooring.geometry.rigid import RigidMap
from mooring.learners import LearnerLike
from mooring.learners.fitted import predict_classes
from mooring.learners.fitting import decide_learner
from mooring.learners.models import Predicted
from mooring.mechanisms.rotation.anchors import make_anchor
from mooring.mechanisms.rotation.kernel import (
    ArrayNoise,
    GeneratorNoise,
    Precision,
    Upload,
    UploadNoise,
    add_noise,
    coupled_noise,
    map_rows,
    represent,
)
from mooring.mechanisms.rotation.methods import METHODS, Method, get_method
from mooring.mechanisms.rotation.projection import Projection, gaussian_projection, no_projection
from mooring.randomness import Streams
from mooring.tables.records import label_kind_of
from mooring.tables.schema import Column
from mooring.typing import Array, Indices, Matrix


@dataclass(frozen=True, eq=False)
class SimulationSettings:
    """Settings of a simulation that have a default."""

    projection: Projection | None = None
    """The public projection. By default, it is Gaussian if `n_components` differs from the width of the rows; else, there is
    no projection."""
    anchor: Array | None = None
    """The anchor, of shape (r, h); by default a random one. Methods without an anchor ignore this and `n_anchor_rows`."""
    n_anchor_rows: int | None = None
    """r of a random anchor; 4 h by default."""
    reference: int = 0
    """The participant whose coordinates define the common space if an anchor carries no noise, and whose map all share in
    C-GDP. Other methods ignore this."""
    solver: Solver = "accelerated"
    certify: bool = False
    """`solver` and `certify` are as for `align`. Only methods with anchor noise use them."""
    precision: Precision = "float64"
    """With "float32", attackers see the numbers that `mooring share` writes."""
    public_rows: PublicRows | None = field(default=None, repr=False)
    """Public rows, which attackers have, too."""
    columns: tuple[Column, ...] = ()
    """The declared columns of a table, which attackers know; empty if rows do not come from a table."""
    secrets: Sequence[tuple[RigidMap, UploadNoise]] | None = field(default=None, repr=False)
    """The map and the noise of every participant; by default, both are drawn."""


_DEFAULTS = SimulationSettings()


@dataclass(frozen=True, eq=False)
class RowSimulation:
    """A simulated collaboration with all its secrets."""

    method: Method
    data_noise_scale: float
    anchor_noise_scale: float
    projection: Projection
    anchor: Array | None = field(repr=False)
    """The anchor, of shape (r, h)."""
    records: tuple[Array, ...] = field(repr=False)
    """The rows of every participant before projection, each of shape (n_i, n_features)."""
    private_data: tuple[Array, ...] = field(repr=False)
    """The same rows after projection, each of shape (n_i, h), which attacks try to rebuild."""
    labels: tuple[Array | None, ...] = field(repr=False)
    uploads: tuple[Upload, ...] = field(repr=False)
    """The upload of every participant, which the analyst receives."""
    alignment: Alignment | None = field(repr=False)
    """The analyst's alignment of the uploads; None for methods without an anchor."""
    secrets: tuple[RigidMap, ...] = field(repr=False)
    """The map of every participant, which the analyst does not see."""
    streams: Streams = field(repr=False)
    """The streams that maps and noise are drawn from."""
    precision: Precision = "float64"
    public_rows: PublicRows | None = field(default=None, repr=False)
    columns: tuple[Column, ...] = field(default=(), repr=False)

    @property
    def termination(self) -> str | None:
        """The reason why the solver of the alignment stopped; None without an alignment."""
        return None if self.alignment is None else str(self.alignment.termination)

    @cached_property
    def aligned(self) -> tuple[Array, ...]:
        """Each participant's representation in the common space."""
        return tuple(self._in_common_space(i, upload.representation) for i, upload in enumerate(self.uploads))

    @property
    def collaboration_matrix(self) -> Array:
        """Z: all aligned rows, one participant after the other."""
        return namespace_of(*self.aligned).concat(list(self.aligned), axis=0)

    def _in_common_space(self, participant: int, representation: Array) -> Array:
        return representation if self.alignment is None else self.alignment.maps[participant].apply(representation)

    def map_new_rows(self, participant: int, records: Array, *, data_noise_scale: float = 0.0) -> Array:
        """Return new rows of one participant in the common space, to which the participant maps them itself.

        `records` are rows before the projection. In a study, new rows carry no noise, because they do not leave the
        participant. The paper adds noise to test rows, too, with the scale `data_noise_scale`.
        """
        rows = self.projection.encode(like(as_float64(records), self.private_data[0]))
        noise = GeneratorNoise(self.streams.named(f"participant/{participant}/test-noise"))
        represented = add_noise(map_rows(rows, self.secrets[participant]), data_noise_scale, noise)
        return self._in_common_space(participant, represented)

    def train(self, learner: LearnerLike = "auto", *, seed: int = 0) -> JointModel:
        """Return the model that a learner, by name or as an object, trains on the collaboration matrix.

        "auto" chooses a learner as `mooring train` does. `seed` is that of the learner and of this choice.
        """
        labels = np.concatenate([to_numpy(part) for part in self.labels])
        kind = label_kind_of(labels)
        assert kind != "none"
        owners: Indices = np.repeat(np.arange(len(self.labels)), [len(part) for part in self.records])
        rows = to_numpy(self.collaboration_matrix)
        classes, codes = np.unique(labels, return_inverse=True) if kind == "classes" else (None, labels)
        chosen = decide_learner(learner, rows, codes, kind=kind, seed=seed, owners=owners)
        fitted = chosen.fit(rows, codes, kind=kind, seed=seed)

        def answer(new: Sequence[Matrix], noise: float = 0.0) -> Predicted:
            parts = [
                to_numpy(self.map_new_rows(i, part, data_noise_scale=noise)) for i, part in enumerate(new) if len(part)
            ]
            return predict_classes(fitted, np.concatenate(parts), classes)

        noisy = partial(answer, noise=self.data_noise_scale) if self.data_noise_scale > 0 else None
        return JointModel(chosen.name, classes, answer, noisy)

    def view(
        self,
        colluders: Sequence[int] = (0,),
        target: int = 1,
        *,
        with_labels: bool = True,
        n_known_rows: int = 0,
        n_repeated_uploads: int = 0,
    ) -> CollusionView:
        """Return the view of the analyst and some colluders who attack the target.

        Parameters
        ----------
        colluders : sequence of int, default (0,)
            Indices of the colluders; empty if the analyst acts alone.
        target : int, default 1
            Index of the participant under attack.
        with_labels : bool, default True
            Whether the analyst sees labels.
        n_known_rows : int, default 0
            Number of the target's rows that the attacker knows from elsewhere.
        n_repeated_uploads : int, default 0
            Number of further uploads of the target's rows, each with fresh noise and a fresh map.
        """
        p = len(self.uploads)
        check_roles(target, colluders, p)
        return CollusionView(
            method=self.method,
            data_noise_scale=self.data_noise_scale,
            anchor_noise_scale=self.anchor_noise_scale,
            projection=self.projection,
            uploads=self.uploads,
            labels=self.labels if with_labels else (None,) * p,
            alignment=self.alignment,
            target=target,
            colluders=tuple(
                Colluder(c, _copied(self.records[c]), _copied(self.private_data[c]), self.secrets[c]) for c in colluders
            ),
            anchor=self.anchor if colluders else None,
            known_rows=self._known_rows(target, n_known_rows),
            repeated_uploads=tuple(self._uploaded_again(target, k) for k in range(n_repeated_uploads)),
            public_rows=self.public_rows,
            columns=self.columns,
        )

    def _known_rows(self, target: int, n_known_rows: int) -> Array | None:
        if n_known_rows == 0:
            return None
        rows, n = self.private_data[target], int(self.private_data[target].shape[0])
        if not 0 < n_known_rows <= n:
            expected = f"between 0 and the target's {n} rows"
            raise InputError("n_known_rows", expected=expected, got=str(n_known_rows), cure="Correct the number.")
        chosen = self.streams.named(f"participant/{target}/known-rows").permutation(n)[:n_known_rows]
        return like(rows[indices_beside(chosen, rows), :], rows)  # a copy: the view must not hold on to all rows

    def _uploaded_again(self, target: int, k: int) -> Upload:
        streams = Streams.for_experiment(int(self.streams.named(f"participant/{target}/again/{k}").integers(2**62)))
        rows = self.private_data[target]
        secret = RigidMap.sample(rows.shape[1], rng=streams.named("transform")).moved_to(rows)
        return represent(
            self.method,
            rows,
            self.secrets[target] if self.method.transform == "common" else secret,
            noise=streams.named("noise"),
            anchor=self.anchor,
            data_noise_scale=self.data_noise_scale,
            anchor_noise_scale=self.anchor_noise_scale,
            precision=self.precision,
        )


def simulate(
    datasets: Sequence[Array],
    labels: Sequence[Array | None] | None = None,
    *,
    method: Method | str,
    n_components: int | None = None,
    anchor_noise_scale: float = 0.0,
    data_noise_scale: float = 0.0,
    rng: np.random.Generator | Streams,
    settings: SimulationSettings = _DEFAULTS,
) -> RowSimulation:
    """Simulate a method from private data to the collaboration matrix.

    Parameters
    ----------
    datasets : sequence of arrays of shape (n_i, n_features)
        The rows of every participant before projection; NumPy arrays, or torch arrays on any device.
    labels : sequence of arrays of shape (n_i,), or of None, optional
    method : Method or str
        The method, or its name. If a noise scale is positive for a noise that the method lacks, an anchor-aligned method is
        replaced by 'aa-i-gdp-both-noise', and C-GDP without anchor noise by 'c-gdp-data-noise'; other methods are refused.
    n_components : int, optional
        h; by default that of the given projection, or the width of the rows.
    anchor_noise_scale, data_noise_scale : float, default 0
        v and σ, the scales of noise on the anchor and on the rows.
    rng : numpy.random.Generator or Streams
        The source of all secrets and noise: participant i draws its map from the stream "participant/i/transform" and its
        noise from "participant/i/noise". Two methods with the same streams are therefore matched: C-GDP uses the
        reference's map, and its private-data noise is coupled to that of AA-I-GDP as in the equivalence corollary, so that
        their collaboration matrices are equal.
    settings : SimulationSettings, optional
        The projection, the anchor, the alignment, the precision, and whatever else has a default.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = [rng.standard_normal((30, 4)) for _ in range(3)]
    >>> streams = Streams.for_experiment(seed=1)
    >>> simulation = simulate(rows, method="aa-i-gdp", rng=streams)
    >>> common = simulate(rows, method="c-gdp", rng=streams)
    >>> bool(np.allclose(simulation.collaboration_matrix, common.collaboration_matrix))
    True
    >>> from mooring import attacks
    >>> rebuilt = attacks.run("known-anchor", simulation.view(colluders=[0], target=1), rng=rng)
    >>> bool(np.allclose(rebuilt.rows, rows[1]))
    True
    """
    streams = rng if isinstance(rng, Streams) else Streams.drawn(rng)
    method = _with_noise(method, anchor_noise_scale, data_noise_scale)
    records = _checked_records(datasets)
    known = _checked_labels(labels, records)
    if not 0 <= settings.reference < len(records):
        got, expected = str(settings.reference), f"a participant's index, 0 to {len(records) - 1}"
        raise InputError("reference", expected=expected, got=got, cure="Count from zero.")
    projection = _projection(settings.projection, n_components, int(records[0].shape[1]), streams).moved_to(records[0])
    private_data = tuple(projection.encode(part) for part in records)
    anchor = _anchor(settings, projection.n_components, private_data[0], streams) if method.uses_anchor else None
    secrets = settings.secrets or _drawn_secrets(
        method, private_data, streams, reference=settings.reference, noisy=data_noise_scale > 0
    )
    uploads = tuple(
        represent(
            method,
            rows,
            secret,
            noise=noise,
            anchor=anchor,
            data_noise_scale=data_noise_scale,
            anchor_noise_scale=anchor_noise_scale,
            precision=settings.precision,
        )
        for rows, (secret, noise) in zip(private_data, secrets, strict=True)
    )
    return RowSimulation(
        method,
        data_noise_scale,
        anchor_noise_scale,
        projection,
        anchor,
        records,
        private_data,
        known,
        uploads,
        _aligned(method, uploads, settings),
        tuple(secret for secret, _ in secrets),
        streams,
        settings.precision,
        settings.public_rows,
        settings.columns,
    )


def simulate_rows(
    datasets: Sequence[Array],
    representations: Sequence[Array],
    labels: Sequence[Array | None] | None = None,
    *,
    rng: np.random.Generator | Streams,
    name: str = "perturbed rows",
    data_noise_scale: float = 0.0,
) -> RowSimulation:
    """Return a simulation of rows that any mechanism has perturbed, and that are uploaded without a map or projection.

    Parameters
    ----------
    datasets : sequence of arrays of shape (n_i, n_features)
        The rows of every participant.
    representations : sequence of arrays of shape (n_i, n_features)
        The uploaded rows of every participant, in the same order.
    labels : sequence of arrays of shape (n_i,), or of None, optional
    rng : numpy.random.Generator or Streams
        The source of later random draws, such as which rows an attacker knows.
    name : str, default "perturbed rows"
        The name of the mechanism.
    data_noise_scale : float, default 0
        Standard deviation of the noise on each number. It is public, and attacks use it for denoising.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = [rng.standard_normal((30, 4)) for _ in range(3)]
    >>> noisy = [part + rng.laplace(scale=0.5, size=part.shape) for part in rows]
    >>> simulate_rows(rows, noisy, rng=rng, name="Laplace noise").uploads[1].representation.shape
    (30, 4)
    """
    streams = rng if isinstance(rng, Streams) else Streams.drawn(rng)
    records = _checked_records(datasets)
    uploads = tuple(Upload(as_float64(part), None) for part in representations)
    if [upload.representation.shape for upload in uploads] != [part.shape for part in records]:
        got = f"shapes {', '.join(str(tuple(upload.representation.shape)) for upload in uploads)}"
        raise InputError(
            "representations",
            expected="arrays with the shapes of `datasets`",
            got=got,
            cure="Pass one perturbed row for each row, with the same width.",
        )
    width = int(records[0].shape[1])
    same = RigidMap(like(np.eye(width), records[0]), like(np.zeros(width), records[0]))
    return RowSimulation(
        Method(name, name, "common", data_noise_scale > 0, False, "none"),
        data_noise_scale,
        0.0,
        no_projection(width).moved_to(records[0]),
        None,
        records,
        records,
        _checked_labels(labels, records),
        uploads,
        None,
        (same,) * len(records),
        streams,
    )


def _drawn_secrets(
    method: Method, private_data: Sequence[Array], streams: Streams, *, reference: int, noisy: bool
) -> list[tuple[RigidMap, UploadNoise]]:
    maps = [
        RigidMap.sample(int(rows.shape[1]), rng=streams.named(f"participant/{i}/transform")).moved_to(rows)
        for i, rows in enumerate(private_data)
    ]
    noises = [UploadNoise.drawn(streams.named(f"participant/{i}/noise")) for i in range(len(maps))]
    if method.transform == "own":
        return list(zip(maps, noises, strict=True))
    common = maps[reference]
    if noisy:  # the noise that the matched anchor-aligned method adds, turned by its alignment
        for i, rows in enumerate(private_data):
            W = like(streams.named(f"participant/{i}/noise").standard_normal(tuple(rows.shape)), rows)
            noises[i] = UploadNoise(ArrayNoise(coupled_noise(W, secret=maps[i], reference=common)))
    return [(common, noise) for noise in noises]


def _projection(projection: Projection | None, n_components: int | None, width: int, streams: Streams) -> Projection:
    if projection is None:
        if n_components is None or n_components == width:
            return no_projection(width)
        return gaussian_projection(width, n_components, rng=streams.named("projection"))
    if n_components not in (None, projection.n_components):
        raise InputError(
            "projection",
            expected=f"onto n_components = {n_components}",
            got=f"one onto {projection.n_components}",
            cure="Make the projection with the same number of components.",
        )
    projection.require_orthonormal()
    return projection


def _anchor(settings: SimulationSettings, n_components: int, beside: Array, streams: Streams) -> Array:
    if settings.anchor is not None:
        return settings.anchor
    n_anchor_rows = 4 * n_components if settings.n_anchor_rows is None else settings.n_anchor_rows
    return like(make_anchor(n_anchor_rows, n_components, rng=streams.named("anchor")), beside)


def _aligned(method: Method, uploads: Sequence[Upload], settings: SimulationSettings) -> Alignment | None:
    representations = [upload.anchor_representation for upload in uploads]
    match method.alignment:
        case "none":
            return None
        case "reference":
            return align_to_reference(representations, reference=settings.reference)
        case "procrustes":
            return align(representations, solver=settings.solver, certify=settings.certify)


def _copied(array: Array) -> Array:
    """Return a copy that does not keep a larger array in memory, such as the table that was split among participants."""
    return namespace_of(array).asarray(array, copy=True)


def _with_noise(method: Method | str, anchor_noise_scale: float, data_noise_scale: float) -> Method:
    method = get_method(method)
    lacks = (anchor_noise_scale > 0 and not method.anchor_noise) or (data_noise_scale > 0 and not method.data_noise)
    if lacks and method.uses_anchor:
        return METHODS["aa-i-gdp-both-noise"]
    if lacks and anchor_noise_scale == 0 and method.transform == "common":
        return METHODS["c-gdp-data-noise"]
    if lacks:
        cure = "Set the scale of the missing noise to zero, or choose 'aa-i-gdp-both-noise', which has both kinds of noise."
        raise InputError("method", expected="one with the requested noise", got=method.name, cure=cure)
    return method


def _checked_records(datasets: Sequence[Array]) -> tuple[Array, ...]:
    records = tuple(as_float64(part) for part in datasets)
    if not records:
        cure = "Pass one matrix per participant."
        raise InputError("datasets", expected="rows of at least one participant", got="none", cure=cure)
    if any(len(part.shape) != 2 or part.shape[1] != records[0].shape[1] for part in records):
        got = f"shapes {', '.join(str(tuple(part.shape)) for part in records)}"
        cure = "Every participant must have the same features."
        raise InputError("datasets", expected="matrices of one width", got=got, cure=cure)
    return records


def _checked_labels(labels: Sequence[Array | None] | None, records: Sequence[Array]) -> tuple[Array | None, ...]:
    if labels is None:
        return (None,) * len(records)
    known = tuple(labels)
    sizes = [None if part is None else len(part) for part in known]
    if len(known) != len(records) or any(
        n is not None and n != part.shape[0] for n, part in zip(sizes, records, strict=True)
    ):
        expected = f"one label per row for each participant: {[int(part.shape[0]) for part in records]}"
        cure = "Pass one array of labels per participant, in the order of its rows."
        raise InputError("labels", expected=expected, got=str(sizes), cure=cure)
    return known
