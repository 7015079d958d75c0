"""Fuzz targets of the engines: what FLARE's and Dask's halves of mooring read of another party's, without either library.

A server reads what sites say and send, a site what a server says and sends; a Dask worker reads bundles, a store's listings,
and parts of the collaboration matrix.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any
from unittest.mock import patch

import numpy as np

from mooring.engines.dask.block_tasks import Piece, blocks_of
from mooring.engines.dask.intake import BundleLocation, centred_stack, check_group, in_groups, kept_places, list_bundles
from mooring.engines.flare.admission import (
    DEPLOY,
    IncomingMessage,
    Request,
    classify_connection,
    poses_as_server,
    refusal_of_app,
    refusal_of_message,
    refusal_of_meta,
    refusal_of_request,
)
from mooring.engines.flare.chunks import Message, plain_values
from mooring.engines.flare.client_workflow import ClientWorkflow
from mooring.engines.flare.configuration import site_config, to_json
from mooring.engines.flare.place import ServedPlace
from mooring.engines.flare.server_workflow import ServerWorkflow, answer_of
from mooring.engines.flare.settings import ServerSettings, SiteSettings
from mooring.errors import MooringError
from mooring.protocol.driver.routes import check_routed, list_routes
from mooring.protocol.messages.model import MODEL_FILE
from mooring.protocol.messages.study_text import render_study
from mooring.protocol.rotation.analyst.alignment_state import AlignmentState
from mooring.protocol.rotation.analyst.collaboration_matrix import (
    PartFacts,
    make_schema,
    make_table,
    open_table_writer,
    read_facts,
)
from mooring.protocol.rotation.result import MAP_FILE
from mooring.protocol.transport.inbox import download_bundles
from tests.fuzz.target import Target, make_place, sign_again, write_file
from tests.protocol.hostile import H, World

JOB = "6b1c2f64-52a1-4b0a-9d5e-0f1f0e4d7a11"
_MOST_LINES, _MOST_BYTES = 20, 2**20


def flare_targets(world: World) -> list[Target]:
    """What a server reads of its sites, and a site of its server."""
    return [*_server_targets(world), *_site_targets(world)]


def _server_targets(world: World) -> list[Target]:
    place = make_place(world, "flare")
    study = write_file(place / "study.toml", render_study(world.study.as_dict()).encode())
    ServerSettings(study, world.analyst.folder, folder=place / "server").write(place)
    server = ServerWorkflow.opened(place, world.study.digest, lambda words: None)
    dealer, names = world.vaults[0].signing_key, [member.name for member in world.study.participants]
    routes = {route.name: route for route in list_routes(world.study) if route.sender == names[0]}
    anchor, bundle = (routes[name] for name in (f"{world.study.name}.anchor", f"{names[0]}.bundle"))

    def exchange_files(data: bytes) -> object:
        """A site's requests, one a line of JSON; a piece is text."""
        served = ServedPlace(server.settings.folder / "place", world.study)
        ticket = served.issue_ticket(names[0])
        for request in read_lines(data):
            served.answer(plain_values({"path": anchor.at_place.path} | with_bytes(request) | {"ticket": ticket}))
        served.close()
        return None

    def take_files(data: bytes) -> object:
        """A file that a site sends, as an anchor and as a sealed bundle, which the server checks before it stays."""
        sent, refusals = place / "sent", []
        for kind, route in (("anchor", anchor), ("envelope", bundle)):
            write_file(sent, sign_again(data, kind, dealer))
            try:
                check_routed(sent, route, world.study)
            except MooringError as problem:
                refusals.append(problem)
        if len(refusals) == 2:
            raise refusals[0]
        return None

    def take_answers(data: bytes) -> object:
        server.answers = dict(zip(names, map(answer_of, read_lines(data)), strict=False))
        return server.record("done")

    digest = hashlib.sha256(b"abc").hexdigest()
    asked: list[dict[str, Any]] = [
        {"do": "list"},
        {"do": "offer", "size": 3, "digest": digest},
        {"do": "put", "offset": 0, "piece": "abc"},
        {"do": "done"},
        {"do": "get", "offset": 0},
    ]
    answered = {"outcome": "done", "model": "\ud800"}
    return [
        Target("flare requests", exchange_files, (as_lines(*asked),)),
        Target("flare files", take_files, (world.anchor, world.bundle)),
        Target("flare answers", take_answers, (as_lines(answered),)),
    ]


