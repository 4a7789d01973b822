"""The requests of one decision: few, in Kafka's order, with each partition's generation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.controller import requests
from anabranch.controller.effects import SendToBroker
from anabranch.controller.model import Plan, Retired, TopicPartition
from anabranch.controller.requests import RequestBatch
from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from anabranch.protocol.apis.stop_replica import StopReplicaRequest
from anabranch.protocol.apis.update_metadata import UpdateMetadataRequest
from tests.controller.world import started

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_each_broker_gets_one_request_of_each_kind_in_kafka_order() -> None:
    _, term = started(brokers=2, partitions=2, replication=2)
    batch = RequestBatch(term.state)
    batch.stop(T0, [1], delete=True)
    batch.add_leadership(T0)
    batch.add_leadership(T1)
    kinds = [(effect.broker_id, type(effect.request)) for effect in batch.flush()]  # type: ignore[union-attr]
    assert kinds == [
        (1, LeaderAndIsrRequest),
        (2, LeaderAndIsrRequest),
        (1, UpdateMetadataRequest),
        (2, UpdateMetadataRequest),
        (1, StopReplicaRequest),
    ]


def test_orders_about_many_partitions_are_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic is whole in UpdateMetadata, which says its generation."""
    monkeypatch.setattr(requests, "PARTITIONS_PER_REQUEST", 2)
    _, term = started(brokers=2, partitions=3, replication=2)
    topic = term.state.topics["t"]
    term.state.put_topic(replace(topic, name="u"))
    for index in range(3):
        term.state.believe(TopicPartition("u", index), term.state.partitions[TopicPartition("t", index)])
    batch = RequestBatch(term.state)
    everything = [TopicPartition(name, index) for name in "tu" for index in range(3)]
    for partition in everything:
        batch.add_leadership(partition)
        batch.stop(partition, [2], delete=False)
    sent = [effect for effect in batch.flush() if isinstance(effect, SendToBroker) and effect.broker_id == 2]
    assert [
        (type(one.request), [(row.topic_name, len(row.partition_states)) for row in one.request.topic_states])
        for one in sent
    ] == [
        *[(LeaderAndIsrRequest, rows) for rows in ([("t", 2)], [("t", 1), ("u", 1)], [("u", 2)])],
        *[(UpdateMetadataRequest, rows) for rows in ([("t", 3)], [("u", 3)])],
        *[(StopReplicaRequest, rows) for rows in ([("t", 2)], [("t", 1), ("u", 1)], [("u", 2)])],
    ]


def test_full_update_is_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker forgets the topics that it does not name."""
    monkeypatch.setattr(requests, "PARTITIONS_PER_REQUEST", 1)
    _, term = started(brokers=1, partitions=2, replication=1)
    term.state.put_topic(replace(term.state.topics["t"], name="u"))
    for index in range(2):
        term.state.believe(TopicPartition("u", index), term.state.partitions[TopicPartition("t", index)])
    batch = RequestBatch(term.state)
    batch.add_everything()
    batch.add_metadata(T0)
    (sent,) = batch.flush()
    assert isinstance(sent, SendToBroker) and sent.request.type == requests.FULL_UPDATE
    assert [row.topic_name for row in sent.request.topic_states] == ["t", "u"]


def test_update_of_brokers_alone_is_one_request() -> None:
    _, term = started(brokers=1, replication=1)
    batch = RequestBatch(term.state)
    batch.add_brokers()
    (sent,) = batch.flush()
    assert isinstance(sent, SendToBroker) and [one.id for one in sent.request.live_brokers] == [1]


def test_leader_and_isr_has_generation_of_partition_and_not_of_plan() -> None:
    """C7: a repeated LeaderAndIsr must not pair an epoch with an unwritten generation."""
    _, term = started(partitions=2)
    topic = term.state.topics["t"]
    term.state.put_topic(replace(topic, body=replace(topic.body, plan=Plan(1, 2, 4))))
    row = (
        requests.leader_and_isr_request(term.state, 1, {T0: False}, requests.Leaderships(term.state))
        .topic_states[0]
        .partition_states[0]
    )
    assert (row.generation, row.leader_epoch) == (0, 0)


def test_stop_replica_epochs() -> None:
    """-2 for a deleted partition or a reassigned broker; a removed replica gets the epoch without it."""
    _, term = started(partitions=2)
    rows = requests.stop_replica_request(term.state, 1, {T0: True}).topic_states[0].partition_states
    assert [(row.leader_epoch, row.delete_partition) for row in rows] == [(-2, True)]
    topic = term.state.topics["t"]
    term.state.put_topic(replace(topic, body=replace(topic.body, assignment={0: (2,), 1: (2,)})))
    rows = requests.stop_replica_request(term.state, 1, {T0: True, T1: False}).topic_states[0].partition_states
    assert [(row.leader_epoch, row.delete_partition) for row in rows] == [(0, True), (0, False)]
    term.state.deleting.add("t")
    rows = requests.stop_replica_request(term.state, 1, {T0: True, T1: False}).topic_states[0].partition_states
    assert [(row.leader_epoch, row.delete_partition) for row in rows] == [(-2, True), (0, False)]


def test_topic_being_deleted_has_leader_minus_two() -> None:
    _, term = started(partitions=1)
    term.state.deleting.add("t")
    request = requests.update_metadata_request(
        term.state, 1, requests.update_metadata_topics(term.state, [T0]), full=False
    )
    row = request.topic_states[0].partition_states[0]
    assert (row.leader, row.leader_epoch) == (-2, 0)
    assert [one.endpoints[0].host for one in request.live_brokers] == ["host1", "host2", "host3"]


def test_update_metadata_has_the_id_of_a_security_protocol() -> None:
    """PLAINTEXT's for one that is unknown: the name of a listener that its broker's znode does not map."""
    _, term = started(partitions=1)
    brokers = term.state.brokers
    for broker_id, protocol in enumerate(("SASL_SSL", "OURS"), 1):
        (endpoint,) = brokers[broker_id].endpoints
        brokers[broker_id] = replace(brokers[broker_id], endpoints=(endpoint._replace(security_protocol=protocol),))
    request = requests.update_metadata_request(term.state, 1, [], full=True)
    assert [one.endpoints[0].security_protocol for one in request.live_brokers] == [3, 0, 0]


def test_replicas_on_dead_brokers_are_offline_replicas() -> None:
    world, term = started(partitions=1, replication=2)
    del world.brokers[2]
    term.brokers_changed()
    row = requests.update_metadata_topics(term.state, [T0])[0].partition_states[0]
    assert (row.offline_replicas, row.isr) == ([2], [1])


def test_tombstone_of_earlier_partition_does_not_remove_current_one() -> None:
    _, term = started(partitions=4)
    term.resize("t", 3)
    topic, committed = term.state.topics["t"], term.state.partitions[TopicPartition("t", 3)]
    epoch = committed.state.leader_epoch
    for stub_epoch, removed in ((epoch - 1, False), (epoch, True)):
        body = replace(topic.body, retired={3: Retired(stub_epoch, 5)})
        assert requests.being_removed(replace(topic, body=body), 3, committed) is removed
    live = replace(topic, body=replace(topic.body, retired={0: Retired(99, 5)}))
    assert not requests.being_removed(live, 0, term.state.partitions[T0]), "only what is marked for deletion goes"
