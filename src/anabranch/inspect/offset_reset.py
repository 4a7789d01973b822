"""The offsets of a group after a reset, of the named partitions alone or with all that share keys with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.clients.group_admin import committed_offsets
from anabranch.clients.group_gates import segment_ends
from anabranch.clients.resize_plan import rewind_lineage
from anabranch.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin

TIMESTAMPS = {"earliest": -2, "latest": -1}


async def new_offsets(
    admin: Admin, group: str, name: str, partition: int | None, to: str, *, with_lineage: bool
) -> dict[TopicPartition, tuple[int | None, int]]:
    """Partition -> (current committed offset or None, new committed offset)."""
    network = admin.network
    topic = await admin.describe_topic(name)
    network.follow(name)
    await network.refresh()
    if partition is not None and partition not in topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{partition}")
    chosen = sorted(topic.partitions) if partition is None else [partition]
    before = {one.partition: at for one, at in (await committed_offsets(network, group)).items() if one.topic == name}
    targets = {index: await offset_at(admin, TopicPartition(name, index), to) for index in chosen}
    if with_lineage and topic.lineage is not None:
        ends = await segment_ends(network, topic)
        # The group may have read partitions that were drained and removed: they cannot be reset.
        there = {one: at for one, at in before.items() if network.metadata.partition(name, one) is not None}
        for one in there:
            if any(segment not in ends for segment in list(topic.lineage.segments(one))[:-1]):
                raise KafkaError(
                    ErrorCode.OFFSET_NOT_AVAILABLE, f"{name}-{one} is being removed or made now: try again"
                )
        for index, offset in list(targets.items()):
            for one, rewound in rewind_lineage(topic.lineage, ends, there, index, offset).items():
                targets[one] = min(rewound, targets.get(one, rewound))
    return {TopicPartition(name, index): (before.get(index), offset) for index, offset in targets.items()}


async def offset_at(admin: Admin, partition: TopicPartition, to: str) -> int:
    """The offset of `earliest`, `latest` or a number."""
    if to not in TIMESTAMPS:
        return int(to)
    row = ListOffsetsPartition(partition_index=partition.partition, timestamp=TIMESTAMPS[to])
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=partition.topic, partitions=[row])])

    async def once() -> int:
        leader = await admin.network.leader_of(partition)
        response: ListOffsetsResponse = await admin.network.call(leader, request)
        answer = response.topics[0].partitions[0]
        code = ErrorCode(answer.error_code)
        if code != ErrorCode.NONE:
            raise KafkaError(code, str(partition))
        return answer.offset

    return await admin.network.retry(once)
