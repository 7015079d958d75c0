from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mooring import Projection, RigidMap, align, align_to_reference, coupled_noise, make_anchor, represent
from mooring.geometry import backend
from mooring.geometry.backend import are_positive_definite, as_float64, identity_like, like, namespace_of, to_numpy

Refused = Callable[..., None]


def test_one_library_is_recognised(on_backend: Callable[[Any], Any]) -> None:
    array = on_backend(np.ones((2, 2)))
    assert type(namespace_of(array, array).zeros(1)) is type(array)


def test_two_libraries_in_one_call_are_refused(torch: ModuleType, refused: Refused, rng: np.random.Generator) -> None:
    numpy_map = RigidMap.sample(3, rng=rng)
    torch_map = numpy_map.moved_to(torch.zeros(1))
    anchor, rows = make_anchor(12, 3, rng=rng), torch.ones((4, 3), dtype=torch.float64)
    tensor = torch.as_tensor(anchor)
    for call in (
        lambda: namespace_of(np.ones(2), torch.ones(2)),
        lambda: RigidMap(np.eye(3), torch.zeros(3)),
        lambda: numpy_map.apply(rows),
        lambda: numpy_map.invert(rows),
        lambda: torch_map.apply(np.ones((2, 3))),
        lambda: numpy_map.compose(torch_map),
        lambda: torch_map.compose(numpy_map),
        lambda: align([anchor, tensor]),
        lambda: align_to_reference([anchor, tensor]),
        lambda: align([anchor, anchor]).admit(tensor),
        lambda: represent("i-gdp", rows, numpy_map, noise=rng),
        lambda: represent("aa-i-gdp", rows, torch_map, noise=rng, anchor=anchor),
        lambda: Projection(np.eye(3), np.eye(3), "none").encode(rows),
        lambda: coupled_noise(rows, secret=numpy_map, reference=numpy_map),
    ):
        refused(call, "the arrays of one call", "from one array library", "numpy.ndarray, torch")


def test_something_that_is_no_array_is_refused(refused: Refused) -> None:
    refused(lambda: namespace_of([1.0]), "the arrays of one call", "array library", "builtins.list")


def test_lists_integers_and_single_precision_become_float64(torch: ModuleType) -> None:
    assert as_float64([[1, 2]]).dtype == np.float64
    assert as_float64(np.arange(3)).dtype == np.float64
    assert as_float64(np.ones(2, dtype=np.float32)).dtype == np.float64
    assert as_float64(torch.ones(2)).dtype == torch.float64


def test_like_brings_values_to_the_library_and_type_of_the_reference(torch: ModuleType) -> None:
    moved = like(np.arange(3.0), torch.zeros(1, dtype=torch.float32))
    assert moved.dtype == torch.float32
    assert np.array_equal(to_numpy(moved), np.arange(3.0))


def test_identity_like_has_the_size_and_type_of_the_matrices(on_backend: Callable[[Any], Any]) -> None:
    matrices = on_backend(np.ones((5, 3, 3), dtype=np.float32))
    assert np.array_equal(to_numpy(identity_like(matrices)), np.eye(3))
    assert identity_like(matrices).dtype == matrices.dtype


def test_positive_definite_matrices_of_a_batch_are_told_apart(on_backend: Callable[[Any], Any]) -> None:
    matrices = np.stack([np.eye(2), np.diag([1.0, -1e-9]), np.zeros((2, 2)), np.diag([1e-9, 1.0])])
    assert are_positive_definite(on_backend(matrices)).tolist() == [True, False, False, True]
    assert are_positive_definite(on_backend(matrices.reshape(2, 2, 2, 2))).shape == (2, 2)
    assert bool(are_positive_definite(on_backend(np.eye(2))))


@pytest.mark.parametrize("reason", ["operation failed due to a previous error during capture", "CUDA out of memory."])
def test_what_cannot_be_recorded_is_said_so_and_its_memory_given_back(
    reason: str, torch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recording is tested without a GPU: a double stands in for torch's part of it."""
    device, calls = torch.device("cuda", 3), list[Any]()

    def fail(function: Any, stream: Any, *, pool: Any = None) -> Any:
        raise RuntimeError(reason)

    monkeypatch.setattr(torch.cuda, "device", lambda item: nullcontext())
    monkeypatch.setattr(backend, "_recorded", fail)
    for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
        monkeypatch.setattr(torch._C, name, lambda *given, name=name: calls.append((name, *given)), raising=False)
    monkeypatch.setitem(backend._RECORDINGS.first, device, (None, SimpleNamespace(pool=lambda: (0, 7))))
    assert backend.capture(lambda: None, device) is None
    assert calls == [("_cuda_endAllocateToPool", 3, (0, 7)), ("_cuda_releasePool", 3, (0, 7))]
    assert device not in backend._RECORDINGS.first  # the next one begins anew
