"""The partition state machine: the table of its phases, and the decisions that create partitions or elect leaders.

    non-existent -> new        its topic, or a planned growth, names it
    new -> online              a first leader was written (Kafka: OnlinePartition from NewPartition)
    online -> online           another leader
    online, new -> offline     no live replica is in sync, or its topic is being deleted
    offline -> online          one came back
    offline -> non-existent    its topic was deleted, or it was drained and removed

A decision is a `WritePartitions`; requests to brokers follow from its *outcome* (`after_write`), never from the
intention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from anabranch.controller import effects, elections, replicas
from anabranch.controller.effects import Effect, PartitionWrite
from anabranch.controller.follow_ups import Shutdown
from anabranch.controller.model import LeaderAndIsr, Partition, PartitionPhase, Topic, TopicPartition
from anabranch.controller.requests import RequestBatch, being_removed
from anabranch.controller.state import Adoption, ClusterState

NON_EXISTENT, NEW = PartitionPhase.NON_EXISTENT, PartitionPhase.NEW
ONLINE, OFFLINE = PartitionPhase.ONLINE, PartitionPhase.OFFLINE

PARTITIONS_AT_ONCE: Final = 250
"""Partitions of one topic that are created or resized at once. The next ones follow when their leaders have answered
about most of these, so other requests to a broker need not wait for a whole large topic."""

WRITES_PER_OUTCOME: Final = 400
"""Elections of one write. Its outcome is handled in one step of 8 ms, which sends the new leaders to the brokers. Not
fewer than `PARTITIONS_AT_ONCE`, so that resizes continue only after the last outcome."""

LEGAL: Final[Mapping[PartitionPhase, frozenset[PartitionPhase]]] = {
    # from          to
    NON_EXISTENT: frozenset({NEW}),
    NEW: frozenset({ONLINE, OFFLINE}),
    ONLINE: frozenset({ONLINE, OFFLINE}),
    OFFLINE: frozenset({ONLINE, OFFLINE, NON_EXISTENT}),
}


def move(state: ClusterState, partition: TopicPartition, to: PartitionPhase) -> None:
    """Change a partition's phase; a transition outside the table is a bug."""
    before = state.phase(partition)
    assert to in LEGAL[before], f"{partition}: {before.name} -> {to.name} is not a transition"
    state.set_phase(partition, to)


def add_new(state: ClusterState, name: str) -> list[TopicPartition]:
    """Add the partitions of a topic's assignment that have no state yet. Returns them."""
    added = []
    for partition in state.partitions_of(name):
        if state.phase(partition) is NON_EXISTENT:
            move(state, partition, NEW)
            for replica in state.assignment(partition):
                replicas.move(state, partition, replica, replicas.NEW)
            added.append(partition)
    return added


def adopt(state: ClusterState, partition: TopicPartition, committed: Partition) -> None:
    """Adopt a committed state; whether its leader is alive determines the phase."""
    state.believe(partition, committed)
    if state.phase(partition) is NON_EXISTENT:
        move(state, partition, NEW)
    move(state, partition, ONLINE if committed.state.leader in state.brokers else OFFLINE)


def initial_state(topic: Topic, index: int, elected: elections.Elected, controller_epoch: int) -> LeaderAndIsr:
    """Return a partition's first state: it accepts the newest planned or published generation that includes its index.

    An index that existed before continues its leader epochs (R13), so its old logs and offsets cannot be mistaken for
    the new incarnation's.
    """
    body = topic.body
    plan = body.plan
    retired = body.retired.get(index)
    epoch = 0 if retired is None else retired.leader_epoch + 1
    generation = body.generation
    if plan is not None and plan.grows and index >= plan.before:
        generation = plan.generation
    elif topic.ordered and index < body.lineage.count:
        generation = body.lineage.class_generation(index)
    return LeaderAndIsr(
        leader=elected.leader,
        leader_epoch=epoch,
        isr=elected.isr,
        controller_epoch=controller_epoch,
        generation=generation,
        gen_start=(*(() if retired is None else retired.gen_start), (generation, epoch)),
    )


