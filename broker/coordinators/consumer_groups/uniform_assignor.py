"""The uniform assignor: equal numbers of partitions for all members, with as few moves as possible.

If all members subscribe to the same topics (this module), each has a quota. Partitions above it go to members below it.
If quotas differ by one, members that have one more keep it as long as the others can be served. `uneven_subscriptions`
handles different subscriptions.

Invariant: every assignable partition of a subscribed topic is in exactly one target. Source: Kafka's UniformAssignor,
UniformHomogeneousAssignmentBuilder of 4.1.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from anabranch.broker.coordinators.consumer_groups.assignment import Assignment, size
from anabranch.broker.coordinators.consumer_groups.group_spec import GroupSpec, without_members
from anabranch.broker.coordinators.consumer_groups.uneven_subscriptions import assign_unevenly

Run = tuple[bytes, Sequence[int]]
"""Partitions of one topic: its id and their numbers. Groups with thousands of partitions have few runs."""


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
    queue = _Queue(unassigned)
    for member_id, left in unfilled:
        more = near.get(member_id, [])
        targets[member_id] = _with(targets[member_id], [*more, *queue.take(left - len(more))])
    assert not queue.runs, "some partitions remain unassigned"
    return targets


class _Queue:
    """Unassigned partitions, in the order in which members get them."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = deque(runs)
        self._start = 0
        """How many partitions of the first run are taken."""

    def take(self, count: int) -> Iterator[Run]:
        """Remove and return so many partitions from the front, as far as there are any."""
        while count > 0 and self.runs:
            topic_id, indexes = self.runs[0]
            part = indexes[self._start : self._start + count]
            self._start += len(part)
            count -= len(part)
            if self._start == len(indexes):
                self.runs.popleft()
                self._start = 0
            yield topic_id, part


def _near_their_parents(
    spec: GroupSpec, targets: Mapping[str, Assignment], unassigned: list[Run], room: dict[str, int]
) -> tuple[dict[str, list[Run]], list[Run]]:
    """Assign children to the member of their parent if it has room; return these and the rest, one in each run.

    Kafka has no such partitions; without resizes there are none.
    """
    if not spec.parents:
        return {}, unassigned
    near: dict[str, list[Run]] = {}
    owners = {
        (topic_id, index): member_id
        for member_id, has in targets.items()
        for topic_id in spec.parents.keys() & has.keys()
        for index in has[topic_id]
    }
    rest: list[Run] = []
    for topic_id, index in ((topic_id, index) for topic_id, indexes in unassigned for index in indexes):
        parent = spec.parents.get(topic_id, {}).get(index)
        owner = None if parent is None else owners.get((topic_id, parent))
        if owner is None or room.get(owner, 0) <= 0:
            rest.append((topic_id, (index,)))
            continue
        near.setdefault(owner, []).append((topic_id, (index,)))
        owners[topic_id, index] = owner
        room[owner] -= 1
    return near, rest


def _in_nobodys(spec: GroupSpec, topics: list[bytes], kept: Mapping[str, Assignment]) -> list[Run]:
    taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in topics}
    for has in kept.values():
        for topic_id, partitions in has.items():
            taken[topic_id] |= partitions
    runs = [(topic_id, [one for one in spec.partitions[topic_id] if one not in taken[topic_id]]) for topic_id in topics]
    return [run for run in runs if run[1]]


def _within(has: Assignment, quota: int) -> tuple[Assignment, list[Run]]:
    """Return the part of an assignment within the quota, and the rest."""
    if size(has) <= quota:
        return has, []
    keeps: dict[bytes, frozenset[int]] = {}
    rest: list[Run] = []
    for topic_id, partitions in has.items():
        ordered = sorted(partitions)
        if quota > 0:
            keeps[topic_id] = frozenset(ordered[:quota])
        if len(ordered) > quota:
            rest.append((topic_id, ordered[quota:]))
        quota = max(quota - len(ordered), 0)
    return keeps, rest


def _with(has: Assignment, more: list[Run]) -> Assignment:
    if not more:
        return has
    added: defaultdict[bytes, list[int]] = defaultdict(list)
    for topic_id, indexes in more:
        added[topic_id] += indexes
    return {**has, **{topic_id: has.get(topic_id, frozenset()).union(indexes) for topic_id, indexes in added.items()}}
