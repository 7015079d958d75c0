"""`make fuzz`: coverage-guided fuzzing of every target by atheris, time-boxed; prints a table and writes what was tried.

Each target runs in a fork of a process that has loaded and instrumented mooring, which takes 19 seconds. libFuzzer ends the
fork at its time or number of inputs, or at the first finding: an exception that is no MooringError, an input that takes more
than ten seconds of the processor, or one that takes more than two gigabytes. The input of a finding is written to the
findings folder, from which `tests/fuzz/test_targets.py` reads it again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MOST_BYTES, MOST_SECONDS, MOST_MEGABYTES = 2**16, 10, 2048
MEMORY = "/dev/shm"  # readers read files, and a disk would take most of the time
HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results" / "fuzz.json"


def main() -> None:
    """Fuzz all targets, or some."""
    parser = argparse.ArgumentParser(
        description="Fuzz every reader of mooring's files. Results are written after each target: an interrupted run keeps "
        "what it has. A later run adds its inputs and seconds to those of earlier runs of the same target; to count anew, "
        "delete the file."
    )
    parser.add_argument("--seconds", type=int, default=600, help="in all, shared evenly by the targets")
    parser.add_argument("--only", nargs="+", help="some targets, by their names")
    parser.add_argument("--inputs", type=int, default=-1, help="after so many a target ends, if its time has not")
    parser.add_argument("--output", type=Path, default=RESULTS, help="what was tried, as JSON")
    parser.add_argument(
        "--keep", action="store_true", help="choose the committed corpus anew from what was gone through"
    )
    given = parser.parse_args()
    import atheris

    with atheris.instrument_imports(include=["mooring"]):
        from tests.fuzz.test_targets import NAMES

    names = given.only or list(NAMES)
    seconds, count = max(1, given.seconds // len(names)), 0
    for name in names:
        with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as folder:
            record = run_target(name, seconds, given.inputs, Path(folder))
            if given.keep:
                keep_corpus(name, Path(folder))
        record_result(given.output, name, record)
        count += bool(record["finding"])
        finding = record["finding"] or "no finding"
        print(f"{name:<24}{record['inputs']:>12,} inputs  {record['edges']:>6,} edges  {finding}", flush=True)
    sys.exit(count > 0)


def run_target(name: str, seconds: int, inputs: int, folder: Path) -> dict[str, Any]:
    """Fuzz one target in a fork of this process, and say what came of it.

    Parameters
    ----------
    name : str
    seconds : int
    inputs : int
        After so many it ends, if its time has not; -1 for as many as there is time for.
    folder : Path
        For the run's own files; its corpus is in `folder / "corpus"` afterwards.
    """
    from tests.fuzz.corpus import file_name

    findings, log = HERE / "findings", folder / "log"
    findings.mkdir(exist_ok=True)
    options = [f"-max_total_time={seconds}", f"-runs={inputs}", f"-max_len={MOST_BYTES}", "-timeout=1200"]
    options += [f"-rss_limit_mb={MOST_MEGABYTES}", f"-artifact_prefix={folder}/", f"{folder}/corpus"]
    began, process = time.monotonic(), os.fork()
    if not process:
        try:
            fuzz_target(name, options, folder, log)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    ended = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    printed = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    for path in folder.glob("*-*"):
        index = sum(1 for _ in findings.glob(file_name(name, ".*"))) + 1
        (findings / file_name(name, f".{index}.bin")).write_bytes(path.read_bytes())
    lines = list(_progress(printed))
    tried, edges = lines[-1] if lines else (0, 0)
    finding = "" if ended == 0 else (_last_words(printed) or f"exit {ended}")
    return {"inputs": tried, "edges": edges, "seconds": round(time.monotonic() - began), "finding": finding}


def record_result(path: Path, name: str, entry: dict[str, Any]) -> None:
    """Add a target's result to those in a file: inputs and seconds to those of earlier runs of the target.

    The finding is that of the last run: the input of an earlier one is in the findings folder.

    Parameters
    ----------
    path : Path
    name : str
    one : dict
        From `run_target`.
    """
    kept = json.loads(path.read_text(encoding="utf-8"))["targets"] if path.exists() else {}
    earlier = kept.get(name, {"inputs": 0, "edges": 0, "seconds": 0})
    counts = {key: earlier[key] + entry[key] for key in ("inputs", "seconds")}
    summed = entry | counts | {"edges": max(earlier["edges"], entry["edges"])}
    content = {"date": datetime.now(UTC).date().isoformat(), "targets": kept | {name: summed}}
    beside = path.with_suffix(".partial")
    beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)


def keep_corpus(name: str, folder: Path) -> None:
    """Choose a target's committed inputs from the corpus of a run."""
    from tests.fuzz.corpus import choose_inputs, write_corpus
    from tests.fuzz.targets import build_targets

    inputs = [path.read_bytes() for path in sorted((folder / "corpus").iterdir())]
    write_corpus(name, choose_inputs(build_targets(folder / "again")[name], inputs))


def fuzz_target(name: str, options: list[str], folder: Path, log: Path) -> None:
    """Fuzz one target until libFuzzer ends the process; what it prints goes to a file."""
    import atheris

    from tests.fuzz.corpus import read_corpus
    from tests.fuzz.targets import build_targets

    os.fsync = lambda _: None  # nothing has to outlast the run
    with log.open("wb") as opened:
        for stream in (1, 2):
            os.dup2(opened.fileno(), stream)
    target = build_targets(folder / "study")[name]
    corpus = folder / "corpus"
    corpus.mkdir()
    for k, seed in enumerate([*target.seeds, *read_corpus(name)]):
        (corpus / str(k)).write_bytes(seed)

    def read(data: bytes) -> None:
        began = time.process_time()  # of a busy machine's clock, other programs take a share
        target.survives(data)
        if time.process_time() - began > MOST_SECONDS:
            raise TimeoutError("the input took too long")

    atheris.Setup([sys.argv[0], *options], read)
    atheris.Fuzz()


def _progress(text: str) -> Iterator[tuple[int, int]]:
    """Inputs tried and edges covered, from libFuzzer's lines."""
    for progress_line in re.finditer(r"^#(\d+)\t\S+\s+cov: (\d+)", text, re.MULTILINE):
        yield int(progress_line[1]), int(progress_line[2])


def _last_words(text: str) -> str:
    """The exception of a finding, without the values that it may quote."""
    named = re.findall(r"^(?:ERROR: libFuzzer: ([\w-]+)|(\w+(?:\.\w+)*(?:Error|Exception)))\b", text, re.MULTILINE)
    return next((match or other for match, other in reversed(named)), "")


if __name__ == "__main__":
    main()
