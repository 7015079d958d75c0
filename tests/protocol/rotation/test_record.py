"""What the analyst keeps of an alignment and a training, on record (see tests/record.py)."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.protocol.analyst.delivery import deliver
from mooring.protocol.rotation.analyst.alignment import align_bundles
from mooring.protocol.rotation.analyst.training import train
from tests.permissions import has_mode
from tests.protocol.rotation.support import bundles_of, send, sites_of, with_garbage
from tests.record import check_record
from tests.sites import ANALYST, numeric_study

RECORD = Path(__file__).parent / "record.json"
DIGESTS = ("digest", "model_digest", "space", "study", "table", "space_digest", "bundle")
SENTENCES = ("command", "note", "termination", "certificate", "made_from")


def figures_in(record: Any) -> Any:
    """The record without digests and sentences."""
    if isinstance(record, dict):
        return {key: figures_in(value) for key, value in record.items() if key not in (*DIGESTS, *SENTENCES)}
    return [figures_in(part) for part in record] if isinstance(record, list) else record


@pytest.mark.parametrize(
    ("kind", "method", "v"),
    [("classes", "aa-i-gdp-anchor-noise", 0.05), ("number", "aa-i-gdp-anchor-noise", 0.2), ("number", "aa-i-gdp", 0.0)],
)
def test_an_alignment_and_a_training_are_as_on_record(kind: str, method: str, v: float, tmp_path: Path) -> None:
    """Six sites of other sizes; one sends garbage, one has its labels the wrong way round, and one is late."""
    study, inbox, work = numeric_study(6, 4, 24, v, kind=kind, method=method), tmp_path / "inbox", tmp_path / "work"
    for who, site in enumerate(sites_of(study)):
        n = (60, 25, 40, 31, 9, 22)[who]
        site = replace(site, rows=site.rows[:n], labels=None if site.labels is None else site.labels[:n])
        if who == 2 and site.labels is not None:
            site = replace(site, labels=1 - site.labels if kind == "classes" else -site.labels)
        send(study, with_garbage(study, site) if who == 3 else site, who, inbox if who < 5 else tmp_path / "late")
    aligned = align_bundles(study, bundles_of(study, inbox), work, command="mooring align")
    late = align_bundles(study, bundles_of(study, tmp_path / "late"), work, mode="late", command="mooring align --late")
    collected: list[tuple[float, float]] = []
    training = train(study, work, learner="linear", most_rows=90, seed=2, progress=lambda *step: collected.append(step))
    deliver(study, work, tmp_path / "results", ANALYST)
    for path in (work / "alignment.safetensors", *(work / "collaboration").iterdir()):
        assert has_mode(path, 0o600)
    kept = {path.name: json.loads(path.read_text()) for path in sorted(work.glob("*.json"))}
    seen = [
        [*aligned.record.list_left_out()],
        [*late.record.list_left_out()],
        late.record.newcomers,
        training.rows,
        training.rows_used,
        collected,
    ]
    template = np.linalg.svd(late.template, compute_uv=False)
    check_record(RECORD, f"{kind}, {method}", [seen, template, figures_in(kept)], rel=2e-3, abs=1e-4)
