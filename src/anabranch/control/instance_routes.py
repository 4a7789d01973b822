"""The routes of a Streams instance: its tasks, and queries of its stores.

A query of a key that is not here now is refused with 409, and `failures` names the reason and the owner. A range has
what is here, and `failures` beside it. Nothing here changes anything. Source: KIP-67, in which applications write such
a layer themselves.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, NotRequired, TypedDict, TypeVar

from anabranch.clients.streams.queries import (
    LIMIT,
    KeyQuery,
    Query,
    QueryFailure,
    QueryResult,
    QueryRow,
    RangeQuery,
    WindowQuery,
)
from anabranch.clients.streams.query_executor import subtopology_with
from anabranch.clients.streams.serdes import BYTES
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.topology_graph import GLOBAL
from anabranch.clients.streams.windows import SessionWindows
from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.route import ControlRequest, Route
from anabranch.control.topic_routes import Content
from anabranch.inspect.record_text import to_value

if TYPE_CHECKING:
    from anabranch.clients.streams.streams import Streams
    from anabranch.clients.streams.topology_graph import Subtopology
    from anabranch.control.events import Events

T = TypeVar("T")
LIMIT_MAX: Final = 10_000
RESULT_BYTES_MAX: Final = 16 << 20
"""The size of keys and values from which on a result has no further row."""
KEYS: Final = ("key", "key_base64")
RANGE: Final = ("first", "last")
WINDOWS: Final = ("from_ms", "to_ms")


class TaskRow(TypedDict):
    """A task of the instance."""

    task: Annotated[str, "its subtopology and partition"]
    state: Annotated[str, "running, catching up or standby"]
    inputs: Annotated[list[str], "the partitions that it reads"]
    stores: list[str]
    position: Annotated[int, "the sum of its stores' offsets in their changelogs"]
    end: Annotated[int, "the sum of the offsets that it has to reach before it runs; -1 while unknown"]
    keys: Annotated[int, "the number of committed keys in its stores"]
    waits_for: Annotated[str, "the state that a resize still moves here; empty if none"]


class StoreRow(TypedDict):
    """A store of the application."""

    store: str
    kind: Annotated[str, "keys, windows, sessions, global, or join: the records of a join cannot be queried"]
    subtopology: Annotated[int, "the number of the part that has it; its tasks are named NUMBER_PARTITION; -1: global"]


class FailureRow(TypedDict):
    """Why a partition is not, or not wholly, in the result."""

    partition: int
    reason: Annotated[str, "NOT_PRESENT, NOT_ACTIVE or NOT_UP_TO_BOUND"]
    message: str
    owner: Annotated[str, "HOST:PORT of the instance whose task runs; empty if unknown"]


class PartitionRow(TypedDict):
    """A partition that is in the result."""

    partition: int
    state: Annotated[str, "running, catching up or standby"]
    lag: Annotated[int | None, "how many offsets of the changelog it lacks; null while unknown"]


class ResultRow(TypedDict):
    """A key with its value."""

    key: Content
    value: Content
    timestamp: Annotated[int | None, "that of the value, in milliseconds since 1970, if the store keeps it"]
    window: Annotated[list[int] | None, "the start and the end of the window, in milliseconds since 1970"]


class ResultsRow(TypedDict):
    """The result of a query."""

    rows: list[ResultRow]
    partitions: list[PartitionRow]
    failures: list[FailureRow]
    more: Annotated[bool, f"whether there are more rows here than the limit, or than {RESULT_BYTES_MAX >> 20} MiB"]


class OwnerRow(TypedDict):
    """Where the state of a key is."""

    partition: int
    active: Annotated[str, "HOST:PORT of the instance whose task runs; empty if unknown"]
    standby: Annotated[list[str], "those with standbys"]


class OwnerQuery(TypedDict):
    """A key."""

    key: NotRequired[Annotated[str, "the key, as text"]]
    key_base64: NotRequired[Annotated[str, "the key in base64, if it is no text"]]


class StoreQuery(OwnerQuery):
    """What is to be found."""

    first: NotRequired[Annotated[str, "the first key of a range"]]
    last: NotRequired[Annotated[str, "the last key of a range"]]
    from_ms: NotRequired[Annotated[int, "the earliest start of windows, in milliseconds since 1970"]]
    to_ms: NotRequired[Annotated[int, "the latest start of windows"]]
    limit: NotRequired[Annotated[int, f"the maximum number of rows; {LIMIT} if left out, at most {LIMIT_MAX}"]]
    stale: NotRequired[Annotated[bool, "whether standbys and tasks that restore their state answer, too"]]


class QueryIsRefused(ActionRefused):
    """The query of a key is refused."""

    def __init__(self, failures: list[QueryFailure]) -> None:
        super().__init__("; ".join(one.message for one in failures))
        self.details = {"failures": [_failure_row(one) for one in failures]}


@dataclass(frozen=True, slots=True)
class ControlledInstance:
    """The object that the control plane of an instance queries."""

    streams: Streams
    events: Events

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine."""
        return await work


async def get_tasks(on: ControlledInstance, request: ControlRequest) -> list[TaskRow]:
    """Get the tasks of the instance."""
    progress = {one.task: one for one in on.streams.progress()}
    return [
        {
            "task": str(task_id),
            "state": task.state.value,
            "inputs": [f"{one.topic}-{one.partition}" for one in task.partitions],
            "stores": list(task.stores),
            "position": progress[task_id].position,
            "end": progress[task_id].end,
            "keys": task.state_manager.entries,
            "waits_for": on.streams.awaited_state(task_id),
        }
        for task_id, task in sorted(on.streams.tasks.items())
    ]


