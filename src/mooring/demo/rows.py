"""The demonstration's tables: scikit-learn's digits, dealt to twenty participants, each in a folder of its own."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

ROWS_EACH = 40
N_PUBLIC = 297
PIXELS = tuple(f"pixel{k}" for k in range(64))
LABEL = "digit"
_EVERYBODY = 20  # fewer participants do not get more rows each


@dataclass(frozen=True)
class Tables:
    """Where everything lies.

    Attributes
    ----------
    folder : Path
        Of the whole demonstration.
    participants : tuple of Path
        One folder each, with rows.csv (to be shared) and new-rows.csv (seen later, to be scored).
    public : Path
        Rows that belong to nobody, for the public projection.
    everything : Path
        All participants' rows, which no real study has in one place; for the audit.
    """

    folder: Path
    participants: tuple[Path, ...]
    public: Path
    everything: Path

    @property
    def names(self) -> tuple[str, ...]:
        """The participants' names."""
        return tuple(folder.name for folder in self.participants)


def write_tables(folder: Path, *, n_participants: int, seed: int) -> Tables:
    """Deal the digits out: forty rows a participant to share, about as many to score later, and public ones."""
    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(digits))
    public, rest = order[:N_PUBLIC], order[N_PUBLIC:]
    rest = rest[np.argsort(digits[rest], kind="stable")]  # class by class, dealt round: everybody has every digit
    tables = Tables(
        folder,
        tuple(folder / f"clinic-{k + 1:02}" for k in range(n_participants)),
        folder / "designer" / "public.csv",
        folder / "auditor" / "everybodys-rows.csv",
    )
    shared = []
    for k, place in enumerate(tables.participants):
        own = rest[k :: max(n_participants, _EVERYBODY)]
        takes_part = np.isin(np.arange(own.size), np.linspace(0, own.size - 1, ROWS_EACH).round().astype(int))
        _write(place / "rows.csv", images[own[takes_part]], digits[own[takes_part]])
        _write(place / "new-rows.csv", images[own[~takes_part]], digits[own[~takes_part]])
        shared.append(own)
    _write(tables.public, images[public], digits[public])
    everybody = np.concatenate(shared)
    _write(tables.everything, images[everybody], digits[everybody])
    return tables


def _write(path: Path, images: npt.NDArray[np.float64], digits: npt.NDArray[np.int64]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*PIXELS, LABEL])
        writer.writerows([*row, digit] for row, digit in zip(images.astype(int).tolist(), digits.tolist(), strict=True))
