import gzip
import hashlib
import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from mooring_studies.data import digits, downloads, tables
from mooring_studies.data.digits import load_digits, partition_digits
from mooring_studies.data.face_model import open_face_model
from mooring_studies.data.face_packing import pack_faces
from mooring_studies.data.faces import face_galleries, load_faces, partition_faces

from mooring.errors import StorageError
from mooring.randomness import Streams
from tests.raising import raising

STREAMS = Streams.for_experiment(seed=5)
SMALL = {
    digits.TRAIN_IMAGES: (60, 28, 28),
    digits.TRAIN_LABELS: (60,),
    digits.TEST_IMAGES: (20, 28, 28),
    digits.TEST_LABELS: (20,),
}


# --- where files are looked for


def test_given_folder_then_environment_then_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORING_DATA", str(tmp_path / "environment"))
    assert downloads.data_folder(tmp_path / "given") == tmp_path / "given"
    assert downloads.data_folder(None) == tmp_path / "environment"
    monkeypatch.delenv("MOORING_DATA")
    assert downloads.data_folder(None) == Path("data")


def test_a_missing_file_is_named_with_its_source(tmp_path: Path) -> None:
    name = "celeba/celeba64.parquet"
    with raising(StorageError, name, reason=str(tmp_path / "nowhere" / "celeba64.parquet"), cure="MOORING_DATA"):
        downloads.find(tmp_path / "nowhere", name)


# --- digits


