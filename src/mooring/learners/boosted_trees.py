"""Boosted trees by XGBoost: settings, the thresholds of splits, and training on rows in memory.

XGBoost would split at numbers that occur in the rows, and thereby write them into the model; here every threshold is the
mean of several numbers. The Dask engine (`mooring.engines.dask`), which adds up sums over workers, uses the same thresholds,
settings and labels.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError, MissingExtraError
from mooring.learners.fitted import Fitted, FittedModel, find_class_shares, find_scale, require_labelled_rows
from mooring.learners.models import MOST_TREES, Kind, LinearFunction, Model, ModelSpec
from mooring.learners.trees import lay_out_trees, read_xgboost
from mooring.typing import Labels, Matrix, Vector

ROUNDS, FEWEST_ROUNDS = 200, 20
BINS = 256
"""Maximum number of bins of a column; with more, a bin would not fit into one byte."""
TOGETHER = 10
"""Minimum number of rows whose mean is a threshold, unless there are fewer rows."""
_DEPTH, _RATE = 6, 0.1

Singles = npt.NDArray[np.float32]


def require_xgboost() -> Any:
    """Return the package xgboost, or raise an error that says how to install it."""
    try:
        import xgboost
    except ImportError:
        raise MissingExtraError(needed_for="The learner 'xgboost'", package="xgboost", extra="xgboost") from None
    return xgboost


@dataclass(frozen=True, eq=False)
class BoostingTask:
    """What boosted trees predict, and the units in which they are given rows and labels."""

    n_inputs: int
    scale: float
    """Rows are divided by this number."""
    classes: npt.NDArray[np.int64] | None
    """The classes that occur; None for a numeric outcome."""
    class_shares: Vector
    """The share of each of these classes among the rows; 1 for a numeric outcome."""
    centre: float = 0.0
    unit: float = 1.0
    """XGBoost is given a numeric outcome minus `centre`, divided by `unit`, because it ignores gains below 10⁻⁶ and cannot
    represent squares above 10³⁸."""

    @classmethod
    def describe(cls, rows: Matrix, labels: Labels, *, kind: Kind) -> BoostingTask:
        """Return the task that fits these rows and labels."""
        shares = find_class_shares(labels, kind)
        if kind == "classes":
            return cls(rows.shape[1], find_scale(rows), np.unique(labels).astype(np.int64), shares)
        mean, deviation = float(labels.mean(dtype=np.float64)), float(labels.std(dtype=np.float64))
        return cls(rows.shape[1], find_scale(rows), None, shares, mean, deviation or 1.0)

    @property
    def n_classes(self) -> int:
        """The number of classes that occur; 0 for a number."""
        return 0 if self.classes is None else int(self.classes.size)

    @property
    def n_rounds(self) -> int:
        """The number of boosting rounds; it is lower with many classes, since each class needs one tree per round."""
        most = MOST_TREES // (self.n_classes if self.n_classes > 2 else 1)
        if most < FEWEST_ROUNDS:
            raise InputError(
                "learner",
                expected=f"a learner for more than {MOST_TREES // FEWEST_ROUNDS} classes",
                got="xgboost, which makes one tree per class and round",
                cure="Choose 'random-fourier' or 'linear'.",
            )
        return min(ROUNDS, most)

    def settings(self, seed: int) -> dict[str, Any]:
        """Return XGBoost's settings. Rows are not subsampled, since the model must not depend on the workers' shares."""
        objective: dict[str, Any] = {"objective": "reg:squarederror"}
        if self.classes is not None:
            objective = {"objective": "binary:logistic", "base_score": 0.5}
        if self.n_classes > 2:
            objective = {"objective": "multi:softprob", "base_score": 0.5, "num_class": self.n_classes}
        return {
            **objective,
            "tree_method": "hist",
            "max_bin": BINS,
            "max_depth": _DEPTH,
            "eta": _RATE,
            "nthread": 1,
            "seed": seed,
            "verbosity": 0,
            "disable_default_eval_metric": True,
        }

    def scale_rows(self, rows: Matrix) -> Singles:
        """Return rows in the units and the precision that XGBoost uses."""
        return np.asarray((rows / np.float64(self.scale)).astype(np.float32))

    def encode_labels(self, labels: Labels) -> Labels:
        """Return labels for XGBoost: standardised numbers, or the index of each class among those that occur."""
        if self.classes is None:
            return np.asarray((labels - self.centre) / self.unit)
        return np.searchsorted(self.classes, labels)

    def load(self, cuts: Singles, blocks: Callable[[], Iterable[tuple[Matrix, Labels]]]) -> Any:
        """Return XGBoost's matrix of blocks of rows and labels.

        `cuts` are the thresholds from `find_cuts`. `blocks` is called several times and must yield the same blocks each
        time.
        """
        xgboost = require_xgboost()

        def encoded() -> Iterator[tuple[Singles, Labels]]:
            for rows, labels in blocks():
                yield self.scale_rows(rows), self.encode_labels(labels)

        with xgboost.config_context(verbosity=0):
            like = xgboost.QuantileDMatrix(cuts, max_bin=BINS, nthread=1)
            return xgboost.QuantileDMatrix(_iterate_blocks(encoded), max_bin=BINS, nthread=1, ref=like)

    def to_model(self, booster: bytes) -> Model:
        """Return the model of a saved booster; an empty one gives a model that predicts 0 or the first class."""
        if self.classes is None:
            spec, codes = ModelSpec(self.n_inputs, 0), np.zeros(1, dtype=np.int32)
        else:
            spec, codes = ModelSpec(self.n_inputs, int(self.classes.max()) + 1), self.classes.astype(np.int32)
        if not booster or self.n_classes == 1:
            constant = LinearFunction(np.zeros((self.n_inputs, 1)), np.zeros(1))
            return Model(spec, constant, self._link, codes[:1], self.class_shares[:1])
        saved = (
            require_xgboost().Booster({"nthread": 1, "verbosity": 0}, model_file=bytearray(booster)).save_raw("json")
        )
        trees, outputs, base = read_xgboost(bytes(saved), self.scale)
        if self.classes is None:
            intercepts = self.centre + self.unit * base
            function = lay_out_trees(trees, outputs, intercepts=intercepts, divisor=1 / self.unit)
            return Model(spec, function, "none", codes, self.class_shares)
        if self.n_classes == 2:  # XGBoost only has a score for the second class
            outputs, base = [1] * len(trees), np.r_[0.0, base]
        return Model(spec, lay_out_trees(trees, outputs, intercepts=base), "softmax", codes, self.class_shares)

    @property
    def _link(self) -> Any:
        return "none" if self.classes is None else "softmax"


def find_cuts(rows: Singles) -> Singles:
    """Return the thresholds of each column, of shape (cuts, h).

    The numbers of a column are sorted and divided into groups of at least `TOGETHER`, or one group if there are fewer; a
    threshold is the mean of a group, so that no threshold of a tree is the number of a single row.
    """
    rows = np.sort(rows, axis=0)
    n_groups = min(BINS, max(1, len(rows) // TOGETHER), len(rows))
    starts = np.arange(n_groups) * len(rows) // n_groups
    sizes = np.diff(starts, append=len(rows))
    return np.asarray((np.add.reduceat(rows, starts, axis=0, dtype=np.float64) / sizes[:, None]).astype(np.float32))


def train_booster(matrix: Any, settings: Mapping[str, Any], n_rounds: int) -> Any:
    """Return the booster that XGBoost trains on a matrix, without any output to the terminal."""
    xgboost = require_xgboost()
    with suppress(AttributeError):  # XGBoost redirects its messages to Python only in threads that register for it
        xgboost.core._LIB.XGBRegisterLogCallback(xgboost.core._LIB.callback)
    with redirect_stdout(io.StringIO()), xgboost.config_context(verbosity=0):
        return xgboost.train(dict(settings), matrix, n_rounds, verbose_eval=False)


@dataclass(frozen=True)
class XGBoostLearner:
    """Boosted trees by XGBoost, which the extra `xgboost` installs."""

    name: ClassVar[str] = "xgboost"
    description: ClassVar[str] = "boosted trees, by XGBoost"
    delivers: ClassVar[bool] = True
    automatic: ClassVar[bool] = False
    distributed: ClassVar[bool] = True

    def fit(self, rows: Matrix, labels: Labels, *, kind: Kind, seed: int) -> Fitted:
        """Train on rows in memory."""
        require_xgboost()
        require_labelled_rows(rows, labels, kind)
        task = BoostingTask.describe(rows, labels, kind=kind)
        booster = b""
        if task.n_classes != 1:
            matrix = task.load(find_cuts(task.scale_rows(rows)), lambda: [(rows, labels)])
            booster = bytes(train_booster(matrix, task.settings(seed), task.n_rounds).save_raw("ubj"))
        return FittedModel(self.name, task.to_model(booster))


def _iterate_blocks(blocks: Callable[[], Iterator[tuple[Singles, Labels]]]) -> Any:
    """Return the iterator from which XGBoost reads all blocks, several times."""
    xgboost = require_xgboost()

    class Blocks(xgboost.DataIter):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self._left = blocks()

        def next(self, input_data: Callable[..., None]) -> bool:
            block = next(self._left, None)
            if block is None:
                return False
            rows, labels = block
            input_data(data=rows, label=labels)
            return True

        def reset(self) -> None:
            self._left = blocks()

    return Blocks()
