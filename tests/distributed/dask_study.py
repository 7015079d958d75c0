"""A study whose bundles are written at once, and what the local engine makes of it, for tests of the Dask engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mooring import RigidMap
from mooring.engines.dask import DaskEngine
from mooring.protocol.analyst.intake import Intake, collect
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.exchange_types import GatherOptions
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.analyst.alignment import align_bundles
from mooring.protocol.rotation.analyst.alignment_state import AlignmentState, read_space
from mooring.protocol.rotation.analyst.collaboration_matrix import read_blocks
from tests.protocol.rotation.support import sent
from tests.sites import KEYS, numeric_study


@dataclass(frozen=True, eq=False)
class Made:
    """A study, the keys of its participants, and the folder of their bundles."""

    study: Study
    keys: tuple[SigningKey, ...]
    inbox: Path
    secrets: tuple[RigidMap, ...]


def make(
    folder: Path,
    *,
    p: int = 5,
    n: int = 400,
    h: int = 6,
    r: int = 24,
    kind: str = "classes",
    method: str = "aa-i-gdp-anchor-noise",
    seed: int = 0,
    whom: Sequence[int] | None = None,
) -> Made:
    """Return p bundles of n rows each, or those of some participants; the label follows from two of the columns."""
    study = numeric_study(p, h, r, kind=kind, method=method)
    folder.mkdir(exist_ok=True)
    sites = sent(study, folder / "inbox", whom, n=n, seed=seed)
    return Made(study, KEYS[:p], folder / "inbox", tuple(site.secret for site in sites))


class Matrix(NamedTuple):
    """A collaboration matrix, whole: whose each row is, the rows, and their labels."""

    names: list[str]
    rows: np.ndarray
    labels: np.ndarray | None


def matrix(study: Study, folder: Path) -> Matrix:
    """The collaboration matrix of a work folder."""
    blocks = list(read_blocks(folder, study, read_space(folder, study)))
    names = [name for name, rows, _ in blocks for _ in range(len(rows))]
    labels = None if study.label.kind == "none" else np.concatenate([block for _, _, block in blocks])
    return Matrix(names, np.concatenate([rows for _, rows, _ in blocks]), labels)


def aligned_locally(made: Made, folder: Path, **options: Any) -> AlignmentState:
    """What the local engine makes of the bundles."""
    return align_bundles(made.study, collect(made.study, made.inbox, folder).bundles, folder, **options)


def same_arrays(first: AlignmentState, second: AlignmentState) -> bool:
    """Whether two alignments are the same, bit by bit."""
    return all(
        np.array_equal(getattr(first, name), getattr(second, name))
        for name in ("orthogonals", "means", "template", "origin")
    )


class OnDask(NamedTuple):
    """What a Dask engine collected and aligned."""

    intake: Intake
    space: AlignmentState
    reduced: bool
    parts_kept: int


def align_on_dask(
    client: Any,
    study: Study,
    source: str | Path,
    folder: Path,
    *,
    mode: Any = "first",
    certify: bool = True,
    on_intake: Callable[[Intake], Any] = lambda intake: None,
    writing: Any = None,
    **settings: Any,
) -> OnDask:
    """Collect and align with one engine; `on_intake` is called in between."""
    engine = DaskEngine(client, **settings)
    intake = engine.collect(study, source, folder)
    on_intake(intake)
    engine.gather(study, intake.bundles, folder, GatherOptions(mode, certify, progress=writing))
    return OnDask(intake, read_space(folder, study), engine.reduced, engine.parts_kept)
