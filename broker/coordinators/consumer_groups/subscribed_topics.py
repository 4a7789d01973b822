"""The topics of the cluster as a group sees them: which exist, and which of their partitions may be assigned.

A group works on *assignable partitions*, not on counts: whoever knows a reason to withhold a partition leaves it out of
`Topic.partitions`, and it is in nobody's target until it is there. What a group was assigned for is summed up in a hash
of 64 bits, which stands in the group's record (KIP-1101): another hash means another epoch of the group. Kafka hashes
otherwise, and racks too, which no assignor of it looks at; a group that it wrote begins one epoch more here, and no
member notices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from anabranch.protocol.values import value


@value
class Topic:
    """One topic that exists."""

    topic_id: bytes
    name: str
    partitions: tuple[int, ...]
    """Those that may be assigned now, ascending."""
    parents: Mapping[int, int] = field(default_factory=dict)
    """Partition -> the one that it split off: who has that one had better get it, too."""


FindTopic = Callable[[str], Topic | None]
"""A topic by its name, as it is now."""


def existing(names: Iterable[str], find: FindTopic) -> Mapping[str, Topic]:
    """Those of the topics that exist."""
    found = ((name, find(name)) for name in names)
    return {name: topic for name, topic in found if topic is not None}


def metadata_hash(topics: Iterable[Topic]) -> int:
    """A number for what is subscribed to; 0 for nothing."""
    known = sorted(topics, key=lambda topic: topic.name)
    if not known:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for topic in known:
        digest.update(f"{topic.name}\0{topic.partitions}\0".encode() + topic.topic_id)
    return int.from_bytes(digest.digest(), "big", signed=True)
