"""A grid of operating points: every method with every noise that it has, and secure sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mooring.audit.operating_points import OperatingPoint
from mooring.audit.rotation.point import RotationPoint
from mooring.audit.sums.point import SumPoint
from mooring.errors import InputError
from mooring.mechanisms.rotation.methods import METHODS, Method, get_method


@dataclass(frozen=True)
class PointGrid:
    """Every method with every noise that it has, and secure sums with every ε.

    A method without noise gives one point, and a method with both noises gives one point per pair of noise levels.
    """

    methods: Sequence[str | Method] = tuple(METHODS)
    """Names of methods, or methods; by default, all methods in `METHODS`."""
    n_components: int | None = None
    """Number of components h; by default the number of features, up to 30."""
    n_anchor_rows: int | None = None
    """Number of anchor rows r; by default four times h."""
    anchor_noise_scales: Sequence[float] = (0.05, 0.1, 0.2)
    data_noise_levels: Sequence[float] = (0.3, 0.5, 0.8)
    """Scales of the anchor noise, v, and levels of the private-data noise, λ as in `RotationPoint`."""
    data_noise_scales: Sequence[float] = ()
    """Scales of the private-data noise, σ, which replace λ if they are given."""
    epsilons: Sequence[float | None] = ()
    """Values of ε for secure sums; None for sums without noise."""

    def points(self, n_components: int, rms: Callable[[int], float] | None = None) -> tuple[OperatingPoint, ...]:
        """Return the points; `n_components` is used if the grid does not state a number of components.

        `rms` returns s, the root mean square of rows projected onto a number of components. It is needed if σ is given.
        """
        h = self.n_components or n_components
        r = self.n_anchor_rows or 4 * h
        levels = self.data_noise_levels
        if self.data_noise_scales:
            unit = 0.0 if rms is None else rms(h)
            if not unit > 0:
                raise InputError(
                    "data_noise_scales",
                    expected="used with rows that are not all zero",
                    got="rows of zeros, or no root mean square",
                    cure="Check the rows and their root mean square.",
                )
            levels = [scale / unit for scale in self.data_noise_scales]
        points: list[OperatingPoint] = []
        for name in self.methods:
            method = get_method(name)
            for v in self.anchor_noise_scales if method.anchor_noise else (0.0,):
                for level in levels if method.data_noise else (0.0,):
                    points.append(RotationPoint(name, h, r, v, level))
        return tuple(dict.fromkeys([*points, *map(SumPoint, self.epsilons)]))
