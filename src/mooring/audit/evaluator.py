"""Figures for rebuilt rows: the true rows they are compared with, galleries to link them in, controls and floors."""

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
from mooring.audit.attempts import Rebuilt
from mooring.audit.identification.linkage import LinkageTest, identity_galleries, make_galleries, make_linkage_test
from mooring.audit.identification.membership import MembershipTest, make_membership_test
from mooring.audit.result import AttackOutcome, Examples, Leakage, find_most_telling, find_strongest
from mooring.audit.simulation import RowSimulation
from mooring.audit.specification import EvaluationSpec
from mooring.errors import MissingExtraError
from mooring.geometry.backend import like, to_numpy
from mooring.metrics import (
    Carriers,
    Figure,
    Interval,
    KnownRows,
    error_figure,
    feature_r2,
    find_exposed_column,
    find_exposed_rows,
    find_exposed_value,
    find_read_columns,
    infer_attribute,
    mean_figure,
    order_by_exposure,
    psnr,
    root_ratio,
    ssim,
)
from mooring.tables import Partition
from mooring.typing import Matrix

_MOST_IMAGES = 100


@dataclass(frozen=True, eq=False)
class Guess:
    """What an attacker would say without the upload: the mean of the rows it knows (colluders', public), or of the class."""

    overall: Matrix
    by_class: Matrix

    @classmethod
    def of(cls, known: Matrix, known_codes: npt.NDArray[Any], codes: npt.NDArray[Any]) -> Guess:
        """Guess rows of these classes from known rows; the overall mean for a class of which none is known.

        Parameters
        ----------
        known : array of shape (n_known, d)
        known_codes, codes : arrays
            Classes of the known rows and of the rows to guess.
        """
        mean = known.mean(axis=0)
        means = {k: known[known_codes == k].mean(axis=0) for k in np.unique(known_codes)}
        return cls(np.repeat(mean[None], codes.size, axis=0), np.stack([means.get(k, mean) for k in codes]))


@dataclass(frozen=True, eq=False)
class AttributeQuestion:
    """The targets' attribute and labels, and those of the rows that attackers know, decoded in every way."""

    truth: npt.NDArray[Any]
    target_labels: npt.NDArray[Any]
    known: tuple[KnownRows, ...]


