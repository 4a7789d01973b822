"""The controller's state machine: `step(state, event) -> effects`. One function per event; no I/O, clock or randomness.

The runner returns the outcome of each write before any other event, so a function sees its own earlier decisions as
committed or lost, never as pending. An event that needs two rounds of decisions (a broker that re-registered was first
lost) posts the second as an event of its own.
"""

from __future__ import annotations

from typing import assert_never

from anabranch.controller import (
    alter_partition,
    effects,
    election_requests,
    events,
    features,
    outcomes,
    partitions,
    reassignment,
    replicas,
    resize,
    resize_requests,
    shutdown,
    topics,
)
from anabranch.controller.effects import Effect
from anabranch.controller.events import (
    AlterPartitionRequested,
    BrokersJoined,
    BrokersRead,
    ControllerFailover,
    DeletionsRead,
    ElectionRequested,
    Event,
    FeaturesRequested,
    FeaturesWritten,
    PartitionsRequested,
    PartitionsWritten,
    ReassignmentRequested,
    ReassignmentsListed,
    ReassignmentStarted,
    Reconcile,
    ReplyDue,
    ResponseReceived,
    SendInitialState,
    SettingsChanged,
    ShutdownRequested,
    TimerFired,
    TopicRead,
    TopicRemoved,
    TopicsRead,
    TopicWriteLost,
    TopicWriteRefused,
    TopicWritten,
)
from anabranch.controller.model import Features, ReplicaPhase, TopicPartition
from anabranch.controller.requests import RequestBatch
from anabranch.controller.state import ClusterState
from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from anabranch.protocol.apis.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from anabranch.protocol.apis.stop_replica import StopReplicaRequest, StopReplicaResponse
from anabranch.protocol.errors import ErrorCode


def step(state: ClusterState, event: Event) -> list[Effect]:
    """Change the state for the event, and return the effects."""
    match event:
        case ControllerFailover():
            return on_controller_failover(state, event)
        case SendInitialState():
            return on_send_initial_state(state, event)
        case BrokersRead():
            return on_brokers_read(state, event)
        case BrokersJoined():
            return on_brokers_joined(state, event)
        case TopicsRead():
            return on_topics_read(state, event)
        case TopicRead():
            return [*topics.on_changed(state, event.topic), effects.Post(Reconcile())]
        case TopicWriteLost():
            return outcomes.topic_write_lost(state, event)
        case TopicWriteRefused():
            return outcomes.topic_write_refused(state, event)
        case Reconcile():
            return on_reconcile(state)
        case DeletionsRead():
            return [*topics.mark_for_deletion(state, event.names), effects.Post(Reconcile())]
        case PartitionsWritten():
            return outcomes.partitions_written(state, event)
        case TopicWritten():
            return outcomes.topic_written(state, event)
        case TopicRemoved():
            return outcomes.topic_removed(state, event)
        case ResponseReceived():
            return on_response(state, event)
        case TimerFired():
            return on_timer(state, event)
        case FeaturesRequested():
            return features.ask(state, event)
        case FeaturesWritten():
            return features.on_written(state, event)
        case SettingsChanged():
            return on_settings_changed(state, event)
        case AlterPartitionRequested():
            return alter_partition.ask(state, event)
        case ShutdownRequested():
            return shutdown.ask(state, event)
        case PartitionsRequested():
            return resize_requests.ask(state, event)
        case ElectionRequested():
            return election_requests.ask(state, event)
        case ReassignmentRequested():
            return reassignment.ask(state, event)
        case ReassignmentStarted():
            return reassignment.answer(state, event)
        case ReassignmentsListed():
            return reassignment.list_ongoing(state, event)
        case ReplyDue():
            return resize_requests.due(state, event.token)
        case _:
            assert_never(event)


