"""What a study of secure sums is likely to give: models and answers, before anybody shares."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from mooring.errors import InputError
from mooring.learners.models import FeatureMap
from mooring.mechanisms.sums.answers.forecast import (
    ASSUMED,
    AnswerForecast,
    ForecastLine,
    find_most_columns,
    forecast_answers,
    forecast_total,
)
from mooring.mechanisms.sums.features.columns import TableFeatures
from mooring.mechanisms.sums.general.features import LevelFeatures, select_schema
from mooring.mechanisms.sums.general.layout import PairwiseLayout
from mooring.mechanisms.sums.general.total import sum_exactly
from mooring.mechanisms.sums.general.workload import Workload
from mooring.mechanisms.sums.guarantee import SumPrivacy, calibrate_products, calibrate_sums
from mooring.mechanisms.sums.model_forecast import (
    OWN_ROWS,
    ModelCase,
    ModelForecast,
    ModelOutlook,
    forecast_model,
    forecast_on_rows,
)
from mooring.mechanisms.sums.secret_sharing import Parties
from mooring.mechanisms.sums.settings import MOST_BY_DEFAULT, SumSettings, make_features, make_layout
from mooring.mechanisms.sums.sums import SumLayout
from mooring.protocol.forecast import Outlook, StudyForecast
from mooring.protocol.messages.study import Study
from mooring.protocol.sums.scheme import sum_scheme, sum_settings
from mooring.serialization import Rows
from mooring.tables.encoder import EncodedRows

ASSUMED_PARTICIPANTS = 5
"""Number of participants that is assumed for a draft without a roster, unless colluders require more."""
_NAMES = {"tables": "A Table 1", "regression": "A regression", "survival": "A survival curve"}
_ASSUMED_LABEL = (
    "How much the columns tell about the label is not known. The label is assumed to depend on them weakly, moderately or "
    "strongly, so that a model of unlimited rows would have an AUC of 0.63, 0.73 or 0.83 for two classes."
)


def forecast_sums(
    study: Study, *, n_rows: int = 0, n_participants: int = 0, encoded: EncodedRows | None = None
) -> StudyForecast | None:
    """Return what a study is likely to give, from the declaration, the expected rows and the noise alone.

    With `encoded`, everybody's rows are taken to be like these. A study with very many features has no forecast of its
    model. The result is None if no number of rows is expected, for features of pictures, and if nothing can be forecast.
    """
    if encoded is None:
        return _forecast_declared(study, n_rows, n_participants)
    return _forecast(study, n_rows, n_participants, encoded)


def _forecast(study: Study, n_rows: int, n_participants: int, encoded: EncodedRows | None) -> StudyForecast | None:
    settings = sum_settings(study)
    n_rows = n_rows or settings.expected_rows
    if not n_rows:
        return None
    p = _count_participants(study, n_participants)
    features = make_features(settings, study.schema, study.image_shape)
    layout = make_layout(settings, study.schema, features)
    if not isinstance(layout, SumLayout | PairwiseLayout) or not isinstance(features, TableFeatures | LevelFeatures):
        return None
    n_added = max(1, round(n_rows * settings.kept_share))
    noise = _find_noise(study, layout, p)
    outlooks, tables = list[Outlook](), dict[str, Rows]()
    if (model := _forecast_model(_make_case(study, features, noise), n_added, p, encoded)) is not None:
        outlooks.append(_state_model(study, model))
        tables["Model"] = model.list_table()
    if isinstance(layout, PairwiseLayout):
        variance = noise[0] ** 2
        answers = _forecast_answers(layout.workload, variance, n_added, encoded)
        stated = (_state_answer(layout, variance, answers, question) for question in settings.questions)
        outlooks += [outlook for outlook in stated if outlook is not None]
        tables["Answers"] = answers.list_table()
    if not tables:
        return None
    assumed = () if encoded is not None else (*((_ASSUMED_LABEL,) if "Model" in tables else ()), ASSUMED)
    kept = {title: tuple(tuple(line) for line in table) for title, table in tables.items()}
    if not (n_participants or study.participants):
        assumed = (f"Nobody has joined yet, and {p} participants are assumed.", *assumed)
    return StudyForecast(n_rows, p, tuple(outlooks), kept, assumed, encoded is not None)


@lru_cache(maxsize=16)  # pages and questions ask for it repeatedly, and it simulates rows
def _forecast_declared(study: Study, n_rows: int, n_participants: int) -> StudyForecast | None:
    return _forecast(study, n_rows, n_participants, None)


def _forecast_model(
    case: ModelCase | None, n_rows: int, n_participants: int, encoded: EncodedRows | None
) -> ModelForecast | None:
    if case is None or not case.can_be_forecast:
        return None
    if encoded is None:
        return forecast_model(case, n_rows, n_participants)
    return None if encoded.labels is None else forecast_on_rows(case, encoded.rows, encoded.labels, n_rows)


def _forecast_answers(
    workload: Workload, noise_variance: float, n_rows: int, encoded: EncodedRows | None
) -> AnswerForecast:
    if encoded is None or not len(encoded.rows):
        return forecast_answers(workload, noise_variance, n_rows)
    total = sum_exactly(workload, encoded.rows, encoded.labels)
    matrix = n_rows / len(encoded.rows) * total.matrix
    return forecast_total(replace(total, matrix=matrix, noise_variance=noise_variance))


def _count_participants(study: Study, asked: int) -> int:
    c = sum_settings(study).n_colluders
    return asked or len(study.participants) or max(ASSUMED_PARTICIPANTS, c + 1)


def _find_noise(study: Study, layout: SumLayout | PairwiseLayout, p: int) -> tuple[float, float]:
    """Return the noise on the total of p contributions, as `ModelCase.noise`."""
    settings = sum_settings(study)
    if settings.epsilon is None:
        return 0.0, 0.0
    if study.is_complete and p == len(study.participants):
        privacy = sum_scheme(study).privacy
    else:
        privacy = _expect_privacy(settings, p)
    if isinstance(layout, PairwiseLayout):
        variance = p * calibrate_products(layout, privacy).on_products
        return variance**0.5 / layout.workload.resolution**2, 0.0
    return calibrate_sums(layout, privacy).scales(layout, p)


def _expect_privacy(settings: SumSettings, p: int) -> SumPrivacy:
    c = settings.n_colluders
    if p <= c:
        expected, got = f"above the number of colluders, {c}", str(p)
        raise InputError("participants", expected=expected, got=got, cure="Every total needs an honest participant.")
    quorum = settings.quorum if c < settings.quorum <= p else Parties(p, min(p, MOST_BY_DEFAULT), c).least_quorum()
    return settings.privacy(quorum=quorum)


def _make_case(study: Study, features: FeatureMap, noise: tuple[float, float]) -> ModelCase | None:
    """Return the model of the label as a case; None without a label or that question, or if the label is for survival."""
    settings = sum_settings(study)
    if "model" not in settings.questions or study.label.kind == "none":
        return None
    if isinstance(features, LevelFeatures):
        try:
            select_schema(features.workload, study.schema)
        except InputError:  # the label belongs to survival
            return None
    return ModelCase(features, study.schema, frozenset(settings.log_scaled), noise)


def _state_model(study: Study, model: ModelForecast) -> Outlook:
    """Return a sentence on whether the model is likely to beat guessing and training alone."""
    line = model.lines[len(model.lines) // 2]
    what = f"The model of {study.label.column!r} is likely {line.outlook}"
    figures = f"{model.metric} {line.joint:.2f}, training alone {line.alone:.2f}, guessing {line.guessing:.2f}"
    if line.relation == OWN_ROWS:
        like = "If everybody's rows are like yours, the model of"
        words = f"{like} {study.label.column!r} is likely {line.outlook} ({figures})"
        return Outlook("model", line.outlook == "better than training alone", words)
    others = [other for other in model.lines if other.outlook != line.outlook]
    unless = "".join(f"; if they tell {_compare(other)}, it is likely {other.outlook}" for other in others)
    words = f"{what}, if the columns tell moderately much of it ({figures}){unless}"
    return Outlook("model", line.outlook == "better than training alone", words)


def _compare(line: ModelOutlook) -> str:
    return {"weak": "little", "strong": "much"}[line.relation]


def _state_answer(layout: PairwiseLayout, variance: float, answers: AnswerForecast, question: str) -> Outlook | None:
    """Return a sentence on the first line that the forecast has on a question; None if it has none."""
    first = next((line for line in answers.lines if line.question == question), None)
    if first is None:
        return None
    if not first.is_refused:
        words = f"{_NAMES[question]} will likely be given ({first.answer}: 95 % interval {first})"
        return Outlook(question, True, words)
    return Outlook(question, False, _state_refusal(layout, variance, answers, first))


def _state_refusal(layout: PairwiseLayout, variance: float, answers: AnswerForecast, first: ForecastLine) -> str:
    why = "the noise leaves nothing to say" if variance else "so few rows leave nothing to say"
    words = f"{_NAMES[first.question]} will likely be refused: {why}"
    remedies = []
    if first.rows_needed:
        remedies.append(f"about {first.rows_needed:,} rows")
    if most := find_most_columns(layout.workload, variance, answers.rows, first.question):
        remedies.append(f"at most {most} columns besides the outcomes")
    return f"{words}. It would be given with {' or '.join(remedies)}" if remedies else words
