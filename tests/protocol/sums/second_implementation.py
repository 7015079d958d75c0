"""A second implementation of what combiners and the analyst do in secure sums, written from docs/specification.md alone.

It shares no code with mooring. Polynomials are recombined by MPyC, and HPKE is composed here of ML-KEM, X25519, SHA3, HMAC
and ChaCha20-Poly1305. Whatever it refuses raises `ValueError`. Section names in comments are those of the specification.
"""

import base64
import hashlib
import hmac
import json
import math
import struct
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from mpyc import finfields, thresha
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

P = 2**61 - 1
FIELD = finfields.GF(P)
N_MASKS = 3


def require(holds: bool, what: str) -> None:
    """Raise a `ValueError` that names what does not hold."""
    if not holds:
        raise ValueError(what)


def canonical(values: Any) -> str:
    """Return canonical JSON (Notation)."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


# The field


def expand(seed: bytes, count: int) -> list[int]:
    """Return `count` elements from a seed of 32 bytes."""

    def keystream(number: int, n_words: int) -> list[int]:
        algorithm = ChaCha20(seed, bytes(4) + number.to_bytes(12, "little"))
        stream = Cipher(algorithm, mode=None).encryptor().update(bytes(8 * n_words))
        return [word & P for word in struct.unpack(f"<{n_words}Q", stream)]

    elements, number = keystream(0, count), 0
    while again := [place for place, element in enumerate(elements) if element == P]:
        number += 1
        for place, element in zip(again, keystream(number, len(again)), strict=True):
            elements[place] = element
    return elements


def signed(element: int) -> int:
    """Return the signed integer that an element stands for."""
    return element - P if element > (P - 1) // 2 else element


def value_at(values: Mapping[int, int], point: int) -> int:
    """Return the value at a point of the polynomial through one value at each of some points."""
    shares = [(x, [FIELD(value % P)]) for x, value in values.items()]
    return int(thresha.recombine(FIELD, shares, point)[0]) % P


# Signed files

SMALL_ORDER_Y = 2707385501144840649318225287225658788936804267575313519463743609750303402022
CURVE = 2**255 - 19


@dataclass(frozen=True)
class Signed:
    """A signed file whose signature was verified."""

    manifest: dict[str, Any]
    arrays: bytes
    header: bytes

    @property
    def header_digest(self) -> bytes:
        return hashlib.sha256(self.header).digest()

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.header + self.arrays).hexdigest()


Shapes = Mapping[str, tuple[int, ...]]


def verify(public: str, signature: bytes, message: bytes) -> None:
    """Refuse a signature that is not by the holder of a key, or of a key of small order."""
    key = bytes.fromhex(public)
    y = int.from_bytes(key, "little") % 2**255 % CURVE
    require(y not in {0, 1, CURVE - 1, SMALL_ORDER_Y, CURVE - SMALL_ORDER_Y}, "a key of small order")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        raise ValueError("signature") from None


def read_header(data: bytes, kind: str, keys: Sequence[str]) -> Signed:
    """Read the header of a signed file; what follows it is not checked yet."""
    length = int.from_bytes(data[:8], "little")
    require(len(data) >= 8 and 2 <= length <= min(65_536, len(data) - 8), "length of the header")
    header, arrays = data[: 8 + length], data[8 + length :]
    metadata = json.loads(header[8:])["__metadata__"]
    require(list(metadata) == ["manifest", "signature"], "metadata")
    text = metadata["manifest"]
    manifest = json.loads(text)
    require(set(manifest) == {"kind", "format", "signer", "data", *keys}, "keys of the manifest")
    require(all(type(value) in (str, int) for value in manifest.values()), "values of the manifest")
    require(canonical(manifest) == text, "form of the manifest")
    require(manifest["kind"] == kind and manifest["format"] == 1, "kind and format")
    signature = bytes.fromhex(metadata["signature"])
    require(signature.hex() == metadata["signature"], "form of the signature")
    verify(manifest["signer"], signature, f"mooring {kind} signature\n{text}".encode())
    return Signed(manifest, arrays, header)


def require_header(file: Signed, shapes: Shapes) -> None:
    """Refuse a header other than the one that its manifest, signature and these arrays of bytes give."""
    metadata = json.loads(file.header[8:])["__metadata__"]
    entries: dict[str, Any] = {"__metadata__": metadata}
    first = 0
    for name, shape in shapes.items():
        entries[name] = {
            "dtype": "U8",
            "shape": list(shape),
            "data_offsets": [first, first := first + math.prod(shape)],
        }
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=True).encode()
    text += b" " * (-len(text) % 8)
    require(file.header == len(text).to_bytes(8, "little") + text, "form of the header")


def read_signed(data: bytes, kind: str, keys: Sequence[str], shapes: Shapes) -> Signed:
    """Read a whole signed file whose arrays are bytes of these shapes."""
    file = read_header(data, kind, keys)
    require_header(file, shapes)
    require(len(file.arrays) == sum(map(math.prod, shapes.values())), "length of the file")
    require(hashlib.sha256(file.arrays).hexdigest() == file.manifest["data"], "digest of the arrays")
    return file


# Thresholds


@dataclass(frozen=True)
class Thresholds:
    """What a study's numbers of participants, combiners and colluders come to."""

    p: int
    combining: int
    helpers: int
    c: int
    h: int
    declared_quorum: int = 0
    declared_t: int = 0

    @property
    def k(self) -> int:
        return self.combining + self.helpers

    @property
    def a(self) -> int:
        return min(self.c, self.combining) + self.h

    def overlap(self, quorum: int) -> bool:
        b = self.k - max(0, self.c - (self.p - self.combining)) - self.h
        return b * (self.p - quorum) < self.p - self.c

    @property
    def quorum(self) -> int:
        if self.declared_quorum:
            return self.declared_quorum
        least = next(q for q in range(self.c + 1, self.p + 1) if self.overlap(q))
        return max(least, self.p - self.p // 10) if self.helpers else least

    @property
    def least_t(self) -> int:
        return (self.k + self.a) // 2 + 1 if self.overlap(self.quorum) else (2 * self.k + self.a) // 3 + 1

    @property
    def t(self) -> int:
        return self.declared_t or min(self.k, self.least_t)

    def check(self) -> None:
        require(self.c >= 1 and self.c < self.quorum <= self.p, "quorum")
        require(self.a < self.t <= self.k <= 32 and self.t >= self.least_t, "threshold")


# The study

MECHANISM = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "n_colluders": 1,
    "combiners": [],
    "n_colluding_helpers": 0,
    "threshold": 0,
    "quorum": 0,
    "features": "columns",
    "n_features": 200,
    "features_digest": "",
    "n_hats": 5,
    "log_scaled": [],
    "person": "",
    "rows_per_person": 1,
    "least_rows": 10,
    "most_rows": 100_000,
    "expected_rows": 0,
    "kept_share": 1.0,
    "product_share": 0.5,
    "questions": ["model"],
    "survival_time": "",
    "survival_event": "",
    "survival_occurred": "",
    "survival_edges": [],
    "impossible": [],
}
FLOATS = {"epsilon", "delta", "kept_share", "product_share"}
EMPTY_LEFT_OUT = {
    "features_digest",
    "log_scaled",
    "person",
    "impossible",
    "survival_time",
    "survival_event",
    "survival_occurred",
}
MEMBER = ("sealing_key", "sealing_proof", "combining_key", "combining_proof")


