"""Operating points: a mechanism with its settings, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from mooring.audit.simulation import Simulation
from mooring.serialization import OpenRecord

if TYPE_CHECKING:
    from mooring.audit.deployment import Deployment


@dataclass(frozen=True)
class OperatingPoint(OpenRecord):
    """A mechanism with its settings: what an audit simulates and attacks.

    A subclass is a frozen dataclass of its settings. It names its `mechanism` and defines `simulate`; everything else has a
    default. The simulation that it returns is a `RowSimulation`, a `SumSimulation`, or of a class of its own for which
    `mooring.audit.measure_leakage` is registered.
    """

    kind_key: ClassVar[str] = "mechanism"
    mechanism: ClassVar[str] = ""
    """The mechanism's name, by which a result that was written to a file is read back."""
    shares_rows: ClassVar[bool] = True
    """Whether rows leave, which attackers try to rebuild, rather than sums over them."""

    @property
    def promise(self) -> tuple[float, float] | None:
        """The ε and δ that the mechanism guarantees for adding or removing one row; None without a guarantee."""
        return None

    def state_guarantee(self) -> str:
        """What the mechanism guarantees, in sentences; empty for one that never guarantees anything."""
        return ""

    @property
    def family(self) -> str:
        """What points of one colour in a chart have in common."""
        return self.mechanism

    @property
    def alignment(self) -> str:
        """How uploads are aligned, as `Method.alignment` names it; "none" where they are not."""
        return "none"

    def state_scope(self) -> str:
        """Against whom a guarantee holds, in a sentence; empty without one."""
        return ""

    def title_with(self, data_noise_scale: float = 0.0) -> str:
        """The mechanism and its settings, in a few words.

        `data_noise_scale` is σ on the rows at hand, for mechanisms whose noise is relative to them.
        """
        settings = [f"{setting.name} = {getattr(self, setting.name)}" for setting in fields(self)]
        return ", ".join([self.mechanism, *settings])

    def short_title(self, data_noise_scale: float = 0.0, *, with_components: bool = False) -> str:
        """As `title_with`, for a table."""
        return self.title_with(data_noise_scale)

    def title_on(self, deployment: Deployment) -> str:
        """As `title_with`, for the rows of a deployment."""
        return self.title_with()

    def settled_for(self, deployment: Deployment) -> OperatingPoint:
        """The same point with those settings filled in that follow from who takes part."""
        return self

    def simulate(self, deployment: Deployment) -> Simulation:
        """Play every participant and the analyst with these settings on the rows of a deployment."""
        raise NotImplementedError

    def is_usable_with(self, simulation: Any) -> bool:
        """Return whether a study between organisations may have these settings with the rows of a simulation."""
        return False

    @classmethod
    def read_unknown(cls, name: str, fields: Mapping[str, Any]) -> OperatingPoint:
        """Keep the settings of a mechanism that is not loaded here as they are."""
        return UnknownPoint(name, dict(fields))


@dataclass(frozen=True)
class UnknownPoint(OperatingPoint):
    """A point of a mechanism that is not loaded here, read back from a file."""

    name: str
    settings: dict[str, Any]

    def title_with(self, data_noise_scale: float = 0.0) -> str:
        """The mechanism's name and its settings."""
        return ", ".join([self.name, *(f"{name} = {value}" for name, value in self.settings.items())])

    def as_dict(self) -> dict[str, Any]:
        """What was read."""
        return {"mechanism": self.name, **self.settings}
