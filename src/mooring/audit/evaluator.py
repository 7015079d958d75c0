"""One scene under attack: the true rows, galleries to link them in, controls and floors; and figures for rebuilt rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.attacks import CollusionView
from mooring.audit.decoding import WaysBack, ways_back
from mooring.audit.differences import RESAMPLES, centred, error_figure, median, ratio, squares
from mooring.audit.linkage import LinkageTest, galleries_for, identity_galleries, linkage_test
from mooring.audit.simulation import Simulation
from mooring.audit.specification import Lens
from mooring.geometry.backend import like, to_numpy
from mooring.metrics import (
    Figure,
    Interval,
    feature_r2,
    infer_attribute,
    measure_reconstruction,
)
from mooring.typing import Matrix

_MOST_IMAGES = 100


@dataclass(frozen=True, eq=False)
class _Guess:
    """What an attacker would say without the upload: the mean of the colluders' rows, and of those of the same class."""

    overall: Matrix
    by_class: Matrix


@dataclass(frozen=True, eq=False)
class Looked:
    """A scene, ready to measure rebuilt rows in."""

    truth: Matrix
    records: Matrix
    guess: _Guess | None
    ways: WaysBack
    lens: Lens
    linkage: LinkageTest | None
    audited_linkages: tuple[LinkageTest, ...]
    attribute: dict[str, Any] | None
    seed: int

    def figures(self, rebuilt: Matrix) -> dict[str, Figure]:
        """Every figure that is cheap enough to have for each attack; of two ways back to records, the better one counts."""
        figures = self._errors(rebuilt)
        decoded = self._cleaned(rebuilt)
        if self.linkage is not None:
            figures["linkage"] = self.linkage.figure(rebuilt)
        figures |= {test.name: test.figure(decoded) for test in self.audited_linkages if test.embedding is None}
        if self.attribute is not None:
            figures["attribute"] = replace(self._inferred(rebuilt), floor=self._attribute_floor)
        return figures

    def auditor_figures(self, rebuilt: Matrix) -> dict[str, Figure]:
        """Linkage through the auditor, whose network makes it too slow to have for each attack and each way back."""
        tests = [test for test in self.audited_linkages if test.embedding is not None]
        if not tests:
            return {}
        decoded = self.lens.clean(self.ways.trusted(rebuilt))
        return {test.name: test.figure(decoded) for test in tests}

    def notes(self, rebuilt: Matrix) -> tuple[str, ...]:
        """Which way back leaves less error, where there are two."""
        if self.ways.learned is None:
            return ()
        own, learned = (squares(rows - self.records) for rows in self.ways.tried(rebuilt))
        which = "a decoder learnt from the colluders' records" if learned < own else "the projection's pseudoinverse"
        return (f"decoded best by {which}",)

    def guessed(self, part: slice) -> Matrix | None:
        """What an attacker would say of these rows without the upload."""
        return None if self.guess is None else self.guess.by_class[part]

    def image_figures(self, rebuilt: Matrix) -> dict[str, Figure]:
        """Peak signal-to-noise ratio and structural similarity, for the first images."""
        if self.lens.image_shape is None:
            return {}
        some = slice(0, _MOST_IMAGES)

        def measured(projected: Matrix) -> dict[str, Figure]:
            tries = [
                measure_reconstruction(
                    self.lens.clean(self.records[some]),
                    rows,
                    rng=np.random.default_rng([self.seed, 6]),
                    image_shape=self.lens.image_shape,
                    data_range=self.lens.data_range,
                ).figures()
                for rows in self._cleaned(projected[some])
            ]
            return {
                same[0].name: max(same, key=lambda figure: figure.value)
                for same in zip(*tries, strict=True)
                if same[0].name in ("psnr", "ssim")
            }

        floors = measured(self.truth)
        controls = {} if self.guess is None else measured(self.guess.by_class)
        return {
            name: replace(figure, floor=floors[name].value, control=controls[name].value if controls else None)
            for name, figure in measured(rebuilt).items()
        }

    def examples(self, rebuilt: Matrix, attack: str) -> dict[str, Any] | None:
        """A few rows, original beside rebuilt, for pictures; plain lists."""
        n = min(self.lens.n_examples, self.records.shape[0])
        if n == 0:
            return None
        chosen = np.linspace(0, self.records.shape[0] - 1, n).round().astype(int)
        parts = {
            "original": self.records,
            "projection only": self.ways.trusted(self.truth),
            "rebuilt": self.ways.trusted(rebuilt),
            **({} if self.guess is None else {"guessed without the upload": self.ways.trusted(self.guess.by_class)}),
        }
        return {
            "attack": attack,
            "image_shape": None if self.lens.image_shape is None else list(self.lens.image_shape),
            "feature_names": list(self.lens.feature_names),
            "rows": {name: np.round(self.lens.shown(rows[chosen]), 3).tolist() for name, rows in parts.items()},
        }

    def _errors(self, rebuilt: Matrix) -> dict[str, Figure]:
        rng = np.random.default_rng([self.seed, 4])
        figures = {}
        for name, truth, scale, seen in self._spaces:
            gaps = seen(rebuilt) - truth
            figure = error_figure(name, (gaps**2).sum(axis=1), (scale**2).sum(axis=1), rng)
            chance, control, floor = self._error_levels[name]
            figures[name] = replace(figure, chance=chance, control=control, floor=floor)
        r2, n = self._median_r2(rebuilt), int(self.truth.shape[0])
        figures["median_r2"] = Figure("median_r2", r2, Interval.unknown(), 0.0, *self._r2_levels, n, True)
        return figures

    @cached_property
    def _spaces(self) -> tuple[tuple[str, Matrix, Matrix, Callable[[Matrix], Matrix]], ...]:
        """Where errors are measured: their name, the truth, what they are relative to, how rebuilt rows get there."""
        X, raw = self.truth, self.records
        return (
            ("relative_error", X, X, lambda rows: rows),
            ("centred_error", X, centred(X), lambda rows: rows),
            ("decoded_error", raw, centred(raw), self._nearest),
        )

    @cached_property
    def _error_levels(self) -> dict[str, tuple[float | None, ...]]:
        """Chance, control and floor of each error; on records, each by the way back that is better for it."""
        guesses = (None, None) if self.guess is None else (self.guess.overall, self.guess.by_class)
        return {
            name: tuple(None if rows is None else ratio(seen(rows) - truth, scale) for rows in (*guesses, self.truth))
            for name, truth, scale, seen in self._spaces
        }

    @cached_property
    def _r2_levels(self) -> tuple[float | None, float]:
        """Control and floor of the median R²."""
        control = None if self.guess is None else self._median_r2(self.guess.by_class)
        return control, self._median_r2(self.truth)

    @cached_property
    def _attribute_floor(self) -> float:
        return self._inferred(self.truth).value

    def _median_r2(self, projected: Matrix) -> float:
        return max(median(feature_r2(self.records, rows)) for rows in self.ways.tried(projected))

    def _inferred(self, projected: Matrix) -> Figure:
        """The attribute from rows decoded either way, with or without the attacker's labels, whichever is best."""
        assert self.attribute is not None
        tries = [
            infer_attribute(
                target_reconstruction=rows,
                population_rows=population,
                rng=np.random.default_rng([self.seed, 5]),
                n_resamples=RESAMPLES,
                with_labels=with_labels,
                **{name: value for name, value in self.attribute.items() if name != "population_rows"},
            )
            for rows, population in zip(self._cleaned(projected), self.attribute["population_rows"], strict=True)
            for with_labels in (False, True)
        ]
        best = max(tries, key=lambda one: one.attack.value)
        return replace(best.attack, control=best.baseline.value)

    def _cleaned(self, projected: Matrix) -> tuple[Matrix, ...]:
        """Rows decoded in every way, as the lens shows them."""
        return tuple(self.lens.clean(rows) for rows in self.ways.tried(projected))

    def _nearest(self, projected: Matrix) -> Matrix:
        """Rows decoded in the way that leaves less error."""
        return min(self.ways.tried(projected), key=lambda rows: squares(rows - self.records))


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
    ways = ways_back(views[0])
    guessed = None if guess is None else guess.by_class
    galleries = galleries_for(lens, simulation, targets, candidate_labels, candidates.shape[0], seed)
    plain, audited = None, []
    if galleries is not None:
        plain = linkage_test("linkage", galleries, encoded, embedding=None, control_rows=guessed, floor_rows=truth)
    where = np.concatenate([indices[t] for t in targets])
    identity = identity_galleries(lens, where, reference_indices, seed)

    def decoded(projected: Matrix) -> tuple[Matrix, ...]:
        found = ways.tried(projected) if lens.embedding is None else (ways.trusted(projected),)
        return tuple(lens.clean(rows) for rows in found)

    for name, shown, rows in (
        ("exact_source_linkage", None if lens.embedding is None else galleries, everything),
        ("identity_linkage", identity, reference_rows),
    ):
        if shown is not None:
            audited.append(
                linkage_test(
                    name,
                    shown,
                    rows,
                    embedding=lens.embedding,
                    control_rows=None if guessed is None else decoded(guessed),
                    floor_rows=decoded(truth),
                )
            )
    attribute = _attribute(lens, views, ways, indices, where, codes)
    return Looked(truth, records, guess, ways, lens, plain, tuple(audited), attribute, seed)


