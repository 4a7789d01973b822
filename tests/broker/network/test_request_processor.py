"""Concurrent Produce requests of one connection that wait for replicas: start and response order."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from typing import Any

from anabranch.broker.authorization.peer import Peer as BrokersPeer
from anabranch.broker.dispatch.dispatcher import Dispatcher
from anabranch.broker.dispatch.request_context import CloseConnection, RequestContext
from anabranch.broker.network.request_pipeline import PIPELINED_PRODUCES_MAX
from anabranch.broker.network.request_processor import REQUESTS_PER_STEP
from anabranch.broker.network.response_override import ConnectionHandle, ResponseOverride
from anabranch.broker.quotas.client_quotas import FETCH, ClientQuotas
from anabranch.broker.quotas.throttling import Throttling
from anabranch.broker.tasks.replication_future import ReplicationFuture
from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.apis.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.connection import ClientConnection
from tests.broker.replication.replica_cluster import batch, log_values, produce_request, replica_cluster
from tests.broker.serving import Peer, peer, serving, until

VERSION = 8


class Producing:
    """A Produce handler with given behavior, and a client."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.waits: dict[int, asyncio.Future[None]] = {}
        self.given_up: list[int] = []
        self.works: set[int] = set()
        """Who has to work before it only waits for replicas."""
        self.fails: dict[int, Exception] = {}
        """Who raises what, after its wait."""
        self.at_once: set[int] = set()
        self.throttle_ms: dict[int, int] = {}
        """Whose client is to wait for how long."""
        self._core = ClientConnection("t")

    async def __call__(self, ctx: RequestContext, request: Any) -> ProduceResponse:
        number = request.timeout_ms
        self.started.append(number)
        try:
            if number in self.works:
                self.waits[number] = asyncio.get_running_loop().create_future()
                await self.waits[number]
            if number not in self.at_once:
                self.waits[number] = ReplicationFuture(loop=asyncio.get_running_loop())
                await self.waits[number]
        except asyncio.CancelledError:
            self.given_up.append(number)
            raise
        if number in self.fails:
            raise self.fails[number]
        row = PartitionProduceResponse(index=0, error_code=0, base_offset=number)
        return ProduceResponse(
            responses=[TopicProduceResponse(name="t", partition_responses=[row])],
            throttle_time_ms=self.throttle_ms.get(number, 0),
        )

    def send(self, to: Peer, *numbers: int) -> None:
        """Produces with these numbers, in one write."""
        for number in numbers:
            self._write(to, produce_request(batch("a"), timeout_ms=number), VERSION)

    def ask(self, to: Peer) -> None:
        """A request that is no Produce."""
        self._write(to, ApiVersionsRequest(), 0)

    def _write(self, to: Peer, message: Any, version: int) -> None:
        _, chunks = self._core.request(message, version)
        to.writer.write(b"".join(map(bytes, chunks)))

    def release(self, *numbers: int) -> None:
        """Let them end their waits."""
        for number in numbers:
            self.waits[number].set_result(None)

    def received(self, frame: bytes) -> Any:
        """The answer in a frame."""
        ((_, answer),) = self._core.receive(struct.pack(">i", len(frame)) + frame)
        return answer

    async def answered(self, one: Peer, *numbers: int) -> None:
        """These are answered next, in this order."""
        for number in numbers:
            answer = self.received(await one.frame())
            assert answer.responses[0].partition_responses[0].base_offset == number


async def test_pipelined_produces_start_during_replication_and_are_answered_in_order() -> None:
    producing = Producing()
    producing.at_once = {3}
    async with serving({"Produce": producing}) as server, peer(server.port) as one:
        producing.send(one, 1, 2)
        await until(lambda: producing.started == [1, 2])
        producing.send(one, 3)
        producing.send(one, 4)
        await until(lambda: producing.started == [1, 2, 3, 4])
        producing.release(4, 2)
        await asyncio.sleep(0.01)
        assert server.sent_bytes == 0, "an answer has overtaken one before it"
        producing.release(1)
        await producing.answered(one, 1, 2, 3, 4)
        producing.send(one, 5)
        await until(lambda: producing.started[-1] == 5)
        producing.release(5)
        await producing.answered(one, 5)


