"""Operating points: a mechanism with its settings, as data; and what a plan recommends for a study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from mooring.audit.simulation import Simulation
from mooring.errors import InputError
from mooring.serialization import OpenRecord

if TYPE_CHECKING:
    from mooring.audit.deployment import Deployment


@dataclass(frozen=True)
class Recommendation(OpenRecord):
    """Recommended entries of [mechanism] in a study; each mechanism defines its own, as a frozen dataclass."""

    kind_key: ClassVar[str] = "name"
    name: ClassVar[str] = ""
    """The mechanism's name."""

    @property
    def has_known_noise(self) -> bool:
        """Whether the noise is in the unit of a study."""
        return True


@dataclass(frozen=True)
class OperatingPoint(OpenRecord):
    """A mechanism with its settings: what an audit simulates and attacks.

    A subclass is a frozen dataclass of its settings. It names its `mechanism` and defines `simulate`; everything else has a
    default. `simulate` returns a `RowSimulation`, a `SumSimulation`, or an object of any other class for which
    `mooring.audit.measure_leakage` is registered.
    """

    kind_key: ClassVar[str] = "mechanism"
    mechanism: ClassVar[str] = ""
    """The mechanism's name, by which a result that was written to a file is read back."""
    shares_rows: ClassVar[bool] = True
    """Whether participants upload rows, which attackers try to rebuild, rather than sums over rows."""

    @property
    def mechanism_in_words(self) -> str:
        """The name of the mechanism in a sentence."""
        return self.mechanism

    @property
    def promise(self) -> tuple[float, float] | None:
        """The ε and δ that the mechanism guarantees for adding or removing one row; None without a guarantee."""
        return None

    def state_guarantee(self) -> str:
        """Return sentences on the guarantee; empty for a mechanism that never gives one."""
        return ""

    @property
    def family(self) -> str:
        """The group of points that have the same colour in a chart."""
        return self.mechanism

    @property
    def alignment(self) -> str:
        """How uploads are aligned, as in `Method.alignment`; "none" if they are not."""
        return "none"

    def state_scope(self) -> str:
        """Return a sentence on whom a guarantee protects against; empty without a guarantee."""
        return ""

    def title_with(self, data_noise_scale: float = 0.0) -> str:
        """Return the mechanism and its settings in a few words.

        `data_noise_scale` is σ for the audited rows, for mechanisms whose noise is relative to the size of the rows.
        """
        settings = [f"{setting.name} = {getattr(self, setting.name)}" for setting in fields(self)]
        return ", ".join([self.mechanism, *settings])

    def short_title(self, data_noise_scale: float = 0.0, *, with_components: bool = False) -> str:
        """Return a shorter title, for a table."""
        return self.title_with(data_noise_scale)

    def title_on(self, deployment: Deployment) -> str:
        """Return the title with σ for the rows of a deployment."""
        return self.title_with()

    def settled_for(self, deployment: Deployment) -> OperatingPoint:
        """Return the point after filling in the settings that follow from the number of participants and colluders."""
        return self

    def simulate(self, deployment: Deployment) -> Simulation:
        """Return a simulation of the mechanism with these settings on the rows of a deployment."""
        raise NotImplementedError

    def with_epsilon(self, epsilon: float) -> OperatingPoint:
        """Return the point with this ε; raise an `InputError` if the mechanism gives no guarantee."""
        raise InputError("epsilon", problem=f"{self.mechanism} gives no guarantee.", cure="Choose secure sums.")

    def recommend(self, deployment: Deployment, data_noise_scale: float) -> Recommendation | None:
        """Return the settings of a study at this point; None if the mechanism has no studies.

        `data_noise_scale` is σ for the audited rows.
        """
        return None

    def is_usable_with(self, simulation: Any) -> bool:
        """Return whether a study between organisations may use these settings for the rows of a simulation."""
        return False

    @classmethod
    def read_unknown(cls, name: str, fields: Mapping[str, Any]) -> OperatingPoint:
        """Return a point of a mechanism that is not loaded, with its settings unchanged."""
        return UnknownPoint(name, dict(fields))


@dataclass(frozen=True)
class UnknownPoint(OperatingPoint):
    """A point of a mechanism that is not loaded here, read back from a file."""

    name: str
    settings: dict[str, Any]

    def title_with(self, data_noise_scale: float = 0.0) -> str:
        """Return the mechanism's name and its settings."""
        return ", ".join([self.name, *(f"{name} = {value}" for name, value in self.settings.items())])

    def as_dict(self) -> dict[str, Any]:
        """Return the mechanism and its settings as they were read."""
        return {"mechanism": self.name, **self.settings}
