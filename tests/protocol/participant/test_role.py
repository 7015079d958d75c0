"""A participant from Python: what the analyst delivered, in a folder or at an address, is good to predict with."""

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pytest

from mooring import Analyst, Participant, Study
from mooring.atomic_io import LockHeldError, hold_lock
from mooring.cli.execution import REFUSED
from mooring.errors import InputError, RefusedError, StorageError
from mooring.learners import Gain, Score
from mooring.protocol.inspection import Inspection
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.result import Release
from mooring.protocol.participant.membership import make_member, read_check
from mooring.protocol.participant.prediction import PredictionRecord, Predictions, Scoring
from mooring.protocol.participant.steps import advise_sharing, check, share
from mooring.protocol.registry import exchange_of
from mooring.protocol.results import Consent, ShareResult
from mooring.protocol.sums.participant import inspection
from mooring.protocol.sums.participant.table_sums import scale_labels
from mooring.protocol.workspace import Workspace
from mooring.report.records import StudyRecords, collect_records
from mooring.report.step_pages import StepPages
from mooring.report.study_page import render_check
from mooring.report.summary import summarise
from mooring.tables.schema import Column, Label
from tests import commands
from tests.protocol.conftest import SmallStudy
from tests.protocol.sums.support import make_sum_study
from tests.raising import raising
from tests.report.test_one_decision import check_page
from tests.sites import numeric_study
from tests.study_settings import make_study

NAMES = ("north", "south")
AT = "memory://mooring-participant"


def written(path: Path, rng: np.random.Generator, rows: int) -> Path:
    values = rng.uniform(-1, 1, (rows, 3))
    lines = [",".join([*(f"{value:.6f}" for value in row), f"{10 * row[0]:.6f}"]) for row in values]
    path.write_text("\n".join(["a,b,c,y", *lines]))
    return path


def test_a_result_is_fetched_from_an_address_for_as_long_as_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rng = np.random.default_rng(0)
    vaults = {name: Participant.join(tmp_path / name) for name in NAMES}
    analysts = Participant.join(tmp_path / "analyst")
    study = make_study(
        "trial",
        "0" * 32,
        columns=tuple(Column(name, "number", -1, 1) for name in "abc"),
        label=Label("y", "number", low=-50, high=50),
        method="aa-i-gdp-anchor-noise",
        n_components=3,
        n_anchor_rows=12,
        anchor_noise_scale=0.01,
    ).with_members(
        [make_member(name, vault) for name, vault in vaults.items()], Member("analyst", analysts.signing_key.public)
    )
    people = {name: Participant(study, vault) for name, vault in vaults.items()}
    people["north"].take("deal", output=tmp_path / "trial.anchor")
    (tmp_path / "inbox").mkdir()
    for name, person in people.items():
        table = written(tmp_path / f"{name}.csv", rng, 30)
        output = tmp_path / "inbox" / f"{name}.bundle"
        with raising(InputError, "anchor"):
            person.share(table, output=output, labels=True)
        with raising(InputError, "consent for labels"):
            person.share(table, anchor=tmp_path / "trial.anchor", output=output)
        person.share(table, anchor=tmp_path / "trial.anchor", output=output, labels=True)
        frame = pd.read_csv(table).set_index("b", drop=False)  # the ledger knows the rows again
        assert person.share(frame, anchor=tmp_path / "trial.anchor", output=output, labels=True).reissued
    analyst = Analyst(study, tmp_path / "work", analysts.signing_key)
    analyst.gather(analyst.collect(f"local://{tmp_path}/inbox").bundles, certify=False)
    analyst.deliver(tmp_path / "maps")
    with raising(InputError, "result"):
        people["south"].predict(tmp_path / "south.csv", result=tmp_path / "maps" / "south")
    analyst.train("linear")
    fresh = written(tmp_path / "new.csv", rng, 10)
    try:
        for workspace in (tmp_path / "results", AT):
            analyst.deliver(workspace)
        south = people["south"]
        here = south.predict(fresh, result=tmp_path / "results" / "south")
        assert here.score is not None
        shared = south.predict(tmp_path / "south.csv", result=tmp_path / "results" / "south")
        assert (here.n_shared, shared.n_shared) == (0, 30)
        assert np.ptp(here.values) > 1
        for address in (f"{AT}/south", f"file://{tmp_path}/results/south", str(tmp_path / "results" / "south")):
            assert np.array_equal(south.predict(fresh, result=address).values, here.values)
        with raising(StorageError, "the result", reason="/nobody/map.safetensors cannot be fetched"):
            south.predict(fresh, result=f"{AT}/nobody")
        with raising(InputError, "address", got="presigned address of one file"):
            south.predict(fresh, result="https://store.example/results/south")
        assert not list(tmp_path.glob("mooring-result-*"))
    finally:
        fsspec.filesystem("memory").rm("/mooring-participant", recursive=True)


