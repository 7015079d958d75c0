"""A study and its file."""

import string
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.errors import InputError, MooringError, StorageError
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import parse_study
from mooring.protocol.messages.study_text import render_study
from mooring.tables.files import require_different
from mooring.tables.schema import Column, Label, can_be_shown
from tests.keys import fixed_key, keyed_member
from tests.protocol.support import AGREED, ENROLLED, message
from tests.raising import raising
from tests.study_settings import change, make_study

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(
    lambda word: word == word.strip() and can_be_shown(word) and word[0] not in "=@+-"
)
LISTS = st.lists(WORDS, min_size=2, max_size=4, unique=True).map(tuple)
ENDS = st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)).filter(lambda ends: ends[1] / 2 - ends[0] / 2 > 0)
LABEL_ENDS = st.tuples(st.floats(-1e30, 1e30), st.floats(-1e30, 1e30)).filter(
    lambda ends: ends[1] - ends[0] > max(1e-29, 1e-3 * max(map(abs, ends)))
)
RULES = {"missing": st.sampled_from(["refuse", "fill", "indicate"]), "outside": st.sampled_from(["refuse", "clip"])}
NAMES = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=9)
HEX = st.text("0123456789abcdef", min_size=64, max_size=64)


@st.composite
def columns(draw: Callable[..., Any], name: str) -> Column:
    if draw(st.booleans()):
        return Column(name, "category", categories=draw(LISTS), missing=draw(RULES["missing"]))
    low, high = draw(st.just((0, 16)) | ENDS)
    kind = draw(st.sampled_from(["number", "integer", "age", "date"]))
    day = str(draw(st.dates(max_value=date(9900, 1, 1)))) if kind in ("age", "date") else ""
    low, high = (0, draw(st.integers(1, 36_000))) if kind == "date" else (low, high)
    rules = {key: draw(rule) for key, rule in RULES.items()}
    return Column(name, kind, low, high, missing_words=draw(st.just(()) | LISTS), day=day, **rules)


@st.composite
def labels(draw: Callable[..., Any], name: str) -> Label:
    kind = draw(st.sampled_from(["none", "classes", "number"]))
    if kind == "none":
        return Label()
    return Label(name, kind, draw(LISTS)) if kind == "classes" else Label(name, kind, (), *draw(LABEL_ENDS))


@st.composite
def studies(draw: Callable[..., Any]) -> Study:
    names = draw(st.lists(WORDS, min_size=3, max_size=8, unique=True))
    declared = tuple(draw(columns(name)) for name in names[2:])
    keys = [fixed_key(number) for number in draw(st.lists(st.integers(0, 255), max_size=4, unique=True))]
    members = [keyed_member(f"m{k}", key) for k, key in enumerate(keys)]
    width = sum(len(column.feature_names) for column in declared)
    return make_study(
        draw(NAMES),
        draw(HEX)[:32],
        declared,
        draw(labels(names[0])),
        "aa-i-gdp-both-noise",
        width,
        draw(st.integers(width + 1, 9999)),
        draw(st.floats(1e-300, 1e300)),
        draw(st.floats(1e-300, 1e300)),
        missing_words=draw(LISTS),
        ids=draw(st.sampled_from([(), (names[1],)])),
        smallest_class=draw(st.integers(1, 99)),
        image_shape=draw(st.sampled_from([(), (1, width)])),
        participants=tuple(members[1:]),
        analyst=Member("analyst", keys[0].public) if keys else None,
        dealer=draw(st.sampled_from(["", *(member.name for member in members[1:])])),
    )


@given(study=studies())
def test_a_written_study_reads_as_the_same_study_with_the_same_digest(
    tmp_path_factory: pytest.TempPathFactory, study: Study
) -> None:
    path = tmp_path_factory.mktemp("s") / "study.toml"
    study.write(path)
    again = Study.read(path)
    assert again == study
    assert again.digest == study.digest == Study.from_dict(study.as_dict()).digest
    assert again.folder == path.parent


