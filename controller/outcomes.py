"""Handles the outcome of a write: committed, or lost to an earlier writer.

The controller adopts a decision once it is committed, never before. Then it updates the brokers, sends the response
that waited for the write, and takes the next step of the resize, reassignment or election. A lost write returns the
znode's current contents: the controller adopts them, and reconciles everything (`Reconcile`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch.controller import (
    alter_partition,
    effects,
    election_requests,
    events,
    partitions,
    reassignment,
    resize,
    resize_requests,
    shutdown,
    topics,
    topics_with_generations,
)
from anabranch.controller.effects import Effect
from anabranch.controller.events import (
    PartitionsWritten,
    Reconcile,
    TopicRemoved,
    TopicWriteLost,
    TopicWriteRefused,
    TopicWritten,
)
from anabranch.controller.follow_ups import Election, IsrChange, Shutdown
from anabranch.controller.model import Partition, TopicPartition
from anabranch.controller.state import ClusterState
from anabranch.controller.topic_size import too_large
from anabranch.protocol.errors import ErrorCode


def partitions_written(state: ClusterState, event: PartitionsWritten) -> list[Effect]:
    """Adopt the committed states, update the brokers, and take the next steps."""
    believe(state, event.lost)
    decided: list[Effect]
    if isinstance(event.then, IsrChange):
        decided = alter_partition.on_written(state, event.then, event.written, event.lost)
        decided += schedule_preferred(state, event)
    else:
        decided = partitions.after_write(state, event.written, is_new=event.is_new, quiet=event.quiet)
    if isinstance(event.then, Shutdown):
        decided.append(shutdown.reply(state, event.then))
    elif isinstance(event.then, Election):
        decided.append(election_requests.reply(event.then, event))
    if event.lost:
        return [*decided, effects.Post(Reconcile())]
    if len(event.written) >= partitions.PARTITIONS_AT_ONCE:  # the rest of a large step, after waiting events
        return [*decided, effects.SetTimer(events.NEXT_TIMER, 0)]
    for name in sorted({partition.topic for partition in event.written}):
        decided += resize.advance(state, name)
        decided += resize_requests.proceed(state, name)
        decided += reassignment.advance(state, name)
    return decided


def believe(state: ClusterState, actual: Mapping[TopicPartition, Partition | None]) -> None:
    """Adopt states that another writer committed."""
    for partition, committed in actual.items():
        if committed is not None and partition.topic in state.topics:
            partitions.adopt(state, partition, committed)
        else:
            state.forget_partition(partition)


def schedule_preferred(state: ClusterState, event: PartitionsWritten) -> list[Effect]:
    """Schedule the election of a preferred leader that is in sync again, ahead of the periodic check."""
    settings = state.settings
    if not settings.auto_leader_rebalance_enable or settings.preferred_election_delay_ms <= 0:
        return []
    for partition, committed in event.written.items():
        first = state.assignment(partition)[:1]
        if first and first[0] in committed.state.isr and first[0] != committed.state.leader:
            return [effects.SetTimer(events.PREFERRED_TIMER, settings.preferred_election_delay_ms)]
    return []


def topic_written(state: ClusterState, event: TopicWritten) -> list[Effect]:
    """Handle a committed topic znode: the next action depends on the step."""
    topic = state.topics.get(event.name)
    if topic is None:
        return []
    before = topic.body
    state.put_topic(replace(topic, body=event.body, version=event.version))
    name = event.name
    match event.label:
        case resize_requests.PLAN:
            plan = event.body.plan
            assert plan is not None, "this step writes a plan"
            detail = {"topic": name, "generation": plan.generation, "from": plan.before, "to": plan.after}
            partitions.add_new(state, name)
            return [effects.PublishEvent("resize planned", detail), *resize.advance(state, name)]
        case resize_requests.GROW_PLAIN:
            return resize_requests.after_plain_growth(state, name)
        case resize.PUBLISH:
            plan = before.plan
            assert plan is not None, "only a plan is published"
            detail = {"topic": name, "generation": plan.generation, "from": plan.before, "to": plan.after}
            announced = resize.announce_published(state, name)
            return [*announced, effects.PublishEvent("resize published", detail), *resize_requests.proceed(state, name)]
        case topics_with_generations.MARK:
            return topics_with_generations.on_written(state, name)
        case resize.RETIRE:
            return resize.resume_removal(state, state.topics[name])
        case reassignment.BEGIN | reassignment.COMPLETE:
            return [*reassignment.on_written(state, event, before), *resize_requests.proceed(state, name)]
        case resize.REMOVE:
            for index in event.removed:
                state.forget_partition(TopicPartition(name, index))
            removed = effects.PublishEvent("partition removed", {"topic": name, "partitions": list(event.removed)})
            return [removed, *resize_requests.proceed(state, name), *resize.check_drained(state)]
    return []


def topic_write_lost(state: ClusterState, event: TopicWriteLost) -> list[Effect]:
    """Handle a topic write lost to another writer: start again from the znode's contents."""
    believe(state, event.states)
    queue = state.waiting.get(event.name)
    if queue and event.label in (resize_requests.PLAN, resize_requests.GROW_PLAIN):
        queue[0].started = False
    if event.topic is None:
        return [*topics.on_vanished(state, [event.name]), effects.Post(Reconcile())]
    return [*topics.on_changed(state, event.topic), effects.Post(Reconcile())]


def topic_write_refused(state: ClusterState, event: TopicWriteRefused) -> list[Effect]:
    """Handle a topic znode that exceeds ZooKeeper's limit: fail the request, or retry a later step later.

    Requests are measured before they start, so this happens only where a server's limit is below the expected one.
    """
    detail = {"topic": event.name, "step": event.label, "bytes": event.size_bytes}
    decided: list[Effect] = [effects.PublishEvent("topic too large for ZooKeeper", detail)]
    queue = state.waiting.get(event.name)
    if queue and event.label in (resize_requests.PLAN, resize_requests.GROW_PLAIN):
        refused = (ErrorCode.POLICY_VIOLATION, too_large(event.name, event.size_bytes))
        decided += resize_requests.settle(state, queue.popleft(), refused)
        return [*decided, *resize_requests.proceed(state, event.name)]
    return [*decided, effects.SetTimer(events.RETRY_TIMER, state.settings.remind_interval_ms)]


def topic_removed(state: ClusterState, event: TopicRemoved) -> list[Effect]:
    """Forget a topic whose znodes are deleted."""
    state.forget_topic(event.name)
    return [effects.PublishEvent("topic deleted", {"topic": event.name}), *resize_requests.proceed(state, event.name)]
