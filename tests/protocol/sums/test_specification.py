"""docs/specification.md: its test vectors, and a second implementation that was written from it alone."""

import base64
import hashlib
import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.errors import RefusedError
from mooring.mechanisms.sums.prime_field import decode_signed
from mooring.mechanisms.sums.secret_sharing import recombine
from mooring.protocol.crypto.keys import SealingKey, Secret, SigningKey
from mooring.protocol.messages.study import Study
from mooring.protocol.sums.analyst.total import open_total
from mooring.protocol.sums.answers import read_closing_list, read_combined_share
from mooring.protocol.sums.bundle import open_box, read_box, verify_sum_bundle, write_extract
from mooring.protocol.sums.scheme import sum_scheme
from tests.protocol.sums import second_implementation as second
from tests.protocol.sums.make_vectors import N_PARTICIPANTS, VECTORS, make_vectors
from tests.protocol.sums.support import SumStudy, make_sum_study, with_helpers

KEPT = json.loads(VECTORS.read_text(encoding="utf-8"))


def decoded(name: str) -> list[bytes]:
    """Files of the small study in the vectors."""
    return [base64.b64decode(text) for text in KEPT["files"][name]]


def test_the_vectors_are_those_that_mooring_makes() -> None:
    made = json.loads(json.dumps(make_vectors()))
    assert {name: KEPT[name] for name in made} == made
    assert KEPT.keys() - made.keys() == {"kem", "files"}


def test_the_second_implementation_meets_the_vectors() -> None:
    for vector in KEPT["expansion"]:
        elements = second.expand(bytes.fromhex(vector["seed"]), vector["count"])
        assert (elements[0], elements[-1]) == (vector["first"], vector["last"])
        words = b"".join(element.to_bytes(8, "little") for element in elements)
        assert hashlib.sha256(words).hexdigest() == vector["sha256"]
    shared = KEPT["sharing"]
    for j, seed in enumerate(shared["seeds"], start=1):
        assert second.expand(bytes.fromhex(seed), len(shared["secret"])) == shared["shares"][j - 1]
    for points in combinations(range(1, shared["k"] + 1), shared["t"]):
        for entry, secret in enumerate(shared["secret"]):
            assert second.value_at({j: shared["shares"][j - 1][entry] for j in points}, 0) == secret
    kem = {name: bytes.fromhex(KEPT["kem"][name]) for name in ("private", "info", "content")}
    assert second.open_hpke(base64.b64decode(KEPT["kem"]["box"]), kem["private"], kem["info"]) == kem["content"]
    for rule in KEPT["thresholds"]:
        numbers = [
            rule[name] for name in ("n_participants", "n_combining", "n_helpers", "n_colluders", "n_colluding_helpers")
        ]
        thresholds = second.Thresholds(*numbers)
        thresholds.check()
        assert (thresholds.a, thresholds.quorum, thresholds.overlap(thresholds.quorum)) == (
            rule["a"],
            rule["quorum"],
            rule["overlap"],
        )
        assert (thresholds.least_t, thresholds.t) == (rule["least_t"], rule["t"])


@pytest.mark.parametrize("vector", KEPT["studies"], ids=lambda vector: json.loads(vector["canonical"])["name"])
def test_a_study_has_the_digest_length_and_noise_of_the_vectors(vector: dict[str, Any]) -> None:
    study = second.Study.read(vector["text"])
    assert study.canonical == vector["canonical"]
    assert (study.digest, study.fingerprint) == (vector["digest"], vector["fingerprint"])
    study.values["participants"] = [{"name": f"p{number}"} for number in range(N_PARTICIPANTS)]
    assert study.n_numbers == vector["n_numbers"]
    np.testing.assert_allclose(np.array(study.variances, float), np.array(vector["variances"], float), rtol=1e-5)
    assert all(variance <= kept for variance, kept in zip(study.variances, vector["variances"], strict=True))


def test_both_implementations_open_the_same_total_of_the_recorded_files(tmp_path: Path) -> None:
    """Boxes are random, so that these bytes cannot be made again: they must be read for as long as the format is 1."""
    text, private = KEPT["files"]["study"], [bytes.fromhex(key) for key in KEPT["files"]["private"]]
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    study, other = Study.read(tmp_path / "study.toml"), second.Study.read(text)
    assert study.digest == other.digest == KEPT["files"]["digest"]
    paths = {}
    for name in ("bundles", "closing_list", "shares"):
        paths[name] = [tmp_path / f"{number}.{name}" for number in range(len(KEPT["files"][name]))]
        for path, data in zip(paths[name], decoded(name), strict=True):
            path.write_bytes(data)
    closing = decoded("closing_list")[0]
    keys = [SealingKey(Secret(seeds)) for seeds in private]
    for point, key in enumerate(keys, start=1):
        for path, data in zip(paths["bundles"], decoded("bundles"), strict=True):
            with path.open("rb") as file:
                elements = open_box(read_box(file, study, point), study, key)
            assert second.Bundle.read(data, other).open(point, private[point - 1]) == elements.tolist()
        share = read_combined_share(paths["shares"][point - 1], study)
        assert second.combine(other, decoded("bundles"), closing, point, private[point - 1]) == share.elements.tolist()
    entries, digest = second.read_list(closing, other)
    kept = read_closing_list(paths["closing_list"][0], study)
    assert ({key: entry.hex() for key, entry in entries.items()}, digest) == (kept.digests, kept.digest)
    for chosen in combinations(decoded("shares"), other.thresholds.t):
        assert second.open_total(other, closing, chosen) == KEPT["files"]["total"]


