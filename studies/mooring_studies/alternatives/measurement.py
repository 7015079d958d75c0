"""One scale for every method: rebuilt rows and scores of candidates become figures with chance, control and interval.

The control is the same attack on another participant's upload, or what is said without any, whichever tells more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from mooring.audit import AttackOutcome, AuditSettings, EvaluationSpec, LeakageEvaluator, find_strongest
from mooring.mechanisms import no_projection
from mooring.mechanisms.sums import PictureFeatures, TableFeatures
from mooring.metrics import Figure, Membership, find_exposed_rows, wilson
from mooring.randomness import Streams
from mooring.typing import Matrix
from mooring_studies.alternatives.releases import Labelled
from mooring_studies.alternatives.updates import Codes, RowShape
from mooring_studies.comparison.results import Row
from mooring_studies.tabular.deployment import Deployment, Point, make_deployment
from mooring_studies.tabular.sum_line import SumRows

MEASURES = (
    *("centred_error", "linkage", "exposed_tenth", "membership_auc", "membership_at_1_percent"),
    *("membership_at_0.1_percent", "outlying_membership_at_1_percent"),
)
"""What is measured of every method, by the names of `mooring.audit`."""
Scores = Mapping[str, Matrix]
TARGETS = (1, 2, 3)
"""Participants whose rows are attacked; another one's upload is a control."""


def strongest_columns(outcomes: Sequence[AttackOutcome]) -> Row:
    """The strongest attack by every measure: its figure, interval, chance, control and name."""
    columns: Row = {}
    for measure in MEASURES:
        strongest = find_strongest(outcomes, measure)
        if strongest is not None:
            figure = strongest.figures[measure]
            ends = {"low": figure.interval.low, "high": figure.interval.high}
            context = ends | {"chance": figure.chance, "control": figure.control, "attack": strongest.attack}
            columns |= {measure: figure.value} | {f"{measure}_{name}": value for name, value in context.items()}
    return columns


