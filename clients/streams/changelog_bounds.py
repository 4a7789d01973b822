"""The bounds of a changelog partition, and the check that a store on disk still belongs to it.

A checkpoint is the part of a changelog that a store holds, and the topic id identifies the changelog. If the changelog
was deleted, recreated or cut off, no other instance can restore the store's state: the store is reset. A resize keeps
the topic id and every offset of the changelog, so it is no reason.

Pure. The bounds have to be looked up after the checkpoint was read: an earlier end does not apply to a checkpoint that
has moved since, as it does when keys move to the store in a resize.
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.protocol.wire import ZERO_UUID

UNKNOWN_TOPIC_ID = frozenset({b"", ZERO_UUID})
"""Stores of earlier versions have no topic id, and old brokers report none."""


class ChangelogBounds(NamedTuple):
    """The start and end of a changelog partition, and the id of its topic."""

    topic_id: bytes
    start: int
    end: int
    """The offset after the last record, whether that is committed, aborted or undecided."""


def reset_reason(
    checkpoint: int, topic_id: bytes, bounds: ChangelogBounds, *, transactional: bool = False
) -> str | None:
    """Return why a store with this checkpoint has to be reset; None while it belongs to its changelog.

    `topic_id` is that of the changelog from which the store was restored, empty if unknown. `transactional`: every
    writer uses transactions, so the last offset can only be a transaction marker. The writer of that transaction has
    its records, and does not read its marker.
    """
    if topic_id not in UNKNOWN_TOPIC_ID and bounds.topic_id not in UNKNOWN_TOPIC_ID and topic_id != bounds.topic_id:
        return "the changelog was deleted and created again"
    if checkpoint > bounds.end:
        return f"the changelog ends at offset {bounds.end}, before the checkpoint {checkpoint}"
    if checkpoint < bounds.start and not (transactional and checkpoint + 1 == bounds.start == bounds.end):
        return f"records from offset {checkpoint} to {bounds.start - 1} were deleted from the changelog"
    return None