def create(state: ClusterState, partitions: Iterable[TopicPartition], label: str = "create") -> list[Effect]:
    """Write the first state of new partitions with a live replica; the others wait for one.

    Large topics are created in parts, as their leaders answer.
    """
    writes = []
    live = state.live
    left: dict[str, int] = {}
    for partition in partitions:
        elected = elections.first_leader(state.assignment(partition), live)
        if elected is None or partition in state.partitions:
            continue
        if left.setdefault(partition.topic, room(state, partition.topic)) == 0:
            state.held_back.add(partition.topic)
            continue
        left[partition.topic] -= 1
        topic = state.topics[partition.topic]
        first = initial_state(topic, partition.partition, elected, state.controller_epoch)
        writes.append(PartitionWrite(partition, first, None))
    return [effects.WritePartitions(tuple(writes), label, is_new=True)] if writes else []


def with_leader(committed: Partition, elected: elections.Elected, controller_epoch: int) -> LeaderAndIsr:
    """Return the state after an election: a new epoch of the same generation.

    RECOVERING stays until a leader reports that it has recovered (KIP-704).
    """
    return replace(
        committed.state,
        leader=elected.leader,
        isr=elected.isr,
        leader_epoch=committed.state.leader_epoch + 1,
        controller_epoch=controller_epoch,
        leader_recovery_state=max(elected.recovery_state, committed.state.leader_recovery_state),
    )


def elect_offline(state: ClusterState) -> list[Effect]:
    """Elect leaders for offline partitions, and first leaders for new ones."""
    writes: list[PartitionWrite] = []
    new: list[TopicPartition] = []
    live = state.live
    for partition in state.leaderless:
        if state.phase(partition) is NEW:
            if not belongs_to_plan(state, partition):
                new.append(partition)
        elif not removed_soon(state, partition):
            committed = state.partitions[partition]
            elected = elections.elect_offline_leader(
                state.assignment(partition),
                committed.state.isr,
                live,
                unclean=unclean_allowed(state, partition.topic),
            )
            if elected is not None:
                writes.append(
                    PartitionWrite(partition, with_leader(committed, elected, state.controller_epoch), committed.epoch)
                )
    return [*written_in_pieces(writes, "elect"), *create(state, new)]


def elect_preferred(state: ClusterState, partitions: Iterable[TopicPartition]) -> list[Effect]:
    """Elect preferred replicas that are alive and in sync."""
    writes = []
    for partition in partitions:
        committed, assignment = state.partitions.get(partition), state.assignment(partition)
        if committed is None or not assignment or committed.state.leader == assignment[0]:
            continue
        elected = elections.elect_preferred_leader(assignment, committed.state.isr, state.live)
        if elected is not None and not removed_soon(state, partition):
            writes.append(
                PartitionWrite(partition, with_leader(committed, elected, state.controller_epoch), committed.epoch)
            )
    return written_in_pieces(writes, "elect-preferred")


def imbalanced_partitions(state: ClusterState, percentage: int) -> list[TopicPartition]:
    """Return partitions to rebalance: those of brokers that lead too few of the partitions they are preferred for."""
    owned: Counter[int] = Counter()
    led_by_others: dict[int, list[TopicPartition]] = {}
    for partition, committed in state.partitions.items():  # one pass without new objects: there may be thousands
        name = partition.topic
        assignment = () if name in state.deleting else state.assignment(partition)
        if assignment:
            broker = assignment[0]
            owned[broker] += 1
            if committed.state.leader != broker and not moving(state, partition):
                led_by_others.setdefault(broker, []).append(partition)
    found: list[TopicPartition] = []
    for broker, others in led_by_others.items():
        if broker in state.live and len(others) * 100 > percentage * owned[broker]:
            found += others
    return found