def save_digits(folder: Path, *, packed: bool = True) -> dict[str, str]:
    """Write four small files; return the checksums of their contents."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    checksums = {}
    for name, shape in SMALL.items():
        array = rng.integers(0, 256 if len(shape) == 3 else 10, size=shape, dtype=np.uint8)
        content = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + array.tobytes()
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)
        checksums[name] = hashlib.sha256(content).hexdigest()
    return checksums


def load_small(folder: Path, checksums: dict[str, str]) -> digits.DigitRows:
    return load_digits(folder, _shapes=SMALL, _checksums=checksums)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("inner", ["", "mnist"])
def test_digits_packed_or_not_in_the_folder_or_in_mnist(tmp_path: Path, packed: bool, inner: str) -> None:
    checksums = save_digits(tmp_path / inner, packed=packed)
    rows = load_small(tmp_path, checksums)
    assert rows.train_images.shape == (60, 784)
    assert rows.test_images.shape == (20, 784)
    assert rows.train_images.dtype == np.uint8
    assert rows.train_labels.max() <= 9
    assert rows.checksums == checksums


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("name", "damage", "reason", "cure"),
    [
        (digits.TEST_LABELS, lambda content: None, "there is no", "MNIST home page or any mirror"),
        (digits.TRAIN_IMAGES, lambda content: content[:-1000], "cut short", "fetch it again from the MNIST home page"),
        (digits.TRAIN_LABELS, lambda content: content[:-1] + bytes([content[-1] ^ 1]), "", "etch it again"),
        (digits.TRAIN_IMAGES, lambda content: b"<html>not found</html>", "cut short", "etch it again"),
    ],
    ids=["missing", "half", "another", "page"],
)
def test_digits_that_are_not_mnist_are_refused(
    name: str, damage: Callable[[bytes], bytes | None], reason: str, cure: str, packed: bool, tmp_path: Path
) -> None:
    checksums = save_digits(tmp_path, packed=packed)
    path = tmp_path / (name + ".gz" * packed)
    content = damage(path.read_bytes())
    path.unlink() if content is None else path.write_bytes(content)
    with raising(StorageError, reason=reason, cure=cure) as caught:
        load_small(tmp_path, checksums)
    assert name in caught.value.what


def test_digits_of_another_content_or_size_are_refused(tmp_path: Path) -> None:
    checksums = save_digits(tmp_path)
    with raising(StorageError, reason="SHA-256"):
        load_small(tmp_path, checksums | {digits.TRAIN_LABELS: "0" * 64})
    with raising(StorageError, reason="60000"):
        load_digits(tmp_path)


@pytest.fixture(scope="module")
def digit_labels() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.integers(0, 10, size=1200), rng.integers(0, 10, size=400)


def test_digits_are_dealt_once_each_and_evenly(digit_labels: tuple[np.ndarray, np.ndarray]) -> None:
    train, test = digit_labels
    partition = partition_digits(train, test, n_participants=7, n_validation=200, streams=STREAMS)
    assert sorted(np.concatenate([*partition.train, *partition.validation])) == list(range(1200))
    assert sorted(np.concatenate(partition.test)) == list(range(400))
    assert sum(map(len, partition.validation)) == 200
    for parts, labels in ((partition.train, train), (partition.validation, train), (partition.test, test)):
        counts = np.array([np.bincount(labels[part], minlength=10) for part in parts])
        assert np.ptp(counts, axis=0).max() <= 1
    share = np.bincount(train[np.concatenate(partition.validation)], minlength=10) / np.bincount(train, minlength=10)
    assert np.abs(share - 200 / 1200).max() < 0.01


def test_the_same_streams_deal_the_same_digits_and_people(
    digit_labels: tuple[np.ndarray, np.ndarray], people: tuple[np.ndarray, np.ndarray]
) -> None:
    def split_rows(seed: int) -> tuple[Any, Any]:
        streams = Streams.for_experiment(seed=seed)
        rows = partition_digits(*digit_labels, n_participants=3, n_validation=90, streams=streams)
        faces = partition_faces(*people, n_participants=2, identities_each=20, streams=streams)
        return np.concatenate(rows.train).tolist(), faces.train[1].tolist()

    first, again, other = split_rows(1), split_rows(1), split_rows(2)
    assert first == again
    assert first[0] != other[0]
    assert set(first[1]) != set(other[1])


# --- faces


def webp(value: int, shape: tuple[int, ...] = (64, 64, 3)) -> bytes:
    image = pytest.importorskip("PIL.Image")
    content = io.BytesIO()
    pixels = np.full(shape, value, dtype=np.uint8)
    pixels[..., 0] = 255 - value  # channels differ: a swap would show
    image.fromarray(pixels).save(content, format="WEBP", lossless=True)
    return content.getvalue()


def face_table(**changes: Any) -> pa.Table:
    """Forty public faces, and faces of thirty identities with 1, 2, … 6 images each."""
    counts = 1 + np.arange(30) % 6
    n = 40 + int(counts.sum())
    columns: dict[str, Any] = {
        "file_no": pa.array(np.arange(1, n + 1), pa.int32()),
        "identity": np.concatenate([1000 + np.arange(40), np.repeat(np.arange(30), counts)]),
        "smiling": np.arange(n) % 2 == 0,
        "pool": ["public"] * 40 + ["participants"] * (n - 40),
        "image_webp": [webp(k % 250) for k in range(n)],
    }
    return pa.table({name: column for name, column in {**columns, **changes}.items() if column is not None})


def save_faces(path: Path, **changes: Any) -> Path:
    pa.parquet.write_table(face_table(**changes), path)
    return path


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_faces(tmp_path_factory.mktemp("faces") / "celeba64.parquet")


def test_faces_are_decoded_in_the_order_asked_for(packed: Path) -> None:
    rows = load_faces(packed)
    images = rows.images([7, 3, 7])
    assert images.shape == (3, 64, 64, 3)
    assert images[:, 5, 5].tolist() == [[248, 7, 7], [252, 3, 3], [248, 7, 7]]
    assert rows.images([]).shape == (0, 64, 64, 3)
    fractions = rows.rows([7])
    assert fractions.dtype == np.float32
    assert fractions.shape == (1, 12288)
    assert fractions[0, :3] == pytest.approx(np.array([248, 7, 7]) / 255)


@pytest.mark.parametrize("kept", [0, 100, -8])
def test_faces_that_end_early_or_are_missing_are_refused(packed: Path, tmp_path: Path, kept: int) -> None:
    path = tmp_path / "half.parquet"
    with raising(StorageError, "celeba/celeba64.parquet", reason=str(path)):
        load_faces(path)
    path.write_bytes(packed.read_bytes()[:kept])
    with raising(StorageError, str(path)):
        load_faces(path)


# --- dealing faces


@pytest.fixture(scope="module")
def people() -> tuple[np.ndarray, np.ndarray]:
    """Identity and pool of 300 identities in mixed order; every sixth has one image, and 50 public rows come first."""
    identity = np.repeat(np.arange(300), 1 + np.arange(300) % 6)
    identity = np.random.default_rng(2).permutation(identity)
    identity = np.concatenate([np.repeat(np.arange(9000, 9025), 2), identity])
    return identity, np.array(["public"] * 50 + ["participants"] * (len(identity) - 50))


@pytest.mark.parametrize(("each", "sizes"), [(99, (69, 15, 15)), (19, (13, 3, 3)), (100, (70, 15, 15))])
def test_identities_are_split_as_in_the_paper(
    people: tuple[np.ndarray, np.ndarray], each: int, sizes: tuple[int, int, int]
) -> None:
    identity, _ = people
    partition = partition_faces(*people, n_participants=2, identities_each=each, streams=STREAMS)
    for k in range(2):
        split = [set(identity[part[k]]) for part in (partition.train, partition.validation, partition.test)]
        assert tuple(map(len, split)) == sizes
        assert set.union(*split) == set(partition.identities[k])


def test_every_image_has_one_holder_and_references_stay_at_home(people: tuple[np.ndarray, np.ndarray]) -> None:
    identity, pool = people
    partition = partition_faces(*people, n_participants=10, identities_each=25, streams=STREAMS)
    uploaded = np.concatenate([*partition.train, *partition.validation, *partition.test])
    everything = np.concatenate([uploaded, partition.references])
    assert len(set(everything.tolist())) == len(everything)
    assert (pool[everything] == "participants").all()
    assert (np.bincount(identity[everything])[np.concatenate(partition.identities)] >= 2).all()
    assert set(everything) == set(np.flatnonzero(np.isin(identity, np.concatenate(partition.identities))))
    for k in range(10):
        assert (identity[partition.reserved[k]] == partition.identities[k]).all()
        assert (identity[partition.queries[k]] == partition.identities[k]).all()
        assert set(partition.queries[k]) <= set(
            np.concatenate([partition.train[k], partition.validation[k], partition.test[k]])
        )
        assert (uploaded[partition.query_places(k)] == partition.queries[k]).all()


def test_uneven_participants_hold_the_same_people_with_fewer_images_of_each(people: Any) -> None:
    even, uneven = (
        partition_faces(*people, n_participants=3, identities_each=20, streams=STREAMS, train_rows=sizes)
        for sizes in ((), (30, 20, 10_000))
    )
    assert [len(rows) for rows in uneven.train[:2]] == [30, 20]
    assert [len(rows) for rows in uneven.test[:2]] == [30 * 3 // 14, 20 * 3 // 14]
    for name in ("train", "validation", "test", "identities", "reserved", "queries"):
        part, other = getattr(uneven, name), getattr(even, name)
        assert np.array_equal(part[2], other[2])
        for few, all_ in zip(part, other, strict=True):
            assert set(few) <= set(all_)
            assert name in ("train", "validation", "test") or np.array_equal(few, all_)
    uploaded = np.concatenate([*uneven.train, *uneven.validation, *uneven.test])
    assert set(np.concatenate(uneven.queries)) <= set(uploaded)


def test_fewer_participants_are_the_beginning_of_more(people: tuple[np.ndarray, np.ndarray]) -> None:
    many = partition_faces(*people, n_participants=12, identities_each=20, streams=STREAMS)
    few = partition_faces(*people, n_participants=3, identities_each=20, streams=STREAMS)
    for name in ("train", "validation", "test", "identities", "reserved", "queries"):
        for rows, other in zip(getattr(few, name), getattr(many.first(3), name), strict=True):
            assert rows.tolist() == other.tolist()


def test_a_gallery_holds_the_reserved_image_of_the_query_and_of_nine_others(
    people: tuple[np.ndarray, np.ndarray],
) -> None:
    identity, _ = people
    partition = partition_faces(*people, n_participants=4, identities_each=20, streams=STREAMS)
    galleries = face_galleries(partition, target=1, seed=3)
    assert galleries.candidates.shape == (200, 10)
    shown = identity[partition.references[galleries.candidates]]
    assert all(len(set(row)) == 10 for row in shown.tolist())
    truth = shown[np.arange(200), galleries.answers]
    assert (truth == identity[partition.queries[1][galleries.queries]]).all()
    assert np.isin(shown, np.concatenate([partition.identities[0], partition.identities[3]])).any()


# --- packing the official files


@pytest.fixture
def official(tmp_path: Path) -> dict[str, Path]:
    """Twelve aligned images: 1–5 training, 6 validation, 7–12 test; identity 40 is in both, 52 has one image."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "img_align_celeba"
    folder.mkdir()
    names = [f"{k:06}.jpg" for k in range(1, 13)]
    for k, name in enumerate(names):
        pixels = np.zeros((218, 178, 3), dtype=np.uint8)
        pixels[20:198] = (20 * k, 100, 200)  # the centre square; above and below it is black
        image.fromarray(pixels).save(folder / name, quality=95)
    who = [30, 31, 40, 32, 33, 39, 40, 40, 51, 51, 52, 51]
    split = [0] * 5 + [1] + [2] * 6
    lists = {
        "identity_file": "".join(f"{name} {person}\n" for name, person in zip(names, who, strict=True)),
        "attributes_file": "12\nMale Smiling Young\n"
        + "".join(f"{name}  1 {1 if k % 3 == 0 else -1} -1\n" for k, name in enumerate(names)),
        "partition_file": "".join(f"{name} {part}\n" for name, part in zip(names, split, strict=True)),
    }
    for name, text in lists.items():
        (tmp_path / f"{name}.txt").write_text(text)
    return {"folder_of_jpgs": folder, **{name: tmp_path / f"{name}.txt" for name in lists}}


