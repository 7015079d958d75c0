"""Descriptions of the methods: whose map is used, what gets noise, and how uploads are aligned.

The paper's six methods and mooring's seventh are special cases of one mechanism, which `mooring.mechanisms.rotation.kernel`
computes. Neither the map nor anchor noise gives a formal guarantee. Private-data noise can give one: see
`mooring.mechanisms.accounting`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mooring.errors import InputError, require_choice
from mooring.theory import require_scale


@dataclass(frozen=True)
class Method:
    """The description of one method."""

    name: str
    title: str
    """The name in the paper; for `aa-i-gdp-both-noise`, which is not in the paper, a name of the same form."""
    transform: Literal["common", "own"]
    """Whether all participants share one secret rigid map or each draws its own."""
    data_noise: bool
    """Whether the representation of the rows may carry noise."""
    anchor_noise: bool
    """Whether the anchor representation may carry noise."""
    alignment: Literal["none", "reference", "procrustes"]
    """How the analyst aligns uploads. With "none", uploads are not aligned, and the method needs no anchor."""

    @property
    def uses_anchor(self) -> bool:
        """Whether participants upload an anchor representation."""
        return self.alignment != "none"

    def require_scale(self, name: str, scale: float, *, used: bool) -> None:
        """Raise an `InputError` for a scale that is negative or not finite, or positive in a method without such noise.

        Parameters
        ----------
        used : bool
            Whether the method has this noise: its `data_noise` or its `anchor_noise`.
        """
        require_scale(name, scale)
        if scale > 0 and not used:
            expected = f"0 for {self.name}, which has no such noise"
            raise InputError(
                name, expected=expected, got=str(scale), cure="Use 0, or 'aa-i-gdp-both-noise', which has both noises."
            )


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
"""All methods by name: the paper's six, and `aa-i-gdp-both-noise`, which combines both noises."""


def get_method(method: str | Method) -> Method:
    """Return the method with this name, or raise an `InputError`. A `Method` is returned as it is."""
    if isinstance(method, Method):
        return method
    require_choice("method", method, METHODS)
    return METHODS[method]
