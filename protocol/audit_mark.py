"""The mark of an audited record: a header with its producer, and its number among the records of its key (D12).

The producer numbers the records of each key from 0; after a record that fails or is aborted it does so under another
identity, as another producer would (`clients.producer.audit_marks`).
"""

from __future__ import annotations

import struct
from typing import Final

from anabranch.protocol.errors import DecodeError

HEADER: Final = "anabranch-audit"
"""The record header that an auditing producer adds."""

NO_SEQUENCE: Final = (1 << 64) - 1
NO_PRODUCER: Final = 0
_mark: Final = struct.Struct(">QQ")
MARK_BYTES: Final = _mark.size
NO_MARK: Final = _mark.pack(NO_PRODUCER, NO_SEQUENCE)
"""In place of the header of a record without a number."""


def encode(producer: int, sequence: int) -> bytes:
    """Encode the audit header of one record: its producer, and its number among the records of its key."""
    return _mark.pack(producer, sequence)


def decode(data: bytes) -> tuple[int, int]:
    """Decode an audit header into (producer, sequence). Raises DecodeError."""
    if len(data) != _mark.size:
        raise DecodeError(f"audit header: {len(data)} bytes where {_mark.size} belong")
    producer, sequence = _mark.unpack(data)
    return producer, sequence


def sound_mark(header: bytes | None) -> bytes:
    """Return a record's audit header as used by events and the audit: NO_MARK for a missing or damaged one, which
    counts as a producer that does not number. Of several headers the newest counts.
    """
    return header if header is not None and len(header) == MARK_BYTES else NO_MARK
