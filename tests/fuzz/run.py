"""`make fuzz`: coverage-guided fuzzing of every target by atheris, time-boxed; prints a table and writes what was tried.

Each target runs in a process of its own, which libFuzzer ends at its time, or at the first finding: an exception that is no
MooringError, an input that takes longer than ten seconds, or one that takes more than two gigabytes. The input of a finding
is written to the findings folder, from which `tests/fuzz/test_targets.py` reads it again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MOST_BYTES, MOST_SECONDS, MOST_MEGABYTES = 2**16, 10, 2048
MEMORY = "/dev/shm"  # readers read files, and a disk would take most of the time
HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results" / "fuzz.json"


def main() -> None:
    """Fuzz all targets, or be the process of one."""
    parser = argparse.ArgumentParser(
        description="Fuzz every reader of mooring's files. Results are written after each target: an interrupted run keeps "
        "what it has. A later run adds its inputs and seconds to those of earlier runs of the same target; to count anew, "
        "delete the file."
    )
    parser.add_argument("--seconds", type=int, default=600, help="in all, shared evenly by the targets")
    parser.add_argument("--only", help="one target, by its name")
    parser.add_argument("--output", type=Path, default=RESULTS, help="what was tried, as JSON")
    parser.add_argument(
        "--keep", action="store_true", help="choose the committed corpus anew from what was gone through"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given, rest = parser.parse_known_args()
    if given.one:
        fuzz_one(given.one, rest)
        return
    from tests.fuzz.test_targets import NAMES

    names = [given.only] if given.only else list(NAMES)
    seconds, found = max(1, given.seconds // len(names)), 0
    for name in names:
        with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as folder:
            one = run_target(name, seconds, Path(folder))
            if given.keep:
                keep_corpus(name, Path(folder))
        record_result(given.output, name, one)
        found += bool(one["finding"])
        finding = one["finding"] or "no finding"
        print(f"{name:<24}{one['inputs']:>12,} inputs  {one['edges']:>6,} edges  {finding}", flush=True)
    sys.exit(found > 0)


def run_target(name: str, seconds: int, folder: Path) -> dict[str, Any]:
    """Fuzz one target in a process of its own, and say what came of it.

    Parameters
    ----------
    name : str
    seconds : int
    folder : Path
        For the run's own files; its corpus is in `folder / "corpus"` afterwards.
    """
    from tests.fuzz.corpus import file_name

    findings = HERE / "findings"
    findings.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.run", "--one", name, f"-max_total_time={seconds}"]
    command += [f"-max_len={MOST_BYTES}", f"-timeout={MOST_SECONDS}", f"-rss_limit_mb={MOST_MEGABYTES}"]
    command += [f"-artifact_prefix={folder}/", f"{folder}/corpus"]
    environment = os.environ | {"FUZZ_FOLDER": str(folder)}
    ended = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    for path in folder.glob("*-*"):
        index = sum(1 for _ in findings.glob(file_name(name, ".*"))) + 1
        (findings / file_name(name, f".{index}.bin")).write_bytes(path.read_bytes())
    lines = list(_progress(ended.stderr))
    inputs, edges = lines[-1] if lines else (0, 0)
    finding = "" if ended.returncode == 0 else (_last_words(ended.stderr + ended.stdout) or f"exit {ended.returncode}")
    return {"inputs": inputs, "edges": edges, "seconds": seconds, "finding": finding}


def record_result(path: Path, name: str, one: dict[str, Any]) -> None:
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
    counts = {key: earlier[key] + one[key] for key in ("inputs", "seconds")}
    summed = one | counts | {"edges": max(earlier["edges"], one["edges"])}
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


def fuzz_one(name: str, options: list[str]) -> None:
    """Fuzz one target until libFuzzer ends the process."""
    import atheris

    os.fsync = lambda _: None  # nothing has to outlast the run
    with atheris.instrument_imports(include=["mooring"]):
        from tests.fuzz.corpus import read_corpus
        from tests.fuzz.targets import build_targets
    folder = Path(os.environ["FUZZ_FOLDER"])
    target = build_targets(folder / "study")[name]
    corpus = folder / "corpus"
    corpus.mkdir()
    for k, seed in enumerate([*target.seeds, *read_corpus(name)]):
        (corpus / str(k)).write_bytes(seed)
    atheris.Setup([sys.argv[0], *options], lambda data: target.survives(data) and None)
    atheris.Fuzz()


def _progress(text: str) -> Iterator[tuple[int, int]]:
    """Inputs tried and edges covered, from libFuzzer's lines."""
    for found in re.finditer(r"^#(\d+)\t\S+\s+cov: (\d+)", text, re.MULTILINE):
        yield int(found[1]), int(found[2])


def _last_words(text: str) -> str:
    """The exception of a finding, without the values that it may quote."""
    named = re.findall(r"^(?:ERROR: libFuzzer: ([\w-]+)|(\w+(?:\.\w+)*(?:Error|Exception)))\b", text, re.MULTILINE)
    return next((one or other for one, other in reversed(named)), "")


if __name__ == "__main__":
    main()
