"""A site's guard, without FLARE, admits messages by their origin, expected requests, and apps that match byte by byte."""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mooring.engines.flare.admission import (
    IncomingMessage,
    Request,
    classify_connection,
    is_job,
    refusal_of_app,
    refusal_of_message,
    refusal_of_request,
)
from mooring.engines.flare.configuration import site_config, to_json

JOB, OTHER = "6b1c2f64-52a1-4b0a-9d5e-0f1f0e4d7a11", "6b1c2f64-52a1-4b0a-9d5e-0f1f0e4d7a12"
SITE, SITES_JOB = "north", f"north.{JOB}"
DIGEST = "0123456789abcdef" * 4
CONFIG = "config/config_fed_client.json"
ADMINISTRATOR = IncomingMessage("server", "server", True, "server", SITE, "admin", "train.deploy")
META: dict[str, Any] = {
    "job_id": JOB,
    "name": "mooring-ward",
    "submitter_role": "lead",
    "resource_spec": {},
    "deploy_map": {},
}
START = Request(
    "server", "server", "train.start_job", {"job_id": JOB, "job_meta": META}, {}, was_here=True, let_in=True
)
STREAM = ("sm__STREAM", "sm__DATA")


def zipped(files: Mapping[str, bytes], *more: tuple[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (*files.items(), *more):
            archive.writestr(name, content)
    return target.getvalue()


APP = {CONFIG: to_json(site_config(DIGEST)), "config/config_fed_server.json": b"{}", ".__nvfl_sig.json": b"{}"}


@pytest.mark.parametrize(
    ("me", "peer", "outgoing", "protected", "way"),
    [
        (SITE, "server", True, True, "server"),
        (SITE, "server", True, False, ""),
        (SITE, "server", False, True, ""),  # somebody on the site's machine who poses as the server
        (SITE, "south", True, True, ""),
        (SITE, SITES_JOB, False, True, "job"),
        (SITE, "north.x", False, True, ""),
        (SITE, f"south.{JOB}", False, True, ""),
        (SITE, f"{SITES_JOB}.x", False, True, ""),
        (SITE, SITES_JOB, False, False, ""),
        (SITES_JOB, SITE, True, True, "parent"),
        (SITES_JOB, SITE, True, False, ""),
        (SITES_JOB, "server", True, True, "server"),
        (SITES_JOB, "south", True, True, ""),
        (SITES_JOB, f"{SITES_JOB}.x", False, True, ""),
    ],
)
def test_a_way_follows_from_the_connection(me: str, peer: str, outgoing: bool, protected: bool, way: str) -> None:
    assert classify_connection(me, peer, outgoing=outgoing, protected=protected) == way


def to_job(way: Any, origin: str, channel: str, topic: str) -> IncomingMessage:
    return IncomingMessage(way, "server" if way == "server" else SITE, True, origin, SITES_JOB, channel, topic)


@pytest.mark.parametrize(
    ("message", "me"),
    [
        (ADMINISTRATOR, SITE),
        (replace(ADMINISTRATOR, channel="cellnet.channel", topic="bye"), SITE),
        (replace(ADMINISTRATOR, channel=STREAM[0], topic=STREAM[1], streamed=("return_only", "x")), SITE),
        (replace(ADMINISTRATOR, is_request=False, channel="task", topic="heart_beat"), SITE),
        (IncomingMessage("job", SITES_JOB, True, SITES_JOB, SITE, "admin", "train.notify_job_status"), SITE),
        (IncomingMessage("job", SITES_JOB, True, SITES_JOB, f"server.{JOB}", "aux_communication", "mooring"), SITE),
        (to_job("server", f"server.{JOB}", "aux_communication", "__end_run__"), SITES_JOB),
        (to_job("parent", SITE, "client_command", "abort"), SITES_JOB),
    ],
)
def test_what_a_job_needs_comes_in(message: IncomingMessage, me: str) -> None:
    assert refusal_of_message(message, me) == ""


@pytest.mark.parametrize(
    ("message", "me"),
    [
        (replace(ADMINISTRATOR, way="", peer="north.x"), SITE),
        (replace(ADMINISTRATOR, way="", is_request=False), SITE),
        (replace(ADMINISTRATOR, origin="south"), SITE),  # another site's, which the server passed on
        (replace(ADMINISTRATOR, origin=f"server.{JOB}"), SITE),
        (replace(ADMINISTRATOR, channel="_net_manager", topic="echo"), SITE),
        (replace(ADMINISTRATOR, channel="_net_manager", topic="config_vars"), SITE),
        (replace(ADMINISTRATOR, channel="cellnet.channel", topic="bulk"), SITE),
        (replace(ADMINISTRATOR, channel="aux_communication", topic="fed.event"), SITE),
        (replace(ADMINISTRATOR, channel=STREAM[0], topic=STREAM[1], streamed=("aux_communication", "fed.event")), SITE),
        (replace(ADMINISTRATOR, channel="server_command", topic="get_task"), SITE),
        (replace(ADMINISTRATOR, destination="south"), SITE),
        (IncomingMessage("job", SITES_JOB, True, SITES_JOB, SITE, "admin", "sys.shell"), SITE),
        (IncomingMessage("job", SITES_JOB, True, "server", SITE, "admin", "train.notify_job_status"), SITE),
        (IncomingMessage("job", SITES_JOB, True, SITES_JOB, "south", "aux_communication", "mooring"), SITE),
        (to_job("server", f"server.{OTHER}", "aux_communication", "__end_run__"), SITES_JOB),
        (to_job("server", f"server.{JOB}", "client_command", "configure_job_log"), SITES_JOB),
        (to_job("server", f"server.{JOB}", "admin", "train.deploy"), SITES_JOB),
        (to_job("parent", SITE, "client_command", "configure_job_log"), SITES_JOB),
        (to_job("parent", "server", "client_command", "abort"), SITES_JOB),
    ],
)
def test_everything_else_is_refused(message: IncomingMessage, me: str) -> None:
    assert refusal_of_message(message, me) != ""


def request_refused(way: Any, peer: str, topic: str, headers: Mapping[str, Any], body: object) -> str:
    return refusal_of_request(Request(way, peer, topic, headers, body))


def asked(topic: str, body: object = None, **headers: Any) -> str:
    return request_refused("server", "server", topic, {"job_id": JOB, **headers}, body)


def test_the_requests_of_a_job_are_answered() -> None:
    assert asked("scheduler.check_resource", {}) == ""
    assert asked("scheduler.cancel_resource", {}) == ""
    assert asked("train.deploy", zipped(APP), job_meta=META, app_name="app") == ""
    assert refusal_of_request(START) == ""
    assert asked("train.abort", "") == ""
    assert asked("train.check_status", "") == ""
    assert request_refused("job", SITES_JOB, "train.notify_job_status", {"job_id": JOB}, "") == ""


@pytest.mark.parametrize(
    "topic",
    [
        *("sys.shell", "sys.info", "sys.report_env", "sys.configure_site_log", "resource_manager.report_resources"),
        *("train.delete_run", "train.shutdown", "train.restart", "train.configure_job_log", "train.get_scopes"),
        *("info.show_errors", "info.show_stats", "comp_caller.call", "train.notify_job_status", "train.deploy ", ""),
    ],
)
def test_no_other_request_is_answered_whatever_it_carries(topic: str) -> None:
    headers = {"job_id": JOB, "require_authz": "true", "user_role": "super", "admin_command": "check_status"}
    assert request_refused("server", "server", topic, headers, "cat /etc/passwd")


def test_a_request_needs_the_server_and_a_job_tells_of_itself_only() -> None:
    for way in ("", "parent", None):
        assert request_refused(way, "server", "train.check_status", {}, "") != ""
    assert request_refused("job", SITES_JOB, "train.notify_job_status", {"job_id": OTHER}, "") != ""
    assert request_refused("job", SITES_JOB, "train.abort", {"job_id": JOB}, "") != ""


@pytest.mark.parametrize("job", ["..", "../../x", "local", "", None, 3, JOB.upper(), JOB + "\n", f"{JOB} --set x=y"])
@pytest.mark.parametrize("topic", ["train.deploy", "train.start_job", "train.abort", "scheduler.check_resource"])
def test_a_jobs_name_is_a_plain_uuid(job: object, topic: str) -> None:
    assert not is_job(job)
    assert "UUID" in request_refused("server", "server", topic, {"job_id": job, "job_meta": META}, None)


@pytest.mark.parametrize(
    "change",
    [
        {"job_id": OTHER},
        {"launcher_spec": {"default": {"docker": {"image": "x"}}}},
        {"resource_spec": {"north": {"num_of_gpus": 1}}},
        {"scope": "x"},
        {"stats_pool_config": {"x": "y"}},
        {"custom_props": {"x": "y"}},
        {"byoc": True},
        {"python_path": "/x"},
        {"submitter_role": "super"},
        {"submitter_role": None},
    ],
)
def test_what_is_said_of_a_job_can_bring_nothing_in(change: dict[str, Any]) -> None:
    meta = {**META, **change}
    assert asked("train.deploy", zipped(APP), job_meta=meta, app_name="app") != ""
    for header in (meta, None):
        assert refusal_of_request(replace(START, headers={"job_id": JOB, "job_meta": header})) != ""


def changed(**changes: Any) -> bytes:
    return to_json({**site_config(DIGEST), **changes})


@pytest.mark.parametrize(
    ("app", "word"),
    [
        (zipped({**APP, "custom/spy.py": b""}), "custom/spy.py"),
        (zipped({**APP, "config/log_config.json": b"{}"}), "log_config"),
        (zipped({**APP, "config/config_fed_client.conf": b""}), "config_fed_client.conf"),
        (zipped({**APP, "../../local/resources.json": b""}), "resources.json"),
        (zipped({**APP, "/etc/x": b""}), "/etc/x"),
        (zipped({**APP, "nvflare/__init__.py": b""}), "nvflare"),
        (zipped({name: content for name, content in APP.items() if name != CONFIG}), "exactly the files"),
        (zipped({**APP, CONFIG: b"{}"}), "configuration differs"),
        (zipped({**APP, CONFIG: changed(components=[{"id": "x", "path": "x.Y"}])}), "configuration differs"),
        (zipped({**APP, CONFIG: changed(task_check_timeout=1)}), "configuration differs"),
        (zipped({**APP, CONFIG: to_json(site_config(DIGEST)).replace(b"Mooring", b"Other")}), "configuration differs"),
        (zipped({**APP, CONFIG: to_json(site_config("x" * 64))}), "configuration differs"),
        (zipped({**APP, CONFIG: json.dumps(site_config(DIGEST)).encode()}), "configuration differs"),
        (zipped({**APP, ".__nvfl_sig.json": bytes(2**20 + 1)}), "too large"),
        (zipped(APP)[:-30], "cannot be read"),
        (b"x", "cannot be read"),
        (bytes(2**20 + 1), "too large"),
        (None, "not a zip file"),
    ],
)
def test_an_app_is_mooring_s_to_the_byte(app: object, word: str) -> None:
    assert word in refusal_of_app(app)
    assert asked("train.deploy", app, job_meta=META, app_name="app") == refusal_of_app(app)


def test_a_job_that_was_here_keeps_its_folder_and_log() -> None:
    headers = {"job_id": JOB, "job_meta": META, "app_name": "app"}
    request = Request("server", "server", "train.deploy", headers, zipped(APP))
    assert refusal_of_request(request) == ""
    assert refusal_of_request(replace(request, was_here=True))


def test_a_job_from_before_the_guard_is_not_started() -> None:
    assert refusal_of_request(replace(START, let_in=False))


def test_an_app_may_end_as_flares_own_command_writes_it() -> None:
    assert refusal_of_app(zipped({**APP, CONFIG: APP[CONFIG] + b"\n"})) == ""
    assert refusal_of_app(zipped({**APP, CONFIG: APP[CONFIG] + b"\n{}"})) != ""


def test_an_app_has_no_file_twice_and_a_plain_name() -> None:
    with pytest.warns(UserWarning, match="Duplicate"):  # the words of zipfile
        twice = zipped({**APP, CONFIG: b"{}"}, (CONFIG, APP[CONFIG]))
    assert refusal_of_app(twice) != ""
    for name in ("../x", "", None, "a b"):
        assert "name" in asked("train.deploy", zipped(APP), job_meta=META, app_name=name)
