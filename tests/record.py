"""Recorded figures: what attacks, measures and audits gave when somebody last looked at them.

A change that nobody meant shows as another figure. Whoever means one renews the records and reads the difference:
`RENEW_RECORDS=1 python -m pytest tests/alignment tests/attacks tests/audit tests/mechanisms tests/metrics tests/protocol
-k record`.

The records were made on a processor of the kind `MACHINE`. Another kind rounds otherwise, and what hangs on rounding (which
of two equal attacks is named, on which side of a limit a row falls) may differ there: numbers found
in both are then compared loosely, and nothing else is, unless STRICT_RECORDS is set.
"""

import json
import math
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

MACHINE = "x86_64"
_ELSEWHERE = (0.1, 0.05)  # relative and absolute


def check_record(path: Path, name: str, measured: Any, *, rel: float = 1e-3, abs: float = 1e-6) -> None:
    """Hold figures, nested in dictionaries and sequences as they may be, against those recorded under a name."""
    record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    plain = _plain(measured)
    if os.environ.get("RENEW_RECORDS"):
        lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted((record | {name: plain}).items()))
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        return
    got, expected = dict(_leaves(plain)), dict(_leaves(record[name]))
    if platform.machine() != MACHINE and not os.environ.get("STRICT_RECORDS"):
        rel, abs = max(rel, _ELSEWHERE[0]), max(abs, _ELSEWHERE[1])
        expected = {place: value for place, value in expected.items() if isinstance(value, float) and place in got}
        got = {place: value for place, value in got.items() if place in expected}
    assert list(got) == list(expected)
    off = {place: (got[place], value) for place, value in expected.items() if not _same(got[place], value, rel, abs)}
    assert off == {}, f"found and recorded, {name}"


def check_snapshot(path: Path, text: str) -> None:
    """Hold the text of a page against the one that is kept; RENEW_RECORDS=1 keeps this one instead."""
    if os.environ.get("RENEW_RECORDS"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs: read the difference, then RENEW_RECORDS=1"


def without_digests(text: str) -> str:
    """The same text with digests and fingerprints, which keys change, replaced."""
    text = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", text)
    return re.sub(r"\b([a-z2-7]{4}-){6}[a-z2-7]{4}\b", "FINGERPRINT", text)


def _plain(content: Any) -> Any:
    """The same in JSON's types, numbers to six digits."""
    if isinstance(content, dict):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple | np.ndarray):
        return [_plain(value) for value in content]
    if isinstance(content, float | np.floating):
        return float(f"{content:.6g}") * (content**2 > 1e-16) if math.isfinite(content) else str(float(content))
    return content.item() if isinstance(content, np.generic) else content


def _leaves(plain: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    inside = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else None
    if inside is None:
        yield place, plain
    else:
        for key, value in inside:
            yield from _leaves(value, f"{place}/{key}")


def _same(value: Any, expected: Any, rel: float, abs: float) -> bool:
    if isinstance(expected, float) and isinstance(value, float | int):
        return bool(value == pytest.approx(expected, rel=rel, abs=abs))
    return bool(value == expected)
