"""A few words on the machine that measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path


def described() -> dict[str, str]:
    """Processor, cores, GPU, and the versions that matter; no names of hosts or people."""
    words = {
        "processor": _processor(),
        "cores": str(_usable_cores()),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("numpy", "scipy", "torch")},
    }
    gpu = gpu_name()
    return {**words, "gpu": gpu} if gpu else words


def describe_machine(machine: Mapping[str, str]) -> str:
    """What a page says of a machine: all but the versions, which stay in the result file."""
    versions = ("python", "numpy", "scipy", "torch")
    return ", ".join(f"{key} {value}" for key, value in machine.items() if key not in versions)


def gpu_name() -> str | None:
    """The CUDA device at hand, or None."""
    try:
        import torch
    except ImportError:
        return None
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _usable_cores() -> int | None:
    """Cores that this process may use, which `taskset` can make fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"
