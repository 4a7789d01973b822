"""Stored records and recorded deliveries, as the judge sees them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Stream = tuple[bytes | int, str]
"""A key and a producer, which numbers the key's records from 0. Records without a key are in order in each partition
alone: the partition stands for the key.
"""


class InvalidLine(ValueError):
    """A line is no record; the message names file and line."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record in a partition's log."""

    partition: int
    offset: int
    key: bytes | None
    sequence: int
    """The record's number among those of its key, from 0."""
    producer: str = ""
    """The producer that numbers the key; empty if there is one alone, or if it is unknown."""
    leader_epoch: int = -1
    """The leader epoch of the record's batch; -1 if it is unknown."""

    @property
    def stream(self) -> Stream:
        """The numbered records to which it belongs."""
        return self.partition if self.key is None else self.key, self.producer


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record that a member of the group received, or that was acknowledged to its producer."""

    partition: int
    offset: int
    key: bytes | None
    sequence: int
    member: str = ""
    generation: int = -1
    """The member's generation of the group; -1 if the application did not record it."""
    producer: str = ""
    assignment: int = 0
    """How often the member had lost the partition before: it may then receive records again in the same generation."""

    @property
    def stream(self) -> Stream:
        """The numbered records to which it belongs."""
        return self.partition if self.key is None else self.key, self.producer


def read_lines(path: Path, *, producers: bool = True) -> Iterator[Delivery]:
    """Read a file of JSON lines: key, sequence, partition, offset, and optionally member, group_generation, assignment
    and producer.

    Raises InvalidLine for another line. Without `producers`, one producer is taken to number each key.
    """
    with path.open("rb") as lines:
        yield from parse_lines(lines, str(path), producers=producers)


def parse_lines(lines: Iterable[str | bytes], name: str, *, producers: bool = True) -> Iterator[Delivery]:
    """Parse JSON lines. Raises InvalidLine."""
    for number, line in enumerate(lines, 1):
        try:
            row: Any = json.loads(line)
            yield Delivery(
                partition=int(row["partition"]),
                offset=int(row["offset"]),
                key=None if row["key"] is None else str(row["key"]).encode(errors="surrogateescape"),
                sequence=int(row["sequence"]),
                member=str(row.get("member", name)),
                generation=int(row.get("group_generation", -1)),
                producer=str(row.get("producer", "")) if producers else "",
                assignment=int(row.get("assignment", 0)),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidLine(f"{name}:{number}: {type(error).__name__}: {error}") from None
