"""Files are data: nothing in mooring can run code that came in one, and a file that would is refused unread."""

from __future__ import annotations

import ast
import io
import pickle
import re
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import mooring
from mooring.errors import MooringError
from mooring.protocol.analyst.intake import collect
from mooring.protocol.messages.card import read_card
from mooring.protocol.messages.model import read_model
from mooring.protocol.messages.result import read_delivered_model
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.analyst.alignment_state import STATE_FILE, read_space
from mooring.protocol.rotation.anchor import open_anchor
from mooring.protocol.rotation.bundle import verify_bundle
from mooring.protocol.rotation.result import read_result
from mooring.protocol.storage.vault import Vault
from mooring.tables.encoder import read_encoded
from tests.sites import specifier_of

from .hostile import Canary, World, build_world

PACKAGE = Path(mooring.__file__).parent
RUNS_CODE = {"pickle", "_pickle", "cPickle", "joblib", "dill", "cloudpickle", "marshal", "shelve", "pandas", "yaml"}
CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
LOADS = {("torch", "load"), ("torch", "jit"), ("skops", "load"), ("runpy", "run_path"), ("importlib", "import_module")}
WORDS = {*RUNS_CODE, *CALLS, *(module for module, _ in LOADS), "allow_pickle"}
PAYLOAD_FILE = "somebody-loaded-me"


def offences(tree: ast.AST) -> Iterator[str]:
    """What could run code out of a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"imports {name.name}" for name in node.names if name.name.split(".")[0] in RUNS_CODE)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in RUNS_CODE:
            yield f"imports from {node.module}"
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in CALLS:
                yield f"calls {called.id}"
            if isinstance(called, ast.Attribute) and (ast.unparse(called.value), called.attr) in LOADS:
                yield f"calls {ast.unparse(called)}"
            for keyword in node.keywords:
                if keyword.arg == "allow_pickle" and not (
                    isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                ):
                    yield "allows pickles"
        if isinstance(node, ast.Constant) and node.value in RUNS_CODE - {"pandas", "yaml"}:
            yield f"names {node.value}"


def offences_in(text: str) -> list[str]:
    """The same of a module, which is parsed if it holds any of the words: Python reads names as NFKC normalises them."""
    any_word = re.search(rf"\b({'|'.join(WORDS)})\b", unicodedata.normalize("NFKC", text))
    return list(offences(ast.parse(text))) if any_word else []


def test_no_module_can_run_what_a_file_says() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    assert len(texts) > 200
    assert [f"{path}: {offence}" for path, text in texts.items() for offence in offences_in(text)] == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    from joblib import load",
        "torch.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "eval(text)",
        "exec(text)",
        "__import__('pickle')",
        "importlib.import_module(name)",
        "ｅval(text)",
    ],
)
def test_the_search_would_notice(source: str) -> None:
    assert offences_in(source)


def test_the_protocol_itself_loads_no_pickle_module_of_ours() -> None:
    """Libraries import pickle for their own workers; mooring's modules do not hold a reference to any such module."""
    code = (
        "import sys, pkgutil, importlib, mooring.protocol as p\n"
        "for m in pkgutil.iter_modules(p.__path__): importlib.import_module('mooring.protocol.' + m.name)\n"
        "bad = {'pickle', '_pickle', 'joblib', 'dill', 'cloudpickle', 'marshal', 'shelve'}\n"
        "held = [(n, k) for n, m in list(sys.modules.items()) if n.startswith('mooring') for k, v in vars(m).items()\n"
        "        if getattr(v, '__name__', '') in bad or getattr(v, '__module__', '') in bad]\n"
        "assert not held, held"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return build_world(tmp_path_factory.mktemp("world"))


def payloads(place: Path) -> dict[str, bytes]:
    """Pickles that make a file when they are loaded, bare and within arrays."""
    canary = Canary(str(place / PAYLOAD_FILE))
    table, archive = io.BytesIO(), io.BytesIO()
    np.save(table, np.array([canary], dtype=object), allow_pickle=True)
    np.savez(archive, matrix=np.array([canary], dtype=object))
    return {
        **{f"pickle of protocol {k}": pickle.dumps(canary, protocol=k) for k in range(pickle.HIGHEST_PROTOCOL + 1)},
        "array of objects": table.getvalue(),
        "archive of arrays": archive.getvalue(),
    }


def readers(world: World, path: Path) -> dict[str, Callable[[], object]]:
    """Everything that reads a file which somebody else may have written."""
    folder = path.parent
    return {
        "bundle": lambda: verify_bundle(path, world.study),
        "anchor": lambda: open_anchor(world.vaults[1], world.study, path),
        "map": lambda: read_result(folder, world.study, world.study.participants[0]),
        "model": lambda: read_delivered_model(folder, world.study, specifier_of(world.study)),
        "trained model": lambda: read_model(path, specifier_of(world.study)),
        "card": lambda: read_card(path),
        "study": lambda: Study.read(path),
        "table": lambda: read_encoded(world.study.schema, folder / "table.csv"),
        "parquet table": lambda: read_encoded(world.study.schema, folder / "table.parquet"),
        "compressed table": lambda: read_encoded(world.study.schema, folder / "table.csv.gz"),
        "vault": lambda: Vault.open(folder),
        "alignment": lambda: read_space(folder, world.study),
    }


NAMES = (
    "map.safetensors",
    "model.safetensors",
    "table.csv",
    "table.parquet",
    "table.csv.gz",
    "identity.json",
    STATE_FILE,
)


@pytest.mark.parametrize(
    "form", [f"pickle of protocol {k}" for k in range(6)] + ["array of objects", "archive of arrays"]
)
def test_a_pickle_is_refused_wherever_a_file_is_read_and_never_loaded(form: str, world: World, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(payloads(tmp_path)[form])
    for name in NAMES:
        shutil.copy(path, tmp_path / name)
    for kind, read in readers(world, path).items():
        with pytest.raises(MooringError) as caught:
            read()
        assert PAYLOAD_FILE not in str(caught.value), kind
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    shutil.copy(path, inbox / "p0.bundle")
    assert collect(world.study, inbox, tmp_path / "work").bundles == ()
    assert not (tmp_path / PAYLOAD_FILE).exists()


def test_the_pickle_would_have_run(tmp_path: Path) -> None:
    pickle.loads(payloads(tmp_path)["pickle of protocol 2"])
    assert (tmp_path / PAYLOAD_FILE).exists()
