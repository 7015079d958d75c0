"""One participant's upload, made to harm: nobody else loses a point of its score, whoever it is.

Scores are balanced accuracies on 4,000 rows of each honest participant, against the same study without the bad upload; the
same rows are scored, so that chance moves a difference by some 0.002 (one standard deviation).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from mooring import RigidMap, make_anchor
from mooring.learners import score_value
from mooring.learners.fitting import screening_rows
from mooring.protocol.analyst.intake import collect
from mooring.protocol.messages.model import read_model
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.analyst.alignment import align_bundles
from mooring.protocol.rotation.analyst.alignment_state import AlignmentState
from mooring.protocol.rotation.analyst.outliers import find_disagreeing
from mooring.protocol.rotation.analyst.training import train
from mooring.protocol.rotation.analyst.training_record import Training
from tests.protocol.rotation.support import Site, send
from tests.sites import numeric_study, specifier_of

pytestmark = pytest.mark.usefixtures("fewer_features")

P, H, R, V, N = 5, 8, 32, 0.03, 160
METHODS = ("aa-i-gdp-anchor-noise", "aa-i-gdp")
WEIGHTS = np.array([3.0, -2.0, 2.0, 1.5, -1.0, 1.0, 0.5, 0.0])
Change = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def draw_rows(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows off the centre of the box and wider in some columns than in others, and classes that a line almost parts."""
    rows = np.clip(0.2 + np.linspace(0.15, 0.4, H) * rng.standard_normal((n, H)), -1, 1)
    noisy = (rows - 0.2) @ WEIGHTS + 0.3 * rng.standard_normal(n)
    return rows, (noisy > 0).astype(np.int64)


@cache
def sites_and_test(method: str) -> tuple[Study, tuple[Site, ...], np.ndarray, np.ndarray]:
    study, rng = numeric_study(P, H, R, V, method=method), np.random.default_rng(3)
    anchor, sites = make_anchor(R, H, rng=rng), []
    for _ in range(P):
        rows, labels = draw_rows(N, rng)
        secret = RigidMap.sample(H, rng=rng)
        noisy = np.asarray(secret.apply(anchor)) + study.mechanism.anchor_noise_scale * rng.standard_normal((R, H))
        sites.append(Site(rows, labels, secret, noisy))
    return study, tuple(sites), *draw_rows(4000, rng)


def scale(factor: float) -> Change:
    return lambda centred, rng: factor * centred


def reflect(count: int) -> Change:
    return lambda centred, rng: centred * np.where(np.arange(H) < count, -1, 1)


