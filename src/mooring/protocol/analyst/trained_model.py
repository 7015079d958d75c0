"""The trained model in the analyst's work folder, and the record that a delivery compares it with."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from mooring.atomic_io import write_atomically
from mooring.errors import InputError, RefusedError
from mooring.learners import Kind
from mooring.learners.models import Model, Specify
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.model import read_model
from mooring.protocol.messages.study import Study
from mooring.protocol.results import TrainingRecord
from mooring.serialization import read_record
from mooring.tables.schema import Schema

TRAINING_FILE, TRAINED_FILE, DELIVERY_FILE = "training.json", "training.safetensors", "delivery.json"
Training = TypeVar("Training", bound=TrainingRecord)


def require_analyst(study: Study, signing_key: SigningKey) -> None:
    """Raise a `RefusedError` unless the key is that of the study's analyst: members refuse what any other key signs."""
    study.require_roster()
    if study.analyst is None or signing_key.public != study.analyst.signing_key:
        reason = "this key is not that of the study's analyst, and others would refuse what it signs"
        raise RefusedError("the signature", reason=reason, cure="Open the vault that the analyst joined with.")


def require_label(schema: Schema) -> Kind:
    """Return the kind of a study's label, or refuse a study without a label."""
    if schema.label.kind == "none":
        cure = "There is nothing to predict; 'mooring export' gives rotation's collaboration matrix to any other tool."
        raise InputError("study", expected="one with a label", got="one without", cure=cure)
    return schema.label.kind


def keep_training(folder: Path, training: TrainingRecord) -> None:
    """Write the record that 'mooring deliver' compares the model with."""
    write_atomically(folder / TRAINING_FILE, training.to_json().encode(), what="the record")


def read_training(
    folder: Path, kind: type[Training], study: Study, specify: Specify, *, made_from: str = ""
) -> tuple[Model, Training]:
    """Return the model that was trained for this study, and its record; a model of an earlier state is an error.

    `made_from` is the digest of the common space or closing list that the model must come from; empty if any will do.
    """
    again = "Run 'mooring train' again, then deliver."
    record = read_record(kind, folder / TRAINING_FILE, what="the record training.json", cure=again)
    model, digest = read_model(folder / TRAINED_FILE, specify)
    if (record.study, record.made_from, record.model_digest) != (study.digest, made_from or record.made_from, digest):
        expected = "one that was trained on this alignment or list"
        raise InputError("model", expected=expected, got="one that was trained on an earlier state", cure=again)
    return model, record
