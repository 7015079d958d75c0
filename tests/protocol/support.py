"""What tests of several parts of the protocol use."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mooring.errors import InputError, MooringError
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.card import Member, write_card
from mooring.tables.schema import Column, Label
from tests.keys import fixed_key, keyed_member
from tests.study_settings import make_study

ENROLLED = keyed_member("a", fixed_key(0))
AGREED = make_study(
    "heart",
    "0" * 32,
    (Column("age", "number", 0, 120), Column("weight", "number", 0, 120), Column("sex", "category", categories=("f",))),
    Label("ill", "classes", ("no", "yes")),
    "aa-i-gdp-data-noise",
    3,
    12,
    data_noise_scale=0.5,
)


def message(call: Callable[[], Any], kind: type[MooringError] = InputError) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def write_member_card(path: Path, name: str, role: Any = "participant") -> tuple[Path, Member]:
    signer = SigningKey.generate()
    member = Member(name, signer.public) if role == "helper" else keyed_member(name, signer)
    write_card(path / f"{name}.card.toml", role=role, member=member, signer=signer)
    return path / f"{name}.card.toml", member
