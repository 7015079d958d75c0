"""What a FLARE job does at a site and at the server, without FLARE: jobs, the place, settings, policy, commands."""

import hashlib
import importlib
import json
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from mooring.atomic_io import hash_file
from mooring.engines.flare.chunks import Message
from mooring.engines.flare.client_workflow import AbsentMembersError, ClientWorkflow
from mooring.engines.flare.configuration import (
    CONTROLLER,
    EXECUTOR,
    GUARDS,
    ROLES,
    certificate_end,
    list_kit_warnings,
    write_job,
    write_policy,
)
from mooring.engines.flare.place import ServedPlace, SitePlace
from mooring.engines.flare.server_workflow import JobAbortedError, ServerWorkflow, answer_of
from mooring.engines.flare.settings import SETTINGS_FILE, ServerSettings, SiteSettings
from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.messages.bundle import Bundle
from mooring.protocol.messages.envelope import envelope_of, seal_file
from mooring.protocol.messages.model import MODEL_FILE
from mooring.protocol.messages.signed_file import write_signed
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import make_member
from mooring.protocol.participant.role import Participant
from mooring.protocol.registry import exchange_of
from mooring.protocol.rotation import exchange as rotation
from mooring.protocol.rotation.analyst.alignment import align_bundles
from mooring.protocol.rotation.analyst.alignment_state import AlignedParticipant, AlignmentState
from mooring.protocol.rotation.anchor import deal_anchor
from mooring.protocol.rotation.result import MAP_FILE, read_result
from mooring.protocol.storage.vault import Vault
from mooring.protocol.transport.place import EVERYBODY, PlacedFile
from mooring.protocol.transport.transfer import OccupiedError
from tests import commands
from tests.engines.flare.support import SiteTasks
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


@dataclass(eq=False)
class World:
    """A study, its sites' settings, and the server's kit."""

    place: Path
    study: Study
    tasks: SiteTasks | None = None
    """The sites' tasks of the last job."""

    @property
    def kit(self) -> Path:
        return self.place / "kit"

    @property
    def work(self) -> Path:
        """The analyst's folder."""
        return self.place / "analyst" / "mooring"

    def settings(self, name: str) -> SiteSettings:
        here = self.place / name
        return SiteSettings(
            self.place / "study.toml", here / "vault", here / "rows.csv", labels=True, folder=here / "mooring"
        )

    def change_server(self, **changes: Any) -> None:
        replace(ServerSettings.read(self.kit), **changes).write(self.kit)

    def open_server(self, digest: str = "") -> ServerWorkflow:
        return ServerWorkflow.opened(self.kit, digest or self.study.digest, lambda words: None, "a job")

    def open_site(self, server: ServerWorkflow, name: str, message: Message, **changes: Any) -> ClientWorkflow:
        server.place.piece_size = PIECE_SIZE
        settings, digest = replace(self.settings(name), **changes), self.study.digest
        return ClientWorkflow.opened(settings, name, digest, message, server.place.answer, piece_size=PIECE_SIZE)

    def run(self, connected: Sequence[str] = SITES, *, changes: Any = None, **rest: Any) -> tuple[str, ...]:
        """Run a job, and return who is missing; `changes` are those of sites' settings, by name."""
        server, given = self.open_server(), changes or {}
        try:
            self.tasks = SiteTasks(
                lambda name, message: self.open_site(server, name, message, **given.get(name, {})), **rest
            )
            return server.run(connected, self.tasks)
        finally:
            assert self.tasks is not None
            self.tasks.close()
            server.close()

    def record(self) -> dict[str, Any]:
        return dict(json.loads((self.work / "flare.json").read_bytes()))

    def results(self, name: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.settings(name).result.iterdir()}

    def predict(self, name: str) -> int:
        participant = Participant(self.study, Vault.open(self.place / name / "vault"))
        rows = self.place / name / "rows.csv"
        return len(participant.predict(rows, result=self.settings(name).result).values)