def _site_targets(world: World) -> list[Target]:
    place = make_place(world, "flare-site")
    study, vault = write_file(place / "study.toml", render_study(world.study.as_dict()).encode()), world.vaults[0]
    name, digest = world.study.participants[0].name, world.study.digest
    settings = SiteSettings(study, vault.folder, world.folder / "rows.csv", labels=True, folder=place / "site")
    site = ClientWorkflow.opened(settings, name, digest, {"study": digest}, lambda request: {})
    settings.result.mkdir(exist_ok=True)

    def keep_result(data: bytes) -> object:
        """A result that came, before it is kept."""
        write_file(settings.result / MODEL_FILE, world.model)
        write_file(settings.result / MAP_FILE, sign_again(data, "map", world.analyst.signing_key))
        return site.answer()

    def obey_server(data: bytes) -> object:
        """A task, a list of files, and their pieces, one a line of JSON; a piece is text."""
        task, *answers = [*read_lines(data), {}]
        left = iter(answers)

        def answer(_: Message) -> Message:
            return plain_values(with_bytes(next(left, {})))

        given = ClientWorkflow.opened(settings, name, digest, plain_values({"study": digest} | task), answer).place
        for file in given.list_files():
            given.fetch(file, place / "fetched", most_bytes=_MOST_BYTES)
        return None

    def admit_app(data: bytes) -> object:
        return refusal_of_app(data)

    listed = json.dumps([(f"lab/{name}/map.safetensors.sealed", 8, "8 1 2")])
    tasks = [{"ticket": "x"}, {"files": listed, "over": 0, "absent": "p1"}, {"piece": "abcd"}, {"piece": "efgh"}]
    return [
        Target("flare result", keep_result, (world.map,)),
        Target("flare task", obey_server, (as_lines(*tasks),)),
        Target("flare app", admit_app, (_make_app(world.study.digest), b"PK\x03\x04")),
        Target("flare messages", _admit_messages, _message_seeds(world)),
    ]


def _admit_messages(data: bytes) -> object:
    """What the guard of a site's processes reads, one message a line of JSON: connections, messages, requests, jobs."""
    names = [field.name for field in fields(IncomingMessage)]
    for line in read_lines(data):
        texts = {key: str(line.get(key, "")) for key in names if key not in ("is_request", "streamed")}
        way = classify_connection(texts["destination"], texts["peer"], outgoing=bool(line.get("out")), protected=True)
        streamed = (str(line.get("stream")), str(line.get("part")))
        message = IncomingMessage(**texts | {"way": way}, is_request=bool(line.get("is_request")), streamed=streamed)  # type: ignore[arg-type]
        refusal_of_message(message, texts["destination"])
        poses_as_server(message.origin, message.peer)
        headers, body = line.get("headers"), line.get("body")
        if isinstance(headers, dict):
            sent = (
                body.encode("latin-1", errors="replace") if isinstance(body, str) else body
            )  # as the seeds are written
            request = Request(way, message.peer, line.get("topic"), headers, sent)
            admitted = not refusal_of_request(replace(request, let_in=bool(line.get("let_in"))))
            assert not (admitted and not way), "a request over an unknown connection was let in"
        refusal_of_meta(line.get("meta"), JOB)
    return None


def _message_seeds(world: World) -> tuple[bytes, ...]:
    meta = {"job_id": JOB, "name": "mooring", "min_clients": 2, "submitter_role": "lead", "deploy_map": {}}
    common = {"peer": "server", "origin": "server", "destination": "north", "out": 1, "is_request": 1, "meta": meta}
    headers = {"job_id": JOB, "job_meta": meta, "app_name": "app"}
    app = _make_app(world.study.digest).decode("latin-1")
    return (
        as_lines(
            {**common, "channel": "admin", "topic": DEPLOY, "headers": headers, "body": app},
            {**common, "channel": "admin", "topic": "train.start_job", "headers": headers, "let_in": 1},
            {**common, "channel": "sm__STREAM", "topic": "sm__DATA", "stream": "return_only", "part": ""},
            {**common, "peer": f"north.{JOB}", "out": 0, "topic": "train.notify_job_status", "headers": headers},
        ),
    )


