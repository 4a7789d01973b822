"""The vocabulary of the corpus: a case is a function that asks a cluster, at every version of one API.

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

from anabranch.clients.connection import Connection
from anabranch.journal.comparable import Namer, plain
from anabranch.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.protocol.apis.describe_cluster import DescribeClusterRequest
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.registry import BY_NAME, api_of

NOW_MS: Final = int(time.time() * 1000) - 60_000
"""The time of all records: the same for both clusters, and recent enough to be retained."""
PATIENCE_S: Final = 5.0
POLL_S: Final = 0.02
CLOSED: Final = "the connection was closed"
SILENT: Final = "no answer"

Story = Callable[["Run"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One story about one API."""

    api: str
    first: int
    last: int
    story: Story
    brokers: int
    alone: bool
    """It changes what other cases see."""

    @property
    def name(self) -> str:
        """Unique in the corpus."""
        return self.story.__name__

    @property
    def id(self) -> str:
        """With the API."""
        return f"{self.api}.{self.name}"


CASES: Final[list[Case]] = []


def case(api: str, versions: str = "", *, brokers: int = 1, alone: bool = False) -> Callable[[Story], Story]:
    """Put a story into the corpus; it runs once per version (all of the API, unless told otherwise)."""
    first, _, last = (versions or f"0-{BY_NAME[api].last_version}").partition("-")

    def register(story: Story) -> Story:
        assert all((one.api, one.name) != (api, story.__name__) for one in CASES), f"{api} {story.__name__} twice"
        CASES.append(Case(api, int(first), int(last or first), story, brokers, alone))
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
    answers: list[Answer] = field(default_factory=list)
    _connections: dict[tuple[int, str], Connection] = field(default_factory=dict)
    _namer: Namer = field(init=False)

    def __post_init__(self) -> None:
        self._namer = Namer(self.name(""))

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
            await self.settled(
                MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False),
                lambda answer: (
                    len(answer.topics[0].partitions) == count
                    and all(one.error_code == 0 and one.leader_id >= 0 for one in answer.topics[0].partitions)
                ),
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
        return self.version if api == self.case.api else BY_NAME[api].last_version

    async def _answer(self, request: Any, version: int | None, to: int, over: str, timeout_s: float) -> Any:
        chosen = self._version_of(api_of(type(request)).name, version)
        connection = await self._connection(to, over)
        try:
            return await connection.call(request, version=chosen, timeout_ms=timeout_s * 1000)
        except ConnectionError:
            return CLOSED
        except TimeoutError:
            return SILENT

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