@pytest.mark.parametrize(
    "settings",
    [
        {"p": 4},
        {"p": 3, "kind": "number", "n_hats": 5, "product_share": 0.3},
        {"p": 3, "questions": ("model", "tables")},
        {"p": 3, "person": "who", "rows_per_person": "mean", "epsilon": 4.0},
    ],
    ids=["four", "number", "questions", "persons"],
)
def test_the_second_implementation_opens_what_share_and_combine_wrote(settings: dict[str, Any], tmp_path: Path) -> None:
    given = make_sum_study(tmp_path, **settings)
    check_same_total(given, [given.vaults[i] for i in range(len(given.vaults))])


def test_the_second_implementation_opens_what_helpers_combined(tmp_path: Path) -> None:
    given, helpers = with_helpers(make_sum_study(tmp_path, 4), 3, n_colluding_helpers=1)
    check_same_total(given, helpers)


def check_same_total(given: SumStudy, combiners: list[Any]) -> None:
    """Share, close and combine; compare combiners' elements, the shares and the total of both implementations."""
    given.study.write(given.folder / "study.toml")
    study, scheme = (
        second.Study.read((given.folder / "study.toml").read_text(encoding="utf-8")),
        sum_scheme(given.study),
    )
    assert (study.digest, study.n_numbers) == (given.study.digest, scheme.layout.size)
    assert (study.thresholds.t, study.thresholds.quorum) == (scheme.threshold.threshold, scheme.quorum)
    assert len(study.variances) == (1 if study.is_general or study.is_by_class else 2)
    for i in range(len(given.vaults)):
        given.share(i)
    given.close()
    closing = (given.work / "closing.list").read_bytes()
    bundles = [path.read_bytes() for path in sorted(given.inbox.glob("*.bundle"))]
    for j, (name, vault) in enumerate(zip(scheme.combiners, combiners, strict=True), start=1):
        key = vault.combining_key(given.study.member(name).combining_key)
        extracts = []
        for number, path in enumerate(sorted(given.inbox.glob("*.bundle"))):
            write_extract(verify_sum_bundle(path, given.study), given.study, j, part := given.folder / f"{number}.part")
            extracts.append(part.read_bytes())
        elements = second.combine(study, bundles, closing, j, key.seeds.reveal())
        assert second.combine(study, extracts, closing, j, key.seeds.reveal()) == elements
        share = read_combined_share(given.combine(j - 1, vault=vault, name=name), given.study)
        assert share.elements.tolist() == elements
    shares = [path.read_bytes() for path in sorted(given.inbox.glob("*.share"))]
    total = second.open_total(study, closing, shares)
    read = [read_combined_share(path, given.study) for path in sorted(given.inbox.glob("*.share"))]
    assert (
        decode_signed(recombine({share.combiner: share.elements for share in read}, scheme.threshold)).tolist() == total
    )
    content = open_total(given.study, given.work, given.inbox).content
    expected = scheme.unpack(np.array(total), len(given.vaults))
    for name in ("products", "outcomes", "matrix"):
        if hasattr(expected, name):
            np.testing.assert_array_equal(getattr(content, name), getattr(expected, name))


def _sign(data: bytes, kind: str, signer: SigningKey, **changed: Any) -> bytes:
    """A signed file with other entries in its manifest, signed again."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    manifest = second.canonical(json.loads(header["__metadata__"]["manifest"]) | changed)
    header["__metadata__"] = {
        "manifest": manifest,
        "signature": signer.sign(f"mooring {kind} signature\n{manifest}".encode()).hex(),
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


LAB = SigningKey(Secret(bytes([5]) * 32))


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("signature", lambda data: data.replace(b'\\"count\\":4', b'\\"count\\":3')),
        ("keys of the manifest", lambda data: _sign(data, "closing list", LAB, note="")),
        ("kind and format", lambda data: _sign(data, "closing list", LAB, format=2)),
        ("study of the list", lambda data: _sign(data, "closing list", LAB, study="0" * 64)),
        ("signature", lambda data: _sign(data, "share", LAB)),
        ("form of the header", lambda data: _sign(data, "closing list", LAB, count=3)),
        ("digest of the arrays", lambda data: data[:-1] + bytes([data[-1] ^ 1])),
        ("length of the file", lambda data: data + b"\0"),
    ],
)
def test_what_the_specification_refuses_both_refuse(
    what: str, change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    text = KEPT["files"]["study"]
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    changed = change(decoded("closing_list")[0])
    (tmp_path / "closing.list").write_bytes(changed)
    with pytest.raises(ValueError, match=what):
        second.read_list(changed, second.Study.read(text))
    with pytest.raises(RefusedError):
        read_closing_list(tmp_path / "closing.list", Study.read(tmp_path / "study.toml"))
