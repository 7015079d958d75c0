"""SACRO-ML's attacks on every learner's model beside mooring's own figure of membership: docs/second-opinion.md.

Rows are scikit-learn's breast-cancer table, its columns scaled to [−1, 1]. In each split, a model is trained on a third of
the rows, the members, and attacked with another third, the non-members. The control is the same attack on a model that was
trained on the last third, so that 'members' are no members. mooring's figure is that of `measure_trained_release` for the
first two thirds, with models of half of them, which is as many rows. Of secure sums, it is that of the strongest attack on
the total of the members, by an analyst without colluders: the model is a function of the total.

SACRO-ML (PyPI sacroml 2.0) needs xgboost where mooring pins xgboost-cpu, so it has an environment of its own that sees
mooring's packages: `python -m venv second`, the path of mooring's site-packages in a .pth file there, then `pip install
--no-deps sacroml acro fpdf pypdf dictdiffer multiprocess dill`, and `second/bin/python -m benchmarks.second_opinion`.
After a change of mooring's attacks alone, `python -m benchmarks.second_opinion --own` needs none of this.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_breast_cancer

from benchmarks.machine import describe_machine, described
from mooring.attacks import DoesNotApply, LabelledFeatures, attacks_on
from mooring.audit import simulate_sums
from mooring.audit.release import measure_trained_release
from mooring.learners import LEARNERS, fit_discriminant, train_learner
from mooring.metrics import Membership
from mooring.metrics.intervals import student_interval
from mooring.randomness import Streams

N_SPLITS, N_SHADOWS, N_SITES = 4, 24, 5
AT = 0.01
Scores = tuple[float, float]
"""The area under the curve, and the rate at 1 % false positives."""
HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results" / "second_opinion.json", HERE.parent / "docs" / "second-opinion.md"


@dataclass(frozen=True, eq=False)
class FittedSums:
    """A model of the total of secure sums."""

    simulation: Any
    model: Any
    learner: str = "sums"
    kind: str = "classes"

    def predict(self, rows: Any) -> Any:
        return self.model.predict(self.simulation.feature_map.apply(rows))

    def probabilities(self, rows: Any, n_classes: int) -> Any:
        return self.model.class_scores(self.simulation.feature_map.apply(rows))


@dataclass(frozen=True)
class SumsOfRows:
    """Secure sums of five participants as a learner of rows, so that the same code attacks it."""

    epsilon: float | None
    delivers = True
    automatic = False
    distributed = False
    description = "linear discriminant analysis of the total"

    @property
    def name(self) -> str:
        return f"secure sums, ε = {self.epsilon:g}" if self.epsilon else "secure sums without noise"

    def fit(self, rows: Any, labels: Any, *, kind: str, seed: int) -> FittedSums:
        simulation = self.simulate(rows, labels, seed)
        return FittedSums(simulation, fit_discriminant(simulation.sums))

    def simulate(self, rows: Any, labels: Any, seed: int) -> Any:
        """Return the study whose total the model is trained on."""
        parts = np.array_split(np.arange(len(rows)), N_SITES)
        return simulate_sums(
            [rows[part] for part in parts],
            [labels[part].astype(np.int64) for part in parts],
            label_values=np.arange(2),
            privacy=self.epsilon,
            rng=Streams(seed * 7919 + int(np.abs(rows).sum() * 1e6) % 2**31),  # other rows, other noise
        )

    def attack_total(self, included: Any, members: Any, others: Any, seed: int) -> Scores:
        """Return the scores of the strongest attacks on the total of some rows, for candidates that are members or not."""
        rows, labels = included
        simulation = self.simulate(rows, labels, seed)
        parts = [simulation.encode([part[0]], [part[1]]) for part in (members, others)]
        candidates = LabelledFeatures(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in ("features", "outcomes"))
        )
        ((_, view),) = simulation.views((), candidates)
        found = []
        for attack in attacks_on(type(view)):
            with suppress(DoesNotApply):
                scores = attack.function(view, rng=np.random.default_rng([seed, 3])).scores
                found.append(Membership(scores[: len(members[0])], scores[len(members[0]) :]))
        return max(part.auc for part in found), max(part.true_positive_rate(AT)[0] for part in found)

    @property
    def bounds(self) -> Scores | None:
        """The bounds that ε sets on both scores; None without noise."""
        if self.epsilon is None:
            return None
        return 1 / (1 + math.exp(-self.epsilon)), math.exp(self.epsilon) * AT


class TrainedByMooring(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A learner of mooring as an estimator of scikit-learn, which SACRO-ML copies and trains again."""

    def __init__(self, learner: Any = "linear", random_state: int = 0) -> None:
        self.learner = learner
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> TrainedByMooring:
        self.classes_ = np.unique(y)
        self.fitted_ = train_learner(self.learner, X, y, kind="classes", seed=self.random_state)
        return self

    def predict(self, X: Any) -> Any:
        return self.fitted_.predict(X)

    def predict_proba(self, X: Any) -> Any:
        return self.fitted_.probabilities(X, 2)


