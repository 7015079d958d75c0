"""The list of steps: what it says of commands, files and questions is so."""

import inspect
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from mooring.cli.app import app
from mooring.errors import InputError
from mooring.protocol.analyst.steps import train
from mooring.protocol.step import Choice, Question, Step
from mooring.protocol.steps import list_steps
from mooring.protocol.workspace import Workspace
from mooring.report.step_pages import StepPages
from tests.raising import raising

STEPS = {f"{name}: {step.name}": step for name, steps in list_steps().items() for step in steps}


def command_of(step: Step) -> Any:
    command: Any = typer.main.get_command(app)
    for word in step.command.split():
        command = command if word.startswith("--") else command.commands[word]
    return command


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_every_question_is_an_option_of_the_command_and_a_parameter_of_the_function(step: Step) -> None:
    parameters = command_of(step).params
    options = {word for parameter in parameters for word in (*parameter.opts, *parameter.secondary_opts)}
    n_arguments = sum(parameter.param_type_name == "argument" for parameter in parameters)
    assert {word for word in step.command.split() if word.startswith("--")} <= options
    known = inspect.signature(step.run).parameters if step.run else {}
    for question in step.asks:
        flags = (
            [choice.flag for choice in question.choices if choice.flag] if isinstance(question.choices, tuple) else []
        )
        assert question.name in known
        assert (question.option in options) if question.option else (flags or n_arguments == 1)
        assert set(flags) <= options


@pytest.mark.parametrize("step", [step for step in STEPS.values() if step.run], ids=lambda step: step.name)
def test_what_a_command_demands_is_asked(step: Step) -> None:
    asked = {question.option for question in step.asks}
    for parameter in command_of(step).params:
        if parameter.required:
            assert asked & {*parameter.opts, ""}


@pytest.mark.definitions
@pytest.mark.parametrize("step", [step for step in STEPS.values() if step.run], ids=lambda step: step.name)
def test_an_answer_may_be_left_out_where_the_function_has_a_default(step: Step) -> None:
    parameters = inspect.signature(step.run).parameters if step.run else {}
    for question in step.asks:
        has_default = parameters[question.name].default is not inspect.Parameter.empty
        assert has_default or not question.is_optional
        if not question.default and question.kind != "choice":  # one of which is chosen before anybody looks
            assert question.is_optional == has_default, question.name
        assert question.is_optional or not question.is_rare


@pytest.mark.parametrize("name", list_steps())
def test_a_step_comes_after_those_that_make_what_it_needs(name: str) -> None:
    steps = list_steps()[name]
    assert len({step.name for step in steps}) == len(steps)
    made = [(item.files, k) for k, step in enumerate(steps) for item in step.makes if item.files]
    for k, step in enumerate(steps):
        makers = [[maker for files, maker in made if files == item.files] for item in step.needs]
        assert all(min(maker) < k for maker in makers if maker), step.name


@pytest.mark.definitions
@pytest.mark.parametrize("name", list_steps())
def test_a_run_takes_what_a_study_needs_besides_its_draft_and_a_person_the_rest(name: str) -> None:
    for step in list_steps()[name]:
        assert step.is_optional == (step.awaits is None and step.name != "init"), step.name


@pytest.mark.definitions
def test_results_and_receipts_alone_have_later_versions() -> None:
    replaced = {sent.file for step in STEPS.values() for sent in step.sends if sent.grows}
    results = {f"results/RECIPIENT/{file}.safetensors" for file in ("model", "map")}
    assert replaced == {*results, "NAME.receipt"}


@pytest.mark.definitions
@pytest.mark.parametrize(
    ("step", "shown"),
    [
        ("join", ["name", "role", "passphrase"]),
        (
            "match",
            ["data", "ignore", "rename", "word", "other", "missing_word", "decimal", "date_format", "show_values"],
        ),
        ("share", ["data", "ignore", "anchor", "labels"]),
        ("align", ["bundles", "mode"]),
        ("train", ["learner"]),
        ("deliver", ["output", "override"]),
        ("predict", ["data", "result", "beside", "force", "ignore"]),
        ("report", ["force"]),
    ],
)
def test_a_page_folds_away_what_few_people_need(step: str, shown: list[str]) -> None:
    assert [question.name for question in STEPS[f"rotation: {step}"].asks if not question.is_rare] == shown


NAMES = st.text(st.characters(min_codepoint=33, exclude_characters=","), min_size=1).map(str.strip).filter(bool)


@given(columns=st.lists(NAMES, max_size=4), number=st.floats(0, 1e6), reason=NAMES, chosen=st.sampled_from(["a", "b"]))
def test_a_spelled_command_holds_the_answers(
    columns: list[str], number: float, reason: str, chosen: str, workspace: Workspace
) -> None:
    step = Step(
        "x",
        "everybody",
        "X",
        "Do x.",
        "x y",
        "",
        asks=(
            Question("columns", "Columns", "many", "--column", is_optional=True),
            Question("number", "Number", "number", "--number"),
            Question("reason", "Reason", option="--reason"),
            Question("chosen", "Chosen", "choice", choices=(Choice("a"), Choice("b", flag="--b"))),
            Question("secret", "Secret", "password", "--secret"),
            Question("folder", "Folder", "usual", "--folder", default="inbox"),
        ),
    )
    form = {"columns": [", ".join(columns)], "number": [str(number)], "reason": [reason], "chosen": [chosen]}
    answers = step.read(form | {"secret": ["hush-hush"]}, workspace)
    words = shlex.split(step.spell(answers, workspace))
    assert "hush-hush" not in words
    assert words[:3] == ["mooring", "x", "y"]
    assert [value for word, value in pairwise(words) if word == "--column"] == columns
    assert float(words[words.index("--number") + 1]) == number
    assert words[words.index("--reason") + 1] == reason
    assert ("--b" in words) == (chosen == "b")
    assert words[words.index("--folder") + 1] == "inbox"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = tmp_path_factory.mktemp("place")
    (root / "rows.csv").write_text("a\n")
    (root.parent / "outside.csv").write_text("a\n")
    return Workspace.at(root, StepPages())


def test_answers_are_checked_before_a_step_runs(workspace: Workspace) -> None:
    table = Question("data", "Your table", "choice", endings=(".csv",))
    assert table.read(["rows.csv"], workspace) == workspace.root / "rows.csv"
    for wrong in (["../outside.csv"], [], [""], ["rows.csv", "rows.csv"]):
        with raising(InputError, "Your table"):
            table.read(wrong, workspace)
    with raising(InputError, "Noise", got="text"):
        Question("noise", "Noise", "number").read(["much"], workspace)
    for pair in (["horse", "house"], ["horse", ""]):
        with raising(InputError, "Passphrase"):
            Question("passphrase", "Passphrase", "password", is_optional=True).read(pair, workspace)


def test_a_folder_shows_paths_as_somebody_in_it_writes_them(workspace: Workspace) -> None:
    assert workspace.show(workspace.root / "inbox" / "a.bundle") == str(Path("inbox") / "a.bundle")
    assert workspace.show(workspace.root.parent / "outside.csv") == str(workspace.root.parent / "outside.csv")
    assert workspace.show("s3://ward/inbox") == "s3://ward/inbox"


@pytest.mark.parametrize("seed", [-1, 0.5, float("nan")])
def test_a_random_seed_is_a_whole_number(seed: float, tmp_path: Path) -> None:
    with raising(InputError, "seed"):
        train(Workspace.at(tmp_path, StepPages()), seed=seed)
