"""What the analyst trains, and how well it predicts: one registry of learners."""

from mooring.learners.fitting import Fitted, choose_learner, cross_validate, train_learner
from mooring.learners.registry import AUTO, CANDIDATES, LEARNERS, Kind, Learner, require_learner
from mooring.learners.scores import Score, balanced_accuracy, score, score_value

__all__ = [
    "AUTO",
    "CANDIDATES",
    "LEARNERS",
    "Fitted",
    "Kind",
    "Learner",
    "Score",
    "balanced_accuracy",
    "choose_learner",
    "cross_validate",
    "require_learner",
    "score",
    "score_value",
    "train_learner",
]
