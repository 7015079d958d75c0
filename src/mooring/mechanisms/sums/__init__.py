"""Secure sums: public feature maps, exact noise and secret sharing."""

from mooring.learners.models import FeatureMap
from mooring.mechanisms.sums.class_moments import count_components
from mooring.mechanisms.sums.features.columns import RowFeatures, TableFeatures
from mooring.mechanisms.sums.features.pictures import CONSTANT_SHARE, PictureFeatures, fit_to_public
from mooring.mechanisms.sums.general.features import LevelFeatures
from mooring.mechanisms.sums.general.total import PairwiseTotal, sum_exactly
from mooring.mechanisms.sums.guarantee import SumPrivacy
from mooring.mechanisms.sums.settings import SumSettings, make_general_workload

__all__ = [
    "CONSTANT_SHARE",
    "FeatureMap",
    "LevelFeatures",
    "PairwiseTotal",
    "PictureFeatures",
    "RowFeatures",
    "SumPrivacy",
    "SumSettings",
    "TableFeatures",
    "count_components",
    "fit_to_public",
    "make_general_workload",
    "sum_exactly",
]
