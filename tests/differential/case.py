"""The declarations of the corpus: a case is a function that sends requests at every version of one API.

    @case("DeleteTopics", "0-6")
    async def twice(run: Run) -> None:
        await run.create(topic := run.name("t"))
        await run.ask(DeleteTopicsRequest(topic_names=[topic]))
        await run.ask(DeleteTopicsRequest(topic_names=[topic]))

What `ask` returns is compared with the other cluster's answer; what `prepare`, `create` and `append` do is not. A case
runs on fresh names each time, so that the versions do not meet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.broker.dispatch.request_context import version_range
from anabranch.broker.profiles.profile import profile_for
from anabranch.clients.connection import Connection
from anabranch.journal.comparison import FREE, UNORDERED, Namer, plain
from anabranch.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.protocol.apis.describe_cluster import DescribeClusterRequest
from anabranch.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.registry import api_of
from anabranch.protocol.wire import ZERO_UUID

NOW_MS: Final = int(time.time() * 1000) - 60_000
"""The time of all records: the same for both clusters, and recent enough to be retained."""
PATIENCE_S: Final = 5.0
POLL_S: Final = 0.02
DEBUGGER: Final = -2
"""The replica id of a consumer that also asks followers."""
CLOSED: Final = "the connection was closed"
SILENT: Final = "no answer"
FIRST_VERSION_WITH_IDS: Final = {"Produce": 13, "OffsetCommit": 10, "OffsetFetch": 10}
"""From which on topics are not named."""
UNORDERED_IN_KAFKA_4: Final = UNORDERED | {
    "ApiVersionsResponse.finalized_features",
    "ApiVersionsResponse.supported_features",
    "Assignment.topic_partitions",
    "ConsumerGroupDescribeResponse.groups",
    "CreatePartitionsResponse.results",
    "CreateTopicsResponse.topics",
    "DeleteTopicsResponse.responses",
    "DescribeGroupsResponse.groups",
    "DescribeUserScramCredentialsResult.credential_infos",
    "DescribedGroup.members",
    "EndpointToPartitions.active_partitions",
    "EndpointToPartitions.standby_partitions",
    "ListOffsetsTopicResponse.partitions",
    "ShareGroupDescribeResponse.groups",
}
"""Kafka 4 fills more lists from hash maps."""
FREE_IN_KAFKA_4: Final = frozenset({"controller_id"})
"""Kafka 4 names any live broker as the controller."""

Story = Callable[["Run"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One story about one API."""

    api: str
    versions: str
    """Those that it is about, of all that a Kafka has; empty: all of these."""
    story: Story
    brokers: int
    alone: bool
    """It changes what other cases see, or sees what they change."""
    kafka: str = ""
    """The Kafka from which on there is what it asks for."""

    def versions_of(self, kafka: str) -> range:
        """The versions for this Kafka, and for Anabranch with its profile."""
        if self.kafka > kafka:
            return range(0)
        first, last = accepted(kafka, self.api)
        if self.versions:
            asked = version_range(self.versions)
            first, last = max(first, asked[0]), min(last, asked[1])
        return range(first, last + 1)

    @property
    def name(self) -> str:
        """Unique in the corpus."""
        return self.story.__name__

    @property
    def id(self) -> str:
        """With the API."""
        return f"{self.api}.{self.name}"


CASES: Final[list[Case]] = []


def accepted(kafka: str, api: str) -> tuple[int, int]:
    """The versions of an API that a Kafka takes; none of them: (0, -1)."""
    shown = profile_for(kafka)
    if api not in shown.ranges:
        return 0, -1
    first, last = version_range(shown.ranges[api])
    return max(first, shown.refused_below.get(api, first)), last


