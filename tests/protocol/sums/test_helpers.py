"""Helpers: combiners of secure sums that contribute no rows, are counted apart, and may do nothing else."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.errors import InputError, RefusedError
from mooring.mechanisms.sums.secret_sharing import Parties, Threshold
from mooring.mechanisms.sums.settings import make_scheme
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import make_member
from mooring.protocol.registry import exchange_of
from mooring.protocol.storage.vault import Vault
from mooring.protocol.sums.answers import read_closing_list, read_receipt, write_receipt
from mooring.protocol.sums.bundle import verify_sum_bundle, write_sum_bundle
from mooring.protocol.sums.scheme import sum_scheme
from tests import commands
from tests.protocol.sums.support import make_sum_study, with_helpers
from tests.protocol.sums.test_secure_sums import signed_list
from tests.protocol.support import AGREED
from tests.raising import raising

SITES, HELPERS = ("north", "south", "west"), ("notary", "trust")


def write_table(path: Path, seed: int) -> None:
    rows = np.random.default_rng(seed).uniform(0, 100, (40, 2)).round(1)
    lines = [f"{a},{b},{'yes' if a > b else 'no'}" for a, b in rows]
    path.write_text("\n".join(["a,b,y", *lines]) + "\n")


def test_three_sites_and_two_helpers_go_the_whole_way_by_commands(folder: Path) -> None:
    places = {name: folder / name for name in (*SITES, *HELPERS, "lab")}
    roles = dict.fromkeys(SITES, "participant") | dict.fromkeys(HELPERS, "helper") | {"lab": "analyst"}
    inbox, study = folder / "lab" / "inbox", folder / "study.toml"
    for k, (name, place) in enumerate(places.items()):
        place.mkdir()
        write_table(place / "rows.csv", k)
        commands.run(
            "join", "--name", name, "--role", roles[name], "--output", folder / f"{name}.card.toml", place=place
        )
    inbox.mkdir()
    declared = ("--label", "y", "--classes", "no,yes", "--all-ranges", "0:100")
    commands.run(
        "study", "init", "rows.csv", *declared, "--mechanism", "secure-sum", "-o", study, place=places["north"]
    )
    commands.run("study", "enrol", *(folder / f"{name}.card.toml" for name in places), "--study", study)
    agreed = Study.read(study)
    assert [[member.name for member in members] for members in (agreed.participants, agreed.helpers)] == [
        [*SITES],
        [*HELPERS],
    ]
    assert "notary, trust" in commands.run("study", "show", "--study", study).stdout
    scheme = sum_scheme(agreed)
    assert (scheme.combiners, scheme.quorum, scheme.threshold) == (HELPERS, 3, Threshold(2, 2, 1, lists_overlap=True))

    given = ("--study", study, "--bundles", inbox)
    for name in SITES:
        commands.run("share", "rows.csv", "--study", study, "--output", inbox / f"{name}.bundle", place=places[name])
    commands.run("share", "rows.csv", "--study", study, code=4, what="the study", place=places["trust"])
    commands.run("combine", *given, code=2, what="combiner", place=places["north"])
    for name in HELPERS:
        commands.run("combine", *given, "--output", inbox / f"{name}.receipt", place=places[name])
    commands.run("align", *given, "--receipts", inbox, place=places["lab"])
    closing = folder / "lab" / "analysis" / "closing.list"
    for name in HELPERS:
        commands.run("combine", *given, "--list", closing, "--output", inbox / f"{name}.share", place=places[name])
        assert Vault.open(places[name] / "vault").combining_key(agreed.member(name).combining_key) is None
    commands.run("train", "--study", study, "--shares", inbox, place=places["lab"])
    commands.run("deliver", "--study", study, "--output", "results", place=places["lab"])
    assert sorted(path.name for path in (places["lab"] / "results").iterdir()) == sorted(SITES)


def test_helpers_are_no_participants(folder: Path) -> None:
    """Neither a bundle that a helper signs nor a list that names it counts, and a participant's share is not a helper's."""
    given, vaults = with_helpers(make_sum_study(folder, p=3))
    zeros: Any = np.zeros(sum_scheme(given.study).layout.size, dtype=np.uint64)
    write_sum_bundle(path := folder / "own.bundle", given.study, zeros, vaults[0].signing_key)
    with raising(RefusedError, "the bundle", reason="not in the study's roster"):
        verify_sum_bundle(path, given.study)
    digests = [verify_sum_bundle(given.share(i), given.study).header_digest for i in range(3)]
    keys = [vault.signing_key.public for vault in (*given.vaults[:2], vaults[0])]
    with raising(RefusedError, "the closing list", reason="not in the study's roster"):
        read_closing_list(signed_list(given, list(zip(keys, digests, strict=True))), given.study)
    for signer, is_accepted in ((vaults[0], True), (vaults[1], False), (given.vaults[0], False)):
        write_receipt(path, given.study, {digests[0]: True}, combiner=1, signer=signer.signing_key)
        if is_accepted:
            assert read_receipt(path, given.study).member.name == "h0"
        else:
            with raising(RefusedError):
                read_receipt(path, given.study)


@pytest.mark.parametrize(
    ("n_helpers", "settings", "parties", "threshold"),
    [
        (1, {"combiners": ("p0", "p1", "p2", "h0")}, Parties(3, 3, 1, 1, 1), 4),
        (2, {}, Parties(3, 0, 1, 2, 1), 2),
        (3, {}, Parties(3, 0, 1, 3, 2), 3),
        (4, {"n_colluding_helpers": 1}, Parties(3, 0, 1, 4, 1), 3),  # so that one may be away
        (2, {"combiners": ("p0", "h0", "h1")}, Parties(3, 1, 1, 2, 1), 3),
    ],
)
def test_all_but_one_helper_may_collude_unless_the_study_says_otherwise(
    folder: Path, n_helpers: int, settings: dict[str, Any], parties: Parties, threshold: int
) -> None:
    given, _ = with_helpers(make_sum_study(folder, p=3), n_helpers, **settings)
    scheme = sum_scheme(given.study)
    assert (scheme.parties, scheme.threshold.threshold, scheme.quorum) == (parties, threshold, 3)
    given.study.write(path := folder / "study.toml")
    assert Study.read(path) == given.study
    words = exchange_of(given.study).describe(given.study).terms.not_colluding
    assert f"1 participant and {parties.n_colluding_helpers} helper" in words


@pytest.mark.parametrize(
    ("n_helpers", "settings", "what"),
    [
        (1, {}, "threshold"),  # it alone could open every contribution
        (2, {"n_colluding_helpers": 2}, "threshold"),
        (2, {"n_colluding_helpers": 3}, "n_colluding_helpers"),
        (0, {"n_colluding_helpers": 1}, "n_colluding_helpers"),
        (2, {"combiners": ("p0", "p1", "p2", "h0")}, "combiners"),
        (3, {"threshold": 2}, "threshold"),
    ],
)
def test_helpers_who_could_open_contributions_or_do_nothing_are_refused(
    folder: Path, n_helpers: int, settings: dict[str, Any], what: str
) -> None:
    with raising(InputError, what):
        with_helpers(make_sum_study(folder, p=3), n_helpers, **settings)


def test_only_studies_of_sums_have_helpers_and_their_keys_are_their_own(folder: Path) -> None:
    vault = Vault.create(folder / "vault")
    helper = replace(make_member("helper", vault, combines=True), sealing_key="", sealing_proof="")
    with raising(InputError, "roster", problem="have no helpers"):
        replace(AGREED, helpers=(helper,))
    given, (first, _) = with_helpers(make_sum_study(folder, p=3))
    for other in (
        replace(given.study.helpers[1], signing_key=first.signing_key.public),
        replace(given.study.helpers[1], name="p0"),
        Member("h1", vault.signing_key.public),  # without a combining key
        replace(given.study.helpers[1], combining_proof=helper.combining_proof),
    ):
        with raising(InputError, "roster"):
            replace(given.study, helpers=(given.study.helpers[0], other))


def test_with_a_thousand_participants_nine_tenths_must_share(folder: Path) -> None:
    """Two helpers allow any quorum; a small one would multiply everybody's noise."""
    given = make_sum_study(folder, p=3)
    names, scheme = [f"p{i}" for i in range(1000)], sum_scheme(given.study)
    large = make_scheme(replace(scheme.settings, most_rows=1000), scheme.layout, scheme.features, names, ["h0", "h1"])
    assert (large.quorum, large.threshold.threshold) == (900, 2)
    small = make_scheme(scheme.settings, scheme.layout, scheme.features, names[:9], ["h0", "h1"])
    assert small.quorum == 9
