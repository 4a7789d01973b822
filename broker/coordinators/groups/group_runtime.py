"""The interface of the group coordinator for its parts: journal, background tasks, timers, settings, clock, randomness.

`GroupCoordinator` implements it. Offsets, transactions, gates and the requests of each kind of group take it as one
argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection

    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.coordinators.classic_groups.group_events import Effect, Event
    from anabranch.broker.coordinators.groups.group_shards import GroupEntry
    from anabranch.broker.coordinators.groups.group_table import GroupTable
    from anabranch.broker.coordinators.offsets.committed_offsets import TopicPartition
    from anabranch.broker.coordinators.runtime.coordinator_tasks import CoordinatorTasks
    from anabranch.broker.coordinators.runtime.journal import Journal
    from anabranch.broker.metadata.group_configs import GroupConfigs
    from anabranch.protocol.errors import ErrorCode
    from anabranch.protocol.internal_topics import GroupMetadataValue


class GroupRuntime(Protocol):
    """The shared part of a group coordinator."""

    settings: BrokerSettings
    group_configs: GroupConfigs
    clock_ms: Callable[[], int]
    """The time for deadlines; it does not jump."""
    date_ms: Callable[[], int]
    """The time of day, for what is stored with a date."""
    rng: random.Random
    background: CoordinatorTasks
    journal: Journal
    table: GroupTable

    def reschedule(self, slot: GroupEntry) -> None:
        """Set the timer of a group to its next deadline, or forget the group if it is vacant."""

    def on_offsets_committed(self, slot: GroupEntry, partitions: Collection[TopicPartition]) -> None:
        """Complete the requests that wait for these offsets, which are now stable."""

    def close(self, slot: GroupEntry, error: ErrorCode) -> None:
        """Forget a group that is deleted or coordinated by another broker, and reject its waiting requests."""

    def apply(self, slot: GroupEntry, event: Event) -> None:
        """Apply an event to a classic group and run the effects."""

    def downgrade(self, slot: GroupEntry, value: GroupMetadataValue) -> None:
        """Convert a KIP-848 group to a classic group; its members join again."""

    def run(self, slot: GroupEntry, effect: Effect) -> None:
        """Run one effect of a group's state machine."""
