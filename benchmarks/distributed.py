"""The analyst on Dask beside the analyst on one process: rows mapped and written a second, and many participants aligned.

Every figure beside another is from the same run, and the local engine and Dask do the same work: verify every bundle, align,
map every row, write the matrix, and look at every bundle again. Starting workers is timed apart.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mooring import RigidMap, make_anchor
from mooring.alignment import align

N_COMPONENTS, N_ANCHOR_ROWS, ROWS_A_BUNDLE = 100, 400, 500_000
SMALL_H, SMALL_R, NOISE = 12, 48, 0.05
PARTICIPANTS = (1_000, 10_000)
_AT_ONCE = 41_943
GROUP = 256


def is_there() -> bool:
    """Whether Dask is installed."""
    try:
        import distributed  # noqa: F401
    except ImportError:
        return False
    return True


def measured(*, large: bool, quick: bool) -> dict[str, Any]:
    """Rows of the matrix, and participants of an alignment."""
    sizes = [200_000] if quick else [2_000_000, *([20_000_000] if large else [])]
    return {
        "mapping": [mapping(n_rows) for n_rows in sizes],
        "participants": participants(PARTICIPANTS[:1] if quick else PARTICIPANTS),
        "constants": constants(),
    }


def constants() -> dict[str, float]:
    """What a cost is made of: a step of one participant at r = 400 and h = 100, and a task that does nothing."""
    from mooring.engines.dask import connect
    from mooring.engines.dask.cluster import run_throttled

    with connect(workers=2) as client:
        client.wait_for_workers(2)
        client.run(_loaded)
        # On a worker, whose products run in one thread.
        told = client.submit(_steps, pure=False).result()
        begin = time.perf_counter()
        for _ in run_throttled(client, ((k, _nothing, (k,)) for k in range(2_000))):
            pass
        task = (time.perf_counter() - begin) / 2_000
    return {"step_seconds": told, "task_seconds": task}


def _steps() -> float:
    from mooring.engines.dask.reduction import step

    rng = np.random.default_rng(0)
    stack = rng.standard_normal((32, N_ANCHOR_ROWS, N_COMPONENTS))
    S = rng.standard_normal((N_ANCHOR_ROWS, N_COMPONENTS))
    told = (stack, stack.mean(axis=1))
    rows = tuple(range(len(stack)))
    step(told, rows, 0, S, None, "", 0)
    begin = time.perf_counter()
    step(told, rows, 0, S, None, "", 0)
    return (time.perf_counter() - begin) / len(stack)


def _nothing(k: int) -> int:
    return k


def _loaded() -> None:
    """Import what a worker's first task would wait for."""
    import mooring.engines.dask.analyst
    import mooring.engines.dask.learners  # noqa: F401


def mapping(n_rows: int) -> dict[str, Any]:
    """One matrix of so many rows by 100: a plain loop, the local engine, Dask with one and with two workers."""
    from mooring.engines.dask import DaskEngine, connect
    from mooring.protocol.exchange_types import GatherOptions
    from mooring.protocol.messages.study import Study

    found: dict[str, Any] = {"rows": n_rows, "columns": N_COMPONENTS}
    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as place:
        folder = Path(place)
        _write_bundles(folder, n_rows)
        found["gigabytes"] = sum(path.stat().st_size for path in (folder / "inbox").iterdir()) / 1e9
        _read_once(folder / "inbox")
        for name, dictionary in (("plain", True), ("plain_quick", False)):
            begin = time.perf_counter()
            _plain_loop(folder / "inbox", folder / "plain.parquet", dictionary=dictionary)
            found[f"{name}_seconds"] = time.perf_counter() - begin
            (folder / "plain.parquet").unlink()
        local = _in_a_process(folder)
        found["local_seconds"], found["local_peak_megabytes"] = local["seconds"], local["peak_megabytes"]
        found["verify_seconds"] = local["verify_seconds"]
        study = Study.read(folder / "study.toml")
        for workers in (1, 2):
            begin = time.perf_counter()
            with connect(workers=workers) as client:
                client.wait_for_workers(workers)
                client.run(_loaded)
                start = time.perf_counter() - begin
                begin = time.perf_counter()
                engine, work = DaskEngine(client), folder / f"dask-{workers}"
                bundles = engine.collect(study, folder / "inbox", work).bundles
                engine.gather(study, bundles, work, GatherOptions(certify=False))
                found[f"dask_{workers}_seconds"] = time.perf_counter() - begin
                found[f"dask_{workers}_start_seconds"] = start
                found[f"dask_{workers}_peak_megabytes"] = max(client.run(_peak_megabytes).values())
            for path in (folder / f"dask-{workers}" / "collaboration").iterdir():
                path.unlink()
    return found


