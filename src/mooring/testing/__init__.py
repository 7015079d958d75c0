"""Contract suites for your own attacks, learners and methods. Each raises an AssertionError that says what is wrong."""

from mooring.testing.attacks import check_attack
from mooring.testing.learners import check_learner
from mooring.testing.methods import check_method

__all__ = ["check_attack", "check_learner", "check_method"]
