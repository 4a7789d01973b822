"""The producer's sender task: drains the accumulator, transmits batches, and reports their outcomes.

It sleeps until an event: a new batch, a response, a connection, new metadata, or the end of a wait. Callbacks of the
loop handle responses; there is no task per request. A request holds at most one batch per partition, up to five
requests per node are in flight, and requests to one node leave in the order in which they were drained.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Final

from anabranch.clients.config import IN_FLIGHT_REQUESTS_MAX, ProducerConfig
from anabranch.clients.connection import Connection
from anabranch.clients.metadata import NO_LEADER, ClusterMetadata
from anabranch.clients.network import Network
from anabranch.clients.producer.accumulator import Accumulator
from anabranch.clients.producer.queues import Batch
from anabranch.clients.producer.stall_watch import LOOK_S, StallWatch
from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from anabranch.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

ALL: Final = -1
STARVED_REFRESH_S: Final = 5.0
"""Metadata refresh interval while partitions lack in-sync replicas, so that they get records without keys again."""
REFUSING_REFRESH_S: Final = 0.5
"""Metadata refresh interval while records are refused for lack of in-sync replicas."""
_STARVED: Final = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})


class Sender:
    """Sends one accumulator's batches over one network."""

    def __init__(self, config: ProducerConfig, network: Network, accumulator: Accumulator, rng: random.Random) -> None:
        self._config = config
        self._network = network
        self._accumulator = accumulator
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._in_flight: dict[int, int] = defaultdict(int)
        self._sleeper: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._starved_timer: asyncio.TimerHandle | None = None
        self._stall_watch = StallWatch()
        self._stall_timer: asyncio.TimerHandle | None = None
        self._awake = False
        self._running = False
        self._refreshed_at = -1.0
        self._refreshes = 0
        self._task: asyncio.Task[None] | None = None
        self._identification: asyncio.Task[None] | None = None
        """The request for a producer id. Records expire meanwhile, and partitions that have one are served."""
        self.on_failure: Callable[[Exception], None] = lambda error: None
        """Called with the error if the producer can never send again."""
        self.on_enlisting: Callable[[], None] = lambda: None
        """Called when partitions must be added to the transaction before anything is sent to them."""
        self.on_end: Callable[[], None] = lambda: None
        """Called when the task ends: by `stop`, or because the loop cancels all tasks at its end."""

    def start(self) -> None:
        """Start the task."""
        self._running = True
        self._accumulator.delivery.obstacle = self._network.error_for
        self._network.on_connection(lambda node_id: self.wake())
        self._task = self._loop.create_task(self._run(), name="producer sender")
        self._task.add_done_callback(lambda _: self.on_end())

    async def stop(self) -> None:
        """Stop the task; pending batches stay unsent."""
        self._running = False
        self.wake()
        tasks = [task for task in (self._task, self._identification) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for timer in (self._timer, self._starved_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """Drain again."""
        self._awake = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def adopt(self, metadata: ClusterMetadata) -> None:
        """Adopt new metadata: changed leaders, resized topics."""
        for name in list(self._accumulator.topics):
            topic = metadata.topics.get(name)
            if topic is None:
                continue
            has_generations = self._config.partitioner == "linear" and topic.ordered
            live = topic.live if has_generations else tuple(sorted(topic.partitions))
            if live:
                self._accumulator.adopt(name, topic.topic_id, topic.lineage, live, has_generations=has_generations)
                if has_generations:
                    self._accumulator.note_gone(name, topic.partitions.keys())
                counts = self._config.acks == ALL
                starved = [index for index in live if counts and not topic.in_sync_enough(index)]
                leaderless = [index for index in live if metadata.leader(name, index) == NO_LEADER]
                self._accumulator.topics[name].gated = topic.gated
                self._accumulator.note_condition(name, leaderless=leaderless, starved=starved)
                if starved:
                    self._schedule_refresh()
        self.wake()

    def _schedule_refresh(self) -> None:
        """Refresh metadata periodically, which alone shows that replicas have caught up."""
        if self._starved_timer is None:
            wait_s = REFUSING_REFRESH_S if self._config.refuse_below_min_insync_replicas else STARVED_REFRESH_S
            self._starved_timer = self._loop.call_later(wait_s, self._refresh_starved)

    def _refresh_starved(self) -> None:
        self._starved_timer = None
        if self._running:
            self._network.request_refresh()

    # task

    async def _run(self) -> None:
        try:
            while self._running:
                self._awake = False
                self._identify()
                drained = self._accumulator.drain(self._loop.time(), self._network.metadata.leader, self._may_send_to)
                for node_id, batches in drained.requests.items():
                    self._transmit(node_id, batches)
                if self._stall_timer is None:
                    self._watch_for_stalls()
                if drained.refresh:
                    self._refresh_soon()
                transactions = self._accumulator.numbering.transactions
                if transactions is not None and transactions.enlisting:
                    self.on_enlisting()
                if not drained.requests:
                    await self._sleep(drained.wake_at)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.exception("the producer is stopping: %s", error)
            self.on_failure(error)
            self._accumulator.delivery.abandon(error)

    def _watch_for_stalls(self) -> None:
        """Check periodically for stalls while anything is to be sent, and log them."""
        self._stall_timer = None
        active = self._accumulator.active
        line = self._stall_watch.check(active, self._loop.time(), self._accumulator.delivery.why_late)
        if line is not None:
            log.warning("%s; they time out after %g s", line, self._config.delivery_timeout_ms / 1000)
        if active:
            self._stall_timer = self._loop.call_later(LOOK_S, self._watch_for_stalls)

    async def _sleep(self, until: float | None) -> None:
        if self._awake:
            await asyncio.sleep(0)
            return
        self._sleeper = self._loop.create_future()
        timer = None if until is None else self._loop.call_at(until, self.wake)
        try:
            await self._sleeper
        finally:
            self._sleeper = None
            if timer is not None:
                timer.cancel()

    def _identify(self) -> None:
        """Request a producer id if one is wanted. Raises the error with which it was refused for good."""
        if self._identification is not None:
            if not self._identification.done():
                return
            self._identification.result()
            self._identification = None
        if self._accumulator.numbering.wants_producer_id:
            self._identification = self._loop.create_task(self._obtain_producer_id(), name="producer id")
            self._identification.add_done_callback(lambda _: self.wake())

    async def _obtain_producer_id(self) -> None:
        """Ask until a broker grants an id; one that does not answer for a moment delays it no longer."""
        numbering = self._accumulator.numbering
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)

        async def once() -> int:
            response: InitProducerIdResponse = await self._network.ask_any(request)  # an unused id is no harm
            code = ErrorCode(response.error_code)
            if code != ErrorCode.NONE:
                raise KafkaError(code, "InitProducerId")
            return response.producer_id

        try:
            numbering.producer_id = await self._network.retry(once)
        except (ConnectionError, TimeoutError) as error:
            log.debug("no producer id yet: %s", error)
        except KafkaError as error:
            if not error.code.retriable:
                raise
            log.debug("no producer id yet: %s", error)
        else:
            numbering.wants_producer_id = False

    def _may_send_to(self, node_id: int) -> bool:
        return self._in_flight[node_id] < IN_FLIGHT_REQUESTS_MAX and self._network.ready(node_id) is not None

    def _transmit(self, node_id: int, batches: list[Batch]) -> None:
        connection = self._network.ready(node_id)
        if connection is None:
            self._on_lost(batches)
            return
        request = self._request(batches)
        if self._config.acks == 0:
            self._fire(connection, request, batches)
            return
        try:
            answer = connection.send(request, timeout_ms=self._config.request_timeout_ms)
        except (ConnectionError, KafkaError) as error:
            log.debug("cannot produce to node %d: %s", node_id, error)
            self._on_lost(batches)
            return
        self._in_flight[node_id] += 1
        answer.add_done_callback(partial(self._on_response, node_id, batches))

    def _fire(self, connection: Connection, request: ProduceRequest, batches: list[Batch]) -> None:
        """Send a batch with acks=0: there is no response, and a written batch counts as stored."""
        try:
            connection.send_oneway(request)
        except (ConnectionError, KafkaError):
            self._on_lost(batches)
            return
        now = self._loop.time()
        for batch in batches:
            self._accumulator.delivery.complete(batch, ErrorCode.NONE, now)

    def _request(self, batches: list[Batch]) -> ProduceRequest:
        topics: dict[tuple[str, bytes], TopicProduceData] = {}
        compression, transactional_id = self._config.compression_type, self._config.transactional_id
        for batch in batches:
            queue = batch.queue
            name = queue.topic.name
            topic = topics.get((name, batch.topic_id))
            if topic is None:
                topic = topics[name, batch.topic_id] = TopicProduceData(name=name, partition_data=[])
                if batch.names_topic:
                    topic.expected_topic_id = batch.topic_id
                    if queue.topic.lineage is not None and not batch.of_deleted_topic:
                        topic.undeleted_partition_count = queue.topic.lineage.count
            topic.partition_data.append(
                PartitionProduceData(
                    index=queue.index,
                    records=batch.bytes_with(compression, transactional=transactional_id is not None),
                    generation=batch.batch_generation,
                )
            )
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=self._config.acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=list(topics.values()),
        )

    # outcomes, in callbacks of the loop

    def _on_response(self, node_id: int, batches: list[Batch], answer: asyncio.Future[ProduceResponse]) -> None:
        self._in_flight[node_id] -= 1
        if answer.cancelled():
            self._on_lost(batches)
            return
        error = answer.exception()
        if error is not None:
            log.debug("produce to node %d: %s", node_id, error)
            self._on_lost(batches)
            return
        now = self._loop.time()
        open_batches = {(batch.queue.topic.name, batch.queue.index): batch for batch in batches}
        for topic in answer.result().responses:
            for row in topic.partition_responses:
                batch = open_batches.pop((topic.name, row.index), None)
                if batch is not None:
                    self._settle(batch, row, now)
        if open_batches:
            log.warning("node %d did not answer for %s", node_id, sorted(open_batches))
            self._on_lost(list(open_batches.values()))
        self.wake()

    def _settle(self, batch: Batch, row: PartitionProduceResponse, now: float) -> None:
        code = ErrorCode(row.error_code)
        if code.invalid_metadata or (code in _STARVED and batch.queue.index not in batch.queue.topic.starved):
            self._refresh_soon()
        self._accumulator.delivery.complete(
            batch,
            code,
            now,
            base_offset=row.base_offset,
            log_append_time_ms=row.log_append_time_ms,
            generation=row.generation,
            first_generation=row.first_generation,
            message=row.error_message,
        )

    def _on_lost(self, batches: list[Batch]) -> None:
        now = self._loop.time()
        for batch in batches:
            self._accumulator.delivery.on_lost(batch, now)
        self._refresh_soon()
        self.wake()

    def _refresh_soon(self) -> None:
        """Refresh metadata with backoff: a resize may take a while to be published."""
        if self._timer is not None:
            return
        backoff = self._network.config.retry_backoff
        now = self._loop.time()
        if now - self._refreshed_at > backoff.limit_ms / 1000:
            self._refreshes = 0
        wait_s = backoff.wait_ms(self._refreshes, self._rng) / 1000
        self._refreshes += 1
        self._refreshed_at = now + wait_s
        self._timer = self._loop.call_at(self._refreshed_at, self._refresh_now)

    def _refresh_now(self) -> None:
        self._timer = None
        self._network.request_refresh()