def known(table: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return a table that has no other entries."""
    require(set(table) <= set(names), "an unknown entry")
    return table


def mechanism_values(table: Mapping[str, Any]) -> dict[str, Any]:
    require(table["name"] == "secure-sum", "mechanism")
    values = {"name": "secure-sum"} | MECHANISM | dict(known(table, "name", *MECHANISM))
    values |= {name: float(values[name]) for name in FLOATS if values[name] != "none"}
    values["survival_edges"] = [float(edge) for edge in values["survival_edges"]]
    general = values["questions"] != ["model"]
    left_out = {name for name in (*EMPTY_LEFT_OUT, "survival_edges") if not values[name]}
    left_out |= {"n_features"} if values["features"] == "columns" else {"n_hats"}
    left_out |= {"n_hats", "product_share"} if general else set()
    left_out |= set() if values["person"] else {"rows_per_person"}
    left_out |= {name for name in ("n_colluding_helpers", "expected_rows") if not values[name]}
    return {name: value for name, value in values.items() if name not in left_out}


def column_values(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    known(table, "name", "names", "kind", "range", "categories", "missing", "outside", "missing_words", "at")
    kind = table.get("kind", "number")
    values: dict[str, Any] = {
        "kind": kind,
        "missing": table.get("missing", "refuse"),
        "outside": table.get("outside", "refuse"),
    }
    if kind == "category":
        values["categories"] = table["categories"]
    else:
        values["range"] = table["range"] if kind == "date" else list(map(float, table["range"]))
    values |= {"at": table["at"]} if kind == "age" else {}
    values |= {"missing_words": table["missing_words"]} if table.get("missing_words") else {}
    return [{"name": name, **values} for name in table.get("names", [table.get("name")])]


def member_values(table: Mapping[str, Any]) -> dict[str, Any]:
    known(table, "name", "signing_key", *MEMBER)
    filled = {name: table[name] for name in MEMBER if table.get(name)}
    return {"name": table["name"], "signing_key": table["signing_key"], **filled}


def study_values(file: Mapping[str, Any]) -> dict[str, Any]:
    known(file, "format", "name", "nonce", "mechanism", "rows", "label", "columns", "participants", "helpers")
    require(type(file["format"]) is int and file["format"] == 3, "format of the study")
    given = known(file.get("rows", {}), "missing_words", "smallest_class", "ids", "image_shape")
    rows = {"missing_words": [], "smallest_class": 3} | {
        name: value for name, value in given.items() if value or name in ("missing_words", "smallest_class")
    }
    stated = known(file.get("label", {}), "kind", "column", "classes", "range")
    label: dict[str, Any] = {"kind": stated.get("kind", "none")}
    label |= {"column": stated["column"]} if label["kind"] != "none" else {}
    label |= {"classes": stated["classes"]} if label["kind"] == "classes" else {}
    label |= {"range": list(map(float, stated["range"]))} if label["kind"] == "number" else {}
    return {
        "format": 3,
        "name": file["name"],
        "nonce": file["nonce"],
        "mechanism": mechanism_values(file["mechanism"]),
        "rows": rows,
        "label": label,
        "columns": [column for table in file["columns"] for column in column_values(table)],
        "participants": list(map(member_values, file.get("participants", []))),
    }


@dataclass(frozen=True)
class Study:
    """A study, from its file."""

    values: dict[str, Any]

    @classmethod
    def read(cls, text: str) -> "Study":
        file = tomllib.loads(text)
        optional = {name: file.pop(name) for name in ("limits", "ranges", "analyst") if name in file}
        values = study_values(file)
        if file.get("helpers"):
            values["helpers"] = list(map(member_values, file["helpers"]))
        limits = {"uploads": [], "model": ""} | dict(known(optional.get("limits", {}), "uploads", "model"))
        if limits["uploads"] or limits["model"]:
            values["limits"] = limits
        ranges = {"from_rows": [], "confirmed": ""} | dict(known(optional.get("ranges", {}), "from_rows", "confirmed"))
        if ranges["from_rows"]:
            values["ranges"] = ranges
        if "analyst" in optional:
            values["analyst"] = member_values(optional["analyst"])
        study = cls(values)
        for member in study.combiners if values["participants"] else ():
            signed_text = f"mooring combining key\n{member['combining_key']}".encode()
            verify(member["signing_key"], bytes.fromhex(member["combining_proof"]), signed_text)
        return study

    @cached_property
    def canonical(self) -> str:
        return canonical(self.values)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(b"mooring study\n" + self.canonical.encode()).hexdigest()

    @property
    def fingerprint(self) -> str:
        short = base64.b32encode(bytes.fromhex(self.digest)).decode()[:28].lower()
        return "-".join(short[first : first + 4] for first in range(0, 28, 4))

    @property
    def mechanism(self) -> dict[str, Any]:
        return MECHANISM | self.values["mechanism"]

    @property
    def is_general(self) -> bool:
        return bool(self.mechanism["questions"] != ["model"])

    @property
    def combiners(self) -> list[dict[str, Any]]:
        """Combiners in the order of their points 1 to k."""
        helpers = self.values.get("helpers", [])
        members = {member["name"]: member for member in (*self.values["participants"], *helpers)}
        first = [member["name"] for member in helpers or self.values["participants"][:15]]
        return [members[name] for name in self.mechanism["combiners"] or first]

    @cached_property
    def thresholds(self) -> Thresholds:
        n_helpers, mechanism = len(self.values.get("helpers", [])), self.mechanism
        h = (mechanism["n_colluding_helpers"] or max(1, n_helpers - 1)) if n_helpers else 0
        rules = Thresholds(
            len(self.values["participants"]),
            len(self.combiners) - n_helpers,
            n_helpers,
            mechanism["n_colluders"],
            h,
            mechanism["quorum"],
            mechanism["threshold"],
        )
        rules.check()
        return rules

    @cached_property
    def n_numbers(self) -> int:
        """N, the length of the shared vector."""
        if self.is_general:
            return General(self.values).n_numbers
        D, width = self.n_features, self.outcome[0]
        if self.is_by_class:
            return len(self.values["label"]["classes"]) * D * (D + 1) // 2
        return D * (D + 1) // 2 + D * width

    @cached_property
    def signal(self) -> float:
        """r, from which sums by class follow; 0 where they are out of the question."""
        mechanism, K = self.mechanism, len(self.values["label"].get("classes", ()))
        if mechanism["features"] != "pictures" or mechanism["epsilon"] == "none" or K < 3:
            return 0.0
        n = round(mechanism["expected_rows"] * mechanism["kept_share"])
        return n / (K * self.most_of_a_person * find_scale(mechanism["epsilon"], mechanism["delta"]))

    @property
    def is_by_class(self) -> bool:
        return self.signal >= 150

    @property
    def most_of_a_person(self) -> int:
        """m."""
        most = self.mechanism["rows_per_person"]
        return 1 if most == "mean" else int(most)

    @property
    def n_features(self) -> int:
        mechanism = self.mechanism
        if mechanism["features"] == "fourier":
            return int(1 + 2 * max(1, mechanism["n_features"] // 2))
        if mechanism["features"] == "pictures":
            side, d = min(self.values["rows"]["image_shape"][:2]), mechanism["n_features"]
            if self.is_by_class:
                most = 2**16 // len(self.values["label"]["classes"])
                fits = max(d for d in range(2**9) if (d + 1) * (d + 2) // 2 <= most)
                d = min(d, max(16, min(round(1.5 * self.signal ** (2 / 3)), fits)))
            return int(1 + min(d, 20 * min(7, side // 2) ** 2))
        D = 1
        for column in self.values["columns"]:
            is_category = column["kind"] == "category"
            D += len(column["categories"]) - 1 if is_category else max(1, mechanism["n_hats"] - 1)
            D += column["missing"] == "indicate"
        return D

    @property
    def outcome(self) -> tuple[int, int]:
        """w and Y²."""
        label = self.values["label"]
        if label["kind"] == "number":
            return 1, 2**24
        K = len(label["classes"])
        return (1, 1) if K == 2 else (K, K * (K - 1))

    @property
    def variances(self) -> tuple[int, ...]:
        """The variances of one participant's noise: V_S and V_T, or V by class or in general; none without noise."""
        mechanism, n = self.mechanism, self.thresholds.quorum - self.mechanism["n_colluders"]
        epsilon, delta = mechanism["epsilon"], mechanism["delta"]
        if epsilon == "none":
            return ()
        m = self.most_of_a_person
        if self.is_by_class:
            N, n_diagonal = self.n_numbers, len(self.values["label"]["classes"]) * self.n_features

            def by_class(z: float) -> tuple[int, ...]:
                return (math.ceil(Fraction(z) ** 2 * m**2 * 2**68 / n),)

            return find_noise(epsilon, delta, by_class, lambda v: (2 * N - n_diagonal) / v[0] / (24 * n))
        if self.is_general:
            squared, N = General(self.values).sensitivity_squared, self.n_numbers
            if mechanism["rows_per_person"] == "mean":
                squared = (math.isqrt(squared) + 1 + math.isqrt(2 * N) + 1) ** 2

            def general(z: float) -> tuple[int, ...]:
                return (math.ceil(Fraction(z) ** 2 * m**2 * squared / n),)

            return find_noise(epsilon, delta, general, lambda v: (1 / v[0] + (N - 1) * 2 / v[0]) / (24 * n))
        D, (width, Y2) = self.n_features, self.outcome
        B, share = 2**12, Fraction(mechanism["product_share"])
        F = 1
        while (2 * F) ** 2 * Y2 <= 2**40:
            F *= 2

        def for_one_model(z: float) -> tuple[int, ...]:
            scale = Fraction(z) ** 2 * m**2 / n
            return math.ceil(scale * B**4 / share), math.ceil(scale * (F * B) ** 2 * Y2 / (1 - share))

        above = D * (D - 1) // 2
        return find_noise(
            epsilon, delta, for_one_model, lambda v: ((D + 2 * above) / v[0] + D * width / v[1]) / (24 * n)
        )


# The shared vector: the general total


@dataclass(frozen=True)
class General:
    """The general total of a study of several questions."""

    values: dict[str, Any]

    @cached_property
    def columns(self) -> list[tuple[int, int, bool, int, bool]]:
        """For each column: levels b, nodes (0 for none), whether it has a bubble, unit U, whether it is an outcome."""
        mechanism, label = MECHANISM | self.values["mechanism"], self.values["label"]
        merged = {mechanism["survival_time"], mechanism["survival_event"]} - {""}
        columns, missing_in_survival = [], False
        labels = [] if label["kind"] == "none" else [label | {"name": label["column"], "missing": "refuse"}]
        for column in (*self.values["columns"], *labels):
            is_label = column in labels
            name, missing = column["name"], column["missing"]
            if column["kind"] in ("category", "classes"):
                words = column.get("categories") or column["classes"]
                further = missing in ("indicate", "fill")
                described = (len(words) + further, 0, False, 1, is_label)
            else:
                further = missing == "indicate"
                described = (*self._number(column, name in mechanism["log_scaled"], further), is_label)
            if name in merged:
                missing_in_survival |= further
            else:
                columns.append(described)
        if merged:
            n = len(mechanism["survival_edges"]) - 1
            columns.append((2 * n + 1 + missing_in_survival, 0, False, 1, True))
        return columns

    @staticmethod
    def _number(column: Mapping[str, Any], is_log: bool, has_missing: bool) -> tuple[int, int, bool, int]:
        if column["kind"] == "integer":
            low, high = math.ceil(column["range"][0]), math.floor(column["range"][1])
            if high - low < 8 and not is_log:
                return high - low + 1 + has_missing, high - low + 1, False, 1
            unit = (high - low) // math.gcd(high - low, 7)
            return 8 + has_missing, 8, True, unit if unit <= 512 and not is_log else 512
        return 8 + has_missing, 8, True, 512

    @property
    def n_numbers(self) -> int:
        e = [levels - 1 for levels, *_ in self.columns]
        bubbles = sum(bubble for _, _, bubble, _, _ in self.columns)
        return 1 + sum(e) + bubbles + sum(e[i] * e[j] for i in range(len(e)) for j in range(i))

    @cached_property
    def shares(self) -> list[float]:
        """s_j."""
        n_outcomes = sum(is_outcome for *_, is_outcome in self.columns)
        weights = [
            0.0 if is_outcome or levels < 2 else math.sqrt(levels) for levels, _, _, _, is_outcome in self.columns
        ]
        each = 0.85 / n_outcomes if n_outcomes and not sum(weights) else 0.2 if n_outcomes < 2 else 0.15
        rest = (0.85 - n_outcomes * each) / (sum(weights) or 1)
        return [
            each if is_outcome else rest * weight
            for (*_, is_outcome), weight in zip(self.columns, weights, strict=True)
        ]

    @property
    def sensitivity_squared(self) -> int:
        """Δ²."""
        C2 = round(2**17 * math.sqrt(0.15)) ** 2
        weight = 3 if "model" in self.values["mechanism"]["questions"] else 10
        x, bubbles = [], 0
        for (levels, nodes, bubble, unit, _), share in zip(self.columns, self.shares, strict=True):
            rows = contrasts(levels, nodes, weight)
            largest = max((sum(row[a] ** 2 for row in rows) for a in range(levels)), default=0) or 1.0
            scale = 2**17 * math.sqrt(share / largest) / unit
            integers = [[round(scale * entry) for entry in row] for row in rows]
            x.append(unit**2 * max((sum(row[a] ** 2 for row in integers) for a in range(levels)), default=0))
            bubbles += round(2**17 * math.sqrt(0.02 * share)) ** 2 if bubble else 0
        return (C2 + sum(x)) ** 2 - sum(value**2 for value in x) + 2 * C2 * bubbles


def contrasts(levels: int, nodes: int, weight: int) -> list[list[float]]:
    """Return the contrasts of a column, a list for each row."""
    if not nodes:
        if levels == 2:
            return [[-0.5, 0.5]]
        return [[x / math.sqrt(i * (i + 1)) for x in (*[1] * i, -i, *[0] * (levels - i - 1))] for i in range(1, levels)]
    points, rows = [Fraction(2 * a - nodes + 1) for a in range(nodes)], list[list[Fraction]]()
    for degree in range(nodes):
        row = [point**degree for point in points]
        for other in rows:
            ratio = sum(x * y for x, y in zip(row, other, strict=True)) / sum(y * y for y in other)
            row = [x - ratio * y for x, y in zip(row, other, strict=True)]
        rows.append(row)
    made = [[float(x) / math.sqrt(sum(y * y for y in row)) for x in row] for row in rows[1:]]
    made[0] = [math.sqrt(weight) * x for x in made[0]]
    if levels > nodes:
        made = [[*row, 0.0] for row in made]
        made.append([x / math.sqrt(nodes * (nodes + 1)) for x in (*[1.0] * nodes, -float(nodes))])
    return made


# Noise


def find_scale(epsilon: float, delta: float) -> float:
    """Return z, the standard deviation of a Gaussian mechanism in sensitivities."""

    def excess(mu: float) -> float:
        below = math.exp(min(0.0, epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))))
        return float(ndtr(mu / 2 - epsilon / mu)) - below - delta

    return float(1 / brentq(excess, 1e-6, 100, xtol=1e-15, rtol=1e-14))


