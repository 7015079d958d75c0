"""The analyst's role: training, export and delivery on an alignment, by any engine."""

import hashlib
import html
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from mooring.audit.release import N_MODELS
from mooring.errors import InputError, RefusedError, StorageError
from mooring.learners import LEARNERS, Model, train_learner
from mooring.learners.models import LinearFunction, ModelSpec
from mooring.protocol.analyst import delivery
from mooring.protocol.analyst.delivery import deliver
from mooring.protocol.analyst.role import Analyst
from mooring.protocol.analyst.trained_model import TRAINING_FILE
from mooring.protocol.exchange_types import GatherOptions, TrainOptions
from mooring.protocol.messages.model import read_model
from mooring.protocol.messages.result import Release
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.analyst.alignment import align_bundles
from mooring.protocol.rotation.analyst.training import train
from mooring.protocol.rotation.analyst.training_record import Training
from mooring.protocol.rotation.result import read_result
from tests.protocol.rotation.support import bundles_of, prepared, send, sites_of
from tests.raising import raising
from tests.sites import ANALYST, KEYS, numeric_study, specifier_of

pytestmark = pytest.mark.usefixtures("fewer_features")


@pytest.mark.parametrize("learner", ["auto", "linear"])
@pytest.mark.parametrize("kind", ["classes", "number"])
def test_a_model_is_scored_across_participants_and_goes_home(kind: str, learner: str, tmp_path: Path) -> None:
    study = numeric_study(kind=kind, v=0.005)
    work, sites = prepared(study, tmp_path)
    seen: list[tuple[float, float]] = []
    training = train(study, work, learner=learner, progress=lambda done, total: seen.append((done, total)))
    assert training.score.value > 0.75
    assert [name for name, _ in training.participants] == [f"site-{k}" for k in range(4)]
    assert len(training.alone) == 4
    assert training.gain is not None
    shown = replace(training, left_out=training.participants[:1])._repr_html_()
    assert html.escape(str(training.gain)) in shown
    assert html.escape(training.gain.sentence()) not in shown  # uploads do not show whether joining pays
    assert training.score.n == training.rows == training.rows_used == 240
    assert seen[-1] == (9, 9)
    record = json.loads((work / "training.json").read_text())
    assert record["learner"] == "linear"
    assert record["score"]["n"] == 240
    delivered = deliver(study, work, tmp_path / "results", ANALYST)
    assert delivered.delivered == ("site-0", "site-1", "site-2", "site-3")
    assert record["model_digest"] == hashlib.sha256((work / "training.safetensors").read_bytes()).hexdigest()
    for who, site in enumerate(sites):
        result = read_result(tmp_path / "results" / f"site-{who}", study, study.participants[who])
        assert result.delivered is not None
        assert result.delivered.digest == delivered.model_digest
        expected_mean = site.anchor_representation.astype(np.float32).astype(np.float64).mean(axis=0)
        assert result.mean.tobytes() == expected_mean.tobytes()
        brought = result.apply(site.representation)
        assert np.allclose(brought, (site.representation - result.mean) @ result.orthogonal + result.origin)
        predicted = result.delivered.model.predict(brought)
        if kind == "classes":
            assert np.mean(predicted == site.labels) > 0.8
        else:
            assert np.corrcoef(predicted, site.labels)[0, 1] > 0.9


def test_more_than_ten_participants_are_left_out_in_ten_groups(tmp_path: Path) -> None:
    study = numeric_study(p=12)
    work, _ = prepared(study, tmp_path, n=12)
    seen: list[tuple[float, float]] = []
    training = train(study, work, learner="linear", progress=lambda done, total: seen.append((done, total)))
    assert len(training.participants) == 12
    assert seen[-1] == (10 + 12 + 1,) * 2


def test_of_too_many_rows_each_gives_its_share(tmp_path: Path) -> None:
    study = numeric_study()
    work, _ = prepared(study, tmp_path)
    training = train(study, work, learner="linear", most_rows=100)
    assert (training.rows, training.rows_used) == (240, 100)
    assert [member.n for _, member in training.participants] == [25, 25, 25, 25]


