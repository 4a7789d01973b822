"""An ISR change that a leader proposes to the controller, and the meaning of the controller's answer.

A partition has at most one pending proposal. It ends when the controller has committed or refused it, or when a new
leader epoch begins. An answer that leaves this open keeps it pending until a LeaderAndIsr. Source:
`Partition.handleAlterPartitionError` of Kafka, KIP-497.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from anabranch.protocol.errors import ErrorCode


class Verdict(enum.Enum):
    """The meaning of the controller's answer for the proposal."""

    COMMITTED = "committed"
    REVERTED = "reverted"
    WAITING = "waiting"
    """Neither committed nor refused: only a LeaderAndIsr resolves it."""
    RETRY = "retry"
    OUTDATED = "outdated"
    """The answered proposal is no longer the pending one."""


@dataclass(frozen=True, slots=True, eq=False)
class IsrChange:
    """A proposed ISR; `epochs` are the broker epochs with which its members fetched (KIP-903)."""

    isr: tuple[int, ...]
    epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


_REVERTING: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_WAITING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


def verdict_of(code: ErrorCode) -> Verdict:
    """Return the meaning of the controller's error code for the proposal."""
    if code is ErrorCode.NONE:
        return Verdict.COMMITTED
    if code in _REVERTING:
        return Verdict.REVERTED
    return Verdict.WAITING if code in _WAITING else Verdict.RETRY
