"""The settings of a study of secure sums: guarantee, features, combiners, threshold and quorum.

Legend: p participants, of whom c may collude with the analyst; k combiners, of whom t open the total; the quorum is the
minimum number of contributions in a total. Helpers are combiners that contribute no rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from mooring.errors import InputError
from mooring.learners.class_sums import ClassSums
from mooring.learners.models import FeatureMap
from mooring.learners.sums import Sums
from mooring.mechanisms.settings import MechanismSettings, RosterEntry
from mooring.mechanisms.sums.class_moments import ClassLayout, count_components
from mooring.mechanisms.sums.discrete_gaussian import LARGEST_VARIANCE
from mooring.mechanisms.sums.features.columns import TableFeatures
from mooring.mechanisms.sums.features.fourier import FourierFeatures
from mooring.mechanisms.sums.features.pictures import N_COMPONENTS, PictureFeatures, filters_of
from mooring.mechanisms.sums.general.features import LevelFeatures
from mooring.mechanisms.sums.general.layout import PairwiseLayout
from mooring.mechanisms.sums.general.levels import LINEAR_WEIGHT
from mooring.mechanisms.sums.general.survival import Survival
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.mechanisms.sums.general.workload import Workload, make_workload
from mooring.mechanisms.sums.guarantee import (
    MOST_NUMBERS_A_ROW,
    PRODUCT_SHARE,
    Noise,
    SumNoise,
    SumPrivacy,
    calibrate_products,
    calibrate_sums,
    find_lone_epsilon,
    state_odds,
)
from mooring.mechanisms.sums.prime_field import LARGEST, Words
from mooring.mechanisms.sums.secret_sharing import Parties, Threshold, least_threshold
from mooring.mechanisms.sums.sums import Integers, Outcome, SumLayout
from mooring.serialization import Count
from mooring.tables.schema import Schema, require_shown

SECURE_SUM = "secure-sum"
FeatureName = Literal["columns", "pictures", "fourier"]
FEATURES: tuple[FeatureName, ...] = ("columns", "pictures", "fourier")
Question = Literal["model", "tables", "regression", "survival"]
QUESTIONS: tuple[Question, ...] = ("model", "tables", "regression", "survival")
SumLayouts = SumLayout | ClassLayout | PairwiseLayout
"""A layout of sums for one model (over all rows together, or by class), or the layout of the general total."""
MOST_BY_DEFAULT = 15
"""Maximum number of combiners in a study that names no combiners and has no helpers. They are the first of its roster."""
_FAR = 16  # standard deviations that noise never exceeds in practice
_LINEAR_WEIGHT_WITHOUT_MODELS = 10
MOST_DELTA = 1e-3
"""Maximum δ of a study; δ = 1 would be no guarantee, whatever ε."""
_REMARK = """\
# Participants share sums instead of rows.
# epsilon: "none" adds no noise and gives no guarantee.
# n_colluders: how many participants may help the analyst.
# combiners: who holds shares. If nobody is named: the helpers or, without helpers, the first 15 of the roster.
# n_colluding_helpers: how many helpers may help the analyst (0: all but one; if there is only one, that one).
# threshold: how many combiners open the total (0: the smallest secure number).
# quorum: the minimum number of participants in a total (0: the number that allows the smallest threshold; with helpers, at
# least nine tenths of all participants).
# person: a column that identifies persons and is not shared. rows_per_person: the maximum number of rows of a person that a
# participant adds; "mean" adds the mean of each person's rows.
# most_rows: how many rows a participant is expected to add at most. A total of clearly more rows than this for each
# participant is refused, which bounds the effect of invented rows.
# kept_share: the probability with which each row is added.
# features: features of pictures may be fitted to public pictures with 'mooring study project'.
# expected_rows: how many rows all participants together are expected to have; this number is public (0: not known). If it
# is large enough for the noise, pictures of three classes or more are summed by class, which gives a better model.
# questions: what the total must answer. For "model" alone, only the sums for one model of the label are shared. With
# "tables", "regression" or "survival", sums over all columns are shared, from which every such answer and the model follow.
# survival_time, survival_event (a column of two words), survival_occurred (the word for an event) and survival_edges (the
# start of the first interval and the ends of all) belong to "survival".
# impossible: combinations that cannot occur, such as ["sex=m, pregnant=yes"], and that synthetic rows must not have. They
# must be known without looking at rows.
"""


class _NoneAsWord:
    """Writes None as "none", because TOML has no null, and reads "none" as None."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_wrap_validator_function(
            lambda value, validate: None if value == "none" else validate(value),
            core_schema.float_schema(allow_inf_nan=False, strict=True),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: "none" if value is None else value
            ),
        )


