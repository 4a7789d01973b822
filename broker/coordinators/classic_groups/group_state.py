"""The states of a classic group, their transitions, and the broker's limits for groups.

    Empty                no members; any client may commit offsets
    PreparingRebalance   the join phase: waiting for every known member to (re)join, or for the rebalance timeout
    CompletingRebalance  a generation has started; its leader computes the assignment
    Stable               every member has its assignment, or can fetch it
    Dead                 deleted, or coordinated by another broker

Source: kafka.coordinator.group.GroupState and GroupConfig.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from anabranch.protocol.values import value


class GroupState(enum.Enum):
    """The state of a group; the value is the name on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

LEGAL: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    # from       to
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({COMPLETING, EMPTY, DEAD}),
    COMPLETING: frozenset({STABLE, PREPARING, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset(),
}


@value(kw_only=True)
class GroupLimits:
    """The broker's limits for its groups."""

    session_timeout_ms_min: int = 6000
    session_timeout_ms_max: int = 1800000
    size_max: int = 2147483647
    initial_rebalance_delay_ms: int = 0

    def admits(self, session_timeout_ms: int) -> bool:
        """Return whether this session timeout is within the limits."""
        return self.session_timeout_ms_min <= session_timeout_ms <= self.session_timeout_ms_max
