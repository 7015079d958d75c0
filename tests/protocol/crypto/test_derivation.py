"""Random numbers from one secret: the same in the same circumstances, unrelated in any other, and of the right kind.

Everything here follows from fixed secrets, so each test gives the same figures in every run; the bounds say how unlikely
a failure would have been by chance, and what deviation would have been found.
"""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mooring.mechanisms.rotation.anchors import make_anchor
from mooring.mechanisms.rotation.kernel import add_noise, map_rows
from mooring.protocol.crypto.derivation import SecretMap, Stream, _normals, derive
from mooring.protocol.crypto.keys import SealingKey, Secret, SigningKey
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.anchor import Anchor, Perturbation
from mooring.protocol.storage.vault import Floors, Vault
from mooring.tables.schema import Column, Label
from tests.study_settings import make_study

H, N_ROWS = 4, 5000
DIGEST = "d" * 64


def secret(k: int) -> Secret:
    return Secret(k.to_bytes(32, "little"))


def draft(k: int = 0, **changes: object) -> Study:
    columns = tuple(Column(f"c{c}", "number", -5, 5) for c in range(H))
    plain = {"data_noise_scale": 0.3, "anchor_noise_scale": 0.05, "n_anchor_rows": 5000} | changes
    return make_study("draft", f"{k:032x}", columns, Label(), "aa-i-gdp-both-noise", n_components=H, **plain)


@pytest.fixture(scope="module")
def perturbation() -> Perturbation:
    anchor = Anchor(make_anchor(5000, H, rng=np.random.default_rng(0)), "a" * 64, "b" * 64)
    vault = Vault(Path("nowhere"), SigningKey(secret(1)), SealingKey(secret(2)), secret(3), secret(4), Floors())
    return Perturbation(draft(), anchor, vault)


def data_noise(perturbation: Perturbation, n_rows: int = N_ROWS, digest: str = DIGEST) -> np.ndarray:
    stream = perturbation.data_noise(n_rows, digest)
    assert stream is not None
    return stream.normals(0, N_ROWS * H)


def anchor_noise(perturbation: Perturbation) -> np.ndarray:
    """W of the anchor's noise, from what is uploaded: in float32, so to about six digits."""
    clean = perturbation.map.apply(perturbation.anchor.matrix)
    return ((perturbation.anchor_representation() - clean) / perturbation.study.mechanism.anchor_noise_scale).ravel()


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    n = min(first.size, second.size)
    return float(np.corrcoef(first[:n], second[:n])[0, 1])


def is_unrelated(first: np.ndarray, second: np.ndarray) -> bool:
    """|r| < 5/√n, n = 20,000: by chance once in two million; a common part of 6 % of the variance is always found."""
    return abs(correlation(first, second)) < 5 / np.sqrt(min(first.size, second.size))


def other_circumstances(perturbation: Perturbation) -> dict[str, Perturbation]:
    study, anchor, vault = perturbation.study, perturbation.anchor, perturbation.vault
    return {
        "nonce": replace(perturbation, study=draft(1)),
        "name": replace(perturbation, study=replace(study, name="other")),
        "scales": replace(perturbation, study=draft(data_noise_scale=0.6, anchor_noise_scale=0.1)),
        "a column's range": replace(
            perturbation, study=replace(study, columns=(*study.columns[1:], Column("x", "number", 0, 1)))
        ),
        "anchor": replace(perturbation, anchor=replace(anchor, digest="0" * 64)),
        "secret": replace(perturbation, vault=replace(vault, master=secret(5))),
    }


def test_the_same_circumstances_give_the_same_numbers(perturbation):
    again = Perturbation(draft(), perturbation.anchor, replace(perturbation.vault))
    assert np.array_equal(data_noise(perturbation), data_noise(again))
    assert perturbation.anchor_representation().tobytes() == again.anchor_representation().tobytes()
    assert np.array_equal(perturbation.order(100, DIGEST), again.order(100, DIGEST))
    assert np.array_equal(perturbation.map.apply(np.eye(H)), again.map.apply(np.eye(H)))


