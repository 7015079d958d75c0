import copy
import pickle

import pytest

from mooring import InputError, MissingExtraError, MooringError


@pytest.fixture
def error() -> InputError:
    return InputError("n_components", expected="at least 1", got="0", cure="Ask for one component or more.")


def test_an_input_error_says_what_expected_got_and_cure_and_keeps_them(error: InputError) -> None:
    assert str(error) == "n_components must be at least 1, got 0 instead. Ask for one component or more."
    assert (error.what, error.expected, error.got) == ("n_components", "at least 1", "0")
    assert error.cure == "Ask for one component or more."
    assert isinstance(error, ValueError)
    assert isinstance(error, MooringError)
    assert str(pickle.loads(pickle.dumps(error))) == str(copy.copy(error)) == str(error)  # from a worker process


def test_a_missing_extra_says_what_to_install() -> None:
    error = MissingExtraError(needed_for="This attack", package="python-flint", extra="lattice")
    assert isinstance(error, ImportError)
    assert isinstance(error, MooringError)
    assert str(error) == (
        "This attack needs python-flint, which is not installed. Install it with: pip install 'mooring[lattice]'"
    )
