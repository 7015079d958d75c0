"""Operating points: a method and its settings, as data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mooring.errors import InputError
from mooring.mechanisms.rotation.methods import METHODS, get_method
from mooring.mechanisms.sums.guarantee import PRODUCT_SHARE, SumPrivacy, state_odds
from mooring.serialization import Record, count_noun

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
class OperatingPoint(Record):
    """A method and its settings."""

    method: str
    """A name in `mooring.METHODS`."""
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
        method = get_method(self.method)
        for name, used in (("anchor_noise_scale", method.anchor_noise), ("data_noise_level", method.data_noise)):
            method.require_scale(name, getattr(self, name), used=used)

    @property
    def usable(self) -> bool:
        """Whether a study can have this method: one that aligns by an anchor."""
        return METHODS[self.method].uses_anchor

    def title_with(self, data_noise_scale: float) -> str:
        """The method and its noise, in a few words; σ is what λ is on the rows at hand."""
        noises = [f"σ = {data_noise_scale:.3g}"] if METHODS[self.method].data_noise else []
        noises += [f"v = {self.anchor_noise_scale:.3g}"] if METHODS[self.method].anchor_noise else []
        return ", ".join([METHODS[self.method].title, *noises])

    def short_title(self, data_noise_scale: float, *, with_components: bool = False) -> str:
        """As `title_with`, for a table; the anchor's rows where they are not four times the components."""
        method, h = METHODS[self.method], self.n_components
        parts = [_SHORT.get(self.method, self.method)]
        parts += [f"σ={data_noise_scale:.3g}"] if method.data_noise else []
        parts += [f"v={self.anchor_noise_scale:.3g}"] if method.anchor_noise else []
        parts += [f"r={self.n_anchor_rows}"] if method.uses_anchor and self.n_anchor_rows != 4 * h else []
        return " ".join([*parts, f"h={h}"] if with_components else parts)


@dataclass(frozen=True)
class SumPoint(Record):
    """Secure sums and their settings."""

    epsilon: float | None
    """For adding or removing one row; None for sums without noise, which carry no guarantee."""
    delta: float
    quorum: int
    """The least number of contributions in a total."""
    n_colluders: int
    product_share: float = PRODUCT_SHARE
    """How much of the budget the products of features get."""

    @property
    def privacy(self) -> SumPrivacy | None:
        """The guarantee; None without noise."""
        if self.epsilon is None:
            return None
        settings = self.quorum, self.n_colluders
        return SumPrivacy(self.epsilon, self.delta, *settings, product_share=self.product_share)

    @property
    def title(self) -> str:
        """The mechanism and its ε, in a few words."""
        return "Sums without noise, no guarantee" if self.epsilon is None else f"Sums, ε = {self.epsilon:g}"

    def state_guarantee(self) -> str:
        """Who is protected against whom, and what ε means, in sentences."""
        if self.epsilon is None:
            return "No guarantee: the sums carry no noise."
        return f"ε = {self.epsilon:g}, δ = {self.delta:g}. {state_odds(self.epsilon, self.delta)} {self.state_scope()}"

    def state_scope(self) -> str:
        """Against whom the guarantee holds, in a sentence."""
        colluding = count_noun(self.n_colluders, "participant")
        return (
            f"The guarantee is about adding or removing one row, against the analyst and {colluding} colluding with it, "
            f"where at least {self.quorum} contribute."
        )

    def as_method(self) -> dict[str, Any]:
        """These settings as the [method] table of a study, which has a quorum of its own number of participants."""
        return {
            "name": "secure-sum",
            "epsilon": "none" if self.epsilon is None else self.epsilon,
            "delta": self.delta,
            "colluders": self.n_colluders,
            "product_share": self.product_share,
        }


def point_with_noise(
    anchor_noise_scale: float, data_noise_level: float, *, n_components: int, n_anchor_rows: int
) -> OperatingPoint:
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
    return OperatingPoint(method, n_components, n_anchor_rows, anchor_noise_scale, data_noise_level)


@dataclass(frozen=True)
class PointGrid:
    """Every method with every noise it has: one point for a method without noise, a product for both noises."""

    methods: Sequence[str] = tuple(METHODS)
    """All by default."""
    n_components: int | None = None
    """h. By default as many as there are features, up to 30."""
    n_anchor_rows: int | None = None
    """r. Four times h by default."""
    anchor_noise_scales: Sequence[float] = (0.05, 0.1, 0.2)
    data_noise_levels: Sequence[float] = (0.3, 0.5, 0.8)
    """v, and λ as for `OperatingPoint`."""
    data_noise_scales: Sequence[float] = ()
    """σ itself; if given, takes the place of λ."""

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
        found = []
        for name in self.methods:
            method = get_method(name)
            for v in self.anchor_noise_scales if method.anchor_noise else (0.0,):
                for level in levels if method.data_noise else (0.0,):
                    found.append(OperatingPoint(name, h, r, v, level))
        return tuple(dict.fromkeys(found))