@pytest.mark.parametrize("changed", ["nonce", "name", "scales", "a column's range", "anchor", "secret"])
def test_any_other_circumstance_gives_unrelated_noise_and_another_map(perturbation, changed):
    """Noise that two scales or two anchors have in common can be subtracted."""
    other = other_circumstances(perturbation)[changed]
    assert is_unrelated(data_noise(perturbation), data_noise(other))
    assert is_unrelated(anchor_noise(perturbation), anchor_noise(other))
    ours, theirs = (holder.map.apply(np.vstack([np.eye(H), np.zeros(H)])) for holder in (perturbation, other))
    assert np.abs(ours - theirs).max() > 0.1
    assert not np.array_equal(perturbation.order(100, DIGEST), other.order(100, DIGEST))


def test_other_rows_and_another_number_of_rows_give_unrelated_noise(perturbation):
    assert is_unrelated(data_noise(perturbation), data_noise(perturbation, digest="e" * 64))
    assert is_unrelated(data_noise(perturbation), data_noise(perturbation, n_rows=N_ROWS + 1))
    assert not np.array_equal(perturbation.order(100, DIGEST), perturbation.order(100, "e" * 64))
    assert not np.array_equal(perturbation.order(101, DIGEST)[:100], perturbation.order(100, DIGEST))


def test_the_noise_of_rows_and_anchor_are_unrelated(perturbation):
    assert is_unrelated(data_noise(perturbation), anchor_noise(perturbation))


def test_each_circumstance_enters_by_itself(perturbation):
    """A study's digest changes with its scales; the scale and the shape are in what noise is derived from even so."""
    given_ = ("data noise", 0.3, (N_ROWS, H), DIGEST)
    changed = [("anchor noise", *given_[1:]), ("data noise", 0.30000000000000004, *given_[2:])]
    changed += [("data noise", 0.3, (H, N_ROWS), DIGEST), ("data noise", 0.3, (N_ROWS, H), "e" * 64)]
    keys = [perturbation._noise(*arguments).key.reveal() for arguments in (given_, *changed)]
    assert perturbation._noise(*given_).key.reveal() == keys[0]
    assert len(set(keys)) == 5


def test_keys_depend_on_everything_they_are_derived_from():
    base = derive(secret(1), "purpose", {"a": 1, "b": "x"})
    assert base == derive(secret(1), "purpose", {"b": "x", "a": 1})
    others = [
        derive(secret(2), "purpose", {"a": 1, "b": "x"}),
        derive(secret(1), "other", {"a": 1, "b": "x"}),
        derive(secret(1), "purpose", {"a": 2, "b": "x"}),
        derive(secret(1), "purpose", {"a": "1", "b": "x"}),
        derive(secret(1), "purpose", {"a": 1}),
        derive(secret(1), "purpose", {"a": 1, "b": "x", "c": None}),
    ]
    assert len({secret.reveal() for secret in (base, *others)}) == 7
    with pytest.raises(ValueError, match="JSON"):  # NaN is not equal to itself
        derive(secret(1), "purpose", {"scale": np.nan})


def test_a_number_is_the_quantile_of_its_word_to_the_ends_of_both_tails():
    """63 bits of magnitude, from half a step on, and a sign: 9.2 standard deviations at most."""
    magnitudes = (0, 1, 2**40, 2**62)
    words = np.array([2 * magnitude + sign for magnitude in magnitudes for sign in (0, 1)], dtype=np.uint64)
    quantiles = [stats.norm.ppf((2 * magnitude + 1) / 2**65) for magnitude in magnitudes]
    assert _normals(words) == pytest.approx([sign * x for x in quantiles for sign in (1, -1)], rel=1e-12)
    assert round(_normals(words)[0], 1) == -9.2


