"""A member's folder: who its owner is, which files it has, and when it is read again."""

import os
import pkgutil
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from mooring import protocol
from mooring.errors import InputError, StorageError
from mooring.protocol.common_steps import COMMON, STUDY, _has_records, _is_fitted
from mooring.protocol.messages.card import Member
from mooring.protocol.participant.membership import issue_card, make_member
from mooring.protocol.step import Addition, Awaited, Choice, Item, Question, Sent, Step
from mooring.protocol.steps import arrange_steps, explain_command, find_step, list_commands, list_steps
from mooring.protocol.storage.vault import Vault
from mooring.protocol.workspace import Identity, Workspace, has_file, has_label, has_record
from mooring.report.step_pages import StepPages
from tests.protocol.sums.support import make_sum_study, with_helpers
from tests.raising import raising
from tests.sites import numeric_study, vaulted_study


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.at(tmp_path, StepPages())


def test_the_owner_of_a_folder_is_known_by_the_roster_or_else_by_its_own_card(
    workspace: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert workspace.identify() == Identity()
    vault = Vault.create(workspace.vault_folder)
    assert workspace.identify() == Identity()
    other = Vault.create(tmp_path_factory.mktemp("other") / "vault")
    issue_card(other, workspace.root / "another.card.toml", name="another", role="analyst")
    (workspace.root / "broken.card.toml").write_text("format = 1\n")
    assert workspace.identify() == Identity()
    issue_card(vault, workspace.root / "north.card.toml", name="north", role="analyst")
    assert workspace.identify() == Identity("analyst", "north")
    study = vaulted_study({"a": vault, "b": other}, Vault.create(tmp_path_factory.mktemp("lab") / "vault"), 2, 8)
    study.write(workspace.study_file)
    assert workspace.identify() == Identity("participant", "a", is_enrolled=True)
    member = make_member("b", other)
    draft = replace(study, participants=(), analyst=None)
    draft.with_members([member], Member("lab", vault.signing_key.public)).write(workspace.study_file)
    assert workspace.identify() == Identity("analyst", "lab", is_enrolled=True)
    draft.write(workspace.study_file)
    assert workspace.identify() == Identity("analyst", "north")  # by its card, as before


def test_a_helper_of_the_roster_is_known_as_one(tmp_path: Path) -> None:
    given, vaults = with_helpers(make_sum_study(tmp_path, 4, least_rows=40), 2)
    workspace = Workspace.at(tmp_path, StepPages())
    given.study.write(workspace.study_file)
    workspace.opened = vaults[0]
    workspace.vault_folder = vaults[0].folder
    assert workspace.identify() == Identity("helper", given.study.helpers[0].name, is_enrolled=True)


def test_a_locked_vault_says_nobody_until_its_passphrase_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.protocol.storage.vault.is_encrypted", lambda _: True)
    asked: list[Path] = []

    def ask(folder: Path) -> str:
        asked.append(folder)
        return "horse"

    workspace = replace(Workspace.at(tmp_path, StepPages()), ask_passphrase=ask)
    with monkeypatch.context() as patch:
        patch.setattr("mooring.protocol.storage.vault.is_encrypted", lambda _: False)
        vault = Vault.create(workspace.vault_folder)
    issue_card(vault, tmp_path / "north.card.toml", name="north")
    assert workspace.is_locked
    assert (workspace.identify(), asked) == (Identity(), [])
    assert workspace.vault == vault
    assert not workspace.is_locked
    assert workspace.identify() == Identity("participant", "north")
    assert asked == [workspace.vault_folder]


@pytest.mark.posix
def test_hidden_files_links_and_folders_are_no_files_of_a_folder(workspace: Workspace) -> None:
    root = workspace.root
    for name in ("b.csv", "a.csv", ".hidden.csv", "c.txt"):
        (root / name).write_text("x")
    (root / "folder.csv").mkdir()
    (root / "link.csv").symlink_to(root / "a.csv")
    (root / "inside").mkdir()
    (root / "inside" / "d.csv").write_text("x")
    (root / "elsewhere").symlink_to(root / "inside", target_is_directory=True)
    assert workspace.list_files((".csv",)) == ["a.csv", "b.csv"]
    assert workspace.list_files((".csv", ".txt")) == ["a.csv", "b.csv", "c.txt"]
    assert workspace.list_files((".csv",), folder="inside") == ["d.csv"]
    for folder in ("elsewhere", "none", "a.csv"):
        assert workspace.list_files((".csv",), folder=folder) == []
    found = [has_file(workspace, each) for each in ("a.csv", "?.csv", "inside/d.csv", "inside/*.csv", "c.*")]
    assert all(found)
    for missing in ("link.csv", ".hidden.csv", "folder.csv", "elsewhere/d.csv", "none/a.csv", "inside/a.csv"):
        assert not has_file(workspace, missing)


def test_a_folder_is_shown_by_its_paths_alone(workspace: Workspace) -> None:
    """Not by its vault, its study, or functions and engines, whose addresses tell nobody anything."""
    workspace.engine = object()
    workspace.opened = Vault.create(workspace.vault_folder)
    numeric_study().write(workspace.study_file)
    shown = repr(workspace.as_it_is())
    assert str(workspace.study_file) in shown
    for hidden in ("0x", "Vault", "Study(", "StepPages", "Identity"):
        assert hidden not in shown


@pytest.mark.definitions
def test_private_fields_are_not_shown() -> None:
    modules = [import_module(name) for _, name, _ in pkgutil.walk_packages(protocol.__path__, "mooring.protocol.")]
    shown = {
        f"{kind.__qualname__}.{each.name}"
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and is_dataclass(kind)
        for each in fields(kind)
        if each.name.startswith("_") and each.repr
    }
    assert shown == set()


def test_patterns_name_the_study_the_member_and_its_records(workspace: Workspace, tmp_path: Path) -> None:
    vault = Vault.create(workspace.vault_folder)
    others = {name: Vault.create(tmp_path / name) for name in ("south", "lab")}
    study = vaulted_study({"north": vault, "south": others["south"]}, others["lab"], 2, 8)
    study.write(workspace.study_file)
    assert not has_file(workspace, "NAME.bundle")
    (workspace.root / "north.bundle").write_text("x")
    (workspace.root / "small.anchor").write_text("x")
    assert has_file(workspace, "NAME.bundle")
    assert has_file(workspace, "STUDY.anchor")
    assert workspace.records == vault.study_path(study.folder_name)
    is_checked = has_record("check")
    assert not is_checked(workspace)
    (vault.study_folder(study.folder_name) / "check.json").write_text("{}")
    assert is_checked(workspace)
    assert not has_record("share")(workspace)
    workspace.opened, workspace.vault_folder = others["lab"], others["lab"].folder
    assert workspace.records == workspace.analysis
    assert not is_checked(workspace)
    workspace.analysis.mkdir()
    (workspace.analysis / "check.json").write_text("{}")
    assert is_checked(workspace)
    assert has_label(workspace)
    numeric_study(kind="none").write(workspace.study_file)
    assert not has_label(workspace)
    assert not is_checked(workspace)  # of this study it is nobody


def test_a_study_is_read_again_once_its_file_is_another(workspace: Workspace) -> None:
    with raising(StorageError):
        _ = workspace.study
    assert not workspace.has_study
    numeric_study().write(workspace.study_file)
    first = workspace.study
    assert workspace.study is first
    facts = workspace.study_file.stat()
    os.utime(workspace.study_file, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    assert workspace.study is not first
    assert workspace.study == first


def test_an_item_is_there_if_all_its_files_are_or_as_it_says_itself(workspace: Workspace) -> None:
    item = Item("a thing", ("a", "b"))
    assert (item.described, Item("a state").described) == ("a thing (a, b)", "a state")
    (workspace.root / "a").write_text("x")
    assert not item.is_there(workspace)
    (workspace.root / "b").write_text("x")
    assert item.is_there(workspace)
    assert not replace(item, holds=lambda _: False).is_there(workspace)
    assert not STUDY.is_there(workspace)


@pytest.mark.parametrize(
    ("here", "enough", "ready", "missing", "suffices"),
    [
        ((), None, None, ["a", "b", "c"], False),
        (("a", "b"), None, None, ["c"], False),
        (("a", "b", "c"), None, None, [], True),
        (("b",), 2, None, ["a", "c"], False),
        (("a", "b"), 2, None, ["c"], True),
        (("a", "b", "c"), 2, ("a",), ["b", "c"], False),
        ((), 2, ("a", "c"), ["b"], True),
    ],
)
def test_of_several_files_as_many_suffice_as_a_step_says(
    here: tuple[str, ...],
    enough: int | None,
    ready: tuple[str, ...] | None,
    missing: list[str],
    suffices: bool,
    workspace: Workspace,
) -> None:
    for name in here:
        (workspace.root / f"{name}.x").write_text("x")
    awaited = Awaited(
        "NAME.x",
        lambda _: "abc",
        None if enough is None else lambda _: enough,
        None if ready is None else lambda _: ready,
    )
    assert awaited.list_missing(workspace) == (missing, suffices)


def asks(**changes: Any) -> Question:
    return Question(**({"name": "x", "label": "X", "option": "--x"} | changes))


@pytest.mark.parametrize(
    ("question", "answer", "words"),
    [
        (asks(kind="tick"), True, ["--x"]),
        (asks(kind="tick"), False, []),
        (asks(), None, []),
        (asks(kind="many"), (), []),
        (asks(kind="many"), ("a", "b c"), ["--x", "a", "--x", "b c"]),
        (asks(kind="many", option=""), ("a", "b"), ["a", "b"]),
        (asks(kind="number"), 3.0, ["--x", "3"]),
        (asks(kind="number"), 0.5, ["--x", "0.5"]),
        (asks(kind="password"), "hush", ["--x"]),
        (asks(kind="choice", choices=(Choice("a", flag="--a"), Choice("b"))), "a", ["--a"]),
        (asks(kind="choice", choices=(Choice("a", flag="--a"), Choice("b"))), "b", []),
        (asks(kind="choice", choices=(Choice("a"), Choice("b"))), "b", ["--x", "b"]),
    ],
)
def test_an_answer_is_spelled_as_the_command_takes_it(
    question: Question, answer: Any, words: list[str], workspace: Workspace
) -> None:
    assert question.spell(answer, workspace) == words


def test_answers_are_read_by_the_kind_of_question(workspace: Workspace) -> None:
    for name in ("a.csv", "b.csv"):
        (workspace.root / name).write_text("x")
    files = asks(kind="many", endings=(".csv",))
    chosen = asks(kind="many", choices=("a", "b"))
    read = [
        (files, ["a.csv", "b.csv"], (workspace.root / "a.csv", workspace.root / "b.csv")),
        (replace(chosen, choices=lambda _: ("a", "b")), ["b"], ("b",)),
        (asks(kind="many"), ["a, b", "c"], ("a", "b", "c")),
        (asks(kind="tick", is_optional=True), [], False),
        (asks(kind="tick"), ["on"], True),
        (asks(is_optional=True), [""], None),
        (asks(), ["text"], "text"),
        (asks(kind="number"), ["2.5"], 2.5),
        (asks(kind="usual", default="inbox"), [], workspace.root / "inbox"),
        (asks(kind="password"), ["hush", "hush"], "hush"),
    ]
    for question, texts, answer in read:
        assert question.read(texts, workspace) == answer
    for question, texts in ((asks(), []), (asks(), ["a", "b"]), (asks(kind="password"), ["a", "b"])):
        with raising(InputError, "X"):
            question.read(texts, workspace)
    assert [each.is_kept for each in (files, asks(kind="many"), chosen, asks())] == [True, True, False, False]
    assert [each.is_list for each in (files, chosen, asks(kind="many"))] == [True, True, False]


def test_a_label_names_fields_of_the_study_and_questions_are_asked_where_they_apply(workspace: Workspace) -> None:
    numeric_study().write(workspace.study_file)
    assert asks(label="Share {study.label.column}").word(workspace) == "Share y"
    step = Step("x", "everybody", "X", "X.", "x", "", asks=(asks(), asks(name="y", when=lambda _: False)))
    assert [question.name for question in step.list_questions(workspace)] == ["x"]
    assert step.spell({"x": "a b", "y": "c"}, workspace) == "mooring x --x 'a b' --x c"


def test_a_table_fits_the_study_as_it_is_now_or_was_checked_already(workspace: Workspace, tmp_path: Path) -> None:
    assert not _is_fitted(workspace)
    vault, lab = (Vault.create(tmp_path / name) for name in ("other", "lab"))
    own = Vault.create(workspace.vault_folder)
    study = vaulted_study({"north": own, "south": vault}, lab, 2, 8)
    assert not _is_fitted(workspace)
    study.write(workspace.study_file)
    assert not _is_fitted(workspace)
    workspace.fitted = numeric_study().schema
    assert not _is_fitted(workspace)  # of another study
    workspace.fitted = study.schema
    assert _is_fitted(workspace)
    workspace.fitted = None
    assert not _has_records(workspace)
    (own.study_folder(study.folder_name) / "share.json").write_text("{}")
    assert _is_fitted(workspace)
    assert _has_records(workspace)
    numeric_study().write(workspace.study_file)
    assert not _has_records(workspace)


def test_a_step_is_found_among_those_of_the_study_and_joining_without_one(workspace: Workspace) -> None:
    assert find_step(workspace, "join").name == "join"
    with raising(StorageError):
        find_step(workspace, "deal")  # which studies have it, only a study tells
    numeric_study().write(workspace.study_file)
    assert [find_step(workspace, name).name for name in ("join", "share", "deal")] == ["join", "share", "deal"]
    assert "anchor" in {question.name for question in find_step(workspace, "share").asks}  # as the mechanism adds to it
    for name in ("combine", "nothing"):
        with raising(InputError, "study", problem=repr(name)):
            find_step(workspace, name)


def test_a_command_is_explained_once_or_by_mechanism_where_they_differ() -> None:
    assert not explain_command("check").startswith("With")
    assert explain_command("nothing") == ""
    differing = explain_command("align")
    for name, steps in list_steps().items():
        (sentence,) = {step.explanation for step in steps if step.command == "align"}
        assert f"With {name}: {sentence[:1].lower()}{sentence[1:]}" in differing
    assert [differing.count(f"With {name}: ") for name in ("rotation", "secure-sum")] == [1, 1]
    commands = list(list_commands())
    assert len(set(commands)) == len(commands)
    assert {"join", "check", "share", "align", "deal", "combine"} <= {*commands}
    assert not any(word.startswith("-") for word in commands)


def test_a_step_of_a_mechanism_follows_the_one_that_it_names() -> None:
    def step(name: str, after: str = "") -> Step:
        return Step(name, "everybody", name, name, name, "", after=after)

    names = [each.name for each in COMMON]
    added = arrange_steps([step("x", "check"), step("y", "report"), step("z", "x")], [Addition("share", title="Give")])
    at = names.index("check") + 1
    assert [each.name for each in added] == [*names[:at], "x", "z", *names[at:], "y"]
    changed = [each for each in added if each not in COMMON]
    (given,) = (each for each in changed if each.name == "share")
    (share,) = (each for each in COMMON if each.name == "share")
    assert given == replace(share, title="Give")


def test_what_is_added_to_a_step_comes_after_its_own_and_replaces_its_texts() -> None:
    item, other = Item("a thing"), Item("another")
    own = Step(
        "x",
        "everybody",
        "X",
        "Do x.",
        "x",
        "",
        (item,),
        (item,),
        (Sent("a"),),
        (asks(),),
        (Awaited("a", lambda _: ()),),
    )
    assert Addition("x").extend(own) == own
    further = Addition("x", (other,), (other,), (Sent("b"),), (asks(name="y"),), (), explanation="Do more.")
    extended = further.extend(own)
    assert (extended.needs, extended.makes) == ((item, other), (item, other))
    assert ([sent.file for sent in extended.sends], [asked.name for asked in extended.asks]) == (["a", "b"], ["x", "y"])
    assert (extended.awaits, extended.title, extended.explanation) == ((), "X", "Do more.")
