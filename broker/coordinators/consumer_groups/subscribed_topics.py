"""The cluster's topics for a group: which exist, and which of their partitions may be assigned.

A group uses *assignable partitions*, not partition counts: a withheld partition is missing in `Topic.partitions`, and
in every target until it is added. The group's record holds a 64-bit hash of what the targets were computed for
(KIP-1101); another hash starts a new group epoch. Kafka's hash differs and includes racks, which none of its assignors
uses: a group written by Kafka starts one extra epoch here, which members do not notice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from anabranch.protocol.values import value


@value
class Topic:
    """One existing topic."""

    topic_id: bytes
    name: str
    partitions: tuple[int, ...]
    """The partitions that may be assigned now, ascending."""
    parents: Mapping[int, int] = field(default_factory=dict)
    """Child partition -> its parent; the assignor prefers the parent's member for it."""


FindTopic = Callable[[str], Topic | None]
"""Returns a topic by name, as it is now."""


def existing(names: Iterable[str], find: FindTopic) -> Mapping[str, Topic]:
    """Return the existing topics by name."""
    found = ((name, find(name)) for name in names)
    return {name: topic for name, topic in found if topic is not None}


def metadata_hash(topics: Iterable[Topic]) -> int:
    """Return a hash of the subscribed topics; 0 if there are none."""
    known = sorted(topics, key=lambda topic: topic.name)
    if not known:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for topic in known:
        digest.update(f"{topic.name}\0{topic.partitions}\0".encode() + topic.topic_id)
    return int.from_bytes(digest.digest(), "big", signed=True)
