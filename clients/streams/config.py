"""Settings of a Streams instance: Kafka Streams' names in snake case, and its defaults where it has one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anabranch.clients.security import SecurityArguments
from anabranch.clients.streams.failures import DEAD_LETTER, FAIL, HANDLERS
from anabranch.clients.streams.task_assignor import STRATEGIES
from anabranch.protocol.file_paths import InvalidPath, path_inside

EXACTLY_ONCE: Final = "exactly_once_v2"
AT_LEAST_ONCE: Final = "at_least_once"
GUARANTEES: Final = (EXACTLY_ONCE, AT_LEAST_ONCE)
RESET_EARLIEST: Final = "earliest"
RESET_NONE: Final = "none"
TASK_ASSIGNORS: Final = ("high_availability", "sticky")


@dataclass(frozen=True, kw_only=True)
class StreamsConfig:
    """How one instance runs.

    `state_dir` holds its stores and who it is; no two instances share one. A setting that makes no sense is a
    ValueError.
    """

    application_id: str
    """The name of the application: of its group, and the first part of the names of its own topics."""
    bootstrap_servers: str | Sequence[str]
    """HOST:PORT of one or several brokers."""
    state_dir: Path
    """Where the instance keeps its stores, in a directory named after the application."""
    processing_guarantee: str = EXACTLY_ONCE
    """exactly_once_v2, or at_least_once: around a crash records may be processed twice then."""
    commit_interval_ms: int = 100
    """How often to commit; with exactly_once_v2 output is seen by others after that time."""
    auto_offset_reset: str = "earliest"
    """Where to begin in inputs of which the group has committed nothing: earliest or latest."""
    changelog_auto_offset_reset: str = "earliest"
    """What becomes of a store that does not belong to its changelog, because that was deleted, made again or cut off:
    earliest restores it anew from what the changelog has, with a warning; none ends the instance."""
    replication_factor: int = -1
    """The replicas of changelogs and repartition topics that are made; -1 leaves it to the cluster."""
    group_instance_id: str | None = None
    """A name of the instance that lasts: a restart within the session timeout goes unnoticed by the group (KIP-345)."""
    session_timeout_ms: int = 10000
    """After how long without a heartbeat the group gives this instance's tasks to others."""
    heartbeat_interval_ms: int = 500
    """How often to tell the group that the instance lives."""
    rebalance_timeout_ms: int = 60000
    """How long the group waits for this instance to commit and join again when tasks are assigned anew."""
    transaction_timeout_ms: int = 10000
    """After how long the cluster aborts a transaction of an instance that does not end it."""
    max_poll_records: int = 1000
    """How many records are processed at a time, before output is sent and the commit interval is looked at."""
    security: SecurityArguments = field(default_factory=SecurityArguments)
    """TLS and login, by the names that `Producer` has: {"security_protocol": "SSL", "ssl_cafile": "ca.pem"}."""
    client_id: str = "anabranch-streams"
    """How the instance is called in the logs and metrics of brokers."""
    task_assignor: str = "high_availability"
    """high_availability moves a task when its state is where it goes (KIP-441); sticky moves as few as it can."""
    rebalance_protocol: str = "cooperative"
    """cooperative keeps on processing during a rebalance what is not moved (KIP-429); eager stops everything."""
    num_standby_replicas: int = 0
    """How many copies of each task's stores other instances keep up to date."""
    max_warmup_replicas: int = 2
    """How many more copies may be built at a time, in the whole group, to move tasks to."""
    acceptable_recovery_lag: int = 10000
    """A copy that misses no more than so many records is taken for complete."""
    probing_rebalance_interval_ms: int = 600000
    """How often to look whether copies are complete, and tasks can be moved to them."""
    application_server: str = ""
    """HOST:PORT that other instances are told of."""
    client_tags: dict[str, str] = field(default_factory=dict)
    """Where this instance runs, by tags such as zone and rack."""
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
        try:
            path_inside(str(self.state_dir), self.application_id)
        except InvalidPath:
            raise ValueError(f"application_id names a directory in state_dir, not {self.application_id!r}") from None
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
        if self.changelog_auto_offset_reset not in (RESET_EARLIEST, RESET_NONE):
            raise ValueError(
                f"changelog_auto_offset_reset is earliest or none, not {self.changelog_auto_offset_reset!r}"
            )
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