def dask_targets(world: World, space: AlignmentState) -> list[Target]:
    """What a worker reads: bundles, a store's listing of them, and parts of the matrix that other workers wrote.

    Parameters
    ----------
    world : World
    space : AlignmentState
        The study's alignment.
    """
    study, place = world.study, make_place(world, "dask")
    member, part = study.participants[0].name, place / "part.parquet"

    def check(data: bytes) -> object:
        path = write_file(place / "p0.bundle", sign_again(data, "bundle", world.vaults[0].signing_key))
        (group,) = in_groups([BundleLocation(str(place), str(path), path.name, len(data))], study)
        return centred_stack(check_group(study, group, _MOST_BYTES))

    def read_listing(data: bytes) -> object:
        listed = read_lines(data)
        store = FakeStore(listed, world.bundle)
        with (
            patch("mooring.protocol.transport.inbox.open_file_system", lambda _: (store, "/inbox")),
            patch("mooring.engines.dask.intake.open_file_system", lambda _: (store, "/inbox")),
        ):
            places = list_bundles("memory://inbox")
            kept_places(places, place, {})
            in_groups(places, study)
            return list(download_bundles("memory://inbox", place / "received", {}, most_bytes=2**16, progress=None))

    def read_part(data: bytes) -> object:
        write_file(part, data)
        return read_facts(part, member), list(blocks_of(study, Piece(part, 0, 0)))

    part_mark = PartFacts(0, 4, "0" * 64, space.map_digest(0)).mark(make_schema(study, space))
    with part.open("wb") as file, open_table_writer(file, part_mark) as writer:
        writer.write_table(make_table(part_mark, study, member, np.zeros((4, H), dtype=np.float32), np.arange(4) % 2))
    listed = [{"name": "/inbox/p0.bundle", "size": 3, "type": "file", "ETag": "1"}, {"name": "/inbox/d.bundle/"}]
    return [
        Target("dask bundle", check, (world.bundle,)),
        Target("dask listing", read_listing, (as_lines(*listed),)),
        Target("dask part", read_part, (part.read_bytes(),)),
    ]


class FakeStore:
    """An object store that lists the given objects, and returns the same bytes for every object."""

    def __init__(self, listed: list[dict[str, Any]], content: bytes) -> None:
        self._listed, self._content = listed, content

    def invalidate_cache(self) -> None:
        """Nothing is cached."""

    def ls(self, root: str, detail: bool) -> list[dict[str, Any]]:
        """Everything, wherever."""
        return self._listed

    def open(self, path: str, mode: str = "rb", **_: Any) -> io.BytesIO:
        """An object."""
        return io.BytesIO(self._content)


def read_lines(data: bytes) -> list[dict[str, Any]]:
    """The objects among the first lines of JSON."""

    def listed() -> Iterator[dict[str, Any]]:
        for line in data.splitlines()[:_MOST_LINES]:
            with suppress(ValueError, RecursionError):
                if isinstance(record := json.loads(line), dict):
                    yield record

    return list(listed())


def as_lines(*entry: dict[str, Any]) -> bytes:
    """Objects as lines of JSON."""
    return "\n".join(map(json.dumps, entry)).encode()


def with_bytes(entry: dict[str, Any]) -> dict[str, Any]:
    """The same message; a piece that is text is bytes, as FLARE hands them over."""
    piece = entry.get("piece")
    return entry | ({"piece": piece.encode("latin-1", "replace")} if isinstance(piece, str) else {})


def _make_app(digest: str) -> bytes:
    """An app as 'mooring flare job' writes it, with the same bytes at every time."""
    with zipfile.ZipFile(content := io.BytesIO(), "w") as archive:
        entry = zipfile.ZipInfo("config/config_fed_client.json")
        archive.writestr(entry, to_json(site_config(digest)))
    return content.getvalue()
