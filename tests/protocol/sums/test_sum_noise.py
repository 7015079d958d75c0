"""The noise of secure sums: fresh for each bundle, never stored, and of the law that the guarantee needs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.atomic_io import hash_file
from mooring.protocol.crypto.keys import Secret
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Vault
from mooring.protocol.sums.contribution import share_sums
from mooring.protocol.sums.scheme import sum_scheme
from mooring.protocol.sums.total import open_total
from tests.protocol.sums.support import SumStudy, make_sum_study
from tests.protocol.sums.test_secure_sums import exact_sums
from tests.protocol.test_crashes import every_kill


def test_the_total_carries_the_noise_of_each(folder: Path) -> None:
    given = make_sum_study(folder, epsilon=2.0)
    for i in range(6):
        given.share(i)
    opened = [given.open_vector(i) for i in range(6)]
    given.close()
    for i in range(6):
        given.combine(i)
    total, layout, noise = open_total(given.study, given.work, given.inbox), *layout_and_noise(given)
    S, T = layout.unpack(np.sum(opened, axis=0))
    np.testing.assert_array_equal(total.sums.products, S)
    np.testing.assert_array_equal(total.sums.outcomes, T)
    assert total.sums.noise_scales == noise.scales(layout, 6)
    assert all((vector != exact_sums(given, [i])).mean() > 0.9 for i, vector in enumerate(opened))


def layout_and_noise(given: SumStudy) -> tuple[Any, Any]:
    scheme = sum_scheme(given.study)
    assert scheme.noise is not None
    return scheme.layout, scheme.noise


def test_noise_cannot_be_derived_from_the_vault(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the vault draws other noise for the same rows, and no file of the vault holds noise or what it came from."""
    given, drawn = make_sum_study(folder, p=4), list[bytes]()
    draw = Secret.draw

    def remember() -> Secret:
        secret = draw()
        drawn.append(secret.reveal())
        return secret

    monkeypatch.setattr(Secret, "draw", staticmethod(remember))
    noises = []
    for vault in (given.vaults[0], given.copy_vault(0)):
        if vault is not given.vaults[0]:
            given = SumStudy(folder, given.study, (vault, *given.vaults[1:]), given.analyst)
        given.share(0)
        noises.append(given.open_vector(0) - exact_sums(given, [0]))
        files = [path.read_bytes() for path in vault.folder.rglob("*") if path.is_file()]
        assert drawn
        for secret in drawn:
            assert not any(secret in content or secret.hex().encode() in content for content in files)
        for form in ("<i8", "<f8"):
            assert not any(noises[-1][:3].astype(form).tobytes() in content for content in files)
    assert (noises[0] != noises[1]).mean() > 0.9


@pytest.mark.posix
def test_a_share_killed_at_every_write_has_released_nothing_or_repeats_the_recorded_bytes(folder: Path) -> None:
    """Before the bundle is recorded nothing has left, and the next run draws afresh; afterwards it copies the same bytes."""
    given, place, digests = make_sum_study(folder, p=3), folder / "killed", list[str]()
    place.mkdir()
    given.vaults[0].folder.rename(place / "vault")
    output, table, states = place / "out.bundle", given.table(0), {True: 0, False: 0}

    def share() -> None:
        share_sums(Vault.open(place / "vault"), given.study, table, output=output)
        digests.append(hash_file(output, what=""))

    for _ in every_kill(place, share, least=60):
        entry = Ledger(place / "vault").entry(given.study.digest)
        recorded = None if entry is None else entry.bundle
        assert not output.exists() or recorded == digests[0] == hash_file(output, what="")
        states[recorded is not None] += 1
        share()
        assert (digests[-1] == digests[0]) == (recorded is not None)
        assert not list(place.rglob("*.partial"))
        share()
        assert digests[-1] == digests[-2]
    assert min(states.values()) >= 3