@dataclass(frozen=True)
class Line:
    """What was measured of one learner: value, low and high of each figure."""

    learner: str
    attack: str
    auc: tuple[float, float, float]
    rate: tuple[float, float, float]
    control_auc: float
    control_rate: float
    bounds: Scores | None = None
    """The bounds that the guarantee sets on both figures; None where a study has no ε."""


ATTACKS = ("worst case", "LiRA, offline", "LiRA, online", "QMIA")


def read_scores(attack: Any) -> Scores:
    """The mean scores of an attack over its repetitions; NaN if it could not be made."""
    found = [metrics for metrics in attack.attack_metrics if "fpr" in metrics]
    if not found:
        return math.nan, math.nan
    rates = [float(np.interp(AT, metrics["fpr"], metrics["tpr"])) for metrics in found]
    return float(np.mean([metrics["AUC"] for metrics in found])), float(np.mean(rates))


def attack_all(models: Sequence[Any], members: Any, others: Any, folder: str) -> list[dict[str, Scores]]:
    """The scores of each attack on membership, of each model.

    LiRA's shadow models are trained on random halves of members and others. They do not depend on the model under attack,
    nor on the mode, so they are trained once.
    """
    from sacroml.attacks import utils
    from sacroml.attacks.likelihood_attack import LIRAAttack
    from sacroml.attacks.qmia_attack import QMIAAttack
    from sacroml.attacks.target import Target
    from sacroml.attacks.worst_case_attack import WorstCaseAttack

    given: dict[str, Any] = {"output_dir": folder, "write_report": False}
    data = {"X_train": members[0], "y_train": members[1], "X_test": others[0], "y_test": others[1]}
    rows, labels = np.vstack([members[0], others[0]]), np.hstack([members[1], others[1]])
    reader = LIRAAttack(**given, n_shadow_models=N_SHADOWS)
    shadow = Target(model=models[0], **data).model.clone()
    utils.train_shadow_models(shadow, rows, labels, len(members[0]), N_SHADOWS, reader.shadow_path)
    outside, inside = reader._get_shadow_signals(rows, labels)
    found = []
    for model in models:
        scores, target = dict[str, Scores](), Target(model=model, **data)
        made = {
            "worst case": WorstCaseAttack(
                **given, n_dummy_reps=0, n_reps=2, sort_probs=False, include_model_correct_feature=True
            ),
            "QMIA": QMIAAttack(**given),
        }
        for name, attack in made.items():
            attack.attack(target)
            scores[name] = read_scores(attack)
        for name, mode in (("LiRA, offline", "offline"), ("LiRA, online", "online-carlini")):
            lira = LIRAAttack(**given, n_shadow_models=N_SHADOWS, mode=mode, fix_variance=mode != "offline")
            likely, n_normal = lira._compute_scores(labels, target.model.predict_proba(rows), outside, inside)
            lira._save_attack_metrics(likely, len(members[0]), len(others[0]), n_normal)
            scores[name] = read_scores(lira)
        found.append(scores)
    return found


