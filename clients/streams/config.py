"""Settings of a Streams instance: Kafka Streams' names in snake case, and its defaults where it has one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anabranch.clients.streams.failures import DEAD_LETTER, FAIL, HANDLERS
from anabranch.clients.streams.task_assignor import STRATEGIES

EXACTLY_ONCE: Final = "exactly_once_v2"
AT_LEAST_ONCE: Final = "at_least_once"
GUARANTEES: Final = (EXACTLY_ONCE, AT_LEAST_ONCE)
TASK_ASSIGNORS: Final = ("high_availability", "sticky")


@dataclass(frozen=True, kw_only=True)
class StreamsConfig:
    """How one instance runs.

    `state_dir` holds its stores and who it is; no two instances share one. A setting that makes no sense is a
    ValueError.
    """

    application_id: str
    bootstrap_servers: str | Sequence[str]
    state_dir: Path
    processing_guarantee: str = EXACTLY_ONCE
    commit_interval_ms: int = 100
    auto_offset_reset: str = "earliest"
    replication_factor: int = -1
    """Of changelogs and repartition topics."""
    group_instance_id: str | None = None
    """With one, a restart within the session timeout goes unnoticed by the group (KIP-345)."""
    session_timeout_ms: int = 10000
    heartbeat_interval_ms: int = 500
    rebalance_timeout_ms: int = 60000
    transaction_timeout_ms: int = 10000
    max_poll_records: int = 1000
    client_id: str = "anabranch-streams"
    task_assignor: str = "high_availability"
    rebalance_protocol: str = "cooperative"
    num_standby_replicas: int = 0
    max_warmup_replicas: int = 2
    acceptable_recovery_lag: int = 10000
    probing_rebalance_interval_ms: int = 600000
    application_server: str = ""
    """HOST:PORT that other instances are told of."""
    client_tags: dict[str, str] = field(default_factory=dict)
    """Where this instance runs: zone, rack, whatever."""
    client_rack: str = ""
    """Where inputs are read from if brokers select replicas by rack (KIP-392)."""
    rack_aware_assignment_strategy: str = "none"
    """min_traffic: tasks go to where the replicas of their inputs are, among equal shares (KIP-925)."""
    rack_aware_assignment_tags: tuple[str, ...] = ()
    """The tags in which copies of a task are kept apart (KIP-708); the leader's count."""

    deserialization_handler: str = FAIL
    """What becomes of records that cannot be decoded: fail, skip or dead-letter (`clients.streams.failures`)."""
    processing_handler: str = FAIL
    """The same of records that the application's functions raise for."""
    errors_dead_letter_queue_topic_name: str = ""
    """Where dead-letter puts them. The topic is made before."""

    def __post_init__(self) -> None:
        if self.processing_guarantee not in GUARANTEES:
            raise ValueError(f"processing_guarantee is one of {GUARANTEES}, not {self.processing_guarantee!r}")
        if self.task_assignor not in TASK_ASSIGNORS:
            raise ValueError(f"task_assignor is one of {TASK_ASSIGNORS}, not {self.task_assignor!r}")
        if self.rack_aware_assignment_strategy not in STRATEGIES:
            raise ValueError(
                f"rack_aware_assignment_strategy is one of {STRATEGIES}, not {self.rack_aware_assignment_strategy!r}"
            )
        if self.rebalance_protocol not in ("eager", "cooperative"):
            raise ValueError(f"rebalance_protocol is eager or cooperative, not {self.rebalance_protocol!r}")

        self._check_handlers()

    def _check_handlers(self) -> None:
        chosen = (self.deserialization_handler, self.processing_handler)
        for name, value in zip(("deserialization_handler", "processing_handler"), chosen, strict=True):
            if value not in HANDLERS:
                raise ValueError(f"{name} is one of {HANDLERS}, not {value!r}")
        if (DEAD_LETTER in chosen) != bool(self.errors_dead_letter_queue_topic_name):
            raise ValueError("errors_dead_letter_queue_topic_name is set if, and only if, a handler is dead-letter")

    @property
    def exactly_once(self) -> bool:
        """Whether everything is transactions."""
        return self.processing_guarantee == EXACTLY_ONCE
