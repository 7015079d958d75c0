"""The methods, as data: whose transform, whether an anchor, what gets noise, how the uploads are aligned.

The paper's six methods and mooring's seventh are corners of one mechanism, which `mooring.mechanisms.rotation.kernel`
computes.
Neither the transform nor anchor noise gives a formal guarantee. Private-data noise can: see `mooring.mechanisms.accounting`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mooring.errors import InputError, require_choice
from mooring.theory import require_scale


@dataclass(frozen=True)
class Method:
    """One method, described."""

    name: str
    title: str
    """How the paper calls it."""
    transform: Literal["common", "own"]
    """Whether all participants share one secret rigid map or each draws its own."""
    data_noise: bool
    anchor_noise: bool
    """Whether the representation of the data, of the anchor, may carry noise."""
    alignment: Literal["none", "reference", "procrustes"]
    """How the analyst brings uploads together. "none" needs no anchor."""

    @property
    def uses_anchor(self) -> bool:
        """Whether participants upload an anchor representation."""
        return self.alignment != "none"

    def require_scale(self, name: str, scale: float, *, used: bool) -> None:
        """Refuse a noise scale that is no number of zero or more, or above zero where the method has no such noise.

        Parameters
        ----------
        used : bool
            `data_noise` or `anchor_noise` of this method.
        """
        require_scale(name, scale)
        if scale > 0 and not used:
            expected = f"0 for {self.name}, which has no such noise"
            raise InputError(name, expected=expected, got=str(scale), cure="'aa-i-gdp-both-noise' takes both.")


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("c-gdp", "C-GDP", "common", False, False, "none"),
        Method("c-gdp-data-noise", "C-GDP (private-data noise)", "common", True, False, "none"),
        Method("i-gdp", "I-GDP", "own", False, False, "none"),
        Method("aa-i-gdp", "AA-I-GDP", "own", False, False, "reference"),
        Method("aa-i-gdp-data-noise", "AA-I-GDP (private-data noise)", "own", True, False, "reference"),
        Method("aa-i-gdp-anchor-noise", "AA-I-GDP (anchor noise)", "own", False, True, "procrustes"),
        Method("aa-i-gdp-both-noise", "AA-I-GDP (both noises)", "own", True, True, "procrustes"),
    )
}
"""Every method by name: the paper's six, and `aa-i-gdp-both-noise`, of which the anchor-aligned ones are corners."""


def get_method(method: str | Method) -> Method:
    """Return the method with this name, or the method itself."""
    if isinstance(method, Method):
        return method
    require_choice("method", method, METHODS)
    return METHODS[method]