def run_learner(learner: Any, *, only_own: bool = False) -> Iterator[Line]:
    """mooring's figure of a learner, then that of each attack of SACRO-ML, unless `only_own`."""
    rows, labels = load_rows()
    third = len(rows) // 3
    name = learner if isinstance(learner, str) else learner.name
    own, attacked = [], []
    for k in range(N_SPLITS):
        order = np.random.default_rng([38, k]).permutation(len(rows))
        members, others, elsewhere = ((rows[part], labels[part]) for part in np.split(order[: 3 * third], 3))
        if isinstance(learner, SumsOfRows):
            attacked_totals = [learner.attack_total(part, members, others, k) for part in (members, elsewhere)]
            own.append(list(zip(*attacked_totals, strict=True)))
        else:
            found = measure_trained_release(
                learner, rows[order[: 2 * third]], labels[order[: 2 * third]], kind="classes", seed=k
            )
            assert found is not None
            own.append([(found.figures[key].value, found.figures[key].control or math.nan) for key in FIGURES])
        if only_own:
            continue
        models = [TrainedByMooring(learner, k).fit(*part) for part in (members, elsewhere)]
        with TemporaryDirectory() as folder:
            attacked.append(attack_all(models, members, others, folder))
    values = np.array(own)
    line = make_line(name, "mooring", values[..., 0], values[..., 1])
    yield replace(line, bounds=learner.bounds) if isinstance(learner, SumsOfRows) else line
    for attack in () if only_own else ATTACKS:
        measured, controls = (np.array([scores[which][attack] for scores in attacked]) for which in (0, 1))
        if np.isfinite(measured).all():
            yield make_line(name, attack, measured, controls)


FIGURES = ("membership_auc", "membership_at_1_percent")


def make_line(learner: str, attack: str, values: Any, controls: Any) -> Line:
    """The means over splits, with the 95 % interval of the mean."""
    intervals = []
    for column in values.T:
        around = student_interval(
            float(column.mean()), float(column.std(ddof=1)) / math.sqrt(len(column)), n=len(column)
        )
        intervals.append((float(column.mean()), around.low, around.high))
    control_auc, control_rate = (float(mean) for mean in np.nanmean(controls, axis=0))
    return Line(learner, attack, intervals[0], intervals[1], control_auc, control_rate)


def load_rows() -> tuple[Any, Any]:
    """The table, scaled to its ranges, in random order."""
    rows, labels = load_breast_cancer(return_X_y=True)
    low, high = rows.min(axis=0), rows.max(axis=0)
    return 2 * (rows - low) / (high - low) - 1, labels.astype(np.int64)


def list_learners() -> list[Any]:
    """Every learner whose model may be delivered."""
    of_rows = [name for name, learner in LEARNERS.items() if learner.delivers]
    return [*of_rows, SumsOfRows(None), SumsOfRows(1.0)]


def is_exceeded(own: Line, other: Line, figure: str) -> bool:
    """Whether an attack's figure, less what its control shows beyond chance, lies above what mooring states.

    That is the upper end of the interval of its own figure, or the bound of ε.
    """
    chance, control = (0.5, other.control_auc) if figure == "auc" else (AT, other.control_rate)
    stated = getattr(own, figure)[2]
    if own.bounds is not None:
        stated = max(stated, own.bounds[0 if figure == "auc" else 1])
    return bool(getattr(other, figure)[0] - max(0.0, control - chance) > stated)


def name_exceeded(lines: Sequence[Line], figure: str) -> str:
    """The attacks that are above mooring's figure by more than its interval."""
    own = {line.learner: line for line in lines if line.attack == "mooring"}
    found = [line for line in lines if line.attack != "mooring" and is_exceeded(own[line.learner], line, figure)]
    return "; ".join(f"{line.attack} on {line.learner}" for line in found) or "none"


