"""Maps ids of a recorded cluster (topics, producers, members, sessions) to those of another cluster. Pure.

A recorded request names ids that its cluster has generated; another cluster generates others. The responses of both
clusters to the same request show which ids correspond: id fields at the same place in both. Record batches have a
producer id in their header.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Iterator
from typing import Any, Final

from anabranch.journal.comparison import NAMED
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.crc32c import crc32c
from anabranch.protocol.wire import ZERO_UUID, Kind, fields_of

NONE: Final = (-1, 0, "", None, ZERO_UUID)
IDS: Final = {**{name: kind for name, kind in NAMED.items() if kind != "controller"}, "producer_epoch": "epoch"}
FROM_ZERO: Final = ("producer_id",)
"""Ids for which zero is valid."""
GENERATIONS: Final = ("generation_id", "generation_id_or_member_epoch", "member_epoch")
COUNTED: Final = (*GENERATIONS, "producer_epoch")
OLD: Final = "v3_and_below_"
"""The prefix of fields in old versions of AddPartitionsToTxn."""
PRODUCER_ID_AT: Final = 43
CRC_AT: Final = 17
CHECKED_FROM: Final = 21


class IdMapping:
    """Recorded id -> id in the other cluster."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Any], Any] = {}

    def learn(self, request: Any, recorded: Any, now: Any) -> None:
        """Learn ids from two responses to the same request."""
        scope = _scope(request)
        if getattr(recorded, "error_code", 0) != getattr(now, "error_code", 0):
            return  # but MEMBER_ID_REQUIRED, from both, carries an id
        producers = (getattr(recorded, "producer_id", -1), getattr(recorded, "producer_epoch", -1))
        for name, before, after in _pairs(recorded, now):
            if before in NONE and (before != 0 or IDS.get(name) not in FROM_ZERO) and name not in COUNTED:
                continue
            if name == "producer_epoch":
                self._known["epoch", producers] = after
            elif name in GENERATIONS:
                self._known[f"generation {scope}", before] = after
            else:
                self._known[IDS[name], before] = after

    def translate(self, request: Any) -> Any:
        """A request with the other cluster's ids."""
        return self._struct(request, _scope(request))

    def _struct(self, struct_: Any, scope: str) -> Any:
        made = copy.copy(struct_)
        for field in fields_of(type(struct_)):
            content, name = getattr(struct_, field.name), field.name.removeprefix(OLD)
            if field.struct is not None and content is not None:
                inner = (
                    [self._struct(one, scope) for one in content] if field.is_array else self._struct(content, scope)
                )
                setattr(made, field.name, inner)
            elif field.kind is Kind.RECORDS and content:
                setattr(made, field.name, self._records(bytes(content)))
            elif name == "producer_epoch":
                producer_id = getattr(struct_, field.name.replace("epoch", "id"), -1)
                setattr(made, field.name, self._known.get(("epoch", (producer_id, content)), content))
            elif name in GENERATIONS:
                setattr(made, field.name, self._known.get((f"generation {scope}", content), content))
            elif name in IDS and not field.is_array:
                setattr(made, field.name, self._known.get((IDS[name], content), content))
        return made

    def _records(self, data: bytes) -> bytes:
        """Batches with their producer's current id and epoch."""
        made = bytearray(data)
        try:
            for position, head in iter_batches(data):
                producer = self._known.get(("producer_id", head.producer_id), head.producer_id)
                epoch = self._known.get(("epoch", (head.producer_id, head.producer_epoch)), head.producer_epoch)
                if (producer, epoch) != (head.producer_id, head.producer_epoch):
                    struct.pack_into(">qh", made, position + PRODUCER_ID_AT, producer, epoch)
                    checked = bytes(made[position + CHECKED_FROM : position + head.size_bytes])
                    struct.pack_into(">I", made, position + CRC_AT, crc32c(checked))
        except DecodeError:
            return data  # message sets and invalid bytes have no producer ids
        return bytes(made)


def _scope(request: Any) -> str:
    return str(getattr(request, "group_id", ""))


def _pairs(one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """Field, and its two values, wherever both messages have the same place."""
    if type(one) is not type(other) or not hasattr(type(one), "__slots__"):
        return
    for field in fields_of(type(one)):
        before, after = getattr(one, field.name), getattr(other, field.name)
        if field.struct is not None and before is not None and after is not None:
            yield from _pairs_of_lists(before, after) if field.is_array else _pairs(before, after)
        elif (field.name in IDS or field.name in GENERATIONS) and not field.is_array:
            yield field.name, before, after


def _pairs_of_lists(ones: list[Any], others: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Match rows by name, or by position if they have no name."""
    if ones and all(isinstance(getattr(one, "name", None), str) for one in (*ones, *others)):
        by_name = {one.name: one for one in others}
        for one in ones:
            if one.name in by_name:
                yield from _pairs(one, by_name[one.name])
    elif len(ones) == len(others):
        for one, other in zip(ones, others, strict=True):
            yield from _pairs(one, other)
