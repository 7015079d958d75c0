"""Fuzz targets of secure sums: what combiners read of participants, the analyst of combiners, and both of the analyst."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np

from mooring.protocol.analyst.delivery import deliver
from mooring.protocol.crypto.keys import SealingKey, SigningKey, seal
from mooring.protocol.messages.model import MODEL_FILE
from mooring.protocol.messages.result import read_delivered_model
from mooring.protocol.messages.signed_file import write_signed
from mooring.protocol.messages.study import Study
from mooring.protocol.sums.answers import (
    CONFIRMATION,
    LIST,
    SHARE,
    read_closing_list,
    read_combined_share,
    read_confirmation,
)
from mooring.protocol.sums.bundle import KIND, _context, check_share, open_share, sum_bundle_tensors, verify_sum_bundle
from mooring.protocol.sums.training import train_sums
from tests.fuzz.target import Target, make_place, sign_again, write_file
from tests.protocol.hostile import World
from tests.protocol.sums.support import SumStudy, make_sum_study
from tests.sites import spec_of

_COMBINER = 2  # whose box holds a share; the first one's holds a seed


def sum_targets(world: World) -> list[Target]:
    """A target for each file of a study of secure sums."""
    place = make_place(world, "sums")
    with patch.object(
        SealingKey, "generate", lambda: SealingKey.of(SigningKey.generate())
    ):  # as secret as all others here
        given = make_sum_study(place, 2, epsilon=None, least_rows=75)
    keys = [
        vault.combining_key(member.combining_key)
        for vault, member in zip(given.vaults, given.study.participants, strict=True)
    ]
    files = _go_through(given)

    def read_bundle(data: bytes) -> object:
        path = write_file(place / "b", sign_again(data, KIND, given.vaults[0].signing_key))
        bundle = verify_sum_bundle(path, given.study)
        return [check_share(bundle, open_share(bundle, given.study, k, key)) for k, key in enumerate(keys, 1) if key]

    def read_box(data: bytes) -> object:
        bundle = verify_sum_bundle(_write_with_box(place / "x", given, data), given.study)
        return check_share(bundle, open_share(bundle, given.study, _COMBINER, key)) if (key := keys[1]) else None

    def read_answer(kind: str, read: Callable[[Path, Study], object], signer: SigningKey) -> Target:
        def read_signed_again(data: bytes) -> object:
            return read(write_file(place / "answer", sign_again(data, kind, signer)), given.study)

        return Target(f"sum {kind}", read_signed_again, (files[kind],))

    def read_result(data: bytes) -> object:
        write_file(place / "results" / "p0" / MODEL_FILE, sign_again(data, "model", given.analyst.signing_key))
        return read_delivered_model(place / "results" / "p0", given.study, spec_of(given.study)).model

    bundle, key = verify_sum_bundle(given.inbox / "p0.bundle", given.study), keys[1]
    assert key is not None
    box = _context(given.study, given.vaults[0].signing_key.public, _COMBINER)
    box += open_share(bundle, given.study, _COMBINER, key).tobytes()
    return [
        Target("sum bundle", read_bundle, (bundle.path.read_bytes(),)),
        Target("sum box", read_box, (box,)),
        read_answer(CONFIRMATION, read_confirmation, given.vaults[0].signing_key),
        read_answer(LIST, read_closing_list, given.analyst.signing_key),
        read_answer(SHARE, read_combined_share, given.vaults[0].signing_key),
        Target("sum result", read_result, (files["result"],)),
    ]


def _go_through(given: SumStudy) -> dict[str, bytes]:
    """All files of a study by their kind, the analyst's result among them."""
    for i in (0, 1):
        given.share(i, data=given.table(i, 80))
    found = {CONFIRMATION: given.confirm(0)}
    given.close()
    shares = [given.combine(i) for i in (0, 1)]
    found |= {LIST: given.work / "closing.list", SHARE: shares[0]}
    train_sums(given.study, given.work, given.inbox)
    deliver(given.study, given.work, given.folder / "results", given.analyst.signing_key)
    found["result"] = given.folder / "results" / "p0" / MODEL_FILE
    return {kind: path.read_bytes() for kind, path in found.items()}


def _write_with_box(path: Path, given: SumStudy, plain: bytes) -> Path:
    """A bundle, well signed, whose box of one combiner holds any bytes; what does not fit is cut."""
    arrays = {name: np.zeros(spec.shape, dtype=np.uint8) for name, spec in sum_bundle_tensors(given.study).items()}
    sealed = seal(plain, [given.study.participants[_COMBINER - 1].combining_key])
    slot = arrays["shares"][0]
    content = np.frombuffer((len(sealed).to_bytes(4, "little") + sealed)[: slot.size], dtype=np.uint8)
    slot[: content.size] = content
    fields = {"study": given.study.digest, "nonce": given.study.nonce}
    write_signed(path, kind=KIND, fields=fields, arrays=arrays, signer=given.vaults[0].signing_key)
    return path
