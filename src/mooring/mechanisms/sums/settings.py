"""What a study of secure sums declares: its guarantee, its features, who combines, and how many of them it takes.

Legend: p participants, of whom c may collude with the analyst; k combiners, of whom t open the total; the quorum is the
least number of contributions in a total.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from mooring.errors import InputError
from mooring.mechanisms.sums.feature_map import FeatureMap, TableFeatures
from mooring.mechanisms.sums.guarantee import (
    MOST_NUMBERS_A_ROW,
    PRODUCT_SHARE,
    SumNoise,
    SumPrivacy,
    calibrate_sums,
    state_odds,
)
from mooring.mechanisms.sums.picture_features import N_COMPONENTS, PictureFeatures, filters_of
from mooring.mechanisms.sums.random_fourier import FourierFeatures
from mooring.mechanisms.sums.secret_sharing import Threshold
from mooring.mechanisms.sums.sums import Outcome, SumLayout
from mooring.tables.schema import Schema

SECURE_SUM = "secure-sum"
FeatureName = Literal["columns", "pictures", "fourier"]
FEATURES: tuple[FeatureName, ...] = ("columns", "pictures", "fourier")
MOST_BY_DEFAULT = 15
"""Combiners of a study that names none: the first of its roster."""
MOST_DELTA = 1e-3
"""Of a study: δ = 1 promises nothing, whatever ε says."""


@dataclass(frozen=True)
class SumSettings:
    """The entries of [method] in a study of secure sums."""

    epsilon: float | None = 1.0
    """For adding or removing one unit; None is no noise and no guarantee."""
    delta: float = 1e-5
    n_colluders: int = 1
    """c."""
    combiners: tuple[str, ...] = ()
    """Participants who hold shares; empty for the first 15 of the roster."""
    threshold: int = 0
    """t; 0 for the least that the number of combiners allows."""
    quorum: int = 0
    """0 for nine tenths of the participants, rounded up."""
    features: FeatureName = "columns"
    """The public feature map; pictures need the study's image_shape."""
    n_features: int = N_COMPONENTS
    """Features of pictures, or random Fourier features."""
    features_digest: str = ""
    """SHA-256 of the file beside the study by which features of pictures are fitted to public ones; empty without."""
    n_hats: int = 5
    """Hat functions of a number; 0 leaves each column as one feature."""
    log_scaled: tuple[str, ...] = ()
    """Numbers that are read on a logarithmic scale."""
    person: str = ""
    """A column that names persons, which stays at home; empty where the unit is a row."""
    rows_per_person: int | Literal["mean"] = 1
    """The most rows a person has at one participant; "mean" for any number, of which the mean is added."""
    least_rows: int = 10
    """Without noise, who has fewer rows does not share; with noise, not to share would tell of one row."""
    product_share: float = PRODUCT_SHARE
    """How much of the budget the products of features get."""

    def __post_init__(self) -> None:
        if self.features not in FEATURES:
            raise InputError("features", expected=" or ".join(FEATURES), got=repr(self.features), cure="Correct it.")
        if self.features_digest and (
            self.features != "pictures" or not re.fullmatch(r"[0-9a-f]{64}", self.features_digest)
        ):
            expected, got = "64 hexadecimal digits, with features of pictures", repr(self.features_digest)
            raise InputError("features_digest", expected=expected, got=got, cure="'mooring study project' writes it.")
        if isinstance(self.rows_per_person, str) and self.rows_per_person != "mean":
            raise InputError(
                "rows_per_person", expected="a number, or 'mean'", got=repr(self.rows_per_person), cure="Correct it."
            )
        if self.rows_per_person != 1 and not self.person:
            expected, cure = "1 where no column names persons", "Name that column with 'person', or leave this out."
            raise InputError("rows_per_person", expected=expected, got=str(self.rows_per_person), cure=cure)
        if self.n_colluders < 1:
            cure = "An analyst may always have one participant on its side; plan for it."
            raise InputError("colluders", expected="1 or more", got=str(self.n_colluders), cure=cure)
        if self.least_rows < 1:
            raise InputError("least_rows", expected="1 or more", got=str(self.least_rows), cure="10 is usual.")
        if len(set(self.combiners)) < len(self.combiners):
            raise InputError("combiners", expected="different names", got="one twice", cure="Take one out.")
        self.privacy(quorum=self.n_colluders + 1)
        if self.delta > MOST_DELTA:
            cure = "With a probability of delta nothing is promised: keep it well below one over the number of rows."
            raise InputError("delta", expected=f"{MOST_DELTA:g} at most", got=str(self.delta), cure=cure)

    @property
    def unit(self) -> str:
        """Whom the guarantee is about."""
        return "person" if self.person else "row"

    def threshold_of(self, n_combiners: int) -> int:
        """How many of so many combiners open the total."""
        return self.threshold or min(n_combiners, (2 * n_combiners + self.n_colluders) // 3 + 1)

    def state_guarantee(self) -> str:
        """What is promised, and what it means for any test of membership, in sentences."""
        if self.epsilon is None:
            said = "There is no guarantee: the sums carry no noise."
            return f"{said} The total, and the model, may tell whether a given row is in it."
        promise = f"({self.epsilon:g}, {self.delta:g})-differential privacy for adding or removing one {self.unit}"
        return f"{state_odds(self.epsilon, self.delta, self.unit)} That is {promise}."

    def state_spare(self, n_combiners: int) -> str:
        """A sentence where no combiner of so many is to spare, else nothing; where their number is open (0), when."""
        spared = next(k for k in count() if self.threshold_of(k) < k)
        if not n_combiners:
            return f"With fewer than {spared} combiners, one that is absent stops the study."
        if self.threshold_of(n_combiners) < n_combiners:
            return ""
        must = f"Each of the {n_combiners} combiners must answer: one that is absent stops the study."
        return must + ("" if self.threshold else f" From {spared} combiners on, one can be spared.")

    @property
    def promise(self) -> tuple[float, float] | None:
        """ε and δ of the guarantee for one unit; None without noise."""
        return None if self.epsilon is None else (self.epsilon, self.delta)

    def privacy(self, *, quorum: int) -> SumPrivacy:
        """The guarantee as the accountant takes it; without noise, with an ε that stands for nothing."""
        return SumPrivacy(
            1.0 if self.epsilon is None else self.epsilon,
            self.delta,
            quorum,
            self.n_colluders,
            1 if self.rows_per_person == "mean" else self.rows_per_person,
            self.product_share,
        )

    def as_dict(self) -> dict[str, Any]:
        """The entries of [method], in plain values and a fixed order; what a feature map does not use is left out."""
        plain: dict[str, Any] = {
            "name": SECURE_SUM,
            "epsilon": "none" if self.epsilon is None else float(self.epsilon),
            "delta": float(self.delta),
            "colluders": self.n_colluders,
            "combiners": list(self.combiners),
            "threshold": self.threshold,
            "quorum": self.quorum,
            "features": self.features,
        }
        own = {"hats": self.n_hats} if self.features == "columns" else {"n_features": self.n_features}
        if self.features_digest:
            own["features_digest"] = self.features_digest  # type: ignore[assignment]
        if self.log_scaled:
            own["log_scaled"] = list(self.log_scaled)  # type: ignore[assignment]
        if self.person:
            own |= {"person": self.person, "rows_per_person": self.rows_per_person}  # type: ignore[dict-item]
        return plain | own | {"least_rows": self.least_rows, "product_share": float(self.product_share)}


@dataclass(frozen=True)
class SumScheme:
    """What a study's settings mean for its columns and roster."""

    settings: SumSettings
    features: FeatureMap
    layout: SumLayout
    combiners: tuple[str, ...]
    """In the order of their points, 1 to k."""
    threshold: Threshold
    quorum: int
    n_participants: int

    @property
    def privacy(self) -> SumPrivacy:
        """The guarantee with this quorum."""
        return self.settings.privacy(quorum=self.quorum)

    @property
    def noise(self) -> SumNoise | None:
        """What each participant adds; None in a study without a guarantee."""
        return None if self.settings.epsilon is None else calibrate_sums(self.layout, self.privacy)

    @property
    def most_rows(self) -> int:
        """How many rows one participant may have before a total could leave the field."""
        return self.layout.most_rows // self.n_participants


def make_features(settings: SumSettings, schema: Schema, image_shape: Sequence[int]) -> FeatureMap:
    """Return the public feature map of a study's columns."""
    if settings.features == "columns":
        return TableFeatures(schema, frozenset(settings.log_scaled), settings.n_hats)
    if settings.features == "fourier":
        return FourierFeatures(schema.n_features, max(1, settings.n_features // 2))
    if len(image_shape) not in (2, 3):
        raise InputError(
            "image_shape", expected="given for features of pictures", got="none", cure='For example "28x28".'
        )
    height, width, n_channels = (*image_shape, 1)[:3]
    n_components = min(settings.n_features, filters_of(height, width).n_responses)
    return PictureFeatures(height, width, n_channels, n_components)


def make_layout(settings: SumSettings, schema: Schema, features: FeatureMap) -> SumLayout:
    """Return which sums are shared; a study without a label is refused."""
    if schema.label.kind == "none":
        raise InputError("label", expected="one to predict", got="none", cure="Sums serve a model of a label.")
    n_classes = len(schema.label.classes) if schema.label.kind == "classes" else 0
    if settings.person in schema.names and settings.person:
        expected = "a column that is not shared"
        raise InputError("person", expected=expected, got=repr(settings.person), cure="Take it out of the columns.")
    return SumLayout(features.n_features, Outcome(n_classes))


def make_scheme(settings: SumSettings, layout: SumLayout, features: FeatureMap, roster: Sequence[str]) -> SumScheme:
    """Return what the settings mean for a roster, or refuse thresholds that do not hold."""
    p, c = len(roster), settings.n_colluders
    combiners = settings.combiners or tuple(roster[:MOST_BY_DEFAULT])
    if unknown := [name for name in combiners if name not in set(roster)]:
        raise InputError(
            "combiners", expected="participants of the roster", got=repr(unknown[0]), cure="Enrol it, or name another."
        )
    k = len(combiners)
    threshold = Threshold(k, settings.threshold_of(k), c)
    quorum = settings.quorum or p - p // 10
    if not c < quorum <= p:
        expected, got = f"above the number of colluders, {c}, and at most the number of participants, {p}", str(quorum)
        cure = "Somebody honest must be in every total, and nobody can be missed who is not enrolled."
        raise InputError("quorum", expected=expected, got=got, cure=cure)
    if settings.epsilon is None and layout.size > MOST_NUMBERS_A_ROW * quorum * settings.least_rows:
        raise InputError(
            "epsilon",
            expected=f"a number, or a total of {layout.size} numbers at most a tenth of the rows of a quorum",
            got=f"'none' with {quorum} participants of {settings.least_rows} rows or more",
            cure="Without noise, sums of few rows tell which rows are in them. State epsilon, raise least_rows, or use "
            "fewer features.",
        )
    return SumScheme(settings, features, layout, combiners, threshold, quorum, p)


def settings_from(method: Mapping[str, Any]) -> SumSettings:
    """Read the entries of [method], whose kinds were checked (`SUM_ENTRIES` of the study's file)."""
    names = {"colluders": "n_colluders", "hats": "n_hats"}
    plain = {names.get(key, key): value for key, value in method.items() if key != "name"}
    for key in ("combiners", "log_scaled"):
        if key in plain:
            plain[key] = tuple(plain[key])
    for key in ("epsilon", "delta", "product_share"):
        if key in plain:
            plain[key] = None if plain[key] == "none" else float(plain[key])
    return SumSettings(**plain)
