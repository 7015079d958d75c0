"""Secure sums: public feature maps, exact noise and secret sharing."""

from mooring.learners.models import FeatureMap
from mooring.mechanisms.sums.feature_map import RowFeatures, TableFeatures
from mooring.mechanisms.sums.guarantee import SumPrivacy
from mooring.mechanisms.sums.picture_features import CONSTANT_SHARE, PictureFeatures, fit_to_public

__all__ = [
    "CONSTANT_SHARE",
    "FeatureMap",
    "PictureFeatures",
    "RowFeatures",
    "SumPrivacy",
    "TableFeatures",
    "fit_to_public",
]