def find_noise(epsilon: float, delta: float, make: Any, distance: Any) -> tuple[int, ...]:
    """Return variances from z, where `make` returns them and `distance` returns τ of them."""
    if epsilon <= 20:
        spent = (1 + math.exp(epsilon)) * distance(make(find_scale(epsilon, delta)))
        if spent <= delta / 100:
            return tuple(make(find_scale(epsilon, delta - spent)))
    root = math.sqrt(epsilon - math.log(delta)) - math.sqrt(-math.log(delta))
    return tuple(make(1 / (math.sqrt(2) * root)))


# The bundle

BOX = 1088 + 32 + 16


def open_hpke(box: bytes, private: bytes, info: bytes) -> bytes:
    """Open a box with 64 bytes of ML-KEM-768 and 32 of X25519."""
    lattice, curve = MLKEM768PrivateKey.from_seed_bytes(private[:64]), X25519PrivateKey.from_private_bytes(private[64:])
    ct_x = box[1088:1120]
    both = lattice.decapsulate(box[:1088]) + curve.exchange(X25519PublicKey.from_public_bytes(ct_x))
    pk_x = curve.public_key().public_bytes_raw()
    shared = hashlib.sha3_256(both + ct_x + pk_x + bytes.fromhex("5c2e2f2f5e5c")).digest()
    suite = b"HPKE" + struct.pack(">HHH", 0x647A, 0x0001, 0x0003)

    def extract(salt: bytes, label: bytes, key: bytes) -> bytes:
        return hmac.new(salt or bytes(32), b"HPKE-v1" + suite + label + key, "sha256").digest()

    def expand_key(secret: bytes, label: bytes, context: bytes, length: int) -> bytes:
        labelled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + context + b"\x01"
        return hmac.new(secret, labelled, "sha256").digest()[:length]  # one block of HKDF, since length ≤ 32

    context = b"\x00" + extract(b"", b"psk_id_hash", b"") + extract(b"", b"info_hash", info)
    secret = extract(shared, b"secret", b"")
    key, nonce = (expand_key(secret, label, context, length) for label, length in ((b"key", 32), (b"base_nonce", 12)))
    return ChaCha20Poly1305(key).decrypt(nonce, box[1120:], b"")


