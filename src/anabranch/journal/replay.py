"""Replays recorded requests on another cluster in order, and reports different responses.

A request is sent after the responses that preceded it in the recording: causal order and concurrency are kept. With a
pace, it is also not sent earlier than recorded. Generated ids are replaced by those of the other cluster
(`id_mapping`).

Each recorded connection gets its own connections, to the broker that serves the request there (`routes`), or else to
the broker with the same id. Requests that fail because the other cluster is not ready (no leader, no coordinator) are
retried if they succeeded in the recording.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from anabranch.clients.config import parse_servers
from anabranch.clients.connection import Connection
from anabranch.journal.comparison import Namer, plain, unequal
from anabranch.journal.id_mapping import FROM_ZERO, IdMapping
from anabranch.journal.routes import Routes
from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.protocol.connection import decode_request, decode_response
from anabranch.protocol.error_codes import error_codes
from anabranch.protocol.errors import DecodeError, KafkaError
from anabranch.protocol.registry import APIS
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.clients.security import Security
    from anabranch.journal.recording import RecordedExchange
    from anabranch.protocol.codec import DecodedRequest

READABLE: Final = {api.key: (0, api.last_version) for api in APIS}
LOGINS: Final = (17, 36)
"""SaslHandshake and SaslAuthenticate: the replay logs in by itself."""
PRODUCE: Final = 0
PATIENCE_S: Final = 15.0
"""How much longer than recorded a response may take."""
READY_S: Final = 10.0
AGAIN_S: Final = 0.05
NOT_YET: Final = frozenset({5, 6, 14, 15, 16, 41})
"""LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
NOT_COORDINATOR, NOT_CONTROLLER."""
PLACED: Final = re.compile(
    r"(^|\.)(node_id|leader_id|replica_nodes|isr_nodes|offline_replicas|broker_id|node_endpoints)\b"
)
"""Fields that name a location."""
CLOSED: Final = "the connection was closed"
SILENT: Final = "no answer"


@value
class Difference:
    """A field of a response that differs from the recording."""

    path: str
    """Empty if the response is missing."""
    then: Any
    now: Any


@value
class ReplayedExchange:
    """One request and its outcome."""

    recorded: RecordedExchange
    api: str
    version: int
    client_id: str
    differences: tuple[Difference, ...]
    left_out: str = ""
    """Why it was not sent; empty if it was."""


class _Sent:
    def __init__(self, recorded: RecordedExchange, request: DecodedRequest, message: Any) -> None:
        self.recorded = recorded
        self.request = request
        self.message = message
        self.then: Any = None
        if recorded.answer:
            self.then = decode_response(recorded.answer, request.api, request.version)
        self.answer: asyncio.Future[Any] | None = None


class Replay:
    """The replay of one recording on one cluster."""

    def __init__(self, recorded: Sequence[RecordedExchange], servers: str, security: Security | None = None) -> None:
        self._recorded = recorded
        self._servers = parse_servers(servers)
        self._security = security
        self._routes = Routes()
        self._connections: dict[tuple[str, int], Connection] = {}
        self._counterparts = IdMapping()
        self._then, self._now = Namer("", FROM_ZERO), Namer("", FROM_ZERO)
        self._under_way: list[_Sent] = []

    async def play(self, pace: float | None = None) -> AsyncIterator[ReplayedExchange]:
        """Yield each request as soon as it is answered. `pace`: recorded seconds per real second; None: no delays.

        Raises ConnectionError if the cluster is unreachable, AuthenticationFailed if the login fails.
        """
        await self._find_brokers()
        loop = asyncio.get_running_loop()
        began_s, first_s = loop.time(), self._recorded[0].at_s
        try:
            for one in self._recorded:
                async for done in self._settle(one.at_s):
                    yield done
                if pace is not None:
                    await asyncio.sleep((one.at_s - first_s) / pace - (loop.time() - began_s))
                left_out = await self._send(one)
                if left_out is not None:
                    yield left_out
            async for done in self._settle(float("inf")):
                yield done
        finally:
            for connection in self._connections.values():
                await connection.close()

    async def _find_brokers(self) -> None:
        """Ask the first server that answers. Raises the last one's error if none does."""
        *first, last = self._servers
        for host, port in first:
            with contextlib.suppress(ConnectionError, TimeoutError):
                await self._find_brokers_of(host, port)
                return
        await self._find_brokers_of(*last)

    async def _find_brokers_of(self, host: str, port: int) -> None:
        connection = await Connection.open(host, port, client_id="anabranch-replay", security=self._security)
        try:
            answer = await connection.call(MetadataRequest(topics=[]))
        finally:
            await connection.close()
        self._routes.learn("Metadata", None, answer)

    async def _send(self, recorded: RecordedExchange) -> ReplayedExchange | None:
        """Send a request; returns the outcome at once if it is not sent, or gets no response."""
        try:
            request = decode_request(recorded.request, READABLE, len(recorded.request))
        except DecodeError as error:
            return ReplayedExchange(recorded, "?", -1, "", (), f"it cannot be decoded: {error.reason}")
        if request.body is None or request.api.key in LOGINS:
            return _left_out(recorded, request, "logins are not replayed" if request.body else "unknown version")
        message = self._counterparts.translate(request.body)
        try:
            sent = _Sent(recorded, request, message)
        except DecodeError as error:
            return _left_out(recorded, request, f"its recorded response cannot be decoded: {error.reason}")
        if (codes := _errors(sent.then)) and codes <= NOT_YET:
            return _left_out(recorded, request, "the client retried it")
        try:
            if request.api.key == PRODUCE and message.acks == 0:
                (await self._connection(sent)).send_oneway(message, version=request.version)
                return ReplayedExchange(recorded, request.api.name, request.version, request.client_id or "", ())
            await self._ask(sent)
        except (ConnectionError, TimeoutError, KafkaError) as error:
            return self._compare(sent, str(error) or CLOSED)
        self._under_way.append(sent)
        return None

    async def _ask(self, sent: _Sent) -> None:
        connection, recorded = await self._connection(sent), sent.recorded
        took_s = 0.0 if recorded.answered_s is None else recorded.answered_s - recorded.at_s
        sent.answer = connection.send(
            sent.message, version=sent.request.version, timeout_ms=(took_s + PATIENCE_S) * 1000
        )

    async def _connection(self, sent: _Sent) -> Connection:
        request, routes = sent.request, self._routes
        node_id = routes.node_for(request.api.name, sent.message, request.version)
        if node_id is None:
            node_id = sent.recorded.node_id if sent.recorded.node_id in routes.addresses else min(routes.addresses)
        key = sent.recorded.connection, node_id
        known = self._connections.get(key)
        if known is None or known.closed:
            host, port = routes.addresses[node_id]
            known = await Connection.open(host, port, client_id=request.client_id, security=self._security)
            self._connections[key] = known
        return known

    async def _settle(self, at_s: float) -> AsyncIterator[ReplayedExchange]:
        """Wait for the responses that were recorded before this time; also yield others that have arrived."""
        waiting, self._under_way = self._under_way, []
        for sent in waiting:
            assert sent.answer is not None, "it is in progress"
            then_s = sent.recorded.answered_s
            if not sent.answer.done() and (then_s is None or then_s > at_s) and at_s != float("inf"):
                self._under_way.append(sent)
            elif then_s is None and not sent.answer.done():
                sent.answer.cancel()  # unanswered in the recording: no response is awaited
            else:
                yield self._compare(sent, await self._outcome(sent))

    async def _outcome(self, sent: _Sent) -> Any:
        """The response, or why there is none."""
        loop, request = asyncio.get_running_loop(), sent.request
        end_s = loop.time() + READY_S
        expected = _errors(sent.then)
        while True:
            assert sent.answer is not None, "it is in progress"
            try:
                now = await sent.answer
                self._routes.learn(request.api.name, sent.message, now)
                if not (_errors(now) - expected) & NOT_YET or loop.time() > end_s:
                    return now
                await asyncio.sleep(AGAIN_S)
                await self._find_brokers()
                await self._ask(sent)
            except TimeoutError:
                return SILENT
            except ConnectionError:
                return CLOSED

    def _compare(self, sent: _Sent, now: Any) -> ReplayedExchange:
        request, recorded, then = sent.request, sent.recorded, sent.then
        differences: tuple[Difference, ...] = ()
        if then is not None and not _errors(then) & NOT_YET:
            if isinstance(now, str):
                differences = (Difference("", "an answer", now),)
            else:
                self._counterparts.learn(request.body, then, now)
                version = request.version
                pair = plain(then, version, self._then), plain(now, version, self._now)
                found = (Difference(*one) for one in unequal(*pair))
                differences = tuple(one for one in found if PLACED.search(one.path) is None)
        return ReplayedExchange(recorded, request.api.name, request.version, request.client_id or "", differences)


def _left_out(recorded: RecordedExchange, request: DecodedRequest, why: str) -> ReplayedExchange:
    return ReplayedExchange(recorded, request.api.name, request.version, request.client_id or "", (), why)


def _errors(answer: Any) -> frozenset[int]:
    return frozenset() if answer is None else frozenset(error_codes(answer, type(answer)))


def row(replayed: ReplayedExchange) -> Mapping[str, Any]:
    """The outcome as a JSON row."""
    return {
        "number": replayed.recorded.number,
        "node": replayed.recorded.node_id,
        "client_id": replayed.client_id,
        "api": replayed.api,
        "version": replayed.version,
        "left_out": replayed.left_out or None,
        "differences": [{"path": one.path, "then": one.then, "now": one.now} for one in replayed.differences],
    }
