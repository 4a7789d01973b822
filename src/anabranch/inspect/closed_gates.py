"""Queries a group's closed gates, for `anabranch groups gates` and for the missing records of an audit."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING

from anabranch.clients.group_admin import committed_offsets, describe_group
from anabranch.clients.group_gates import closed_gates, first_timestamp_ms, key_epoch_ends
from anabranch.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.clients.group_gates import ClosedGate


async def closed_gates_of(admin: Admin, group: str, only: Collection[str]) -> list[ClosedGate]:
    """The closed gates of a group: in the ordered topics `only`, or in all topics that it reads or has read.

    Raises KafkaError, GROUP_ID_NOT_FOUND for a group that does not exist.
    """
    network = admin.network
    known = await describe_group(network, group)
    committed = await committed_offsets(network, group)
    assigned = {one.topic for member in known.members for one in member.partitions}
    names = sorted(only or {*assigned, *(one.topic for one in committed)})
    network.follow(*names)
    await network.refresh()
    found = []
    for name, topic in (await admin.describe_topics(names)).items():
        if topic.lineage is None:
            continue
        for gate in closed_gates(topic, await key_epoch_ends(network, topic), committed, known):
            since_ms = await first_timestamp_ms(network, TopicPartition(name, gate.partition.partition), gate.offset)
            found.append(dataclasses.replace(gate, waiting_since_ms=since_ms))
    return found
