import gzip
import io
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from mooring import InputError
from mooring.errors import MissingExtraError, StorageError
from mooring.tables import read_images, read_records

Image = pytest.importorskip("PIL.Image")
Refused = Callable[..., None]
TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, size=(6, 4, 3), dtype=np.uint8)


def save_idx(path: Path, array: np.ndarray, *, shape: tuple[int, ...] | None = None, cut: int = 0) -> Path:
    shape = array.shape if shape is None else shape
    content = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + array.tobytes()
    content = content[: len(content) - cut]
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def save_classes(folder: Path, images: dict[str, list[np.ndarray]], suffix: str = "png") -> Path:
    for name, arrays in images.items():
        (folder / name).mkdir(parents=True)
        for k, array in enumerate(arrays):
            Image.fromarray(array).save(folder / name / f"{k}.{suffix}", lossless=True)
    return folder


def encoded(array: np.ndarray, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format=kind, lossless=True)
    return buffer.getvalue()


@pytest.mark.parametrize("suffix", ["png", "bmp", "webp"])
def test_subfolders_are_classes(suffix: str, tmp_path: Path, pixels: np.ndarray) -> None:
    colour = [np.stack([x, x[::-1], x]).transpose(1, 2, 0) for x in pixels]
    save_classes(tmp_path / "pets", {"dogs": colour[:2], "cats": colour[2:]}, suffix)
    (tmp_path / "pets" / "cats" / "notes.txt").write_text("not an image")
    (tmp_path / "pets" / "empty").mkdir()
    records = read_records(tmp_path / "pets")
    assert records.label_names == ("cats", "dogs")
    assert records.labels.tolist() == [0, 0, 0, 0, 1, 1]
    assert records.image_shape == (4, 3, 3)
    assert np.allclose(records.rows[0] * 255, colour[2].ravel())


def test_images_without_subfolders_have_no_class(tmp_path: Path, pixels: np.ndarray) -> None:
    save_classes(tmp_path, {"all": list(pixels)})
    records = read_images(tmp_path / "all")
    assert records.labels is None
    assert records.image_shape == (4, 3)
    assert np.allclose(records.rows * 255, pixels.reshape(6, -1))


def test_many_images_keep_their_order(tmp_path: Path) -> None:
    """More than one block, so more than one thread."""
    images = [encoded(np.full((2, 2), k % 256, dtype=np.uint8)) for k in range(600)]
    pa.parquet.write_table(pa.table({"image": images}), tmp_path / "t.parquet")
    assert np.allclose(read_images(tmp_path / "t.parquet").rows[:, 0] * 255, np.arange(600) % 256)


def test_grey_images_among_colour_ones_become_colour(tmp_path: Path, pixels: np.ndarray) -> None:
    folder = save_classes(tmp_path / "a", {"x": [pixels[0], np.stack([pixels[1]] * 3, axis=-1)]})
    records = read_images(folder)
    assert records.image_shape == (4, 3, 3)
    assert np.allclose(records.rows[0].reshape(4, 3, 3)[..., 2] * 255, pixels[0])