def test_a_study_without_labels_has_nothing_to_train_but_can_be_exported_and_delivered(tmp_path: Path) -> None:
    study = numeric_study(kind="none")
    work, _ = prepared(study, tmp_path)
    with raising(InputError, "study", cure="mooring export"):
        train(study, work)
    analyst = Analyst(study, work, ANALYST)
    with raising(StorageError, "the collaboration matrix", reason="none in this folder"):
        Analyst(study, tmp_path, ANALYST).export(tmp_path / "matrix.parquet")
    table = pq.read_table(analyst.export(tmp_path / "matrix.parquet"))
    assert table.column_names == ["participant", *(f"z{k + 1}" for k in range(6))]
    with raising(InputError, "output", cure="--force"):
        analyst.export(tmp_path / "matrix.parquet")
    analyst.export(tmp_path / "matrix.parquet", force=True)
    assert analyst.deliver(tmp_path / "results").model_digest == ""
    assert read_result(tmp_path / "results" / "site-1", study, study.participants[1]).delivered is None


def test_an_engine_is_asked_for_every_long_step(tmp_path: Path) -> None:
    """The engine receives every argument, and what it returns is what the analyst returns."""
    study, notes = numeric_study(), Notes()
    analyst = Analyst(study, tmp_path, ANALYST, notes)
    assert analyst.collect("inbox", progress=print) == "collected"
    assert analyst.gather(["bundle"], mode="late", certify=False, progress=print) == "gathered"  # type: ignore[list-item]
    assert analyst.train("linear", seed=3, progress=print) == "trained"
    assert notes.steps == [
        ("collect", study, "inbox", tmp_path, {"progress": print}),
        ("gather", study, ["bundle"], tmp_path, GatherOptions("late", False, None, ANALYST, progress=print)),
        ("train", study, tmp_path, TrainOptions("linear", 3, progress=print)),
    ]


class Notes:
    """An engine that does nothing but write down what it is asked for."""

    def __init__(self) -> None:
        self.steps: list[tuple[Any, ...]] = []

    def collect(self, *given: Any, **options: Any) -> Any:
        self.steps.append(("collect", *given, options))
        return "collected"

    def gather(self, *given: Any) -> Any:
        self.steps.append(("gather", *given))
        return "gathered"

    def train(self, *given: Any) -> Any:
        self.steps.append(("train", *given))
        return "trained"


def test_a_model_of_an_earlier_alignment_is_not_delivered(tmp_path: Path) -> None:
    study = numeric_study()
    work, _ = prepared(study, tmp_path)
    train(study, work, learner="linear")
    align_bundles(study, bundles_of(study, tmp_path / "inbox")[1:], work)
    with raising(InputError, "model", cure="mooring train"):
        deliver(study, work, tmp_path / "results", ANALYST)
    train(study, work, learner="linear")
    deliver(study, work, tmp_path / "results", ANALYST)


def test_only_the_studys_analyst_can_deliver(tmp_path: Path) -> None:
    study = numeric_study()
    work, _ = prepared(study, tmp_path)
    with raising(RefusedError, "the signature", reason="the study's analyst"):
        deliver(study, work, tmp_path / "results", KEYS[0])
    with raising(InputError, "signing_key"):
        Analyst(study, work).deliver(tmp_path / "results")


def test_labels_that_follow_from_nothing_score_as_chance(tmp_path: Path) -> None:
    """A score on rows that the learner was trained on would be near one."""
    study, inbox = numeric_study(p=3), tmp_path / "inbox"
    for who, site in enumerate(sites_of(study)):
        labels = np.random.default_rng([who, 4]).integers(0, 2, len(site.rows))
        send(study, replace(site, labels=labels), who, inbox)
    align_bundles(study, bundles_of(study, inbox), tmp_path / "work", certify=False)
    training = train(study, tmp_path / "work")
    assert training.score.value < 0.62
    assert all(score.value < 0.72 for _, score in training.alone)


def rows_inside(model: Model, rows: np.ndarray) -> int:
    """How many rows lie in an array of the model, as row or column, up to scale, around 0, the mean or a vector in it."""
    mean, h = rows.mean(axis=0, dtype=np.float64), rows.shape[1]
    scale, is_near = np.sqrt(np.mean((rows - mean) ** 2)), np.zeros(len(rows), dtype=bool)
    arrays = [getattr(model.function, name) for name in model.function.ARRAYS]
    around = np.stack([np.zeros(h), mean / scale, *(array for array in arrays if array.shape == (h,))])
    for unit in (1.0, scale):
        each = rows / unit - around[:, None]
        for array in arrays:
            for held in (array, array.T):
                if held.ndim == 2 and held.shape[1] == h:
                    is_near |= (np.abs(each[:, :, None] - held).max(axis=3) < 1e-3).any(axis=(0, 2))
    return int(is_near.sum())