Epsilon = Annotated[float | None, _NoneAsWord()]
"""ε of a guarantee; None, written as "none", means no noise and no guarantee."""


@dataclass(frozen=True)
class SumSettings(MechanismSettings):
    """The entries of [mechanism] in the file of a study of secure sums."""

    name: ClassVar[str] = SECURE_SUM
    remark: ClassVar[str] = _REMARK
    shows_labels: ClassVar[bool] = False
    takes_helpers: ClassVar[bool] = True

    epsilon: Epsilon = 1.0
    """ε for adding or removing one unit; None means no noise and no guarantee."""
    delta: float = 1e-5
    """δ for adding or removing one unit."""
    n_colluders: Count = 1
    """c, the number of participants who may collude with the analyst."""
    combiners: tuple[str, ...] = ()
    """Who holds shares; by default the helpers or, without helpers, the first 15 participants in the roster."""
    n_colluding_helpers: Count = 0
    """Number of helpers who may collude with the analyst. 0 means all but one; if there is only one helper, it means one."""
    threshold: Count = 0
    """t; 0 means the smallest secure number (`least_threshold`)."""
    quorum: Count = 0
    """Minimum number of contributions. 0 means `Parties.least_quorum` and, in a study with helpers, at least nine tenths of
    the participants."""
    features: FeatureName = "columns"
    """The public feature map. "pictures" needs the study's image_shape."""
    n_features: Count = N_COMPONENTS
    """Number of features of pictures, or of random Fourier features. Sums by class and small pictures may have fewer
    features, and random Fourier features come in pairs."""
    features_digest: str = ""
    """SHA-256 digest of the file with features fitted to public pictures; empty if there is no such file."""
    n_hats: Count = 5
    """Hat functions per number; with 0, each number is one feature."""
    log_scaled: tuple[str, ...] = ()
    """Columns of numbers on a logarithmic scale."""
    person: str = ""
    """Column that identifies persons and is not shared; empty if the unit is a row."""
    rows_per_person: Count | Literal["mean"] = 1
    """Maximum number of rows of one person that a participant adds, or "mean" to add the mean over each person's rows."""
    least_rows: Count = 10
    """Without noise, a participant with fewer rows does not share. With noise there is no such limit, because not sharing
    would reveal the number of rows."""
    most_rows: Count = 100_000
    """Maximum number of rows that a participant may add. A total with more rows than all participants together may add is
    refused."""
    expected_rows: Count = 0
    """Number of rows that all participants together are expected to have; 0 if it is not stated. Forecasts use this number.
    With the noise and the number of classes, it decides whether pictures are summed by class (`count_class_components`)."""
    kept_share: float = 1.0
    """Probability with which each row is added. Rows are chosen independently, so that no row displaces another."""
    product_share: float = PRODUCT_SHARE
    """Share of the privacy budget for products of features, in a study for one model."""
    questions: tuple[Question, ...] = ("model",)
    """What the total must answer. A model alone needs fewer sums. All other questions need the general total."""
    survival_time: str = ""
    survival_event: str = ""
    survival_occurred: str = ""
    survival_edges: tuple[float, ...] = ()
    """The columns of times and of events, the word for an event that occurred, and the edges of intervals (`Survival`)."""
    impossible: tuple[str, ...] = ()
    """Combinations of words that cannot occur, such as "sex=m, pregnant=yes". Synthetic rows contain none of them."""

    def __post_init__(self) -> None:
        self._require_questions()
        if self.features not in FEATURES:
            raise InputError(
                "features", expected=" or ".join(FEATURES), got=repr(self.features), cure="Use one of these names."
            )
        if self.features_digest and (
            self.features != "pictures" or not re.fullmatch(r"[0-9a-f]{64}", self.features_digest)
        ):
            expected, got = "64 hexadecimal digits, with features of pictures", repr(self.features_digest)
            cure = "Leave it out, or let 'mooring study project' write it."
            raise InputError("features_digest", expected=expected, got=got, cure=cure)
        require_shown("person", (self.person,))
        if isinstance(self.rows_per_person, str) and self.rows_per_person != "mean":
            raise InputError(
                "rows_per_person",
                expected="a number, or 'mean'",
                got=repr(self.rows_per_person),
                cure="Use an integer or 'mean'.",
            )
        if self.rows_per_person != 1 and not self.person:
            problem = f"rows_per_person is {self.rows_per_person}, but no column identifies persons."
            cure = "Name that column with 'person', or leave rows_per_person out."
            raise InputError("rows_per_person", problem=problem, cure=cure)
        if self.n_colluders < 1:
            cure = "Assume that at least one participant may collude with the analyst."
            raise InputError("n_colluders", expected="1 or more", got=str(self.n_colluders), cure=cure)
        if not 1 <= self.least_rows <= self.most_rows:
            expected, got = f"between 1 and most_rows, {self.most_rows}", str(self.least_rows)
            raise InputError("least_rows", expected=expected, got=got, cure="Correct least_rows or most_rows.")
        if self.expected_rows < 0:
            cure = "Leave it out, or state how many rows all participants together are expected to have."
            raise InputError("expected_rows", expected="0 or more", got=str(self.expected_rows), cure=cure)
        if not 0 < self.kept_share <= 1:
            cure = "1 adds every row."
            raise InputError("kept_share", expected="above 0, at most 1", got=str(self.kept_share), cure=cure)
        if len(set(self.combiners)) < len(self.combiners):
            repeated = next(name for name in self.combiners if self.combiners.count(name) > 1)
            raise InputError("combiners", problem=f"{repeated!r} is named twice.", cure="Name every combiner once.")
        self.privacy(quorum=self.n_colluders + 1)
        if self.delta > MOST_DELTA:
            cure = "With probability delta, the guarantee does not hold. Keep delta well below one over the number of rows."
            raise InputError("delta", expected=f"{MOST_DELTA:g} at most", got=str(self.delta), cure=cure)

    def _require_questions(self) -> None:
        wrong = [question for question in self.questions if question not in QUESTIONS]
        if wrong or not self.questions or len(set(self.questions)) < len(self.questions):
            expected, got = f"some of {', '.join(QUESTIONS)}, each once", ", ".join(self.questions) or "none"
            raise InputError("questions", expected=expected, got=got[:80], cure="Say what the study is for.")
        if self.is_general and self.features != "columns":
            problem = (
                f"Questions other than a model need features of columns, and the study has features of {self.features}."
            )
            raise InputError("questions", problem=problem, cure='Ask for a "model" only, or use features of columns.')
        if self.impossible and not self.is_general:
            problem = "Impossible combinations concern synthetic rows, which a study for one model does not provide."
            raise InputError("impossible", problem=problem, cure='Remove them, or add "tables" to questions.')
        entries = (self.survival_time, self.survival_event, self.survival_occurred, self.survival_edges)
        if ("survival" in self.questions) != all(entries) or any(entries) != all(entries):
            names = "survival_time, survival_event, survival_occurred and survival_edges"
            problem = f'The question "survival" and the entries {names} belong together, and some are absent.'
            raise InputError("questions", problem=problem, cure="Give the question and all entries, or none of them.")

    @property
    def is_general(self) -> bool:
        """Whether the general total is shared, which can answer all questions, rather than the sums for one model."""
        return self.questions != ("model",)

    def count_class_components(self, schema: Schema) -> int:
        """Return how many features of pictures are summed by class; 0 if sums are not by class."""
        if self.features != "pictures" or self.epsilon is None or not self.expected_rows:
            return 0
        m = 1 if self.rows_per_person == "mean" else self.rows_per_person
        n_added = round(self.expected_rows * self.kept_share)
        n_components = count_components(n_added, len(schema.label.classes), self.epsilon, self.delta, m)
        return min(n_components, self.n_features)

    @property
    def survival(self) -> Survival | None:
        """The times to an event, as the study declares them; None if it declares none."""
        if not self.survival_time:
            return None
        return Survival(self.survival_time, self.survival_event, self.survival_occurred, self.survival_edges)

    @property
    def unit(self) -> str:
        """The unit of the guarantee, a row or a person."""
        return "person" if self.person else "row"

    def state_guarantee(self) -> str:
        """Return sentences on the guarantee and on what the guarantee means for a test of membership."""
        if self.epsilon is None:
            no_noise = "There is no guarantee and no protection for rows: the sums carry no noise."
            lone = "a row that alone has a value near the end of a range can be read off"
            return f"{no_noise} The total, and the model, may reveal whether a given row is in it, and {lone}."
        promise = f"({self.epsilon:g}, {self.delta:g})-differential privacy for adding or removing one {self.unit}"
        return f"{state_odds(self.epsilon, self.delta, self.unit)} That is {promise}."

    @property
    def promise(self) -> tuple[float, float] | None:
        """ε and δ of the guarantee for one unit; None without noise."""
        return None if self.epsilon is None else (self.epsilon, self.delta)

    def privacy(self, *, quorum: int) -> SumPrivacy:
        """Return the guarantee in the form for which noise is calibrated. In a study without noise, its ε has no meaning."""
        return SumPrivacy(
            1.0 if self.epsilon is None else self.epsilon,
            self.delta,
            quorum,
            self.n_colluders,
            1 if self.rows_per_person == "mean" else self.rows_per_person,
            self.product_share,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the entries in a fixed order, without unused entries and without some that are empty or 0."""
        unused = "n_features" if self.features == "columns" else "n_hats"
        kept = ("epsilon", "combiners")
        plain = {key: value for key, value in super().as_dict().items() if key in kept or value not in ("", [])}
        plain.pop(unused)
        for name in ("n_colluding_helpers", "expected_rows"):
            if not plain[name]:
                plain.pop(name)
        if self.is_general:
            plain.pop("n_hats", None)
            plain.pop("product_share")
        if not self.person:
            plain.pop("rows_per_person")
        return plain

    def require_label(self, has_label: bool) -> None:
        """Raise an `InputError` if the study asks for a model and has no label."""
        if "model" in self.questions and not has_label:
            cure = 'Declare a label in the study, or ask for "tables" or "regression" instead of a model.'
            raise InputError("label", problem="A model needs a label to predict.", cure=cure)

    def require_fit(self, schema: Schema, image_shape: Sequence[int]) -> None:
        """Raise an `InputError` for columns, or a label, from which features or sums cannot be made."""
        make_layout(self, schema, make_features(self, schema, image_shape))

    def require_limits(self, uploads: Sequence[str]) -> None:
        """Raise an `InputError` for a limit that is measured on rows, if there is noise: deciding by it discloses rows."""
        measured = [limit for limit in uploads if not limit.lower().lstrip().startswith("epsilon")]
        if self.epsilon is not None and measured:
            problem = f"The limit {measured[0]!r} is measured on rows, so the decision to share would disclose them."
            raise InputError(
                "limits", problem=problem, cure="Leave this limit out, or limit epsilon, which bounds what it measures."
            )

    def list_combiners(self, roster: Sequence[str], helpers: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the names of the combiners. Their order gives the points 1 to k at which they get their shares."""
        return self.combiners or tuple(helpers) or tuple(roster[:MOST_BY_DEFAULT])

    def count_parties(self, roster: Sequence[str], helpers: Sequence[str]) -> Parties:
        """Return how many contribute, combine and may collude; raise an `InputError` for invalid combiners or helpers."""
        combiners, n_declared = self.list_combiners(roster, helpers), self.n_colluding_helpers
        if unknown := [name for name in combiners if name not in {*roster, *helpers}]:
            cure = "Enrol this combiner, or name another."
            expected, got = "participants or helpers of the roster", repr(unknown[0])
            raise InputError("combiners", expected=expected, got=got, cure=cure)
        if idle := [name for name in helpers if name not in combiners]:
            problem = f"The helper {idle[0]!r} is not among the combiners, and helpers have no other task."
            raise InputError("combiners", problem=problem, cure="Name it in combiners, or take it out of the roster.")
        if n_declared > len(helpers):
            expected, got = f"at most the number of helpers, {len(helpers)}", str(n_declared)
            raise InputError("n_colluding_helpers", expected=expected, got=got, cure="Lower it; 0 is the default.")
        n_colluding = (n_declared or max(1, len(helpers) - 1)) if helpers else 0
        return Parties(len(roster), len(combiners) - len(helpers), self.n_colluders, len(helpers), n_colluding)

    def require_roster(
        self,
        schema: Schema,
        image_shape: Sequence[int],
        roster: Sequence[RosterEntry],
        helpers: Sequence[RosterEntry] = (),
    ) -> None:
        """Raise an `InputError` if `make_scheme` or `make_layout` does, or if a combiner has no signed combining key."""
        features = make_features(self, schema, image_shape)
        names = [member.name for member in roster], [member.name for member in helpers]
        scheme = make_scheme(self, make_layout(self, schema, features), features, *names)
        unable = [
            member.name
            for member in (*roster, *helpers)
            if member.name in scheme.combiners and not member.holds_combining_key
        ]
        if unable:
            problem = f"The combiner {unable[0]!r} has no combining key that it signed."
            raise InputError("roster", problem=problem, cure="Use the card that 'mooring join' wrote.")


@dataclass(frozen=True)
class SumScheme:
    """The settings of a study, applied to its columns and roster."""

    settings: SumSettings
    features: FeatureMap
    layout: SumLayouts
    combiners: tuple[str, ...]
    """Names of the combiners. Combiner j in this order gets its share at the point j, from 1 to k."""
    threshold: Threshold
    quorum: int
    parties: Parties

    @property
    def privacy(self) -> SumPrivacy:
        """The guarantee in a study with this quorum."""
        return self.settings.privacy(quorum=self.quorum)

    @property
    def is_by_class(self) -> bool:
        """Whether the rows of each class are summed separately."""
        return isinstance(self.layout, ClassLayout)

    @property
    def noise(self) -> Noise | None:
        """The noise that each participant adds; None in a study without a guarantee."""
        if self.settings.epsilon is None:
            return None
        if isinstance(self.layout, SumLayout):
            return calibrate_sums(self.layout, self.privacy)
        return calibrate_products(self.layout, self.privacy)

    def draw_noise(self, words: Words) -> Integers:
        """Return the noise that a participant adds to its vector of sums; zeros in a study without a guarantee."""
        noise = self.noise
        return np.zeros(self.layout.size, dtype=np.int64) if noise is None else noise.draw(self.layout, words)

    @property
    def pooled_epsilon(self) -> float | None:
        """ε of a single contribution, should t combiners pool their keys and open it; None without noise."""
        return None if self.settings.epsilon is None else find_lone_epsilon(self.privacy)

    def unpack(self, vector: Integers, n_contributions: int) -> Sums | ClassSums | PairwiseTotal:
        """Return the sums in an opened total of `n_contributions`, with the scale of the noise of all contributions."""
        settings, noise, layout, features = self.settings, self.noise, self.layout, self.features
        if isinstance(layout, PairwiseLayout):
            variance = 0.0 if noise is None else float(n_contributions * noise.on_products)
            delta = None if settings.epsilon is None else settings.delta
            return replace(layout.unpack(vector, variance), epsilon=settings.epsilon, delta=delta, unit=settings.unit)
        if isinstance(layout, ClassLayout):
            assert noise is not None  # without noise, sums are not by class (`count_class_components`)
            deviation = math.sqrt(n_contributions * noise.on_products) / layout.scale**2
            return ClassSums(layout.unpack(vector), features.constant_share, deviation, features.unit_length)
        S, T = layout.unpack(vector)
        scales = noise.scales(layout, n_contributions) if isinstance(noise, SumNoise) else (0.0, 0.0)
        return Sums(S, T, features.constant_share, layout.outcome.n_classes, scales, features.unit_length)

    def state_absences(self) -> str:
        """Return two sentences: how many contributions may be missing, and how many combiners may be away."""
        p = self.parties.n_participants
        missing, away = p - self.quorum, self.threshold.n_combiners - self.threshold.threshold
        shares = f"{f'up to {missing}' if missing else 'none'} of the {p} contributions may be missing"
        answers = f"{f'up to {away}' if away else 'none'} of the {self.threshold.n_combiners} combiners may be away"
        return f"When the list is closed, {shares}. Afterwards, {answers}."


def make_features(settings: SumSettings, schema: Schema, image_shape: Sequence[int]) -> FeatureMap:
    """Return the public feature map of a study's columns."""
    if settings.is_general:
        return LevelFeatures(make_general_workload(settings, schema), schema)
    if settings.features == "columns":
        return TableFeatures(schema, frozenset(settings.log_scaled), settings.n_hats)
    if settings.features == "fourier":
        return FourierFeatures(schema.n_features, max(1, settings.n_features // 2))
    if len(image_shape) not in (2, 3):
        problem = "Features of pictures need the shape of the images."
        raise InputError("image_shape", problem=problem, cure='Set image_shape, for example to "28x28".')
    height, width, n_channels = (*image_shape, 1)[:3]
    n_components = settings.count_class_components(schema) or settings.n_features
    n_components = min(n_components, filters_of(height, width).n_responses)
    return PictureFeatures(height, width, n_channels, n_components)


def make_general_workload(settings: SumSettings, schema: Schema) -> Workload:
    """Return the workload of the general total. Without a model, the linear contrasts of numbers get a larger weight."""
    return make_workload(
        schema,
        log_scaled=frozenset(settings.log_scaled),
        survival=settings.survival,
        linear_weight=LINEAR_WEIGHT if "model" in settings.questions else _LINEAR_WEIGHT_WITHOUT_MODELS,
        impossible=settings.impossible,
    )


def make_layout(settings: SumSettings, schema: Schema, features: FeatureMap) -> SumLayouts:
    """Return the layout of the shared sums.

    An `InputError` is raised for a model or a regression without an outcome, for a shared column of persons, and for too
    many features or sums.
    """
    settings.require_label(schema.label.kind != "none")
    if settings.person in schema.names and settings.person:
        problem = f"The column {settings.person!r} identifies persons and must not be shared."
        raise InputError("person", problem=problem, cure="Remove it from the columns.")
    if isinstance(features, LevelFeatures):
        if "regression" in settings.questions and not features.workload.has_regressions:
            problem = "No column can be the outcome of a regression on another column."
            cure = (
                "Add a number or a category of two words, and another column besides those of survival; or ask for "
                '"tables" instead of "regression".'
            )
            raise InputError("questions", problem=problem, cure=cure)
        return PairwiseLayout(features.workload, settings.rows_per_person == "mean")
    n_classes = len(schema.label.classes) if schema.label.kind == "classes" else 0
    if settings.count_class_components(schema):
        return ClassLayout(features.n_features, n_classes)
    return SumLayout(features.n_features, Outcome(n_classes))


def make_scheme(
    settings: SumSettings,
    layout: SumLayouts,
    features: FeatureMap,
    roster: Sequence[str],
    helpers: Sequence[str] = (),
) -> SumScheme:
    """Return the settings, applied to a roster.

    An `InputError` is raised for invalid combiners, for a quorum or a threshold that is not secure, for sums without noise
    over too few rows, and for rows or noise that exceed the numbers that can be shared.
    """
    p, c, parties = len(roster), settings.n_colluders, settings.count_parties(roster, helpers)
    # With helpers, a small quorum can be secure, but each participant then adds more noise. Nine tenths cost little noise.
    quorum = settings.quorum or max(parties.least_quorum(), p - p // 10 if helpers else 0)
    if not c < quorum <= p:
        expected, got = f"above the number of colluders, {c}, and at most the number of participants, {p}", str(quorum)
        cure = "Every total must include at least one honest participant, and only participants of the roster."
        raise InputError("quorum", expected=expected, got=got, cure=cure)
    overlap, k, a = parties.do_lists_overlap(quorum), parties.n_combiners, parties.most_colluding
    threshold = Threshold(k, settings.threshold or min(k, least_threshold(k, a, overlap)), a, overlap)
    if settings.epsilon is None and layout.size > MOST_NUMBERS_A_ROW * quorum * settings.least_rows:
        needed, available = math.ceil(layout.size / MOST_NUMBERS_A_ROW), quorum * settings.least_rows
        raise InputError(
            "epsilon",
            problem=f"Without noise, a total of {layout.size} numbers needs at least {needed} rows, and a quorum of "
            f"{quorum} participants with {settings.least_rows} rows each has {available}.",
            cure="Without noise, sums of few rows reveal which rows are in them. Set epsilon, raise least_rows, or use "
            "fewer features.",
        )
    if p * settings.most_rows > layout.most_rows:
        expected, got = f"at most {layout.most_rows // p}, so that no total exceeds the field", str(settings.most_rows)
        raise InputError("most_rows", expected=expected, got=got, cure="Lower most_rows.")
    combiners = settings.list_combiners(roster, helpers)
    scheme = SumScheme(settings, features, layout, combiners, threshold, quorum, parties)
    noise = scheme.noise
    largest = 0 if noise is None else max(noise.on_products, noise.on_outcomes if isinstance(noise, SumNoise) else 0)
    if largest > LARGEST_VARIANCE or _FAR * math.isqrt(p * largest) > LARGEST // 4:
        problem = "Noise for this epsilon and rows_per_person exceeds the numbers that can be shared."
        raise InputError("epsilon", problem=problem, cure="Raise epsilon, or lower rows_per_person.")
    return scheme
