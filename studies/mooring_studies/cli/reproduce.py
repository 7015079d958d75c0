"""`mooring reproduce`: run a study of the paper, or one beyond it, and set its numbers beside the paper's."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from mooring import InputError, MissingExtraError
from mooring.cli.execution import Format, end_on_sigterm, exit_code_of, run_command

if TYPE_CHECKING:
    from mooring_studies.rerun import Rerun
    from mooring_studies.settings.spec import Spec
    from mooring_studies.storage.store import ResultStore


def reproduce(
    study: Annotated[
        str | None, typer.Argument(help="Name of the study. Without it, all studies are listed.", show_default=False)
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            help="Folder in which the study gets a folder of its own. An interrupted run continues from there."
        ),
    ] = Path("reproduction"),
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the data files. docs/reproducing.md lists them.",
            show_default="$MOORING_DATA, or else data",
            rich_help_panel="Inputs",
        ),
    ] = None,
    face_model: Annotated[
        Path | None,
        typer.Option(
            help="Face model as an ONNX file, for the studies celeba and participants.",
            show_default="faces/w600k_mbf.onnx in the data folder",
            rich_help_panel="Inputs",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Run a small version with fewer rows and draws, which supports no claim about the paper."
        ),
    ] = False,
    draws: Annotated[
        int | None,
        typer.Option(
            help="Number of noise levels to draw for each kind of noise. Only for mnist, celeba and participants.",
            show_default="as in the study",
        ),
    ] = None,
    deployments: Annotated[
        int | None,
        typer.Option(
            help="Number of deployments, each with its own split, secrets and anchor. The paper has one.",
            show_default="as in the study",
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(help="Device for studies of images: cpu, cuda, or auto, which uses a GPU if there is one.")
    ] = "auto",
    redraw: Annotated[
        bool,
        typer.Option(
            "--redraw",
            help="Run nothing, and draw the figures and the page again from the results in the output folder.",
        ),
    ] = False,
    row: Annotated[
        str | None,
        typer.Option(
            help="Compute only this row of a finished study again, and show it beside the kept one.",
            metavar="COLUMN=VALUE,…",
            show_default=False,
            rich_help_panel="One row again",
        ),
    ] = None,
    from_folder: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Folder of the finished study that has the row. Nothing is written there.",
            show_default="the study's folder in the output folder",
            rich_help_panel="One row again",
        ),
    ] = None,
    format: Format = "text",
) -> None:
    """Run one of the paper's studies, or one beyond it: figures, a page to open, and the paper's numbers beside ours.

    Without a study: a list of all, with what each needs and how long it takes.

    Example: mooring reproduce

    Example: mooring reproduce landscape --quick

    Example: mooring reproduce mnist --quick --data-dir data

    Example: mooring reproduce celeba --data-dir data --face-model data/faces/w600k_mbf.onnx --device cuda

    Example: mooring reproduce mnist --redraw

    Example: mooring reproduce hospitals --data-dir data --from results/hospitals --row deployment=0,method=i-gdp,draw=0
    """
    with run_command(format) as console, end_on_sigterm():
        from mooring_studies.cli import output as terminal
        from mooring_studies.settings.spec import read_spec
        from mooring_studies.storage.store import one_run_at_a_time

        if study is None:
            console.show({"studies": terminal.describe_studies()})
            return terminal.print_studies(console) if format == "text" else None
        _require_folder(data_dir)
        spec = read_spec(study, quick=quick, draws=draws, deployments=deployments)
        folder = output / spec.name
        if row is not None or from_folder is not None:
            terminal.require_alone(row, {"quick": quick, "draws": draws, "deployments": deployments, "redraw": redraw})
            again = _rerun(row or "", spec, from_folder or folder, data_dir, face_model, device)
            console.show(terminal.describe_rerun(again))
            return terminal.print_rerun(console, again) if format == "text" else None
        _require_extras(spec, drawn=True, computed=not redraw)
        chosen = "" if redraw else _device(device, spec)
        with one_run_at_a_time(folder, make=not redraw):
            if not redraw:
                command = _command(spec.name, quick=quick, draws=draws, deployments=deployments)
                _run(spec, console, folder, data_dir, face_model, chosen, command)
            result = _present(console, folder, spec.name)
        console.show(result)
        return terminal.print_summary(console, result) if format == "text" else None


def _run(
    spec: Spec,
    console: Console,
    folder: Path,
    data_dir: Path | None,
    face_model: Path | None,
    device: str,
    command: str,
) -> None:
    """Run whatever is not there yet, and write the final outputs."""
    from mooring_studies import runner
    from mooring_studies.cli.progress import StudyProgress
    from mooring_studies.storage.machine_facts import first_facts
    from mooring_studies.storage.progress import StageClock
    from mooring_studies.storage.store import FACTS, ResultStore

    facts = first_facts(spec, device=device)
    with ResultStore(folder, facts["key"], facts) as store:
        for words in (*store.others(), *store.notes):
            console.print(f"note: {words}.", style="dim", markup=False, highlight=False, soft_wrap=True)
        n_rows = len(store.rows())
        if n_rows:
            console.print(f"{n_rows} rows of results are there already; this run goes on from them.", highlight=False)
        before = store.kept("seconds") or {}

        def save(seconds: dict[str, float]) -> None:
            store.keep("seconds", {name: before.get(name, 0.0) + seconds.get(name, 0.0) for name in before | seconds})

        takes = spec.takes_quick if spec.quick else spec.takes
        progress = StudyProgress(StageClock(), save=save, takes=takes)
        try:
            with progress:
                runner.run_study(
                    spec, data_dir=data_dir, face_model=face_model, device=device, store=store, progress=progress
                )
        except KeyboardInterrupt as problem:
            raise _interrupted(problem, _kept_in_words(store)) from None
        kept = store.kept(FACTS) or {}
        notes = [*kept.get("notes", ()), *progress.notes, *store.notes]
        facts |= {"seconds": store.kept("seconds") or {}, "device": device} | kept
        store.finish(facts | {"command": command, "notes": list(dict.fromkeys(notes))})


def _kept_in_words(store: ResultStore) -> str:
    return f"{len(store.rows())} rows of results are kept in {store.place}: run the same command again to go on."


def _interrupted(problem: KeyboardInterrupt, words: str) -> typer.Exit:
    """Say what is kept; returns what ends the program."""
    Console(stderr=True).print(f"Interrupted. {words}", markup=False, highlight=False, soft_wrap=True)
    return typer.Exit(exit_code_of(problem))


def _rerun(row: str, spec: Spec, folder: Path, data_dir: Path | None, face_model: Path | None, device: str) -> Rerun:
    """Compute one row of a finished study again, with the settings of that study."""
    from mooring_studies.cli.progress import StudyProgress
    from mooring_studies.rerun import find_rows, read_choice, rerun_rows
    from mooring_studies.storage.progress import StageClock

    choice = read_choice(row)
    _require_extras(spec, drawn=False, computed=True)
    chosen = _device(device, spec)
    asked = find_rows(folder, spec.name, choice)
    try:
        with StudyProgress(StageClock()) as progress:
            return rerun_rows(asked, data_dir=data_dir, face_model=face_model, device=chosen, progress=progress)
    except KeyboardInterrupt as problem:
        raise _interrupted(problem, "Nothing was changed.") from None


def _present(console: Console, folder: Path, study: str) -> dict[str, Any]:
    """Draw, compare, write the page; answers with what was made and the main figures."""
    from mooring_studies.page import CLAIMS, PAGE, present
    from mooring_studies.storage.store import read_finished
    from mooring_studies.summary import case_columns, joining_pays, summarised

    finished = read_finished(folder)
    if finished.study != study:
        raise InputError(
            "output",
            expected=f"a folder whose {study} holds results of that study",
            got=f"results of {finished.study}",
            cure="Name another --output.",
        )
    with console.status("drawing figures"):
        figures = present(folder)
    comparisons = json.loads((folder / CLAIMS).read_text(encoding="utf-8"))
    better, compared = joining_pays(finished.results)
    return {
        "study": study,
        "quick": bool((finished.facts.get("spec") or {}).get("quick")),
        "key": finished.facts.get("key"),
        "page": str(folder / PAGE),
        "results": str(folder / "results.parquet"),
        "facts": str(folder / "facts.json"),
        "figures": [str(figure.path) for figure in figures],
        "notes": finished.facts.get("notes", []),
        "draws_that_beat_training_alone": {"better": better, "of": compared},
        "sizes": summarised(finished.results),
        "comparisons": comparisons,
        "cases": case_columns(study, finished.results) if "case" in finished.results else None,
    }


def _command(study: str, *, quick: bool, draws: int | None, deployments: int | None) -> str:
    """What runs the same study elsewhere: no path of this machine, since facts may be published."""
    words = [f"mooring reproduce {study}", "--quick" if quick else ""]
    words += [f"--draws {draws}" if draws else "", f"--deployments {deployments}" if deployments else ""]
    return " ".join(filter(None, words))


def _require_folder(data_dir: Path | None) -> None:
    """A folder that was named must be there, also where a study could do without it."""
    if data_dir is not None and not data_dir.is_dir():
        raise InputError(
            "data-dir",
            expected="a folder that is there",
            got=str(data_dir),
            cure="docs/reproducing.md says what belongs there; landscape alone runs without it.",
        )


def _require_extras(spec: Spec, *, drawn: bool, computed: bool) -> None:
    """Before any work: what this study cannot do without."""
    from mooring_studies.settings.sections import IMAGE_KINDS

    needed = ["matplotlib"] if drawn else []
    if spec.kind in IMAGE_KINDS and computed:
        needed += ["torch"] if spec.kind == "digits" else ["torch", "PIL"]
    for package in needed:
        if find_spec(package) is None:
            name = {"PIL": "pillow"}.get(package, package)
            raise MissingExtraError(needed_for=f"mooring reproduce {spec.name}", package=name, extra="studies")


def _device(name: str, spec: Spec) -> str:
    """The device to run on; 'auto' takes a GPU where there is one. Studies that are not of images use the CPU."""
    from mooring_studies.settings.sections import IMAGE_KINDS
    from mooring_studies.storage.machine_facts import cuda_is_there

    if name not in ("auto", "cpu", "cuda"):
        raise InputError(
            "device", expected="auto, cpu or cuda", got=repr(name), cure="'auto' takes a GPU if there is one."
        )
    if name == "cpu" or spec.kind not in IMAGE_KINDS:
        return "cpu"
    there = cuda_is_there()
    if name == "cuda" and not there:
        raise InputError(
            "device",
            expected="one that is there",
            got="cuda, and PyTorch finds no CUDA device",
            cure="Use --device cpu, with --quick where time matters, or install a PyTorch that knows your GPU.",
        )
    return "cuda" if there else "cpu"
