"""`mooring.Analyst` on Dask, and the commands: aligned, trained and delivered as locally, and good to predict with."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed")

from distributed import Client

from mooring import Analyst, Participant, Study
from mooring.engines.dask import DaskEngine
from mooring.errors import InputError
from mooring.protocol.rotation.analyst.alignment_state import read_space
from mooring.protocol.storage.vault import Vault
from tests.raising import raising

from .dask_study import matrix, same_arrays
from .hospitals import NAMES, founded, quickly


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hospitals that shared, and what the local engine made of it; numbers are predicted, by exactly the same model."""
    place = founded(tmp_path_factory.mktemp("hospitals"), kind="number")
    (place / "inbox").mkdir()
    for name in NAMES:
        participant(place, name).share(
            place / name / "patients.csv",
            anchor=place / "ward.anchor",
            output=place / "inbox" / f"{name}.bundle",
            labels=True,
        )
    analyst = Analyst(study_of(place), place / "here", key_of(place))
    analyst.gather(analyst.collect(place / "inbox").bundles)
    analyst.train("linear")
    analyst.deliver(place / "here" / "results")
    return place


def study_of(place: Path) -> Study:
    return Study.read(place / "analyst" / "study.toml")


def key_of(place: Path) -> object:
    return Vault.open(place / "analyst" / "vault").signing_key


def participant(place: Path, name: str) -> Participant:
    return Participant(study_of(place), Vault.open(place / name / "vault"))


def predicted_at_home(place: Path, name: str) -> np.ndarray:
    predictions = participant(place, name).predict(
        place / name / "new-patients.csv", result=place / "here" / "results" / name
    )
    assert np.ptp(predictions.values) > 5  # of a label from 20 to 65: a model that says something
    return predictions.values


@pytest.mark.parametrize("reduced", [False, True])
def test_an_analyst_on_dask_gives_what_one_at_home_gives(client: Client, place: Path, reduced: bool) -> None:
    study, work = study_of(place), place / f"there-{reduced}"
    engine = DaskEngine(client, reduce_over_workers=reduced, rows_at_once=7)
    analyst = Analyst(study, work, key_of(place), engine)
    collected: list[str] = []
    (place / "inbox" / "noise.bundle").write_bytes(b"?")
    intake = analyst.collect(place / "inbox", progress=lambda *_: collected.append("collect"))
    (place / "inbox" / "noise.bundle").unlink()
    assert [entry.file for entry in intake.set_aside] == ["noise.bundle"]
    analyst.gather(intake.bundles, progress=lambda *_: collected.append("align"))
    assert engine.reduced == reduced
    there, here = (read_space(folder, study) for folder in (work, place / "here"))
    assert there.names == here.names == NAMES
    if not reduced:  # else the same up to one turn, as test_dask_align has it
        assert same_arrays(there, here)
        assert np.abs(matrix(study, work).rows - matrix(study, place / "here").rows).max() < 1e-6
    assert list(map(len, (matrix(study, work).rows, matrix(study, place / "here").rows))) == [180, 180]
    assert analyst.train("linear", progress=lambda *_: collected.append("train")).rows == 180
    assert set(collected) == {"collect", "align", "train"}
    assert analyst.deliver(work / "results").delivered == NAMES
    for name in NAMES:
        predictions = participant(place, name).predict(
            place / name / "new-patients.csv", result=f"local://{work}/results/{name}"
        )
        assert np.allclose(predictions.values, predicted_at_home(place, name), atol=0.05)
        assert predictions.score is not None


def test_boosted_trees_come_home(client: Client, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xgboost")
    monkeypatch.setattr("mooring.learners.boosted_trees.ROUNDS", 30)
    analyst = Analyst(study_of(place), tmp_path, key_of(place), DaskEngine(client))
    analyst.gather(analyst.collect(place / "inbox").bundles)
    training = analyst.train("xgboost")
    assert (training.learner, training.rows, training.score.value > 0.5) == ("xgboost", 180, True)
    analyst.deliver(tmp_path / "results")
    for name in NAMES:
        predictions = participant(place, name).predict(
            place / name / "new-patients.csv", result=tmp_path / "results" / name
        )
        assert predictions.score is not None
        assert predictions.score.value > 0.2  # 15 rows each


def test_only_what_the_engine_collected_is_aligned(client: Client, place: Path, tmp_path: Path) -> None:
    study = study_of(place)
    at_home = Analyst(study, tmp_path / "here").collect(place / "inbox")
    analyst = Analyst(study, tmp_path / "work", engine=DaskEngine(client))
    with raising(InputError, "bundles", got="that it did not collect"):
        analyst.gather(at_home.bundles)
    intake = analyst.collect(place / "inbox")
    with raising(InputError, "bundles", got="that it did not collect"):
        analyst.gather(at_home.bundles)
    assert [entry.name for entry in analyst.gather(intake.bundles[1:]).participants] == [*NAMES[1:]]
    with raising(InputError, "rows_at_once", got="0"):
        DaskEngine(client, rows_at_once=0)
    with raising(InputError, "passes", got="0"):
        Analyst(study, tmp_path / "work", engine=DaskEngine(client, passes=0)).train("linear")


def test_the_whole_way_through_commands(client: Client, place: Path) -> None:
    analyst = place / "analyst"
    dask = ("--engine", "dask", "--scheduler", client.scheduler.address)
    quickly(analyst, "align", "--bundles", place / "inbox", *dask)
    quickly(analyst, "train", "--learner", "linear", *dask)
    quickly(analyst, "deliver", "--output", "results")
    for name in NAMES:
        result = ("--result", analyst / "results" / name)
        quickly(place / name, "predict", "new-patients.csv", *result)
        predictions = np.loadtxt(place / name / "predictions.csv", skiprows=1)
        assert np.allclose(predictions, predicted_at_home(place, name), atol=0.05)
