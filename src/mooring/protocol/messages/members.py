"""Who takes part in a study, by name and public keys."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mooring.errors import InputError

CARD_CURE = "Use the card that 'mooring join' wrote."
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_HEX = re.compile(r"[0-9a-f]{64}")
_AGE = re.compile(r"age1[0-9a-z]{58}")


@dataclass(frozen=True)
class Member:
    """Somebody who takes part, by its public keys.

    Attributes
    ----------
    name : str
    signing_key : str
        Ed25519, in hexadecimal.
    sealing_key : str
        An age recipient; empty for the analyst, to whom nothing is sealed.
    """

    name: str
    signing_key: str
    sealing_key: str = ""

    def __post_init__(self) -> None:
        require_name("name of a member", self.name)
        if not _HEX.fullmatch(self.signing_key):
            raise InputError(
                f"signing key of {self.name!r}", expected="64 hexadecimal digits", got="something else", cure=CARD_CURE
            )
        if self.sealing_key and not _AGE.fullmatch(self.sealing_key):
            raise InputError(
                f"sealing key of {self.name!r}",
                expected="an age recipient, age1…",
                got="something else",
                cure=CARD_CURE,
            )

    def as_dict(self) -> dict[str, str]:
        """Plain values in a fixed order."""
        plain = {"name": self.name, "signing_key": self.signing_key}
        return plain | ({"sealing_key": self.sealing_key} if self.sealing_key else {})


def require_name(what: str, name: str) -> None:
    """Refuse a name that could not be a file's everywhere."""
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise InputError(
            what,
            expected="up to 64 lower-case letters, digits, dots, hyphens and underscores, a letter or digit first",
            got="something else",
            cure="For example 'st-mary-hospital'.",
        )
