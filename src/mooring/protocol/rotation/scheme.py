"""The settings of a study of rotation, and who makes its anchor."""

from __future__ import annotations

from mooring.errors import InputError
from mooring.mechanisms.rotation.settings import RotationSettings
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.study import Study


def rotation_of(study: Study) -> RotationSettings:
    """The settings of a study of rotation; a study of another mechanism is refused."""
    if not isinstance(study.mechanism, RotationSettings):
        expected, got = "one in which rows are shared", f"one of {study.mechanism.name}"
        cure = "This step needs an anchor and rows, which its mechanism has not."
        raise InputError("study", expected=expected, got=got, cure=cure)
    return study.mechanism


def dealing_member(study: Study) -> Member:
    """The participant that makes the anchor."""
    study.require_roster()
    dealer = rotation_of(study).dealer
    return study.member(dealer) if dealer else study.participants[0]