def on_controller_failover(state: ClusterState, event: ControllerFailover) -> list[Effect]:
    """Start a tenure: send all brokers the live brokers and leaders, and continue unfinished work."""
    state.brokers = dict(event.brokers)
    decided: list[Effect] = [effects.PublishEvent("elected")]
    decided += [effects.Connect(broker) for broker in event.brokers.values()]
    first = RequestBatch(state)
    first.add_brokers()  # brokers must know the live brokers before they follow one of them
    decided += first.flush()
    for snapshot in event.topics:
        topics.load(state, snapshot)
        decided += topics.complete(snapshot)
    state.features = event.features or Features()
    if event.features is None:
        decided += features.bootstrap(state)
    state.deleting |= event.deletions & state.topics.keys()
    gone = {replica for partition in state.all_partitions() for replica in state.assignment(partition)}
    decided += partitions.on_replicas_lost(state, frozenset(gone - state.brokers.keys()), quiet=True)
    settings = state.settings
    if settings.auto_leader_rebalance_enable:
        decided.append(effects.SetTimer(events.REBALANCE_TIMER, settings.leader_imbalance_first_check_ms))
    decided.append(effects.SetTimer(events.DRAINED_TIMER, settings.drained_check_interval_ms))
    return [*decided, effects.Post(SendInitialState(event.deletions)), effects.Post(Reconcile())]


def on_send_initial_state(state: ClusterState, event: SendInitialState) -> list[Effect]:
    """Send all brokers the full state, with the outcome of the first elections."""
    everything = RequestBatch(state)
    for partition in state.all_partitions():
        if partition in state.partitions:
            everything.add_leadership(partition)
    everything.add_everything()
    decided = everything.flush()
    pending, state.deleting = state.deleting, set()
    return [*decided, *topics.mark_for_deletion(state, event.deletions | pending)]


def on_reconcile(state: ClusterState) -> list[Effect]:
    """Start elections; resizes, deletions and queued requests follow their outcome."""
    decided = partitions.elect_offline(state)
    if decided:
        return [*decided, effects.Post(Reconcile())]
    for name in sorted(state.deletable):
        decided += topics.continue_deletion(state, name)
    for name in sorted(state.at_work - state.deleting):
        decided += resize.advance(state, name)
        decided += resize.resume_removal(state, state.topics[name])
        decided += reassignment.advance(state, name)
    for name in list(state.waiting):
        decided += resize_requests.proceed(state, name)
    return decided


def on_brokers_read(state: ClusterState, event: BrokersRead) -> list[Effect]:
    """Compare with the known brokers: lost, new, or re-registered (same id, another czxid), which is both."""
    known, now = state.brokers, event.brokers
    gone = frozenset(one for one in known if one not in now or now[one].epoch != known[one].epoch)
    joined = tuple(now[one] for one in sorted(now) if one not in known or one in gone)
    decided: list[Effect] = []
    if any(one in known and one not in gone and now[one] != known[one] for one in now):
        known.update({one: now[one] for one in now if one in known and one not in gone})
        moved = RequestBatch(state)
        moved.add_brokers()
        decided += moved.flush()
    if gone:
        decided += on_broker_failure(state, gone, bounced=frozenset(broker.id for broker in joined))
    if joined:
        decided.append(effects.Post(BrokersJoined(joined)))
    return decided


def on_broker_failure(state: ClusterState, gone: frozenset[int], bounced: frozenset[int]) -> list[Effect]:
    """Elect leaders for their partitions, shrink the ISRs, and drop pending waits for them."""
    decided: list[Effect] = []
    for broker in sorted(gone):
        del state.brokers[broker]
        state.shutting_down.discard(broker)
        decided.append(effects.Disconnect(broker))
        decided.append(effects.PublishEvent("broker lost", {"broker": broker, "restarted": broker in bounced}))
    topics.lose_replicas(state, gone)
    writes = partitions.on_replicas_lost(state, gone)
    if not writes:
        batch = RequestBatch(state)
        batch.add_brokers()
        decided += batch.flush()
    decided += writes
    for partition in list(state.removals):
        for broker in gone:
            decided += resize.replica_dropped(state, partition, broker)
    return [*decided, effects.Post(Reconcile())]


