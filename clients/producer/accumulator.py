"""Buffers a producer's accepted records in batches, by topic and partition, until they are drained.

Pure: time comes as `now` (seconds, any origin), nodes as a function, waits as instants to wake at. The sender calls
`drain`, transmits the batches that it returns (chosen by `drain_order`), and reports each outcome to `delivery`
(`batch_delivery`), which may release further batches. Records that a switch withdrew, or a leader refused, get another
place here. Source: Kafka's `RecordAccumulator`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from typing import Final

from anabranch.clients.backoff import Backoff
from anabranch.clients.config import ProducerConfig
from anabranch.clients.producer import switch
from anabranch.clients.producer.batch_delivery import BatchDelivery
from anabranch.clients.producer.drain_order import Drained, DrainOrder
from anabranch.clients.producer.keyless import withdraw_keyless
from anabranch.clients.producer.metrics import ProducerMetrics, Stalls, Statistics, metrics_of
from anabranch.clients.producer.own_partitioner import OwnPartitioner
from anabranch.clients.producer.partitioner import Sticky
from anabranch.clients.producer.producer_identity import Numbering
from anabranch.clients.producer.producer_record import Receipt, Record, size_of
from anabranch.clients.producer.queues import Batch, PartitionQueue, TopicQueues
from anabranch.clients.producer.routes import UNKEYED, chosen_partition, not_live, too_few_replicas
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.records.record import Headers

NO_NODE: Final = -1


class Accumulator:
    """The batches of one producer, by topic and partition."""

    def __init__(self, config: ProducerConfig, backoff: Backoff, rng: random.Random) -> None:
        self.config = config
        self.partitioner: OwnPartitioner | None = None
        """The application's own partitioner, if any."""
        self.topics: dict[str, TopicQueues] = {}
        self.statistics = Statistics()
        self.stalls = Stalls()
        self.numbering = Numbering(config, self.statistics)
        self._turns = DrainOrder(config, self.numbering)
        self.outstanding = 0
        self.buffered_bytes = 0
        self.hurry = 0
        """While positive, waiting batches do not linger: a flush or the end of a transaction waits for them."""
        self.on_settled: Callable[[Sequence[Record]], None] = lambda records: None
        self.delivery = BatchDelivery(
            config,
            backoff,
            rng,
            self.numbering,
            self.statistics,
            self.topics,
            account=self._account,
            settle=self._settle,
        )
        self._rng = rng
        self._stickies: dict[str, Sticky] = {}
        self._active: dict[PartitionQueue, None] = {}
        self._order = 0

    # accept records

    @property
    def order(self) -> int:
        """The order of the next record: every record accepted so far has a lower one."""
        return self._order

    @property
    def full(self) -> bool:
        """Whether the buffer is full, so `append` should wait."""
        return self.buffered_bytes >= self.config.buffer_bytes

    @property
    def active(self) -> Collection[PartitionQueue]:
        """The partitions with records to send or in flight."""
        return self._active.keys()

    def metrics(self) -> ProducerMetrics:
        """Return counts of accepted and sent records, and the cost of resizes."""
        return metrics_of(
            self.statistics, self.stalls.over, records_sent=self._order, buffered_bytes=self.buffered_bytes
        )

    def topic(self, name: str) -> TopicQueues:
        """Return the queues of a topic; usable once `adopt` has set its partitions."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicQueues(name)
            self._stickies[name] = Sticky(self._rng)
        return topic

    def append(
        self,
        topic: TopicQueues,
        route: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        receipt: Receipt,
        now: float,
    ) -> bool:
        """Accept a record; return True to wake the sender. Raises `KafkaError` if its partition accepts none."""
        size_bytes = size_of(key, value, headers)
        if self.partitioner is not None and route >= UNKEYED:
            route, index = self.partitioner.place(topic, route, key, value, size_bytes)
        elif route >= 0:
            index = topic.address(route)
        elif route == UNKEYED:
            if not topic.keyless:
                raise too_few_replicas(topic)
            index = self._stickies[topic.name].current(topic.keyless)
        else:
            index = chosen_partition(route)
            if index not in topic.live:
                raise not_live(topic, index)
        if index in topic.refused:
            raise too_few_replicas(topic, index)
        queue = topic.queues.get(index) or topic.queue(index)
        record = Record(self._order, route, key, value, headers, timestamp_ms, receipt)
        new_batch = queue.add(record, size_bytes, self.config.batch_bytes, now)
        self._order += 1
        self.outstanding += 1
        self.buffered_bytes += size_bytes
        if new_batch:
            self._active[queue] = None
            if route == UNKEYED and len(queue.waiting) > 1:
                self._stickies[topic.name].move_on(topic.keyless)
        return new_batch or self.buffered_bytes >= self.config.buffer_bytes

    def adopt(
        self, name: str, topic_id: bytes, lineage: Lineage | None, live: Sequence[int], *, has_generations: bool = True
    ) -> None:
        """Adopt a topic's metadata; a newer generation starts a switch. `has_generations=False`: Kafka's own rules."""
        topic = self.topic(name)
        known = topic.generation
        if switch.adopt(topic, topic_id, lineage if has_generations else None, live):
            self.statistics.switches += topic.generation > known
        self._settle(topic, force=True)

    def note_condition(self, name: str, *, leaderless: Collection[int], starved: Collection[int]) -> None:
        """Note partitions that cannot take a record now. Waiting records without a key leave those partitions."""
        topic = self.topics[name]
        topic.note_condition(
            leaderless=leaderless, starved=starved, refusing=self.config.refuse_below_min_insync_replicas
        )
        if withdraw_keyless(topic):
            self._settle(topic, force=True)

    def note_gone(self, name: str, listed: Collection[int]) -> None:
        """Note which partitions exist. A merged and removed partition answers no request any more.

        Records that it is known to have refused are partitioned again. A batch of unknown outcome may have been stored
        and read before the removal: sent elsewhere it would be a duplicate, so its delivery timeout decides (K504). In
        another topic than that of its requests it would be none.
        """
        topic = self.topics[name]
        for queue in topic.queues.values():
            if queue.live or queue.index in listed:
                continue
            for batch in [one for one in queue.unresolved if not one.on_wire and not switch.may_be_stored(one)]:
                self.statistics.refused_batches += 1
                switch.refuse(batch, queue.batch_generation)
        self._settle(topic, force=True)

    # drain

    def drain(self, now: float, leader_of: Callable[[str, int], int], may_send_to: Callable[[int], bool]) -> Drained:
        """Take the batches to transmit now. Each one is in flight until `delivery` gets its outcome."""
        self.delivery.expire(self._active, now)
        drained = Drained()
        self.stalls.update(self.topics.values(), now)
        for topic in self.topics.values():
            if topic.returned:
                self._wait_for_place(topic, drained)
        taken: dict[int, int] = {}
        hurried = self.hurry > 0 or self.full
        for queue in list(self._active):
            if queue.idle:
                del self._active[queue]
                continue
            drained.wake_by(self.delivery.deadline(queue))
            batch = self._turns.next_of(queue, now, drained, hurried=hurried)
            if batch is None:
                queue.blocked_since = None
                continue
            node = leader_of(queue.topic.name, queue.index)
            if node == NO_NODE or not may_send_to(node):
                drained.refresh = drained.refresh or node == NO_NODE
                if queue.blocked_since is None:
                    queue.blocked_since = now
            elif self._fits(taken.get(node, 0), batch):
                queue.blocked_since = None
                taken[node] = taken.get(node, 0) + batch.size_bytes
                self.delivery.transmit(queue, batch)
                drained.requests.setdefault(node, []).append(batch)
                # Served queues move to the back, so that a full request does not starve the others.
                del self._active[queue]
                self._active[queue] = None
        return drained

    def _wait_for_place(self, topic: TopicQueues, drained: Drained) -> None:
        """Returned records wait for batches, whose end is reported, or for metadata, which must be requested."""
        drained.wake_by(self.delivery.give_up_at(min(created_at for _, created_at in topic.returned)))
        drained.refresh = drained.refresh or any(queue.fenced for queue in topic.queues.values())

    def _fits(self, taken_bytes: int, batch: Batch) -> bool:
        return not taken_bytes or taken_bytes + batch.size_bytes <= self.config.request_bytes_max

    # outcomes

    def _settle(self, topic: TopicQueues, *, force: bool = False) -> None:
        sticky, homeward = self._stickies[topic.name], len(topic.returned)

        def choose(live: Sequence[int]) -> int:
            return sticky.current(topic.keyless or live)

        homeless = switch.settle(topic, choose, self.config.batch_bytes, force=force)
        self.statistics.rehashed_records += homeward - len(topic.returned) - len(homeless)
        for record in homeless:
            self.delivery.fail(topic, [record], not_live(topic, chosen_partition(record.route)))
        if force or topic.closed or not topic.returned:
            self._active.update(dict.fromkeys(queue for queue in topic.queues.values() if not queue.idle))

    def _account(self, records: Sequence[Record]) -> None:
        self.outstanding -= len(records)
        self.statistics.records += len(records)
        self.buffered_bytes -= sum(size_of(one.key, one.value, one.headers) for one in records)
        self.on_settled(records)
