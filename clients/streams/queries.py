"""Queries of an instance's state, and their results.

    streams.query("word-counts", KeyQuery(b"hello")).row
    streams.query("word-counts", RangeQuery(b"a", b"f")).rows
    streams.query("clicks-by-minute", WindowQuery(from_ms=0, key=b"shop")).rows

A result has what the instance's partitions of the store hold, and says of each other partition why it is not in it:
`QueryFailure`, with the instance to ask where that is known. So nothing is empty that is only elsewhere, or on its way.
Pure; source: KIP-796 (StateQueryRequest, StateQueryResult, FailureReason), KIP-535.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.windows import Windowed
from anabranch.protocol.suggestion import suggest_arguments

LIMIT: Final = 1000
"""How many rows a query returns, unless it says so."""


@suggest_arguments
@dataclass(frozen=True, slots=True)
class KeyQuery:
    """The value of one key.

    Args:
        key: The key.
    """

    key: bytes

    def __post_init__(self) -> None:
        _check_key("key", self.key)


@suggest_arguments
@dataclass(frozen=True, slots=True)
class RangeQuery:
    """The values of the keys from one to another, both included, in the order of their bytes.

    Args:
        first: The first key; the store's first if None.
        last: The last key; the store's last if None.
        limit: The maximum number of rows.
        bytes_max: The size of keys and values, in bytes, from which on no row is added; None: any.
    """

    first: bytes | None = None
    last: bytes | None = None
    limit: int = LIMIT
    bytes_max: int | None = None

    def __post_init__(self) -> None:
        _check_key("first", self.first)
        _check_key("last", self.last)
        _check_limits(self)


@suggest_arguments
@dataclass(frozen=True, slots=True)
class WindowQuery:
    """The open windows that start from one time to another, both included, by key and start.

    Sliding windows are there for `difference_ms` after they have closed, too.

    Args:
        from_ms: The earliest start, in milliseconds since 1970.
        to_ms: The latest start; any later one if None.
        key: Whose windows; those of all keys if None.
        limit: The maximum number of rows.
        bytes_max: The size of keys and values, in bytes, from which on no row is added; None: any.
    """

    from_ms: int = 0
    to_ms: int | None = None
    key: bytes | None = None
    limit: int = LIMIT
    bytes_max: int | None = None

    def __post_init__(self) -> None:
        _check_key("key", self.key)
        _check_limits(self)
        if self.from_ms < 0 or (self.to_ms is not None and self.to_ms < self.from_ms):
            raise ValueError(f"from_ms is 0 or later, and to_ms not before it: {self.from_ms}, {self.to_ms}")

    def has(self, window: Windowed) -> bool:
        """Whether a window, of whatever key, starts within the time."""
        return self.from_ms <= window.start_ms and (self.to_ms is None or window.start_ms <= self.to_ms)


Query = KeyQuery | RangeQuery | WindowQuery


@suggest_arguments
@dataclass(frozen=True, slots=True)
class QueryRow:
    """One row of a result."""

    key: bytes
    value: Any
    timestamp_ms: int | None = None
    """The timestamp of the value, where the store keeps it: tables, aggregations."""
    window: Windowed | None = None
    """The window of the value, in a store of windows."""


@suggest_arguments
@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of a partition that is in a result."""

    state: State
    lag: int | None
    """How many offsets of the changelog the store lacks: 0 if its task runs, None while that is unknown."""


class FailureReason(enum.Enum):
    """Why a partition is not, or not wholly, in a result; by the names of KIP-796."""

    NOT_PRESENT = "NOT_PRESENT"
    """It has no task on this instance."""
    NOT_ACTIVE = "NOT_ACTIVE"
    """Its task here is a standby, or restores its state."""
    NOT_UP_TO_BOUND = "NOT_UP_TO_BOUND"
    """A resize moves state here that has not arrived yet."""


@suggest_arguments
@dataclass(frozen=True, slots=True)
class QueryFailure:
    """Why a partition is not, or not wholly, in a result."""

    partition: int
    reason: FailureReason
    message: str
    owner: str = ""
    """HOST:PORT of the instance whose task runs (its `application_server`); empty if unknown."""


class QueryRefused(Exception):
    """The instance cannot answer the query of a key now; the message says why, and what to do."""

    def __init__(self, failures: Sequence[QueryFailure]) -> None:
        super().__init__("; ".join(one.message for one in failures))
        self.failures = tuple(failures)


@suggest_arguments
@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows that an instance has, and the partitions that it lacks."""

    rows: list[QueryRow]
    partitions: Mapping[int, PartitionState]
    """The partitions whose rows are in the result."""
    failures: list[QueryFailure] = field(default_factory=list)
    """The partitions whose rows are not, or not all."""
    more: bool = False
    """Whether there are more rows here than the query's limits."""

    @property
    def row(self) -> QueryRow | None:
        """The row of a key; None if the key has no value.

        Raises:
            QueryRefused: The key's partition cannot be queried here now.
            ValueError: There are several rows.
        """
        if self.failures:
            raise QueryRefused(self.failures)
        if len(self.rows) > 1:
            raise ValueError(f"the result has {len(self.rows)} rows: read `rows`")
        return self.rows[0] if self.rows else None


@suggest_arguments
@dataclass(frozen=True, slots=True)
class KeyMetadata:
    """Where the state of a key is (KeyQueryMetadata of Kafka Streams)."""

    partition: int
    """-1 for a global table, which every instance has."""
    active: str
    """HOST:PORT of the instance whose task runs, or of the one that was asked for a global table; empty if no instance
    with an `application_server` has it.
    """
    standby: tuple[str, ...]
    """HOST:PORT of those with standbys."""


def _check_key(name: str, key: object) -> None:
    if key is not None and not isinstance(key, bytes):
        raise ValueError(f"{name} is bytes, as the keys of records are: write {str(key).encode()!r}, not {key!r}")


def _check_limits(query: RangeQuery | WindowQuery) -> None:
    if query.limit < 1:
        raise ValueError(f"limit is 1 or more, not {query.limit}")
    if query.bytes_max is not None and query.bytes_max < 1:
        raise ValueError(f"bytes_max is 1 or more, not {query.bytes_max}")