def on_brokers_joined(state: ClusterState, event: BrokersJoined) -> list[Effect]:
    """Announce new brokers to the others, send them the full state, and send their replicas their leaders."""
    state.deletable |= state.deleting
    existing = list(state.brokers)
    joined = [broker.id for broker in event.brokers]
    decided: list[Effect] = []
    for broker in event.brokers:
        state.brokers[broker.id] = broker
        decided.append(effects.Connect(broker))
        decided.append(effects.PublishEvent("broker joined", {"broker": broker.id, "epoch": broker.epoch}))
    metadata, leadership = RequestBatch(state), RequestBatch(state)
    metadata.add_brokers(existing)
    metadata.add_everything(joined)
    for partition in state.hosted_by(joined):
        state.removals.pop(partition, None)  # a broker that returns during a removal is told to delete its replica, too
        for replica in state.assignment(partition):
            if replica in joined and partition in state.partitions:
                replicas.set_online(state, partition, replica)
                leadership.remind(partition, replica)
    return [*decided, *metadata.flush(), *leadership.flush(), effects.Post(Reconcile())]


def on_settings_changed(state: ClusterState, event: SettingsChanged) -> list[Effect]:
    """Apply changed topic defaults: send brokers the affected ones, and elect where that is now allowed."""
    before, state.settings = state.settings, event.settings
    decided: list[Effect] = []
    if before.min_insync_replicas != event.settings.min_insync_replicas:
        batch = RequestBatch(state)
        for partition in state.all_partitions():
            if "min.insync.replicas" not in state.topics[partition.topic].config:
                batch.add_metadata(partition)
        decided = batch.flush()
    return [*decided, effects.Post(Reconcile())]


def on_topics_read(state: ClusterState, event: TopicsRead) -> list[Effect]:
    """Add new topics, and forget topics that were removed from ZooKeeper directly."""
    missing = state.topics.keys() - event.names
    return [*topics.on_vanished(state, missing), *topics.on_discovered(state, event.found), effects.Post(Reconcile())]


def on_response(state: ClusterState, event: ResponseReceived) -> list[Effect]:
    """Handle a broker's response; ignore that of an earlier incarnation."""
    broker = state.brokers.get(event.broker_id)
    if broker is None or broker.epoch != event.broker_epoch:
        return []
    match event.request, event.response:
        case LeaderAndIsrRequest() as request, LeaderAndIsrResponse() as response:
            return on_leadership_confirmed(state, event, request, response)
        case StopReplicaRequest() as request, StopReplicaResponse() as response:
            return on_replicas_stopped(state, event.broker_id, request, response)
        case ListOffsetsRequest() as request, ListOffsetsResponse() as response:
            return on_offsets(state, request, response)
    return []


def on_leadership_confirmed(
    state: ClusterState, event: ResponseReceived, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
) -> list[Effect]:
    """Continue resizes whose leaders have their new state.

    STALE_CONTROLLER_EPOCH of a partition means that the broker has this epoch or a later one: it confirms as well.
    KAFKA_STORAGE_ERROR means that the replica lost data, or cannot be opened or written: it leaves the ISR if a live
    replica remains in it, and receives its state again later. INCONSISTENT_TOPIC_ID comes from a broker that was down
    when it should have deleted a replica of an earlier topic of this name: it is told to delete that, and then receives
    its partition again.
    """
    if response.error_code != ErrorCode.NONE:
        return []
    adopted = (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)
    failed = {
        (topic.topic_id, row.partition_index): row.error_code
        for topic in response.topics
        for row in topic.partition_errors
        if row.error_code not in adopted
    }
    decided: list[Effect] = []
    is_reminding = bool(state.to_remind)
    unfit: list[effects.PartitionWrite] = []
    strays = RequestBatch(state)
    for topic in request.topic_states:
        known = state.topics.get(topic.topic_name)
        current = known is not None and known.body.topic_id == topic.topic_id
        for row in topic.partition_states:
            partition = TopicPartition(topic.topic_name, row.partition_index)
            error = failed.get((topic.topic_id, row.partition_index))
            partitions.on_response(state, partition, event.broker_id)
            if error is None:
                partitions.confirm(state, partition, event.broker_id, event.broker_epoch, row.leader_epoch)
            elif error == ErrorCode.KAFKA_STORAGE_ERROR:
                state.to_remind.add((event.broker_id, partition))
                committed = state.partitions.get(partition) if current else None
                if committed is not None and committed.state.leader_epoch == row.leader_epoch:
                    write = partitions.remove_from_isr(state, partition, event.broker_id)
                    unfit += [] if write is None else [write]
            elif error == ErrorCode.INCONSISTENT_TOPIC_ID and current and partition in state.partitions:
                strays.stop(partition, (event.broker_id,), delete=True)
                state.to_remind.add((event.broker_id, partition))
        decided += resize.advance(state, topic.topic_name)
        if topic.topic_name in state.held_back and partitions.room(state, topic.topic_name):
            state.held_back.discard(topic.topic_name)
            decided.append(effects.Post(Reconcile()))
    decided += strays.flush()
    if unfit:
        decided.append(effects.WritePartitions(tuple(unfit), "lose"))
    if state.to_remind and not is_reminding:  # a timer that is running is not postponed
        decided.append(effects.SetTimer(events.REMIND_TIMER, state.settings.remind_interval_ms))
    return decided


