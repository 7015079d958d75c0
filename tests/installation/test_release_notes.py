"""Release notes are the changelog's section of one version."""

import pytest

from mooring.version import __version__
from tests.installation.scripts import ROOT, load_script

extract = load_script("release_notes").extract

CHANGELOG = """# Changelog

## [0.2.0] - Unreleased

### Added

- A command, which
  does [much](docs/much.md) and [more](https://a.example/more).
- Another.

## [0.1.0]

First,
and last.
"""


def test_notes_are_one_version_with_an_entry_a_line_and_no_links_into_the_repository() -> None:
    assert extract(CHANGELOG, "0.2.0") == (
        "# mooring 0.2.0\n\n### Added\n\n- A command, which does much and [more](https://a.example/more).\n- Another.\n"
    )
    assert extract(CHANGELOG, "0.1.0") == "# mooring 0.1.0\n\nFirst, and last.\n"


def test_the_changelog_has_notes_of_the_current_version() -> None:
    assert "- " in extract((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), __version__)


def test_a_version_that_the_changelog_does_not_have_is_named_with_those_it_has() -> None:
    with pytest.raises(ValueError, match=r"0\.2\.0, 0\.1\.0"):
        extract(CHANGELOG, "0.3.0")
