"""Handles CreatePartitions in the controller: checks each request, and runs one resize per topic at a time.

Stock clients can grow a topic; shrinking needs the tag `allow_shrink`. The response follows when the resize is
published and led, or when the request times out; the resize then continues. The validations are Kafka's, against the
topic's state when the request reaches the head of the queue.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from anabranch.controller import effects, features, partitions, resize, topic_size
from anabranch.controller.effects import Effect
from anabranch.controller.events import PartitionsRequested
from anabranch.controller.model import INTERNAL_TOPICS, Topic, TopicBody, TopicPartition
from anabranch.controller.placement import assign_replicas
from anabranch.controller.requests import being_removed
from anabranch.controller.state import ClusterState, PendingReply, WaitingResize
from anabranch.protocol.apis.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

PLAN: Final = "resize:after-plan"
GROW_PLAIN: Final = "grow"


def ask(state: ClusterState, event: PartitionsRequested) -> list[Effect]:
    """Queue each topic's request behind earlier ones."""
    request, token = event.request, event.token
    names = Counter(topic.name for topic in request.topics)
    pending = state.replies[token] = PendingReply(dict.fromkeys(names))
    started: list[Effect] = []
    for topic in request.topics:
        if names[topic.name] > 1:
            pending.note(result(topic.name, ErrorCode.INVALID_REQUEST, "Duplicate topic in request."))
            continue
        queue = state.waiting.setdefault(topic.name, deque())
        queue.append(WaitingResize(token, topic, request.validate_only, event.barred.get(topic.name)))
        if len(queue) == 1:
            started += proceed(state, topic.name)
    if token in state.replies and request.timeout_ms > 0:
        started.append(effects.SetReplyTimer(token, request.timeout_ms))
    elif token in state.replies:
        started += due(state, token)
    return [*started, *answer_if_complete(state, token)]


def proceed(state: ClusterState, name: str) -> list[Effect]:
    """Complete the request at the head of a topic's queue if its resize is done, and start the next ones."""
    decided: list[Effect] = []
    queue = state.waiting.get(name)
    while queue:
        head = queue[0]
        topic = state.topics.get(name)
        if head.started and topic is not None and name not in state.deleting and not is_settled(state, topic, head):
            return decided
        error = CREATED
        if not head.started or topic is None or name in state.deleting:
            try:
                known = topic_to_resize(state, name)
                if busy(state, known):
                    return decided
                added = check_request(state, known, head)
            except KafkaError as refused:
                error = (refused.code, refused.message)
            else:
                if not head.validate_only:
                    head.started, head.first_added = True, known.body.undeleted_partition_count
                    return [*decided, *begin(state, known, head.requested.count, added)]
        queue.popleft()
        decided += settle(state, head, error)
    state.waiting.pop(name, None)
    return decided


CREATED = (ErrorCode.NONE, "")


def topic_to_resize(state: ClusterState, name: str) -> Topic:
    """Return the topic. Raises KafkaError if it does not exist or is being deleted."""
    topic = state.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if name in state.deleting:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic '{name}' is queued for deletion.")
    if topic.body.reassigned:
        raise KafkaError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"Replicas of the topic '{name}' are being moved: partitions {topic.body.reassigned}.",
        )
    return topic


def busy(state: ClusterState, topic: Topic) -> bool:
    """Whether an unfinished resize or removal of a drained partition must end first."""
    if topic.body.plan is not None:
        return True
    for partition in resize.retiring_partitions(state, topic):
        committed = state.partitions.get(partition)
        if committed is not None and being_removed(topic, partition.partition, committed):
            return True
    return False


def is_settled(state: ClusterState, topic: Topic, waiting: WaitingResize) -> bool:
    """Whether the resize of a request is published, and its new partitions have leaders, or nobody waits for them."""
    if topic.body.plan is not None:
        return False
    added = range(waiting.first_added, topic.body.undeleted_partition_count)
    return waiting.token not in state.replies or all(
        TopicPartition(topic.name, index) in state.partitions for index in added
    )


def check_request(state: ClusterState, topic: Topic, waiting: WaitingResize) -> Mapping[int, tuple[int, ...]]:
    """Return the replicas of the partitions to add. Raises KafkaError if the topic may not have so many partitions."""
    requested = waiting.requested
    body, count = topic.body, requested.count
    current = body.undeleted_partition_count
    topic_size.check_count(topic.name, count)
    if count == current:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partitions.")
    if topic.name in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The number of partitions of {topic.name} cannot be changed: it determines the coordinator of each group "
            "or transactional id, which would not find the state of most of them.",
        )
    if topic.ordered:
        features.check_reshard(state)
    if count < current:
        check_shrink(topic, requested, state.settings.log_cleanup_policy)
        topic_size.check_merged(state, topic.name, resize.add_plan(body, count, {}), count)
        if waiting.barred is not None:
            raise waiting.barred
        return {}
    added = to_be_added(state, topic, requested)
    check_room(topic, count, added)
    return added


def check_room(topic: Topic, count: int, added: Mapping[int, tuple[int, ...]]) -> None:
    """Check that the planned topic znode fits ZooKeeper's limit, as it must be written and published."""
    body = resize.add_plan(topic.body, count, added) if topic.ordered else grow_plainly(topic.body, count, added)
    topic_size.check(topic.name, body)


