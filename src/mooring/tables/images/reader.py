"""Images from folders, archives (.npz), IDX files (the form of MNIST) and Parquet, as rows of pixel values between 0 and 1.

The sizes in the header of a file of arrays are checked against the size of the file before memory is allocated. No pickle is
loaded.
"""

from __future__ import annotations

import gzip
import math
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mooring.errors import InputError
from mooring.tables.files import is_gzip, is_parquet, open_table, require_file
from mooring.tables.images.pixels import (
    IMAGE_SUFFIXES,
    MAX_NUMBERS,
    Pixels,
    as_pixel_values,
    as_size,
    check_count,
    decode_images,
    resize_images,
)
from mooring.tables.inference import RowKeys, describe_dropped, infer_column, plain_values, read_keys
from mooring.tables.reader import read_columns
from mooring.tables.records import Records
from mooring.tables.schema import listed, require_column
from mooring.typing import Matrix

_NAME = re.compile(r"images[-.]idx[34]-ubyte(\.gz)?$")
_UNSIGNED_BYTES = 0x08
_BEST_COMPRESSION = 1032  # deflate never compresses by a larger factor


def read_images(
    path: str | Path,
    *,
    labels: str | Path | None = None,
    size: int | tuple[int, int] | None = None,
    image_column: str | None = None,
    label: str | None = None,
    group_by: str | None = None,
) -> Records:
    """Read images as rows of pixel values between 0 and 1.

    Parameters
    ----------
    path : path
        One of these: a folder of images (PNG, JPEG, WebP or BMP), with one subfolder per class if they have classes; an
        .npz archive with an array `images` of shape (n, height, width) or (n, height, width, channels) and, optionally,
        `labels` and `groups`; a file of IDX images such as `train-images-idx3-ubyte.gz`, or a folder that contains it; a
        Parquet file with a column of encoded images.
    labels : path, optional
        The IDX file with the labels, if it is not beside the images under the usual name.
    size : int or (int, int), optional
        Height and width to resize all images to; without it, all images must have the same size.
    image_column, label, group_by : str, optional
        Columns of a Parquet file: the images (by default, the first column of bytes whose name starts with "image"), the
        classes, and the participant or person that an image belongs to. All other columns of numbers and words become
        attributes.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "images.npz"
    ...     np.savez(path, images=np.full((3, 4, 4), 255, dtype=np.uint8), labels=np.array([7, 7, 9]))
    ...     records = read_images(path)
    >>> records.rows.shape, records.image_shape, records.label_names
    ((3, 16), (4, 4), ('7', '9'))
    """
    path, target = Path(path), as_size(size)
    in_parquet = is_parquet(path) and path.is_file()
    columns = {"image_column": image_column, "label": label, "group_by": group_by}
    if not in_parquet:
        for what, name in columns.items():
            if name is not None:
                raise _does_not_apply(what, name, "images in a Parquet file")
    if path.is_dir():
        idx, notes = find_idx_images(path)
        if idx is not None:
            return _read_idx_pair(idx, labels, target, notes)
    if labels is not None and not is_idx_file(path):
        raise _does_not_apply("labels", str(labels), "images in an IDX file")
    if path.is_dir():
        return _read_folder(path, target)
    require_file(path)
    if is_idx_file(path):
        return _read_idx_pair(path, labels, target, ())
    if path.suffix.lower() == ".npz":
        return _read_npz(path, target)
    if in_parquet:
        return _read_parquet_images(path, target, image_column=image_column, label=label, group_by=group_by)
    raise InputError(
        "path",
        expected="a folder of images, an .npz archive, an IDX file (...-images-idx3-ubyte) or a Parquet file",
        got=f"a file that ends in {path.suffix!r}",
        cure="Put the images into a folder with one subfolder per class.",
    )


def holds_images(path: Path) -> bool:
    """Whether a path may contain images: a folder, an .npz archive, an IDX file, or Parquet with a column of images."""
    if path.is_dir() or is_idx_file(path) or path.suffix.lower() == ".npz":
        return True
    return is_parquet(path) and bool(_image_columns(open_table(path).schema))