def test_deep_grey_and_palettes_are_read(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    Image.fromarray(np.full((2, 2), 65535, dtype=np.uint16)).save(tmp_path / "x" / "0.png")
    palette = Image.fromarray(np.full((2, 2, 3), 255, dtype=np.uint8)).convert("P")
    palette.save(tmp_path / "x" / "1.png", transparency=b"\x00\xff")
    records = read_images(tmp_path)
    assert np.allclose(records.rows, 1.0)


def test_images_of_different_shape_need_a_size(tmp_path: Path, pixels: np.ndarray) -> None:
    folder = save_classes(tmp_path / "a", {"x": [pixels[0]], "y": [pixels[1], np.zeros((5, 5), dtype=np.uint8)]})
    with pytest.raises(InputError) as caught:
        read_images(folder)
    assert "file 2 of subfolder 'y'" in caught.value.got
    assert "--size" in caught.value.cure
    assert read_images(folder, size=2).image_shape == (2, 2)
    assert read_images(folder, size=(2, 3)).image_shape == (2, 3)


def test_a_size_averages_pixels_alike_for_every_source(tmp_path: Path) -> None:
    image = np.array([[0, 100, 200, 200], [0, 100, 0, 0]], dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=image[None])
    folder = save_classes(tmp_path / "a", {"x": [image]})
    for path in (tmp_path / "a.npz", save_idx(tmp_path / TRAIN_IMAGES, image[None]), folder):
        assert np.allclose(read_images(path, size=(1, 2)).rows * 255, [[50, 100]], atol=1e-4)


def test_a_damaged_image_is_refused_by_its_place(tmp_path: Path, pixels: np.ndarray, refused: Refused) -> None:
    folder = save_classes(tmp_path / "a", {"x": list(pixels)})
    whole = (folder / "x" / "3.png").read_bytes()
    for content in (b"secret", whole[:40], b""):
        (folder / "x" / "3.png").write_bytes(content)
        refused(lambda: read_images(folder), "path", "PNG", "file 4 of subfolder 'x'")


def test_a_folder_without_images_is_refused(tmp_path: Path, refused: Refused) -> None:
    refused(lambda: read_images(tmp_path), "path", "a folder with images", "0 subfolders")


def test_archives_are_read_whole(tmp_path: Path, pixels: np.ndarray) -> None:
    np.savez_compressed(
        tmp_path / "a.npz", images=pixels[..., None], labels=np.array(["u", "v"] * 3), groups=np.array([5, 5, 7] * 2)
    )
    records = read_records(tmp_path / "a.npz")
    assert np.allclose(records.rows * 255, pixels.reshape(6, -1))
    assert records.image_shape == (4, 3)
    assert (records.label_names, records.group_names) == (("u", "v"), ("5", "7"))
    assert records.groups.tolist() == [0, 0, 1] * 2


def test_pixels_of_other_types_come_out_between_0_and_1(tmp_path: Path) -> None:
    shape = (1, 1, 2)
    for values, expected, n_notes in (
        (np.array([0.0, 0.5]), [0.0, 0.5], 0),
        (np.array([0, 255]), [0.0, 1.0], 1),
        (np.array([0, 65535], dtype=np.uint16), [0.0, 1.0], 0),
        (np.array([False, True]), [0.0, 1.0], 0),
        (np.array([0, 255], dtype=np.uint8), [0.0, 1.0], 0),
    ):
        np.savez(tmp_path / "a.npz", images=np.asfortranarray(values.reshape(shape)))
        records = read_images(tmp_path / "a.npz")
        assert records.rows.tolist() == [expected]
        assert len(records.notes) == n_notes


@pytest.mark.parametrize(
    ("arrays", "what", "expected", "got"),
    [
        ({"pictures": np.zeros(3)}, "path", "an array 'images'", "without an array"),
        ({"images": np.zeros((2, 3))}, "images", "(n, height, width)", "shape (2, 3)"),
        ({"images": np.zeros((0, 3, 3))}, "images", "(n, height, width)", "shape (0, 3, 3)"),
        ({"images": np.full((1, 3, 3), -1.0)}, "images", "between 0 and 1", "outside"),
        ({"images": np.full((1, 3, 3), np.nan)}, "images", "between 0 and 1", "not finite"),
        ({"images": np.full((1, 3, 3), "a")}, "images", "numbers", "<U1"),
        ({"images": np.zeros((1, 3, 3)), "labels": np.zeros(2)}, "labels", "each of the 1 images", "shape (2,)"),
        ({"images": np.zeros((1, 3, 3)), "labels": np.array([b"x"])}, "labels", "numbers or words", "|S1"),
    ],
)
def test_archives_with_other_contents_are_refused(
    arrays: dict[str, np.ndarray], what: str, expected: str, got: str, tmp_path: Path, refused: Refused
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    refused(lambda: read_images(tmp_path / "a.npz"), what, expected, got)


class Tripwire:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["images", "labels"])
def test_pickles_in_an_archive_are_refused_and_never_run(name: str, tmp_path: Path, refused: Refused) -> None:
    sprung = tmp_path / "sprung"
    arrays = {"images": np.zeros((1, 2, 2)), name: np.array([Tripwire(sprung)], dtype=object)}
    np.savez(tmp_path / "a.npz", **arrays)
    refused(lambda: read_images(tmp_path / "a.npz"), "path", "'images'", "pickled objects")
    assert not sprung.exists()


@pytest.mark.parametrize("shape", ["(9, 9999, 9999)", "(99999999999, 9, 9)", "(-1, 22, 22)", "(10, 22, 22"])
def test_archives_that_promise_more_than_they_hold_are_refused(shape: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((10, 22, 22), dtype=np.uint8))
    content = (tmp_path / "a.npz").read_bytes()
    old = b"(10, 22, 22), }"
    assert content.count(old) == 1
    new = f"{shape}, }}".encode()
    start = content.index(old)
    patched = content[:start] + new + content[start + len(new) :]  # eats the padding of the header
    (tmp_path / "a.npz").write_bytes(patched)
    with pytest.raises(InputError):
        read_images(tmp_path / "a.npz")


def test_damaged_archives_are_refused(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, images=np.random.default_rng(0).random((9, 9, 9)))
    whole = path.read_bytes()
    for content in (b"", b"secret", whole[:100], whole[:200] + b"\0\0\0\0" + whole[204:]):
        path.write_bytes(content)
        refused(lambda: read_images(path), "path", "an archive", "damaged")


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_idx_pairs_find_each_other(ending: str, tmp_path: Path, pixels: np.ndarray) -> None:
    images = save_idx(tmp_path / (TRAIN_IMAGES + ending), pixels)
    save_idx(tmp_path / (TRAIN_LABELS + ending), np.array([5, 0, 4, 5, 0, 4], dtype=np.uint8))
    for path in (images, tmp_path):
        records = read_records(path)
        assert np.allclose(records.rows * 255, pixels.reshape(6, -1))
        assert records.image_shape == (4, 3)
        assert records.label_names == ("0", "4", "5")
        assert records.labels.tolist() == [2, 0, 1] * 2
        assert records.notes == ()


def test_a_folder_with_training_and_test_images_gives_the_training_images(tmp_path: Path, pixels: np.ndarray) -> None:
    save_idx(tmp_path / TRAIN_IMAGES, pixels)
    save_idx(tmp_path / "t10k-images-idx3-ubyte", pixels[:2])
    records = read_images(tmp_path)
    assert records.n_rows == 6
    assert any("t10k" in note for note in records.notes)
    assert any("no labels" in note for note in records.notes)


def test_labels_elsewhere_can_be_named(tmp_path: Path, pixels: np.ndarray, refused: Refused) -> None:
    images = save_idx(tmp_path / TRAIN_IMAGES, pixels)
    other = save_idx(tmp_path / "other", np.zeros(6, dtype=np.uint8))
    assert read_images(images, labels=other).label_names == ("0",)
    save_idx(other, np.zeros(5, dtype=np.uint8))
    refused(lambda: read_images(images, labels=other), "labels", "each of the 6 images", "5 labels")


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("shape", "cut", "got"),
    [
        ((6, 4, 3), 1, "only 71"),
        ((6, 4, 3), 75, "truncated"),
        ((6, 4, 3), 86, "does not start"),
        ((6, 4, 2), 0, "more"),
        ((2**32 - 1, 2**32 - 1, 2**32 - 1), 0, "more than the file can hold"),
        ((60000, 28, 28), 0, "more than the file can hold"),
        ((0, 4, 3), 0, "shape (0, 4, 3)"),
        ((72,), 0, "1 dimensions"),
    ],
)
def test_idx_headers_that_lie_are_refused(
    ending: str, shape: tuple[int, ...], cut: int, got: str, tmp_path: Path, pixels: np.ndarray, refused: Refused
) -> None:
    path = save_idx(tmp_path / (TRAIN_IMAGES + ending), pixels, shape=shape, cut=cut)
    refused(lambda: read_images(path), "path", "an IDX file", got)


