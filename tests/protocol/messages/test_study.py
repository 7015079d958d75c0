"""A study's file, its draft and its roster."""

import string
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.errors import InputError, MooringError, RefusedError, StorageError
from mooring.protocol.crypto.keys import SealingKey, SigningKey
from mooring.protocol.designer.draft import DraftSettings, Known, count_open_entries, draft_study
from mooring.protocol.designer.enrolment import write_roster
from mooring.protocol.designer.projection import project_study
from mooring.protocol.messages.card import Member, read_card, write_card
from mooring.protocol.messages.projection import study_projection
from mooring.protocol.messages.study import Study, draw_nonce
from mooring.protocol.messages.study_file import parse_study, render_study
from mooring.tables.schema import Column, Label, can_be_shown

AGE = "age1" + "q" * 58
AGREED = Study(
    "heart",
    "0" * 32,
    (Column("age", "number", 0, 120), Column("weight", "number", 0, 120), Column("sex", "category", categories=("f",))),
    Label("ill", "classes", ("no", "yes")),
    "aa-i-gdp-data-noise",
    3,
    12,
    data_noise_scale=0.5,
)


def message(call: Callable[[], Any], kind: type[MooringError] = InputError) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(
    lambda word: word == word.strip() and can_be_shown(word)
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
        return Column(name, "category", categories=draw(LISTS), **{key: draw(rule) for key, rule in RULES.items()})
    low, high = draw(st.just((0, 16)) | ENDS)
    kind = draw(st.sampled_from(["number", "integer"]))
    return Column(name, kind, low, high, **{key: draw(rule) for key, rule in RULES.items()})


@st.composite
def labels(draw: Callable[..., Any], name: str) -> Label:
    kind = draw(st.sampled_from(["none", "classes", "number"]))
    if kind == "none":
        return Label()
    return Label(name, kind, draw(LISTS)) if kind == "classes" else Label(name, kind, (), *draw(LABEL_ENDS))


@st.composite
def studies(draw: Callable[..., Any]) -> Study:
    names = draw(st.lists(WORDS, min_size=2, max_size=8, unique=True))
    declared = tuple(draw(columns(name)) for name in names[1:])
    keys = draw(st.lists(HEX, min_size=0, max_size=4, unique=True))
    members = [Member(f"m{k}", key, "age1" + f"{k}" * 58) for k, key in enumerate(keys)]
    width = sum(len(column.feature_names) for column in declared)
    return Study(
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
        smallest_class=draw(st.integers(1, 99)),
        image_shape=draw(st.sampled_from([(), (1, width)])),
        participants=tuple(members[1:]),
        analyst=Member("analyst", keys[0]) if keys else None,
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
        replace(AGREED, data_noise_scale=0.25),
        replace(AGREED, missing_words=("-9",)),
        AGREED.with_members([Member("a", "0" * 64, AGE)]),
    ):
        assert other.fingerprint != AGREED.fingerprint


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("format = 1", "format = 2", "format"),
        ('kind = "number"', 'kind = "numbers"', "column 'age'"),
        ("range = [0, 120]", "range = [120, 0]", "range of column 'age'"),
        ("range = [0, 120]", "range = []", "range of column 'age'"),
        ("range = [0, 120]", "ranges = [0, 120]", "ranges"),
        ('categories = ["f"]', "categories = []", "categories of column 'sex'"),
        ('categories = ["f"]', 'categories = "f"', "categories of column 'sex'"),
        ('categories = ["f"]', 'categories = [" f"]', "categories of column 'sex'"),
        ('classes = ["no", "yes"]', "classes = []", "classes of label"),
        ("missing_words = []", 'missing_words = "NA"', "missing_words"),
        ("smallest_class = 3", "smallest_class = 3.5", "smallest_class"),
        ("smallest_class = 3", 'smallest_class = 3\nimage_shape = ["x"]', "image_shape"),
        ("components = 3", "components = 4", "components"),
        ("anchor_rows = 12", "anchor_rows = 3", "anchor_rows"),
        ("data_noise_scale = 0.5", "data_noise_scale = nan", "data_noise_scale"),
        ('projection = "none"', 'projection = "public-svd"', "projection_digest"),
        ('projection = "none"', "projection = 3", "projection"),
        ('name = "sex"', 'name = "age"', "columns"),
        ('name = "sex"', 'name = "ill"', "columns"),
        ("[method]", "[method", "TOML"),
    ],
)
def test_a_mistake_in_a_study_is_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    text = render_study(AGREED.as_dict())
    assert old in text
    (tmp_path / "study.toml").write_text(text.replace(old, new))
    assert named in message(lambda: Study.read(tmp_path / "study.toml"))


