"""The public file beside a study: its digest, its shape, and its numbers up to their limits."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from mooring.errors import RefusedError, StorageError
from mooring.protocol.messages.public_file import public_file_name, read_public_file
from tests.raising import raising
from tests.sites import numeric_study

MATRIX = np.arange(6.0).reshape(3, 2)


def read(folder: Path, content: bytes, shape: tuple[int, ...] = (3, 2)) -> np.ndarray:
    study = replace(numeric_study(), folder=folder)
    (folder / public_file_name(study)).write_bytes(content)
    return np.asarray(read_public_file(study, hashlib.sha256(content).hexdigest(), {"matrix": shape})["matrix"])


@pytest.mark.parametrize(
    ("matrix", "fine"),
    [
        (MATRIX, True),
        (np.full((3, 2), 1e6 - 1), True),
        (np.full((3, 2), 1e6), False),
        (np.full((3, 2), -1e6), False),
        (np.full((3, 2), np.nan), False),
        (MATRIX.astype(np.float32), False),
        (MATRIX.T.copy(), False),
    ],
)
def test_a_public_file_holds_finite_numbers_of_the_shape_that_the_study_says(
    matrix: np.ndarray, fine: bool, tmp_path: Path
) -> None:
    if fine:
        assert np.array_equal(read(tmp_path, save({"matrix": matrix})), matrix)
    else:
        with raising(RefusedError, "the public projection", reason="matrix of 3x2"):
            read(tmp_path, save({"matrix": matrix}))


def test_a_public_file_has_four_kilobytes_besides_its_numbers(tmp_path: Path) -> None:
    size = len(save({"matrix": MATRIX}, {"note": ""}))
    fills = [8 * 6 + 4096 - size, 8 * 6 + 4096 - size + 8]
    whole, large = (save({"matrix": MATRIX}, {"note": "x" * n}) for n in fills)
    assert len(whole) == 8 * 6 + 4096
    assert np.array_equal(read(tmp_path, whole), MATRIX)
    with raising(RefusedError, "the public projection", reason="not the one"):
        read(tmp_path, large)


def test_another_file_or_none_is_said_to_be_so(tmp_path: Path) -> None:
    study = numeric_study()
    with raising(StorageError, "the public projection", reason="folder"):
        read_public_file(study, "0" * 64, {"matrix": (3, 2)})
    study = replace(study, folder=tmp_path)
    with raising(StorageError, "the public projection", reason="cannot be read"):
        read_public_file(study, "0" * 64, {"matrix": (3, 2)})
    (tmp_path / public_file_name(study)).write_bytes(save({"matrix": MATRIX}))
    with raising(RefusedError, "the public projection", reason="not the one"):
        read_public_file(study, "0" * 64, {"matrix": (3, 2)})
    with raising(RefusedError, "the public projection", reason="no matrix"):
        read(tmp_path, b"no arrays")
    with raising(RefusedError, "the public projection"):
        read(tmp_path, save({"matrix": MATRIX, "more": MATRIX[:1]}))
