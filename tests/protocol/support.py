"""What tests of several parts of the protocol use."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mooring.errors import InputError, MooringError
from mooring.protocol.crypto.keys import SealingKey, SigningKey
from mooring.protocol.messages.card import Member, write_card


def message(call: Callable[[], Any], kind: type[MooringError] = InputError) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def write_member_card(path: Path, name: str, role: Any = "participant") -> tuple[Path, Member]:
    signer = SigningKey.generate()
    member = Member(name, signer.public, SealingKey.of(signer).public if role == "participant" else "")
    write_card(path / f"{name}.card.toml", role=role, member=member, signer=signer)
    return path / f"{name}.card.toml", member
