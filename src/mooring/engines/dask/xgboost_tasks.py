"""Tasks of a worker for boosted trees: loading its share of the rows as a matrix, and training on it.

XGBoost keeps two indices with one byte per number each, whatever the size of the blocks, and a few numbers per row. Numbers
are binned at the same limits on every worker (`mooring.learners.boosted_trees`), so that trees do not depend on which worker
has which rows.
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
    """Return a worker's share of the parts as XGBoost's matrix, read one block at a time.

    Parameters
    ----------
    study, pieces
        The study, and the parts to read.
    task : BoostingTask
        The scaling of rows and the encoding of labels.
    cuts : array
        Limits of the bins of each column.
    """

    def blocks() -> Iterator[tuple[Matrix, npt.NDArray[Any]]]:
        for piece in pieces:
            yield from blocks_of(study, piece)

    return task.load(cuts, blocks)


def train_share(
    matrix: Any, settings: Mapping[str, Any], rounds: int, together: Mapping[str, Any] | None
) -> bytes | None:
    """Train on this worker's share, together with other workers if there are any; one of them returns the model.

    Parameters
    ----------
    matrix : object
        From `load_share`.
    settings : mapping
        XGBoost's parameters.
    rounds : int
        Number of boosting rounds.
    together : mapping or None
        Arguments of XGBoost's communicator; None trains alone.
    """
    from xgboost import collective

    # XGBoost prints a line when it joins the other workers, whatever its verbosity.
    with (
        redirect_stdout(io.StringIO()),
        nullcontext() if together is None else collective.CommunicatorContext(**together),
    ):
        _JOINED[:] = [] if together is None else [tracker_address(together)]
        booster = train_booster(matrix, settings, rounds)
        first = together is None or collective.get_rank() == 0
    return bytes(booster.save_raw("ubj")) if first else None


def tracker_address(together: Mapping[str, Any]) -> str:
    """Return the address of the tracker, which identifies one joint training of workers."""
    return f"{together['dmlc_tracker_uri']}:{together['dmlc_tracker_port']}"


def has_joined(meeting: str) -> bool:
    """Whether this worker has joined the workers of the same training."""
    return meeting in _JOINED
