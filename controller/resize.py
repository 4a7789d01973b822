"""Resizes a topic in either direction and keeps the order of keys: plan, then execute (rules R1 to R7, R13, R14).

    plan      one write of the topic's znode: {generation g+1, from, to}, and the replicas of new partitions (R3)
    grow      create the children, or wake partitions marked for deletion; they serve g+1 only, unknown to all clients;
              then bump the affected parents: next leader epoch, generation g+1 and where it begins, in one write (R2)
    shrink    seal the retiring partitions first (R6), then bump the affected merge targets
    publish   when every affected leader confirmed its state, or is dead, or was superseded by one that did (R4, K308):
              one write makes g+1 the topic's generation and the plan disappear; then all brokers are told
    retire    an empty retiring partition leaves a tombstone; its replicas drop it, and its index and state go (R13)

Every step is `if this partition serves an older generation: write the newer one`, so a new controller that reads the
znodes continues where the last one stopped, and doing a step twice changes nothing (K305, K306). Partitions whose keys
a resize does not move are never written (I13). Nothing waits for a dead broker.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from anabranch.controller import effects, elections, partitions
from anabranch.controller.effects import Effect, PartitionWrite
from anabranch.controller.model import LeaderAndIsr, Partition, Plan, Retired, Topic, TopicBody, TopicPartition
from anabranch.controller.requests import RequestBatch, being_removed
from anabranch.controller.state import ClusterState
from anabranch.protocol import linear_hashing
from anabranch.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from anabranch.protocol.values import value

PUBLISH: Final = "resize:after-publish"
RETIRE: Final = "remove:after-retire"
REMOVE: Final = "remove:after-remove"
EARLIEST: Final = -2
LATEST: Final = -1


@value
class Phase:
    """Partitions that change generation together; `barrier` delays later phases until leaders have adopted this one."""

    label: str
    indices: tuple[int, ...]
    sealed: bool = False
    barrier: bool = False


def add_plan(body: TopicBody, count: int, added: Mapping[int, tuple[int, ...]]) -> TopicBody:
    """Return the topic's znode with a plan to resize it to `count`, and the replicas of new partitions."""
    assert body.plan is None, "another resize is in progress"
    plan = Plan(body.generation + 1, body.undeleted_partition_count, count)
    return replace(body, plan=plan, assignment={**body.assignment, **added})


def publish_plan(body: TopicBody) -> TopicBody:
    """Return the topic's znode after the plan: clients hash with the new generation from now on (R1)."""
    plan = body.plan
    assert plan is not None, "there is nothing to publish"
    return replace(
        body,
        generation=plan.generation,
        history=(*body.history, (plan.generation, plan.after)),
        undeleted_partition_count=plan.after,
        plan=None,
    )


def phases(body: TopicBody) -> Iterator[Phase]:
    """Yield the partitions that change generation, in order (R4): only those whose residue class changes (I13)."""
    plan = body.plan
    assert plan is not None
    affected = linear_hashing.affected_partitions(body.base, plan.before, plan.after)
    if plan.grows:
        yield Phase("create", tuple(one for one in affected if one >= plan.before), barrier=True)
        yield Phase("bump", tuple(one for one in affected if one < plan.before))
    else:
        yield Phase("seal", tuple(one for one in affected if one >= plan.after), sealed=True)
        yield Phase("bump", tuple(one for one in affected if one < plan.after))


def advance(state: ClusterState, name: str) -> list[Effect]:
    """Take the next step of a topic's resize, derived only from its plan and its partitions' states (R3)."""
    topic = state.topics.get(name)
    if topic is None or topic.body.plan is None or name in state.deleting:
        return []
    if not partitions.room(state, name):
        return []  # the awaited responses continue here
    plan = topic.body.plan
    for phase in phases(topic.body):
        behind = (index for index in phase.indices if not serves(state, TopicPartition(name, index), plan.generation))
        if (first := next(behind, None)) is not None:
            return advance_phase(state, topic, phase, itertools.chain([first], behind))
        if phase.barrier and not all_adopted(state, topic, phase.indices):
            return []
    if not all_adopted(state, topic, [index for phase in phases(topic.body) for index in phase.indices]):
        return []
    return [
        effects.PublishEvent("resize fenced", {"topic": name, "generation": plan.generation}),
        effects.WriteTopic(name, publish_plan(topic.body), topic.version, PUBLISH),
    ]


