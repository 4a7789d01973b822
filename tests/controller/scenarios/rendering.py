"""Prints the decisions of the controller's state machine: one line per effect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anabranch.controller import effects
from anabranch.controller.model import LeaderAndIsr, TopicBody, TopicPartition
from anabranch.protocol.apis.alter_partition import AlterPartitionResponse
from anabranch.protocol.apis.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from anabranch.protocol.apis.controlled_shutdown import ControlledShutdownResponse
from anabranch.protocol.apis.create_partitions import CreatePartitionsResponse
from anabranch.protocol.apis.elect_leaders import ElectLeadersResponse
from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from anabranch.protocol.apis.list_offsets import ListOffsetsRequest
from anabranch.protocol.apis.stop_replica import StopReplicaRequest
from anabranch.protocol.apis.update_metadata import UpdateMetadataRequest
from anabranch.protocol.errors import ErrorCode


def ids(numbers: Iterable[int]) -> str:
    """`1,2,3`; `none` for an empty list."""
    return ",".join(map(str, numbers)) or "none"


def name_of(partition: TopicPartition) -> str:
    """`orders-0`."""
    return f"{partition.topic}-{partition.partition}"


def leader_of(leader: int) -> str:
    """A broker id, or `none`."""
    return "none" if leader == -1 else str(leader)


def leadership(state: LeaderAndIsr) -> str:
    """A partition's state as its znode holds it; the generation only where a resize has touched the partition."""
    shown = f"leader {leader_of(state.leader)} epoch {state.leader_epoch} isr {ids(state.isr)}"
    if state.generation:
        shown += f" generation {state.generation} from epoch {state.gen_start[-1][1]}"
    shown += " recovering" if state.leader_recovery_state else ""
    return shown + (" sealed" if state.sealed else "")


def generations(state: LeaderAndIsr) -> str:
    """Which generations a partition has served, each since which leader epoch."""
    return ", ".join(f"generation {generation} from epoch {epoch}" for generation, epoch in state.gen_start)


def partition_write(write: effects.PartitionWrite) -> str:
    """A state that is to be written."""
    return f"{name_of(write.partition)} {leadership(write.state)}"


def topic_change(name: str, before: TopicBody, after: TopicBody) -> str:
    """What a write changes in a topic's znode."""
    said = []
    if after.plan != before.plan:
        plan = after.plan
        said.append(
            "no plan" if plan is None else f"plan {plan.before} -> {plan.after} as generation {plan.generation}"
        )
    if (after.generation, after.undeleted_partition_count) != (before.generation, before.undeleted_partition_count):
        said.append(f"generation {after.generation} with {after.undeleted_partition_count} partitions")
    if after.has_generations != before.has_generations:
        said.append("has batches with generations")
    for index, tombstone in after.retired.items():
        if before.retired.get(index) != tombstone:
            said.append(f"tombstone of {name}-{index}: epoch {tombstone.leader_epoch}, offset {tombstone.end_offset}")
    for index in sorted(before.assignment.keys() | after.assignment.keys()):
        was, now = replicas(before, index), replicas(after, index)
        if was != now:
            said.append(f"{name}-{index} on {now}")
    return "; ".join(said) or "the same"


def replicas(body: TopicBody, index: int) -> str:
    """Where a partition's replicas are, and which are coming or going."""
    if index not in body.assignment:
        return "no broker"
    coming, going = body.adding_replicas.get(index, ()), body.removing_replicas.get(index, ())
    said = ids(body.assignment[index])
    return said + (f" adding {ids(coming)}" if coming else "") + (f" removing {ids(going)}" if going else "")


def request(asked: Any) -> str:
    """A request to a broker. UpdateMetadata lists its partitions and flags."""
    match asked:
        case LeaderAndIsrRequest():
            return leader_and_isr(asked)
        case UpdateMetadataRequest():
            return update_metadata(asked)
        case StopReplicaRequest():
            rows = [
                f"{topic.topic_name}-{row.partition_index}" + (" delete" if row.delete_partition else "")
                for topic in asked.topic_states
                for row in topic.partition_states
            ]
            return "StopReplica " + "; ".join(rows)
        case ListOffsetsRequest():
            row = asked.topics[0].partitions[0]
            end = "start" if row.timestamp == -2 else "end"
            return f"ListOffsets {end} of {asked.topics[0].name}-{row.partition_index} epoch {row.current_leader_epoch}"
    raise AssertionError(asked)


