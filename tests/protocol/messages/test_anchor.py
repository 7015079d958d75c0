"""An anchor comes from a dealer who may be hostile, by a carrier who may be: each way it can be wrong is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.errors import InputError, RefusedError, StorageError
from mooring.mechanisms.anchors import make_anchor
from mooring.protocol.crypto.keys import seal
from mooring.protocol.messages.anchor import KIND
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.signed_file import TensorSpec, encode_file, write_signed
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import deal_anchor, open_anchor
from mooring.protocol.storage.vault import Floors, Vault

Forge = Callable[..., Path]


@pytest.fixture
def good() -> np.ndarray:
    return make_anchor(10, 4, rng=np.random.default_rng(3))


@pytest.fixture
def forged(small_study) -> Forge:
    """Write what a dealer that follows no rule could write: any matrix, for any study, sealed to anybody."""

    def forge(
        matrix: np.ndarray,
        *,
        study: Study | None = None,
        signer: Vault | None = None,
        recipients: list[str] | None = None,
        inner: str | None = None,
        changed: dict[str, Any] | None = None,
        plain: bytes | None = None,
    ) -> Path:
        study = study or small_study.study
        if plain is None:
            tensors = {"anchor": TensorSpec("F64", matrix.shape)}
            plain = encode_file({"anchor": matrix}, tensors, {"study": inner or study.digest})
        to = [one.sealing_key for one in study.participants] if recipients is None else recipients
        sealed = np.frombuffer(seal(plain, to), dtype=np.uint8)
        fields = {"study": study.digest, "nonce": study.nonce, "bytes": sealed.size} | (changed or {})
        path = small_study.folder / "forged.anchor"
        key = (signer or small_study.vaults[0]).signing_key
        write_signed(path, kind=KIND, fields=fields, arrays={"sealed": sealed}, signer=key)
        return path

    return forge


def test_a_good_anchor_written_by_hand_is_taken(small_study, forged, good):
    """So that the refusals below are for what each of them changes, and not for how the tests write anchors."""
    assert np.array_equal(open_anchor(small_study.vaults[1], small_study.study, forged(good)).matrix, good)


def off_centre(anchor: np.ndarray) -> np.ndarray:
    """Orthonormal still, but its columns have sums."""
    return np.linalg.qr(anchor + 1.0)[0]


def rank_poor(anchor: np.ndarray) -> np.ndarray:
    return np.column_stack([anchor[:, :-1], anchor[:, 0]])


def with_a(number: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(anchor: np.ndarray) -> np.ndarray:
        anchor = anchor.copy()
        anchor[3, 2] = number
        return anchor

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda anchor: 100 * anchor, "orthonormal", id="a hundred times as large"),
        pytest.param(lambda anchor: (1 + 1e-6) * anchor, "orthonormal", id="a millionth too large"),
        pytest.param(lambda anchor: 0 * anchor, "orthonormal", id="nothing"),
        pytest.param(lambda anchor: anchor + 1e-3, "centred", id="moved a little"),
        pytest.param(off_centre, "centred", id="orthonormal and off centre"),
        pytest.param(rank_poor, "orthonormal", id="one column twice"),
        pytest.param(lambda anchor: anchor * [100, 1, 1, 0.01], "orthonormal", id="one column large"),
        pytest.param(with_a(np.nan), "finite", id="NaN"),
        pytest.param(with_a(np.inf), "finite", id="infinity"),
        pytest.param(lambda anchor: np.eye(4) - 0.25, "not the anchor that the study asks for", id="r = h"),
        pytest.param(lambda anchor: anchor[:, :3], "not the anchor that the study asks for", id="too narrow"),
        pytest.param(lambda anchor: anchor.T.copy(), "not the anchor that the study asks for", id="lying"),
        pytest.param(lambda anchor: anchor.reshape(5, 8), "not the anchor that the study asks for", id="other shape"),
        pytest.param(lambda anchor: anchor[:0], "not the anchor that the study asks for", id="no rows"),
    ],
)
def test_an_anchor_that_protects_less_is_refused(small_study, forged, good, change, reason):
    with pytest.raises(RefusedError, match=reason):
        open_anchor(small_study.vaults[1], small_study.study, forged(change(good)))
    output = small_study.folder / "out.bundle"
    with pytest.raises(RefusedError, match=reason):
        replace(small_study, anchor=forged(change(good))).share(output=output)
    assert not output.exists()
    assert not (small_study.vaults[1].folder / "ledger.sqlite").exists()  # refused before anything was written down


def test_a_study_without_enough_anchor_rows_cannot_be_written(small_study):
    """r ≥ h + 1: centring costs one rank."""
    with pytest.raises(InputError, match="anchor_rows"):
        replace(small_study.study, n_anchor_rows=small_study.study.n_components)


def test_an_anchor_of_another_study_or_roster_is_refused(small_study, forged, good):
    study, vault = small_study.study, small_study.vaults[1]
    others = {
        "another nonce": replace(study, nonce="f" * 32),
        "more noise": replace(study, anchor_noise_scale=0.06),
        "a shorter roster": replace(study, participants=study.participants[:2]),
        "another analyst": replace(study, analyst=Member("lab", small_study.vaults[0].signing_key.public[::-1])),
        "another order": replace(study, participants=study.participants[::-1], dealer="hospital-0"),
    }
    for other in others.values():
        path = forged(good, study=other)
        with pytest.raises(RefusedError, match="another study, another roster"):
            open_anchor(vault, study, path)
    with pytest.raises(RefusedError, match="another study"):
        open_anchor(vault, study, forged(good, changed={"nonce": "f" * 32}))
    with pytest.raises(RefusedError, match="what is sealed is not the anchor"):
        open_anchor(
            vault, study, forged(good, inner=others["another nonce"].digest)
        )  # sealed for one, signed for another


def test_an_anchor_that_the_dealer_did_not_sign_is_refused(small_study, forged, good):
    """Another participant could seal an anchor as well, and so could the analyst."""
    for signer in (small_study.vaults[1], small_study.vaults[2], small_study.analyst):
        with pytest.raises(RefusedError, match="signed by somebody else"):
            open_anchor(small_study.vaults[1], small_study.study, forged(good, signer=signer))


def test_an_anchor_that_is_not_sealed_to_me_cannot_be_opened(small_study, forged, good):
    others = [one.sealing_key for one in small_study.study.participants if one.name != "hospital-1"]
    path = forged(good, recipients=others)
    with pytest.raises(RefusedError, match="not sealed to this key"):
        open_anchor(small_study.vaults[1], small_study.study, path)
    assert np.array_equal(open_anchor(small_study.vaults[2], small_study.study, path).matrix, good)


def test_the_analyst_that_carries_an_anchor_cannot_open_it(small_study):
    with pytest.raises(RefusedError, match="not in its roster"):
        open_anchor(small_study.analyst, small_study.study, small_study.anchor)
    with pytest.raises(RefusedError, match="not sealed to this key"):
        small_study.analyst.sealing_key.open(small_study.anchor.read_bytes()[-1024:])
    matrix = open_anchor(small_study.vaults[1], small_study.study, small_study.anchor).matrix
    carried = small_study.anchor.read_bytes()
    assert all(matrix[k].tobytes() not in carried for k in range(len(matrix)))


@pytest.mark.parametrize("step", [1, 37])
def test_an_anchor_that_was_changed_on_its_way_is_refused(small_study, step):
    """Every byte of its header and every 37th of the rest, one bit each; and every truncation at a 37th byte."""
    good = small_study.anchor.read_bytes()
    path = small_study.folder / "changed.anchor"
    header = 8 + int.from_bytes(good[:8], "little")
    places = range(0, header, 7) if step == 1 else range(header, len(good), step)
    for place in places:
        bad = bytearray(good)
        bad[place] ^= 1 << (place % 8)
        path.write_bytes(bad)
        with pytest.raises(RefusedError):
            open_anchor(small_study.vaults[1], small_study.study, path)
        path.write_bytes(good[:place])
        with pytest.raises(RefusedError):
            open_anchor(small_study.vaults[1], small_study.study, path)
    path.write_bytes(good + b"\0")
    with pytest.raises(RefusedError):
        open_anchor(small_study.vaults[1], small_study.study, path)


def test_what_the_dealer_signed_may_be_no_anchor_at_all(small_study, forged, good):
    for plain in (b"", b"x", bytes(10_000), b'{"__metadata__":{}}'):
        with pytest.raises(RefusedError, match="what is sealed is not the anchor"):
            open_anchor(small_study.vaults[1], small_study.study, forged(good, plain=plain))
    with pytest.raises(RefusedError, match="larger than an anchor"):
        open_anchor(small_study.vaults[1], small_study.study, forged(good, plain=bytes(200_000)))
    for n_bytes in ("1000", -1, 0, 10**15):
        with pytest.raises(RefusedError):
            open_anchor(small_study.vaults[1], small_study.study, forged(good, changed={"bytes": n_bytes}))


def test_an_anchor_file_that_is_not_there_is_a_clear_error(small_study):
    for path in (small_study.folder / "nowhere.anchor", small_study.folder):
        with pytest.raises(StorageError, match="the anchor file"):
            open_anchor(small_study.vaults[1], small_study.study, path)


def test_everybody_opens_the_same_anchor_and_dealing_again_deals_the_same(small_study):
    again = small_study.folder / "again.anchor"
    deal_anchor(small_study.vaults[0], small_study.study, again)
    assert again.read_bytes() == small_study.anchor.read_bytes()
    found = {open_anchor(vault, small_study.study, again).digest for vault in small_study.vaults}
    assert len(found) == 1


def test_dealing_from_a_restored_backup_deals_the_same_matrix(small_study):
    """The seal is random, so the file differs; what is sealed does not."""
    backup = Vault.open(small_study.vaults[0].folder)
    expected = open_anchor(small_study.vaults[1], small_study.study, small_study.anchor)
    for path in sorted((backup.folder / "studies").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    again = small_study.folder / "again.anchor"
    deal_anchor(backup, small_study.study, again)
    found = open_anchor(small_study.vaults[1], small_study.study, again)
    assert (found.digest, found.file_digest != expected.file_digest) == (expected.digest, True)


def test_a_roster_that_grew_after_dealing_is_dealt_an_anchor_of_its_own(small_study):
    """Somebody joins late: the study is another one, and its dealer must not hand out the old file."""
    late = Vault.create(small_study.folder / "vault-late")
    grown = small_study.study.with_members([Member.from_vault("hospital-late", late)])
    path = small_study.folder / "grown.anchor"
    deal_anchor(small_study.vaults[0], grown, path)
    first = open_anchor(small_study.vaults[1], small_study.study, small_study.anchor)
    assert open_anchor(late, grown, path).digest != first.digest
    with pytest.raises(RefusedError, match="another roster"):
        open_anchor(small_study.vaults[1], small_study.study, path)


def test_only_the_dealer_deals(small_study):
    with pytest.raises(InputError, match="hospital-0"):
        deal_anchor(small_study.vaults[1], small_study.study, small_study.folder / "no.anchor")
    stranger = Vault.create(small_study.folder / "vault-stranger")
    with pytest.raises(RefusedError, match="not in its roster"):
        deal_anchor(stranger, small_study.study, small_study.folder / "no.anchor")


def test_a_second_anchor_for_the_same_study_gives_no_second_upload(small_study, forged, good):
    """A dealer could deal one participant two anchors, and compare."""
    first, second = small_study.folder / "first.bundle", small_study.folder / "second.bundle"
    small_study.share(output=first)
    with pytest.raises(RefusedError, match="another"):
        replace(small_study, anchor=forged(good)).share(output=second)
    assert not second.exists()
    (used,) = small_study.vaults[1].folder.rglob("used.anchor")
    assert used.read_bytes() == small_study.anchor.read_bytes()  # predictions go on with the anchor that was used
    small_study.share(output=second)
    assert second.read_bytes() == first.read_bytes()


@pytest.mark.parametrize(
    ("changes", "floors", "reason"),
    [
        ({"anchor_noise_scale": 0.009}, Floors(), "anchor noise of 0.009 is below your floor of 0.01"),
        ({"data_noise_scale": 0.04}, Floors(), "private-data noise of 0.04 is below your floor of 0.05"),
        ({"anchor_noise_scale": 1e-300}, Floors(), "anchor noise"),
        ({}, Floors(anchor_noise=0.06), "anchor noise of 0.05 is below your floor of 0.06"),
        ({}, Floors(data_noise=0.31), "private-data noise of 0.3 is below your floor of 0.31"),
        ({"method": "aa-i-gdp", "data_noise_scale": 0.0, "anchor_noise_scale": 0.0}, Floors(), "no noise at all"),
    ],
)
def test_a_study_below_a_participants_own_floor_is_refused(small_study, changes, floors, reason):
    weak = small_study.another(**changes)
    output = small_study.folder / "out.bundle"
    with pytest.raises(RefusedError, match=reason):
        weak.share(replace(small_study.vaults[1], floors=floors), output=output)
    assert not output.exists()
    small_study.share(replace(small_study.vaults[1], floors=Floors(0.05, 0.3)), output=output)  # at the floor is enough


def test_a_method_without_noise_is_shared_only_by_who_said_so(small_study):
    bare = small_study.another(method="aa-i-gdp", data_noise_scale=0.0, anchor_noise_scale=0.0)
    output = small_study.folder / "out.bundle"
    bare.share(replace(small_study.vaults[1], floors=Floors(without_noise=True)), output=output)
    assert output.exists()
