"""Attacks on secure sums by who writes the study, who carries files, and who asks for the same rows again."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from mooring.audit import LeakageLimit
from mooring.errors import InputError, RefusedError
from mooring.metrics import Figure, Interval
from mooring.protocol.crypto.keys import CombiningKey
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import make_member
from mooring.protocol.participant.role import Participant
from mooring.protocol.results import Consent
from mooring.protocol.rotation.anchor import deal_anchor
from mooring.protocol.rotation.upload import share_rows
from mooring.protocol.storage.vault import Floors
from mooring.protocol.sums import combination, contribution, inspection
from mooring.protocol.sums.bundle import write_sum_bundle
from mooring.protocol.sums.contribution import share_sums
from mooring.protocol.sums.inspection import _is_kept, _verdict
from mooring.protocol.sums.scheme import sum_scheme
from mooring.tables.schema import Column
from tests.protocol.sums.support import SumStudy, make_sum_study
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
    own = {"combining_key": CombiningKey.generate().public} | ({} if keeps_proof else {"combining_proof": ""})
    first, *rest = given.study.participants
    with raising(InputError, "roster"):
        replace(given.study, participants=(replace(first, **own), *rest))
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


def test_whether_somebody_shares_does_not_depend_on_one_row_where_there_is_noise(folder: Path) -> None:
    given = make_sum_study(folder / "noise", least_rows=30)
    assert given.share(0, data=given.table(0, 29))
    without = make_sum_study(folder / "none", least_rows=30, epsilon=None)
    with raising(InputError, "rows"):
        without.share(0, data=without.table(0, 29))


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


def test_persons_with_long_numbers_are_told_apart(folder: Path) -> None:
    """Beyond 2⁵³ a float64 holds no odd number: two persons taken for one would be protected together, not each."""
    given = make_sum_study(folder, person="who", rows_per_person=1)
    numbers = [1180000000000000001 + k for k in range(30)]
    assert given.share(0, data=given.table(0, persons=numbers))
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(given.table(1, persons=numbers)), folder / "own.parquet")
    assert given.share(1, data=folder / "own.parquet")
    with raising(InputError, "rows of a person"):
        given.share(2, data=given.table(2, persons=[*numbers[1:], f" {numbers[-1]}"]))


def test_check_says_whose_noise_it_attacked(folder: Path) -> None:
    """Rows are attacked, with noise for rows: where persons have several, that is not the study's."""
    tried = Mock(point=Mock(promise=(1.0, 1e-5)), deployed=None, gain=None, epsilon=None)
    found = Figure("membership_at_1_percent", 0.5, Interval.unknown(), 0.01, None, None, 100, True)
    tried.worst, audit = lambda *_: ("an attack", found), Mock(points=[tried])
    one, three = (make_sum_study(folder / f"{m}", 2, person="who", rows_per_person=m).study for m in (1, 3))
    assert "the study's noise" in _verdict(one, audit)
    assert "the study's noise" not in _verdict(three, audit)


@pytest.mark.parametrize(("epsilon", "kept"), [(1.0, True), (2.0, True), (2.1, False), (None, False)])
def test_a_limit_of_epsilon_is_kept_by_the_studys_noise_alone(epsilon: float | None, kept: bool) -> None:
    assert _is_kept(LeakageLimit.parse("epsilon at most 2"), epsilon, None) is kept
    assert not _is_kept(LeakageLimit.parse("membership at most 5 %"), epsilon, None)


def test_check_attacks_ones_own_sums(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows can be told from others without noise, and hardly with the study's; too few rows are not attacked."""
    given = make_sum_study(folder, 2)
    participant, told = Participant(given.study, given.vaults[0]), []
    found = participant.check(given.table(0), progress=lambda *words: told.append(words[:2]))
    assert told == [(0, 2), (1, 2), (2, 2)]
    areas = [one.worst("membership_auc")[1].value for one in found.self_attack.points]  # type: ignore[union-attr,index]
    assert areas[0] < 0.75 < areas[1]
    assert participant.check(given.table(0, 15)).self_attack is None
    made = Mock(side_effect=inspection.Partition.from_parts)
    monkeypatch.setattr(inspection.Partition, "from_parts", made)
    assert participant.check(given.table(0, 16)).self_attack is not None
    (rows, _), (_, others) = made.call_args.args[:2], made.call_args.kwargs["test"]
    assert ([len(part) for part in rows], len(others)) == ([4, 8], 4)


def test_means_are_of_persons_with_a_name(folder: Path) -> None:
    """Nine rows of one person beside one of another's, none with a name, would move the sums by 1.27 times the bound."""
    given = make_sum_study(folder, person="who", rows_per_person="mean")
    named = [f"id {k}" for k in range(28)]
    nameless = given.table(0, persons=[*named, "", ""])
    with raising(InputError, "rows of a person"):
        given.share(0, data=nameless)
    assert Participant(given.study, given.vaults[0]).check(nameless).refused
    assert given.share(0, data=given.table(0, persons=[*named, "a", "a"]))