def leader_and_isr(asked: LeaderAndIsrRequest) -> str:
    """`LeaderAndIsr orders-0 leader 1 epoch 0 new`; `behind` is where the log of an index that is used again begins."""
    said = []
    for topic in asked.topic_states:
        for row in topic.partition_states:
            said.append(
                f"{topic.topic_name}-{row.partition_index} leader {leader_of(row.leader)} epoch {row.leader_epoch}"
                + (" new" if row.is_new else "")
                + (
                    f" behind epoch {row.first_leader_epoch - 1} offset {row.log_start_offset}"
                    if row.log_start_offset >= 0
                    else ""
                )
                + (" with generations" if topic.has_generations else "")
            )
    return "LeaderAndIsr " + "; ".join(said)


def update_metadata(asked: UpdateMetadataRequest) -> str:
    """`UpdateMetadata brokers 1,2; orders generation 0 of 4: 0 1 2 3 (marked)`."""
    said = [f"brokers {ids(broker.id for broker in asked.live_brokers)}"]
    for topic in asked.topic_states:
        rows = [
            str(row.partition_index)
            + (" (gone)" if row.leader == -2 else " (marked for deletion)" if row.marked_for_deletion else "")
            for row in topic.partition_states
        ]
        said.append(
            f"{topic.topic_name} generation {topic.generation} with {topic.undeleted_partition_count} partitions"
            + (", with generations" if topic.has_generations else "")
            + f": {' '.join(rows)}"
        )
    return ("UpdateMetadata (all) " if asked.type == 2 else "UpdateMetadata ") + "; ".join(said)


def reply(response: Any) -> str:
    """What the one who asked is answered."""
    match response:
        case CreatePartitionsResponse():
            return "; ".join(outcome(row.name, row.error_code, row.error_message) for row in response.results)
        case AlterPartitionResponse():
            rows = [
                f"{topic.topic_name or 'topic'}-{row.partition_index} {code(row.error_code)}"
                + (f" isr {ids(row.isr)} version {row.partition_epoch}" if row.error_code == 0 else "")
                for topic in response.topics
                for row in topic.partitions
            ]
            rows += [
                f"{topic.topic_name} has batches with generations" for topic in response.topics if topic.has_generations
            ]
            return "; ".join(rows) or code(response.error_code)
        case ElectLeadersResponse():
            return "; ".join(
                outcome(f"{topic.topic}-{row.partition_id}", row.error_code, row.error_message)
                for topic in response.replica_election_results
                for row in topic.partition_result
            )
        case AlterPartitionReassignmentsResponse():
            return "; ".join(
                outcome(f"{topic.name}-{row.partition_index}", row.error_code, row.error_message)
                for topic in response.responses
                for row in topic.partitions
            )
        case ControlledShutdownResponse():
            remaining = [f"{row.topic_name}-{row.partition_index}" for row in response.remaining_partitions]
            return f"{code(response.error_code)}, still led: {' '.join(remaining) or 'none'}"
    raise AssertionError(response)


def code(error_code: int) -> str:
    """`NONE`, `NOT_CONTROLLER` ..."""
    return ErrorCode(error_code).name


def outcome(what: str, error_code: int, message: str | None) -> str:
    """How it went for one topic or partition, with the text that a user sees."""
    return f"{what} {code(error_code)}" + (f" ({message})" if message else "")


def announced(effect: effects.PublishEvent) -> str:
    """A line of the timeline, without epochs of registrations, which are numbers that mean nothing to a reader."""
    detail = ", ".join(f"{key} {word(value)}" for key, value in effect.detail.items() if key != "epoch")
    return f"note {effect.kind}" + (f": {detail}" if detail else "")


def word(value: Any) -> str:
    """A detail of a line of the timeline."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ids(value) if isinstance(value, list) else str(value)
