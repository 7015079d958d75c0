"""The general total: sharing a large table beside reading and the product alone, and opening it with 15 combiners.

Beside it, the bundle of pictures that are summed by class, whose size follows from the declaration alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from benchmarks.sharing import peak_megabytes, reading_alone

if TYPE_CHECKING:
    from mooring.protocol.messages.study import Study
    from mooring.protocol.storage.vault import Vault

N_NUMBERS, N_CATEGORIES, N_WORDS = 10, 9, 6
LIMIT_TIMES, LIMIT_BUNDLE_MB, LIMIT_SECONDS = 2.0, 15.0, 10.0
LIMIT_PICTURES_MB = 10.0
_WORDS = tuple(f"w{k}" for k in range(N_WORDS))
_AT_ONCE, _BLOCK = 100_000, 4_096


def measured(n_rows: int = 1_000_000, n_participants: int = 50) -> dict[str, Any]:
    """Return what sharing takes of a Parquet file and of a CSV, and what a study of many participants takes."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as folder:
        for kind in ("parquet", "csv"):
            data = Path(folder) / f"rows.{kind}"
            write_table(data, n_rows)
            cpu = time.process_time()
            reading = reading_alone(data)
            reading_cpu = time.process_time() - cpu
            product, product_cpu = product_alone(n_rows)
            shared = _in_a_process("share", data)
            rows.append(
                {
                    "file": kind,
                    "rows": n_rows,
                    "columns": N_NUMBERS + N_CATEGORIES + 1,
                    "megabytes": data.stat().st_size / 1e6,
                    "reading_seconds": reading,
                    "product_seconds": product,
                    "reading_cpu_seconds": reading_cpu,
                    "product_cpu_seconds": product_cpu,
                    **shared,
                    "times": shared["share_cpu_seconds"] / (reading_cpu + product_cpu),
                }
            )
            data.unlink()
    return {"sharing": rows, "opening": open_once(n_participants), "pictures": share_pictures(n_participants)}


def write_table(path: Path, n_rows: int) -> None:
    """Write a table of uniform numbers with three decimals, categories of six words, and a label of two classes."""
    rng = np.random.default_rng(0)
    names = [*(f"c{k}" for k in range(N_NUMBERS)), *(f"d{k}" for k in range(N_CATEGORIES)), "label"]
    kinds = [pa.float64()] * N_NUMBERS + [pa.string()] * (N_CATEGORIES + 1)
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    writer: Any = (
        pa.parquet.ParquetWriter(path, schema) if path.suffix == ".parquet" else pa.csv.CSVWriter(path, schema)
    )
    with writer:
        for start in range(0, n_rows, _AT_ONCE):
            n = min(_AT_ONCE, n_rows - start)
            numbers = rng.uniform(-5, 5, size=(N_NUMBERS, n)).round(3)
            words = [np.array(_WORDS)[rng.integers(N_WORDS, size=n)] for _ in range(N_CATEGORIES)]
            label = np.where(numbers[0] > 0, "a", "b")
            writer.write_table(pa.table([*map(pa.array, (*numbers, *words, label))], schema=schema))


