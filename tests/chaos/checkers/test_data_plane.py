"""Lost, invented, repeated and moved records: the smallest violation of each checker, and its near miss."""

from __future__ import annotations

import pytest

from anabranch.chaos.checkers.data_plane import CHECKERS
from anabranch.chaos.history import Denied
from anabranch.chaos.replication_events import ReportedEnd
from tests.chaos.checkers.story import Build, Cases, P, Q, Story

case = Cases(CHECKERS)


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


@case.pair("A3 lost-write", True, False)
def _(s: Story, only_read: bool) -> None:
    s.send("a")
    s.deliver("b", P, 1)
    s.delete(1, only_read=only_read)


@case("A4 unseen")
def _() -> tuple[Build, Build]:
    return lambda s: s.send("a"), lambda s: (s.send("a"), s.stored("a"), s.deliver("a"), s.send("b", outcome="info"))


@case("A4 unseen")
def _() -> tuple[Build, Build]:
    return lambda s: s.stored("a"), lambda s: (s.stored("a"), s.deliver("a"))


@case("A4 unseen")
def _() -> tuple[Build, Build]:
    def deleted(s: Story) -> None:
        s.send("a")
        s.delete(1)

    return deleted, lambda s: (s.deliver("a"), deleted(s))


@case.pair("A4 unseen", 4, 5)  # a log that begins behind what was asked for has lost a record
def _(s: Story, before: int) -> None:
    s.send("a", P, 4)
    s.deliver("a", P, 4)
    s.delete(before)
    s.history.log_starts.update({P: 5})


@case.pair("A4 unseen", True, False)
def _(s: Story, for_groups: bool) -> None:
    s.send("a")
    s.delete(1, only_read=for_groups)


@case("A4 unseen")
def _() -> tuple[Build, Build]:
    def of_a_topic_nobody_reads(*stored: str) -> Build:
        def build(s: Story) -> None:
            s.history.unread.add(P[0])
            s.send("a")
            for value in stored:
                s.stored(value)

        return build

    return of_a_topic_nobody_reads(), of_a_topic_nobody_reads("a")


@case.pair("A4 unseen", True, False)
def _(s: Story, only_read: bool) -> None:
    s.stored("a")
    s.delete(1, only_read=only_read)


@case("A5 aborted-read")
def _() -> tuple[Build, Build]:
    return lambda s: (s.send("a", outcome="fail"), s.deliver("a")), lambda s: (
        s.send("a", outcome="info"),
        s.deliver("a"),
    )


@case("A6 phantom")
def _() -> tuple[Build, Build]:
    return lambda s: (s.send("a"), s.deliver("a", key="j")), lambda s: (s.send("a"), s.deliver("a"))


@case("A6 phantom")
def _() -> tuple[Build, Build]:
    return lambda s: s.stored("a"), lambda s: (s.send("a", outcome="info"), s.stored("a"))


@case("A11 nonmonotonic-send")
def _() -> tuple[Build, Build]:
    return lambda s: (s.send("a", P, 1), s.send("b", P, 0)), lambda s: (s.send("a", P, 1), s.send("b", Q, 0))


@case("A17 real-time-order")
def _() -> tuple[Build, Build]:
    def overlap(s: Story) -> None:  # the second began before the first was acknowledged
        one, two = s.send("a", P, 1), s.send("b", P, 0)
        one.acked_order = two.acked_order + 1

    return lambda s: (s.send("a", P, 1), s.send("b", P, 0)), overlap


@case.pair("A18 visible-ack", 5, 6)
def _(s: Story, offset: int) -> None:
    s.state(leader=1, epoch=3)
    s.send("a", P, 5)
    s.send("b", P, 4)  # acknowledged later: what is highest counts
    s.history.reported_ends.append(ReportedEnd(s.history.tick(), 1, P, 3, offset))


@case("A18 visible-ack")
def _() -> tuple[Build, Build]:
    def told_by(node: int, epoch: int) -> Build:
        def build(s: Story) -> None:
            s.state(leader=2, epoch=2)
            s.state(leader=1, epoch=3)
            s.send("a", P, 5)
            s.history.reported_ends.append(ReportedEnd(s.history.tick(), node, P, epoch, 5))

        return build

    return told_by(1, 3), told_by(2, 2)  # deposed, and has not heard of it


@case.pair("A18 visible-ack", 9, 2)  # before it was acknowledged
def _(s: Story, order: int) -> None:
    s.state(leader=1, epoch=0)
    s.send("a", P, 5)
    s.history.reported_ends.append(ReportedEnd(order, 1, P, 0, 5))


@case("A19 immutable-prefix")
def _() -> tuple[Build, Build]:
    return lambda s: s.deliver("a"), lambda s: (s.deliver("a"), s.stored("a"))


@case.pair("A19 immutable-prefix", 5, 6)
def _(s: Story, offset: int) -> None:
    s.deliver("a", P, 5)
    s.delete(offset)


@case("A20 epoch-order")
def _() -> tuple[Build, Build]:
    return (
        lambda s: (s.stored("a", P, 0, epoch=2), s.stored("b", P, 1, epoch=1)),
        lambda s: (s.stored("a", P, 0, epoch=1), s.stored("b", Q, 1, epoch=0)),
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


@case.pair("A25 sequence-gap", 0, 1)  # a new epoch of the producer begins at 0 again
def _(s: Story, epoch: int) -> None:
    one, two = s.stored("a", P, 0), s.stored("b", P, 1)
    one.producer_id = two.producer_id = 9
    one.producer_epoch, two.producer_epoch = 0, epoch
    one.sequence = two.sequence = 0


@case.pair("A25 sequence-gap", False, True)
def _(s: Story, deleted: bool) -> None:
    row = s.stored("c", P, 2)
    row.producer_id, row.producer_epoch, row.sequence = 9, 0, 2
    if deleted:
        s.history.log_starts[P] = 2


@case.pair("A39 undead", 0, 3)
def _(s: Story, offset: int) -> None:
    s.history.gone.add("t~1")
    s.send("a", ("t~1", 0), 0)
    s.stored("a", P, offset)  # elsewhere: a repeated request that was long under way


def may_not_write(client: str, *, acknowledged_in_time: bool = True) -> Build:
    def build(s: Story) -> None:
        span = Denied(s.history.tick(), "w", "WRITE", "t")
        sent = s.send("a")
        sent.producer = f"{client}.1"
        span.until_order = sent.acked_order + acknowledged_in_time
        s.history.denials.append(span)

    return build


@case("A49 served-without-right")
def _() -> tuple[Build, Build]:
    return may_not_write("w"), may_not_write("another")


@case("A49 served-without-right")
def _() -> tuple[Build, Build]:
    """The right may have been back when the record was stored."""
    return may_not_write("w"), may_not_write("w", acknowledged_in_time=False)


@case.pair("A49 served-without-right", False, True)
def _(s: Story, sent_before: bool) -> None:
    """What was sent before may have been fetched before."""
    if sent_before:
        s.send("a")
    span = Denied(s.history.tick(), "r", "READ", "t")
    if not sent_before:
        s.send("a")
    s.deliver("a", consumer="r.2")
    span.until_order = s.history.tick()
    s.history.denials.append(span)


@pytest.mark.parametrize(("checker", "bad", "near"), case.rows)
def test_checker_flags_bad_history_and_not_the_near_miss(checker: str, bad: Build, near: Build) -> None:
    case.hold(checker, bad, near)


def test_every_checker_has_a_case() -> None:
    assert case.are_complete()
