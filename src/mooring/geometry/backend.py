"""NumPy or torch (CPU or CUDA) behind the array API standard.

The mathematics is written once, against the namespace of the arrays it is given. This file holds the few things the
standard leaves out: moving data between libraries, and a Cholesky test that answers instead of raising.
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


_NAMESPACES: dict[type, Namespace] = {}  # those found so far: an iteration asks a hundred times


class _Recordings(threading.local):
    """The stream, and the first one, of this thread's recordings on each device.

    They share the stream and, as long as the first one lives, their memory: only one of them runs at a time.
    """

    def __init__(self) -> None:
        self.first: dict[Any, tuple[Any, Any]] = {}


_RECORDINGS = _Recordings()


def namespace_of(*arrays: Array) -> Namespace:
    """Return the array namespace that all `arrays` share, or say that they do not share one."""
    kind = type(arrays[0])
    alike = all(type(array) is kind for array in arrays)
    if alike and kind in _NAMESPACES:
        return _NAMESPACES[kind]
    try:
        found = array_api_compat.array_namespace(*arrays)
    except TypeError:
        kinds = ", ".join(sorted({f"{type(array).__module__}.{type(array).__name__}" for array in arrays}))
        expected, got = "all of one array library (NumPy or torch)", kinds
        cure = "Convert them first, for instance with numpy.asarray or torch.as_tensor."
        raise InputError("the arrays of one call", expected=expected, got=got, cure=cure) from None
    if alike:
        _NAMESPACES[kind] = found
    return found


def device_of(array: Array) -> Any:
    """Return the device that holds `array`."""
    return array_api_compat.device(array)


def as_float64(array: Array) -> Array:
    """Return `array` in float64; lists and integer arrays are welcome."""
    if not array_api_compat.is_array_api_obj(array):
        return np.asarray(array, dtype=np.float64)
    xp = namespace_of(array)
    return array if array.dtype == xp.float64 else xp.astype(array, xp.float64)


def to_numpy(array: Array) -> npt.NDArray[Any]:
    """Return `array` as a NumPy array, brought over from its device if need be."""
    if array_api_compat.is_torch_array(array):
        return np.asarray(array.detach().cpu())
    return np.asarray(array)


def like(values: Array, reference: Array) -> Array:
    """Return `values` as an array of the same library, device and type as `reference`."""
    xp = namespace_of(reference)
    if type(values) is type(reference) and device_of(values) == device_of(reference):
        return xp.astype(values, reference.dtype, copy=False)
    return xp.asarray(to_numpy(values), dtype=reference.dtype, device=device_of(reference))


def indices_beside(indices: Array, reference: Array) -> Array:
    """Return an index or mask array on the library and device of `reference`."""
    if type(indices) is type(reference) and device_of(indices) == device_of(reference):
        return indices
    return namespace_of(reference).asarray(indices, device=device_of(reference))


def transpose(matrices: Array) -> Array:
    """Return the transpose of the last two axes."""
    return namespace_of(matrices).matrix_transpose(matrices)


def identity_like(matrices: Array) -> Array:
    """Return the identity of the size, type and device of square `matrices`."""
    xp = namespace_of(matrices)
    return xp.eye(matrices.shape[-1], dtype=matrices.dtype, device=device_of(matrices))


def blockwise(function: Callable[..., Array], *stacks: Array) -> Array:
    """Apply a function of matrices to stacks of them, a few at a time.

    Whatever the function allocates on its way then stays small, and on a CPU in the cache.
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

    Torch does that in the product itself; the sum would otherwise move as many bytes through a GPU's memory again.
    """
    if not array_api_compat.is_torch_array(left):
        return weight * addend + scale * (left @ right)
    import torch

    stacks = (array.reshape(-1, *array.shape[-2:]) for array in (addend, left, right))
    return torch.baddbmm(*stacks, beta=weight, alpha=scale).reshape(addend.shape)


def overwrite(target: Array, values: Array, chosen: Array) -> None:
    """Replace the chosen numbers of an array by others, in place."""
    chosen = chosen.reshape(*chosen.shape, *[1] * (target.ndim - chosen.ndim))
    if type(target) is not np.ndarray:
        import torch

        torch.where(chosen, values, target, out=target)
    elif chosen.size < target.size and chosen.all():
        target[...] = values  # quicker than with a mask
    else:
        np.copyto(target, values, where=chosen)


def cholesky(matrices: Array) -> Array:
    """Cholesky factors. Torch does not wait for a GPU to say whether there are any, and gives NaN where there are none."""
    if not array_api_compat.is_torch_array(matrices):
        return np.linalg.cholesky(matrices)
    import torch

    factors, info = torch.linalg.cholesky_ex(matrices)
    return torch.where((info == 0)[..., None, None], factors, torch.nan)


def solve(matrices: Array, right: Array) -> Array:
    """Solutions of linear systems that are known to be regular, without waiting for a GPU."""
    if not array_api_compat.is_torch_array(matrices):
        return np.linalg.solve(matrices, right)
    import torch

    return torch.linalg.solve_ex(matrices, right)[0]


def has_fast_float64(array: Array) -> bool:
    """Whether the array is on a GPU that multiplies float64 matrices as fast as float32 ones (A100, H100, H200)."""
    if not is_on_gpu(array):
        return False
    import torch

    return torch.cuda.get_device_capability(device_of(array)) in _WITH_FLOAT64_TENSOR_CORES


def capture(function: Callable[[], None], device: Any) -> Callable[[], None] | None:
    """Record what a function does on a GPU, to arrays that it changes in place, and return what repeats it.

    A repetition launches all kernels at once, without Python. The function is not run. None where it cannot be recorded.
    """
    import torch

    with torch.cuda.device(device):
        if device not in _RECORDINGS.first:
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            _RECORDINGS.first[device] = stream, _recorded(lambda: torch.zeros(1, device=device), stream)
        stream, first = _RECORDINGS.first[device]
        try:
            return _recorded(function, stream, pool=first.pool()).replay  # type: ignore[no-any-return]
        except RuntimeError:  # it waits for the GPU, or memory runs out, of which less can be freed meanwhile
            del _RECORDINGS.first[device]
            with suppress(RuntimeError, AttributeError):  # where torch has not left the pool itself
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
    """Let a GPU round the factors of float32 products to eleven bits, which makes them twice as fast."""
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
    """Euclidean norms along the last axis, in one pass and without a temporary."""
    xp = namespace_of(vectors)
    if array_api_compat.is_torch_array(vectors):
        return xp.linalg.vector_norm(vectors, axis=-1)
    return xp.sqrt(xp.linalg.vecdot(vectors, vectors))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is, or was raised because of, a lack of memory: the host's or a GPU's.

    Examples
    --------
    >>> is_out_of_memory(RuntimeError("CUDA out of memory.")), is_out_of_memory(ValueError("out of memory"))
    (True, False)
    """
    said = isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)
    if said or isinstance(error, MemoryError):
        return True
    before = error.__cause__ or error.__context__  # ending a recording on a GPU may fail in turn
    return before is not None and is_out_of_memory(before)


def is_on_gpu(array: Array) -> bool:
    """Whether reading a number of the array would wait for a GPU."""
    return bool(array_api_compat.is_torch_array(array) and array.is_cuda)


def require_finite(what: str, values: Array, *, cure: str = "Look for a failed computation upstream.") -> None:
    """Refuse an array that holds NaN or Inf; `what` and `cure` are the error's."""
    xp = namespace_of(values)
    if not bool(xp.all(xp.isfinite(values))):
        raise InputError(what, expected="finite", got="NaN or Inf", cure=cure)


def are_positive_definite(matrices: Array) -> npt.NDArray[np.bool_]:
    """Say of each symmetric matrix in a batch whether its Cholesky factorisation exists."""
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
