"""Writes vectors.json, the test vectors of docs/specification.md: python -m tests.protocol.sums.make_vectors."""

import base64
import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from mooring.mechanisms.sums.guarantee import SumNoise
from mooring.mechanisms.sums.prime_field import LARGEST, PRIME, add, draw_elements, encode_signed
from mooring.mechanisms.sums.secret_sharing import Parties, Threshold, least_threshold, split
from mooring.mechanisms.sums.settings import SumSettings, make_features, make_layout, make_scheme
from mooring.protocol.crypto.keys import Secret, seal_box
from mooring.protocol.messages.card import Member, proof_text
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import RangeSource
from mooring.protocol.sums.answers import write_closing_list, write_combined_share
from mooring.protocol.sums.bundle import open_box, read_box, verify_sum_bundle, words_of, write_sum_bundle
from mooring.protocol.sums.scheme import sum_scheme
from mooring.tables.schema import Column, Label
from tests.keys import fixed_key, sealing_key_of

VECTORS = Path(__file__).with_name("vectors.json")
N_PARTICIPANTS = 5
"""Participants with whom variances of noise are stated."""
_CLASSES = Label("ill", "classes", ("no", "yes", "unknown"))
_COLUMNS = (
    Column("age", "integer", 0, 110, missing="indicate", outside="clip"),
    Column("grade", "integer", 1, 4),
    Column("weight", "number", 0, 300.5, missing="fill", missing_words=("-9",)),
    Column("größe 🩺", "category", categories=("F", "M", "other"), missing="indicate"),
)
_SURVIVAL = {
    "survival_time": "days",
    "survival_event": "ended",
    "survival_occurred": "died",
    "survival_edges": (0, 30, 90, 365.25),
}


def make_vectors() -> dict[str, Any]:
    """The vectors that follow from seeds."""
    return {
        "expansion": [_expand(bytes([number]) * 32, count) for number, count in ((0, 1), (1, 20), (2, 1000))],
        "sharing": _share(),
        "studies": [_describe(study) for study in list_drafts()],
        "thresholds": [
            _rule(Parties(*numbers))
            for numbers in (
                *((2, 2, 1), (3, 3, 1), (4, 4, 1), (4, 3, 2), (10, 10, 1), (50, 15, 1), (50, 15, 5), (20, 3, 2)),
                *((3, 0, 1, 2, 1), (1000, 0, 1, 2, 1), (1000, 0, 1, 4, 1), (6, 2, 1, 3, 1)),
            )
        ],
    }


def make_sealed_vectors() -> dict[str, Any]:
    """The vectors with boxes, whose bytes differ each time."""
    key, info = sealing_key_of(fixed_key(9)), b"what this box is for"
    box = seal_box(b"content", key.public, info=info)
    kem = {"private": key.seeds.reveal().hex(), "public": key.public, "info": info.hex(), "content": b"content".hex()}
    return {"kem": kem | {"box": base64.b64encode(box).decode()}, "files": _make_files()}


def list_drafts() -> list[Study]:
    """Studies without a roster: of one model and of several questions, with each kind of column and optional entry."""
    given: dict[str, Any] = {"nonce": "0" * 32}
    days = (Column("days", "number", 0, 4000), Column("ended", "category", categories=("died", "alive")))
    dates = (Column("seen", "date", 0, 364, day="2020-01-01"), Column("born", "age", 0, 100, day="2026-01-01"))
    number = Label("cost", "number", low=-1.0, high=0.5)
    pixels = tuple(Column(f"x{k}", "number", 0, 1) for k in range(16))
    in_rows = RangeSource(("age",), "A: they are printed on the form")
    persons = {"person": "id", "rows_per_person": "mean"}
    return [
        Study("one-model", columns=_COLUMNS, label=_CLASSES, mechanism=SumSettings(log_scaled=("weight",)), **given),
        Study("a-number", columns=(*_COLUMNS[:3], *dates), label=number, mechanism=_settings(epsilon=8.0), **given),
        Study("no-noise", columns=_COLUMNS, label=_CLASSES, mechanism=_settings(epsilon=None, n_hats=0), **given),
        Study(
            "persons", columns=_COLUMNS, label=_CLASSES, mechanism=SumSettings(person="id", rows_per_person=3), **given
        ),
        Study("waves", columns=_COLUMNS, label=number, mechanism=_settings(features="fourier", n_features=41), **given),
        Study(
            "pictures",
            columns=pixels,
            label=_CLASSES,
            mechanism=SumSettings(features="pictures", epsilon=0.5),
            image_shape=(4, 4),
            **given,
        ),
        Study(
            "pictures-by-class",
            columns=pixels,
            label=Label("letter", "classes", ("a", "b", "c", "d")),
            mechanism=SumSettings(features="pictures", epsilon=2.0, expected_rows=4000, kept_share=0.5),
            image_shape=(4, 4),
            **given,
        ),
        Study(
            "questions", columns=_COLUMNS, label=_CLASSES, mechanism=SumSettings(questions=("model", "tables")), **given
        ),
        Study(
            "survival",
            columns=(*_COLUMNS, *dates, *days),
            label=Label(),
            mechanism=SumSettings(questions=("tables", "survival"), **_SURVIVAL, **persons),
            missing_words=("none",),
            ids=("row",),
            smallest_class=1,
            upload_limits=("epsilon at most 1",),
            range_source=in_rows,
            **given,
        ),
        Study(
            "survival-of-the-ill",
            columns=(*_COLUMNS, *days),
            label=number,
            mechanism=SumSettings(questions=("regression", "survival", "model"), epsilon=25.0, **_SURVIVAL),
            model_limit="membership at most 5 %",
            **given,
        ),
    ]


def _settings(**given: Any) -> SumSettings:
    return SumSettings(least_rows=5000, **given)


