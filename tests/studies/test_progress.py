"""The progress of a long study gives a sign of life, also while one step takes long."""

import threading
from contextlib import nullcontext
from typing import Any

import pytest
from mooring_studies.cli.progress import StudyProgress
from mooring_studies.storage.progress import StageClock


def test_seconds_of_a_stage_that_comes_again_are_summed() -> None:
    ticks = iter([0.0, 10.0, 11.0, 15.0, 17.0])
    clock = StageClock(now=lambda: next(ticks))
    for name in ("a", "b", "a", ""):
        clock.stage(name, 2)
        clock.advance(5)
        assert clock.done == 2  # no more than there are
    assert clock.seconds() == {"a": 14.0, "b": 1.0}


@pytest.mark.parametrize("problem", [None, KeyboardInterrupt, RuntimeError])
def test_no_thread_is_left_behind(problem: type[BaseException] | None) -> None:
    before = threading.active_count()
    expected: Any = pytest.raises(problem) if problem else nullcontext()
    with expected, StudyProgress(StageClock()) as progress:
        progress.stage("training", 1)
        if problem:
            raise problem
    assert threading.active_count() == before
