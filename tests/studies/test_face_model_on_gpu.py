"""The face auditor computed by PyTorch gives ONNX Runtime's vectors, or is not used."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mooring_studies.data import face_model as module
from mooring_studies.data.face_model import face_model_on_gpu, open_face_model

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(7)


def weights(*shape: int) -> Any:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def saved(path: Path, nodes: list[Any], given: dict[str, Any], *, vector: str, size: int) -> Path:
    helper, number = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "faces",
        [helper.make_tensor_value_info("pixels", number, ["n", 3, 112, 112])],
        [helper.make_tensor_value_info(vector, number, ["n", size])],
        [onnx.numpy_helper.from_array(value, name) for name, value in given.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6), path)
    return path


def small_network(path: Path, *, with_bias: bool = True, transposed: bool = True) -> Path:
    """All six kinds of layers: a convolution with steps, one by channel, one of single pixels, and one that skips."""
    node = onnx.helper.make_node
    bias = ["b1"] if with_bias else []
    given = {
        "k1": weights(4, 3, 3, 3), "s1": 0.3 * np.abs(weights(4, 1, 1)), "k2": weights(4, 1, 3, 3), "b2": weights(4),
        "k3": weights(4, 4, 1, 1), "b3": weights(4), "k4": weights(2, 4, 5, 3),
        "matrix": weights(6, 2 * 3 * 4) if transposed else weights(2 * 3 * 4, 6), "shift": weights(6),
        "scale": 1 + 0.1 * weights(6), "bias": weights(6), "mean": weights(6), "variance": np.abs(weights(6)) + 0.5,
    } | ({"b1": weights(4)} if with_bias else {})  # fmt: skip
    nodes = [
        node("Conv", ["pixels", "k1", *bias], ["a"], strides=[2, 2], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        node("PRelu", ["a", "s1"], ["b"]),
        node("Conv", ["b", "k2", "b2"], ["c"], group=4, strides=[1, 1], pads=[1, 1, 1, 1]),
        node("Conv", ["c", "k3", "b3"], ["d"]),
        node("Add", ["b", "d"], ["e"]),
        node("Conv", ["e", "k4"], ["f"], strides=[21, 15], pads=[0, 2, 0, 2], dilations=[2, 3]),
        node("Flatten", ["f"], ["g"], axis=1),
        node("Gemm", ["g", "matrix", "shift"], ["h"], **({"transB": 1} if transposed else {})),
        node("BatchNormalization", ["h", "scale", "bias", "mean", "variance"], ["vector"], epsilon=1e-3),
    ]
    return saved(path, nodes, given, vector="vector", size=6)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_vectors_are_those_of_onnx_runtime(tmp_path: Path, with_bias: bool, transposed: bool) -> None:
    path = small_network(tmp_path / "m.onnx", with_bias=with_bias, transposed=transposed)
    on_cpu = open_face_model(path)
    model = face_model_on_gpu(path, like=on_cpu, device="cpu")
    assert model is not None
    images = RNG.random((7, 64 * 64 * 3), dtype=np.float32)
    vectors = replace(model, faces_at_once=3)(torch.as_tensor(images))  # pieces that do not come out even
    assert vectors.dtype == torch.float32
    np.testing.assert_allclose(vectors.numpy(), on_cpu(images.astype(float)), atol=2e-6)
    np.testing.assert_allclose(torch.linalg.vector_norm(vectors, dim=1).numpy(), 1, atol=1e-6)


def test_a_network_with_other_layers_stays_on_the_cpu(tmp_path: Path) -> None:
    node = onnx.helper.make_node
    nodes = [node("Relu", ["pixels"], ["a"]), node("Flatten", ["a"], ["vector"])]
    path = saved(tmp_path / "m.onnx", nodes, {}, vector="vector", size=3 * 112 * 112)
    assert face_model_on_gpu(path, like=open_face_model(path), device="cpu") is None


@pytest.mark.parametrize(
    ("layer", "settings"),
    [
        ("Conv", {"pads": [0, 0, 1, 1]}), ("Conv", {"auto_pad": b"SAME_UPPER"}), ("Flatten", {"axis": 2}),
        ("Gemm", {"alpha": 0.5}), ("Gemm", {"transA": 1}), ("BatchNormalization", {"training_mode": 1}),
    ],
)  # fmt: skip
def test_settings_that_are_not_known_are_not_guessed_at(layer: str, settings: dict[str, Any]) -> None:
    given = {"Conv": 2, "Flatten": 0, "Gemm": 2, "BatchNormalization": 4}[layer]
    four = [torch.ones(2, 2, 1, 1) if layer == "Conv" else torch.ones(2, 2)] + [torch.ones(2)] * 3
    assert module._LAYERS[layer](four[:given], {}, 1) is not None
    assert module._LAYERS[layer](four[:given], settings, 1) is None


def test_a_model_that_gives_other_vectors_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_network(tmp_path / "m.onnx")
    right = module._LAYERS["PRelu"]
    monkeypatch.setitem(module._LAYERS, "PRelu", lambda slopes, *rest: right([1.01 * slopes[0]], *rest))
    assert face_model_on_gpu(path, like=open_face_model(path), device="cpu") is None


def test_no_layer_is_rounded_to_fewer_digits_on_a_gpu():
    """By default PyTorch lets a GPU round convolutions to TF32: vectors of a face model then moved by 1.6e-4 on an H200."""
    seen = []

    def layer(pixels: Any) -> Any:
        seen.append((torch.backends.cudnn.enabled, torch.backends.cudnn.allow_tf32))
        return pixels

    before = torch.backends.cudnn.allow_tf32
    model = module.FaceModelOnGpu([(layer, ["pixels"], "vectors", ["pixels"])], "pixels", "vectors")
    model(torch.ones(2, 64 * 64 * 3))
    assert seen == [(True, False)]
    assert torch.backends.cudnn.allow_tf32 == before
