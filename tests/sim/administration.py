"""Admin requests that `Admin` has no method for: moves, elections, deletion of records, features."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from anabranch import Admin
from anabranch.clients.controller_calls import call_controller
from anabranch.protocol.apis.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from anabranch.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.protocol.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from anabranch.protocol.apis.describe_client_quotas import EntityData
from anabranch.protocol.apis.elect_leaders import ElectLeadersRequest, TopicPartitions
from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest
from anabranch.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from anabranch.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition
from tests.sim.clients import CLIENT_FAILURES
from tests.sim.cluster import SimCluster
from tests.sim.history import Place
from tests.sim.loop import Process

TIMEOUT_MS = 2000


async def reassign(admin: Admin, topic: str, moves: Mapping[int, Sequence[int] | None]) -> None:
    """Ask for these replicas of these partitions; None cancels a move."""
    rows = [
        ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))
        for index, replicas in moves.items()
    ]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=topic, partitions=rows)]
    )
    response = await call_controller(admin.network, request, lambda answer: answer.error_code)
    _raise_first([response, *(row for one in response.responses for row in one.partitions)])


async def elect(admin: Admin, topic: str, indexes: Sequence[int], *, unclean: bool = False) -> None:
    """Ask for leaders: the preferred ones, or any at all. That nothing had to be done is no refusal."""
    request = ElectLeadersRequest(
        election_type=int(unclean),
        topic_partitions=[TopicPartitions(topic=topic, partitions=list(indexes))],
        timeout_ms=TIMEOUT_MS,
    )
    response = await call_controller(admin.network, request, lambda answer: answer.error_code)
    rows = [row for one in response.replica_election_results for row in one.partition_result]
    _raise_first([response, *rows], tolerated=(ErrorCode.ELECTION_NOT_NEEDED,))


async def delete_records(admin: Admin, topic: str, index: int, before: int) -> int:
    """Let a partition begin at an offset; returns where it begins on all replicas."""
    leader = await admin.network.leader_of(TopicPartition(topic, index))
    asked = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=before)])
    request = DeleteRecordsRequest(topics=[asked], timeout_ms=TIMEOUT_MS)
    response = await admin.network.call(leader, request, timeout_ms=TIMEOUT_MS + 1000)
    row = response.topics[0].partitions[0]
    _raise_first([row])
    return int(row.low_watermark)


async def delete_unread(cluster: SimCluster, place: Place, before: int, *, within_s: float) -> bool:
    """Delete unread records; return whether all live replicas deleted them in time."""
    cluster.history.note_deletion(place, before, only_read=False)
    cluster.tell(f"delete records of {place[0]}-{place[1]} before {before}")
    return await as_administrator(cluster, lambda admin: delete_records(admin, *place, before), within_s=within_s)


async def as_administrator(cluster: SimCluster, work: Callable[[Admin], Awaitable[object]], *, within_s: float) -> bool:
    """Run `work` in a process of its own, again while it fails; return whether it was done in time."""
    deadline = cluster.now() + within_s

    async def once() -> bool:
        try:
            chance = cluster.rng(f"administrator-{cluster.now()}")
            async with Admin(cluster.bootstrap, request_timeout_ms=1500, rng=chance) as admin:
                await work(admin)
            return True
        except CLIENT_FAILURES as error:
            cluster.tell(f"the administrator meets {error!r}")
            return False

    while not (done := await cluster.loop.spawn(Process("administrator"), once())) and cluster.now() < deadline:
        await asyncio.sleep(0.1)
    return done


async def update_feature(admin: Admin, name: str, level: int) -> None:
    """Finalize a level of a feature; 0 withdraws it."""
    upgrade, safe_downgrade = 1, 2
    row = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade if level else safe_downgrade)
    request = UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[row])
    response = await call_controller(admin.network, request, lambda answer: answer.error_code)
    _raise_first([response, *response.results])


async def producer_id(admin: Admin) -> int:
    """A producer id without transactions, from any broker."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS)
    response = await admin.network.call_any(request)
    _raise_first([response])
    return int(response.producer_id)


async def throttle(admin: Admin, quota: str, value: float | None) -> None:
    """Set a quota of all clients by default; None removes it."""
    everyone = [EntityData(entity_type="client-id", entity_name=None)]
    row = OpData(key=quota, value=value or 0.0, remove=value is None)
    request = AlterClientQuotasRequest(entries=[EntryData(entity=everyone, ops=[row])], validate_only=False)
    response = await admin.network.call_any(request)
    _raise_first(response.entries)


async def delete_offset(admin: Admin, group: str, topic: str, index: int) -> ErrorCode:
    """Delete a group's offset of a partition; returns the answer for that partition."""
    rows = [OffsetDeleteRequestPartition(partition_index=index)]
    request = OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=rows)])
    response = await admin.network.call_coordinator(group, request, lambda answer: answer.error_code)
    _raise_first([response])
    return ErrorCode(response.topics[0].partitions[0].error_code)


def _raise_first(rows: Iterable[Any], *, tolerated: tuple[ErrorCode, ...] = ()) -> None:
    for row in rows:
        code = ErrorCode(row.error_code)
        if code not in (ErrorCode.NONE, *tolerated):
            raise KafkaError(code, getattr(row, "error_message", None) or "")
