"""An event costs the controller only its changes, however many topics exist.

Work is counted, not timed: how often anything is looked up in what the controller believes of topics and partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from anabranch.controller import events
from anabranch.controller.state import ClusterState
from tests.controller.world import Term, World

FEW, MANY = 20, 200
FACTS = ("topics", "partitions", "phases", "replica_phases", "indices", "adopted", "leaderless")


class Counting(dict[Any, Any]):
    """Counts lookups and iterations."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        self.looks += 1
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def __iter__(self) -> Iterator[Any]:
        for key in super().__iter__():
            self.looks += 1
            yield key

    def items(self) -> Any:
        return [(key, self[key]) for key in self]

    def values(self) -> Any:
        return [self[key] for key in self]


def counted(state: ClusterState) -> Callable[[], int]:
    """From now on; how much was looked at."""
    facts = []
    for name in FACTS:
        facts.append(Counting(getattr(state, name)))
        setattr(state, name, facts[-1])
    return lambda: sum(one.looks for one in facts)


def of_many_topics(count: int) -> tuple[World, Term]:
    world = World()
    world.add_brokers(1, 2, 3)
    for number in range(count):
        world.add_topic(f"topic-{number}", {0: (1, 2), 1: (2, 3)})
    term = Term(world).take_over()
    term.thorough = False
    return world, term


def create(world: World, term: Term) -> None:
    world.add_topic("new", {0: (1, 2), 1: (2, 3)})
    term.happen(events.TopicsRead(frozenset(world.topics), (world.snapshot("new"),)))
    assert world.state("new", 0).leader == 1


def delete(world: World, term: Term) -> None:
    world.deletions.add("topic-7")
    term.happen(events.DeletionsRead(frozenset(world.deletions)))
    assert "topic-7" not in world.topics


def grow(world: World, term: Term) -> None:
    assert term.resize("topic-7", 4).error_code == 0


def move(world: World, term: Term) -> None:
    assert term.reassign({0: [2, 3]}, "topic-7") == {0: 0}
    term.join_isr(0, 3, name="topic-7")
    assert world.topics["topic-7"].body.assignment[0] == (2, 3)


def look_for_drained(world: World, term: Term) -> None:
    term.happen(events.TimerFired(events.DRAINED_TIMER))


@pytest.mark.parametrize("happens", [create, delete, grow, move, look_for_drained])
def test_cost_of_event_does_not_grow_with_topics(happens: Callable[[World, Term], None]) -> None:
    looks = []
    for count in (FEW, MANY):
        world, term = of_many_topics(count)
        count_of = counted(term.state)
        happens(world, term)
        looks.append(count_of())
    assert looks[0] == looks[1]


def test_pending_deletions_cost_nothing_until_broker_returns() -> None:
    """Thousands of topics whose brokers are down are processed when a broker returns."""
    looks = []
    for count in (FEW, MANY):
        world, term = of_many_topics(count)
        del world.brokers[2]
        term.brokers_changed()
        world.deletions |= {f"topic-{number}" for number in range(count - 10)}
        term.happen(events.DeletionsRead(frozenset(world.deletions)))
        assert len(world.topics) == count, "a dead broker has a replica of each"
        count_of = counted(term.state)
        create_on_the_living(world, term)
        looks.append(count_of())
        world.add_brokers(2)
        term.brokers_changed()
        assert len(world.topics) == 11
    assert looks[0] == looks[1]


def create_on_the_living(world: World, term: Term) -> None:
    world.add_topic("new", {0: (1, 3)})
    term.happen(events.TopicsRead(frozenset(world.topics), (world.snapshot("new"),)))
    assert world.state("new", 0).leader == 1
