"""Answers from an opened total: tables, regressions, survival curves, associations, forecasts and synthetic rows.

An `Answer` is a frozen value with estimates, 95 % intervals and the guarantee. The guarantee of a total covers everything
that is computed from it, so that answers cost no further privacy, however many are asked.
"""

from mooring.mechanisms.sums.answers.answer import Answer, AskedAnswer, Source
from mooring.mechanisms.sums.answers.association import Associations, Correlation, Independence, associate
from mooring.mechanisms.sums.answers.description import Description, Statistic, describe
from mooring.mechanisms.sums.answers.forecast import AnswerForecast, ForecastLine, forecast_answers, forecast_total
from mooring.mechanisms.sums.answers.odds_ratios import OddsRatio, OddsRatios, estimate_odds_ratios
from mooring.mechanisms.sums.answers.regression import Regression, RegressionTerm, regress
from mooring.mechanisms.sums.answers.survival import (
    LogRank,
    MedianSurvival,
    SurvivalCurves,
    SurvivalPoint,
    estimate_survival,
)
from mooring.mechanisms.sums.answers.synthesis import SyntheticHeader, SyntheticRows, synthesize

__all__ = [
    "Answer",
    "AnswerForecast",
    "AskedAnswer",
    "Associations",
    "Correlation",
    "Description",
    "ForecastLine",
    "Independence",
    "LogRank",
    "MedianSurvival",
    "OddsRatio",
    "OddsRatios",
    "Regression",
    "RegressionTerm",
    "Source",
    "Statistic",
    "SurvivalCurves",
    "SurvivalPoint",
    "SyntheticHeader",
    "SyntheticRows",
    "associate",
    "describe",
    "estimate_odds_ratios",
    "estimate_survival",
    "forecast_answers",
    "forecast_total",
    "regress",
    "synthesize",
]
