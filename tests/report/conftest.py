"""One audit for all tests of pages."""

import json
from typing import Any

import numpy as np
import pytest

from mooring.audit import EvaluationSpec
from tests.auditing import audited


@pytest.fixture(scope="session")
def audit() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, 2, 60) for _ in range(3)]
    rows = [rng.standard_normal((60, 4)) * [2, 1.5, 1, 0.7] + own[:, None] for own in labels]
    result = audited(
        rows,
        labels,
        learner="linear",
        methods=["aa-i-gdp-both-noise", "aa-i-gdp"],
        anchor_noise_scales=[0.1],
        data_noise_levels=[0.5],
        evaluation=EvaluationSpec(n_examples=2, feature_names=("age", "weight", "height", "pressure")),
    )
    return dict(json.loads(result.to_json()))
