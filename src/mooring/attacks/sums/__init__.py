"""What an analyst that colludes with participants can tell of a total of sums: one file an attack."""

from mooring.attacks.sums.registry import SUM_ATTACKS, SumAttack, score_membership, score_without_sums
from mooring.attacks.sums.view import LabelledFeatures, SumView

__all__ = ["SUM_ATTACKS", "LabelledFeatures", "SumAttack", "SumView", "score_membership", "score_without_sums"]