async def get_stores(on: ControlledInstance, request: ControlRequest) -> list[StoreRow]:
    """Get the stores of the application."""
    return [
        {
            "store": name,
            "kind": _kind(part, name),
            "subtopology": part.index,
        }
        for part in (*on.streams.built.subtopologies, *on.streams.built.global_tables)
        for name in part.stores
    ]


async def query_store(on: ControlledInstance, request: ControlRequest) -> ResultsRow:
    """Query a store. Raises ValueError, UnknownNode for an unknown store, ActionRefused for a key that is not here."""
    name, part = request.words["store"], _part_of(on, request)
    query = parse_query(request.query, windowed=name in part.windows)
    try:
        result = on.streams.query(name, query, stale=_flag(request.query, "stale"), value=BYTES)
    except StreamsError as error:
        raise ActionRefused(str(error)) from None
    if result.failures and (not isinstance(query, RangeQuery) and query.key is not None):
        raise QueryIsRefused(result.failures)
    return _results_row(result)


async def get_owner(on: ControlledInstance, request: ControlRequest) -> OwnerRow:
    """Get the instances with the state of a key."""
    _part_of(on, request)
    key = _key(request.query)
    if key is None:
        raise ValueError("name the key: ?key=KEY, or ?key_base64=...")
    try:
        found = on.streams.query_metadata_for_key(request.words["store"], key)
    except StreamsError as error:
        raise ActionRefused(str(error)) from None
    return {"partition": found.partition, "active": found.active, "standby": list(found.standby)}


def parse_query(query: Mapping[str, str], *, windowed: bool) -> Query:
    """Make the query of a request's parameters. Raises ValueError."""
    key, limit = _key(query), _number(query, "limit", LIMIT)
    if limit > LIMIT_MAX:
        raise ValueError(f"limit is at most {LIMIT_MAX}, not {limit}")
    useless = [one for one in (RANGE if windowed else WINDOWS) if one in query]
    if useless:
        instead = f"it has windows: {' and '.join(WINDOWS)} choose them" if windowed else "it has no windows"
        raise ValueError(f"{useless[0]} is no parameter of this store; {instead}")
    if windowed:
        to_ms = _number(query, "to_ms") if "to_ms" in query else None
        return WindowQuery(_number(query, "from_ms"), to_ms, key, limit, RESULT_BYTES_MAX)
    if key is None:
        first, last = (query[one].encode() if one in query else None for one in RANGE)
        return RangeQuery(first, last, limit, RESULT_BYTES_MAX)
    if extra := [one for one in RANGE if one in query]:
        raise ValueError(f"a query is for a key or for a range: leave out key or {extra[0]}")
    return KeyQuery(key)


def _part_of(on: ControlledInstance, request: ControlRequest) -> Subtopology:
    try:
        return subtopology_with(on.streams.built, request.words["store"])
    except ValueError as error:
        raise UnknownNode(str(error)) from None


def _key(query: Mapping[str, str]) -> bytes | None:
    given = [one for one in KEYS if one in query]
    if len(given) > 1:
        raise ValueError("key and key_base64 are two ways to write one key: leave one out")
    if not given:
        return None
    if given[0] == "key":
        return query["key"].encode()
    try:
        return base64.b64decode(query["key_base64"], validate=True)
    except binascii.Error as error:
        raise ValueError(f"key_base64: {error}") from None


def _number(query: Mapping[str, str], name: str, absent: int = 0) -> int:
    text = query.get(name)
    if text is None:
        return absent
    if not text.isdecimal():
        raise ValueError(f"{name} is a whole number, not {text[:40]!r}")
    return int(text[:19])


def _flag(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "false")
    if text not in ("true", "false"):
        raise ValueError(f"{name} is true or false, not {text[:40]!r}")
    return text == "true"


def _kind(part: Subtopology, store: str) -> str:
    windows = part.windows.get(store)
    if windows is not None:
        return "sessions" if isinstance(windows, SessionWindows) else "windows"
    if part.index == GLOBAL:
        return "global"
    return "join" if store in part.key_suffixes else "keys"


def _results_row(result: QueryResult) -> ResultsRow:
    return {
        "rows": [_row(one) for one in result.rows],
        "partitions": [
            {"partition": partition, "state": one.state.value, "lag": one.lag}
            for partition, one in sorted(result.partitions.items())
        ],
        "failures": [_failure_row(one) for one in result.failures],
        "more": result.more,
    }


def _row(row: QueryRow) -> ResultRow:
    return {
        "key": to_value(row.key),
        "value": to_value(row.value),
        "timestamp": row.timestamp_ms,
        "window": None if row.window is None else [row.window.start_ms, row.window.end_ms],
    }


def _failure_row(failure: QueryFailure) -> FailureRow:
    return {
        "partition": failure.partition,
        "reason": failure.reason.value,
        "message": failure.message,
        "owner": failure.owner,
    }


INSTANCE_ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/v1/tasks", "The tasks of the instance, with the progress of their state.", get_tasks),
    Route("GET", "/v1/stores", "The stores of the application.", get_stores),
    Route("GET", "/v1/stores/{store}", "Query a store: a key, a range of keys, or windows.", query_store, StoreQuery),
    Route("GET", "/v1/stores/{store}/owner", "The instances with the state of a key.", get_owner, OwnerQuery),
)