def test_a_truncated_compressed_idx_file_is_refused(tmp_path: Path, pixels: np.ndarray, refused: Refused) -> None:
    path = save_idx(tmp_path / (TRAIN_IMAGES + ".gz"), pixels)
    path.write_bytes(path.read_bytes()[:-20])
    refused(lambda: read_images(path), "path", "an IDX file", "truncated or damaged")


@pytest.mark.parametrize("as_struct", [False, True])
def test_parquet_files_with_images_are_recognised(as_struct: bool, tmp_path: Path, pixels: np.ndarray) -> None:
    images = [encoded(x, kind) for x, kind in zip(pixels, ["PNG", "WEBP"] * 3, strict=True)]
    images[1] = None
    columns = {
        "image_png": [{"bytes": x, "path": "x"} for x in images] if as_struct else images,
        "smiling": [True, False, True, None, False, True],
        "person": [30, 30, 7, 7, 30, 7],
        "pool": ["a", "b", "a", "a", "b", None],
        "file": list(range(6)),
    }
    path = tmp_path / "faces.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    records = read_records(path, label="smiling", group_by="person")
    kept = [0, 2, 4, 5]
    assert np.allclose(records.rows.reshape(4, 12, 3)[..., 1] * 255, pixels[kept].reshape(4, 12))
    assert records.label_names == ("false", "true")
    assert records.labels.tolist() == [1, 1, 0, 1]
    assert records.group_names == ("7", "30")
    assert records.groups.tolist() == [1, 0, 1, 0]
    assert records.attributes["file"].tolist() == kept
    assert records.attributes["pool"].tolist() == ["a", "a", "b", ""]
    assert records.notes == ("1 row without an image is dropped", "1 row without a label is dropped")


