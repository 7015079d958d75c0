"""A study over a real FLARE deployment gives what it gives through files; sites refuse code, and all else that an altered
server asks; a dead site stops nobody."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare")

from mooring.engines.flare.configuration import write_job
from mooring.engines.flare.settings import SETTINGS_FILE, ServerSettings, SiteSettings
from mooring.errors import RefusedError
from mooring.protocol.analyst.role import Analyst
from mooring.protocol.messages.model import MODEL_FILE
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import make_member
from mooring.protocol.participant.role import Participant
from mooring.protocol.rotation.anchor import open_anchor
from mooring.protocol.rotation.result import MAP_FILE
from mooring.protocol.rotation.scheme import dealing_member
from mooring.protocol.storage.vault import Vault
from mooring.protocol.sums.analyst.training import train_sums
from mooring.protocol.transport.place import EVERYBODY
from tests.commands import record_of
from tests.protocol.sums.support import make_sum_study, with_sealing_analyst
from tests.raising import raising
from tests.sites import label_by_sum, vaulted_study, write_rows

from .flare_deployment import SERVER, Deployment, wait_until, write_hostile_job

SITES = ("north", "south", "east")
N_ROWS = 120
SHORT_WAIT = 15
SERVER_ITSELF, GUARD = "server", "mooring_guard"
PRIVATE, JOB_FROM_BEFORE = "known to nobody else", "6b1c2f64-52a1-4b0a-9d5e-0f1f0e4d7a11"
FLARES_OWN = "nvflare.app_common.np.np_trainer.NPTrainer"


@dataclass(frozen=True, eq=False)
class Played:
    """A study with its people, and a deployment that is up."""

    place: Path
    """Each site's folder has vault, table and, after a job, `mooring`; `files` is the same study through files."""
    study: Study
    deployment: Deployment

    @property
    def job(self) -> Path:
        return self.place / "job"

    @property
    def work(self) -> Path:
        """The analyst's folder."""
        return self.place / "analyst" / "mooring"

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
    study = vaulted_study(vaults, analyst, 4, 16, name="ward", data_noise_scale=0.2, anchor_noise_scale=0.02)
    study = replace(study, analyst=make_member("lab", analyst))
    study.write(place / "study.toml")
    dealer = Participant(study, vaults["north"])
    dealer.take("deal", output=place / "north.anchor")  # sealing is random, once: the vault keeps the file
    for k, name in enumerate(SITES):
        rows = np.random.default_rng([6, k]).normal(size=(N_ROWS, 4))
        write_rows(place / name / "rows.csv", rows, label_by_sum(rows))
    return study


def configure(place: Path, deployment: Deployment) -> None:
    study = place / "study.toml"
    for name in SITES:
        here = place / name
        record_of(
            *("flare", "site", "--study", study, "--vault", here / "vault", "--data", here / "rows.csv", "--labels"),
            *("--folder", here / "mooring", "--output", deployment.local(name)),
        )
    record_of(
        *("flare", "server", "--study", study, "--vault", place / "analyst" / "vault", "--learner", "linear"),
        *("--folder", place / "analyst" / "mooring", "--output", deployment.local(SERVER)),
    )
    (deployment.local(SERVER) / "authorization.json").unlink()  # an analyst that would let code through: sites must not
    deployment.alter_server()
    record_of("flare", "job", "--study", study, "--output", place / "job")


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
        if name == dealing_member(played.study).name:
            participant.take("deal", output=place / "ward.anchor")
        participant.share(
            place / name / "rows.csv",
            anchor=place / "ward.anchor",
            output=place / "inbox" / f"{name}.bundle",
            labels=True,
        )
    key = Vault.open(place / "analyst" / "vault").signing_key
    analyst = Analyst(played.study, place / "analysis", key)
    analyst.gather(analyst.collect(place / "inbox").bundles)
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
    return ended(played, played.deployment.submit_by_command(played.job))