def test_a_check_decides_while_it_holds_the_lock_of_the_vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = make_sum_study(tmp_path, p=3, epsilon=None, least_rows=50, upload_limits=("epsilon at most 1",))
    is_held: list[bool] = []
    conclude = inspection.conclude

    def watch(study: Study, kept: Inspection) -> Inspection:
        try:
            with hold_lock(given.vaults[0].folder / "lock", what="the vault"):
                is_held.append(False)
        except LockHeldError:
            is_held.append(True)
        return conclude(study, kept)

    monkeypatch.setattr(inspection, "conclude", watch)
    kept = Participant(given.study, given.vaults[0]).check(given.table(0, 60))
    assert is_held == [True]
    summary = read_check(given.vaults[0], given.study)
    assert summary is not None
    assert summary.exceeded_by_rows == {kept.rows_digest: kept.exceeded}
    noise_on_rows = (kept.data_noise_scale, kept.anchor_noise_scale, kept.rms, kept.level)
    assert noise_on_rows == (0.0, 0.0, None, None)  # sums have none


class NotedError(Exception):
    """What was looked for is known."""


def test_a_check_draws_with_the_same_seed_unless_another_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, seeds = make_sum_study(tmp_path, p=3), list[int]()
    table = given.table(0)

    def note(*_: Any, seed: int, **__: Any) -> None:
        seeds.append(seed)
        raise NotedError

    monkeypatch.setattr(inspection, "inspect", note)
    given.study.write(tmp_path / "study.toml")
    workspace = replace(Workspace.at(tmp_path, StepPages()), opened=given.vaults[0])
    for call in (
        lambda: Participant(given.study, given.vaults[0]).check(table),
        lambda: check(workspace, data=table),
        lambda: check(workspace, data=table, seed=5),
    ):
        with pytest.raises(NotedError):
            call()
    assert seeds == [0, 0, 5]


def test_rows_that_are_not_shown_to_keep_to_limits_are_shared_by_an_override_only(
    small_study: SmallStudy, tmp_path: Path
) -> None:
    output, why = tmp_path / "p0.bundle", "Dr. Ash: the ethics board agreed"
    with raising(RefusedError, "the upload", reason="were not checked"):
        small_study.another(upload_limits=("error at least 0.5",)).share(output=output)
    given = make_sum_study(tmp_path, p=3, epsilon=None, least_rows=50, upload_limits=("epsilon at most 1",))
    participant, table, other = Participant(given.study, given.vaults[0]), given.table(0, 60), given.table(1, 61)
    records = participant.vault.study_folder(given.study.folder_name)
    given.study.write(tmp_path / "study.toml")
    agreed = ("--study", tmp_path / "study.toml", "--vault", given.vaults[0].folder)
    assert "rows_digest" not in commands.run("check", table, *agreed, "--format", "json", code=REFUSED).stdout
    before = (records / "check.json").read_bytes()
    with raising(InputError, "--override"):
        participant.share(table, output=output, override="because")
    with raising(RefusedError, "the upload", reason="were not checked"):
        participant.share(other, output=output, override=why)  # nobody overrides what was not looked at
    assert (records / "check.json").read_bytes() == before
    assert why not in str(summarise(given.study, collect_records(records)).summary.as_dict())
    commands.run("share", table, *agreed, "--output", output, code=REFUSED, what="the upload")
    assert not output.exists()
    printed = commands.run("share", table, *agreed, "--output", output, "--override", why, "--format", "json").stdout
    assert "rows_digest" not in printed
    shared = participant.share(table, output=output)
    assert (shared.reissued, shared.override, shared.exceeded) == (True, why, given.study.upload_limits)
    participant.check(other)
    summary = str(summarise(given.study, collect_records(records)).summary.as_dict())
    assert why in summary
    assert "epsilon at most 1" in summary
    assert shared.rows_digest not in summary
    assert "not of these rows" in participant.recall_check()


