"""`Admin`: topics, resizes, configurations, replicas; look at the cluster. Waits for effects when asked to.

Requests that change something go to the node that takes the controller's requests, again if that changes meanwhile. A
refusal is a `KafkaError` with Kafka's code and the broker's text. Retrying is safe: a resize that already happened, or
a topic that this very call has created before its answer got lost, is recognised as done.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from anabranch.clients.config import NetworkConfig, parse_servers
from anabranch.clients.metadata import ClusterMetadata, Node, Topic
from anabranch.clients.network import Network
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.clients.config_admin import ConfigEntry
    from anabranch.clients.replica_admin import LogDir, Outcomes, Reassignment
    from anabranch.protocol.topic_partition import TopicPartition

_DEFAULT = -1


@dataclass(frozen=True, kw_only=True)
class NewTopic:
    """A topic to be created. -1: as the cluster's defaults say. `assignments` maps partitions to their brokers."""

    name: str
    partitions: int = _DEFAULT
    replication_factor: int = _DEFAULT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ClusterDescription:
    """Who is there, and who takes the controller's requests."""

    cluster_id: str
    controller_id: int
    brokers: tuple[Node, ...]


class Admin:
    """Administers a cluster; an async context manager."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "127.0.0.1:9092",
        *,
        client_id: str = "anabranch-admin",
        request_timeout_ms: int = 30000,
        rng: random.Random | None = None,
    ) -> None:
        self._config = NetworkConfig(
            bootstrap_servers=parse_servers(bootstrap_servers),
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
        )
        self._timeout_ms = request_timeout_ms
        self._rng = rng if rng is not None else random.Random()
        self._network: Network | None = None

    async def start(self) -> Self:
        """Reach the cluster. `ConnectionError` if no bootstrap server answers."""
        network = Network(self._config, self._rng)
        network.without_auto_creation()
        try:
            await network.start()
        except BaseException:
            await network.close()
            raise
        self._network = network
        return self

    async def stop(self) -> None:
        """Disconnect. Stopping twice is harmless."""
        network, self._network = self._network, None
        if network is not None:
            await network.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def network(self) -> Network:
        """The connections behind this client."""
        if self._network is None:
            raise RuntimeError("the admin client is not started")
        return self._network

    # topics

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics; the first refusal is raised when all have been tried."""
        from anabranch.protocol.apis.create_topics import (
            CreatableReplicaAssignment,
            CreatableTopic,
            CreatableTopicConfig,
            CreateTopicsRequest,
            CreateTopicsResponse,
        )

        wanted = [
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
        request = CreateTopicsRequest(topics=wanted, timeout_ms=self._timeout_ms, validate_only=validate_only)
        attempts = _Attempts()
        response: CreateTopicsResponse = await self._change(
            request, lambda answer: _not_controller(answer.topics), attempts
        )
        done_before = {ErrorCode.TOPIC_ALREADY_EXISTS} if attempts.outcome_unknown else set()
        _raise_refusals(response.topics, tolerated=done_before)

    async def delete_topics(self, names: Sequence[str]) -> dict[str, str]:
        """Delete topics; the first refusal is raised when all have been tried.

        Returns, by topic, what its end still waits for, such as a broker that is down and holds logs of it: until then
        nobody sees the topic, and nobody can create one of its name.
        """
        from anabranch.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
        from anabranch.protocol.wire import ZERO_UUID

        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names],
            topic_names=list(names),
            timeout_ms=self._timeout_ms,
        )
        attempts = _Attempts()
        response: DeleteTopicsResponse = await self._change(
            request, lambda answer: _not_controller(answer.responses), attempts
        )
        done_before = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} if attempts.outcome_unknown else set()
        _raise_refusals(response.responses, tolerated=done_before)
        for name in names:
            self.network.unfollow(name)
        return {row.name: row.error_message for row in response.responses if row.name and row.error_message}

    async def create_partitions(
        self, topic: str, count: int, *, allow_shrink: bool = False, validate_only: bool = False
    ) -> None:
        """Resize a topic to `count` partitions: keys keep their order. Fewer than now only with `allow_shrink`.

        Returns when the resize is published (or under way, if that takes longer than the request timeout): see
        `wait_for_generation`.
        """
        from anabranch.protocol.apis.create_partitions import (
            CreatePartitionsRequest,
            CreatePartitionsResponse,
            CreatePartitionsTopic,
        )

        wanted = CreatePartitionsTopic(name=topic, count=count, assignments=None, allow_shrink=allow_shrink)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=self._timeout_ms, validate_only=validate_only)
        attempts = _Attempts()
        response: CreatePartitionsResponse = await self._change(
            request, lambda answer: _not_controller(answer.results), attempts
        )
        if attempts.outcome_unknown and (await self.describe_topic(topic)).live == tuple(range(count)):
            return
        _raise_refusals(response.results)

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, sorted."""
        metadata = await self._metadata_of(None)
        return sorted(name for name, topic in metadata.topics.items() if include_internal or not topic.internal)

    async def describe_topics(self, names: Sequence[str] | None = None) -> dict[str, Topic]:
        """Topics with their partitions and lineage: those named, or all. `KafkaError` for one that does not exist."""
        metadata = await self._metadata_of(names)
        for name in names or ():
            if name not in metadata.topics:
                raise KafkaError(metadata.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), name)
        return dict(metadata.topics) if names is None else {name: metadata.topics[name] for name in names}

    async def describe_topic(self, name: str) -> Topic:
        """One topic."""
        return (await self.describe_topics([name]))[name]

    # the cluster

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers, the controller and the cluster's id."""
        from anabranch.protocol.apis.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        response: DescribeClusterResponse = await self.network.retry(lambda: self.network.call_any(request))
        code = ErrorCode(response.error_code)
        if code != ErrorCode.NONE:
            raise KafkaError(code, response.error_message or "")
        brokers = sorted((one.broker_id, one.host, one.port, one.rack) for one in response.brokers)
        return ClusterDescription(
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            brokers=tuple(Node(*broker) for broker in brokers),
        )

    # configurations

    async def describe_configs(
        self, topic: str | None = None, *, broker: int | None = None, names: Sequence[str] | None = None
    ) -> dict[str, ConfigEntry]:
        """The settings of a topic, of a broker, or of all brokers (`config_admin.ALL_BROKERS`), by name."""
        from anabranch.clients.config_admin import describe_configs

        return await describe_configs(self.network, topic, broker, names)

    async def alter_configs(
        self,
        topic: str | None = None,
        *,
        broker: int | None = None,
        changes: Mapping[str, str] | None = None,
        unset: Iterable[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Change single settings; what is not named stays. Nodes take them up while they run."""
        from anabranch.clients.config_admin import alter_configs

        await alter_configs(
            self.network,
            topic,
            broker,
            changes=changes or {},
            unset=unset,
            append=append or {},
            subtract=subtract or {},
            validate_only=validate_only,
        )

    # replicas

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete what lies before these offsets (-1: all that is committed); where the partitions begin now."""
        from anabranch.clients.replica_admin import delete_records

        return await delete_records(self.network, before, self._timeout_ms)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> Outcomes:
        """Let preferred replicas lead again, or (`unclean`) any that is alive; all partitions if none is named."""
        from anabranch.clients.replica_admin import elect_leaders

        return await elect_leaders(self.network, partitions, unclean=unclean, timeout_ms=self._timeout_ms)

    async def alter_partition_reassignments(self, moves: Mapping[TopicPartition, Sequence[int] | None]) -> Outcomes:
        """Begin to move partitions to these replicas; None calls a move off."""
        from anabranch.clients.replica_admin import alter_partition_reassignments

        return await alter_partition_reassignments(self.network, moves, self._timeout_ms)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """What is on the move."""
        from anabranch.clients.replica_admin import list_partition_reassignments

        return await list_partition_reassignments(self.network, partitions, self._timeout_ms)

    async def describe_log_dirs(self, broker: int) -> list[LogDir]:
        """The directories of a broker, and the size and lag of what is in them."""
        from anabranch.clients.replica_admin import describe_log_dirs

        return await describe_log_dirs(self.network, broker)

    async def alter_replica_log_dirs(self, broker: int, moves: Mapping[TopicPartition, str]) -> Outcomes:
        """Begin to move replicas of a broker to these of its directories."""
        from anabranch.clients.replica_admin import alter_replica_log_dirs

        return await alter_replica_log_dirs(self.network, broker, moves)

    # waiting

    async def wait_until(
        self, condition: Callable[[ClusterMetadata], bool], *topics: str, timeout_ms: float = 30000
    ) -> ClusterMetadata:
        """Wait until the metadata of these topics satisfies `condition`. `TimeoutError` when the time is up first."""
        self.network.follow(*topics)
        await self.network.refresh()
        return await self.network.wait_for(condition, timeout_ms=timeout_ms)

    async def wait_for_generation(self, topic: str, generation: int, *, timeout_ms: float = 30000) -> Topic:
        """Wait until a resize is published to every broker that answers."""

        def published(metadata: ClusterMetadata) -> bool:
            known = metadata.topics.get(topic)
            return known is not None and known.generation >= generation

        return (await self.wait_until(published, topic, timeout_ms=timeout_ms)).topics[topic]

    async def wait_for_topic(self, topic: str, *, replicas: int = 1, timeout_ms: float = 30000) -> Topic:
        """Wait until every live partition has a leader and at least `replicas` in-sync replicas."""

        def led(metadata: ClusterMetadata) -> bool:
            known = metadata.topics.get(topic)
            if known is None or not known.live:
                return False
            partitions = [known.partitions.get(index) for index in known.live]
            return all(
                one is not None and one.leader in metadata.nodes and len(one.isr) >= replicas for one in partitions
            )

        return (await self.wait_until(led, topic, timeout_ms=timeout_ms)).topics[topic]

    # inside

    async def _change(self, request: Any, error_of: Callable[[Any], int], attempts: _Attempts) -> Any:
        """Send to the controller, and wait longer than the controller itself waits for the change."""
        return await self.network.call_controller(
            request, error_of, timeout_ms=self._timeout_ms + 5000, on_unknown_outcome=attempts.note
        )

    async def _metadata_of(self, names: Sequence[str] | None) -> ClusterMetadata:
        from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic

        asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)

        async def once() -> ClusterMetadata:
            answered = ClusterMetadata().updated(await self.network.call_any(request), complete=names is None)
            if not answered.nodes:
                raise ConnectionError("the node that answered has just started, and knows of no topic yet")
            return answered

        return await self.network.retry(once)


class _Attempts:
    """Whether an earlier attempt may have been carried out although its answer never came."""

    def __init__(self) -> None:
        self.outcome_unknown = False

    def note(self) -> None:
        """An attempt was sent and not answered."""
        self.outcome_unknown = True


def _not_controller(rows: Sequence[Any]) -> int:
    """NOT_CONTROLLER if any row says so: Kafka has no code at the top of these answers."""
    return next((row.error_code for row in rows if row.error_code == ErrorCode.NOT_CONTROLLER), ErrorCode.NONE)


def _raise_refusals(rows: Sequence[Any], *, tolerated: frozenset[ErrorCode] | set[ErrorCode] = frozenset()) -> None:
    for row in rows:
        code = ErrorCode(row.error_code)
        if code != ErrorCode.NONE and code not in tolerated:
            raise KafkaError(code, f"{row.name}: {row.error_message or 'refused'}")