async def test_no_request_starts_before_the_previous_produce_has_appended() -> None:
    """Batches are appended in the order of their requests."""
    producing = Producing()
    producing.works = {1, 3}
    async with serving({"Produce": producing}) as server, peer(server.port) as one:
        producing.send(one, 1, 2, 3, 4)
        await until(lambda: 1 in producing.waits)
        received_bytes = server.received_bytes
        producing.send(one, 5)
        await until(lambda: server.received_bytes > received_bytes)
        assert producing.started == [1]
        producing.release(1)
        await until(lambda: producing.started == [1, 2, 3])
        await asyncio.sleep(0.01)
        assert producing.started == [1, 2, 3]
        producing.release(1, 2, 3)
        await producing.answered(one, 1, 2)
        await until(lambda: producing.started == [1, 2, 3, 4, 5])
        producing.release(3, 4, 5)
        await producing.answered(one, 3, 4, 5)


async def test_only_produces_are_pipelined_and_up_to_a_limit() -> None:
    producing = Producing()
    async with serving({"Produce": producing}) as server, peer(server.port) as one:
        producing.send(one, *range(8))
        producing.ask(one)
        producing.send(one, 8)
        await until(lambda: len(producing.started) == PIPELINED_PRODUCES_MAX)
        await asyncio.sleep(0.01)
        assert producing.started == list(range(PIPELINED_PRODUCES_MAX))
        for number in range(8):
            last = min(number + PIPELINED_PRODUCES_MAX, 8)
            await until(lambda last=last: len(producing.started) == last)
            producing.release(number)
            await producing.answered(one, number)
        assert producing.received(await one.frame()).api_keys
        await until(lambda: producing.started[-1] == 8)
        producing.release(8)
        await producing.answered(one, 8)


async def test_other_request_waits_for_a_pending_produce() -> None:
    producing = Producing()
    async with serving({"Produce": producing}) as server, peer(server.port) as one:
        producing.send(one, 1)
        await until(lambda: producing.started == [1])
        received_bytes = server.received_bytes
        producing.ask(one)
        await until(lambda: server.received_bytes > received_bytes)
        await asyncio.sleep(0.01)
        assert server.sent_bytes == 0
        producing.release(1)
        await producing.answered(one, 1)
        assert producing.received(await one.frame()).api_keys
        (connection,) = server._connections
        assert not connection.busy


async def test_pending_produces_complete_without_a_switch_to_the_connections_task() -> None:
    """A task switch costs a tenth of a small Produce."""
    producing = Producing()
    producing.works = {2}
    async with serving({"Produce": producing}) as server, peer(server.port) as one:
        producing.send(one, 0)
        await until(lambda: producing.started == [0])
        producing.release(0)
        await producing.answered(one, 0)  # whoever answered it, the task waits for bytes now
        (connection,) = server._connections
        await until(lambda: connection._serving.wakeup is not None)
        asleep = connection._serving.wakeup
        for number in (1, 2, 3):
            producing.send(one, number)
        await until(lambda: producing.started == [0, 1, 2])
        producing.release(2)
        producing.release(1)
        await until(lambda: producing.started == [0, 1, 2, 3])
        producing.release(2, 3)
        await producing.answered(one, 1, 2, 3)
        assert connection._serving.wakeup is asleep and not asleep.done()


async def test_drained_connection_closes_after_its_pending_responses() -> None:
    producing = Producing()
    async with serving({"Produce": producing}) as server, peer(server.port) as one:
        producing.send(one, 1)
        await until(lambda: producing.started == [1])
        (connection,) = server._connections
        task = connection.drain()
        assert task is not None
        producing.send(one, 2)
        await asyncio.sleep(0.01)
        producing.release(1)
        await producing.answered(one, 1)
        await task
        assert await one.closed() and producing.started == [1]


