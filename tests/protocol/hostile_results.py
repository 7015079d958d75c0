"""Hostile results: maps and models from an analyst that means harm, or changed on the way back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mooring.learners.onnx_export import OUTPUT
from mooring.protocol.crypto.keys import SigningKey

from .hostile import H, World, add, disguises, hostile, parts, reordered_metadata, with_metadata

FINITE = "not finite"
SHAPE = "of the type and shape"
OTHERS = "another participant's"
STUDY = "made for another study"
MEAN = "mean is not that of your own"
ORTHOGONAL = "not orthogonal"
PARTS = "parts that mooring's models do not have"
OPERATOR = "an operator that mooring's models do not use"
SEVERAL = "more parts of a kind"
INPUT = "input or output is not what the study asks for"


def mapped(name: str, reason: str, **arrays: Any) -> None:
    """Register a map of other arrays, signed by the analyst."""

    def make(world: World, _: Path) -> bytes:
        good = parts_of_map(world)
        return world.signed_map(arrays={key: change(good[key]) for key, change in arrays.items()})

    add("map", name, reason, make)


def said(name: str, reason: str, **fields: Any) -> None:
    """Register a map whose manifest says something else, signed by the analyst."""
    add("map", name, reason, lambda world, _: world.signed_map(**fields))


def parts_of_map(world: World) -> dict[str, np.ndarray]:
    data = np.frombuffer(parts(world.map)[1], dtype="<f8")
    return {"orthogonal": data[: H * H].reshape(H, H), "mean": data[H * H : H * H + H], "origin": data[-H:]}


mapped("twice_as_large", ORTHOGONAL, orthogonal=lambda R: 2 * R)
mapped("slightly_sheared", ORTHOGONAL, orthogonal=lambda R: R + 1e-6 * np.eye(H)[0])
mapped("of_rank_one", ORTHOGONAL, orthogonal=lambda R: np.ones((H, H)) / H)
mapped("of_zeros", ORTHOGONAL, orthogonal=lambda R: np.zeros((H, H)))
mapped("huge", "further than any map", orthogonal=lambda R: 1e300 * R)
mapped("origin_far_away", "further than any map", origin=lambda t: t + 1e30)
mapped("origin_beyond_the_limit", "further than any map", origin=lambda t: t + 1.1e6)
mapped("mean_far_away", "further than any map", mean=lambda t: t - 1e300)
for word, value in {"nan": np.nan, "inf": np.inf, "minus_inf": -np.inf}.items():
    for part in ("orthogonal", "mean", "origin"):
        change = {part: lambda array, value=value: np.where(array == array.flat[-1], value, array)}
        mapped(f"{word}_in_{part}", FINITE, **change)
mapped("in_single_precision", SHAPE, orthogonal=lambda R: R.astype("<f4"))
mapped("one_column_more", SHAPE, orthogonal=lambda R: np.eye(H + 1))
mapped("mean_in_single_precision", SHAPE, mean=lambda t: t.astype("<f4"))
mapped("mean_too_short", SHAPE, mean=lambda t: t[1:])
mapped("mean_shifted", MEAN, mean=lambda t: t + 0.01)
mapped("mean_of_nobody", MEAN, mean=lambda t: np.zeros(H))
mapped("mean_turned_round", MEAN, mean=lambda t: -t)
add("map", "an_array_more", SHAPE, lambda world, _: world.signed_map(arrays={"code": np.zeros(9, dtype="|u1")}))
said("for_another_participant", OTHERS, participant="p1")
said("for_another_key", OTHERS, key="0" * 64)
said("for_a_participant_that_is_a_number", OTHERS, participant=0)
said("for_another_study", STUDY, study="0" * 64)
said("from_another_bundle", "another bundle than yours", bundle="0" * 64)
said("without_a_model_named", "does not say what it must", model=...)
said("with_a_note", "does not say what it must", note="hello")
said("of_another_kind", "another kind or format", kind="bundle")
said("of_a_model_that_is_not_there", "not the one that the analyst signed for", model="0" * 64)
said("of_a_model_that_is_a_number", "not the one that the analyst signed for", model=7)
for word, change in {
    "unsigned": lambda raw: with_metadata(raw, signature=...),
    "with_its_metadata_in_another_order": reordered_metadata,
    "with_more_metadata": lambda raw: with_metadata(raw, script="import os"),
}.items():
    add("map", word, "no manifest and signature", lambda world, _, change=change: change(world.map))
add("map", "with_one_bit_changed", "not those that were signed", lambda w, _: w.map[:-1] + bytes([w.map[-1] ^ 1]))
add("map", "one_byte_short", "length is not what", lambda world, _: world.map[:-1])
add("map", "one_byte_more", "length is not what", lambda world, _: world.map + b"\0")
add("map", "nothing_at_all", "cut short", lambda world, _: b"")
add("map", "a_bundle", "(does not say|another kind)", lambda world, _: world.bundle)
add("map", "signed_by_a_participant", "somebody else", lambda w, _: w.signed_map(signer=w.vaults[0].signing_key))
add("map", "signed_by_another_participant", "somebody else", lambda w, _: w.signed_map(signer=w.vaults[1].signing_key))
add("map", "signed_by_a_stranger", "somebody else", lambda world, _: world.signed_map(signer=SigningKey.generate()))
for word in ("a_pickle", "an_array_of_objects", "an_npz_archive", "plain_safetensors"):
    add("map", word, "(cut short|header cannot|no manifest)", lambda world, _, word=word: disguises()[word])


add("map", "a_folder", "not a regular file", lambda w, path: path.mkdir())
add("map", "a_link_to_endless_zeros", "not a regular file", lambda w, path: path.symlink_to("/dev/zero"))


def modelled(name: str, reason: str) -> Callable[[Callable[[onnx.ModelProto], Any]], Any]:
    """Register a change of the good model; the analyst signs for the result."""

    def register(change: Callable[[onnx.ModelProto], Any]) -> Any:
        def make(world: World, _: Path) -> bytes:
            model = onnx.load_from_string(world.model)
            change(model)
            return model.SerializeToString()

        add("model", name, reason, make)
        return change

    return register


def stepped(name: str, reason: str, operator: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> None:
    """Register the good model with one step more in front."""

    def change(model: onnx.ModelProto) -> None:
        node = helper.make_node(operator, inputs, [f"x{k}" for k in range(outputs)], **attributes)
        model.graph.node.insert(0, node)

    modelled(name, reason)(change)


def _subgraph() -> onnx.GraphProto:
    inside = helper.make_tensor_value_info("inside", TensorProto.FLOAT, [1])
    return helper.make_graph([helper.make_node("Identity", ["rows"], ["inside"])], "body", [], [inside])


stepped("with_a_loop", PARTS, "Loop", ["", "", "rows"], body=_subgraph())
stepped("with_a_branch", PARTS, "If", ["rows"], then_branch=_subgraph(), else_branch=_subgraph())
stepped("with_a_scan", PARTS, "Scan", ["rows"], body=_subgraph(), num_scan_inputs=1)
stepped("with_an_empty_loop", OPERATOR, "Loop", ["", "", "rows"])
stepped("with_a_custom_operator", OPERATOR, "RunThis", ["rows"], domain="com.example")
stepped("with_an_operator_of_the_runtime", OPERATOR, "Gelu", ["rows"], domain="com.microsoft")
stepped("with_a_plain_name_in_another_domain", OPERATOR, "Identity", ["rows"], domain="com.microsoft")
stepped("with_a_constant_of_a_huge_shape", OPERATOR, "ConstantOfShape", ["rows"])
stepped("with_a_range_without_end", OPERATOR, "Range", ["rows", "rows", "rows"])
stepped("with_words_as_a_setting", PARTS, "Identity", ["rows"], path="/etc/passwd")
stepped("with_a_setting_more", "settings that mooring's models do not have", "Identity", ["rows"], axis=1)
stepped("with_a_step_from_nowhere", "do not follow from each other", "Identity", ["nowhere"])
stepped("with_a_step_of_two_results", "do not follow from each other", "Identity", ["rows"], outputs=2)


@modelled("with_external_data", PARTS)
def _external(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../vault/identity.json")
    tensor.ClearField("raw_data")


WORDS = helper.make_tensor_value_info(OUTPUT, TensorProto.STRING, [None])
WORD = helper.make_tensor("s", TensorProto.STRING, [1], [b"word"])
for name, reason, change in (
    ("with_a_function", PARTS, lambda m: m.functions.add(name="f", domain="")),
    ("with_another_set_of_operators", SEVERAL, lambda m: m.opset_import.add(domain="com.microsoft", version=1)),
    ("of_a_version_to_come", "version of ONNX", lambda m: setattr(m, "ir_version", 99)),
    (
        "with_a_wider_input",
        INPUT,
        lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[1], "dim_value", H + 1),
    ),
    ("with_two_outputs", SEVERAL, lambda m: m.graph.output.add().CopyFrom(m.graph.output[0])),
    ("with_two_inputs", SEVERAL, lambda m: m.graph.input.add().CopyFrom(m.graph.input[0])),
    ("with_an_output_of_words", INPUT, lambda m: m.graph.output[0].CopyFrom(WORDS)),
    ("with_an_array_of_words", PARTS, lambda m: m.graph.initializer.append(WORD)),
    ("that_grows_beyond_memory_in_one_step", "too much memory", lambda m: _widened(m, 2**18)),
):
    modelled(name, reason)(change)


for word, value in {"nan": np.nan, "inf": np.inf}.items():

    @modelled(f"with_{word}_in_its_weights", FINITE)
    def _spoilt(model: onnx.ModelProto, value: float = value) -> None:
        first = model.graph.initializer[0]
        array = numpy_helper.to_array(first).copy()
        array.flat[0] = value
        first.CopyFrom(numpy_helper.from_array(array, first.name))


@modelled("with_an_array_smaller_than_it_says", "not as large as it says")
def _claims(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [2**25, 2**25]


@modelled("with_an_array_of_no_size", "not as large as it says")
def _empty(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [0]


@modelled("that_predicts_classes_there_are_not", "classes that the study does not have")
def _classes(model: onnx.ModelProto) -> None:
    last = next(tensor for tensor in model.graph.initializer if tensor.data_type == TensorProto.INT64)
    last.CopyFrom(numpy_helper.from_array(np.array([0, 10**6]) + 7, last.name))


@modelled("that_keeps_many_large_arrays_at_once", "too much memory")
def _keeps(model: onnx.ModelProto) -> None:
    """No array of it is too large by itself: hundreds of them are, and all are needed until the last step."""
    wide = _widened(model, 2**16)
    kept = [_step(model, "Neg", wide) for _ in range(200)]
    last = wide
    for one in kept:
        last = _step(model, "Add", last, one)


@modelled("that_takes_an_hour", "too long")
def _slow(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((2048, 2048), dtype="<f4"), "square"))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((H, 2048), dtype="<f4"), "first"))
    last = _step(model, "MatMul", "rows", "first")
    for _ in range(140):
        last = _step(model, "MatMul", last, "square")


def _widened(model: onnx.ModelProto, width: int) -> str:
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((H, 1), dtype="<f4"), "thin"))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((1, width), dtype="<f4"), "wide"))
    return _step(model, "Add", _step(model, "MatMul", "rows", "thin"), "wide")


def _step(model: onnx.ModelProto, operator: str, *inputs: str) -> str:
    name = f"x{len(model.graph.node)}"
    model.graph.node.append(helper.make_node(operator, list(inputs), [name]))
    return name


add("model", "of_nothing", "a part of it is missing", lambda world, _: b"")
add("model", "cut_short", "cut short", lambda world, _: world.model[:-5])
add("model", "of_65_megabytes", "larger than 64 MB", lambda world, _: world.model + bytes(65 * 2**20))
add("model", "of_a_million_parts", "more parts", lambda world, _: b"\x08\x08" * 10**6)
EMPTY_STEPS = b"\x3a\xe0\xd4\x03" + b"\x0a\x00" * 30_000
add("model", "of_many_empty_steps", "(more parts|cut short)", lambda world, _: EMPTY_STEPS)
add("model", "of_endless_nesting", f"({PARTS}|cut short|more parts)", lambda world, _: b"\x3a\x7f" * 20_000)
add("model", "with_a_name_of_a_megabyte", "too long", lambda w, _: w.model + b"\x12\x80\x80\x40" + b"a" * 2**20)
EXABYTES = b"\x12" + b"\xff" * 8 + b"\x7f"
add("model", "with_a_length_of_exabytes", "(cut short|no size can be)", lambda w, _: w.model + EXABYTES)
add("model", "in_safetensors", "(parts|laid out|cut short|no size)", lambda world, _: world.map)
for word in ("a_pickle", "a_pickle_of_protocol_0", "an_npz_archive", "a_zip_archive", "a_page_that_says_not_found"):
    add("model", word, "(parts|laid out|cut short|no size)", lambda world, _, word=word: disguises()[word])


add("model", "a_pipe_for_a_model", "not a regular file", lambda w, path: os.mkfifo(path))


@hostile("model", "larger than 64 MB")
def a_terabyte_for_a_model(world: World, path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


def other_model(world: World) -> bytes:
    """A good model that the analyst did not sign for."""
    model = onnx.load_from_string(world.model)
    model.producer_name = "somebody"
    return bytes(model.SerializeToString())
