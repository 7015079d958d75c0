"""Secrets: drawn by the operating system, never the same twice, and silent however one asks."""

import contextlib
import copy
import dataclasses
import io
import json
import logging
import os
import pickle
import pprint
import traceback
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.errors import MooringError
from mooring.protocol.crypto.derivation import SecretMap, Stream
from mooring.protocol.crypto.keys import SealingKey, Secret, SigningKey, seal_box
from mooring.protocol.participant.role import Participant
from mooring.protocol.rotation.anchor import Perturbation, open_anchor
from mooring.protocol.storage.fingerprints import Fingerprinter
from mooring.protocol.storage.vault import Vault

HOLDERS = ["Secret", "SigningKey", "SealingKey", "SecretMap", "Anchor", "Vault"]
HOLDERS += ["Perturbation", "Participant", "Stream", "Fingerprinter", "ShareResult"]


@pytest.fixture
def holders(small_study) -> dict[str, Any]:
    vault, study = small_study.vaults[1], small_study.study
    anchor = open_anchor(vault, study, small_study.anchor)
    perturbation = Perturbation(study, anchor, vault)
    return {
        "Secret": vault.master,
        "SigningKey": vault.signing_key,
        "SealingKey": vault.sealing_key,
        "SecretMap": perturbation.map,
        "Anchor": anchor,
        "Vault": vault,
        "Perturbation": perturbation,
        "Participant": Participant(study, vault),
        "Stream": Stream(vault.master),
        "Fingerprinter": Fingerprinter(vault.ledger_key, ["c0"]),
        "ShareResult": small_study.share(output=small_study.folder / "out.bundle"),
    }


@pytest.fixture
def gives_away(holders) -> Callable[[str | bytes], bool]:
    """Whether a text holds a secret of this study: raw, as Python writes bytes, hexadecimal, base64 or decimal."""
    vault, anchor = holders["Vault"], holders["Anchor"]
    raw = [
        secret.reveal() for secret in (vault.master, vault.ledger_key, vault.signing_key.seed, vault.sealing_key.seeds)
    ]
    canaries = [
        form
        for secret in raw
        for form in (secret, secret.hex().encode(), b64encode(secret)[:-2], repr(secret)[2:-1].encode())
    ]
    canaries += [anchor.digest.encode()]
    images = holders["SecretMap"].apply(np.vstack([np.eye(4), np.zeros(4)]))
    O = images[:4] - images[4]
    for number in (*anchor.matrix.ravel(), *O.ravel(), *images[4]):
        canaries += [np.float64(number).tobytes(), f"{abs(number):.7g}"[:8].encode(), f"{abs(number):.5f}".encode()]
    canaries = [canary for canary in canaries if len(canary) >= 7]

    def check(text: str | bytes) -> bool:
        return any(canary in (text.encode() if isinstance(text, str) else text) for canary in canaries)

    return check


def test_the_check_finds_secrets_that_are_told(holders, gives_away):
    """So that the silence below means something."""
    vault = holders["Vault"]
    assert gives_away(json.dumps(vault._contents()))
    assert gives_away(repr(vault.master.reveal()))
    assert gives_away(vault.master.reveal())
    assert gives_away(str(holders["Anchor"].matrix.tolist()))
    assert gives_away((vault.folder / "identity.json").read_bytes())


@pytest.mark.parametrize("name", HOLDERS)
def test_printing_logging_and_formatting_tell_nothing(holders, gives_away, name):
    holder, log = holders[name], io.StringIO()
    handler = logging.StreamHandler(log)
    logger = logging.Logger("test")
    logger.addHandler(handler)
    logger.warning("%s %r %s", holder, holder, [holder])
    texts = [
        repr(holder),
        str(holder),
        f"{holder}",
        f"{holder!r}",
        "%s" % holder,  # noqa: UP031
        pprint.pformat([holder]),
        ascii(holder),
        log.getvalue(),
    ]
    texts.append(repr({"holder": (holder,)}))
    assert not [text for text in texts if gives_away(text)]


@pytest.mark.parametrize("name", [name for name in HOLDERS if name != "ShareResult"])
def test_nothing_that_holds_a_secret_is_pickled_copied_or_written_as_json(holders, gives_away, name):
    holder = holders[name]
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError):
            pickle.dumps(holder, protocol)
    with pytest.raises(TypeError):
        copy.deepcopy(holder)
    with pytest.raises(TypeError):
        json.dumps(holder)
    assert not gives_away(json.dumps({"holder": holder}, default=str))
    if dataclasses.is_dataclass(holder) and name not in ("Anchor",):
        with pytest.raises(TypeError):
            dataclasses.asdict(holder)  # type: ignore[call-overload]


