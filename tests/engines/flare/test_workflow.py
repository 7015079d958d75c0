"""What a FLARE job does at a site and at the server, without FLARE: pieces, settings, policy, and both parts together."""

import hashlib
import importlib
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from mooring.atomic_io import hash_file
from mooring.engines.flare.chunks import FileExchange, IncomingFile, fetch_file, send_file
from mooring.engines.flare.client_workflow import ClientWorkflow, NoAnchorError
from mooring.engines.flare.configuration import (
    ANCHOR_TASK,
    CONTROLLER,
    EXECUTOR,
    GUARDS,
    RESULT_TASK,
    ROLES,
    SHARE_TASK,
    certificate_end,
    list_kit_warnings,
    write_job,
    write_policy,
)
from mooring.engines.flare.server_workflow import ServerWorkflow, answer_of
from mooring.engines.flare.settings import SETTINGS_FILE, ServerSettings, SiteSettings
from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.messages.signed_file import write_signed
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.role import Participant
from mooring.protocol.rotation import exchange as rotation
from mooring.protocol.rotation.analyst.alignment import align_bundles
from mooring.protocol.rotation.analyst.alignment_state import AlignedParticipant, AlignmentState
from mooring.protocol.rotation.anchor import deal_anchor
from mooring.protocol.rotation.result import read_result
from mooring.protocol.storage.vault import Vault
from tests import commands
from tests.permissions import has_mode
from tests.raising import raising
from tests.sites import label_by_sum, vaulted_study, write_rows
from tests.study_settings import change

pytestmark = pytest.mark.usefixtures("fewer_features")

SITES = ("north", "south", "east")
PIECE_SIZE = 257  # so that small files go in many pieces
SUM_OF_X = hashlib.sha256(b"x").hexdigest()
RESOURCES: dict[str, Any] = {
    "format_version": 2,
    "class_list_enforcement_mode": "warn",
    "class_allow_list": ["nvflare.anything."],
    "snapshot_persistor": {"args": {"root_dir": "/tmp/nvflare/snapshot-storage"}},
    "components": [
        {"id": "resource_manager", "path": "x.Y"},
        {"id": "site_log_streamer", "path": "x.Z"},
        {"id": "job_manager", "args": {"uri_root": "/data/big/storage/jobs-storage"}},  # the administrator's own
    ],
}


@dataclass(frozen=True, eq=False)
class World:
    """A study, its sites' settings, and the analyst at a counter that sites can ask."""

    place: Path
    study: Study
    analyst: ServerWorkflow

    def settings(self, name: str) -> SiteSettings:
        here = self.place / name
        return SiteSettings(
            self.place / "study.toml", here / "vault", here / "rows.csv", labels=True, folder=here / "mooring"
        )

    def part(self, name: str, **changes: Any) -> ClientWorkflow:
        settings = replace(self.settings(name), **changes)
        return ClientWorkflow(settings, name, self.study.digest, piece_size=PIECE_SIZE)

    def send(self, path: Path, ticket: Any) -> str:
        return send_file(path, str(ticket), self.analyst.counter.answer, piece_size=PIECE_SIZE)

    def deal(self) -> None:
        self.part("north").do(ANCHOR_TASK, self.analyst.for_dealer(), self.analyst.counter.answer)

    def share(self, name: str, **changes: Any) -> dict[str, Any]:
        return self.part(name, **changes).do(
            SHARE_TASK, self.analyst.for_participant(name), self.analyst.counter.answer
        )

    def fetch_result(self, name: str) -> dict[str, Any]:
        return self.part(name).do(RESULT_TASK, self.analyst.for_result(name), self.analyst.counter.answer)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    vaults = {name: Participant.join(tmp_path / name / "vault") for name in SITES}
    analyst = Participant.join(tmp_path / "analyst" / "vault")
    study = vaulted_study(vaults, analyst, 3, 12, name="ward", data_noise_scale=0.2, anchor_noise_scale=0.02)
    study.write(tmp_path / "study.toml")
    for k, name in enumerate(SITES):
        rows = np.random.default_rng([8, k]).normal(size=(40, 3))
        write_rows(tmp_path / name / "rows.csv", rows, label_by_sum(rows))
    (tmp_path / "kit").mkdir()
    settings = ServerSettings(tmp_path / "study.toml", tmp_path / "analyst" / "vault", tmp_path / "analysis", "linear")
    settings.write(tmp_path / "kit")
    analysts_part = ServerWorkflow.opened(tmp_path / "kit", study.digest, lambda words: None)
    yield World(tmp_path, study, replace(analysts_part, counter=FileExchange(PIECE_SIZE)))
    analysts_part.close()