def product_alone(n_rows: int) -> tuple[float, float]:
    """Return wall and processor seconds for the products of all levels, in blocks, with nothing read and nothing written."""
    block = np.random.default_rng(0).standard_normal((_BLOCK, _BenchStudy([]).n_levels + 1))
    begin, cpu, total = time.perf_counter(), time.process_time(), np.zeros((block.shape[1],) * 2)
    for _ in range(-(-n_rows // _BLOCK)):
        total += block.T @ block
    return time.perf_counter() - begin, time.process_time() - cpu


class _BenchStudy:
    """A study of these columns, with vaults for its participants in a folder."""

    def __init__(self, folders: list[Path]) -> None:
        from mooring.mechanisms.sums.settings import SumSettings, make_general_workload
        from mooring.protocol.messages.study import Study, draw_nonce
        from mooring.tables.schema import Column, Label

        columns = [Column(f"c{k}", "number", -5.0, 5.0) for k in range(N_NUMBERS)]
        columns += [Column(f"d{k}", "category", categories=_WORDS) for k in range(N_CATEGORIES)]
        settings = SumSettings(epsilon=1.0, questions=("model", "tables"), most_rows=300_000)
        self.study = Study("bench", draw_nonce(), tuple(columns), Label("label", "classes", ("a", "b")), settings)
        self.n_levels = make_general_workload(settings, self.study.schema).n_levels
        if folders:
            self.study, (*self.vaults, self.analyst) = _join(self.study, folders)


def _join(study: Study, folders: list[Path]) -> tuple[Study, list[Vault]]:
    """Return a study with a participant for each folder but the last, which is the analyst's, and their vaults."""
    from mooring.protocol.messages.card import Member
    from mooring.protocol.participant.membership import make_member
    from mooring.protocol.storage.vault import Vault

    vaults = [Vault.create(folder) for folder in folders]
    members = [make_member(f"p{k}", vault, combines=True) for k, vault in enumerate(vaults[:-1])]
    return study.with_members(members, Member("lab", vaults[-1].signing_key.public)), vaults


def share_once(data: Path) -> dict[str, float]:
    """Share a table in a fresh study of four; what the process behind `_in_a_process` does.

    Another participant shares a few rows before, so that importing libraries is not measured; reading alone imports none.
    """
    from mooring.protocol.results import Consent
    from mooring.protocol.sums.participant.contribution import share_sums

    with tempfile.TemporaryDirectory(dir=data.parent) as name:
        folder = Path(name)
        made = _BenchStudy([folder / f"v{k}" for k in range(5)])
        write_table(folder / f"few{data.suffix}", 200)
        share_sums(
            made.vaults[1], made.study, folder / f"few{data.suffix}", output=folder / "p1.bundle", consent=Consent()
        )
        begin, cpu = time.perf_counter(), time.process_time()
        share_sums(made.vaults[0], made.study, data, output=folder / "p0.bundle", consent=Consent())
        wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return {"share_seconds": wall, "share_cpu_seconds": cpu, "peak_megabytes": peak_megabytes()}


def open_once(n_participants: int) -> dict[str, Any]:
    """Return the size of a bundle, and how long combining by one of 15 and opening take."""
    from mooring.protocol.analyst.intake import collect
    from mooring.protocol.results import Consent
    from mooring.protocol.sums.analyst.total import close_list, open_total
    from mooring.protocol.sums.combiner.combination import combine_shares
    from mooring.protocol.sums.participant.contribution import share_sums
    from mooring.protocol.sums.scheme import sum_scheme

    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as name:
        folder = Path(name)
        made = _BenchStudy([folder / f"v{k}" for k in range(n_participants + 1)])
        study, inbox, work = made.study, folder / "inbox", folder / "work"
        inbox.mkdir()
        write_table(folder / "rows.parquet", 200)
        for k in range(n_participants):
            output = inbox / f"p{k}.bundle"
            share_sums(made.vaults[k], study, folder / "rows.parquet", output=output, consent=Consent())
        bundles: Any = collect(study, inbox, work).bundles
        close_list(study, bundles, work, made.analyst.signing_key)
        scheme, seconds, cpu = sum_scheme(study), list[float](), list[float]()
        for k in range(scheme.threshold.threshold):
            begin, used = time.perf_counter(), time.process_time()
            combine_shares(made.vaults[k], study, inbox, work / "closing.list", output=inbox / f"p{k}.share")
            seconds.append(time.perf_counter() - begin)
            cpu.append(time.process_time() - used)
        begin, used = time.perf_counter(), time.process_time()
        open_total(study, work, inbox)
        return {
            "participants": n_participants,
            "combiners": len(scheme.combiners),
            "threshold": scheme.threshold.threshold,
            "numbers": scheme.layout.size,
            "bundle_megabytes": (inbox / "p0.bundle").stat().st_size / 1e6,
            "combine_seconds": float(np.median(seconds)),
            "combine_cpu_seconds": float(np.median(cpu)),
            "open_seconds": time.perf_counter() - begin,
            "open_cpu_seconds": time.process_time() - used,
        }


def share_pictures(n_participants: int, n_features: int = 100) -> dict[str, Any]:
    """Return the size of a bundle of pictures like MNIST's, 60,000 rows of ten classes, of which each class is summed."""
    from mooring.mechanisms.sums.class_moments import ClassLayout
    from mooring.mechanisms.sums.settings import SumSettings
    from mooring.protocol.messages.study import Study, draw_nonce
    from mooring.protocol.results import Consent
    from mooring.protocol.sums.participant.contribution import share_sums
    from mooring.protocol.sums.scheme import sum_scheme
    from mooring.tables.schema import Column, Label

    side, digits = 28, tuple("0123456789")
    columns = tuple(Column(f"x{k}", "integer", 0, 255) for k in range(side**2))
    settings = SumSettings(epsilon=1.0, features="pictures", n_features=n_features, expected_rows=60_000)
    declared = Study(
        "pictures", draw_nonce(), columns, Label("digit", "classes", digits), settings, image_shape=(side, side)
    )
    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as name:
        folder = Path(name)
        study, vaults = _join(declared, [folder / f"v{k}" for k in range(n_participants + 1)])
        pixels = np.random.default_rng(0).integers(256, size=(side**2, 20))
        table = {column.name: pa.array(values) for column, values in zip(columns, pixels, strict=True)}
        pyarrow.parquet.write_table(pa.table(table | {"digit": pa.array(2 * digits)}), folder / "rows.parquet")
        share_sums(vaults[0], study, folder / "rows.parquet", output=folder / "p0.bundle", consent=Consent())
        scheme, size = sum_scheme(study), (folder / "p0.bundle").stat().st_size
    layout = scheme.layout
    assert isinstance(layout, ClassLayout)
    return {
        "participants": n_participants,
        "combiners": len(scheme.combiners),
        "classes": layout.n_classes,
        "features": layout.n_features - 1,
        "numbers": layout.size,
        "bundle_megabytes": size / 1e6,
    }


def _in_a_process(what: str, data: Path) -> dict[str, float]:
    """Peak memory is a process's, so each measurement gets one of its own."""
    command = [sys.executable, "-m", "benchmarks.general_total", what, str(data)]
    answer: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return answer


if __name__ == "__main__":
    print(json.dumps(share_once(Path(sys.argv[2]))))
