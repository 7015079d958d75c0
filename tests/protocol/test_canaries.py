"""Nothing secret leaves: no key, row value, file name or passphrase in bundles, anchors, cards, words, logs or tracebacks.

The vault and the page of `mooring check` stay at home, and are not searched. What the study declares is public.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from mooring.cli.app import app
from mooring.protocol.messages.card import read_card
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.anchor import Perturbation
from mooring.protocol.rotation.participant import upload as sharing
from mooring.protocol.storage.vault import Vault

from . import canary_scan as scan
from .canary_story import FILE, FOLDER, PASSPHRASE, WORDS, N, Played, failing_tables, play, rows_of
from .hostile import manifest_of, parts


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    home = tmp_path_factory.mktemp("home")
    for folder in ("out", "inbox", "results"):
        (home / folder).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "4000")
        patch.setenv("MOORING_PASSPHRASE", PASSPHRASE)
        patch.chdir(home / "out")
        yield play(home)


FAILING = tuple(failing_tables())


@pytest.fixture(scope="module")
def bad_values() -> scan.Search:
    """What tables that are refused hold."""
    numbers = scan.forms_of_number(54179.3827164) | scan.forms_of_number(417.938271)
    return scan.Search({"the bad value": numbers, "rows": scan.forms_of_matrix(rows_of(7))})


@pytest.mark.parametrize(("name", "form"), [(name, ("text", "json")[k % 2]) for k, name in enumerate(FAILING)])
def test_refusals_quote_nothing(name: str, form: str, played: Played, bad_values: scan.Search) -> None:
    table = played.home / FOLDER / f"{FILE}-{FAILING.index(name)}-bad.csv"
    failing_tables()[name](table)
    out = played.home / "out/refused.bundle"
    given = (table, "--vault", played.home / "vault-p1", "--format", form)
    before = set(played.words)
    played.run("share", *given, "--output", out, "--labels", code=None, note=name)
    played.run("check", *given, code=None, note=name) if name != "other rows in the same study" else None
    by_name = {key: value for key, value in played.words.items() if key not in before}
    assert all(
        b"mooring:" in value or b"does not fit" in value or b'"fits": false' in value for value in by_name.values()
    ), by_name
    assert played.secrets.leaks(by_name) == bad_values.leaks(by_name) == []
    assert not out.exists()


def test_a_damaged_parquet_file_is_refused_without_a_word_of_it(played: Played) -> None:
    table = played.home / FOLDER / f"{FILE}.parquet"
    table.write_bytes(b"PAR1" + WORDS[0].encode() * 20 + b"PAR1")
    played.run("share", table, "--vault", played.home / "vault-p1", "--labels", code=None, note="damaged")
    assert played.secrets.leaks(played.words) == []


def test_disk_and_study_trouble_quotes_no_name(played: Played) -> None:
    vault = ("--vault", played.home / "vault-p1", "--labels")
    played.run("share", played.table(1), *vault, "--output", played.home / FOLDER / "missing/x.bundle", code=5)
    played.run("share", played.table(1), *vault, "--output", played.home / FOLDER, code=5)
    played.run("share", played.home / FOLDER / f"{FILE}-not-there.csv", *vault, code=None)
    played.run("share", played.home / FOLDER, *vault, code=None, note="a folder for a table")
    other = replace(Study.read(played.home / "out/study.toml"), nonce="6" * 32)
    other.write(played.home / "out/other.toml")
    played.run("share", played.table(1), *vault, "--study", "other.toml", "--anchor", "birds.anchor", code=4)
    assert played.secrets.leaks(played.words) == []


def test_a_study_is_drafted_from_names_of_columns_alone(played: Played) -> None:
    draft = (
        *("--label", "outcome", "--classes", "healthy,ill"),
        *("--category", "ward=north,south", "--output", "draft.toml"),
    )
    played.run("study", "init", played.table(0), *draft, note="study init")
    assert (played.home / "out/draft.toml").exists()
    assert played.secrets.leaks(played.files("out") | played.words) == []


def test_a_wrong_passphrase_is_not_repeated(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORING_PASSPHRASE", wrong := "wrong-battery-Lg5-horse")
    played.run("deal", "--vault", played.home / "vault-p0", "--output", "again.anchor", code=4)
    assert scan.Search({"wrong": scan.forms_of_text(wrong)}).leaks(played.words) == []
    assert played.secrets.leaks(played.words) == []


def test_nothing_that_travels_or_is_printed_holds_a_secret(played: Played) -> None:
    """Cards, study, anchor, bundles, all of the analyst's folder, the results, and every word of every command."""
    travelling = played.files("out", "inbox", "analysis", "results", "vault-lab")
    assert sum(name.endswith(".bundle") for name in travelling) >= 3
    assert {"out/birds.anchor", "out/p0.card.toml"} <= set(travelling)
    assert sum(name.startswith("analysis/part-") for name in travelling) == 2
    assert "results/model.safetensors" in travelling
    assert played.secrets.leaks(travelling) == []
    assert played.secrets.leaks(played.words) == []