def test_components_and_anchor_rows_follow_where_they_are_left_out() -> None:
    text = render_study(AGREED.as_dict()).replace("components = 3\n", "").replace("anchor_rows = 12\n", "")
    assert Study.from_dict(parse_study(text)) == AGREED


def test_files_that_cannot_be_read_or_written_are_told_as_such(tmp_path: Path) -> None:
    assert "cannot be read" in message(lambda: Study.read(tmp_path / "none.toml"), StorageError)
    (tmp_path / "b.toml").write_bytes(b"\xff")
    assert "cannot be read" in message(lambda: Study.read(tmp_path / "b.toml"), StorageError)
    message(lambda: AGREED.write(tmp_path / "no folder" / "study.toml"), StorageError)


HEADER = "age,sex,ill\n"
ALL_KNOWN = Known(ranges={"age": (0, 120)}, categories={"sex": ("female", "male")}, classes=("no", "yes"))


def test_a_draft_depends_on_the_header_and_never_on_the_rows(tmp_path: Path) -> None:
    nonce = draw_nonce()
    rows = [b"", b"1,male,no\n", b"99,female,yes\n" * 50, bytes(range(128, 256)) * 99, b"\0\0,\0"]
    texts = set()
    for k, content in enumerate(rows):
        path = tmp_path / f"{k}.csv"
        path.write_bytes(HEADER.encode() + content)
        texts.add(draft_study(path, label="ill", settings=DraftSettings(nonce=nonce)))
    for k, age in enumerate((1.0, 99.0)):
        pa.parquet.write_table(pa.table({"age": [age], "sex": ["x" * k], "ill": [True]}), tmp_path / f"{k}.parquet")
    assert len(texts) == 1
    one, two = (
        draft_study(tmp_path / f"{k}.parquet", label="ill", settings=DraftSettings(nonce=nonce)) for k in (0, 1)
    )
    assert one == two
    assert draft_study(tmp_path / "0.csv") != draft_study(tmp_path / "0.csv")  # by the nonce


def test_parquets_rows_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"age": np.arange(9000.0), "n": np.arange(9000)}), path)
    before = draft_study(path, settings=DraftSettings(nonce="0" * 32))
    content = bytearray(path.read_bytes())
    content[4:50_000] = bytes(49_996)
    path.write_bytes(content)
    assert draft_study(path, settings=DraftSettings(nonce="0" * 32)) == before


def test_open_entries_are_refused_by_column_until_they_are_filled_in(tmp_path: Path) -> None:
    data, study = tmp_path / "t.csv", tmp_path / "study.toml"
    data.write_text(HEADER)
    study.write_text(draft_study(data, label="ill"))
    assert count_open_entries(study.read_text()) == 3
    assert "range of column 'age'" in message(lambda: Study.read(study))
    known = replace(ALL_KNOWN, classes=())
    study.write_text(draft_study(data, label="ill", known=known))
    assert count_open_entries(study.read_text()) == 1
    assert "classes of label" in message(lambda: Study.read(study))
    study.write_text(study.read_text().replace("classes = []", 'classes = ["no", "yes"]'))
    read = Study.read(study)
    assert (read.n_features, read.n_components, read.n_anchor_rows) == (3, 3, 12)
    assert read.label == Label("ill", "classes", ("no", "yes"))


