"""Leakage of other methods: rotation, secure sums, federated averaging, synthetic rows and statistics on the same rows.

One attacker throughout: the analyst together with participant 0, who attack some of the others and know their own rows, all
that is uploaded, and the classes of the targets' rows. A row of the result is one method in one deployment of one
case: the scores of its model, and the strongest attack on it by every measure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mooring import InputError
from mooring.attacks import DoesNotApply, SumView, attacks_on
from mooring.attacks.sums import score_without_sums
from mooring.audit import AttackOutcome, measure_leakage
from mooring.randomness import Streams
from mooring.typing import Matrix
from mooring_studies.alternatives import updates
from mooring_studies.alternatives.measurement import TARGETS, AuditedRows, Scores, strongest_columns
from mooring_studies.alternatives.releases import ClassStatistics, Labelled, draw_synthetic, score_by_synthetic
from mooring_studies.comparison.results import Row
from mooring_studies.roles import COLLUDER
from mooring_studies.settings.sections import Positive, SumLine, convert
from mooring_studies.settings.spec import Spec, read_spec
from mooring_studies.storage.progress import Progress
from mooring_studies.storage.store import ResultStore
from mooring_studies.tabular.deployment import Point, noise_columns
from mooring_studies.tabular.jobs import Job, choose_evenly
from mooring_studies.tabular.scores import alone, ranked, scored, utility
from mooring_studies.tabular.sum_line import LEARNERS, SumRows, train_from_sums
from mooring_studies.tabular.sums import SumCase, SumOptions, load_case, run_cases

_NOTES = (
    "the attacker is the analyst with participant 0; it knows the classes of the targets' rows, whatever the method",
    "the control is the same attack on another target's upload, or a guess without any upload, whichever scores higher",
    "errors of inverted and synthetic rows, which have no order: within a class, or a batch and class, they are assigned to "
    "the true ones so that the error is least, which favours the attack; the chance of exposed_tenth is the figure of "
    "another target's rows, assigned likewise",
    "secure-sum and fedavg-aggregate are totals over all participants, less the colluder's own part: attacked by membership "
    "alone",
    "fedavg: inverted are the updates of the first round; membership goes by the first round and by all",
    "gradient: of all rows of a target, and of a small batch each; one of many steps, so it has no score",
)


@dataclass(frozen=True, kw_only=True)
class AlternativeOptions(SumLine):
    """The [options] of the study; columns of tables are as the study of sums declares them."""

    noise_levels: tuple[Positive, ...]  # of rotation, as multiples of the rows' root mean square
    attacks: tuple[str, ...]  # on rotated rows
    cases: tuple[SumCase, ...]
    updates: updates.UpdateSettings

    def __post_init__(self) -> None:
        if any(case.rows_each == 0 for case in self.cases):
            cure = "Federated averaging takes the same number of rows of each participant."
            raise InputError("rows_each of cases", expected="above 0", got="0", cure=cure)


def run_alternatives(spec: Spec, *, data_dir: Path | None, store: ResultStore, progress: Progress) -> None:
    """Measure every method in every deployment, except what the store has already; see `run_sums`."""
    options, declared = convert(spec.options, AlternativeOptions), convert(read_spec("sums").options, SumOptions)

    def jobs(case_rows: SumRows, streams: Streams, deployment: int) -> list[Job]:
        return Alternatives(case_rows, options, streams).jobs()

    load = partial(load_case, options=declared, data_dir=data_dir)
    run_cases(spec, options.cases, load, jobs, notes=_NOTES, store=store, progress=progress)


@dataclass(frozen=True, eq=False)
class Alternatives:
    """Every method of learning together, on the rows of one deployment."""

    case_rows: SumRows
    options: AlternativeOptions
    streams: Streams

    @cached_property
    def audited(self) -> AuditedRows:
        """The rows, with targets and galleries for the attacks."""
        return AuditedRows.of(self.case_rows, self.options.attacks, self.streams)

    def jobs(self) -> list[Job]:
        """One job for each method and each of its levels."""
        options, rows, p = self.options, self.case_rows.rows, self.case_rows.rows.n_participants
        levels: dict[str, tuple[Callable[[Any], Row], Sequence[Any]]] = {
            "pooled-raw": (self._train, (range(p),)),
            "aa-i-gdp": (self.measure_rotation, (0.0,)),
            "aa-i-gdp-data-noise": (self.measure_rotation, options.noise_levels),
            "secure-sum": (self.measure_sums, options.epsilons),
            "gradient": (self.measure_gradients, (len(rows.train[0]), options.updates.small_batch)),
            "fedavg": (self.measure_update, (1, options.updates.n_rounds)),
            "fedavg-aggregate": (self.measure_aggregate, (1, options.updates.n_rounds)),
        }
        chosen = choose_evenly(int(options.alone), p)
        jobs: list[Job] = [({"method": "local-only", "draw": i}, partial(self._train, [i])) for i in chosen]
        for method, (measure, values) in levels.items():
            jobs += [({"method": method, "draw": k}, partial(measure, value)) for k, value in enumerate(values)]
        for method, whole in (("synthetic", self.measure_synthetic), ("statistics", self.measure_statistics)):
            jobs.append(({"method": method, "draw": 0}, whole))
        return jobs

    def _train(self, who: Sequence[int], rows: tuple[Matrix, ...] | None = None) -> Row:
        partition = replace(self.case_rows.rows, train=self.case_rows.rows.train if rows is None else rows)
        return alone(partition, who, learners=LEARNERS, seed=self.audited.settings.seed)

    def measure_rotation(self, noise_level: float) -> Row:
        """AA-I-GDP with private-data noise, or without any."""
        deployment, settings = self.audited.deployment, self.audited.settings
        method = "aa-i-gdp-data-noise" if noise_level else "aa-i-gdp"
        simulation = deployment.simulate(Point(method, data_noise_scale=noise_level * deployment.rms))
        outcomes = measure_leakage(simulation, self.case_rows.rows, settings).outcomes
        scores = utility(self.case_rows.rows, simulation, learners=LEARNERS, seed=settings.seed)
        return {"noise_level": noise_level} | noise_columns(simulation) | scores | strongest_columns(outcomes)

    def measure_sums(self, epsilon: float | Literal["none"]) -> Row:
        """The total of everybody's sums, at one ε."""
        simulation, columns = train_from_sums(self.case_rows, epsilon, line=self.options, streams=self.streams)
        (rows, codes), scores = self.audited.candidates(), {}
        view = simulation.view((COLLUDER,), asked=simulation.encode([rows], [codes]))
        for attack in attacks_on(SumView):
            try:
                scored = attack.function(view, rng=np.random.default_rng(0)).scores
            except DoesNotApply:
                continue
            if np.isfinite(scored).any():  # candidates of whom an attack says nothing come last
                scores[attack.name] = np.nan_to_num(scored, nan=float(np.nanmin(scored)) - 1)
        control = score_without_sums(view).scores
        return columns | strongest_columns(self.audited.measure_total(scores, control))

    @cached_property
    def rounds(self) -> tuple[updates.Round, ...]:
        """Federated averaging of all participants."""
        rows, rng = np.stack(self.case_rows.rows.train), self.streams.named("federation")
        return updates.federate(rows, np.stack(self.audited.labels), self.audited.n_classes, self.options.updates, rng)

    def measure_update(self, n_rounds: int) -> Row:
        """Each participant's updates of the first rounds, as the analyst has them without secure aggregation."""
        steps = [[[exchange.step([target]) for exchange in self.rounds[:n_rounds]]] for target in TARGETS]
        keys = [self.audited.labels[target] for target in TARGETS]
        outcomes = self._attack_steps(steps, keys, n_members=len(keys[0]), is_gradient=False)
        return {"n_rounds": n_rounds} | strongest_columns(outcomes) | self._score(self._predict(n_rounds))

    def measure_aggregate(self, n_rounds: int) -> Row:
        """The mean of all updates of the first rounds, as the analyst has it with secure aggregation."""
        honest, asked = range(1, self.case_rows.rows.n_participants), self.audited.candidates()
        n_members = sum(len(part) for part in self.audited.labels[1:])
        steps = [exchange.step(honest) for exchange in self.rounds[:n_rounds]]
        scores = _score_rounds(steps, asked, n_members=n_members, is_gradient=False)
        control = -np.asarray(updates.backpropagate(self.rounds[0].before, *asked).losses)
        outcomes = self.audited.measure_total(scores, control)
        return {"n_rounds": n_rounds} | strongest_columns(outcomes) | self._score(self._predict(n_rounds))

    def measure_gradients(self, batch_size: int) -> Row:
        """The gradient at the first weights of each batch of a target's rows."""
        weights, steps, keys = self.rounds[0].before, [], []
        for target in TARGETS:
            rows, codes = self.case_rows.rows.train[target], self.audited.labels[target]
            batches = np.arange(len(rows)) // batch_size
            whole = [batches == k for k in range(len(rows) // batch_size)]
            gradients = [updates.backpropagate(weights, rows[batch], codes[batch]).gradient() for batch in whole]
            steps.append([[(weights, gradient)] for gradient in gradients])
            keys.append(codes + self.audited.n_classes * batches)
        outcomes = self._attack_steps(steps, keys, n_members=batch_size, is_gradient=True)
        return {"batch_size": batch_size} | strongest_columns(outcomes)

    def measure_synthetic(self) -> Row:
        """Rows from everybody's own Gaussian copulas, in place of the rows."""
        audited, labels = self.audited, self.audited.labels
        rng, parts = self.streams.named("synthetic"), zip(self.case_rows.rows.train, labels, strict=True)
        drawn = [(draw_synthetic(part, audited.shape, rng), part[1]) for part in parts]
        others = [part for i, part in enumerate(drawn) if i not in (*TARGETS, COLLUDER)]
        known = np.concatenate([part[0] for part in others]), np.concatenate([part[1] for part in others])
        released = [drawn[target] for target in TARGETS]
        outcomes = audited.measure_rebuilt("synthetic rows", released, [codes for _, codes in released])
        outcomes += audited.measure_members(lambda place, asked: score_by_synthetic(released[place], known, asked))
        return strongest_columns(outcomes) | self._train(range(len(drawn)), tuple(part[0] for part in drawn))

    def measure_statistics(self) -> Row:
        """Everybody's counts and means of classes and covariance within them, as they are."""
        audited, parts = self.audited, zip(self.case_rows.rows.train, self.audited.labels, strict=True)
        every = [ClassStatistics.of(*part, audited.n_classes) for part in parts]
        others = ClassStatistics.pool([part for i, part in enumerate(every) if i not in TARGETS])
        released, keys = (
            [every[target] for target in TARGETS],
            [audited.labels[target] for target in TARGETS],
        )
        means = [(part.means[codes], codes) for part, codes in zip(released, keys, strict=True)]
        outcomes = audited.measure_rebuilt("class means", means, keys)
        outcomes += audited.measure_members(lambda place, asked: released[place].score_members(others, asked))
        predicted = ClassStatistics.pool(every).discriminate(np.concatenate(self.case_rows.rows.test))
        return strongest_columns(outcomes) | self._score(predicted)

    def _attack_steps(
        self, steps: Sequence[Sequence[Sequence[updates.Step]]], keys: Sequence[updates.Codes], **known: Any
    ) -> list[AttackOutcome]:
        """Attack the steps of each batch of each target: the first is inverted, and all are asked for members."""
        audited, each, first = self.audited, len(steps[0]), [part[0] for target in steps for part in target]
        used = np.stack(
            [part[: len(part) - len(part) % each].reshape(each, -1) for part in keys]
        )  # all in whole batches
        groups, rng = (used % audited.n_classes).reshape(len(first), -1), self.streams.named(f"inversion/{each}")
        rebuilt = updates.invert(first, groups, audited.shape, self.options.updates, rng).reshape(
            len(keys), used[0].size, -1
        )
        reconstructions = [(rows, part.ravel()) for rows, part in zip(rebuilt, used, strict=True)]

        def score(place: int, asked: Labelled) -> Scores:
            scores = [_score_rounds(part, asked, **known) for part in steps[place]]
            return {name: np.max([part[name] for part in scores], axis=0) for name in scores[0]}

        return audited.measure_rebuilt("gradient matching", reconstructions, keys) + audited.measure_members(score)

    def _predict(self, n_rounds: int) -> Matrix:
        rows = np.concatenate(self.case_rows.rows.test)
        nothing = np.zeros(len(rows), dtype=np.int64)
        return np.asarray(updates.backpropagate(self.rounds[n_rounds - 1].after, rows, nothing).logits)

    def _score(self, logits: Matrix) -> Row:
        """Scores of a model by its logits on everybody's test rows."""
        labels, predicted = self.case_rows.rows.test_labels or (), logits.argmax(axis=1)
        leans = logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else None
        return scored(labels, clean=predicted, noisy=predicted) | ranked(labels, leans)


def _score_rounds(steps: Sequence[updates.Step], asked: Labelled, **known: Any) -> Scores:
    """Scores by the first round alone, whose weights fit every candidate alike, and by all together."""
    first = updates.score_members(steps[:1], *asked, **known)
    every = updates.score_members(steps, *asked, **known) if len(steps) > 1 else {}
    return first | {f"{name}, all rounds": values for name, values in every.items()}
