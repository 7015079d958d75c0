"""Bundles and results through an S3-compatible store, by the commands of docs/object-stores.md; over HTTP, on loopback."""

import calendar
import hashlib
import hmac
import json
import re
import shlex
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from mooring.protocol.analyst.intake import collect
from mooring.protocol.messages.study import Study
from mooring.protocol.transport import object_stores as stores
from tests.loopback import Handler, serving

from .hospitals import NAMES, NOBODY, founded, mooring, quickly
from .object_store import ACCESS, SECRET, amazons_own, asked, settings

pytest.importorskip("moto")
pytest.importorskip("s3fs")

PAGE = (Path(__file__).parents[2] / "docs" / "object-stores.md").read_text(encoding="utf-8")


def credentials(port: int) -> dict[str, str]:
    """The environment of somebody who may use the store at this port."""
    return NOBODY | settings(port)


def at_the_store(port: int, key: str) -> bytes:
    with amazons_own(port) as client:
        return bytes(client.get_object(Bucket="ward", Key=key)["Body"].read())


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hospitals and an analyst who have joined, and to whom study and anchor came."""
    return founded(tmp_path_factory.mktemp("ward"))


def commands_of_the_page() -> Iterator[tuple[str, str]]:
    """Role and line, in the page's order; what is shown for one participant is done by all that the block names."""
    for block in re.findall(r"^```sh\n(# in .*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL):
        first, *lines = block.strip().splitlines()
        roles = re.findall(r"(\w+)/", first)
        for role in roles:
            for line in lines:
                yield role, line if role == roles[0] else re.sub(rf"\b{roles[0]}\b", role, line)


@pytest.fixture(scope="module")
def walked(ward: Path, moto_port: int) -> Path:
    """The page, done: the analyst with credentials, participants without any."""
    for role, line in commands_of_the_page():
        program, *words = shlex.split(line)
        if program == "cp":
            shutil.copy(ward / role / words[0], ward / role / words[1])
            continue
        assert program == "mooring"
        if role == "analyst" or words[0] == "predict":  # results are read with credentials
            quickly(ward / role, *words, environment=credentials(moto_port))
        else:  # in a process of its own, which has none
            mooring(ward / role, *words)
    return ward


def test_the_page_goes_the_whole_way(walked: Path) -> None:
    lines = [line for _, line in commands_of_the_page()]
    assert {line.split()[1] for line in lines if line.startswith("mooring")} == {
        "invite",
        "share",
        "send",
        "align",
        "train",
        "deliver",
        "predict",
    }
    for name in NAMES:
        assert len((walked / name / "predictions.csv").read_text().splitlines()) == 16


def test_a_store_changes_no_byte(walked: Path, moto_port: int, tmp_path: Path) -> None:
    """Bundles, maps, model and predictions are those of the same study through files."""
    inbox, work = tmp_path / "inbox", tmp_path / "analysis"
    inbox.mkdir()
    analyst = walked / "analyst"
    for name in NAMES:
        output = inbox / f"{name}.bundle"
        options = ("--anchor", "ward.anchor", "--labels", "--output", output)
        quickly(walked / name, "share", "patients.csv", *options)
        assert at_the_store(moto_port, f"inbox/{name}.bundle") == output.read_bytes()
    quickly(analyst, "align", "--bundles", inbox, "--folder", work)
    quickly(analyst, "train", "--folder", work)
    quickly(analyst, "deliver", "--folder", work, "--output", tmp_path / "results")
    for name in NAMES:
        for file in ("map.safetensors", "model.safetensors"):
            delivered = (tmp_path / "results" / name / file).read_bytes()
            assert at_the_store(moto_port, f"results/{name}/{file}") == delivered
        result = ("--result", tmp_path / "results" / name, "--output", tmp_path / f"{name}.csv")
        quickly(walked / name, "predict", "new-patients.csv", *result)
        assert (tmp_path / f"{name}.csv").read_bytes() == (walked / name / "predictions.csv").read_bytes()


def test_no_record_and_no_message_holds_an_address(walked: Path, moto_port: int) -> None:
    """Only the file that the analyst wrote for each participant does."""
    holders = [
        path
        for path in walked.rglob("*")
        if path.is_file() and (b"X-Amz-Signature" in (data := path.read_bytes()) or SECRET.encode() in data)
    ]
    assert {path.suffix for path in holders} == {".address"}
    for path in (walked / "analyst" / "invitations").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600


def test_an_invitation_for_other_programs(ward: Path, moto_port: int) -> None:
    words = ("invite", "--bundles", "s3://ward/inbox", "--expires", "12h", "--participant", "south", "--format", "json")
    record = json.loads(mooring(ward / "analyst", *words, environment=credentials(moto_port)).stdout)
    assert record["expires_in_seconds"] == 43_200
    ((name, address),) = [(invitation["name"], invitation["address"]) for invitation in record["invitations"]]
    query = dict(parse_qsl(urlsplit(address).query))
    assert (name, urlsplit(address).path) == ("south", "/ward/inbox/south.bundle")
    assert (query["X-Amz-Algorithm"], query["X-Amz-Expires"]) == ("AWS4-HMAC-SHA256", "43200")
    assert SECRET not in address


def test_addresses_that_do_not_lead_anywhere(ward: Path, moto_port: int, walked: Path) -> None:
    analyst, there = walked / "analyst", credentials(moto_port)
    for words, reason in (
        (("invite", "--bundles", "s3://nobucket/inbox"), "it does not exist (404)"),
        (("align", "--bundles", "s3://nobucket/inbox", "--folder", "other"), "it does not exist (404)"),
        (("align", "--bundles", "s3://ward/empty", "--folder", "other"), "Stores have no empty folders"),
        (("deliver", "--output", "s3://nobucket/results"), "it does not exist (404)"),
    ):
        assert reason in quickly(analyst, *words, environment=there, code=5).stderr
    lost = quickly(
        walked / "south",
        *("predict", "new-patients.csv", "--force", "--result", "s3://ward/results/nobody"),
        environment=there,
        code=5,
    )
    assert "s3://ward/results/nobody/map.safetensors cannot be fetched" in lost.stderr
    without = there | {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": str(ward)}
    output = quickly(analyst, "align", "--bundles", "s3://ward/inbox", "--folder", "o", environment=without, code=5)
    assert "no credentials" in output.stderr


def test_a_store_that_says_403(walked: Path, moto_port: int) -> None:
    """The server checks credentials for as long as this test runs, and knows nobody."""
    analyst, there = walked / "analyst", credentials(moto_port)
    before = (analyst / "analysis" / "intake.json").read_bytes()
    asked(moto_port, "POST", "/moto-api/reset-auth", b"0")
    try:
        for words in (("align", "--bundles", "s3://ward/inbox"), ("deliver", "--output", "s3://ward/results")):
            errors = quickly(analyst, *words, environment=there, code=5).stderr
            assert "the store refuses access" in errors
            assert ACCESS not in errors
        bundle = next(walked.glob("*/south.bundle"))
        errors = quickly(
            bundle.parent, "send", bundle.name, "--to", "s3://ward/inbox/", environment=there, code=5
        ).stderr
        assert "the store refuses access" in errors
    finally:
        asked(moto_port, "POST", "/moto-api/reset-auth", b"inf")
    assert (analyst / "analysis" / "intake.json").read_bytes() == before
    quickly(analyst, "align", "--again", "--bundles", "s3://ward/inbox", environment=there)


def test_a_bundle_that_comes_later_is_seen_by_the_same_process(
    walked: Path, moto_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems cache listings; an analyst's process that looks again must not get the cached one."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    for name, value in credentials(moto_port).items():
        monkeypatch.setenv(name, value)
    study = Study.read(walked / "analyst" / "study.toml")
    for k, name in enumerate(NAMES, start=1):
        with amazons_own(moto_port) as client:
            client.put_object(
                Bucket="ward", Key=f"later/{name}.bundle", Body=(walked / name / f"{name}.bundle").read_bytes()
            )
        intake = collect(study, "s3://ward/later", tmp_path / "work")
        assert [bundle.member.name for bundle in intake.bundles] == list(NAMES[:k])


def test_a_folder_at_a_store_and_nobodys_file_in_it(walked: Path, moto_port: int) -> None:
    """Without a slash, before the first file is there; and what is there is not written over."""
    there = credentials(moto_port)
    for name in NAMES[:2]:
        words = ("send", f"{name}.bundle", "--to", "s3://ward/fresh", "--format", "json")
        record = json.loads(quickly(walked / name, *words, environment=there).stdout)
        assert (record["to"], record["there_before"]) == (f"s3://ward/fresh/{name}.bundle", False)
        again = json.loads(quickly(walked / name, *words, environment=there).stdout)
        assert (again["to"], again["tries"], again["there_before"]) == (record["to"], 0, True)
    to = "s3://ward/fresh/north.bundle"
    errors = quickly(walked / "south", "send", "south.bundle", "--to", to, environment=there, code=2).stderr
    assert "different file with this name" in errors
    for name in NAMES[:2]:
        assert at_the_store(moto_port, f"fresh/{name}.bundle") == (walked / name / f"{name}.bundle").read_bytes()


def test_a_stores_own_address_in_the_open_is_refused(walked: Path) -> None:
    open_to_all = credentials(1) | {"AWS_ENDPOINT_URL": "http://store.invalid:9000"}
    words = ("send", "north.bundle", "--to", "s3://ward/inbox")
    assert "AWS_ENDPOINT_URL" in quickly(walked / "north", *words, environment=open_to_all, code=4).stderr


# a store that checks what a real one would, and does what it is told


@dataclass
class Store:
    """Takes a presigned PUT whose signature holds; lists and hands out what it has, or half of it."""

    port: int = 0
    faults: list[str] = field(default_factory=list)
    """One a request: "503", "drop" (hang up half-way), "half" (hand out half of what was listed)."""
    objects: dict[str, bytes] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)


def holds(method: str, path: str, host: str) -> bool:
    """Whether a presigned request is the one that was signed, and still good: AWS's Signature Version 4."""
    parts = urlsplit(path)
    query = dict(parse_qsl(parts.query))
    given, stamp = query.pop("X-Amz-Signature", ""), query.get("X-Amz-Date", "")
    access, day, region, service, last = query.get("X-Amz-Credential", "////").split("/")
    listed = "&".join(f"{quote(name, safe='')}={quote(query[name], safe='')}" for name in sorted(query))
    request = "\n".join([method, parts.path, listed, f"host:{host}", "", "host", "UNSIGNED-PAYLOAD"])
    hashed = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, f"{day}/{region}/{service}/{last}", hashed])
    key = b"AWS4" + SECRET.encode()
    for word in (day, region, service, last):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    expected = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return access == ACCESS and hmac.compare_digest(given, expected)