@dataclass(frozen=True)
class Bundle:
    """A bundle, or the extract of one for a combiner."""

    study: Study
    file: Signed

    @classmethod
    def read(cls, data: bytes, study: Study) -> "Bundle":
        file = read_header(data, "sum bundle", ("study", "nonce", "boxes", "proof"))
        bundle, rules = cls(study, file), study.thresholds
        sizes = bundle.sizes
        shapes = {"seeds": (rules.t - 1, BOX + 32), "shares": (rules.k - rules.t + 1, BOX + 8 * bundle.n_elements)}
        require_header(file, {name: shape for name, shape in shapes.items() if shape[0]})
        keys = {member["signing_key"] for member in study.values["participants"]}
        require(file.manifest["signer"] in keys, "signer of the bundle")
        same = (file.manifest["study"], file.manifest["nonce"]) == (study.digest, study.values["nonce"])
        require(same, "study of the bundle")
        require(len(file.manifest["boxes"]) == 64 * rules.k and len(file.manifest["proof"]) == 48 * rules.t, "proof")
        require(len(file.arrays) in {sum(sizes), *sizes}, "length of the bundle")
        return bundle

    @property
    def n_elements(self) -> int:
        """L."""
        return self.study.n_numbers + N_MASKS

    @property
    def sizes(self) -> list[int]:
        rules = self.study.thresholds
        return [BOX + 32] * (rules.t - 1) + [BOX + 8 * self.n_elements] * (rules.k - rules.t + 1)

    @property
    def sender(self) -> str:
        return str(self.file.manifest["signer"])

    def open(self, j: int, private: bytes) -> list[int]:
        """Return combiner j's accepted elements, without masks."""
        sizes, rules, arrays = self.sizes, self.study.thresholds, self.file.arrays
        first = sum(sizes[: j - 1]) if len(arrays) == sum(sizes) else 0
        box = arrays[first : first + sizes[j - 1]]
        digests = bytes.fromhex(self.file.manifest["boxes"])
        require(hashlib.sha256(box).digest() == digests[32 * (j - 1) : 32 * j], "digest of the box")
        study, sender = bytes.fromhex(self.study.digest), bytes.fromhex(self.sender)
        info = b"mooring sum box\n" + study + sender + struct.pack("<IIIQQ", j, rules.k, rules.t, P, self.n_elements)
        require(len(info) == 108, "info")
        content = open_hpke(box, private, info)
        elements = (
            expand(content, self.n_elements) if j < rules.t else list(struct.unpack(f"<{len(content) // 8}Q", content))
        )
        require(all(element < P for element in elements), "elements of the share")
        proof = struct.unpack(f"<{3 * rules.t}Q", bytes.fromhex(self.file.manifest["proof"]))
        for number in range(N_MASKS):
            seed = hashlib.sha256(b"mooring sum proof\n" + bytes([number]) + study + sender + digests).digest()
            weights = [*expand(seed, self.study.n_numbers), *(int(mask == number) for mask in range(N_MASKS))]
            weighed = sum(weight * element for weight, element in zip(weights, elements, strict=True)) % P
            values = dict(enumerate(proof[number * rules.t : (number + 1) * rules.t]))
            require(value_at(values, j) == weighed, "the share does not fit the others")
        return elements[:-N_MASKS]


