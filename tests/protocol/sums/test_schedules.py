"""The protocol of secure sums as a state machine: whatever one dishonest party schedules, one total opens at most.

The exhaustive search goes through every study with p ≤ 4 participants and k ≤ 4 combiners, with and without helpers, and
every quorum; every choice of the colluders that such a study allows for (c = 1, and of helpers all but one), or a combiner
restored from a backup in place of one; and every sequence of valid lists to combiners. Combiners that are alike are taken in
one order. What colluders can compute is found by linear algebra in each state that is reached. Thresholds and quorums are
those of the code; that a combiner answers one list is a rule of the search, and the second half of this file checks on
files, vaults and ledgers that combiners keep to it.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, count, product
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from mooring.errors import InputError, RefusedError
from mooring.mechanisms.sums.prime_field import draw_elements
from mooring.mechanisms.sums.secret_sharing import Parties, Threshold, least_threshold
from mooring.protocol.crypto.keys import Secret
from mooring.protocol.sums.analyst.total import open_total
from mooring.protocol.sums.answers import read_combined_share, write_closing_list, write_combined_share
from mooring.protocol.sums.bundle import verify_sum_bundle, words_of
from mooring.protocol.sums.combiner.combination import combine_shares
from mooring.protocol.sums.scheme import sum_scheme
from tests.opening import what_opens
from tests.protocol.sums.support import SumStudy, make_sum_study

List = frozenset[int]
Lists = int
"""Lists of a scenario, one bit each."""


def answers_one_list(answered: Lists, offered: Lists) -> bool:
    """The rule of an honest combiner, which remembers what it answered."""
    return answered in (0, offered)


@dataclass(frozen=True)
class Rules:
    """The rules of the protocol, of which a test weakens one."""

    find_threshold: Callable[[Parties, int], int]
    may_answer: Callable[[Lists, Lists], bool] = answers_one_list
    missing_from_quorum: int = 0
    """By how many contributions a list may fall short of the quorum."""


def find_threshold(parties: Parties, quorum: int) -> int:
    """The least threshold that the code accepts."""
    overlap, k, a = parties.do_lists_overlap(quorum), parties.n_combiners, parties.most_colluding
    return Threshold(k, min(k, least_threshold(k, a, overlap)), a, overlap).threshold


REAL = Rules(find_threshold)


@dataclass(frozen=True)
class Scenario:
    """A study and its one dishonest party, beside the analyst."""

    parties: Parties
    quorum: int
    t: int
    colluders: frozenset[int]
    """Participants, from 0 on, of whom the first combine, and helpers, from 100 on."""
    restored: int | None
    """An honest combiner that forgets its answer once."""

    @property
    def combiners(self) -> list[int]:
        return [*range(self.parties.n_combining), *range(100, 100 + self.parties.n_helpers)]

    @property
    def honest(self) -> list[int]:
        return [i for i in range(self.parties.n_participants) if i not in self.colluders]


class State(NamedTuple):
    """What honest combiners answered: those that are alike in one order, and the restored one."""

    alike: tuple[Lists, ...]
    before: Lists = 0
    after: Lists = 0
    was_restored: bool = False


def list_scenarios(rules: Rules) -> Iterator[Scenario]:
    """Every study with p ≤ 4 and k ≤ 4, and every dishonest party that is not like another."""
    for p, n_combining, n_helpers in product(range(2, 5), range(5), range(5)):
        if n_combining > p or not 1 <= n_combining + n_helpers <= 4:
            continue
        h = max(1, n_helpers - 1) if n_helpers else 0
        parties = Parties(p, n_combining, 1, n_helpers, h)
        helpers = frozenset(range(100, 100 + h))
        for quorum in range(2, p + 1):
            try:
                t = rules.find_threshold(parties, quorum)
            except InputError:  # a study that mooring refuses
                continue
            for participant in {0, p - 1}:  # one that combines, and one that does not, where there is one
                yield Scenario(parties, quorum, t, helpers | {participant}, None)
            if n_combining:
                yield Scenario(parties, quorum, t, helpers, 0)
            if n_helpers:  # a participant colludes, and a helper is restored instead of colluding
                yield Scenario(parties, quorum, t, frozenset({0, *range(101, 100 + h)}), 100)


def explore(scenario: Scenario, rules: Rules) -> tuple[int, str]:
    """The number of states that can be reached, up to the first with a fault, and this fault."""
    participants = range(scenario.parties.n_participants)
    least = scenario.quorum - rules.missing_from_quorum
    lists = [frozenset(listed) for n in range(least, len(participants) + 1) for listed in combinations(participants, n)]
    answering = [point for point, combiner in enumerate(scenario.combiners) if combiner not in scenario.colluders]
    points = [point for point in answering if scenario.combiners[point] != scenario.restored]
    if scenario.restored is not None:
        points.append(scenario.combiners.index(scenario.restored))
    judged = set[tuple[Lists, ...]]()

    @cache
    def read(answered: Lists) -> frozenset[List]:
        return frozenset(listed for place, listed in enumerate(lists) if answered >> place & 1)

    @cache
    def answer(answered: Lists) -> list[Lists]:
        """What a combiner has answered after one more list."""
        offers = [1 << place for place in range(len(lists))]
        return [answered | one for one in offers if not answered & one and rules.may_answer(answered, one)]

    def step(state: State) -> Iterator[State]:
        alike, before, after, was_restored = state
        for place, answered in enumerate(alike):
            if place and answered == alike[place - 1]:  # the same states
                continue
            for more in answer(answered):
                yield State(tuple(sorted((*alike[:place], more, *alike[place + 1 :]))), before, after, was_restored)
        if scenario.restored is not None and was_restored:
            yield from (State(alike, before, more, True) for more in answer(after))
        elif scenario.restored is not None:
            yield from (State(alike, more, after, False) for more in answer(before))
            yield State(alike, before, after, True)

    def judge(state: State) -> str:
        known = state.alike if scenario.restored is None else (*state.alike, state.before | state.after)
        if known in judged:
            return ""
        judged.add(known)
        return find_fault(scenario, dict(zip(points, map(read, known), strict=True)))

    first = State((0,) * (len(points) - (scenario.restored is not None)))
    reached, open_states = {first}, [first]
    while open_states:
        state = open_states.pop()
        if fault := judge(state):
            return len(reached), fault
        new = set(step(state)) - reached
        reached |= new
        open_states += new
    return len(reached), ""


def find_fault(scenario: Scenario, answers: dict[int, frozenset[List]]) -> str:
    """What colluders can compute and should not; empty if there is nothing."""
    opened = what_opens(scenario.parties.n_combiners, scenario.t, scenario.honest, answers)
    if len(opened) > 1:
        return "two totals"
    for vector in opened:
        listed = {i for i, weight in zip(scenario.honest, vector, strict=True) if weight}
        if set(vector) - {0} != {1} or not any(
            listed == answered.intersection(scenario.honest) for lists in answers.values() for answered in lists
        ):
            return "no total of an answered list"
        if len(listed) + len(scenario.colluders & set(range(scenario.parties.n_participants))) < scenario.quorum:
            return "a total of fewer than the quorum"
    return ""


def test_no_schedule_opens_two_totals_or_one_of_fewer_than_the_quorum() -> None:
    reached = {}
    for scenario in list_scenarios(REAL):
        reached[scenario], fault = explore(scenario, REAL)
        assert not fault, (fault, scenario)
    assert (len(reached), sum(reached.values())) == COVERAGE


COVERAGE = (212, 153_317)
"""Studies with their dishonest party, and states that were reached."""


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (Rules(lambda parties, _: parties.most_colluding + 1), "two totals"),
        (Rules(lambda parties, quorum: find_threshold(parties, quorum) - 1), "two totals"),
        (Rules(find_threshold, may_answer=lambda answered, offered: True), "two totals"),
        (Rules(find_threshold, missing_from_quorum=1), "a total of fewer than the quorum"),
    ],
    ids=["2t > k + a is dropped", "one combiner less", "combiners answer twice", "short lists"],
)
def test_a_weakened_rule_is_noticed(rules: Rules, expected: str) -> None:
    assert expected in (explore(scenario, rules)[1] for scenario in list_scenarios(rules) if scenario.t > 0)


def test_the_condition_on_lists_that_overlap_is_needed() -> None:
    """With 2t > k + a alone, where lists need not overlap, answers to X, X and Y, and Y are mixed."""
    rules = Rules(lambda parties, _: least_threshold(parties.n_combiners, parties.most_colluding, True))
    scenarios = [scenario for scenario in list_scenarios(rules) if scenario.parties == Parties(4, 4, 1)]
    assert any(explore(scenario, rules)[1] for scenario in scenarios)


# The same on files: combiners keep to one list, and the analyst opens one total or none.


def make_machine(make_study: Callable[[], SumStudy], happened: set[str]) -> type[RuleBasedStateMachine]:
    """A machine in which an analyst offers combiners lists, and one combiner may be restored or answer wrongly."""

    class Schedule(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.given = given = make_study()
            self.vaults = list(given.vaults)
            self.backup = given.copy_vault(0)
            self.bundles = [verify_sum_bundle(given.inbox / f"p{i}.bundle", given.study) for i in range(4)]
            self.memory: dict[int, List] = {}
            self.shares: dict[List, set[int]] = {}
            self.forged = set[List]()
            self.opened = set[List]()

        def write_list(self, listed: List) -> Path:
            folder = self.given.folder / "-".join(map(str, sorted(listed)))
            folder.mkdir(exist_ok=True)
            digests = {self.bundles[i].member.signing_key: self.bundles[i].header_digest for i in listed}
            write_closing_list(folder / "closing.list", self.given.study, digests, self.given.analyst.signing_key)
            return folder

        @rule(
            combiner=st.integers(0, 3),
            listed=st.just(frozenset(range(4))) | st.frozensets(st.integers(0, 3), min_size=2),
        )
        def offer(self, combiner: int, listed: List) -> None:
            folder = self.write_list(listed)
            output = folder / f"p{combiner}.share"
            known = self.memory.get(combiner)
            refused = len(listed) < sum_scheme(self.given.study).quorum or known not in (None, listed)
            if refused:
                happened.add("a list was refused" if known is None else "a second list was refused")
                with pytest.raises(RefusedError):
                    combine_shares(
                        self.vaults[combiner],
                        self.given.study,
                        self.given.inbox,
                        folder / "closing.list",
                        output=output,
                    )
                return
            combine_shares(
                self.vaults[combiner], self.given.study, self.given.inbox, folder / "closing.list", output=output
            )
            self.memory[combiner] = listed
            self.shares.setdefault(listed, set()).add(combiner)

        @precondition(lambda self: 0 in self.memory and self.vaults[0] is not self.backup)
        @rule()
        def restore(self) -> None:
            happened.add("restored")
            self.vaults[0] = self.backup
            del self.memory[0]

        @precondition(lambda self: any(0 in combiners for combiners in self.shares.values()))
        @rule(seed=st.integers(0, 9))
        def forge(self, seed: int) -> None:
            """The restored combiner also answers wrongly."""
            listed = next(listed for listed, combiners in self.shares.items() if 0 in combiners)
            path = self.write_list(listed) / "p0.share"
            share = read_combined_share(path, self.given.study)
            words = words_of(Secret(bytes([seed]) * 32))
            write_combined_share(
                path,
                self.given.study,
                draw_elements(words, share.elements.size),
                combiner=1,
                list_digest=share.list_digest,
                signer=self.given.vaults[0].signing_key,
            )
            self.forged.add(listed)

        @rule()
        def open(self) -> None:
            scheme = sum_scheme(self.given.study)
            for listed, combiners in self.shares.items():
                folder = self.write_list(listed)
                spare = len(combiners) - scheme.threshold.threshold
                is_forged = listed in self.forged
                if spare < 0 or (is_forged and spare < 2):  # forged elements do not decode to sums of rows
                    with pytest.raises((InputError, RefusedError)):
                        open_total(self.given.study, folder, folder)
                    continue
                total = open_total(self.given.study, folder, folder)
                assert total.participants == tuple(f"p{i}" for i in sorted(listed))
                assert total.wrong == (("p0",) if is_forged else ())
                self.opened.add(listed)
                happened.add(f"opened with {len(total.wrong)} wrong")
            assert len(self.opened) <= 1

    return Schedule


def test_on_files_combiners_keep_to_one_list_and_one_total_opens(tmp_path: Path) -> None:
    """The default quorum of four admits one list; with three, lists need not overlap and all four have to answer."""
    numbers, happened = count(), set[str]()
    for quorum in (0, 3):
        (original := tmp_path / f"original{quorum}").mkdir()
        made = make_sum_study(original, 4, quorum=quorum)
        for i in range(4):
            made.share(i)

        def copy_study(made: SumStudy = made) -> SumStudy:
            """The study after sharing, with vaults and files of its own."""
            folder = tmp_path / f"run{next(numbers)}"
            shutil.copytree(made.folder, folder)
            vaults = tuple(replace(vault, folder=folder / vault.folder.name) for vault in made.vaults)
            return SumStudy(folder, made.study, vaults, made.analyst)

        few = settings(max_examples=12, stateful_step_count=12, deadline=None, derandomize=True, database=None)
        run_state_machine_as_test(make_machine(copy_study, happened), settings=few)
    assert happened == {"a list was refused", "a second list was refused", "restored", "opened with 0 wrong"}
