"""The range assignor: contiguous ranges of each topic's partitions, so that one member gets co-partitioned ones.

It is not sticky. Members with the same subscription get the same indexes of each topic. Static members come first, by
instance id, so a restart under a new member id changes nothing. Source: Kafka's RangeAssignor of 4.0 on.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.broker.coordinators.consumer_groups.assignment import Assignment
from anabranch.broker.coordinators.consumer_groups.group_spec import GroupSpec


def assign_ranges(spec: GroupSpec) -> Mapping[str, Assignment]:
    """Compute the target of each member."""
    ordered = sorted(
        spec.members, key=lambda one: (spec.members[one].instance_id is None, spec.members[one].instance_id or one)
    )
    subscribers: dict[bytes, list[str]] = {}
    for member_id in ordered:
        for topic_id in spec.members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    targets: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in spec.members}
    for topic_id, member_ids in subscribers.items():
        partitions = spec.partitions[topic_id]
        least, extra = divmod(len(partitions), len(member_ids))
        start = 0
        for place, member_id in enumerate(member_ids):
            end = start + least + (place < extra)
            if end > start:
                targets[member_id][topic_id] = frozenset(partitions[start:end])
            start = end
    return targets
