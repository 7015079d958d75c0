"""Operating points: a mechanism with its settings, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mooring.audit.simulation import RowSimulation, Simulation, SimulationSettings, simulate
from mooring.audit.sum_simulation import SumSimulation, simulate_sums
from mooring.errors import InputError
from mooring.mechanisms.rotation.methods import METHODS, Method, get_method
from mooring.mechanisms.sums.guarantee import MOST_NUMBERS_A_ROW, PRODUCT_SHARE, SumPrivacy, state_odds
from mooring.mechanisms.sums.settings import SECURE_SUM
from mooring.serialization import OpenRecord, count_noun

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


class NoiseUnit(StrEnum):
    """What private-data noise σ is measured in: the numbers of the rows that were audited."""

    ENCODED = "encoded"
    DEVIATION = "standard deviation"
    PIXEL = "pixel"
    GIVEN = "given"

    @property
    def words(self) -> str:
        """The unit, in a sentence."""
        return {
            NoiseUnit.ENCODED: "σ is the noise on every encoded number, which lies between −1 and 1: a study's "
            "data_noise_scale.",
            NoiseUnit.DEVIATION: "σ is the noise on every number, in standard deviations of its column (a category is 0 or "
            "1); 'mooring plan --study' gives it in a study's unit.",
            NoiseUnit.PIXEL: "σ is the noise on every pixel, from black, 0, to white, 1; a study, whose numbers lie between "
            "−1 and 1, states twice as much.",
            NoiseUnit.GIVEN: "σ is the noise on every number of the rows, in the unit in which they were given.",
        }[self]

    def in_study(self, scale: float) -> float | None:
        """The same noise as a study states it; None where the rows do not tell."""
        factor = {NoiseUnit.ENCODED: 1.0, NoiseUnit.PIXEL: 2.0}.get(self)
        return None if factor is None else factor * scale


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
    def usable(self) -> bool:
        """Whether a study between organisations can have these settings."""
        return False

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
        """Whether a study may have these settings with the rows of the simulation that `simulate` returned."""
        return self.usable

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


@dataclass(frozen=True)
class RotationPoint(OperatingPoint):
    """A method of the paper with its sizes and noise."""

    mechanism: ClassVar[str] = "rotation"

    method: str | Method
    """A name in `mooring.METHODS`, or a method of one's own."""
    n_components: int
    """h."""
    n_anchor_rows: int
    """r; of no consequence to methods without an anchor."""
    anchor_noise_scale: float = 0.0
    """v."""
    data_noise_level: float = 0.0
    """λ: private-data noise σ in units of s, the root mean square of all projected training rows' entries (not
    centred), as in the paper."""

    def __post_init__(self) -> None:
        method = self.described
        for name, used in (("anchor_noise_scale", method.anchor_noise), ("data_noise_level", method.data_noise)):
            method.require_scale(name, getattr(self, name), used=used)

    @property
    def described(self) -> Method:
        """The method as data."""
        return get_method(self.method)

    @property
    def family(self) -> str:
        """The method."""
        return self.described.title

    @property
    def alignment(self) -> str:
        """How the method aligns uploads."""
        return self.described.alignment

    @property
    def usable(self) -> bool:
        """Whether a study can have this method: one of mooring's own that aligns by an anchor."""
        return self.described.uses_anchor and METHODS.get(self.described.name) == self.described

    def title_with(self, data_noise_scale: float = 0.0) -> str:
        """The method and its noise, in a few words; σ is what λ is on the rows at hand."""
        method = self.described
        noises = [f"σ = {data_noise_scale:.3g}"] if method.data_noise else []
        noises += [f"v = {self.anchor_noise_scale:.3g}"] if method.anchor_noise else []
        return ", ".join([method.title, *noises])

    def short_title(self, data_noise_scale: float = 0.0, *, with_components: bool = False) -> str:
        """As `title_with`, for a table; the anchor's rows where they are not four times the components."""
        method, h = self.described, self.n_components
        parts = [_SHORT.get(method.name, method.name)]
        parts += [f"σ={data_noise_scale:.3g}"] if method.data_noise else []
        parts += [f"v={self.anchor_noise_scale:.3g}"] if method.anchor_noise else []
        parts += [f"r={self.n_anchor_rows}"] if method.uses_anchor and self.n_anchor_rows != 4 * h else []
        return " ".join([*parts, f"h={h}"] if with_components else parts)

    def title_on(self, deployment: Deployment) -> str:
        """The method and its noise, with σ itself."""
        return self.title_with(deployment.rms(self.n_components) * self.data_noise_level)

    def simulate(self, deployment: Deployment) -> RowSimulation:
        """Map everybody's rows and align them; the draws are the same at every point, so differences are the point's."""
        projection = deployment.projection_onto(self.n_components)
        return simulate(
            deployment.rows,
            deployment.partition.train_labels,
            method=self.method,
            anchor_noise_scale=self.anchor_noise_scale,
            data_noise_scale=deployment.rms(self.n_components) * self.data_noise_level,
            rng=np.random.default_rng([deployment.seed, 8]),
            settings=SimulationSettings(
                projection,
                n_anchor_rows=self.n_anchor_rows,
                public_rows=deployment.public_rows(projection),
                columns=deployment.columns,
            ),
        )

    def as_dict(self) -> dict[str, Any]:
        """The mechanism and its settings, in plain values; a method by its name."""
        return super().as_dict() | {"method": self.described.name}


