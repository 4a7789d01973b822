"""The interface of task assignors: they place each task, and its copies, on clients.

The hierarchy is that of Kafka Streams (KIP-429, KIP-441):

    Consumer -> ClassicGroupSession -> StreamsPartitionAssignor -> TaskAssignor

A client is a process, with as much capacity as it has threads; a thread is a member of the group. The partition
assignor speaks the protocol, knows members and partitions, and shares out a client's tasks among its threads; a task
assignor is a function from clients and tasks to a `Placement`, and knows neither members nor bytes. It keeps nothing in
between: all that it may go by, the members tell each time.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from anabranch.clients.streams.task_id import TaskId
from anabranch.protocol.values import value

UNBOUNDED_LAG: Final = 2**63 - 1
_HALVES: Final = struct.Struct(">qq")


def process_order(process_id: bytes) -> tuple[int, int]:
    """Return the sort key of processes: Java compares the halves of a UUID as signed numbers."""
    halves: tuple[int, int] = _HALVES.unpack(process_id)
    return halves


@value(kw_only=True)
class Client:
    """One process as the leader sees it."""

    process_id: bytes
    capacity: int
    """The number of threads."""
    previous_active: frozenset[TaskId] = frozenset()
    previous_standby: frozenset[TaskId] = frozenset()
    lags: Mapping[TaskId, int] = dataclasses.field(default_factory=dict)
    """For every stateful task of the group: the missing part of its changelog, RUNNING or UNKNOWN_SUM."""
    tags: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Its location (KIP-708), by key."""
    rack: str = ""
    """The rack of its consumers (KIP-881); empty if missing or inconsistent."""


@value(kw_only=True)
class Tasks:
    """The tasks to place."""

    every: frozenset[TaskId]
    stateful: frozenset[TaskId] = frozenset()
    """Tasks with a changelog; only they have copies and lags."""
    racks: Mapping[TaskId, Sequence[Collection[str]]] = dataclasses.field(default_factory=dict)
    """For each source partition of each task the racks of its replicas, where known."""


@value(kw_only=True)
class AssignorConfig:
    """Kafka's settings, with Kafka's defaults."""

    acceptable_recovery_lag: int = 10_000
    """A copy with at most this lag counts as caught up."""
    max_warmup_replicas: int = 2
    """How many copies beyond the standbys may be built at once, in the whole group."""
    num_standby_replicas: int = 0
    probing_rebalance_interval_ms: int = 600_000
    rack_aware_assignment_tags: tuple[str, ...] = ()
    """The tags by which standbys are kept apart."""
    rack_aware_assignment_strategy: str = "none"
    """`min_traffic`: active tasks run near replicas of their partitions, as far as balance allows (KIP-925)."""
    rack_aware_assignment_traffic_cost: int | None = None
    rack_aware_assignment_non_overlap_cost: int | None = None
    """The weight of staying against traffic; None: the task assignor's default."""

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be {least} or more: {getattr(self, name)}")
        if len(self.rack_aware_assignment_tags) > TAGS_MAX:
            raise ValueError(
                f"rack_aware_assignment_tags has {len(self.rack_aware_assignment_tags)} tags; {TAGS_MAX} are the limit"
            )
        if self.rack_aware_assignment_strategy not in STRATEGIES:
            raise ValueError(
                f"rack_aware_assignment_strategy is one of {STRATEGIES}, not {self.rack_aware_assignment_strategy!r}"
            )

    def rack_costs(self, traffic: int, non_overlap: int) -> tuple[int, int]:
        """Return the costs of traffic and of moving: as configured, otherwise the task assignor's defaults."""
        return (
            traffic if self.rack_aware_assignment_traffic_cost is None else self.rack_aware_assignment_traffic_cost,
            non_overlap
            if self.rack_aware_assignment_non_overlap_cost is None
            else self.rack_aware_assignment_non_overlap_cost,
        )


TAGS_MAX: Final = 5
STRATEGIES: Final = ("none", "min_traffic")
_LEAST: Final = {
    "acceptable_recovery_lag": 0,
    "max_warmup_replicas": 1,
    "num_standby_replicas": 0,
    "probing_rebalance_interval_ms": 60_000,
}


@value(kw_only=True)
class Placement:
    """A task assignor's decision, by process."""

    active: Mapping[bytes, frozenset[TaskId]]
    standby: Mapping[bytes, frozenset[TaskId]]
    """Standbys and warm-up copies, which later steps do not distinguish."""
    probing: bool = False
    """Whether to request a probing rebalance, because the placement is not final."""


TaskAssignor = Callable[[Sequence[Client], Tasks, AssignorConfig], Placement]
