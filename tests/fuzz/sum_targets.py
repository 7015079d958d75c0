"""Fuzz targets of secure sums: what combiners read of participants, the analyst of combiners, and both of the analyst."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from mooring.learners.models import LinearFunction, Model
from mooring.mechanisms.sums.prime_field import PRIME
from mooring.mechanisms.sums.secret_sharing import weigh
from mooring.protocol.analyst.delivery import deliver
from mooring.protocol.crypto.keys import SigningKey, seal_box
from mooring.protocol.messages.model import MODEL_FILE
from mooring.protocol.messages.result import read_delivered_model, write_delivered_model
from mooring.protocol.messages.signed_file import write_signed
from mooring.protocol.messages.study import Study
from mooring.protocol.sums.analyst.training import train_sums
from mooring.protocol.sums.answers import (
    LIST,
    RECEIPT,
    SHARE,
    read_closing_list,
    read_combined_share,
    read_receipt,
)
from mooring.protocol.sums.bundle import (
    KIND,
    N_TESTS,
    _context,
    _weights,
    open_box,
    read_box,
    sum_bundle_tensors,
    verify_sum_bundle,
)
from mooring.protocol.sums.result import model_schema, specify_sum_model
from mooring.protocol.sums.scheme import sum_scheme
from tests.fuzz.target import Target, make_place, sign_again, write_file
from tests.protocol.hostile import World
from tests.protocol.sums.support import SumStudy, make_sum_study
from tests.sites import specifier_of

_COMBINER = 2  # whose box holds a share; the first one's holds a seed


def sum_targets(world: World) -> list[Target]:
    """A target for each file of a study of secure sums."""
    place = make_place(world, "sums")
    given = make_sum_study(place, 2, epsilon=None, least_rows=75)
    members = given.study.participants
    keys = [vault.combining_key(member.combining_key) for vault, member in zip(given.vaults, members, strict=True)]
    files = _go_through(given)
    general = make_sum_study(make_place(world, "general sums"), 2, epsilon=8.0, questions=("model", "tables"))

    def open_share(path: Path, combiner: int) -> object:
        with path.open("rb") as file:
            box = read_box(file, given.study, combiner)
        return open_box(box, given.study, key) if (key := keys[combiner - 1]) else None

    def read_bundle(data: bytes) -> object:
        path = write_file(place / "b", sign_again(data, KIND, given.vaults[0].signing_key))
        verify_sum_bundle(path, given.study)
        return [open_share(path, combiner) for combiner in (1, 2)]

    def read_sealed(data: bytes) -> object:
        return open_share(_write_with_box(place / "x", given, data), _COMBINER)

    def read_answer(kind: str, read: Callable[[Path, Study], object], signer: SigningKey) -> Target:
        def read_signed_again(data: bytes) -> object:
            return read(write_file(place / "answer", sign_again(data, kind, signer)), given.study)

        return Target(f"sum {kind}", read_signed_again, (files[kind],))

    def read_result(data: bytes) -> object:
        write_file(place / "results" / "p0" / MODEL_FILE, sign_again(data, "model", given.analyst.signing_key))
        return read_delivered_model(place / "results" / "p0", given.study, specifier_of(given.study)).model

    def read_any_outcome(data: bytes) -> object:
        """A model of any column, from the total of a study of several questions."""
        write_file(general.folder / MODEL_FILE, sign_again(data, "model", general.analyst.signing_key))
        specify = partial(specify_sum_model, general.study)
        model = read_delivered_model(general.folder, general.study, specify).model
        return model.predict(np.zeros((2, model_schema(general.study, model.spec.outcome).n_features)))

    sealed = np.arange(_length(given), dtype="<u8").tobytes()
    return [
        Target("sum bundle", read_bundle, ((given.inbox / "p0.bundle").read_bytes(),)),
        Target("sum box", read_sealed, (sealed,)),
        read_answer(RECEIPT, read_receipt, given.vaults[0].signing_key),
        read_answer(LIST, read_closing_list, given.analyst.signing_key),
        read_answer(SHARE, read_combined_share, given.vaults[0].signing_key),
        Target("sum result", read_result, (files["result"],)),
        Target("sum model of a column", read_any_outcome, tuple(_make_models(general))),
    ]


def _go_through(given: SumStudy) -> dict[str, bytes]:
    """All files of a study by their kind, the analyst's result among them."""
    for i in (0, 1):
        given.share(i, data=given.table(i, 80))
    parts = {RECEIPT: given.check_boxes(0)}
    given.close()
    shares = [given.combine(i) for i in (0, 1)]
    parts |= {LIST: given.work / "closing.list", SHARE: shares[0]}
    train_sums(given.study, given.work, given.inbox)
    deliver(given.study, given.work, given.folder / "results", given.analyst.signing_key)
    parts["result"] = given.folder / "results" / "p0" / MODEL_FILE
    return {kind: path.read_bytes() for kind, path in parts.items()}


def _make_models(given: SumStudy) -> Iterator[bytes]:
    """Signed models of a number and of the label, as an analyst delivers them."""
    path = given.folder / MODEL_FILE
    for outcome in ("x0", ""):
        spec = specify_sum_model(given.study, outcome)
        n_outputs = spec.n_classes or 1
        function = LinearFunction(np.zeros((spec.n_arguments, n_outputs)), np.zeros(n_outputs))
        shares = np.full(n_outputs, 1 / n_outputs)
        model = Model(
            spec, function, "softmax" if spec.n_classes else "none", np.arange(n_outputs, dtype=np.int32), shares
        )
        write_delivered_model(path, given.study, model, "0" * 64, given.analyst.signing_key)
        yield path.read_bytes()


def _length(given: SumStudy) -> int:
    return sum_scheme(given.study).layout.size + N_TESTS


def _write_with_box(path: Path, given: SumStudy, plain: bytes) -> Path:
    """A bundle, well signed, whose box of one combiner holds any bytes, with a proof that fits them; all else is zeros."""
    content, signer = plain[: 8 * _length(given)].ljust(8 * _length(given), b"\0"), given.vaults[0].signing_key
    arrays = {name: np.zeros(spec.shape, dtype=np.uint8) for name, spec in sum_bundle_tensors(given.study).items()}
    recipient = given.study.participants[_COMBINER - 1].combining_key
    box = seal_box(content, recipient, info=_context(given.study, signer.public, _COMBINER))
    arrays["shares"][0] = np.frombuffer(box, dtype=np.uint8)
    digests = "".join(hashlib.sha256(part).hexdigest() for part in (arrays["seeds"].tobytes(), box))
    fields = {"study": given.study.digest, "nonce": given.study.nonce, "boxes": digests}
    share = np.frombuffer(content, dtype="<u8").astype(np.uint64)
    values = [weigh(share, weights) for weights in _weights(given.study, fields, signer.public)]
    proof = [[-value % PRIME, 0] for value in values]  # the line through these has the value at 2
    fields["proof"] = np.array(proof, dtype="<u8").tobytes().hex()
    write_signed(path, kind=KIND, fields=fields, arrays=arrays, signer=signer)
    return path
