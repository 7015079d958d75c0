"""Audits are shorter in a process that loads this: those that tests start copy one that has."""

import pytest

from tests.conftest import SHORTER

for name, fewer in SHORTER.items():
    pytest.MonkeyPatch().setattr(f"mooring.{name}", fewer)