def _image_columns(schema: Any) -> list[str]:
    """Return the names that start with "image", among the columns of bytes in a pyarrow schema."""
    return [field.name for field in schema if field.name.lower().startswith("image") and _holds_bytes(field.type)]


def _read_folder(folder: Path, size: tuple[int, int] | None) -> Records:
    subfolders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    by_class = {sub.name: _image_files(sub) for sub in subfolders}
    by_class = {name: files for name, files in by_class.items() if files}
    loose = _image_files(folder)
    notes = [f"images outside the class folders are ignored: {len(loose)}"] if by_class and loose else []
    files = [file for class_files in by_class.values() for file in class_files] or loose
    if not files:
        raise InputError(
            "path",
            expected=f"a folder with images ({', '.join(IMAGE_SUFFIXES)}), one subfolder per class",
            got=f"a folder without images in it or in its {len(subfolders)} subfolders",
            cure="Check the name of the folder and the suffixes of the files.",
        )
    counts = [len(class_files) for class_files in by_class.values()]
    codes = np.repeat(np.arange(len(by_class)), counts)
    starts = np.cumsum([0, *counts])

    def place(k: int) -> str:
        if not by_class:
            return f"file {k + 1} of the folder, in order of name"
        return f"file {k - starts[codes[k]] + 1} of subfolder {list(by_class)[codes[k]]!r}, in order of name"

    pixels = decode_images(files, size=size, place=place)
    return _records(
        _as_fractions(pixels), labels=codes if by_class else None, label_names=tuple(by_class), notes=tuple(notes)
    )


def _image_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())


def _read_npz(path: Path, size: tuple[int, int] | None) -> Records:
    images, labels, groups = read_archive(path)
    if images.ndim not in (3, 4) or 0 in images.shape:
        expected, got = "an array of shape (n, height, width) or (n, height, width, channels)", f"shape {images.shape}"
        raise InputError("images", expected=expected, got=got, cure="Put the images along the first axis.")
    for what, values in (("labels", labels), ("groups", groups)):
        if values is not None and values.shape != images.shape[:1]:
            expected = f"one entry for each of the {images.shape[0]} images"
            raise InputError(what, expected=expected, got=f"shape {values.shape}", cure="Check its length.")
    pixels, notes = as_pixel_values(images)
    keys = _row_keys(labels, groups, n_images=images.shape[0])
    return _records(_resized(pixels, size), keys, notes=notes)


def _read_idx_pair(
    path: Path, labels: str | Path | None, size: tuple[int, int] | None, notes: tuple[str, ...]
) -> Records:
    images = read_idx(path, n_dimensions=(3, 4))
    labels_path = find_idx_labels(path) if labels is None else Path(labels)
    if labels_path is None:
        return _records(
            _resized(_as_fractions(images), size), notes=(*notes, f"there are no labels beside {path.name}")
        )
    classes = read_idx(labels_path, n_dimensions=(1,))
    if classes.shape[0] != images.shape[0]:
        got, cure = f"{classes.shape[0]} labels", f"Check that {labels_path.name} belongs to {path.name}."
        raise InputError("labels", expected=f"one label for each of the {images.shape[0]} images", got=got, cure=cure)
    names, codes = np.unique(classes, return_inverse=True)
    label_names = tuple(map(str, names.tolist()))
    return _records(_resized(_as_fractions(images), size), labels=codes, label_names=label_names, notes=notes)


