"""The journal of a group's scenarios: a list of records. A slow one keeps records back until the scenario decides."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.broker.coordinators.runtime.journal import JournalRecord, TransactionEnd
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.internal_topics import decode_key
from tests.scenario_text import NotUnderstood

Records = list[tuple[bytes, bytes | None]]
Then = Callable[[ErrorCode, int], None]
"""Called with the error, and the offset of the first record."""


class StageJournal:
    """The records of one group, and those that a slow journal has not stored."""

    def __init__(self) -> None:
        self.entries: list[JournalRecord | TransactionEnd] = []
        self.slow = False
        self.waiting: list[tuple[Records, int, Then]] = []
        """Records, producer id and callback."""

    def write(self, records: Records, producer_id: int, then: Then) -> None:
        """Store records, or let them wait."""
        if self.slow:
            self.waiting.append((records, producer_id, then))
        else:
            then(ErrorCode.NONE, self.take(records, producer_id))

    def take(self, records: Records, producer_id: int) -> int:
        """Store records; return the offset of the first."""
        first = len(self.entries)
        for key, value in records:
            self.entries.append(JournalRecord(decode_key(key), value, len(self.entries), producer_id))
        return first

    def take_waiting(self) -> None:
        """Store the waiting records."""
        for records, producer_id, then in self._given():
            then(ErrorCode.NONE, self.take(records, producer_id))

    def refuse_waiting(self) -> None:
        """Refuse the waiting records."""
        for _, _, then in self._given():
            then(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)

    def _given(self) -> list[tuple[Records, int, Then]]:
        given, self.waiting = self.waiting, []
        if not given:
            raise NotUnderstood("the journal was given nothing")
        return given