async def test_connection_with_many_requests_yields_between_them() -> None:
    producing, loop = Producing(), asyncio.get_running_loop()
    numbers = range(8 * REQUESTS_PER_STEP)
    producing.at_once.update(numbers)
    turn, turns = 0, Counter[int]()

    def count_turn() -> None:
        nonlocal turn
        turn += 1
        if turns.total() < len(numbers):
            loop.call_soon(count_turn)

    async def produce(ctx: RequestContext, request: Any) -> ProduceResponse:
        turns[turn] += 1
        return await producing(ctx, request)

    async with serving({"Produce": produce}) as server, peer(server.port) as one:
        loop.call_soon(count_turn)
        producing.send(one, *numbers)
        await producing.answered(one, *numbers)
    assert max(turns.values()) == REQUESTS_PER_STEP


async def test_no_request_starts_after_a_throttled_response() -> None:
    """A throttled client must not have other requests processed."""
    producing = Producing()
    producing.throttle_ms = {1: 60_000}
    async with serving({"Produce": producing}) as server, peer(server.port) as one:
        limits = ClientQuotas(window_ms=1000, samples=2)
        limits.set_limits((None, "somebody else"), {FETCH: 1.0})
        server.dispatcher.throttling = Throttling(
            limits,
            clock_ms=lambda: 0,
            clock_s=asyncio.get_running_loop().time,
            request_longest_ms=1000,
            take_back=lambda *_: 0,
        )
        producing.send(one, 1, 2)
        await until(lambda: producing.started == [1])
        producing.release(1)
        await producing.answered(one, 1)
        (connection,) = server._connections
        await until(lambda: connection._muted is not None)
        await asyncio.sleep(0.01)
        assert producing.started == [1]
        connection._unmute()
        await until(lambda: producing.started == [1, 2])
        producing.release(2)
        await producing.answered(one, 2)


async def test_stale_wait_does_not_step_the_current_request() -> None:
    """Otherwise each wait would leave a callback behind."""
    producing = Producing()
    async with serving({"Produce": producing}) as server, peer(server.port) as one:
        producing.send(one, 1)
        await until(lambda: producing.started == [1])
        (connection,) = server._connections
        before = ReplicationFuture(loop=asyncio.get_running_loop())
        before.set_result(None)
        waiting = producing.waits[1]
        callbacks = list(waiting._callbacks)
        asyncio.get_running_loop().call_soon(connection._on_awaited_done, before)  # outside of any task, as futures do
        await asyncio.sleep(0)
        assert waiting._callbacks == callbacks
        producing.release(1)
        await producing.answered(one, 1)


async def test_paused_connection_resumes_reading_after_a_pending_produce() -> None:
    producing = Producing()
    async with serving({"Produce": producing}) as server, peer(server.port) as one:
        producing.send(one, *range(PIPELINED_PRODUCES_MAX))
        await until(lambda: len(producing.started) == PIPELINED_PRODUCES_MAX)
        (connection,) = server._connections
        server.buffered_bytes_max = 10_000
        more = range(PIPELINED_PRODUCES_MAX, 4000)
        one.writer.transport.set_write_buffer_limits(high=1 << 30)
        producing.send(one, *more)
        await until(lambda: connection._read_paused)
        producing.at_once = set(more)
        producing.release(*range(PIPELINED_PRODUCES_MAX))
        await producing.answered(one, *range(4000))


async def test_failed_produce_closes_in_order_and_later_ones_are_abandoned() -> None:
    producing = Producing()
    producing.fails[2] = CloseConnection("no more")
    async with serving({"Produce": producing}) as server, peer(server.port) as one:
        producing.send(one, 1, 2, 3)
        await until(lambda: producing.started == [1, 2, 3])
        producing.release(2, 1)
        await producing.answered(one, 1)
        assert await one.closed()
        assert producing.given_up == [3]


