"""Files of other people's data: where they are looked for, and what is said when they are absent, cut short or changed.

None of the data comes with mooring. Every message names the file, says what is wrong with it, and where to get it.
"""

from __future__ import annotations

import os
from pathlib import Path

from mooring import StorageError

ENVIRONMENT_VARIABLE = "MOORING_DATA"
DEFAULT_FOLDER = "data"

WHERE = {
    "mnist": "the MNIST home page or any mirror of it",
    "celeba": "the CelebA home page (aligned and cropped images), then pack it with "
    "mooring_studies.data.face_packing.pack_faces",
    "faces": "the InsightFace model zoo: the ArcFace MobileFaceNet 'w600k_mbf.onnx' of 112×112 pixels, for "
    "non-commercial research only",
    "heart_disease": "the UCI machine learning repository (Heart Disease)",
    "diabetes130": "the UCI machine learning repository (Diabetes 130-US Hospitals)",
    "adult": "the UCI machine learning repository (Adult)",
    "credit_default": "the UCI machine learning repository (Default of Credit Card Clients)",
}


def data_folder(data_dir: Path | None) -> Path:
    """Return the folder of all data: the one given, or that of the environment variable MOORING_DATA, or ./data."""
    if data_dir is not None:
        return Path(data_dir)
    return Path(os.environ.get(ENVIRONMENT_VARIABLE) or DEFAULT_FOLDER)


def find(data_dir: Path | None, name: str) -> Path:
    """Find a file, or the folder of a data set, among the data.

    Leading folders of the name may be missing on disk. Where a data set has no folder of its own, the folder of all data
    stands for it.
    """
    root = data_folder(data_dir)
    parts = Path(name).parts
    for start in range(len(parts)):
        candidate = root.joinpath(*parts[start:])
        if candidate.exists():
            return candidate
    if name in WHERE and root.is_dir():
        return root
    places = [str(root.joinpath(*parts[start:])) for start in range(len(parts))]
    raise missing(name, looked_in=" or ".join(places))


def find_packed(folder: Path, data_set: str, name: str) -> Path | None:
    """A file, as it is or with .gz, in the folder of its data set or in that of all data; None where it is not there."""
    places = (folder / "tabular" / data_set, folder / data_set, folder)
    candidates = (place / (name + ending) for place in places for ending in ("", ".gz"))
    return next((path for path in candidates if path.is_file()), None)


def missing(name: str, *, looked_in: str) -> StorageError:
    """The error for a file that is not there."""
    or_else = ", or --face-model to the file" if name.startswith("faces") else ""
    return StorageError(
        name,
        reason=f"there is no {looked_in}",
        cure=f"Get it from {source_of(name)}, and point --data-dir or {ENVIRONMENT_VARIABLE} to its folder{or_else}.",
    )


def cut_short(path: Path, name: str, *, reason: str) -> StorageError:
    """The error for a file that ends early or cannot be read; `name` says which data set it belongs to."""
    size = path.stat().st_size if path.is_file() else 0
    return StorageError(
        str(path),
        reason=f"{reason} ({size:,} bytes on disk); a download that was cut short looks like this",
        cure=f"Delete it and fetch it again from {source_of(name)}.",
    )


def changed(path: Path, name: str, *, reason: str) -> StorageError:
    """The error for a file that is whole, and not the one that was asked for."""
    return StorageError(str(path), reason=reason, cure=f"Fetch it again from {source_of(name)}.")


def require_checksum(path: Path, name: str, *, checksum: str, expected: str) -> None:
    """Refuse a file whose content is not the known one."""
    if checksum != expected:
        reason = f"its content has the SHA-256 {checksum[:16]}…, where {expected[:16]}… is known"
        raise changed(path, name, reason=reason)


def source_of(name: str) -> str:
    """Say in words where a data set comes from; `name` may be a file in its folder."""
    return next((WHERE[part] for part in Path(name).parts if part in WHERE), "where the data set is published")