@pytest.fixture
def world(tmp_path: Path) -> World:
    vaults = {name: Participant.join(tmp_path / name / "vault") for name in SITES}
    analyst = Participant.join(tmp_path / "analyst" / "vault")
    study = vaulted_study(vaults, analyst, 3, 12, name="ward", data_noise_scale=0.2, anchor_noise_scale=0.02)
    study = replace(study, analyst=make_member("lab", analyst))
    study.write(tmp_path / "study.toml")
    for k, name in enumerate(SITES):
        rows = np.random.default_rng([8, k]).normal(size=(40, 3))
        write_rows(tmp_path / name / "rows.csv", rows, label_by_sum(rows))
    made = World(tmp_path, study)
    made.kit.mkdir()
    settings = ServerSettings(tmp_path / "study.toml", tmp_path / "analyst" / "vault", made.work, "linear")
    settings.write(made.kit)
    return made


# Jobs.


def test_a_job_gives_every_site_a_result_that_it_can_use_and_the_next_gives_the_same_again(world: World) -> None:
    assert world.run(["west", "east", *SITES[:2]]) == ()
    record, before = world.record(), {name: world.results(name) for name in SITES}
    assert (record["outcome"], record["job"], record["missing"], record["left_out"]) == ("done", "a job", [], {})
    assert list(record["sites"]) == list(SITES)
    assert {site["outcome"] for site in record["sites"].values()} == {"done"}
    assert {site["model"] for site in record["sites"].values()} == {hash_file(_model(world, "north"), what="it")}
    assert record["sites"]["north"]["done"] == ["Join", "Make the anchor", "Share"]
    assert [world.predict(name) for name in SITES] == [40, 40, 40]
    assert {path.name for path in (world.work / "inbox").iterdir()} == {f"{name}.bundle" for name in SITES}
    assert world.run() == ()
    assert {name: world.results(name) for name in SITES} == before
    shutil.rmtree(world.settings("south").folder)  # the vault issues the same bytes again, sealed anew
    assert world.run() == ()
    assert {name: world.results(name) for name in SITES} == before
    for kind, folder in (("analysis", world.work / "analysis"), ("vault", world.place / "south" / "vault")):
        page = world.place / f"{kind}.html"
        commands.run("report", folder, "--study", world.place / "study.toml", "--output", page)
        assert "mooring flare" in page.read_text(encoding="utf-8")


def _model(world: World, name: str) -> Path:
    return world.settings(name).result / MODEL_FILE


@pytest.mark.parametrize("how", ["dead", "silent"])
def test_a_site_that_is_gone_or_does_not_answer_stops_nobody(world: World, how: str) -> None:
    world.change_server(wait_seconds=1)
    assert world.run(**{how: ["east"]}) == ("east",)
    record = world.record()
    assert (record["outcome"], record["left_out"]) == ("incomplete", {"east": "it has no valid bundle"})
    assert record["sites"]["east"] == {"done": ["Join"], "outcome": "no answer"}
    assert [world.predict(name) for name in ("north", "south")] == [40, 40]
    assert not world.settings("east").folder.exists()


def test_who_is_set_aside_gets_no_result_and_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def align(study: Study, bundles: Any, folder: Path, **options: Any) -> AlignmentState:
        kept = [bundle for bundle in bundles if bundle.member.name != "east"]
        alignment = align_bundles(study, kept, folder, **options)
        aside = AlignedParticipant("east", 40, "", 0.0, flagged=True)
        changed = replace(alignment, record=replace(alignment.record, set_aside=(aside,)))
        (folder / "alignment.json").write_text(changed.record.to_json())
        return changed

    monkeypatch.setattr(rotation, "align_bundles", align)
    assert world.run() == ("east",)
    record = world.record()
    assert list(record["left_out"]) == ["east"]
    assert (record["sites"]["east"]["outcome"], record["sites"]["east"]["model"]) == ("done", "")
    assert not world.settings("east").result.exists()
    assert world.predict("south") == 40


def test_a_job_of_another_study_is_refused_at_both_ends(world: World) -> None:
    with raising(RefusedError, "the job", reason="another study"):
        world.open_server("0" * 64)
    settings, ask = world.settings("south"), Mock()
    for digest, stated in (("0" * 64, world.study.digest), (world.study.digest, "0" * 64)):
        with raising(RefusedError, "the job", reason="another study"):
            ClientWorkflow.opened(settings, "south", digest, {"study": stated}, ask)
    ask.assert_not_called()


