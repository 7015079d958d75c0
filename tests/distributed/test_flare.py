"""A study over a real FLARE deployment gives what it gives through files; sites refuse code; a dead site stops nobody."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("nvflare")

from mooring.apps.cli.app import app
from mooring.engines.flare.settings import ServerSettings
from mooring.errors import RefusedError
from mooring.protocol.analyst import Analyst
from mooring.protocol.columns import Column, Label
from mooring.protocol.delivery import MAP_FILE
from mooring.protocol.participant import Participant
from mooring.protocol.study import Member, Study
from mooring.protocol.training import MODEL_FILE
from mooring.protocol.vault import Vault

from .flare_deployment import SERVER, AdministratorError, Deployment, wait_until, write_hostile_job

SITES = ("north", "south", "east")
N_ROWS = 120
SHORT_WAIT = 15
SERVER_ITSELF = "server"
FLARES_OWN = "nvflare.app_common.np.np_trainer.NPTrainer"
RUNNER = CliRunner()


def mooring(*words: str | Path) -> dict[str, Any]:
    found = RUNNER.invoke(app, [*map(str, words), "--format", "json"])
    assert found.exit_code == 0, f"{words}\n{found.output}\n{found.exception!r}"
    return dict(json.loads(found.stdout))


@dataclass(frozen=True, eq=False)
class Played:
    """A study with its people, and a deployment that is up.

    Attributes
    ----------
    place : Path
        Each site's folder has vault, table and, after a job, `mooring`; `files` is the same study through files.
    """

    place: Path
    study: Study
    deployment: Deployment

    @property
    def job(self) -> Path:
        return self.place / "job"

    @property
    def work(self) -> Path:
        return self.place / "analyst" / "analysis"

    def outcome(self) -> dict[str, Any]:
        return dict(json.loads((self.work / "flare.json").read_bytes()))

    def bundles(self) -> dict[str, bytes]:
        return {name: (self.work / "inbox" / f"{name}.bundle").read_bytes() for name in SITES}

    def results(self) -> dict[str, bytes]:
        folders = {name: self.place / name / "mooring" / "result" for name in SITES}
        return {
            f"{name}/{file}": (folders[name] / file).read_bytes() for name in SITES for file in (MAP_FILE, MODEL_FILE)
        }


def write_study(place: Path) -> Study:
    vaults = {name: Participant.join(place / name / "vault") for name in SITES}
    analyst = Participant.join(place / "analyst" / "vault")
    study = Study(
        "ward",
        "0123456789abcdef" * 2,
        tuple(Column(f"c{k}", "number", -5, 5, outside="clip") for k in range(4)),
        Label("y", "classes", ("a", "b")),
        "aa-i-gdp-both-noise",
        n_components=4,
        n_anchor_rows=16,
        data_noise_scale=0.2,
        anchor_noise_scale=0.02,
    ).enrolled([vault.card(name) for name, vault in vaults.items()], Member("lab", analyst.signing_key.public))
    study.write(place / "study.toml")
    Participant(study, vaults["north"]).deal(
        place / "north.anchor"
    )  # sealing is random, once: the vault keeps the file
    for k, name in enumerate(SITES):
        rng = np.random.default_rng([6, k])
        rows = rng.normal(size=(N_ROWS, 4))
        lines = [",".join([*(f"{x:.6f}" for x in row), "ab"[int(row.sum() > 0)]]) for row in rows]
        (place / name / "rows.csv").write_text("\n".join(["c0,c1,c2,c3,y", *lines]) + "\n")
    return study


def configure(place: Path, deployment: Deployment) -> None:
    study = place / "study.toml"
    for name in SITES:
        here = place / name
        mooring(
            *("flare", "site", "--study", study, "--vault", here / "vault", "--data", here / "rows.csv", "--labels"),
            *("--folder", here / "mooring", "--output", deployment.local(name)),
        )
    mooring(
        *("flare", "server", "--study", study, "--vault", place / "analyst" / "vault", "--learner", "linear"),
        *("--folder", place / "analyst" / "analysis", "--output", deployment.local(SERVER)),
    )
    (deployment.local(SERVER) / "authorization.json").unlink()  # an analyst that would let code through: sites must not
    mooring("flare", "job", "--study", study, "--output", place / "job")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    place = tmp_path_factory.mktemp("flare")
    study = write_study(place)
    for name in (*SITES, "analyst"):  # the same people, before anything was shared: the way through files
        shutil.copytree(place / name, place / "files" / name)
    deployment = Deployment(place, SITES)
    deployment.provision()
    configure(place, deployment)
    try:
        deployment.start_all()
        deployment.log_in()
        yield Played(place, study, deployment)
    finally:
        deployment.stop()


@pytest.fixture(scope="module")
def through_files(played: Played) -> Path:
    """The same people and tables through files: analysis and results of the analyst, and bundles in the inbox."""
    place = played.place / "files"
    (place / "inbox").mkdir()
    for name in SITES:
        participant = Participant(played.study, Vault.open(place / name / "vault"))
        if name == played.study.dealing_member.name:
            participant.deal(place / "ward.anchor")
        participant.share(
            place / name / "rows.csv", anchor=place / "ward.anchor", output=place / "inbox" / f"{name}.bundle"
        )
    key = Vault.open(place / "analyst" / "vault").signing_key
    analyst = Analyst(played.study, place / "analysis", key)
    analyst.align(analyst.collect(place / "inbox").bundles)
    analyst.train("linear")
    analyst.deliver(place / "results")
    return place


@dataclass(frozen=True, eq=False)
class Run:
    """A job that is over: what FLARE says of it, what the server wrote down, and every file that came of it."""

    meta: dict[str, Any]
    outcome: dict[str, Any]
    bundles: dict[str, bytes]
    results: dict[str, bytes]


def ended(played: Played, job_id: str) -> Run:
    meta = played.deployment.finished(job_id)
    assert meta["status"] == "FINISHED:COMPLETED", played.deployment.log(SERVER)[-3000:]
    return Run(meta, played.outcome(), played.bundles(), played.results())


@pytest.fixture(scope="module")
def first(played: Played) -> Run:
    return ended(played, played.deployment.submit(played.job))


@pytest.fixture(scope="module")
def spied(played: Played) -> Path:
    """What code from the analyst would write, if a site ran it."""
    return played.place / "spied"


@pytest.fixture(scope="module")
def beside_hostile_jobs(played: Played, first: Run, spied: Path) -> tuple[Run, dict[str, dict[str, Any]]]:
    """Our job again, beside two that a site must refuse."""
    code = f"open({str(spied)!r}, 'w').write('x')\nfrom mooring.engines.flare.executor import MooringExecutor as Spy\n"
    carries = write_hostile_job(played.place / "carries-code", executor="spy.Spy", code=code)
    names = write_hostile_job(played.place / "names-a-class", executor=FLARES_OWN, code=None)
    ids = {"code": played.deployment.submit(carries), "class": played.deployment.submit(names)}
    ours = played.deployment.submit(played.job)
    again = ended(played, ours)
    return again, {kind: played.deployment.finished(job_id) for kind, job_id in ids.items()}


def test_a_job_gives_the_bundles_maps_and_model_that_files_give(
    played: Played, first: Run, through_files: Path
) -> None:
    assert {name: said["result"]["outcome"] for name, said in first.outcome["sites"].items()} == dict.fromkeys(
        SITES, "done"
    )
    assert first.bundles == {name: (through_files / "inbox" / f"{name}.bundle").read_bytes() for name in SITES}
    assert first.results == {name: (through_files / "results" / name).read_bytes() for name in first.results}


def test_the_server_cannot_open_the_anchor_that_it_carries(played: Played, first: Run) -> None:
    carried = played.work / "ward.anchor"
    dealers = Participant(played.study, Vault.open(played.place / "north" / "vault"))
    assert dealers.open_anchor(carried).matrix.shape == (16, 4)
    with pytest.raises(RefusedError, match="roster"):
        Participant(played.study, Vault.open(played.place / "analyst" / "vault")).open_anchor(carried)
    plain = dealers.open_anchor(carried).matrix.tobytes()
    assert not any(plain in path.read_bytes() for path in (played.place / "analyst").rglob("*") if path.is_file())


def test_sites_use_what_came_back(played: Played, first: Run) -> None:
    here = played.place / "south"
    participant = Participant(played.study, Vault.open(here / "vault"))
    found = participant.predict(here / "rows.csv", result=here / "mooring" / "result")
    assert found.score is not None
    assert found.score.value > 0.7


def test_the_administrator_cannot_look_around_at_a_site(played: Played, first: Run) -> None:
    assert "startup" in played.deployment.ask(do="look", site=SERVER_ITSELF)  # the server of this test allows it
    for name in SITES:
        with pytest.raises(AdministratorError, match=r"(?i)not authorized|not permitted"):
            played.deployment.ask(do="look", site=name)


def test_a_job_with_code_is_refused_by_every_site_while_ours_runs(
    played: Played, beside_hostile_jobs: tuple[Run, dict[str, dict[str, Any]]], spied: Path
) -> None:
    again, refused = beside_hostile_jobs
    assert again.outcome["outcome"] == "done"
    assert refused["code"]["status"] != "FINISHED:COMPLETED"
    assert str(refused["code"]).count("BYOC not permitted") >= len(SITES)
    assert not spied.exists()


def test_a_job_that_names_another_installed_class_is_refused(
    played: Played, beside_hostile_jobs: tuple[Run, dict[str, dict[str, Any]]]
) -> None:
    assert beside_hostile_jobs[1]["class"]["status"] != "FINISHED:COMPLETED"
    for name in SITES:
        assert f"{FLARES_OWN!r}" in played.deployment.log(name)
        assert "is not in allow_list" in played.deployment.log(name)


def test_a_second_run_issues_the_same_bundles_and_results(
    first: Run, beside_hostile_jobs: tuple[Run, dict[str, dict[str, Any]]]
) -> None:
    again, _ = beside_hostile_jobs
    assert {name: said["share"]["reissued"] for name, said in first.outcome["sites"].items()} == dict.fromkeys(SITES, 0)
    assert {name: said["share"]["reissued"] for name, said in again.outcome["sites"].items()} == dict.fromkeys(SITES, 1)
    assert again.bundles == first.bundles
    assert again.results == first.results


def test_a_server_that_restarts_in_mid_round_keeps_what_it_has(
    played: Played, first: Run, beside_hostile_jobs: tuple[Run, dict[str, dict[str, Any]]]
) -> None:
    fresh = played.place / "analyst" / "restarted"
    settings = ServerSettings.read(played.deployment.local(SERVER))
    replace(settings, folder=fresh).write(played.deployment.local(SERVER))
    arrived = [fresh / "inbox" / f"{name}.bundle" for name in ("north", "south")]
    with Vault.open(played.place / "east" / "vault").locked():  # east stands still in the middle of its share
        played.deployment.submit(played.job)
        wait_until(lambda: all(path.exists() for path in arrived), 90, "the arrival of two bundles")
        kept = [path.stat() for path in arrived]
        played.deployment.kill(SERVER)
    played.deployment.start(SERVER)
    played.deployment.log_in()
    meta = played.deployment.finished(played.deployment.submit(played.job))
    assert meta["status"] == "FINISHED:COMPLETED", played.deployment.log(SERVER)[-3000:]
    assert [(path.stat().st_ino, path.stat().st_mtime_ns) for path in arrived] == [
        (one.st_ino, one.st_mtime_ns) for one in kept
    ]
    assert {path.stem: path.read_bytes() for path in (fresh / "inbox").glob("*.bundle")} == first.bundles
    assert played.results() == first.results


def test_a_site_that_dies_in_the_round_does_not_stop_the_others(
    played: Played, first: Run, beside_hostile_jobs: tuple[Run, dict[str, dict[str, Any]]]
) -> None:
    fresh = played.place / "analyst" / "without-east"
    settings = ServerSettings.read(played.deployment.local(SERVER))
    replace(settings, folder=fresh, wait_seconds=SHORT_WAIT).write(played.deployment.local(SERVER))
    with Vault.open(played.place / "east" / "vault").locked():  # east stands still in the middle of its share
        job_id = played.deployment.submit(played.job)
        arrived = [fresh / "inbox" / f"{name}.bundle" for name in ("north", "south")]
        wait_until(lambda: all(path.exists() for path in arrived), 90, "the arrival of two bundles")
        played.deployment.kill("east")
    meta = played.deployment.finished(job_id)
    assert meta["status"] == "FINISHED:COMPLETED", played.deployment.log(SERVER)[-3000:]
    sites = json.loads((fresh / "flare.json").read_bytes())["sites"]
    assert sites["east"] == {"share": {"outcome": "no answer"}}
    assert [sites[name]["result"]["outcome"] for name in ("north", "south")] == ["done", "done"]
    assert not list((fresh / "inbox").glob("*east*"))
    for path in arrived:
        assert path.read_bytes() == first.bundles[path.stem]
    assert played.results()["north/" + MODEL_FILE] != first.results["north/" + MODEL_FILE]