def test_official_files_are_packed_into_what_load_faces_reads(official: dict[str, Path], tmp_path: Path) -> None:
    output = pack_faces(**official, output=tmp_path / "packed.parquet", n_public=3)
    rows = load_faces(output)
    assert rows.file_numbers.tolist() == [1, 2, 4, 7, 8, 9, 10, 12]
    assert rows.identity.tolist() == [30, 31, 32, 40, 40, 51, 51, 51]
    assert rows.pool.tolist() == ["public"] * 3 + ["participants"] * 5
    assert rows.smiling.tolist() == [True, False, True, True, False, False, True, False]
    images = rows.images(np.arange(8)).astype(int)
    assert np.abs(images[3] - np.array([120, 100, 200])).max() < 12  # nothing black is left of what was cut off
    assert [path.name for path in tmp_path.glob("packed*")] == ["packed.parquet"]


# --- the face model


def test_pixels_reach_the_model_red_first_from_minus_one_to_one(corner_model: Path) -> None:
    rows = np.tile([1.0, 0.5, 0.25], (3, 64 * 64)).astype(np.float32)
    expected = np.array([1.0, 0.0, -0.5]) / np.linalg.norm([1.0, 0.0, -0.5])
    vectors = open_face_model(corner_model, n_threads=1)(rows)
    assert vectors == pytest.approx(np.tile(expected, (3, 1)))


