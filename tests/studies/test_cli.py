"""`mooring reproduce`, as a researcher would run it; the studies themselves are stood in for by a quick table."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mooring_studies import redraw, runner
from mooring_studies.figures import study_figures as draw
from mooring_studies.settings.spec import noise_draws
from mooring_studies.storage.store import one_run_at_a_time, read_finished

from mooring.randomness import Streams
from tests.commands import flat, run

Result = Any  # of typer.testing, which keeps its type to itself
FEW_RESAMPLES = 20
DRAW = draw.draw_figures


def rows_of(spec: Any, method: str, draws: list[int], kind: Any = None) -> list[dict[str, Any]]:
    """Plausible rows: utility and leakage fall with noise; the strongest attack hardly depends on anchor noise."""
    v, sigma = noise_draws(spec, kind, Streams.for_experiment(1), 9.0) if kind else (np.zeros(99), np.zeros(99))
    rows = []
    for k in draws:
        level = float(v[k] / 0.5 + sigma[k] / 50)
        figures = {"linkage:procrustes": 0.1 + 0.27 / (1 + 9 * level), "match:procrustes": 0.1 + 0.9 / (1 + 4 * level)}
        if k % 2 == 0 and method not in ("local-only", "pooled-raw"):
            figures |= {"linkage:moments": 0.36 - 0.01 * level, "match:moments": 0.99, "linkage:moments+denoised": 0.37}
        score = {"local-only": 0.85, "pooled-raw": 0.97, "i-gdp": 0.57}.get(method, 0.57 + 0.34 / (1 + 3 * level))
        rows.append(
            {"deployment": 0, "n_participants": 10, "method": method, "draw": k}
            | {"anchor_noise_scale": float(v[k]), "data_noise_scale": float(sigma[k])}
            | {"balanced_accuracy": score, "balanced_accuracy_clean": score + 0.01}
            | {"iterations": 30, "converged": level < 0.2, "residual": 1e-8, "solver_seconds": 0.1}
            | (figures if method not in ("local-only", "pooled-raw") else {})
        )
    return rows


PARTS = (
    ("c-gdp-data-noise", "data"),
    ("aa-i-gdp-data-noise", "data"),
    ("aa-i-gdp-anchor-noise", "anchor"),
    ("aa-i-gdp-both-noise", "both"),
)


class FakeStudy:
    """Stands in for `run_study`: computes nothing, but keeps to the store and tells progress as the real one does."""

    def __init__(self) -> None:
        self.computed: list[tuple[str, int]] = []
        self.stop_after: int | None = None
        self.problem: BaseException = KeyboardInterrupt()
        self.given: dict[str, Any] = {}

    def __call__(self, spec: Any, *, data_dir: Any, face_model: Any, device: str, store: Any, progress: Any) -> None:
        self.given = {"spec": spec, "data_dir": data_dir, "face_model": face_model, "device": device}
        progress.note("a note of the study")
        controls = [("c-gdp", 1), ("aa-i-gdp", 1), ("i-gdp", 1), ("pooled-raw", 1), ("local-only", 10)]
        for method, count in controls:
            self.part(spec, method, count, None, store, progress)
        for method, kind in PARTS:
            count = sum(level.count for level in getattr(spec.noise, kind))
            self.part(spec, method, count, kind, store, progress)
        images = np.full((2, 28, 28), 200, np.uint8)
        store.keep(
            "pictures",
            {"sources": images, "projected": images, "labels": np.arange(2), "rows": np.array(["i-gdp|moments"])}
            | {"row0_images": images[None], "row0_noise": np.zeros(1), "row0_linkage": np.full(1, 0.36)},
        )
        store.keep("facts", {"n_train": 6000, "phase_transition": {"10": 0.0977}, "notes": ["from the runner"]})

    def part(self, spec: Any, method: str, count: int, kind: Any, store: Any, progress: Any) -> None:
        progress.stage(f"deployment 0, 10 participants: {method}", count)
        done = store.done(method=method, deployment=0)
        progress.advance(len(done))
        for draw_number in range(count):
            if draw_number in done:
                continue
            if self.stop_after is not None and len(self.computed) >= self.stop_after:
                raise self.problem
            store.append(rows_of(spec, method, [draw_number], kind))
            self.computed.append((method, draw_number))
            progress.advance()


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> FakeStudy:
    fake = FakeStudy()
    monkeypatch.setattr(runner, "run_study", fake)
    return fake


@pytest.fixture(autouse=True, scope="module")
def few_figures() -> Iterator[None]:
    """Two figures and pictures, with bands from few resamples: what they look like is tested in test_figures."""
    few = tuple(study for study in draw._IMAGES if study.__name__ in ("draw_linkage", "draw_tradeoff"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw, "_IMAGES", few)
        patch.setattr(draw, "_STUDIES", {**draw._STUDIES, "mnist": few, "celeba": few})
        patch.setattr(draw, "draw_figures", lambda *given: DRAW(*given, n_resamples=FEW_RESAMPLES))
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figures, for tests that are about rows."""
    monkeypatch.setattr(draw, "draw_figures", lambda *given: [])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, few_figures: None) -> tuple[Result, Path]:
    """One whole run, and its folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run_study", FakeStudy())
        folder = tmp_path_factory.mktemp("reproduced") / "new"
        words = ["reproduce", "mnist", "--quick", "--output", str(folder), "--device", "cpu"]
        return run(*words), folder / "mnist"


def test_the_folder_holds_what_is_promised(finished: tuple[Result, Path]) -> None:
    folder = finished[1]
    names = {path.name for path in folder.iterdir()}
    assert names >= {"results.parquet", "facts.json", "pictures.npz", "figures", "index.html", "claims.json", "store"}
    assert {path.stem for path in (folder / "figures").iterdir()} >= {
        "linkage",
        "tradeoff",
        "reconstructions",
        "digit-1",
    }
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    assert (facts["study"], facts["spec"]["quick"], facts["n_train"]) == ("mnist", True, 6000)
    assert facts["notes"] == ["from the runner", "a note of the study"]
    assert facts["command"] == "mooring reproduce mnist --quick"
    assert str(folder.parent) not in (folder / "facts.json").read_text(encoding="utf-8")  # it may be published
    assert set(facts["machine"]) == {"processor", "cores", "gpu", "python", "numpy", "torch"}
    assert facts["seconds"]
    assert {"key", "mooring", "code_digest", "date", "seeds"} <= set(facts)
    assert len(read_finished(folder).results) == 4 + 10 + 24 * 3 + 16
    assert json.loads((folder / "claims.json").read_text(encoding="utf-8"))


def test_text_from_files_stays_text_on_the_page(finished: tuple[Result, Path], tmp_path: Path, undrawn: None) -> None:
    folder = tmp_path / "mnist"
    folder.mkdir()
    (folder / "results.parquet").write_bytes((finished[1] / "results.parquet").read_bytes())
    facts = json.loads((finished[1] / "facts.json").read_text(encoding="utf-8"))
    evil = "<img src=x onerror=alert(1)>"
    facts |= {"notes": [evil], "date": evil, "key": evil, evil: evil, "command": evil, "seeds": [evil], "list": [evil]}
    facts["spec"] |= {"title": evil, "options": {evil: evil}}
    facts["machine"]["gpu"] = evil
    facts["data"] = {evil: evil}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    run("reproduce", "mnist", "--redraw", "--output", tmp_path)
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert evil not in page
    assert page.count("&lt;img src=x") > 8
    assert "<img" not in page


def test_json_is_all_that_goes_to_standard_output(study: FakeStudy, tmp_path: Path, undrawn: None) -> None:
    words = ["reproduce", "mnist", "--quick", "--draws", "2", "--output", tmp_path, "--format", "json"]
    plain = json.loads(run(*words).stdout)
    assert plain["study"] == "mnist"
    assert plain["page"] == str(tmp_path / "mnist" / "index.html")
    (size,) = plain["sizes"]
    assert size["controls"]["c-gdp"] == pytest.approx(91.0)
    assert {level["method"] for level in size["noisy"]} == {method for method, _ in PARTS}
    assert plain["draws_that_beat_training_alone"]["of"] == 8
    assert {entry["study"] for entry in plain["comparisons"]} == {"mnist"}  # not what other studies would have to say


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), RuntimeError("a fault")])
def test_a_run_that_stops_goes_on_from_there(
    problem: BaseException, study: FakeStudy, tmp_path: Path, undrawn: None
) -> None:
    words = ["reproduce", "mnist", "--quick", "--draws", 4, "--output", tmp_path]
    study.stop_after, study.problem = 17, problem
    run(*words, code=130 if isinstance(problem, KeyboardInterrupt) else 70)
    assert not (tmp_path / "mnist" / "results.parquet").exists()  # half a study is no result
    first = list(study.computed)
    study.stop_after = None
    run(*words)
    assert len(first) == 17
    assert len(study.computed) == len(set(study.computed)) == 14 + 4 * 4  # nothing was done twice
    assert len(read_finished(tmp_path / "mnist").results) == 30
    run(*words)
    assert len(study.computed) == 30


def test_two_runs_do_not_write_the_same_files_at_once(study: FakeStudy, tmp_path: Path, undrawn: None) -> None:
    run("reproduce", "mnist", "--quick", "--draws", 1, "--output", tmp_path)
    with one_run_at_a_time(tmp_path / "mnist", make=False):  # between processes: test_store
        for words in (["--draws", 1], ["--draws", 2], ["--redraw"]):
            run("reproduce", "mnist", "--quick", *words, "--output", tmp_path, code=5)
    run("reproduce", "mnist", "--quick", "--draws", 2, "--output", tmp_path)


@pytest.mark.posix
def test_a_run_that_is_asked_to_end_ends_with_its_code(tmp_path: Path, monkeypatch: Any) -> None:
    def ended(spec: Any, *, store: Any, progress: Any, **given: Any) -> None:
        store.append(rows_of(spec, "c-gdp", [0]))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)

    monkeypatch.setattr(runner, "run_study", ended)
    before = signal.getsignal(signal.SIGTERM)
    run("reproduce", "mnist", "--quick", "--output", tmp_path, code=143)
    assert signal.getsignal(signal.SIGTERM) is before


def test_redrawing_computes_nothing_and_gives_the_same(finished: tuple[Result, Path], study: FakeStudy) -> None:
    folder = finished[1]
    before = {path: path.read_bytes() for path in (folder / "figures").iterdir()}
    claims, page = (folder / "claims.json").read_bytes(), (folder / "index.html").read_bytes()
    for path in before:
        path.unlink()
    run("reproduce", "mnist", "--redraw", "--output", folder.parent)
    assert study.computed == []
    assert {path: path.read_bytes() for path in (folder / "figures").iterdir()} == before
    assert ((folder / "claims.json").read_bytes(), (folder / "index.html").read_bytes()) == (claims, page)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("results.parquet", None),
        ("results.parquet", b"PAR1"),
        ("facts.json", None),
        ("facts.json", b"{"),
        ("facts.json", b"[1]"),
        ("pictures.npz", b"PK"),
    ],
)
def test_redrawing_needs_whole_files(
    name: str, content: bytes | None, finished: tuple[Result, Path], tmp_path: Path
) -> None:
    (tmp_path / "mnist").mkdir()
    for kept in ("results.parquet", "facts.json", "pictures.npz"):
        (tmp_path / "mnist" / kept).write_bytes((finished[1] / kept).read_bytes())
    (tmp_path / "mnist" / name).unlink()
    if content is not None:
        (tmp_path / "mnist" / name).write_bytes(content)
    run("reproduce", "mnist", "--redraw", "--output", tmp_path, code=5)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["mnits"], "'mnist'"),
        (["mnist", "--draws", "0"], "draws"),
        (["mnist", "--deployments", "0"], "deployments"),
        (["mnist", "--device", "gpu"], "device"),
        (["mnist", "--format", "xml"], "format"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name_before_any_work(
    words: list[str], named: str, study: FakeStudy, tmp_path: Path
) -> None:
    assert named in flat(run("reproduce", *words, "--output", tmp_path / "new", code=2).output)
    assert study.given == {}
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["hospitals", "census", "landscape"])
@pytest.mark.parametrize("there", [True, False])
def test_studies_that_are_not_of_images_run_on_the_cpu_whatever_is_asked_for(
    there: bool, name: str, study: FakeStudy, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("mooring_studies.storage.machine_facts.cuda_is_there", lambda: there)
    study.stop_after = 0
    run("reproduce", name, "--device", "cuda", "--output", tmp_path, code=130)
    assert study.given["device"] == "cpu"


@pytest.mark.parametrize(
    ("name", "missing", "needed"),
    [
        ("mnist", "torch", True), ("mnist", "matplotlib", True), ("celeba", "PIL", True), ("mnist", "PIL", False),
        ("hospitals", "torch", False), ("hospitals", "matplotlib", True),
    ],
)  # fmt: skip
def test_an_extra_that_is_missing_is_named_before_any_work(
    name: str, missing: str, needed: bool, study: FakeStudy, tmp_path: Path, monkeypatch: Any, undrawn: None
) -> None:
    from importlib.util import find_spec

    study.stop_after = 0
    for module in ("mooring_studies.cli.reproduce", "mooring_studies.storage.machine_facts"):
        monkeypatch.setattr(f"{module}.find_spec", lambda name: None if name == missing else find_spec(name))
    result = run("reproduce", name, "--output", tmp_path / "new", code=2 if needed else 130)
    if needed:
        assert ("pillow" if missing == "PIL" else missing) in flat(result.output)
        assert not (tmp_path / "new").exists()


# Committed results


def test_faces_are_never_drawn_into_the_documents(
    finished: tuple[Result, Path], tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "celeba").mkdir()
    for name in ("results.parquet", "pictures.npz"):
        (tmp_path / "celeba" / name).write_bytes((finished[1] / name).read_bytes())
    facts = json.loads((finished[1] / "facts.json").read_text()) | {"study": "celeba"}
    (tmp_path / "celeba" / "facts.json").write_text(json.dumps(facts))
    seen: list[Any] = []
    monkeypatch.setattr(draw, "draw_figures", lambda *given: seen.append(given[3]) or [])
    redraw.redraw(tmp_path, tmp_path / "docs")
    assert seen == [None]


def test_redrawing_without_results_writes_nothing(tmp_path: Path) -> None:
    assert redraw.main([str(tmp_path), str(tmp_path / "docs")]) == 2
    assert not (tmp_path / "docs").exists()
    assert redraw.main([]) == 2