@dataclass(frozen=True, eq=False)
class LeakageEvaluator:
    """The targets of one simulation, ready to measure rebuilt rows against."""

    truth: Matrix
    records: Matrix
    """Their rows before projection, one target after the other, as those of `truth` after it."""
    indices: npt.NDArray[np.int64]
    """Numbers of these rows among the records that were partitioned."""
    target_slices: tuple[slice, ...]
    """Which of them are each target's."""
    guess: Guess | None
    """None where the attacker knows no rows."""
    decoder: RecordDecoder
    spec: EvaluationSpec
    linkage: LinkageTest | None
    """None where no class has enough look-alikes."""
    audited_linkages: tuple[LinkageTest, ...]
    """On decoded rows: through the auditor, and across rows of one person."""
    attribute: AttributeQuestion | None
    """None where there is nothing to infer, or nobody to learn it from."""
    membership: MembershipTest | None
    """None without rows that nobody uploaded."""
    uploaded: Matrix
    """The targets' rows as they were uploaded, which no attack has changed."""
    seed: int

    @classmethod
    def of(
        cls,
        simulation: RowSimulation,
        views: Sequence[CollusionView],
        partition: Partition,
        spec: EvaluationSpec,
        *,
        seed: int,
    ) -> LeakageEvaluator:
        """Build galleries, controls and floors once, for every attack on these views.

        Parameters
        ----------
        views : sequence of CollusionView
            One a target.
        partition : Partition
            What the simulation was made from; its test rows fill galleries and stand for known persons.
        """
        targets = [view.target for view in views]
        truth = np.concatenate([to_numpy(simulation.private_data[t]) for t in targets])
        records = np.concatenate([to_numpy(simulation.records[t]) for t in targets])
        ends = np.cumsum([0, *(simulation.records[t].shape[0] for t in targets)])
        codes = np.concatenate([view.codes_of([view.target]) for view in views])
        known = views[0].reference_rows
        guess = None if known is None else Guess.of(to_numpy(known), views[0].reference_codes(), codes)
        decoder = fit_decoder(views[0])
        held_out = np.concatenate(partition.test)
        everything = np.concatenate([records, held_out])
        encoded = to_numpy(simulation.projection.encode(like(everything, simulation.projection.matrix)))
        guessed = None if guess is None else guess.by_class
        galleries = make_galleries(spec, _labels_of(partition, targets, everything.shape[0]), records.shape[0], seed)
        plain = None
        if galleries is not None:
            plain = make_linkage_test("linkage", galleries, encoded, control_rows=guessed, floor_rows=truth)
        where = np.concatenate([partition.train_indices[t] for t in targets])
        identity = identity_galleries(spec, where, np.concatenate(partition.test_indices), seed)

        def decoded(projected: Matrix) -> tuple[Matrix, ...]:
            tried = decoder.decode_all(projected) if spec.embedding is None else (decoder.decode_preferred(projected),)
            return tuple(spec.clean(rows) for rows in tried)

        audited = tuple(
            make_linkage_test(
                name,
                shown,
                rows,
                embedding=spec.embedding,
                control_rows=None if guessed is None else decoded(guessed),
                floor_rows=decoded(truth),
            )
            for name, shown, rows in (
                ("exact_source_linkage", None if spec.embedding is None else galleries, everything),
                ("identity_linkage", identity, held_out),
            )
            if shown is not None
        )
        slices = tuple(slice(int(a), int(b)) for a, b in pairwise(ends))
        attribute = _attribute(spec, views[0], decoder, partition, where, codes)
        membership = make_membership_test(simulation, views, partition, spec, seed=seed)
        uploaded = np.concatenate([to_numpy(view.target_upload.representation) for view in views])
        return cls(
            truth, records, where, slices, guess, decoder, spec, plain, audited, attribute, membership, uploaded, seed
        )

    def is_hopeless(self, rows: Matrix) -> bool:
        """Whether rows of all targets are no nearer to the true ones than the mean of their class; False without a guess."""
        if self.guess is None:
            return False
        return _squares(rows - self.truth) >= _squares(self.guess.by_class - self.truth)

    def measure(self, rebuilt: Sequence[Rebuilt]) -> Leakage:
        """Every figure of everything that attacks rebuilt, and examples of the strongest attack's rows.

        Figures that take long (membership, the auditor's network, images) are of the most telling attacks alone.
        """
        outcomes: dict[str, AttackOutcome] = {}
        rows: dict[str, Matrix] = {}
        for part in rebuilt:
            if not part.applies and part.attempts is not part.plain:
                continue  # a denoiser that does not apply says no more than the attack by itself
            name, gathered = part.name, self._gather(part)
            if gathered is None:
                outcomes[name] = AttackOutcome(name, reason=part.reasons[0])
                continue
            rows[name] = gathered
            outcomes[name] = AttackOutcome(name, self.figures(gathered), notes=self._notes(part, gathered))
        if find_strongest(list(outcomes.values())) is None:
            return Leakage(tuple(outcomes.values()))
        self._add_membership(outcomes, [part for part in rebuilt if part.name in rows])
        for name in [outcome.attack for outcome in find_most_telling(list(outcomes.values()))]:
            outcomes[name] = outcomes[name].with_figures(self.auditor_figures(rows[name]))
        worst = find_strongest(list(outcomes.values()))
        assert worst is not None
        outcomes[worst.attack] = self._with_image_figures(worst, rows[worst.attack])
        records = {part.name: part.records for part in rebuilt if part.applies and part.records is not None}
        for measure, (name, figure) in self.exposure(rows, self.uploaded, records).items():
            known = outcomes.get(name, AttackOutcome(name))  # rows as they were uploaded are no attack's
            outcomes[name] = known.with_figures({measure: figure})
        return Leakage(tuple(outcomes.values()), examples=self.examples(rows[worst.attack], worst.attack))

    def _gather(self, part: Rebuilt) -> Matrix | None:
        """Rows of all targets; where the attack does not apply to one of them, the attacker guesses without the upload."""
        parts = []
        for target_slice, attempt in zip(self.target_slices, part.attempts, strict=True):
            rows = self.guessed(target_slice) if attempt.found is None else np.asarray(to_numpy(attempt.found.rows))
            if rows is None or not part.applies:
                return None
            parts.append(rows)
        return np.concatenate(parts)

    def _notes(self, part: Rebuilt, rows: Matrix) -> tuple[str, ...]:
        notes = dict.fromkeys(note for attempt in part.attempts if attempt.found for note in attempt.found.notes)
        reasons = part.reasons
        if reasons:
            n_targets = len(part.attempts)
            notes[f"guessed without the upload for {len(reasons)} of {n_targets} targets: {reasons[0]}"] = None
        return (*notes, *self.notes(rows))

    def _add_membership(self, outcomes: dict[str, AttackOutcome], rebuilt: Sequence[Rebuilt]) -> None:
        """Add what rows tell of membership by likelihood, before they are denoised, to some of the outcomes.

        These are the most telling attacks, and attacks that learn the population on the way. For rows that were denoised,
        the density is the one that the denoiser has fitted to the population.
        """
        telling = {outcome.attack for outcome in find_most_telling(list(outcomes.values()))}
        for part in rebuilt if self.membership is not None else ():
            base, reconstructions = part.plain[0].attack, part.undenoised
            learns = any(reconstruction.population is not None for reconstruction in reconstructions)
            is_asked = learns or part.name in telling or any(name.startswith(f"{base} + ") for name in telling)
            is_plain, evidence = part.attempts is part.plain, part.evidence
            if is_asked and len(reconstructions) == len(part.attempts) and (is_plain or evidence is not None):
                assert self.membership is not None
                outcome = outcomes[part.name]
                outcomes[part.name] = self.membership.measure(outcome, reconstructions, None if is_plain else evidence)

    def _with_image_figures(self, outcome: AttackOutcome, rows: Matrix) -> AttackOutcome:
        try:
            return outcome.with_figures(self.image_figures(rows))
        except MissingExtraError as missing:  # the other figures are worth having without these two
            return replace(outcome, notes=(*outcome.notes, str(missing)))

    def figures(self, rebuilt: Matrix) -> dict[str, Figure]:
        """Every figure that is cheap enough to have for each attack; of two ways back to records, the better one counts."""
        figures, decoded = self._errors(rebuilt), self._cleaned(rebuilt)
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
        decoded = self.spec.clean(self.decoder.decode_preferred(rebuilt))
        return {test.name: test.figure(decoded) for test in tests}

    def exposure(
        self, rebuilt: Mapping[str, Matrix], uploaded: Matrix, records: Mapping[str, Matrix]
    ) -> dict[str, tuple[str, Figure]]:
        """The most exposed values, columns and rows over all attacks, each with the attack's name; none without a guess.

        Parameters
        ----------
        rebuilt, records : mapping
            From an attack's name to rows of shape (n, h), and to records that it decoded itself.
        uploaded : array of shape (n, h)
        """
        if self.guess is None:
            return {}
        rng, rows = np.random.default_rng([self.seed, 7]), {**rebuilt, "as uploaded": uploaded}
        figures = find_exposed_rows(self.truth, rows, guessed=self.guess.by_class, rng=rng)
        if self.spec.image_shape is not None:  # a pixel says little by itself
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
        """Which way back leaves less error, where there are two."""
        if self.decoder.learned is None:
            return ()
        inverted, learned = (_squares(rows - self.records) for rows in self.decoder.decode_all(rebuilt))
        which = "a decoder learnt from records" if learned < inverted else "the projection's pseudoinverse"
        return (f"decoded best by {which}",)

    def guessed(self, part: slice) -> Matrix | None:
        """What an attacker would say of these rows without the upload."""
        return None if self.guess is None else self.guess.by_class[part]

    def image_figures(self, rebuilt: Matrix) -> dict[str, Figure]:
        """Peak signal-to-noise ratio and structural similarity, for the first images."""
        if self.spec.image_shape is None:
            return {}
        some = slice(0, _MOST_IMAGES)
        truth, shape, width = self.spec.clean(self.records[some]), self.spec.image_shape, self.spec.data_range
        assert width is not None

        def measured(projected: Matrix) -> dict[str, Figure]:
            """The best of the ways back, for each measure."""
            best: dict[str, Figure] = {}
            for rows in self._cleaned(projected[some]):
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
        """A few rows, original beside rebuilt; of a table also in words, and the most exposed rows first.

        Images are the same whatever the attack, to be compared.
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
        """Where errors are measured: their name, the truth, what they are relative to, how rebuilt rows get there."""
        X, raw = self.truth, self.records
        return (
            ("relative_error", X, X, lambda rows: rows),
            ("centred_error", X, _centred(X), lambda rows: rows),
            ("decoded_error", raw, _centred(raw), self._nearest),
        )

    @cached_property
    def _error_levels(self) -> dict[str, tuple[float | None, ...]]:
        """Chance, control and floor of each error; on records, each by the way back that is better for it."""
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
        """The attribute from rows decoded either way, with or without the attacker's labels, whichever is best."""
        assert self.attribute is not None
        asked = self.attribute
        tries = [
            infer_attribute(
                asked.truth,
                population=population,
                target_reconstruction=rows,
                target_labels=asked.target_labels,
                rng=np.random.default_rng([self.seed, 5]),
                kind=self.spec.attribute_kind,
                with_labels=with_labels,
                n_resamples=self.spec.n_resamples,
            )
            for rows, population in zip(self._cleaned(projected), asked.known, strict=True)
            for with_labels in (False, True)
        ]
        return max(tries, key=lambda figure: figure.value)

    def _cleaned(self, projected: Matrix) -> tuple[Matrix, ...]:
        """Rows decoded in every way, as the specification shows them."""
        return tuple(self.spec.clean(rows) for rows in self.decoder.decode_all(projected))

    def _nearest(self, projected: Matrix) -> Matrix:
        """Rows decoded in the way that leaves less error."""
        return min(self.decoder.decode_all(projected), key=lambda rows: _squares(rows - self.records))


