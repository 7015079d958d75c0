"""Attacks by an analyst that colludes with participants, on another participant's rows or on a total of sums."""

from mooring.attacks.decoding import LearnedDecoder, learn_decoder
from mooring.attacks.denoising import DENOISERS
from mooring.attacks.effort import Effort, current_effort, set_effort
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, reconstruct, reconstruct_rows
from mooring.attacks.registry import (
    ATTACKS,
    Attack,
    Finding,
    attacks_on,
    register_attack,
    resolve_attack,
    run,
    run_batch,
)
from mooring.attacks.sums.pairwise_view import PairwiseView
from mooring.attacks.sums.view import LabelledFeatures, MembershipScores, SumView
from mooring.attacks.view import Colluder, CollusionView, PublicRows

__all__ = [
    "ATTACKS",
    "DENOISERS",
    "Attack",
    "Colluder",
    "CollusionView",
    "DoesNotApply",
    "Effort",
    "Finding",
    "LabelledFeatures",
    "LearnedDecoder",
    "MembershipScores",
    "PairwiseView",
    "PublicRows",
    "Reconstruction",
    "SumView",
    "attacks_on",
    "current_effort",
    "learn_decoder",
    "reconstruct",
    "reconstruct_rows",
    "register_attack",
    "resolve_attack",
    "run",
    "run_batch",
    "set_effort",
]