def to_be_added(state: ClusterState, topic: Topic, requested: CreatePartitionsTopic) -> Mapping[int, tuple[int, ...]]:
    """Return the replicas of the partitions to add, from the request or by Kafka's placement."""
    body, count = topic.body, requested.count
    current = body.undeleted_partition_count
    added = [index for index in range(current, count) if index not in body.assignment]
    if requested.assignments is None:
        return place_replicas(state, body, added)
    rows = [tuple(one.broker_ids) for one in requested.assignments]
    check_replicas(state, body, rows, current)
    if len(rows) != count - current:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Increasing the number of partitions by {count - current} but {len(rows)} assignments provided.",
        )
    given = dict(enumerate(rows, start=current))
    return {index: given[index] for index in added}


def check_replicas(state: ClusterState, body: TopicBody, rows: list[tuple[int, ...]], first: int) -> None:
    """Check that the requested brokers exist, once each, and match the topic's replication factor."""
    factor = len(body.target(min(body.assignment)))
    for index, replicas in enumerate(rows, start=first):
        if not replicas or len(set(replicas)) != len(replicas) or not set(replicas) <= state.brokers.keys():
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Partition {index} needs a list of distinct live brokers, not {list(replicas)}.",
            )
        if len(replicas) != factor:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Inconsistent replication factor between partitions, partition 0 has {factor} while "
                f"partition {index} has {len(replicas)}.",
            )


def is_shrink_request(state: ClusterState, requested: CreatePartitionsTopic) -> bool:
    """Whether this request may be a shrink when it reaches the head of the queue."""
    topic = state.topics.get(requested.name)
    if topic is None or not requested.allow_shrink:
        return False
    return (
        requested.count < topic.body.undeleted_partition_count
        or topic.body.plan is not None
        or requested.name in state.waiting
    )


def check_shrink(topic: Topic, requested: CreatePartitionsTopic, default_policy: str) -> None:
    """Raise KafkaError unless the topic may shrink to this count; `default_policy` is the brokers' cleanup policy."""
    body, count = topic.body, requested.count
    current = body.undeleted_partition_count
    if not requested.allow_shrink:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {current} partition(s); {count} would not be an increase. "
            f"To merge partitions use `anabranch topics alter {topic.name} --partitions {count}`.",
        )
    if not topic.ordered:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} has enable.ordered.delivery=false: such a topic can grow but not shrink.",
        )
    if count < 1:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} cannot have {count} partitions: the minimum is one.",
        )
    policy = topic.config.get("cleanup.policy", default_policy)
    if "delete" not in [one.strip() for one in policy.split(",")]:
        # R15: the last record of each key never expires, so a retiring partition would never become empty.
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} has cleanup.policy={policy.strip()}: its partitions would never be empty. "
            "Add `delete` to the policy to shrink it.",
        )


def place_replicas(state: ClusterState, body: TopicBody, added: list[int]) -> Mapping[int, tuple[int, ...]]:
    """Place added partitions as Kafka does: continue from the first replica of partition 0."""
    if not added:
        return {}
    model = body.assignment[min(body.assignment)]
    live = sorted(state.live)
    start = next((place for place, broker in enumerate(live) if broker >= model[0]), 0)
    brokers = [(broker, state.brokers[broker].rack) for broker in live]
    drawn = assign_replicas(brokers, len(added), len(model), start_index=start, shift=start, first_partition=added[0])
    return {index: tuple(drawn[added[0] + place]) for place, index in enumerate(added)}


def begin(state: ClusterState, topic: Topic, count: int, added: Mapping[int, tuple[int, ...]]) -> list[Effect]:
    """Write the plan; a topic without ordered delivery grows at once, as in Kafka."""
    if not topic.ordered:
        body = grow_plainly(topic.body, count, added)
        return [effects.WriteTopic(topic.name, body, topic.version, GROW_PLAIN)]
    return [effects.WriteTopic(topic.name, resize.add_plan(topic.body, count, added), topic.version, PLAN)]


def grow_plainly(body: TopicBody, count: int, added: Mapping[int, tuple[int, ...]]) -> TopicBody:
    """Return the znode of an unordered topic with more partitions: no generation, no fence."""
    return replace(
        body,
        assignment={**body.assignment, **added},
        undeleted_partition_count=count,
        history=((body.generation, count),),
    )


def after_plain_growth(state: ClusterState, name: str) -> list[Effect]:
    """Create the new partitions of an unordered topic."""
    return partitions.create(state, partitions.add_new(state, name))


def settle(state: ClusterState, waiting: WaitingResize, error: tuple[ErrorCode, str]) -> list[Effect]:
    """Note the outcome for one topic, and respond if it was the last of its request."""
    pending = state.replies.get(waiting.token)
    if pending is None:
        return []
    pending.note(result(waiting.requested.name, *error))
    return answer_if_complete(state, waiting.token)


def due(state: ClusterState, token: int) -> list[Effect]:
    """Handle a request's timeout: unpublished resizes have timed out, and continue."""
    pending = state.replies.get(token)
    if pending is None:
        return []
    for name, known in pending.results.items():
        if known is None:
            pending.note(result(name, ErrorCode.REQUEST_TIMED_OUT, "The resize continues, but is not published yet."))
    decided = answer_if_complete(state, token)
    for name in pending.results:
        decided += proceed(state, name)  # the next request need not wait for the leaders of this one's partitions
    return decided


def answer_if_complete(state: ClusterState, token: int) -> list[Effect]:
    """Respond when every topic of the request has its result."""
    pending = state.replies.get(token)
    if pending is None or pending.open_count:
        return []
    del state.replies[token]
    results = [known for known in pending.results.values() if known is not None]
    return [effects.SendReply(token, CreatePartitionsResponse(results=results))]


def result(name: str, code: ErrorCode, message: str) -> CreatePartitionsTopicResult:
    """Build one row of the response."""
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=message or None)
