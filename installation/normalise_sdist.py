"""Write source distributions again so that the same commit gives the same bytes: times and owners of files say nothing."""

from __future__ import annotations

import gzip
import os
import sys
import tarfile
from pathlib import Path


def normalise(path: Path, time: int) -> None:
    """Set the time of every file to `time`, in seconds since 1970, and the owner to nobody in particular."""
    tarball = path.with_suffix(".new")
    with (
        tarfile.open(path) as old,
        tarball.open("wb") as file,
        gzip.GzipFile("", "wb", mtime=time, fileobj=file) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for entry in sorted(old.getmembers(), key=lambda entry: entry.name):
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname, entry.pax_headers = time, 0, 0, "", "", {}
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            new.addfile(entry, old.extractfile(entry) if entry.isfile() else None)
    tarball.replace(path)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        normalise(Path(name), int(os.environ["SOURCE_DATE_EPOCH"]))
