"""Every error code that a node returns, with a request that makes it do so: `python -m tests.contracts.error_codes`.

A case is a coroutine that gets a `World` (a running cluster) and returns the answer of a node in which the code stands,
at whatever level; its docstring says how the code comes about. Add one with `@case(ErrorCode.X)` in a module of
`error_cases`. Codes that a node only understands, in answers of other nodes, are listed in `UNDERSTOOD` with the files
that may name them.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import until

ROOT: Final = Path(__file__).resolve().parents[2]
Scenario = Callable[["World"], Awaitable[Any]]

UNDERSTOOD: Final[Mapping[ErrorCode, frozenset[str]]] = {
    ErrorCode.INVALID_FETCH_SIZE: frozenset({"broker/coordinators/runtime/journal.py"}),
    ErrorCode.NETWORK_EXCEPTION: frozenset(
        {
            "broker/coordinators/groups/group_transactions.py",
            "broker/handlers/transactional_batches.py",
            "broker/replication/transaction_verification.py",
        }
    ),
    ErrorCode.NEW_LEADER_ELECTED: frozenset({"broker/replication/isr_change.py"}),
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: frozenset({"broker/coordinators/transactions/transaction_markers.py"}),
}


@dataclass(frozen=True)
class Case:
    """One way to get one code."""

    code: ErrorCode
    scenario: Scenario
    brokers: int
    properties: Mapping[str, str]
    alone: bool

    @property
    def name(self) -> str:
        """As it stands in the table."""
        return f"{self.code.name}-{self.scenario.__name__}"

    @property
    def how(self) -> str:
        """How the code comes about."""
        return " ".join((self.scenario.__doc__ or "").split())


CASES: Final[list[Case]] = []


def case(
    code: ErrorCode, *, brokers: int = 2, alone: bool = False, **properties: str
) -> Callable[[Scenario], Scenario]:
    """Register a case. One that breaks its cluster runs `alone`; others share one of the same make."""

    def register(scenario: Scenario) -> Scenario:
        renamed = {name.replace("_", "."): value for name, value in properties.items()}
        CASES.append(Case(code, scenario, brokers, renamed, alone))
        return scenario

    return register


def load() -> list[Case]:
    """All cases, by code."""
    package = importlib.import_module("tests.contracts.error_cases")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return sorted(CASES, key=lambda one: (one.code, one.name))


@dataclass
class World:
    """A running cluster, and connections to it."""

    cluster: Cluster
    connections: dict[tuple[int, str], Connection] = field(default_factory=dict)
    names: Iterator[str] = field(default_factory=lambda: (f"n{number}" for number in range(1_000_000)))

    @property
    def controller(self) -> int:
        """The node whose controller is active."""
        (active,) = (
            n for n, node in self.cluster.nodes.items() if node.controller is not None and node.controller.active
        )
        return active

    @property
    def other(self) -> int:
        """A node whose controller is not active."""
        return next(node for node in self.cluster.nodes if node != self.controller)

    def fresh(self) -> str:
        """A new name."""
        return next(self.names)

    async def call(self, request: Any, *, at: int | None = None, version: int | None = None, client: str = "c") -> Any:
        """Ask a node; the controller if none is named."""
        node_id = self.controller if at is None else at
        connection = self.connections.get((node_id, client))
        if connection is None or connection.closed:
            port = self.cluster.nodes[node_id].port
            connection = await Connection.open("127.0.0.1", port, client_id=client)
            self.connections[node_id, client] = connection
        return await connection.call(request, version=version)

    async def topic(self, *, replicas: int = 1, partitions: int = 1, **configs: str) -> str:
        """A new topic that every node knows, with leaders."""
        name = self.fresh()
        rows = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=rows
        )
        response = await self.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert response.topics[0].error_code == ErrorCode.NONE, response
        await self.known(name, partitions)
        return name

    async def known(self, name: str, partitions: int = 1) -> None:
        """Wait until every node knows all partitions and a leader of each."""

        def everywhere() -> bool:
            topics = [node.services.metadata.topic(name) for node in self.cluster.nodes.values()]
            return all(
                topic is not None
                and len(topic.partitions) >= partitions
                and all(one.leader >= 0 for one in topic.partitions.values())
                for topic in topics
            )

        await until(everywhere)

    def leader(self, topic: str, index: int = 0) -> int:
        """Who leads a partition."""
        found = next(iter(self.cluster.nodes.values())).services.metadata.partition(topic, index)
        assert found is not None
        return int(found.leader)

    def not_leader(self, topic: str) -> int:
        """A node that does not lead a topic's only partition."""
        return next(node for node in self.cluster.nodes if node != self.leader(topic))

    def epoch(self, topic: str) -> int:
        """The leader epoch of a topic's only partition."""
        found = next(iter(self.cluster.nodes.values())).services.metadata.partition(topic, 0)
        assert found is not None
        return int(found.leader_epoch)

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic."""
        return next(iter(self.cluster.nodes.values())).services.metadata.topic_id(topic)

    async def close(self) -> None:
        """Close all connections."""
        for connection in self.connections.values():
            await connection.close()


@contextlib.asynccontextmanager
async def world(one: Case) -> Any:
    """A cluster of the make that a case wants."""
    properties = {"offsets.commit.timeout.ms": "60000", **one.properties}
    async with Cluster(one.brokers, properties=properties, seed=1) as cluster:
        made = World(cluster)
        try:
            yield made
        finally:
            await made.close()


def codes_in(answer: Any) -> set[int]:
    """All error codes of an answer, at every level. A bare code is an answer, too."""
    if isinstance(answer, ErrorCode):
        return {answer}
    if isinstance(answer, list):
        return {code for row in answer for code in codes_in(row)}
    if not dataclasses.is_dataclass(answer):
        return set()
    found: set[int] = set()
    for one in dataclasses.fields(answer):
        value = getattr(answer, one.name)
        found |= {value} if one.name.endswith("error_code") else codes_in(value)
    return found


def in_source() -> dict[ErrorCode, set[str]]:
    """Every code that brokers and controllers name, and in which files."""
    found: dict[ErrorCode, set[str]] = {}
    for package in ("broker", "controller"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name)
                    and node.value.id == "ErrorCode"
                ):
                    code = ErrorCode.__members__.get(node.attr)
                    if code not in (None, ErrorCode.NONE):
                        found.setdefault(code, set()).add(path.relative_to(ROOT).as_posix())
    return found


def table() -> str:
    """The cases as a Markdown table."""
    rows = [f"| {one.code.value} | {one.code.name} | {one.how} |" for one in load()]
    return "\n".join(["| code | name | how to get it |", "|---:|---|---|", *rows])


if __name__ == "__main__":
    from tests.contracts import error_codes  # under this name, where the cases register themselves

    print(error_codes.table())
