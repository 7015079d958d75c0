"""Measures of leakage with confidence intervals: reconstruction error, linkage, membership, attributes and exposure."""

from mooring.metrics.attributes import KnownRows, infer_attribute
from mooring.metrics.digit_auditor import DigitAuditor, train_digit_auditor
from mooring.metrics.exposure import (
    Carriers,
    find_exposed_column,
    find_exposed_rows,
    find_exposed_value,
    find_read_columns,
    order_by_exposure,
)
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
from mooring.metrics.linkage import ROW_METRICS, Embedding, link, linked_shares
from mooring.metrics.membership import EpsilonAudit, EpsilonBound, Membership, bound_epsilon
from mooring.metrics.reconstruction import (
    centred_error,
    error_figure,
    feature_r2,
    mean_figure,
    psnr,
    relative_error,
    relative_errors,
    root_ratio,
    ssim,
)
from mooring.metrics.validation import image_rows

__all__ = [
    "ROW_METRICS",
    "Carriers",
    "DigitAuditor",
    "Embedding",
    "EpsilonAudit",
    "EpsilonBound",
    "Figure",
    "Galleries",
    "Interval",
    "KnownRows",
    "Membership",
    "bootstrap_mean",
    "bootstrap_ratio",
    "bound_epsilon",
    "build_galleries",
    "build_identity_galleries",
    "centred_error",
    "clopper_pearson",
    "error_figure",
    "feature_r2",
    "find_exposed_column",
    "find_exposed_rows",
    "find_exposed_value",
    "find_read_columns",
    "image_rows",
    "infer_attribute",
    "link",
    "linked_shares",
    "mean_figure",
    "order_by_exposure",
    "psnr",
    "relative_error",
    "relative_errors",
    "root_ratio",
    "ssim",
    "strongest_value",
    "train_digit_auditor",
    "wilson",
]
