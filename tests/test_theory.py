"""What the theory's functions refuse; what they state is tested in tests/theorems."""

import math
from collections.abc import Callable

import pytest

from mooring import theory


@pytest.mark.parametrize("scale", [-0.1, math.nan, math.inf])
def test_scales_and_probabilities_that_are_none_are_refused(scale: float, refused: Callable[..., None]) -> None:
    refused(lambda: theory.rotation_error_bound(5, 4, 16, scale), "anchor_noise_scale", "finite", str(scale))
    refused(lambda: theory.ResidualTranslation(4, 16, scale), "anchor_noise_scale", "finite", str(scale))
    law = theory.ResidualTranslation(4, 16, 0.1)
    for probability in (0.0, 1.0, scale):
        refused(lambda p=probability: law.pairwise_bound(p), "failure_probability", "between 0 and 1", str(probability))
