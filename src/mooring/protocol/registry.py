"""The registered mechanisms: those that come with mooring, and those that `register_exchange` adds.

A mechanism is loaded when it is needed. Help texts need its steps only, which are loaded without the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from mooring.errors import InputError, require_choice
from mooring.protocol.step import Addition, Step

if TYPE_CHECKING:
    from mooring.protocol.exchange import Exchange
    from mooring.protocol.exchange_types import SendableFile
    from mooring.protocol.messages.study import Study

_MECHANISMS: dict[str, str | Exchange] = {
    "rotation": "mooring.protocol.rotation",
    "secure-sum": "mooring.protocol.sums",
}
"""The exchange of each mechanism by name, or its package until the exchange is loaded."""


def register_exchange(exchange: Exchange) -> None:
    """Add a mechanism to those that studies can name; the mechanism's name must be new."""
    if exchange.name in _MECHANISMS:
        problem = f"A mechanism with the name {exchange.name!r} is registered already."
        raise InputError("name of the mechanism", problem=problem, cure="Choose another name.")
    _MECHANISMS[exchange.name] = exchange


def get_exchange(name: object) -> Exchange:
    """Return the exchange of a mechanism by its name."""
    require_choice("mechanism", name, _MECHANISMS, cure="Correct [mechanism] in the study's file.")
    entry = _MECHANISMS[str(name)]
    if isinstance(entry, str):
        entry = _MECHANISMS[str(name)] = import_module(f"{entry}.exchange").EXCHANGE
    return entry


def exchange_of(study: Study) -> Exchange:
    """Return the exchange of the mechanism that a study names."""
    return get_exchange(study.mechanism.name)


def list_exchanges() -> list[Exchange]:
    """Return the exchanges of all mechanisms."""
    return [get_exchange(name) for name in _MECHANISMS]


def list_own_steps() -> dict[str, tuple[Sequence[Step], Sequence[Addition]]]:
    """Return the own steps and the additions of each mechanism, by its name; see `own_steps_of`."""
    return {name: own_steps_of(name) for name in _MECHANISMS}


def own_steps_of(name: str) -> tuple[Sequence[Step], Sequence[Addition]]:
    """Return the steps that only the mechanism with this name has, and what it adds to common steps."""
    entry = _MECHANISMS[name]
    if isinstance(entry, str):
        steps = import_module(f"{entry}.steps")
        return steps.STEPS, steps.ADDITIONS
    return entry.steps, entry.additions


def list_sendable_files() -> list[SendableFile]:
    """Return the files of all mechanisms that may leave a participant's machine."""
    return [form for exchange in list_exchanges() for form in exchange.sendable]
