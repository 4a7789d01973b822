"""Finds the broker of another cluster that serves a request, from that cluster's responses. Pure.

Leaders and coordinators differ between clusters. A request about partitions goes to the leader of the first; one about
a group or a transactional id to its coordinator; a controller request to the controller.
"""

from __future__ import annotations

from typing import Any, Final

from anabranch.faults.request_fields import GROUP, PARTITION, TOPIC, TRANSACTIONAL_ID, Names, rows_of

LEADERS: Final = frozenset({"Produce", "Fetch", "ListOffsets", "DeleteRecords", "OffsetForLeaderEpoch"})
GROUPS: Final = frozenset(
    {
        *("OffsetCommit", "OffsetFetch", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups"),
        *("DeleteGroups", "OffsetDelete", "TxnOffsetCommit", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe"),
        *("StreamsGroupHeartbeat", "StreamsGroupDescribe"),
    }
)
TRANSACTIONS: Final = frozenset(
    {"InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "DescribeTransactions"}
)
CONTROLLERS: Final = frozenset(
    {
        *("CreateTopics", "DeleteTopics", "CreatePartitions", "ElectLeaders", "UpdateFeatures"),
        *("AlterPartitionReassignments", "ListPartitionReassignments"),
    }
)


class Routes:
    """The leaders, coordinators and controller that a cluster's responses have named."""

    def __init__(self) -> None:
        self.addresses: dict[int, tuple[str, int]] = {}
        self._controller = -1
        self._leaders: dict[tuple[str, int], int] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._names: dict[bytes, str] = {}

    def learn(self, api: str, request: Any, answer: Any) -> None:
        """Learn from a response."""
        if api == "Metadata":
            self._learn_metadata(answer)
        elif api == "FindCoordinator":
            found = answer.coordinators or ([answer] if not answer.error_code else [])
            for one in found:
                if not one.error_code and one.node_id >= 0:
                    key = one.key if answer.coordinators else request.key
                    self._coordinators[request.key_type, key] = one.node_id
                    self.addresses[one.node_id] = one.host, one.port

    def _learn_metadata(self, answer: Any) -> None:
        self.addresses |= {one.node_id: (one.host, one.port) for one in answer.brokers}
        self._controller = answer.controller_id
        for topic in answer.topics:
            if topic.name is not None and not topic.error_code:
                self._names[topic.topic_id] = topic.name
                for one in topic.partitions:
                    self._leaders[topic.name, one.partition_index] = one.leader_id

    def node_for(self, api: str, request: Any, version: int) -> int | None:
        """The broker for a request; None if any broker will do, or it is unknown."""
        if api in CONTROLLERS:
            return self._known_node(self._controller)
        if api not in LEADERS and api not in GROUPS and api not in TRANSACTIONS:
            return None
        rows = rows_of(Names(self._names.get), request, version)
        row = rows[0] if rows else {}
        if api in LEADERS:
            return self._known_node(self._leaders.get((row.get(TOPIC, ""), row.get(PARTITION, -1)), -1))
        kind, key = (0, row.get(GROUP)) if api in GROUPS else (1, row.get(TRANSACTIONAL_ID))
        return self._known_node(self._coordinators.get((kind, str(key)), -1))

    def _known_node(self, node_id: int) -> int | None:
        return node_id if node_id in self.addresses else None
