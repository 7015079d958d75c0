"""The public feature map of a study of secure sums, fitted to public pictures where the study names a file of them."""

from __future__ import annotations

from dataclasses import replace

from mooring.mechanisms.sums.feature_map import FeatureMap
from mooring.mechanisms.sums.picture_features import PictureFeatures, PictureProjection, filters_of
from mooring.mechanisms.sums.settings import make_features
from mooring.protocol.messages.public_file import read_public_file
from mooring.protocol.messages.study import Study


def study_features(study: Study) -> FeatureMap:
    """The public feature map of a study of secure sums; fitted to public pictures by the file beside it, if it names one."""
    settings = study.sum_settings
    features = make_features(settings, study.schema, study.image_shape)
    if not (isinstance(features, PictureFeatures) and settings.features_digest):
        return features
    filters = filters_of(features.height, features.width)
    n, k = filters.n_responses, features.n_components
    found = read_public_file(study, settings.features_digest, {"mean": (n,), "matrix": (n, k)})
    return replace(features, fitted=PictureProjection(filters, found["mean"], found["matrix"]))
