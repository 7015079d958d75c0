"""Estimators for scikit-learn users: the contract, and what each promises beyond it."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from mooring import make_anchor
from mooring.estimators import AnchorAligner, PublicProjection, RigidPerturbation


@parametrize_with_checks(
    [
        RigidPerturbation(), RigidPerturbation(data_noise_scale=0.5), PublicProjection(), PublicProjection(1),
        PublicProjection(1, kind="public-svd"), AnchorAligner(),
    ]
)  # fmt: skip
def test_the_contract_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def rows(n: int = 40, m: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, m))


def test_the_perturbation_is_rigid_and_secret_unless_seeded() -> None:
    X = rows()
    first, second = (RigidPerturbation().fit(X) for _ in range(2))
    for each in (first, second):
        Y = each.transform(X)
        assert np.allclose(np.linalg.norm(Y[0] - Y[1]), np.linalg.norm(X[0] - X[1]))
        assert np.allclose(each.inverse_transform(Y), X)
        assert np.allclose(each.upload(X), Y)  # without noise
    assert not np.allclose(first.transform(X), second.transform(X))
    assert not np.allclose(second.fit(X).transform(X), Y)  # a second fit draws another secret
    seeded = [RigidPerturbation(random_state=3).fit(X).transform(X) for _ in range(2)]
    assert np.array_equal(*seeded)


def test_noise_is_in_the_upload_only_and_the_same_for_the_same_rows() -> None:
    X = rows(2000)
    fitted = RigidPerturbation(data_noise_scale=0.3).fit(X)
    noise = fitted.upload(X) - fitted.transform(X)
    assert noise.std() == pytest.approx(0.3, rel=0.05)
    assert np.array_equal(fitted.upload(X), fitted.upload(X.copy()))
    other = fitted.upload(X + 1.0) - fitted.transform(X + 1.0)
    assert abs(np.corrcoef(noise.ravel(), other.ravel())[0, 1]) < 0.05
    fitted.set_params(data_noise_scale=0.6)
    doubled = fitted.upload(X) - fitted.transform(X)  # two scales of one noise would give the rows away
    assert abs(np.corrcoef(noise.ravel(), doubled.ravel())[0, 1]) < 0.05


def test_what_is_printed_holds_no_secret() -> None:
    fitted = RigidPerturbation().fit(rows())
    printed = repr(fitted) + repr(vars(fitted)) + str(fitted) + fitted._repr_html_()
    numbers = [*fitted.secret_.orthogonal.ravel(), *fitted.secret_.translation]
    assert not any(f"{abs(number):.6f}"[:7] in printed for number in numbers)
    assert str(fitted._streams.entropy) not in printed


@pytest.mark.parametrize("kind", ["gaussian", "public-svd"])
def test_a_projection_decodes_what_it_kept(kind: Any) -> None:
    X = rows() @ np.diag([3.0, 2.0, 0.0, 0.0])
    fitted = PublicProjection(2, kind=kind, random_state=0).fit(X)
    kept = fitted.projection_.decode(fitted.projection_.encode(X))
    assert np.allclose(fitted.inverse_transform(fitted.transform(X)), kept)
    if kind == "public-svd":
        assert np.allclose(kept, X)


def test_one_seed_gives_everybody_one_projection() -> None:
    a, b = (PublicProjection(2, random_state=5).fit(rows(seed=k)) for k in range(2))
    assert np.array_equal(a.projection_.matrix, b.projection_.matrix)


def uploads(n_participants: int, noise: float = 0.0) -> tuple[list[RigidPerturbation], list[np.ndarray]]:
    rng = np.random.default_rng(1)
    anchor = make_anchor(16, 4, rng=rng)
    secrets = [RigidPerturbation(random_state=k).fit(anchor) for k in range(n_participants)]
    return secrets, [secret.transform(anchor) + noise * rng.standard_normal(anchor.shape) for secret in secrets]


def test_aligners_bring_everybody_together_and_late_joiners_too() -> None:
    secrets, sent = uploads(4)
    aligners = AnchorAligner.fit_many(sent[:3])
    late = AnchorAligner(template=aligners[0].template_).fit(sent[3])
    X = rows()
    together = [
        aligner.transform(secret.transform(X)) for aligner, secret in zip([*aligners, late], secrets, strict=True)
    ]
    for other in together[1:]:
        assert np.allclose(other, together[0], atol=1e-8)
    assert np.allclose(late.inverse_transform(together[3]), secrets[3].transform(X))
    assert not np.allclose(secrets[0].transform(X), secrets[1].transform(X))


def test_an_aligner_is_rigid_also_with_noise() -> None:
    _, sent = uploads(3, noise=0.1)
    for aligner in AnchorAligner.fit_many(sent):
        assert np.allclose(aligner.map_.orthogonal.T @ aligner.map_.orthogonal, np.eye(4))
        assert clone(aligner).fit(sent[0]).transform(sent[0]).shape == (16, 4)


def test_in_a_pipeline() -> None:
    X = rows(80, 6)
    y = (X[:, 0] > 0).astype(int)
    model = make_pipeline(PublicProjection(5, random_state=0), RigidPerturbation(), LogisticRegression()).fit(X, y)
    assert model.score(X, y) > 0.7


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: RigidPerturbation(data_noise_scale=-1.0).fit(rows()), "data_noise_scale"),
        (lambda: RigidPerturbation(random_state=np.random.default_rng(0)).fit(rows()), "random_state"),  # type: ignore[arg-type]
        (lambda: PublicProjection(2, kind="magic").fit(rows()), "kind"),  # type: ignore[arg-type]
        (lambda: PublicProjection(9).fit(rows()), "n_components"),
        (lambda: AnchorAligner(template=rows(7)).fit(rows()), "anchor_representation"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, what: str, refused: Any) -> None:
    refused(make, what, "", "")
