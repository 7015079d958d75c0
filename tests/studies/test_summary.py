"""A finished study in a few figures and words: the page and the terminal say the same, and neither says too much."""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from mooring_studies.cli.output import say_summary
from mooring_studies.comparison.results import Results
from mooring_studies.figures.figure_file import Figure
from mooring_studies.page import render_study
from mooring_studies.settings.spec import STUDIES, read_spec
from mooring_studies.storage.finished import Finished
from mooring_studies.summary import between, control_columns, joining_pays, noisy_columns, summarised
from rich.console import Console

Row = dict[str, Any]
BASE: Row = {"deployment": 0, "n_participants": 10, "draw": 0}
COMPARED = {
    "kind": "result",
    "section": "5",
    "says": "a share",
    "paper_text": "99 %",
    "difference_text": "",
    "note": "",
}


def control(method: str, score: float, **more: Any) -> Row:
    return BASE | {"method": method, "balanced_accuracy": score, "balanced_accuracy_clean": score} | more


def face_rows() -> list[Row]:
    """Two of three noisy draws are attacked fully; the auditor loses what a direct match finds."""
    noisy = BASE | {"method": "aa-i-gdp-anchor-noise", "balanced_accuracy": 0.7, "balanced_accuracy_clean": 0.75}
    full = {"strongest_attacks": True, "linkage:procrustes": 0.1, "match:procrustes": 0.2}
    return [
        *(control(method, 0.82) for method in ("c-gdp", "aa-i-gdp", "i-gdp", "pooled-raw")),
        control("local-only", 0.6),
        noisy | full | {"linkage:moments": 0.18, "match:moments": 1.0},
        noisy | full | {"draw": 1, "linkage:moments": 0.85, "match:moments": 0.998},
        noisy | {"draw": 2, "strongest_attacks": False, "linkage:procrustes": 0.1, "match:procrustes": 0.1},
    ]


def table_rows(deployments: int = 1) -> list[Row]:
    """By everybody's rows all four noisy draws beat training alone; by participants' own rows one does."""
    noisy = BASE | {"method": "aa-i-gdp-data-noise", "balanced_accuracy_clean": 0.78, "match:moments": 0.45}
    rows = [
        control("aa-i-gdp", 0.8),
        control("local-only", 0.647),
        BASE | {"method": "local-own", "auc_own_clean": 0.85},
        *(noisy | {"draw": k, "auc_own_clean": 0.84 + 0.02 * (k == 3)} for k in range(4)),
    ]
    return [row | {"deployment": k} for k in range(deployments) for row in rows]


def page_of(
    study: str, rows: Sequence[Row], *, figures: Sequence[Figure] = (), compared: Sequence[Any] = (), **facts: Any
) -> str:
    told = {"study": study, "spec": read_spec(study).as_dict()} | facts
    return render_study(Finished(Results.from_rows(rows), told, None), figures, compared)


def terminal_of(study: str, rows: Sequence[Row], *, notes: Sequence[str] = (), width: int = 200) -> str:
    results = Results.from_rows(rows)
    better, of = joining_pays(results)
    result = {
        "study": study,
        "quick": False,
        "page": "index.html",
        "results": "results.parquet",
        "notes": list(notes),
        "draws_that_beat_training_alone": {"better": better, "of": of},
        "sizes": summarised(results),
        "comparisons": [],
    }
    out = io.StringIO()
    say_summary(Console(file=out, width=width), result)
    return " ".join(out.getvalue().split())


def table_after(page: str, words: str) -> list[list[str]]:
    """The cells of the first table after some words, head first."""
    table = page[page.index(words) :].partition("</table>")[0]
    lines = re.findall(r"<tr[^>]*>(.*?)</tr>", table)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in lines]


# Whether joining pays


@pytest.mark.parametrize("told", [page_of, terminal_of])
def test_counts_of_draws_that_beat_training_alone_name_their_measure(told: Any) -> None:
    words = told("hospitals", table_rows()).replace("&#x27;", "'")
    assert (
        "1 of 4 noisy draws beat training alone, by area under the ROC curve on participants' own rows, against their own "
        "models there (the tables score everybody's rows instead); new rows carry no noise." in words
    )
    assert "Over all deployments" not in words
    words = told("celeba", face_rows()).replace("&#x27;", "'")
    assert (
        "3 of 3 noisy draws beat training alone, by balanced accuracy on everybody's test rows, against local only"
        in words
    )
    assert "Over all deployments, 2 of 8 noisy draws beat" in told("hospitals", table_rows(deployments=2))