def on_replicas_lost(state: ClusterState, gone: frozenset[int], *, quiet: bool = False) -> list[Effect]:
    """Handle failed brokers: elect new leaders and shrink ISRs, in one write per partition.

    `quiet`: no broker is notified of the outcome, because the caller is about to send all brokers everything.
    """
    writes = []
    for partition in state.hosted_by(gone):
        for replica in gone.intersection(state.assignment(partition)):
            # A replica that a stock tool added to an assignment is not adopted here, and has no phase.
            if state.replica_phase(partition, replica) is not replicas.NON_EXISTENT:
                replicas.move(state, partition, replica, replicas.OFFLINE)
        committed = state.partitions.get(partition)
        if committed is None or removed_soon(state, partition):
            continue
        left = elections.without_replica(committed.state.leader, committed.state.isr, gone)
        if left.leader == elections.NO_LEADER:
            move(state, partition, OFFLINE)
            elected = elections.elect_offline_leader(
                state.assignment(partition),
                committed.state.isr,
                state.live,
                unclean=unclean_allowed(state, partition.topic),
            )
            left = elected or left
        if (left.leader, left.isr) != (committed.state.leader, committed.state.isr):
            writes.append(
                PartitionWrite(partition, with_leader(committed, left, state.controller_epoch), committed.epoch)
            )
    return written_in_pieces(writes, "lose", quiet=quiet)


def remove_from_isr(state: ClusterState, partition: TopicPartition, replica: int) -> PartitionWrite | None:
    """Return the write that drops a live replica from the ISR, and elects another leader if it led.

    For a replica that lacks records of the ISR, or whose disk accepts no writes. None if it is not in the ISR, or if no
    other replica is in sync and alive: then it has the only complete copy. None while the topic is being deleted, too:
    a new leadership would make replicas again that are deleted already.
    """
    committed = state.partitions.get(partition)
    if committed is None or partition.topic in state.deleting:
        return None
    if replica not in committed.state.isr or removed_soon(state, partition):
        return None
    leader, rest = committed.state.leader, tuple(one for one in committed.state.isr if one != replica)
    if leader in rest and leader in state.brokers:
        elected: elections.Elected | None = elections.Elected(leader, rest)
    else:
        elected = elections.elect_offline_leader(state.assignment(partition), rest, state.live, unclean=False)
    if elected is None:
        return None
    return PartitionWrite(partition, with_leader(committed, elected, state.controller_epoch), committed.epoch)


def shut_down(state: ClusterState, broker: int, token: int) -> list[Effect]:
    """Move leadership off a broker that is shutting down, and remove it from its ISRs, while it still serves.

    Partitions with a single replica stay with the broker, and go offline with it.
    """
    writes, batch = [], RequestBatch(state)
    for partition in state.hosted_by([broker]):
        committed, assignment = state.partitions.get(partition), state.assignment(partition)
        if committed is None or len(assignment) < 2 or removed_soon(state, partition):
            continue
        if committed.state.leader == broker:
            elected = elections.elect_for_shutdown(
                assignment, committed.state.isr, frozenset(state.brokers), state.shutting_down
            )
        else:
            elected = elections.without_replica(committed.state.leader, committed.state.isr, {broker})
            batch.stop(partition, [broker], delete=False)
        if elected is not None and (elected.leader, elected.isr) != (committed.state.leader, committed.state.isr):
            writes.append(
                PartitionWrite(partition, with_leader(committed, elected, state.controller_epoch), committed.epoch)
            )
    then = Shutdown(token, broker)
    if not writes:
        return [*batch.flush(), effects.WritePartitions((), "shut-down", then=then)]
    return [*batch.flush(), *written_in_pieces(writes, "shut-down", then=then)]