def still_good(path: str) -> bool:
    query = dict(parse_qsl(urlsplit(path).query))
    begun = time.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ")
    return time.time() < calendar.timegm(begun) + int(query["X-Amz-Expires"])


def handler_of(store: Store) -> type[Handler]:
    class Signed(Handler):
        def do_PUT(self) -> None:
            self.close_connection = True
            size, fault = int(self.headers["Content-Length"]), store.faults.pop(0) if store.faults else ""
            store.log.append(f"PUT {fault or 'whole'}")
            data = self.rfile.read(size // 2 if fault == "drop" else size)
            if fault == "drop":
                return
            if fault == "503":
                self.answer(503, b"<Error><Code>SlowDown</Code></Error>")
            elif not holds("PUT", self.path, self.headers["Host"]):
                self.answer(403, f"<Error><Code>SignatureDoesNotMatch</Code>{self.path}</Error>".encode())
            elif not still_good(self.path):
                self.answer(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
            else:
                store.objects[urlsplit(self.path).path] = data
                self.answer(200, b"", etag=f'"{hashlib.md5(data).hexdigest()}"')

        def do_HEAD(self) -> None:
            data = store.objects.get(urlsplit(self.path).path, b"")
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.send_header("etag", f'"{hashlib.md5(data).hexdigest()}"')
            self.end_headers()

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query))
            if "list-type" in query:
                self.answer(200, listing(store, query.get("prefix", "")), content_type="application/xml")
                return
            fault = store.faults.pop(0) if store.faults else ""
            store.log.append(f"GET {fault or 'whole'}")
            data = store.objects[parts.path]
            data = data[: len(data) // 2] if fault == "half" else data
            span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if not span:
                self.answer(200, data)
            elif int(span[1]) >= len(data):
                self.answer(416, b"<Error><Code>InvalidRange</Code></Error>")
            else:
                self.answer(206, data[int(span[1]) : int(span[2]) + 1])

    return Signed


def listing(store: Store, prefix: str) -> bytes:
    listed = [
        f"<Contents><Key>{key.split('/', 2)[2]}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        f'<ETag>"{hashlib.md5(data).hexdigest()}"</ETag><Size>{len(data)}</Size></Contents>'
        for key, data in sorted(store.objects.items())
        if key.split("/", 2)[2].startswith(prefix)
    ]
    text = f"<Name>ward</Name><Prefix>{prefix}</Prefix><KeyCount>{len(listed)}</KeyCount>{''.join(listed)}"
    return f'<?xml version="1.0"?><ListBucketResult>{text}<IsTruncated>false</IsTruncated></ListBucketResult>'.encode()


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    with serving(handler_of(store)) as store.port:
        yield store


@pytest.fixture
def addresses(ward: Path, store: Store) -> dict[str, str]:
    words = ("invite", "--bundles", "s3://ward/inbox", "--expires", "1m", "--format", "json")
    record = json.loads(quickly(ward / "analyst", *words, environment=credentials(store.port)).stdout)
    return {invitation["name"]: invitation["address"] for invitation in record["invitations"]}


def test_a_presigned_address_opens_its_own_place_and_no_other(
    ward: Path, store: Store, addresses: dict[str, str], tmp_path: Path
) -> None:
    """The signature is checked as a real store would: method, host, path, query; and no credentials are at hand."""
    share = ("share", "patients.csv", "--anchor", "ward.anchor", "--labels", "--output", tmp_path / "mine.bundle")
    store.faults = ["503", "drop"]
    record = json.loads(mooring(ward / "east", *share, "--to", addresses["east"], "--format", "json").stdout)
    assert record["sent"]["tries"] == 3
    assert record["sent"]["confirmed"] is True
    assert store.log == ["PUT 503", "PUT drop", "PUT whole"]
    assert store.objects == {"/ward/inbox/east.bundle": (tmp_path / "mine.bundle").read_bytes()}
    others = addresses["north"].replace("north.bundle", "south.bundle")
    for address, reason in (
        (others, "refuses it (403, SignatureDoesNotMatch)"),
        (re.sub("Expires=60", "Expires=61", addresses["north"]), "refuses it (403, SignatureDoesNotMatch)"),
    ):
        errors = quickly(tmp_path, "send", "mine.bundle", "--to", address, code=5).stderr
        assert reason in errors
        assert "a new address" in errors
        assert "X-Amz" not in errors
    assert len(store.objects) == 1


def test_a_listing_that_says_more_than_the_file_gives(
    ward: Path, store: Store, addresses: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        share = (
            "share", "patients.csv", "--anchor", "ward.anchor", "--labels", "--output", tmp_path / f"{name}.bundle",
        )  # fmt: skip
        quickly(ward / name, *share, "--to", addresses[name])
    store.log.clear()
    store.faults = ["half"] * 40
    align = ("align", "--study", ward / "analyst" / "study.toml", "--bundles", "s3://ward/inbox", "--format", "json")
    there = credentials(store.port)
    monkeypatch.setattr(stores, "time", SimpleNamespace(sleep=lambda seconds: None))
    quickly(tmp_path, *align, environment=there, code=2)  # nobody is there to align with anybody
    record = json.loads((tmp_path / "analysis" / "intake.json").read_text())
    assert {entry["reason"] for entry in record["set_aside"]} == {stores.IN_PART}
    assert record["missing"] == list(NAMES)
    store.faults = ["half"]  # and now once only: it is fetched again, whole
    aligned = json.loads(quickly(tmp_path, *align, environment=there).stdout)
    assert [accepted["name"] for accepted in aligned["intake"]["accepted"]] == list(NAMES)
    store.log.clear()
    again = json.loads(quickly(tmp_path, *align, environment=there).stdout)
    assert again["intake"] == aligned["intake"]
    assert store.log == []  # what was accepted is here, and is not fetched again
