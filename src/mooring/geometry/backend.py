"""NumPy or torch (CPU or CUDA) behind the array API standard.

The mathematics is written once, against the namespace of the arrays it is given. This file holds the few things the
standard leaves out: moving data between libraries, and a Cholesky test that answers instead of raising.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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


def namespace_of(*arrays: Array) -> Namespace:
    """Return the array namespace that all `arrays` share, or say that they do not share one."""
    try:
        return array_api_compat.array_namespace(*arrays)
    except TypeError:
        kinds = ", ".join(sorted({f"{type(array).__module__}.{type(array).__name__}" for array in arrays}))
        raise InputError(
            "the arrays of one call",
            expected="all of one array library (NumPy or torch)",
            got=kinds,
            cure="Convert them first, for instance with numpy.asarray or torch.as_tensor.",
        ) from None


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
    return xp.asarray(to_numpy(values), dtype=reference.dtype, device=device_of(reference))


def indices_beside(indices: npt.NDArray[Any], reference: Array) -> Array:
    """Return an index or mask array on the library and device of `reference`."""
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
    at_once = max(1, (_NUMBERS_ON_GPU if _is_on_gpu(stacks[0]) else _NUMBERS_IN_CACHE) // (n_rows * n_columns))
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

    Parameters
    ----------
    addend, left, right : arrays of shape (..., d, d)
    weight, scale : float, default 1
    """
    if not array_api_compat.is_torch_array(left):
        return weight * addend + scale * (left @ right)
    import torch

    stacks = (array.reshape(-1, *array.shape[-2:]) for array in (addend, left, right))
    return torch.baddbmm(*stacks, beta=weight, alpha=scale).reshape(addend.shape)


def vector_norms(vectors: Array) -> Array:
    """Euclidean norms along the last axis, in one pass and without a temporary."""
    xp = namespace_of(vectors)
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
    return error.__cause__ is not None and is_out_of_memory(error.__cause__)


def _is_on_gpu(array: Array) -> bool:
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