def test_types_of_parquet_become_kinds(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table({"a": [1.5], "b": [1], "c": [True], "d": pa.array(["x"]).dictionary_encode(), "y": [2.5]})
    pa.parquet.write_table(table, path)
    known = Known(all_ranges=(0, 16), categories={"d": ("x", "z")}, label_range=(0, 9))
    study = Study.from_dict(parse_study(draft_study(path, label="y", known=known)))
    assert [column.kind for column in study.columns] == ["number", "integer", "category", "category"]
    assert study.columns[2].categories == ("false", "true")
    assert study.label == Label("y", "number", (), 0, 9)


def test_wide_tables_get_a_projection_and_every_setting_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"x{k}" for k in range(64)) + "\n")
    wide = Study.from_dict(parse_study(draft_study(path, known=Known(all_ranges=(0, 16)))))
    assert (wide.projection, wide.n_components, wide.n_anchor_rows, wide.data_noise_scale) == ("gaussian", 30, 120, 0.5)
    given = Study.from_dict(
        parse_study(
            draft_study(
                path,
                name="digits",
                known=Known(all_ranges=(0, 16)),
                settings=DraftSettings(
                    method="aa-i-gdp-both-noise",
                    components=10,
                    anchor_rows=50,
                    data_noise_scale=0.3,
                    anchor_noise_scale=0.2,
                    smallest_class=5,
                    image_shape=(8, 8),
                    missing_words=("-9",),
                ),
            )
        )
    )
    assert (given.n_components, given.n_anchor_rows, given.data_noise_scale, given.anchor_noise_scale) == (
        10,
        50,
        0.3,
        0.2,
    )
    assert (given.name, given.smallest_class, given.image_shape, given.missing_words) == ("digits", 5, (8, 8), ("-9",))


def test_a_first_line_that_may_be_a_record_is_not_drafted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("8642.1357,male\n1,female\n")
    assert "8642" not in message(lambda: draft_study(path))
    path.write_text("0,1,2\n")
    assert 'name = "1"' in draft_study(path)
    path.write_text("age,sex\n")
    assert "Did you mean 'age'" in message(lambda: draft_study(path, label="agee"))


def test_a_public_projection_is_made_beside_the_study_and_named_in_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"x{k}" for k in range(6)]
    pa.parquet.write_table(pa.table({name: rng.uniform(0, 1, 40) for name in names}), tmp_path / "public.parquet")
    study = tmp_path / "study.toml"
    draft = draft_study(
        tmp_path / "public.parquet",
        known=Known(all_ranges=(0, 1)),
        settings=DraftSettings(projection="public-svd", components=3),
        name="svd",
    )
    study.write_text(draft)
    assert "mooring study project" in message(lambda: Study.read(study))
    made = project_study(study, tmp_path / "public.parquet")
    assert Study.read(study) == made
    assert study_projection(Study.read(study)).matrix.shape == (6, 3)
    (tmp_path / "svd.projection.safetensors").write_bytes(b"x")
    message(lambda: study_projection(Study.read(study)), RefusedError)
    other = project_study(study, tmp_path / "public.parquet", components=2)
    assert (other.n_components, other.n_anchor_rows) == (2, 8)
    write_roster(other.with_members([Member("a", "0" * 64, AGE)]), study)
    assert "roster" in message(lambda: project_study(study, tmp_path / "public.parquet"))


def card(path: Path, name: str, role: Any = "participant") -> tuple[Path, Member]:
    signer = SigningKey.generate()
    member = Member(name, signer.public, SealingKey.generate().public if role == "participant" else "")
    write_card(path / f"{name}.card.toml", role=role, member=member, signer=signer)
    return path / f"{name}.card.toml", member


def test_a_card_reads_back_and_holds_public_keys_only(tmp_path: Path) -> None:
    for name, role in (("north", "participant"), ("analyst", "analyst")):
        path, member = card(tmp_path, name, role)
        assert read_card(path) == (role, member)
    assert "AGE-SECRET" not in path.read_text().upper()


