"""What a record may consist of, and its estimated size."""

from __future__ import annotations

import random
from typing import Any

import pytest

from anabranch.clients.producer.producer_record import checked_headers, checked_timestamp, size_of
from anabranch.protocol.records.batch_builder import BatchBuilder


def test_size_estimates_are_upper_bounds() -> None:
    rng = random.Random(1)
    for _ in range(200):
        key = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(200))
        value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(2000))
        headers = [("h" * rng.randrange(20), rng.randbytes(rng.randrange(50))) for _ in range(rng.randrange(3))]
        builder = BatchBuilder(limit_bytes=1 << 30)
        empty = builder.size_bytes
        builder.append(key, value, headers, 123456)
        assert builder.size_bytes - empty <= size_of(key, value, headers)


@pytest.mark.parametrize(
    "headers",
    [[("a", "text")], [(b"a", b"x")], [("a", 1)], [("a",)], [("a", b"x", b"y")], {"a": b"x"}, [None], ["ab"], 5],
    ids=repr,
)
def test_headers_that_are_no_pairs_are_refused(headers: Any) -> None:
    with pytest.raises(TypeError, match="headers are pairs"):
        checked_headers(headers)


def test_headers_are_copied() -> None:
    headers: list[tuple[str, bytes | None]] = [("a", b"x"), ("b", None)]
    copied = checked_headers(headers)
    headers.clear()
    assert copied == checked_headers(pair for pair in copied) == (("a", b"x"), ("b", None))  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        checked_headers([("\udc80", b"x")])


def test_timestamps_are_whole_milliseconds_since_1970_or_none() -> None:
    class Number:
        def __index__(self) -> int:
            return 7

    known: list[Any] = [-1, 0, 2**63 - 1, Number()]
    assert [checked_timestamp(one) for one in known] == [-1, 0, 2**63 - 1, 7]
    for wrong in (1.5, "1"):
        with pytest.raises(TypeError, match="timestamp_ms"):
            checked_timestamp(wrong)  # type: ignore[arg-type]
    for outside in (-2, 2**63):
        with pytest.raises(ValueError, match="timestamp_ms"):
            checked_timestamp(outside)