def _describe(study: Study) -> dict[str, Any]:
    canonical = json.dumps(study.as_dict(), sort_keys=True, separators=(",", ":"))
    settings = study.mechanism
    assert isinstance(settings, SumSettings)
    features = make_features(settings, study.schema, study.image_shape)
    layout = make_layout(settings, study.schema, features)
    names = [f"p{number}" for number in range(N_PARTICIPANTS)]
    noise = make_scheme(settings, layout, features, names).noise
    variances = [] if noise is None else [noise.on_products]
    if isinstance(noise, SumNoise):
        variances.append(noise.on_outcomes)
    written = {"canonical": canonical, "digest": study.digest, "fingerprint": study.fingerprint}
    return {"text": _write(study), **written, "n_numbers": layout.size, "variances": variances}


def _write(study: Study) -> str:
    """The text of a study's file without its comments."""
    with TemporaryDirectory() as folder:
        study.write(path := Path(folder) / "study.toml")
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if line.strip() and not line.startswith("#"))


def _expand(seed: bytes, count: int) -> dict[str, Any]:
    elements = draw_elements(words_of(Secret(seed)), count)
    digest = hashlib.sha256(elements.astype("<u8").tobytes()).hexdigest()
    ends = {"first": int(elements[0]), "last": int(elements[-1])}
    return {"seed": seed.hex(), "count": count, **ends, "sha256": digest}


def _share() -> dict[str, Any]:
    k, t = 5, 4
    secret = np.array([0, 1, LARGEST, LARGEST + 1, PRIME - 1], dtype=np.uint64)
    seeds = [bytes([number]) * 32 for number in range(1, t)]
    shares = [draw_elements(words_of(Secret(seed)), secret.size) for seed in seeds]
    shares += split(secret, Threshold(k, t, 1), [words_of(Secret(seed)) for seed in seeds])
    listed = [share.tolist() for share in shares]
    return {"k": k, "t": t, "secret": secret.tolist(), "seeds": [seed.hex() for seed in seeds], "shares": listed}


def _rule(parties: Parties) -> dict[str, Any]:
    settings = SumSettings(n_colluders=parties.n_colluders, n_colluding_helpers=parties.n_colluding_helpers)
    participants = [f"p{number}" for number in range(parties.n_participants)]
    helpers = [f"h{number}" for number in range(parties.n_helpers)]
    combiners = (*participants[: parties.n_combining], *helpers)
    settings = SumSettings(**{**vars(settings), "combiners": combiners, "most_rows": 1000})
    features = make_features(settings, list_drafts()[0].schema, ())
    layout = make_layout(settings, list_drafts()[0].schema, features)
    scheme = make_scheme(settings, layout, features, participants, helpers)
    overlap = parties.do_lists_overlap(scheme.quorum)
    least = least_threshold(parties.n_combiners, parties.most_colluding, overlap)
    thresholds = {"a": parties.most_colluding, "overlap": overlap, "quorum": scheme.quorum, "least_t": least}
    return {**vars(parties), **thresholds, "t": scheme.threshold.threshold}


def _make_files() -> dict[str, Any]:
    """A study of four participants, the bundles of three of its lists' members, and every combiner's share."""
    signers = [fixed_key(number) for number in range(1, 5)]
    keys = [sealing_key_of(signer) for signer in signers]
    members = [
        Member(f"p{number}", signer.public, "", "", key.public, signer.sign(proof_text("combining", key.public)).hex())
        for number, (signer, key) in enumerate(zip(signers, keys, strict=True))
    ]
    study = Study(
        name="vectors",
        nonce="0123456789abcdef" * 2,
        columns=(Column("x", "number", -100, 100),),
        label=Label("y", "classes", ("a", "b")),
        mechanism=SumSettings(n_hats=0),
        participants=tuple(members),
        analyst=Member("lab", fixed_key(5).public),
    )
    scheme, rng = sum_scheme(study), np.random.default_rng(38)
    vectors = rng.integers(-(2**50), 2**50, size=(4, scheme.layout.size))
    with TemporaryDirectory() as folder:
        files: dict[str, Any] = {"study": _write(study), "digest": study.digest}
        bundles = [Path(folder) / f"{number}.bundle" for number in range(4)]
        for bundle, vector, signer in zip(bundles, vectors, signers, strict=True):
            write_sum_bundle(bundle, study, encode_signed(vector), signer)
        digests = {verify_sum_bundle(bundle, study).member.signing_key: "" for bundle in bundles}
        digests = dict(
            zip(digests, [verify_sum_bundle(bundle, study).header_digest for bundle in bundles], strict=True)
        )
        closing = Path(folder) / "closing.list"
        listed = write_closing_list(closing, study, digests, fixed_key(5))
        shares = []
        for point, (signer, key) in enumerate(zip(signers, keys, strict=True), start=1):
            total = np.zeros(scheme.layout.size, dtype=np.uint64)
            for bundle in bundles:
                with bundle.open("rb") as file:
                    total = add(total, open_box(read_box(file, study, point), study, key))
            shares.append(Path(folder) / f"{point}.share")
            write_combined_share(shares[-1], study, total, combiner=point, list_digest=listed, signer=signer)
        encoded = {"bundles": bundles, "shares": shares, "closing_list": [closing]}
        files |= {
            name: [base64.b64encode(path.read_bytes()).decode() for path in paths] for name, paths in encoded.items()
        }
    files["private"] = [key.seeds.reveal().hex() for key in keys]
    files["total"] = vectors.sum(axis=0).tolist()
    return files


if __name__ == "__main__":
    VECTORS.write_text(json.dumps(make_vectors() | make_sealed_vectors(), indent=1) + "\n", encoding="utf-8")