def test_a_round_gives_every_site_a_result_that_it_can_use(world: World) -> None:
    world.deal()
    assert [world.share(name)["reissued"] for name in SITES] == [0, 0, 0]
    assert world.analyst.analysed() == SITES
    for name in SITES:
        assert world.fetch_result(name)["model"]
        participant = Participant(world.study, Vault.open(world.place / name / "vault"))
        predictions = participant.predict(world.place / name / "rows.csv", result=world.settings(name).result)
        assert len(predictions.values) == 40
    assert [world.share(name)["reissued"] for name in SITES] == [1, 1, 1]
    for kind, folder in (("analysis", world.place / "analysis"), ("vault", world.place / "south" / "vault")):
        page = world.place / f"{kind}.html"
        commands.run("report", folder, "--study", world.place / "study.toml", "--output", page)
        assert "mooring flare" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("silent", "aside"), [("", ""), ("north", ""), ("", "east")])
def test_a_whole_job_asks_the_rosters_sites_step_by_step_and_writes_down_what_they_answer(
    world: World, silent: str, aside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def align(study: Study, bundles: Any, folder: Path, **options: Any) -> AlignmentState:
        alignment = align_bundles(
            study, [bundle for bundle in bundles if bundle.member.name != aside], folder, **options
        )
        left = [AlignedParticipant(aside, 40, "", 0.0, flagged=True)] if aside else []
        return replace(alignment, record=replace(alignment.record, set_aside=tuple(left)))

    monkeypatch.setattr(rotation, "align_bundles", align)

    def ask(task: str, value: Any, answers: Any) -> None:
        for name in value:
            if name != silent:
                done = world.part(name).do(task, value[name], world.analyst.counter.answer)
                answers[name] = answer_of({**done, "outcome": "done"})

    if silent:  # the dealer, whose anchor came before: it is not waited for again
        world.deal()
    missing = [name for name in (silent, aside) if name]
    assert world.analyst.run(["west", "east", *SITES[:2]], ask) == tuple(missing)
    record = json.loads((world.place / "analysis" / "flare.json").read_bytes())
    steps = {name: ["share"] if name == aside else ["share", "result"] for name in SITES} | {
        "north": ["share"] if silent else ["anchor", "share", "result"]
    }
    assert {name: list(site) for name, site in record["sites"].items()} == steps
    assert (record["outcome"], record["missing"]) == ("incomplete" if missing else "done", missing)
    assert list(record["left_out"]) == missing
    assert (record["sites"]["north"]["share"] == {"outcome": "no answer"}) == bool(silent)
    assert [world.settings(name).result.exists() for name in SITES] == [not silent, True, not aside]


def test_a_job_of_another_study_is_refused_at_both_ends(world: World) -> None:
    world.deal()
    task = world.analyst.for_participant("south")
    with raising(RefusedError, "the job", reason="another study"):
        replace(world.part("south"), digest="0" * 64).do(SHARE_TASK, task, world.analyst.counter.answer)
    with raising(RefusedError, "the job", reason="another study"):
        world.part("south").do(SHARE_TASK, {**task, "study": "0" * 64}, world.analyst.counter.answer)
    with raising(RefusedError, "the job", reason="another study"):
        ServerWorkflow.opened(world.place / "kit", "0" * 64, lambda words: None)
    assert not world.analyst.bundle("south").exists()


def test_a_task_cannot_give_consent_or_choose_the_table(world: World) -> None:
    world.deal()
    message = {**world.analyst.for_participant("south"), "labels": 1, "data": str(world.place / "north" / "rows.csv")}
    ask = Mock()
    with raising(InputError, "consent for labels", cure="labels = true"):
        world.part("south", labels=False).do(SHARE_TASK, message, ask)
    ask.assert_not_called()
    answer = world.part("south").do(SHARE_TASK, message, world.analyst.counter.answer)
    assert answer["digest"] == world.share("south")["digest"]


def test_a_site_under_another_name_than_the_rosters_does_nothing(world: World) -> None:
    world.deal()
    with raising(InputError, "name of the site", expected="roster"):
        replace(world.part("south"), name="east").do(
            SHARE_TASK, world.analyst.for_participant("east"), world.analyst.counter.answer
        )


def test_one_site_cannot_send_anothers_bundle(world: World) -> None:
    world.deal()
    world.share("south")
    sent = world.analyst.bundle("south")
    with raising(StorageError, "the server", reason="east did not sign"):
        world.send(sent, world.analyst.for_participant("east")["ticket"])
    assert not world.analyst.bundle("east").exists()


def test_only_the_dealers_anchor_is_carried(world: World) -> None:
    with raising(InputError, "dealer"):
        world.part("south").do(ANCHOR_TASK, world.analyst.for_dealer(), world.analyst.counter.answer)
    another = change(world.study, dealer="south")
    forged = world.place / "forged.anchor"
    deal_anchor(Vault.open(world.place / "south" / "vault"), another, forged)
    with raising(StorageError, "the server", reason="the dealer did not sign"):
        world.send(forged, world.analyst.for_dealer()["ticket"])
    assert not world.analyst.anchor.exists()


def test_a_site_may_use_an_anchor_that_came_another_way(world: World) -> None:
    world.deal()
    kept = world.place / "by-mail.anchor"
    kept.write_bytes(world.analyst.anchor.read_bytes())
    world.analyst.anchor.unlink()  # the dealer is down
    assert world.share("south", anchor=kept)["rows"] == 40
    with raising(NoAnchorError, "the anchor", reason="dealer has not sent it"):
        world.share("east")
    assert world.share("north", anchor=kept)["rows"] == 40
    assert world.analyst.analysed() == ("north", "south")


def test_what_a_killed_job_left_of_files_is_removed_by_the_next_unless_one_is_at_work(world: World) -> None:
    world.deal()
    folder, arriving = world.settings("south").folder, world.settings("south").folder / ".arriving"
    arriving.mkdir(parents=True)
    left = [folder / ".0123456789abcdef.partial", arriving / ".0123456789abcdef.partial"]

    def leave() -> None:
        for path in left:
            path.write_bytes(b"x")

    leave()
    world.share("south")
    assert not any(path.exists() for path in left)
    task = world.analyst.for_participant("south")

    def ask(request: Any) -> Any:  # another job begins in the middle of this one
        if request["do"] == "get":
            leave()
            world.share("south")
            assert all(path.exists() for path in left)
        return world.analyst.counter.answer(request)

    world.part("south").do(SHARE_TASK, task, ask)
    world.share("south")
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize("late", [False, True])
def test_who_comes_late_moves_the_others_only_if_the_server_does_not_say_late(world: World, late: bool) -> None:
    part = replace(world.analyst, settings=replace(world.analyst.settings, late=late))
    results = world.place / "analysis" / "results"
    world.deal()
    for name in ("north", "south"):
        world.share(name)
    assert part.analysed() == ("north", "south")
    before = {path: path.read_bytes() for path in results.rglob("*.*")}
    assert part.analysed() == ("north", "south")  # nobody new
    assert {path: path.read_bytes() for path in results.rglob("*.*")} == before
    world.share("east")
    assert part.analysed() == SITES
    same = [path.read_bytes() == content for path, content in before.items()]
    assert len(same) == 4
    assert all(same) == late
    if not late:
        assert not any(same)
    assert world.fetch_result("east")["model"]
    predictions = Participant(world.study, Vault.open(world.place / "east" / "vault")).predict(
        world.place / "east" / "rows.csv", result=world.settings("east").result
    )
    assert len(predictions.values) == 40


def test_a_changed_map_or_model_is_not_kept(world: World) -> None:
    world.deal()
    for name in SITES:
        world.share(name)
    world.analyst.analysed()
    result = world.analyst.settings.folder / "results"
    for name, file in (("north", "map.safetensors"), ("south", "model.safetensors")):
        data = bytearray((result / name / file).read_bytes())
        data[-9] ^= 1
        (result / name / file).write_bytes(data)
        with pytest.raises(RefusedError):
            world.fetch_result(name)
        assert not world.settings(name).result.exists()
    (result / "east" / "map.safetensors").write_bytes((result / "north" / "map.safetensors").read_bytes())
    with pytest.raises(RefusedError):
        world.fetch_result("east")


def test_a_map_that_the_analyst_signed_but_that_is_not_of_my_upload_is_not_kept(world: World) -> None:
    world.deal()
    for name in SITES:
        world.share(name)
    world.analyst.analysed()
    path = world.analyst.settings.folder / "results" / "south" / "map.safetensors"
    member = world.study.member("south")
    honest = read_result(path.parent, world.study, member)
    arrays = {"orthogonal": honest.orthogonal, "mean": honest.mean + 1.0, "origin": honest.origin}
    fields = {
        "study": world.study.digest,
        "participant": member.name,
        "key": member.signing_key,
        "bundle": honest.bundle_digest,
        "model": honest.delivered.digest,
    }
    write_signed(path, kind="map", fields=fields, arrays=arrays, signer=world.analyst.signing_key)
    assert read_result(path.parent, world.study, member).mean[0] == honest.mean[0] + 1.0
    with raising(RefusedError, "the map", reason="your own anchor representation"):
        world.fetch_result("south")
    assert not world.settings("south").result.exists()


def test_too_few_bundles_make_no_model_and_stay(world: World) -> None:
    world.deal()
    world.share("south")
    with raising(InputError, "bundles", problem="2 are needed"):
        world.analyst.analysed()
    assert world.analyst.bundle("south").exists()
    world.share("east")
    assert world.analyst.analysed() == ("south", "east")


def test_the_server_needs_the_analysts_vault(world: World) -> None:
    settings = ServerSettings.read(world.place / "kit")
    replace(settings, vault=world.place / "north" / "vault").write(world.place / "kit")
    with raising(RefusedError, "the job", reason="analyst"):
        ServerWorkflow.opened(world.place / "kit", world.study.digest, lambda words: None)


@pytest.mark.parametrize("learner", ["lienar", "svm", "discriminant"])
def test_a_learner_that_cannot_be_delivered_ends_the_job_at_once(world: World, learner: str) -> None:
    replace(ServerSettings.read(world.place / "kit"), learner=learner).write(world.place / "kit")
    with raising(InputError, "learner"):
        ServerWorkflow.opened(world.place / "kit", world.study.digest, lambda words: None)


def test_one_job_at_a_time_is_at_work_in_a_folder(world: World) -> None:
    with raising(RefusedError, "the job", reason="another job is running"):
        ServerWorkflow.opened(world.place / "kit", world.study.digest, lambda words: None)
    again = replace(ServerSettings.read(world.place / "kit"), folder=world.place / "elsewhere")
    again.write(world.place / "kit")
    ServerWorkflow.opened(world.place / "kit", world.study.digest, lambda words: None).close()


# Pieces.


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1000))
    return path