def test_whole_numbers_label_images_with_classes_however_many(tmp_path: Path, pixels: np.ndarray) -> None:
    columns = {"photo": [encoded(pixels[0])] * 30, "person": list(range(30))}
    pa.parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    records = read_records(tmp_path / "t.parquet", image_column="photo", label="person")
    assert records.label_kind == "classes"
    assert len(records.label_names) == 30


def test_parquet_columns_that_hold_no_images_are_refused(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"image": [b"secret", b"secret"], "age": [1, 2]}), path)
    refused(lambda: read_images(path, image_column="age"), "image_column", "bytes", "'image'")
    refused(lambda: read_images(path, image_column="no"), "image_column", "name of a column", "'no'")
    refused(lambda: read_images(path), "path", "images in PNG", "row 1 of the table")


def test_options_that_do_not_apply_are_refused(tmp_path: Path, pixels: np.ndarray, refused: Refused) -> None:
    np.savez(tmp_path / "a.npz", images=pixels)
    path = tmp_path / "a.npz"
    for what, value in (("label", "x"), ("group_by", "x"), ("image_column", "x"), ("labels", path)):
        refused(lambda what=what, v=value: read_images(path, **{what: v}), what, "left out", str(value))
    refused(lambda: read_records(path, ignore=["x"]), "ignore", "left out for images", "x")
    for size in (0, (3,), (2, -1)):
        refused(lambda size=size: read_images(path, size=size), "size", "(height, width)", str(size))
    with pytest.raises(StorageError):
        read_images(tmp_path / "no")
    refused(lambda: read_images(Path(__file__)), "path", "a folder of images", "'.py'")


def test_more_images_than_memory_are_refused_before_they_are_read(
    tmp_path: Path, pixels: np.ndarray, refused: Refused
) -> None:
    folder = save_classes(tmp_path / "a", {"x": list(pixels[:1])})
    picture = next((folder / "x").iterdir())
    for k in range(1, 1025):
        (folder / "x" / f"{k}.png").hardlink_to(picture)
    refused(lambda: read_images(folder, size=1024), "path", f"at most {2**30:,} pixel values", f"{1025 * 2**20:,}")


def test_without_pillow_the_extra_is_named(tmp_path: Path, pixels: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_classes(tmp_path / "a", {"x": list(pixels)})
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError) as caught:
        read_images(folder)
    assert caught.value.extra == "images"
