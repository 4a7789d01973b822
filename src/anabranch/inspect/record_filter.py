"""Decides which records a search finds: by parts of key, value and headers, by offset and by time. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.protocol.records.record import Record


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The conditions of a search; a record is found if all of them hold. None: no condition."""

    key: bytes | None = None
    """A part of the key."""
    value: bytes | None = None
    """A part of the value."""
    header: str | None = None
    """A header's name, or `name=part of its value`."""
    offset: int | None = None
    """The record's offset."""
    from_ms: int | None = None
    """The earliest timestamp."""
    to_ms: int | None = None
    """The latest timestamp."""

    @property
    def has_content(self) -> bool:
        """Whether a condition is about key, value or headers, which control records do not have."""
        return self.key is not None or self.value is not None or self.header is not None

    def may_match(self, first_offset: int, next_offset: int, max_timestamp_ms: int) -> bool:
        """Whether a batch with these bounds may have a record that is found."""
        if self.offset is not None and not first_offset <= self.offset < next_offset:
            return False
        return self.from_ms is None or max_timestamp_ms >= self.from_ms

    def matches(self, record: Record) -> bool:
        """Whether a record is found."""
        return (
            (self.offset is None or record.offset == self.offset)
            and (self.from_ms is None or record.timestamp_ms >= self.from_ms)
            and (self.to_ms is None or record.timestamp_ms <= self.to_ms)
            and (self.key is None or self.key in (record.key or b""))
            and (self.value is None or self.value in (record.value or b""))
            and (self.header is None or _has_header(record, self.header))
        )


def _has_header(record: Record, expression: str) -> bool:
    name, with_value, part = expression.partition("=")
    return any(one == name and (not with_value or part.encode() in (value or b"")) for one, value in record.headers)
