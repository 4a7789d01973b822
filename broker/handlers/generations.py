"""Checks and waits that R16 requires before a leader appends a batch with, or without, a generation.

A batch with a generation waits until its topic's znode is marked as having such batches. The keys of a batch without
one are verified if the topic's policy is `verify`, a few at a time. Nearly all requests need neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from anabranch.broker.replication.legacy_producers import (
    NAMED_MAX,
    KeyPlacementCheck,
    misplaced_keys,
    placement_check,
    unreadable,
)
from anabranch.broker.replication.record_validator import is_plausible
from anabranch.protocol.errors import DecodeError, KafkaError
from anabranch.protocol.records.batch import HEADER_BYTES, MAGIC, MAGIC_POSITION, read_header
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import TopicImage
    from anabranch.broker.replication.partition import Partition
    from anabranch.broker.replication.replica_manager import ReplicaManager
    from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest

Fits = Mapping[int, KeyPlacementCheck]
"""The id of a partition's data object in the request -> the check of its keys."""


@value
class Needs:
    """The checks that must precede the appends of a request."""

    without_generations: list[Partition]
    """Partitions whose topics need the mark for batches with generations."""
    to_verify: list[tuple[TopicImage, PartitionProduceData]]
    """Batches without a generation, whose keys must be verified."""


def needs(replicas: ReplicaManager, request: ProduceRequest) -> Needs | None:
    """Return the checks that the batches of a request need first; None in nearly all cases."""
    without_generations: list[Partition] = []
    to_verify: list[tuple[TopicImage, PartitionProduceData]] = []
    replica = replicas.replica
    for topic in request.topic_data:
        image = replicas.legacy.verifies(topic.name)
        for data in topic.partition_data:
            if data.generation < 0:
                if image is not None:
                    to_verify.append((image, data))
                continue
            partition = replica(topic.name, data.index)
            if partition is None or partition.has_generations or not partition.is_leader:
                continue
            if not replicas.with_generations.is_known(partition):
                without_generations.append(partition)
    return Needs(without_generations, to_verify) if without_generations or to_verify else None


async def prepare(replicas: ReplicaManager, needed: Needs, timeout_ms: int) -> Fits:
    """Wait for the marks, and verify the keys of batches without a generation. Raises KafkaError."""
    if needed.without_generations:
        await replicas.with_generations.write(needed.without_generations, timeout_ms)
    return {id(data): await check_keys(replicas, image, data) for image, data in needed.to_verify}


async def check_keys(replicas: ReplicaManager, topic: TopicImage, data: PartitionProduceData) -> KeyPlacementCheck:
    """Check whether all keys of a batch belong to its partition."""
    found: list[tuple[int, int]] = []
    total = 0
    try:
        settings = replicas.leader_of(topic.name, data.index).log.settings
        records = data.records or b""
        if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] < MAGIC:
            records = await replicas.inspector.convert(records, settings)
        if len(records) < HEADER_BYTES or not is_plausible(records, header := read_header(records), settings):
            return KeyPlacementCheck(topic)  # the append reports the error
        async with replicas.inspector.unpack(records, header, settings) as content:
            for one in misplaced_keys(content, header.record_count, data.index, topic):
                if one is None:
                    await asyncio.sleep(0)
                    continue
                total += 1
                if total <= NAMED_MAX:
                    found.append(one)
    except DecodeError as reason:
        return unreadable(topic, data.index, reason)
    except KafkaError as refusal:
        return KeyPlacementCheck(topic, KafkaError(refusal.code, refusal.message))  # without its traceback
    return placement_check(topic, data.index, found, total)
