"""Learners: one registry of the models that an analyst can train, and the scores of their predictions."""

from mooring.learners.fitted import Fitted, FittedEstimator
from mooring.learners.fitting import choose_learner, cross_validate, train_learner
from mooring.learners.models import Kind, Model
from mooring.learners.registry import (
    AUTO,
    CANDIDATES,
    LEARNERS,
    EstimatorLearner,
    Learner,
    LearnerLike,
    require_learner,
    resolve_learner,
)
from mooring.learners.scores import Answer, Gain, Score, balanced_accuracy, compare, score, score_value
from mooring.learners.sums import fit_discriminant

__all__ = [
    "AUTO",
    "CANDIDATES",
    "LEARNERS",
    "Answer",
    "EstimatorLearner",
    "Fitted",
    "FittedEstimator",
    "Gain",
    "Kind",
    "Learner",
    "LearnerLike",
    "Model",
    "Score",
    "balanced_accuracy",
    "choose_learner",
    "compare",
    "cross_validate",
    "fit_discriminant",
    "require_learner",
    "resolve_learner",
    "score",
    "score_value",
    "train_learner",
]