def test_a_task_cannot_give_consent_or_choose_the_table(world: World) -> None:
    message = {"labels": 1, "data": str(world.place / "north" / "rows.csv")}
    opened = World.open_site

    def open_with_more(world: World, server: ServerWorkflow, name: str, task: Message, **rest: Any) -> ClientWorkflow:
        return opened(world, server, name, {**task, **message}, **rest)

    with patch.object(World, "open_site", open_with_more):
        assert world.run(changes={"south": {"labels": False}}) == ("south",)
    assert world.tasks is not None
    with raising(InputError, "consent for labels", cure="labels = true"):
        raise world.tasks.problems["south"]
    assert not list(world.work.rglob("*south*.bundle*"))


def test_a_site_under_another_name_than_the_rosters_does_nothing(world: World) -> None:
    ask = Mock()
    with raising(InputError, "name of the site", expected="roster"):
        ClientWorkflow.opened(world.settings("south"), "east", world.study.digest, {"study": world.study.digest}, ask)
    ask.assert_not_called()


def test_a_site_may_use_an_anchor_that_came_another_way(world: World) -> None:
    kept = world.place / "by-mail.anchor"
    deal_anchor(Vault.open(world.place / "north" / "vault"), world.study, kept)
    with raising(InputError, "bundles", problem="is 1, and 2 are needed"):  # the dealer is down, and east has no anchor
        world.run(SITES[1:], changes={"south": {"anchor": kept}})
    assert world.tasks is not None
    assert isinstance(world.tasks.problems["east"], AbsentMembersError)
    assert world.record()["outcome"] == "failed"
    assert world.run(SITES[1:], changes={name: {"anchor": kept} for name in SITES}) == ("north",)
    assert [world.predict(name) for name in SITES[1:]] == [40, 40]


def test_what_a_killed_job_left_of_files_is_removed_by_the_next(world: World) -> None:
    folder = world.settings("south").folder
    left = [folder / ".0123456789abcdef.partial", folder / "result" / ".0123456789abcdef.partial"]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    world.run()
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize("late", [False, True])
def test_who_comes_late_moves_the_others_only_if_the_server_does_not_say_late(world: World, late: bool) -> None:
    world.change_server(late=late)
    assert world.run(SITES[:2]) == ("east",)
    before = {name: world.results(name) for name in SITES[:2]}
    assert world.run(SITES[:2]) == ("east",)  # nobody new
    assert {name: world.results(name) for name in SITES[:2]} == before
    assert world.run() == ()
    same = [world.results(name)[file] == before[name][file] for name in before for file in before[name]]
    assert len(same) == 4
    assert all(same) == late
    if not late:
        assert not any(same)
    assert [world.predict(name) for name in SITES] == [40, 40, 40]


@pytest.mark.parametrize("file", [MAP_FILE, MODEL_FILE])
def test_a_result_of_somebody_else_or_for_another_upload_is_not_kept(world: World, file: str) -> None:
    world.run()
    delivered = world.work / "results" / "south"
    member, key = world.study.member("south"), Vault.open(world.place / "analyst" / "vault").signing_key
    honest = read_result(delivered, world.study, member)
    if file == MAP_FILE:  # signed by the analyst, and not of this upload
        arrays = {"orthogonal": honest.orthogonal, "mean": honest.mean + 1.0, "origin": honest.origin}
        fields = {
            "study": world.study.digest,
            "participant": member.name,
            "key": member.signing_key,
            "bundle": honest.bundle_digest,
            "model": honest.delivered.digest,
        }
        write_signed(delivered / file, kind="map", fields=fields, arrays=arrays, signer=key)
    else:
        (delivered / file).write_bytes((delivered / MAP_FILE).read_bytes())
    seal_file(delivered / file, envelope_of(delivered / file), study=world.study, recipient=member, signer=key)
    assert world.run() == ("south",)
    assert world.tasks is not None
    assert isinstance(world.tasks.problems["south"], RefusedError)
    assert world.results("south") == {}
    assert world.record()["sites"]["south"]["outcome"] == "RefusedError"


