"""A model of somebody else's at work in a process of its own, with bounds on its time and memory.

What the checker admits is bounded in its multiplications, but not in their speed: numbers too small for a processor's fast
way take a hundred times as long. So the runtime is in a process that ends when it has used more processor time than its
multiplications can take, or more memory, or when its parent ends. Bytes go in and come out; nothing is pickled.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from mooring.errors import StorageError
from mooring.protocol.messages.model_reader import refuse

_START = "from mooring.protocol.messages.model_process import serve; serve()"
_FIRST_SECONDS, _BLOCK_SECONDS, _SLOWEST = 5.0, 0.05, 5e8  # processor time; multiplications a second, at worst
_WALL_FACTOR, _WALL_SECONDS = 20.0, 60.0  # a machine that is busy with other things
_MOST_MEMORY = 2 * 2**30
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}  # of NumPy, which does nothing there; the runtime has its own
_LOADED, _FAILED, _DONE = b"l", b"f", b"d"


class ModelProcess:
    """A process that has loaded a model and predicts block after block.

    Parameters
    ----------
    data : bytes
        A model that was checked.
    work : int
        Multiplications that a block of rows takes.
    """

    def __init__(self, data: bytes, *, work: int, threads: int) -> None:
        self._seconds = _BLOCK_SECONDS + work / _SLOWEST
        self._lock = threading.Lock()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START],  # -P: nothing is imported from the folder one happens to be in
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**_environment(), **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        except OSError as problem:
            raise StorageError(
                "the process of the model",
                reason=f"it could not be started: {problem.strerror or 'the system refused'}",
                cure="Free memory or end other processes, and run the same command again.",
            ) from None
        self._end = weakref.finalize(self, _end, self._process)
        settings = np.array([threads, _FIRST_SECONDS, self._seconds], dtype="<f8").tobytes()
        if self._ask(settings, data)[:1] != _LOADED:
            self._end()
            raise refuse("the runtime cannot use it")

    def predict(self, block: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """The model's values for a block of n rows, int64 or float32, and its probabilities, of shape (n, any number)."""
        answer = self._ask(np.int64(block.shape[1]).tobytes(), block.astype("<f4", copy=False).tobytes())
        if answer[:1] != _DONE:
            raise refuse("it fails when it is used")
        kind, n = np.dtype({b"i": "<i8", b"f": "<f4"}[answer[1:2]]), len(block)
        values, rest = answer[2 : 2 + n * kind.itemsize], answer[2 + n * kind.itemsize :]
        if len(values) < n * kind.itemsize or len(rest) % (4 * n):
            raise refuse("it does not predict one value a row")
        return np.frombuffer(values, dtype=kind), np.frombuffer(rest, dtype="<f4").reshape(n, -1)

    def _ask(self, *messages: bytes) -> bytes:
        """Send messages and wait for the answer, one caller at a time; an error if the process ended or takes long."""
        with self._lock:
            return self._ask_alone(messages)

    def _ask_alone(self, messages: Sequence[bytes]) -> bytes:
        clock = threading.Timer(_WALL_SECONDS + _WALL_FACTOR * self._seconds, self._process.kill)
        clock.daemon = True
        clock.start()
        try:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            for message in messages:
                _write(self._process.stdin, message)
            answer = _read(self._process.stdout)
        except (OSError, ValueError):  # it ended, now or before
            answer = b""
        finally:
            clock.cancel()
        if not answer:
            self._end()
            raise refuse("it takes too long, or too much memory, to use")
        return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            pipe.close()  # type: ignore[union-attr]
    process.wait()


def serve() -> None:
    """What the process does: load the model on standard input, then answer block after block."""
    given, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever libraries print is no answer
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    threads, allowed, seconds = np.frombuffer(_read(given), dtype="<f8").tolist()
    data = _read(given)
    _bound_time(allowed)
    _bound_memory()
    session = _load(data, int(threads))
    _write(answers, _LOADED if session is not None else _FAILED)
    while width := _read(given):
        allowed += seconds
        _bound_time(allowed)
        block = np.frombuffer(_read(given), dtype="<f4").reshape(-1, int(np.frombuffer(width, dtype="<i8")[0]))
        _write(answers, _run(session, block))


def _load(data: bytes, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception:  # the runtime's errors have no common class, and may quote the file
        return None


def _run(session: Any, block: npt.NDArray[np.float32]) -> bytes:
    try:
        values, *more = session.run(None, {session.get_inputs()[0].name: block})
    except Exception:  # as above; a look-up beyond an array's end comes out here
        return _FAILED
    kind = {"int64": b"i", "float32": b"f"}.get(values.dtype.name, b"")
    strange = not kind or values.shape != block.shape[:1] or any(each.dtype != np.float32 for each in more)
    return _FAILED if strange else b"".join((_DONE, kind, values.tobytes(), *(each.tobytes() for each in more)))


def _bound_time(seconds: float) -> None:
    """Let the system end this process after so much processor time in all."""
    if sys.platform != "win32":  # there, the parent's clock is the only bound
        _set_limit("RLIMIT_CPU", int(seconds) + 1)


def _bound_memory() -> None:
    """Let the system refuse this process much more memory than it has now."""
    statistics = Path("/proc/self/statm")
    if sys.platform != "win32" and statistics.exists():
        _set_limit("RLIMIT_AS", int(statistics.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") + _MOST_MEMORY)
        _set_limit("RLIMIT_CORE", 0)


def _set_limit(name: str, most: int) -> None:
    import resource

    what = getattr(resource, name)
    _, hard = resource.getrlimit(what)
    with suppress(ValueError, OSError):
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _write(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(8, "little"))
    pipe.write(message)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes:
    """A message; nothing where the other side has ended."""
    length = pipe.read(8)
    return pipe.read(int.from_bytes(length, "little")) if len(length) == 8 else b""


def _environment() -> dict[str, str]:
    """The environment without mooring's own variables: a passphrase is nothing for a process that runs another's model."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MOORING_")}
