"""What a worker does for boosted trees: a matrix of its share, and its training.

XGBoost keeps one byte a number for each of two ways to look it up, whatever a share's blocks are, plus some numbers a row.
Numbers are cut at the same places on every worker (`mooring.learners.boosted_trees`), so that trees do not depend on which
worker has which rows.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from typing import Any

import numpy.typing as npt

from mooring.engines.dask.block_tasks import Piece, blocks_of
from mooring.learners.boosted_trees import BoostingTask, Singles, train_booster
from mooring.protocol.messages.study import Study
from mooring.typing import Matrix

_JOINED: list[str] = []


def load_share(study: Study, task: BoostingTask, cuts: Singles, pieces: Sequence[Piece]) -> Any:
    """A worker's share of the parts as XGBoost's matrix, read a block at a time.

    Parameters
    ----------
    study, pieces
        What to read.
    task : BoostingTask
        How rows are scaled and labels are encoded.
    cuts : array
        Of each column, into bins.
    """

    def blocks() -> Iterator[tuple[Matrix, npt.NDArray[Any]]]:
        for piece in pieces:
            yield from blocks_of(study, piece)

    return task.load(cuts, blocks)


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
    from xgboost import collective

    # On joining the others XGBoost prints a line, whatever its verbosity.
    with (
        redirect_stdout(io.StringIO()),
        nullcontext() if together is None else collective.CommunicatorContext(**together),
    ):
        _JOINED[:] = [] if together is None else [tracker_address(together)]
        booster = train_booster(matrix, settings, rounds)
        first = together is None or collective.get_rank() == 0
    return bytes(booster.save_raw("ubj")) if first else None


def tracker_address(together: Mapping[str, Any]) -> str:
    """What tells one meeting of workers from another."""
    return f"{together['dmlc_tracker_uri']}:{together['dmlc_tracker_port']}"


def has_joined(meeting: str) -> bool:
    """Whether this worker has found the others that were told of the same meeting."""
    return meeting in _JOINED