def test_too_few_bundles_make_no_model_and_stay(world: World) -> None:
    world.change_server(wait_seconds=1)
    with raising(InputError, "bundles", problem="2 are needed"):
        world.run(["north"])
    assert (world.work / "inbox" / "north.bundle").exists()
    assert not (world.work / "analysis").exists()
    assert world.run(["north", "east"]) == ("south",)


def test_a_bundle_that_is_set_aside_does_not_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    verify = exchange_of(world.study).verify_bundle

    def verify_two(path: Path, study: Study) -> Bundle:
        if path.name == "east.bundle":
            raise RefusedError("the bundle", reason="it is not valid", cure="Ask east.")
        return verify(path, study)

    world.change_server(least_sites=3)
    with monkeypatch.context() as patched:
        patched.setattr(type(exchange_of(world.study)), "verify_bundle", staticmethod(verify_two))
        for _ in range(2):
            with raising(InputError, "valid bundles", problem="is 2, and 3 are needed"):
                world.run()
            assert not list(world.work.rglob("training.json"))
    assert world.run() == ()


def test_the_server_needs_the_analysts_vault(world: World) -> None:
    world.change_server(vault=world.place / "north" / "vault")
    with raising(RefusedError, "the job", reason="analyst"):
        world.open_server()


@pytest.mark.parametrize("learner", ["lienar", "svm", "discriminant"])
def test_a_learner_that_cannot_be_delivered_ends_the_job_at_once(world: World, learner: str) -> None:
    world.change_server(learner=learner)
    with raising(InputError, "learner"):
        world.open_server()


def test_one_job_at_a_time_is_at_work_in_a_folder(world: World) -> None:
    server = world.open_server()
    with raising(RefusedError, "the run", reason="another run"):
        world.open_server()
    world.change_server(folder=world.place / "elsewhere")
    world.open_server().close()
    server.close()


def test_an_aborted_job_says_so_and_one_at_work_says_which_it_is(world: World) -> None:
    def abort(name: str) -> None:
        record = world.record()
        assert (record["outcome"], record["job"], record["missing"]) == ("running", "a job", [])
        if (world.work / "place" / "north" / "lab").exists():
            raise JobAbortedError

    world.run(before=abort)
    assert world.record()["outcome"] == "aborted"
    assert world.run() == ()


def test_of_what_a_site_says_only_known_words_are_recorded_and_as_they_can_be_shown() -> None:
    reply = {"outcome": "done\nforged: \x1b[31mline", "rows": 5, "model": "a" * 64, "other": "x"}
    assert answer_of(reply) == {"outcome": "done?forged: ?[31mline", "model": "a" * 64}
    assert len(str(answer_of({"outcome": "x" * 10_000})["outcome"])) <= 80


# The place.


@dataclass(eq=False)
class Counter:
    """A server's place that sites can ask, and what they asked."""

    world: World
    served: ServedPlace
    asked: list[Any] = field(default_factory=list)

    def site(self, name: str, **rest: Any) -> SitePlace:
        ticket, ask = self.served.issue_ticket(name), rest.pop("ask", self.ask)
        return SitePlace(self.world.study.digest, ticket, ask, piece_size=PIECE_SIZE, **rest)

    def ask(self, request: Message) -> Message:
        self.asked.append(request)
        return self.served.answer(request)

    def bundle(self, name: str) -> Path:
        """A sealed bundle of a site, as its run makes it."""
        path = self.world.place / f"{name}.bundle"
        vault = Vault.open(self.world.place / name / "vault")
        anchor = self.world.place / "ward.anchor"
        deal_anchor(Vault.open(self.world.place / "north" / "vault"), self.world.study, anchor)
        rows = self.world.place / name / "rows.csv"
        Participant(self.world.study, vault).share(rows, output=path, anchor=anchor, labels=True)
        analyst = self.world.study.analyst
        assert analyst is not None
        seal_file(path, envelope_of(path), study=self.world.study, recipient=analyst, signer=vault.signing_key)
        return envelope_of(path)


