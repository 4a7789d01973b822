"""Sends what clients have sent to another cluster, in its order, and tells which answers differ.

A request is sent when those have been answered whose answers had come before it when it was recorded: what depends on
an answer waits for it, and what was under way at the same time is so again. With a pace it is not sent sooner either
than it was then. Ids that a cluster draws are replaced by those of the other (`counterparts`).

Each connection has one of its own, to the broker that the request is for there (`routes`), or else to the one of the
same id. What an other cluster cannot do yet (no leader, no coordinator) although the first one could is asked again.
"""

from __future__ import annotations

import asyncio
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
"""SaslHandshake and SaslAuthenticate: logins are those of who replays."""
PRODUCE: Final = 0
PATIENCE_S: Final = 15.0
"""How much longer than it took then an answer may take now."""
READY_S: Final = 10.0
AGAIN_S: Final = 0.05
NOT_YET: Final = frozenset({5, 6, 14, 15, 16, 41})
"""LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
NOT_COORDINATOR, NOT_CONTROLLER."""
PLACED: Final = re.compile(
    r"(^|\.)(node_id|leader_id|replica_nodes|isr_nodes|offline_replicas|broker_id|node_endpoints)\b"
)
"""Fields that say where something is."""
CLOSED: Final = "the connection was closed"
SILENT: Final = "no answer"


@value
class Difference:
    """One field of an answer that is another one now."""

    path: str
    """Empty: there was an answer, and now there is none."""
    then: Any
    now: Any


@value
class ReplayedExchange:
    """One request, and what came of it."""

    recorded: RecordedExchange
    api: str
    version: int
    client_id: str
    differences: tuple[Difference, ...]
    left_out: str = ""
    """Why it was not sent; empty: it was."""


class _Sent:
    """A request under way."""

    def __init__(self, recorded: RecordedExchange, request: DecodedRequest, message: Any) -> None:
        self.recorded = recorded
        self.request = request
        self.message = message
        self.then: Any = None
        if recorded.answer:
            self.then = decode_response(recorded.answer, request.api, request.version)
        self.answer: asyncio.Future[Any] | None = None


class Replay:
    """One recording, and the cluster that it is played to."""

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
        """Each request, as soon as it is answered. `pace`: how many seconds go by in one; None: no wait for time.

        ConnectionError, AuthenticationFailed if the cluster is not there, or lets nobody in.
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
        host, port = self._servers[0]
        connection = await Connection.open(host, port, client_id="anabranch-replay", security=self._security)
        try:
            answer = await connection.call(MetadataRequest(topics=[]))
        finally:
            await connection.close()
        self._routes.learn("Metadata", None, answer)

    async def _send(self, recorded: RecordedExchange) -> ReplayedExchange | None:
        """Send a request; what became of it already if it is not sent, or gets no answer."""
        try:
            request = decode_request(recorded.request, READABLE, len(recorded.request))
        except DecodeError as error:
            return ReplayedExchange(recorded, "?", -1, "", (), f"it cannot be read here: {error.reason}")
        if request.body is None or request.api.key in LOGINS:
            return _left_out(
                recorded, request, "logins are those of who replays" if request.body else "unknown version"
            )
        message = self._counterparts.translated(request.body)
        sent = _Sent(recorded, request, message)
        if (codes := _errors(sent.then)) and codes <= NOT_YET:
            return _left_out(recorded, request, "it could not be done yet then, and was asked again")
        try:
            if request.api.key == PRODUCE and message.acks == 0:
                (await self._connection(sent)).send_oneway(message, version=request.version)
                return ReplayedExchange(recorded, request.api.name, request.version, request.client_id or "", ())
            await self._ask(sent)
        except (ConnectionError, TimeoutError, KafkaError) as error:
            return self._compared(sent, str(error) or CLOSED)
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
        """Wait for the answers that had come by then; and take in those that are there."""
        waiting, self._under_way = self._under_way, []
        for sent in waiting:
            assert sent.answer is not None, "it is under way"
            then_s = sent.recorded.answered_s
            if not sent.answer.done() and (then_s is None or then_s > at_s) and at_s != float("inf"):
                self._under_way.append(sent)
            elif then_s is None and not sent.answer.done():
                sent.answer.cancel()  # it was not answered then, and nobody waits for it now
            else:
                yield self._compared(sent, await self._outcome(sent))

    async def _outcome(self, sent: _Sent) -> Any:
        """The answer, or why there is none."""
        loop, request = asyncio.get_running_loop(), sent.request
        end_s = loop.time() + READY_S
        expected = _errors(sent.then)
        while True:
            assert sent.answer is not None, "it is under way"
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

    def _compared(self, sent: _Sent, now: Any) -> ReplayedExchange:
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
    """For a program."""
    return {
        "number": replayed.recorded.number,
        "node": replayed.recorded.node_id,
        "client_id": replayed.client_id,
        "api": replayed.api,
        "version": replayed.version,
        "left_out": replayed.left_out or None,
        "differences": [{"path": one.path, "then": one.then, "now": one.now} for one in replayed.differences],
    }