def test_a_roster_cannot_put_one_members_sealing_key_beside_anothers_signing_key() -> None:
    other = keyed_member("b", fixed_key(1))
    for swapped in (
        replace(ENROLLED, sealing_key=other.sealing_key),
        replace(ENROLLED, sealing_key=other.sealing_key, sealing_proof=other.sealing_proof),
        replace(ENROLLED, sealing_proof=""),
    ):
        with raising(InputError, "roster", problem="no sealing key"):
            Study.from_dict(AGREED.as_dict() | {"participants": [swapped.as_dict()]})


def test_a_member_is_enrolled_once_and_nobody_takes_its_name() -> None:
    enrolled = AGREED.with_members([ENROLLED])
    assert enrolled.with_members([ENROLLED]).participants == enrolled.participants
    namesake = Member(ENROLLED.name, "2" * 64)
    for roster in ([namesake], [ENROLLED, namesake]):
        with raising(InputError, "roster", got=repr(ENROLLED.name)):
            (enrolled if len(roster) == 1 else AGREED).with_members(roster)
    with raising(InputError, "roster", problem=f"signing keys of {ENROLLED.name!r} and 'other'"):
        enrolled.with_members([replace(ENROLLED, name="other")])
    with raising(InputError, "roster", problem="no sealing key"):
        AGREED.with_members([replace(ENROLLED, sealing_key="")])


def test_columns_alike_share_an_entry_and_whole_ranges_read_as_such() -> None:
    text = render_study(AGREED.as_dict())
    assert 'names = ["age", "weight"]\nkind = "number"\nrange = [0, 120]\n' in text
    assert text.count("[[columns]]") == 2


def test_digest_and_fingerprint_change_with_what_the_study_says_and_not_with_its_layout() -> None:
    whole = replace(AGREED, columns=(replace(AGREED.columns[0], low=0.0), *AGREED.columns[1:]))
    assert whole.digest == AGREED.digest
    assert (
        Study.from_dict(parse_study(render_study(AGREED.as_dict()).replace("\n\n", "\n# a remark\n\n"))).digest
        == AGREED.digest
    )
    for other in (
        replace(AGREED, nonce="1" * 32),
        change(AGREED, data_noise_scale=0.25),
        replace(AGREED, missing_words=("-9",)),
        replace(AGREED, columns=(replace(AGREED.columns[0], missing_words=("-9",)), *AGREED.columns[1:])),
        replace(AGREED, ids=("patient",)),
        replace(AGREED, upload_limits=("error at least 0.5",)),
        replace(AGREED, model_limit="membership at most 5 %"),
        AGREED.with_members([ENROLLED]),
    ):
        assert other.fingerprint != AGREED.fingerprint
        assert Study.from_dict(parse_study(render_study(other.as_dict()))) == other


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("format = 3", "format = 2", "format"),
        ("format = 3", "format = true", "format"),
        ("format = 3", "format = 3.0", "format"),
        ('kind = "number"', 'kind = "numbers"', "column 'age'"),
        ("range = [0, 120]", "range = [120, 0]", "range of column 'age'"),
        ("range = [0, 120]", "range = []", "range of column 'age'"),
        ("range = [0, 120]\n", "", "got nothing"),
        ("range = [0, 120]", "ranges = [0, 120]", "ranges"),
        ('categories = ["f"]', "categories = []", "1 open: 'sex'"),
        ('categories = ["f"]', 'categories = "f"', "categories of column 'sex'"),
        ('categories = ["f"]', 'categories = [" f"]', "categories of column 'sex'"),
        ('classes = ["no", "yes"]', "classes = []", "classes of label"),
        ("missing_words = []", 'missing_words = "NA"', "missing_words"),
        ("smallest_class = 3", "smallest_class = 3.5", "smallest_class"),
        ("smallest_class = 3", 'smallest_class = 3\nids = "sex"', "ids"),
        ("smallest_class = 3", 'smallest_class = 3\nids = ["sex"]', "columns"),
        ("range = [0, 120]", 'range = [0, 120]\nat = "2026-01-01"', "at"),
        ("range = [0, 120]", 'range = [0, 120]\nmissing_words = ["\\u0007"]', "missing_words"),
        ('kind = "number"', 'kind = "age"\nat = "2026-02-30"', "day of column 'age'"),
        ('kind = "number"', 'kind = "age"\nat = 3', "at of column 'age'"),
        ('kind = "number"\nrange = [0, 120]', 'kind = "date"\nrange = ["2026-01-01", 3]', "range of column 'age'"),
        (
            'kind = "number"\nrange = [0, 120]',
            'kind = "date"\nrange = ["2026-01-01", "2020-01-01"]',
            "range of column 'age'",
        ),
        ("smallest_class = 3", 'smallest_class = 3\nimage_shape = ["x"]', "image_shape"),
        ("[label]", '[limits]\nuploads = ["safe"]\n[label]', "limit"),
        ("[label]", '[limits]\nmodel = "linkage at most 20 %"\n[label]', "limits"),
        ("[label]", '[limits]\nmodels = ""\n[label]', "models"),
        ("n_components = 3", "n_components = 4", "n_components"),
        ("n_anchor_rows = 12", "n_anchor_rows = 3", "must be 4 to"),
        ("data_noise_scale = 0.5", "data_noise_scale = nan", "data_noise_scale"),
        ('projection = "none"', 'projection = "public-svd"', "projection_digest"),
        ('projection = "none"', "projection = 3", "projection"),
        ('name = "sex"', 'name = "age"', "columns"),
        ('name = "sex"', 'name = "sex"\nnames = ["sex"]', "got both"),
        *(('name = "sex"', other, "got neither") for other in ("", "names = []", 'names = ["a", ""]', 'name = " a"')),
        ('name = "sex"', 'names = "sex"', "got neither"),
        ('name = "sex"', 'name = "ill"', "columns"),
        ("[mechanism]", "[mechanism", "TOML"),
    ],
)
def test_a_mistake_in_a_study_is_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    text = render_study(AGREED.as_dict())
    assert old in text
    (tmp_path / "study.toml").write_text(text.replace(old, new))
    assert named in message(lambda: Study.read(tmp_path / "study.toml"))


