"""Which parts of a description depend on which settings; sentences differ where a setting is used, not by how much."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mooring.protocol.messages.study import Study
from mooring.protocol.registry import exchange_of
from tests.protocol.sums.support import make_sum_study, with_helpers
from tests.sites import numeric_study
from tests.study_settings import change

ROWS = numeric_study()
AA = "aa-i-gdp"


def parts_of(study: Study) -> dict[str, str]:
    """What pages say, by field, without numbers and names of methods."""
    description = exchange_of(study).describe(study)
    parts = vars(description) | {f"terms.{name}": value for name, value in vars(description.terms).items()}
    title = getattr(getattr(study.mechanism, "described", None), "title", "-")
    del parts["terms"]
    return {name: re.sub(r"\d[\d.,e-]*", "#", str(value).replace(title, "#")) for name, value in parts.items()}


def differing(first: Study, second: Study) -> set[str]:
    """The fields that say other things of two studies."""
    one, other = parts_of(first), parts_of(second)
    return {name for name in one | other if one.get(name) != other.get(name)}


def rows(label: str = "classes", *, sigma: float = 0.0, v: float = 0.0, **changes: Any) -> Study:
    method = {(0, 0): AA, (1, 0): f"{AA}-data-noise", (0, 1): f"{AA}-anchor-noise", (1, 1): f"{AA}-both-noise"}
    noise = {"method": method[sigma > 0, v > 0], "data_noise_scale": sigma, "anchor_noise_scale": v}
    return change(numeric_study(kind=label), **noise, **changes)


def of_sites(p: int) -> Study:
    return replace(rows(), participants=ROWS.participants[:p])


ABOUT_ROWS = {"agreed", "terms.what_leaves", "terms.who_sees", "terms.promises"}
GAUSSIAN = {"projection": "gaussian", "n_components": 3}


@pytest.mark.parametrize(
    ("first", "second", "fields"),
    [
        (rows(), rows(sigma=0.01), {*ABOUT_ROWS, "terms.not_colluding", "has_noisy_rows"}),
        (rows(sigma=0.01), rows(sigma=4.0), set()),
        (rows(), rows(v=0.01), ABOUT_ROWS),
        (rows(v=0.01), rows(v=4.0), set()),
        (rows("none"), rows("number"), {*(ABOUT_ROWS - {"terms.promises"}), "terms.not_colluding", "terms.files"}),
        (rows("number"), rows("classes"), {"terms.who_sees", "terms.measures"}),
        (rows(), rows(**GAUSSIAN), {"agreed", "terms.what_leaves"}),
        (of_sites(3), of_sites(2), set()),
        (of_sites(3), of_sites(4), {"limitations"}),
    ],
    ids=["σ", "more σ", "v", "more v", "label", "classes", "projection", "two or three sites", "three or four sites"],
)
def test_what_is_said_of_rows_depends_on_whether_there_is_noise_a_label_or_a_projection(
    first: Study, second: Study, fields: set[str]
) -> None:
    assert differing(first, second) == fields


PLAIN = rows("none")


@pytest.mark.parametrize(
    ("study", "field", "words"),
    [
        (rows("none", sigma=0.25), "agreed", "σ = 0.25"),
        (rows("none", v=0.125), "agreed", "v = 0.125"),
        (rows("none", **GAUSSIAN), "agreed", "3 mixtures"),
        (rows("number"), "agreed", "Labels travel"),
        (rows("none", sigma=0.25), "terms.what_leaves", "scale 0.25"),
        (rows("none", v=0.125), "terms.what_leaves", "scale 0.125"),
        (rows("none", **GAUSSIAN), "terms.what_leaves", "3 mixtures"),
        (rows("number"), "terms.what_leaves", "label 'y'"),
        (rows("number"), "terms.who_sees", "label of every row"),
        (rows("number"), "terms.who_sees", "the model"),
        (rows("classes"), "terms.who_sees", "rows of each class"),
        (rows("none", v=0.125), "terms.who_sees", "approximately"),
        (rows("none", sigma=0.25), "terms.who_sees", "noise on rows stays"),
        (rows("number"), "terms.not_colluding", "every label"),
        (rows("number"), "terms.files", "training"),
        (rows("classes"), "terms.measures", "but fewer than 3,"),
        (rows("none", sigma=0.25), "terms.promises", "makes this harder"),
        (rows("none", v=0.125), "terms.promises", "Noise on the anchor"),
    ],
)
def test_noise_labels_and_projections_are_stated_of_studies_that_have_them(
    study: Study, field: str, words: str
) -> None:
    def said(of: Study) -> bool:
        description = exchange_of(of).describe(of)
        parts = vars(description) | {f"terms.{name}": value for name, value in vars(description.terms).items()}
        return words in str(parts[field])

    assert (said(study), said(PLAIN)) == (True, False)


def test_what_is_lost_without_noise_on_rows_is_said_where_there_is_none() -> None:
    texts = [str(vars(exchange_of(study).describe(study).terms)) for study in (PLAIN, rows("none", sigma=0.25))]
    for words in ("7 rows of a participant", "exact image", "no noise is added to the rows", "nothing else protects"):
        assert [words in text for text in texts] == [True, False]
    assert [exchange_of(study).describe(study).terms.roles for study in (PLAIN, replace(PLAIN, participants=()))] == [
        {"site-0": "makes the anchor"},
        {},
    ]
    exactly = [str(exchange_of(study).describe(study).terms.who_sees) for study in (PLAIN, rows("none", v=0.125))]
    assert ["exactly" in text for text in exactly] == [True, False]


GUARANTEED = {"headlines", "guarantee", "terms.promises"}
OF_PERSONS = {*GUARANTEED, "unit", "terms.not_covered", "terms.local_columns"}
OF_COLLUDERS = {*GUARANTEED, "terms.what_leaves", "terms.not_colluding"}
OF_NOISE = {*OF_COLLUDERS, "agreed", "promise", "caveat", "terms.who_sees", "terms.not_covered"}
BY_PERSON = {"person": "patient"}


@pytest.mark.parametrize(
    ("first", "second", "fields"),
    [
        ({"epsilon": None}, {}, OF_NOISE),
        ({"epsilon": 0.5}, {"epsilon": 4.0}, set()),
        ({}, BY_PERSON, OF_PERSONS),
        (BY_PERSON, {**BY_PERSON, "rows_per_person": 2}, set()),
        (BY_PERSON, {**BY_PERSON, "rows_per_person": "mean"}, {"headlines", "guarantee", "terms.promises"}),
        ({}, {"n_colluders": 2}, OF_COLLUDERS),
        ({}, {"helpers": 2}, {*OF_COLLUDERS, "agreed", "terms.roles"}),
    ],
    ids=["noise", "more noise", "persons", "two rows", "any rows", "colluders", "helpers"],
)
def test_what_is_said_of_sums_depends_on_noise_persons_and_combiners(
    first: dict[str, Any], second: dict[str, Any], fields: set[str], tmp_path: Path
) -> None:
    given = make_sum_study(tmp_path, 4, least_rows=40)

    def study(helpers: int = 0, **settings: Any) -> Study:
        with_them = with_helpers(given, helpers)[0].study if helpers else given.study
        return change(with_them, **settings)

    assert differing(study(**first), study(**second)) == fields
