"""No bit of a signed file can change unnoticed: not in a bundle, an anchor, a map; not in any manifest; not by rewriting."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mooring.errors import MooringError, RefusedError, StorageError
from mooring.mechanisms.rotation.anchors import make_anchor
from mooring.protocol.crypto.keys import SigningKey, verify
from mooring.protocol.messages.signed_file import TensorSpec, read_signed, write_signed
from mooring.protocol.rotation.anchor import open_anchor
from mooring.protocol.rotation.bundle import verify_bundle
from mooring.protocol.rotation.result import MAP_FILE, read_result
from mooring.protocol.storage.vault import Vault
from tests.sites import vaulted_study, write_bundle

from .hostile import World, build_world, canonical, packed, parts

Take = Callable[[Path], object]


@pytest.fixture(scope="module")
def smallest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Take]:
    """The smallest bundle there can be: two columns, three anchor rows, three rows."""
    folder = tmp_path_factory.mktemp("smallest")
    vaults = {f"p{k}": Vault.create(folder / f"vault-{k}") for k in range(2)}
    study = vaulted_study(vaults, Vault.create(folder / "lab"), 2, 3)
    rng = np.random.default_rng(0)
    write_bundle(
        folder / "file",
        study,
        representation=rng.normal(size=(3, 2)),
        anchor_representation=make_anchor(3, 2, rng=rng),
        labels=np.array([0, 1, 1]),
        signer=vaults["p0"].signing_key,
    )
    return folder / "file", lambda path: verify_bundle(path, study)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return build_world(tmp_path_factory.mktemp("world"))


def refuses(take: Take, path: Path) -> bool:
    try:
        take(path)
    except (RefusedError, StorageError):
        return True
    return False


def taken_with_a_bit_changed(take: Take, path: Path, bits: Callable[[int], range | list[int]]) -> list[tuple[int, int]]:
    """Which changes of one bit, out of those asked for, go unnoticed."""
    good = path.read_bytes()
    unnoticed = []
    with path.open("r+b", buffering=0) as file:
        for place, byte in enumerate(good):
            for bit in bits(place):
                file.seek(place)
                file.write(bytes([byte ^ (1 << bit)]))
                if not refuses(take, path):
                    unnoticed.append((place, bit))
            file.seek(place)
            file.write(bytes([byte]))
    assert path.read_bytes() == good
    return unnoticed


def test_every_bit_flip_of_a_small_bundle_is_refused(smallest: tuple[Path, Take]) -> None:
    path, take = smallest
    assert take(path) is not None
    assert path.stat().st_size < 1000
    assert taken_with_a_bit_changed(take, path, lambda _: range(8)) == []
    assert take(path) is not None


def test_every_truncation_of_a_small_bundle_is_refused(smallest: tuple[Path, Take], tmp_path: Path) -> None:
    path, take = smallest
    good, cut = path.read_bytes(), tmp_path / "cut"
    for length in range(len(good)):
        cut.write_bytes(good[:length])
        assert refuses(take, cut), length
    cut.write_bytes(good)
    assert take(cut) is not None


def test_every_byte_that_is_left_out_or_doubled_is_noticed(smallest: tuple[Path, Take], tmp_path: Path) -> None:
    path, take = smallest
    good, other = path.read_bytes(), tmp_path / "other"
    for place in range(len(good)):
        other.write_bytes(good[:place] + good[place + 1 :])
        assert refuses(take, other), place
        other.write_bytes(good[:place] + good[place : place + 1] + good[place:])
        assert refuses(take, other), place


@pytest.mark.parametrize("kind", ["anchor", "map"])
def test_a_bit_flip_in_any_byte_of_an_anchor_or_a_map_is_refused(kind: str, world: World, tmp_path: Path) -> None:
    if kind == "anchor":
        path, content = tmp_path / "file", world.anchor
    else:
        path, content = tmp_path / MAP_FILE, world.signed_map(model="")
    path.write_bytes(content)

    def take(path: Path) -> object:
        if kind == "anchor":
            return open_anchor(world.vaults[1], world.study, path)
        return read_result(path.parent, world.study, world.study.participants[0])

    assert take(path) is not None
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 8, size=len(content))
    assert taken_with_a_bit_changed(take, path, lambda place: [int(bits[place])]) == []
    for length in rng.choice(len(content), size=200, replace=False):
        path.write_bytes(content[:length])
        assert refuses(take, path)


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = words | st.integers(-(2**63), 2**63)
names = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8).filter(
    lambda name: name not in ("kind", "format", "signer", "data")
)
manifests = st.dictionaries(names, values, max_size=5)
KEY = SigningKey.generate()
ARRAY = np.arange(6.0).reshape(3, 2)


def read(path: Path, fields: Any) -> dict[str, str | int]:
    specs = {"array": TensorSpec("F64", (3, 2))}
    return read_signed(path, kind="note", signed_by={KEY.public}, fields=fields, tensors=lambda _: specs).fields


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fields=manifests, changes=manifests, drop=st.booleans(), which=st.integers(0, 10))
def test_what_was_signed_is_read_back_and_what_was_changed_since_is_refused(
    fields: dict[str, Any], changes: dict[str, Any], drop: bool, which: int, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    write_signed(path, kind="note", fields=fields, arrays={"array": ARRAY}, signer=KEY)
    settings = read(path, fields)
    assert {name: settings[name] for name in fields} == fields
    header, data = parts(path.read_bytes())
    manifest = json.loads(header["__metadata__"]["manifest"])
    mutated = {**manifest, **changes}
    if drop:
        mutated.pop(sorted(mutated)[which % len(mutated)])
    assume(mutated != manifest)
    header["__metadata__"]["manifest"] = canonical(mutated)
    path.write_bytes(packed(header, data))
    expected = set(mutated) - {"kind", "format", "signer", "data"}
    with pytest.raises(RefusedError):
        read(path, expected)  # even whoever expects what the mutant says


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(fields=manifests, rewriting=st.data())
def test_no_other_way_to_write_the_same_content_is_accepted(
    fields: dict[str, Any], rewriting: st.DataObject, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    write_signed(path, kind="note", fields=fields, arrays={"array": ARRAY}, signer=KEY)
    good = path.read_bytes()
    header, data = parts(good)
    order = rewriting.draw(st.permutations(list(header)))
    within = rewriting.draw(st.permutations(list(header["__metadata__"])))
    about = rewriting.draw(st.permutations(list(header["array"])))
    rewritten = {name: header[name] for name in order}
    rewritten["__metadata__"] = {name: header["__metadata__"][name] for name in within}
    rewritten["array"] = {name: header["array"][name] for name in about}
    separators = rewriting.draw(st.sampled_from([(",", ":"), (", ", ": "), (",", ": ")]))
    text = json.dumps(rewritten, separators=separators, ensure_ascii=rewriting.draw(st.booleans())).encode()
    text += b" " * (-len(text) % 8 + 8 * rewriting.draw(st.integers(0, 2)))
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    if path.read_bytes() == good:
        assert read(path, fields)
    else:
        with pytest.raises(RefusedError):
            read(path, fields)


@given(fields=manifests, other=st.sampled_from(["bundle", "anchor", "map", "notes", ""]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_signature_for_one_kind_is_none_for_another(fields: dict[str, Any], other: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_signed(path, kind=other, fields=fields, arrays={"array": ARRAY}, signer=KEY)
    header, data = parts(path.read_bytes())
    manifest = json.loads(header["__metadata__"]["manifest"]) | {"kind": "note"}
    with pytest.raises(RefusedError):
        read(path, fields)
    header["__metadata__"]["manifest"] = canonical(manifest)
    path.write_bytes(packed(header, data))
    with pytest.raises(MooringError):
        read(path, fields)


def test_a_key_of_small_order_signs_nothing() -> None:
    """Under such a key one signature fits every message: whoever enrols it can deny all that was signed."""
    for key in ("01" + "00" * 31, "00" * 32, "ec" + "ff" * 30 + "7f", "01" + "00" * 30 + "80", "ee" + "ff" * 30 + "7f"):
        for signature in (bytes(64), b"\1" + bytes(63), bytes.fromhex(key) + bytes(32)):
            assert not any(verify(key, signature, b"%d" % k) for k in range(16))
    assert verify(KEY.public, KEY.sign(b"text"), b"text")
