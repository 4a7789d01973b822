"""Answers queries from the stores of an instance's tasks, and names the instances with the others.

It reads what is on the disk: what is committed. So no answer shows what an aborted transaction undoes; a change is in
it after the commit, `commit_interval_ms` later at most. A key whose state is not here, or not yet, is refused with the
reason (`key_location`), never answered with nothing.

    a task runs                        its rows are in the result
    a standby, or a task that restores in the result with `stale`, with its lag; else refused
    another instance has the task      refused, with that instance's address
    a global table                     all rows are in the result, as far as the topic was read

Decides from the present state of the tasks, and waits for nothing. Source: KafkaStreams.query, queryMetadataForKey.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from anabranch.clients.streams.changelog import Marks
from anabranch.clients.streams.global_store import GlobalStore
from anabranch.clients.streams.key_location import KeyLocations
from anabranch.clients.streams.queries import (
    FailureReason,
    KeyMetadata,
    KeyQuery,
    PartitionState,
    Query,
    QueryFailure,
    QueryResult,
    QueryRow,
    RangeQuery,
    WindowQuery,
)
from anabranch.clients.streams.serdes import JSON, Serde
from anabranch.clients.streams.streams_partition_assignor import AssignedTasks
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_inputs import ConsumerView
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.tasks import Task
from anabranch.clients.streams.topology_graph import GLOBAL, Built, Subtopology
from anabranch.clients.streams.windows import SessionWindows, SlidingWindows
from anabranch.protocol.host_port import format_host_port
from anabranch.protocol.suggestion import suggest
from anabranch.protocol.topic_partition import TopicPartition

_TIME: Final = struct.Struct(">q")
"""A timestamp before a value, and what a store's key has first behind the record's key: the start of a window, or the
end of a session, which is not before its start."""
_LATEST_MS: Final = 2**63 - 1
_LAST: Final = b"\xff" * 8
"""Not below what follows that time."""
TRY_AGAIN: Final = "try again in a moment"


class GlobalTables(Protocol):
    """The global tables of the instance."""

    @property
    def stores(self) -> Mapping[str, GlobalStore]:
        """Every store by its name."""

    def lags(self, name: str) -> Mapping[int, int | None]:
        """Return how many offsets of each partition of a store's topic are still to be read; None while unknown."""


