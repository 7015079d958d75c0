"""Audits are shorter in a process that loads this, if `SHORTER_AUDITS` is set: those that tests start copy one that has."""

import os

import pytest

from tests.conftest import shorten_audits

if "SHORTER_AUDITS" in os.environ:  # not where pytest looks for examples in docstrings
    shorten_audits(pytest.MonkeyPatch())
