"""Brokers' responses pace large steps: other requests wait for one piece, not for all.

Work is counted: how many partitions of one topic brokers have been told of, whose leaders have not answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.controller import events, partitions
from anabranch.controller.model import TopicPartition
from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from anabranch.protocol.errors import ErrorCode
from tests.controller.world import Term, World, spread, started

PIECE = 10
LARGE = 80


class Queues:
    """The brokers as the controller's channels have them: each answers one request after the other, when it is let."""

    def __init__(self, world: World, term: Term) -> None:
        self.world, self.term = world, term
        self.most = 0
        """Partitions of one topic that were waited for at the same time."""
        self._waiting: dict[int, deque[Any]] = {one: deque() for one in world.brokers}
        world.silent = set(world.brokers)
        world.sent.clear()
        self.collect()

    def collect(self) -> None:
        for broker, request in self.world.sent:
            self._waiting[broker].append(request)
        self.world.sent.clear()
        told: dict[str, set[int]] = {}
        for broker, queue in self._waiting.items():
            for request in queue:
                if isinstance(request, LeaderAndIsrRequest):
                    for topic in request.topic_states:
                        rows = [row for row in topic.partition_states if row.leader == broker]
                        told.setdefault(topic.topic_name, set()).update(row.partition_index for row in rows)
        self.most = max([self.most, *map(len, told.values())])

    def behind(self, broker: int) -> int:
        """How many partitions a broker has to take up before what is sent to it now."""
        return sum(
            len(topic.partition_states)
            for request in self._waiting[broker]
            if isinstance(request, LeaderAndIsrRequest)
            for topic in request.topic_states
        )

    def answer(self, broker: int) -> bool:
        """Let one broker answer its oldest request; whether there was one."""
        if not self._waiting[broker] or broker not in self.world.brokers:
            return False
        request = self._waiting[broker].popleft()
        response = self.world._answer(broker, request)
        epoch = self.world.brokers[broker].epoch
        self.term.happen(events.ResponseReceived(broker, epoch, request, response))
        self.collect()
        return True

    def lose(self, broker: int) -> None:
        del self.world.brokers[broker]
        self._waiting[broker].clear()
        self.term.brokers_changed()
        self.collect()

    def answer_all(self, *, but: int = -1) -> None:
        while sum(self.answer(one) for one in self._waiting if one != but) or self.fire():
            pass

    def fire(self) -> bool:
        """Let the timer of large steps fire, if it is set."""
        if self.term.timers.pop(events.NEXT_TIMER, None) is None:
            return False
        self.term.happen(events.TimerFired(events.NEXT_TIMER))
        self.collect()
        return True


def create(world: World, term: Term) -> None:
    world.add_topic("large", spread(LARGE, world.brokers, 2))
    term.happen(events.TopicsRead(frozenset(world.topics), (world.snapshot("large"),)))


def grow(world: World, term: Term) -> None:
    create_small(world, term, "large")
    term.resize("large", LARGE)


def grow_plainly(world: World, term: Term) -> None:
    create_small(world, term, "large", enable_ordered_delivery="false")
    term.resize("large", LARGE)


def shrink(world: World, term: Term) -> None:
    world.silent.clear()
    create(world, term)
    world.silent |= set(world.brokers)
    world.sent.clear()
    term.resize("large", 8)


def create_small(world: World, term: Term, name: str, **config: str) -> None:
    world.add_topic(name, spread(4, world.brokers, 2), **config)
    term.happen(events.TopicsRead(frozenset(world.topics), (world.snapshot(name),)))


def started_with(happens: Callable[[World, Term], None]) -> tuple[World, Term, Queues]:
    world, term = started()
    queues = Queues(world, term)
    happens(world, term)
    queues.collect()
    return world, term, queues


def is_done(happens: Callable[[World, Term], None], world: World) -> bool:
    body = world.topics["large"].body
    count = 8 if happens is shrink else LARGE
    led = all(TopicPartition("large", index) in world.states for index in range(count))
    return led and body.plan is None and body.undeleted_partition_count == count


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "PARTITIONS_AT_ONCE", PIECE)


STEPS = pytest.mark.parametrize("happens", [create, grow, grow_plainly, shrink])


@STEPS
def test_next_piece_follows_responses(happens: Callable[[World, Term], None]) -> None:
    world, _, queues = started_with(happens)
    queues.fire()
    assert not is_done(happens, world), "nobody has answered yet"
    queues.answer_all()
    assert is_done(happens, world)
    assert queues.most <= PIECE


@STEPS
def test_another_topic_waits_for_one_piece_only(happens: Callable[[World, Term], None]) -> None:
    world, term, queues = started_with(happens)
    for _ in range(3):
        for broker in world.brokers:
            queues.answer(broker)
    waits = [queues.behind(broker) for broker in world.brokers]
    assert not is_done(happens, world) and max(waits) <= 2 * PIECE, "each has the leaders and the followers of a piece"
    create_small(world, term, "small")
    queues.collect()
    queues.answer_all()
    assert is_done(happens, world)
    assert all(("small", index) in world.states for index in range(4))


@STEPS
def test_dead_leader_does_not_block_pieces(happens: Callable[[World, Term], None]) -> None:
    world, _, queues = started_with(happens)
    queues.answer_all(but=2)
    queues.lose(2)
    queues.answer_all()
    assert is_done(happens, world)


def create_without_replicas(world: World, term: Term) -> None:
    world.add_topic("large", spread(LARGE, world.brokers, 1))
    term.happen(events.TopicsRead(frozenset(world.topics), (world.snapshot("large"),)))


def test_topic_creation_continues_after_death_of_a_leading_broker() -> None:
    world, _, queues = started_with(create_without_replicas)
    queues.answer_all(but=2)
    assert len(world.states_of("large")) < LARGE // 2, "the pieces wait for it"
    queues.lose(2)
    queues.answer_all()
    assignment = world.topics["large"].body.assignment
    assert world.states_of("large").keys() >= {index for index, ids in assignment.items() if 2 not in ids}


def test_topic_creation_continues_after_disk_failure_of_a_leader() -> None:
    world, _, queues = started_with(create_without_replicas)
    lead = world._lead

    def fails(broker: int, request: LeaderAndIsrRequest) -> Any:
        response = lead(broker, request)
        for topic in response.topics if broker == 2 else ():
            for row in topic.partition_errors:
                row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return response

    world._lead = fails  # type: ignore[method-assign]
    queues.answer_all()
    assert is_done(create, world)