def render(lines: Sequence[Line], machine: str) -> str:
    """Return the page."""
    bounds = SumsOfRows(1.0).bounds or (math.nan, math.nan)
    text = [
        "# A second opinion on delivered models",
        "",
        "What SACRO-ML's attacks (sacroml 2.0.1) find in the models that `mooring deliver` may send, beside mooring's own "
        "[membership inference](audit.md#the-model). All figures are lower bounds.",
        "",
        "**Attacks of SACRO-ML above mooring's interval**, less their control's excess over chance. By the rate at 1 % "
        f"false positives: {name_exceeded(lines, 'rate')}. By the area under the curve: {name_exceeded(lines, 'auc')}.",
        "",
        "Of a model, SACRO-ML's attacks see predictions only. mooring's `register` solves the equations that training "
        "solved for the members among all candidates, and so recognises far more, except in forests and under ε. Of "
        "[secure sums](privacy.md), mooring attacks the total, of which the model is a function; ε = 1 bounds every "
        f"attack by a rate of {bounds[1]:.2%} and an area of {bounds[0]:.3f}.",
        "",
        f"Scikit-learn's breast-cancer table, {N_SPLITS} splits, models of 189 rows, 189 members against 189 others, "
        f"{N_SHADOWS} shadow models for LiRA (`python -m benchmarks.second_opinion`; {machine}). Intervals are 95 % over "
        "splits. The control is the same attack on a model trained on other rows. mooring's strongest attack is chosen on "
        "other models than it is measured on (of totals: on the same). Of SACRO-ML's four attacks the strongest by each "
        "figure is shown; `benchmarks/results/second_opinion.json` has all.",
        "",
        "| learner | by | area under the curve | control | TPR @ 1 % FPR | control |",
        "|---|---|---|---|---|---|",
    ]
    for learner in dict.fromkeys(line.learner for line in lines):
        mooring, *others = [line for line in lines if line.learner == learner]
        strongest = {figure: max(others, key=lambda line: getattr(line, figure)[0]) for figure in ("auc", "rate")}
        for name, by_auc, by_rate in (("mooring", mooring, mooring), ("SACRO-ML", strongest["auc"], strongest["rate"])):
            auc, rate = "{:.3f} [{:.3f}, {:.3f}]".format(*by_auc.auc), "{:.1%} [{:.1%}, {:.1%}]".format(*by_rate.rate)
            attacks = ("", "") if by_auc.attack == "mooring" else (f" ({by_auc.attack})", f" ({by_rate.attack})")
            controls = f"{by_auc.control_auc:.3f}", f"{by_rate.control_rate:.1%}"
            cells = (learner, name, auc + attacks[0], controls[0], rate + attacks[1], controls[1])
            text.append(f"| {' | '.join(cells)} |".replace("[-", "[−"))
    return "\n".join([*text, ""])


def main() -> None:
    """Measure everything, and write figures and page; with --own, SACRO-ML's figures of the same models are kept."""
    only_own = "--own" in sys.argv[1:]
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    lines: list[Line] = []
    for learner in list_learners():
        for line in run_learner(learner, only_own=only_own):
            lines.append(line)
            print(asdict(line), flush=True)
    if only_own:
        lines = merge(lines, read_results()[0])
    content = {"machine": described(), "lines": [asdict(line) for line in lines]}
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(render_results(), encoding="utf-8")


def merge(renewed: Sequence[Line], recorded: Sequence[Line]) -> list[Line]:
    """Return the lines on record, with those that were measured again in their places."""
    by_place = {(line.learner, line.attack): line for line in renewed}
    return [by_place.get((line.learner, line.attack), line) for line in recorded]


def read_results() -> tuple[list[Line], dict[str, str]]:
    """Return the lines on record, and the machine that they were measured on."""
    content = json.loads(RESULTS.read_text(encoding="utf-8"))
    plain: list[dict[str, Any]] = [
        {name: tuple(v) if isinstance(v, list) else v for name, v in line.items()} for line in content["lines"]
    ]
    return [Line(**line) for line in plain], content["machine"]


def render_results() -> str:
    """Return the page of the figures on record."""
    lines, machine = read_results()
    return render(lines, describe_machine(machine))


if __name__ == "__main__":
    main()