def narrow(count: int, factor: float = 1e-3) -> Change:
    def change(centred: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        changed = centred * np.where(np.arange(H) < count, factor, 1)
        return np.asarray(changed * np.linalg.norm(centred) / np.linalg.norm(changed))

    return change


def permute(share: float) -> Change:
    def change(centred: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        some = rng.choice(R, int(share * R), replace=False)
        changed = centred.copy()
        changed[some] = centred[rng.permutation(some)]
        return changed - changed.mean(axis=0)

    return change


def lose_direction(centred: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Put a vector that no honest anchor representation holds in place of a direction: the fit is hardly lower."""
    left, values, right = np.linalg.svd(centred, full_matrices=False)
    fresh = rng.standard_normal(R)
    fresh -= fresh.mean() + left @ (left.T @ fresh)
    left[:, 0] = fresh / np.linalg.norm(fresh)
    return np.asarray(left * values @ right)


def take_another_anchor(centred: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return make_anchor(R, H, rng=rng) * np.linalg.norm(centred) / H**0.5


FAMILY: dict[str, Change] = {
    **{f"moved by {x}": (lambda centred, rng, x=x: centred + x) for x in (0.1, 200)},
    **{f"{x} times": scale(x) for x in (0.98, 2)},
    **{f"{k} columns reflected": reflect(k) for k in (1, 4, 8)},
    **{f"{k} columns almost gone": narrow(k) for k in (1, 4)},
    "one column half as long": narrow(1, 0.5),
    **{f"{x} of the rows permuted": permute(x) for x in (0.1, 1)},
    "columns permuted": lambda centred, rng: centred[:, rng.permutation(H)],
    "a direction lost": lose_direction,
    "another anchor": take_another_anchor,
}


def run(method: str, change: Change | None, bad: int) -> tuple[Training | None, AlignmentState, dict[int, float]]:
    """The way of the analyst, with the bad upload or without it, and the scores of the others.

    There is no training where the bad upload was left out before it and everybody has the map of the study without it.
    """
    study, sites, rows, labels = sites_and_test(method)
    with TemporaryDirectory() as name:
        inbox, work = Path(name) / "inbox", Path(name) / "work"
        for who, site in enumerate(sites):
            if who == bad and change is None:
                continue
            if who == bad and change is not None:
                mean = site.anchor_representation.mean(axis=0)
                changed = change(site.anchor_representation - mean, np.random.default_rng([4, bad])) + mean
                site = replace(site, anchor_representation=changed)
            send(study, site, who, inbox)
        taken = collect(study, inbox, work).bundles
        assert {f"site-{who}" for who in range(P) if who != bad} <= {bundle.member.name for bundle in taken}
        space = align_bundles(study, taken, work, certify=False)
        if change is not None and f"site-{bad}" not in space.names:
            _, without, scores = run_without(method, bad)
            for k, _ in enumerate(space.names):
                np.testing.assert_array_equal(space.align_rows(k, np.eye(H)), without.align_rows(k, np.eye(H)))
            return None, space, scores
        training = train(study, work, learner="linear")
        model, _ = read_model(work / "training.safetensors", specifier_of(study))
    scores = {}
    for who in set(range(P)) - {bad}:
        aligned_rows = space.align_rows(space.names.index(f"site-{who}"), np.asarray(sites[who].secret.apply(rows)))
        scores[who] = score_value(labels, model.predict(aligned_rows), kind="classes")
    return training, space, scores


@cache
def run_without(method: str, bad: int) -> tuple[Training | None, AlignmentState, dict[int, float]]:
    return run(method, None, bad)


def cases() -> Iterator[tuple[str, int, str]]:
    """Everything by the first one or the last one; by a bad reference, what intake does not refuse."""
    by_the_last = ("4 columns reflected", "a direction lost")
    yield from ((METHODS[0], P - 1 if name in by_the_last else 0, name) for name in FAMILY)
    yield from ((METHODS[1], 0, name) for name in (*by_the_last, "1 of the rows permuted", "another anchor"))


@pytest.mark.parametrize(("method", "bad", "name"), list(cases()))
def test_a_bad_upload_costs_nobody_a_point(method: str, bad: int, name: str) -> None:
    result, _, scores = run(method, FAMILY[name], bad)
    before = run_without(method, bad)[2]
    assert min(before.values()) > 0.85
    assert max(before[who] - scores[who] for who in scores) < 0.01
    assert result is None or {left for left, _ in result.left_out} <= {f"site-{bad}"}


def shift_labels(rows: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    kept = (labels == 1) | (rng.random(labels.size) < 0.15)
    return rows[kept], labels[kept]


def shift_features(rows: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """By one standard deviation each; labels follow from the shifted rows as everybody's do."""
    rows = np.clip(rows + rows.std(axis=0) * rng.choice([-1, 1], H), -1, 1)
    return rows, ((rows - 0.2) @ WEIGHTS + 0.3 * rng.standard_normal(len(rows)) > 0).astype(np.int64)


def confuse_labels(rows: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rows, np.where(rng.random(labels.size) < 0.25, rng.integers(0, 2, labels.size), labels)


HONEST = {
    "the same": lambda rows, labels, rng: (rows, labels),
    "other shares of classes": shift_labels,
    "other means": shift_features,
    "a wider spread": lambda rows, labels, rng: (np.clip(1.5 * rows, -1, 1), labels),
    "a quarter of labels at random": confuse_labels,
    "fifteen rows": lambda rows, labels, rng: (rows[:15], labels[:15]),
    "one class": lambda rows, labels, rng: (rows[labels == 1], labels[labels == 1]),
}


@pytest.mark.parametrize("name", HONEST)
def test_who_is_honest_but_different_is_not_left_out(name: str) -> None:
    for seed in (0, P - 1):
        rng = np.random.default_rng([seed, 11])
        parts = [draw_rows(N, rng) for _ in range(P)]
        parts[seed] = HONEST[name](*parts[seed], rng)
        owners = np.repeat(np.arange(P), [len(rows) for rows, _ in parts])
        rows, labels = (np.concatenate(each) for each in zip(*parts, strict=True))
        assert find_disagreeing(rows, labels, owners, kind="classes", seed=0).tolist() == []


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_who_has_its_rows_turned_over_is_found_but_not_of_two_nor_by_labels_that_nothing_predicts(kind: str) -> None:
    rng = np.random.default_rng(12)
    rows, labels = draw_rows(P * N, rng)
    if kind == "number":
        labels = rows @ WEIGHTS + rng.standard_normal(len(rows))
    owners = np.arange(len(rows)) % P
    rows[owners == 2] *= -1
    settings = {"kind": kind, "seed": 0}
    assert find_disagreeing(rows, labels, owners, **settings).tolist() == [2]
    two = (owners == 2) | (owners == 3)
    assert find_disagreeing(rows[two], labels[two], owners[two] - 2, **settings).tolist() == []
    assert find_disagreeing(rows, rng.permutation(labels), owners, **settings).tolist() == []


def test_nobody_knows_before_its_upload_which_of_its_rows_are_screened() -> None:
    """By the alignment of everybody's anchors: otherwise wrong labels everywhere else would go unnoticed."""
    first, other = (screening_rows([5000, 250, 250], 0, salt=salt) for salt in ("a" * 64, "b" * 64))
    assert np.intersect1d(first[0], other[0]).size < 100  # of 500, where 50 are expected
    assert min(rows.size for rows in screening_rows([50] * 2000, 0, salt="0")) == 10
