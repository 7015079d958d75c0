"""Membership, registers, rosters and holders by likelihood, against formulas written out and against drawing lots."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from mooring.metrics import Membership
from mooring.metrics.likelihood import Densities, RebuiltRows, RegisterSearch, name_holders

WIDTH = 12


def population(rng: np.random.Generator, n_classes: int = 2) -> Densities:
    mixing = rng.standard_normal((n_classes, WIDTH, WIDTH)) / 3 + np.eye(WIDTH)
    return Densities(2 * rng.standard_normal((n_classes, WIDTH)), mixing @ mixing.transpose(0, 2, 1))


def draw(clean: Densities, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    factors = np.linalg.cholesky(clean.covariances)[codes]
    return clean.means[codes] + np.einsum("nij,nj->ni", factors, rng.standard_normal((codes.size, WIDTH)))


def rebuild(
    rows: np.ndarray, codes: np.ndarray, clean: Densities, scale: float, rng: np.random.Generator
) -> RebuiltRows:
    error = scale**2 * np.eye(WIDTH)
    seen = rows + scale * rng.standard_normal(rows.shape)
    return RebuiltRows.of(seen, codes, error=error, densities=Densities(clean.means, clean.covariances + error))


def test_scores_are_the_likelihood_ratio_of_the_formula(rng: np.random.Generator) -> None:
    clean, codes = population(rng), np.array([0, 1, 1, 0, 1])
    rows = draw(clean, codes, rng)
    error = 0.5 * np.eye(WIDTH) + 0.1
    noisy = Densities(clean.means, clean.covariances + error)
    upload = RebuiltRows.of(rows, codes, error=error, densities=noisy)
    candidates, kinds = rng.standard_normal((3, WIDTH)), np.array([1, 0, 2])
    candidates[0] = rows[1] + 0.05  # as near as can be
    expected = []
    for x, k in zip(candidates[:2], kinds[:2], strict=True):
        of_class = rows[codes == k]
        near = multivariate_normal(x, error).logpdf(of_class)
        far = multivariate_normal(noisy.means[k], noisy.covariances[k]).logpdf(of_class)
        expected.append(logsumexp(near - far) - np.log(len(of_class)))
    assert upload.score_members(candidates, kinds) == pytest.approx([*expected, -np.inf])


def test_likelihood_tells_members_where_the_nearest_row_does_not(rng: np.random.Generator) -> None:
    clean, memberships = population(rng), {}
    codes, others = rng.integers(0, 2, 300), rng.integers(0, 2, 2000)
    rows, outside = draw(clean, codes, rng), draw(clean, others, rng)
    for scale in (1.5, 300.0):
        upload = rebuild(rows, codes, clean, scale, rng)
        scores = (upload.score_members(rows, codes), upload.score_members(outside, others))
        memberships[scale] = Membership(*scores)
        seen = upload.whitened @ np.linalg.inv(upload.whitening)
        nearest = [-np.linalg.norm(some_rows[:, None] - seen, axis=2).min(axis=1) for some_rows in (rows, outside)]
        if scale == 1.5:
            rates = [
                membership.true_positive_rate(0.01)[0] for membership in (memberships[scale], Membership(*nearest))
            ]
            assert rates[0] > 2 * rates[1]
    assert memberships[1.5].auc > 0.65
    assert 0.5 in memberships[300.0].auc_interval()


def test_a_register_names_its_likeliest_record_and_how_sure_it_is(rng: np.random.Generator) -> None:
    clean, codes = population(rng, 1), np.zeros(4, dtype=int)
    rows = draw(clean, codes, rng)
    upload = rebuild(rows, codes, clean, 1e-3, rng)
    register = np.concatenate([rows[[1, 0]], rows[[3, 3, 2]]])
    kinds = np.array([0, 0, 0, 0, 5])  # the record of the third row is of another class there
    register_search = upload.search_register(register, kinds, np.array([1, 0, 4, 3]))
    assert register_search.n_better.tolist() == [0, 0, 4, 0]
    assert register_search.n_tied.tolist() == [0, 0, 0, 1]
    assert register_search.n_others.tolist() == [3, 3, 4, 3]
    assert register_search.is_right[:3].tolist() == [True, True, False]
    assert register_search.posterior == pytest.approx([1, 1, register_search.posterior[2], 0.5])
    assert register_search.first_ranks().tolist() == [1, 1, 0, 0.5]


def test_a_smaller_register_is_a_drawing_of_lots(rng: np.random.Generator) -> None:
    n_better, n_others, size = np.array([0.0, 1, 3, 30]), np.full(4, 30.0), 11
    register_search = RegisterSearch(n_better, np.zeros(4), n_others, np.ones(4), np.ones(4, dtype=bool))
    drawn = np.argsort(rng.random((20_000, 30)), axis=1)[:, : size - 1]
    lots = [(drawn >= k).all(axis=1).mean() for k in n_better]
    assert register_search.first_ranks(size) == pytest.approx(lots, abs=0.015)
    assert register_search.first_ranks(1000).tolist() == register_search.first_ranks().tolist()
    pair = RegisterSearch(np.zeros(1), np.ones(1), np.ones(1), np.ones(1), np.ones(1, dtype=bool))
    assert pair.first_ranks(2).tolist() == [0.5]
    tied = replace(register_search, n_tied=np.full(4, 3.0))  # of ten drawn of 30, one is tied
    assert tied.first_ranks(size) == pytest.approx(register_search.first_ranks(size) / 2)


def test_a_roster_and_a_record_among_uploads_tell_more_than_a_register(rng: np.random.Generator) -> None:
    clean, codes = population(rng, 3), np.arange(60) % 3
    uploads = []
    for _ in range(4):
        rows = draw(clean, codes, rng)
        uploads.append((rows, rebuild(rows, codes, clean, 1.2, rng)))
    rows, upload = uploads[2]
    first = upload.search_register(rows, codes, np.arange(60)).first_ranks().mean()
    asked, chosen = upload.assign_roster(rows)
    assert sorted(asked) == sorted(chosen) == list(range(60))
    assert (codes[asked] == codes[chosen]).all()
    assert (asked == chosen).mean() > first > 0.3
    held = name_holders([upload for _, upload in uploads], rows, codes) == 2
    outside = name_holders([upload for _, upload in uploads], draw(clean, codes, rng), codes) == 2
    cut = [[p[:n] if len(p) == 60 else p for p in vars(upload).values()] for _, upload in uploads for n in (7, 60)]
    some = [RebuiltRows(*parts) for parts in cut]
    for x, k, holder in zip(rows, codes, name_holders(some, rows, codes), strict=True):
        assert holder == np.argmax([logsumexp(case._ratios(np.flatnonzero(case.codes == k), x[None])) for case in some])
    assert held.mean() > 0.7
    assert outside.mean() < 0.5
    first = RebuiltRows(*(p[codes == 0] if len(p) == 60 else p for p in vars(uploads[1][1]).values()))
    assert (name_holders([first, uploads[1][1]], rows[codes == 1], codes[codes == 1]) == 1).all()  # which has the class


def rows_at(*places: float) -> RebuiltRows:
    """Rebuilt rows of one number and of one class, of which a candidate has log-likelihood ratio −½ (distance)²."""
    rows = np.array(places)[:, None]
    return RebuiltRows(rows, np.eye(1), np.zeros(len(rows), dtype=int), np.zeros(len(rows)))


@pytest.mark.parametrize("own", [0.0, 8.0])
def test_records_tie_whose_ratios_differ_by_a_billionth(own: float) -> None:
    """Relative to 1 + |ratio|. A record that is likelier by more than that ranks before the true one."""
    ratios = -own + 1e-9 * (1 + own) * np.array([-1.2, -0.8, *([] if own == 0 else [0.8, 1.2])])
    register = np.sqrt(-2 * np.array([-own, *ratios]))[:, None]
    search = rows_at(0.0).search_register(register, np.zeros(len(register), dtype=int), np.array([0]))
    assert (search.n_better[0], search.n_tied[0]) == ((0, 1) if own == 0 else (1, 2))


def test_a_roster_of_more_than_a_thousand_rows_of_a_class_is_assigned_in_part() -> None:
    codes = np.r_[np.zeros(1001, dtype=int), 1, 1]
    rows = np.arange(1003.0)[:, None]
    asked, chosen = RebuiltRows(rows, np.eye(1), codes, np.zeros(1003)).assign_roster(rows)
    assert asked.tolist() == chosen.tolist() == [*range(1000), 1001, 1002]


def test_a_record_is_held_by_the_upload_in_which_all_rows_together_make_it_likelier() -> None:
    """One row with a ratio of 0 has a likelihood of 1; two with −0.4 each have 1.34 together, two with −0.8 have 0.90."""
    record, code = np.zeros((1, 1)), np.zeros(1, dtype=int)
    for ratio, holder in ((0.4, 1), (0.8, 0)):
        apart = np.sqrt(2 * ratio)
        assert name_holders([rows_at(0.0), rows_at(apart, -apart)], record, code).tolist() == [holder]
