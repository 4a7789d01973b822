"""The states of offsets in flight, and the ranges of offsets with one state.

Pure. Source: KIP-932; Kafka's `RecordState`, `InFlightState`, `InFlightBatch`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from typing import Final

from anabranch.protocol.values import slotted, value

NOBODY: Final = ""


class RecordState(enum.IntEnum):
    """The state of an offset, with the share coordinator's numbers; `ACQUIRED` is never stored."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def terminal(self) -> bool:
        """Whether the state is final."""
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


@value
class Acquired:
    """Offsets acquired by a member, both inclusive."""

    first: int
    last: int
    delivery_count: int


@value
class StateBatch:
    """The stored state of a range of offsets, both inclusive."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


@slotted(eq=False)
class InFlight:
    """A range of offsets with one state."""

    first: int
    last: int
    state: RecordState
    delivery_count: int
    batch: tuple[int, int]
    """The range with which these offsets were first acquired, including themselves."""
    member: str = NOBODY
    locked_until_ms: int = 0
    becomes: RecordState | None = None
    """The state after the change that is being stored; until then no member can acquire it."""

    def __repr__(self) -> str:
        held = f" by {self.member} until {self.locked_until_ms}" if self.member else ""
        becoming = f", becomes {self.becomes.name.lower()}" if self.becomes is not None else ""
        return f"{self.first}-{self.last} {self.state.name.lower()} x{self.delivery_count}{held}{becoming}"

    def cut(self, first: int) -> InFlight:
        """Split the range at `first`, and return the second part."""
        rest = dataclasses.replace(self, first=first)
        self.last = first - 1
        return rest

    @property
    def count(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1

    @property
    def free(self) -> bool:
        """Whether a member can acquire it."""
        return self.state is RecordState.AVAILABLE

    @property
    def held(self) -> bool:
        """Whether a member holds it and has not acknowledged it."""
        return self.state is RecordState.ACQUIRED and self.becomes is None


def changes_of(stretches: Iterable[InFlight]) -> list[StateBatch]:
    """Return the pending changes, with adjacent ranges of one state merged."""
    batches: list[StateBatch] = []
    for one in sorted(stretches, key=lambda stretch: stretch.first):
        assert one.becomes is not None
        last = batches[-1] if batches else None
        fate = (one.becomes, one.delivery_count)
        if last is not None and last.last + 1 == one.first and (last.state, last.delivery_count) == fate:
            batches[-1] = StateBatch(last.first, one.last, *fate)
        else:
            batches.append(StateBatch(one.first, one.last, *fate))
    return batches
