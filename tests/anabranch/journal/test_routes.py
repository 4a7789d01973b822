"""A request goes to the broker that the target cluster names for it."""

from __future__ import annotations

from anabranch.journal.routes import Routes
from anabranch.protocol.apis.create_topics import CreateTopicsRequest
from anabranch.protocol.apis.end_txn import EndTxnRequest
from anabranch.protocol.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from anabranch.protocol.apis.heartbeat import HeartbeatRequest
from anabranch.protocol.apis.list_groups import ListGroupsRequest
from anabranch.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.anabranch.proxy.test_fetch_sessions import fetch


def routes() -> Routes:
    made = Routes()
    part = MetadataResponsePartition(error_code=0, partition_index=1, leader_id=2, replica_nodes=[], isr_nodes=[])
    topics = [MetadataResponseTopic(error_code=0, name="t", topic_id=b"t" * 16, partitions=[part])]
    brokers = [MetadataResponseBroker(node_id=one, host="h", port=one) for one in (1, 2)]
    made.learn("Metadata", None, MetadataResponse(brokers=brokers, controller_id=1, topics=topics))
    return made


def test_leaders_and_controller_are_followed() -> None:
    made = routes()
    assert made.node_for("Fetch", fetch(0, 1), 12) == 2
    by_id = fetch(0, 1)
    by_id.topics[0].topic, by_id.topics[0].topic_id = "", b"t" * 16
    assert made.node_for("Fetch", by_id, 13) == 2
    assert made.node_for("Fetch", fetch(0, 7), 12) is None
    assert made.node_for("CreateTopics", CreateTopicsRequest(topics=[], timeout_ms=1), 5) == 1
    assert made.node_for("ListGroups", ListGroupsRequest(), 0) is None


def test_coordinators_of_groups_and_transactions_are_followed() -> None:
    made = routes()
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    end = EndTxnRequest(transactional_id="g", producer_id=1, producer_epoch=0, committed=True)
    assert made.node_for("Heartbeat", beat, 3) is None
    made.learn("FindCoordinator", FindCoordinatorRequest(key="g"), FindCoordinatorResponse(node_id=9, host="h", port=9))
    found = [Coordinator(key="g", node_id=2, host="h", port=2, error_code=0, error_message=None)]
    found.append(Coordinator(key="x", node_id=-1, host="", port=-1, error_code=15, error_message=None))
    request = FindCoordinatorRequest(coordinator_keys=["g", "x"], key_type=1)
    made.learn("FindCoordinator", request, FindCoordinatorResponse(coordinators=found))
    assert made.node_for("Heartbeat", beat, 3) == 9 and made.node_for("EndTxn", end, 3) == 2
    assert made.addresses[9] == ("h", 9) and -1 not in made.addresses
    refused = FindCoordinatorResponse(error_code=15, node_id=-1, host="", port=-1)
    made.learn("FindCoordinator", FindCoordinatorRequest(key="g"), refused)
    assert made.node_for("Heartbeat", beat, 3) == 9