@dataclass(frozen=True)
class SumPoint(OperatingPoint):
    """Secure sums and their settings."""

    mechanism: ClassVar[str] = SECURE_SUM
    shares_rows: ClassVar[bool] = False

    epsilon: float | None
    """For adding or removing one row; None for sums without noise, which carry no guarantee."""
    delta: float = 1e-5
    quorum: int | None = None
    """The least number of contributions in a total; None for nine tenths of the participants, rounded up."""
    n_colluders: int | None = None
    """How many colluders the noise allows for; None for as many as collude in the audit."""
    product_share: float = PRODUCT_SHARE
    """How much of the budget the products of features get."""

    def settled_for(self, deployment: Deployment) -> SumPoint:
        """The same point with its quorum and number of colluders filled in."""
        p, c = deployment.partition.n_participants, self.n_colluders
        c = len(deployment.colluders) if c is None else c
        return replace(self, quorum=self.quorum or max(c + 1, p - p // 10), n_colluders=c)

    @property
    def usable(self) -> bool:
        """Whether a study can have it; without noise, that depends on its rows (`PointResult.usable`)."""
        return True

    @property
    def promise(self) -> tuple[float, float] | None:
        """ε and δ; None without noise."""
        return None if self.epsilon is None else (self.epsilon, self.delta)

    @property
    def privacy(self) -> SumPrivacy | None:
        """The guarantee; None without noise. Quorum and colluders must be settled."""
        if self.epsilon is None:
            return None
        assert self.quorum is not None
        assert self.n_colluders is not None
        return SumPrivacy(self.epsilon, self.delta, self.quorum, self.n_colluders, product_share=self.product_share)

    def title_with(self, data_noise_scale: float = 0.0) -> str:
        """The mechanism and its ε, in a few words."""
        return "Sums without noise, no guarantee" if self.epsilon is None else f"Sums, ε = {self.epsilon:g}"

    def state_guarantee(self) -> str:
        """Who is protected against whom, and what ε means, in sentences."""
        if self.epsilon is None:
            return "No guarantee: the sums carry no noise."
        return f"ε = {self.epsilon:g}, δ = {self.delta:g}. {state_odds(self.epsilon, self.delta)} {self.state_scope()}"

    def state_scope(self) -> str:
        """Against whom the guarantee holds, in a sentence."""
        colluding = count_noun(self.n_colluders or 0, "participant")
        return (
            f"The guarantee is about adding or removing one row, against the analyst and {colluding} colluding with it, "
            f"where at least {self.quorum} contribute."
        )

    def simulate(self, deployment: Deployment) -> SumSimulation:
        """Add everybody's rows up, with noise; the draws are the same at every point."""
        return simulate_sums(
            deployment.partition.train,
            deployment.require_labels(),
            feature_map=deployment.features,
            label_values=deployment.label_values,
            privacy=self.settled_for(deployment).privacy,
            rng=np.random.default_rng([deployment.seed, 12]),
        )

    def is_usable_with(self, simulation: Any) -> bool:
        """Whether the sums carry noise, or else have few numbers against the rows of the smallest quorum."""
        if self.epsilon is not None:
            return True
        rows = sorted(len(part) for part in simulation.features)[: self.quorum]
        return bool(simulation.layout.size <= MOST_NUMBERS_A_ROW * sum(rows))

    def as_entries(self) -> dict[str, Any]:
        """These settings as the [mechanism] table of a study, which has a quorum of its own number of participants."""
        return {
            "name": self.mechanism,
            "epsilon": "none" if self.epsilon is None else self.epsilon,
            "delta": self.delta,
            "n_colluders": self.n_colluders,
            "product_share": self.product_share,
        }


def point_with_noise(
    anchor_noise_scale: float, data_noise_level: float, *, n_components: int, n_anchor_rows: int
) -> RotationPoint:
    """The corner of the anchor-aligned mechanism that has exactly these noises.

    Parameters
    ----------
    anchor_noise_scale : float
        v; 0 is none.
    data_noise_level : float
        σ in units of the rows' root mean square; 0 is none.
    n_components : int
        h.
    n_anchor_rows : int
        r.
    """
    if anchor_noise_scale > 0:
        method = "aa-i-gdp-both-noise" if data_noise_level > 0 else "aa-i-gdp-anchor-noise"
    else:
        method = "aa-i-gdp-data-noise" if data_noise_level > 0 else "aa-i-gdp"
    return RotationPoint(method, n_components, n_anchor_rows, anchor_noise_scale, data_noise_level)


@dataclass(frozen=True)
class PointGrid:
    """Every method with every noise it has, and secure sums at every ε asked for.

    A method without noise gives one point, one with both noises their product.
    """

    methods: Sequence[str | Method] = tuple(METHODS)
    """All of mooring's own by default."""
    n_components: int | None = None
    """h. By default as many as there are features, up to 30."""
    n_anchor_rows: int | None = None
    """r. Four times h by default."""
    anchor_noise_scales: Sequence[float] = (0.05, 0.1, 0.2)
    data_noise_levels: Sequence[float] = (0.3, 0.5, 0.8)
    """v, and λ as for `RotationPoint`."""
    data_noise_scales: Sequence[float] = ()
    """σ itself; if given, takes the place of λ."""
    epsilons: Sequence[float | None] = ()
    """ε of secure sums; None for sums without noise."""

    def points(self, n_components: int, rms: Callable[[int], float] | None = None) -> tuple[OperatingPoint, ...]:
        """The points, with so many components where the grid does not say how many.

        `rms` gives s, the root mean square of rows projected onto so many components; needed where σ itself is given.
        """
        h = self.n_components or n_components
        r = self.n_anchor_rows or 4 * h
        levels = self.data_noise_levels
        if self.data_noise_scales:
            unit = 0.0 if rms is None else rms(h)
            if not unit > 0:
                raise InputError(
                    "data_noise_scales", expected="rows that vary", got="rows of zeros, or none", cure="Check the rows."
                )
            levels = [scale / unit for scale in self.data_noise_scales]
        points: list[OperatingPoint] = []
        for name in self.methods:
            method = get_method(name)
            for v in self.anchor_noise_scales if method.anchor_noise else (0.0,):
                for level in levels if method.data_noise else (0.0,):
                    points.append(RotationPoint(name, h, r, v, level))
        return tuple(dict.fromkeys([*points, *map(SumPoint, self.epsilons)]))