def test_a_job_gives_the_bundles_maps_and_model_that_files_give(
    played: Played, first: Run, through_files: Path
) -> None:
    assert {name: site["outcome"] for name, site in first.outcome["sites"].items()} == dict.fromkeys(SITES, "done")
    assert first.bundles == {name: (through_files / "inbox" / f"{name}.bundle").read_bytes() for name in SITES}
    assert first.results == {name: (through_files / "results" / name).read_bytes() for name in first.results}


def test_the_server_cannot_open_the_anchor_that_it_carries(played: Played, first: Run) -> None:
    carried = played.work / "place" / "north" / EVERYBODY / "ward.anchor"
    dealer = Vault.open(played.place / "north" / "vault")
    assert open_anchor(dealer, played.study, carried).matrix.shape == (16, 4)
    with raising(RefusedError, "the study", reason="the analyst's"):
        open_anchor(Vault.open(played.place / "analyst" / "vault"), played.study, carried)
    plain = open_anchor(dealer, played.study, carried).matrix.tobytes()
    assert not any(plain in path.read_bytes() for path in (played.place / "analyst").rglob("*") if path.is_file())


def test_sites_use_what_came_back(played: Played, first: Run) -> None:
    here = played.place / "south"
    participant = Participant(played.study, Vault.open(here / "vault"))
    predictions = participant.predict(here / "rows.csv", result=here / "mooring" / "result")
    assert predictions.score is not None
    assert predictions.score.value > 0.7


def test_a_job_of_secure_sums_gives_the_model_that_files_give(played: Played, first: Run) -> None:
    deployment, place, everybody = played.deployment, played.place / "sums", range(len(SITES))
    (place / "files").mkdir(parents=True)
    given = with_sealing_analyst(make_sum_study(place, len(SITES), names=SITES))
    files = replace(given, folder=place / "files")
    for i in everybody:
        files.share(i)  # the job sends these bundles again: noise is drawn once
    files = replace(files, vaults=tuple(given.copy_vault(i) for i in everybody))
    files.close()
    for i in everybody:
        files.combine(i)
    expected = train_sums(files.study, files.work, files.inbox).model_digest

    given.study.write(place / "study.toml")
    write_job(given.study, place / "job")
    kept = {name: (deployment.local(name) / SETTINGS_FILE).read_bytes() for name in (SERVER, *SITES)}
    try:
        ServerSettings(place / "study.toml", given.analyst.folder, place / "work").write(deployment.local(SERVER))
        for i, name in enumerate(SITES):
            settings = SiteSettings(place / "study.toml", given.vaults[i].folder, given.table(i), folder=place / name)
            settings.write(deployment.local(name))
        meta = deployment.finished(deployment.submit(place / "job"))
    finally:
        for name, content in kept.items():
            (deployment.local(name) / SETTINGS_FILE).write_bytes(content)
    assert meta["status"] == "FINISHED:COMPLETED", deployment.log(SERVER)[-3000:]
    sites = json.loads((place / "work" / "flare.json").read_bytes())["sites"]
    assert {name: (site["outcome"], len(site["done"])) for name, site in sites.items()} == dict.fromkeys(
        SITES, ("done", 4)
    )
    assert len({site["model"] for site in sites.values()}) == 1  # the file that the analyst signed
    assert json.loads((place / "work" / "analysis" / "training.json").read_bytes())["model_digest"] == expected
    predictions = Participant(given.study, given.vaults[1]).predict(given.table(7), result=place / "south" / "result")
    assert predictions.score is not None


def test_the_administrator_cannot_look_around_at_a_site(played: Played, first: Run) -> None:
    assert "startup" in played.deployment.ask(do="look", site=SERVER_ITSELF)  # the server of this test allows it
    for name in SITES:
        assert "refused by the guard" in played.deployment.ask(do="look", site=name)


@pytest.fixture(scope="module")
def private(played: Played) -> Path:
    """A file that no job has any business with."""
    path = played.place / "private.txt"
    path.write_text(PRIVATE)
    return path


