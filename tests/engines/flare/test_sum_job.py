"""A study of secure sums as a FLARE job, without FLARE: what files give, absent sites, second lists, hostile answers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mooring.engines.flare.chunks import Message
from mooring.engines.flare.client_workflow import ClientWorkflow
from mooring.engines.flare.server_workflow import ServerWorkflow
from mooring.engines.flare.settings import ServerSettings, SiteSettings
from mooring.errors import InputError, MooringError, RefusedError
from mooring.protocol.analyst.intake import collect
from mooring.protocol.analyst.trained_model import TRAINED_FILE
from mooring.protocol.messages.model import MODEL_FILE
from mooring.protocol.participant.role import Participant
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.sums.analyst.total import close_list
from mooring.protocol.sums.analyst.training import train_sums
from tests import commands
from tests.engines.flare.support import SiteTasks
from tests.engines.flare.test_workflow import RESOURCES
from tests.protocol.sums.support import SumStudy, make_sum_study, with_helpers, with_sealing_analyst
from tests.protocol.sums.test_secure_sums import resign

PIECE_SIZE = 2**12  # so that bundles go in several pieces
EVERYBODY = tuple(f"p{i}" for i in range(5))
DONE = ["Join", "Share", "Test bundles", "Combine"]
BUNDLE, RECEIPT, SHARE = "bundle", "receipt.sealed", "share.sealed"


@dataclass(eq=False)
class Job:
    """A study whose five sites all combine; four of them open the total, and four bundles are the quorum."""

    given: SumStudy
    kit: Path
    tasks: SiteTasks | None = None
    error: MooringError | None = None
    """The error of the last job, if any."""

    @property
    def folder(self) -> Path:
        return self.given.folder / "server"

    @property
    def work(self) -> Path:
        return self.folder / "analysis"

    @property
    def place(self) -> Path:
        return self.folder / "place"

    def settings(self, name: str) -> SiteSettings:
        is_helper, folder = name.startswith("h"), self.given.folder
        vault = folder / (name if is_helper else f"v{name[1:]}")
        table = None if is_helper else self.given.table(int(name[1:]))
        return SiteSettings(folder / "study.toml", vault, table, folder=folder / "sites" / name)

    def run(self, *, connected: Sequence[str] = EVERYBODY, dead: Sequence[str] = (), **rest: Any) -> dict[str, Any]:
        """Run a job; what the server wrote down."""
        (self.given.folder / "sites").mkdir(exist_ok=True)
        server = ServerWorkflow.opened(self.kit, self.given.study.digest, lambda words: None)
        server.place.piece_size, self.error = PIECE_SIZE, None

        def open_site(name: str, message: Message) -> ClientWorkflow:
            settings, digest = self.settings(name), self.given.study.digest
            return ClientWorkflow.opened(settings, name, digest, message, server.place.answer, piece_size=PIECE_SIZE)

        self.tasks = SiteTasks(open_site, dead, **rest)
        try:
            server.run(connected, self.tasks)
        except MooringError as problem:
            self.error = problem
        finally:
            self.tasks.close()
            server.close()
        return dict(json.loads((self.folder / "flare.json").read_bytes()))

    def run_until(self, kind: str, *absent: str) -> dict[str, Any]:
        """Run a job in which some sites die before they send their file of a kind."""
        dead = set[str]()

        def die(name: str) -> None:
            if name in absent and self.is_next(name, kind):
                dead.add(name)

        return self.run(dead=dead, before=die)  # type: ignore[arg-type]

    def is_next(self, name: str, kind: str) -> bool:
        """Whether a site would send its file of a kind in its next pass."""
        if kind == BUNDLE:
            return True
        if kind == RECEIPT:
            return self.has(name, BUNDLE)
        return (self.place / "lab" / "everybody" / "closing.list").is_file()

    def has(self, name: str, kind: str) -> bool:
        return any(self.place.glob(f"{name}/*/{name}.{kind}"))

    def listed(self) -> list[str]:
        return list(json.loads((self.work / "closing.json").read_bytes())["participants"])

    def model(self, name: str) -> bytes:
        return (self.settings(name).result / MODEL_FILE).read_bytes()


@pytest.fixture
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    given = make_sum_study(tmp_path, 5, epsilon=getattr(request, "param", 8.0), quorum=4, least_rows=10)
    given = with_sealing_analyst(given)
    given.study.write(tmp_path / "study.toml")
    (tmp_path / "kit").mkdir()
    ServerSettings(tmp_path / "study.toml", tmp_path / "va", tmp_path / "server").write(tmp_path / "kit")
    return Job(given, tmp_path / "kit")


def test_helpers_are_sites_that_only_combine(job: Job, tmp_path: Path) -> None:
    given, _ = with_helpers(job.given, 2)
    given.study.write(tmp_path / "study.toml")
    job, everybody = Job(given, job.kit), (*EVERYBODY, "h0", "h1")
    record = job.run(connected=everybody[:-1])
    assert isinstance(job.error, InputError)  # both must answer
    assert record["missing"] == [*EVERYBODY, "h0", "h1"]
    record = job.run(connected=everybody)
    assert (record["outcome"], record["missing"]) == ("done", [])
    assert {name: site["done"] for name, site in record["sites"].items()} == {
        **dict.fromkeys(EVERYBODY, DONE[:2]),
        **{name: ["Join", *DONE[2:]] for name in ("h0", "h1")},
    }
    (job.kit / "resources.json.default").write_text(json.dumps(RESOURCES))
    site = ("flare", "site", "--study", tmp_path / "study.toml", "--output", job.kit)
    commands.run(*site, "--vault", tmp_path / "h0")
    assert SiteSettings.read(job.kit).data is None
    for vault, more in (("h0", ("--data", given.table(0))), ("v0", ())):
        commands.run(*site, "--vault", tmp_path / vault, *more, code=2, what="data")
    missing = ("--data", tmp_path / "missing.csv")
    commands.run(*site, "--vault", tmp_path / "v0", *missing, code=5, what="the data file")


@pytest.mark.parametrize("job", [2.0], indirect=True)
def test_a_job_gives_the_model_that_files_give_and_tells_no_number_of_rows(job: Job, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    files = SumStudy(tmp_path / "files", job.given.study, job.given.vaults, job.given.analyst)
    for i in range(5):
        files.share(i)  # the job sends these bundles again: noise is drawn once
    files = replace(files, vaults=tuple(job.given.copy_vault(i) for i in range(5)))
    for i in range(5):
        files.check_boxes(i)
    files.close(receipts=files.inbox)
    for i in range(5):
        files.combine(i)
    train_sums(files.study, files.work, files.inbox)

    record = job.run()
    assert (record["outcome"], job.error) == ("done", None)
    for name in EVERYBODY:
        site = record["sites"][name]
        assert (site["done"], site["outcome"], set(site)) == (DONE, "done", {"done", "outcome", "model"})
        assert job.model(name) == job.model("p0")
    assert (job.work / TRAINED_FILE).read_bytes() == (files.work / TRAINED_FILE).read_bytes()
    closing = json.loads((job.work / "closing.json").read_bytes())
    assert closing["tested_by"] == list(EVERYBODY)
    assert closing["left_out"] == {}
    predictions = Participant(job.given.study, job.given.vaults[3]).predict(
        job.given.table(8), result=job.settings("p3").result
    )
    assert predictions.score is not None
    assert sorted(path.name for path in job.settings("p3").result.iterdir()) == [MODEL_FILE]
    assert job.run()["outcome"] == "done"


@pytest.mark.parametrize(("kind", "name"), [(BUNDLE, "p4"), (RECEIPT, "p4"), (SHARE, "p0")])
def test_a_site_that_is_absent_stops_nobody(job: Job, kind: str, name: str) -> None:
    record = job.run_until(kind, name)
    assert (record["outcome"], record["missing"]) == ("incomplete", [name])
    listed = [other for other in EVERYBODY if kind != BUNDLE or other != name]
    assert job.listed() == listed
    assert record["sites"][name]["outcome"] == "no answer"
    assert all(record["sites"][other]["outcome"] == "done" for other in EVERYBODY if other != name)
    later = job.run()  # nobody joins a closed list, nor spends a guarantee for nothing
    assert ("Share" in later["sites"][name]["done"]) == (kind != BUNDLE)
    assert job.model(name) == job.model("p1")
    assert (Ledger(job.settings(name).vault).entry(job.given.study.digest) is None) == (kind == BUNDLE)
    assert job.listed() == listed


@pytest.mark.parametrize(
    ("kind", "absent", "what"),
    [(BUNDLE, "p3 p4", "receipts"), (RECEIPT, "p0 p1", "receipts"), (SHARE, "p3 p4", "shares")],
)
def test_without_a_threshold_nothing_is_opened_and_the_next_job_goes_on(
    job: Job, kind: str, absent: str, what: str
) -> None:
    record = job.run_until(kind, *absent.split())
    assert isinstance(job.error, InputError)
    assert job.error.what == what
    assert (record["outcome"], record["reason"]) == ("failed", str(job.error))
    assert (job.work / "closing.list").exists() == (kind == SHARE)
    assert not (job.work / TRAINED_FILE).exists()
    assert job.run()["outcome"] == "done"
    assert job.listed() == list(EVERYBODY)


def test_more_bundles_than_the_quorum_can_be_asked_for(job: Job) -> None:
    replace(ServerSettings.read(job.kit), least_sites=5).write(job.kit)
    for connected in (EVERYBODY[:4], EVERYBODY[4:]):  # what comes is kept
        job.run(connected=connected)
        assert isinstance(job.error, InputError)
    assert job.error.what == "receipts"
    assert [job.has(name, BUNDLE) for name in EVERYBODY] == [True] * 5
    assert job.run()["outcome"] == "done"


def test_a_site_refuses_a_second_list(job: Job, tmp_path: Path) -> None:
    job.run_until(SHARE, "p1", "p2", "p3", "p4")
    bundles = collect(job.given.study, job.folder / "inbox", tmp_path / "intake").bundles
    place = job.place / "lab" / "everybody" / "closing.list"
    for path in (job.work / "closing.list", place):
        path.unlink()
    close_list(job.given.study, bundles[:4], job.work, job.given.analyst.signing_key)  # type: ignore[arg-type]
    (job.settings("p0").folder / "closing.list").unlink()
    (job.settings("p0").folder / "p0.share").unlink()
    job.run()
    assert job.tasks is not None
    assert isinstance(job.tasks.problems["p0"], RefusedError)


def test_a_bundle_whose_boxes_do_not_open_is_left_out_and_combined_by_nobody(job: Job, tmp_path: Path) -> None:
    def meddle(name: str) -> None:
        own, other = (job.place / name / "everybody" / f"{name}.bundle" for name in ("p4", "p0"))
        if other.is_file() and not own.exists():  # before its own comes
            own.parent.mkdir(parents=True)
            resign(job.given, other, own, 4)

    record = job.run(before=meddle)
    assert (record["outcome"], list(record["left_out"])) == ("incomplete", ["p4"])
    assert job.tasks is not None
    assert isinstance(job.tasks.problems["p4"], RefusedError)  # what was taken stays
    assert job.listed() == list(EVERYBODY[:4])


def test_the_commands_know_studies_of_sums(job: Job) -> None:
    (job.kit / "resources.json.default").write_text(json.dumps(RESOURCES))
    folder, rest = job.given.folder, ("--study", job.given.folder / "study.toml", "--output", job.kit)
    result = commands.run("flare", "site", "--vault", folder / "v0", "--data", job.given.table(0), *rest)
    assert "combiner" in commands.flat(result.output)  # which v0 is in this study
    server = ("flare", "server", "--vault", folder / "va", *rest)
    commands.run(*server, "--learner", "linear", code=2)
    commands.run(*server, "--learner", "discriminant")
    assert ServerSettings.read(job.kit).learner == "discriminant"
