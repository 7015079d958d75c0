"""A study of pictures of three classes sums the rows of each class on their own, from the declaration to a prediction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from mooring.errors import InputError
from mooring.learners.class_sums import ClassSums
from mooring.learners.models import QuadraticFunction
from mooring.mechanisms.sums.class_moments import ClassLayout
from mooring.mechanisms.sums.guarantee import calibrate_multiplier
from mooring.mechanisms.sums.settings import SumSettings
from mooring.protocol.analyst.role import Analyst
from mooring.protocol.messages.model import read_model
from mooring.protocol.participant.prediction import predict_rows
from mooring.protocol.registry import exchange_of
from mooring.protocol.sums.analyst.total import open_total
from mooring.protocol.sums.features import study_features
from mooring.protocol.sums.result import specify_sum_model
from mooring.protocol.sums.scheme import sum_scheme
from mooring.tables.schema import Column, Label
from tests.protocol.sums.support import SumStudy, make_sum_study

N, WORDS = 300, ("left", "right", "top")


def write_pictures(path: Path, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A table of pictures of 4 by 4 that are darker on one side, the encoded rows, and their classes."""
    rng = np.random.default_rng(seed)
    rows, codes = rng.uniform(0, 1, (N, 16)), np.arange(N) % 3
    pictures = rows.reshape(N, 4, 4)
    for k, part in enumerate((np.s_[:, :, :2], np.s_[:, :, 2:], np.s_[:, :2, :])):
        chosen = pictures[codes == k]
        chosen[part] *= 0.3
        pictures[codes == k] = chosen
    rows = pictures.reshape(N, 16).round(3)
    lines = [",".join(map(str, [*row, WORDS[code]])) for row, code in zip(rows, codes, strict=True)]
    path.write_text("\n".join([",".join([*(f"x{k}" for k in range(16)), "y"]), *lines]) + "\n")
    return 2 * rows - 1, codes


def picture_study(folder: Path, **settings: Any) -> SumStudy:
    """A study of three participants with pictures."""
    given = make_sum_study(folder, 3, epsilon=8.0)
    entries = {"features": "pictures", "n_features": 12, "expected_rows": 3 * N} | settings
    columns, label = tuple(Column(f"x{k}", "number", 0, 1) for k in range(16)), Label("y", "classes", WORDS)
    mechanism = replace(cast(SumSettings, given.study.mechanism), **entries)
    return replace(
        given, study=replace(given.study, columns=columns, label=label, image_shape=(4, 4), mechanism=mechanism)
    )


def test_pictures_are_summed_by_class_from_the_study_to_the_prediction(tmp_path: Path) -> None:
    given = picture_study(tmp_path)
    parts = [write_pictures(tmp_path / f"pictures-{i}.csv", i) for i in range(3)]
    for i in range(3):
        given.share(i, data=tmp_path / f"pictures-{i}.csv")
    given.close()
    for i in range(3):
        given.combine(i)
    scheme, total = sum_scheme(given.study), open_total(given.study, given.work, given.inbox).content
    assert isinstance(scheme.layout, ClassLayout)
    assert isinstance(total, ClassSums)
    deviation = calibrate_multiplier(8.0, 1e-5) * np.sqrt(3 / (scheme.quorum - 1))
    assert total.noise_scale == pytest.approx(deviation, rel=1e-3)
    phi, codes = study_features(given.study).apply(np.concatenate([rows for rows, _ in parts])), np.tile(parts[0][1], 3)
    expected = np.array([phi[codes == k].T @ phi[codes == k] for k in range(3)])
    errors = (total.products - expected)[:, *np.triu_indices(13, 1)]
    assert errors.std() == pytest.approx(deviation / np.sqrt(2), rel=0.2)

    exchange = exchange_of(given.study)
    assert exchange.list_learners(given.study)[:2] == ("auto", "quadratic")
    with pytest.raises(InputError):
        exchange.require_learner(given.study, "svm")
    lab = Analyst(given.study, given.work, given.analyst.signing_key)
    training = lab.train(shares=given.inbox)
    assert training.learner == "quadratic"
    assert [finding.kind for finding in training.list_findings()] == ["unchecked shares"]  # and not "one class"
    lab.deliver(tmp_path / "results")
    write_pictures(new := tmp_path / "new.csv", 7)
    predicted = predict_rows(given.vaults[2], given.study, new, result=tmp_path / "results" / "p2")
    assert np.mean(predicted.values == np.array(WORDS)[np.arange(N) % 3]) > 0.8
    model, _ = read_model(given.work / "training.safetensors", lambda name: specify_sum_model(given.study, name))
    assert isinstance(model.function, QuadraticFunction)
    assert lab.train(shares=given.inbox, learner="least-squares").learner == "least-squares"


def test_a_study_shows_that_classes_are_summed_on_their_own(tmp_path: Path) -> None:
    study = picture_study(tmp_path).study
    rows = exchange_of(study).list_shared(study)
    assert rows[1][1:] == (f"{3 * 13 * 14 // 2:,}", "1", "100%")
    assert any("class by class" in words for words in exchange_of(study).describe(study).agreed)
    pooled = picture_study(tmp_path / "pooled", expected_rows=0).study
    assert len(exchange_of(pooled).list_shared(pooled)) == 3
    assert "quadratic" not in exchange_of(pooled).list_learners(pooled)
