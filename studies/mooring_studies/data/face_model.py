"""The face auditor: a frozen recognition model in an ONNX file, from rows of 64×64 colour images to unit vectors.

The paper's auditor (Inception-ResNet-v1, trained on VGGFace2) is not the one used here: this is ArcFace's MobileFaceNet
(w600k_mbf.onnx), which takes 112×112 pixels, red first, scaled from −1 to 1. It is for non-commercial research only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mooring.errors import MissingExtraError
from mooring.metrics import OnnxEmbedding, onnx_embedding
from mooring_studies.data.downloads import cut_short, missing
from mooring_studies.data.faces import IMAGE_SHAPE

FILE_NAME = "w600k_mbf.onnx"
REFERENCE_CHECKSUM = "9cc6e4a75f0e2bf0b1aed94578f144d15175f357bdc05e815e5c4a02b319eb4f"
INPUT_SIZE = (112, 112)


def open_face_model(
    path: Path, *, n_threads: int | None = None, batch_size: int = 64, flip_channels: bool = False
) -> OnnxEmbedding:
    """Open a face model, to run on the CPU.

    Parameters
    ----------
    path : Path
        An ONNX file of an ArcFace model that takes (n, 3, 112, 112).
    n_threads : int, optional
        Cores to use; all of them by default.
    batch_size : int
        Faces at a time.
    flip_channels : bool
        Whether the model takes blue first. The model named above takes red first.

    Returns
    -------
    OnnxEmbedding
        Rows of shape (n, 12288), clamped to [0, 1], become unit vectors of shape (n, 512).
    """
    return onnx_embedding(
        path,
        image_shape=IMAGE_SHAPE,
        input_size=INPUT_SIZE,
        scale=2.0,  # (x − 127.5) / 127.5 on bytes is 2 x − 1 on pixels from 0 to 1
        offset=-1.0,
        flip_channels=flip_channels,
        batch_size=batch_size,
        _session=_open(Path(path), n_threads),
    )


def _open(path: Path, n_threads: int | None) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError(needed_for="A face model", package="onnxruntime", extra="images") from None
    if not path.is_file():
        raise missing(f"faces/{FILE_NAME}", looked_in=str(path))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # a library does not write to its user's terminal; failures are raised
    if n_threads is not None:
        options.intra_op_num_threads = n_threads
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception:  # ONNX Runtime has no common class for what it raises on a damaged file
        raise cut_short(path, "faces", reason="it is no ONNX model, or one without its end") from None
