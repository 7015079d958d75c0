"""The operating point of rotation: a method of the paper with its sizes and noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mooring.audit.operating_points import OperatingPoint, Recommendation
from mooring.audit.rotation.simulation import RowSimulation, SimulationSettings, simulate
from mooring.mechanisms.rotation.methods import METHODS, Method, get_method
from mooring.serialization import Count

if TYPE_CHECKING:
    from mooring.audit.deployment import Deployment

_SHORT = {
    "c-gdp": "C-GDP",
    "c-gdp-data-noise": "C-GDP",
    "i-gdp": "I-GDP",
    "aa-i-gdp": "AA-I-GDP",
    "aa-i-gdp-data-noise": "data",
    "aa-i-gdp-anchor-noise": "anchor",
    "aa-i-gdp-both-noise": "both",
}


@dataclass(frozen=True)
class RecommendedRotation(Recommendation):
    """Recommended entries of [mechanism] in a study of rotation."""

    name: ClassVar[str] = "rotation"

    method: str
    n_components: Count | None
    """None without a projection: the number then follows from the study's columns."""
    n_anchor_rows: Count
    data_noise_scale: float | None
    """None if its unit in a study is not known, because the rows were not encoded by a study."""
    anchor_noise_scale: float
    projection: str

    @property
    def has_known_noise(self) -> bool:
        """Whether the noise is in the unit of a study."""
        return self.data_noise_scale is not None


@dataclass(frozen=True)
class RotationPoint(OperatingPoint):
    """A method of the paper with its sizes and noise."""

    mechanism: ClassVar[str] = "rotation"

    method: str | Method
    """A name in `mooring.METHODS`, or a method."""
    n_components: int
    """h."""
    n_anchor_rows: int
    """r; methods without an anchor ignore it."""
    anchor_noise_scale: float = 0.0
    """v."""
    data_noise_level: float = 0.0
    """λ: private-data noise σ in units of s, as in the paper. s is the root mean square of the entries of all projected
    training rows, which are not centred."""

    def __post_init__(self) -> None:
        method = self.described
        for name, used in (("anchor_noise_scale", method.anchor_noise), ("data_noise_level", method.data_noise)):
            method.require_scale(name, getattr(self, name), used=used)

    @property
    def described(self) -> Method:
        """The description of the method."""
        return get_method(self.method)

    @property
    def family(self) -> str:
        """The title of the method."""
        return self.described.title

    @property
    def alignment(self) -> str:
        """How uploads are aligned."""
        return self.described.alignment

    def recommend(self, deployment: Deployment, data_noise_scale: float) -> RecommendedRotation:
        """Return the settings of a study at this point."""
        projection = deployment.projection_onto(self.n_components).kind
        return RecommendedRotation(
            method=self.described.name,
            n_components=None if projection == "none" else self.n_components,
            n_anchor_rows=self.n_anchor_rows,
            data_noise_scale=deployment.settings.noise_unit.in_study(data_noise_scale),
            anchor_noise_scale=self.anchor_noise_scale,
            projection=projection,
        )

    def is_usable_with(self, simulation: Any) -> bool:
        """Return whether a study may use this method: it must be in `METHODS` and align uploads by an anchor."""
        return self.described.uses_anchor and METHODS.get(self.described.name) == self.described

    def title_with(self, data_noise_scale: float = 0.0) -> str:
        """Return the method and its noise in a few words; σ is given for the audited rows."""
        method = self.described
        noises = [f"σ = {data_noise_scale:.3g}"] if method.data_noise else []
        noises += [f"v = {self.anchor_noise_scale:.3g}"] if method.anchor_noise else []
        return ", ".join([method.title, *noises])

    def short_title(self, data_noise_scale: float = 0.0, *, with_components: bool = False) -> str:
        """Return a shorter title, for a table, with r if it is not 4 h, and h if `with_components` is true."""
        method, h = self.described, self.n_components
        parts = [_SHORT.get(method.name, method.name)]
        parts += [f"σ={data_noise_scale:.3g}"] if method.data_noise else []
        parts += [f"v={self.anchor_noise_scale:.3g}"] if method.anchor_noise else []
        parts += [f"r={self.n_anchor_rows}"] if method.uses_anchor and self.n_anchor_rows != 4 * h else []
        return " ".join([*parts, f"h={h}"] if with_components else parts)

    def title_on(self, deployment: Deployment) -> str:
        """Return the method and its noise, with σ for the rows of a deployment."""
        return self.title_with(deployment.rms(self.n_components) * self.data_noise_level)

    def simulate(self, deployment: Deployment) -> RowSimulation:
        """Return a simulation; random draws are the same at every point, so that differences come from the settings."""
        projection = deployment.projection_onto(self.n_components)
        return simulate(
            deployment.rows,
            deployment.partition.train_labels,
            method=self.method,
            anchor_noise_scale=self.anchor_noise_scale,
            data_noise_scale=deployment.rms(self.n_components) * self.data_noise_level,
            rng=np.random.default_rng([deployment.settings.seed, 8]),
            settings=SimulationSettings(
                projection,
                n_anchor_rows=self.n_anchor_rows,
                public_rows=deployment.public_rows(projection),
                columns=deployment.settings.evaluation.columns,
            ),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the mechanism and its settings as plain values, with the name of the method."""
        return super().as_dict() | {"method": self.described.name}


def point_with_noise(
    anchor_noise_scale: float, data_noise_level: float, *, n_components: int, n_anchor_rows: int
) -> RotationPoint:
    """Return the point of the anchor-aligned method that has exactly the kinds of noise whose scale is above zero.

    The parameters are those of `RotationPoint`.
    """
    if anchor_noise_scale > 0:
        method = "aa-i-gdp-both-noise" if data_noise_level > 0 else "aa-i-gdp-anchor-noise"
    else:
        method = "aa-i-gdp-data-noise" if data_noise_level > 0 else "aa-i-gdp"
    return RotationPoint(method, n_components, n_anchor_rows, anchor_noise_scale, data_noise_level)