def _read_parquet_images(
    path: Path, size: tuple[int, int] | None, *, image_column: str | None, label: str | None, group_by: str | None
) -> Records:
    table = read_columns(open_table(path), keep_bytes=True)
    for what, name in (("image_column", image_column), ("label", label), ("group_by", group_by)):
        if name is not None:
            require_column(what, name, table.column_names)
    candidates = [image_column] if image_column is not None else _image_columns(table.schema)[:1]
    if not candidates or not _holds_bytes(table.schema.field(candidates[0]).type):
        expected, got = "a column of encoded images (bytes)", f"none among {listed(table.column_names)}"
        raise InputError("image_column", expected=expected, got=got, cure="Name the column with image_column.")
    encoded = table.column(candidates[0])
    if pa.types.is_struct(encoded.type):
        encoded = pc.struct_field(encoded, "bytes")
    columns = {name: infer_column(name, table.column(name)) for name in table.column_names if name != candidates[0]}
    absent = np.asarray(encoded.is_null())
    if absent.all():
        raise InputError("path", expected="a table with images", got="none in any row", cure=f"Look into {path.name}.")
    notes = [describe_dropped(np.count_nonzero(absent), "an image")] if absent.any() else []
    label_column, group_column = (None if name is None else columns.get(name) for name in (label, group_by))
    keys = read_keys(label_column, group_column, keep=~absent, max_integer_classes=np.inf)
    kept = np.flatnonzero(keys.keep)
    pixels = decode_images(
        encoded.take(pa.array(kept)).to_pylist(), size=size, place=lambda k: f"row {kept[k] + 1} of the table"
    )
    others = {
        name: plain_values(column)[kept]
        for name, column in columns.items()
        if name not in (label, group_by) and not column.unusable
    }
    return _records(_as_fractions(pixels), keys, attributes=others, notes=tuple(notes))


def _row_keys(labels: npt.NDArray[Any] | None, groups: npt.NDArray[Any] | None, *, n_images: int) -> RowKeys:
    columns = []
    for what, values in (("labels", labels), ("groups", groups)):
        if values is not None and values.dtype.kind not in "biufU":
            expected = "an array of numbers or words"
            raise InputError(what, expected=expected, got=f"an array of {values.dtype}", cure="Save whole numbers.")
        native = None if values is None else pa.array(values.astype(values.dtype.newbyteorder("=")))
        columns.append(None if native is None else infer_column(what, native))
    keep = np.ones(n_images, dtype=np.bool_)
    keys = read_keys(columns[0], columns[1], keep=keep, max_integer_classes=np.inf)
    if not keys.keep.all():
        cure = "Drop images without a label or a group first."
        raise InputError("labels", expected="complete, as must groups", got="missing values", cure=cure)
    return keys


def _records(images: Matrix, keys: RowKeys | None = None, *, notes: tuple[str, ...], **details: Any) -> Records:
    shape = images.shape[1:-1] if images.ndim == 4 and images.shape[-1] == 1 else images.shape[1:]
    width = int(np.prod(shape))
    if keys is not None:
        details |= {"labels": keys.labels, "label_names": keys.label_names}
        details |= {"groups": keys.groups, "group_names": keys.group_names}
        notes = (*notes, *keys.notes)
    return Records(
        rows=images.reshape(images.shape[0], width),
        feature_names=tuple(f"pixel {k + 1}" for k in range(width)),
        image_shape=tuple(int(side) for side in shape),
        notes=notes,
        **details,
    )


def _as_fractions(pixels: Pixels) -> Matrix:
    return np.divide(pixels, 255.0, dtype=np.float64)


def _resized(images: Matrix, size: tuple[int, int] | None) -> Matrix:
    return images if size is None or images.shape[1:3] == size else resize_images(images, size)


