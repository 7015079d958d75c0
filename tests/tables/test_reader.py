"""Reading ahead changes nothing but the time it takes."""

import threading
from collections.abc import Iterator

import pytest

from mooring.tables.reader import read_ahead


def test_items_come_in_order_and_completely() -> None:
    assert list(read_ahead(iter(range(1000)))) == list(range(1000))


def test_an_error_is_raised_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("damaged")

    ahead = read_ahead(items())
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(ValueError, match="damaged"):
        next(ahead)


def test_no_more_is_read_than_asked_for_and_leaving_early_ends_the_thread() -> None:
    made = []

    def items() -> Iterator[int]:
        for item in range(10_000):
            made.append(item)
            yield item

    before = threading.active_count()
    ahead = read_ahead(items(), at_most=2)
    assert next(ahead) == 0
    ahead.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert len(made) <= 5
