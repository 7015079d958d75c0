"""The noise of secure sums: fresh for each bundle, never stored, and of the law that the guarantee needs."""

import math
import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from scipy.stats import kstest

from mooring.atomic_io import hash_file
from mooring.mechanisms.sums.general.layout import PairwiseLayout
from mooring.mechanisms.sums.guarantee import ProductNoise
from mooring.protocol.crypto.derivation import Stream
from mooring.protocol.crypto.keys import Secret
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Vault
from mooring.protocol.sums.analyst.total import open_total
from mooring.protocol.sums.bundle import words_of
from mooring.protocol.sums.features import study_features
from mooring.protocol.sums.participant.contribution import share_sums
from mooring.protocol.sums.scheme import sum_scheme
from tests.protocol.sums.support import SumStudy, make_sum_study
from tests.protocol.sums.test_secure_sums import exact_sums
from tests.protocol.test_crashes import every_kill


@pytest.fixture
def fixed_entropy(monkeypatch: pytest.MonkeyPatch) -> np.random.Generator:
    """Secrets that follow from a seed, so that statistical tests have one outcome."""
    rng = np.random.default_rng(35)
    monkeypatch.setattr(Secret, "draw", staticmethod(lambda: Secret(rng.bytes(32))))
    return rng


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
    np.testing.assert_array_equal(total.content.products, S)
    np.testing.assert_array_equal(total.content.outcomes, T)
    assert total.content.noise_scales == noise.scales(layout, 6)
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


def reference_sums(given: SumStudy, i: int) -> np.ndarray:
    """The exact sums of participant i in integers, without mooring's accumulator: S above the diagonal, then 2¹⁸ Σ q yᵀ."""
    rows, labels = given.rows(i)
    q = np.trunc(study_features(given.study).apply(rows) * 2**12).astype(np.int64)
    y = 3 * np.eye(3, dtype=np.int64)[labels] - 1
    return np.concatenate([(q.T @ q)[np.triu_indices(q.shape[1])], 2**18 * (q.T @ y).reshape(-1)])


