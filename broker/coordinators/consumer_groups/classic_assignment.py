"""Assignments in the format of classic members: by topic name, encoded as their assignors do."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from anabranch.broker.coordinators.consumer_groups.assignment import Assignment
from anabranch.broker.coordinators.consumer_groups.member import ClassicMember
from anabranch.broker.coordinators.consumer_groups.topics_view import TopicsView
from anabranch.protocol import consumer_protocol
from anabranch.protocol.consumer_protocol import ConsumerProtocolAssignment, TopicPartitions

_VERSION: Final = struct.Struct(">h")


def by_ids(rows: Iterable[TopicPartitions], topics: TopicsView) -> Assignment:
    """Convert rows by topic name to an assignment by topic id; unknown topics are left out."""
    found: dict[bytes, frozenset[int]] = {}
    for row in rows:
        topic = topics.find(row.topic)
        if topic is not None and row.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(row.partitions)
    return found


def encode(assignment: Assignment, classic: ClassicMember, topics: TopicsView) -> bytes:
    """Encode an assignment as the member's assignor does, in the version of its subscription."""
    rows = [
        TopicPartitions(topic=name, partitions=sorted(assignment[topic_id]))
        for topic_id in sorted(assignment)
        if (name := topics.name_of(topic_id)) is not None
    ]
    (version,) = _VERSION.unpack_from(classic.protocols[0][1])
    return consumer_protocol.encode_assignment(
        ConsumerProtocolAssignment(assigned_partitions=rows, user_data=None), version=version
    )
