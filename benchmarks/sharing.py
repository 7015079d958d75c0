"""How long `mooring share` takes and how much memory, beside reading the file and beside the matrix product alone."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

N_COLUMNS = 100
LIMIT_MB = 512
_AT_ONCE = 100_000


def measured(n_rows: int) -> list[dict[str, Any]]:
    """Rows of the table: a Parquet file and a CSV, with anchor noise only and with private-data noise."""
    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as folder:
        rows = []
        for kind in ("parquet", "csv"):
            data = Path(folder) / f"rows.{kind}"
            write_table(data, n_rows)
            product, reading = product_alone(n_rows), reading_alone(data)
            for noise in (0.0, 0.5) if kind == "parquet" else (0.0,):
                shared = _in_a_process("share", data, noise)
                rows.append(
                    {
                        "file": kind,
                        "rows": n_rows,
                        "columns": N_COLUMNS,
                        "megabytes": data.stat().st_size / 1e6,
                        "data_noise": noise,
                        "share_seconds": shared["seconds"],
                        "peak_megabytes": shared["peak_megabytes"],
                        "reading_seconds": reading,
                        "product_seconds": product,
                    }
                )
            data.unlink()
    return rows


def write_table(path: Path, n_rows: int) -> None:
    """A table of uniform numbers with three decimals and a label of two classes."""
    rng = np.random.default_rng(0)
    schema = pa.schema([*((f"c{k}", pa.float32()) for k in range(N_COLUMNS)), ("label", pa.string())])
    if path.suffix == ".parquet":
        writer: Any = pa.parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False)
    else:
        writer = pa.csv.CSVWriter(path, schema)
    with writer:
        for start in range(0, n_rows, _AT_ONCE):
            numbers = rng.uniform(-5, 5, size=(N_COLUMNS, min(_AT_ONCE, n_rows - start))).astype(np.float32).round(3)
            words = pa.array(np.where(numbers[0] > 0, "a", "b"))
            writer.write_table(pa.table([*map(pa.array, numbers), words], schema=schema))


def product_alone(n_rows: int) -> float:
    """Seconds for the matrix product itself, in blocks, with nothing read and nothing written."""
    rng = np.random.default_rng(0)
    block, map = rng.standard_normal((65_536, N_COLUMNS)), rng.standard_normal((N_COLUMNS, N_COLUMNS))
    begin = time.perf_counter()
    for _ in range(-(-n_rows // block.shape[0])):
        block @ map
    return time.perf_counter() - begin


def reading_alone(path: Path) -> float:
    """Seconds to read the file once with pyarrow, batch by batch, and do nothing with it."""
    begin = time.perf_counter()
    if path.suffix == ".parquet":
        for _ in pa.parquet.ParquetFile(path).iter_batches(65_536):
            pass
    else:
        for _ in pa.csv.open_csv(path):
            pass
    return time.perf_counter() - begin


def share_once(data: Path, noise: float) -> dict[str, float]:
    """Share a table in a fresh study; what the process behind `_in_a_process` does."""
    from mooring.mechanisms.rotation.settings import RotationSettings
    from mooring.protocol.messages.card import Member
    from mooring.protocol.messages.study import Study, draw_nonce
    from mooring.protocol.participant.membership import make_member
    from mooring.protocol.results import Consent
    from mooring.protocol.rotation.anchor import deal_anchor
    from mooring.protocol.rotation.participant.upload import share_rows
    from mooring.protocol.storage.vault import Vault
    from mooring.tables.schema import Column, Label

    with tempfile.TemporaryDirectory(dir=data.parent) as name:
        folder = Path(name)
        vaults = [Vault.create(folder / f"vault-{k}") for k in range(3)]
        study = Study(
            "bench",
            draw_nonce(),
            tuple(Column(f"c{k}", "number", -5.0, 5.0) for k in range(N_COLUMNS)),
            Label("label", "classes", ("a", "b")),
            RotationSettings(
                "aa-i-gdp-both-noise" if noise else "aa-i-gdp-anchor-noise", N_COLUMNS, 4 * N_COLUMNS, noise, 0.05
            ),
        ).with_members(
            [make_member("one", vaults[0]), make_member("two", vaults[1])],
            Member("lab", vaults[2].signing_key.public),
        )
        deal_anchor(vaults[0], study, folder / "bench.anchor")
        begin = time.perf_counter()
        share_rows(
            vaults[0],
            study,
            data,
            anchor=folder / "bench.anchor",
            output=folder / "one.bundle",
            consent=Consent(labels=True),
        )
        seconds = time.perf_counter() - begin
    return {"seconds": seconds, "peak_megabytes": peak_megabytes()}


def peak_megabytes() -> float:
    """This process's own peak; the resource module's figure would include the parent it was forked from."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def _in_a_process(what: str, data: Path, noise: float) -> dict[str, float]:
    """Peak memory is a process's, so each measurement gets one of its own."""
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.sharing", what, str(data), str(noise)],
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, float] = json.loads(found.stdout)
    return answer


if __name__ == "__main__":
    print(json.dumps(share_once(Path(sys.argv[2]), float(sys.argv[3]))))