def all_adopted(state: ClusterState, topic: Topic, indices: Iterable[int]) -> bool:
    """Whether the leaders of these partitions know their new state, so that none serves an older generation."""
    plan = topic.body.plan
    assert plan is not None
    return all(is_adopted(state, TopicPartition(topic.name, index), plan.generation) for index in indices)


def serves(state: ClusterState, partition: TopicPartition, generation: int) -> bool:
    """Whether the partition's committed state has this generation; the condition of every step (R3)."""
    committed = state.partitions.get(partition)
    return committed is not None and committed.state.generation >= generation


def is_adopted(state: ClusterState, partition: TopicPartition, generation: int) -> bool:
    """Whether no leader can serve an older generation: it confirmed, or no leader is alive (K308).

    A dead leader may still append if it is only cut off, but below its own cut or to a log that will be truncated.
    """
    committed = state.partitions.get(partition)
    if committed is None or committed.state.generation < generation:
        return False
    broker = state.brokers.get(committed.state.leader)
    if broker is None:
        return True
    known = state.adopted.get(partition)
    first_epoch = next(epoch for g, epoch in committed.state.gen_start if g >= generation)
    return (
        known is not None
        and (known.broker_id, known.broker_epoch) == (broker.id, broker.epoch)
        and known.leader_epoch >= first_epoch
    )


def advance_phase(state: ClusterState, topic: Topic, phase: Phase, behind: Iterable[int]) -> list[Effect]:
    """Write the new generation into these partitions' states; create those without a state.

    The number at once is limited: the next ones follow when the leaders have answered about these.
    """
    plan = topic.body.plan
    assert plan is not None
    room = partitions.room(state, topic.name)
    writes: list[PartitionWrite] = []
    for index in behind:
        if len(writes) == room:
            break
        partition = TopicPartition(topic.name, index)
        committed = state.partitions.get(partition)
        if committed is not None:
            after = bump_generation(
                committed, plan.generation, sealed=phase.sealed, controller_epoch=state.controller_epoch
            )
            writes.append(PartitionWrite(partition, with_kip_maps(state, topic, index, after), committed.epoch))
            continue
        elected = elections.first_leader(state.assignment(partition), state.live)
        if elected is not None:
            first = partitions.initial_state(topic, index, elected, state.controller_epoch)
            writes.append(PartitionWrite(partition, with_kip_maps(state, topic, index, first), None))
    return [effects.WritePartitions(tuple(writes), f"resize:after-{phase.label}")] if writes else []


def bump_generation(committed: Partition, generation: int, *, sealed: bool, controller_epoch: int) -> LeaderAndIsr:
    """Return the state that serves a newer generation, with a new leader epoch in the same write (R2)."""
    before = committed.state
    assert before.generation < generation, "a partition's generation must increase"
    epoch = before.leader_epoch + 1
    return replace(
        before,
        leader_epoch=epoch,
        controller_epoch=controller_epoch,
        generation=generation,
        gen_start=(*(before.gen_start or ((before.generation, 0),)), (generation, epoch)),
        sealed=sealed,
    )


def with_kip_maps(state: ClusterState, topic: Topic, index: int, after: LeaderAndIsr) -> LeaderAndIsr:
    """Add KIP-253's own maps: the epoch of the one partition that holds the keys before, or after, this one."""
    plan = topic.body.plan
    assert plan is not None
    kept = min(plan.before, plan.after)
    if index < kept:
        return after
    relative = linear_hashing.ancestor(index, kept, topic.body.base)
    committed = state.partitions.get(TopicPartition(topic.name, relative))
    epochs = () if committed is None else ((relative, committed.state.leader_epoch),)
    if plan.grows:
        return replace(after, leader_epoch_after_creation=epochs, leader_epoch_before_deletion=())
    return replace(after, leader_epoch_before_deletion=epochs)


def announce_published(state: ClusterState, name: str) -> list[Effect]:
    """Send all brokers the new generation and, in the same request, its leader epochs (R12)."""
    batch = RequestBatch(state)
    for partition in state.partitions_of(name):
        batch.add_metadata(partition)
    return batch.flush()


# Removal of drained partitions


def retiring_partitions(state: ClusterState, topic: Topic) -> list[TopicPartition]:
    """Return the partitions marked for deletion, highest index first: removed in that order, they leave no gap."""
    if topic.body.plan is not None or topic.name in state.deleting:
        return []
    marked = [index for index in topic.body.assignment if index >= topic.body.undeleted_partition_count]
    return [TopicPartition(topic.name, index) for index in sorted(marked, reverse=True)]


