"""Merges the journals of several nodes into one, by the time at which each exchange began.

The number of an exchange is its time and its node in one: microseconds on the front's clock, times `NODES_MAX`, plus
the node's place among the sorted node ids. So numbers grow with time, every query gives an exchange the same number,
and the number leads back to the node. On one machine the order is certain; between machines it is as exact as their
clocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.journal.entry import ExchangeRow

NODES_MAX: Final = 64
US: Final = 1_000_000


def exchange_number(at_s: float, place: int) -> int:
    """The number of an exchange that began at this time, on the node at this place among the sorted ids."""
    return round(at_s * US) * NODES_MAX + place


def place_of(number: int) -> int:
    """The place of an exchange's node among the sorted node ids."""
    return number % NODES_MAX


def merge_journals(
    journals: Mapping[int, Sequence[ExchangeRow]],
    node_ids: Sequence[int],
    offsets_s: Mapping[int, float],
    *,
    after: int = 0,
    until_s: float | None = None,
    limit: int = 0,
) -> list[ExchangeRow]:
    """Merge the exchanges of all nodes.

    Args:
        journals: Node -> its exchanges.
        node_ids: All node ids of the cluster, sorted.
        offsets_s: Node -> the seconds that the front's clock is ahead of the node's; 0 if missing.
        after: Leave out exchanges up to this number.
        until_s: Leave out exchanges that began later, which the journals that were read first cannot have.
        limit: Return only the last ones; 0: all.
    """
    merged: list[ExchangeRow] = []
    for node, rows in journals.items():
        place, offset_s = node_ids.index(node), offsets_s.get(node, 0.0)
        for row in rows:
            at_s = row["at"] + offset_s
            number = exchange_number(at_s, place)
            if number > after and (until_s is None or at_s <= until_s):
                merged.append({**row, "at": round(at_s, 6), "number": number})
    merged.sort(key=lambda row: row["number"])
    return merged[-limit:] if limit else merged
