"""The life of a topic: completed, deleted, changed by others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.controller import events, topics
from anabranch.controller.model import TopicBody, TopicPartition
from anabranch.controller.settings import ControllerSettings
from anabranch.controller.state import ClusterState
from anabranch.protocol.linear_hashing import base_of
from anabranch.protocol.wire import ZERO_UUID
from tests.controller.world import Term, started


def test_stock_topic_znode_is_completed() -> None:
    world, term = started()
    assignment = dict.fromkeys(range(6), (1, 2))
    stock = replace(world.topics["t"], name="s", body=TopicBody(topic_id=ZERO_UUID, assignment=assignment))
    world.topics["s"] = stock
    term.happen(events.TopicsRead(frozenset({"s", "t"}), (world.snapshot("s"),)))
    body = world.topics["s"].body
    assert (body.initial_partition_count, body.base, body.history) == (6, base_of(6), ((0, 6),))
    assert body.topic_id != ZERO_UUID
    assert {state.generation for state in world.states_of("s").values()} == {0}
    assert world.images[1].names[body.topic_id] == "s"


def test_partition_without_a_state_hides_no_states_of_others() -> None:
    world, _ = started(partitions=3)
    del world.states[TopicPartition("t", 0)]
    state = ClusterState(ControllerSettings(node_id=9), 2)
    state.brokers = dict(world.brokers)
    topics.load(state, world.snapshot("t"))
    assert state.partitions == world.states


def test_deletion_hides_topic_stops_replicas_and_removes_znodes() -> None:
    world, term = started(partitions=2, replication=2)
    world.deletions.add("t")
    term.happen(events.DeletionsRead(frozenset({"t"})))
    assert not world.topics and not world.states and not world.deletions and not world.held
    assert all("t" not in image.topics for image in world.images.values())
    assert not term.state.partitions and not term.state.replica_phases


def test_deletion_waits_for_replicas_on_dead_brokers() -> None:
    world, term = started(partitions=2, replication=2)
    del world.brokers[2]
    term.brokers_changed()
    world.deletions.add("t")
    term.happen(events.DeletionsRead(frozenset({"t"})))
    assert "t" in world.topics and "t" not in world.images[1].topics
    world.add_brokers(2)
    term.brokers_changed()
    assert "t" not in world.topics and not world.held


def test_deletion_is_resumed_by_next_controller() -> None:
    world, term = started(partitions=2, replication=2)
    world.silent.add(1)
    world.deletions.add("t")
    term.happen(events.DeletionsRead(frozenset({"t"})))
    assert "t" in world.topics
    world.silent.clear()
    Term(world).take_over()
    assert "t" not in world.topics and not world.held


def test_deletion_of_missing_or_protected_topic_is_discarded() -> None:
    world, term = started()
    world.deletions.add("nope")
    term.happen(events.DeletionsRead(frozenset({"nope"})))
    assert not world.deletions
    term = Term(world, delete_topic_enable=False).take_over()
    world.deletions.add("t")
    term.happen(events.DeletionsRead(frozenset({"t"})))
    assert "t" in world.topics and not world.deletions


def test_topic_znode_deleted_by_others_is_forgotten() -> None:
    world, term = started()
    del world.topics["t"]
    world.states.clear()
    term.happen(events.TopicsRead(frozenset(), ()))
    assert not term.state.partitions and not world.held
    assert all("t" not in image.topics for image in world.images.values())


def test_changed_configuration_reaches_metadata() -> None:
    world, term = started()
    topic = replace(world.topics["t"], config={"min.insync.replicas": "2", "enable.ordered.delivery": "false"})
    term.happen(events.TopicRead(topic))
    shown = world.images[2].topics["t"]
    assert (shown.min_insync_replicas, shown.ordered_delivery) == (2, False)


def test_replica_that_restarts_during_deletion_gets_the_request_again() -> None:
    world, term = started(partitions=2, replication=2)
    world.silent.add(1)
    world.deletions.add("t")
    term.happen(events.DeletionsRead(frozenset({"t"})))
    world.silent.clear()
    world.add_brokers(1)
    term.brokers_changed()
    assert "t" not in world.topics and not world.held


def test_partitions_added_by_stock_tool_are_created_only_if_unordered() -> None:
    for ordered, expected in (("true", 4), ("false", 5)):
        world, term = started(partitions=4, enable_ordered_delivery=ordered)
        topic = world.topics["t"]
        body = replace(topic.body, assignment={**topic.body.assignment, 4: (1, 2)})
        world.topics["t"] = replace(topic, body=body, version=topic.version + 1)
        term.happen(events.TopicRead(world.topics["t"]))
        assert len(world.states_of("t")) == expected
        body = world.topics["t"].body
        assert (body.undeleted_partition_count, body.lineage.count) == (expected, expected)


@pytest.mark.parametrize("added", ["a partition", "a replica"])
def test_unknown_partition_state_of_another_writer_does_not_block_broker_loss(added: str) -> None:
    """A stock tool or a later controller added it: its state is unknown."""
    world, term = started(partitions=4, replication=2)
    topic = world.topics["t"]
    changed = {4: (1, 2)} if added == "a partition" else {0: (1, 3, 2)}
    body = replace(topic.body, assignment={**topic.body.assignment, **changed})
    world.topics["t"] = replace(topic, body=body, version=topic.version + 1)
    term.happen(events.TopicRead(world.topics["t"]))
    for gone in (2, 3):
        del world.brokers[gone]
        term.brokers_changed()
    assert {one.leader for one in world.states_of("t").values()} <= {1, -1}
    world.add_brokers(2, 3)
    term.brokers_changed()
    assert len(world.states_of("t")) == 4 and all(one.leader > 0 for one in world.states_of("t").values())