def test_labels_are_not_shown_to_the_analyst_unless_their_owner_says_so(small_study: SmallStudy) -> None:
    small_study.study.write(small_study.folder / "study.toml")
    workspace = replace(Workspace.at(small_study.folder, StepPages()), opened=small_study.vaults[1])
    with raising(InputError, "consent for labels"):
        share(workspace, data=small_study.table(1))
    with raising(InputError, "consent for labels"):
        small_study.share(output=small_study.folder / "b", consent=Consent(command="mooring share"))
    shared = share(workspace, data=small_study.table(1), labels=True)
    assert shared.record["bundle"] == "hospital-1.bundle"
    assert "rows_digest" not in shared.record


@pytest.mark.parametrize("tables", [(0, 0), (0, 1, 0), (1, 0)])
def test_neither_another_seed_nor_another_table_undoes_a_check(
    tables: tuple[int, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = make_sum_study(folder, p=3, epsilon=None, least_rows=50, upload_limits=("epsilon at most 1",))
    participant, output = Participant(given.study, given.vaults[0]), folder / "p0.bundle"
    for seed, i in enumerate(tables):
        check = participant.check(table := given.table(i, 60), seed=seed)
        monkeypatch.setattr(inspection, "list_exceeded", lambda *_: ())
    if tables[0]:  # other rows: their check is not held against these, which need no override
        assert participant.share(table, output=output, override="Dr. Ash: to be safe").override == ""
        return
    assert (check.exceeded, check.decision.answer) == (given.study.upload_limits, "do not share")
    with raising(RefusedError, "the upload", reason="was not shown"):
        participant.share(table, output=output)


@pytest.mark.parametrize("kind", ["rotation", "sums"])
def test_a_notebook_leads_with_the_decision_and_the_sentences_of_the_page(
    kind: str, small_study: SmallStudy, folder: Path
) -> None:
    given: Any = small_study if kind == "rotation" else make_sum_study(folder / "sums", p=3, epsilon=8.0)
    check = Participant(given.study, given.vaults[1]).check(given.table(1))
    summary = summarise(given.study, StudyRecords(check=check)).summary
    page, shown = unescape(render_check(given.study, check)), unescape(check._repr_html_())
    decision = summary.decision
    assert check.decision == decision
    kept = read_check(given.vaults[1], given.study)
    assert kept is not None
    assert kept.is_warning == (decision.answer == "do not share")
    assert shown.startswith(f"<p><b>{decision.words}</b></p>")
    assert page.count(f"</span> {decision.answer.capitalize()}.</p>") == 1
    check_page(render_check(given.study, check), decision)
    for words in (decision.question, *decision.sentences, summary.leakage[0], summary.joining[0].words):
        assert words in page
        assert words in shown
    for words in summary.leakage:
        assert page.count(words) <= 1
    assert not re.findall(r"[\w)]\.[A-Z][a-z]+ [a-z]", re.sub("<[^>]*>", " ", page))  # a space between sentences


DAMAGE: list[Any] = [
    *({"exceeded_by_rows": wrong} for wrong in (None, 0, "", {}, [1], {"a": 1}, {"a": []})),
    *({"advice": None}, {"is_warning": 1}, {"command": None}, {"rows_digest": ""}),
    *(b"{}", b"[1]", b"[" * 100_000, b"\xff\xfe"),
]


def test_a_damaged_record_of_a_check_opens_no_gate_and_breaks_no_step(folder: Path) -> None:
    given = make_sum_study(folder, p=3, epsilon=None, least_rows=50, upload_limits=("membership at most 100 %",))
    participant, table = Participant(given.study, given.vaults[0]), given.table(0, 60)
    given.study.write(folder / "study.toml")
    workspace = replace(Workspace.at(folder, StepPages()), opened=participant.vault)
    participant.check(table)
    assert advise_sharing(workspace) is not None
    record = participant.vault.study_path(given.study.folder_name) / "checked.json"
    whole = json.loads(record.read_bytes())
    for damage in DAMAGE:
        record.write_bytes(damage if isinstance(damage, bytes) else json.dumps(whole | damage).encode())
        with raising(RefusedError, "the upload", reason="were not checked"):
            participant.share(table, output=folder / "p0.bundle", override="Dr. Ash: all the same")
        assert "not of these rows" in participant.recall_check()
        assert advise_sharing(workspace) is None
    assert participant.check(table).exceeded == ()
    for command, asked in (("", "(from Python)"), ("mooring check rows.csv", "(mooring check rows.csv)")):
        record.write_bytes(json.dumps(whole | {"command": command}).encode())
        advice = advise_sharing(workspace)
        assert advice is not None
        assert asked in advice[0]
    assert share(workspace, data=table).record["checked"] == participant.recall_check()


def test_a_threshold_decides_between_two_classes_with_probabilities() -> None:
    shares = np.array([[0.9, 0.1], [0.7, 0.3]])
    predicted = np.array([0, 1]), shares
    assert Scoring(0.05).apply_threshold(predicted)[0].tolist() == [1, 1]
    assert Scoring(0.5).apply_threshold(predicted)[0].tolist() == [0, 0]
    three = np.array([0, 1]), np.full((2, 3), 1 / 3)
    for other in (three, (np.array([0, 1]), None)):
        assert Scoring(0.5).apply_threshold(other) is other
    assert Scoring().apply_threshold(predicted) is predicted
    with raising(InputError, "threshold", got="1"):
        Scoring(1.0)


def test_a_record_of_predictions_has_scores_where_labels_were_known() -> None:
    values, score = np.array(["a", "b", "b"]), Score("balanced accuracy", 0.8, 0.7, 0.9, 3)
    gain = Gain("balanced accuracy", 0.1, 0.0, 0.2, 3)
    empty = Predictions(values, ("a", "b"), None, None, None).record
    assert (empty.n_rows, empty.score, empty.local_only, empty.gain, empty.n_shared) == (3, None, None, None, 0)
    assert Predictions(values, ("a", "b"), None, score, None).record == replace(empty, score=score)
    whole = Predictions(values, ("a", "b"), None, None, score, gain).record
    assert whole == replace(empty, local_only=score, gain=gain)
    assert PredictionRecord.from_json(whole.to_json()) == whole
    further = ("only_class", "n_classes", "n_unread", "n_scored")  # which earlier versions did not record
    before = {key: value for key, value in json.loads(whole.to_json()).items() if key not in further}
    assert PredictionRecord.from_json(json.dumps(before)) == replace(whole, only_class="", n_classes=0)
    assert (empty.n_unread, empty.n_scored) == (0, 0)
    trained_on = Predictions(values, ("a", "b"), None, score, score, gain, n_shared=2)
    assert trained_on.state_findings()[-1].startswith("2 ")
    assert gain.sentence() not in trained_on.state_findings()
    assert "<p><b>3 predictions.</b></p>" in Predictions(values, ("a", "b"), None, None, None)._repr_html_()


def test_predictions_without_labels_do_not_replace_a_score_that_was_kept(tmp_path: Path) -> None:
    given = make_sum_study(tmp_path, p=3, epsilon=2.0)
    participant = Participant(given.study, given.vaults[0])
    bare = Predictions(np.array(["a", "b", "b"]), ("a", "b"), None, None, None)
    score, release = Score("balanced accuracy", 0.8, 0.7, 0.9, 3), Release(0.1, "board: why")
    assert participant.keep_predictions(bare, command="first") == replace(bare.record, command="first")
    scored = participant.keep_predictions(replace(bare, score=score), command="second")
    assert scored == replace(bare.record, score=score, command="second")
    assert participant.keep_predictions(replace(bare, release=release), command="third") == replace(
        scored, release=release
    )


def test_what_was_shared_is_told_with_what_it_spends(tmp_path: Path) -> None:
    noisy = make_sum_study(tmp_path, p=3, epsilon=2.0, least_rows=200).study
    plain = replace(noisy, mechanism=replace(noisy.mechanism, epsilon=None))  # type: ignore[type-var]
    shared = ShareResult(1, "", False, epsilon=2.0)
    spent = [replace(shared, spent=1.5).epsilon_in_all, replace(shared, epsilon=None, spent=1.5).epsilon_in_all]
    assert [shared.epsilon_in_all, *spent] == [2.0, 3.5, None]
    assert "0123abcd" not in repr(replace(shared, rows_digest="0123abcd"))
    assert "1 row," in exchange_of(plain).describe_share(plain, shared)[0]
    words, more = (exchange_of(noisy).describe_share(noisy, replace(shared, spent=spent))[0] for spent in (0.0, 1.5))
    assert "epsilon = 2, delta = 1e-05 a row" in words  # and no number of rows
    assert words == exchange_of(noisy).describe_share(noisy, replace(shared, n_rows=2))[0]
    assert more.removeprefix(words).count("3.5") == 1
    assert (
        exchange_of(numeric_study()).describe_share(numeric_study(), ShareResult(2, "", False))[0].startswith("2 rows,")
    )
    number = replace(noisy, label=Label("y", "number", low=-3, high=5))
    assert scale_labels(number, np.array([-3 - 1e-7, -3, 0, 1, 5, 5 + 1e-7])).tolist() == [-1, -1, -0.25, 0, 1, 1]
