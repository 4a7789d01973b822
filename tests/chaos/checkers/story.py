"""Short histories for checker tests.

Each case is a pair of histories that differ by a single fact: the checker that the case names must flag the first, its
smallest bad history, and leave alone the second, the near miss beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.chaos.checkers.shared import Checker
from anabranch.chaos.history import (
    Assigned,
    Callback,
    Commit,
    Delivery,
    EpochWritten,
    History,
    OffsetsFetched,
    OffsetsReset,
    Published,
    ReadStart,
    Send,
    StateWritten,
    Stored,
    ZnodeWritten,
)
from anabranch.chaos.replication_events import HighWatermark
from anabranch.chaos.transaction_events import CommittedRead, Copy, Marker, ProducerInitialized, Transaction
from anabranch.protocol.hashing import murmur2

P, Q = ("t", 0), ("t", 1)
OUT, R = ("out", 0), ("out", 1)
"""Partitions that copiers write to."""
Build = Callable[["Story"], None]


class Story:
    """Builds a history, event by event."""

    def __init__(self) -> None:
        self.history = History()

    def send(
        self, value: str, place: tuple[str, int] = P, offset: int = 0, *, key: str = "k", outcome: str = "ok"
    ) -> Send:
        number = sum(one.key == key for one in self.history.sends)
        row = Send(self.history.tick(), "w", key, number, value, outcome, place, offset)  # type: ignore[arg-type]
        row.acked_order = self.history.tick()
        self.history.sends.append(row)
        return row

    def stored(
        self, value: str, place: tuple[str, int] = P, offset: int = 0, *, key: str = "k", epoch: int = 0
    ) -> Stored:
        row = Stored(place, offset, epoch, key, value)
        self.history.stored.append(row)
        return row

    def begin(self, place: tuple[str, int] = P, offset: int = 0, *, consumer: str = "r", group: int = 1) -> ReadStart:
        run = 1 + sum((one.consumer, one.place) == (consumer, place) for one in self.history.read_starts)
        row = ReadStart(self.history.tick(), consumer, run, place, offset, group)
        self.history.read_starts.append(row)
        return row

    def deliver(
        self,
        value: str,
        place: tuple[str, int] = P,
        offset: int = 0,
        *,
        key: str = "k",
        consumer: str = "r",
        generation: int = 0,
        group: int = 1,
    ) -> Delivery:
        run = sum((one.consumer, one.place) == (consumer, place) for one in self.history.read_starts)
        row = Delivery(self.history.tick(), consumer, run, place, offset, key, value, generation, group)
        self.history.deliveries.append(row)
        return row

    def commit(self, place: tuple[str, int] = P, offset: int = 1, *, group: int = 1, outcome: str = "ok") -> Commit:
        row = Commit(self.history.tick(), "r", {place: offset}, group, outcome)  # type: ignore[arg-type]
        row.acked_order = self.history.tick()
        self.history.commits.append(row)
        return row

    def reset(self, offsets: Mapping[tuple[str, int], int], *, group: str = "g") -> None:
        """An administrator takes a group without members back."""
        self.history.resets.append(OffsetsReset(self.history.tick(), group, offsets, "ok"))

    def delete(self, before: int, place: tuple[str, int] = P, *, only_read: bool = True) -> None:
        """A client deletes records, and the log start moves."""
        self.history.note_deletion(place, before, only_read=only_read)
        self.history.log_starts[place] = before

    def transaction(
        self,
        name: str,
        *copies: tuple[str, str],
        requested_end: str = "commit",
        outcome: str = "ok",
        producer: str = "p",
        offsets: dict[tuple[str, int], int] | None = None,
        group: int = 1,
        final: bool = True,
    ) -> Transaction:
        """One whose copies are (value, source); `log` puts them where they were stored."""
        row = Transaction(
            self.history.tick(),
            name,
            "id",
            producer,
            [Copy(value, source, "k", final) for value, source in copies],
            offsets or {},
            group,
            requested_end=requested_end,  # type: ignore[arg-type]
            outcome=outcome,  # type: ignore[arg-type]
        )
        row.offsets_order, row.offsets_accepted = (self.history.tick(), True) if offsets else (-1, False)
        row.end_order = self.history.tick() if requested_end else -1
        row.ended_order = self.history.tick() if outcome == "ok" else -1
        self.history.transactions.append(row)
        return row

    def log(self, *rows: str | bool, place: tuple[str, int] = OUT, producer: int = 7, coordinator: int = 0) -> None:
        """Values as they follow one another in a log; True and False are the markers that commit and abort."""
        for row in rows:
            offset = sum(one.place == place for one in [*self.history.copied, *self.history.markers])
            if isinstance(row, bool):
                self.history.markers.append(Marker(place, offset, producer, 0, coordinator, row))
            else:
                sequence = sum((one.place, one.producer_id) == (place, producer) for one in self.history.copied)
                self.history.copied.append(Stored(place, offset, 0, "k", row, producer, 0, sequence))

    def read(self, value: str, *, reader: str = "r", transaction: str = "") -> None:
        """A committed record is delivered, from any place of the log."""
        place, offset = next(((one.place, one.offset) for one in self.history.copied if one.value == value), (OUT, 99))
        self.history.committed_reads.append(
            CommittedRead(self.history.tick(), reader, 1, place, offset, value, transaction)
        )

    def producer_initialized(self, producer: str, *, epoch: int = -1) -> None:
        self.history.producers.append(ProducerInitialized(self.history.tick(), "id", producer, epoch))

    def assigned(self, member: str, place: tuple[str, int] = P, *, group: int = 1) -> None:
        self.history.assigned.append(Assigned(self.history.tick(), "copiers", group, member, (place,)))

    def fetched(self, offset: int, place: tuple[str, int] = P) -> OffsetsFetched:
        row = OffsetsFetched(self.history.tick(), self.history.tick(), "copiers", {place: offset})
        self.history.fetched.append(row)
        return row

    def call_back(self, kind: str, place: tuple[str, int], *, consumer: str = "r") -> None:
        self.history.callbacks.append(Callback(self.history.tick(), consumer, kind, (place,)))  # type: ignore[arg-type]

    def high_watermark(
        self, after: int, *, before: int = 0, leads: bool = True, ends: dict[int, int] | None = None
    ) -> None:
        move = HighWatermark(self.history.tick(), 1, 1, P, 0, leads, before, after, ends or {})
        self.history.high_watermarks.append(move)

    def state(
        self, *, leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = (1, 2), place: tuple[str, int] = P
    ) -> StateWritten:
        row = StateWritten(self.history.tick(), place, 0, leader, epoch, isr, 1, session_id=7)
        self.history.states.append(row)
        return row

    def znode(self, path: str, kind: str = "changed", session: int = 7) -> None:
        order = self.history.tick()
        self.history.znodes.append(ZnodeWritten(order, 100 + order, path, kind, session))  # type: ignore[arg-type]

    def in_office(self, session: int = 7, epoch: int = 1) -> None:
        self.history.epochs.append(EpochWritten(self.history.tick(), epoch, session))

    def resized(self, *counts: int) -> None:
        """To these counts, one generation each; base 1."""
        history = tuple(enumerate(counts))
        self.history.published.append(Published(self.history.tick(), "t", 1, history))

    def serves(self, place: tuple[str, int], epoch: int, generation: int, *, sealed: bool = False) -> None:
        row = self.state(place=place, epoch=epoch)
        row.generation, row.sealed = generation, sealed


def key_of(partition: int) -> str:
    """A key that two partitions put into this one."""
    return next(f"k{n}" for n in range(100) if murmur2(f"k{n}".encode()) % 2 == partition)


MOVED = key_of(1)


def split(story: Story, *, first: str = "commit", flush: bool = True, tell: bool = True) -> None:
    """One partition becomes two; a record before and one behind, in the order of the rules unless told otherwise."""
    story.resized(1, 2)
    story.serves(P, 0, 0)
    story.serves(P, 1, 1)
    story.serves(Q, 0, 1)
    story.send("a", P, 0, key=MOVED)
    story.send("b", Q, 0, key=MOVED)
    story.stored("a", P, 0, key=MOVED)
    story.stored("b", Q, 0, key=MOVED)
    story.begin(P)
    story.begin(Q)
    if first == "b":
        story.deliver("b", Q, 0, key=MOVED, generation=1)
    story.deliver("a", P, 0, key=MOVED)
    if flush:
        story.call_back("revoked", P)
    if first == "commit":
        story.commit(P, 1)
    if tell:
        story.call_back("assigned", Q)
    if first != "b":
        story.deliver("b", Q, 0, key=MOVED, generation=1)


def twice(story: Story) -> None:
    story.stored("a", P, 0)
    story.stored("b", P, 1)
    story.send("a", P, 0)
    story.send("b", P, 1)


@dataclass
class Cases:
    """The cases of one module's checkers."""

    checkers: Mapping[str, Checker]
    rows: list[tuple[str, Build, Build]] = field(default_factory=list)

    def __call__(self, checker: str) -> Callable[[Callable[[], tuple[Build, Build]]], None]:
        def enter(make: Callable[[], tuple[Build, Build]]) -> None:
            self.rows.append((checker, *make()))

        return enter

    def pair(self, checker: str, bad: Any, near: Any) -> Callable[[Callable[[Story, Any], object]], None]:
        """Enter a case whose histories differ by one argument."""

        def enter(build: Callable[[Story, Any], object]) -> None:
            self.rows.append((checker, lambda s: build(s, bad), lambda s: build(s, near)))

        return enter

    def told(self, build: Build, checker: str) -> list[str]:
        story = Story()
        build(story)
        return list(self.checkers[checker](story.history))

    def hold(self, checker: str, bad: Build, near: Build) -> None:
        assert self.told(bad, checker)
        assert self.told(near, checker) == []

    def are_complete(self) -> bool:
        return {row[0] for row in self.rows} == self.checkers.keys()
