"""Every checker flags its smallest bad history, and leaves alone the near miss beside it.

Each case is one history that differs from a good one by a single fact. The bad one must be flagged by the checker that
the case names; the near miss by no checker of that name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from chaos.checkers import CHECKERS, judge
from chaos.history import (
    Acked,
    Begun,
    Callback,
    Commit,
    Delivery,
    Died,
    EpochWritten,
    HighWatermark,
    History,
    Led,
    Proposed,
    Published,
    Seen,
    Send,
    StateWritten,
    Stored,
    Truncated,
)
from protocol.hashing import murmur2

P, Q = ("t", 0), ("t", 1)
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

    def begin(self, place: tuple[str, int] = P, offset: int = 0, *, consumer: str = "r", group: int = 1) -> Begun:
        run = 1 + sum((one.consumer, one.place) == (consumer, place) for one in self.history.begun)
        row = Begun(self.history.tick(), consumer, run, place, offset, group)
        self.history.begun.append(row)
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
        run = sum((one.consumer, one.place) == (consumer, place) for one in self.history.begun)
        row = Delivery(self.history.tick(), consumer, run, place, offset, key, value, generation, group)
        self.history.deliveries.append(row)
        return row

    def commit(self, place: tuple[str, int] = P, offset: int = 1, *, group: int = 1, outcome: str = "ok") -> Commit:
        row = Commit(self.history.tick(), "r", {place: offset}, group, outcome)  # type: ignore[arg-type]
        row.acked_order = self.history.tick()
        self.history.commits.append(row)
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


def good(story: Story) -> None:
    """Everything at once, as it should be."""
    story.in_office()
    split(story)
    story.history.high_watermarks.insert(0, HighWatermark(0, 1, 1, P, 0, True, 0, 1, {1: 1, 2: 1}))
    story.history.high_watermarks.insert(0, HighWatermark(0, 1, 1, Q, 0, True, 0, 1, {1: 1}))


def twice(story: Story) -> None:
    story.stored("a", P, 0)
    story.stored("b", P, 1)
    story.send("a", P, 0)
    story.send("b", P, 1)


CASES: dict[str, list[tuple[Build, Build]]] = {}


def case(checker: str) -> Callable[[Callable[[], tuple[Build, Build]]], None]:
    def enter(make: Callable[[], tuple[Build, Build]]) -> None:
        CASES.setdefault(checker, []).append(make())

    return enter


@case("A1 inconsistent-offsets")
def _() -> tuple[Build, Build]:
    return lambda s: (s.deliver("a"), s.stored("b")), lambda s: (s.deliver("a"), s.stored("a"), s.stored("b", Q))


@case("A1 inconsistent-offsets")
def _() -> tuple[Build, Build]:
    return lambda s: (s.send("a"), s.deliver("b")), lambda s: (s.send("a", outcome="info"), s.deliver("b"))


@case("A2 duplicate")
def _() -> tuple[Build, Build]:
    return lambda s: (s.stored("a"), s.stored("a", Q)), lambda s: (s.stored("a"), s.deliver("a"), s.deliver("a"))


@case("A3 lost-write")
def _() -> tuple[Build, Build]:
    return lambda s: (s.send("a"), s.deliver("b", P, 1)), lambda s: (s.send("a", outcome="info"), s.deliver("b", P, 1))


@case("A4 unseen")
def _() -> tuple[Build, Build]:
    return lambda s: s.send("a"), lambda s: (s.send("a"), s.stored("a"), s.deliver("a"), s.send("b", outcome="info"))


@case("A4 unseen")
def _() -> tuple[Build, Build]:
    return lambda s: s.stored("a"), lambda s: (s.stored("a"), s.deliver("a"))


@case("A5 aborted-read")
def _() -> tuple[Build, Build]:
    return lambda s: (s.send("a", outcome="fail"), s.deliver("a")), lambda s: (
        s.send("a", outcome="info"),
        s.deliver("a"),
    )


@case("A6 phantom")
def _() -> tuple[Build, Build]:
    return lambda s: (s.send("a"), s.deliver("a", key="j")), lambda s: (s.send("a"), s.deliver("a"))


@case("A7 poll-skip")
def _() -> tuple[Build, Build]:
    def skip(s: Story) -> None:
        twice(s)
        s.begin()
        s.deliver("b", P, 1)

    def gap(s: Story) -> None:  # nothing is stored in between: compaction, or a control batch
        s.stored("a", P, 0)
        s.stored("b", P, 2)
        s.begin()
        s.deliver("a", P, 0)
        s.deliver("b", P, 2)

    return skip, gap


@case("A9 nonmonotonic-poll")
def _() -> tuple[Build, Build]:
    def back(s: Story) -> None:
        s.begin()
        s.deliver("a", P, 0)
        s.deliver("a", P, 0)

    def again(s: Story) -> None:  # another run: it was rebalanced, and reads again what was not committed
        s.begin()
        s.deliver("a", P, 0)
        s.begin()
        s.deliver("a", P, 0)

    return back, again


@case("A11 nonmonotonic-send")
def _() -> tuple[Build, Build]:
    return lambda s: (s.send("a", P, 1), s.send("b", P, 0)), lambda s: (s.send("a", P, 1), s.send("b", Q, 0))


@case("A17 real-time-order")
def _() -> tuple[Build, Build]:
    def overlap(s: Story) -> None:  # the second began before the first was acknowledged
        one, two = s.send("a", P, 1), s.send("b", P, 0)
        one.acked_order = two.acked_order + 1

    return lambda s: (s.send("a", P, 1), s.send("b", P, 0)), overlap


@case("A18 delivered-unsafe")
def _() -> tuple[Build, Build]:
    return lambda s: (s.high_watermark(1), s.deliver("b", P, 1)), lambda s: (s.high_watermark(2), s.deliver("b", P, 1))


@case("A20 epoch-order")
def _() -> tuple[Build, Build]:
    return (
        lambda s: (s.stored("a", P, 0, epoch=2), s.stored("b", P, 1, epoch=1)),
        lambda s: (s.stored("a", P, 0, epoch=1), s.stored("b", Q, 1, epoch=0)),
    )


@case("A21 commit-lost")
def _() -> tuple[Build, Build]:
    return (
        lambda s: (s.commit(P, 5), s.begin(P, 4, group=2)),
        lambda s: (s.commit(P, 5, outcome="info"), s.begin(P, 4, group=2)),
    )


@case("A22 zombie-commit")
def _() -> tuple[Build, Build]:
    return (
        lambda s: (s.begin(group=2), s.commit(P, 5, group=1)),
        lambda s: (s.begin(group=2), s.commit(P, 5, group=1, outcome="fail")),
    )


@case("A23 skipped-delivery")
def _() -> tuple[Build, Build]:
    return lambda s: (twice(s), s.deliver("a"), s.commit(P, 2)), lambda s: (twice(s), s.deliver("a"), s.commit(P, 1))


@case("A24 double-ownership")
def _() -> tuple[Build, Build]:
    return (
        lambda s: (s.deliver("a"), s.deliver("b", P, 1, consumer="q")),
        lambda s: (s.deliver("a"), s.deliver("b", P, 1, consumer="q", group=2)),
    )


@case("A25 sequence-gap")
def _() -> tuple[Build, Build]:
    def sequences(*numbers: int) -> Build:
        def build(s: Story) -> None:
            for offset, number in enumerate(numbers):
                row = s.stored(f"v{offset}", P, offset)
                row.producer_id, row.producer_epoch, row.sequence = 9, 0, number

        return build

    return sequences(0, 2), sequences(0, 1)


@case("B1 key-order")
def _() -> tuple[Build, Build]:
    def other_keys(s: Story) -> None:
        s.send("a", P, 0, key="x")
        s.send("b", P, 1, key="y")
        s.deliver("b", P, 1, key="y")
        s.deliver("a", P, 0, key="x")

    return lambda s: split(s, first="b"), other_keys


@case("B2 early-open")
def _() -> tuple[Build, Build]:
    return lambda s: split(s, first="no commit"), split


@case("B3 misrouted")
def _() -> tuple[Build, Build]:
    def wrong(s: Story) -> None:
        split(s)
        s.stored("c", P, 1, key=MOVED, epoch=1)

    return wrong, split


@case("B4 write-after-seal")
def _() -> tuple[Build, Build]:
    def sealed(epoch: int) -> Build:
        return lambda s: (s.serves(P, 3, 1, sealed=True), s.stored("a", P, 0, epoch=epoch))

    return sealed(3), sealed(2)


@case("B5 log-order")
def _() -> tuple[Build, Build]:
    def backwards(s: Story) -> None:
        split(s)
        s.history.sends.reverse()

    return backwards, split


@case("B6 regress")
def _() -> tuple[Build, Build]:
    def see(process: str) -> Build:
        return lambda s: s.history.seen.extend([Seen(1, "n", "generation", 3), Seen(2, process, "generation", 2)])

    return see("n"), see("m")


@case("B9 illegal-replay")
def _() -> tuple[Build, Build]:
    return lambda s: (twice(s), s.begin(P, 1)), lambda s: (twice(s), s.deliver("a"), s.begin(P, 1))


@case("B12 callbacks")
def _() -> tuple[Build, Build]:
    return lambda s: split(s, flush=False), split


@case("B12 callbacks")
def _() -> tuple[Build, Build]:
    def died(s: Story) -> None:  # it cannot flush any more, and what it held is gone
        split(s, flush=False)
        after = s.history.deliveries[0].order
        s.history.died.append(Died(after, "r"))
        s.history.deliveries[0] = replace(s.history.deliveries[0], order=after - 1)

    return lambda s: split(s, tell=False), died


@case("C1 leader-in-isr")
def _() -> tuple[Build, Build]:
    return lambda s: s.state(leader=3), lambda s: s.state(leader=-1)


@case("C2 strong-isr")
def _() -> tuple[Build, Build]:
    return lambda s: s.high_watermark(5, ends={1: 5, 2: 4}), lambda s: s.high_watermark(5, ends={1: 5, 2: 5, 3: -1})


@case("C5 high-watermark-back")
def _() -> tuple[Build, Build]:
    return lambda s: s.high_watermark(4, before=5), lambda s: s.high_watermark(5, before=4)


@case("C5 high-watermark-back")
def _() -> tuple[Build, Build]:
    def cut(offset: int) -> Build:
        return lambda s: s.history.truncations.append(Truncated(1, 1, P, 0, offset, 5))

    return cut(4), cut(5)


@case("C6 epochs")
def _() -> tuple[Build, Build]:
    return lambda s: (s.state(epoch=2), s.state(epoch=1)), lambda s: (s.state(epoch=1), s.state(epoch=1, isr=(1,)))


@case("C6 epochs")
def _() -> tuple[Build, Build]:
    def led(second: int) -> Build:
        return lambda s: s.history.led.extend([Led(1, 1, 1, P, 4), Led(2, second, 1, P, 4)])

    return led(2), led(1)


@case("C8 early-join")
def _() -> tuple[Build, Build]:
    def proposed(end: int) -> Build:
        return lambda s: s.history.proposals.append(Proposed(1, P, (2, 3), {}, {2: 1, 3: 1}, 5, {2: end, 3: -1}))

    return proposed(4), proposed(5)


@case("C9 unfit-isr")
def _() -> tuple[Build, Build]:
    def proposed(named: int) -> Build:
        return lambda s: s.history.proposals.append(Proposed(1, P, (2,), {2: named}, {2: 30}))

    return proposed(20), proposed(-1)


@case("C11 stale-controller")
def _() -> tuple[Build, Build]:
    return lambda s: (s.in_office(7), s.in_office(8, 2), s.state()), lambda s: (
        s.in_office(7),
        s.state(),
        s.in_office(8, 2),
    )


@case("C13 unsafe-ack")
def _() -> tuple[Build, Build]:
    def ack(isr: tuple[int, ...], end: int) -> Build:
        return lambda s: s.history.acks.append(Acked(1, 1, P, 5, isr, {1: 5, 2: end}, 2))

    return ack((1, 2), 4), ack((1, 2), 5)


@case("C13 unsafe-ack")
def _() -> tuple[Build, Build]:
    def ack(isr: tuple[int, ...]) -> Build:
        return lambda s: s.history.acks.append(Acked(1, 1, P, 5, isr, {1: 5}, 2))

    return ack((1,)), ack((1, 2))


@case("C16 replicas-differ")
def _() -> tuple[Build, Build]:
    return (
        lambda s: s.history.replicas.update({P: {1: b"ab", 2: b"ac"}}),
        lambda s: s.history.replicas.update({P: {1: b"ab", 2: b"ab"}}),
    )


def told(build: Build, checker: str) -> list[str]:
    story = Story()
    build(story)
    return list(CHECKERS[checker](story.history))


@pytest.mark.parametrize(
    ("checker", "bad", "near"), [(name, bad, near) for name, rows in CASES.items() for bad, near in rows]
)
def test_a_checker_flags_its_bad_history_and_not_the_near_miss(checker: str, bad: Build, near: Build) -> None:
    assert told(bad, checker)
    assert told(near, checker) == []


def test_every_checker_has_a_case() -> None:
    assert CASES.keys() == CHECKERS.keys()


def test_a_good_history_is_flagged_by_nobody() -> None:
    story = Story()
    good(story)
    assert judge(story.history) == []


def test_an_incomplete_run_is_judged_by_what_brokers_did_alone() -> None:
    """Without the final logs nobody can say what was lost; what the brokers believed is still judged."""
    story = Story()
    story.send("a")
    story.state(leader=3)
    story.history.complete = False
    assert [line.partition(":")[0] for line in judge(story.history)] == ["C1 leader-in-isr", "C11 stale-controller"]