def _holds_bytes(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return any(field.name == "bytes" and _holds_bytes(field.type) for field in kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _does_not_apply(what: str, value: str, where: str) -> InputError:
    return InputError(what, expected=f"left out except for {where}", got=repr(value), cure=f"Leave {what} out.")


def is_idx_file(path: Path) -> bool:
    """Whether a file's name is that of IDX images."""
    return _NAME.search(path.name) is not None


def find_idx_images(folder: Path) -> tuple[Path | None, tuple[str, ...]]:
    """Return the file of IDX images in a folder (the only one, the training images, or None), and notes for the reader."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and is_idx_file(path))
    if len(files) <= 1:
        return (files[0] if files else None), ()
    training = [path for path in files if path.name.startswith("train")]
    if len(training) != 1:
        raise InputError(
            "path",
            expected="a folder with one file of IDX images, or one that starts with 'train'",
            got=listed([path.name for path in files]),
            cure="Give the path of one of the files.",
        )
    others = [path.name for path in files if path != training[0]]
    return training[0], (f"only {training[0].name} is read; ignored: {listed(others)}",)


def find_idx_labels(images: Path) -> Path | None:
    """Return the file of labels that is named after a file of IDX images and lies beside it; None if there is none."""
    name = re.sub(r"images([-.])idx[34]", r"labels\1idx1", images.name)
    bare = name.removesuffix(".gz")
    return next((path for path in (images.with_name(n) for n in (name, bare, bare + ".gz")) if path.is_file()), None)


def read_idx(path: Path, *, n_dimensions: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, whose array has one of these numbers of dimensions.

    The header is checked against the size of the file before memory is allocated.
    """
    require_file(path)
    try:
        with gzip.open(path) if is_gzip(path) else path.open("rb") as file:
            magic = file.read(4)
            _check_magic(path, magic, n_dimensions)
            shape = struct.unpack(f">{magic[3]}I", file.read(4 * magic[3]))
            if 0 in shape:
                raise _damaged(path, f"shape {shape}")
            promised = math.prod(shape)
            ratio = _BEST_COMPRESSION if is_gzip(path) else 1
            if promised > ratio * path.stat().st_size or promised > MAX_NUMBERS:
                got = f"a header that promises {promised:,} bytes, more than the file can hold, or too many to read"
                raise _damaged(path, got)
            content = file.read(promised + 1)
    except (OSError, EOFError, zlib.error, struct.error):
        raise _damaged(path, "a file that is truncated or damaged") from None
    if len(content) != promised:
        more_or_less = "more" if len(content) > promised else f"only {len(content):,}"
        raise _damaged(path, f"a header that promises {promised:,} bytes and a file that holds {more_or_less}")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _check_magic(path: Path, magic: bytes, n_dimensions: tuple[int, ...]) -> None:
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] != _UNSIGNED_BYTES:
        raise _damaged(path, "a file that does not start as one")
    if magic[3] not in n_dimensions:
        raise _damaged(path, f"an array of {magic[3]} dimensions")


def _damaged(path: Path, got: str) -> InputError:
    cure = f"Check that {path.name} is the right file, or fetch it again from its source."
    return InputError("path", expected="an IDX file of unsigned bytes", got=got, cure=cure)


def read_archive(path: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
    """Read the arrays `images`, `labels` and `groups` of an archive; the last two may be absent."""
    try:
        with zipfile.ZipFile(path) as archive:
            if "images.npy" not in archive.namelist():
                raise _refused(path, "an archive without an array of that name")
            images = _member(archive, path, "images")
            assert images is not None
            return images, _member(archive, path, "labels"), _member(archive, path, "groups")
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError):
        raise _refused(path, "a file that is damaged or not an archive") from None


def _member(archive: zipfile.ZipFile, path: Path, name: str) -> npt.NDArray[Any] | None:
    if f"{name}.npy" not in archive.namelist():
        return None
    with archive.open(f"{name}.npy") as file:
        try:
            version = np.lib.format.read_magic(file)
            header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, fortran_order, dtype = header[version](file)
        except Exception:  # a hostile header makes the parser raise errors that it does not document
            raise _refused(path, f"an array {name!r} with a damaged header") from None
        if dtype.hasobject:
            raise _refused(path, f"an array {name!r} of pickled objects, which could run code")
        if dtype.itemsize == 0 or any(side < 0 for side in shape):
            raise _refused(path, f"an array {name!r} with a damaged header")
        count = math.prod(shape)
        check_count(count)
        if count * dtype.itemsize > archive.getinfo(f"{name}.npy").file_size:
            raise _refused(path, f"an array {name!r} whose header promises more than the file holds")
        content = file.read(count * dtype.itemsize)
    if len(content) != count * dtype.itemsize:
        raise _refused(path, f"an array {name!r} that is truncated")
    array = np.frombuffer(content, dtype=dtype)
    return array.reshape(shape, order="F" if fortran_order else "C")


def _refused(path: Path, got: str) -> InputError:
    cure = f"Write {path.name} with numpy.savez_compressed(path, images=..., labels=...)."
    return InputError("path", expected="an archive with an array 'images'", got=got, cure=cure)
