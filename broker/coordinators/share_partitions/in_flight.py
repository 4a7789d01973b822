"""The fates that an offset in flight can have, and the stretches of offsets of one fate.

Pure. Source: KIP-932; Kafka's `RecordState`, `InFlightState`, `InFlightBatch`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from anabranch.protocol.values import value

NOBODY: Final = ""


class RecordState(enum.IntEnum):
    """The fate of an offset, as the share coordinator stores it; `ACQUIRED` is never stored."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def terminal(self) -> bool:
        """Whether nothing happens to the record any more."""
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


@value
class Acquired:
    """Offsets handed to a member, both inclusive."""

    first: int
    last: int
    delivery_count: int


@value
class StateBatch:
    """The fate of offsets, both inclusive, as it is stored."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


@dataclass(slots=True, eq=False)
class InFlight:
    """A stretch of offsets of one fate."""

    first: int
    last: int
    state: RecordState
    delivery_count: int
    batch: tuple[int, int]
    """The offsets that were handed out together with these when they first were, themselves among them."""
    member: str = NOBODY
    locked_until_ms: int = 0
    becomes: RecordState | None = None
    """What it will be once that is stored; until then nobody may touch it."""

    def __repr__(self) -> str:
        held = f" by {self.member} until {self.locked_until_ms}" if self.member else ""
        becoming = f", becomes {self.becomes.name.lower()}" if self.becomes is not None else ""
        return f"{self.first}-{self.last} {self.state.name.lower()} x{self.delivery_count}{held}{becoming}"

    def cut(self, first: int) -> InFlight:
        """Cut off what begins at `first`."""
        rest = dataclasses.replace(self, first=first)
        self.last = first - 1
        return rest

    @property
    def count(self) -> int:
        """How many offsets it has."""
        return self.last - self.first + 1

    @property
    def free(self) -> bool:
        """Whether a member may have it."""
        return self.state is RecordState.AVAILABLE

    @property
    def held(self) -> bool:
        """Whether it is its member's, who has not said anything of it."""
        return self.state is RecordState.ACQUIRED and self.becomes is None


def changes_of(stretches: Iterable[InFlight]) -> list[StateBatch]:
    """What is about to change, with neighbours of one fate together."""
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
