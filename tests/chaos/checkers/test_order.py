"""Order across resizes: the smallest violation of each checker, and its near miss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.chaos.checkers.order import CHECKERS
from anabranch.chaos.history import Callback, Died, Seen
from anabranch.chaos.resize_events import Retired
from tests.chaos.checkers.story import MOVED, Build, Cases, P, Q, Story, split, twice

case = Cases(CHECKERS)


@case("B1 key-order")
def _() -> tuple[Build, Build]:
    def other_keys(s: Story) -> None:
        s.send("a", P, 0, key="x")
        s.send("b", P, 1, key="y")
        s.deliver("b", P, 1, key="y")
        s.deliver("a", P, 0, key="x")

    return lambda s: split(s, first="b"), other_keys


@case.pair("B1 key-order", True, False)
def _(s: Story, only_read: bool) -> None:
    s.history.resizes.retired.append(Retired(s.history.tick(), P, 1, 1, 1, True, {}))
    s.delete(1, only_read=only_read)
    split(s, first="b")


@case("B2 early-open")
def _() -> tuple[Build, Build]:
    return lambda s: split(s, first="no commit"), split


@case.pair("B2 early-open", False, True)
def _(s: Story, committed: bool) -> None:  # who is taken back waits once more
    split(s)
    s.reset({P: 0, Q: 0})
    if committed:
        s.commit(P, 1)
    s.deliver("b", Q, 0, key=MOVED, generation=1)


@case("B3 misrouted")
def _() -> tuple[Build, Build]:
    def wrong(s: Story) -> None:
        split(s)
        s.stored("c", P, 1, key=MOVED, epoch=1)

    return wrong, split


@case.pair("B4 write-after-seal", 3, 2)
def _(s: Story, epoch: int) -> None:
    s.serves(P, 3, 1, sealed=True)
    s.stored("a", P, 0, epoch=epoch)


@case.pair("B6 regress", "n", "m")
def _(s: Story, process: str) -> None:
    s.history.seen.extend([Seen(1, "n", "generation", 3), Seen(2, process, "generation", 2)])


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


@case.pair("B12 callbacks", True, False)
def _(s: Story, only_read: bool) -> None:  # its other records were deleted with it before the group had read them
    s.history.resizes.retired.append(Retired(s.history.tick(), P, 1, 2, 1, True, {}))
    s.delete(2, only_read=only_read)
    split(s, flush=False)


@case.pair("B12 callbacks", "revoked", "lost")
def _(s: Story, kind: str) -> None:  # the group went on without it, and the partition was removed meanwhile
    split(s, flush=False)
    s.history.callbacks.append(Callback(s.history.tick(), "r", kind, (P,)))


@case("B13 log-order")
def _() -> tuple[Build, Build]:
    def backwards(s: Story) -> None:
        split(s)
        s.history.sends.reverse()

    return backwards, split


@case.pair("B13 log-order", "k", "j")
def _(s: Story, other: str) -> None:
    s.send("a", P, 1)
    s.send("b", P, 0, key=other)
    s.stored("a", P, 1)
    s.stored("b", P, 0, key=other)


@case.pair("B3 misrouted", True, False)
def _(s: Story, ordered: bool) -> None:
    split(s)
    s.send("stock", P, 9, key=MOVED)
    s.history.sends[-1] = replace(s.history.sends[-1], ordered=ordered)
    s.stored("stock", P, 9, key=MOVED, epoch=9)


@case.pair("B13 log-order", True, False)
def _(s: Story, ordered: bool) -> None:
    for value, offset in (("a", 1), ("b", 0)):
        s.send(value, P, offset)
        s.history.sends[-1] = replace(s.history.sends[-1], ordered=ordered)
        s.stored(value, P, offset)


@pytest.mark.parametrize(("checker", "bad", "near"), case.rows)
def test_checker_flags_bad_history_and_not_the_near_miss(checker: str, bad: Build, near: Build) -> None:
    case.hold(checker, bad, near)


def test_every_checker_has_a_case() -> None:
    assert case.are_complete()
