"""The types of the rows that the dashboard shows.

A row's key begins with its kind: `node/2`, `topic/orders`, `partition/orders/0`, `group/billing`.
"""

from __future__ import annotations

from typing import Annotated, Final, NotRequired, TypedDict

from anabranch.faults.active_rule import RuleRow


class DashboardNode(TypedDict):
    """A node, at `node/ID`. A dead node has no fields after `refused`."""

    node: int
    host: str
    port: int
    state: Annotated[str, "alive, frozen, or dead"]
    refused: NotRequired[
        Annotated[str, "why its process cannot be killed, stopped, started, frozen or thawed from here"]
    ]
    rack: NotRequired[str | None]
    roles: NotRequired[Annotated[list[str], "broker, controller"]]
    broker_epoch: NotRequired[int]
    session: NotRequired[Annotated[str, "the id of its ZooKeeper session"]]
    link: NotRequired[Annotated[str, "its connection to ZooKeeper: connected, suspended, or expired"]]
    controller: NotRequired[Annotated[bool, "whether it is the active controller"]]
    controller_epoch: NotRequired[int]
    connections: NotRequired[Annotated[int, "the number of open connections"]]


class DashboardLineage(TypedDict):
    """The data of a lineage drawing."""

    parents: Annotated[list[int], "the partition from which each partition splits off; -1 for partition 0"]
    shares: Annotated[list[list[float]], "the share of all keys in each partition, by generation"]


class DashboardTopic(TypedDict):
    """A topic, at `topic/NAME`."""

    topic: str
    partitions: Annotated[int, "the number of partitions"]
    generation: Annotated[int, "the number of resizes"]
    base: Annotated[int, "the number of partitions at creation; 0 if the topic is not ordered"]
    history: Annotated[list[list[int]], "each a generation and its number of partitions"]
    ordered: Annotated[bool, "whether keys keep their order through resizes"]
    has_generations: Annotated[bool, "whether batches carry their generation"]
    min_isr: int
    cuts: Annotated[list[list[int]], "each a partition, a generation, and the offset at which it ends"]
    starts: Annotated[
        list[list[int | list[list[int]]]],
        "after a resize, each a partition, and of each of its generations the number and the first leader epoch",
    ]
    river: Annotated[DashboardLineage | None, "null if it has too many partitions for a drawing"]


class DashboardPartition(TypedDict):
    """A partition, at `partition/TOPIC/PARTITION`."""

    leader: Annotated[int, "the leader's node id; -1 without a leader"]
    epoch: Annotated[int, "the leader epoch"]
    isr: Annotated[list[int], "the in-sync replicas"]
    hw: Annotated[int, "the high watermark; -1 without a leader"]
    replicas: Annotated[list[list[int]], "each a node, its log start offset and its log end offset"]
    generation: int
    drains: Annotated[bool, "whether it takes no more records, and is removed when they are read"]


class DashboardMember(TypedDict):
    """A member of a group."""

    id: str
    instance: str | None
    client: Annotated[str, "its client id"]
    owns: Annotated[dict[str, list[int]], "topic -> its partitions"]
    tasks: Annotated[dict[str, list[int]], "role and subtopology of its Streams tasks -> their partitions"]


class DashboardGroup(TypedDict):
    """A group, at `group/NAME`."""

    group: str
    coordinator: Annotated[int, "the coordinator's node id"]
    state: str
    withheld: Annotated[list[list[str | int]], "each a topic, a partition, and why no member gets it"]
    generation: Annotated[int, "the generation, or the group epoch (KIP-848)"]
    protocol: str | None
    leader: Annotated[str | None, "the member id of a classic group's leader"]
    members: list[DashboardMember]


DashboardCommits = Annotated[
    dict[str, dict[str, int]], "At `commits/GROUP`: topic -> partition -> the committed offset."
]


class DashboardGate(TypedDict):
    """A gate that is closed for a group, at `gate/GROUP/TOPIC/PARTITION`."""

    group: str
    topic: str
    partition: int
    generation: int
    offset: Annotated[int, "the first offset that waits"]
    waits: Annotated[list[list[int | None]], "each a partition, the offset that it must reach, and the committed one"]


class DashboardResize(TypedDict):
    """A resize in progress, at `resize/TOPIC`. One that only drains has no plan any more."""

    step: Annotated[str, "planned, prepared, fenced, or draining"]
    generation: int
    draining: Annotated[list[int], "the partitions that take no more records"]
    before: NotRequired[Annotated[int, "the number of partitions before"]]
    after: NotRequired[Annotated[int, "the number of partitions afterwards"]]
    fenced: NotRequired[Annotated[list[int], "the partitions whose leaders adopt the new generation"]]


class DashboardTransaction(TypedDict):
    """A transactional id, at `transaction/ID`."""

    transactional_id: str
    coordinator: Annotated[int, "the coordinator's node id"]
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: Annotated[int, "in milliseconds since the epoch; -1 if none is open"]
    partitions: list[str]


class DashboardClock(TypedDict):
    """The cluster's clock, at `clock/`."""

    pace: Annotated[float, "cluster seconds per real second; 0 if stopped"]


DashboardRow = (
    DashboardNode
    | DashboardTopic
    | DashboardPartition
    | DashboardGroup
    | DashboardCommits
    | DashboardGate
    | DashboardResize
    | DashboardTransaction
    | RuleRow
    | DashboardClock
)
KINDS: Final = {
    "node": DashboardNode,
    "topic": DashboardTopic,
    "partition": DashboardPartition,
    "group": DashboardGroup,
    "commits": DashboardCommits,
    "gate": DashboardGate,
    "resize": DashboardResize,
    "transaction": DashboardTransaction,
    "rule": RuleRow,
    "clock": DashboardClock,
}
"""The kind of a key -> the type of its rows."""


class DashboardRows(TypedDict):
    """The rows at one moment, by key."""

    at: Annotated[float, "the clock of events, in seconds"]
    rows: dict[str, DashboardRow]
