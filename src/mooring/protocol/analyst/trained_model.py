"""The trained model in the analyst's work folder, and the record that a delivery compares it with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mooring.atomic_io import write_atomically
from mooring.errors import InputError, RefusedError, StorageError
from mooring.learners import Kind
from mooring.learners.models import Model, ModelSpec
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.model import read_model
from mooring.protocol.messages.study import Study

TRAINING_FILE, TRAINED_FILE, DELIVERY_FILE = "training.json", "training.safetensors", "delivery.json"


def require_analyst(study: Study, signing_key: SigningKey) -> None:
    """Refuse a key that is not the study's analyst's: nobody would take what it signs."""
    study.require_roster()
    if study.analyst is None or signing_key.public != study.analyst.signing_key:
        reason = "this key is not that of the study's analyst, and others would refuse what it signs"
        raise RefusedError("the signature", reason=reason, cure="Open the vault that the analyst joined with.")


def require_label(study: Study) -> Kind:
    """What the study predicts; one without a label is refused."""
    if study.label.kind == "none":
        cure = "There is nothing to predict; 'mooring export' gives the collaboration matrix to any other tool."
        raise InputError("study", expected="one with a label", got="one without", cure=cure)
    return study.label.kind


def keep_training(folder: Path, record: Mapping[str, Any], *, command: str, **made_of: str) -> None:
    """Write the record that 'mooring deliver' compares the model with.

    Parameters
    ----------
    record : mapping
        The training in plain values: scores, and the digest that `mooring.protocol.messages.model.write_model` returned.
    command : str
        For the record.
    **made_of : str
        Digests of what it was trained on: the study, and the alignment's space or the closing list.
    """
    plain = {"command": command, **record, **made_of}
    write_atomically(folder / TRAINING_FILE, json.dumps(plain, indent=2, allow_nan=False).encode(), what="the record")


def read_training(folder: Path, study: Study, spec: ModelSpec, **made_of: str) -> tuple[Model, dict[str, Any]]:
    """The model that was trained for this study, if it was made of just this, and its record."""
    made_of["study"] = study.digest
    try:
        record = json.loads((folder / TRAINING_FILE).read_bytes())
        expected, known = record["model_digest"], {name: record[name] for name in made_of}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise damaged_training() from None
    model, digest = read_model(folder / TRAINED_FILE, spec)
    if known != made_of or digest != expected:
        expected, cure = "one that was trained on this alignment or list", "Run 'mooring train' again, then deliver."
        raise InputError("model", expected=expected, got="one that was trained on an earlier state", cure=cure)
    return model, record


def damaged_training() -> StorageError:
    """The error of a record of a training that cannot be used."""
    reason, cure = "training.json cannot be read", "Run 'mooring train' again, then deliver."
    return StorageError("the record", reason=reason, cure=cure)
