"""What an audit evaluates and how much it does where nobody says so; names of values; settings checked against the rows."""

import inspect
from dataclasses import replace

import numpy as np
import pytest

from mooring.attacks import set_effort
from mooring.audit import AuditDescription, AuditEffort, AuditSettings, Deployment, EvaluationSpec, PointGrid
from mooring.audit.rotation.linkage import make_galleries
from mooring.audit.sums import canaries
from mooring.errors import InputError
from mooring.mechanisms.sums.features.columns import RowFeatures
from mooring.mechanisms.sums.features.pictures import PictureFeatures
from mooring.metrics.intervals import N_RESAMPLES
from mooring.tables import Partition
from tests.raising import raising


def split_rows(n_features: int = 2, test_share: float = 0.25) -> Partition:
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((8, n_features)) for _ in range(3)]
    return Partition.from_parts(rows, [np.arange(8) % 2] * 3, rng=rng, test_share=test_share)


@pytest.mark.parametrize(
    ("names", "scales", "value", "words"),
    [
        ((), (), 2.0, "1 = 2"),
        (("age",), (), 2.5, "age = 2.5"),
        (("age",), ((40.0, 10.0),), 2.5, "age = 65"),
        (("ratio=a=b",), (), 1.0, "ratio = a=b"),
        (("ratio=a=b",), (), 0.0, "ratio other than a=b"),
        (("kind=x",), ((0.5, 0.5),), -1.0, "kind other than x"),
    ],
)
def test_a_value_is_named_in_the_units_of_the_table(
    names: tuple[str, ...], scales: tuple[tuple[float, float], ...], value: float, words: str
) -> None:
    assert EvaluationSpec(feature_names=names, feature_scales=scales).value_name(0, value) == words


def test_at_most_a_thousand_galleries_of_ten_are_compared() -> None:
    for n_rows, n_galleries in ((999, 999), (1001, 1000)):
        built = make_galleries(EvaluationSpec(), np.zeros(n_rows + 50), n_rows, seed=0)
        assert built is not None
        assert built.candidates.shape == (n_galleries, 10)
        assert len(set(built.queries.tolist())) == n_galleries
        assert built.queries.max() < n_rows
    others_of_one_class = np.r_[np.arange(3), np.full(10, 7)]
    assert make_galleries(EvaluationSpec(), others_of_one_class, 3, seed=0) is None


@pytest.mark.definitions
def test_an_audit_resamples_a_fifth_as_often_as_a_single_figure_unless_its_effort_is_another() -> None:
    previous = set_effort(AuditEffort())
    try:
        assert 5 * EvaluationSpec().n_resamples == N_RESAMPLES
        set_effort(AuditEffort(n_resamples=7))
        assert (EvaluationSpec().n_resamples, AuditSettings().effort.n_resamples) == (7, 7)
    finally:
        set_effort(previous)


@pytest.mark.definitions
def test_canaries_run_as_often_as_the_documentation_says_in_audits_and_alone() -> None:
    functions = canaries.audit_epsilon, canaries.audit_pairwise_epsilon
    stated = {inspect.signature(function).parameters["n_runs"].default for function in functions}
    assert {AuditSettings().n_canary_runs, *stated} == {10_000}


@pytest.mark.definitions
def test_a_grid_has_three_of_the_scales_that_a_plan_tries_for_each_noise() -> None:
    grid, effort = PointGrid(), AuditEffort()
    for scales, tried in (
        (grid.anchor_noise_scales, effort.anchor_scales),
        (grid.data_noise_levels, effort.data_levels),
    ):
        places = [tried.index(scale) for scale in scales]
        assert places == list(range(places[0], places[0] + 3))


@pytest.mark.definitions
def test_a_description_of_nothing_counts_nothing() -> None:
    described = dict(vars(AuditDescription()))
    assert not any(described.pop("rows_each"))
    assert {name for name, value in described.items() if value} == {"projection", "noise_unit", "device"}


@pytest.mark.parametrize("name", ["groups", "attribute"])
def test_a_value_is_needed_for_every_record_even_if_only_the_last_is_tested_on(name: str) -> None:
    parts = split_rows()
    last = 1 + max(int(places.max()) for places in (*parts.train_indices, *parts.test_indices))
    for n_values in (last, last - 1):
        settings = AuditSettings(evaluation=replace(EvaluationSpec(), **{name: np.zeros(n_values)}))
        if n_values == last:
            settings.for_data(parts)
        else:
            with raising(InputError, f"evaluation.{name}", expected=str(last), got=str(last - 1)):
                settings.for_data(parts)


@pytest.mark.parametrize(
    ("shape", "is_picture"), [((4, 256), True), ((4, 257), False), ((3, 256), False), ((4, 4, 4), True)]
)
def test_pictures_of_4_to_256_pixels_a_side_have_features_of_their_own(
    shape: tuple[int, ...], is_picture: bool
) -> None:
    deployment = Deployment(split_rows(), AuditSettings(evaluation=EvaluationSpec(image_shape=shape)))
    assert isinstance(deployment.features, PictureFeatures if is_picture else RowFeatures)


@pytest.mark.parametrize(("n_features", "n_components"), [(29, 29), (30, 30), (31, 30)])
def test_a_study_has_thirty_components_if_it_has_as_many_features(n_features: int, n_components: int) -> None:
    assert Deployment(split_rows(n_features)).default_n_components == n_components


def test_there_is_something_to_learn_from_two_classes_and_a_row_to_test_on() -> None:
    parts = split_rows()
    one_class = replace(parts, train_labels=tuple(np.zeros_like(part) for part in parts.train_labels or ()))
    cases = {"classes": parts, None: one_class}
    for kind, given in cases.items():
        assert Deployment(given).label_kind == kind
    assert Deployment(split_rows(test_share=0.0)).label_kind is None