async def test_processed_request_sees_that_its_connection_is_lost() -> None:
    peers: list[BrokersPeer] = []
    producing, others = Producing(), Producing()

    async def produce(ctx: RequestContext, request: Any) -> ProduceResponse:
        peers.append(ctx.peer)
        return await producing(ctx, request)

    async with serving({"Produce": produce}) as server, peer(server.port) as one, peer(server.port) as other:
        producing.send(one, 1)
        others.send(other, 2)
        await until(lambda: len(peers) == 2)
        gone, here = sorted(peers, key=lambda peer: peer.port != one.writer.get_extra_info("sockname")[1])
        assert not gone.connection.is_lost
        one.writer.close()
        await until(lambda: gone.connection.is_lost)
        assert not here.connection.is_lost
        producing.release(1, 2)
        await others.answered(other, 2)


async def test_malformed_request_does_not_drop_earlier_responses() -> None:
    producing = Producing()
    async with serving({"Produce": producing}) as server, peer(server.port) as one:
        producing.send(one, 1, 2)
        one.send(struct.pack(">hhih", 0, VERSION, 9, 1) + b"t" + b"\xff" * 20)
        await until(lambda: producing.started == [1, 2])
        producing.release(1, 2)
        await producing.answered(one, 1, 2)
        assert await one.closed()


async def test_no_response_follows_an_unanswered_request() -> None:
    class Silence(ResponseOverride):
        async def apply(self, connection: ConnectionHandle) -> None:
            return

    class Silencing(Dispatcher):
        def __init__(self, inner: Dispatcher) -> None:
            self.inner = inner
            self.audiences, self.throttling, self.long_polls = inner.audiences, inner.throttling, inner.long_polls

        async def answer(self, request: DecodedRequest, peer: BrokersPeer) -> Any:
            response = await self.inner.answer(request, peer)
            if request.body.timeout_ms == 1:
                raise Silence
            return response

    producing = Producing()
    async with serving({"Produce": producing}) as server, peer(server.port) as one:
        server.dispatcher = Silencing(server.dispatcher)
        producing.send(one, 1, 2, 3)
        await until(lambda: producing.started == [1, 2, 3])
        producing.release(1, 2)
        await until(lambda: producing.given_up == [2, 3])
        producing.send(one, 4)
        await asyncio.sleep(0.01)
        assert producing.started == [1, 2, 3] and server.sent_bytes == 0


async def test_pending_produces_of_a_closed_connection_are_abandoned_at_shutdown() -> None:
    producing = Producing()
    async with serving({"Produce": producing}) as server:
        async with peer(server.port) as one:
            producing.send(one, 1, 2)
            await until(lambda: producing.started == [1, 2])
        (connection,) = server._connections
        await until(lambda: connection._transport is None)
        assert not producing.given_up
        await connection.stop()
        assert producing.given_up == [1, 2]


async def test_followers_fetch_batches_of_pipelined_produces_together() -> None:
    """The second batch is in the log before the first is replicated; each is acknowledged separately."""
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2), isr=(1, 2), only=(1,))
        connection = await cluster[1].connect()
        sent = [
            connection.send(produce_request(batch(str(number), producer=(7, 0), sequence=number)))
            for number in range(PIPELINED_PRODUCES_MAX)
        ]
        expected = list(map(str, range(PIPELINED_PRODUCES_MAX)))
        await until(lambda: log_values(cluster.partition(1)) == expected)
        assert cluster.partition(1).high_watermark == 0 and not any(one.done() for one in sent)
        await cluster.tell("t", 0, only=(2,))
        rows = [response.responses[0].partition_responses[0] for response in await asyncio.gather(*sent)]
        assert [(row.error_code, row.base_offset) for row in rows] == [
            (0, number) for number in range(PIPELINED_PRODUCES_MAX)
        ]
        assert log_values(cluster.partition(2)) == expected
        await connection.close()
