"""A record that was given to `send`, the application's handle for it, and the place where it is stored in the end.

Source: Kafka's `ProducerRecord` and `RecordMetadata`.
"""

from __future__ import annotations

from operator import index as as_index
from typing import Final, NamedTuple, Protocol

from anabranch.protocol.records.record import Headers
from anabranch.protocol.topic_partition import TopicPartition

RECORD_OVERHEAD_BYTES: Final = 14
"""Length, attributes, deltas and the lengths of key, value and headers; an upper estimate."""


TIMESTAMP_MAX_MS: Final = 2**63 - 1


class RecordMetadata(NamedTuple):
    """The place of a stored record: the result of `send`'s future."""

    topic: str
    partition: int
    offset: int
    """-1 with acks=0, as the leader sends no response then."""
    timestamp_ms: int
    """Milliseconds since 1970, set by the producer or, if the topic is configured so, by the broker."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition as one value."""
        return TopicPartition(self.topic, self.partition)


class Receipt(Protocol):
    """The application's handle for a record: an `asyncio.Future`, or anything with these methods."""

    def done(self) -> bool:
        """Whether the application no longer waits."""

    def set_result(self, result: RecordMetadata, /) -> None:
        """Report that the record is stored."""

    def set_exception(self, error: Exception, /) -> None:
        """Fail a record that will not be stored, or has an unknown outcome."""


class Record(NamedTuple):
    """One unsettled record. `order` is unique and rises with every append, so that records sort by age."""

    order: int
    route: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    receipt: Receipt


def size_of(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Estimate a record's size in bytes."""
    size = RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += 4 + len(name) + (len(content) if content is not None else 0)
    return size


def checked_headers(headers: Headers) -> Headers:
    """Return a copy of a record's headers. Raises TypeError or ValueError if they cannot be encoded."""
    try:
        pairs = tuple((name, content) for name, content in headers)
    except (TypeError, ValueError):
        raise TypeError(f"headers are pairs of a name and bytes, not {headers!r}") from None
    for name, content in pairs:
        if not isinstance(name, str) or not (content is None or isinstance(content, bytes)):
            raise TypeError(f"headers are pairs of a name and bytes, not {(name, content)!r}")
        name.encode()
    return pairs


def checked_timestamp(timestamp_ms: int) -> int:
    """Return a record's timestamp as an integer; -1 is none. Raises TypeError or ValueError if it cannot be one."""
    try:
        whole_ms = as_index(timestamp_ms)
    except TypeError:
        raise TypeError(f"timestamp_ms is a whole number, not {timestamp_ms!r}") from None
    if not -1 <= whole_ms <= TIMESTAMP_MAX_MS:
        raise ValueError(f"timestamp_ms is in milliseconds since 1970, not {whole_ms}")
    return whole_ms
