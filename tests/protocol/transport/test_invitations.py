"""Presigned addresses: periods, and places that can sign."""

from mooring.errors import InputError
from mooring.protocol.transport.invitations import invite, parse_period
from tests.protocol.transport.support import make_study
from tests.raising import raising


def test_periods_and_places_that_cannot_be_signed_for() -> None:
    assert [parse_period(period) for period in ("1m", "12h", "7d")] == [60, 43_200, 604_800]
    for period in ("8d", "0m", "7", "d", "-1d", "1w", ""):
        with raising(InputError, "expires", expected="from 1m to 7d"):
            parse_period(period)
    for place, got in (("inbox", "a folder"), ("memory://inbox", "memory://"), ("file:///inbox", "file://")):
        with raising(InputError, "bundles", expected="presign", got=got):
            invite(make_study(), place)
    with raising(InputError, "participant", got="nobody"):
        invite(make_study(), "s3://ward/inbox", only=["nobody"])
