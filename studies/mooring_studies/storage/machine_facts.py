"""What a result was made with: machine, versions, date; no name of a host or a person."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mooring import __version__
from mooring_studies.settings.spec import Spec, code_digest, digest


def first_facts(spec: Spec, *, device: str = "cpu") -> dict[str, Any]:
    """What is known of a run before it begins: settings, key, versions, machine, date; a GPU only if it is used."""
    return {
        "study": spec.name,
        "spec": spec.as_dict(),
        "key": digest(spec, code_digest()),
        "mooring": __version__,
        "code_digest": code_digest(),
        "machine": machine(device),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "seeds": [spec.seed],
    }


def machine(device: str) -> dict[str, Any]:
    """Processor, cores, the GPU that is used, and the versions that numbers may depend on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpu": _gpu() if device == "cuda" else None,
        "python": platform.python_version(),
        **{name: _version(name) for name in ("numpy", "torch")},
    }


def cuda_is_there() -> bool:
    """Whether PyTorch is installed and finds a CUDA device."""
    if find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def _gpu() -> str | None:
    if not cuda_is_there():
        return None
    import torch

    return str(torch.cuda.get_device_name())


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