def participants(counts: tuple[int, ...]) -> list[dict[str, Any]]:
    """Many participants: `mooring.align` in one process, and steps that reduce over two workers."""
    from mooring.engines.dask import connect
    from mooring.engines.dask.reduction import AnchorsOnWorkers

    rows = []
    with connect(workers=2) as client:
        client.wait_for_workers(2)
        client.run(_loaded)
        for p in counts:
            groups = [range(start, min(start + GROUP, p)) for start in range(0, p, GROUP)]
            stacks = [client.submit(simulated, group.start, len(group), pure=False) for group in groups]
            places: Any = [
                SimpleNamespace(group=k, row=row) for k, group in enumerate(groups) for row in range(len(group))
            ]
            uploads = np.concatenate([simulated(group.start, len(group))[0] for group in groups])
            for stack in stacks:
                stack.result()
            begin = time.perf_counter()
            local = align(uploads)
            local_seconds = time.perf_counter() - begin
            begin = time.perf_counter()
            reduced = AnchorsOnWorkers(client, stacks).solve(places).alignment
            seconds = time.perf_counter() - begin
            rows.append(
                {
                    "participants": p,
                    "anchor_rows": SMALL_R,
                    "components": SMALL_H,
                    "local_seconds": local_seconds,
                    "local_iterations": local.iterations,
                    "reduced_seconds": seconds,
                    "reduced_iterations": reduced.iterations,
                    "groups": len(groups),
                    "objective_ratio": reduced.objective / local.objective,
                    "anchor_megabytes": uploads.nbytes / 1e6,
                    "client_megabytes": 8 * (2 * SMALL_R * SMALL_H + SMALL_R**2) / 1e6,
                }
            )
    return rows


