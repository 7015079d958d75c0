"""Attacks on secure sums by who writes the study, who carries files, and who asks for the same rows again."""

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from mooring.atomic_io import hash_file
from mooring.audit import AuditDescription, AuditResult, PointResult, References, SumPoint
from mooring.errors import InputError, RefusedError
from mooring.mechanisms.sums.settings import SumSettings
from mooring.mechanisms.sums.sums import PersonCounts
from mooring.metrics import EpsilonAudit, EpsilonBound
from mooring.protocol.crypto.keys import SealingKey
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import make_member
from mooring.protocol.participant.role import Participant
from mooring.protocol.registry import exchange_of
from mooring.protocol.results import Consent
from mooring.protocol.rotation.anchor import deal_anchor
from mooring.protocol.rotation.participant.upload import share_rows
from mooring.protocol.storage.vault import Floors
from mooring.protocol.sums.analyst.total import open_total
from mooring.protocol.sums.bundle import write_sum_bundle
from mooring.protocol.sums.combiner import combination
from mooring.protocol.sums.participant import contribution, inspection
from mooring.protocol.sums.participant.contribution import share_sums
from mooring.protocol.sums.participant.inspection import _verdict
from mooring.protocol.sums.participant.table_sums import draw_kept
from mooring.protocol.sums.scheme import list_exceeded, sum_scheme
from mooring.report.records import collect_records
from mooring.tables import encoded_batches
from mooring.tables.schema import Column
from tests import commands
from tests.protocol.sums.support import SumStudy, make_sum_study
from tests.protocol.sums.test_sum_noise import open_with_fixed_noise, require_within
from tests.raising import raising
from tests.sites import vaulted_study


def another(given: SumStudy, columns: Sequence[Column] = ()) -> Study:
    """A second study of the same participants, with cards of their own for it."""
    members = [make_member(f"p{i}", vault, combines=True) for i, vault in enumerate(given.vaults)]
    columns = tuple(columns) or given.study.columns
    return replace(given.study, nonce="1" * 32, participants=tuple(members), columns=columns)


@pytest.mark.parametrize("keeps_proof", [True, False])
def test_the_author_of_a_study_cannot_put_its_own_combining_keys_into_the_roster(
    folder: Path, keeps_proof: bool
) -> None:
    """With them it would open every contribution, and everybody would compare equal fingerprints."""
    given = make_sum_study(folder)
    keys = {"combining_key": SealingKey.generate().public} | ({} if keeps_proof else {"combining_proof": ""})
    first, *rest = given.study.participants
    with raising(InputError, "roster"):
        replace(given.study, participants=(replace(first, **keys), *rest))
    with pytest.raises(InputError):
        replace(first, combining_proof="no signature")


