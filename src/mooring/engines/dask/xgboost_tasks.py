"""What a worker does for boosted trees: rows that say where numbers may be cut, a matrix of its share, and its training.

XGBoost keeps one byte a number for each of two ways to look it up, whatever a share's blocks are, plus some numbers a row.
Numbers are cut at the same places on every worker, so that trees do not depend on how rows are shared out. Left to itself,
XGBoost would cut at numbers that occur in the rows, and so write them into the model; here a cut is the mean of several.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.engines.dask.block_tasks import Features, Piece, blocks_of
from mooring.learners.boosted_trees import to_float32
from mooring.protocol.messages.study import Study
from mooring.typing import Matrix

BINS = 256
"""Steps a number may be cut into: with more, a bin would not fit into one byte."""
TOGETHER = 10
"""Rows at least of whose numbers a cut is the mean."""
Singles = npt.NDArray[np.float32]
_JOINED: list[str] = []


@dataclass(frozen=True, eq=False)
class CutRows:
    """An even share of all rows, of shape (drawn, h), and the fold that each is left out in."""

    folds: npt.NDArray[np.int64]
    rows: Singles

    def cuts(self, fold: int | None) -> Singles:
        """Where numbers may be cut, by others' rows, or by everybody's for None: the columns of what this returns.

        Each is the mean of numbers that are next to each other in size, so that no limit of a tree is anybody's number.
        """
        rows = np.sort(self.rows if fold is None else self.rows[self.folds != fold], axis=0)
        n_groups = min(BINS, max(1, len(rows) // TOGETHER), len(rows))
        begins = np.arange(n_groups) * len(rows) // n_groups
        sizes = np.diff(begins, append=len(rows))
        return np.asarray((np.add.reduceat(rows, begins, axis=0, dtype=np.float64) / sizes[:, None]).astype(np.float32))


def load_share(
    study: Study,
    features: Features,
    cuts: Singles,
    pieces: Sequence[Piece | tuple[Matrix, npt.NDArray[Any]]],
    classes: npt.NDArray[np.int64] | None,
    unit: tuple[float, float] = (0.0, 1.0),
) -> Any:
    """A worker's share of the parts as XGBoost's matrix, read a block at a time; numbers to predict in their own unit.

    Parameters
    ----------
    study, features, pieces
        What to read, or rows and labels that are here, and how rows are scaled.
    cuts : array
        Of each column, into bins.
    classes : integers or None
        None for a number.
    unit : tuple, optional
        (mean, spread) of numbers.
    """
    import xgboost

    def blocks() -> Iterator[tuple[Singles, npt.NDArray[Any]]]:
        for piece in pieces:
            for rows, labels in [piece] if isinstance(piece, tuple) else blocks_of(study, piece):
                told = (labels - unit[0]) / unit[1] if classes is None else np.searchsorted(classes, labels)
                yield to_float32(rows, features.scale), told

    with xgboost.config_context(verbosity=0):
        like = xgboost.QuantileDMatrix(cuts, max_bin=BINS, nthread=1)
        return xgboost.QuantileDMatrix(_one_by_one(blocks), max_bin=BINS, nthread=1, ref=like)


def train_share(
    matrix: Any, settings: Mapping[str, Any], rounds: int, together: Mapping[str, Any] | None
) -> bytes | None:
    """Train on this worker's share, with others if `together` says how to reach them; one of them returns the model.

    Parameters
    ----------
    matrix : object
        From `load_share`.
    settings : mapping
        XGBoost's parameters.
    rounds : int
        Of boosting.
    together : mapping or None
        Arguments of XGBoost's communicator; None trains alone.
    """
    import xgboost
    from xgboost import collective

    with suppress(AttributeError):  # what XGBoost says goes to Python's output in threads that asked for it only
        xgboost.core._LIB.XGBRegisterLogCallback(xgboost.core._LIB.callback)
    with (
        redirect_stdout(io.StringIO()),  # on joining the others it says so, whatever its verbosity
        xgboost.config_context(verbosity=0),
        nullcontext() if together is None else collective.CommunicatorContext(**together),
    ):
        _JOINED[:] = [] if together is None else [tracker_address(together)]
        booster = xgboost.train(dict(settings), matrix, rounds, verbose_eval=False)
        first = together is None or collective.get_rank() == 0
    return bytes(booster.save_raw("ubj")) if first else None


def tracker_address(together: Mapping[str, Any]) -> str:
    """What tells one meeting of workers from another."""
    return f"{together['dmlc_tracker_uri']}:{together['dmlc_tracker_port']}"


def has_joined(meeting: str) -> bool:
    """Whether this worker has found the others that were told of the same meeting."""
    return meeting in _JOINED


def _one_by_one(blocks: Callable[[], Iterator[tuple[Singles, npt.NDArray[Any]]]]) -> Any:
    """What XGBoost asks for the next block, several times over."""
    import xgboost

    class Blocks(xgboost.DataIter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._left = blocks()

        def next(self, input_data: Callable[..., None]) -> bool:
            found = next(self._left, None)
            if found is None:
                return False
            rows, labels = found
            input_data(data=rows, label=labels)
            return True

        def reset(self) -> None:
            self._left = blocks()

    return Blocks()