@pytest.fixture
def arrival(tmp_path: Path) -> IncomingFile:
    return IncomingFile(tmp_path / "inbox" / "arrived", 2000, lambda path: None, piece_size=64)


def counted(counter: FileExchange, asked: list[Any]) -> Callable[..., Any]:
    def ask(request: Any) -> Any:
        asked.append(request)
        return counter.answer(request)

    return ask


def test_a_file_arrives_whole_in_pieces_and_is_not_sent_twice(file: Path, arrival: IncomingFile) -> None:
    counter, asked = FileExchange(), []
    ticket = counter.ticket(arrival=arrival)
    digest = send_file(file, ticket, counted(counter, asked), piece_size=64)
    assert arrival.path.read_bytes() == file.read_bytes()
    assert max(len(request.get("piece", b"")) for request in asked) == 64
    n_asked = len(asked)
    assert send_file(file, ticket, counted(counter, asked), piece_size=64) == digest
    assert [request["do"] for request in asked[n_asked:]] == ["offer"]


def test_a_piece_whose_answer_was_lost_is_written_once(file: Path, arrival: IncomingFile) -> None:
    counter = FileExchange()

    def ask_twice(request: Any) -> Any:
        if request["do"] != "offer":
            counter.answer(request)
        return counter.answer(request)

    send_file(file, counter.ticket(arrival=arrival), ask_twice, piece_size=64)
    assert arrival.path.read_bytes() == file.read_bytes()