def test_normal_numbers_are_normal():
    """n = 400,000. Kolmogorov and Smirnov's p > 1e-4; the distribution function would be found wrong by 0.4 %.

    Moments within 4.5 standard errors: a mean off by 0.01, a standard deviation by 0.7 %, tails by a tenth are found.
    """
    n = 400_000
    numbers = Stream(secret(11)).normals(0, n)
    assert stats.kstest(numbers, "norm").pvalue > 1e-4
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((numbers**power).mean() - mean) < 4.5 * np.sqrt(variance / n)
    beyond = np.count_nonzero(np.abs(numbers) > 4)
    assert stats.binomtest(beyond, n, 2 * stats.norm.sf(4)).pvalue > 1e-4
    assert np.isfinite(numbers).all()
    assert np.unique(numbers).size == n


CHUNK = 2**16
LAGS = (1, 2, 7, 784, CHUNK // 2 - 1, CHUNK // 2, CHUNK // 2 + 1, CHUNK - 1, CHUNK, 2 * CHUNK)


@pytest.mark.parametrize("lag", LAGS)
def test_normal_numbers_are_independent_at_every_lag(lag):
    """Correlation of values and of squares, and the joint law: the angle of a pair is uniform, to 24 bits and beyond.

    n > 130,000: |r| < 5/√n; χ² of the angle's place between two of 2²⁴ values, in 16 classes, p > 1e-5: a class that comes
    3 % too often is found with power 0.99.
    """
    numbers = Stream(secret(12)).normals(0, 4 * CHUNK)
    first, second = numbers[:-lag], numbers[lag:]
    assert is_unrelated(first, second)
    assert is_unrelated(first**2, second**2)
    assert stats.chisquare(np.bincount(angle_classes(first, second), minlength=16)).pvalue > 1e-5


def angle_classes(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Where the angles of pairs lie between two neighbours of 2²⁴ values, in sixteenths; 1/32 of a turn on."""
    place = np.arctan2(second, first) / (2 * np.pi) * 2**24 + 1 / 32
    return np.floor(16 * (place - np.floor(place))).astype(np.int64)


@pytest.mark.parametrize(("sigma", "least", "most"), [(1.0, 0.98, 0.998), (7.46, 0.58, 0.68)])
def test_a_guessed_pair_of_rows_is_told_by_ideal_noises_likelihood_and_no_better(sigma, least, most):
    """The analyst has the map (an anchor from a colluder, no anchor noise) and holds two guesses of a pair of rows.

    Rows 256 apart have numbers half a chunk apart. The attack adds to the likelihood ratio how many of the supposed noise's
    angles are close to one of 2²⁴ values, as Box–Muller pairs of few bits would have. Ideal noise gives an AUC of
    Φ(Δ/(σ√2)): 0.99 at σ = 1, and 0.62 at σ = 7.46
    (1,024 pairs, standard error 0.015; an attack that reaches 0.72 is always found).
    """
    h, n, rng = 128, 1024, np.random.default_rng(0)
    rows = 0.15 * rng.standard_normal((2 * n, h))
    other = rows + 3.32 / np.sqrt(2 * h) * np.sign(rng.standard_normal(rows.shape))
    secret_map = SecretMap.derive(secret(21), n_components=h)
    mapped = map_rows(rows, secret_map, precision="float32")
    uploaded = add_noise(mapped, sigma, Stream(secret(22)), precision="float32")

    def score(guess: np.ndarray) -> np.ndarray:
        noise = (uploaded - secret_map.apply(guess)).reshape(4, 2, n // 4, h) / sigma
        first, second = noise[:, 0], noise[:, 1]
        close = off_the_angles(first, second) < 2 * np.pi / 2**24 / 8
        is_predicted = close.sum(axis=-1) > 0.25 * h + 5 * np.sqrt(0.19 * h)
        return -0.5 * (first**2 + second**2).sum(axis=-1).ravel() + 1e3 * is_predicted.ravel()

    right = score(rows) - score(other)
    assert least <= np.mean(right > -right[::-1]) <= most


def off_the_angles(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """How far the angles of pairs are from the closest of 2²⁴ angles."""
    step = np.float32(2 * np.pi * 2.0**-24)
    closest = np.rint(np.mod(np.arctan2(second, first), 2 * np.pi) / (2 * np.pi) * 2**24)
    candidates = (closest[..., None] + np.arange(-2, 3)).astype(np.float32) * step
    off = second[..., None] * np.cos(candidates) - first[..., None] * np.sin(candidates)
    return np.abs(off).min(axis=-1) / np.hypot(first, second)


@given(start=st.integers(0, 200_000), count=st.integers(0, 70_000))
def test_any_stretch_of_a_stream_is_that_of_the_whole(start, count):
    whole = Stream(secret(13)).normals(0, start + count)
    assert np.array_equal(Stream(secret(13)).normals(start, count), whole[start:])


@pytest.mark.parametrize("start", [2**16 - 1, 2**16, 2**16 + 1, 2**15, 5 * 2**16 - 3, 2**40])
def test_stretches_meet_at_the_boundaries_of_chunks(start):
    stream = Stream(secret(14))
    assert np.array_equal(
        np.concatenate([stream.normals(start, 3), stream.normals(start + 3, 4)]), stream.normals(start, 7)
    )
    assert np.unique(stream.normals(start, 7)).size == 7


def test_orders_are_uniform():
    """All 24 orders of 4, 12,000 draws: χ² with p > 1e-4; an order that comes 16 % too often is found (power 0.99)."""
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for k in range(12_000):
        counts[tuple(Stream(secret(k)).permutation(4).tolist())] += 1
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


def test_long_orders_are_orders_and_leave_few_in_place():
    order = Stream(secret(15)).permutation(2**20 + 5)  # longer than the words drawn at once
    words = np.concatenate([Stream(secret(15)).words(0, 2**20), Stream(secret(15)).words(1, 5)])
    assert np.array_equal(order, np.argsort(words))
    assert np.array_equal(np.sort(order), np.arange(order.size))
    assert np.count_nonzero(order == np.arange(order.size)) < 12  # one on average
    assert abs(stats.spearmanr(order[:20_000], np.arange(20_000)).statistic) < 5 / np.sqrt(20_000)


def test_a_rows_place_is_uniform_over_studies(perturbation):
    """Where a row stands in the bundle says nothing; 3,000 studies, the first and last of 10 rows.

    χ² with p > 1e-4; a place that comes a fifth too often is found (power 0.97).
    """
    places = np.array([replace(perturbation, study=draft(k)).order(10, DIGEST)[[0, 9]] for k in range(3000)])
    for column in places.T:
        assert stats.chisquare(np.bincount(column, minlength=10)).pvalue > 1e-4


def test_secret_maps_are_rigid_and_haar():
    """O is orthogonal; over 1,500 maps det is ±1 evenly, and tr O has mean 0 and variance 1, as Haar's has.

    Within 4.5 standard deviations of the mean, 5.5 of the variance, and p > 1e-4 for the determinant.
    """
    n, traces, signs = 1500, [], []
    for k in range(n):
        images = SecretMap.derive(secret(k), n_components=2).apply(np.vstack([np.eye(2), np.zeros(2)]))
        O = images[:2] - images[2]
        assert np.abs(O.T @ O - np.eye(2)).max() < 1e-12
        traces.append(np.trace(O))
        signs.append(np.linalg.det(O) > 0)
    assert abs(np.mean(traces)) < 4.5 / np.sqrt(n)
    assert abs(np.var(traces) - 1) < 5.5 * np.sqrt(2 / n)
    assert stats.binomtest(int(np.sum(signs)), n).pvalue > 1e-4