def correlate(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Standardised correlations of two blocks of independent normal numbers, of shape (bundles, n), at every lag.

    Under independence each is about normal. Lags with fewer than 200 pairs are left out, where it is not.
    """
    n = a.shape[1] + b.shape[1]
    sums = np.fft.irfft(np.fft.rfft(a, n).conj() * np.fft.rfft(b, n), n).sum(axis=0)
    pairs = np.fft.irfft(np.fft.rfft(np.ones(a.shape[1]), n).conj() * np.fft.rfft(np.ones(b.shape[1]), n), n) * len(a)
    return np.asarray(sums[pairs >= 200] / np.sqrt(pairs[pairs >= 200]))


@pytest.mark.usefixtures("fixed_entropy")
def test_the_shared_vector_has_the_noise_that_the_guarantee_needs(folder: Path) -> None:
    """Opened bundles less the exact sums: independent normal numbers, whose measured variances give the study's ε.

    Eight bundles have 632 numbers on the diagonal, 24,648 above it and 1,896 in T. A variance that is off by 30 % on the
    diagonal, 5 % above it or 17 % in T differs by 5 standard errors. Correlations are compared with 6, which a million
    independent ones reach with probability 0.002; a correlation of 0.38 of T with the diagonal gives 9.8.
    """
    given = make_sum_study(folder, p=8, epsilon=2.0, n_colluders=3, quorum=7, n_hats=40, product_share=0.3)
    for i in range(8):
        given.share(i)
    noise = np.array([given.open_vector(i) - reference_sums(given, i) for i in range(8)]).astype(float)
    rows, columns = np.triu_indices(79)
    diagonal, above = noise[:, : rows.size][:, rows == columns], noise[:, : rows.size][:, rows != columns]
    blocks = {"diagonal": diagonal, "above": math.sqrt(2) * above, "T": noise[:, rows.size :]}

    # ρ = ½ (B⁴/σ_S² + R² Y²/σ_T²) of the noise of quorum − c = 4 participants, with R = 2³⁰ and Y² = K (K − 1) = 6
    sigma_S, sigma_T = 4 * np.mean(blocks["above"] ** 2), 4 * np.mean(blocks["T"] ** 2)
    rho_S, rho_T = 2.0**48 / (2 * sigma_S), 2.0**60 * 6 / (2 * sigma_T)
    loss = GaussianPrivacyLoss(1 / math.sqrt(2 * (rho_S + rho_T)))
    assert loss.get_delta_for_epsilon(2.0 / 1.05) > 1e-5 > loss.get_delta_for_epsilon(2.0 * 1.05)
    assert rho_S / (rho_S + rho_T) == pytest.approx(0.3, rel=0.1)
    variances = {"diagonal": sigma_S / 4, "above": sigma_S / 4, "T": sigma_T / 4}
    for name, block in blocks.items():
        blocks[name] = block = block / math.sqrt(variances[name])
        assert np.mean(block**2) == pytest.approx(1, abs=5 * math.sqrt(2 / block.size)), name
        assert abs(block.mean()) < 5 / math.sqrt(block.size), name
        assert kstest(block.reshape(-1), "norm").pvalue > 1e-4, name

    for first, second in combinations(blocks, 2):
        assert np.abs(correlate(blocks[first], blocks[second])).max() < 6, (first, second)
    for block in blocks.values():
        assert np.abs(correlate(block, block)[1:]).max() < 6  # lag 0 is the block itself
    whole = np.concatenate(list(blocks.values()), axis=1)
    for i, j in combinations(range(8), 2):
        assert np.abs(correlate(whole[[i]], whole[[j]])).max() < 6, (i, j)


@pytest.mark.usefixtures("fixed_entropy")
def test_the_shared_general_total_has_the_noise_that_the_guarantee_needs(folder: Path) -> None:
    """Bundles of tables without rows are noise: independent normal numbers, whose variance gives the study's ε.

    Twelve bundles have 1,140 numbers off the diagonal, so that a variance that is off by 21 % differs by 5 standard errors.
    Were only one of the six colluders left out of the split, it would be off by 45 %. A vector whose second half repeats its
    first one has a correlation of 24 standard errors. On the diagonal, of which one number is shared, 400 draws have twice
    the variance.
    """
    given = make_sum_study(folder, p=12, epsilon=2.0, n_colluders=6, questions=("model", "tables"))
    (empty := folder / "empty.csv").write_text("x0,x1,y\n")
    for i in range(12):
        given.share(i, data=empty)
    noise = np.array([given.open_vector(i) for i in range(12)])[:, 1:].astype(float)
    scheme, variance = sum_scheme(given.study), 2 * np.mean(noise**2)
    layout, settings = scheme.layout, scheme.noise
    assert isinstance(layout, PairwiseLayout)
    assert isinstance(settings, ProductNoise)
    loss = GaussianPrivacyLoss(math.sqrt((scheme.quorum - 6) * variance / layout.sensitivity_squared))
    assert loss.get_delta_for_epsilon(2.0 / 1.15) > 1e-5 > loss.get_delta_for_epsilon(2.0 * 1.15)
    noise *= math.sqrt(2 / variance)
    assert abs(noise.mean()) < 5 / math.sqrt(noise.size)
    assert kstest(noise.reshape(-1), "norm").pvalue > 1e-4
    assert np.abs(correlate(noise, noise)[1:]).max() < 6
    assert max(abs(first @ second) / math.sqrt(first.size) for first, second in combinations(noise, 2)) < 6
    first = settings.draw_many(layout, words_of(Secret.draw()), 400)[:, 0]
    assert np.mean(first.astype(float) ** 2) / variance == pytest.approx(1, abs=0.4)


def test_a_stream_uses_no_word_twice() -> None:
    words = words_of(Secret(bytes(32)))
    drawn = np.concatenate([words(count) for count in (1, 7, 100) * 500])
    assert np.unique(drawn).size == drawn.size


def test_no_number_of_draws_brings_a_stream_back_to_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of 100 million rows takes thousands of draws; each has a chunk of the key's stream to itself."""
    chunks = list[int]()

    def remember(stream: Stream, chunk: int, count: int) -> np.ndarray:
        chunks.append(chunk)
        return np.zeros(count, dtype=np.uint64)

    monkeypatch.setattr(Stream, "words", remember)
    words = words_of(Secret(bytes(32)))
    for _ in range(70_000):
        words(1)
    assert len(set(chunks)) == 70_000


def open_with_fixed_noise(given: SumStudy, table: Path) -> np.ndarray:
    """The vector that participant 0 would share of a table, with noise that is the same in every call."""
    rng, vault = np.random.default_rng(8), given.copy_vault(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Secret, "draw", staticmethod(lambda: Secret(rng.bytes(32))))
        study_of_vault = SumStudy(given.folder, given.study, (vault, *given.vaults[1:]), given.analyst)
        study_of_vault.share(0, data=table)
    vector = study_of_vault.open_vector(0)
    shutil.rmtree(vault.folder)
    return vector


def require_within(difference: np.ndarray, rows: int) -> None:
    """Three features and three classes: S moves by B² at most for each row, T by R Y, with R = 2³⁰ and Y² = 6."""
    S, T = difference[:6].astype(float), difference[6:].astype(float)
    doubled = np.where(np.equal(*np.triu_indices(3)), 1, 2)
    assert 0 < math.sqrt((doubled * S**2).sum()) <= rows * 2**24
    assert 0 < math.sqrt((T**2).sum()) <= rows * 2**30 * math.sqrt(6)


@pytest.mark.parametrize("rows_per_person", ["mean", 1])
def test_a_person_is_counted_across_blocks_of_rows(folder: Path, rows_per_person: Any) -> None:
    """One person's rows lie in two blocks of 16,384 rows that are read one after the other."""
    n = 2**14 + 1
    given = make_sum_study(folder, p=2, person="who", rows_per_person=rows_per_person)
    names = [f"id {k}" for k in range(n)]
    for at in (5, 2**14):
        names[at] = "one person"
    lines = (table := given.table(0, n, names)).read_text().splitlines()
    (without := folder / "without.csv").write_text("\n".join(line for line in lines if "one person" not in line) + "\n")
    require_within(open_with_fixed_noise(given, table) - open_with_fixed_noise(given, without), rows=1)
