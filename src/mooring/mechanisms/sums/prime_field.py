"""Arithmetic modulo the prime 2⁶¹ − 1, on arrays of 64-bit words.

Shares of a secret are elements of the field of these numbers. A signed number n is represented by n modulo the prime, so
that sums with a magnitude below half the prime are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError

PRIME = 2**61 - 1
LARGEST = (PRIME - 1) // 2
"""The largest magnitude of a signed number."""
Elements: TypeAlias = npt.NDArray[np.uint64]
Words: TypeAlias = Callable[[int], Elements]
"""A function that returns the next `count` words of a stream of uniform 64-bit words."""

_PRIME, _BITS = np.uint64(PRIME), np.uint64(61)
_LOW_31, _LOW_30 = np.uint64(2**31 - 1), np.uint64(2**30 - 1)
_ZERO, _1, _30, _31 = np.uint64(0), np.uint64(1), np.uint64(30), np.uint64(31)


def encode_signed(numbers: npt.NDArray[np.int64]) -> Elements:
    """Return signed 64-bit integers as elements; raise an `InputError` for other types and magnitudes above `LARGEST`."""
    numbers = np.asarray(numbers)
    if numbers.dtype != np.int64:
        raise InputError("numbers", expected="64-bit integers", got=str(numbers.dtype), cure="Quantise them first.")
    if numbers.size and (int(numbers.max()) > LARGEST or int(numbers.min()) < -LARGEST):
        cure = "Lower the resolution of the features, or the number of rows."
        problem = f"Some numbers exceed {LARGEST}, the largest magnitude in the field."
        raise InputError("numbers", problem=problem, cure=cure)
    return np.where(numbers < 0, numbers + PRIME, numbers).astype(np.uint64)


def decode_signed(elements: Elements) -> npt.NDArray[np.int64]:
    """Return the signed numbers that elements represent."""
    numbers = require_elements("elements", elements).astype(np.int64)
    return np.where(numbers > LARGEST, numbers - PRIME, numbers)


def add(a: Elements, b: Elements) -> Elements:
    """Return a + b."""
    return _reduced(a + b)


def multiply(a: Elements, b: Elements) -> Elements:
    """Return a · b.

    With a = a₁ 2³¹ + a₀ and b = b₁ 2³¹ + b₀, a b = a₁b₁ 2⁶² + (a₁b₀ + a₀b₁) 2³¹ + a₀b₀, where 2⁶¹ is 1 modulo the prime. All
    sums in the code are below 2⁶⁴.
    """
    a1, a0, b1, b0 = a >> _31, a & _LOW_31, b >> _31, b & _LOW_31
    middle = a1 * b0 + a0 * b1
    return _reduced(((a1 * b1) << _1) + (middle >> _30) + ((middle & _LOW_30) << _31) + a0 * b0)


def total(elements: Elements) -> Elements:
    """Return the sum of elements over the first axis."""
    low, high = elements & _LOW_31, elements >> _31  # sums of up to 2³² summands fit in a word
    high_sum = _reduced(high.sum(axis=0, dtype=np.uint64))
    return add(multiply(high_sum, np.full_like(high_sum, 2**31)), _reduced(low.sum(axis=0, dtype=np.uint64)))


def draw_elements(words: Words, count: int) -> Elements:
    """Return uniform elements: the low 61 bits of each word, redrawn where they equal the prime."""
    drawn = words(count) & _PRIME
    while (rejected := np.flatnonzero(drawn == _PRIME)).size:
        drawn[rejected] = words(rejected.size) & _PRIME
    return drawn


def require_elements(name: str, elements: npt.NDArray[np.generic]) -> Elements:
    """Return an array from another party as elements, or raise an `InputError` if it holds anything else."""
    if elements.dtype != np.uint64 or (elements.size and int(elements.max()) >= PRIME):
        got = f"{elements.dtype} numbers" if elements.dtype != np.uint64 else "numbers of 2⁶¹ − 1 or more"
        cure = "Ask the sender for it again."
        raise InputError(name, expected="elements of the field modulo 2⁶¹ − 1", got=got, cure=cure)
    return elements.view(np.ndarray)


def _reduced(words: Elements) -> Elements:
    """Return words below 2⁶⁴ modulo the prime."""
    folded = (words & _PRIME) + (words >> _BITS)
    return folded - np.where(folded >= _PRIME, _PRIME, _ZERO)
