"""Hostile results: maps and models from an analyst that means harm, or changed on the way back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from mooring.protocol.crypto.keys import SigningKey

from .hostile import TWO_CLASSES, H, World, add, disguises, hostile, parts, reordered_metadata, with_metadata

FINITE = "not finite"
SHAPE = "names, types and shapes"
OTHERS = "another participant's"
STUDY = "made for another study"
MEAN = "mean is not that of your own"
ORTHOGONAL = "not orthogonal"
SIZE = "one of its sizes is missing"
UNKNOWN = "a kind that this mooring does not know"
TREES = "not those of trees"
OUTPUTS = "outputs are not those"


def mapped(name: str, reason: str, **arrays: Any) -> None:
    """Register a map of other arrays, signed by the analyst."""

    def make(world: World, _: Path) -> bytes:
        good = parts_of_map(world)
        return world.signed_map(arrays={key: change(good[key]) for key, change in arrays.items()})

    add("map", name, reason, make)


def declare(name: str, reason: str, **fields: Any) -> None:
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
declare("for_another_participant", OTHERS, participant="p1")
declare("for_another_key", OTHERS, key="0" * 64)
declare("for_a_participant_that_is_a_number", OTHERS, participant=0)
declare("for_another_study", STUDY, study="0" * 64)
declare("from_another_bundle", "another bundle than yours", bundle="0" * 64)
declare("without_a_model_named", "exactly the expected fields", model=...)
declare("with_a_note", "exactly the expected fields", note="hello")
declare("of_another_kind", "another kind or format", kind="bundle")
declare("of_a_model_that_is_not_there", "not the one that the map is for", model="0" * 64)
declare("of_a_model_that_is_a_number", "not the one that the map is for", model=7)
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
add("map", "a_bundle", "(exactly the expected fields|another kind)", lambda world, _: world.bundle)
add("map", "signed_by_a_participant", "somebody else", lambda w, _: w.signed_map(signer=w.vaults[0].signing_key))
add("map", "signed_by_another_participant", "somebody else", lambda w, _: w.signed_map(signer=w.vaults[1].signing_key))
add("map", "signed_by_a_stranger", "somebody else", lambda world, _: world.signed_map(signer=SigningKey.generate()))
for word in ("a_pickle", "an_array_of_objects", "an_npz_archive", "plain_safetensors"):
    add("map", word, "(cut short|header cannot|no manifest)", lambda world, _, word=word: disguises()[word])


add("map", "a_folder", "not a regular file", lambda w, path: path.mkdir())
add("map", "a_link_to_endless_zeros", "not a regular file", lambda w, path: path.symlink_to("/dev/zero"))


def modelled(name: str, reason: str, arrays: dict[str, np.ndarray] | None = None, **fields: Any) -> None:
    """Register a model of other arrays, or whose manifest says something else, signed by the analyst."""
    add("model", name, reason, lambda world, _: world.signed_model(arrays=arrays, **fields))


def linear(**changed: Any) -> dict[str, np.ndarray]:
    """The arrays of a linear model."""
    good = {"weights": np.ones((H, 2)), "intercepts": np.zeros(2), **TWO_CLASSES}
    return {**good, **changed}


def planted(name: str, reason: str, *, trees: int = 1, leaves: int = 2, link: str = "softmax", **changed: Any) -> None:
    """Register a model of trees; the good one has one tree, of a root and two leaves."""
    good = {
        "feature": np.array([0, -1, -1], dtype="<i4"),
        "limit": np.zeros(3),
        "values": np.array([[1.0, 0.0], [0.0, 1.0]]),
        "first_output": np.zeros(trees, dtype="<i4"),
        "divisor": np.array(1.0),
        "intercepts": np.zeros(2),
        **TWO_CLASSES,
    }
    arrays = {**good, **changed}
    sizes = {"trees": trees, "nodes": len(arrays["feature"]), "leaves": leaves, "width": arrays["values"].shape[1]}
    modelled(name, reason, arrays, function="trees", link=link, **sizes)


def nodes(*features: int) -> dict[str, np.ndarray]:
    return {"feature": np.array(features, dtype="<i4"), "limit": np.zeros(len(features))}


for word, value in {"nan": np.nan, "inf": np.inf, "minus_inf": -np.inf}.items():
    modelled(f"with_{word}_in_its_weights", FINITE, linear(weights=np.full((H, 2), value)))
    modelled(f"with_{word}_in_its_intercepts", FINITE, linear(intercepts=np.array([0.0, value])))
    planted(f"with_{word}_in_a_limit", FINITE, limit=np.array([value, 0, 0]))
modelled("that_overflows", FINITE, linear(weights=np.full((H, 2), 1.7e308), intercepts=np.array([1.7e308, 0])))
modelled("in_single_precision", SHAPE, linear(weights=np.ones((H, 2), dtype="<f4")))
modelled("with_classes_in_double_precision", SHAPE, linear(classes=np.arange(2.0)))
modelled("with_a_wider_input", "not take as many inputs", linear(weights=np.ones((H + 1, 2))), inputs=H + 1)
modelled("with_an_output_more_than_it_says", SHAPE, linear(weights=np.ones((H, 3))))
modelled("with_an_array_more", SHAPE, linear(code=np.zeros(9, dtype="|u1")))
modelled("without_weights", SHAPE, {"intercepts": np.zeros(2), **TWO_CLASSES})
modelled("of_no_output", SIZE, outputs=0)
modelled("of_less_than_no_output", SIZE, outputs=-2)
modelled("with_a_size_in_words", SIZE, outputs="2")
modelled("with_a_size_that_it_does_not_use", SIZE, width=5)
modelled("of_exabytes", "larger than 128 MB", outputs=2**60)
modelled("that_is_a_program", UNKNOWN, function="program")
modelled("of_an_unknown_link", UNKNOWN, link="exec")
modelled("of_a_column_that_is_not_the_label", "not the study's label", outcome="c0")
modelled("of_an_outcome_that_is_a_number", "not the study's label", outcome=7)
modelled("without_an_outcome", "exactly the expected fields", outcome=...)
modelled("without_a_link", "exactly the expected fields", link=...)
modelled("with_a_note", "exactly the expected fields", note="hello")
modelled("for_another_study", STUDY, study="0" * 64)
modelled("of_another_kind", "another kind or format", kind="map")
modelled("of_a_class_there_is_not", OUTPUTS, linear(classes=np.array([0, 2], dtype="<i4")))
modelled("of_a_class_below_zero", OUTPUTS, linear(classes=np.array([-1, 0], dtype="<i4")))
modelled("of_one_class_twice", OUTPUTS, linear(classes=np.array([1, 1], dtype="<i4")))
modelled("with_classes_in_another_order", OUTPUTS, linear(classes=np.array([1, 0], dtype="<i4")))
modelled("with_a_class_without_a_share", "shares of classes", linear(class_shares=np.array([1.0, 0.0])))
modelled("with_a_class_of_more_than_all_rows", "shares of classes", linear(class_shares=np.array([0.5, 1.5])))
modelled("with_nan_for_a_share_of_a_class", FINITE, linear(class_shares=np.array([0.5, np.nan])))
modelled("of_shares_that_do_not_add_up", "do not add up", link="shares")
planted("that_leads_back_to_its_root", TREES, **nodes(0, 0, 0))
planted("of_a_root_without_children", TREES, **nodes(0))
planted("with_a_node_that_no_tree_has", TREES, **nodes(-1, -1), leaves=2)
planted("with_a_child_too_few", TREES, **nodes(0, -1))
planted("of_a_tree_without_end", TREES, **nodes(*([0, -1] * 500), 0, -1, -1), leaves=502, values=np.zeros((502, 2)))
planted("with_a_leaf_more_than_it_has", "one row of values for each leaf", leaves=3, values=np.ones((3, 2)))
planted("that_compares_a_column_there_is_not", "columns that rows do not have", **nodes(H, -1, -1))
planted("that_compares_the_last_column_of_all", "columns that rows do not have", **nodes(2**31 - 1, -1, -1))
planted("that_adds_to_an_output_there_is_not", "outputs that it does not have", first_output=np.array([1], dtype="<i4"))
planted(
    "that_adds_to_an_output_whose_place_wraps_around",
    "outputs that it does not have",
    first_output=np.array([2**31 - 1], dtype="<i4"),
)
planted("that_adds_to_an_output_below_zero", "outputs that it does not have", first_output=np.array([-1], dtype="<i4"))
planted("that_adds_to_more_outputs_than_it_has", "outputs that it does not have", values=np.ones((2, 3)))
planted("divided_by_zero", "divided by zero", divisor=np.array(0.0))
planted("of_shares_below_zero", "below zero", link="shares", values=np.array([[2.0, -1.0], [2.0, -1.0]]))
modelled(
    "of_too_many_trees", "more than 10,000 trees", function="trees", trees=10_001, nodes=10_001, leaves=10_001, width=2
)

add("model", "of_nothing", "cut short", lambda world, _: b"")
add("model", "one_byte_short", "length is not what", lambda world, _: world.model[:-1])
add("model", "one_byte_more", "length is not what", lambda world, _: world.model + b"\0")
add("model", "with_one_bit_changed", "not those that were signed", lambda w, _: w.model[:-1] + bytes([w.model[-1] ^ 1]))
add("model", "of_129_megabytes", "length is not what", lambda world, _: world.model + bytes(129 * 2**20))
add("model", "unsigned", "no manifest and signature", lambda world, _: with_metadata(world.model, signature=...))
add("model", "with_a_script", "no manifest and signature", lambda w, _: with_metadata(w.model, script="import os"))
add("model", "with_its_metadata_in_another_order", "no manifest", lambda world, _: reordered_metadata(world.model))
add("model", "signed_by_a_participant", "somebody else", lambda w, _: w.signed_model(signer=w.vaults[0].signing_key))
add("model", "signed_by_a_stranger", "somebody else", lambda world, _: world.signed_model(signer=SigningKey.generate()))
add("model", "that_is_a_map", "(exactly the expected fields|another kind)", lambda world, _: world.map)
for word in ("a_pickle", "a_pickle_of_protocol_0", "an_npz_archive", "a_zip_archive", "a_page_that_says_not_found"):
    add("model", word, "(cut short|header cannot|no manifest)", lambda world, _, word=word: disguises()[word])
add("model", "a_pipe_for_a_model", "not a regular file", lambda w, path: os.mkfifo(path))


@hostile("model", "(cut short|header cannot)")
def a_terabyte_for_a_model(world: World, path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


def other_model(world: World) -> bytes:
    """A good model that the analyst signed, but that the map does not name."""
    return world.signed_model(source="1" * 64)
