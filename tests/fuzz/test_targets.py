"""Every reader takes good bytes and refuses bad ones by a MooringError: mutated seeds, and what fuzzing found before."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.corpus import file_name, read_corpus
from tests.fuzz.target import Target
from tests.fuzz.targets import build_targets

FINDINGS = Path(__file__).parent / "findings"
NAMES = (
    "bundle", "map", "anchor", "sealed anchor", "card", "study", "header", "model", "projection", "csv", "parquet", "ledger",
    "identity", "alignment.safetensors", "collaboration.parquet", "intake.json", "alignment.json", "flare requests",
    "flare files", "flare answers", "flare result", "flare task", "flare app", "flare messages", "dask bundle",
    "dask listing", "dask part", "sum bundle", "sum box", "sum receipt", "sum closing list", "sum share", "sum result",
    "sum model of a column", "mapping", "matched table", "records", "place listing", "envelope", "journal",
)  # fmt: skip
N_MUTANTS = 20


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    return build_targets(tmp_path_factory.mktemp("fuzz"))


def test_every_target_is_named(targets: dict[str, Target]) -> None:
    assert tuple(targets) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_mutated_files_are_read_or_refused(name: str, targets: dict[str, Target]) -> None:
    """The first seed is read; the corpus, and some mutants of each seed, are read or refused, and nothing else happens."""
    target, rng = targets[name], np.random.default_rng(list(name.encode()))
    assert target.survives(target.seeds[0])
    for data in read_corpus(name):
        target.survives(data)
    for seed in target.seeds:
        for _ in range(N_MUTANTS):
            target.survives(mutate(seed, rng))


@pytest.mark.parametrize("path", sorted(FINDINGS.glob("*.bin")), ids=lambda path: path.stem)
def test_what_fuzzing_found_stays_mended(path: Path, targets: dict[str, Target]) -> None:
    """A finding's file is called after its target: `flare-job.1.bin`."""
    (target,) = (target for name, target in targets.items() if file_name(name, "") == path.stem.rsplit(".", 1)[0])
    target.survives(path.read_bytes())


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_a_small_parquet_file_that_claims_a_page_of_two_gigabytes_takes_little_memory(
    targets: dict[str, Target],
) -> None:
    data = (FINDINGS / "parquet.1.bin").read_bytes()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak is measured from here on
    before = peak_kilobytes()
    assert not targets["parquet"].survives(data)
    assert peak_kilobytes() - before < 2**18


def peak_kilobytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0])


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """One to four of: a bit flipped, bytes replaced by others of a kind that matters, cut out, doubled, cut short."""
    content = bytearray(data)
    kinds: list[Callable[[bytearray, int, int], object]] = [
        lambda b, at, n: b.__setitem__(at, b[at] ^ (1 << int(rng.integers(8)))),
        lambda b, at, n: b.__setitem__(slice(at, at + n), rng.bytes(n)),
        lambda b, at, n: b.__setitem__(slice(at, at + n), rng.choice(WORDS)),
        lambda b, at, n: b.__delitem__(slice(at, at + n)),
        lambda b, at, n: b.__setitem__(slice(at, at), b[at : at + n]),
        lambda b, at, n: b.__delitem__(slice(at, None)) if rng.random() < 0.2 else None,
    ]
    for _ in range(int(rng.integers(1, 5))):
        if content:
            kinds[int(rng.integers(len(kinds)))](content, int(rng.integers(len(content))), int(rng.integers(1, 17)))
    return bytes(content)


WORDS = np.array(
    [b"\xff" * 8, b"\x00" * 8, b"-1", b"1e999", b"nan", b"null", b"[]", b"{}", b'""', b"\n", b"9" * 30, b"\xc3\x28"],
    object,
)