@pytest.mark.parametrize("quoting", [False, True])
def test_an_unforeseen_error_shows_neither_variables_nor_values(
    quoting: bool, played: Played, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Even where a library's message quotes a value, as many do, the terminal must not."""
    value = float(rows_of(1)[0, 0])

    def broken(self: Perturbation, n_rows: int, rows_digest: str) -> None:
        secret, row = self.vault.master.reveal(), rows_of(1)  # what a traceback with variables would show
        raise ValueError(
            f"could not convert {value!r} to float" if quoting else f"planted {len(secret) * len(row) > 0}"
        )

    monkeypatch.setattr(sharing.Perturbation, "order", broken)
    identity = json.loads((played.home / "vault-p1/identity.json").read_bytes())
    copy = played.home / f"copy-{quoting}"
    copy.mkdir()
    (copy / "identity.json").write_text(json.dumps(identity))
    hook = sys.excepthook
    try:
        with pytest.raises(BaseException) as caught:  # noqa: PT011 - as it leaves the process
            app(["share", str(played.table(1)), "--vault", str(copy), "--labels", "--anchor", "birds.anchor"])
        if not isinstance(caught.value, SystemExit):
            sys.excepthook(caught.type, caught.value, caught.tb)
        else:
            assert caught.value.code not in (0, None)
    finally:
        sys.excepthook = hook
    text = "".join(capfd.readouterr())
    assert "ValueError" in text  # else nobody can report it
    assert played.secrets.leaks({"the terminal": text.encode()}) == []


def test_a_bundle_says_what_is_allowed_and_nothing_else(played: Played) -> None:
    """No time, host, user or file name; of two participants' bundles of one shape only what must differ does."""
    raw = [(played.home / f"inbox/p{k}.bundle").read_bytes() for k in range(2)]
    (header, data), (other_header, other_data) = map(parts, raw)
    assert list(header) == ["__metadata__", "anchor_representation", "representation", "labels"]
    assert list(header["__metadata__"]) == ["manifest", "signature"]
    first, second = map(manifest_of, raw)
    assert set(first) == {"anchor", "data", "format", "kind", "nonce", "rows", "signer", "study"}
    assert {name for name in first if first[name] != second[name]} == {"signer", "data"}
    assert {name for name in header if header[name] != other_header[name]} == {"__metadata__"}
    assert len(raw[0]) == len(raw[1])
    assert len(data) == len(other_data) == 4 * (20 * 5 + N * 5 + N)
    study = Study.read(played.home / "out/study.toml")
    members = {read_card(played.home / f"out/p{k}.card.toml")[1].signing_key for k in range(2)}
    assert {first["signer"], second["signer"]} == members
    assert (first["kind"], first["format"], first["rows"]) == ("bundle", 1, N)
    assert (first["study"], first["nonce"]) == (study.digest, study.nonce)


def test_rows_do_not_lie_in_the_order_of_the_file(played: Played) -> None:
    labels = np.frombuffer((played.home / "inbox/p1.bundle").read_bytes()[-4 * N :], dtype="<f4")
    assert sorted(labels) == sorted([0.0, 1.0] * (N // 2))
    assert labels.tolist() != [0.0, 1.0] * (N // 2)


def planted(played: Played) -> dict[str, bytes]:
    """Texts and files in which something secret was left, each in another form."""
    vault = Vault.open(played.home / "vault-p1")
    row = rows_of(1)[5]
    value, seed = float(row[1]), vault.signing_key.seed.reveal()
    single = row[:2].astype("<f4").tobytes()
    return {
        "raw": b"abc" + seed + b"def",
        "hexadecimal": seed.hex().encode(),
        "capital hexadecimal": seed.hex().upper().encode(),
        "decimal": f"must be below 900, got {value}.".encode(),
        "rounded": f"about {value:.6g}".encode(),
        "fixed": f"about {value:.6f}".encode(),
        "double": np.array([1.0, value]).tobytes(),
        "double, other end first": np.array([value], dtype=">f8").tobytes(),
        "single": b"\1\2\3" + single,
        "single, other end first": row[:2].astype(">f4").tobytes(),
        "double in hexadecimal": np.array([value]).tobytes().hex().encode(),
        "single in hexadecimal": single.hex().encode(),
        "a file's name": f"cannot open {FILE}-0.csv".encode(),
        "a name broken by a line": FILE[:9].encode() + b"\n" + FILE[9:].encode(),
        "a passphrase": json.dumps({"passphrase": PASSPHRASE}).encode(),
        "an identity": vault.sealing_key.seeds.reveal(),
        **{f"base64 after {k} bytes": base64.b64encode(b"x" * k + seed + b"y" * k) for k in range(4)},
        **{f"double in base64 after {k}": base64.b64encode(b"x" * k + np.array([value]).tobytes()) for k in range(3)},
        **{f"single in base64 after {k}": base64.urlsafe_b64encode(b"x" * k + single) for k in range(3)},
    }


def test_the_search_finds_what_is_planted_in_every_form(played: Played) -> None:
    """Else all of the above would say nothing."""
    content = planted(played)
    firsts = {leak.split(" in ", 1)[1] for leak in played.secrets.leaks(content)}
    assert set(content) <= firsts
    assert (
        played.secrets.leaks({"harmless": b"72 rows were shared, 0.5 noise, sha256 " + b"0123456789abcdef" * 8}) == []
    )
