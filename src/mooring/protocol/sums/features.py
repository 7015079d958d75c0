"""The public feature map of a study of secure sums, and its fit to public pictures, which is a file beside the study."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from mooring.errors import InputError
from mooring.learners.models import FeatureMap
from mooring.mechanisms.sums.features.pictures import PictureFeatures, PictureProjection, filters_of, fit_to_public
from mooring.mechanisms.sums.settings import make_features
from mooring.protocol.exchange_types import PublicFile
from mooring.protocol.messages.public_file import read_public_file
from mooring.protocol.messages.study import Study
from mooring.protocol.sums.scheme import sum_settings
from mooring.typing import Matrix

_MOST_PICTURES = 10_000


def study_features(study: Study) -> FeatureMap:
    """Return the public feature map of a study of secure sums, with its fit to public pictures if the study has one."""
    settings = sum_settings(study)
    features = make_features(settings, study.schema, study.image_shape)
    if not (isinstance(features, PictureFeatures) and settings.features_digest):
        return features
    filters = filters_of(features.height, features.width)
    n, k = filters.n_responses, features.n_components
    arrays = read_public_file(study, settings.features_digest, {"mean": (n,), "matrix": (n, k)})
    return replace(features, fitted=PictureProjection(filters, arrays["mean"], arrays["matrix"]))


def fit_features(study: Study, batches: Callable[[], Iterable[Matrix]]) -> PublicFile:
    """Return features of pictures fitted to the first 10,000 public pictures, or to all if there are fewer."""
    settings = sum_settings(study)
    features = make_features(settings, study.schema, study.image_shape)
    if not isinstance(features, PictureFeatures):
        expected, got = "'pictures' to be fitted to public rows", repr(settings.features)
        cure = "Other features follow from the declared columns alone, so this study needs no public rows."
        raise InputError("features", expected=expected, got=got, cure=cure)
    pictures: list[Matrix] = []
    for batch in batches():
        pictures.append(features.to_grey(batch[: _MOST_PICTURES - sum(map(len, pictures))]))
        if sum(map(len, pictures)) == _MOST_PICTURES:
            break
    grey = np.concatenate(pictures) if pictures else np.empty((0, features.height * features.width))
    if len(grey) < features.n_components:
        expected, got = f"{features.n_components} pictures or more, as many as features", str(len(grey))
        cure = "Give more pictures, or ask for fewer features with --components."
        raise InputError("public rows", expected=expected, got=got, cure=cure)
    fitted = fit_to_public(replace(features, n_channels=1), grey).projection
    return PublicFile(
        {"mean": fitted.mean, "matrix": fitted.matrix},
        lambda digest: replace(settings, features_digest=digest),
        f"{settings.n_features} features fitted to public pictures",
    )
