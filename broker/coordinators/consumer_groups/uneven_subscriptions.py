"""The uniform assignor for members that subscribe to different topics.

Each member keeps its assignable partitions. Unassigned ones go to the least loaded subscriber of their topic, topic by
topic, beginning with those that have most partitions per subscriber. Then the most loaded members give partitions to
the least loaded ones, topic by topic, until a round over all topics moves nothing. Balance is per topic, so a chain of
overlapping subscriptions may end at 9, 10 and 11 partitions.

Source: Kafka's UniformHeterogeneousAssignmentBuilder of 4.0 on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from anabranch.broker.coordinators.consumer_groups.assignment import Assignment, size
from anabranch.broker.coordinators.consumer_groups.group_spec import GroupSpec

ROUNDS_MAX: Final = 16


def assign_unevenly(spec: GroupSpec) -> Mapping[str, Assignment]:
    """Compute the target of each member. The order of members decides ties."""
    return _Work(spec).done()


class _Work:
    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        kept = [spec.retained_assignment(member) for member in spec.members.values()]
        self._load = [size(has) for has in kept]
        self._subscribers: dict[bytes, list[int]] = {}
        for number, member in enumerate(spec.members.values()):
            for topic_id in member.topics:
                self._subscribers.setdefault(topic_id, []).append(number)
        self._owner: dict[bytes, dict[int, int]] = {topic_id: {} for topic_id in self._subscribers}
        for number, has in enumerate(kept):
            for topic_id, partitions in has.items():
                self._owner[topic_id].update(dict.fromkeys(partitions, number))
        self._topics = sorted(self._subscribers, key=self._rank)

    def _rank(self, topic_id: bytes) -> tuple[float, int, bytes]:
        subscribers = len(self._subscribers[topic_id])
        return -len(self._spec.partitions[topic_id]) / subscribers, subscribers, topic_id

    def done(self) -> Mapping[str, Assignment]:
        for topic_id in self._topics:
            self._hand_out(topic_id)
        self._balance()
        targets: list[dict[bytes, set[int]]] = [{} for _ in self._spec.members]
        for topic_id, owners in self._owner.items():
            for index, number in owners.items():
                targets[number].setdefault(topic_id, set()).add(index)
        return {
            member_id: {topic_id: frozenset(indexes) for topic_id, indexes in target.items()}
            for member_id, target in zip(self._spec.members, targets, strict=True)
        }

    def _give(self, topic_id: bytes, index: int, number: int) -> None:
        before = self._owner[topic_id].get(index)
        if before is not None:
            self._load[before] -= 1
        self._owner[topic_id][index] = number
        self._load[number] += 1

    def _hand_out(self, topic_id: bytes) -> None:
        owners = self._owner[topic_id]
        ends = _Ends(self._subscribers[topic_id], self._load)
        for index in self._spec.partitions[topic_id]:
            if index not in owners:
                self._give(topic_id, index, ends.least_loaded())

    def _balance(self) -> None:
        shared = [topic_id for topic_id in self._topics if len(self._subscribers[topic_id]) > 1]
        last_changed: bytes | None = None
        for _ in range(ROUNDS_MAX):
            for topic_id in shared:
                if topic_id == last_changed:
                    return
                if self._balance_topic(topic_id) or last_changed is None:
                    last_changed = topic_id

    def _balance_topic(self, topic_id: bytes) -> int:
        subscribers = self._subscribers[topic_id]
        loads = [self._load[number] for number in subscribers]
        if max(loads) - min(loads) <= 1:
            return 0
        owned: dict[int, list[int]] = {}
        for index in sorted(self._owner[topic_id]):
            owned.setdefault(self._owner[topic_id][index], []).append(index)
        ends, moved = _Ends(subscribers, self._load), 0
        while (giver := ends.most_loaded(owned)) is not None:
            index = owned[giver].pop()
            taker = ends.least_loaded()
            if ends.is_even:
                break
            self._give(topic_id, index, taker)
            moved += 1
        return moved


class _Ends:
    """Members ordered by load: the next to receive a partition, and the next to give one away.

    Each end is a range of members with equal load. When each member of a range has had its turn, the lower end's level
    rises by one, or the upper end's falls by one. The range then grows by the members already at that level.
    """

    def __init__(self, members: list[int], load: list[int]) -> None:
        """`load` is read on every call: it changes as partitions move."""
        self._load = load
        self._order = sorted(members, key=lambda number: (load[number], number))
        self._low_end = self._low_next = 0
        self._low_level = load[self._order[0]] - 1
        self._high_start = self._high_end = len(self._order)
        self._high_next = len(self._order) - 1
        self._high_level = load[self._order[-1]] + 1

    @property
    def is_even(self) -> bool:
        """Whether moving a partition no longer improves the balance."""
        return self._high_level - self._low_level <= 1

    def least_loaded(self) -> int:
        """Return the next member to receive a partition."""
        if self._low_next >= self._low_end:
            self._low_level += 1
            while self._low_end < len(self._order) and self._load_at(self._low_end) == self._low_level:
                self._low_end += 1
            self._low_next = 0
        self._low_next += 1
        return self._order[self._low_next - 1]

    def most_loaded(self, owned: Mapping[int, list[int]]) -> int | None:
        """Return the next member to give away a partition that it owns; None if none is left."""
        while True:
            if self._high_next < self._high_start:
                self._next_stretch()
            if self._high_next < 0:
                return None
            place, self._high_next = self._high_next, self._high_next - 1
            if owned.get(self._order[place]):
                return self._order[place]
            self._high_end -= 1  # it has nothing to give and is excluded
            order = self._order
            order[place], order[self._high_end] = order[self._high_end], order[place]

    def _next_stretch(self) -> None:
        if self._high_end <= self._high_start and self._high_start > 0:
            self._high_level = self._load_at(self._high_start - 1)
        else:
            self._high_level -= 1
        while self._high_start > 0 and self._load_at(self._high_start - 1) == self._high_level:
            self._high_start -= 1
        self._high_next = self._high_end - 1

    def _load_at(self, place: int) -> int:
        return self._load[self._order[place]]