def written_in_pieces(
    writes: Sequence[PartitionWrite], label: str, *, quiet: bool = False, then: Shutdown | None = None
) -> list[Effect]:
    """Split the elections of one event; `then` belongs to the last piece, whose outcome comes after all others."""
    pieces = [tuple(writes[at : at + WRITES_PER_OUTCOME]) for at in range(0, len(writes), WRITES_PER_OUTCOME)]
    return [
        effects.WritePartitions(piece, label, then=then if number == len(pieces) else None, quiet=quiet)
        for number, piece in enumerate(pieces, 1)
    ]


def after_write(
    state: ClusterState,
    written: Mapping[TopicPartition, Partition],
    *,
    is_new: bool,
    led_anew: bool = True,
    quiet: bool = False,
) -> list[Effect]:
    """Adopt committed states and send them to the brokers; LeaderAndIsr only for a new epoch."""
    batch = RequestBatch(state)
    for partition, committed in written.items():
        if partition.topic not in state.topics:
            continue
        state.believe(partition, committed)
        phase = ONLINE if committed.state.leader != elections.NO_LEADER else OFFLINE
        move(state, partition, phase)
        state.unanswered.setdefault(partition.topic, set()).discard(partition.partition)
        for replica in state.online_replicas(partition):
            if is_new:
                replicas.move(state, partition, replica, replicas.ONLINE)
        if quiet:
            continue
        if led_anew:
            batch.add_leadership(partition, is_new=is_new)
            if phase is ONLINE:
                state.unanswered[partition.topic].add(partition.partition)
        else:
            batch.add_metadata(partition)
    return batch.flush()


def room(state: ClusterState, name: str) -> int:
    """Return how many more partitions of a topic its brokers can receive now; 0 until it is worth a request."""
    free = PARTITIONS_AT_ONCE - len(state.unanswered.get(name, ()))
    return free if 2 * free >= PARTITIONS_AT_ONCE else 0


def on_response(state: ClusterState, partition: TopicPartition, broker: int) -> None:
    """Count any response of a partition's leader, which limits the pace."""
    committed = state.partitions.get(partition)
    if committed is not None and committed.state.leader == broker:
        state.unanswered.get(partition.topic, set()).discard(partition.partition)


def confirm(state: ClusterState, partition: TopicPartition, broker: int, broker_epoch: int, leader_epoch: int) -> None:
    """Note that a broker holds the state of this epoch; only the leader's confirmation lets a resize continue (R4)."""
    committed = state.partitions.get(partition)
    if committed is None or committed.state.leader != broker:
        return
    known = state.adopted.get(partition)
    if known is None or (known.broker_id, known.broker_epoch) != (broker, broker_epoch):
        known = state.adopted[partition] = Adoption(broker, broker_epoch, leader_epoch)
    known.leader_epoch = max(known.leader_epoch, leader_epoch)


def belongs_to_plan(state: ClusterState, partition: TopicPartition) -> bool:
    """Whether a planned growth adds this partition: the resize creates it."""
    plan = state.topics[partition.topic].body.plan
    return plan is not None and plan.grows and partition.partition >= plan.before


def moving(state: ClusterState, partition: TopicPartition) -> bool:
    """Whether the partition's replicas are being moved: its leader is elected when the new ones are in sync."""
    body = state.topics[partition.topic].body
    return partition.partition in body.adding_replicas or partition.partition in body.removing_replicas


def removed_soon(state: ClusterState, partition: TopicPartition) -> bool:
    """Whether the partition is about to be removed, and gets no leader any more."""
    committed, topic = state.partitions.get(partition), state.topics[partition.topic]
    return committed is not None and being_removed(topic, partition.partition, committed)


def unclean_allowed(state: ClusterState, name: str) -> bool:
    """Whether an unclean leader election is allowed, which loses records that only dead replicas hold."""
    text = state.topics[name].config.get("unclean.leader.election.enable", "")
    return text.lower() == "true" if text else state.settings.unclean_leader_election_enable
