"""Two participants and an analyst go the whole way with canaries in rows, names, words and keys, for a search afterwards."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from mooring.cli.app import app
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.anchor import Perturbation, open_anchor
from mooring.protocol.storage.vault import Vault
from mooring.tables.encoder import read_encoded
from mooring.tables.schema import Column, Label
from tests.study_settings import make_study

from . import canary_scan as scan

FOLDER, FILE, PASSPHRASE = "kingfisher-folder-Qz7", "kestrel-patients-Xk9", "correct-horse-Vb4-staple"
WORDS = ("zebra-Wm3-ward", "quagga-Jp8-label", "okapi-Tn2-text")
N = 36


@dataclass
class Played:
    """Two participants and an analyst, in folders of their own, with all that was printed, logged or raised."""

    home: Path
    words: dict[str, bytes] = field(default_factory=dict)
    secrets: scan.Search = field(init=False)

    def table(self, k: int = 0) -> Path:
        return self.home / FOLDER / f"{FILE}-{k}.csv"

    def run(self, *arguments: Any, code: int | None = 0, note: str = "") -> str:
        """Run a command as typed; keep what it printed, logged and raised. Without a `code`, it must refuse."""
        logged: list[str] = []
        listener = logging.Handler(0)
        listener.emit = lambda record: logged.append(listener.format(record))  # type: ignore[method-assign]
        root, level = logging.getLogger(), logging.getLogger().level
        root.addHandler(listener)
        root.setLevel(logging.DEBUG)
        try:
            result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        finally:
            root.removeHandler(listener)
            root.setLevel(level)
        raised = "".join(traceback.format_exception(result.exception)) if result.exception else ""
        # typer's own command line is the caller's; what mooring says of it is searched
        self.words[f"{note or ' '.join(map(str, arguments[:1]))} {len(self.words)}"] = "\n".join(
            (result.stdout, result.stderr, *logged, raised)
        ).encode()
        assert result.exception is None or isinstance(result.exception, SystemExit), raised
        assert result.exit_code in ((2, 4, 5) if code is None else (code,)), result.output + raised
        return result.stdout

    def files(self, *folders: str) -> dict[str, bytes]:
        """Every file that travels, by its name as well as its content."""
        words = {}
        for folder in folders:
            for path in sorted((self.home / folder).rglob("*")):
                words[f"{folder}/{path.name}"] = (
                    path.name.encode() + b"\n" + (path.read_bytes() if path.is_file() else b"")
                )
        return words


def write_rows(
    path: Path, rows: np.ndarray, *, wards: list[str] | None = None, labels: list[str] | None = None
) -> None:
    path.parent.mkdir(exist_ok=True)
    wards = wards or [("north", "south")[k % 2] for k in range(len(rows))]
    labels = labels or [("healthy", "ill")[k % 2] for k in range(len(rows))]
    lines = [",".join([*map(repr, map(float, row)), wards[k], labels[k]]) for k, row in enumerate(rows)]
    path.write_text("\n".join(["age,weight,pulse,ward,outcome", *lines]) + "\n")


def rows_of(k: int) -> np.ndarray:
    return np.random.default_rng(100 + k).uniform(-900, 900, size=(N, 3))


def play(home: Path) -> Played:
    """The whole way through, by the commands as typed, in the folder `out`."""
    played = Played(home)
    for k in range(2):
        write_rows(played.table(k), rows_of(k))
    for name, more in (("p0", ["--passphrase"]), ("p1", []), ("lab", ["--role", "analyst"])):
        played.run("join", "--name", name, "--vault", home / f"vault-{name}", *more)
    columns = (*(Column(name, "number", -1000.0, 1000.0) for name in ("age", "weight", "pulse")),)
    columns += (Column("ward", "category", categories=("north", "south")),)
    label = Label("outcome", "classes", ("healthy", "ill"))
    make_study("birds", "5" * 32, columns, label, "aa-i-gdp-both-noise", 5, 20, 0.2, 0.05).write(
        home / "out/study.toml"
    )
    played.run("study", "enrol", *(f"{name}.card.toml" for name in ("p0", "p1", "lab")), "--study", "study.toml")
    played.run("deal", "--vault", home / "vault-p0", "--output", "birds.anchor")
    played.run("check", played.table(1), "--vault", home / "vault-p1", "--anchor", "birds.anchor", code=3)
    for k, form in enumerate(("text", "json")):
        given = ("--vault", home / f"vault-p{k}", "--output", home / f"inbox/p{k}.bundle", "--labels", "--format", form)
        played.run("share", played.table(k), *given)
    played.run("share", played.table(1), "--vault", home / "vault-p1", "--output", "again.bundle", "--labels")
    analyst = ("--folder", home / "analysis", "--vault", home / "vault-lab")
    played.run("align", "--bundles", home / "inbox", *analyst)
    played.run("train", "--folder", home / "analysis", "--learner", "linear")
    played.run("deliver", *analyst, "--output", home / "results")
    predicting = ("--result", home / "results/p1", "--vault", home / "vault-p1", "--output", home / "at-home.csv")
    played.run("predict", played.table(1), *predicting)
    played.secrets = scan.Search(needles_of(played))
    return played


def needles_of(played: Played) -> dict[str, set[bytes]]:
    """Everything that must not be found, in every form."""
    study = Study.read(played.home / "out/study.toml")
    by_name = {f"the word {word}": scan.forms_of_text(word) for word in (FOLDER, FILE, PASSPHRASE, *WORDS)}
    for k, passphrase in ((0, PASSPHRASE), (1, None)):
        vault = Vault.open(played.home / f"vault-p{k}", passphrase=passphrase)
        seeds = {"signing seed": vault.signing_key.seed, "master": vault.master, "ledger key": vault.ledger_key}
        by_name |= {f"{name} of p{k}": scan.forms_of_bytes(secret.reveal()) for name, secret in seeds.items()}
        by_name[f"sealing key of p{k}"] = scan.forms_of_bytes(vault.sealing_key.seeds.reveal())
        anchor = open_anchor(vault, study, played.home / "out/birds.anchor")
        by_name["the anchor"] = scan.forms_of_matrix(anchor.matrix)
        by_name["the digest of the anchor"] = scan.forms_of_bytes(bytes.fromhex(anchor.digest))
        secret = Perturbation(study, anchor, vault).map
        zero = secret.apply(np.zeros((1, 5)))
        by_name[f"the map of p{k}"] = scan.forms_of_matrix(secret.apply(np.eye(5)) - zero)
        by_name[f"the translation of p{k}"] = scan.forms_of_matrix(zero)
        by_name[f"the rows of p{k}"] = scan.forms_of_matrix(rows_of(k))
        by_name[f"the encoded rows of p{k}"] = scan.forms_of_matrix(
            read_encoded(study.schema, played.table(k)).rows[:, :3]
        )
        mapped = secret.apply(read_encoded(study.schema, played.table(k)).rows)
        by_name[f"the rows of p{k} without noise"] = scan.forms_of_matrix(mapped)
    return by_name


def failing_tables() -> dict[str, Callable[[Path], None]]:
    """Tables that are refused, each with something in it that the refusal must not quote."""
    rows = rows_of(7)

    def changed(**changes: Any) -> Callable[[Path], None]:
        return lambda path: write_rows(path, changes.pop("rows", rows), **changes)

    beyond = rows.copy()
    beyond[4, 1] = 54179.3827164
    text = "age,weight,pulse,ward,outcome\n"
    return {
        "a value out of its range": changed(rows=beyond),
        "a word that is no category": changed(wards=[WORDS[0]] * N),
        "a label that is not the study's": changed(labels=[WORDS[1]] * N),
        "words where a number is due": lambda path: path.write_text(f"{text}{WORDS[2]},1,2,north,ill\n"),
        "a line too long": lambda path: path.write_text(f"{text}1,2,3,north,ill,{WORDS[2]}\n"),
        "a line too short": lambda path: path.write_text(f"{text}417.938271,{WORDS[2]}\n"),
        "a quote without end": lambda path: path.write_text(f'{text}1,2,3,"{WORDS[0]},ill\n'),
        "no header": lambda path: path.write_text(f"417.938271,1,2,{WORDS[0]},{WORDS[1]}\n"),
        "bytes that are no text": lambda path: path.write_bytes(text.encode() + b"1,2,3,\xff\xfe" + WORDS[0].encode()),
        "a null byte": lambda path: path.write_bytes(text.encode() + b"1,2,\0" + WORDS[2].encode() + b",north,ill\n"),
        "nothing": lambda path: path.write_bytes(b""),
        "other rows in the same study": changed(),
        "no table": lambda path: None,
    }
