"""A study of secure sums as a FLARE job, without FLARE: what files give, absent sites, second lists, hostile answers."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mooring.engines.flare.chunks import FileExchange, send_file
from mooring.engines.flare.client_workflow import ClientWorkflow
from mooring.engines.flare.server_workflow import Answers, JobAbortedError, ServerWorkflow, TaskMessage, answer_of
from mooring.engines.flare.settings import ServerSettings, SiteSettings
from mooring.errors import InputError, MooringError, RefusedError, StorageError
from mooring.protocol.analyst.intake import collect
from mooring.protocol.analyst.trained_model import TRAINED_FILE
from mooring.protocol.messages.model import MODEL_FILE
from mooring.protocol.participant.role import Participant
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.sums.analyst.total import close_list
from mooring.protocol.sums.analyst.training import train_sums
from mooring.protocol.sums.bundle import most_sum_bundle_bytes
from tests import commands
from tests.engines.flare.test_workflow import RESOURCES
from tests.protocol.sums.support import SumStudy, make_sum_study, with_helpers
from tests.protocol.sums.test_secure_sums import resign
from tests.raising import raising

PIECE_SIZE = 2**12  # so that bundles go in several pieces
EVERYBODY = tuple(f"p{i}" for i in range(5))
Meddle = Callable[[ServerWorkflow, str, str, TaskMessage], None]


@dataclass(frozen=True, eq=False)
class Job:
    """A study whose five sites all combine; four of them open the total, and four bundles are the quorum."""

    given: SumStudy
    kit: Path

    @property
    def work(self) -> Path:
        return self.given.folder / "work"

    def site(self, name: str) -> ClientWorkflow:
        here, is_helper = self.given.folder / "sites" / name, name.startswith("h")
        here.mkdir(parents=True, exist_ok=True)
        study, vault = self.given.folder / "study.toml", self.given.folder / (name if is_helper else f"v{name[1:]}")
        settings = SiteSettings(study, vault, None if is_helper else self.given.table(int(name[1:])), folder=here)
        return ClientWorkflow(settings, name, self.given.study.digest, piece_size=PIECE_SIZE)

    def run(
        self, absent: Mapping[str, str] = {}, connected: tuple[str, ...] = EVERYBODY, meddle: Meddle = lambda *_: None
    ) -> dict[str, Any]:
        """Run a job in which names, by step, do not answer; what the server wrote down, with its error, if any."""
        part = ServerWorkflow.opened(self.kit, self.given.study.digest, lambda words: None)
        part = replace(part, counter=FileExchange(PIECE_SIZE))

        def ask(task: str, messages: Mapping[str, TaskMessage], answers: Answers) -> None:
            step = task.removeprefix("mooring.")
            for name in messages:
                if name in absent.get(step, ""):
                    continue
                meddle(part, step, name, messages[name])
                try:
                    done = self.site(name).do(task, messages[name], part.counter.answer)
                    answers[name] = answer_of({**done, "outcome": "done"})
                except MooringError as problem:
                    answers[name] = {"outcome": type(problem).__name__}

        error = None
        try:
            part.run(connected, ask)
        except MooringError as problem:
            error = problem
        finally:
            part.close()
        return json.loads((part.settings.folder / "flare.json").read_bytes()) | {"error": error}

    def listed(self) -> list[str]:
        return list(json.loads((self.work / "closing.json").read_bytes())["participants"])

    def model(self, name: str) -> bytes:
        return (self.given.folder / "sites" / name / "result" / MODEL_FILE).read_bytes()


@pytest.fixture
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    given = make_sum_study(tmp_path, 5, epsilon=getattr(request, "param", 8.0), quorum=4, least_rows=10)
    given.study.write(tmp_path / "study.toml")
    (tmp_path / "kit").mkdir()
    ServerSettings(tmp_path / "study.toml", tmp_path / "va", tmp_path / "work").write(tmp_path / "kit")
    return Job(given, tmp_path / "kit")


def test_helpers_are_sites_that_only_combine(job: Job, tmp_path: Path) -> None:
    given, _ = with_helpers(job.given, 2)
    given.study.write(tmp_path / "study.toml")
    job, everybody = Job(given, job.kit), (*EVERYBODY, "h0", "h1")
    record = job.run(connected=everybody, absent={"combine": "h1"})
    assert isinstance(record["error"], InputError)  # both must answer
    assert record["missing"] == ["h1"]
    record = job.run(connected=everybody)
    assert (record["outcome"], record["missing"]) == ("done", [])
    assert {name: set(site) for name, site in record["sites"].items()} == {
        **{name: {"result"} for name in EVERYBODY},
        "h0": set(),
        "h1": {"combine"},
    }
    (job.kit / "resources.json.default").write_text(json.dumps(RESOURCES))
    site = ("flare", "site", "--study", tmp_path / "study.toml", "--output", job.kit)
    commands.run(*site, "--vault", tmp_path / "h0")
    assert SiteSettings.read(job.kit).data is None
    for vault, more in (("h0", ("--data", given.table(0))), ("v0", ())):
        commands.run(*site, "--vault", tmp_path / vault, *more, code=2, what="data")


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
    assert (record["outcome"], record["error"]) == ("done", None)
    steps = {"share": {"digest", "reissued"}, "receipt": {"digest"}, "combine": {"digest"}, "result": {"model"}}
    for name in EVERYBODY:
        answers = record["sites"][name]
        assert {step: set(answer) - {"outcome"} for step, answer in answers.items()} == steps
        assert {answer["outcome"] for answer in answers.values()} == {"done"}
        assert job.model(name) == job.model("p0")
        assert not (tmp_path / "sites" / name / "bundles").exists()
    assert (job.work / TRAINED_FILE).read_bytes() == (files.work / TRAINED_FILE).read_bytes()
    closing = json.loads((job.work / "closing.json").read_bytes())
    assert closing["tested_by"] == list(EVERYBODY)
    assert closing["left_out"] == {}
    predictions = Participant(job.given.study, job.given.vaults[3]).predict(
        job.given.table(8), result=job.site("p3").settings.result
    )
    assert predictions.score is not None
    assert sorted(path.name for path in job.site("p3").settings.result.iterdir()) == [MODEL_FILE]
    again = job.run()  # all there is to do is to hand the result back
    assert {name: set(site) for name, site in again["sites"].items()} == {key: {"result"} for key in EVERYBODY}


@pytest.mark.parametrize(
    ("absent", "listed"),
    [({"share": "p4"}, EVERYBODY[:4]), ({"receipt": "p4"}, EVERYBODY), ({"combine": "p0"}, EVERYBODY)],
)
def test_a_site_that_is_absent_stops_nobody_and_is_not_waited_for_again(
    job: Job, absent: dict[str, str], listed: tuple[str, ...]
) -> None:
    record = job.run(absent)
    ((step, missing),) = absent.items()
    assert (record["outcome"], record["missing"]) == ("incomplete", [missing])
    assert tuple(job.listed()) == listed
    assert list(record["sites"][missing].items())[-1] == (step, {"outcome": "no answer"})
    assert all(record["sites"][name]["result"]["outcome"] == "done" for name in EVERYBODY if name != missing)
    later = job.run()
    assert "share" not in later["sites"][missing]  # nobody joins a closed list, nor spends a guarantee for nothing
    assert job.model(missing) == job.model("p1")
    assert (Ledger(job.given.vaults[4].folder).entry(job.given.study.digest) is None) == ("share" in absent)


@pytest.mark.parametrize(
    ("absent", "what", "closed"),
    [
        ({"share": "p3 p4"}, "bundles", False),
        ({"receipt": "p3 p4"}, "receipts", False),
        ({"share": "p4", "receipt": "p3"}, "receipts", False),  # receipts are written anew
        ({"combine": "p3 p4"}, "shares", True),
    ],
)
def test_without_a_quorum_or_a_threshold_nothing_is_opened_and_the_next_job_goes_on(
    job: Job, absent: dict[str, str], what: str, closed: bool
) -> None:
    record = job.run(absent)
    assert isinstance(record["error"], InputError)
    assert record["error"].what == what
    assert (record["outcome"], record["reason"]) == ("failed", str(record["error"]))
    assert (job.work / "closing.list").exists() == closed
    assert not (job.work / TRAINED_FILE).exists()
    later = job.run()
    assert later["outcome"] == "done"
    assert tuple(job.listed()) == EVERYBODY
    assert {answer["outcome"] for site in later["sites"].values() for answer in site.values()} == {"done"}
    asked = {name for name, site in later["sites"].items() if "combine" in site}
    assert asked == ({"p3", "p4"} if closed else set(EVERYBODY))


def test_more_bundles_than_the_quorum_can_be_asked_for(job: Job) -> None:
    replace(ServerSettings.read(job.kit), least_sites=5).write(job.kit)
    record = job.run(connected=EVERYBODY[:4])
    assert record["error"].what == "bundles"
    assert job.run(connected=EVERYBODY[4:])["error"].what == "receipts"
    assert job.run()["outcome"] == "done"


def test_a_site_refuses_a_second_list(job: Job, tmp_path: Path) -> None:
    job.run({"combine": "p1 p2 p3 p4"})
    bundles = collect(job.given.study, job.work / "inbox", tmp_path / "intake").bundles
    (job.work / "closing.list").unlink()
    close_list(job.given.study, bundles[:4], job.work, job.given.analyst.signing_key)
    for path in (job.work / "inbox").glob("*.share"):
        path.unlink()
    record = job.run(connected=EVERYBODY[:4])
    assert record["sites"]["p0"]["combine"]["outcome"] == "RefusedError"
    assert record["error"].what == "shares"
    assert not (job.work / TRAINED_FILE).exists()


def test_a_bundle_whose_boxes_do_not_open_is_left_out_and_combined_by_nobody(job: Job) -> None:
    handed_out = []

    def meddle(part: ServerWorkflow, step: str, name: str, message: TaskMessage) -> None:
        if (step, name) == ("share", "p4"):  # before its own comes
            resign(job.given, part.bundle("p0"), part.bundle("p4"), 4)
        if (step, name) == ("combine", "p4"):
            handed_out.extend(word for word in message if word.endswith(".digest"))

    record = job.run(meddle=meddle)
    assert (record["outcome"], list(record["left_out"])) == ("incomplete", ["p4"])
    assert record["sites"]["p4"]["share"]["outcome"] == "StorageError"  # what was taken stays
    assert tuple(job.listed()) == EVERYBODY[:4]
    assert handed_out == ["closing.list.digest", *(f"{name}.bundle.digest" for name in EVERYBODY[:4])]


def test_what_is_anothers_or_too_large_is_not_taken(job: Job, tmp_path: Path) -> None:
    most, seen = most_sum_bundle_bytes(job.given.study), []

    def meddle(part: ServerWorkflow, step: str, name: str, message: TaskMessage) -> None:
        if (step, name) in (("share", "p1"), ("receipt", "p1"), ("combine", "p1")):
            suffix = {"share": "bundle", "receipt": "receipt", "combine": "share"}[step]
            with raising(StorageError, "the server", reason="p1 did not sign"):
                path, ticket = tmp_path / "sites" / "p0" / f"p0.{suffix}", str(message["ticket"])
                send_file(path, ticket, part.counter.answer, piece_size=PIECE_SIZE)
            seen.append(step)
        if (step, name) == ("receipt", "p2"):
            with raising(RefusedError, "the bundle", reason="larger"):
                job.site(name).do("mooring.receipt", message | {"p0.bundle.size": most + 1}, part.counter.answer)
            seen.append("size")
        if (step, name) == ("result", "p2"):
            with pytest.raises((StorageError, InputError)):  # a task of another step, with a ticket of this one
                job.site(name).do("mooring.combine", message, part.counter.answer)
            seen.append("ticket")

    assert job.run(meddle=meddle)["outcome"] == "done"
    assert seen == ["share", "receipt", "size", "combine", "ticket"]


def test_an_aborted_job_closes_nothing_and_one_at_work_says_which_it_is(job: Job) -> None:
    def abort(part: ServerWorkflow, step: str, name: str, message: TaskMessage) -> None:
        now = json.loads((job.work / "flare.json").read_bytes())
        assert (now["outcome"], now["job"], now["missing"]) == ("running", part.job, [])
        if step == "receipt" and name == "p4":
            raise JobAbortedError

    record = job.run(meddle=abort)
    assert (record["outcome"], record["error"]) == ("aborted", None)
    assert record["sites"]["p0"]["receipt"]["outcome"] == "done"
    assert not (job.work / "closing.list").exists()


def test_the_commands_know_studies_of_sums(job: Job) -> None:
    (job.kit / "resources.json.default").write_text(json.dumps(RESOURCES))
    folder, rest = job.given.folder, ("--study", job.given.folder / "study.toml", "--output", job.kit)
    result = commands.run("flare", "site", "--vault", folder / "v0", "--data", job.given.table(0), *rest)
    assert "combiner" in commands.flat(result.output)  # which v0 is in this study
    server = ("flare", "server", "--vault", folder / "va", *rest)
    commands.run(*server, "--learner", "linear", code=2)
    commands.run(*server, "--learner", "discriminant")
    assert ServerSettings.read(job.kit).learner == "discriminant"
