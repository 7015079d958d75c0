"""A study's public projection is the same for everybody, and a file that was exchanged is refused."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.errors import RefusedError, StorageError
from mooring.mechanisms.rotation.projection import public_svd_projection
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.draft import draft_rotation
from mooring.protocol.rotation.scheme import study_projection
from mooring.tables.schema import Column, Label
from tests.study_settings import change, make_study


def study_of(*columns: Column, **changes: Any) -> Study:
    width = len(columns)
    plain = make_study(
        "heart", "0" * 32, columns, Label(), "aa-i-gdp-data-noise", width, 4 * width, data_noise_scale=0.5
    )
    return change(plain, **changes)


def test_the_projection_follows_from_the_study() -> None:
    columns = [Column(f"x{k}", "number", 0, 1) for k in range(6)]
    study = study_of(*columns)
    assert np.array_equal(study_projection(study).matrix, np.eye(6))
    gaussian = change(study, projection="gaussian", n_components=3)
    assert np.array_equal(study_projection(gaussian).matrix, study_projection(gaussian).matrix)
    other = replace(gaussian, nonce="1" * 32)
    assert not np.array_equal(study_projection(gaussian).matrix, study_projection(other).matrix)


@pytest.mark.parametrize(("width", "n_components"), [(0, 1), (1, 1), (7, 7), (30, 30), (31, 30)])
def test_a_draft_projects_on_as_many_components_as_there_are_numbers_up_to_thirty(
    width: int, n_components: int
) -> None:
    drafted = draft_rotation({"projection": "gaussian"}, width)
    assert drafted.entries["n_components"] == n_components


def test_a_public_projection_is_the_file_that_the_study_names(tmp_path: Path) -> None:
    from safetensors.numpy import save

    rng = np.random.default_rng(0)
    columns = [Column(f"x{k}", "number", 0, 1) for k in range(6)]
    F = np.asarray(public_svd_projection(rng.standard_normal((50, 6)), 3, rng=rng).matrix)
    file = tmp_path / "heart.projection.safetensors"

    def projected(content: bytes) -> Study:
        file.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        changes = {"projection": "public-svd", "projection_digest": digest, "n_components": 3, "folder": tmp_path}
        return study_of(*columns, **changes)

    good = projected(save({"matrix": F}))
    assert np.array_equal(study_projection(good).matrix, F)
    study_projection(projected(save({"matrix": F * (1 + 3e-9)})))  # columns orthonormal to 1e-8
    for content in (
        save({"matrix": F * (1 + 6e-9)}),
        save({"matrix": F[:, :2].copy()}),
        save({"matrix": F.astype(np.float32)}),
        save({"matrix": F, "more": F}),
        save({"matrix": np.full_like(F, np.nan)}),
        b"something else",
    ):
        with pytest.raises(RefusedError):
            study_projection(projected(content))
    content = save({"matrix": F})
    for more, fine in ((4096, True), (4097, False)):  # beside the numbers themselves
        length = 8 * F.size + more - (len(content) - int.from_bytes(content[:8], "little"))
        padded = length.to_bytes(8, "little") + content[8 : -8 * F.size].ljust(length) + content[-8 * F.size :]
        study = projected(padded)
        assert len(padded) == 8 * F.size + more
        if fine:
            assert np.array_equal(study_projection(study).matrix, F)
        else:
            with pytest.raises(RefusedError):
                study_projection(study)
    good = projected(save({"matrix": F}))
    projected(save({"matrix": -F}))  # as good a projection, but not the one that the study names
    with pytest.raises(RefusedError):
        study_projection(good)
    file.unlink()
    with pytest.raises(StorageError):
        study_projection(good)