def test_what_was_taken_stays(file: Path, arrival: IncomingFile) -> None:
    counter = FileExchange()
    send_file(file, counter.ticket(arrival=arrival), counter.answer, piece_size=64)
    before = file.read_bytes()
    file.write_bytes(b"another")
    with raising(StorageError, "the server", reason="a different file was accepted"):
        send_file(file, counter.ticket(arrival=arrival), counter.answer, piece_size=64)
    assert arrival.path.read_bytes() == before


def test_a_file_that_stops_half_way_leaves_nothing_and_can_be_sent_again(file: Path, arrival: IncomingFile) -> None:
    counter = FileExchange()
    ticket = counter.ticket(arrival=arrival)

    def dies(request: Any) -> Any:
        if request.get("offset") == 640:
            raise ConnectionError
        return counter.answer(request)

    with pytest.raises(ConnectionError):
        send_file(file, ticket, dies, piece_size=64)
    assert arrival.partial.stat().st_size == 640
    counter.close(ticket)
    assert list(arrival.path.parent.iterdir()) == []
    with raising(StorageError, "the server", reason="has expired"):
        send_file(file, ticket, counter.answer, piece_size=64)
    send_file(file, counter.ticket(arrival=arrival), counter.answer, piece_size=64)
    assert arrival.path.read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    "requests",
    [
        [{"do": "put", "offset": 0, "piece": b"x"}],
        [{"do": "offer", "size": 2001, "digest": "0" * 64}],
        [{"do": "offer", "size": -1, "digest": "0" * 64}],
        [{"do": "offer", "size": 3, "digest": "0" * 64}, {"do": "put", "offset": 1, "piece": b"x"}],
        [{"do": "offer", "size": 3, "digest": "0" * 64}, {"do": "put", "offset": 0, "piece": b"xxxx"}],
        [{"do": "offer", "size": 900, "digest": "0" * 64}, {"do": "put", "offset": 0, "piece": b"x" * 65}],
        [{"do": "offer", "size": 1, "digest": "0" * 64}, {"do": "put", "offset": 0, "piece": b"x"}, {"do": "done"}],
        [{"do": "offer", "size": 3, "digest": "0" * 64}, {"do": "put", "offset": 0, "piece": b"x"}, {"do": "done"}],
        [{"do": "offer", "size": 3, "digest": SUM_OF_X}, {"do": "put", "offset": 0, "piece": b"x"}, {"do": "done"}],
        [{"do": "done"}],
        [{"do": "get", "file": "anchor", "offset": 0}],
        [{"do": "anything"}],
    ],
)
def test_nonsense_is_told_no_and_leaves_no_file(requests: list[dict[str, Any]], arrival: IncomingFile) -> None:
    counter = FileExchange()
    ticket = counter.ticket(arrival=arrival)
    answers = [counter.answer({**request, "ticket": ticket}) for request in requests]
    assert answers[-1].get("no")
    assert not arrival.path.exists()
    assert counter.answer({**requests[0], "ticket": "another"}).get("no")


