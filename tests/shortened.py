"""Audits are shorter in a process that loads this, if `SHORTER_AUDITS` is set: those that tests start copy one that has."""

import os

import pytest

from tests.conftest import SHORTER

if "SHORTER_AUDITS" in os.environ:  # not where pytest looks for examples in docstrings
    for name, fewer in SHORTER.items():
        pytest.MonkeyPatch().setattr(f"mooring.{name}", fewer)
