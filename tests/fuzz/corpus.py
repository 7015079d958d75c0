"""The committed corpus: for each target a few small inputs that reach code which its seeds do not reach.

`corpus/NAME.b64` holds one input a line. `python -m tests.fuzz.run --keep` chooses them from what guided fuzzing went
through; they are read by guided runs and by `make test`. Seeds, the good files, are made by the targets themselves.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.target import Target

FOLDER = Path(__file__).parent / "corpus"
MOST_BYTES, MOST_INPUTS = 3000, 12
Lines = set[tuple[str, int]]


def file_name(target: str, suffix: str) -> str:
    """What a file of a target is called."""
    return f"{target.replace(' ', '-')}{suffix}"


def read_corpus(target: str) -> list[bytes]:
    """The committed inputs of a target."""
    path = FOLDER / file_name(target, ".b64")
    return [base64.b64decode(line) for line in path.read_text("ascii").splitlines()] if path.exists() else []


def write_corpus(target: str, inputs: Iterable[bytes]) -> None:
    """Replace the committed inputs of a target."""
    FOLDER.mkdir(exist_ok=True)
    lines = [base64.b64encode(data).decode("ascii") + "\n" for data in inputs]
    (FOLDER / file_name(target, ".b64")).write_text("".join(lines), "ascii")


def choose_inputs(target: Target, inputs: Iterable[bytes]) -> list[bytes]:
    """Few and small ones of these inputs, each of which reaches lines of mooring that the seeds and the others do not."""
    reached = set[tuple[str, int]]().union(*(trace_lines(target, seed) for seed in target.seeds))
    left = {data: trace_lines(target, data) for data in sorted(set(inputs), key=lambda item: (len(item), item))}
    chosen: list[bytes] = []
    while left and len(chosen) < MOST_INPUTS:
        best = max(left, key=lambda item: len(left[item] - reached) / (len(item) + 100))
        if not left[best] - reached:
            break
        reached |= left.pop(best)
        if sum(map(len, chosen)) + len(best) <= MOST_BYTES:
            chosen.append(best)
    return chosen


def trace_lines(target: Target, data: bytes) -> Lines:
    """The lines of mooring that an input reaches."""
    items: Lines = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if "/mooring/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            items.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(Exception):
            target.survives(data)
    finally:
        sys.settrace(before)
    return items