def test_a_secret_is_no_bytes_and_no_key_of_a_dictionary():
    secret = Secret(bytes(32))
    for use in (bytes, hash, len, list, memoryview):
        with pytest.raises(TypeError):
            use(secret)  # type: ignore[operator]
    assert (secret == Secret(bytes(32)), secret == Secret(bytes([1] * 32)), secret == bytes(32)) == (True, False, False)
    assert not hasattr(secret, "__dict__")


def test_tracebacks_of_refusals_tell_nothing(small_study, holders, gives_away):
    """As a terminal or a log prints them: every error that a participant's own files can cause."""
    vault, study, out = small_study.vaults[1], small_study.study, small_study.folder / "second.bundle"
    bad = small_study.folder / "bad.anchor"
    bad.write_bytes(small_study.anchor.read_bytes()[:-1])
    actions: list[Callable[[], object]] = [
        lambda: open_anchor(vault, study, bad),
        lambda: small_study.share(data=small_study.table(2), output=out),
        lambda: small_study.another(nonce="f" * 32).share(output=out),
        lambda: small_study.share(output=small_study.folder / "nowhere" / "out.bundle"),
        lambda: vault.sealing_key.open(b"nothing", info=b""),
        lambda: Vault.create(vault.folder),
        lambda: (vault.folder / "identity.json").write_bytes(json.dumps(vault._contents()).encode()[:-9]),
        lambda: Vault.open(vault.folder),
    ]
    caught: list[MooringError] = []
    for action in actions:
        try:
            action()
        except MooringError as error:
            caught.append(error)
    assert len(caught) == len(actions) - 1
    for error in caught:
        text = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
        assert not gives_away(text)
        assert error.__cause__ is None


def test_ten_thousand_vaults_share_no_secret(monkeypatch):
    """Not one of 40,000 values comes twice; with 32 bits of entropy some would (n²/2³³ = 0.19), with 24 many."""
    monkeypatch.setattr("mooring.protocol.storage.vault.write_atomically", lambda *_, **__: None)
    monkeypatch.setattr("mooring.protocol.storage.vault.make_folder", lambda *_, **__: None)
    monkeypatch.setattr(Vault, "lock", lambda self: contextlib.nullcontext())
    items: set[bytes] = set()
    for _ in range(10_000):
        vault = Vault.create(Path("nowhere-at-all"))
        items |= {vault.master.reveal(), vault.ledger_key.reveal(), vault.signing_key.seed.reveal()}
        items.add(vault.sealing_key.seeds.reveal())
    assert len(items) == 40_000
    lengths = {len(value) for value in items}
    assert lengths == {32, 96}  # a sealing key has seeds of both of its algorithms


def test_forks_draw_different_secrets_and_seal_differently(folder, start):
    """A generator that lives in the process's memory would give every child the same."""
    to = SealingKey.generate()
    seal_box(b"something", to.public, info=b"")  # whatever the library keeps is there before the fork
    Secret.draw()

    def draw() -> None:
        drawn = [Secret.draw(), SigningKey.generate().seed, SealingKey.generate().seeds]
        lines = [draw.reveal().hex() for draw in drawn] + [seal_box(b"something", to.public, info=b"").hex()]
        (folder / f"{os.getpid()}.drawn").write_text("\n".join(lines))

    pids = [start(draw) for _ in range(12)]
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * 12
    digests = [line for path in folder.glob("*.drawn") for line in path.read_text().split()]
    assert (len(digests), len(set(digests))) == (48, 48)
    assert {
        to.open(bytes.fromhex(line), info=b"")
        for path in folder.glob("*.drawn")
        for line in path.read_text().split()[3:]
    } == {b"something"}


def test_secrets_do_not_follow_from_seeds():
    """Seeding Python's and NumPy's generators changes nothing: neither is asked."""
    import random

    items = set()
    for _ in range(2):
        random.seed(7)
        np.random.seed(7)  # noqa: NPY002
        items |= {
            Secret.draw().reveal(),
            SigningKey.generate().seed.reveal(),
            SealingKey.generate().seeds.reveal(),
        }
    assert len(items) == 6


def test_a_map_can_only_be_applied(holders):
    secret_map: SecretMap = holders["SecretMap"]
    assert [name for name in dir(secret_map) if not name.startswith("_")] == ["apply", "derive"]
    assert not hasattr(secret_map, "__dict__")
