"""Spreads partitions evenly over members, with as few moves as balance requires.

Two properties, in this order. Balance: no partition can be moved from a member to one that has two fewer. Stickiness: a
member keeps its partitions, and newly placed partitions move first. Otherwise a partition goes to the member that reads
one of its relatives if that member has capacity, else to the least loaded member.

The counts of members with the same subscription differ by one at most.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Mapping, Sequence

from anabranch.clients.consumer.consumer_partition_assignor import MemberView
from anabranch.protocol.topic_partition import TopicPartition

Relatives = Callable[[TopicPartition], Sequence[TopicPartition]]


def last_owners(members: Sequence[MemberView]) -> dict[TopicPartition, str]:
    """Return partition -> its last owner. Of two claims the later generation wins; in the same generation, neither."""
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member in members:
        for partition in member.owned:
            claims.setdefault(partition, []).append((member.generation, member.member_id))
    owners: dict[TopicPartition, str] = {}
    for partition, rows in claims.items():
        rows.sort(reverse=True)
        if len(rows) == 1 or rows[0][0] > rows[1][0]:
            owners[partition] = rows[0][1]
    return owners


class Spread:
    """Spreads one list of partitions over the members that subscribe to their topics."""

    def __init__(self, members: Sequence[MemberView], todo: Sequence[TopicPartition]) -> None:
        self._subscriptions = {
            one.member_id: frozenset(one.topics) for one in sorted(members, key=lambda one: one.member_id)
        }
        self._todo = todo
        self._held: dict[str, dict[TopicPartition, bool]] = {member_id: {} for member_id in self._subscriptions}
        """Each member's partitions, and whether it owned each before."""
        self._alike = len(set(self._subscriptions.values())) <= 1
        self._each, self._extra = divmod(len(todo), max(len(self._subscriptions), 1))
        self._above = 0
        """The number of members with more than `_each`."""
        self._by_load: dict[str, list[tuple[int, str]]] = {}
        self._ordered: dict[str, list[tuple[bool, TopicPartition]]] = {}
        """The members' partitions in the order in which they move, once all are placed."""

    def run(self, owners: Mapping[TopicPartition, str], relatives: Relatives) -> list[tuple[TopicPartition, str]]:
        """Return (partition, member) for every partition that a member subscribes to."""
        left = [partition for partition in self._todo if not self._keep(partition, owners.get(partition))]
        placed = {one: member_id for member_id, held in self._held.items() for one in held}
        for partition in left:
            near = next((one for one in self._near(partition, placed, owners, relatives) if self._has_room(one)), None)
            member_id = near or self._least_loaded(partition.topic)
            if member_id is not None:
                self._give(member_id, partition, had=False)
                placed[partition] = member_id
        self._even_out()
        return [(partition, member_id) for member_id, held in self._held.items() for partition in held]

    def _keep(self, partition: TopicPartition, owner: str | None) -> bool:
        """Keep a partition at its owner, unless that exceeds a limit known from equal subscriptions."""
        if owner is None or partition.topic not in self._subscriptions.get(owner, ()):
            return False
        if self._alike and not self._has_room(owner):
            return False
        self._give(owner, partition, had=True)
        return True

    def _near(
        self,
        partition: TopicPartition,
        placed: Mapping[TopicPartition, str],
        owners: Mapping[TopicPartition, str],
        relatives: Relatives,
    ) -> list[str]:
        found = [placed.get(one) or owners.get(one, "") for one in relatives(partition)]
        return [one for one in found if partition.topic in self._subscriptions.get(one, ())]

    def _has_room(self, member_id: str) -> bool:
        load = len(self._held[member_id])
        return load < self._each or (load == self._each and self._above < self._extra)

    def _give(self, member_id: str, partition: TopicPartition, *, had: bool) -> None:
        held = self._held[member_id]
        held[partition] = had
        self._above += len(held) == self._each + 1

    def _least_loaded(self, topic: str) -> str | None:
        """Return the least loaded subscriber of a topic. Loads only rise, so stale entries are too low."""
        heap = self._by_load.get(topic)
        if heap is None:
            heap = self._by_load[topic] = [
                (len(self._held[one]), one) for one, topics in self._subscriptions.items() if topic in topics
            ]
            heapq.heapify(heap)
        while heap and heap[0][0] != len(self._held[heap[0][1]]):
            heapq.heapreplace(heap, (len(self._held[heap[0][1]]), heap[0][1]))
        return heap[0][1] if heap else None

    def _even_out(self) -> None:
        """Move partitions to members with two fewer, while there are any; each move improves the balance."""
        while self._move_one():
            pass

    def _move_one(self) -> bool:
        loads = sorted(((len(held), member_id) for member_id, held in self._held.items()), reverse=True)
        for load, member_id in loads:
            if load - loads[-1][0] < 2:
                return False
            takers: dict[str, str | None] = {}
            ordered = self._in_order(member_id)
            for place, (_, partition) in enumerate(ordered):
                if partition.topic not in takers:
                    takers[partition.topic] = self._taker(partition.topic, load, loads)
                taker = takers[partition.topic]
                if taker is not None:
                    del ordered[place], self._held[member_id][partition]
                    bisect.insort(self._in_order(taker), (False, partition))
                    self._held[taker][partition] = False
                    return True
        return False

    def _in_order(self, member_id: str) -> list[tuple[bool, TopicPartition]]:
        """Return a member's partitions in the order in which they move: newly placed ones first."""
        if member_id not in self._ordered:
            self._ordered[member_id] = sorted((had, one) for one, had in self._held[member_id].items())
        return self._ordered[member_id]

    def _taker(self, topic: str, load: int, loads: Sequence[tuple[int, str]]) -> str | None:
        """Return the least loaded subscriber of a topic that has two partitions fewer than `load`, if any."""
        found = [(n, one) for n, one in loads if n <= load - 2 and topic in self._subscriptions[one]]
        return min(found)[1] if found else None
