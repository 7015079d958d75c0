"""Standard normal noise for many draws at once, the same on every device.

NumPy draws it on the host, each piece from a stream of its own name, in as many threads as there are cores; so a draw has
the same noise on a laptop and on a GPU, alone or among two hundred, and with more participants or fewer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.randomness import Streams


def standard_normals(streams: Streams, shape: tuple[int, ...], places: Mapping[str, Any], *, device: Any) -> Any:
    """Return a float64 tensor of standard normal numbers.

    Parameters
    ----------
    streams : Streams
    shape : tuple of int
    places : mapping of stream name to index
        Which part of the tensor each stream fills; together they fill all of it, and each part is one run of memory.
    device : torch.device or str
    """
    import torch

    drawn: npt.NDArray[np.float64] = np.empty(shape)

    def fill(name: str) -> None:
        streams.named(name).standard_normal(out=drawn[places[name]])

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(fill, places))
    return torch.as_tensor(drawn, device=device)
