"""What the analyst trains, and how well it predicts: one registry of learners."""

from mooring.learners.fitting import Fitted, choose_learner, cross_validate, train_learner
from mooring.learners.registry import AUTO, CANDIDATES, LEARNERS, Kind, Learner, require_learner
from mooring.learners.scores import Answer, Gain, Score, balanced_accuracy, compare, score, score_value
from mooring.learners.sums import fit_discriminant

__all__ = [
    "AUTO",
    "CANDIDATES",
    "LEARNERS",
    "Answer",
    "Fitted",
    "Gain",
    "Kind",
    "Learner",
    "Score",
    "balanced_accuracy",
    "choose_learner",
    "compare",
    "cross_validate",
    "fit_discriminant",
    "require_learner",
    "score",
    "score_value",
    "train_learner",
]
