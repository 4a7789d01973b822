"""Invalid queries are refused with what to write, and a result shows why it lacks a row."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.clients.streams.queries import (
    FailureReason,
    KeyQuery,
    QueryFailure,
    QueryRefused,
    QueryResult,
    QueryRow,
    RangeQuery,
    WindowQuery,
)
from anabranch.clients.streams.windows import Session, Windowed
from tests.cases import for_each


@for_each(
    [
        (lambda: KeyQuery("42"), "key is bytes, as the keys of records are: write b'42', not '42'"),  # type: ignore[arg-type]
        (lambda: RangeQuery(first="a"), "first is bytes"),  # type: ignore[arg-type]
        (lambda: RangeQuery(last="a"), "last is bytes"),  # type: ignore[arg-type]
        (lambda: RangeQuery(limit=0), "limit is 1 or more, not 0"),
        (lambda: WindowQuery(key="a"), "key is bytes"),  # type: ignore[arg-type]
        (lambda: WindowQuery(limit=-1), "limit is 1 or more"),
        (lambda: RangeQuery(bytes_max=0), "bytes_max is 1 or more, not 0"),
        (lambda: WindowQuery(from_ms=-1), "from_ms is 0 or later"),
        (lambda: WindowQuery(from_ms=5, to_ms=4), "to_ms not before it: 5, 4"),
    ]
)
def test_invalid_queries_are_refused(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()


def test_query_of_windows_has_those_that_start_in_its_time() -> None:
    query = WindowQuery(from_ms=10, to_ms=20)
    starts = {start_ms: query.has(Windowed(b"k", start_ms, 100)) for start_ms in (9, 10, 20, 21)}
    assert starts == {9: False, 10: True, 20: True, 21: False}
    assert WindowQuery().has(Session(b"k", 2**62, 2**62))


def test_row_of_a_refused_query_raises_the_reason() -> None:
    failure = QueryFailure(3, FailureReason.NOT_PRESENT, "partition 3 is on the instance one:80", "one:80")
    with pytest.raises(QueryRefused, match="on the instance one:80") as refused:
        _ = QueryResult([], {}, [failure]).row
    assert refused.value.failures == (failure,)


def test_row_is_the_only_one_of_a_result() -> None:
    row = QueryRow(b"k", 1)
    assert QueryResult([row], {}).row == row
    assert QueryResult([], {}).row is None
    with pytest.raises(ValueError, match="2 rows"):
        _ = QueryResult([row, row], {}).row