def test_bundles_exchanged_after_they_were_verified_are_not_added(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder that the analyst writes to: sealed zeros for all but one would open that one's contribution alone."""
    given = make_sum_study(folder)
    for i in range(6):
        given.share(i)
    given.close()

    class Forger:
        public = given.study.participants[1].signing_key

        def sign(self, _: bytes) -> bytes:
            return bytes(64)

    zeros: Any = np.zeros(sum_scheme(given.study).layout.size, dtype=np.uint64)
    write_sum_bundle(folder / "zeros", given.study, zeros, Forger())  # type: ignore[arg-type]
    actual = combination.read_box

    def race(*args: Any) -> Any:
        (given.inbox / "p1.bundle").write_bytes((folder / "zeros").read_bytes())
        return actual(*args)

    monkeypatch.setattr(combination, "read_box", race)
    with raising(RefusedError, "the closing list"):
        given.combine(0)
    assert not (given.inbox / "p0.share").exists()


NEIGHBOURS = {
    "fifteen rows": lambda lines: lines[:16],
    "sixteen rows": lambda lines: lines[:17],
    "no rows": lambda lines: lines[:1],
    "a value out of range": lambda lines: [*lines, "1e9,0,a,id 0"],
    "a value far out of range": lambda lines: [*lines, "-inf,0,a,id 0"],
    "a word for a number": lambda lines: [*lines, "high,0,a,id 0"],
    "a missing value": lambda lines: [*lines, ",0,a,id 0"],
    "an unknown class": lambda lines: [*lines, "1,0,z,id 0"],
    "a missing class": lambda lines: [*lines, "1,0,,id 0"],
    "a line too short": lambda lines: [*lines, "1,0"],
    "a row of no person": lambda lines: [*lines, "1,0,a,"],
    "a person's row beyond the most": lambda lines: [*lines, lines[1], lines[1].replace("id 0", " ID 0")],
    "one class alone": lambda lines: [lines[0], *(line for line in lines if ",a," in line)],
}


def test_nothing_about_the_rows_is_seen_when_they_are_shared(folder: Path) -> None:
    """Neighbouring tables give the same exit code, the same words and files of the same sizes; counts are not shown."""
    given = make_sum_study(folder, p=2, person="who", rows_per_person=1)
    given.study.write(study := folder / "study.toml")
    lines = given.table(0, 40).read_text().splitlines()
    expected = None
    for name, change in {"as it is": lambda lines: lines, **NEIGHBOURS}.items():
        vault = given.copy_vault(0)
        (table := folder / "table.csv").write_text("\n".join(change(lines)) + "\n")
        output = folder / "p0.bundle"
        arguments = ("share", table, "--study", study, "--vault", vault.folder, "--output", output)
        seen: list[Any] = []
        for form in ("text", "json"):  # the second writes the recorded bundle again
            words = commands.run(*arguments, "--format", form).stdout
            seen.append(words.replace(hash_file(output, what=""), "DIGEST"))
        seen.append(output.stat().st_size)
        assert seen == (expected := expected or seen), name
        shutil.rmtree(vault.folder)
        output.unlink()


def test_one_row_or_person_moves_the_shared_sums_by_no_more_than_its_bound(folder: Path) -> None:
    """Whatever the cells hold that are adapted, and however many rows the person has."""
    given = make_sum_study(folder, p=2, person="who", rows_per_person=2)
    lines = given.table(0, 40).read_text().splitlines()
    (table := folder / "table.csv").write_text("\n".join(lines) + "\n")
    before = open_with_fixed_noise(given, table)
    for cells in ("1e9,0,a", "-inf,high,b", ",0,a", "3,4,c"):
        table.write_text("\n".join([*lines, *[f"{cells},one person"] * 5]) + "\n")
        require_within(open_with_fixed_noise(given, table) - before, rows=2)
    table.write_text("\n".join([*lines, *["3,4,z,one person", "3,4,a,", "3"] * 5]) + "\n")
    np.testing.assert_array_equal(open_with_fixed_noise(given, table), before)


def test_limits_on_sums_hold_up_to_the_limit_itself(folder: Path) -> None:
    study = make_sum_study(folder, 2, person="who", rows_per_person=3, epsilon=2.0).study
    plain = replace(make_sum_study(folder / "plain", 2, epsilon=None, least_rows=80).study, smallest_class=3)
    exchange = exchange_of(study)
    exchange.require_floors(study, Floors(most_epsilon=2.0))
    for floors, refused in ((Floors(most_epsilon=1.99), study), (Floors(), plain)):
        with raising(RefusedError, "the study"):
            exchange.require_floors(refused, floors)
    assert [len(exchange.list_refusals(plain, n, {"a": n - 77, "b": 77})) for n in (80, 79)] == [0, 2]
    assert len(exchange.list_refusals(plain, 80, {"a": 1, "b": 79, "c": 0})) == 1
    assert exchange.list_refusals(study, 7, {"a": 1}) == []  # with noise, nothing about the rows decides
    persons = PersonCounts()
    for names, n_above in (([1.0, 1, 1, 2, 2, 2, 3], 0), ([1.0, 1, 2], 2)):
        persons.add(np.array(names))
        assert persons.count_above(3) == n_above
        assert len(exchange.describe_persons(study, persons)) == (n_above > 0)


def test_without_noise_few_rows_are_refused(folder: Path) -> None:
    without = make_sum_study(folder, least_rows=30, epsilon=None)
    with raising(InputError, "rows"):
        without.share(0, data=without.table(0, 29))


@pytest.mark.parametrize("limit", ["membership at most 5 %", "error at least 0.5", "linkage at most 20 %"])
def test_a_study_with_noise_has_no_limits_that_rows_decide(folder: Path, limit: str) -> None:
    with raising(InputError, "limits"):
        make_sum_study(folder, upload_limits=(limit,))
    assert make_sum_study(folder / "none", epsilon=None, least_rows=25, upload_limits=(limit,))
    assert make_sum_study(folder / "epsilon", upload_limits=("Epsilon at most 2",))


def test_a_limit_of_epsilon_is_decided_by_the_study_and_not_by_a_check_of_the_rows(folder: Path) -> None:
    given = make_sum_study(folder, p=3, epsilon=2.0, upload_limits=("epsilon at most 1",))
    with raising(RefusedError, "the upload", reason="was not shown"):
        given.share(0)
    assert given.share(0, override="Dr. Ash: agreed")
    kept = make_sum_study(folder / "kept", p=3, epsilon=2.0, upload_limits=("epsilon at most 2",))
    assert kept.share(0)  # no check is asked for


def test_with_noise_a_check_decides_by_the_guarantee_whatever_the_rows(folder: Path) -> None:
    given = make_sum_study(folder, p=2, epsilon=1.0)
    checks = [Participant(given.study, given.vaults[0]).check(given.table(0, n)) for n in (15, 16, 200)]
    assert checks[0].decision == checks[1].decision == checks[2].decision
    assert checks[2].self_attack is not None  # which is shown


def test_a_share_that_was_killed_is_counted_anew_when_it_is_resumed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = make_sum_study(folder, epsilon=5.0, floors=Floors(most_epsilon=8.0))
    with monkeypatch.context() as patch:
        patch.setattr(contribution, "write_sum_bundle", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            given.share(0)
    share_sums(given.vaults[0], another(given), given.table(0), output=folder / "other.bundle")
    with raising(RefusedError, "the upload"):
        given.share(0)


def test_every_report_of_a_vault_states_what_it_has_spent_by_now(folder: Path) -> None:
    given = make_sum_study(folder, epsilon=1.0)
    other = another(given)
    other = replace(other, mechanism=replace(other.mechanism, epsilon=2.0))
    given.share(0)
    share_sums(given.vaults[0], other, given.table(0), output=folder / "other.bundle")
    for study in (given.study, other):
        kept = given.vaults[0].study_folder(study.folder_name)
        share = collect_records(kept, study).share
        assert share is not None
        assert share.epsilon_in_all == 3.0
        moved = collect_records(Path(shutil.copytree(kept, folder / study.digest)), study).share
        assert moved is not None
        assert moved.epsilon_in_all is None


def test_rows_under_other_columns_are_counted_whatever_their_number(folder: Path) -> None:
    """A column less, a column renamed, or a row more: the fingerprints differ, so what was spent is assumed to add up."""
    given = make_sum_study(folder, epsilon=5.0, floors=Floors(most_epsilon=8.0))
    given.share(0)
    (more := folder / "more.csv").write_text(given.table(0).read_text() + "1.5,2.5,a\n")
    with raising(RefusedError, "the upload"):
        share_sums(given.vaults[0], another(given, given.study.columns[:1]), more, output=folder / "o", ignore=["x1"])


def test_rows_under_a_guarantee_do_not_go_into_sums_without_noise(folder: Path) -> None:
    given = make_sum_study(folder, epsilon=1.0, least_rows=25)
    given.share(0)
    other = another(given)
    other = replace(other, mechanism=replace(other.mechanism, epsilon=None))
    with raising(RefusedError, "the upload"):
        share_sums(given.vaults[0], other, given.table(0), output=folder / "o")
    for study in (other, replace(other, name="again", participants=another(given).participants)):
        share_sums(given.vaults[1], study, given.table(1), output=folder / "o")  # promised nothing before


def test_of_rows_that_went_into_sums_not_one_goes_out_mapped(folder: Path) -> None:
    given = make_sum_study(folder)
    given.share(1, data=given.table(1, 200))
    named = {f"p{i}": vault for i, vault in enumerate(given.vaults)}
    rotated = vaulted_study(named, given.analyst, 2, 8, columns=given.study.columns, label=given.study.label)
    deal_anchor(given.vaults[0], rotated, anchor := folder / "a.anchor")
    shared, others = (given.table(i, 200).read_text().splitlines() for i in (1, 2))
    (mixed := folder / "mixed.csv").write_text("\n".join([*others, shared[1]]) + "\n")
    output, consent = folder / "r.bundle", Consent(labels=True)
    with raising(RefusedError, "a second upload", reason="void the guarantee"):
        share_rows(given.vaults[1], rotated, mixed, anchor=anchor, output=output, consent=consent)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_persons_with_long_numbers_are_told_apart(folder: Path, form: str) -> None:
    """Beyond 2⁵³ a float64 holds no odd number: two persons taken for one would be protected together, not each."""
    given = make_sum_study(folder, person="who", rows_per_person=1, epsilon=None, least_rows=25)
    numbers = [1180000000000000001 + k for k in range(30)]
    tables = [given.table(0, persons=numbers), given.table(1, persons=[*numbers[1:], f" {numbers[-1]}"])]
    for i, n_persons in enumerate((30, 29)):
        pyarrow.parquet.write_table(pyarrow.csv.read_csv(tables[i]), folder / f"{i}.parquet")
        given.share(i, data=tables[i] if form == "csv" else folder / f"{i}.parquet")
        S, _ = sum_scheme(given.study).layout.unpack(given.open_vector(i))
        assert S[-1, -1] / sum_scheme(given.study).features.constant_share == pytest.approx(n_persons, rel=0.01)


def test_check_says_whose_noise_it_attacked(folder: Path) -> None:
    """Rows are attacked, with noise for rows: where persons have several, that is not the study's."""
    tried = PointResult(
        SumPoint(1.0, 1e-5, 2, 1), epsilon=EpsilonAudit(1.0, 1.0, EpsilonBound(0.5, 0.5, 1e-5, 0.95, 9))
    )
    audit = AuditResult(AuditDescription(), References(None, None, 0), (tried,))
    single, three = (make_sum_study(folder / f"{m}", 2, person="who", rows_per_person=m).study for m in (1, 3))
    assert "the study's noise" in _verdict(single, audit)
    assert "the study's noise" not in _verdict(three, audit)


@pytest.mark.parametrize(("epsilon", "kept"), [(1.0, True), (2.0, True), (2.1, False), (None, False)])
def test_a_limit_of_epsilon_is_kept_by_the_studys_noise_alone(epsilon: float | None, kept: bool, folder: Path) -> None:
    limits = ("epsilon at most 2",) if epsilon else ("epsilon at most 2", "membership at most 5 %")
    study = make_sum_study(folder, 2, epsilon=epsilon, least_rows=80, upload_limits=limits).study
    assert list_exceeded(study, None) == (() if kept else limits)


def test_check_attacks_ones_own_sums(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attack recognises rows without noise, and hardly any with the study's noise; too few rows are not attacked."""
    given = make_sum_study(folder, 2)
    participant, collected = Participant(given.study, given.vaults[0]), []
    check = participant.check(given.table(0), progress=lambda *words: collected.append(words[:2]))
    assert collected == [(0, 2), (1, 2), (2, 2)]
    areas = [point.worst("membership_auc")[1].value for point in check.self_attack.points]  # type: ignore[union-attr,index]
    assert areas[0] < 0.75 < areas[1]
    assert participant.check(given.table(0, 15)).self_attack is None
    made = Mock(side_effect=inspection.Partition.from_parts)
    monkeypatch.setattr(inspection.Partition, "from_parts", made)
    assert participant.check(given.table(0, 16)).self_attack is not None
    (rows, _), (_, others) = made.call_args.args[:2], made.call_args.kwargs["test"]
    assert ([len(part) for part in rows], len(others)) == ([4, 8], 4)


@pytest.mark.parametrize("rows_per_person", ["mean", 1])
def test_rows_that_name_no_person_are_left_out(folder: Path, rows_per_person: Any) -> None:
    """Nine rows of one person beside one of another's, none with a name, would move the means by 1.27 times the bound."""
    given = make_sum_study(folder, p=2, person="who", rows_per_person=rows_per_person)
    lines = given.table(0, persons=[f"id {k}" for k in range(30)]).read_text().splitlines()
    (named := folder / "named.csv").write_text("\n".join(lines[:26]) + "\n")
    (nameless := folder / "nameless.csv").write_text("\n".join(line.split("id")[0] for line in lines[26:]) + "\n")
    nameless.write_text(named.read_text() + nameless.read_text())
    np.testing.assert_array_equal(*(open_with_fixed_noise(given, table) for table in (named, nameless)))


def open_after(given: SumStudy) -> Any:
    given.close()
    for i in range(len(given.vaults)):
        given.combine(i)
    return open_total(given.study, given.work, given.inbox)


@pytest.mark.parametrize("factor", [2, 10**3, 10**6])
@pytest.mark.parametrize("epsilon", [2.0, None])
def test_a_client_of_ones_own_with_larger_sums_than_rows_may_have_is_refused(
    folder: Path, factor: int, epsilon: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = make_sum_study(folder, epsilon=epsilon, quorum=6, least_rows=30, most_rows=30)
    for i in range(5):
        given.share(i)
    whole = contribution.sum_table

    def multiply(*args: Any) -> Any:
        vector, rows = whole(*args)
        return vector * factor * 10, rows

    monkeypatch.setattr(contribution, "sum_table", multiply)
    given.share(5)
    with raising(RefusedError, "the total", reason="180", cure="new study"):
        open_after(given)


def test_as_many_rows_as_the_study_allows_are_accepted_and_many_more_are_not(folder: Path) -> None:
    given = make_sum_study(folder, epsilon=8.0, quorum=6, most_rows=200)
    for i in range(6):
        given.share(i, data=given.table(i, 200))
    assert open_after(given).content.n_rows == pytest.approx(1200, abs=6 * 7)
    crowded = make_sum_study(folder / "crowded", epsilon=8.0, quorum=6, most_rows=200)
    for i in range(6):
        crowded.share(i, data=crowded.table(i, 200 if i else 2000))
    with raising(RefusedError, "the total", reason="1,200"):
        open_after(crowded)


def test_each_row_is_kept_with_the_public_probability_whatever_the_others_are(folder: Path) -> None:
    given = make_sum_study(folder, p=2, kept_share=0.25, epsilon=None, least_rows=80)
    given.share(0, data=given.table(0, 4000))
    S, _ = sum_scheme(given.study).layout.unpack(given.open_vector(0))
    kept = S[-1, -1] / sum_scheme(given.study).features.constant_share
    assert kept == pytest.approx(1000, abs=5 * math.sqrt(4000 * 0.25 * 0.75))
    given.share(1, data=given.table(0, 4000))
    assert (given.open_vector(0) != given.open_vector(1)).any()  # draws are fresh: nobody knows which rows are added
    words = Mock(side_effect=lambda n: np.array([2**62 - 1, 2**62, 0, 2**64 - 1], dtype=np.uint64)[:n])
    assert draw_kept(words, 0.25, 4).tolist() == [True, False, True, False]


def test_places_between_nodes_are_rounded_by_draws_that_nobody_knows(folder: Path) -> None:
    """Two participants who share sums over the same table share different sums, because numbers are rounded at random."""
    given = make_sum_study(folder, p=2, epsilon=None, least_rows=5000, questions=("model", "tables"))
    for i in (0, 1):
        given.share(i, data=given.table(0, 5000))
    assert (given.open_vector(0) != given.open_vector(1)).any()


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"epsilon": 1e13}, "resolution"),
        ({"epsilon": 1e-9, "person": "who", "rows_per_person": 10**6}, "epsilon"),
        ({"epsilon": 1e-6, "delta": 1e-6}, "epsilon"),  # T's noise is the larger
        ({"epsilon": 1e-5, "questions": ("model", "tables")}, "epsilon"),
        ({"most_rows": 2**40}, "most_rows"),
        ({"most_rows": 4}, "least_rows"),
        ({"kept_share": 0.0}, "kept_share"),
        ({"kept_share": 1.01}, "kept_share"),
    ],
)
def test_noise_and_bounds_that_cannot_be_are_refused_when_the_study_is_read(
    folder: Path, settings: dict[str, Any], what: str
) -> None:
    with raising(InputError, what):
        make_sum_study(folder, 2, **settings)