# The closing list, and shares of the total


def read_list(data: bytes, study: Study) -> tuple[dict[str, bytes], str]:
    """Return the digests of headers by signing key, and the digest of the list."""
    count = read_header(data, "closing list", ("study", "count")).manifest["count"]
    file = read_signed(data, "closing list", ("study", "count"), {"entries": (count, 64)})
    require(file.manifest["signer"] == study.values["analyst"]["signing_key"], "signer of the list")
    require(file.manifest["study"] == study.digest, "study of the list")
    rows = [file.arrays[first : first + 64] for first in range(0, 64 * count, 64)]
    entries = {row[:32].hex(): row[32:] for row in rows}
    keys = {member["signing_key"] for member in study.values["participants"]}
    require(set(entries) <= keys and len(entries) == count == len(set(entries.values())), "entries of the list")
    require(count >= study.thresholds.quorum, "quorum")
    return entries, file.digest


def combine(study: Study, bundles: Sequence[bytes], closing: bytes, j: int, private: bytes) -> list[int]:
    """Return combiner j's sum of the shares on a list."""
    entries, _ = read_list(closing, study)
    total, missing = [0] * study.n_numbers, dict(entries)
    for data in bundles:
        bundle = Bundle.read(data, study)
        if missing.get(bundle.sender) == bundle.file.header_digest:
            del missing[bundle.sender]
            total = [(x + y) % P for x, y in zip(total, bundle.open(j, private), strict=True)]
    require(not missing, "a bundle is missing")
    return total