@pytest.fixture
def counter(world: World, tmp_path: Path) -> Counter:
    (tmp_path / "place").mkdir()
    return Counter(world, ServedPlace(tmp_path / "place", world.study, PIECE_SIZE))


def sealed(name: str) -> PlacedFile:
    return PlacedFile(name, "lab", f"{name}.bundle.sealed")


def test_a_file_arrives_whole_in_pieces_and_is_not_sent_twice(counter: Counter, tmp_path: Path) -> None:
    source, south = counter.bundle("south"), counter.site("south")
    assert not south.put(source, sealed("south"))
    assert (counter.served.folder / sealed("south").path).read_bytes() == source.read_bytes()
    assert max(len(request.get("piece", b"")) for request in counter.asked) == PIECE_SIZE
    counter.asked.clear()
    assert south.put(source, sealed("south"))
    assert [request["do"] for request in counter.asked] == ["offer"]
    anchor = PlacedFile("north", EVERYBODY, "ward.anchor")
    counter.site("north").put(tmp_path / "ward.anchor", anchor)
    (listed,) = (file for file in south.list_files() if file.path == anchor.path)
    south.fetch(listed, tmp_path / "fetched", most_bytes=10**6)
    assert (tmp_path / "fetched").read_bytes() == (tmp_path / "ward.anchor").read_bytes()
    with raising(RefusedError, "the file north/everybody/ward.anchor", reason="larger"):
        south.fetch(listed, tmp_path / "not", most_bytes=10)
    for piece in ({"piece": b"x" * (PIECE_SIZE + 1)}, {"piece": "words"}, {}):
        with raising(StorageError, reason="a piece"):
            counter.site("south", ask=lambda request, piece=piece: piece).fetch(
                listed, tmp_path / "not", most_bytes=10**6
            )
    assert not (tmp_path / "not").exists()


def test_a_piece_whose_answer_was_lost_is_written_once(counter: Counter) -> None:
    def ask_twice(request: Message) -> Message:
        if request["do"] != "offer":
            counter.served.answer(request)
        return counter.served.answer(request)

    source = counter.bundle("south")
    counter.site("south", ask=ask_twice).put(source, sealed("south"))
    assert (counter.served.folder / sealed("south").path).read_bytes() == source.read_bytes()


def test_what_was_taken_stays(counter: Counter) -> None:
    source, south = counter.bundle("south"), counter.site("south")
    south.put(source, sealed("south"))
    before = source.read_bytes()
    assert counter.bundle("south").read_bytes() != before  # an envelope is drawn anew
    with raising(OccupiedError, "the place"):
        south.put(source, sealed("south"))
    assert (counter.served.folder / sealed("south").path).read_bytes() == before


def test_a_file_that_stops_half_way_leaves_nothing_and_can_be_sent_again(counter: Counter) -> None:
    def dies(request: Message) -> Message:
        if request.get("offset") == 2 * PIECE_SIZE:
            raise ConnectionError
        return counter.served.answer(request)

    source, folder = counter.bundle("south"), counter.served.folder / "south" / "lab"
    with pytest.raises(ConnectionError):
        counter.site("south", ask=dies).put(source, sealed("south"))
    assert [path.stat().st_size for path in folder.iterdir()] == [2 * PIECE_SIZE]
    assert counter.site("south").list_files() == []
    late = counter.site("south")
    counter.served.close()
    assert list(folder.iterdir()) == []
    with raising(RefusedError, "a request to the server", reason="has expired"):
        late.list_files()
    counter.site("south").put(source, sealed("south"))
    assert (folder / source.name).read_bytes() == source.read_bytes()


