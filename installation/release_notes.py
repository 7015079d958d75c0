"""Print the notes of one release, which are its section of CHANGELOG.md: python installation/release_notes.py 0.3.0."""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"
HEADING = re.compile(r"^## \[([^\]]+)\](?: - (.+))?$", flags=re.M)
RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")


def extract(changelog: str, version: str) -> str:
    """Return the section of a version, with one line for each entry and without links to files of the repository.

    Pages of releases keep line breaks and have no folder that such links could start from.
    """
    headings = list(HEADING.finditer(changelog))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        if heading[1] == version:
            section = changelog[heading.end() : following.start() if following else len(changelog)]
            unwrapped = re.sub(r"(?<=\S)\n {0,2}(?=[^\s#-])", " ", section.strip())
            return f"# mooring {version}\n\n" + RELATIVE_LINK.sub(r"\1", unwrapped) + "\n"
    raise ValueError(f"CHANGELOG.md has no section [{version}]. It has {', '.join(found[1] for found in headings)}.")


if __name__ == "__main__":
    try:
        sys.stdout.write(extract(CHANGELOG.read_text(encoding="utf-8"), sys.argv[1]))
    except (IndexError, ValueError) as problem:
        sys.exit(f"release_notes.py: {problem if isinstance(problem, ValueError) else 'give a version, such as 0.3.0'}")
