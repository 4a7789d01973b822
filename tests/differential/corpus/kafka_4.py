"""Requests for Kafka 4 only: quorum, voters, removed brokers, resources with configurations, cursors."""

from __future__ import annotations

from anabranch.protocol.apis.add_raft_voter import AddRaftVoterRequest
from anabranch.protocol.apis.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from anabranch.protocol.apis.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from anabranch.protocol.apis.list_config_resources import ListConfigResourcesRequest
from anabranch.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
from anabranch.protocol.apis.unregister_broker import UnregisterBrokerRequest
from anabranch.protocol.wire import ZERO_UUID
from tests.differential.case import Run, case

QUORUM = "__cluster_metadata"


@case("DescribeQuorum", kafka="4.0")
async def quorum(run: Run) -> None:
    for topic, partition in (("x", 0), (QUORUM, 1)):
        asked = RequestTopicData(topic_name=topic, partitions=[RequestPartitionData(partition_index=partition)])
        await run.ask(DescribeQuorumRequest(topics=[asked]))


@case("UnregisterBroker", kafka="4.0")
async def brokers_that_do_not_leave(run: Run) -> None:
    for broker in (99, -1):
        await run.ask(UnregisterBrokerRequest(broker_id=broker))


@case("AddRaftVoter", kafka="4.0")
async def voters_added(run: Run) -> None:
    for cluster in ("another", None):
        await run.ask(
            AddRaftVoterRequest(
                cluster_id=cluster, timeout_ms=1000, voter_id=9, voter_directory_id=b"\x11" * 16, listeners=[]
            )
        )


@case("RemoveRaftVoter", kafka="4.0")
async def voters_removed(run: Run) -> None:
    for cluster in ("another", None):
        await run.ask(RemoveRaftVoterRequest(cluster_id=cluster, voter_id=9, voter_directory_id=ZERO_UUID))


@case("ListConfigResources", kafka="4.0", alone=True)
async def resources(run: Run) -> None:
    for types in ([4], [8], [16], [8, 4], [99], [16, 99]):
        await run.ask(ListConfigResourcesRequest(resource_types=types if run.version else []))


@case("DescribeTopicPartitions", kafka="4.0")
async def one_topic(run: Run) -> None:
    await run.create(topic := run.name(), partitions=3)
    await run.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)]))
    await run.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)] * 2))


@case("DescribeTopicPartitions", kafka="4.0")
async def topics_not_there(run: Run) -> None:
    await run.create(topic := run.name())
    for names in (["none"], ["not a name"], [""], ["zz", topic, "0", "not a name"]):
        await run.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names]))


@case("DescribeTopicPartitions", kafka="4.0")
async def page_by_page(run: Run) -> None:
    names = [run.name(letter) for letter in "cab"]
    for name in names:
        await run.create(name, partitions=3)
    asked = [TopicRequest(name=name) for name in names]
    for limit in (1, 3, 4, 9, 0, -1):
        await run.ask(DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=limit))
    for name, partition in ((names[2], 1), (names[2], 3), (names[2], 99), (run.name("b0"), 0), (run.name("z"), 0)):
        at = Cursor(topic_name=name, partition_index=partition)
        await run.ask(DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=4, cursor=at))
    for name, partition in ((names[0], -1), ("", 0)):
        at = Cursor(topic_name=name, partition_index=partition)
        await run.ask(DescribeTopicPartitionsRequest(topics=asked, cursor=at))
