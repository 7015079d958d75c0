from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from inspect import Parameter, isclass, signature
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest

import mooring
from mooring import InputError, Streams
from tests.raising import raising


def test_a_stream_is_that_of_its_seed_and_name_and_starts_at_its_beginning_whenever_it_is_asked_for() -> None:
    streams = Streams.for_experiment(seed=5)
    first = streams.named("noise").standard_normal(8)
    streams.named("other").standard_normal(100)
    for again in (streams, Streams.for_experiment(seed=5)):
        assert np.array_equal(first, again.named("noise").standard_normal(8))


def test_another_name_or_another_seed_gives_another_stream() -> None:
    draws = [
        tuple(Streams.for_experiment(seed=seed).named(name).integers(2**32, size=4))
        for seed in (0, 1, 2**40)
        for name in ("a", "b", "participant/1/noise", "participant/11/noise", "")
    ]
    assert len(set(draws)) == len(draws)


def test_named_streams_are_uncorrelated() -> None:
    """Largest correlation among 20 streams of 4,000 draws: 190 pairs, each of spread 0.016; 0.08 is five of those."""
    streams = Streams.for_experiment(seed=0)
    draws = np.stack([streams.named(f"participant/{i}/noise").standard_normal(4000) for i in range(20)])
    assert np.max(np.abs(np.corrcoef(draws) - np.eye(20))) < 0.08


def test_streams_from_the_system_differ_every_time() -> None:
    entropies = {Streams.from_system().entropy for _ in range(20)}
    assert len(entropies) == 20
    assert max(entropies).bit_length() > 200


def test_the_printed_form_shows_no_entropy() -> None:
    streams = Streams.for_experiment(seed=987654321)
    assert "987654321" not in repr(streams)
    assert "987654321" not in str(streams)


def test_a_negative_seed_is_refused(refused: Callable[..., None]) -> None:
    refused(lambda: Streams.for_experiment(seed=-1), "seed", "a non-negative integer", "-1")


def takers_of_rng() -> dict[str, Callable[..., Any]]:
    """Every public function, class and method with a parameter `rng`, by name."""
    names = (module.name for module in iter_modules(mooring.__path__, "mooring.") if module.name[-2:] != "__")
    packages = [mooring, *map(import_module, names)]
    words = {}
    for package in packages:
        for name in getattr(package, "__all__", ()):
            public = getattr(package, name)
            methods = [getattr(public, each) for each in dir(public) if each[0] != "_"] if isclass(public) else []
            for taker in filter(callable, (public, *methods)):
                with suppress(ValueError, TypeError):
                    if "rng" in signature(taker).parameters:
                        words[f"{taker.__module__}.{taker.__qualname__}"] = taker
    return words


@pytest.mark.parametrize("rng", [5, True, 0.5, "5", None, np.random.RandomState(5)], ids=lambda rng: type(rng).__name__)
def test_only_a_generator_is_taken_for_rng(rng: object) -> None:
    takers = takers_of_rng()
    assert len(takers) > 15
    for taker in takers.values():
        needed = [
            parameter for parameter in signature(taker).parameters.values() if parameter.default is Parameter.empty
        ]
        with raising(InputError, "rng", expected="a numpy.random.Generator", got=type(rng).__name__):
            drawn = taker(**{parameter.name: rng if parameter.name == "rng" else None for parameter in needed})
            next(drawn)  # what yields looks at its arguments no sooner
