"""The contract of a learner."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.audit.sums.simulation import simulate_sums
from mooring.errors import InputError
from mooring.learners import Fitted, Kind, Learner, LearnerLike, Model, resolve_learner
from mooring.learners.models import ModelSpec
from mooring.learners.registry import SUM_LEARNERS, SumLearner
from mooring.protocol.messages.model import read_model, write_model
from mooring.typing import Labels, Matrix

_N_ROWS, _N_COLUMNS, _SEED = 60, 3, 0
_SAME_NUMBERS = 1e-6


def check_learner(learner: LearnerLike | SumLearner) -> None:
    """Check that a learner keeps the contract that audits, training and delivery rely on.

    The learner is fitted to small tables with one, two and five classes and with a number. It must predict labels of the
    right kind, and the same labels again for the same seed. The model that it delivers must consist of arrays that hold no
    row, predict what the learner predicts, and come back from a file unchanged. Rows and labels that do not fit must be
    refused. A learner of sums is trained on totals of two participants, with and without noise; its models must keep the
    same rules.

    Parameters
    ----------
    learner : str, Learner or SumLearner
        The name of a registered learner, of rows or of sums, or a learner object.

    Raises
    ------
    AssertionError
        If the learner breaks the contract; the message names the rule.

    Examples
    --------
    >>> from mooring.testing import check_learner
    >>> check_learner("linear")
    """
    of_sums = SUM_LEARNERS.get(learner) if isinstance(learner, str) else learner
    if isinstance(of_sums, SumLearner):
        _check_sum_learner(of_sums)
        return
    assert not isinstance(learner, SumLearner)
    resolved = resolve_learner(learner)
    _check_attributes(resolved)
    for kind, n_classes in (("classes", 1), ("classes", 2), ("classes", 5), ("number", 0)):
        rows, labels = _draw_table(n_classes)
        fitted = resolved.fit(rows, labels, kind=kind, seed=_SEED)  # type: ignore[arg-type]
        _check_predictions(resolved, fitted, rows, labels, n_classes)
        again = resolved.fit(rows, labels, kind=kind, seed=_SEED).predict(rows)  # type: ignore[arg-type]
        _require(np.array_equal(fitted.predict(rows), again), resolved, "predict the same for the same seed")
        _check_model(resolved, fitted, rows, n_classes)
    _check_refusals(resolved)


def _require(is_kept: bool | np.bool_, learner: Learner | SumLearner, rule: str) -> None:
    if not is_kept:
        raise AssertionError(f"The learner {learner.name!r} must {rule}.")


def _check_sum_learner(learner: SumLearner) -> None:
    for name in ("name", "description"):
        text = getattr(learner, name)
        _require(isinstance(text, str) and bool(text.strip()), learner, f"have a {name} in words")
    _require(bool(learner.kinds), learner, "predict classes, a number or both")
    for (kind, n_classes), privacy in product((("classes", 2), ("classes", 5), ("number", 0)), (None, 8.0)):
        if kind in learner.kinds:
            _check_sum_model(learner, n_classes, privacy)


def _check_sum_model(learner: SumLearner, n_classes: int, privacy: float | None) -> None:
    """Check the model of the total of two participants; numbers to predict lie between −1 and 1."""
    rows, labels = _draw_table(n_classes)
    labels = labels if n_classes else labels / np.abs(labels).max()
    parts, outcomes = (rows[::2], rows[1::2]), (labels[::2], labels[1::2])
    values = np.arange(n_classes) if n_classes else np.array([-1.0, 1.0])
    rng, by_class = np.random.default_rng(_SEED), learner.by_class
    total = simulate_sums(parts, outcomes, privacy=privacy, label_values=values, rng=rng, by_class=by_class)
    fitted, phi = learner.train(total.sums, shrink=True), total.feature_map.apply(rows)
    predicted = fitted.predict(phi)
    _require(predicted.shape == (len(rows),), learner, "predict one value per row")
    _require(bool(np.isfinite(predicted).all()), learner, "predict finite numbers")
    _require(not n_classes or set(predicted) <= set(range(n_classes)), learner, "predict only known classes")
    again = learner.train(total.sums, shrink=True).predict(phi)
    _require(np.array_equal(predicted, again), learner, "predict the same for the same total")
    spec = ModelSpec(_N_COLUMNS, n_classes, total.feature_map, None if n_classes else (-1.0, 1.0))
    model = fitted.to_model(spec)
    arrays = [getattr(model.function, name) for name in model.function.ARRAYS]
    _require(all(_is_numeric(array) for array in arrays), learner, "deliver arrays of finite numbers only")
    _require(
        np.allclose(model.predict(rows), predicted, rtol=0, atol=_SAME_NUMBERS),
        learner,
        "deliver a model that agrees with it",
    )
    _check_file(learner, model, rows)


def _draw_table(n_classes: int) -> tuple[Matrix, Labels]:
    """Return rows, and labels that follow from them: classes from 0, or numbers for 0 classes."""
    rng = np.random.default_rng(_SEED)
    rows = 3 * rng.standard_normal((_N_ROWS, _N_COLUMNS)).astype(np.float32).astype(np.float64) + 1
    signal = rows[:, 0] + 0.5 * rows[:, 1] ** 2
    if n_classes == 0:
        return rows, 100 + 7 * signal
    return rows, np.digitize(signal, np.quantile(signal, np.arange(1, n_classes) / n_classes))


def _check_attributes(learner: Learner) -> None:
    for name in ("name", "description"):
        text = getattr(learner, name)
        _require(isinstance(text, str) and bool(text.strip()), learner, f"have a {name} in words")
    for name in ("delivers", "automatic", "distributed"):
        _require(isinstance(getattr(learner, name), bool), learner, f"have True or False as its {name!r}")
    _require(learner.delivers or not learner.automatic, learner, "deliver its model if 'auto' may choose it")


def _check_predictions(learner: Learner, fitted: Fitted, rows: Matrix, labels: Labels, n_classes: int) -> None:
    kind: Kind = "classes" if n_classes else "number"
    _require(
        fitted.learner == learner.name and fitted.kind == kind, learner, "state its name and kind once it is fitted"
    )
    predicted = fitted.predict(rows)
    _require(predicted.shape == (len(rows),), learner, "predict one value per row")
    if kind == "number":
        _require(bool(np.isfinite(predicted).all()), learner, "predict finite numbers")
        _require(fitted.probabilities(rows, 0) is None, learner, "give no probabilities if it predicts a number")
        return
    _require(set(predicted) <= set(labels), learner, "predict classes that it has seen")
    shares = fitted.probabilities(rows, n_classes + 1)
    if shares is None:
        return
    _require(shares.shape == (len(rows), n_classes + 1), learner, "give a probability for each class asked for")
    is_proper = bool((shares >= 0).all()) and np.allclose(shares.sum(axis=1), 1)
    _require(is_proper, learner, "give probabilities that are not negative and add up to one")
    _require(not shares[:, -1].any(), learner, "give no probability to a class that it has not seen")


def _check_model(learner: Learner, fitted: Fitted, rows: Matrix, n_classes: int) -> None:
    if not learner.delivers:
        if n_classes != 1:  # with one class, the model holds only the class
            _require(_is_refused(fitted.to_model), learner, "refuse to deliver a model that would hold rows")
        return
    model = fitted.to_model(n_classes)
    arrays = {name: getattr(model.function, name) for name in model.function.ARRAYS}
    _require(all(_is_numeric(array) for array in arrays.values()), learner, "deliver arrays of finite numbers only")
    _require(not any(_holds_row(array, rows) for array in arrays.values()), learner, "deliver a model without rows")
    new = np.concatenate([rows, np.random.default_rng(1).uniform(-9, 9, (200, _N_COLUMNS))])
    expected, shares = fitted.predict(new), fitted.probabilities(new, n_classes)
    predicted, probabilities = model.predict_with_probabilities(new)
    if n_classes:
        _require(np.array_equal(expected, predicted), learner, "deliver a model that predicts the same classes")
    else:
        is_same = np.allclose(predicted, expected, rtol=_SAME_NUMBERS, atol=0)
        _require(is_same, learner, "deliver a model that predicts the same numbers")
    _require(
        (shares is None) == (probabilities is None), learner, "deliver a model with probabilities where it has them"
    )
    if shares is not None and probabilities is not None:
        is_same = np.allclose(shares, probabilities, rtol=0, atol=_SAME_NUMBERS)
        _require(is_same, learner, "deliver a model that gives the same probabilities")
    _check_file(learner, model, new)


def _check_file(learner: Learner | SumLearner, model: Model, rows: Matrix) -> None:
    with TemporaryDirectory() as folder:
        digest = write_model(Path(folder) / "model", model)
        again, read_digest = read_model(Path(folder) / "model", lambda _: model.spec)
    _require(digest == read_digest, learner, "have a model whose file is read as it was written")
    for before, after in zip(
        model.predict_with_probabilities(rows), again.predict_with_probabilities(rows), strict=True
    ):
        is_same = after is None if before is None else np.array_equal(before, after)  # type: ignore[arg-type]
        _require(is_same, learner, "have a model that predicts the same after it was written to a file")


def _check_refusals(learner: Learner) -> None:
    rows, labels = _draw_table(2)
    bad = {
        "rows that are not a table": (rows[:, 0], labels),
        "rows that are not finite": (np.where(rows == rows[0, 0], np.nan, rows), labels),
        "fewer labels than rows": (rows, labels[1:]),
        "no rows": (rows[:0], labels[:0]),
    }
    for (what, (bad_rows, outcomes)), kind in product(bad.items(), ("classes", "number")):
        is_refused = _is_refused(lambda g=bad_rows, o=outcomes, k=kind: learner.fit(g, o, kind=k, seed=_SEED))
        _require(is_refused, learner, f"refuse {what} with an InputError")
    is_refused = _is_refused(lambda: learner.fit(rows, np.where(labels, np.inf, 1.0), kind="number", seed=_SEED))
    _require(is_refused, learner, "refuse numbers that are not finite with an InputError")


def _is_refused(call: Any) -> bool:
    try:
        call()
    except InputError:
        return True
    return False


def _is_numeric(array: object) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind in "fi" and bool(np.isfinite(array).all())


def _holds_row(array: npt.NDArray[Any], rows: Matrix) -> bool:
    """Return whether a row or column of an array is one of the rows, up to a factor."""
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for held in (array, array.T):
        if held.ndim == 2 and held.shape[1] == rows.shape[1]:
            lengths = np.linalg.norm(held, axis=1, keepdims=True)
            if (np.abs(held / np.where(lengths > 0, lengths, 1) @ units.T) > 1 - 1e-9).any():
                return True
    return False
