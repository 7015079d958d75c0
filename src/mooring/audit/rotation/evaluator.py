"""Figures of rows that attacks rebuild, from the true rows and from galleries for linkage.

Most figures come with a control, which is what an attacker achieves without the upload, and with a floor, which is what
exactly rebuilt rows achieve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.attacks import CollusionView
from mooring.attacks.decoding import RecordDecoder, fit_decoder
from mooring.audit.results.point_result import AttackOutcome, Examples, Leakage, find_most_telling, find_strongest
from mooring.audit.rotation.attempts import Rebuilt
from mooring.audit.rotation.linkage import LinkageTest, identity_galleries, make_galleries, make_linkage_test
from mooring.audit.rotation.membership import MembershipTest, make_membership_test
from mooring.audit.rotation.simulation import RowSimulation
from mooring.audit.specification import EvaluationSpec
from mooring.errors import MissingExtraError
from mooring.geometry.backend import like, to_numpy
from mooring.metrics import Figure, Galleries, Interval, feature_r2, psnr, ssim
from mooring.metrics.attributes import KnownRows, infer_attribute
from mooring.metrics.exposure import (
    Carriers,
    find_exposed_column,
    find_exposed_rows,
    find_exposed_value,
    find_read_columns,
    order_by_exposure,
)
from mooring.metrics.reconstruction import error_figure, mean_figure, root_ratio
from mooring.tables import Partition
from mooring.typing import Indices, Matrix

_MOST_IMAGES = 100


@dataclass(frozen=True, eq=False)
class Guess:
    """The guess of an attacker without the upload: the mean of the rows that the attacker knows, overall and by class."""

    overall: Matrix
    by_class: Matrix

    @classmethod
    def of(cls, known: Matrix, known_codes: npt.NDArray[Any], codes: npt.NDArray[Any]) -> Guess:
        """Return the guess for rows with these class codes; for a class without known rows, it is the overall mean."""
        mean = known.mean(axis=0)
        means = {k: known[known_codes == k].mean(axis=0) for k in np.unique(known_codes)}
        return cls(np.repeat(mean[None], codes.size, axis=0), np.stack([means.get(k, mean) for k in codes]))


@dataclass(frozen=True, eq=False)
class LeakageEvaluator:
    """Evaluates the rows that attacks rebuild; galleries, controls and floors are computed once and serve every attack.

    The partition's test rows serve as candidates in galleries, as records of known persons, and as non-members.
    """

    simulation: RowSimulation
    views: Sequence[CollusionView]
    """The views, one per target."""
    partition: Partition
    spec: EvaluationSpec
    seed: int

    @cached_property
    def truth(self) -> Matrix:
        """The targets' rows after projection, in the order of targets."""
        return np.concatenate([to_numpy(self.simulation.private_data[view.target]) for view in self.views])

    @cached_property
    def records(self) -> Matrix:
        """The targets' rows before projection."""
        return np.concatenate([to_numpy(self.simulation.records[view.target]) for view in self.views])

    @cached_property
    def indices(self) -> Indices:
        """Indices of the targets' rows among the records that were partitioned."""
        return np.concatenate([self.partition.train_indices[view.target] for view in self.views])

    @cached_property
    def target_slices(self) -> tuple[slice, ...]:
        """For each target, the slice of its rows among the rows of all targets."""
        ends = np.cumsum([0, *(self.simulation.records[view.target].shape[0] for view in self.views)]).tolist()
        return tuple(slice(a, b) for a, b in pairwise(ends))

    @cached_property
    def _codes(self) -> npt.NDArray[np.intp]:
        return np.concatenate([view.codes_of([view.target]) for view in self.views])

    @cached_property
    def guess(self) -> Guess | None:
        """The guess without the upload; None if the attacker knows no rows."""
        view = self.views[0]
        known = view.reference_rows
        return None if known is None else Guess.of(to_numpy(known), view.reference_codes(), self._codes)

    @cached_property
    def decoder(self) -> RecordDecoder:
        """The attacker's decoders from projected rows to records."""
        return fit_decoder(self.views[0])

    @cached_property
    def _galleries(self) -> Galleries | None:
        labels = _labels_of(self.partition, [view.target for view in self.views], len(self.records))
        return make_galleries(self.spec, labels, len(self.records), self.seed)

    @cached_property
    def _candidates(self) -> Matrix:
        """The targets' records and all test records."""
        return np.concatenate([self.records, *self.partition.test])

    @cached_property
    def linkage(self) -> LinkageTest | None:
        """The linkage test on projected rows; None if no class has enough rows for a gallery."""
        if self._galleries is None:
            return None
        projection = self.simulation.projection
        encoded = to_numpy(projection.encode(like(self._candidates, projection.matrix)))
        guessed = None if self.guess is None else self.guess.by_class
        return make_linkage_test("linkage", self._galleries, encoded, control_rows=guessed, floor_rows=self.truth)

    @cached_property
    def audited_linkages(self) -> tuple[LinkageTest, ...]:
        """Linkage tests on decoded rows: with the auditor's embedding, and across rows of one person."""
        spec, partition = self.spec, self.partition
        identity = identity_galleries(spec, self.indices, np.concatenate(partition.test_indices), self.seed)

        def decoded(projected: Matrix) -> tuple[Matrix, ...]:
            return self._cleaned(projected) if spec.embedding is None else (self._preferred(projected),)

        return tuple(
            make_linkage_test(
                name,
                galleries,
                candidates,
                embedding=spec.embedding,
                control_rows=None if self.guess is None else decoded(self.guess.by_class),
                floor_rows=decoded(self.truth),
            )
            for name, galleries, candidates in (
                ("exact_source_linkage", None if spec.embedding is None else self._galleries, self._candidates),
                ("identity_linkage", identity, np.concatenate(partition.test)),
            )
            if galleries is not None
        )

    @cached_property
    def known_attributes(self) -> tuple[KnownRows, ...]:
        """The rows that attackers know, with the attribute, one entry per decoder; empty if nothing can be learnt."""
        view, spec, partition = self.views[0], self.spec, self.partition
        rows = view.reference_rows
        if spec.attribute is None or rows is None:
            return ()
        places = [partition.train_indices[colluder.index] for colluder in view.colluders]
        known = np.concatenate([*places, partition.public_indices][: len(view.reference_records)])
        if spec.attribute_kind == "category" and np.unique(spec.attribute[known]).size < 2:
            return ()
        attribute, codes = spec.attribute[known], view.reference_codes()
        return tuple(KnownRows(records, attribute, codes) for records in self.decoder.decode_all(to_numpy(rows)))

    @cached_property
    def membership(self) -> MembershipTest | None:
        """The membership test; None if a target has fewer than two rows or non-members."""
        return make_membership_test(self.simulation, self.views, self.partition, self.spec, seed=self.seed)

    def is_hopeless(self, rows: Matrix) -> bool:
        """Return whether the rebuilt `rows` of all targets have at least the error of the guess by class means.

        The result is False if there is no guess.
        """
        if self.guess is None:
            return False
        return _squares(rows - self.truth) >= _squares(self.guess.by_class - self.truth)

    def measure(self, rebuilt: Sequence[Rebuilt]) -> Leakage:
        """Return the figures of all rebuilt rows, and examples of the strongest attack's rows.

        Figures that take long to compute (membership, the auditor's network, images) are computed for some attacks only,
        mainly for the strongest.
        """
        outcomes: dict[str, AttackOutcome] = {}
        rows: dict[str, Matrix] = {}
        for part in rebuilt:
            if not part.applies and part.attempts is not part.plain:
                continue  # a denoiser that does not apply adds nothing to the attack
            name, gathered = part.name, self._gather(part)
            if gathered is None:
                outcomes[name] = AttackOutcome(name, reason=part.reasons[0])
                continue
            rows[name] = gathered
            outcomes[name] = AttackOutcome(name, self.figures(gathered), notes=self._notes(part, gathered))
        if find_strongest(list(outcomes.values())) is None:
            return Leakage(outcomes=tuple(outcomes.values()))
        self._add_membership(outcomes, [part for part in rebuilt if part.name in rows])
        for name in [outcome.attack for outcome in find_most_telling(list(outcomes.values()))]:
            outcomes[name] = outcomes[name].with_figures(self.auditor_figures(rows[name]))
        worst = find_strongest(list(outcomes.values()))
        assert worst is not None
        outcomes[worst.attack] = self._with_image_figures(worst, rows[worst.attack])
        records = {part.name: part.records for part in rebuilt if part.applies and part.records is not None}
        for measure, (name, figure) in self.exposure(rows, records).items():
            known = outcomes.get(name, AttackOutcome(name))  # uploaded rows do not belong to an attack
            outcomes[name] = known.with_figures({measure: figure})
        return Leakage(outcomes=tuple(outcomes.values()), examples=self.examples(rows[worst.attack], worst.attack))

    def _gather(self, part: Rebuilt) -> Matrix | None:
        """Return the rows of all targets, with guesses for targets to which the attack does not apply.

        The result is None if `part` does not apply, or if there is no guess where one is needed.
        """
        parts = []
        for target_slice, attempt in zip(self.target_slices, part.attempts, strict=True):
            rows = self.guessed(target_slice)
            if attempt.reconstruction is not None:
                rows = np.asarray(to_numpy(attempt.reconstruction.rows))
            if rows is None or not part.applies:
                return None
            parts.append(rows)
        return np.concatenate(parts)

    def _notes(self, part: Rebuilt, rows: Matrix) -> tuple[str, ...]:
        reconstructions = [attempt.reconstruction for attempt in part.attempts if attempt.reconstruction is not None]
        notes = dict.fromkeys(note for reconstruction in reconstructions for note in reconstruction.notes)
        reasons = part.reasons
        if reasons:
            n_targets = len(part.attempts)
            notes[f"guessed without the upload for {len(reasons)} of {n_targets} targets: {reasons[0]}"] = None
        return (*notes, *self.notes(rows))

    def _add_membership(self, outcomes: dict[str, AttackOutcome], rebuilt: Sequence[Rebuilt]) -> None:
        """Add membership figures to the outcomes of the strongest attacks and of attacks that learn the population.

        The figures come from likelihood tests on rows before denoising. For denoised rows, the density is that of the
        denoiser's population model. An attacker with a register also matches candidates to rows, one to one.
        """
        if self.membership is None:
            return
        telling = {outcome.attack for outcome in find_most_telling(list(outcomes.values()))}
        for part in rebuilt:
            base, reconstructions = part.plain[0].attack, part.undenoised
            learns = any(reconstruction.population is not None for reconstruction in reconstructions)
            is_asked = learns or part.name in telling or any(name.startswith(f"{base} + ") for name in telling)
            is_plain, evidence = part.attempts is part.plain, part.evidence
            if is_asked and len(reconstructions) == len(part.attempts) and (is_plain or evidence is not None):
                density = None if is_plain else evidence
                outcomes[part.name] = self.membership.measure(outcomes[part.name], reconstructions, density)
                name = f"{part.name} + matching"
                matched = self.membership.measure(AttackOutcome(name), reconstructions, density, matched=True)
                outcomes |= {name: matched} if matched.figures else {}

    def _with_image_figures(self, outcome: AttackOutcome, rows: Matrix) -> AttackOutcome:
        try:
            return outcome.with_figures(self.image_figures(rows))
        except MissingExtraError as missing:  # the other figures do not need the missing package
            return replace(outcome, notes=(*outcome.notes, str(missing)))

    def figures(self, rebuilt: Matrix) -> dict[str, Figure]:
        """Return the figures that are computed for each attack; if there are two decoders, the better one counts."""
        figures, decoded = self._errors(rebuilt), self._cleaned(rebuilt)
        if self.linkage is not None:
            figures["linkage"] = self.linkage.figure(rebuilt)
        figures |= {test.name: test.figure(decoded) for test in self.audited_linkages if test.embedding is None}
        if self.known_attributes:
            figures["attribute"] = replace(self._inferred(rebuilt), floor=self._attribute_floor)
        return figures

    def auditor_figures(self, rebuilt: Matrix) -> dict[str, Figure]:
        """Return linkage by the auditor's embedding, which is too slow for every attack and every decoder."""
        tests = [test for test in self.audited_linkages if test.embedding is not None]
        return {test.name: test.figure(self._preferred(rebuilt)) for test in tests}

    def exposure(self, rebuilt: Mapping[str, Matrix], records: Mapping[str, Matrix]) -> dict[str, tuple[str, Figure]]:
        """Return figures of the most exposed value, column and rows over all attacks, each with an attack's name.

        `rebuilt` holds the rebuilt rows by the name of the attack, and `records` the records of attacks that decode records
        themselves. Without a guess, the result is empty; for images, it has figures of rows alone.
        """
        if self.guess is None:
            return {}
        uploaded = np.concatenate([to_numpy(view.target_upload.representation) for view in self.views])
        rng, rows = np.random.default_rng([self.seed, 7]), {**rebuilt, "as uploaded": uploaded}
        figures = find_exposed_rows(self.truth, rows, guessed=self.guess.by_class, rng=rng)
        if self.spec.image_shape is not None:  # a single pixel is not informative
            return figures
        guessed, spec = self.decoder.decode_all(self.guess.by_class), self.spec
        decoded = [(name, rows) for name, projected in rebuilt.items() for rows in self.decoder.decode_all(projected)]
        value = find_exposed_value(Carriers.of(self.records), decoded, guessed=guessed, name_of=spec.value_name)
        column = find_exposed_column(self.records, decoded, guessed=guessed, names=spec.column_name)
        figures |= {
            name: figure
            for name, figure in (("exposed_value", value), ("exposed_column", column))
            if figure is not None
        }
        read = [*decoded, *records.items()]
        return figures | find_read_columns(self.records, read, guessed=guessed, names=spec.column_name)

    def notes(self, rebuilt: Matrix) -> tuple[str, ...]:
        """Return a note on which of two decoders has the smaller error; empty if there is one decoder."""
        if self.decoder.learned is None:
            return ()
        inverted, learned = (_squares(rows - self.records) for rows in self.decoder.decode_all(rebuilt))
        which = "a decoder learnt from records" if learned < inverted else "the projection's pseudoinverse"
        return (f"decoded best by {which}",)

    def guessed(self, part: slice) -> Matrix | None:
        """Return the guess for these rows without the upload; None if the attacker knows no rows."""
        return None if self.guess is None else self.guess.by_class[part]

    def image_figures(self, rebuilt: Matrix) -> dict[str, Figure]:
        """Return peak signal-to-noise ratio and structural similarity of the first images; empty without images."""
        shape, width = self.spec.image_shape, self.spec.data_range
        if shape is None or width is None:
            return {}
        truth = self.spec.clean(self.records[:_MOST_IMAGES])

        def measured(projected: Matrix) -> dict[str, Figure]:
            """Return the best figure over all decoders, for each measure."""
            best: dict[str, Figure] = {}
            for rows in self._cleaned(projected[:_MOST_IMAGES]):
                rng = np.random.default_rng([self.seed, 6])
                for name, measure in (("psnr", psnr), ("ssim", ssim)):
                    figure = mean_figure(name, measure(truth, rows, image_shape=shape, data_range=width), rng=rng)
                    best[name] = max(best.get(name, figure), figure, key=lambda candidate: candidate.value)
            return best

        floors = measured(self.truth)
        controls = {} if self.guess is None else measured(self.guess.by_class)
        return {
            name: replace(figure, floor=floors[name].value, control=controls[name].value if controls else None)
            for name, figure in measured(rebuilt).items()
        }

    def examples(self, rebuilt: Matrix, attack: str) -> Examples | None:
        """Return a few rows: original, only projected, rebuilt, and guessed if there is a guess; None if none are wanted.

        For rows that are not images, the most exposed rows are chosen, and are also given in words if their columns are
        known. For images, the same rows are chosen for every attack, so that attacks can be compared.
        """
        n = min(self.spec.n_examples, self.records.shape[0])
        if n == 0:
            return None
        is_table, guessed = self.spec.image_shape is None, None if self.guess is None else self.guess.by_class
        chosen = np.linspace(0, self.records.shape[0] - 1, n).round().astype(int)
        if is_table:
            chosen = order_by_exposure(self.truth, rebuilt, guessed)[:n]
        projected = {"projection only": self.truth, "rebuilt": rebuilt}
        projected |= {} if guessed is None else {"guessed without the upload": guessed}
        parts = {name: self.decoder.decode_preferred(rows) for name, rows in projected.items()}
        parts = {"original": self.records, **parts}
        columns = tuple(column.name for column in self.spec.columns) if is_table else ()
        return Examples(
            attack,
            {name: _as_tuples(np.round(self.spec.shown(rows[chosen]), 3)) for name, rows in parts.items()},
            None if self.spec.image_shape is None else tuple(self.spec.image_shape),
            tuple(self.spec.feature_names),
            tuple(self.indices[chosen].tolist()),
            columns,
            {name: self.spec.decode(rows[chosen]) for name, rows in parts.items()} if columns else {},
        )

    def _errors(self, rebuilt: Matrix) -> dict[str, Figure]:
        rng = np.random.default_rng([self.seed, 4])
        figures = {}
        for name, truth, scale, seen in self._spaces:
            errors, sizes = (((rows**2).sum(axis=1)) for rows in (seen(rebuilt) - truth, scale))
            figure = error_figure(name, errors, sizes, rng=rng, n_resamples=self.spec.n_resamples)
            chance, control, floor = self._error_levels[name]
            figures[name] = replace(figure, chance=chance, control=control, floor=floor)
        r2, n = self._median_r2(rebuilt), int(self.truth.shape[0])
        figures["median_r2"] = Figure("median_r2", r2, Interval.unknown(), 0.0, *self._r2_levels, n, True)
        return figures

    @cached_property
    def _spaces(self) -> tuple[tuple[str, Matrix, Matrix, Callable[[Matrix], Matrix]], ...]:
        """The errors to measure: name, truth, the rows that define the scale, and a function to apply to rebuilt rows."""
        X, raw = self.truth, self.records
        return (
            ("relative_error", X, X, lambda rows: rows),
            ("centred_error", X, _centred(X), lambda rows: rows),
            ("decoded_error", raw, _centred(raw), self._nearest),
        )

    @cached_property
    def _error_levels(self) -> dict[str, tuple[float | None, ...]]:
        """Chance, control and floor of each error; on records, each of them uses the decoder that is better for it."""
        guesses = (None, None) if self.guess is None else (self.guess.overall, self.guess.by_class)
        return {
            name: tuple(
                None if rows is None else root_ratio((seen(rows) - truth) ** 2, scale**2)
                for rows in (*guesses, self.truth)
            )
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
        return max(_median(feature_r2(self.records, rows)) for rows in self.decoder.decode_all(projected))

    def _inferred(self, projected: Matrix) -> Figure:
        """Return the best inference of the attribute over decoders, with and without labels."""
        attribute = np.asarray(self.spec.attribute)[self.indices]
        tries = [
            infer_attribute(
                attribute,
                population=population,
                target_reconstruction=rows,
                target_labels=self._codes,
                rng=np.random.default_rng([self.seed, 5]),
                kind=self.spec.attribute_kind,
                with_labels=with_labels,
                n_resamples=self.spec.n_resamples,
            )
            for rows, population in zip(self._cleaned(projected), self.known_attributes, strict=True)
            for with_labels in (False, True)
        ]
        return max(tries, key=lambda figure: figure.value)

    def _cleaned(self, projected: Matrix) -> tuple[Matrix, ...]:
        """Return the rows from every decoder, cleaned as specified."""
        return tuple(self.spec.clean(rows) for rows in self.decoder.decode_all(projected))

    def _preferred(self, projected: Matrix) -> Matrix:
        """Return the rows from the decoder that the attacker would choose, cleaned as specified."""
        return self.spec.clean(self.decoder.decode_preferred(projected))

    def _nearest(self, projected: Matrix) -> Matrix:
        """Return the rows from the decoder with the smaller error."""
        return min(self.decoder.decode_all(projected), key=lambda rows: _squares(rows - self.records))


def _labels_of(partition: Partition, targets: Sequence[int], n_records: int) -> npt.NDArray[Any]:
    """Return the classes of the targets' rows and of all test rows.

    All rows have the same class if there are no labels, or if labels are numbers.
    """
    one_class = np.zeros(n_records + sum(len(part) for part in partition.test), dtype=np.int64)
    if partition.train_labels is None or partition.test_labels is None:
        return one_class
    labels = np.concatenate([*(partition.train_labels[t] for t in targets), *partition.test_labels])
    return one_class if np.issubdtype(labels.dtype, np.floating) else labels


def _centred(rows: Matrix) -> Matrix:
    """Return rows minus their mean, or exact zeros if all rows are equal up to rounding."""
    moved = rows - rows.mean(axis=0)
    alike = np.linalg.norm(moved) <= 1e-12 * np.linalg.norm(rows)
    return np.zeros_like(rows) if alike else moved


def _squares(gap: Matrix) -> float:
    return float((gap**2).sum())


def _median(values: Matrix) -> float:
    """Return the median of the finite values, or NaN if there are none."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else float("nan")


def _as_tuples(rows: Matrix) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in rows.tolist())
