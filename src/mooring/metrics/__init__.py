"""Measures of leakage with confidence intervals: reconstruction error, linkage, membership, attributes and exposure."""

from mooring.metrics.digit_auditor import DigitAuditor, train_digit_auditor
from mooring.metrics.exposure import find_exposed_rows
from mooring.metrics.galleries import Galleries, build_galleries, build_identity_galleries
from mooring.metrics.intervals import (
    Figure,
    Interval,
    bootstrap_mean,
    bootstrap_ratio,
    clopper_pearson,
    strongest_value,
    wilson,
)
from mooring.metrics.linkage import Embedding, link, linked_shares
from mooring.metrics.membership import EpsilonAudit, EpsilonBound, Membership, bound_epsilon
from mooring.metrics.reconstruction import centred_error, feature_r2, psnr, relative_error, relative_errors, ssim
from mooring.metrics.validation import image_rows

__all__ = [
    "DigitAuditor",
    "Embedding",
    "EpsilonAudit",
    "EpsilonBound",
    "Figure",
    "Galleries",
    "Interval",
    "Membership",
    "bootstrap_mean",
    "bootstrap_ratio",
    "bound_epsilon",
    "build_galleries",
    "build_identity_galleries",
    "centred_error",
    "clopper_pearson",
    "feature_r2",
    "find_exposed_rows",
    "image_rows",
    "link",
    "linked_shares",
    "psnr",
    "relative_error",
    "relative_errors",
    "ssim",
    "strongest_value",
    "train_digit_auditor",
    "wilson",
]
