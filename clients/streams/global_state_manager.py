"""Keeps the global tables of an instance: fills them before its tasks run, and follows their topics from then on.

A consumer without a group reads every partition of the topics, on its own connections. Its gates keep the order of each
key through resizes: rows of a new partition come after those that the key's earlier partition has. Where a store has to
start over, so does the consumer: its gates would take what was read before for done.

Decides nothing but when a store starts over (`global_store`), and never waits for a task. Source: GlobalStreamThread of
Kafka Streams.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Mapping
from typing import Final, Self

from anabranch.clients.consumer.consumer import Consumer
from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.consumer.listener import PartitionKeyRebalanceListener
from anabranch.clients.streams.changelog_bounds import ChangelogBounds
from anabranch.clients.streams.changelog_reader import ChangelogReader
from anabranch.clients.streams.config import RESET_NONE, StreamsConfig
from anabranch.clients.streams.context import ReadOnlyStore
from anabranch.clients.streams.global_store import NO_GENERATION, GlobalStore
from anabranch.clients.streams.state_directory import StateDirectory
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.topology_graph import Built
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

WAIT_MS: Final = 500
FILL_WAIT_MS: Final = 10
"""The same, while it is not known whether everything is read."""
RETRY_S: Final = 0.2


class GlobalStateManager(PartitionKeyRebalanceListener):
    """The global tables of one instance, and the consumer of their topics."""

    def __init__(
        self,
        stores: Mapping[str, GlobalStore],
        reader: ChangelogReader,
        make_consumer: Callable[[Collection[str], PartitionKeyRebalanceListener], Consumer],
        *,
        may_reset: bool,
    ) -> None:
        """Create a manager of these stores, by name; `may_reset`: a store that has rows may start over."""
        self.stores = stores
        self._by_topic = {store.topic: store for store in stores.values()}
        self._reader = reader
        self._make_consumer = make_consumer
        self._may_reset = may_reset
        self._consumer: Consumer | None = None
        self._opened = 0
        """How many consumers were opened."""
        self._stale = True
        """Whether a new consumer is needed: at the beginning, and when a store has started over."""
        self.restored = 0
        """How many records were read."""

    @classmethod
    def create(
        cls,
        config: StreamsConfig,
        built: Built,
        directory: StateDirectory,
        reader: ChangelogReader,
        rng: random.Random,
        clock_ms: Callable[[], int] | None,
    ) -> Self:
        """Create the manager of an instance, with its stores on disk and a consumer by its settings."""

        def make_consumer(topics: Collection[str], listener: PartitionKeyRebalanceListener) -> Consumer:
            return Consumer(
                *topics,
                bootstrap_servers=config.bootstrap_servers,
                client_id=f"{config.client_id}-global",
                client_rack=config.client_rack,
                auto_offset_reset="earliest",
                isolation_level="read_committed" if config.exactly_once else "read_uncommitted",
                max_poll_records=config.max_poll_records,
                listener=listener,
                clock_ms=clock_ms,
                rng=rng,
                **config.security,
            )

        parts = {name: part for part in built.global_tables for name in part.stores}
        stores = {name: GlobalStore(part, directory.open_global(name)) for name, part in parts.items()}
        return cls(stores, reader, make_consumer, may_reset=config.changelog_auto_offset_reset != RESET_NONE)

    @property
    def rows(self) -> dict[str, ReadOnlyStore]:
        """The stores for steps, by name."""
        return {name: store.rows for name, store in self.stores.items()}

    def lags(self, name: str) -> dict[int, int | None]:
        """Return how many offsets of each partition of a store's topic are still to be read; None while unknown."""
        consumer, topic = self._consumer, self.stores[name].topic
        if consumer is None:
            return {}
        mine = sorted(one for one in consumer.assignment() if one.topic == topic)
        ends = {one: consumer.highwater(one) for one in mine}
        return {one.partition: None if at < 0 else max(at - consumer.position(one), 0) for one, at in ends.items()}

    async def start(self) -> None:
        """Fill every table up to the present end of its topic. Raises `StreamsError` and KafkaError."""
        if not self.stores:
            return
        opened, ends = 0, dict[TopicPartition, int]()
        while self._stale or opened != self._opened or not self._has_reached(ends):
            await self._read(FILL_WAIT_MS)
            if opened != self._opened and not self._stale and (found := await self._ends()) is not None:
                opened, ends = self._opened, found
        for store in self.stores.values():
            log.info("global table %s has %d keys", store.name, store.disk.entries(store.name))

    async def run(self) -> None:
        """Follow the topics until cancelled."""
        while self.stores:
            try:
                await self._read(WAIT_MS)
            except (ConnectionError, TimeoutError) as error:
                log.warning("cannot read global tables: %s", error)
                await asyncio.sleep(RETRY_S)

    async def stop(self) -> None:
        """Disconnect, and close the stores."""
        for name, store in self.stores.items():
            lags = self.lags(name)
            if lags and not any(lag is None or lag for lag in lags.values()):
                store.disk.note_current()
        try:
            if self._consumer is not None:
                await self._consumer.stop()
        finally:
            self.close()

    def close(self) -> None:
        """Close the stores, with what was read so far."""
        for store in self.stores.values():
            store.close()

    # callback of the consumer (PartitionKeyRebalanceListener)

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Check that the stores belong to their topics, and begin where they end. `StreamsError`"""
        consumer = self._consumer
        assert consumer is not None, "it listens to its consumer"
        for store in self.stores.values():
            mine = sorted(one for one in partitions if one.topic == store.topic)
            if mine:
                store.forget_others({one.partition for one in mine})
                await self._begin(consumer, store, mine)

    async def _begin(self, consumer: Consumer, store: GlobalStore, partitions: Collection[TopicPartition]) -> None:
        """Begin to read those partitions of a topic that are not read yet; of a new or recreated topic, all of them."""
        fresh = [one for one in partitions if consumer.position(one) < 0]
        if not fresh:
            return
        bounds = await self._bounds(fresh)
        reason = store.reset_reason({one.partition: bounds.get(one) for one in fresh}, consumer.lineage(store.topic))
        if reason is not None:
            self._start_over(store, reason, read=len(fresh) < len(partitions))
        store.note_topic(next(iter(bounds.values())).topic_id)
        for one in fresh:
            if one.partition in store.positions:
                consumer.seek(one, store.positions[one.partition])

    # reading

    async def _open(self) -> Consumer:
        """Return the consumer; a new one, which reads from where the stores end, if one is needed."""
        if self._consumer is not None:
            if not self._stale:
                return self._consumer
            await self._consumer.stop()
        self._consumer = self._make_consumer(list(self._by_topic), self)
        self._stale = False
        try:
            await self._consumer.start()
        except BaseException:
            self._stale = True
            raise
        self._opened += 1
        return self._consumer

    async def _read(self, timeout_ms: int) -> None:
        """Store the next records, or wait for some for a while."""
        consumer = await self._open()
        batches = await consumer.getmany(timeout_ms=timeout_ms)
        for store in self.stores.values():
            positions = {one: consumer.position(one) for one in consumer.assignment() if one.topic == store.topic}
            skipped = [one for one in positions if consumer.read_from(one) > store.positions.get(one.partition, 2**63)]
            if skipped and not self._stale:
                self._start_over(store, f"records of {skipped[0]} were deleted before they were read", read=True)
        if self._stale:
            return
        for store in self.stores.values():
            records = [record for one, rows in batches.items() if one.topic == store.topic for record in rows]
            self._store(consumer, store, records)
            self.restored += len(records)

    def _store(self, consumer: Consumer, store: GlobalStore, records: list[ConsumerRecord]) -> None:
        lineage = consumer.lineage(store.topic)
        mine = (one for one in consumer.assignment() if one.topic == store.topic)
        positions = {one.partition: at for one in mine if (at := consumer.position(one)) >= 0}
        store.apply(records, positions, NO_GENERATION if lineage is None else lineage.generation)

    async def _ends(self) -> dict[TopicPartition, int] | None:
        """Return the present ends of all partitions; None if they cannot be looked up yet."""
        consumer = self._consumer
        assert consumer is not None, "it is open"
        mine = consumer.assignment()
        if {one.topic for one in mine} != self._by_topic.keys():
            return None
        try:
            return await consumer.end_offsets(sorted(mine))
        except TimeoutError as error:
            log.warning("cannot fill global tables: %s", error)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        return None

    def _has_reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether everything below these ends is stored; a partition that was removed meanwhile does not count."""
        consumer = self._consumer
        assert consumer is not None, "it is open"
        mine = consumer.assignment()
        return all(consumer.position(one) >= end for one, end in ends.items() if one in mine)

    async def _bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, ChangelogBounds]:
        """Look up the bounds of the partitions of one topic, as far as they have leaders; of one at least."""
        while True:
            try:
                found = await self._reader.bounds(partitions)
            except (ConnectionError, TimeoutError, KafkaError) as error:
                log.warning("cannot look up global tables: %s", error)
                found = {}
            if found:
                return found
            await asyncio.sleep(RETRY_S)

    def _start_over(self, store: GlobalStore, reason: str, *, read: bool) -> None:
        """Delete a store; `read`: the consumer has begun to read its topic."""
        if store.positions and not self._may_reset:
            raise StreamsError(
                f"the global table {store.name} does not belong to its topic: {reason}. To read the topic again, set "
                f"changelog_auto_offset_reset=earliest, or delete {store.disk.directory}"
            )
        log.warning("%s; global table %s is read again from the start of %s", reason, store.name, store.topic)
        store.start_over()
        self._stale |= read
