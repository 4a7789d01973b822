"""The product's leader and share coordinator of a share partition, as functions of hashable states.

`SharePartition` is built from a tuple, does one thing, and becomes a tuple again. Times are relative: a lock has the
time that is left of it. `ShareState` and `ShareShard.follow` decide about writes in the same way.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final, NamedTuple

from anabranch.broker.coordinators.share_partitions.in_flight import RecordState, StateBatch
from anabranch.broker.coordinators.share_partitions.share_coordinator import ShareShard
from anabranch.broker.coordinators.share_partitions.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    SharePartition,
)
from anabranch.broker.coordinators.share_partitions.share_state import ShareKey, ShareState
from anabranch.protocol.errors import KafkaError

KEY: Final = ShareKey("group", b"topic", 0)
Batches = tuple[StateBatch, ...]
Range = tuple[int, int, RecordState, int, tuple[int, int], str, int, RecordState | None]
InFlightState = tuple[int, tuple[Range, ...]]
"""The start offset and the ranges of a `SharePartition`."""


class Stored(NamedTuple):
    """The state at the share coordinator."""

    start: int = 0
    batches: Batches = ()
    epoch: int = 0


class ShareLeader:
    """The decisions of a leader with these settings; `extents` are the batches of the log."""

    def __init__(
        self, extents: tuple[tuple[int, int], ...], *, limit: int, lock: int, at_once: int, isolates: bool
    ) -> None:
        self._extents, self._limit, self._lock = extents, limit, lock
        self._at_once, self._isolates = at_once, isolates
        self.acquire, self.acknowledge = functools.cache(self._acquire), functools.cache(self._acknowledge)
        self.release, self.start_after = functools.cache(self._release), functools.cache(self._start_after)
        self.complete, self.roll_back = functools.cache(self._complete), functools.cache(self._roll_back)

    def load(self, stored: Stored) -> InFlightState:
        """The state of a leader that has just read what is stored."""
        return _frozen(self._open(stored.start, stored.batches))

    def _acquire(self, state: InFlightState, member: int) -> tuple[InFlightState, tuple[int, ...]]:
        """The state and the offsets that the member gets."""
        shared = self._thawed(state)
        there = [one for one in self._extents if one[1] >= shared.next_fetch_offset]
        most = self._at_once
        got = shared.acquire(
            str(member), there, max_records=most, batch_size=most, strict=True, locked_until_ms=self._lock
        )
        return _frozen(shared), tuple(offset for one in got for offset in range(one.first, one.last + 1))

    def _acknowledge(
        self, state: InFlightState, member: int, offset: int, type_: AcknowledgeType
    ) -> tuple[InFlightState, Batches]:
        """The state and what has to be stored. Nothing: it is refused, or ignored below the start, as in Kafka."""
        shared = self._thawed(state)
        acknowledged = Acknowledgement(offset, offset, (type_,))
        try:
            batches = shared.acknowledge(str(member), [acknowledged], renewed_until_ms=self._lock)
        except KafkaError:
            return state, ()
        return _frozen(shared), tuple(batches)

    def _release(self, state: InFlightState, member: int | None) -> tuple[InFlightState, Batches]:
        """Release what a member held; None: what has no lock any more."""
        shared = self._thawed(state)
        batches = shared.expire(0) if member is None else shared.release(str(member))
        return _frozen(shared), tuple(batches)

    def _complete(self, state: InFlightState, batches: Batches) -> InFlightState:
        shared = self._thawed(state)
        shared.complete(batches)
        return _frozen(shared)

    def _roll_back(self, state: InFlightState, batches: Batches) -> InFlightState:
        shared = self._thawed(state)
        shared.roll_back(batches)
        return _frozen(shared)

    def _start_after(self, state: InFlightState, batches: Batches) -> int:
        return self._thawed(state).standing_after(batches)[0]

    def _open(self, start: int, batches: Iterable[StateBatch]) -> SharePartition:
        return SharePartition(start, batches, delivery_limit=self._limit, max_locks=100, isolates=self._isolates)

    def _thawed(self, state: InFlightState) -> SharePartition:
        start, ranges = state
        shared = self._open(start, [StateBatch(*one[:4]) for one in ranges])
        for flight, one in zip(shared.flights(), ranges, strict=True):
            flight.batch, flight.member, flight.locked_until_ms, flight.becomes = one[4:]
        return shared


def _frozen(shared: SharePartition) -> InFlightState:
    return shared.start_offset, tuple(
        (
            one.first,
            one.last,
            one.state,
            one.delivery_count,
            one.batch,
            one.member,
            one.locked_until_ms if one.member else 0,
            one.becomes,
        )
        for one in shared.flights()
    )


def later(state: InFlightState) -> InFlightState:
    """The state after one unit of time."""
    start, ranges = state
    return start, tuple((*one[:6], max(0, one[6] - 1), one[7]) for one in ranges)


def is_locked(state: InFlightState) -> bool:
    """Whether any lock has time left."""
    return any(one[6] > 0 for one in state[1])


@functools.cache
def write(
    stored: Stored, start: int, batches: Batches, *, epoch: int, overtaken: bool, fences: bool, numbers: bool
) -> Stored | None:
    """The stored state after a write of the leader of `epoch`; None if the share coordinator refuses it.

    `overtaken`: a later write of the same leader is stored. Without `fences` or `numbers`, that check is left out.
    """
    state = ShareState(leader_epoch=stored.epoch, start_offset=stored.start, batches=list(stored.batches))
    shard = ShareShard(partition=0, leader_epoch=0)
    shard.latest[KEY] = epoch, int(overtaken)
    try:
        if fences:
            state.fence(leader_epoch=epoch)
        if numbers:
            shard.follow(KEY, epoch, 0)
    except KafkaError:
        return None
    state.take(start, batches, 0, epoch)
    return Stored(state.start_offset, tuple(state.batches), state.leader_epoch)
