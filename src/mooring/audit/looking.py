"""One scene under attack: the true rows, galleries to link them in, controls and floors; and figures for rebuilt rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.attacks import CollusionView
from mooring.audit.lens import Lens
from mooring.audit.linking import LinkageTest, linkage_test
from mooring.errors import InputError
from mooring.geometry.backend import like, to_numpy
from mooring.measures import (
    Figure,
    Galleries,
    Interval,
    bootstrap_ratio,
    build_galleries,
    build_identity_galleries,
    feature_r2,
    infer_attribute,
    measure_reconstruction,
)
from mooring.projection import Projection
from mooring.simulation import Simulation

Matrix = npt.NDArray[np.float64]
_RESAMPLES = 400
_MOST_IMAGES = 100


@dataclass(frozen=True, eq=False)
class _Guess:
    """What an attacker would say without the upload: the mean of the accomplices' rows, and of those of the same class."""

    overall: Matrix
    by_class: Matrix


@dataclass(frozen=True, eq=False)
class Looked:
    """A scene, ready to measure rebuilt rows in."""

    truth: Matrix
    records: Matrix
    guess: _Guess | None
    projection: Projection
    lens: Lens
    linkage: LinkageTest | None
    audited_linkages: tuple[LinkageTest, ...]
    attribute: dict[str, Any] | None
    seed: int

    def figures(self, rebuilt: Matrix) -> dict[str, Figure]:
        """Every figure that is cheap enough to have for each attack."""
        figures = self._errors(rebuilt)
        decoded = self.lens.clean(self._decoded(rebuilt))
        if self.linkage is not None:
            figures["linkage"] = self.linkage.figure(rebuilt)
        figures |= {test.name: test.figure(decoded) for test in self.audited_linkages if test.embedding is None}
        if self.attribute is not None:
            figures["attribute"] = replace(self._inferred(decoded), floor=self._inferred(self._floor_rows()).value)
        return figures

    def auditor_figures(self, rebuilt: Matrix) -> dict[str, Figure]:
        """Linkage through the auditor, whose network makes it too slow to have for each attack."""
        tests = [test for test in self.audited_linkages if test.embedding is not None]
        if not tests:
            return {}
        decoded = self.lens.clean(self._decoded(rebuilt))
        return {test.name: test.figure(decoded) for test in tests}

    def guessed(self, part: slice) -> Matrix | None:
        """What an attacker would say of these rows without the upload."""
        return None if self.guess is None else self.guess.by_class[part]

    def image_figures(self, rebuilt: Matrix) -> dict[str, Figure]:
        """Peak signal-to-noise ratio and structural similarity, for the first images."""
        if self.lens.image_shape is None:
            return {}
        some = slice(0, _MOST_IMAGES)

        def measured(rows: Matrix) -> dict[str, Figure]:
            all_figures = measure_reconstruction(
                self.lens.clean(self.records[some]),
                self.lens.clean(rows[some]),
                rng=np.random.default_rng([self.seed, 6]),
                image_shape=self.lens.image_shape,
                data_range=self.lens.data_range,
            ).figures()
            return {figure.name: figure for figure in all_figures if figure.name in ("psnr", "ssim")}

        floors = measured(self._floor_rows())
        controls = {} if self.guess is None else measured(self._decoded(self.guess.by_class))
        return {
            name: replace(figure, floor=floors[name].value, control=controls[name].value if controls else None)
            for name, figure in measured(self._decoded(rebuilt)).items()
        }

    def examples(self, rebuilt: Matrix, attack: str) -> dict[str, Any] | None:
        """A few rows, original beside rebuilt, for pictures; plain lists."""
        n = min(self.lens.n_examples, self.records.shape[0])
        if n == 0:
            return None
        chosen = np.linspace(0, self.records.shape[0] - 1, n).round().astype(int)
        parts = {
            "original": self.records,
            "projection only": self._floor_rows(),
            "rebuilt": self._decoded(rebuilt),
            **({} if self.guess is None else {"guessed without the upload": self._decoded(self.guess.by_class)}),
        }
        return {
            "attack": attack,
            "image_shape": None if self.lens.image_shape is None else list(self.lens.image_shape),
            "feature_names": list(self.lens.feature_names),
            "rows": {name: np.round(self.lens.shown(rows[chosen]), 3).tolist() for name, rows in parts.items()},
        }

    def _errors(self, rebuilt: Matrix) -> dict[str, Figure]:
        rng = np.random.default_rng([self.seed, 4])
        X, centred, raw = self.truth, _centred(self.truth), _centred(self.records)
        decoded, floor = self._decoded(rebuilt), self._floor_rows()
        chance = control = chance_raw = control_raw = None
        if self.guess is not None:
            chance, control = self.guess.overall, self.guess.by_class
            chance_raw, control_raw = self._decoded(chance), self._decoded(control)
        figures = {}
        for name, truth, got, scale, low, high, bottom in (
            ("relative_error", X, rebuilt, X, chance, control, X),
            ("centred_error", X, rebuilt, centred, chance, control, X),
            ("decoded_error", self.records, decoded, raw, chance_raw, control_raw, floor),
        ):
            denominators = (scale**2).sum(axis=1)
            figures[name] = _error_figure(name, ((got - truth) ** 2).sum(axis=1), denominators, rng)
            figures[name] = replace(
                figures[name],
                chance=None if low is None else _ratio(low - truth, scale),
                control=None if high is None else _ratio(high - truth, scale),
                floor=_ratio(bottom - truth, scale),
            )
        r2, r2_floor = (_median(feature_r2(self.records, rows)) for rows in (decoded, floor))
        figures["median_r2"] = Figure(
            "median_r2",
            r2,
            Interval.unknown(),
            0.0,
            None if control_raw is None else _median(feature_r2(self.records, control_raw)),
            r2_floor,
            int(X.shape[0]),
            True,
        )
        return figures

    def _inferred(self, decoded: Matrix) -> Figure:
        """The attribute from rebuilt rows, with or without the labels that the attacker has too, whichever is better."""
        assert self.attribute is not None
        tries = [
            infer_attribute(
                target_reconstruction=decoded,
                rng=np.random.default_rng([self.seed, 5]),
                n_resamples=_RESAMPLES,
                with_labels=with_labels,
                **self.attribute,
            )
            for with_labels in (False, True)
        ]
        best = max(tries, key=lambda one: one.attack.value)
        return replace(best.attack, control=best.baseline.value)

    def _floor_rows(self) -> Matrix:
        return self._decoded(self.truth)

    def _decoded(self, rows: Matrix) -> Matrix:
        return np.asarray(to_numpy(self.projection.decode(like(rows, self.projection.matrix))))


