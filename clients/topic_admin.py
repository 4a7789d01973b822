"""Creates, deletes, resizes and describes topics for `Admin`, and describes the cluster.

Changes go to the node that serves the controller's requests, and are resent if that node changes meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.clients.controller_calls import call_controller
from anabranch.clients.metadata import ClusterMetadata, Node, Topic
from anabranch.clients.network import Network
from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from anabranch.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.protocol.apis.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.suggestion import suggest_arguments
from anabranch.protocol.wire import ZERO_UUID

_DEFAULT = -1
_CONTROLLER_MARGIN_MS = 5000
"""How much longer the client waits for a change than the controller does."""


@suggest_arguments
@dataclass(frozen=True, kw_only=True)
class NewTopic:
    """A topic to create with `Admin.create_topics`."""

    name: str
    partitions: int = _DEFAULT
    """The initial number of partitions; -1: the cluster's `num.partitions`."""
    replication_factor: int = _DEFAULT
    """The number of replicas of each partition; -1: the cluster's `default.replication.factor`."""
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Partition -> broker ids, the preferred leader first, in place of the two counts."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Settings of the topic by their Kafka names, such as {"cleanup.policy": "compact"}."""


@dataclass(frozen=True, kw_only=True)
class ClusterDescription:
    """The cluster's brokers, and the one that serves the controller's requests."""

    cluster_id: str
    controller_id: int
    """A node's id; -1 while there is no controller."""
    brokers: tuple[Node, ...]
    """The live brokers, by id."""


async def create_topics(network: Network, topics: Sequence[NewTopic], timeout_ms: int, *, validate_only: bool) -> None:
    """Create topics. Raises KafkaError for the first that is refused; the others are created."""
    creatable = [
        CreatableTopic(
            name=topic.name,
            num_partitions=_DEFAULT if topic.assignments else topic.partitions,
            replication_factor=_DEFAULT if topic.assignments else topic.replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in topic.assignments.items()
            ],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
        )
        for topic in topics
    ]
    request = CreateTopicsRequest(topics=creatable, timeout_ms=timeout_ms, validate_only=validate_only)
    rows, outcome_unknown = await _change(network, request, lambda answer: answer.topics)
    _raise_refusals(rows, tolerated=(ErrorCode.TOPIC_ALREADY_EXISTS,) if outcome_unknown else ())


async def delete_topics(network: Network, names: Sequence[str], timeout_ms: int) -> dict[str, str]:
    """Delete topics. Returns as `Admin.delete_topics`; raises KafkaError for the first that is refused."""
    names = checked_names(names)
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names],
        topic_names=names,
        timeout_ms=timeout_ms,
    )
    rows, outcome_unknown = await _change(network, request, lambda answer: answer.responses)
    _raise_refusals(rows, tolerated=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,) if outcome_unknown else ())
    for name in names:
        network.unfollow(name)
    return {row.name: row.error_message for row in rows if row.name and row.error_message}


async def create_partitions(
    network: Network, requested: CreatePartitionsTopic, timeout_ms: int, *, validate_only: bool
) -> None:
    """Resize a topic. Raises KafkaError if it is refused."""
    request = CreatePartitionsRequest(topics=[requested], timeout_ms=timeout_ms, validate_only=validate_only)
    rows, outcome_unknown = await _change(network, request, lambda answer: answer.results)
    if outcome_unknown:
        topic = (await describe_topics(network, [requested.name]))[requested.name]
        if topic.live == tuple(range(requested.count)):
            return
    _raise_refusals(rows)


async def describe_topics(network: Network, names: Sequence[str] | None) -> dict[str, Topic]:
    """Describe topics; None for all of them. Raises KafkaError for one that does not exist."""
    requested = None if names is None else [MetadataRequestTopic(name=name) for name in checked_names(names)]
    request = MetadataRequest(topics=requested, allow_auto_topic_creation=False, generation_aware=True)

    async def once() -> ClusterMetadata:
        answered = ClusterMetadata().update(await network.call_any(request), complete=names is None)
        if not answered.nodes:
            raise ConnectionError("the broker has just started, and has no metadata yet")
        return answered

    metadata = await network.retry(once)
    for name in names or ():
        if name not in metadata.topics:
            raise KafkaError(metadata.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), name)
    return dict(metadata.topics) if names is None else {name: metadata.topics[name] for name in names}


def checked_names(names: Sequence[str]) -> list[str]:
    """Return a list of an application's names. Raises TypeError for a single one: its letters would be names."""
    if isinstance(names, str):
        raise TypeError(f"names are a list, as [{names!r}], not a str")
    return list(names)


async def describe_cluster(network: Network) -> ClusterDescription:
    """Describe the cluster: its id, its live brokers, its controller."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    response: DescribeClusterResponse = await network.retry(lambda: network.call_any(request))
    code = ErrorCode(response.error_code)
    if code != ErrorCode.NONE:
        raise KafkaError(code, response.error_message or "")
    brokers = sorted((one.broker_id, one.host, one.port, one.rack) for one in response.brokers)
    return ClusterDescription(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        brokers=tuple(Node(*broker) for broker in brokers),
    )


async def _change(
    network: Network, request: Any, rows_of: Callable[[Any], Sequence[Any]]
) -> tuple[Sequence[Any], bool]:
    """Send a request to the controller, with a longer timeout than the controller's own.

    Returns the rows of its response, and whether an earlier attempt may have succeeded without a response.
    """
    outcome_unknown = False

    def note() -> None:
        nonlocal outcome_unknown
        outcome_unknown = True

    response = await call_controller(
        network,
        request,
        lambda answer: _not_controller(rows_of(answer)),
        timeout_ms=request.timeout_ms + _CONTROLLER_MARGIN_MS,
        on_unknown_outcome=note,
    )
    return rows_of(response), outcome_unknown


def _not_controller(rows: Sequence[Any]) -> int:
    """Return NOT_CONTROLLER if any row has it, else NONE: for responses without a top-level error code."""
    return next((row.error_code for row in rows if row.error_code == ErrorCode.NOT_CONTROLLER), ErrorCode.NONE)


def _raise_refusals(rows: Sequence[Any], *, tolerated: Collection[ErrorCode] = ()) -> None:
    for row in rows:
        code = ErrorCode(row.error_code)
        if code != ErrorCode.NONE and code not in tolerated:
            raise KafkaError(code, f"{row.name}: {row.error_message or 'refused'}")