def test_an_altered_server_learns_nothing_from_a_site_by_asking(played: Played, first: Run, private: Path) -> None:
    for topic, body in (
        ("sys.shell", f"cat {private}"),
        ("sys.info", ""),
        ("sys.report_env", ""),
        ("train.restart", ""),
    ):
        answer = played.deployment.altered(do="admin", site="south", topic=topic, body=body)
        assert "refused by the guard" in answer
        assert PRIVATE not in answer
    answer = played.deployment.altered(do="echo", site="south", file=str(private))
    assert answer["content"] is None
    assert "_net_manager, echo is not needed" in played.deployment.log("south")


def test_a_job_from_before_a_site_had_the_guard_is_not_started(played: Played, first: Run) -> None:
    meta = {"job_id": JOB_FROM_BEFORE, "name": "x", "deploy_map": {}}
    folder = played.deployment.kit("south") / JOB_FROM_BEFORE
    (folder / "app_south" / "custom").mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps(meta))
    asks: dict[str, Any] = {"do": "admin", "site": "south", "headers": {"job_id": JOB_FROM_BEFORE, "job_meta": meta}}
    free = played.deployment.altered(**asks, topic="scheduler.check_resource", body={})
    asks["headers"]["_resource_reserve_token"] = free["__headers__"]["_resource_reserve_token"]
    answer = played.deployment.altered(**asks, topic="train.start_job", body={})
    assert "refused by the guard" in answer


def test_nobody_on_a_sites_machine_can_pose_as_its_server(played: Played, first: Run) -> None:
    deployment, job = played.deployment, f"north.{first.meta['job_id']}"
    assert deployment.is_heard("north", says=job, certificate="north")  # as a job of its own would be
    for name, certificate in ((job, None), (job, "south"), ("server", "north"), ("north.x", "north")):
        assert not deployment.is_heard("north", says=name, certificate=certificate)


def test_a_server_that_restarts_in_mid_round_keeps_what_it_has_and_sites_issue_the_same_again(
    played: Played, first: Run
) -> None:
    fresh = played.place / "analyst" / "restarted"
    settings = ServerSettings.read(played.deployment.local(SERVER))
    replace(settings, folder=fresh).write(played.deployment.local(SERVER))
    arrived = [fresh / "inbox" / f"{name}.bundle" for name in ("north", "south")]
    (played.place / "east" / "mooring" / "east.bundle").unlink()  # so that it is made again
    with Vault.open(played.place / "east" / "vault").lock():  # east stands still in the middle of its share
        played.deployment.submit(played.job)
        wait_until(lambda: all(path.exists() for path in arrived), 90, "the arrival of two bundles")
        kept = [path.stat() for path in arrived]
        played.deployment.kill(SERVER)
    played.deployment.start(SERVER)
    played.deployment.log_in()
    meta = played.deployment.finished(played.deployment.submit(played.job))
    assert meta["status"] == "FINISHED:COMPLETED", played.deployment.log(SERVER)[-3000:]
    assert [(path.stat().st_ino, path.stat().st_mtime_ns) for path in arrived] == [
        (kept_file.st_ino, kept_file.st_mtime_ns) for kept_file in kept
    ]
    assert {path.stem: path.read_bytes() for path in (fresh / "inbox").glob("*.bundle")} == first.bundles
    assert played.results() == first.results


