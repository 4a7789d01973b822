"""`ConsumerConfig`: the settings of one consumer, and the core that they describe."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from anabranch.clients.config import NetworkConfig, check_int32
from anabranch.clients.consumer.classic_group_membership import ClassicMembership
from anabranch.clients.consumer.consumer_group_membership import ConsumerGroupMembership
from anabranch.clients.consumer.consumer_partition_assignor import PartitionAssignor
from anabranch.clients.consumer.core import ConsumerCore
from anabranch.clients.consumer.listener import PartitionKeyRebalanceListener
from anabranch.clients.consumer.offset_lookup import ISOLATION_LEVELS

CLASSIC: Final = "classic"
GROUP_PROTOCOLS: Final = (CLASSIC, "consumer")


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """The settings, by the names that `Consumer` documents; raises ValueError for those that exclude each other."""

    network: NetworkConfig
    topics: tuple[str, ...]
    client_rack: str
    group_id: str | None
    group_instance_id: str | None
    auto_offset_reset: str
    isolation_level: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    assignors: Sequence[PartitionAssignor]
    group_protocol: str
    max_poll_records: int
    fetch_max_wait_ms: int
    ordered_delivery: bool
    allow_auto_create_topics: bool
    audit: str | None

    def __post_init__(self) -> None:
        if not self.topics and self.group_id is not None:
            raise ValueError('a consumer of a group needs at least one topic: Consumer("orders", group_id="billing")')
        if self.audit is not None and self.group_id is None:
            raise ValueError("audit needs a group_id")
        if self.isolation_level not in ISOLATION_LEVELS:
            raise ValueError(f"isolation_level is one of {', '.join(ISOLATION_LEVELS)}, not {self.isolation_level!r}")
        for name in ("session_timeout_ms", "rebalance_timeout_ms", "heartbeat_interval_ms", "max_poll_records"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("auto_commit_interval_ms", "fetch_max_wait_ms"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative: {getattr(self, name)}")
        for name in ("session_timeout_ms", "rebalance_timeout_ms", "fetch_max_wait_ms"):
            check_int32(name, getattr(self, name))
        if self.group_id is not None and self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be less than "
                f"session_timeout_ms={self.session_timeout_ms}; a third of it is usual"
            )
        if self.group_protocol not in GROUP_PROTOCOLS:
            raise ValueError(f"group_protocol is one of {', '.join(GROUP_PROTOCOLS)}, not {self.group_protocol!r}")

    def core(self, protocol: str, rng: random.Random, listener: PartitionKeyRebalanceListener) -> ConsumerCore:
        """Return a new core for a group of this protocol."""
        commits = self.enable_auto_commit and self.group_id is not None
        return ConsumerCore(
            self.topics,
            self._membership(protocol, rng),
            ordered=self.ordered_delivery and bool(self.topics),  # chosen partitions may lack the parents of some keys
            auto_commit_s=self.auto_commit_interval_ms / 1000 if commits else None,
            audited=self.audit is not None,
            holds_back=listener.holds_back,
            read_together=listener.read_together,
        )

    def _membership(self, protocol: str, rng: random.Random) -> ClassicMembership | None:
        if self.group_id is None:
            return None
        common: dict[str, Any] = {
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "heartbeat_interval_ms": self.heartbeat_interval_ms,
            "assignors": self.assignors,
            "group_instance_id": self.group_instance_id,
            "client_rack": self.client_rack,
        }
        if protocol == CLASSIC:
            return ClassicMembership(self.group_id, self.topics, **common)
        return ConsumerGroupMembership(self.group_id, self.topics, rng=rng, **common)
