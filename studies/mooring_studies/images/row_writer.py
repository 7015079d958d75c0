"""What an image study has computed becomes rows in the store: behind the main thread, for the auditor may take its time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mooring_studies.comparison.results import Row
from mooring_studies.images.deployment import Levels, PreparedDeployment
from mooring_studies.images.execution import BackgroundTask
from mooring_studies.images.leakage import Findings
from mooring_studies.storage.progress import Progress
from mooring_studies.storage.store import ResultStore

Draws = npt.NDArray[np.intp]
Parts = list[tuple[str, Findings, list[Row], list[Row]]]
"""What attacks found, utilities, and the other columns, by method."""


@dataclass(frozen=True, eq=False)
class RowWriter:
    """Where the rows of one deployment with one number of participants go."""

    prepared: PreparedDeployment = field(repr=False)
    store: ResultStore
    progress: Progress
    deployment: int
    """Its number."""
    keep_rebuilt: bool = False
    """Whether to keep the rebuilt rows that pictures are made of."""
    background: BackgroundTask = field(default_factory=BackgroundTask, repr=False)
    """Keeps rows behind the main thread; to be used in a `with`."""

    @property
    def identity(self) -> Row:
        """What all rows have in common."""
        return {
            "deployment": self.deployment,
            "n_participants": self.prepared.deployment.n_participants,
            "identities_each": self.prepared.identities_each,
        }

    def begin(self, what: str, methods: tuple[str, ...], n_draws: int) -> Draws:
        """Begin a stage, and say which of its draws are not in the store."""
        self.background.wait()  # its steps are the last stage's, and one thread at a time adds rows to the store
        done = set(range(n_draws)).intersection(
            *(self.store.done(method=method, **self.identity) for method in methods)
        )
        where = f"deployment {self.identity['deployment']}, {self.identity['n_participants']} participants"
        self.progress.stage(f"{where}: {what}", n_draws)
        self.progress.advance(len(done))
        return np.array([draw for draw in range(n_draws) if draw not in done], dtype=np.intp)

    def now(self, rows: list[Row]) -> None:
        """Keep finished rows."""
        self.store.append(rows)
        self.progress.advance(len(rows))

    def later(self, chunk: Draws, levels: Levels, parts: Parts) -> None:
        """Have the auditor look at what attacks found, and keep the rows: while the next chunk is computed."""

        def finish() -> None:
            rows = []
            for method, findings, utilities, more in parts:
                findings.audit()
                if self.keep_rebuilt:
                    name = f"{rebuilt_name(self.prepared, method)}-{chunk[0]}"
                    self.store.keep(name, {"draws": chunk, **findings.rebuilt})
                for k, d in enumerate(chunk):
                    v, sigma = float(levels.anchor[d]), float(levels.data[d])
                    row = self.row(method, int(d), v, sigma, strong=bool(levels.strong[d]))
                    rows.append(row | utilities[k] | findings.columns[k] | more[k])
            self.store.append(rows)
            self.progress.advance(len(chunk))

        self.background.run(finish)

    def row(self, method: str, draw: int, v: float, sigma: float, *, strong: bool) -> Row:
        """The first columns of a draw's row."""
        noise = {"anchor_noise_scale": v, "data_noise_scale": sigma, "strongest_attacks": strong}
        return {**self.identity, "method": method, "draw": draw, **noise}


def rebuilt_name(prepared: PreparedDeployment, method: str) -> str:
    """Under which name the rebuilt rows of a method are kept, but for the first draw."""
    return f"rebuilt-{prepared.deployment.n_participants}-{prepared.identities_each or 0}-{method}"