def test_a_site_whose_job_dies_and_then_itself_does_not_stop_the_others(played: Played, first: Run) -> None:
    fresh = played.place / "analyst" / "without-east"
    settings = ServerSettings.read(played.deployment.local(SERVER))
    replace(settings, folder=fresh, wait_seconds=SHORT_WAIT).write(played.deployment.local(SERVER))
    (played.place / "east" / "mooring" / "east.bundle").unlink()  # so that it is made again
    with Vault.open(played.place / "east" / "vault").lock():  # east stands still in the middle of its share
        job_id = played.deployment.submit(played.job)
        arrived = [fresh / "inbox" / f"{name}.bundle" for name in ("north", "south")]
        wait_until(lambda: all(path.exists() for path in arrived), 90, "the arrival of two bundles")
        before = len(played.deployment.log(SERVER))
        played.deployment.kill_job("east")  # the site reports it, and FLARE would fail the job
        wait_until(lambda: "; the others continue" in played.deployment.log(SERVER)[before:], 60, "the site's report")
        played.deployment.kill("east")
    meta = played.deployment.finished(job_id)
    assert meta["status"] == "FINISHED:EXECUTION_EXCEPTION", played.deployment.log(SERVER)[-3000:]
    record = json.loads((fresh / "flare.json").read_bytes())
    assert (record["job"], record["outcome"], record["missing"]) == (job_id, "incomplete", ["east"])
    sites = record["sites"]
    assert sites["east"] == {"done": ["Join"], "outcome": "no answer"}
    assert [sites[name]["outcome"] for name in ("north", "south")] == ["done", "done"]
    assert not list((fresh / "inbox").glob("*east*"))
    for path in arrived:
        assert path.read_bytes() == first.bundles[path.stem]
    assert played.results()["north/" + MODEL_FILE] != first.results["north/" + MODEL_FILE]


@pytest.fixture(scope="module")
def unguarded(played: Played, first: Run) -> str:
    """A site whose resources.json has lost the guard; it comes last, since no job of ours can run there."""
    name, deployment = "east", played.deployment
    if name in deployment.processes:
        deployment.kill(name)
    path = deployment.local(name) / "resources.json"
    resources = json.loads(path.read_bytes())
    resources["components"] = [component for component in resources["components"] if component["id"] != GUARD]
    path.write_text(json.dumps(resources))
    deployment.start(name)
    deployment.wait_for_sites([name])
    return name


def test_with_a_flare_that_the_guard_does_not_know_a_site_does_not_start(played: Played, first: Run) -> None:
    deployment, other = played.deployment, played.place / "other"
    if "east" in deployment.processes:
        deployment.kill("east")
    other.mkdir()
    (other / "sitecustomize.py").write_text('import nvflare\nnvflare.__version__ = "2.9.1"\n')
    deployment.start("east", PYTHONPATH=str(other))
    deployment.processes.pop("east").wait(timeout=120)
    assert "the guard supports FLARE 2.9.0, and this is 2.9.1" in deployment.log("east")


def test_without_the_guard_an_altered_server_reads_any_file(played: Played, unguarded: str, private: Path) -> None:
    deployment, asks = played.deployment, {"do": "admin", "site": unguarded, "topic": "sys.shell"}
    wait_until(lambda: deployment.altered(**asks, body=f"cat {private}") == PRIVATE, 60, "an answer of that site")
    assert deployment.altered(do="echo", site=unguarded, file=str(private))["content"] == PRIVATE


def test_a_job_with_code_or_another_class_is_refused_by_the_guard_and_where_there_is_none_by_flares_locks(
    played: Played, unguarded: str
) -> None:
    spied, deployment = played.place / "spied", played.deployment
    code = f"open({str(spied)!r}, 'w').write('x')\nfrom mooring.engines.flare.executor import MooringExecutor as Spy\n"
    carries = write_hostile_job(played.place / "carries-code", executor="spy.Spy", code=code)
    names = write_hostile_job(played.place / "names-a-class", executor=FLARES_OWN, code=None)
    ids = [deployment.submit(carries), deployment.submit(names)]
    endings = [str(deployment.finished(job_id)) for job_id in ids]
    assert [text.count("refused by the guard") for text in endings] == [2, 2]
    assert f"{unguarded}: NVFLARE_ERROR: BYOC not permitted" in endings[0]
    assert "the app's configuration differs" in endings[1]
    assert f"{FLARES_OWN!r}" in deployment.log(unguarded)
    assert "is not in allow_list" in deployment.log(unguarded)
    assert not spied.exists()
