"""Gaps, steps back, lost commits and zombies: the smallest violation of each checker, and its near miss."""

from __future__ import annotations

import pytest

from anabranch.chaos.checkers.groups import CHECKERS, a24_double_ownership
from tests.chaos.checkers.story import Build, Cases, P, Q, Story, twice

case = Cases(CHECKERS)


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


@case.pair("A7 poll-skip", 1, 0)  # what was deleted has been there, and was skipped
def _(s: Story, position: int) -> None:
    s.send("a", P, position)
    s.stored("b", P, 2)
    s.delete(2)
    s.begin(P, 1)
    s.deliver("b", P, 2)


@case.pair("A7 poll-skip", True, False)
def _(s: Story, only_read: bool) -> None:
    s.send("a", P, 1)
    s.stored("b", P, 2)
    s.delete(2, only_read=only_read)
    s.begin(P, 0)
    s.deliver("b", P, 2)


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


@case.pair("A21 commit-lost", Q, P)
def _(s: Story, place: tuple[str, int]) -> None:
    s.commit(P, 5)
    s.reset({place: 2})
    s.begin(P, 2, group=2)


@case.pair("A21 commit-lost", False, True)
def _(s: Story, answered_later: bool) -> None:
    """A reset may happen after a commit that was sent after its request."""
    s.reset({P: 2})
    s.history.resets[0].answered_order = s.history.tick()
    s.commit(P, 5)
    if answered_later:
        s.history.resets[0].answered_order = s.history.tick()
    s.begin(P, 2, group=2)


@case("A21 commit-lost")
def _() -> tuple[Build, Build]:
    return (
        lambda s: (s.commit(P, 5), s.begin(P, 4, group=2)),
        lambda s: (s.commit(P, 5, outcome="info"), s.begin(P, 4, group=2)),
    )


@case.pair("A21 commit-lost", "r", "another")
def _(s: Story, consumer: str) -> None:  # without a rebalance
    s.commit(P, 5)
    s.begin(P, 4, consumer=consumer)


@case("A48 commit-taken-back")
def _() -> tuple[Build, Build]:
    return (
        lambda s: (s.commit(P, 5), s.commit(P, 4, group=2)),
        lambda s: (s.commit(P, 5), s.commit(P, 4, group=2, outcome="fail"), s.commit(P, 5, group=2)),
    )


@case.pair("A48 commit-taken-back", Q, P)
def _(s: Story, place: tuple[str, int]) -> None:
    s.commit(P, 5)
    s.reset({place: 2})
    s.commit(P, 4, group=2)


@case.pair("A48 commit-taken-back", False, True)
def _(s: Story, before: bool) -> None:
    first, second = s.commit(P, 5), s.commit(P, 4, group=2)
    if before:
        first.acked_order = second.acked_order + 1


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


def test_static_member_may_take_its_place_once_in_a_generation() -> None:
    story = Story()
    story.history.instances |= {"p": "i", "q": "i"}
    story.deliver("a", consumer="p")
    story.deliver("b", P, 1, consumer="q")
    assert list(a24_double_ownership(story.history)) == []
    story.deliver("b", P, 1, consumer="p")
    assert list(a24_double_ownership(story.history)) == [f"{P} in generation 1 is read by q and p"]


@case("A40 late-delivery")
def _() -> tuple[Build, Build]:
    def replaced(s: Story, *, taken_again: int) -> None:
        s.begin(group=1)
        s.begin(consumer="q", group=2)
        s.deliver("a", consumer="q", group=2)
        if taken_again:
            s.begin(group=taken_again)
        s.deliver("a", group=taken_again or 1)

    return lambda s: replaced(s, taken_again=0), lambda s: replaced(s, taken_again=3)


@pytest.mark.parametrize(("checker", "bad", "near"), case.rows)
def test_checker_flags_bad_history_and_not_the_near_miss(checker: str, bad: Build, near: Build) -> None:
    case.hold(checker, bad, near)


def test_every_checker_has_a_case() -> None:
    assert case.are_complete()
