"""Presigned addresses: periods, and places that can sign."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mooring.errors import InputError, StorageError
from mooring.protocol.transport import presigned_upload
from mooring.protocol.transport.presigned_upload import invite, parse_period, write_invitations
from tests.permissions import has_mode
from tests.protocol.transport.support import make_study
from tests.raising import raising


def test_periods_and_places_that_cannot_be_signed_for() -> None:
    assert [parse_period(period) for period in ("1m", "12h", "7d", "10080m")] == [60, 43_200, 604_800, 604_800]
    for period in ("8d", "10081m", "0m", "7", "d", "-1d", "1w", ""):
        with raising(InputError, "expires", expected="from 1m to 7d"):
            parse_period(period)
    with raising(InputError, "expires", got=repr("1" * 20)):
        parse_period("1" * 30)
    for place, got in (("inbox", "a folder"), ("memory://inbox", "memory://"), ("file:///inbox", "file://")):
        with raising(InputError, "bundles", expected="presign", got=got):
            invite(make_study(), place)
    with raising(InputError, "participant", got="nobody"):
        invite(make_study(), "s3://ward/inbox", only=["nobody"])


def test_each_participant_is_signed_for_its_own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def sign(path: str, **options: Any) -> str:
        asked.append((path, options))
        return f"https://store/{path}?secret"

    def ls(place: str) -> None:
        raise FileNotFoundError(place)

    def opened(address: str, **options: Any) -> tuple[Any, str]:
        asked.append((address, options))
        return SimpleNamespace(exists=lambda place: place == "ward", sign=sign, ls=ls), address.removeprefix("s3://")

    monkeypatch.setattr(presigned_upload, "open_file_system", opened)
    study = make_study()
    names = [member.name for member in study.participants]
    invitations = invite(study, "s3://ward/inbox", expires=90)
    assert asked.pop(0) == ("s3://ward/inbox", {"config_kwargs": {"signature_version": "s3v4"}})
    signed = {"expiration": 90, "client_method": "put_object"}
    assert asked == [(f"ward/inbox/{name}.bundle", signed) for name in names]
    assert [invitation.name for invitation in invite(study, "s3://ward/inbox", only=names[1:])] == names[1:]
    assert asked[-1][1]["expiration"] == 7 * 86_400
    assert "secret" not in repr(invitations)
    paths = write_invitations(invitations, tmp_path / "addresses")
    assert list(paths) == names
    assert paths[names[0]].read_text() == f"https://store/ward/inbox/{names[0]}.bundle?secret\n"
    assert has_mode(paths[names[0]], 0o600)
    assert has_mode(tmp_path / "addresses", 0o700)
    with raising(StorageError, "the invitation"):
        invite(study, "s3://elsewhere/inbox")
