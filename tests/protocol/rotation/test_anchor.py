"""An anchor comes from a dealer who may be hostile, by a carrier who may be: each way it can be wrong is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mooring.errors import InputError, RefusedError, StorageError
from mooring.mechanisms.rotation.anchors import make_anchor
from mooring.protocol.crypto.keys import SealingKey, seal_box
from mooring.protocol.participant.membership import make_member
from mooring.protocol.rotation import result
from mooring.protocol.rotation.anchor import deal_anchor, open_anchor, write_anchor
from mooring.protocol.storage.vault import Floors, Vault
from tests.permissions import has_mode
from tests.raising import raising


def forge(small_study, matrix: np.ndarray) -> Path:
    """What a dealer that follows no rule could write: any matrix."""
    path = small_study.folder / "forged.anchor"
    write_anchor(path, small_study.study, matrix, small_study.vaults[0].signing_key)
    return path


@pytest.fixture
def good() -> np.ndarray:
    return make_anchor(10, 4, rng=np.random.default_rng(3))


def test_an_anchor_that_protects_less_is_refused_before_anything_is_written_down(small_study, good):
    """What else is refused, and why: hostile_anchors.py."""
    vault, output = small_study.vaults[1], small_study.folder / "out.bundle"
    assert np.array_equal(open_anchor(vault, small_study.study, forge(small_study, good)).matrix, good)
    with raising(RefusedError, "the anchor file", reason="orthonormal"):
        replace(small_study, anchor=forge(small_study, 100 * good)).share(output=output)
    assert not output.exists()
    assert not (vault.folder / "ledger.sqlite").exists()


def test_the_analyst_that_carries_an_anchor_cannot_open_it(small_study):
    with raising(RefusedError, "the study"):  # whose roster does not have these keys
        open_anchor(small_study.analyst, small_study.study, small_study.anchor)
    with raising(RefusedError, "the box"):
        small_study.analyst.sealing_key.open(small_study.anchor.read_bytes()[-1168:], info=b"")
    matrix = open_anchor(small_study.vaults[1], small_study.study, small_study.anchor).matrix
    carried = small_study.anchor.read_bytes()
    assert all(matrix[k].tobytes() not in carried for k in range(len(matrix)))


def test_an_anchor_file_that_is_not_there_is_a_storage_error(small_study):
    with raising(StorageError, "the anchor file"):
        open_anchor(small_study.vaults[1], small_study.study, small_study.folder / "nowhere.anchor")


def test_an_anchor_is_opened_by_those_whom_it_is_sealed_to_and_by_nobody_else(small_study, good, monkeypatch):
    sealing_key, other = small_study.study.member("hospital-1").sealing_key, SealingKey.generate().public

    def seal_to_others(data: bytes, public: str, *, info: bytes) -> bytes:
        return seal_box(data, other if public == sealing_key else public, info=info)

    monkeypatch.setattr("mooring.protocol.rotation.anchor.seal_box", seal_to_others)
    path = forge(small_study, good)
    with raising(RefusedError, "the anchor file", reason="not sealed to your key"):
        open_anchor(small_study.vaults[1], small_study.study, path)
    for i in (0, 2):
        assert np.array_equal(open_anchor(small_study.vaults[i], small_study.study, path).matrix, good)


def test_everybody_opens_the_same_anchor_and_dealing_again_deals_the_same(small_study):
    again = small_study.folder / "again.anchor"
    deal_anchor(small_study.vaults[0], small_study.study, again)
    assert again.read_bytes() == small_study.anchor.read_bytes()
    assert has_mode(again, 0o600)
    digests = {open_anchor(vault, small_study.study, again).digest for vault in small_study.vaults}
    assert len(digests) == 1


def test_dealing_from_a_restored_backup_deals_the_same_matrix(small_study):
    """The seal is random, so the file differs; what is sealed does not."""
    backup = Vault.open(small_study.vaults[0].folder)
    expected = open_anchor(small_study.vaults[1], small_study.study, small_study.anchor)
    for path in sorted((backup.folder / "studies").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    again = small_study.folder / "again.anchor"
    deal_anchor(backup, small_study.study, again)
    opened = open_anchor(small_study.vaults[1], small_study.study, again)
    assert (opened.digest, opened.file_digest != expected.file_digest) == (expected.digest, True)


def test_a_roster_that_grew_after_dealing_is_dealt_an_anchor_of_its_own(small_study):
    """Somebody joins late: the study is another one, and its dealer must not hand out the old file."""
    late = Vault.create(small_study.folder / "vault-late")
    grown = small_study.study.with_members([make_member("hospital-late", late)])
    path = small_study.folder / "grown.anchor"
    deal_anchor(small_study.vaults[0], grown, path)
    first = open_anchor(small_study.vaults[1], small_study.study, small_study.anchor)
    assert open_anchor(late, grown, path).digest != first.digest
    with raising(RefusedError, "the anchor file", reason="another roster"):
        open_anchor(small_study.vaults[1], small_study.study, path)


def test_only_the_dealer_deals(small_study):
    with raising(InputError, "dealer", expected="hospital-0"):
        deal_anchor(small_study.vaults[1], small_study.study, small_study.folder / "no.anchor")
    stranger = Vault.create(small_study.folder / "vault-stranger")
    with raising(RefusedError, "the study", reason="not in its roster"):
        deal_anchor(stranger, small_study.study, small_study.folder / "no.anchor")


def test_a_second_anchor_for_the_same_study_gives_no_second_upload(small_study, good):
    """The maker of the anchor could send a participant two anchors, and compare its uploads."""
    first, second = small_study.folder / "first.bundle", small_study.folder / "second.bundle"
    small_study.share(output=first)
    with raising(RefusedError, "the anchor file", reason="a different anchor file"):
        replace(small_study, anchor=forge(small_study, good)).share(output=second)
    assert not second.exists()
    (used,) = small_study.vaults[1].folder.rglob("used.anchor")
    assert used.read_bytes() == small_study.anchor.read_bytes()  # predictions go on with the anchor that was used
    small_study.share(output=second)
    assert second.read_bytes() == first.read_bytes()


@pytest.mark.parametrize(
    ("changes", "floors", "reason"),
    [
        ({"anchor_noise_scale": 0.009}, Floors(), "anchor noise of 0.009"),
        ({"data_noise_scale": 0.04}, Floors(), "private-data noise of 0.04"),
        ({"anchor_noise_scale": 1e-300}, Floors(), "anchor noise"),
        ({}, Floors(anchor_noise=0.06), "floor of 0.06"),
        ({}, Floors(data_noise=0.31), "floor of 0.31"),
        ({"method": "aa-i-gdp", "data_noise_scale": 0.0, "anchor_noise_scale": 0.0}, Floors(), "no noise"),
    ],
)
def test_a_study_below_a_participants_own_floor_is_refused(small_study, changes, floors, reason):
    weak = small_study.another(**changes)
    output = small_study.folder / "out.bundle"
    with raising(RefusedError, "the study", reason=reason):
        weak.share(replace(small_study.vaults[1], floors=floors), output=output)
    assert not output.exists()
    small_study.share(replace(small_study.vaults[1], floors=Floors(0.05, 0.3)), output=output)  # at the floor is enough


def test_a_method_without_noise_is_shared_only_by_who_said_so(small_study):
    bare = small_study.another(method="aa-i-gdp", data_noise_scale=0.0, anchor_noise_scale=0.0)
    output = small_study.folder / "out.bundle"
    bare.share(replace(small_study.vaults[1], floors=Floors(without_noise=True)), output=output)
    assert output.exists()


def test_nothing_is_predicted_before_rows_are_shared(small_study, monkeypatch):
    monkeypatch.setattr(result, "read_result", lambda *_: None)
    with raising(StorageError, "the vault", reason="not know of an upload"):
        result.open_mapped_model(small_study.vaults[0], small_study.study, small_study.folder)
