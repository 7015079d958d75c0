"""A map is a participant's own: of its bundle, by the mean of its anchor representation, and no larger than maps are."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mooring.errors import MooringError, RefusedError, StorageError
from mooring.protocol.rotation import result
from mooring.protocol.rotation.result import MAP_FILE, read_result, require_own_map, specify_model, write_map
from tests.raising import raising
from tests.sites import ANALYST, numeric_study

B = np.array([[1.0, 2.0], [3.0, -2.0]], dtype=np.float32)
MEAN = np.array([2.0, 0.0])


@pytest.mark.parametrize(
    ("mean", "entry", "reason"),
    [
        (MEAN, "digest", ""),
        (MEAN + np.array([0.99e-4, -0.99e-4]), "digest", ""),  # rounding to single precision
        (MEAN + np.array([1.01e-4, 0]), "digest", "its mean"),
        (MEAN - np.array([0, 1.01e-4]), "digest", "its mean"),
        (MEAN * np.nan, "digest", "its mean"),
        (MEAN, "another", "another bundle"),
        (MEAN, "", "does not know"),  # an upload that was never finished
        (MEAN, None, "does not know"),
    ],
)
def test_a_map_is_of_ones_own_upload(
    mean: np.ndarray, entry: str | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = None if entry is None else SimpleNamespace(bundle=entry or None)
    monkeypatch.setattr(result, "Ledger", lambda _: SimpleNamespace(entry=lambda _: known))
    delivered: Any = SimpleNamespace(mean=mean, bundle_digest="digest")
    perturbation: Any = SimpleNamespace(study=SimpleNamespace(digest="study"), anchor_representation=lambda: B)
    vault: Any = SimpleNamespace(folder=Path())
    if not reason:
        require_own_map(delivered, perturbation, vault)
    else:
        with raising(MooringError, "the vault" if entry in ("", None) else "the map", reason=reason):
            require_own_map(delivered, perturbation, vault)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"mean": np.full(6, 1e6)}, ""),
        ({"mean": np.full(6, 1.001e6)}, "further"),
        ({"origin": np.full(6, -1.001e6)}, "further"),
        ({"orthogonal": 1.01 * np.eye(6)}, "not orthogonal"),
        ({"participant": "site-1"}, "another participant"),
        ({"key": "0" * 64}, "another participant"),
    ],
)
def test_a_map_moves_rows_as_far_as_maps_do_and_is_its_participants(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    study = numeric_study()
    member = study.participants[0]
    fields = {"participant": member.name, "key": member.signing_key, "bundle": "digest", "model": ""}
    arrays = {"orthogonal": np.eye(6), "mean": np.zeros(6), "origin": np.ones(6)}
    fields |= {key: value for key, value in changes.items() if key in fields}
    arrays |= {key: value for key, value in changes.items() if key in arrays}
    write_map(tmp_path / MAP_FILE, study, fields, arrays, ANALYST)
    if reason:
        with raising(RefusedError, "the map", reason=reason):
            read_result(tmp_path, study, member)
        return
    read = read_result(tmp_path, study, member)
    assert (read.bundle_digest, read.delivered) == ("digest", None)
    rows = np.arange(12.0).reshape(2, 6)
    assert np.allclose(read.apply(rows), (rows - arrays["mean"]) + 1)
    assert np.array_equal(read.orthogonal, np.eye(6))


def test_models_of_a_study_take_its_components_and_predict_its_label() -> None:
    for kind, n_classes in (("classes", 2), ("number", 0)):
        spec = specify_model(numeric_study(kind=kind))
        assert (spec.n_inputs, spec.n_classes) == (6, n_classes)
        with raising(RefusedError, "the model", reason="not the study's label"):
            specify_model(numeric_study(kind=kind), "age")
    with raising(RefusedError, "the model", reason="no label"):
        specify_model(numeric_study(kind="none"))


def test_without_the_anchor_that_was_shared_with_nothing_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result, "find_membership", lambda vault, study: study.participants[0])
    monkeypatch.setattr(result, "read_result", lambda *_: None)
    monkeypatch.setattr(result, "used_anchor", lambda *_: tmp_path / "none")
    with raising(StorageError, "the vault"):
        result.open_mapped_model(SimpleNamespace(), numeric_study(), tmp_path)  # type: ignore[arg-type]
