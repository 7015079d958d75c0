import copy
import pickle

import pytest

from mooring import InputError, MissingExtraError, MooringError, StorageError
from mooring.errors import UnforeseenError, explain_error


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