def case(
    api: str, versions: str = "", *, brokers: int = 1, alone: bool = False, kafka: str = ""
) -> Callable[[Story], Story]:
    """Put a story into the corpus; it runs once per version (all that a Kafka has, unless told otherwise)."""

    def register(story: Story) -> Story:
        assert all((one.api, one.name) != (api, story.__name__) for one in CASES), f"{api} {story.__name__} twice"
        CASES.append(Case(api, versions, story, brokers, alone, kafka))
        return story

    return register


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request got."""

    api: str
    version: int
    what: str
    """Where it stands: case, version and place."""
    request: str
    content: Any
    """The response as plain values, or a sentence."""


@dataclass(slots=True)
class Run:
    """One case, at one version, on one cluster."""

    case: Case
    version: int
    addresses: Mapping[int, tuple[str, int]]
    kafka: str = "3.9"
    answers: list[Answer] = field(default_factory=list)
    _connections: dict[tuple[int, str], Connection] = field(default_factory=dict)
    _namer: Namer = field(init=False)

    def __post_init__(self) -> None:
        quorum = {"unordered": UNORDERED_IN_KAFKA_4, "free": FREE | FREE_IN_KAFKA_4} if self.kafka >= "4" else {}
        self._namer = Namer(self.name(""), **quorum)

    def name(self, suffix: str = "t") -> str:
        """A name that no other run uses: for topics, groups, transactional ids."""
        return f"{self.case.api}-{self.case.name}-v{self.version}-{suffix}".replace("_", "-").lower()

    async def ask(
        self, request: Any, *, version: int | None = None, to: int = 1, over: str = "", timeout_s: float = PATIENCE_S
    ) -> Any:
        """Ask, and keep the answer for comparison. `over` names a connection of its own. None: there was no answer."""
        response = await self._answer(request, version, to, over, timeout_s)
        self.record(request, version, response)
        return None if isinstance(response, str) else response

    async def until(
        self, request: Any, good: Callable[[Any], bool], *, version: int | None = None, to: int = 1, over: str = ""
    ) -> Any:
        """Ask until the answer is good, and keep that one (or the last)."""
        response = await self._until(request, good, version, to, over)
        self.record(request, version, response)
        return None if isinstance(response, str) else response

    def record(self, request: Any, version: int | None, response: Any) -> None:
        """Keep an answer for comparison."""
        api = api_of(type(request))
        chosen = self._version_of(api.name, version)
        content = response if isinstance(response, str) else plain(response, chosen, self._namer)
        what = f"{self.case.id} v{self.version} #{len(self.answers) + 1}"
        self.answers.append(Answer(api.name, chosen, what, repr(request), content))

    async def prepare(self, request: Any, *, version: int | None = None, to: int = 1, over: str = "") -> Any:
        """Ask what is not compared."""
        response = await self._answer(request, version, to, over, PATIENCE_S)
        assert not isinstance(response, str), f"{type(request).__name__}: {response}"
        return response

    async def settled(
        self, request: Any, good: Callable[[Any], bool], *, version: int | None = None, to: int = 1, over: str = ""
    ) -> Any:
        """Ask what is not compared until the answer is good."""
        response = await self._until(request, good, version, to, over)
        assert good(response), f"gave up: {response}"
        return response

    async def create(
        self,
        topic: str,
        partitions: int = 1,
        *,
        replicas: Sequence[Sequence[int]] = (),
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Make a topic, and wait until every broker knows its leaders. `replicas`: explicit, per partition."""
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
            for index, ids in enumerate(replicas)
        ]
        asked = CreatableTopic(
            name=topic,
            num_partitions=-1 if replicas else partitions,
            replication_factor=-1 if replicas else 1,
            assignments=assignments,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()],
        )
        made = await self.prepare(CreateTopicsRequest(topics=[asked], timeout_ms=10000), to=await self.controller())
        assert made.topics[0].error_code == 0, made
        count = len(replicas) or partitions
        for broker in self.addresses:
            known = await self.settled(
                MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False),
                lambda answer: (
                    len(answer.topics[0].partitions) == count
                    and all(one.error_code == 0 and one.leader_id >= 0 for one in answer.topics[0].partitions)
                ),
                to=broker,
            )
        for row in known.topics[0].partitions:
            for broker in row.replica_nodes:
                await self._replicated(topic, row.partition_index, broker)

    async def _replicated(self, topic: str, partition: int, broker: int) -> None:
        asked = ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=-1)
        await self.settled(
            ListOffsetsRequest(
                replica_id=DEBUGGER, isolation_level=0, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
            ),
            lambda answer: answer.topics[0].partitions[0].error_code == 0,
            version=5,
            to=broker,
        )

    async def controller(self) -> int:
        """Who takes the requests that change topics."""
        if len(self.addresses) == 1:
            return min(self.addresses)
        known = await self.prepare(DescribeClusterRequest(include_cluster_authorized_operations=False))
        found: int = known.controller_id
        return found

    async def append(self, topic: str, records: bytes, partition: int = 0, *, to: int = 1) -> Any:
        """Store a batch."""
        made = await self.prepare(produce(topic, records, partition), to=to)
        assert made.responses[0].partition_responses[0].error_code == 0, made
        return made

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            await connection.close()

    def _version_of(self, api: str, version: int | None) -> int:
        if version is not None:
            return version
        return self.version if api == self.case.api else accepted(self.kafka, api)[1]

    async def _answer(self, request: Any, version: int | None, to: int, over: str, timeout_s: float) -> Any:
        chosen = self._version_of(api_of(type(request)).name, version)
        connection = await self._connection(to, over)
        try:
            if chosen >= FIRST_VERSION_WITH_IDS.get(api_of(type(request)).name, chosen + 1):
                await self._identify(connection, request)
            return await connection.call(request, version=chosen, timeout_ms=timeout_s * 1000)
        except ConnectionError:
            return CLOSED
        except TimeoutError:
            return SILENT

    async def _identify(self, connection: Connection, request: Any) -> None:
        groups = getattr(request, "groups", None)
        lists = [one.topics or [] for one in groups] if groups is not None else [topics_in(request)]
        topics = [topic for one in lists for topic in one]
        names = [MetadataRequestTopic(name=topic.name) for topic in topics]
        known = await connection.call(MetadataRequest(topics=names, allow_auto_topic_creation=False), version=12)
        ids = {row.name: row.topic_id for row in known.topics}
        for topic in topics:
            topic.topic_id = ids.get(topic.name, ZERO_UUID)

    async def _until(self, request: Any, good: Callable[[Any], bool], version: int | None, to: int, over: str) -> Any:
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            response = await self._answer(request, version, to, over, PATIENCE_S)
            late = asyncio.get_running_loop().time() > deadline
            if isinstance(response, str) or good(response) or late:
                return response
            await asyncio.sleep(POLL_S)

    async def _connection(self, to: int, over: str) -> Connection:
        connection = self._connections.get((to, over))
        if connection is None or connection.closed:
            host, port = self.addresses[to]
            connection = await Connection.open(host, port, client_id="corpus")
            self._connections[to, over] = connection
        return connection


def topics_in(request: Any) -> list[Any]:
    """The topics of a request."""
    found: list[Any] = request.topic_data if isinstance(request, ProduceRequest) else request.topics
    return found


def batch(
    *values: bytes | None,
    key: bytes | None = b"key",
    at_ms: int = NOW_MS,
    codec: str = "none",
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytes:
    """A record batch. `producer`: id, epoch and first sequence number."""
    builder = BatchBuilder(codec)
    for place, value in enumerate(values):
        builder.append(key, value, (), at_ms + place)
    return bytes(builder.build(*producer, transactional))


def produce(
    topic: str, records: Any, partition: int = 0, *, acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    """A Produce request for one partition."""
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
