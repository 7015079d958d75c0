"""A model at work in a process of its own; other tests have models in theirs."""

import io
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from onnx import numpy_helper

from mooring.errors import RefusedError, StorageError
from mooring.learners import train_learner
from mooring.learners.onnx_export import to_onnx
from mooring.protocol.messages import model_process
from mooring.protocol.messages.model import Model
from tests.conftest import ModelHere
from tests.protocol.messages.test_model import H, check, good, rows_and_labels, wide
from tests.raising import raising


def test_a_process_gives_what_the_runtime_gives_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever libraries print there."""
    loads = "import os; from mooring.protocol.messages import model_process as m; load = m._load\n"
    prints = "m._load = lambda *given: (os.write(1, b'a warning'), load(*given))[1]; m.serve()"
    monkeypatch.setattr(model_process, "_START", loads + prints)
    rows, data = rows_and_labels("classes")[0].astype(np.float32), good().SerializeToString()
    for mine, theirs in zip(
        *(kind(data, work=1, threads=2).predict(rows) for kind in (ModelHere, model_process.ModelProcess)), strict=True
    ):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


def test_no_bit_flip_gets_further_than_wrong_numbers() -> None:
    data = good().SerializeToString()
    rows = np.zeros((2, H))
    n_admitted = 0
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 8)
        try:
            check(bytes(flipped))
            n_admitted += 1
            if n_admitted % 40:  # each takes a process
                continue
            found = Model.load(bytes(flipped), n_components=H, kind="classes", n_classes=3).predict(rows)
        except RefusedError:
            continue
        assert found.shape == (2,)
        assert set(found) <= {0, 1, 2}


def test_classes_out_of_range_and_look_ups_beyond_the_end_are_refused() -> None:
    rows, labels = rows_and_labels("classes")
    data = to_onnx(train_learner("svm", rows, labels + 1, kind="classes", seed=0))
    with raising(RefusedError, "the model", reason="classes that the study does not have"):
        Model.load(data, n_components=H, kind="classes", n_classes=3).predict(rows)
    model = good()
    model.graph.initializer[-1].CopyFrom(numpy_helper.from_array(np.array([0]), model.graph.initializer[-1].name))
    short = Model.load(model.SerializeToString(), n_components=H, kind="classes", n_classes=3)
    with raising(RefusedError, "the model", reason="fails when it is used"):
        short.predict(rows)


@pytest.mark.posix
def test_a_model_that_takes_longer_than_its_multiplications_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with numbers too small for the fast way; here, what a multiplication may take is set too low instead."""
    import resource

    monkeypatch.setattr(model_process, "_FIRST_SECONDS", 1.0)
    monkeypatch.setattr(model_process, "_BLOCK_SECONDS", 0.0)
    monkeypatch.setattr(model_process, "_SLOWEST", 1e15)
    model = Model.load(wide(2**17), n_components=16, kind="number")
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    with raising(RefusedError, "the model", reason="too long"):
        model.predict(np.ones((128 * 400, 16)))
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime < 10
    with raising(RefusedError, "the model", reason="too long"):  # and stays so
        model.predict(np.ones((1, 16)))


@pytest.mark.posix
def test_the_process_of_a_model_ends_with_the_model_and_with_its_parent() -> None:
    model = Model.load(wide(8), n_components=16, kind="number")
    process = model._process._process
    assert model.predict(np.ones((300, 16))).tolist() == [16.0 * 8] * 300
    del model
    assert process.poll() is not None
    script = (
        "import os, sys; from mooring.protocol.messages.model import Model\n"
        "model = Model.load(sys.stdin.buffer.read(), n_components=16, kind='number')\n"
        "print(model._process._process.pid, flush=True); os.kill(os.getpid(), 9)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], input=wide(8), stdout=subprocess.PIPE, check=False)
    child, until = int(found.stdout), time.monotonic() + 20
    while is_running(child) and time.monotonic() < until:
        time.sleep(0.1)
    assert not is_running(child)


def test_a_process_that_cannot_be_started_is_a_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with raising(StorageError, "the process of the model", reason="temporarily unavailable"):
        Model.load(wide(8), n_components=16, kind="number")


def test_a_model_has_a_minute_and_twenty_times_its_processor_time() -> None:
    process = SimpleNamespace(kill=mock.Mock(), stdin=io.BytesIO(), stdout=io.BytesIO())
    model: Any = SimpleNamespace(_seconds=7.0, _process=process, _end=mock.Mock())
    with mock.patch("threading.Timer") as timer, raising(RefusedError, "the model", reason="too long"):
        model_process.ModelProcess._ask_alone(model, [b""])
    timer.assert_called_once_with(60.0 + 20.0 * 7.0, process.kill)
    assert timer.return_value.daemon is True
    timer.return_value.cancel.assert_called_once()
    model._end.assert_called_once()


def test_threads_that_share_a_model_each_get_their_own_rows() -> None:
    model = Model.load(wide(8), n_components=16, kind="number")
    blocks = [np.full((60 + k, 16), float(k)) for k in range(24)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(model.predict, blocks))
    for k, values in enumerate(found):
        assert values.tolist() == [128.0 * k] * (60 + k)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"
