"""The sections of a study's file: what each holds, and how it is checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from mooring.errors import InputError
from mooring_studies.settings.noise_ranges import JointRange, NoiseRange
from mooring_studies.settings.toml_table import SpecTable

IMAGE_KINDS = ("digits", "faces", "faces-by-participants")


@dataclass(frozen=True)
class DataSettings:
    """Who takes part with what; a limit of 0 takes all rows.

    Attributes
    ----------
    n_participants : tuple of int
        One number, or several for a study over p.
    identities_each : tuple of pairs
        Allocations of faces: (most participants, identities each). Empty where there are none.
    """

    n_participants: tuple[int, ...] = (10,)
    n_components: int = 0
    n_anchor_rows: int = 0
    projection: Literal["gaussian", "public-svd"] = "gaussian"
    n_train: int = 0
    n_validation: int = 0
    n_test: int = 0
    identities_each: tuple[tuple[int, int], ...] = ()

    def allocations(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """Of each allocation: most participants, identities each, and the p's that fit into it."""
        return [(most, each, tuple(p for p in self.n_participants if p <= most)) for most, each in self.identities_each]


@dataclass(frozen=True)
class NetworkSettings:
    """How the analyst's network is trained."""

    epochs: int = 15
    batch_size: int = 256
    learning_rate: float = 1e-3


@dataclass(frozen=True)
class AuditorSettings:
    """How the auditor's network is trained; 0 rows takes all."""

    epochs: int = 10
    rows: int = 0


@dataclass(frozen=True)
class NoiseSettings:
    """Ranges of noise levels: on private data, on anchors, on both."""

    data: tuple[NoiseRange, ...] = ()
    anchor: tuple[NoiseRange, ...] = ()
    both: tuple[JointRange, ...] = ()


@dataclass(frozen=True)
class AttackSettings:
    """How many draws get the costly attacks beside the paper's: one in so many, spread over the noise levels."""

    every: int = 8


@dataclass(frozen=True)
class SolverSettings:
    """The solver of the alignment."""

    name: Literal["gpm", "accelerated", "spectral"] = "gpm"
    max_iterations: int = 500
    tolerance: float = 1e-7


def read_data(table: SpecTable, kind: str) -> DataSettings:
    """Who takes part with what; an image study must say all of it."""
    images, faces = kind in IMAGE_KINDS, kind in ("faces", "faces-by-participants")
    least = int(images)  # tables and the landscape may leave sizes to their own options
    projection: Any = table.choice("projection", ("gaussian", "public-svd"), "gaussian")
    n_participants = table.wholes("n_participants", None if images else (10,), least=2)
    identities = table.anything("identities_each", None if faces else [])
    settings = DataSettings(
        n_participants=n_participants,
        n_components=table.whole("n_components", None if images else 0, least=least),
        n_anchor_rows=table.whole("n_anchor_rows", None if images else 0, least=least),
        projection=projection,
        n_train=table.whole("n_train", 0),
        n_validation=table.whole("n_validation", 0),
        n_test=table.whole("n_test", 0),
        identities_each=_allocations(identities, max(n_participants)),
    )
    table.finish()
    if settings.n_anchor_rows and settings.n_anchor_rows <= settings.n_components:
        raise InputError(
            "n_anchor_rows of [data]",
            expected=f"more than n_components = {settings.n_components}",
            got=str(settings.n_anchor_rows),
            cure="The paper has four times as many.",
        )
    return settings


def _allocations(value: Any, most: int) -> tuple[tuple[int, int], ...]:
    """A number of identities for everybody, or pairs of most participants and identities each."""
    pairs = [[most, value]] if isinstance(value, int) and not isinstance(value, bool) else value
    fitting = isinstance(pairs, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(type(one) is int and one >= 2 for one in pair)
        for pair in pairs
    )
    if not fitting or (pairs and max(pair[0] for pair in pairs) < most):
        raise InputError(
            "identities_each of [data]",
            expected=f"a number, 2 or more, or pairs of most participants and identities, one of them for {most}",
            got=repr(value),
            cure="Write 99, or [[50, 19], [10, 99]].",
        )
    return tuple((pair[0], pair[1]) for pair in pairs)


def read_network(table: SpecTable) -> NetworkSettings:
    """How the analyst's network is trained."""
    settings = NetworkSettings(
        table.whole("epochs", 15, least=1),
        table.whole("batch_size", 256, least=1),
        table.number("learning_rate", 1e-3, above=0.0),
    )
    table.finish()
    return settings


def read_auditor(table: SpecTable) -> AuditorSettings:
    """How the auditor's network is trained."""
    settings = AuditorSettings(table.whole("epochs", 10, least=1), table.whole("rows", 0))
    table.finish()
    return settings


def read_noise(table: SpecTable) -> NoiseSettings:
    """Ranges of noise levels."""
    settings = NoiseSettings(
        tuple(NoiseRange.read(one, units=("absolute", "rms")) for one in table.tables("data")),
        tuple(NoiseRange.read(one, units=("absolute",)) for one in table.tables("anchor")),
        tuple(JointRange.read(one) for one in table.tables("both")),
    )
    table.finish()
    return settings


def read_attacks(table: SpecTable) -> AttackSettings:
    """How many draws get the attacks beside the paper's."""
    settings = AttackSettings(table.whole("every", 8, least=1))
    table.finish()
    return settings


def read_solver(table: SpecTable) -> SolverSettings:
    """How uploads are aligned."""
    name: Any = table.choice("name", ("gpm", "accelerated", "spectral"), "gpm")
    settings = SolverSettings(
        name, table.whole("max_iterations", 500, least=1), table.number("tolerance", 1e-7, above=0.0)
    )
    table.finish()
    return settings


def read_extra_draws(table: SpecTable) -> int:
    """Draws of each noise in deployments after the first."""
    draws = table.whole("draws", 50, least=1)
    table.finish()
    return draws


def read_stages(table: SpecTable) -> dict[str, float]:
    """Relative times of a step of each stage, by its name."""
    return {name: table.number(name, above=0.0) for name in table.values}
