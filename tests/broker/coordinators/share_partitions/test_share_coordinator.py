"""Stored state reaches the next leader, and old leaders change nothing.

Method: the requests of leaders over the wire, to real brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch import Admin
from anabranch.broker.coordinators.share_partitions.in_flight import RecordState, StateBatch
from anabranch.broker.coordinators.share_partitions.share_coordinator import name_of
from anabranch.broker.coordinators.share_partitions.share_persister import SharePersister
from anabranch.broker.coordinators.share_partitions.share_state import FRESH, ShareKey
from anabranch.broker.handlers.find_coordinator import create_internal_topic
from anabranch.broker.metadata.metadata_cache import ClusterImage
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import SHARE_STATE_TOPIC
from tests.broker.coordinators.share_partitions.sharing import TOPIC, sharing, until

DONE = StateBatch(0, 4, RecordState.ACKNOWLEDGED, 1)


@asynccontextmanager
async def keeping(brokers: int = 1, **properties: str) -> AsyncIterator[tuple[Cluster, SharePersister, ShareKey]]:
    async with sharing(brokers, **properties) as cluster:
        node = next(iter(cluster.nodes.values()))
        await create_internal_topic(node.services, SHARE_STATE_TOPIC)
        key = ShareKey("g", node.services.metadata.topic_id(TOPIC), 0)
        await node.services.shares.persister.initialize(key, 3, FRESH)
        yield cluster, node.services.shares.persister, key


async def write(persister: SharePersister, key: ShareKey, **more: Any) -> None:
    values = {"state_epoch": 3, "leader_epoch": 5, "start_offset": 0, "batches": [DONE], "complete_count": 5} | more
    await persister.write(key, **values)


async def refusal(persister: SharePersister, key: ShareKey, **more: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await write(persister, key, **more)
    return refused.value.code


def test_name_of_key_equals_kafkas() -> None:
    assert name_of(ShareKey("g", bytes(range(16)), 3)) == "g:AAECAwQFBgcICQoLDA0ODw:3"


async def test_written_state_is_read_back_and_stale_epochs_are_fenced() -> None:
    async with keeping() as (_, persister, key):
        fresh = await persister.read(key, 5)
        assert (fresh.state_epoch, fresh.start_offset, fresh.batches) == (3, FRESH, [])
        await write(persister, key)
        assert (await persister.read(key, 6)).batches == [DONE]
        assert await refusal(persister, key, leader_epoch=5) is ErrorCode.FENCED_LEADER_EPOCH
        assert await refusal(persister, key, leader_epoch=6, state_epoch=2) is ErrorCode.FENCED_STATE_EPOCH
        assert await refusal(persister, key, leader_epoch=6, state_epoch=4) is ErrorCode.INVALID_REQUEST
        never = ShareKey("other", key.topic_id, 0)
        assert await refusal(persister, never) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        backwards = StateBatch(4, 0, RecordState.ARCHIVED, 1)
        assert await refusal(persister, key, leader_epoch=6, batches=[backwards]) is ErrorCode.INVALID_REQUEST
        with pytest.raises(KafkaError) as refused:
            await persister.initialize(key, 2, 0)
        assert refused.value.code is ErrorCode.FENCED_STATE_EPOCH
        standing = await persister.summary(key)
        assert (standing.start_offset, standing.delivery_complete_count, standing.leader_epoch) == (0, 5, 6)
        await persister.delete(key)
        assert (await persister.read(key, 0)).state_epoch == 0


async def test_coordinator_without_metadata_keeps_known_states() -> None:
    async with keeping() as (cluster, persister, key):
        (node,) = cluster.nodes.values()
        keeper, metadata = node.services.shares.coordinator, node.services.metadata
        image = metadata.image
        metadata.image = ClusterImage(topics={SHARE_STATE_TOPIC: image.topics[SHARE_STATE_TOPIC]})
        change = {"state_epoch": 3, "leader_epoch": 5, "start_offset": 5, "batches": [], "complete_count": 0}
        await keeper.write(key, **change)
        with pytest.raises(KafkaError) as refused:
            await keeper.write(ShareKey("other", key.topic_id, 0), **change)
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it cannot know"
        metadata.image = image
        assert (await persister.read(key, 5)).start_offset == 5


async def test_states_of_a_topic_deleted_during_a_load_are_dropped_after_it() -> None:
    async with keeping() as (cluster, _, key), Admin(cluster.bootstrap_servers) as admin:
        (node,) = cluster.nodes.values()
        keeper = node.services.shares.coordinator
        (shard,) = [one for one in keeper.shards() if one.states]
        shard.loading = True
        await admin.delete_topics([TOPIC])
        await until(lambda: key.topic_id in shard.lost)
        assert key in shard.states
        shard.loading = False
        keeper._on_loaded(shard)
        await until(lambda: not shard.states)


async def test_snapshots_truncate_earlier_updates() -> None:
    async with keeping(share_coordinator_snapshot_update_records_per_snapshot="3") as (cluster, persister, key):
        (node,) = cluster.nodes.values()
        for start in range(1, 12):
            await write(persister, key, start_offset=start, batches=[StateBatch(start, start, RecordState.ARCHIVED, 1)])
        logs = [one.log for one in node.services.replicas.partitions() if one.topic == SHARE_STATE_TOPIC]
        (log,) = [one for one in logs if one.log_end_offset]
        assert log.log_end_offset - log.log_start_offset <= 4
        assert (await persister.read(key, 5)).batches == [StateBatch(11, 11, RecordState.ARCHIVED, 1)]


async def test_unchanged_state_does_not_prevent_truncation() -> None:
    limits = {
        "share_coordinator_snapshot_update_records_per_snapshot": "3",
        "share_coordinator_state_topic_num_partitions": "1",
    }
    async with keeping(**limits) as (cluster, persister, still):
        (node,) = cluster.nodes.values()
        busy = ShareKey("other", still.topic_id, 0)
        await persister.initialize(busy, 3, FRESH)
        await write(persister, still)
        (log,) = [one.log for one in node.services.replicas.partitions() if one.topic == SHARE_STATE_TOPIC]
        for start in range(1, 40):
            await write(
                persister, busy, start_offset=start, batches=[StateBatch(start, start, RecordState.ARCHIVED, 1)]
            )
            await until(lambda: all(one.renewing is None for one in node.services.shares.coordinator.shards()))
        assert log.log_end_offset > 40 and log.log_end_offset - log.log_start_offset <= 25
        assert (await persister.read(still, 5)).batches == [DONE]
        await persister.delete(busy)
        assert (await persister.read(still, 5)).batches == [DONE]


async def test_stored_state_survives_a_coordinator_failover() -> None:
    async with keeping(3) as (cluster, persister, key):
        await write(persister, key)
        keeper = next(
            broker
            for broker, node in cluster.nodes.items()
            if node.services.broker is not None
            and node.services.broker.shares.built is not None
            and any(one.states for one in node.services.shares.coordinator.shards())
        )
        asking = next(node for broker, node in cluster.nodes.items() if broker != keeper)
        await cluster.nodes.pop(keeper).stop()
        while True:
            try:
                found = await asking.services.shares.persister.read(key, 5)
                break
            except KafkaError:
                await asyncio.sleep(0.01)
        assert (found.state_epoch, found.batches) == (3, [DONE])


async def test_out_of_order_request_of_a_leader_is_fenced() -> None:
    async with keeping() as (cluster, _, key):
        coordinator = next(iter(cluster.nodes.values())).services.shares.coordinator
        await coordinator.read(key, 5, 7)
        said: dict[str, Any] = {"state_epoch": 3, "leader_epoch": 5, "start_offset": 0, "complete_count": 0}
        await coordinator.write(key, batches=[DONE], number=9, **said)
        with pytest.raises(KafkaError) as refused:
            await coordinator.write(key, batches=[StateBatch(0, 4, RecordState.AVAILABLE, 1)], number=8, **said)
        assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH
        await coordinator.write(key, batches=[DONE], number=9, **said)  # asked again, as no answer came
        await coordinator.write(key, batches=[DONE], **said)  # by somebody who does not count
        assert (await coordinator.read(key, 5, 0)).batches == [DONE]
        await coordinator.write(key, batches=[DONE], number=1, **said)  # the leader has started again
        await coordinator.write(key, batches=[DONE], number=0, **{**said, "leader_epoch": 6})


async def test_write_pending_over_a_leadership_change_is_not_applied() -> None:
    async with keeping() as (cluster, persister, key):
        (node,) = cluster.nodes.values()
        coordinator = node.services.shares.coordinator
        await persister.read(key, 5)
        (shard,) = [one for one in coordinator.shards() if one.states]
        (log,) = [
            one.log
            for one in node.services.replicas.partitions()
            if (one.topic, one.index) == (SHARE_STATE_TOPIC, shard.partition)
        ]
        end = log.log_end_offset
        async with shard.turns[key]:
            late = asyncio.create_task(
                coordinator.write(key, state_epoch=3, leader_epoch=5, start_offset=0, batches=[DONE], complete_count=5)
            )
            await asyncio.sleep(0)  # it waits for its turn
            coordinator._leadership.on_resign(SHARE_STATE_TOPIC, shard.partition)
            coordinator._leadership.on_leader(SHARE_STATE_TOPIC, shard.partition, shard.leader_epoch)
        with pytest.raises(KafkaError) as refused:
            await late
        assert (refused.value.code, log.log_end_offset) == (ErrorCode.NOT_COORDINATOR, end)
