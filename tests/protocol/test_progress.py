"""What long steps say of how far they are: it begins at the first file, counts each once, and ends at all of them."""

from pathlib import Path

import fsspec
import pytest

from mooring.protocol.analyst.delivery import deliver
from mooring.protocol.analyst.intake import collect
from mooring.protocol.transport.transfer import send_file
from tests.protocol.rotation.support import prepared
from tests.protocol.transport.support import make_bundle, make_study
from tests.sites import ANALYST, numeric_study

Seen = list[tuple[float, float]]


@pytest.mark.parametrize("place", ["folder", "store"])
@pytest.mark.parametrize("n", [0, 3])
def test_bundles_are_counted_as_they_are_read(place: str, n: int, tmp_path: Path) -> None:
    seen = Seen()
    (tmp_path / "inbox").mkdir()
    for k in range(n):
        make_bundle(tmp_path / "inbox" / f"site-{k}.bundle", k)
    source, memory = str(tmp_path / "inbox"), fsspec.filesystem("memory")
    if place == "store":
        memory.makedirs("/progress", exist_ok=True)
        for path in (tmp_path / "inbox").iterdir():
            memory.put_file(str(path), f"/progress/{path.name}")
        source = "memory://progress"
    try:
        intake = collect(make_study(), source, tmp_path / "work", progress=lambda *step: seen.append(step))
    finally:
        if place == "store":
            memory.rm("/progress", recursive=True)
    assert len(intake.bundles) == n
    assert seen == [(k, n) for k in range(n + 1) if n]


def test_results_are_counted_as_they_are_written(tmp_path: Path) -> None:
    study, seen = numeric_study(p=3), Seen()
    work, _ = prepared(study, tmp_path, n=5)
    deliver(study, work, tmp_path / "results", ANALYST, progress=lambda *step: seen.append(step))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_copy_counts_its_bytes_and_one_that_is_there_none(tmp_path: Path) -> None:
    data, seen = make_bundle(tmp_path / "a.bundle", 0), Seen()
    (tmp_path / "inbox").mkdir()
    for n_before, tries in ((False, 1), (True, 0)):
        sent = send_file(tmp_path / "a.bundle", tmp_path / "inbox", progress=lambda *step: seen.append(step))
        assert (sent.there_before, sent.tries, sent.confirmed) == (n_before, tries, True)
    assert seen == [(len(data), len(data))]