def test_a_fetched_file_is_bounded_and_checked(file: Path, tmp_path: Path) -> None:
    counter, target = FileExchange(piece_size=64), tmp_path / "fetched"
    ticket = counter.ticket(files={"anchor": file})
    digest = hash_file(file, what="the file")
    fetch_file("anchor", target, ticket, counter.answer, size=1000, digest=digest, most=1000, piece_size=64)
    assert target.read_bytes() == file.read_bytes()
    for size, sum_of, most, ask in (
        (1000, digest, 999, counter.answer),
        (1000, "0" * 64, 1000, counter.answer),
        (1001, digest, 2000, counter.answer),
        (900, digest, 2000, counter.answer),
        (1000, digest, 1000, lambda request: {"piece": b"x" * 65}),
        (1000, digest, 1000, lambda request: {"piece": "words"}),
    ):
        with pytest.raises((RefusedError, StorageError)):
            fetch_file("anchor", tmp_path / "not", ticket, ask, size=size, digest=sum_of, most=most, piece_size=64)
    assert not (tmp_path / "not").exists()


# Settings, policy, job.


def test_settings_are_read_as_they_were_written(tmp_path: Path) -> None:
    site = SiteSettings(
        Path("/s.toml"), Path("/v"), Path('/a "quoted" table.csv'), labels=True, folder=Path("/f"), ignore=("ward",)
    )
    site.write(tmp_path)
    assert SiteSettings.read(tmp_path) == site
    assert has_mode(tmp_path / SETTINGS_FILE, 0o600)
    server = ServerSettings(Path("/s.toml"), Path("/v"), Path("/w"), "linear", 3, 4, 5, late=True)
    server.write(tmp_path)
    assert ServerSettings.read(tmp_path) == server


