"""A snapshot of metadata, and its monotonic parts."""

from __future__ import annotations

import pytest

from anabranch.clients.metadata import NO_LEADER, ClusterMetadata
from anabranch.protocol.apis.common_structs import GenerationStart, ReshardStep
from anabranch.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.topic_partition import TopicPartition

ID = b"i" * 16


def partition(index: int, leader: int = 1, epoch: int = 0, sealed: bool = False) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=0,
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[leader],
        isr_nodes=[leader],
        gen_start=[GenerationStart(generation=0, leader_epoch=0)],
        marked_for_deletion=sealed,
    )


def topic(
    *partitions: MetadataResponsePartition,
    counts: tuple[int, ...] = (),
    topic_id: bytes = ID,
    error: ErrorCode = ErrorCode.NONE,
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error,
        name="t",
        topic_id=topic_id,
        partitions=list(partitions),
        base=1 if counts else -1,
        history=[ReshardStep(generation=generation, count=count) for generation, count in enumerate(counts)],
        ordered_delivery=bool(counts),
    )


def response(*topics: MetadataResponseTopic, nodes: tuple[int, ...] = (1, 2)) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=node, host="h", port=node) for node in nodes]
    return MetadataResponse(brokers=brokers, controller_id=1, cluster_id="c", topics=list(topics))


def after(*responses: MetadataResponse, complete: bool = False) -> ClusterMetadata:
    metadata = ClusterMetadata()
    for one in responses:
        metadata = metadata.update(one, complete=complete)
    return metadata


@pytest.mark.parametrize(
    ("replicas", "isr", "least", "enough"),
    [
        ([1, 2, 3], [1], 2, False),
        ([1, 2, 3], [1, 3], 2, True),
        ([1], [1], 2, True),  # as many as there are: the leader accepts it
        ([1, 2], [1], 3, False),
        ([1, 2, 3], [1], -1, True),  # a broker that does not tell
        ([1], [], 1, False),
    ],
)
def test_in_sync_enough_agrees_with_leader(replicas: list[int], isr: list[int], least: int, enough: bool) -> None:
    one = partition(0)
    one.replica_nodes, one.isr_nodes = replicas, isr
    described = topic(one)
    described.min_insync_replicas = least
    known = after(response(described)).topics["t"]
    assert known.in_sync_enough(0) is enough
    assert known.in_sync_enough(1), "nothing is known of it"


def test_ordered_topic_has_lineage_and_live_partitions() -> None:
    metadata = after(response(topic(partition(0), partition(1, sealed=True), counts=(2, 1))))
    known = metadata.topics["t"]
    assert known.lineage == Lineage(1, [(0, 2), (1, 1)])
    assert (known.ordered, known.generation, known.live) == (True, 1, (0,))
    assert known.partitions[1].marked_for_deletion
    assert known.partitions[0].gen_start == ((0, 0),)


def test_unordered_topic_has_no_lineage() -> None:
    known = after(response(topic(partition(0), partition(2), partition(1)))).topics["t"]
    assert (known.lineage, known.ordered, known.generation, known.live) == (None, False, -1, (0, 1, 2))


def test_outdated_response_does_not_restore_old_generation() -> None:
    """K507: topics missing in an old broker's response stay; a newer response may remove them."""
    old = response(topic(partition(0, epoch=1), counts=(1,)))
    new = response(topic(partition(0, epoch=2), partition(1), counts=(1, 2)))
    metadata = after(old, new, old)
    assert metadata.topics["t"].generation == 1
    assert set(metadata.topics["t"].partitions) == {0, 1}
    assert metadata.topics["t"].partitions[0].leader_epoch == 2
    merged = response(topic(partition(0, epoch=3), counts=(1, 2, 1)))
    assert set(after(old, new, merged).topics["t"].partitions) == {0}