def simulated(first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Centred anchor representations of some participants, and their mean rows; the same wherever they are made."""
    anchor = make_anchor(SMALL_R, SMALL_H, rng=np.random.default_rng(0))
    made = []
    for k in range(first, first + count):
        rng = np.random.default_rng([1, k])
        made.append(RigidMap.sample(SMALL_H, rng=rng).apply(anchor) + NOISE * rng.standard_normal(anchor.shape))
    stack = np.stack(made)
    means = stack.mean(axis=1)
    return stack - means[:, None, :], means


def _write_bundles(folder: Path, n_rows: int) -> None:
    from mooring.protocol.crypto.keys import SigningKey
    from mooring.protocol.messages.card import Member
    from mooring.protocol.messages.study import draw_nonce
    from mooring.tables.schema import Column, Label
    from tests.keys import keyed_member
    from tests.sites import write_bundle
    from tests.study_settings import make_study

    p = max(2, n_rows // ROWS_A_BUNDLE)
    keys = [SigningKey.generate() for _ in range(p)]
    study = make_study(
        name="bench",
        nonce=draw_nonce(),
        columns=tuple(Column(f"c{k}", "number", -1.0, 1.0) for k in range(N_COMPONENTS)),
        label=Label("label", "classes", ("a", "b")),
        method="aa-i-gdp-anchor-noise",
        n_components=N_COMPONENTS,
        n_anchor_rows=N_ANCHOR_ROWS,
        anchor_noise_scale=NOISE,
        participants=tuple(keyed_member(f"site-{k:03d}", key) for k, key in enumerate(keys)),
        analyst=Member("lab", SigningKey.generate().public),
    )
    study.write(folder / "study.toml")
    (folder / "inbox").mkdir()
    anchor = make_anchor(N_ANCHOR_ROWS, N_COMPONENTS, rng=np.random.default_rng(0))
    for k, (member, key) in enumerate(zip(study.participants, keys, strict=True)):
        rng = np.random.default_rng([2, k])
        count = n_rows // p
        secret = RigidMap.sample(N_COMPONENTS, rng=rng)
        rows = rng.uniform(-1, 1, (count, N_COMPONENTS)).astype(np.float32)
        write_bundle(
            folder / "inbox" / f"{member.name}.bundle",
            study,
            representation=rows @ np.asarray(secret.orthogonal, np.float32)
            + np.asarray(secret.translation, np.float32),
            anchor_representation=secret.apply(anchor) + NOISE * rng.standard_normal(anchor.shape),
            labels=rng.integers(0, 2, count),
            signer=key,
        )


def _blocks(path: Path) -> Iterator[np.ndarray]:
    """The file's numbers as rows; a plain loop does not care where exactly the header ends."""
    with path.open("rb") as file:
        while (block := np.fromfile(file, dtype="<f4", count=_AT_ONCE * N_COMPONENTS)).size >= N_COMPONENTS:
            yield block[: block.size // N_COMPONENTS * N_COMPONENTS].reshape(-1, N_COMPONENTS)


def _plain_loop(inbox: Path, output: Path, *, dictionary: bool) -> None:
    """What anybody would write: read, multiply, write; nothing verified, nothing aligned.

    By default pyarrow looks for numbers that repeat themselves (a dictionary); both engines tell it not to.
    """
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((N_COMPONENTS, N_COMPONENTS)))[0]
    names = [f"z{k + 1}" for k in range(N_COMPONENTS)]
    schema = pa.schema([(name, pa.float32()) for name in names])
    with pq.ParquetWriter(output, schema, use_dictionary=dictionary) as writer:
        for path in sorted(inbox.iterdir()):
            for rows in _blocks(path):
                with np.errstate(all="ignore"):  # the header's bytes are read as numbers, too
                    moved = (rows.astype(np.float64) @ turn).astype(np.float32)
                writer.write_table(pa.table([np.ascontiguousarray(column) for column in moved.T], names=names))


def _read_once(inbox: Path) -> None:
    for path in inbox.iterdir():
        with path.open("rb") as file:
            while file.read(2**24):
                pass


def locally(folder: Path) -> dict[str, float]:
    """Collect and align in this process; what the process behind `_in_a_process` does."""
    from mooring.protocol.analyst.intake import collect
    from mooring.protocol.messages.study import Study
    from mooring.protocol.rotation.analyst.alignment import align_bundles
    from mooring.protocol.rotation.bundle import RowBundle

    study = Study.read(folder / "study.toml")
    begin = time.perf_counter()
    intake = collect(study, folder / "inbox", folder / "local")
    verified = time.perf_counter() - begin
    bundles = [bundle for bundle in intake.bundles if isinstance(bundle, RowBundle)]
    align_bundles(study, bundles, folder / "local", certify=False)
    seconds = time.perf_counter() - begin
    shutil.rmtree(folder / "local" / "collaboration")
    return {"seconds": seconds, "verify_seconds": verified, "peak_megabytes": _peak_megabytes()}


def _in_a_process(folder: Path) -> dict[str, float]:
    """Peak memory is a process's, so the local engine gets one of its own."""
    command = [sys.executable, "-m", "benchmarks.distributed", str(folder)]
    answer: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return answer


def _peak_megabytes() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


if __name__ == "__main__":
    print(json.dumps(locally(Path(sys.argv[1]))))