def test_a_site_writes_and_reads_only_what_the_steps_send_from_it_and_to_it(counter: Counter, tmp_path: Path) -> None:
    south, east, bundle = counter.site("south"), counter.site("east"), counter.bundle("south")
    with raising(RefusedError, "a request to the server", reason="does not send"):
        east.put(bundle, sealed("south"))
    with raising(RefusedError, "a request to the server", reason="not signed by east"):
        east.put(bundle, sealed("east"))
    another, forged = change(counter.world.study, dealer="south"), tmp_path / "forged.anchor"
    deal_anchor(Vault.open(tmp_path / "south" / "vault"), another, forged)
    with raising(RefusedError, "a request to the server", reason="does not send"):
        south.put(forged, PlacedFile("south", EVERYBODY, "ward.anchor"))
    with raising(RefusedError, "a request to the server", reason="not signed by north"):
        counter.site("north").put(forged, PlacedFile("north", EVERYBODY, "ward.anchor"))
    with raising(RefusedError, "a request to the server", reason="not sealed"):
        south.put(tmp_path / "south.bundle", sealed("south"))
    with raising(RefusedError, "the file"):  # it does not even leave
        south.put(tmp_path / "study.toml", sealed("south"))
    whole = bundle.read_bytes()
    bundle.write_bytes(whole[:-4] + bytes(byte ^ 0xFF for byte in whole[-4:]))
    with raising(RefusedError, "the file", reason="changed after signing"):
        south.put(bundle, sealed("south"))
    assert not [path for path in counter.served.folder.rglob("*") if path.is_file() and path.name[0] != "."]
    bundle.write_bytes(whole)
    south.put(bundle, sealed("south"))
    assert east.list_files() == []
    (listed,) = south.list_files()
    for site in (south, east):  # it is the analyst's
        with raising(RefusedError, "a request to the server", reason="does not receive"):
            site.fetch(listed, tmp_path / "not", most_bytes=10**6)
    outside = PlacedFile("..", "..", "study.toml", 10)
    with raising(RefusedError, "a request to the server", reason="does not receive"):
        south.fetch(outside, tmp_path / "not", most_bytes=10**6)


@pytest.mark.parametrize(
    "requests",
    [
        [{"do": "put", "offset": 0, "piece": b"x"}],
        [{"do": "offer", "size": 10**15, "digest": "0" * 64}],
        [{"do": "offer", "size": -1, "digest": "0" * 64}],
        [{"do": "offer", "size": 3, "digest": "0" * 64}, {"do": "put", "offset": 1, "piece": b"x"}],
        [{"do": "offer", "size": 3, "digest": "0" * 64}, {"do": "put", "offset": 0, "piece": b"xxxx"}],
        [{"do": "offer", "size": 900, "digest": "0" * 64}, {"do": "put", "offset": 0, "piece": b"x" * 258}],
        [{"do": "offer", "size": 1, "digest": "0" * 64}, {"do": "put", "offset": 0, "piece": b"x"}, {"do": "done"}],
        [{"do": "offer", "size": 1, "digest": SUM_OF_X}, {"do": "put", "offset": 0, "piece": b"x"}, {"do": "done"}],
        [{"do": "done"}],
        [{"do": "get", "offset": 0}],
        [{"do": "get", "path": "analyst/south/map.safetensors.sealed", "offset": -1}],
        [{"do": "anything"}],
    ],
)
def test_nonsense_is_told_no_and_leaves_no_file(requests: list[dict[str, Any]], counter: Counter) -> None:
    south, served = counter.site("south"), counter.served
    given = {"path": sealed("south").path, "ticket": south.ticket}
    answers = [served.answer({**given, **request}) for request in requests]
    assert answers[-1].get("no")
    assert south.list_files() == []
    assert served.answer({**given, **requests[0], "ticket": "another"}).get("no")


@pytest.mark.parametrize(
    "files",
    ["", "{", "{}x", "3", "[[1, 2, 3]]", '[["a/b/c", "1", "x"]]', '[["../b/c", 1, "x"]]', '[["a/b/c"]]', "[" * 9999],
)
def test_a_list_of_files_that_cannot_be_read_is_an_error(files: str) -> None:
    with raising(StorageError, "the server"):
        SitePlace("0" * 64, "x", lambda request: {"files": files}).list_files()


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
    run("site", "--data", "nowhere.csv", "--output", kit, "--vault", here / "vault", code=5)
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