def test_a_delivered_model_holds_nobodys_rows(tmp_path: Path) -> None:
    """Whoever knows its own secret and map could turn rows in the model back into the others' raw rows."""
    study = numeric_study()
    work, _ = prepared(study, tmp_path)
    table = pq.read_table(work / "collaboration")
    rows = np.column_stack([table[f"z{k + 1}"].to_numpy() for k in range(6)])
    for learner in ("svm", "nystroem"):
        with raising(InputError, "learner", got=learner):
            train(study, work, learner=learner)
    assert not (work / "training.json").exists()
    spec, classes = ModelSpec(6, len(rows)), np.arange(len(rows), dtype=np.int32)
    function, shares = LinearFunction(rows.T.astype(np.float64), np.zeros(len(rows))), np.full(len(rows), 1 / len(rows))
    spied = Model(spec, function, "softmax", classes, shares)
    assert rows_inside(spied, rows) == len(rows)
    labels = (rows[:, 0] > rows[:, 0].mean()).astype(np.int64)
    for name in (name for name, learner in LEARNERS.items() if learner.delivers):
        fitted = train_learner(name, rows.astype(np.float64), labels, kind="classes", seed=0)
        assert rows_inside(fitted.to_model(2), rows) == 0
    train(study, work, learner="random-fourier")
    assert rows_inside(read_model(work / "training.safetensors", specifier_of(study))[0], rows) == 0


def test_a_model_above_the_studys_limit_is_delivered_by_override_alone(tmp_path: Path) -> None:
    results = tmp_path / "results"
    study = replace(numeric_study(), model_limit="membership at most 1 %")
    assert Study.from_dict(study.as_dict()) == study
    work, _ = prepared(study, tmp_path)
    seen: list[tuple[float, float]] = []
    training = train(study, work, learner="linear", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (4 + 4 + 1 + N_MODELS,) * 2  # with the models that measure what the delivered one discloses
    assert training.release is not None
    with raising(RefusedError, "the delivery"):
        deliver(study, work, results, ANALYST)
    with raising(InputError, "--override"):
        deliver(study, work, results, ANALYST, override="because")
    assert not results.exists()
    assert str(training.release)[:40] in training._repr_html_()
    Analyst(study, work, ANALYST).deliver(results, override="board: no patients in it")
    release = read_result(results / "site-0", study, study.participants[0]).delivered.release
    assert release is not None
    assert release.override == "board: no patients in it"
    assert release.risk == pytest.approx(training.release.figures["membership_at_1_percent"].interval.high, abs=1e-6)

    write = delivery.write_delivered_model
    for words in ("", " : ", "board: \x1b[2K"):  # an analyst that does not say why, or hides what it says
        with pytest.MonkeyPatch.context() as patch:
            bad = Release(release.risk, words)
            patch.setattr(delivery, "write_delivered_model", lambda *given, bad=bad: write(*given[:-1], bad))
            deliver(study, work, results, ANALYST, override="board: none")
        with raising(RefusedError, "the result"):
            read_result(results / "site-0", study, study.participants[0])


def test_maps_without_a_model_have_no_risk_of_one(tmp_path: Path) -> None:
    study = replace(numeric_study(), model_limit="membership at most 1 %")
    work, _ = prepared(study, tmp_path, n=5)
    assert deliver(study, work, tmp_path / "results", ANALYST).release == Release(0.0)


def test_a_model_within_the_studys_limit_goes_home_with_its_risk(tmp_path: Path) -> None:
    study = replace(numeric_study(), model_limit="membership at most 60 %")
    work, _ = prepared(study, tmp_path)
    train(study, work, learner="linear")
    deliver(study, work, tmp_path / "results", ANALYST)
    release = read_result(tmp_path / "results" / "site-1", study, study.participants[1]).delivered.release
    assert release is not None
    assert 0 < release.risk < 0.6
    assert release.override == ""
    trained = Training.from_json((work / TRAINING_FILE).read_bytes())
    (work / TRAINING_FILE).write_text(replace(trained, release=None).to_json())
    with raising(RefusedError, "the delivery", reason="all may be recognised"):  # what it gives away is not known
        deliver(study, work, tmp_path / "results", ANALYST)
    deliver(study, work, tmp_path / "results", ANALYST, override="Ann Lee: the board agreed")
    unknown = read_result(tmp_path / "results" / "site-1", study, study.participants[1]).delivered.release
    assert unknown is not None
    assert unknown.risk == 1.0
