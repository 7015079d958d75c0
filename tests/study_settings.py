"""Studies of rotation, made and changed by their settings without regard to which table of the file holds each."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from mooring.mechanisms.rotation.settings import RotationSettings
from mooring.protocol.messages.study import Study
from mooring.tables.schema import Column, Label


def make_study(
    name: str,
    nonce: str,
    columns: Sequence[Column],
    label: Label,
    method: str,
    n_components: int,
    n_anchor_rows: int,
    *scales: float,
    **rest: Any,
) -> Study:
    """A study of rotation; `scales` and `rest` hold further settings of the mechanism and fields of the study."""
    names = {field.name for field in fields(RotationSettings)}
    inner = {key: rest.pop(key) for key in [*rest] if key in names}
    mechanism = RotationSettings(method, n_components, n_anchor_rows, *scales, **inner)
    return Study(name=name, nonce=nonce, columns=tuple(columns), label=label, mechanism=mechanism, **rest)


def change(study: Study, **changes: Any) -> Study:
    """The same study with other settings of its mechanism, or other fields."""
    names = {field.name for field in fields(study.mechanism)}  # type: ignore[arg-type]
    inner = {key: changes.pop(key) for key in [*changes] if key in names}
    return replace(study, mechanism=replace(study.mechanism, **inner), **changes)  # type: ignore[type-var]