class QueryExecutor:
    """The queries of one instance."""

    def __init__(
        self,
        built: Built,
        tasks: Mapping[TaskId, Task],
        view: ConsumerView,
        assigned: Callable[[], AssignedTasks],
        lag: Callable[[Task, str], int | None],
        global_tables: GlobalTables,
        application_server: str = "",
    ) -> None:
        """Create an executor; `assigned` has the hosts of the group's last assignment, `lag` that of a task's store,
        `application_server` the address of this instance.
        """
        self._built = built
        self._tasks = tasks
        self._view = view
        self._assigned = assigned
        self._lag = lag
        self._global = global_tables
        self._application_server = application_server

    def execute(self, store: str, query: Query, *, stale: bool = False, value: Serde = JSON) -> QueryResult:
        """Return the rows of a store that are here. Raises ValueError for an unknown store, or another one's query."""
        part = subtopology_with(self._built, store)
        _check_kind(part, store, query)
        if part.index == GLOBAL:
            return self._execute_on_global(part, store, query, value)
        locations = self._locations(part)
        if not locations.partitions:
            return QueryResult([], {}, [_no_metadata(part)])
        if not isinstance(query, RangeQuery) and query.key is not None:
            return self._execute_on_key(part, store, query.key, query, locations, stale=stale, value=value)
        found: dict[int, PartitionState] = {}
        failures: list[QueryFailure] = []
        sources: list[Iterator[tuple[bytes, bytes]]] = []
        for partition in range(locations.partitions):
            state = self._state(part, store, partition, locations, stale=stale)
            if isinstance(state, QueryFailure):
                failures.append(state)
                continue
            found[partition], task = state, self._tasks[TaskId(part.index, partition)]
            sources.append(_rows_here(task, store, query, locations))
            if awaited := locations.awaited_by(partition, _marks(task, store)):
                failures.append(_not_arrived(store, partition, awaited))
        here, more = _first_rows(heapq.merge(*sources), query)
        return QueryResult([_row(part, store, *row, value) for row in here], found, failures, more=more)

    def metadata(self, store: str, key: bytes) -> KeyMetadata:
        """Return where the state of a key is. Raises ValueError for an unknown store."""
        part = subtopology_with(self._built, store)
        if part.index == GLOBAL:
            return KeyMetadata(GLOBAL, self._application_server, ())
        locations = self._locations(part)
        partition = locations.partition_of(key) if locations.partitions else -1
        return KeyMetadata(partition, *self._hosts(part, partition))

    def awaited(self, task: Task) -> str:
        """Return which state a resize still moves to a task; empty if none."""
        locations = self._locations(task.subtopology)
        if task.id.partition >= locations.partitions:
            return ""
        reasons = (locations.awaited_by(task.id.partition, _marks(task, store)) for store in task.stores)
        return next(filter(None, reasons), "")

    def _execute_on_global(self, part: Subtopology, store: str, query: Query, value: Serde) -> QueryResult:
        """Return rows of a global table. Every instance has all of them."""
        disk = self._global.stores[store].disk
        if isinstance(query, KeyQuery):
            raw = disk.get(store, query.key)
            here, more = [] if raw is None else [(query.key, raw)], False
        else:
            assert isinstance(query, RangeQuery), "a global table has no windows"
            here, more = _first_rows(disk.range(store, query.first or b"", query.last), query)
        states = {one: PartitionState(State.RUNNING, lag) for one, lag in self._global.lags(store).items()}
        return QueryResult([_row(part, store, *row, value) for row in here], states, more=more)

    def _locations(self, part: Subtopology) -> KeyLocations:
        counts = [len(self._view.partitions_of(topic)) for topic in part.sources]
        return KeyLocations([self._view.lineage(topic) for topic in part.sources], min(counts))

    def _execute_on_key(
        self,
        part: Subtopology,
        store: str,
        key: bytes,
        query: KeyQuery | WindowQuery,
        locations: KeyLocations,
        *,
        stale: bool,
        value: Serde,
    ) -> QueryResult:
        partition = locations.partition_of(key)
        state = self._state(part, store, partition, locations, stale=stale)
        if isinstance(state, QueryFailure):
            return QueryResult([], {}, [state])
        task = self._tasks[TaskId(part.index, partition)]
        if awaited := locations.awaited(key, _marks(task, store)):
            return QueryResult([], {}, [_not_arrived(store, partition, awaited)])
        if isinstance(query, KeyQuery):
            raw = task.state_manager.disk.get(store, key)
            rows = [] if raw is None else [_row(part, store, key, raw, value)]
            return QueryResult(rows, {partition: state})
        here, more = _first_rows(_windows_of_key(task, store, key, query), query)
        return QueryResult([_row(part, store, *row, value) for row in here], {partition: state}, more=more)

    def _state(
        self, part: Subtopology, store: str, partition: int, locations: KeyLocations, *, stale: bool
    ) -> PartitionState | QueryFailure:
        """Return the state of a partition's task, or why it is not asked."""
        task = self._tasks.get(TaskId(part.index, partition))
        owner, _ = self._hosts(part, partition)
        place = _place(store, partition)
        if task is None:
            return QueryFailure(partition, FailureReason.NOT_PRESENT, _elsewhere(place, owner), owner)
        if task.state is State.RUNNING:
            return PartitionState(task.state, 0)
        lag = self._lag(task, store)
        if stale:
            return PartitionState(task.state, lag)
        if task.state is State.CATCHING_UP and (awaited := locations.awaited_by(partition, _marks(task, store))):
            return _not_arrived(store, partition, awaited)
        behind = f"{'an unknown number of' if lag is None else lag} offsets of its changelog are still to be read"
        if task.state is State.STANDBY:
            what, instead = "is a standby here", f"query {owner or 'the instance whose task runs'}"
        else:
            what, instead = "restores its state", TRY_AGAIN
        message = f"{place} {what}, and {behind}: {instead}, or accept that with stale"
        return QueryFailure(partition, FailureReason.NOT_ACTIVE, message, owner)

    def _hosts(self, part: Subtopology, partition: int) -> tuple[str, tuple[str, ...]]:
        """Return the addresses of the instances with the active task of a partition, and with its standbys."""
        inputs = {TopicPartition(topic, partition) for topic in part.sources}
        assigned = self._assigned()
        active, standby = (
            [format_host_port(*host) for host, partitions in hosted.items() if inputs.intersection(partitions)]
            for hosted in (assigned.partitions_by_host, assigned.standby_partitions_by_host)
        )
        return (active[0] if active else ""), tuple(sorted(standby))