def check_drained(state: ClusterState) -> list[Effect]:
    """Query the leaders of partitions marked for deletion for remaining records."""
    decided: list[Effect] = []
    for name in sorted(state.at_work):
        topic = state.topics[name]
        marked = retiring_partitions(state, topic)
        committed = state.partitions.get(marked[0]) if marked else None
        if committed is None:
            continue
        leader = state.brokers.get(committed.state.leader)
        if leader is None or not committed.state.sealed or being_removed(topic, marked[0].partition, committed):
            continue
        if partitions.moving(state, marked[0]):
            continue  # removed after its reassignment
        for timestamp in (EARLIEST, LATEST):
            requested = ListOffsetsPartition(
                partition_index=marked[0].partition,
                current_leader_epoch=committed.state.leader_epoch,
                timestamp=timestamp,
            )
            # Sent as a replica: "latest" is then the log end and not the high watermark, which may lag behind it.
            request = ListOffsetsRequest(
                replica_id=leader.id, topics=[ListOffsetsTopic(name=topic.name, partitions=[requested])]
            )
            decided.append(effects.SendToBroker(leader.id, leader.epoch, request))
    return decided


def resume_removal(state: ClusterState, topic: Topic) -> list[Effect]:
    """Continue a removal whose tombstone is written, by this controller or an earlier one."""
    for partition in retiring_partitions(state, topic)[:1]:
        committed = state.partitions.get(partition)
        if committed is not None and being_removed(topic, partition.partition, committed):
            return drop_replicas(state, partition)
    return []


def offset_reported(
    state: ClusterState, partition: TopicPartition, leader_epoch: int, *, timestamp: int, offset: int
) -> list[Effect]:
    """Handle the start or end offset of a retiring partition: when both are equal, it retires (R13, K313)."""
    topic, committed = state.topics.get(partition.topic), state.partitions.get(partition)
    if topic is None or committed is None or committed.state.leader_epoch != leader_epoch:
        return []
    if (
        partition not in retiring_partitions(state, topic)[:1]
        or not committed.state.sealed
        or partitions.moving(state, partition)
    ):
        return []
    if being_removed(topic, partition.partition, committed):
        return []  # a duplicate request: the first responses were enough
    if timestamp == EARLIEST:
        state.log_starts[partition] = (leader_epoch, offset)
        return []
    if state.log_starts.pop(partition, None) != (leader_epoch, offset):
        return []
    return [effects.WriteTopic(topic.name, retire(topic.body, partition, committed, offset), topic.version, RETIRE)]


def retire(body: TopicBody, partition: TopicPartition, committed: Partition, end_offset: int) -> TopicBody:
    """Return the znode with the tombstone of a drained partition, which is only to be removed from now on."""
    tombstone = Retired(committed.state.leader_epoch, end_offset, committed.state.gen_start)
    return replace(body, retired={**body.retired, partition.partition: tombstone})


def drop_replicas(state: ClusterState, partition: TopicPartition) -> list[Effect]:
    """Request the live replicas of a retired partition to delete their logs.

    Dead ones are not waited for: should they return when the index exists again, the tombstone's offset in every
    LeaderAndIsr shows that their log belongs to an earlier incarnation (R14, K314).
    """
    if partition in state.removals:
        return removed_when_dropped(state, partition)
    replicas = state.online_replicas(partition)
    state.removals[partition] = set(replicas)
    batch = RequestBatch(state)
    batch.add_metadata(partition)
    batch.stop(partition, replicas, delete=True)
    return [*batch.flush(), *removed_when_dropped(state, partition)]


def replica_dropped(state: ClusterState, partition: TopicPartition, replica: int) -> list[Effect]:
    """Handle a deleted replica of a retired partition: its broker confirmed it or is dead."""
    if partition not in state.removals:
        return []
    state.removals[partition].discard(replica)
    return removed_when_dropped(state, partition)


def removed_when_dropped(state: ClusterState, partition: TopicPartition) -> list[Effect]:
    """Remove index and state of a retired partition once no live replica is left; the tombstone stays."""
    waiting = state.removals.get(partition)
    if waiting is None or waiting & state.brokers.keys():
        return []
    del state.removals[partition]
    topic = state.topics[partition.topic]
    rest = {index: replicas for index, replicas in topic.body.assignment.items() if index != partition.partition}
    body = replace(topic.body, assignment=rest)
    return [effects.WriteTopic(topic.name, body, topic.version, REMOVE, removed=(partition.partition,))]