def test_no_changed_card_is_read(tmp_path: Path) -> None:
    path, _ = card(tmp_path, "north")
    good = path.read_bytes()
    start = good.index(b"format")
    for at in range(start, len(good) - 1, 3):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises((InputError, RefusedError)):
            read_card(path)
    for content in (b"", good + b"more = 1\n", good * 40, b"\xff", b"format = 1\n", b"a = " + b"[" * 3000):
        path.write_bytes(content)
        with pytest.raises((InputError, RefusedError)):
            read_card(path)


def test_a_card_cannot_put_its_writers_sealing_key_beside_anothers_signing_key(tmp_path: Path) -> None:
    path, member = card(tmp_path, "north")
    mine = SealingKey.generate().public
    path.write_text(path.read_text().replace(member.sealing_key, mine))
    assert "proof" in message(lambda: read_card(path), RefusedError)
    with pytest.raises(InputError):
        write_card(path, role="participant", member=member, signer=SigningKey.generate())


def test_enrolling_keeps_what_people_wrote_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(render_study(AGREED.as_dict()) + "# our own remark\n")
    members = [card(tmp_path, name)[1] for name in ("a", "b")]
    analyst = card(tmp_path, "z", "analyst")[1]
    write_roster(AGREED.with_members(members[:1], analyst), path)
    full = AGREED.with_members(members, analyst)
    write_roster(full, path)
    assert Study.read(path) == full
    assert "# our own remark" in path.read_text()
    with pytest.raises(InputError):
        full.with_members([card(tmp_path, "a")[1]])
    with pytest.raises(InputError):
        full.with_members(analyst=card(tmp_path, "y", "analyst")[1])


PLAIN = 'format = 1\nname = "x"\nnonce = "' + "0" * 32 + '"\n[method]\nname = "aa-i-gdp"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PLAIN + '[[columns]]\nname = "a\\u001b[2J"\nrange = [0, 1]\n', "control characters"),
        (PLAIN + '[[columns]]\nname = "a"\nkind = "category"\ncategories = ["b\\u202ec"]\n', "unprintable"),
        (PLAIN + '[[columns]]\nname = "a"\nrange = [0, 1' + "0" * 400 + "]\n", "too large"),
        (PLAIN + "components = " + "9" * 5000 + "\n", "too large"),
        (PLAIN + "components = 0x" + "f" * 5000 + "\n", "whole number"),
        (PLAIN + "data_noise_scale = 1" + "0" * 400 + "\n", "a number"),
        (PLAIN + "a." * 200_000 + "a = 1\n", "keys of many parts"),
        (
            PLAIN
            + f'[[columns]]\nnames = {[str(k) for k in range(2000)]}\nkind = "category"\n'
            + f"categories = {[str(k) for k in range(1000)]}\n",
            "at most 1000000",
        ),
    ],
)
def test_a_study_that_would_fool_a_terminal_or_fill_a_memory_is_refused_at_once(
    text: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "study.toml").write_text(text)
    start = time.perf_counter()
    assert said in message(lambda: Study.read(tmp_path / "study.toml"))
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("ends", [(1e9, 1e9 + 10), (0, 1e39), (0, 1e-40)])
def test_a_label_that_single_precision_cannot_tell_is_refused_before_anybody_shares(ends: tuple[float, float]) -> None:
    assert "single precision" in message(lambda: Label("y", "number", (), *ends))


@pytest.mark.parametrize("ends", [(0, 250), (-1, 1), (1900, 2100), (0, 1e30), (0.5, 0.6)])
def test_labels_of_usual_ranges_are_taken(ends: tuple[float, float]) -> None:
    assert Label("y", "number", (), *ends).high == ends[1]


def test_a_study_takes_no_column_that_was_inferred_from_rows() -> None:
    column = Column("age", "number", -np.inf, np.inf, inferred=True, centre=50.0, spread=20.0)
    with pytest.raises(InputError) as caught:
        replace(AGREED, columns=(column, *AGREED.columns[1:]))
    assert (caught.value.what, caught.value.got) == ("columns", "inferred from rows")
