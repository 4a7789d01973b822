"""Brokers with transaction coordinators: real TCP, handlers, logs and replication; the controller is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from anabranch.broker.coordinators.transactions.transaction_coordinator import TransactionCoordinator
from anabranch.broker.coordinators.transactions.transactional_id import TransactionState
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from anabranch.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from anabranch.protocol.apis.describe_transactions import DescribeTransactionsRequest
from anabranch.protocol.apis.end_txn import EndTxnRequest
from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest
from anabranch.protocol.apis.list_transactions import ListTransactionsRequest
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.internal_topics import TRANSACTION_STATE_TOPIC, decode_transaction, decode_transaction_key
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.control import ControlType, read_control
from anabranch.protocol.records.record import iter_records
from tests.broker.coordinators.steady_clock import SteadyCluster
from tests.broker.replication.replica_cluster import Assigned, topic_id_of, until

TOPIC = "t"
Identity = tuple[int, int]


class TransactionWorld(SteadyCluster):
    """`__transaction_state` has one partition; topic `t` has some, led by the brokers in turn."""

    def coordinator(self, broker_id: int = 1) -> TransactionCoordinator:
        return self.brokers[broker_id].services.transactions

    async def coordinate(self, leader: int, *, isr: tuple[int, ...] | None = None, wait: bool = True) -> None:
        """Make a broker the coordinator of all transactional ids."""
        known = self.assigned.get((TRANSACTION_STATE_TOPIC, 0))
        replicas = tuple(sorted(self.brokers)) if known is None else known.replicas
        await self.lead(leader, replicas=replicas, isr=isr, topic=TRANSACTION_STATE_TOPIC)
        if wait:
            await until(lambda: not self.coordinator(leader).loading)

    async def create_topic(self, partitions: int, topic: str = TOPIC, *, leaders: Iterable[int] | None = None) -> None:
        """Real partitions with all brokers as replicas, known to ZooKeeper too."""
        ids = sorted(self.brokers)
        placed = list(leaders or (ids[index % len(ids)] for index in range(partitions)))
        await self.create_topic_znode(topic, partitions)
        for index, leader in enumerate(placed):
            await self.assign(topic, index, Assigned(tuple(ids), leader, 0, tuple(ids)))

    async def create_topic_znode(self, topic: str, partitions: int) -> None:
        body = znodes.TopicBody(
            topic_id=topic_id_of(topic), assignment={index: sorted(self.brokers) for index in range(partitions)}
        )
        await self.session.create(paths.topic(topic), znodes.encode_topic(body), make_parents=True)

    # --- what producers ask ------------------------------------------------------------------------------------------

    async def ask(self, request: Any, *, version: int | None = None, at: int = 1) -> Any:
        return await self.call(self.brokers[at], request, version=version)

    async def init(
        self,
        transactional_id: str = "tx",
        *,
        known: Identity = (-1, -1),
        timeout_ms: int = 60_000,
        version: int = 4,
        at: int = 1,
    ) -> Any:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=known[0],
            producer_epoch=known[1],
        )
        return await self.ask(request, version=version, at=at)

    async def begin(self, transactional_id: str = "tx", *, at: int = 1, timeout_ms: int = 60_000) -> Identity:
        response = await self.init(transactional_id, at=at, timeout_ms=timeout_ms)
        assert response.error_code == 0, ErrorCode(response.error_code)
        return response.producer_id, response.producer_epoch

    async def add(
        self,
        who: Identity,
        *indexes: int,
        transactional_id: str = "tx",
        topic: str = TOPIC,
        version: int = 3,
        at: int = 1,
    ) -> list[ErrorCode]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
        )
        response = await self.ask(request, version=version, at=at)
        return [
            ErrorCode(row.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        ]

    async def verify(self, who: Identity, *indexes: int, transactional_id: str = "tx", at: int = 1) -> list[ErrorCode]:
        one = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=who[0],
            producer_epoch=who[1],
            verify_only=True,
            topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(indexes))],
        )
        response = await self.ask(AddPartitionsToTxnRequest(transactions=[one]), version=4, at=at)
        assert response.error_code == 0 and response.results_by_transaction[0].transactional_id == transactional_id
        return [
            ErrorCode(row.partition_error_code)
            for topic in response.results_by_transaction[0].topic_results
            for row in topic.results_by_partition
        ]

    async def add_offsets(self, who: Identity, group: str = "g", *, version: int = 4) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id="tx", producer_id=who[0], producer_epoch=who[1], group_id=group
        )
        return ErrorCode((await self.ask(request, version=version)).error_code)

    async def end(
        self, who: Identity, *, commit: bool = True, transactional_id: str = "tx", version: int = 4, at: int = 1
    ) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=who[0], producer_epoch=who[1], committed=commit
        )
        return ErrorCode((await self.ask(request, version=version, at=at)).error_code)

    async def describe(self, transactional_id: str = "tx", *, at: int = 1) -> Any:
        response = await self.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), at=at)
        return response.transaction_states[0]

    async def listed(self, *, at: int = 1, version: int = 1, **filters: Any) -> Any:
        request = ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": []} | filters)
        return await self.ask(request, version=version, at=at)

    # --- what became of it -------------------------------------------------------------------------------------------

    def state(self, transactional_id: str = "tx", *, at: int = 1) -> TransactionState | None:
        one = self.coordinator(at).transaction(transactional_id)
        return None if one is None else one.state

    async def reaches(self, state: TransactionState, transactional_id: str = "tx", *, at: int = 1) -> None:
        await until(lambda: not self.coordinator(at).loading and self.state(transactional_id, at=at) is state)

    def written(self, at: int = 1) -> list[tuple[str, TransactionState | None]]:
        """The journal: (transactional id, state), None for a tombstone."""
        log = self.partition(at, TRANSACTION_STATE_TOPIC).log
        data = bytes(log.read(log.log_start_offset, 1 << 30))
        found = []
        for position, _ in iter_batches(data):
            for record in iter_records(data, position):
                assert record.key is not None
                name = decode_transaction_key(record.key)
                value = record.value
                state = None if value is None else TransactionState(decode_transaction(value).transaction_status)
                found.append((name or "", state))
        return found

    def markers(self, index: int, topic: str = TOPIC) -> list[tuple[str, int, int]]:
        """(COMMIT or ABORT, producer epoch, coordinator epoch) of each marker, as the partition's leader has them."""
        leader = self.assigned[topic, index].leader
        log = self.partition(leader, topic, index).log
        data = bytes(log.read(log.log_start_offset, 1 << 30))
        return [
            (ControlType(control.type).name, header.producer_epoch, control.coordinator_epoch)
            for position, header in iter_batches(data)
            if header.is_control
            for control in (read_control(data, position),)
        ]


@asynccontextmanager
async def transaction_world(brokers: int = 1, partitions: int = 3, **settings: Any) -> AsyncIterator[TransactionWorld]:
    """Fresh brokers, for a minute at most; the first one coordinates."""
    session = await MemoryZooKeeper().connect()
    world = TransactionWorld(session, {"transaction_state_log_num_partitions": 1} | settings)
    world.steps = []
    try:
        for broker_id in range(1, brokers + 1):
            await world.start(broker_id)
        await world.create_topic(partitions)
        await world.coordinate(1)
        async with asyncio.timeout(60):
            yield world
    finally:
        for broker_id in list(world.brokers):
            await world.kill(broker_id)
        await session.close()
