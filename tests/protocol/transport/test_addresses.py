"""Addresses: what is shown of them, and which can be used."""

import shlex
from pathlib import Path

import pytest

from mooring.errors import InputError, StorageError
from mooring.protocol.transport.addresses import (
    is_this_machine,
    is_url,
    local_path,
    make_printable,
    read_address,
    read_scheme,
    redact_address,
    redact_command,
    redact_word,
)
from mooring.protocol.transport.transfer import send_file
from tests.raising import raising


def test_what_is_shown_of_an_address_has_no_secret() -> None:
    address = "https://user:pass@store.example/b/k.bundle?X-Amz-Credential=AKIA&X-Amz-Signature=abc#here"
    assert redact_address(address) == "https://store.example/b/k.bundle"
    assert redact_command(f"mooring share t.csv --to '{address}' --labels") == (
        "mooring share t.csv --to 'https://store.example/b/k.bundle?…' --labels"
    )
    assert redact_command("mooring share t.csv --to s3://ward/inbox/") == "mooring share t.csv --to s3://ward/inbox/"
    assert redact_address("folder/what?.bundle") == "folder/what?.bundle"
    assert redact_address("sftp://bob@host/in") == "sftp://host/in"


ODD = {
    "sftp://bob:p@5ec2e7@host/in/x.bundle": ("sftp://host/in/x.bundle", "sftp://host/in/x.bundle"),
    "sftp://bob:it's5ec2e7@host/x": ("sftp://host/x", "sftp://host/x"),
    "ftp://bob:pa?5ec2e7@host": ("ftp://…", "ftp://…"),
    "ftp://bob:5ec2e7?ss@host": ("ftp://…", "ftp://…"),
    "https://h/x?a=5'5ec2e7&z=1 5ec2e7": ("https://h/x", "https://h/x?…"),
    "s3://KEY:se/5ec2e7@ward/in/": ("s3://…", "s3://…"),
    "s3://KEY:5ec2e7/cret@ward/in/": ("s3://…", "s3://…"),
    "https://h/x?for=a@b.example&sig=5ec2e7": ("https://…", "https://…"),
    "https://h/x#5ec2e7": ("https://h/x", "https://h/x?…"),
    "bob:5ec2e7@host://x": ("…", "…"),
    "simplecache::s3://KEY:5ec2e7@ward/in": ("simplecache::s3://ward/in", "simplecache::s3://ward/in"),
}


@pytest.mark.parametrize("address", ODD)
def test_odd_passwords_are_not_shown_either(address: str) -> None:
    """Neither in messages nor in records, in which other words stand around them."""
    message, record = ODD[address]
    assert redact_address(address) == message
    assert redact_word(f"--to={address}").removeprefix("--to=") == record
    words = ["mooring", "share", "it's.csv", "--to", address, "--labels"]
    redacted = redact_command(shlex.join(words))
    assert shlex.split(redacted) == [*words[:4], record, "--labels"]
    assert redact_command(redacted) == redacted
    if " " not in address:  # else nobody can say where it ends
        assert "5ec2e7" not in redact_command(f"mooring share --to '{address}")
        assert "5ec2e7" not in redact_command(f"mooring share --to {address}")
    assert "5ec2e7" not in read_scheme(address)


def test_an_address_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.address").write_text(" https://store.example/x?y=1\n")
    assert read_address(f"@{tmp_path / 'a.address'}") == "https://store.example/x?y=1"
    with raising(StorageError, "the file of the address", cure="after the @"):
        read_address(f"@{tmp_path / 'none'}")
    for content in (b"", b"https://a\nhttps://b", b"\xff\xfe", b"x" * 20_000):
        (tmp_path / "a.address").write_bytes(content)
        with raising(InputError, "address", expected="one line"):
            read_address(f"@{tmp_path / 'a.address'}")


def test_files_and_urls_are_told_apart() -> None:
    assert is_url("s3://b/k")
    assert not is_url("file:///tmp/a%20b")
    assert local_path("file:///tmp/a%20b") == Path("/tmp/a b")
    assert local_path("a%20b") == Path("a%20b")


@pytest.mark.parametrize(
    "address",
    ["https://", "https://host:99999/x", "https://user:pw@host/x", "https://höst/x", "https://host/a b", "https:///x"],
)
def test_an_address_that_cannot_be_one(address: str, bundle: Path) -> None:
    with raising(InputError, "address", expected="presigned address") as caught:
        send_file(bundle, address)
    assert "pw" not in str(caught.value)


def test_texts_are_shown_and_addresses_read_up_to_their_longest(tmp_path: Path) -> None:
    assert make_printable("x" * 80) == "x" * 80
    assert make_printable("x" * 81) == "x" * 79 + "…"
    assert make_printable("a\x1bb") == "a?b"
    assert make_printable("abc", longest=2) == "a…"
    assert redact_address("x" * 300) == "x" * 300
    assert redact_address("x" * 301) == "x" * 299 + "…"
    assert read_address("x" * 16_384) == "x" * 16_384
    with raising(InputError, "address"):
        read_address("x" * 16_385)
    for n, fine in ((16_384, True), (16_385, False)):
        (tmp_path / "a.address").write_text("x" * n)
        if fine:
            assert read_address(f"@{tmp_path / 'a.address'}") == "x" * n
        else:
            with raising(InputError, "address", got="too long"):
                read_address(f"@{tmp_path / 'a.address'}")


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost", True),
        ("::1", True),
        ("127.0.0.1", True),
        ("127.255.1.9", True),
        ("128.0.0.1", False),
        ("a127.0.0.1", False),
        ("127.0.1", False),
    ],
)
def test_what_is_this_machine(host: str, here: bool) -> None:
    assert is_this_machine(host) == here
