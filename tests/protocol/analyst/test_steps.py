"""What the analyst's steps take in and hand out: envelopes, seeds, and sentences on what arrived."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mooring.errors import InputError, RefusedError
from mooring.protocol.analyst.intake import Intake, RejectedBundle
from mooring.protocol.analyst.steps import (
    _open_bundles,
    _read_seed,
    _seal_results,
    align,
    collect,
    deliver,
    describe_intake,
)
from mooring.protocol.messages.envelope import envelope_of, open_envelope, seal_file
from mooring.protocol.participant.membership import make_member
from mooring.protocol.rotation.analyst.alignment import align_bundles
from mooring.protocol.storage.vault import Vault
from mooring.protocol.workspace import Workspace
from mooring.report.step_pages import StepPages
from tests.protocol.rotation.support import bundles_of, sent
from tests.protocol.sums.support import make_sum_study
from tests.raising import raising
from tests.sites import ANALYST, KEYS, numeric_study


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """The folder of an analyst with three participants, of whom nobody has a vault."""
    made = Workspace.at(tmp_path, StepPages())
    lab = replace(Vault.create(made.vault_folder), signing_key=ANALYST)
    made.opened = lab
    numeric_study(3, analyst=make_member("lab", lab)).write(made.study_file)
    (tmp_path / "inbox").mkdir()
    return made


def seal(workspace: Workspace, who: int, name: str) -> Path:
    """An envelope for the analyst with a participant's bundle in it."""
    study, source = workspace.study, workspace.root / f"site-{who}.bundle"
    assert study.analyst is not None
    sent(study, workspace.root, [who], n=5)
    target = envelope_of(workspace.root / "inbox" / name)
    seal_file(source, target, study=study, recipient=study.analyst, signer=KEYS[who], name=name)
    source.unlink()
    return target


def test_envelopes_in_the_inbox_are_opened_where_their_name_is_that_of_their_sender(workspace: Workspace) -> None:
    inbox = workspace.root / "inbox"
    for who, name in ((0, "site-0.bundle"), (1, "stray.bundle"), (2, "site-1.bundle")):
        seal(workspace, who, name)
    refused = _open_bundles(workspace, inbox)
    assert sorted(path.name for path in inbox.glob("*.bundle")) == ["site-0.bundle"]
    assert ["stray" in words for words in refused] == [False, True]
    assert _open_bundles(workspace, "memory://nowhere") == ()
    outcome = collect(workspace, bundles=inbox)
    assert (len(outcome.notes), outcome.standing) == (2, "whole")
    assert [bundle.member.name for bundle in outcome.result.bundles] == ["site-0"]


def test_what_arrived_is_told_with_what_is_missing_and_gone() -> None:
    intake = Intake((), (RejectedBundle("x.bundle", "it is a folder"),), ("a", "b"), ("b",))
    outcome = describe_intake(intake)
    assert outcome.standing == "in part"
    ((_, rows),) = outcome.tables
    assert [row[0] for row in rows[1:]] == ["x.bundle", "a", "b"]
    assert rows[2][1] == "missing"
    assert rows[3][1] != "missing"
    assert "0 bundles; set aside 1; missing: a, b" in outcome.lines[0]
    nothing = describe_intake(Intake((), (), ()))
    assert (nothing.standing, "missing: none" in nothing.lines[0]) == ("whole", True)


@pytest.mark.parametrize(("seed", "read"), [(None, 0), (0, 0), (7.0, 7), (0.5, None), (-1, None)])
def test_a_seed_is_a_whole_number_from_zero_on(seed: Any, read: int | None) -> None:
    if read is not None:
        assert _read_seed(seed) == read
    else:
        with raising(InputError, "seed"):
            _read_seed(seed)


def test_results_are_sealed_to_participants_who_have_a_key_for_it(workspace: Workspace) -> None:
    study, output = workspace.study, workspace.root / "results"
    sent(study, workspace.root / "bundles", n=5)
    align_bundles(study, bundles_of(study, workspace.root / "bundles"), workspace.analysis, certify=False)
    outcome = deliver(workspace, output=output)
    names = [f"site-{k}" for k in range(3)]
    assert list(outcome.result.delivered) == names
    assert sorted(path.name for path in (output / "site-1").iterdir()) == ["map.safetensors", "map.safetensors.sealed"]
    assert ".sealed" in outcome.hand_off[0]
    assert len(outcome.notes) == 1  # there is no model
    sealed = {"study": study, "name": "map.safetensors", "senders": {ANALYST.public}}
    for who, reason in ((1, "sealed to this key"), (0, "another member")):  # neither has the key that opens it
        reader = replace(workspace.vault, signing_key=KEYS[who])
        with raising(RefusedError, reason=reason):
            open_envelope(
                envelope_of(output / "site-1" / "map.safetensors"), workspace.root / "map", reader=reader, **sealed
            )


def test_results_are_not_sealed_where_one_participant_has_no_key_for_it(tmp_path: Path) -> None:
    given = make_sum_study(tmp_path, p=2)
    workspace = Workspace.at(tmp_path, StepPages())
    workspace.opened = given.analyst
    first, second = given.study.participants
    for k, members in enumerate(((first, replace(second, sealing_key="", sealing_proof="")), (first, second))):
        replace(given.study, participants=members).write(workspace.study_file)
        (place := tmp_path / f"results-{k}" / "p0").mkdir(parents=True)
        (place / "model.safetensors").write_bytes(b"model")
        assert _seal_results(workspace, place.parent, ["p0", "p1"]) == (k == 1)
        assert len(list(place.iterdir())) == 1 + k


def test_an_alignment_is_whole_where_nobody_and_no_file_is_set_aside(workspace: Workspace) -> None:
    sent(workspace.study, inbox := workspace.root / "inbox", n=5)
    assert align(workspace, bundles=inbox, certify=False).standing == "whole"
    (inbox / "x.bundle").write_text("no bundle")
    assert align(workspace, bundles=inbox, certify=False).standing == "in part"
