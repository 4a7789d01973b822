"""The controller's beliefs as text."""

from __future__ import annotations

from controller import describe
from tests.controller.world import started


def test_every_broker_topic_and_partition_has_its_line() -> None:
    world, term = started(partitions=4)
    del world.brokers[3]
    term.brokers_changed()
    term.state.shutting_down.add(2)
    lines = describe.state(term.state).splitlines()
    assert lines[0] == "controller 9 at epoch 1: 1 topics"
    assert lines[1].endswith("epoch 101") and lines[2].endswith(", stopping")
    assert len(lines) == 1 + 2 + 1 + 4


def test_description_names_what_a_resize_waits_for() -> None:
    world, term = started(partitions=4)
    world.silent.add(world.state("t", 0).leader)
    term.resize("t", 3)
    text = describe.state(term.state)
    assert "topic t: 4 partitions at generation 0, resizing to 3 as generation 1" in text
    assert "3: online, leader 1@1, isr [1, 2], generation 1, sealed, waiting for its leader" in text
