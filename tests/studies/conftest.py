"""What tests of the studies share: one thread, and a face model of one pixel."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Small products are slower on several threads, and other tests may run beside these."""
    try:
        import torch
    except ImportError:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def corner_model(tmp_path: Path) -> Path:
    """A face model that returns the first pixel of every channel."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, number = onnx.helper, onnx.TensorProto.FLOAT
    corners = {"starts": [0, 0], "ends": [1, 1], "axes": [2, 3]}
    graph = helper.make_graph(
        [
            helper.make_node("Slice", ["pixels", *corners], ["corner"]),
            helper.make_node("Flatten", ["corner"], ["vector"]),
        ],
        "corner",
        [helper.make_tensor_value_info("pixels", number, ["n", 3, 112, 112])],
        [helper.make_tensor_value_info("vector", number, ["n", 3])],
        [helper.make_tensor(name, onnx.TensorProto.INT64, [2], value) for name, value in corners.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"
