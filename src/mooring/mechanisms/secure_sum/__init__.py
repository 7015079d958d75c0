"""One upload of sums: secret sharing, exact noise, public feature maps."""

from mooring.mechanisms.secure_sum.feature_map import FeatureMap, RowFeatures, TableFeatures
from mooring.mechanisms.secure_sum.guarantee import SumPrivacy
from mooring.mechanisms.secure_sum.picture_features import CONSTANT_SHARE, PictureFeatures, fit_to_public

__all__ = [
    "CONSTANT_SHARE",
    "FeatureMap",
    "PictureFeatures",
    "RowFeatures",
    "SumPrivacy",
    "TableFeatures",
    "fit_to_public",
]