def look(
    simulation: Simulation,
    views: Sequence[CollusionView],
    lens: Lens,
    *,
    candidates: Matrix,
    candidate_labels: npt.NDArray[Any] | None,
    indices: tuple[npt.NDArray[Any], ...],
    reference_indices: npt.NDArray[Any],
    reference_rows: Matrix,
    seed: int,
) -> Looked:
    """Set the scene: see `mooring.audit.leakage.measure_leakage` for the parameters."""
    targets = [view.target for view in views]
    truth = np.concatenate([to_numpy(simulation.private_data[t]) for t in targets])
    records = np.concatenate([to_numpy(simulation.records[t]) for t in targets])
    codes = np.concatenate([view.codes_of([view.target]) for view in views])
    everything = np.concatenate([records, candidates])
    encoded = to_numpy(simulation.projection.encode(like(everything, simulation.projection.matrix)))
    guess = _guess(views, codes)
    scene = Looked(truth, records, guess, simulation.projection, lens, None, (), None, seed)
    floor_rows = lens.clean(scene._floor_rows())
    guessed = None if guess is None else guess.by_class
    decoded_guess = None if guessed is None else lens.clean(scene._decoded(guessed))
    galleries = _galleries(lens, simulation, targets, candidate_labels, candidates.shape[0], seed)
    plain, audited = None, []
    if galleries is not None:
        plain = linkage_test("linkage", galleries, encoded, embedding=None, control_rows=guessed, floor_rows=truth)
    where = np.concatenate([indices[t] for t in targets])
    identity = _identity_galleries(lens, where, reference_indices, seed)
    for name, shown, rows in (
        ("exact_source_linkage", None if lens.embedding is None else galleries, everything),
        ("identity_linkage", identity, reference_rows),
    ):
        if shown is not None:
            audited.append(
                linkage_test(
                    name, shown, rows, embedding=lens.embedding, control_rows=decoded_guess, floor_rows=floor_rows
                )
            )
    attribute = _attribute(lens, simulation, views, indices, where, codes)
    return replace(scene, linkage=plain, audited_linkages=tuple(audited), attribute=attribute)


