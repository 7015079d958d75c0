"""The operating point of secure sums: the guarantee and its settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mooring.audit.operating_points import OperatingPoint, Recommendation
from mooring.audit.sums.general_simulation import PairwiseSimulation, simulate_general_total
from mooring.audit.sums.simulation import SumSimulation, simulate_sums
from mooring.mechanisms.sums.class_moments import count_components
from mooring.mechanisms.sums.features.pictures import PictureFeatures
from mooring.mechanisms.sums.general.features import LevelFeatures
from mooring.mechanisms.sums.guarantee import MOST_NUMBERS_A_ROW, PRODUCT_SHARE, SumPrivacy, state_odds
from mooring.mechanisms.sums.secret_sharing import Parties
from mooring.mechanisms.sums.settings import MOST_BY_DEFAULT, SECURE_SUM
from mooring.serialization import Count, count_noun

if TYPE_CHECKING:
    from mooring.audit.deployment import Deployment


@dataclass(frozen=True)
class RecommendedSums(Recommendation):
    """Recommended entries of [mechanism] in a study of secure sums. Each study sets its own quorum."""

    name: ClassVar[str] = SECURE_SUM

    epsilon: float
    delta: float
    n_colluders: Count | None
    product_share: float
    expected_rows: Count | None = None
    """Number of rows of all participants together, for studies of pictures; None for other studies."""


@dataclass(frozen=True)
class SumPoint(OperatingPoint):
    """Secure sums and their settings."""

    mechanism: ClassVar[str] = SECURE_SUM
    shares_rows: ClassVar[bool] = False

    epsilon: float | None
    """For adding or removing one row; None for sums without noise, which carry no guarantee."""
    delta: float = 1e-5
    quorum: int | None = None
    """Minimum number of contributions in a total; None for the default of a study with as many participants as the audit
    and without helpers."""
    n_colluders: int | None = None
    """Number of colluders that the noise allows for; None for the number of colluders in the audit."""
    product_share: float = PRODUCT_SHARE
    """Share of the privacy budget for the products of features."""
    expected_rows: int | None = None
    """Number of rows that all participants together are expected to have, which decides whether pictures are summed by
    class; 0 if the number is not known, and None for about as many rows as the audit has for training."""
    why_no_guarantee: str = ""
    """Sentences on why the noise gives no guarantee, such as ranges that are not public; empty if it gives one."""

    def settled_for(self, deployment: Deployment) -> SumPoint:
        """Return the point after filling in its quorum, its number of colluders and its number of expected rows."""
        p, c, n = deployment.partition.n_participants, self.n_colluders, self.expected_rows
        c = len(deployment.settings.colluders) if c is None else c
        quorum = self.quorum or Parties(p, min(p, MOST_BY_DEFAULT), c).least_quorum()
        if n is None:  # only pictures may be summed by class
            is_picture = isinstance(deployment.features, PictureFeatures)
            n = _round_down(sum(len(part) for part in deployment.partition.train)) if is_picture else 0
        return replace(self, quorum=quorum, n_colluders=c, expected_rows=n)

    @property
    def mechanism_in_words(self) -> str:
        """The name of the mechanism in a sentence."""
        return "secure sums"

    @property
    def promise(self) -> tuple[float, float] | None:
        """ε and δ; None without noise, or if the noise gives no guarantee."""
        return None if self.epsilon is None or self.why_no_guarantee else (self.epsilon, self.delta)

    @property
    def privacy(self) -> SumPrivacy | None:
        """The settings of the noise; None without noise. `quorum` and `n_colluders` must be filled in (`settled_for`)."""
        if self.epsilon is None:
            return None
        assert self.quorum is not None
        assert self.n_colluders is not None
        return SumPrivacy(self.epsilon, self.delta, self.quorum, self.n_colluders, product_share=self.product_share)

    def title_with(self, data_noise_scale: float = 0.0) -> str:
        """Return the mechanism and its ε in a few words."""
        if self.epsilon is None:
            return "Sums without noise, no guarantee"
        title = f"Sums, ε = {self.epsilon:g}"
        return f"{title}, no guarantee until confirmed" if self.why_no_guarantee else title

    def state_guarantee(self) -> str:
        """Return sentences on what ε means, and on whom the guarantee protects against."""
        if self.epsilon is None:
            return "No guarantee: the sums carry no noise."
        if self.why_no_guarantee:
            return self.why_no_guarantee
        return f"ε = {self.epsilon:g}, δ = {self.delta:g}. {state_odds(self.epsilon, self.delta)} {self.state_scope()}"

    def state_scope(self) -> str:
        """Return a sentence on whom the guarantee protects against."""
        colluding = count_noun(self.n_colluders or 0, "participant")
        return (
            f"The guarantee is about adding or removing one row, against the analyst and {colluding} colluding with it, "
            f"where at least {self.quorum} contribute."
        )

    def simulate(self, deployment: Deployment) -> SumSimulation | PairwiseSimulation:
        """Return a simulation of the total; random draws are the same at every point."""
        if isinstance(deployment.features, LevelFeatures):
            return simulate_general_total(
                deployment.partition.train,
                deployment.require_labels(),
                features=deployment.features,
                privacy=self.settled_for(deployment).privacy,
                rng=np.random.default_rng([deployment.settings.seed, 12]),
            )
        settled, features = self.settled_for(deployment), deployment.features
        n_components = 0
        if isinstance(features, PictureFeatures) and self.epsilon is not None and deployment.label_kind == "classes":
            n_classes = len(np.unique(deployment.label_values))
            n_components = count_components(settled.expected_rows or 0, n_classes, self.epsilon, self.delta)
            if n_components:
                features = features.first(min(n_components, features.n_components))
        return simulate_sums(
            deployment.partition.train,
            deployment.require_labels(),
            feature_map=features,
            label_values=deployment.label_values,
            privacy=settled.privacy,
            rng=np.random.default_rng([deployment.settings.seed, 12]),
            by_class=n_components > 0,
        )

    def with_epsilon(self, epsilon: float) -> SumPoint:
        """Return the point with this ε."""
        return replace(self, epsilon=epsilon)

    def recommend(self, deployment: Deployment, data_noise_scale: float) -> RecommendedSums | None:
        """Return the settings of a study at this point, which `settled_for` must have filled in; None without noise."""
        if self.epsilon is None:
            return None
        return RecommendedSums(
            self.epsilon, self.delta, self.n_colluders, self.product_share, self.expected_rows or None
        )

    def is_usable_with(self, simulation: Any) -> bool:
        """Return whether the sums carry noise, or have few numbers compared with the rows in the smallest quorum."""
        if self.epsilon is not None:
            return True
        rows = sorted(len(part) for part in simulation.features)[: self.quorum]
        return bool(simulation.layout.size <= MOST_NUMBERS_A_ROW * sum(rows))


def _round_down(count: int) -> int:
    """Return a number with all digits but the first set to 0, since a plan must not write exact counts into a study."""
    unit = int(10 ** (len(str(count)) - 1))
    return count // unit * unit