def _guess(views: Sequence[CollusionView], codes: npt.NDArray[Any]) -> _Guess | None:
    rows = views[0].colluder_rows
    if rows is None:
        return None
    known = to_numpy(rows)
    own = views[0].codes_of([colluder.index for colluder in views[0].colluders])
    mean = known.mean(axis=0)
    by_class = np.stack([known[own == k].mean(axis=0) if (own == k).any() else mean for k in range(codes.max() + 1)])
    return _Guess(np.repeat(mean[None], codes.size, axis=0), by_class[codes])


def _attribute(
    lens: Lens,
    views: Sequence[CollusionView],
    ways: WaysBack,
    indices: tuple[npt.NDArray[Any], ...],
    where: npt.NDArray[Any],
    codes: npt.NDArray[Any],
) -> dict[str, Any] | None:
    colluders = [colluder.index for colluder in views[0].colluders]
    rows = views[0].colluder_rows
    if lens.attribute is None or rows is None:
        return None
    known = np.concatenate([indices[c] for c in colluders])
    if lens.attribute_kind == "category" and np.unique(lens.attribute[known]).size < 2:
        return None
    return {
        "attribute": lens.attribute[where],
        "population_rows": ways.tried(to_numpy(rows)),
        "population_attribute": lens.attribute[known],
        "population_labels": views[0].codes_of(colluders),
        "target_labels": codes,
        "kind": lens.attribute_kind,
        "name": "attribute",
    }
