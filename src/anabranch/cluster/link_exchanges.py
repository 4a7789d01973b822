"""The last exchanges of each consumer with the nodes, as they passed the proxy: request, node and outcome.

A run that does not converge cannot be repeated exactly. These lines show afterwards which request of a member has no
response, or which error is repeated. Frames are kept as they are, and decoded only for the report.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from anabranch.protocol.connection import decode_response
from anabranch.protocol.error_codes import error_codes
from anabranch.protocol.errors import DecodeError, ErrorCode
from anabranch.protocol.framing import LENGTH_BYTES, FrameReader
from anabranch.protocol.registry import BY_KEY

CONSUMER_APIS: Final = frozenset({1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 23, 68})
"""The keys of the APIs that consumers use; others are not kept."""
KEPT: Final = 5
"""The exchanges kept of each client and API: frequent APIs do not displace rare ones."""
CLIENTS_MAX: Final = 200
KEPT_BYTES_MAX: Final = 65536
HEADER_BYTES: Final = 10
Direction = Literal["both", "there", "back"]


@dataclass(slots=True)
class Exchange:
    """One request of a client, and its response."""

    node: str
    request: bytes
    at_s: float
    response: bytes | None = None
    took_s: float = -1.0
    lost: bool = False
    """Whether the connection ended before the response."""

    def line(self, now_s: float) -> str:
        """Format the exchange: age, API, node, outcome."""
        key, version = int.from_bytes(self.request[:2], "big"), int.from_bytes(self.request[2:4], "big")
        head = f"{now_s - self.at_s:.1f} s ago: {BY_KEY[key].name} v{version} to node {self.node}"
        if self.lost:
            return f"{head}: the connection ended before the response"
        if self.response is None:
            return f"{head}: no response"
        return f"{head}: {', '.join(self._errors(key, version))} after {self.took_s * 1000:.0f} ms"

    def _errors(self, key: int, version: int) -> list[str]:
        """Return the names of the response's errors, or NONE."""
        assert self.response is not None
        if len(self.response) >= KEPT_BYTES_MAX:
            return [f"{len(self.response)} bytes"]
        try:
            response = decode_response(self.response, BY_KEY[key], version)
        except DecodeError as error:
            return [f"unreadable: {error}"]
        codes = dict.fromkeys(error_codes(response, type(response)))
        return [ErrorCode(code).name for code in codes if code != ErrorCode.NONE] or [ErrorCode.NONE.name]


class RecentExchanges:
    """The last exchanges of each client and API."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[int, deque[Exchange]]] = {}

    @property
    def clients(self) -> list[str]:
        """The known client ids."""
        return list(self._kept)

    def keep(self, client_id: str, key: int, exchange: Exchange) -> None:
        """Add an exchange."""
        if client_id not in self._kept and len(self._kept) >= CLIENTS_MAX:
            del self._kept[next(iter(self._kept))]
        of_client = self._kept.setdefault(client_id, {})
        of_client.setdefault(key, deque(maxlen=KEPT)).append(exchange)

    def lines(self, client_id: str, now_s: float) -> Iterator[str]:
        """Yield the exchanges of a client, oldest first."""
        kept = [one for queue in self._kept.get(client_id, {}).values() for one in queue]
        yield from (one.line(now_s) for one in sorted(kept, key=lambda one: one.at_s))


class LinkExchanges:
    """The exchanges of one connection: matches responses to requests by their correlation ids."""

    def __init__(self, node: str, recent: RecentExchanges, clock: Callable[[], float]) -> None:
        self._node = node
        self._recent = recent
        self._clock = clock
        self._waiting: dict[int, Exchange] = {}
        self._reader = FrameReader()

    def record(self, direction: Direction, data: bytes) -> None:
        """Record what the proxy passes on: a whole request, or bytes of responses."""
        if direction == "there":
            self._sent(data)
        else:
            self._received(data)

    def _sent(self, framed: bytes) -> None:
        frame = framed[LENGTH_BYTES:]
        key = int.from_bytes(frame[:2], "big")
        if key in CONSUMER_APIS and len(frame) >= HEADER_BYTES:
            exchange = Exchange(self._node, frame, self._clock())
            self._recent.keep(client_id_of(frame), key, exchange)
            self._waiting[int.from_bytes(frame[4:8], "big", signed=True)] = exchange

    def _received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (frame := self._reader.next_frame()) is not None:
            exchange = self._waiting.pop(int.from_bytes(frame[:4], "big", signed=True), None)
            if exchange is not None:
                exchange.response = frame[:KEPT_BYTES_MAX]
                exchange.took_s = self._clock() - exchange.at_s

    def ended(self) -> None:
        """Record that the connection has ended."""
        for exchange in self._waiting.values():
            exchange.lost = True
        self._waiting.clear()


def client_id_of(frame: bytes) -> str:
    """Return the client id in a request's header; empty if it has none, or the header is too short."""
    length = int.from_bytes(frame[8:10], "big", signed=True)
    return frame[10 : 10 + max(length, 0)].decode(errors="replace")