def test_a_face_model_that_ends_early_or_is_missing_is_refused(corner_model: Path) -> None:
    corner_model.write_bytes(corner_model.read_bytes()[:-40])
    with raising(StorageError, str(corner_model)):
        open_face_model(corner_model)
    corner_model.unlink()
    with raising(StorageError, "faces/w600k_mbf.onnx", reason=str(corner_model), cure="non-commercial"):
        open_face_model(corner_model)


# --- tables

HEART = ",".join(f"X{k}" for k in range(1, 15)) + "\n"
PATIENT = "{},1,2,130,132,0,2,185,0,0,-9,?,3,{}\n"
ADULT = "{}, Private, 77516, Bachelors, 13, Never-married, {}, Husband, White, Male, 0, 0, 40, Peru, {}\n"


@pytest.fixture
def hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two small hospitals whose values are known."""
    monkeypatch.setattr(tables, "HOSPITALS", {"cleveland": 4, "va": 4})
    known = {}
    for hospital in tables.HOSPITALS:
        lines = [PATIENT.format(40 + k, k % 2) for k in range(4)]
        (tmp_path / f"processed.{hospital}.data").write_text(HEART + "".join(lines), encoding="utf-8")
        fields = [line.strip().replace("-9", "?").split(",") for line in lines]
        known[f"processed.{hospital}.data"] = tables.values_checksum(fields)
    monkeypatch.setattr(tables, "KNOWN_VALUES", known)
    return tmp_path


@pytest.mark.parametrize("word", ["abc", "", "NA", "nan", "inf", "1_0", "4O"])
@pytest.mark.parametrize("column", ["X1", "X3", "X14"])
def test_a_value_that_is_no_number_is_named_by_file_row_and_column(column: str, word: str, hospitals: Path) -> None:
    path = hospitals / "processed.va.data"
    lines = path.read_text(encoding="utf-8").splitlines()
    fields = lines[3].split(",")
    fields[int(column[1:]) - 1] = word
    path.write_text("\n".join([*lines[:3], ",".join(fields), *lines[4:]]), encoding="utf-8")
    with raising(StorageError, reason=f"row 3 has no number in column '{column}'"):
        tables.load_hospitals(hospitals)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (ADULT.format("old", "Sales", "<=50K"), "row 2 has no number in column 'age'"),
        (ADULT.format("-", "Sales", "<=50K"), "row 2 has no number in column 'age'"),
        (ADULT.format(30, "NA", "<=50K"), "row 2 has nothing in column 'occupation'"),
        (ADULT.format(30, "Sales", "50K"), "row 2 has none of <=50K, >50K in column 'income'"),
    ],
)
def test_a_value_of_the_census_that_cannot_be_is_named(
    line: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "CENSUS_FILES", {"adult.data": 3})
    whole = [ADULT.format(age, "?", income) for age, income in ((30, "<=50K"), (40, ">50K"))]
    (tmp_path / "adult.data").write_text(whole[0] + line + whole[1], encoding="utf-8")
    with raising(StorageError, reason=words):
        tables.load_census(tmp_path)
