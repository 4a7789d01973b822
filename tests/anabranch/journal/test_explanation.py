"""An explanation names the real cause of an exchange's outcome, or none."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.broker.authorization.peer import Peer
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.control.events import Events
from anabranch.faults.matching import RequestView
from anabranch.faults.rule import Rule
from anabranch.journal.entry import JournalEntry
from anabranch.journal.explanation import explain
from anabranch.journal.journal import Journal
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from anabranch.protocol.apis.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.hashing import partition_of_group
from anabranch.protocol.registry import BY_NAME
from tests.anabranch.faults.samples import PEER, SURROUNDINGS, by_name
from tests.anabranch.proxy.stories import make_topics
from tests.differential.case import batch


@dataclasses.dataclass
class Happened:
    at_s: float
    kind: str
    detail: Mapping[str, Any]


def leader(at_s: float, node: int, epoch: int, topic: str = "orders", partition: int = 3) -> Happened:
    return Happened(at_s, "leader", {"topic": topic, "partition": partition, "leader": node, "leader_epoch": epoch})


def exchange(
    api: str, version: int, number: int = 9, at_s: float = 100.0, peer: Peer = PEER, **body: Any
) -> JournalEntry:
    request = by_name(api, version)
    request.client_id = "shop"
    for name, content in body.items():
        setattr(request.body, name, content)
    return JournalEntry(number, at_s, RequestView(request, peer, 0, SURROUNDINGS))


def produce(code: ErrorCode, rule: Rule | None = None) -> JournalEntry:
    data = [TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=3, records=b"")])]
    body = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1, topic_data=data)
    entry = JournalEntry(
        9, 100.0, RequestView(DecodedRequest(BY_NAME["Produce"], 9, 1, "shop", body), PEER, 0, SURROUNDINGS)
    )
    if rule is not None:
        entry.hit_by(rule)
    row = BY_NAME["Produce"].response
    from anabranch.protocol.apis.produce import PartitionProduceResponse, TopicProduceResponse

    part = PartitionProduceResponse(index=3, error_code=code, base_offset=-1)
    entry.end(100.010, "answered", row(responses=[TopicProduceResponse(name="orders", partition_responses=[part])]))
    return entry


HEAD = "Produce v9 of shop to broker 1 was refused with"


def test_moved_leader_is_explained_with_reason() -> None:
    events = [
        leader(50, 1, 4),
        Happened(99.975, "node killed", {"node": 1}),
        leader(99.999, 2, 5),
        leader(99, 9, 9, "x"),
    ]
    assert explain(produce(ErrorCode.NOT_LEADER_OR_FOLLOWER), events, []) == [
        f"{HEAD} NOT_LEADER_OR_FOLLOWER for orders-3: its leader is broker 2 in epoch 5, since 11 ms before, "
        "after broker 1 was killed, 35 ms before."
    ]
    assert explain(produce(ErrorCode.FENCED_LEADER_EPOCH), [leader(100.03, -1, 6)], []) == [
        f"{HEAD} FENCED_LEADER_EPOCH for orders-3: it has no leader in epoch 6, since 20 ms after."
    ]


def test_old_and_unrelated_events_explain_nothing() -> None:
    for events in ([], [leader(3, 2, 5)], [leader(99.9, 2, 5, partition=1)], [leader(110, 2, 5)]):
        (reason,) = explain(produce(ErrorCode.NOT_LEADER_OR_FOLLOWER), events, [])
        assert reason == f"{HEAD} NOT_LEADER_OR_FOLLOWER for orders-3: the journal has no reason."


def test_rules_are_named_first_and_explain_their_errors() -> None:
    rule = Rule(name="stale", api=("Produce",), error="NOT_LEADER_OR_FOLLOWER")
    assert explain(produce(ErrorCode.NOT_LEADER_OR_FOLLOWER, rule), [leader(99.9, 2, 5)], []) == [
        "Rule stale has hit it.",
        f"{HEAD} NOT_LEADER_OR_FOLLOWER for orders-3, because of a rule.",
    ]
    late = Rule(name="slow", delay_ms=(10.0,))
    assert (
        "broker 2 in epoch 5" in explain(produce(ErrorCode.NOT_LEADER_OR_FOLLOWER, late), [leader(99.9, 2, 5)], [])[1]
    )


def test_too_small_isr_and_resize_are_explained() -> None:
    gone = Happened(99.0, "isr", {"topic": "orders", "partition": 3, "isr": [1]})
    (reason,) = explain(produce(ErrorCode.NOT_ENOUGH_REPLICAS), [gone], [])
    assert reason.endswith("its in-sync replicas are 1, since 1010 ms before.")
    grown = Happened(100.0, "resize published", {"topic": "orders", "from": 4, "to": 6, "generation": 1})
    (reason,) = explain(produce(ErrorCode.INVALID_PARTITION_METADATA), [grown], [])
    assert reason.endswith("orders goes from 4 to 6 partitions (resize published) 10 ms before.")


def test_deleted_and_unknown_topics_are_explained() -> None:
    unknown = produce(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    (reason,) = explain(unknown, [Happened(99.5, "topic deletion", {"topic": "orders"})], [])
    assert reason.endswith("orders was deleted 510 ms before.")
    assert explain(unknown, [], [])[0].endswith("no event names such a topic.")
    assert explain(unknown, [leader(3, 1, 0, partition=1)], [])[0].endswith(
        "orders has partitions 0 to 1, as far as the journal shows."
    )


def refused(entry: JournalEntry, code: ErrorCode) -> JournalEntry:
    answer = by_name(entry.api, entry.view.request.version).api.response
    entry.end(entry.at_s + 0.01, "answered", answer(throttle_time_ms=0, error_code=code))
    return entry


def test_rebalance_by_other_members_is_explained() -> None:
    mine = refused(exchange("Heartbeat", 3, group_id="billing"), ErrorCode.REBALANCE_IN_PROGRESS)
    other = exchange("JoinGroup", 5, number=7, at_s=99.99, peer=Peer("elsewhere"), group_id="billing")
    stranger = exchange("JoinGroup", 5, number=8, at_s=99.99, peer=Peer("elsewhere"), group_id="other")
    own = exchange("JoinGroup", 5, number=6, at_s=99.99, group_id="billing")
    (reason,) = explain(mine, [], [own, other, stranger, mine])
    assert reason.endswith("for billing: group billing was changed by JoinGroup of shop (exchange 7), 20 ms before.")
    assert explain(mine, [], [own, stranger, mine])[0].endswith("the journal has no reason.")


def test_moved_coordinator_is_explained() -> None:
    mine = refused(exchange("Heartbeat", 3, group_id="billing"), ErrorCode.NOT_COORDINATOR)
    index = partition_of_group("billing", 10)
    events = [leader(1, 1, 0, "__consumer_offsets", one) for one in range(10)]
    events.append(leader(99.99, 3, 1, "__consumer_offsets", index))
    (reason,) = explain(mine, events, [])
    assert f"its coordinator is the leader of __consumer_offsets-{index}: its leader is broker 3 in epoch 1" in reason


def test_fenced_producer_is_explained() -> None:
    mine = refused(exchange("EndTxn", 3, transactional_id="tx"), ErrorCode.PRODUCER_FENCED)
    rival = exchange("InitProducerId", 3, number=4, at_s=99.9, transactional_id="tx")
    (reason,) = explain(mine, [], [rival, mine])
    assert reason.endswith("for tx: tx was taken over by InitProducerId of shop (exchange 4), 110 ms before.")


def test_unanswered_and_successful_requests_are_explained() -> None:
    entry = exchange("Heartbeat", 3)
    entry.end(100.5, "closed", None)
    killed = Happened(100.499, "node killed", {"node": 1})
    (reason,) = explain(entry, [killed], [])
    assert reason.endswith("and its connection was closed: broker 1 was killed, 1 ms before.")
    fine = refused(exchange("Heartbeat", 3), ErrorCode.NONE)
    assert explain(fine, [killed], []) == [
        "Heartbeat v3 of shop to broker 1 was processed without an error, after 10 ms."
    ]


def test_metadata_of_another_cluster_explains_leader() -> None:
    told_of = exchange("Metadata", 7, number=12, at_s=100.05)
    part = MetadataResponsePartition(
        error_code=0, partition_index=3, leader_id=2, leader_epoch=8, replica_nodes=[], isr_nodes=[]
    )
    topic = MetadataResponseTopic(error_code=0, name="orders", partitions=[part])
    told_of.end(100.06, "answered", MetadataResponse(brokers=[], topics=[topic]))
    (reason,) = explain(produce(ErrorCode.NOT_LEADER_OR_FOLLOWER), [], [told_of])
    assert reason.endswith("its leader is broker 2 in epoch 8, since 40 ms after.")


async def test_journal_explains_exchanges_of_a_cluster() -> None:
    async with Cluster(2, seed=1) as cluster:
        events, journal = Events(), Journal(50, cluster.node_ids)
        cluster.on_node(events.watch)
        cluster.on_node(journal.watch)
        journal.knows(lambda: events.after(0))
        await make_topics(cluster.bootstrap_servers, "t", partitions=1)
        leaders = {
            one.detail["leader"] for one in events.after(0) if one.kind == "leader" and one.detail["topic"] == "t"
        }
        (leads,) = leaders
        connection = await Connection.open(*cluster.address(3 - leads), client_id="app")
        data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch(b"x"))])]
        await connection.call(ProduceRequest(transactional_id=None, acks=1, timeout_ms=5000, topic_data=data))
        await connection.close()
        (entry,) = journal.entries(error="NOT_LEADER_OR_FOLLOWER")
        (told_why,) = journal.explain(entry)
        assert f"NOT_LEADER_OR_FOLLOWER for t-0: its leader is broker {leads} in epoch 0, since" in told_why
        assert journal.explain(entry.number) == [told_why]
        with pytest.raises(KeyError):
            journal.explain(10_000)


@pytest.mark.parametrize("version", [3, 4])
async def test_uncreatable_coordinator_topic_is_explained(version: int) -> None:
    """A broker was killed before the first group, and the topic needs three replicas."""
    properties = {"offsets.topic.replication.factor": "3"}
    async with Cluster(3, seed=1, properties=properties) as cluster:
        events, journal = Events(), Journal(50, cluster.node_ids)
        cluster.on_node(events.watch)
        cluster.on_node(journal.watch)
        journal.knows(lambda: events.after(0))
        await cluster.crash_broker(3)
        await cluster.nodes[1].services.metadata.wait_until(lambda image: 3 not in image.brokers, 30_000)
        connection = await Connection.open(*cluster.address(1), client_id="app")
        keys = {"coordinator_keys": ["billing"]} if version == 4 else {"key": "billing"}
        await connection.call(FindCoordinatorRequest(**keys), version=version)
        await connection.close()
        (entry,) = journal.entries(error="COORDINATOR_NOT_AVAILABLE")
        (reason,) = journal.explain(entry)
        assert reason.endswith(
            "__consumer_offsets, the topic of the coordinators, cannot be created: "
            "Replication factor: 3 larger than available brokers: 2."
        )


def test_error_without_known_cause_has_message_of_broker() -> None:
    def refused(*texts: str | None) -> list[str]:
        entry = exchange("Produce", 9)
        rows = [
            PartitionProduceResponse(
                index=index,
                error_code=ErrorCode.POLICY_VIOLATION,
                base_offset=-1,
                error_message=text,
                current_leader=LeaderIdAndEpoch(),
            )
            for index, text in enumerate(texts)
        ]
        entry.end(
            100.1, "answered", ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=rows)])
        )
        return explain(entry, [], [])

    (only,) = refused("t was resized.")
    assert only.endswith("was refused with POLICY_VIOLATION for t-0: the broker says: t was resized.")
    assert all(one.endswith("the journal has no reason.") for one in (*refused(None), *refused("one", "another")))
