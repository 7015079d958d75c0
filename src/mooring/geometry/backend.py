"""Functions that work on NumPy and torch arrays (CPU or CUDA) alike.

The mathematics is written once, against the array API standard. This module adds what the standard lacks: moving data
between libraries and devices, fused products, recorded GPU iterations, and a Cholesky test that does not raise.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import array_api_compat
import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.typing import Array

Namespace: TypeAlias = Any
"""The module whose functions work on an `Array`."""


_OUT_OF_MEMORY = ("not enough memory", "can't allocate memory", "out of memory", "ALLOC_FAILED")
_NUMBERS_IN_CACHE = 2**20
_NUMBERS_ON_GPU = 2**26
_WITH_FLOAT64_TENSOR_CORES = ((8, 0), (9, 0))


_NAMESPACES: dict[type, Namespace] = {}  # a cache: an iteration looks its namespace up a hundred times


class _Recordings(threading.local):
    """For each device, the CUDA stream and the first recording of this thread.

    Recordings of a thread share the stream and the memory of the first one, because only one of them runs at a time.
    """

    def __init__(self) -> None:
        self.first: dict[Any, tuple[Any, Any]] = {}


_RECORDINGS = _Recordings()


def namespace_of(*arrays: Array) -> Namespace:
    """Return the array namespace that all `arrays` share, or raise an `InputError` if they come from several libraries."""
    kind = type(arrays[0])
    alike = len(arrays) == 1 or all(type(array) is kind for array in arrays)
    if alike and kind in _NAMESPACES:
        return _NAMESPACES[kind]
    try:
        namespace = array_api_compat.array_namespace(*arrays)
    except TypeError:
        kinds = ", ".join(sorted({f"{type(array).__module__}.{type(array).__name__}" for array in arrays}))
        expected, got = "from one array library (NumPy or torch)", kinds
        cure = "Convert them first, for instance with numpy.asarray or torch.as_tensor."
        raise InputError("the arrays of one call", expected=expected, got=got, cure=cure) from None
    if alike:
        _NAMESPACES[kind] = namespace
    return namespace


def device_of(array: Array) -> Any:
    """Return the device that holds `array`."""
    return array.device if _is_numpy(array) else array_api_compat.device(array)


def _is_numpy(array: Array) -> bool:
    """Return whether this is a NumPy array; tests for arrays of other libraries are slower."""
    return type(array) is np.ndarray


def as_float64(array: Array) -> Array:
    """Return `array` in float64. Lists and integer arrays are accepted."""
    if not array_api_compat.is_array_api_obj(array):
        return np.asarray(array, dtype=np.float64)
    xp = namespace_of(array)
    return array if array.dtype == xp.float64 else xp.astype(array, xp.float64)


def to_numpy(array: Array) -> npt.NDArray[Any]:
    """Return `array` as a NumPy array, copied from its device if necessary."""
    if array_api_compat.is_torch_array(array):
        return np.asarray(array.detach().cpu())
    return np.asarray(array)


def like(values: Array, reference: Array) -> Array:
    """Return `values` as an array of the same library, device and type as `reference`."""
    if _is_numpy(values) and _is_numpy(reference):
        return values if values.dtype == reference.dtype else values.astype(reference.dtype)
    xp = namespace_of(reference)
    if type(values) is type(reference) and device_of(values) == device_of(reference):
        return xp.astype(values, reference.dtype, copy=False)
    return xp.asarray(to_numpy(values), dtype=reference.dtype, device=device_of(reference))


def indices_beside(indices: Array, reference: Array) -> Array:
    """Return an index or mask array on the library and device of `reference`."""
    alike = type(indices) is type(reference)
    if alike and (_is_numpy(indices) or device_of(indices) == device_of(reference)):
        return indices
    return namespace_of(reference).asarray(indices, device=device_of(reference))


def transpose(matrices: Array) -> Array:
    """Return the transpose of the last two axes."""
    return namespace_of(matrices).matrix_transpose(matrices)


def identity_like(matrices: Array) -> Array:
    """Return the identity matrix with as many rows as `matrices` have columns, of the same type and device."""
    xp = namespace_of(matrices)
    return xp.eye(matrices.shape[-1], dtype=matrices.dtype, device=device_of(matrices))


def blockwise(function: Callable[..., Array], *stacks: Array) -> Array:
    """Apply a function of matrices to stacks of matrices, a few at a time.

    Temporary arrays then stay small; on a CPU they fit into the cache.
    """
    xp = namespace_of(*stacks)
    *leading, n_rows, n_columns = stacks[0].shape
    n_matrices = math.prod(leading)
    at_once = max(1, (_NUMBERS_ON_GPU if is_on_gpu(stacks[0]) else _NUMBERS_IN_CACHE) // (n_rows * n_columns))
    if n_matrices <= at_once:
        return function(*stacks)
    flat = [xp.reshape(stack, (n_matrices, *stack.shape[-2:])) for stack in stacks]
    results = xp.empty_like(flat[0])
    for start in range(0, n_matrices, at_once):
        results[start : start + at_once] = function(*(stack[start : start + at_once] for stack in flat))
    return xp.reshape(results, stacks[0].shape)


def multiply_add(addend: Array, left: Array, right: Array, *, weight: float = 1.0, scale: float = 1.0) -> Array:
    """Return weight · addend + scale · left @ right, for stacks of square matrices of one shape.

    Torch computes this in one fused product, which saves a second pass over a GPU's memory.
    """
    if _is_numpy(left) or not array_api_compat.is_torch_array(left):
        return weight * addend + scale * (left @ right)
    import torch

    stacks = (array.reshape(-1, *array.shape[-2:]) for array in (addend, left, right))
    return torch.baddbmm(*stacks, beta=weight, alpha=scale).reshape(addend.shape)


def overwrite(target: Array, values: Array, chosen: Array) -> None:
    """Replace entries of `target` in place. `chosen` masks its leading axes, and `values` broadcast to its shape."""
    chosen = chosen.reshape(*chosen.shape, *[1] * (target.ndim - chosen.ndim))
    if not _is_numpy(target):
        import torch

        torch.where(chosen, values, target, out=target)
    elif chosen.size < target.size and chosen.all():
        target[...] = values  # faster than with a mask
    else:
        np.copyto(target, values, where=chosen)


def cholesky(matrices: Array) -> Array:
    """Return Cholesky factors. A matrix without one is an error on NumPy and NaN on torch, which need not wait for a GPU."""
    if _is_numpy(matrices) or not array_api_compat.is_torch_array(matrices):
        return np.linalg.cholesky(matrices)
    import torch

    factors, info = torch.linalg.cholesky_ex(matrices)
    return torch.where((info == 0)[..., None, None], factors, torch.nan)


def solve(matrices: Array, right: Array) -> Array:
    """Return the solutions of linear systems that are known to be regular, without waiting for a GPU."""
    if _is_numpy(matrices) or not array_api_compat.is_torch_array(matrices):
        return np.linalg.solve(matrices, right)
    import torch

    return torch.linalg.solve_ex(matrices, right)[0]


def has_fast_float64(array: Array) -> bool:
    """Return whether the array is on a GPU that multiplies float64 matrices as fast as float32 ones (A100, H100, H200)."""
    if not is_on_gpu(array):
        return False
    import torch

    return torch.cuda.get_device_capability(device_of(array)) in _WITH_FLOAT64_TENSOR_CORES


def capture(function: Callable[[], None], device: Any) -> Callable[[], None] | None:
    """Record the GPU work of a function that changes arrays in place, and return a function that repeats it.

    A repetition launches all kernels at once, without Python. Recording does not execute this work. Returns None if the
    function cannot be recorded.
    """
    import torch

    with torch.cuda.device(device):
        if device not in _RECORDINGS.first:
            stream = torch.cuda.Stream()
            _RECORDINGS.first[device] = stream, _recorded(lambda: torch.zeros(1, device=device), stream)
        stream, first = _RECORDINGS.first[device]
        try:
            return _recorded(function, stream, pool=first.pool()).replay  # type: ignore[no-any-return]
        except RuntimeError:  # the function waits for the GPU, or memory ran out: a recording can free less memory
            del _RECORDINGS.first[device]
            with suppress(RuntimeError, AttributeError):  # torch may have released the pool already
                torch._C._cuda_endAllocateToPool(device.index, first.pool())
                torch._C._cuda_releasePool(device.index, first.pool())
        return None


def _recorded(function: Callable[[], object], stream: Any, *, pool: Any = None) -> Any:
    import torch

    graph = torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin(pool, capture_error_mode="thread_local")
        try:
            function()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph


@contextmanager
def coarse_products(array: Array) -> Iterator[None]:
    """Let a GPU round the factors of float32 products to eleven bits (TF32), which is twice as fast."""
    if not is_on_gpu(array):
        yield
        return
    import torch

    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def vector_norms(vectors: Array) -> Array:
    """Return Euclidean norms along the last axis, in one pass and without a temporary array."""
    xp = namespace_of(vectors)
    if not _is_numpy(vectors) and array_api_compat.is_torch_array(vectors):
        return xp.linalg.vector_norm(vectors, axis=-1)
    return xp.sqrt(xp.linalg.vecdot(vectors, vectors))


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error was caused by a lack of memory, on the host or on a GPU.

    Examples
    --------
    >>> is_out_of_memory(RuntimeError("CUDA out of memory.")), is_out_of_memory(ValueError("out of memory"))
    (True, False)
    """
    names_memory = isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in _OUT_OF_MEMORY)
    if names_memory or isinstance(error, MemoryError):
        return True
    earlier = error.__cause__ or error.__context__  # ending a recording on a GPU may raise a second error
    return earlier is not None and is_out_of_memory(earlier)


