"""A model as a file: arrays and a few words on what they are.

A model that is delivered is signed by the analyst, in the layout of `mooring.protocol.messages.signed_file`; the analyst's
own copy has the same fields without a signature. The fields name the outcome, the function, how scores become
probabilities, and the sizes of the arrays. A reader knows what the study's models of that outcome take and predict. So it
works out which arrays there must be, and refuses other arrays before it allocates memory for them. Nothing in the file is
run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import numpy.typing as npt

from mooring.atomic_io import open_plain_file, write_atomically
from mooring.errors import InputError
from mooring.learners.models import FUNCTIONS, MOST_TREES, Link, Model, ModelSpec, Specify, refuse_model
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.signed_file import (
    MOST_HEADER_BYTES,
    Fields,
    Tensors,
    TensorSpec,
    decode_arrays,
    encode_file,
    read_header,
    read_signed,
    require_header,
    write_signed,
)
from mooring.protocol.messages.study import Study

MODEL_FILE = "model.safetensors"
KIND = "model"
MOST_MODEL_BYTES = 128 * 2**20
_MOST_ARRAY_BYTES = MOST_MODEL_BYTES - MOST_HEADER_BYTES - 8
_SIZE = re.compile(r"[0-9]{1,18}")
_SIZES = ("inputs", "outputs", "width", "trees", "nodes", "leaves")
_FIELDS = ("outcome", "function", "link", *_SIZES)
_WHAT = "the model"


@dataclass(frozen=True, eq=False)
class SignedModel:
    """A model and the fields that the analyst signed with it."""

    model: Model
    fields: Mapping[str, str | int]
    """What the manifest says."""
    digest: str
    """SHA-256 of the file."""


def sign_model(path: Path, model: Model, fields: Fields, signer: SigningKey) -> str:
    """Write a model as a signed file, and return the SHA-256 of the file."""
    described = {**fields, **_describe(model)}
    return write_signed(path, kind=KIND, fields=described, arrays=_list_arrays(model), signer=signer)


def read_signed_model(path: Path, study: Study, specify: Specify, *, fields: tuple[str, ...]) -> SignedModel:
    """Read a model that the study's analyst signed, or refuse it with a reason.

    `fields` are the names of the manifest's fields besides those that describe the arrays.
    """
    signed = read_signed(
        path,
        kind=KIND,
        signed_by={study.analysts_key},
        fields=(*fields, *_FIELDS),
        tensors=lambda manifest: _list_tensors(manifest, _specify(manifest, specify)),
    )
    study.require_same(signed.fields, what=_WHAT)
    model = _build(signed.fields, signed.arrays, _specify(signed.fields, specify))
    return SignedModel(model, signed.fields, signed.digest)


def write_model(path: Path, model: Model) -> str:
    """Write a model without a signature, as the analyst keeps it, and return the SHA-256 of the file."""
    fields, arrays = _describe(model), _list_arrays(model)
    n_bytes = sum(array.nbytes for array in arrays.values())
    if n_bytes > _MOST_ARRAY_BYTES:
        raise InputError(
            "model",
            expected=f"at most {MOST_MODEL_BYTES // 2**20} MB, so that participants accept it",
            got=f"{n_bytes // 2**20} MB",
            cure="Choose the learner 'auto' or 'linear'.",
        )
    data = encode_file(arrays, _list_tensors(fields, model.spec), {name: str(value) for name, value in fields.items()})
    write_atomically(path, data, what=_WHAT)
    return hashlib.sha256(data).hexdigest()


def read_model(path: Path, specify: Specify) -> tuple[Model, str]:
    """Read back what `write_model` wrote: the model and the SHA-256 of its file."""
    with open_plain_file(path, what=_WHAT) as file:
        header = read_header(file, what=_WHAT)
        if list(header.metadata) != list(_FIELDS):
            raise refuse_model("its header does not say what its arrays are")
        fields: dict[str, str | int] = dict(header.metadata)
        fields |= {
            name: int(text) for name, text in header.metadata.items() if name in _SIZES and _SIZE.fullmatch(text)
        }
        spec = _specify(fields, specify)
        tensors = _list_tensors(fields, spec)
        require_header(header, tensors, what=_WHAT)
        data = file.read(header.size - header.data_start)
    model = _build(fields, decode_arrays(data, tensors, what=_WHAT), spec)
    return model, hashlib.sha256(header.raw + data).hexdigest()


def _describe(model: Model) -> dict[str, str | int]:
    sizes = dict.fromkeys(_SIZES, 0)
    for name, (_, sides) in model.function.ARRAYS.items():
        sizes |= dict(zip(sides, getattr(model.function, name).shape, strict=True))
    described = {"outcome": model.spec.outcome, "function": model.function.name, "link": model.link}
    return {**described, **sizes, "inputs": model.spec.n_arguments}


def _specify(fields: Fields, specify: Specify) -> ModelSpec:
    return specify(str(fields["outcome"]))


def _list_arrays(model: Model) -> dict[str, npt.NDArray[Any]]:
    arrays = {name: getattr(model.function, name) for name in model.function.ARRAYS}
    return {**arrays, "classes": model.classes, "class_shares": model.class_shares}


def _list_tensors(fields: Fields, spec: ModelSpec) -> Tensors:
    """Return types and shapes of the arrays that a file with these fields must hold; refuse fields that no model has."""
    function = FUNCTIONS.get(str(fields["function"]))
    if function is None or fields["link"] not in get_args(Link):
        raise refuse_model("it is of a kind that this mooring does not know")
    arrays = {**function.ARRAYS, "classes": ("I32", ("outputs",)), "class_shares": ("F64", ("outputs",))}
    used = {"inputs", *(side for _, sides in arrays.values() for side in sides)}
    sizes = {name: fields[name] for name in _SIZES}
    if any(not isinstance(size, int) or (size < 1 if name in used else size != 0) for name, size in sizes.items()):
        raise refuse_model("one of its sizes is missing, or no model of its kind has such a size")
    if fields["inputs"] != spec.n_arguments:
        raise refuse_model("it does not take as many inputs as the study's models do")
    if cast(int, fields["trees"]) > MOST_TREES:
        raise refuse_model(f"it has more than {MOST_TREES:,} trees")
    tensors = {
        name: TensorSpec(dtype, tuple(cast(int, sizes[side]) for side in sides))
        for name, (dtype, sides) in arrays.items()
    }
    if sum(tensor.n_bytes for tensor in tensors.values()) > _MOST_ARRAY_BYTES:
        raise refuse_model(f"it is larger than {MOST_MODEL_BYTES // 2**20} MB")
    return tensors


def _build(fields: Fields, arrays: Mapping[str, npt.NDArray[Any]], spec: ModelSpec) -> Model:
    held = dict(arrays)
    classes, class_shares = held.pop("classes"), held.pop("class_shares")
    function = FUNCTIONS[str(fields["function"])](**held)
    return Model(spec, function, cast(Link, fields["link"]), classes, class_shares)
