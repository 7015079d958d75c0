import copy
import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest

from mooring import InputError, MissingExtraError, MooringError, StorageError
from mooring.errors import UnforeseenError, explain_error
from mooring.mechanisms.sums.answers.formula import parse_formula
from mooring.mechanisms.sums.features.columns import TableFeatures
from mooring.mechanisms.sums.general.impossible import find_combination, read_combination
from mooring.mechanisms.sums.general.workload import Survival, make_workload
from mooring.mechanisms.sums.settings import SumSettings
from mooring.protocol.messages.reason import require_reasoned
from mooring.protocol.registry import exchange_of
from mooring.protocol.sums.result import model_schema
from mooring.protocol.transport.addresses import make_printable, redact_address
from mooring.protocol.transport.presigned_upload import parse_period
from mooring.tables.schema import Column, Label, Schema
from tests.sites import numeric_study


@pytest.fixture
def error() -> InputError:
    return InputError("n_components", expected="at least 1", got="0", cure="Ask for one component or more.")


def test_an_input_error_says_what_expected_got_and_cure_and_keeps_them(error: InputError) -> None:
    assert str(error) == "n_components must be at least 1, got 0. Ask for one component or more."
    assert (error.what, error.expected, error.got) == ("n_components", "at least 1", "0")
    assert error.cure == "Ask for one component or more."
    assert isinstance(error, ValueError)
    assert isinstance(error, MooringError)
    assert str(pickle.loads(pickle.dumps(error))) == str(copy.copy(error)) == str(error)  # from a worker process


def test_an_input_error_may_state_its_problem_as_a_sentence() -> None:
    error = InputError("passphrase", problem="The two passphrases do not match.", cure="Type it again.")
    assert str(error) == "The two passphrases do not match. Type it again."
    assert (error.what, error.problem, error.cure) == (
        "passphrase",
        "The two passphrases do not match.",
        "Type it again.",
    )
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_missing_extra_says_what_to_install() -> None:
    error = MissingExtraError(needed_for="This model", package="xgboost-cpu", extra="xgboost")
    assert isinstance(error, ImportError)
    assert isinstance(error, MooringError)
    assert str(error) == (
        "This model needs xgboost-cpu, which is not installed. Install it with: pip install 'mooring[xgboost]'"
    )


def test_of_a_foreign_exception_its_kind_and_place_are_told_and_never_its_message(error: InputError) -> None:
    caught = []
    for problem in (KeyError("patient 17"), OSError(28, "No space left", "patient-17.csv"), MemoryError("17 bytes")):
        try:
            raise problem
        except Exception as raised:
            caught.append(explain_error(raised, is_out_of_memory=isinstance(raised, MemoryError)))
    assert [type(error) for error in caught] == [UnforeseenError, StorageError, InputError]
    assert "KeyError in test_errors.py" in str(caught[0])
    assert not any("17" in str(error).replace("line 17", "") for error in caught)
    assert explain_error(error) is error


COLUMNS = (Column("sex", "category", categories=("f", "m")), Column("age", "number", 0, 120))
SCHEMA = Schema(COLUMNS, Label("ill", "classes", ("no", "yes")))
WORKLOAD = make_workload(SCHEMA)
STUDY = numeric_study()
SUMS = replace(STUDY, mechanism=SumSettings(), participants=(), analyst=None)
LONG = "ж" * 1000


@pytest.mark.parametrize(
    ("n_quoted", "refused"),
    [
        (80, lambda: parse_formula(LONG, ["age"])), (60, lambda: parse_formula(f"age ~ {LONG}", ["age"])),
        (60, lambda: parse_formula(f"age ~ `{LONG}`", ["age"])), (60, lambda: read_combination(LONG)),
        (58, lambda: parse_formula(f"age ~ I({LONG})", ["age"])), (180, lambda: find_combination((), {LONG: "f", "": ""})),
        (119, lambda: find_combination((), {"": LONG, "b": ""})), (60, lambda: WORKLOAD.column(LONG)),
        (60, lambda: WORKLOAD.indicator("sex", LONG)),
        (60, lambda: make_workload(SCHEMA, survival=Survival(LONG, "sex", "f", (0, 1)))),
        (60, lambda: make_workload(SCHEMA, survival=Survival("age", "sex", LONG, (0, 1)))),
        (60, lambda: TableFeatures(SCHEMA, frozenset({LONG}))), (80, lambda: SumSettings(questions=(LONG,))),
        (60, lambda: exchange_of(STUDY).require_outcome(STUDY, LONG)), (79, lambda: require_reasoned("who", LONG)),
        (60, lambda: model_schema(SUMS, LONG)), (20, lambda: parse_period(LONG)),
    ],
)  # fmt: skip
def test_an_error_quotes_the_beginning_of_a_long_text(n_quoted: int, refused: Callable[[], object]) -> None:
    with pytest.raises(InputError) as caught:
        refused()
    assert str(caught.value).count("ж") == n_quoted


def test_text_for_display_is_cut_and_says_so() -> None:
    assert make_printable("q" * 80) == "q" * 80
    assert make_printable("q" * 81) == "q" * 79 + "…"
    assert redact_address("q" * 300) == "q" * 300
    assert redact_address("q" * 301) == "q" * 299 + "…"
