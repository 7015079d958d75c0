"""A finished study in a few figures and words: the page and the terminal say the same, and neither says too much."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from mooring_studies.cli.output import print_summary
from mooring_studies.comparison.results import Results
from mooring_studies.figures.study_figures import Figure
from mooring_studies.page import describe_study, render_study
from mooring_studies.settings.spec import STUDIES, read_spec
from mooring_studies.storage.store import Finished
from mooring_studies.summary import between, control_columns, joining_pays, noisy_columns, summarised
from rich.console import Console

Row = dict[str, Any]
BASE: Row = {"deployment": 0, "n_participants": 10, "draw": 0}
COMPARED = {
    "kind": "result", "section": "5", "says": "a share", "paper_text": "99 %", "difference_text": "", "note": "",
}  # fmt: skip


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


def shown_of(
    study: str, rows: Sequence[Row], *, figures: Sequence[Figure] = (), compared: Sequence[Any] = (), **facts: Any
) -> dict[str, Any]:
    """What the page shows, once it has been rendered."""
    told = {"study": study, "spec": read_spec(study).as_dict()} | facts
    finished = Finished(Results.from_rows(rows), told, None)
    assert render_study(finished, figures, compared)
    return describe_study(finished, figures, compared)


def terminal_of(study: str, rows: Sequence[Row], *, notes: Sequence[str] = (), width: int = 200) -> str:
    results = Results.from_rows(rows)
    better, of = joining_pays(results)
    result = {
        "study": study, "quick": False, "page": "index.html", "results": "results.parquet", "notes": list(notes),
        "draws_that_beat_training_alone": {"better": better, "of": of}, "sizes": summarised(results),
        "comparisons": [],
    }  # fmt: skip
    out = io.StringIO()
    print_summary(Console(file=out, width=width), result)
    return " ".join(out.getvalue().split())


def cells(table: Mapping[str, Any], line: int = 0) -> dict[str, str]:
    return dict(zip(table["head"], table["rows"][line], strict=True))


# Whether joining pays


@pytest.mark.parametrize(
    ("study", "rows", "count", "measure"),
    [
        ("hospitals", table_rows(), (1, 4), "participants' own rows"),
        ("celeba", face_rows(), (3, 3), "everybody's test rows"),
        ("hospitals", table_rows(deployments=2), (2, 8), "participants' own rows"),
    ],
)
def test_counts_of_draws_that_beat_training_alone_name_their_measure(
    study: str, rows: list[Row], count: tuple[int, int], measure: str
) -> None:
    assert joining_pays(Results.from_rows(rows)) == count
    words = shown_of(study, rows)["summary"]["joining"]
    assert "{} of {}".format(*count) in words
    assert measure in words
    assert ("Over all deployments" in words) == (count == (2, 8))
    assert words in terminal_of(study, rows)


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
    shown = cells(shown_of("celeba", face_rows())["summary"]["noisy"])
    assert (shown["it links"], shown["matched directly"]) == ("18 to 85 %", "100 %")
    assert (shown["draws"], shown["attacked fully"]) == ("3", "2")
    assert "2 of 3 moments 18 to 85 % 100 %" in terminal_of("celeba", face_rows())


def test_where_nothing_is_linked_through_an_auditor_only_the_match_is_shown() -> None:
    noisy = shown_of("hospitals", table_rows())["summary"]["noisy"]
    assert (cells(noisy)["attacked fully"], cells(noisy)["matched directly"]) == ("4", "45 %")
    assert "it links" not in noisy["head"]
    for words in (noisy["note"], terminal_of("hospitals", table_rows())):
        assert "through an auditor" not in words
        assert "‘Matched directly’: how often" in words


def test_of_images_it_is_said_why_pooled_raw_may_equal_c_gdp() -> None:
    def said(study: str, rows: list[Row]) -> bool:
        note = shown_of(study, rows)["summary"]["controls"]["note"]
        assert (note in terminal_of(study, rows)) or not note
        return bool(note)

    assert said("celeba", face_rows())
    assert not said("celeba", [row for row in face_rows() if row["method"] != "pooled-raw"])
    assert not said("hospitals", [*table_rows(), control("c-gdp", 0.8), control("pooled-raw", 0.8)])


# Columns without numbers


def test_columns_without_a_number_are_left_out() -> None:
    rows = table_rows()
    assert shown_of("landscape", rows)["summary"]["controls"]["head"] == ["AA-I-GDP", "local only"]
    assert "pooled raw" not in terminal_of("landscape", rows)
    more = [*rows, control("pooled-raw", 0.9)]
    assert shown_of("landscape", more)["summary"]["controls"]["head"] == ["AA-I-GDP", "local only", "pooled raw"]
    assert "pooled raw: one model on all rows, unprotected" in terminal_of("landscape", more)


def test_a_column_with_some_numbers_has_dashes_for_the_others() -> None:
    rows = [control("c-gdp", 0.9), control("i-gdp", 0.5, n_participants=20), control("c-gdp", 0.1, deployment=1)]
    sizes = summarised(Results.from_rows(rows))  # of the first deployment
    assert control_columns(sizes) == {"C-GDP": ["90.0 %", "–"], "I-GDP": ["–", "50.0 %"]}


def test_without_attacks_there_are_no_columns_and_no_words_of_them() -> None:
    rows = [{name: value for name, value in row.items() if ":" not in name} for row in table_rows()]
    (size,) = summarised(Results.from_rows(rows))
    assert list(noisy_columns(size["noisy"])) == ["noise", "draws", "as deployed"]
    assert shown_of("hospitals", rows)["summary"]["noisy"]["note"] == ""


# Small words


def test_a_range_is_written_only_where_its_ends_differ_as_printed() -> None:
    assert between(99.4, 99.6) == "99 to 100 %"
    assert between(99.6, 100.0) == "100 %"
    texts = ("100.0 to 100.0 % (2 of 5)", "1 to 10 %", "100.0 to 100.0")
    compared = [
        COMPARED | {"large": False, "ours_text": f"ours {k}", "spread_text": text} for k, text in enumerate(texts)
    ]
    results = shown_of("celeba", face_rows(), compared=compared)["comparisons"]["result"]
    assert [cells(results, k)["spread_text"] for k in range(3)] == ["100.0 % (2 of 5)", "1 to 10 %", "100.0"]


@pytest.mark.parametrize(("title", "stop"), [("Who gains", "."), ("Alone?", ""), ("Done.", "")])
def test_a_caption_has_one_mark_at_its_end(title: str, stop: str, tmp_path: Path) -> None:
    path = tmp_path / "one.svg"
    path.write_text("<svg/>")
    (figure,) = shown_of("celeba", face_rows(), figures=[Figure("one", path, title, "A caption.")])["figures"]
    assert figure["stop"] == stop
    assert figure["source"] == "data:image/svg+xml;base64,PHN2Zy8+"


def test_one_of_something_is_not_spoken_of_as_many() -> None:
    assert "1 note on how it was done is on the page" in terminal_of("celeba", face_rows(), notes=["one"])
    assert "2 notes on how it was done are on the page" in terminal_of("celeba", face_rows(), notes=["one", "two"])
    many = [control("c-gdp", 0.9, n_participants=p) for p in range(2, 15)]
    assert shown_of("participants", many)["summary"]["n_hidden"] == 1
    assert "1 more line is on the page or in its figures" in terminal_of("participants", many)


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
    shown = shown_of(
        "hospitals",
        table_rows(),
        parts=[{"deployment": 0, "rms": 0.5}],
        attacks_not_run={"lattice": {"did not apply": 5}},
        columns=names,
        phase_transition={"2": 0.0378, "5": 0.0468},
    )
    told = {"study": "hospitals", "columns": ", ".join(names), "phase_transition": "2: 0.0378, 5: 0.0468"}
    assert shown["facts"] == told
    assert shown["nested_facts"] == ["parts", "attacks_not_run"]


def test_settings_are_those_that_the_kind_of_study_uses() -> None:
    shown = {study: shown_of(study, face_rows())["details"]["settings"] for study in STUDIES}
    sections = {study: {name.partition(".")[0] for name in found if "." in name} for study, found in shown.items()}
    images = {"data", "network", "noise", "attacks", "solver"}
    assert sections == {
        "mnist": images | {"auditor", "sums"},
        "celeba": images | {"sums"},
        **dict.fromkeys(("participants", "uneven"), images),
        "hospitals": {"options", "sums"},
        "census": {"options", "sums"},
        "landscape": {"options", "sums"},
        "sums": {"options"},
        "alternatives": {"options"},
    }
    assert all(
        ("extra_draws" in found) == (study in ("mnist", "celeba", "participants", "uneven"))
        for study, found in shown.items()
    )
    assert {name for name in shown["mnist"] if name.endswith(("n_train", "n_test"))} == {"data.n_train", "data.n_test"}
    assert not [name for name in shown["celeba"] if name.endswith(("n_train", "n_test"))]
    assert "data.identities_each" not in shown["mnist"]  # empty
    assert "noise.data" not in shown["participants"]
    assert shown["participants"]["data.identities_each"] == "50, 19; 10, 98"
    assert shown["hospitals"]["options.anchor_noise"] == "0.02, 0.05, 0.1, 0.2, 0.3, 0.5"
    first, second = shown["celeba"]["noise.data"].split("; ")
    assert {*first.split(", ")} == {"count: 100", "low: 0", "high: 1.5", "unit: absolute"}
    assert {*second.split(", ")} == {"count: 100", "low: 1.5", "high: 3", "unit: absolute"}
    assert shown["celeba"]["quick"] == "no"


def test_facts_without_settings_are_shown() -> None:
    facts: Mapping[str, Any] = {"spec": None, "n_train": 5}
    assert shown_of("hospitals", table_rows(), **facts)["facts"] == {"study": "hospitals", "n_train": "5"}


def test_the_page_needs_no_script_and_what_a_file_says_is_text() -> None:
    told = {"study": "celeba", "spec": read_spec("celeba").as_dict(), "notes": ["<script>alert(1)</script>"]}
    page = render_study(Finished(Results.from_rows(face_rows()), told, None), [], [])
    assert "<script" not in page
    assert "script-src" not in page
    assert "&lt;script&gt;" in page
    assert "lower bound" in page
    assert "no privacy guarantee" in page