def _guess(views: Sequence[CollusionView], codes: npt.NDArray[Any]) -> _Guess | None:
    rows = views[0].colluder_rows
    if rows is None:
        return None
    known = to_numpy(rows)
    own = views[0].codes_of([accomplice.index for accomplice in views[0].accomplices])
    mean = known.mean(axis=0)
    by_class = np.stack([known[own == k].mean(axis=0) if (own == k).any() else mean for k in range(codes.max() + 1)])
    return _Guess(np.repeat(mean[None], codes.size, axis=0), by_class[codes])


def _galleries(
    lens: Lens,
    simulation: Simulation,
    targets: Sequence[int],
    candidate_labels: npt.NDArray[Any] | None,
    n_candidates: int,
    seed: int,
) -> Galleries | None:
    """Galleries whose queries are the targets' rows; None where no class has enough look-alikes."""
    own = [simulation.labels[t] for t in targets]
    n_own = sum(int(simulation.records[t].shape[0]) for t in targets)
    labels = None
    if candidate_labels is not None and all(part is not None for part in own):
        labels = np.concatenate([*(to_numpy(part) for part in own), candidate_labels])
        if np.issubdtype(labels.dtype, np.floating):
            labels = None
    try:
        built = build_galleries(labels, n_candidates=lens.n_candidates, n_rows=n_own + n_candidates, seed=seed)
    except InputError:
        return None
    queried = np.flatnonzero(built.queries < n_own)
    if queried.size == 0:
        return None
    if queried.size > lens.n_queries:
        queried = np.sort(np.random.default_rng([seed, 7]).choice(queried, lens.n_queries, replace=False))
    return replace(
        built, queries=built.queries[queried], candidates=built.candidates[queried], answers=built.answers[queried]
    )


def _identity_galleries(
    lens: Lens, where: npt.NDArray[Any], reference_indices: npt.NDArray[Any], seed: int
) -> Galleries | None:
    if lens.groups is None or reference_indices.size == 0:
        return None
    persons, first = np.unique(lens.groups[where], return_index=True)
    try:
        built = build_identity_galleries(  # one query a person: rows of one person are not independent
            persons, lens.groups[reference_indices], n_candidates=lens.n_candidates, galleries_per_query=10, seed=seed
        )
    except InputError:
        return None
    return replace(built, queries=first[built.queries])


def _attribute(
    lens: Lens,
    simulation: Simulation,
    views: Sequence[CollusionView],
    indices: tuple[npt.NDArray[Any], ...],
    where: npt.NDArray[Any],
    codes: npt.NDArray[Any],
) -> dict[str, Any] | None:
    accomplices = [accomplice.index for accomplice in views[0].accomplices]
    if lens.attribute is None or not accomplices:
        return None
    known = np.concatenate([indices[c] for c in accomplices])
    floor = simulation.projection.projection_only
    if lens.attribute_kind == "category" and np.unique(lens.attribute[known]).size < 2:
        return None
    return {
        "attribute": lens.attribute[where],
        "population_rows": np.concatenate([to_numpy(floor(simulation.records[c])) for c in accomplices]),
        "population_attribute": lens.attribute[known],
        "population_labels": views[0].codes_of(accomplices),
        "target_labels": codes,
        "kind": lens.attribute_kind,
        "name": "attribute",
    }


def _centred(rows: Matrix) -> Matrix:
    """Rows less their mean; exact zeros where they are all alike but for rounding."""
    centred = rows - rows.mean(axis=0)
    alike = np.linalg.norm(centred) <= 1e-12 * np.linalg.norm(rows)
    return np.zeros_like(rows) if alike else centred


def _error_figure(name: str, numerators: Matrix, denominators: Matrix, rng: np.random.Generator) -> Figure:
    total = float(denominators.sum())
    value = float(np.sqrt(numerators.sum() / total)) if total > 0 else float("nan")
    interval = Interval.unknown()
    if numerators.size > 1 and total > 0:
        interval = bootstrap_ratio(numerators, denominators, rng=rng, n_resamples=_RESAMPLES)
    return Figure(name, value, interval, None, None, None, int(numerators.size), False)


def _ratio(gap: Matrix, scale: Matrix) -> float | None:
    total = float((scale**2).sum())
    return float(np.sqrt((gap**2).sum() / total)) if total > 0 else None


def _median(values: Matrix) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else float("nan")