def test_the_measure_is_among_the_figures_of_every_size() -> None:
    (size,) = summarised(Results.from_rows(table_rows(deployments=2)))
    assert size["deployments"] == 2
    assert (size["training_alone"]["method"], size["training_alone"]["score"]) == ("local-own", "auc_own_clean")
    assert size["training_alone"]["reaches"] == pytest.approx(85)
    (size,) = summarised(Results.from_rows(face_rows()))
    assert (size["training_alone"]["method"], size["training_alone"]["score"]) == (
        "local-only",
        "balanced_accuracy_clean",
    )
    (size,) = summarised(Results.from_rows(face_rows()[:1]))
    assert size["training_alone"] is None


# Leakage


def test_what_is_matched_directly_stands_beside_what_is_linked() -> None:
    (size,) = summarised(Results.from_rows(face_rows()))
    (one,) = size["noisy"]
    assert (one["linked_least"], one["linked_most"]) == (pytest.approx(18), pytest.approx(85))
    assert (one["matched_least"], one["matched_most"]) == (pytest.approx(99.8), pytest.approx(100))
    assert (one["draws"], one["attacked_fully"]) == (3, 2)
    head, line = table_after(page_of("celeba", face_rows()), "With noise, in the first deployment")
    cells = dict(zip(head, line, strict=True))
    assert (cells["it links"], cells["matched directly"]) == ("18 to 85 %", "100 %")
    assert (cells["draws"], cells["attacked fully"]) == ("3", "2")
    assert "2 of 3 moments 18 to 85 % 100 %" in terminal_of("celeba", face_rows())


def test_where_nothing_is_linked_through_an_auditor_only_the_match_is_shown() -> None:
    page, terminal = page_of("hospitals", table_rows()), terminal_of("hospitals", table_rows())
    head, line = table_after(page, "With noise, in the first deployment")
    cells = dict(zip(head, line, strict=True))
    assert (cells["attacked fully"], cells["matched directly"]) == ("4", "45 %")
    for words in (page, terminal):
        assert "it links" not in words.lower()
        assert "through an auditor" not in words
        assert "‘Matched directly’: how often" in words


@pytest.mark.parametrize("told", [page_of, terminal_of])
def test_words_fit_galleries_of_other_identities_and_the_first_deployment(told: Any) -> None:
    words = told("celeba", face_rows())
    assert "look-alikes" not in words
    assert "the true one of ten candidates through an auditor" in words
    assert "over the draws that were attacked fully, in the first deployment; chance 10 %" in words
    assert "over all draws" not in words


@pytest.mark.parametrize("told", [page_of, terminal_of])
def test_of_images_it_is_said_why_pooled_raw_may_equal_c_gdp(told: Any) -> None:
    why = "Pooled raw is the best of three ways of scaling the rows, one of which is C-GDP"
    assert why in told("celeba", face_rows())
    assert why not in told("celeba", [row for row in face_rows() if row["method"] != "pooled-raw"])
    assert why not in told("hospitals", [*table_rows(), control("c-gdp", 0.8), control("pooled-raw", 0.8)])


# Columns without numbers


def test_columns_without_a_number_are_left_out() -> None:
    rows = table_rows()
    page, terminal = page_of("landscape", rows), terminal_of("landscape", rows)
    assert table_after(page, "Balanced accuracy without noise")[0] == ["AA-I-GDP", "local only"]
    assert ", beside what a participant has alone:" in page
    for words in (page, terminal):
        assert "pooled raw" not in words
        assert "C-GDP" not in words
    more = [*rows, control("pooled-raw", 0.9)]
    assert table_after(page_of("landscape", more), "Balanced accuracy")[0] == ["AA-I-GDP", "local only", "pooled raw"]
    assert "has alone and what pooling raw rows would give:" in page_of("landscape", more)
    assert "pooled raw: one model on all rows, unprotected" in terminal_of("landscape", more)


def test_a_column_with_some_numbers_has_dashes_for_the_others() -> None:
    sizes = summarised(Results.from_rows([control("c-gdp", 0.9), control("i-gdp", 0.5, n_participants=20)]))
    assert control_columns(sizes) == {"C-GDP": ["90.0 %", "–"], "I-GDP": ["–", "50.0 %"]}


def test_without_attacks_there_are_no_columns_and_no_words_of_them() -> None:
    rows = [{name: value for name, value in row.items() if ":" not in name} for row in table_rows()]
    (size,) = summarised(Results.from_rows(rows))
    assert list(noisy_columns(size["noisy"])) == ["noise", "draws", "as deployed"]
    page = page_of("hospitals", rows)
    for words in ("strongest most often", "matched directly", "chance 10 %"):
        assert words not in page.lower()


# Small words


