"""Permissions of files, for tests that run on Windows too."""

import os
import stat
from pathlib import Path


def has_mode(path: Path, mode: int) -> bool:
    """Whether a file or folder has these permissions; so it is said on Windows, which has none of this kind."""
    return os.name == "nt" or stat.S_IMODE(path.stat().st_mode) == mode
