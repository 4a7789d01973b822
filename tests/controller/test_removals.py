"""Nothing is appended after a tombstone's end (R13, I10), whichever node dies before the removal.

The leaders here do what the product's do: one that has told a controller that nothing is left in its partition appends
nothing any more, as long as it lives and has the epoch in which it said so. Every other leader takes the transaction
marker that is on its way, whenever it can.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from anabranch.controller import effects, resize
from anabranch.controller.events import BrokersRead, Event, ResponseReceived, TimerFired
from anabranch.controller.model import TopicPartition
from anabranch.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from anabranch.protocol.apis.stop_replica import StopReplicaRequest
from anabranch.protocol.errors import ErrorCode
from tests.controller.world import Crash, Term, World, broker, spread

RETIRING = TopicPartition("t", 3)
LATEST = -1


class Marked(World):
    """A world in which a marker for the retiring partition may be on its way; once written it is trimmed at once."""

    def __init__(self) -> None:
        super().__init__()
        self.marker = False
        self.end = 70
        self.mute_stops: set[int] = set()
        """Brokers that are too busy to answer a StopReplica."""
        self.said_empty: dict[int, int] = {}
        """Broker -> leader epoch in which it said so; only memory knows."""

    def restart(self, one: int) -> None:
        """The broker's process is another one: it leads nothing, and remembers nothing but its log."""
        self.zxid += 1
        self.brokers[one] = broker(one, self.zxid)
        self.forget(one)

    def die(self, one: int) -> None:
        del self.brokers[one]
        self.forget(one)

    def forget(self, one: int) -> None:
        self.said_empty.pop(one, None)
        for key in [key for key in self.held if key[0] == one]:
            del self.held[key]

    def deliver_marker(self) -> None:
        """A broker that believes to lead appends the marker."""
        leaders = (one for (one, partition), row in self.held.items() if partition == RETIRING and row.leader == one)
        for one in leaders:
            if self.marker and self.said_empty.get(one) != self.held[one, RETIRING].leader_epoch:
                self.marker = False
                self.end += 1

    def deliver(self, effect: effects.SendToBroker) -> ResponseReceived | None:
        answered = super().deliver(effect)
        busy = isinstance(effect.request, StopReplicaRequest) and effect.broker_id in self.mute_stops
        return None if busy else answered

    def _answer(self, broker_id: int, request: Any) -> Any:
        if not isinstance(request, ListOffsetsRequest):
            return super()._answer(broker_id, request)
        asked = request.topics[0].partitions[0]
        row = self.held.get((broker_id, TopicPartition("t", asked.partition_index)))
        told = ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=0, offset=self.end)
        if row is None or row.leader != broker_id or row.leader_epoch != asked.current_leader_epoch:
            told.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif asked.timestamp == LATEST:
            self.said_empty[broker_id] = row.leader_epoch
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[told])])


class Watched(Term):
    """A term in which the partition's leader goes after an effect; from then on the marker arrives wherever it can."""

    strikes_after: int | None = None
    fault: str = "restarts"

    def _act(self, effect: effects.Effect) -> Event | None:
        world = self.world
        assert isinstance(world, Marked)
        before = self.acted
        outcome = super()._act(effect)
        if self.acted > before and self.acted == self.strikes_after:
            world.marker = True
            committed = world.states.get(RETIRING)
            if committed is not None and committed.state.leader in world.brokers:
                (world.restart if self.fault == "restarts" else world.die)(committed.state.leader)
                self._arrived.append(BrokersRead(dict(world.brokers)))
        world.deliver_marker()
        return outcome


def draining(fault: str) -> tuple[Marked, Watched]:
    world = Marked()
    world.add_brokers(1, 2, 3)
    world.add_topic("t", spread(4, world.brokers, 2))
    term = Watched(world)
    term.fault = fault
    term.take_over()
    term.resize("t", 3)
    return world, term


def expect_removed_at_its_end(world: Marked) -> None:
    body = world.topics["t"].body
    assert sorted(body.assignment) == [0, 1, 2]
    assert body.retired[3].end_offset == world.end, "the index would be used again below a record that was there"
    assert not [one for one, partition in world.held if partition == RETIRING], "nobody has a replica of it any more"


@pytest.mark.parametrize("fault", ["restarts", "dies"])
def test_removal_completes_when_leader_fails_after_reporting_empty_log(fault: str) -> None:
    for strikes_after in itertools.count():
        world, term = draining(fault)
        term.strikes_after = term.acted + strikes_after
        term.happen(TimerFired("drained"))
        done = term.acted < term.strikes_after
        term.happen(TimerFired("drained"))
        expect_removed_at_its_end(world)
        if done:
            break
    assert strikes_after > 8


@pytest.mark.parametrize("fault", ["restarts", "dies"])
def test_removal_completes_when_leader_and_controller_fail(fault: str) -> None:
    for crash_after in itertools.count():
        world, term = draining(fault)
        leader = world.state("t", 3).leader
        term.crash_after = term.acted + crash_after
        try:
            term.happen(TimerFired("drained"))
        except Crash:
            (world.restart if fault == "restarts" else world.die)(leader)
            world.marker = True
            Watched(world).take_over().happen(TimerFired("drained"))
            expect_removed_at_its_end(world)
        else:
            break
    assert crash_after > 4


def test_log_start_offset_counts_only_in_its_leader_epoch() -> None:
    """Equal start and end from different leaders do not prove that a log is empty."""
    _, term = draining("none")
    state = term.state
    committed = state.partitions[RETIRING]
    epoch = committed.state.leader_epoch
    resize.offset_reported(state, RETIRING, epoch, timestamp=-2, offset=70)
    later = replace(committed, state=replace(committed.state, leader_epoch=epoch + 1))
    state.partitions[RETIRING] = later
    assert resize.offset_reported(state, RETIRING, epoch + 1, timestamp=LATEST, offset=70) == []
    resize.offset_reported(state, RETIRING, epoch + 1, timestamp=-2, offset=70)
    assert resize.offset_reported(state, RETIRING, epoch + 1, timestamp=LATEST, offset=70) != []


def test_replica_that_returns_during_removal_is_told_to_stop() -> None:
    world, term = draining("restarts")
    leader = world.state("t", 3).leader
    (follower,) = set(world.topics["t"].body.assignment[3]) - {leader}
    world.mute_stops = {follower}
    term.happen(TimerFired("drained"))
    assert RETIRING in term.state.removals, "the follower has not confirmed that it dropped its log"
    world.restart(leader)
    sent_before = len(world.sent)
    world.mute_stops = set()
    term.brokers_changed()
    receivers = [one for one, request in world.sent[sent_before:] if isinstance(request, StopReplicaRequest)]
    assert sorted(receivers) == sorted([leader, follower])
    expect_removed_at_its_end(world)