def read_share(data: bytes, study: Study, list_digest: str) -> tuple[int, list[int]]:
    """Return a combiner's number and its share of the total of a list."""
    file = read_signed(data, "share", ("study", "combiner", "list"), {"share": (8 * study.n_numbers,)})
    numbers = {member["signing_key"]: j for j, member in enumerate(study.combiners, start=1)}
    j = numbers.get(file.manifest["signer"])
    require(j is not None and file.manifest["combiner"] == j, "signer of the share")
    require((file.manifest["study"], file.manifest["list"]) == (study.digest, list_digest), "list of the share")
    elements = list(struct.unpack(f"<{study.n_numbers}Q", file.arrays))
    require(all(element < P for element in elements), "elements of the share")
    return int(j or 0), elements


def open_total(study: Study, closing: bytes, shares: Sequence[bytes]) -> list[int]:
    """Return the total of a list as signed integers; contradicting shares are refused."""
    _, digest = read_list(closing, study)
    read = dict(read_share(data, study, digest) for data in shares)
    t = study.thresholds.t
    require(len(read) >= t, "too few shares")
    points = sorted(read)
    used = [(j, [FIELD(element) for element in read[j]]) for j in points[:t]]
    for j in points[t:]:
        expected = [int(element) % P for element in thresha.recombine(FIELD, used, j)]
        require(expected == read[j], "shares contradict each other")
    total = [signed(int(element) % P) for element in thresha.recombine(FIELD, used)]
    require(max(map(abs, total)) <= (P - 1) // 4, "magnitude of the total")
    return total