def test_generation_survives_responses_without_topic() -> None:
    new = response(topic(partition(0), partition(1), counts=(1, 2)))
    gap = response(topic(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    old = response(topic(partition(0), counts=(1,)))
    assert "t" not in after(new, gap).topics
    assert after(new, gap).errors == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert after(new, gap, old).topics["t"].generation == 1


def test_another_topic_id_replaces_topic() -> None:
    new = response(topic(partition(0, epoch=9), partition(1), counts=(1, 2)))
    other = response(topic(partition(0, epoch=0), counts=(1,), topic_id=b"j" * 16))
    known = after(new, other).topics["t"]
    assert (known.generation, known.partitions[0].leader_epoch, set(known.partitions)) == (0, 0, {0})


def test_leader_of_older_epoch_is_ignored() -> None:
    metadata = after(
        response(topic(partition(0, leader=2, epoch=5))),
        response(topic(partition(0, leader=1, epoch=4))),
    )
    assert metadata.leader("t", 0) == 2


@pytest.mark.parametrize(
    ("topic_id", "epoch"),
    [
        pytest.param(ID, 5, id="the same topic"),
        pytest.param(b"j" * 16, 4, id="another topic of its name"),
        pytest.param(bytes(16), 4, id="brokers without topic ids"),
    ],
)
def test_leader_of_older_epoch_is_ignored_although_a_node_did_not_know_the_topic(topic_id: bytes, epoch: int) -> None:
    """Seed 2591: a node had just started, and the next to answer was stale. Its log was shorter than the position."""
    first = ID if topic_id == b"j" * 16 else topic_id
    metadata = after(
        response(topic(partition(0, leader=2, epoch=5), topic_id=first)),
        response(topic(topic_id=first, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
    )
    assert metadata.leader("t", 0) == NO_LEADER
    found = metadata.update(response(topic(partition(0, leader=1, epoch=4), topic_id=topic_id)), complete=False)
    assert (found.leader_epoch("t", 0), dict(found.vanished)) == (epoch, {})


def test_unlisted_leader_counts_as_no_leader() -> None:
    metadata = after(response(topic(partition(0, leader=3))))
    assert metadata.leader("t", 0) == NO_LEADER
    assert metadata.leader("t", 7) == NO_LEADER
    assert metadata.leader("unknown", 0) == NO_LEADER


def test_topic_temporarily_without_leader_is_kept() -> None:
    metadata = after(response(topic(partition(0))), response(topic(error=ErrorCode.LEADER_NOT_AVAILABLE)))
    assert "t" in metadata.topics
    assert metadata.errors["t"] == ErrorCode.LEADER_NOT_AVAILABLE


def test_topics_in_response_without_brokers_are_ignored() -> None:
    """It has just started: its "unknown topic" is not a deletion."""
    unknown = topic(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    known = after(response(topic(partition(0))))
    assert known.update(response(unknown, nodes=()), complete=True).topics == known.topics
    assert known.update(response(unknown), complete=False).topics == {}


def test_complete_response_removes_unlisted_topics() -> None:
    assert after(response(topic(partition(0))), response(), complete=True).topics == {}
    assert "t" in after(response(topic(partition(0))), response()).topics


def test_snapshots_are_immutable() -> None:
    first = after(response(topic(partition(0), counts=(1,))))
    first.update(response(topic(partition(0), partition(1), counts=(1, 2))), complete=False)
    assert first.topics["t"].generation == 0
    assert first.lineages[ID].generation == 0


def test_errors_are_those_of_newest_response() -> None:
    refused = response(topic(error=ErrorCode.INVALID_REPLICATION_FACTOR))
    assert after(refused).errors == {"t": ErrorCode.INVALID_REPLICATION_FACTOR}
    assert after(refused, response()).errors == {}, "nobody asked for it"
    assert after(response(topic(partition(0))), refused, response(nodes=())).errors == {}


def test_error_names_reason_of_missing_leader() -> None:
    assert after(response()).obstacle("t", 0) == "no metadata of t"
    unready = after(response(topic(error=ErrorCode.LEADER_NOT_AVAILABLE)))
    assert unready.obstacle("t") == "the cluster answers LEADER_NOT_AVAILABLE for t"
    known = after(response(topic(partition(0), partition(1, leader=-1), partition(2, leader=9))))
    assert known.obstacle("t") == known.obstacle("t", 0) == ""
    assert known.obstacle("t", 1) == "t-1 has no leader"
    assert known.obstacle("t", 2) == "node 9, the leader of t-2, is not available"
    assert known.obstacle("t", 3) == "t has no partition 3"


def test_leader_older_than_an_awaited_epoch_is_not_used() -> None:
    old = response(topic(partition(0, leader=1, epoch=3), partition(1, leader=1, epoch=3)))
    metadata = after(old).await_epochs(
        {TopicPartition("t", 0): 5, TopicPartition("t", 1): 3, TopicPartition("u", 0): 9}
    )
    assert [metadata.leader("t", index) for index in (0, 1)] == [NO_LEADER, 1]
    assert metadata.obstacle("t", 0) == "t-0 has a newer leader than node 1"
    assert metadata.update(old, complete=False).leader("t", 0) == NO_LEADER, "another response of a stale node"
    assert metadata.update(response(topic(partition(0, leader=2, epoch=4))), complete=False).leader("t", 0) == NO_LEADER
    found = metadata.update(response(topic(partition(0, leader=2, epoch=5), partition(1))), complete=False)
    assert (found.leader("t", 0), found.awaited_epochs) == (2, {})


def test_awaited_epoch_of_a_deleted_topic_does_not_apply_to_its_successor() -> None:
    metadata = after(response(topic(partition(0, epoch=3)))).await_epochs({TopicPartition("t", 0): 5})
    found = metadata.update(response(topic(partition(0, epoch=0), topic_id=b"j" * 16)), complete=False)
    assert (found.leader("t", 0), found.awaited_epochs) == (1, {})


def test_unknown_epoch_is_older_than_none() -> None:
    """Metadata before version 7 has no epochs."""
    metadata = after(response(topic(partition(0, epoch=-1))))
    assert metadata.await_epochs({TopicPartition("t", 0): 5}) is metadata


def test_partition_that_no_topic_can_have_was_not_removed() -> None:
    metadata = after(response(topic(partition(0), counts=(2, 1))))
    assert [metadata.has_removed("t", index) for index in (-1, 0, 1, 2)] == [False, False, True, False]