@pytest.mark.parametrize("questions", [("model",), ("tables",)])
def test_check_warns_of_rows_that_alone_have_a_level_where_there_is_no_noise(
    folder: Path, questions: tuple[str, ...]
) -> None:
    for epsilon, warned in ((None, True), (2.0, False)):
        made: dict[str, Any] = {"questions": questions, "n_hats": 3, "least_rows": 2000}
        given = make_sum_study(folder / str(epsilon), 2, epsilon=epsilon, **made)
        lines = given.table(0, 400).read_text().splitlines()
        inner = [line for line in lines[1:] if float(line.split(",")[0]) < 0]
        (table := folder / "lone.csv").write_text("\n".join([lines[0], *inner, *inner, "90,0,a"]) + "\n")
        assert bool(inspect_own(given, table)) == warned


@pytest.mark.parametrize("lone", [True, False])
def test_check_warns_of_a_row_that_alone_has_a_category(folder: Path, lone: bool) -> None:
    given = make_sum_study(folder, 2, epsilon=None, n_hats=3, least_rows=400)
    level = Column("x0", "category", categories=("u", "v", "w"))
    given = replace(given, study=replace(given.study, columns=(level, given.study.columns[1])))
    lines = [f"{'uv'[k % 2]},{k % 7 * 30 - 90},{'abc'[k % 3]}" for k in range(60)]
    (table := folder / "lone.csv").write_text("\n".join(["x0,x1,y", *lines, *["w,12,a"] * (1 if lone else 2)]) + "\n")
    assert bool(inspect_own(given, table)) is lone


def inspect_own(given: SumStudy, table: Path) -> tuple[str, ...]:
    (encoded,) = encoded_batches(given.study.schema, table)
    return inspection._find_lone_rows(given.study, encoded)


@pytest.mark.parametrize(
    ("n_rows", "settings", "warned"),
    [
        (200, {}, False),
        (201, {}, True),
        (800, {"kept_share": 0.25}, False),
        (804, {"kept_share": 0.25}, True),
        (900, {"person": "who", "rows_per_person": "mean"}, False),
    ],
)
def test_check_warns_of_more_rows_than_the_study_expects(n_rows: int, settings: dict[str, Any], warned: bool) -> None:
    bound = SumSettings(epsilon=1.0, most_rows=200, **settings)
    assert bool(inspection._warn_of_bound(bound, n_rows)) == warned