def test_a_range_is_written_only_where_its_ends_differ_as_printed() -> None:
    assert between(99.4, 99.6) == "99 to 100 %"
    assert between(99.6, 100.0) == "100 %"
    texts = ("100.0 to 100.0 % (2 of 5)", "1 to 10 %", "100.0 to 100.0")
    compared = [
        COMPARED | {"large": False, "ours_text": f"ours {k}", "spread_text": text} for k, text in enumerate(texts)
    ]
    lines = table_after(page_of("celeba", face_rows(), compared=compared), "<h3>Results")
    place = lines[0].index("over deployments")
    assert [line[place] for line in lines[1:]] == ["100.0 % (2 of 5)", "1 to 10 %", "100.0"]


@pytest.mark.parametrize(("title", "shown"), [("Who gains", "Who gains."), ("Alone?", "Alone?"), ("Done.", "Done.")])
def test_a_caption_has_one_mark_at_its_end(title: str, shown: str, tmp_path: Path) -> None:
    path = tmp_path / "one.svg"
    path.write_text("<svg/>")
    page = page_of("celeba", face_rows(), figures=[Figure("one", path, title, "A caption.")])
    assert f"<b>{shown}</b> A caption." in page


def test_one_of_something_is_not_spoken_of_as_many() -> None:
    assert "1 note on how it was done is on the page" in terminal_of("celeba", face_rows(), notes=["one"])
    assert "2 notes on how it was done are on the page" in terminal_of("celeba", face_rows(), notes=["one", "two"])
    many = [control("c-gdp", 0.9, n_participants=p) for p in range(2, 15)]
    assert "<p>1 more size is in the figures.</p>" in page_of("participants", many)
    assert "1 more line is on the page or in its figures" in terminal_of("participants", many)
    assert "<p>2 more sizes are in the figures.</p>" in page_of(
        "participants", [*many, control("c-gdp", 0.9, n_participants=99)]
    )


def test_in_a_narrow_terminal_no_word_of_several_sizes_is_cut() -> None:
    rows = [row | {"n_participants": p, "identities_each": 98} for p in (10, 20) for row in face_rows()]
    for width in (80, 100, 200):
        printed = terminal_of("participants", rows, width=width)
        assert "…" not in printed
        assert "100 %" in printed
    assert "20 participants, 98 identities each: anchor noise 75.0 % 2 of 3 moments 18 to 85 % 100 %" in printed


# Facts and settings


def test_facts_are_whole_and_readable_or_left_to_the_file() -> None:
    names = [f"column number {k}" for k in range(40)]
    page = page_of(
        "hospitals",
        table_rows(),
        parts=[{"deployment": 0, "rms": 0.5}],
        attacks_not_run={"lattice": {"did not apply": 5}},
        columns=names,
        phase_transition={"2": 0.0378, "5": 0.0468},
    )
    facts = dict(table_after(page, "<h2>Facts</h2>")[1:])
    assert facts == {"study": "hospitals", "columns": ", ".join(names), "phase_transition": "2: 0.0378, 5: 0.0468"}
    assert "Also in facts.json: parts, attacks_not_run." in page
    assert "…" not in page
    assert "{" not in re.sub(r"<style>.*?</style>", "", page, flags=re.S)


def settings_of(study: str) -> dict[str, str]:
    return dict(table_after(page_of(study, face_rows()), "All settings")[1:])


def test_settings_are_those_that_the_kind_of_study_uses() -> None:
    shown = {study: settings_of(study) for study in STUDIES}
    sections = {study: {name.partition(".")[0] for name in found if "." in name} for study, found in shown.items()}
    images = {"data", "network", "noise", "attacks", "solver"}
    assert sections == {
        "mnist": images | {"auditor"},
        "celeba": images,
        "participants": images,
        "hospitals": {"options"},
        "census": {"options"},
        "landscape": {"options"},
    }
    assert all(
        ("extra_draws" in found) == (study in ("mnist", "celeba", "participants")) for study, found in shown.items()
    )
    assert {name for name in shown["mnist"] if name.endswith(("n_train", "n_test"))} == {"data.n_train", "data.n_test"}
    assert not [name for name in shown["celeba"] if name.endswith(("n_train", "n_test"))]
    assert "data.identities_each" not in shown["mnist"]  # empty
    assert "noise.data" not in shown["participants"]
    assert shown["participants"]["data.identities_each"] == "50, 19; 10, 98"
    assert shown["hospitals"]["options.anchor_noise"] == "0.02, 0.05, 0.1, 0.2, 0.3, 0.5"
    assert shown["celeba"]["noise.data"] == (
        "count: 100, low: 0, high: 1.5, unit: absolute; count: 100, low: 1.5, high: 3, unit: absolute"
    )
    assert shown["celeba"]["quick"] == "no"


def test_facts_without_settings_are_shown() -> None:
    facts: Mapping[str, Any] = {"spec": None, "n_train": 5}
    assert table_after(page_of("hospitals", table_rows(), **facts), "<h2>Facts</h2>")[2:] == [["n_train", "5"]]