def test_paths_count_from_the_settings_folder_and_consent_is_not_given_by_default(tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_text('study = "study.toml"\nvault = "../vault"\ndata = "/rows.csv"\n')
    settings = SiteSettings.read(tmp_path)
    assert (settings.study, settings.vault, settings.data) == (
        tmp_path / "study.toml",
        tmp_path / "../vault",
        Path("/rows.csv"),
    )
    assert not settings.labels
    assert settings.anchor is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "study = ",
        'study = "s"\nvault = "v"\ndata = "d"\nlabels = "true"\n',
        'study = "s"\nvault = "v"\ndata = "d"\nlabels = 1\n',
        'study = "s"\nvault = "v"\ndata = "d"\nlabel = true\n',
        'study = "s"\nvault = "v"\ndata = "d"\nignore = [1]\n',
        'study = "s"\nvault = "v"\ndata = 3\n',
    ],
)
def test_settings_that_cannot_be_meant_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_text(text)
    with pytest.raises(InputError):
        SiteSettings.read(tmp_path)
    with raising(StorageError, "the settings", reason=SETTINGS_FILE):
        SiteSettings.read(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "entry",
    [*("least_sites = 1", "wait_seconds = 0", "seed = -1", 'seed = "1"', "wait = 3"), *("late = 1", "learner = 1")],
)
def test_a_servers_settings_are_checked(entry: str, tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_text(f'study = "s"\nvault = "v"\n{entry}\n')
    with pytest.raises(InputError):
        ServerSettings.read(tmp_path)


@pytest.mark.parametrize(("kind", "allowed"), [("site", EXECUTOR), ("server", CONTROLLER)])
def test_a_policy_lets_no_code_in_and_one_class_only(kind: Any, allowed: str, tmp_path: Path) -> None:
    kit = tmp_path / "kit" / "local"
    kit.mkdir(parents=True)
    (kit / "resources.json.default").write_text(json.dumps(RESOURCES))
    write_policy(kit, kind)
    kit = kit.parent.rename(tmp_path / "moved") / "local"
    write_policy(kit, kind)  # of what is there, nothing is lost
    resources = json.loads((kit / "resources.json").read_bytes())
    assert resources["class_allow_list"] == [allowed]
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert {"id": "resource_manager", "path": "x.Y"} in resources["components"]
    guards = [component for component in resources["components"] if component["id"] == "mooring_guard"]
    assert resources["components"][:1] == guards == [{"id": "mooring_guard", "path": GUARDS[kind], "args": {}}]
    module, _, name = GUARDS[kind].rpartition(".")
    assert callable(getattr(importlib.import_module(module), name))
    connections = json.loads((kit / "comm_config.json").read_bytes())
    assert connections["internal"]["resources"]["connection_security"] == "mtls"
    assert ("site_log_streamer" in str(resources)) == (kind == "server")
    store = resources["snapshot_persistor"]["args"]["root_dir"]
    assert store == ("/tmp/nvflare" if kind == "site" else f"{kit.parent}/storage") + "/snapshot-storage"
    assert resources["components"][-1] == RESOURCES["components"][-1]
    rights = json.loads((kit / "authorization.json").read_bytes())["permissions"]
    assert set(rights) == set(ROLES)
    assert {role["byoc"] for role in rights.values()} == {"none"}
    assert {role["shell_commands"] for role in rights.values()} == {"none"}


@pytest.mark.posix
def test_keys_that_others_can_read_are_told(tmp_path: Path) -> None:
    kit = tmp_path / "analyst" / "kit"
    key, state = kit / "startup" / "client.key", kit.parent / "kits" / "ward" / "state" / "cert.json"
    for path in (key, state):
        path.parent.mkdir(parents=True)
        path.touch(mode=0o600)
    assert list_kit_warnings(kit / "local") == []
    key.chmod(0o640)
    state.chmod(0o644)  # as 'nvflare provision' leaves it
    (kit / "startup" / "gone.key").symlink_to("nowhere")
    assert [words.rpartition(" ")[2] for words in list_kit_warnings(kit / "local")] == [str(key), str(state)]


@pytest.mark.parametrize("certificate", ["client.crt", "server.crt"])
@pytest.mark.parametrize("is_own_first", [True, False])
def test_a_warning_is_about_the_certificate_that_ends_first(
    certificate: str, is_own_first: bool, tmp_path: Path
) -> None:
    end, kit = datetime(2027, 11, 12, tzinfo=UTC), tmp_path / "kit"
    assert certificate_end(kit / "local") is None
    (kit / "startup").mkdir(parents=True)
    first, last = (certificate, "rootCA.crt") if is_own_first else ("rootCA.crt", certificate)
    for name, until in ((first, end), (last, end + timedelta(days=3000))):
        key, empty = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
        made = x509.CertificateBuilder(empty, empty, key.public_key(), 1, end - timedelta(days=360), until)
        (kit / "startup" / name).write_bytes(made.sign(key, SHA256()).public_bytes(Encoding.PEM))
    (kit / "startup" / "another.crt").write_text("no certificate")
    assert certificate_end(kit / "local") == (end, first)
    for days, n_warnings in ((31, 0), (29, 1), (-1, 1)):
        warnings = list_kit_warnings(kit / "local", now=end - timedelta(days=days))
        assert [f"{first} expires on 2027-11-12" in words for words in warnings] == [True] * n_warnings


def test_a_folder_that_is_no_kit_gets_no_policy(tmp_path: Path) -> None:
    with raising(InputError, "output", expected="nvflare provision"):
        write_policy(tmp_path, "site")
    (tmp_path / "resources.json.default").write_text("[]")
    with pytest.raises(InputError):
        write_policy(tmp_path, "site")


def test_a_job_names_two_classes_and_the_study_and_carries_no_code(world: World) -> None:
    write_job(world.study, world.place / "job")
    files = {path.relative_to(world.place / "job").as_posix() for path in (world.place / "job").rglob("*.*")}
    assert files == {"meta.json", "app/config/config_fed_server.json", "app/config/config_fed_client.json"}
    text = "".join((world.place / "job" / name).read_text() for name in files)
    assert text.count('"path"') == 2
    assert text.count(world.study.digest) == 2
    dotted = replace(world.study.participants[0], name="st.mary")
    with raising(InputError, "roster", problem="dots"):
        write_job(replace(world.study, participants=(dotted, *world.study.participants[1:])), world.place / "no-job")


# Commands.


def test_the_commands_write_kit_and_job(world: World) -> None:
    kit, here = world.place / "kit", world.place / "south"
    (kit / "resources.json.default").write_text(json.dumps(RESOURCES))

    def run(*words: Any, code: int = 0) -> Any:
        return commands.run("flare", *words, "--study", world.place / "study.toml", "--format", "json", code=code)

    site = ("site", "--data", here / "rows.csv", "--output", kit, "--folder", here / "mooring")
    run(*site, "--vault", here / "vault")
    assert not SiteSettings.read(kit).labels
    run(*site, "--vault", here / "vault", "--labels")
    assert SiteSettings.read(kit) == world.settings("south")
    run(*site, "--vault", world.place / "analyst" / "vault", code=4)
    run("site", "--data", "nowhere.csv", "--output", kit, "--vault", here / "vault", code=2)
    run("server", "--vault", here / "vault", "--output", kit, code=4)
    analyst = ("server", "--vault", world.place / "analyst" / "vault", "--output", kit)
    assert "linear" in run(*analyst, "--learner", "lienar", code=2).output
    run(*analyst, "--late")
    assert ServerSettings.read(kit).late
    run(*analyst, "--wait-seconds", "60")
    assert ServerSettings.read(kit).wait_seconds == 60
    assert json.loads(run("job", "--output", world.place / "job").stdout)["fingerprint"] == world.study.fingerprint


@pytest.mark.parametrize("name", ["job", "site", "server"])
def test_every_command_of_flare_has_an_example(name: str) -> None:
    assert f"Example: mooring flare {name}" in commands.flat(commands.run("flare", name, "--help").output)


def test_the_commands_of_the_page_are_known() -> None:
    page = (Path(__file__).parents[3] / "docs" / "flare.md").read_text(encoding="utf-8")
    lines = re.findall(r"^mooring (flare .+)$", page, flags=re.MULTILINE)
    assert {line.split()[1] for line in lines} == {"job", "site", "server"}
    for line in lines:
        words = shlex.split(line)
        printed = commands.run(*words[:2], "--help").output
        assert {word for word in words if word.startswith("--")} <= set(re.findall(r"--[a-z-]+", printed))


def test_the_tables_of_the_page_fit_its_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "flare.md").read_text(encoding="utf-8")
    for name in (*SITES, "analyst"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    exec(compile(page.split("```python\n")[1].split("```")[0], "flare.md", "exec"), {})
    (draft,) = re.findall(r"^mooring (study init .+)$", page, flags=re.MULTILINE)
    commands.run(*shlex.split(draft), place=tmp_path / "analyst")
    for name in SITES:
        words = ("--study", "../analyst/study.toml", "--fit-only")
        commands.run("check", "patients.csv", *words, place=tmp_path / name)


def test_of_what_a_site_says_only_known_words_are_recorded_and_as_they_can_be_shown() -> None:
    reply = {
        "outcome": "done\nforged: \x1b[31mline",
        "rows": 5,
        "reissued": 1,
        "other": "x",
        "digest": "a" * 64,
        "model": b"x",
    }
    assert answer_of(reply) == {"outcome": "done?forged: ?[31mline", "digest": "a" * 64, "rows": 5, "reissued": 1}
    assert len(str(answer_of({"outcome": "x" * 10_000})["outcome"])) <= 80


def test_a_damaged_bundle_is_not_taken_and_the_right_one_still_is(world: World) -> None:
    world.deal()
    world.share("east")
    taken = world.analyst.bundle("east")
    whole = taken.read_bytes()
    taken.unlink()
    damaged = world.place / "damaged.bundle"
    damaged.write_bytes(whole[:-4] + bytes(byte ^ 0xFF for byte in whole[-4:]))
    with pytest.raises(StorageError):
        world.send(damaged, world.analyst.for_participant("east")["ticket"])
    assert not taken.exists()
    world.share("east")
    assert taken.read_bytes() == whole