def subtopology_with(built: Built, store: str) -> Subtopology:
    """Return the part of the topology that has a store. Raises ValueError."""
    parts = (*built.subtopologies, *built.global_tables)
    for part in parts:
        if store in part.stores:
            return part
    names = [name for part in parts for name in part.stores]
    raise ValueError(f"there is no store {store!r}; {suggest(store, names) if names else 'the topology has none'}")


def _place(store: str, partition: int) -> str:
    return f"partition {partition} of store {store}"


def _not_arrived(store: str, partition: int, awaited: str) -> QueryFailure:
    message = f"{_place(store, partition)}: {awaited}; {TRY_AGAIN}"
    return QueryFailure(partition, FailureReason.NOT_UP_TO_BOUND, message)


def _elsewhere(place: str, owner: str) -> str:
    if owner:
        return f"{place} is on the instance {owner}: query that one"
    return (
        f"{place} is not on this instance, and no other one is known to have it: {TRY_AGAIN} if the group rebalances; "
        "else give each instance an application_server"
    )


def _no_metadata(part: Subtopology) -> QueryFailure:
    topics = " and ".join(part.sources)
    return QueryFailure(-1, FailureReason.NOT_PRESENT, f"the partitions of {topics} are not known yet: {TRY_AGAIN}")


def _check_kind(part: Subtopology, store: str, query: Query) -> None:
    """Refuse a query that the store's keys are not made for. Raises ValueError."""
    if store in part.windows:
        if not isinstance(query, WindowQuery):
            raise ValueError(f"the store {store} has windows: query it with WindowQuery")
    elif store in part.key_suffixes:
        raise ValueError(f"the store {store} has the records of a join, which cannot be queried: query its results")
    elif isinstance(query, WindowQuery):
        raise ValueError(f"the store {store} has no windows: query it with KeyQuery or RangeQuery")


def _marks(task: Task, store: str) -> Marks:
    return Marks.read(task.stores[store].marks)


def _rows_here(task: Task, store: str, query: Query, locations: KeyLocations) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of a task's store that the query is for, without those whose state is, or will be, elsewhere."""
    part, partition, marks = task.subtopology, task.id.partition, _marks(task, store)
    first, last = (query.first, query.last) if isinstance(query, RangeQuery) else (None, None)
    for key, row in task.state_manager.disk.range(store, first or b"", last):
        if isinstance(query, WindowQuery) and not query.has(part.windows[store].window_of(key)):
            continue
        if locations.has_all(part.record_key(store, key), partition, marks):
            yield key, row


def _first_rows(
    rows: Iterable[tuple[bytes, bytes]], query: RangeQuery | WindowQuery
) -> tuple[list[tuple[bytes, bytes]], bool]:
    """Return the first rows within the query's limits, and whether there are more."""
    taken: list[tuple[bytes, bytes]] = []
    size_bytes = 0
    for key, row in rows:
        if len(taken) == query.limit or (query.bytes_max is not None and size_bytes >= query.bytes_max):
            return taken, True
        taken.append((key, row))
        size_bytes += len(key) + len(row)
    return taken, False


def _windows_of_key(task: Task, store: str, key: bytes, query: WindowQuery) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of one key's windows, by the time in the store's keys."""
    windows = task.subtopology.windows[store]
    to_ms = query.to_ms if not isinstance(windows, SessionWindows) and query.to_ms is not None else _LATEST_MS
    first, last = (key + _TIME.pack(min(at_ms, _LATEST_MS)) for at_ms in (query.from_ms, to_ms))
    for store_key, row in task.state_manager.disk.range(store, first, last + _LAST):
        # Those of longer keys that begin alike lie in between.
        if len(store_key) == len(key) + windows.suffix_bytes and query.has(windows.window_of(store_key)):
            yield store_key, row


def _row(part: Subtopology, store: str, key: bytes, row: bytes, value: Serde) -> QueryRow:
    """Decode a row. Raises ValueError."""
    windows = part.windows.get(store)
    window = None if windows is None else windows.window_of(key)
    timestamp_ms = None
    if window is not None or store in part.timestamped:
        timestamp_ms, row = int(_TIME.unpack_from(row)[0]), row[_TIME.size :]
        if isinstance(windows, SlidingWindows) and timestamp_ms < 0:
            timestamp_ms = ~timestamp_ms  # its result was forwarded (`sliding_window_store`)
    try:
        return QueryRow(key if window is None else window.key, value.decode(row), timestamp_ms, window)
    except Exception as error:
        raise ValueError(f"a value of the store {store} cannot be decoded: {error}; give its serde as value=") from None
