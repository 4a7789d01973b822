"""Torn, aborted, repeated, early and late transactions: the smallest violation of each checker, and its near miss."""

from __future__ import annotations

import pytest

from anabranch.chaos.checkers.transactions import CHECKERS, a36_two_owners, decisions
from tests.chaos.checkers.story import OUT, Build, Cases, P, Q, R, Story

case = Cases(CHECKERS)


@case("A14 circular-reads")
def _() -> tuple[Build, Build]:
    def circle(s: Story, last: str = "x") -> None:
        for name in "xyz":
            s.transaction(name, (f"of {name}", f"source of {name}"))
        s.read("of x", transaction="y")
        s.read("of y", transaction="z")
        s.read("of z", transaction=last)

    return circle, lambda s: circle(s, last="w")


@case("A15 precommitted-read")
def _() -> tuple[Build, Build]:
    return (
        lambda s: (s.transaction("x", ("b", "a")), s.read("b", transaction="x")),
        lambda s: (s.transaction("x", ("b", "a")), s.read("b", transaction="y")),
    )


@case("A16 torn-transaction")
def _() -> tuple[Build, Build]:
    def spread(s: Story, *, second: bool) -> None:
        s.transaction("x", ("b", "a"), ("d", "c"), outcome="info")
        s.log("b", True, place=OUT)
        s.log("d", second, place=R)

    return lambda s: spread(s, second=False), lambda s: spread(s, second=True)


@case("A27 aborted-read-committed")
def _() -> tuple[Build, Build]:
    def read(s: Story, *, commit: bool) -> None:
        s.transaction("x", ("b", "a"), outcome="info")
        s.log("b", commit)
        s.read("b")

    return lambda s: read(s, commit=False), lambda s: read(s, commit=True)


@case("A28 uncommitted-read")
def _() -> tuple[Build, Build]:
    def read(s: Story, *, early: bool) -> None:
        s.log("b", True)
        if early:
            s.read("b")
        s.transaction("x", ("b", "a"))
        if not early:
            s.read("b")

    return lambda s: read(s, early=True), lambda s: read(s, early=False)


@case("A29 exactly-once-copy")
def _() -> tuple[Build, Build]:
    def copied(s: Story, *, second: bool) -> None:
        s.stored("a")
        s.transaction("x", ("b", "a"))
        s.transaction("y", ("c", "a"), requested_end="commit" if second else "abort")
        s.log("b", True, "c", second)

    return lambda s: copied(s, second=True), lambda s: copied(s, second=False)


@case.pair("A30 offset-goes-back", Q, P)
def _(s: Story, place: tuple[str, int]) -> None:
    s.fetched(5)
    s.reset({place: 2}, group="copiers")
    s.fetched(2)


@case("A30 offset-goes-back")
def _() -> tuple[Build, Build]:
    def back(s: Story, *, overlap: bool) -> None:
        first, second = s.fetched(5), s.fetched(4)
        if overlap:  # the second was asked before the first was answered
            first.response_order = second.order + 1
            second.response_order += 1

    return lambda s: back(s, overlap=False), lambda s: back(s, overlap=True)


@case("A31 offsets-lost")
def _() -> tuple[Build, Build]:
    def lost(s: Story, outcome: str) -> None:
        s.transaction("x", offsets={P: 5}, outcome=outcome)
        s.fetched(4)

    return lambda s: lost(s, "ok"), lambda s: lost(s, "info")


@case("A32 offsets-too-early")
def _() -> tuple[Build, Build]:
    return (
        lambda s: (s.fetched(5), s.transaction("x", offsets={P: 5})),
        lambda s: (s.transaction("x", offsets={P: 5}), s.fetched(5)),
    )


@case("A33 copies-out-of-order")
def _() -> tuple[Build, Build]:
    def turned(s: Story, key: str) -> None:
        s.send("a", P, 0)
        s.send("b", Q, 0, key=key)
        s.history.sends[1].sequence = 1
        s.transaction("x", ("copy of b", "b"), ("copy of a", "a"))
        s.log("copy of b", "copy of a", True)

    return lambda s: turned(s, "k"), lambda s: turned(s, "another")


@case("A34 zombie-producer")
def _() -> tuple[Build, Build]:
    def zombie(s: Story, outcome: str) -> None:
        s.producer_initialized("p")
        s.producer_initialized("q")
        s.transaction("x", ("b", "a"), outcome=outcome)

    return lambda s: zombie(s, "ok"), lambda s: zombie(s, "info")


@case.pair("A34 zombie-producer", 4, 2)
def _(s: Story, epoch: int) -> None:  # an earlier producer that hears of its epoch after a later one did
    s.producer_initialized("p", epoch=3)
    s.producer_initialized("q", epoch=epoch)
    s.transaction("x", ("b", "a"))


@case("A35 stale-marker")
def _() -> tuple[Build, Build]:
    def stale(s: Story, producer: int) -> None:
        s.log("a", True, coordinator=2)
        s.log("b", True, coordinator=1, producer=producer)

    return lambda s: stale(s, 7), lambda s: stale(s, 8)


@case("A36 two-owners")
def _() -> tuple[Build, Build]:
    return (
        lambda s: (s.assigned("m"), s.assigned("n")),
        lambda s: (s.assigned("m"), s.assigned("n", group=2), s.assigned("m", Q), s.assigned("m")),
    )


def test_successors_of_a_static_member_are_one_member() -> None:
    story = Story()
    story.history.instances["p"] = "i"
    story.assigned("i-1")
    story.assigned("i-2")
    assert list(a36_two_owners(story.history)) == []
    story.assigned("j-1")
    assert list(a36_two_owners(story.history)) == [f"{P} in generation 1 of copiers belongs to i- and j-1"]


@case("A37 zombie-offsets")
def _() -> tuple[Build, Build]:
    return (
        lambda s: (s.assigned("m", group=2), s.transaction("x", offsets={P: 5}, group=1)),
        lambda s: (s.transaction("x", offsets={P: 5}, group=1), s.assigned("m", group=2)),
    )


@case("A38 committed-skip")
def _() -> tuple[Build, Build]:
    def skip(s: Story, *, commit: bool) -> None:
        s.log("a", True, "b", commit, "c", True)
        s.read("a")
        s.read("c")

    return lambda s: skip(s, commit=True), lambda s: skip(s, commit=False)


@pytest.mark.parametrize(("checker", "bad", "near"), case.rows)
def test_checker_flags_bad_history_and_not_the_near_miss(checker: str, bad: Build, near: Build) -> None:
    case.hold(checker, bad, near)


def test_every_checker_has_a_case() -> None:
    assert case.are_complete()


def test_marker_decides_earlier_records_of_its_producer() -> None:
    story = Story()
    story.log("a")
    story.log("x", producer=8)
    story.log(True, "b", False, "open")
    story.log("elsewhere", place=R)
    story.log(True, producer=8)
    assert decisions(story.history) == {"a": True, "b": False, "x": True}
