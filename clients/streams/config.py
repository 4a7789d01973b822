"""Settings of a Streams instance: Kafka Streams' names in snake case, and its defaults where it has one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anabranch.clients.config import parse_servers
from anabranch.clients.security import SecurityArguments
from anabranch.clients.streams.assignment_info import Host
from anabranch.clients.streams.failures import DEAD_LETTER, FAIL, HANDLERS
from anabranch.clients.streams.task_assignor import AssignorConfig
from anabranch.protocol.file_paths import InvalidPath, path_inside
from anabranch.protocol.suggestion import suggest_arguments

EXACTLY_ONCE: Final = "exactly_once_v2"
AT_LEAST_ONCE: Final = "at_least_once"
GUARANTEES: Final = (EXACTLY_ONCE, AT_LEAST_ONCE)
RESET_EARLIEST: Final = "earliest"
RESET_NONE: Final = "none"
TASK_ASSIGNORS: Final = ("high_availability", "sticky")


@suggest_arguments
@dataclass(frozen=True, kw_only=True)
class StreamsConfig:
    """The settings of one instance.

    `state_dir` holds its stores and its process id; no two instances share one. An invalid setting raises ValueError.
    """

    application_id: str
    """The name of the application and its group, and the prefix of its internal topics."""
    bootstrap_servers: str | Sequence[str]
    """HOST:PORT of one or several brokers."""
    state_dir: Path
    """The directory of the instance's stores, in a subdirectory named after the application."""
    processing_guarantee: str = EXACTLY_ONCE
    """exactly_once_v2, or at_least_once: after a crash records may then be processed twice."""
    commit_interval_ms: int = 100
    """How often to commit; with exactly_once_v2 output becomes visible after that time."""
    auto_offset_reset: str = "earliest"
    """Where to start in inputs without a committed offset: earliest or latest."""
    changelog_auto_offset_reset: str = "earliest"
    """What to do with a store whose changelog was deleted, recreated or cut off: earliest restores it from the current
    changelog, with a warning; none ends the instance."""
    replication_factor: int = -1
    """The replicas of created changelogs and repartition topics; -1: the cluster's default."""
    group_instance_id: str | None = None
    """The static member id: the group does not notice a restart within the session timeout (KIP-345)."""
    session_timeout_ms: int = 10000
    """The session timeout after which the group reassigns this instance's tasks."""
    heartbeat_interval_ms: int = 500
    """The interval of heartbeats to the group."""
    rebalance_timeout_ms: int = 60000
    """How long the group waits for this instance to commit and rejoin in a rebalance."""
    transaction_timeout_ms: int = 10000
    """The timeout after which the cluster aborts an open transaction of an instance: at least commit_interval_ms."""
    max_poll_records: int = 1000
    """How many records are processed before output is sent and the commit interval is checked."""
    security: SecurityArguments = field(default_factory=SecurityArguments)
    """TLS and login, with the argument names of `Producer`: {"security_protocol": "SSL", "ssl_cafile": "ca.pem"}."""
    client_id: str = "anabranch-streams"
    """The instance's name in the logs and metrics of brokers."""
    task_assignor: str = "high_availability"
    """high_availability moves a task once its state is at the target (KIP-441); sticky minimizes moves."""
    rebalance_protocol: str = "cooperative"
    """cooperative continues processing unmoved tasks during a rebalance (KIP-429); eager stops everything."""
    num_standby_replicas: int = 0
    """The number of standby tasks that other instances keep up to date, per task."""
    max_warmup_replicas: int = 2
    """The maximum number of warm-up copies at a time, in the whole group."""
    acceptable_recovery_lag: int = 10000
    """A copy with at most this lag counts as complete."""
    probing_rebalance_interval_ms: int = 600000
    """How often to check whether copies are complete, and tasks can be moved to them."""
    application_server: str = ""
    """HOST:PORT at which this instance answers queries, for other instances to name it."""
    client_tags: dict[str, str] = field(default_factory=dict)
    """The location of this instance, by tags such as zone and rack."""
    client_rack: str = ""
    """The rack from which inputs are read if brokers select replicas by rack (KIP-392)."""
    rack_aware_assignment_strategy: str = "none"
    """min_traffic: tasks run near the replicas of their inputs, with equal shares (KIP-925)."""
    rack_aware_assignment_tags: tuple[str, ...] = ()
    """The tags by which copies of a task are kept apart (KIP-708); the leader's setting applies."""

    deserialization_handler: str = FAIL
    """How to handle records that cannot be decoded: fail, skip or dead-letter (`clients.streams.failures`)."""
    processing_handler: str = FAIL
    """How to handle records for which the application's functions raise: likewise."""
    errors_dead_letter_queue_topic_name: str = ""
    """The topic for dead-letter; it must exist."""

    def __post_init__(self) -> None:
        parse_servers(self.bootstrap_servers)
        try:
            path_inside(str(self.state_dir), self.application_id)
        except InvalidPath:
            raise ValueError(f"application_id names a directory in state_dir, not {self.application_id!r}") from None
        if self.processing_guarantee not in GUARANTEES:
            raise ValueError(f"processing_guarantee is one of {GUARANTEES}, not {self.processing_guarantee!r}")
        if self.task_assignor not in TASK_ASSIGNORS:
            raise ValueError(f"task_assignor is one of {TASK_ASSIGNORS}, not {self.task_assignor!r}")
        if self.rebalance_protocol not in ("eager", "cooperative"):
            raise ValueError(f"rebalance_protocol is eager or cooperative, not {self.rebalance_protocol!r}")
        if self.changelog_auto_offset_reset not in (RESET_EARLIEST, RESET_NONE):
            raise ValueError(
                f"changelog_auto_offset_reset is earliest or none, not {self.changelog_auto_offset_reset!r}"
            )
        try:
            Host.parse(self.application_server)
        except ValueError as error:
            raise ValueError(f"application_server: {error}") from None
        self.make_assignor_config()
        self._check_numbers()
        self._check_handlers()

    def _check_numbers(self) -> None:
        for name, least in (("commit_interval_ms", 0), ("max_poll_records", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be {least} or more: {getattr(self, name)}")
        if self.exactly_once and self.transaction_timeout_ms < self.commit_interval_ms:
            raise ValueError(
                f"transaction_timeout_ms ({self.transaction_timeout_ms}) must not be below commit_interval_ms "
                f"({self.commit_interval_ms}): every transaction would be aborted before its commit"
            )

    def _check_handlers(self) -> None:
        chosen = (self.deserialization_handler, self.processing_handler)
        for name, value in zip(("deserialization_handler", "processing_handler"), chosen, strict=True):
            if value not in HANDLERS:
                raise ValueError(f"{name} is one of {HANDLERS}, not {value!r}")
        if (DEAD_LETTER in chosen) != bool(self.errors_dead_letter_queue_topic_name):
            raise ValueError("errors_dead_letter_queue_topic_name is set if, and only if, a handler is dead-letter")

    def make_assignor_config(self) -> AssignorConfig:
        """Return the settings of the leader's assignments. Raises ValueError for those that it refuses."""
        return AssignorConfig(
            acceptable_recovery_lag=self.acceptable_recovery_lag,
            max_warmup_replicas=self.max_warmup_replicas,
            num_standby_replicas=self.num_standby_replicas,
            probing_rebalance_interval_ms=self.probing_rebalance_interval_ms,
            rack_aware_assignment_strategy=self.rack_aware_assignment_strategy,
            rack_aware_assignment_tags=self.rack_aware_assignment_tags,
        )

    @property
    def exactly_once(self) -> bool:
        """Whether all work is transactional."""
        return self.processing_guarantee == EXACTLY_ONCE