def test_components_and_anchor_rows_follow_where_they_are_left_out() -> None:
    text = render_study(AGREED.as_dict()).replace("n_components = 3\n", "").replace("n_anchor_rows = 12\n", "")
    assert Study.from_dict(parse_study(text)) == AGREED


def test_files_that_cannot_be_read_or_written_are_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_bytes(b"\xff")
    for name in ("none.toml", "b.toml"):
        with raising(StorageError, "the study's file"):
            Study.read(tmp_path / name)
    with raising(StorageError):
        AGREED.write(tmp_path / "no folder" / "study.toml")


PLAIN = 'format = 3\nname = "x"\nnonce = "' + "0" * 32 + '"\n[mechanism]\nname = "rotation"\nmethod = "aa-i-gdp"\n'


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        (PLAIN + '[[columns]]\nname = "a\\u001b[2J"\nrange = [0, 1]\n', "control characters"),
        (PLAIN + '[[columns]]\nname = "a"\nkind = "category"\ncategories = ["b\\u202ec"]\n', "cannot be printed"),
        (PLAIN + '[[columns]]\nname = "a"\nrange = [0, 1' + "0" * 400 + "]\n", "too large"),
        (PLAIN + "n_components = " + "9" * 5000 + "\n", "too large"),
        (PLAIN + "n_components = 0x" + "f" * 5000 + "\n", "usable size"),
        (PLAIN + "data_noise_scale = 1" + "0" * 400 + "\n", "a finite number"),
        (PLAIN + "a." * 40_000 + "a = 1\n", "a key that consists of"),
        (
            PLAIN
            + f'[[columns]]\nnames = {[str(k) for k in range(2000)]}\nkind = "category"\n'
            + f"categories = {[str(k) for k in range(1000)]}\n",
            "at most 65536",
        ),
        (
            PLAIN
            + f'[[columns]]\nnames = {[str(k) for k in range(60)]}\nkind = "category"\n'
            + f"categories = {[f'{k:01000}' for k in range(999)]}\n",
            "letters in the names of categories",
        ),
        (PLAIN + f"[rows]\nimage_shape = {[2**62] * 20_000}\n", "three whole numbers"),
        (PLAIN + "a = [" + "1," * 100_000 + "]\n", "entries"),
        (PLAIN + "".join(f"[t{k}]\n" for k in range(95_000)), "entries"),
        (PLAIN + "".join(f"a.b.c.d.e.f.x{k} = 1\n" for k in range(20_000)), "entries"),
        (PLAIN + "#" * 2**20, "larger than 1 MB"),
    ],
)
def test_a_study_that_would_fool_a_terminal_or_fill_a_memory_is_refused_at_once(
    text: str, phrase: str, tmp_path: Path
) -> None:
    (tmp_path / "study.toml").write_text(text)
    start = time.process_time()
    assert phrase in message(lambda: Study.read(tmp_path / "study.toml"), MooringError)
    assert time.process_time() - start < 5