def on_remind(state: ClusterState) -> list[Effect]:
    """Resend the committed state to brokers that failed to adopt it: a full disk may have space by now.

    Replicas that were removed meanwhile are left out, because that would create them again.
    """
    waiting, state.to_remind = sorted(state.to_remind), set()
    batch = RequestBatch(state)
    for broker, partition in waiting:
        stays = state.replica_phase(partition, broker) in (ReplicaPhase.NEW, ReplicaPhase.ONLINE)
        if stays and broker in state.brokers and partition in state.partitions:
            batch.remind(partition, broker)
    return batch.flush()


def on_replicas_stopped(
    state: ClusterState, broker: int, request: StopReplicaRequest, response: StopReplicaResponse
) -> list[Effect]:
    """Continue deletions and removals whose replicas are deleted."""
    failed = {
        TopicPartition(row.topic_name, row.partition_index)
        for row in response.partition_errors
        if row.error_code != ErrorCode.NONE
    }
    decided: list[Effect] = []
    is_retrying = bool(state.deletable)
    for topic in request.topic_states:
        for row in topic.partition_states:
            partition = TopicPartition(topic.topic_name, row.partition_index)
            if row.delete_partition and topic.topic_name in state.deleting:
                wrong = response.error_code != ErrorCode.NONE or partition in failed
                topics.replica_stopped(state, partition, broker, failed=wrong)
            elif row.delete_partition:
                decided += resize.replica_dropped(state, partition, broker)
        if topic.topic_name in state.deleting and topics.all_stopped(state, topic.topic_name):
            decided.append(effects.RemoveTopic(topic.topic_name))
    if state.deletable and not is_retrying:
        decided.append(effects.SetTimer(events.RETRY_TIMER, state.settings.remind_interval_ms))
    return decided


def on_offsets(state: ClusterState, request: ListOffsetsRequest, response: ListOffsetsResponse) -> list[Effect]:
    """Handle the start or end offset of a partition marked for deletion."""
    decided: list[Effect] = []
    for topic, answer in zip(request.topics, response.topics, strict=False):
        for row, answered in zip(topic.partitions, answer.partitions, strict=False):
            if answered.error_code == ErrorCode.NONE:
                decided += resize.offset_reported(
                    state,
                    TopicPartition(topic.name, row.partition_index),
                    row.current_leader_epoch,
                    timestamp=row.timestamp,
                    offset=answered.offset,
                )
    return decided


def on_timer(state: ClusterState, event: TimerFired) -> list[Effect]:
    """Run a periodic task."""
    settings = state.settings
    match event.timer:
        case events.PREFERRED_TIMER:
            return partitions.elect_preferred(state, partitions.imbalanced_partitions(state, 0))
        case events.REBALANCE_TIMER:
            found = partitions.imbalanced_partitions(state, settings.leader_imbalance_per_broker_percentage)
            again = effects.SetTimer(events.REBALANCE_TIMER, settings.leader_imbalance_check_interval_ms)
            return [*partitions.elect_preferred(state, found), again]
        case events.DRAINED_TIMER:
            again = effects.SetTimer(events.DRAINED_TIMER, settings.drained_check_interval_ms)
            return [*resize.check_drained(state), again]
        case events.REMIND_TIMER:
            return on_remind(state)
        case events.RETRY_TIMER | events.NEXT_TIMER:
            return [effects.Post(Reconcile())]
    raise AssertionError(f"unknown timer {event.timer!r}")
