"""Contract suites for your own answers, attacks, learners and methods. A broken contract raises an AssertionError."""

from mooring.testing.answers import check_answer
from mooring.testing.attacks import check_attack
from mooring.testing.learners import check_learner
from mooring.testing.methods import check_method

__all__ = ["check_answer", "check_attack", "check_learner", "check_method"]
