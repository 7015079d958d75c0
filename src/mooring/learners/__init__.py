"""What the analyst trains, and how well it predicts."""

from mooring.learners.scikit import LEARNERS, Fitted, fit, train_learner
from mooring.learners.scores import Score, score

__all__ = ["LEARNERS", "Fitted", "Score", "fit", "score", "train_learner"]
