"""Formulas as users of R and of statsmodels write them, with main effects only.

A total holds sums of products of two columns. Interactions, powers, and functions other than declared logarithms cannot be
computed from it; each is refused with an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from mooring.errors import InputError

TermForm = Literal["as declared", "log", "category"]
_QUOTED = re.compile(r"`([^`]+)`|Q\(\s*(?:\"([^\"]*)\"|'([^']*)')\s*\)")
_CALL = re.compile(r"([A-Za-z_][\w.]*)\s*\((.*)\)", re.DOTALL)
_FORMS: dict[str, TermForm] = {"log": "log", "np.log": "log", "C": "category", "factor": "category"}


@dataclass(frozen=True)
class FormulaTerm:
    """One column of a formula, and the function that the formula applies to it."""

    column: str
    form: TermForm = "as declared"


@dataclass(frozen=True)
class Formula:
    """An outcome and the terms that it is regressed on."""

    outcome: FormulaTerm
    terms: tuple[FormulaTerm, ...]


def parse_formula(text: str, columns: Collection[str], log_scaled: Collection[str] = ()) -> Formula:
    """Return the outcome and terms of a formula such as "y ~ a + C(b)", or raise an `InputError`.

    A name that is not a single word is quoted as in R, `a b`, or as in statsmodels, Q("a b"). A term that is exactly the
    name of a column need not be quoted. A dot stands for all columns but the outcome; those in `log_scaled` are taken as
    logarithms.

    Examples
    --------
    >>> parse_formula("y ~ log(a) + b", ["a", "b", "y"]).terms
    (FormulaTerm(column='a', form='log'), FormulaTerm(column='b', form='as declared'))
    """
    quoted: list[str] = []

    def keep(match: re.Match[str]) -> str:
        quoted.append(next(part for part in match.groups() if part is not None))
        return f"§{len(quoted) - 1}§"

    sides = _QUOTED.sub(keep, text).split("~")
    if len(sides) != 2 or not all(side.strip() for side in sides):
        expected = "an outcome, a tilde and at least one term, such as 'y ~ a + b'"
        raise InputError("formula", expected=expected, got=repr(text[:80]), cure="Write it as in R or statsmodels.")
    outcome = _parse_term(sides[0].strip(), columns, quoted)
    terms: list[FormulaTerm] = []
    for word in (part.strip() for part in sides[1].split("+")):
        if word == ".":
            others = [name for name in columns if name != outcome.column]
            terms += [FormulaTerm(name, "log" if name in log_scaled else "as declared") for name in others]
        elif word != "1":
            terms.append(_parse_term(word, columns, quoted))
    terms = list(dict.fromkeys(terms))
    names = [term.column for term in terms]
    if not terms:
        problem = "The formula has no terms besides the intercept."
        raise InputError("formula", problem=problem, cure="'mooring describe' gives means.")
    if outcome.column in names or len(set(names)) < len(names):
        twice = outcome.column if outcome.column in names else next(name for name in names if names.count(name) > 1)
        raise InputError("formula", problem=f"The formula uses {twice!r} twice.", cure="Use each column once.")
    return Formula(outcome, tuple(terms))


def _parse_term(word: str, columns: Collection[str], quoted: list[str]) -> FormulaTerm:
    if word in columns:
        return FormulaTerm(word)
    if match := re.fullmatch(r"§(\d+)§", word):
        name = quoted[int(match[1])]
        if name in columns:
            return FormulaTerm(name)
        word = name
    elif (call := _CALL.fullmatch(word)) and call[1] in _FORMS:
        return FormulaTerm(_parse_term(call[2].strip(), columns, quoted).column, _FORMS[call[1]])
    else:
        _refuse_effect(re.sub(r"§(\d+)§", lambda match: f"`{quoted[int(match[1])]}`", word))
    known = ", ".join(repr(name) for name in columns)
    problem = f"The formula names {word[:60]!r}, which is not a column that regressions of this study use: {known}."
    cure = "Use these names; survival is not among them. Put `backticks` around a name that is not a single word."
    raise InputError("formula", problem=problem, cure=cure)


def _refuse_effect(word: str) -> None:
    """Raise an `InputError` for a term that is more than a main effect; do nothing for a term that looks like a name."""
    shown = repr(word[:60])
    cure = "Use main effects only, or declare a column that holds this term in a new study."
    if re.fullmatch(r"-?\s*[01](\s*-\s*1)?", word) or re.search(r"-\s*1\s*$", word):
        raise InputError(
            "formula", problem="A model without an intercept is not available.", cure="Leave 0 and -1 out."
        )
    if "^" in word or "**" in word or re.match(r"(I|poly|bs|ns|pow|np\.power)\s*\(", word):
        problem = f"{shown} is a power or spline: it needs sums that the total does not hold."
        raise InputError("formula", problem=problem, cure=cure)
    if re.search(r"[:*/|]|%in%", word):
        problem = (
            f"{shown} is an interaction: it needs sums of products of three columns, which the total does not hold."
        )
        raise InputError("formula", problem=problem, cure=cure)
    if call := _CALL.fullmatch(word):
        problem = (
            f"{shown} applies {call[1]!r}. Only C, and log of a column on a declared logarithmic scale, can be used."
        )
        raise InputError("formula", problem=problem, cure=cure)
