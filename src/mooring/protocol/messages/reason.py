"""Decisions of persons, written as 'NAME: REASON'."""

from __future__ import annotations

from mooring.errors import InputError
from mooring.tables.schema import can_be_shown

_MOST_WORDS = 500


def require_reasoned(what: str, decision: str) -> None:
    """Refuse a decision that does not say who decides and why; an empty text is accepted, since it decides nothing."""
    if decision and not is_reasoned(decision):
        expected = f"NAME: REASON, of at most {_MOST_WORDS} printable characters"
        raise InputError(what, expected=expected, got=repr(decision)[:80], cure="Say who decides, and why.")


def is_reasoned(decision: str) -> bool:
    """Return whether a decision says who decides and why, in text that can be printed."""
    who, _, why = decision.partition(":")
    return bool(who.strip() and why.strip()) and len(decision) <= _MOST_WORDS and can_be_shown(decision)
