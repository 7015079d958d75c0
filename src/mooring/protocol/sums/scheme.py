"""The settings of a study of secure sums, and what follows from them for its columns and its roster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mooring.errors import InputError
from mooring.mechanisms.sums.settings import SumScheme, SumSettings, make_features, make_layout, make_scheme
from mooring.metrics.limits import LeakageLimit
from mooring.protocol.messages.study import Study

if TYPE_CHECKING:
    from mooring.audit import PointResult

_MOST_KEPT = 64
_SCHEMES: dict[str, SumScheme] = {}  # by the study's digest, because every bundle needs the scheme


def sum_settings(study: Study) -> SumSettings:
    """Return the settings of a study of secure sums; a study of another mechanism is refused."""
    if not isinstance(study.mechanism, SumSettings):
        got = f"one of {study.mechanism.name}"
        raise InputError("study", expected="one of secure sums", got=got, cure="Check --study.")
    return study.mechanism


def sum_promise(study: Study) -> tuple[float, float] | None:
    """Return ε and δ of the guarantee; None without noise, or while ranges from rows are not confirmed to be public."""
    return sum_settings(study).promise if study.range_source.is_public else None


def list_exceeded(study: Study, tried: PointResult | None) -> tuple[str, ...]:
    """Return the study's limits that are not shown to be kept.

    Whether a limit on ε is kept follows from the study; whether any other is kept follows from `tried`. With noise, all
    limits are on ε.
    """
    promise = sum_promise(study)

    def is_kept(limit: LeakageLimit) -> bool:
        if limit.measure == "epsilon":
            return promise is not None and promise[0] <= limit.bound
        return tried is not None and tried.keeps_to(limit)

    return tuple(words for words in study.upload_limits if not is_kept(LeakageLimit.parse(words)))


def state_sum_guarantee(study: Study) -> str:
    """Return sentences on the guarantee, or on why there is none."""
    return explain_missing_guarantee(study) or sum_settings(study).state_guarantee()


def explain_missing_guarantee(study: Study) -> str:
    """Return sentences on why the noise of a study gives no guarantee; empty if it gives one, or if there is no noise."""
    if study.range_source.is_public or sum_settings(study).promise is None:
        return ""
    return (
        "There is no formal guarantee until a named person confirms that the ranges are public, although the sums carry "
        f"noise. {study.range_source}"
    )


def sum_scheme(study: Study) -> SumScheme:
    """Return what settings, columns and roster of a study amount to; a study without a roster is refused."""
    settings = sum_settings(study)
    study.require_roster()
    if study.digest not in _SCHEMES:
        features = make_features(settings, study.schema, study.image_shape)
        layout = make_layout(settings, study.schema, features)
        if len(_SCHEMES) >= _MOST_KEPT:
            _SCHEMES.clear()
        names = ([member.name for member in members] for members in (study.participants, study.helpers))
        _SCHEMES[study.digest] = make_scheme(settings, layout, features, *names)
    return _SCHEMES[study.digest]
