"""An ISR that a leader proposes to the controller, and what the controller's answer means for the proposal.

At most one proposal of a partition is pending. It ends when the controller has committed or refused it, or when a new
leader epoch begins. An answer that leaves open which of the two it was keeps it pending: only a LeaderAndIsr tells.
Source: `Partition.handleAlterPartitionError` of Kafka, KIP-497.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from anabranch.protocol.errors import ErrorCode


class Verdict(enum.Enum):
    """What the controller's answer to a proposed ISR means for the proposal."""

    COMMITTED = "committed"
    REVERTED = "reverted"
    WAITING = "waiting"
    """Neither accepted nor withdrawn: only a LeaderAndIsr resolves it."""
    RETRY = "retry"
    OUTDATED = "outdated"
    """The answer to a proposal that is no longer the pending one."""


@dataclass(frozen=True, slots=True, eq=False)
class IsrChange:
    """A proposed ISR; `epochs` are the broker epochs the leader saw its members fetch with (KIP-903)."""

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
    """What the controller's error code means for the proposal that it answers."""
    if code is ErrorCode.NONE:
        return Verdict.COMMITTED
    if code in _REVERTING:
        return Verdict.REVERTED
    return Verdict.WAITING if code in _WAITING else Verdict.RETRY
