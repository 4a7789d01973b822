"""Responses that need several brokers: leaders, coordinators, ISRs, and real reassignments."""

from __future__ import annotations

from anabranch.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest
from anabranch.protocol.apis.elect_leaders import ElectLeadersRequest, TopicPartitions
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from tests.differential.case import Run, batch, case, produce
from tests.differential.corpus.consume import fetch, id_of
from tests.differential.corpus.groups import commit
from tests.differential.corpus.groups import fetch as fetch_offsets
from tests.differential.corpus.members import join, leave
from tests.differential.corpus.offsets import epoch_end, offsets
from tests.differential.corpus.topics import create, grow, topic, trim
from tests.differential.corpus.transactions import Producer, by_id, init

REPLICAS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


@case("Metadata", brokers=3)
async def of_three_brokers(run: Run) -> None:
    await run.create(name := run.name(), replicas=REPLICAS)
    for broker in (1, 2, 3):
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        await run.ask(asked, to=broker)


@case("CreateTopics", brokers=3)
async def replicated(run: Run) -> None:
    controller = await run.controller()
    await run.ask(create(topic(run.name("a"), -1, -1, assignments=list(enumerate(REPLICAS)))), to=controller)
    await run.ask(create(topic(run.name("b"), 1, 4)), to=controller)
    await run.ask(create(topic(run.name("c"), -1, -1, assignments=[(0, [1, 2]), (1, [3])])), to=controller)
    await run.ask(create(topic(run.name("d"), -1, -1, assignments=[(0, [1, 2, 2])])), to=controller)


@case("CreatePartitions", brokers=3)
async def grown_by_assignment(run: Run) -> None:
    await run.create(name := run.name(), replicas=[[1, 2]])
    controller = await run.controller()
    for given in ([[1, 2, 3]], [[3]], [[3, 9]], [[3, 2]]):
        request: CreatePartitionsRequest = grow((name, 2, given))
        await run.ask(request, to=controller)


@case("Produce", "3-11", brokers=3)
async def to_others_than_the_leader(run: Run) -> None:
    await run.create(name := run.name(), replicas=REPLICAS)
    for broker in (1, 2, 3):
        await run.ask(produce(name, batch(b"a"), 1), to=broker)


@case("Fetch", "4-17", brokers=3)
async def from_others_than_the_leader(run: Run) -> None:
    await run.create(name := run.name(), replicas=REPLICAS)
    topic_id = await id_of(run, name)
    await run.append(name, batch(b"a"), 1, to=2)
    for broker in (1, 2, 3):
        asked = fetch(name, topic_id, (1, 0), max_wait_ms=0)
        await run.until(asked, lambda answer: answer.responses[0].partitions[0].high_watermark != 0, to=broker)


@case("ListOffsets", "1-9", brokers=3)
async def asked_of_others_than_the_leader(run: Run) -> None:
    await run.create(name := run.name(), replicas=REPLICAS)
    for broker in (1, 2, 3):
        await run.ask(offsets(name, (1, -1)), to=broker)
        await run.ask(offsets(name, (1, -1), replica=-2), to=broker)


@case("OffsetForLeaderEpoch", brokers=3)
async def ends_elsewhere(run: Run) -> None:
    await run.create(name := run.name(), replicas=REPLICAS)
    for broker in (1, 2, 3):
        await run.ask(epoch_end(name, (1, -1, 0)), to=broker)


@case("DeleteRecords", brokers=3)
async def of_a_partition_that_is_led_elsewhere(run: Run) -> None:
    await run.create(name := run.name(), replicas=REPLICAS)
    await run.append(name, batch(b"a", b"b"), 1, to=2)
    for broker in (1, 2, 3):
        await run.ask(trim((name, 1, 1)), to=broker)


async def coordinator_of(run: Run, key: str, kind: int = 0) -> tuple[int, int]:
    """Return the coordinator, and another broker."""
    answer = await run.settled(
        FindCoordinatorRequest(coordinator_keys=[key], key_type=kind),
        lambda answer: answer.coordinators[0].error_code == 0,
    )
    found = answer.coordinators[0].node_id
    return found, 1 + found % 3


@case("JoinGroup", brokers=3)
async def at_others_than_the_coordinator(run: Run) -> None:
    _, other = await coordinator_of(run, group := run.name("g"))
    await run.ask(join(group), to=other)
    await run.ask(leave(group, ("m", None)), to=other)


@case("OffsetCommit", "1-9", brokers=3)
async def to_others_than_the_coordinator(run: Run) -> None:
    await run.create(name := run.name(), replicas=REPLICAS)
    own, other = await coordinator_of(run, group := run.name("g"))
    await run.ask(commit(group, name, (0, 5)), to=other)
    await run.ask(commit(group, name, (0, 5), (1, 6)), to=own)
    await run.ask(fetch_offsets(run, group, (name, [0, 1])), to=other)
    await run.ask(fetch_offsets(run, group, (name, [0, 1])), to=own)


@case("InitProducerId", brokers=3)
async def asked_of_others_than_the_coordinator(run: Run) -> None:
    _, other = await coordinator_of(run, name := run.name("x"), 1)
    await run.ask(init(name), to=other)
    await run.ask(by_id(name), to=other)
    await run.ask(Producer(name, 5, 0).end(), to=other)


def move(name: str, replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
    """Move the first partition, or call its move off."""
    row = ReassignablePartition(partition_index=0, replicas=replicas)
    return AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=[ReassignableTopic(name=name, partitions=[row])])


@case("AlterPartitionReassignments", brokers=3)
async def moved(run: Run) -> None:
    await run.create(name := run.name(), replicas=[[1, 2]])
    controller = await run.controller()
    await run.append(name, batch(b"a"), to=1)
    await run.ask(move(name, [1, 2, 9]), to=controller)
    await run.ask(move(name, [2, 3]), to=controller)
    seen = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    for broker in (1, 2, 3):
        await run.until(
            seen,
            lambda answer: (
                answer.topics[0].partitions[0].replica_nodes == [2, 3]
                and sorted(answer.topics[0].partitions[0].isr_nodes) == [2, 3]
                and answer.topics[0].partitions[0].leader_id == 2
            ),
            to=broker,
        )
    await run.ask(ListPartitionReassignmentsRequest(topics=None), to=controller)
    await run.ask(move(name, None), to=controller)


@case("ElectLeaders", brokers=3)
async def elected(run: Run) -> None:
    await run.create(name := run.name(), replicas=[[2, 3]])
    controller = await run.controller()
    asked = ElectLeadersRequest(
        election_type=0, topic_partitions=[TopicPartitions(topic=name, partitions=[0])], timeout_ms=5000
    )
    await run.ask(asked, to=controller)
