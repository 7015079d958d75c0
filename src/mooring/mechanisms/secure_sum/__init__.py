"""One upload of sums: secret sharing, exact noise, public feature maps."""

from mooring.mechanisms.secure_sum.feature_map import FeatureMap, TableFeatures
from mooring.mechanisms.secure_sum.guarantee import SumPrivacy
from mooring.mechanisms.secure_sum.picture_features import PictureFeatures

__all__ = ["FeatureMap", "PictureFeatures", "SumPrivacy", "TableFeatures"]
