"""`mooring predict --result URL`: a participant's result, fetched from a store for the time that it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from mooring.errors import StorageError
from mooring.protocol.analyst.delivery import MAP_FILE
from mooring.protocol.analyst.training import MODEL_FILE
from mooring.protocol.messages.container import MOST_HEADER_BYTES
from mooring.protocol.messages.model import MOST_MODEL_BYTES
from mooring.protocol.messages.study import Study
from mooring.protocol.transport.addresses import is_url, local_path, shown
from mooring.protocol.transport.object_stores import NOT_THERE, TOO_LARGE, download, folder_at, size_at


@contextmanager
def fetched_result(address: str | Path, study: Study) -> Iterator[Path]:
    """A result's folder on this machine: the one that is named, or one with what lies at a URL, for the time being.

    Parameters
    ----------
    address : str or path
        Of a participant's own folder of results.
    study : Study
        Tells how large its files may be.

    Notes
    -----
    Nothing is checked here but sizes: `read_result` does that. The folder is readable by its owner only, and removed.
    """
    if not is_url(address):
        yield local_path(address)
        return
    system, root = folder_at(str(address))
    h = study.n_components
    with TemporaryDirectory(prefix="mooring-result-") as name:
        for file, most in ((MAP_FILE, 8 * h * (h + 2) + MOST_HEADER_BYTES + 8), (MODEL_FILE, MOST_MODEL_BYTES)):
            size = size_at(system, f"{root}/{file}")
            reason = download(
                system, f"{root}/{file}", Path(name) / file, size=size, most_bytes=most, what="the temporary folder"
            )
            if reason is not None and not (file == MODEL_FILE and reason == NOT_THERE):  # some results have no model
                raise StorageError(
                    "the result",
                    reason=f"{shown(address)}/{file} cannot be fetched: "
                    + ("it is larger than such a file may be" if reason == TOO_LARGE else reason),
                    cure="Check the address (it ends in your name) and your access, or ask the analyst.",
                )
        yield Path(name)
