"""Records of streams groups have the bytes of Kafka 4.2's classes."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.protocol import streams_group_records as records
from anabranch.protocol.apis.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    Subtopology,
    TopicInfo,
)
from tests.protocol.record_bytes import check_bytes

TOPOLOGY = Subtopology(
    subtopology_id="0",
    source_topics=["t"],
    source_topic_regex=[],
    state_changelog_topics=[
        TopicInfo(name="l", partitions=0, replication_factor=3, topic_configs=[KeyValue(key="k", value="v")])
    ],
    repartition_sink_topics=["s"],
    repartition_source_topics=[TopicInfo(name="r", partitions=4, replication_factor=0, topic_configs=[])],
    copartition_groups=[CopartitionGroup(source_topics=[0], source_topic_regex=[], repartition_source_topics=[0])],
)
CASES: dict[str, tuple[Any, Any, str, str]] = {
    "group": (
        records.StreamsGroupMetadataKey(group_id="g"),
        records.StreamsGroupMetadataValue(
            epoch=3,
            metadata_hash=-5,
            validated_topology_epoch=7,
            last_assignment_configs=[KeyValue(key="num.standby.replicas", value="1")],
        ),
        "0011000167",
        "000000000003fffffffffffffffb02000400000007011902156e756d2e7374616e6462792e7265706c69636173023100",
    ),
    "member": (
        records.StreamsGroupMemberMetadataKey(group_id="g", member_id="m"),
        records.StreamsGroupMemberMetadataValue(
            rack_id="r",
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=300,
            topology_epoch=1,
            process_id="p",
            user_endpoint=Endpoint(host="e", port=60000),
            client_tags=[KeyValue(key="k", value="v")],
        ),
        "001300016700016d",
        "00000002720263032f680000012c000000010270010265ea600002026b02760000",
    ),
    "epoch of targets": (
        records.StreamsGroupTargetAssignmentMetadataKey(group_id="g"),
        records.StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=4),
        "0014000167",
        "00000000000400",
    ),
    "target": (
        records.StreamsGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        records.StreamsGroupTargetAssignmentMemberValue(
            active_tasks=[records.TaskIds(subtopology_id="0", partitions=[0, 300])],
            standby_tasks=[records.TaskIds(subtopology_id="1", partitions=[2])],
            warmup_tasks=[],
        ),
        "001500016700016d",
        "000002023003000000000000012c000202310200000002000100",
    ),
    "current": (
        records.StreamsGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        records.StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=2,
            previous_member_epoch=1,
            state=1,
            active_tasks=[records.TaskIds(subtopology_id="0", partitions=[0], assignment_epochs=[2])],
            standby_tasks=[],
            warmup_tasks=[],
            active_tasks_pending_revocation=[
                records.TaskIds(subtopology_id="0", partitions=[1], assignment_epochs=[1])
            ],
            standby_tasks_pending_revocation=[records.TaskIds(subtopology_id="1", partitions=[3])],
            warmup_tasks_pending_revocation=[],
        ),
        "001600016700016d",
        "0000000000020000000101020230020000000001000502000000020101020230020000000101000502000000010202310200000003000100",
    ),
    "topology": (
        records.StreamsGroupTopologyKey(group_id="g"),
        records.StreamsGroupTopologyValue(epoch=5, subtopologies=[TOPOLOGY]),
        "0017000167",
        "0000000000050202300202740102026c00000000000302026b0276000002027302027200000004000001000202000001020000000000",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_records_equal_kafka_bytes(name: str) -> None:
    check_bytes(*CASES[name])
