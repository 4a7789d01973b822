"""The uniform assignor: equal numbers of partitions for all members, with as few moves as possible.

If all members subscribe to the same topics (this module), each has a quota. Partitions above it go to members below it.
If quotas differ by one, members that have one more keep it as long as the others can be served. `uneven_subscriptions`
handles different subscriptions.

Invariant: every assignable partition of a subscribed topic is in exactly one target. Source: Kafka's UniformAssignor,
UniformHomogeneousAssignmentBuilder of 4.1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from anabranch.broker.coordinators.consumer_groups.assignment import Assignment, size
from anabranch.broker.coordinators.consumer_groups.group_spec import GroupSpec, without_members
from anabranch.broker.coordinators.consumer_groups.uneven_subscriptions import assign_unevenly


def assign_uniformly(spec: GroupSpec) -> Mapping[str, Assignment]:
    """Compute the target of each member."""
    if not spec.members:
        return {}
    return assign_evenly(spec) if spec.is_homogeneous else assign_unevenly(spec)


def assign_evenly(spec: GroupSpec) -> Mapping[str, Assignment]:
    """Compute the targets of members that all subscribe to the same topics."""
    topics = next(iter(spec.members.values())).topics
    if not topics:
        return without_members(spec)
    total = sum(len(spec.partitions[topic_id]) for topic_id in topics)
    least, extra = divmod(total, len(spec.members))
    kept = {member_id: spec.retained_assignment(member) for member_id, member in spec.members.items()}
    unassigned = _in_nobodys(spec, sorted(topics), kept)
    targets: dict[str, Assignment] = {}
    unfilled: list[tuple[str, int]] = []
    for place, (member_id, has) in enumerate(kept.items()):
        one_more = extra > 0
        targets[member_id], given_up = _within(has, least + one_more)
        unassigned += given_up
        left = least + one_more - size(targets[member_id])
        if left > 0 and one_more and len(kept) - place > extra:
            left, one_more = left - 1, False  # a later member may have one more already
        if left > 0:
            unfilled.append((member_id, left))
        extra -= one_more
    near, unassigned = _near_their_parents(spec, targets, unassigned, dict(unfilled))
    start = 0
    for member_id, left in unfilled:
        more = near.get(member_id, [])
        end = start + left - len(more)
        targets[member_id] = _with(targets[member_id], [*more, *unassigned[start:end]])
        start = end
    assert start >= len(unassigned), "some partitions remain unassigned"
    return targets


def _near_their_parents(
    spec: GroupSpec, targets: Mapping[str, Assignment], unassigned: list[tuple[bytes, int]], room: dict[str, int]
) -> tuple[dict[str, list[tuple[bytes, int]]], list[tuple[bytes, int]]]:
    """Assign children to the member of their parent if it has room; return these and the rest.

    Kafka has no such partitions; without resizes there are none.
    """
    if not spec.parents:
        return {}, unassigned
    near: dict[str, list[tuple[bytes, int]]] = {}
    owners = {
        (topic_id, index): member_id
        for member_id, has in targets.items()
        for topic_id in spec.parents.keys() & has.keys()
        for index in has[topic_id]
    }
    rest = []
    for topic_id, index in unassigned:
        parent = spec.parents.get(topic_id, {}).get(index)
        owner = None if parent is None else owners.get((topic_id, parent))
        if owner is None or room.get(owner, 0) <= 0:
            rest.append((topic_id, index))
            continue
        near.setdefault(owner, []).append((topic_id, index))
        owners[topic_id, index] = owner
        room[owner] -= 1
    return near, rest


def _in_nobodys(spec: GroupSpec, topics: list[bytes], kept: Mapping[str, Assignment]) -> list[tuple[bytes, int]]:
    taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in topics}
    for has in kept.values():
        for topic_id, partitions in has.items():
            taken[topic_id] |= partitions
    return [(topic_id, one) for topic_id in topics for one in spec.partitions[topic_id] if one not in taken[topic_id]]


def _within(has: Assignment, quota: int) -> tuple[Assignment, list[tuple[bytes, int]]]:
    """Return the part of an assignment within the quota, and the rest."""
    if size(has) <= quota:
        return has, []
    keeps, rest = {}, []
    for topic_id, partitions in has.items():
        ordered = sorted(partitions)
        if quota > 0:
            keeps[topic_id] = frozenset(ordered[:quota])
        rest += [(topic_id, one) for one in ordered[quota:]]
        quota = max(quota - len(ordered), 0)
    return keeps, rest


def _with(has: Assignment, more: list[tuple[bytes, int]]) -> Assignment:
    if not more:
        return has
    added: defaultdict[bytes, list[int]] = defaultdict(list)
    for topic_id, index in more:
        added[topic_id].append(index)
    return {**has, **{topic_id: has.get(topic_id, frozenset()).union(indexes) for topic_id, indexes in added.items()}}
