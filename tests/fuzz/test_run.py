"""What runs leave behind: results target by target, a small corpus, and a page."""

import json
from pathlib import Path

from benchmarks.render_assurance import READERS, render
from tests.fuzz.corpus import FOLDER, choose_inputs
from tests.fuzz.run import record_result
from tests.fuzz.target import Target
from tests.fuzz.test_targets import NAMES


def test_results_are_kept_target_by_target_and_a_later_run_adds_to_its_own(tmp_path: Path) -> None:
    path, record = tmp_path / "fuzz.json", {"inputs": 1, "edges": 2, "seconds": 3, "finding": ""}
    record_result(path, "bundle", record)
    record_result(path, "map", record)
    record_result(path, "bundle", {"inputs": 9, "edges": 1, "seconds": 5, "finding": "KeyError"})
    summed = {"inputs": 10, "edges": 2, "seconds": 8, "finding": "KeyError"}
    assert json.loads(path.read_text())["targets"] == {"bundle": summed, "map": record}
    assert [path_left.name for path_left in tmp_path.iterdir()] == ["fuzz.json"]


def test_the_page_counts_findings_and_mutants() -> None:
    assert READERS == NAMES
    targets = {"bundle": {"inputs": 1000, "edges": 2, "seconds": 3, "finding": "KeyError"}}
    changes = [{"module": "theory.py", "line": 1, "change": "a | b", "outcome": "killed"} for _ in range(3)]
    changes += [changes[0] | {"outcome": "survived"}, changes[0] | {"outcome": "equivalent", "why": "of no effect"}]
    page = render({"date": "today", "targets": targets}, {"date": "today", "seed": 5, "mutants": changes})
    assert "1 open finding " in page
    assert "75 % of those with one" in page
    assert "The others are in theory.py (1)." in page
    changes[3] |= {"module": "gone.py"}  # which is not counted
    page = render({"date": "today", "targets": targets}, {"date": "today", "seed": 5, "mutants": changes})
    assert "The others" not in page


def test_the_corpus_is_small_and_chosen_by_what_it_reaches() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 100_000
    from mooring.tables.cells import is_number

    target = Target("words", lambda data: is_number(data.decode()) or is_number(""), (b"1",))
    assert choose_inputs(target, [b"2", b"3"]) == []  # they reach what the seed reaches