class CountedName(str):
    """A name that counts how often it is compared."""

    n_compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.n_compared += 1
        return str.__eq__(self, other)  # type: ignore[no-any-return]


@pytest.mark.parametrize("last", ["name 999", "label"])
def test_a_repeated_name_of_many_is_found_in_linear_time(last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [CountedName(f"name {k}") for k in range(1000)] + [CountedName(last)]
    columns = tuple(Column(name, "number", 0, 1) for name in names)
    for call in (
        lambda: replace(AGREED, columns=columns, label=Label("label", "number", low=0, high=1)),
        lambda: require_different([*names, CountedName("label")]),
    ):
        monkeypatch.setattr(CountedName, "n_compared", 0)
        message(call)
        assert CountedName.n_compared < 5000


def test_ten_thousand_pixels_and_nine_thousand_columns_of_their_own_ranges_are_within_the_bounds(
    tmp_path: Path,
) -> None:
    pixels = tuple(Column(f"pixel.{k // 100}.{k % 100}", "number", 0, 255) for k in range(10_000))
    others = tuple(Column(f"feature_{k}", "number", 0, k + 0.5) for k in range(7500))
    for columns in (pixels, others):
        study = change(AGREED, columns=columns, projection="gaussian")
        study.write(tmp_path / "study.toml")
        assert Study.read(tmp_path / "study.toml") == study


def test_a_study_too_large_to_be_read_is_not_written(tmp_path: Path) -> None:
    columns = tuple(Column(f"{k:030}", "number", 0, 1) for k in range(40_000))
    with raising(InputError, "study", expected="1 MB"):
        change(AGREED, columns=columns, projection="gaussian").write(tmp_path / "study.toml")
    assert not (tmp_path / "study.toml").exists()


@pytest.mark.parametrize("ends", [(1e9, 1e9 + 10), (0, 1e39), (0, 1e-40)])
def test_a_label_that_single_precision_cannot_tell_is_refused_before_anybody_shares(ends: tuple[float, float]) -> None:
    with raising(InputError, expected="single precision"):
        Label("y", "number", (), *ends)


@pytest.mark.parametrize("ends", [(0, 250), (-1, 1), (1900, 2100), (0, 1e30), (0.5, 0.6)])
def test_labels_of_usual_ranges_are_taken(ends: tuple[float, float]) -> None:
    assert Label("y", "number", (), *ends).high == ends[1]


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "@SUM(A1)", "+A1", "-2+3+cmd|' /C calc'!A0"])
def test_names_that_a_spreadsheet_would_run_are_refused(name: str) -> None:
    """They would be written to predictions.csv, which people open in a spreadsheet."""
    with raising(InputError, "classes of the label"):
        Label("y", "classes", ("no", name))
    with raising(InputError, "ids"):
        replace(AGREED, ids=(name,))


def test_signs_and_signed_numbers_are_classes() -> None:
    assert len(Label("y", "classes", ("-1", "+1", "-0.5", "+", "-", "=")).classes) == 6


def test_a_study_takes_no_column_that_was_inferred_from_rows() -> None:
    column = Column("age", "number", -np.inf, np.inf, inferred=True, centre=50.0, spread=20.0)
    with pytest.raises(InputError) as caught:
        replace(AGREED, columns=(column, *AGREED.columns[1:]))
    assert (caught.value.what, caught.value.got) == ("columns", "inferred from rows")


def test_a_study_with_an_endless_whole_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(f"format = 0x{'f' * 1_000_000}\n")
    with pytest.raises(MooringError):
        Study.read(path)