def is_on_gpu(array: Array) -> bool:
    """Return whether the array is on a GPU, so that reading a number from it would make the host wait."""
    return not _is_numpy(array) and bool(array_api_compat.is_torch_array(array) and array.is_cuda)


def require_finite(what: str, values: Array, *, cure: str = "Check the computation that produced it.") -> None:
    """Raise an `InputError` about `what` if the array holds NaN or Inf."""
    xp = namespace_of(values)
    if not bool(xp.all(xp.isfinite(values))):
        raise InputError(what, expected="finite", got="NaN or Inf", cure=cure)


def are_positive_definite(matrices: Array) -> npt.NDArray[np.bool_]:
    """Return, for each symmetric matrix of a batch, whether its Cholesky factorisation exists."""
    if array_api_compat.is_torch_array(matrices):
        import torch

        factors, info = torch.linalg.cholesky_ex(matrices)
        finite = torch.isfinite(torch.linalg.diagonal(factors)).all(dim=-1)
        return np.asarray(((info == 0) & finite).cpu())
    flat = np.reshape(matrices, (-1, *matrices.shape[-2:]))
    return np.reshape([_has_cholesky(matrix) for matrix in flat], matrices.shape[:-2])


def _has_cholesky(matrix: npt.NDArray[Any]) -> bool:
    try:
        factor = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return bool(np.isfinite(np.diagonal(factor)).all())
