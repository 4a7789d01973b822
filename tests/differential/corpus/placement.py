"""ElectLeaders, reassignments, and requests between brokers and controllers, with one broker."""

from __future__ import annotations

from anabranch.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from anabranch.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from anabranch.protocol.apis.elect_leaders import ElectLeadersRequest, TopicPartitions
from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from anabranch.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from anabranch.protocol.apis.stop_replica import StopReplicaRequest
from anabranch.protocol.apis.update_metadata import UpdateMetadataRequest
from tests.differential.case import Run, case
from tests.differential.corpus.consume import id_of


def elect(*topics: tuple[str, list[int]], kind: int = 0) -> ElectLeadersRequest:
    """Elect the leaders of some partitions."""
    rows = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics]
    return ElectLeadersRequest(election_type=kind, topic_partitions=rows, timeout_ms=5000)


@case("ElectLeaders")
async def elections(run: Run) -> None:
    await run.create(name := run.name(), partitions=2)
    await run.ask(elect((name, [0])))
    await run.ask(elect((name, [1, 0, 7])))
    await run.ask(elect((run.name("none"), [0]), (name, [0])))
    await run.ask(elect())
    if run.version >= 1:
        await run.ask(elect((name, [0]), kind=1))
        await run.ask(elect((name, [0]), kind=2))


def move(*topics: tuple[str, list[tuple[int, list[int] | None]]]) -> AlterPartitionReassignmentsRequest:
    """Move replicas."""
    rows = [
        ReassignableTopic(
            name=name,
            partitions=[ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in given],
        )
        for name, given in topics
    ]
    return AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=rows)


@case("AlterPartitionReassignments")
async def moves(run: Run) -> None:
    await run.create(name := run.name(), partitions=2)
    await run.ask(move((name, [(0, [1])])))
    await run.ask(move((name, [(0, None)])))
    await run.ask(move((name, [(0, []), (1, [1, 1])])))
    await run.ask(move((name, [(0, [77])])))
    await run.ask(move((name, [(0, [-1])])))
    await run.ask(move((name, [(7, [1])]), (run.name("none"), [(0, [1])])))
    await run.ask(move())
    await run.ask(move((name, [])))


@case("ListPartitionReassignments")
async def listed_moves(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(ListPartitionReassignmentsRequest(topics=None))
    asked = [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 7]),
        ListPartitionReassignmentsTopics(name=run.name("none"), partition_indexes=[0]),
    ]
    await run.ask(ListPartitionReassignmentsRequest(topics=asked))
    await run.ask(ListPartitionReassignmentsRequest(topics=[]))


@case("ControlledShutdown", "2-3")
async def of_a_stranger(run: Run) -> None:
    await run.ask(ControlledShutdownRequest(broker_id=77, broker_epoch=5))
    await run.ask(ControlledShutdownRequest(broker_id=1, broker_epoch=1))


@case("AllocateProducerIds")
async def blocks(run: Run) -> None:
    await run.ask(AllocateProducerIdsRequest(broker_id=77, broker_epoch=5))
    await run.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=1))
    await run.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=-1))


@case("LeaderAndIsr")
async def from_an_old_controller(run: Run) -> None:
    await run.ask(
        LeaderAndIsrRequest(
            controller_id=1, controller_epoch=0, ungrouped_partition_states=[], topic_states=[], live_leaders=[]
        )
    )
    if run.version >= 2:
        await run.ask(
            LeaderAndIsrRequest(
                controller_id=1, controller_epoch=9, broker_epoch=1, ungrouped_partition_states=[], live_leaders=[]
            )
        )


@case("StopReplica")
async def from_an_old_controller_too(run: Run) -> None:
    await run.ask(StopReplicaRequest(controller_id=1, controller_epoch=0))
    if run.version >= 1:
        await run.ask(StopReplicaRequest(controller_id=1, controller_epoch=9, broker_epoch=1))


@case("UpdateMetadata")
async def from_an_old_controller_as_well(run: Run) -> None:
    await run.ask(UpdateMetadataRequest(controller_id=1, controller_epoch=0, live_brokers=[]))
    if run.version >= 5:
        await run.ask(UpdateMetadataRequest(controller_id=1, controller_epoch=9, broker_epoch=1, live_brokers=[]))


@case("AlterPartition")
async def from_strangers(run: Run) -> None:
    await run.create(name := run.name())
    topic_id = await id_of(run, name)

    def proposal(broker: int, broker_epoch: int, topic: str = name, id_: bytes = topic_id) -> AlterPartitionRequest:
        partition = PartitionData(
            partition_index=0,
            leader_epoch=0,
            new_isr=[1],
            new_isr_with_epochs=[BrokerState(broker_id=1)],
            partition_epoch=0,
        )
        topics = [TopicData(topic_name=topic, topic_id=id_, partitions=[partition])]
        return AlterPartitionRequest(broker_id=broker, broker_epoch=broker_epoch, topics=topics)

    await run.ask(proposal(77, 5))
    await run.ask(proposal(1, 1))