def _labels_of(partition: Partition, targets: Sequence[int], n_rows: int) -> npt.NDArray[Any]:
    """Classes of the targets' rows and of all test rows; one class where there are no labels, or they are numbers."""
    if partition.train_labels is None or partition.test_labels is None:
        return np.zeros(n_rows, dtype=np.int64)
    labels = np.concatenate([*(partition.train_labels[t] for t in targets), *partition.test_labels])
    return np.zeros(n_rows, dtype=np.int64) if np.issubdtype(labels.dtype, np.floating) else labels


def _attribute(
    spec: EvaluationSpec,
    view: CollusionView,
    decoder: RecordDecoder,
    partition: Partition,
    where: npt.NDArray[Any],
    codes: npt.NDArray[Any],
) -> AttributeQuestion | None:
    """What attribute inference needs; None where there is no attribute, or nobody to learn it from."""
    rows = view.reference_rows
    if spec.attribute is None or rows is None:
        return None
    places = [partition.train_indices[colluder.index] for colluder in view.colluders]
    known = np.concatenate([*places, partition.public_indices][: len(view.reference_records)])
    if spec.attribute_kind == "category" and np.unique(spec.attribute[known]).size < 2:
        return None
    attribute, known_codes = spec.attribute[known], view.reference_codes()
    decoded = tuple(KnownRows(records, attribute, known_codes) for records in decoder.decode_all(to_numpy(rows)))
    return AttributeQuestion(spec.attribute[where], codes, decoded)


def _centred(rows: Matrix) -> Matrix:
    """Rows less their mean; exact zeros where they are all alike but for rounding."""
    moved = rows - rows.mean(axis=0)
    alike = np.linalg.norm(moved) <= 1e-12 * np.linalg.norm(rows)
    return np.zeros_like(rows) if alike else moved


def _squares(gap: Matrix) -> float:
    return float((gap**2).sum())


def _median(values: Matrix) -> float:
    """The median of what is finite; NaN where nothing is."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else float("nan")


def _as_tuples(rows: Matrix) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in rows.tolist())
