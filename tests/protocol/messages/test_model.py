"""Models as files: what is read back predicts the same bits, and only what the study asks for is read."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mooring.errors import InputError, RefusedError
from mooring.learners import LEARNERS, Kind, Model, train_learner
from mooring.learners.models import MOST_TREES, LinearFunction, ModelSpec, TreeFunction
from mooring.protocol.messages import model as messages
from mooring.protocol.messages.model import (
    MODEL_FILE,
    read_model,
    read_signed_model,
    sign_model,
    write_model,
)
from mooring.protocol.messages.study import Study
from mooring.tables.schema import Label
from tests.raising import raising
from tests.sites import ANALYST, numeric_study, specifier_of

H = 6
FIELDS = ("study", "source")


def study_of(kind: Kind) -> Study:
    if kind == "classes":
        return numeric_study()
    return replace(numeric_study(), label=Label("y", "number", low=0, high=1))


def trained(name: str, kind: Kind, n: int = 200) -> Model:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, H))
    labels = (rows[:, 0] > 0).astype(np.int64) if kind == "classes" else rows[:, 0] ** 2
    return train_learner(name, rows, labels, kind=kind, seed=0).to_model(2 if kind == "classes" else 0)


@pytest.mark.parametrize("name", [name for name, learner in LEARNERS.items() if learner.delivers])
@pytest.mark.parametrize("kind", ["classes", "number"])
def test_what_is_written_is_read_back(kind: Kind, name: str, tmp_path: Path) -> None:
    study, model = study_of(kind), trained(name, kind)
    rows = np.random.default_rng(1).standard_normal((500, H))
    digest = sign_model(tmp_path / MODEL_FILE, model, {"study": study.digest, "source": "a"}, ANALYST)
    signed = read_signed_model(tmp_path / MODEL_FILE, study, specifier_of(study), fields=FIELDS)
    assert (signed.digest, signed.fields["source"]) == (digest, "a")
    kept = write_model(tmp_path / "kept", model)
    again, model_read = read_model(tmp_path / "kept", specifier_of(study))
    assert kept == model_read
    for each in (signed.model, again):
        for expected, there in zip(
            model.predict_with_probabilities(rows), each.predict_with_probabilities(rows), strict=True
        ):
            assert np.array_equal(expected, there) if expected is not None else there is None


def test_a_file_that_nobody_signed_is_not_taken_as_a_result(tmp_path: Path) -> None:
    write_model(tmp_path / MODEL_FILE, trained("linear", "classes"))
    with raising(RefusedError, "the model file", reason="no manifest and signature"):
        read_signed_model(tmp_path / MODEL_FILE, study_of("classes"), specifier_of(study_of("classes")), fields=FIELDS)


@pytest.mark.parametrize("at", range(0, 1200, 37))
def test_a_model_that_is_cut_or_changed_is_refused(at: int, tmp_path: Path) -> None:
    study = study_of("classes")
    sign_model(tmp_path / "good", trained("linear", "classes"), {"study": study.digest, "source": "a"}, ANALYST)
    data = (tmp_path / "good").read_bytes()
    at %= len(data)
    changed = bytearray(data)
    changed[at] ^= 1
    for bad in (data[:at], bytes(changed)):
        (tmp_path / MODEL_FILE).write_bytes(bad)
        with pytest.raises(RefusedError):
            read_signed_model(tmp_path / MODEL_FILE, study, specifier_of(study), fields=FIELDS)


def test_a_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "number", trained("linear", "number"))
    with raising(RefusedError, "the model", reason="outputs"):
        read_model(tmp_path / "number", specifier_of(study_of("classes")))
    write_model(tmp_path / "classes", trained("linear", "classes"))
    with raising(RefusedError, "the model", reason="outputs"):
        read_model(tmp_path / "classes", specifier_of(study_of("number")))
    with raising(RefusedError, "the model", reason="no label"):
        read_model(tmp_path / "classes", specifier_of(replace(numeric_study(), label=Label())))


def test_participants_take_as_many_boosted_trees_as_are_ever_trained(tmp_path: Path) -> None:
    """All nodes of all trees, down to the sixth level; in pieces, so that they do not fill a memory."""
    rng, n_nodes = np.random.default_rng(0), 127 * MOST_TREES
    inner = np.arange(n_nodes) < 63 * MOST_TREES
    function = TreeFunction(
        np.where(inner, np.arange(n_nodes) % H, -1).astype(np.int32),
        np.where(inner, rng.standard_normal(n_nodes), 0.0),
        rng.standard_normal((64 * MOST_TREES, 1)),
        (np.arange(MOST_TREES) % 50).astype(np.int32),
        np.array(1.0),
        np.zeros(50),
    )
    model = Model(ModelSpec(H, 50), function, "softmax", np.arange(50, dtype=np.int32), np.full(50, 0.02))
    write_model(tmp_path / "large", model)
    assert (tmp_path / "large").stat().st_size < messages.MOST_MODEL_BYTES
    again, _ = read_model(tmp_path / "large", lambda _: model.spec)
    rows = rng.standard_normal((50, H))
    assert np.array_equal(again.predict(rows), model.predict(rows))


def test_a_model_that_participants_would_not_take_is_not_written(tmp_path: Path) -> None:
    n_inputs = messages.MOST_MODEL_BYTES // 8
    function = LinearFunction(np.broadcast_to(0.0, (n_inputs, 1)), np.zeros(1))
    large = Model(ModelSpec(n_inputs, 0), function, "none", np.zeros(1, dtype=np.int32), np.ones(1))
    with raising(InputError, "model", expected="at most 128 MB", got="128 MB"):
        write_model(tmp_path / "large", large)
    assert not (tmp_path / "large").exists()
