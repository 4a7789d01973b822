"""Keeps the last exchanges of every cluster in this process; a failing test prints those of its topics and groups.

`keep()` wraps the three methods of `ServerConnection` that every request passes. A request costs a tuple and two clock
readings: messages are kept as they were decoded, and read when a test fails. Records belong to connections and logs, so
of messages that hold records only names, error codes and sizes are kept.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from anabranch.faults.request_fields import GROUP, PARTITION, TOPIC, TOPIC_ID, TRANSACTIONAL_ID, Names, rows_of
from anabranch.journal.plain import holds_records
from anabranch.protocol.connection import ServerConnection
from anabranch.protocol.error_codes import error_codes
from anabranch.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from anabranch.protocol.codec import DecodedRequest

KEPT: Final = 2000
LINES_MAX: Final = 80
PLACES_SHOWN: Final = 6
WORD: Final = re.compile(r"[\w.-]+")

Partitions = list[tuple[Any, int, int, int]]
"""Topic, partition, error code, bytes of records."""


class Exchange:
    """One request and what was answered."""

    __slots__ = ("answer", "api", "asked", "at_s", "client_id", "correlation_id", "took_s", "version")

    def __init__(self, request: DecodedRequest) -> None:
        self.at_s = _now_s()
        self.took_s = -1.0
        self.api = request.api
        self.version = request.version
        self.client_id = request.client_id
        self.correlation_id = request.correlation_id
        body = request.body
        self.asked: Any = _partitions(body) if _with_records(body) else body
        self.answer: Any = None

    def end(self, response: Any) -> None:
        """It is answered."""
        self.took_s = _now_s() - self.at_s
        self.answer = _partitions(response) if _with_records(response) else response


def _now_s() -> float:
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return 0.0


def _with_records(message: Any) -> bool:
    kind = type(message)
    return hasattr(kind, "__dataclass_fields__") and holds_records(kind)


def _partitions(message: Any) -> Partitions:
    found: Partitions = []
    for topic in getattr(message, "topic_data", None) or getattr(message, "responses", None) or ():
        name = getattr(topic, "name", None) or getattr(topic, "topic", None) or getattr(topic, "topic_id", b"")
        for one in getattr(topic, "partition_data", None) or getattr(topic, "partitions", None) or ():
            index = one.index if hasattr(one, "index") else one.partition_index
            records = one.records
            found.append((name, index, getattr(one, "error_code", 0), len(records) if records else 0))
    return found


class Exchanges:
    """The last exchanges, the oldest first."""

    def __init__(self) -> None:
        self.kept: deque[Exchange] = deque(maxlen=KEPT)
        self._open: dict[int, Exchange] = {}

    def clear(self) -> None:
        """Forget all: another test begins."""
        self.kept.clear()
        self._open.clear()

    def begin(self, request: DecodedRequest) -> None:
        """A request is decoded."""
        if len(self._open) > KEPT:
            self._open.clear()  # of connections that ended
        exchange = self._open[id(request)] = Exchange(request)
        self.kept.append(exchange)

    def end(self, request: DecodedRequest, response: Any) -> None:
        """A request is answered."""
        exchange = self._open.pop(id(request), None)
        if exchange is not None:
            exchange.end(response)

    def lines(self, about: str = "") -> list[str]:
        """A line for each exchange that names a topic, group or transactional id of a text; for all if none does."""
        names = dict(pair for one in self.kept for pair in _topic_ids(one))
        rows = [(one, places(one, names)) for one in self.kept]
        words = set(WORD.findall(about))
        wanted = {name for _, found in rows for row in found for name in _names(row) if name in words}
        told = [(one, found) for one, found in rows if not wanted or any(wanted & _names(row) for row in found)]
        end_s = self.kept[-1].at_s if self.kept else 0.0
        lines = list(_folded(line_of(one, found, end_s) for one, found in told))
        left_out = len(lines) - LINES_MAX
        return lines if left_out <= 0 else [f"({left_out} lines before)", *lines[-LINES_MAX:]]


def _topic_ids(exchange: Exchange) -> Iterator[tuple[bytes, str]]:
    for message in (exchange.asked, exchange.answer):
        for topic in getattr(message, "topics", None) or getattr(message, "topic_states", None) or ():
            topic_id, name = getattr(topic, "topic_id", b""), getattr(topic, "name", "")
            name = name or getattr(topic, "topic_name", "")
            if topic_id and any(topic_id) and name:
                yield bytes(topic_id), name


def places(exchange: Exchange, names: Mapping[bytes, str]) -> list[dict[str, Any]]:
    """What an exchange is about, as rows of topic, partition, group, transactional id."""
    asked = exchange.asked
    if isinstance(asked, list):
        found = [{TOPIC: names.get(topic, topic), PARTITION: index} for topic, index, _, _ in asked]
    elif hasattr(type(asked), "__dataclass_fields__"):
        try:
            found = list(rows_of(Names(names.get, getattr(asked, "key_type", 0)), asked, exchange.version))
        except (AttributeError, KeyError, TypeError, ValueError):
            found = []  # such as a message that a rule of faults has changed
    else:
        found = []
    if isinstance(exchange.answer, list) and not any(row.get(TOPIC) for row in found):
        found += [{TOPIC: names.get(topic, topic), PARTITION: index} for topic, index, _, _ in exchange.answer]
    return found


def _names(row: dict[str, Any]) -> set[str]:
    return {row[kind] for kind in (TOPIC, GROUP, TRANSACTIONAL_ID) if isinstance(row.get(kind), str)}


def line_of(exchange: Exchange, found: Iterable[dict[str, Any]], end_s: float) -> str:
    """An exchange in one line; times are milliseconds, from the last request on."""
    shown = list(dict.fromkeys(filter(None, map(_place, found))))
    more = f" +{len(shown) - PLACES_SHOWN}" if len(shown) > PLACES_SHOWN else ""
    took = "open" if exchange.took_s < 0 else f"{exchange.took_s * 1000:.1f} ms"
    return (
        f"{(exchange.at_s - end_s) * 1000:10.1f} {exchange.client_id or '-'} #{exchange.correlation_id} "
        f"{exchange.api.name} v{exchange.version} {' '.join(shown[:PLACES_SHOWN])}{more} -> {_outcome(exchange)} {took}"
    )


def _place(row: dict[str, Any]) -> str:
    topic = row.get(TOPIC) or row.get(TOPIC_ID) or ""
    topic = topic.hex()[:8] if isinstance(topic, bytes) else topic
    partition = f"-{row[PARTITION]}" if row.get(PARTITION) is not None else ""
    owner = row.get(GROUP) or row.get(TRANSACTIONAL_ID) or ""
    return f"{owner}{'/' if owner and topic else ''}{topic}{partition if topic else ''}"


def _outcome(exchange: Exchange) -> str:
    answer = exchange.answer
    if isinstance(answer, list):
        codes = {code for _, _, code, _ in answer}
        size = f" {sum(size for _, _, _, size in answer)} bytes"
    elif hasattr(type(answer), "__dataclass_fields__"):
        codes, size = set(error_codes(answer, type(answer))), ""
    else:
        return "nothing"
    named = sorted(ErrorCode(code).name for code in codes if code)
    return ",".join(named or ["NONE"]) + size


def _folded(lines: Iterator[str]) -> Iterator[str]:
    last, key, count = "", "", 0
    for line in lines:
        same = re.sub(r"#\d+|[-\d.]+ ms$|^\s*[-\d.]+", "", line)
        if same != key and last:
            yield last if count == 1 else f"{last}   x{count}"
        count = count + 1 if same == key else 1
        last, key = line, same
    if last:
        yield last if count == 1 else f"{last}   x{count}"


EXCHANGES: Final = Exchanges()


def keep(exchanges: Exchanges = EXCHANGES) -> None:
    """Record what every `ServerConnection` of this process is asked from now on."""
    next_request: Callable[[ServerConnection], DecodedRequest | None] = ServerConnection.next_request
    next_produce: Callable[[ServerConnection], DecodedRequest | None] = ServerConnection.next_produce
    answer: Callable[[ServerConnection, Any], Any] = ServerConnection.answer

    def recorded_next_request(self: ServerConnection) -> DecodedRequest | None:
        request = next_request(self)
        if request is not None:
            exchanges.begin(request)
        return request

    def recorded_next_produce(self: ServerConnection) -> DecodedRequest | None:
        request = next_produce(self)
        if request is not None:
            exchanges.begin(request)
        return request

    def recorded_answer(self: ServerConnection, response: Any | None) -> Any:
        request = self.open
        if request is not None:
            exchanges.end(request, response)
        return answer(self, response)

    for name, method in (
        ("next_request", recorded_next_request),
        ("next_produce", recorded_next_produce),
        ("answer", recorded_answer),
    ):
        setattr(ServerConnection, name, method)