@dataclass(frozen=True, eq=False)
class AuditedRows:
    """Rows of one deployment; those of some participants are attacked."""

    case_rows: SumRows
    labels: tuple[Codes, ...]
    n_classes: int
    shape: RowShape
    deployment: Deployment  # for rotation, without a projection
    settings: AuditSettings
    evaluator: LeakageEvaluator  # made from rotated rows, of which it says nothing here

    @classmethod
    def of(cls, case_rows: SumRows, attacks: tuple[str, ...], streams: Streams) -> AuditedRows:
        """Choose targets and build galleries; `attacks` are those on rotated rows."""
        rows, features, seed = case_rows.rows, case_rows.feature_map, int(streams.named("seed").integers(2**31))
        labels = tuple(np.asarray(part, dtype=np.int64) for part in rows.train_labels or ())
        columns = features.schema.columns if isinstance(features, TableFeatures) else ()
        ends = np.cumsum([0, *(column.width for column in columns)]).tolist()
        groups = [
            slice(at, at + len(column.categories))
            for at, column in zip(ends, columns, strict=False)
            if column.categories
        ]
        image_shape = (features.height, features.width) if isinstance(features, PictureFeatures) else None
        shape = RowShape(image_shape, tuple(groups))
        deployment = make_deployment(
            rows,
            no_projection(rows.n_features),
            n_anchor_rows=4 * rows.n_features,
            n_queries=1000,
            streams=streams,
            columns=columns,
        )
        spec = EvaluationSpec(image_shape, columns=columns, pixel_range=(-1.0, 1.0), n_examples=0)
        settings = AuditSettings(attacks, targets=TARGETS, evaluation=spec, seed=seed).for_data(rows)
        simulation = deployment.simulate(Point("aa-i-gdp"))
        views = [simulation.view(settings.colluders, target) for target in TARGETS]
        evaluator = LeakageEvaluator(simulation, views, rows, spec, seed)
        n_classes = 1 + int(max(part.max() for part in (*labels, *(rows.test_labels or ()))))
        return cls(case_rows, labels, n_classes, shape, deployment, settings, evaluator)

    def candidates(self) -> Labelled:
        """The rows of all who do not collude, then rows that nobody uploaded."""
        assert self.evaluator.membership is not None
        others = self.evaluator.membership.others
        rows = np.concatenate([*self.case_rows.rows.train[1:], *(part.rows for part in others)])
        return rows, np.concatenate([*self.labels[1:], *(part.codes for part in others)])

    def measure_rebuilt(
        self, attack: str, reconstructions: Sequence[Labelled], keys: Sequence[Codes]
    ) -> list[AttackOutcome]:
        """Figures of rows that were rebuilt in any order, and of guessing, which an attacker may always do."""
        assert self.evaluator.guess is not None
        truth, guess = self.evaluator.truth, self.evaluator.guess.by_class
        rebuilt, foreign = guess.copy(), guess.copy()
        for k, rows_of_target in enumerate(self.evaluator.target_slices):
            rebuilt[rows_of_target] = _assign(
                reconstructions[k], (truth[rows_of_target], keys[k]), guess[rows_of_target]
            )
            rows, other = reconstructions[(k + 1) % len(reconstructions)]
            foreign[rows_of_target] = _assign(
                (rows, other % self.n_classes), (truth[rows_of_target], keys[k] % self.n_classes), guess[rows_of_target]
            )
        errors = [self.evaluator.figures(rows)["centred_error"] for rows in (rebuilt, foreign, guess)]
        figures = {"centred_error": replace(errors[0], control=min(errors[1].value, errors[2].value))}
        rng = np.random.default_rng([self.settings.seed, 7])
        exposed = find_exposed_rows(truth, {attack: rebuilt, "guessing": guess}, guessed=guess, rng=rng)
        by, exposed_tenth = exposed["exposed_tenth"]
        # Shuffled rows, the chance of the audit, are not assigned to the true ones again; another target's are.
        others = find_exposed_rows(truth, {"control": foreign, "guessing": guess}, guessed=guess, rng=rng)
        by_chance = others["exposed_tenth"][1].value
        outcomes = {
            attack: figures | {"linkage": self._identify(reconstructions)},
            "guessing": {"centred_error": errors[2]},
        }
        outcomes[by] |= {"exposed_tenth": replace(exposed_tenth, chance=by_chance, control=by_chance)}
        return [AttackOutcome(name, measured) for name, measured in outcomes.items()]

    def _identify(self, reconstructions: Sequence[Labelled]) -> Figure:
        """How often, of up to ten records with one of a target's, its own is the nearest to any rebuilt row of the class.

        The ten are those of the audit, less others that were uploaded by a target.
        """
        test, truth = self.evaluator.linkage, self.evaluator.truth
        assert test is not None
        galleries, classes = test.galleries, np.concatenate([self.labels[target] for target in TARGETS])
        asked = test.queried[galleries.queries]
        place = np.searchsorted([part.stop for part in self.evaluator.target_slices], asked, side="right")
        shown = (cdist(test.vectors, truth).min(axis=1) > 0)[galleries.candidates]
        shown[np.arange(len(asked)), galleries.answers] = True
        gaps = np.full((2, *shown.shape), np.inf)
        for k, (rows, keys) in enumerate(reconstructions):
            for label in np.unique(keys % self.n_classes):
                nearest = cdist(test.vectors, rows[keys % self.n_classes == label]).min(axis=1)
                for side, target in enumerate((k, (k - 1) % len(reconstructions))):
                    mine = (place == target) & (classes[asked] == label)
                    gaps[side, mine] = np.where(shown[mine], nearest[galleries.candidates[mine]], np.inf)
        best = gaps.min(axis=2)
        answers = np.take_along_axis(gaps, np.tile(galleries.answers, (2, 1))[..., None], axis=2)[..., 0]
        hits, false = ((answers == best) / (gaps == best[..., None]).sum(axis=2)).mean(axis=1).tolist()  # ties share
        n, chance = len(asked), float((1 / shown.sum(axis=1)).mean())
        return Figure("linkage", hits, wilson(n * hits, n), chance, false, None, n, higher_is_worse=True)

    def measure_members(self, score: Callable[[int, Labelled], Scores]) -> list[AttackOutcome]:
        """Figures of scores that the upload of a target, by its place, gives to its rows and to rows of nobody."""
        test = self.evaluator.membership
        scores: dict[str, tuple[list[Matrix], ...]] = {}
        assert test is not None
        for k, (members, others) in enumerate(zip(test.members, test.others, strict=True)):
            both = members + others
            for side, place in ((0, k), (2, (k + 1) % len(test.members))):
                for attack, values in score(place, (both.rows, both.codes)).items():
                    parts = scores.setdefault(attack, ([], [], [], []))
                    parts[side].append(values[: len(members.rows)])
                    parts[side + 1].append(values[len(members.rows) :])
        joined = {attack: [np.concatenate(part) for part in parts] for attack, parts in scores.items()}
        return [self._outcome(name, Membership(a, b), Membership(c, d)) for name, (a, b, c, d) in joined.items()]

    def measure_total(self, scores: Scores, control: Matrix) -> list[AttackOutcome]:
        """Figures of scores of `candidates` by a total over all who do not collude, and by none, as control."""
        ends = np.cumsum([0, *(len(part) for part in self.labels[1:])])
        members = np.concatenate([np.arange(ends[target - 1], ends[target]) for target in TARGETS])
        without = Membership(control[members], control[ends[-1] :])
        memberships = {name: Membership(values[members], values[ends[-1] :]) for name, values in scores.items()}
        return [self._outcome(name, membership, without) for name, membership in memberships.items()]

    def _outcome(self, attack: str, membership: Membership, control: Membership) -> AttackOutcome:
        assert self.evaluator.membership is not None
        outlying = membership.outlying_figures(self.evaluator.membership.outlying, control)
        return AttackOutcome(attack, membership.figures(control) | outlying)


def _assign(reconstruction: Labelled, true: Labelled, guess: Matrix) -> Matrix:
    """Rebuilt rows in the order of the true ones; guesses where none is left."""
    ordered = guess.copy()
    for key in np.unique(true[1]):
        rows, places = reconstruction[0][reconstruction[1] == key], np.flatnonzero(true[1] == key)
        some, columns = linear_sum_assignment(cdist(rows, true[0][places], "sqeuclidean"))
        ordered[places[columns]] = rows[some]
    return ordered
