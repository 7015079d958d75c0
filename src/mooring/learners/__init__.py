"""What the analyst trains, and how well it predicts."""

from mooring.learners.scikit import LEARNERS, fit
from mooring.learners.scores import Score, score

__all__ = ["LEARNERS", "Score", "fit", "score"]
