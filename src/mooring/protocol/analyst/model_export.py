"""Export of a study's model as ONNX, for scoring outside mooring."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from mooring.atomic_io import require_absent, write_atomically
from mooring.mechanisms.onnx_export import to_onnx
from mooring.protocol.analyst.trained_model import read_training
from mooring.protocol.messages.result import read_delivered_model
from mooring.protocol.messages.study import Study
from mooring.protocol.registry import exchange_of


def export_model(
    study: Study, path: str | Path, *, folder: str | Path, result: str | Path | None = None, force: bool = False
) -> Path:
    """Write a study's model to an ONNX file. The model is read from `result` if that is given, else from the work folder."""
    path = Path(path)
    require_absent(path, force=force)
    exchange = exchange_of(study)
    specify = partial(exchange.specify_model, study)
    if result is not None:
        model = read_delivered_model(result, study, specify).model
    else:
        model, _ = read_training(Path(folder), exchange.load_training_kind(), study, specify)
    write_atomically(path, to_onnx(model), mode=0o600, what="the model")
    return path
