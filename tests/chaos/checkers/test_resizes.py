"""Resizes: the smallest violation of each checker, and its near miss; and the list I0 to I15."""

from __future__ import annotations

import pytest

from anabranch.chaos.checkers import CHECKERS as ALL
from anabranch.chaos.checkers.invariants import INVARIANTS, LIVENESS, PROGRESS
from anabranch.chaos.checkers.resizes import CHECKERS
from anabranch.chaos.resize_events import EpochEndReported, Gated, LetIn, Refused, Retired, Shown, TopicWritten
from anabranch.protocol.lineage import KeyEpoch
from tests.chaos.checkers.story import MOVED, Build, Cases, P, Q, Story, split

case = Cases(CHECKERS)
Plan = tuple[int, int, int]


def topic(
    s: Story,
    generation: int,
    count: int,
    plan: Plan | None = None,
    *,
    indices: tuple[int, ...] = (0, 1),
    has_generations: bool = False,
    topic_id: str = "",
) -> None:
    row = TopicWritten(s.history.tick(), "t", generation, 1, 1, count, plan, indices, {}, has_generations, topic_id)
    s.history.resizes.topics.append(row)


def retired(
    s: Story,
    place: tuple[str, int] = P,
    *,
    epoch: int = 3,
    end: int = 5,
    sealed: bool = True,
    log: tuple[int, int, int] = (5, 5, 5),
) -> None:
    s.history.resizes.retired.append(Retired(s.history.tick(), place, epoch, end, 1, sealed, {1: log}))


@case.pair("B14 boundary-moved", 5, 6)
def _(s: Story, end: int) -> None:
    s.history.resizes.boundaries.append(EpochEndReported(s.history.tick(), 2, P, 4, 3, end))
    s.stored("a", P, 5, epoch=3)


@case.pair("B15 replay-order", False, True)
def _(s: Story, younger_too: bool) -> None:
    split(s)
    if younger_too:
        s.begin(Q)
    s.begin(P)
    s.deliver("a", P, 0, key=MOVED)


@case.pair("B15 replay-order", True, False)
def _(s: Story, only_read: bool) -> None:
    split(s)
    s.history.resizes.retired.append(Retired(s.history.tick(), P, 1, 1, 1, True, {}))
    s.delete(1, only_read=only_read)
    s.begin(P)
    s.deliver("a", P, 0, key=MOVED)


@case.pair("B15 replay-order", "r", "s")
def _(s: Story, consumer: str) -> None:  # who lost the partition without knowing may repeat what it had read
    split(s)
    s.begin(P, 1, consumer="s")
    s.begin(P, 0, consumer="r")
    if consumer == "s":
        s.begin(P, 1, consumer="s")
    s.deliver("a", P, 0, key=MOVED)


@case("B15 replay-order")
def _() -> tuple[Build, Build]:
    def taken_back(*places: tuple[str, int]) -> Build:
        def build(s: Story) -> None:
            split(s)
            s.reset(dict.fromkeys(places, 0))
            s.begin(P)
            s.deliver("a", P, 0, key=MOVED)

        return build

    return taken_back(P), taken_back(P, Q)  # alone, or with its lineage


@case.pair("B15 replay-order", True, False)
def _(s: Story, with_lineage: bool) -> None:  # deleting an offset resets only its partition
    split(s)
    s.reset({P: 0})
    s.history.resets[-1].with_lineage = with_lineage
    s.begin(P)
    s.deliver("a", P, 0, key=MOVED)


@case.pair("B15 replay-order", False, True)
def _(s: Story, removed_before: bool) -> None:
    split(s)  # what is removed by then cannot be taken back, what is removed later could
    if removed_before:
        retired(s, Q, end=1)
    s.reset({P: 0})
    if not removed_before:
        retired(s, Q, end=1)
    s.begin(P)
    s.deliver("a", P, 0, key=MOVED)


@case.pair("B15 replay-order", 0, 1)
def _(s: Story, end: int) -> None:  # an index that is used again begins where its earlier life ended
    split(s)
    retired(s, Q, end=end)
    s.reset({P: 0})
    s.begin(P)
    s.deliver("a", P, 0, key=MOVED)


@case.pair("B15 replay-order", False, True)
def _(s: Story, reset: bool) -> None:  # a removal alone takes nothing back
    split(s)
    retired(s, Q, end=1)
    if reset:
        s.reset({P: 0})
    s.begin(P)
    s.deliver("a", P, 0, key=MOVED)


@case("B16 generation-falls")
def _() -> tuple[Build, Build]:
    def epochs(first: int, second: int) -> Build:
        return lambda s: (s.stored("a", P, 0, epoch=first), s.stored("b", P, 1, epoch=second))

    return epochs(2, 1), epochs(1, 2)


@case("B17 index-reused")
def _() -> tuple[Build, Build]:
    return (
        lambda s: (retired(s), s.stored("a", P, 4, epoch=4)),
        lambda s: (retired(s), s.stored("a", P, 5, epoch=4)),
    )


@case("B17 index-reused")
def _() -> tuple[Build, Build]:
    return lambda s: (retired(s), s.state(epoch=3)), lambda s: (retired(s), s.state(epoch=4))


@case.pair("B18 shown-too-early", 1, 0)
def _(s: Story, epoch: int) -> None:
    s.serves(P, 0, 0)
    s.serves(P, 1, 1)
    s.history.resizes.shown.append(Shown(s.history.tick(), "c", "t", 0, {0: epoch}))


@case.pair("B18 shown-too-early", "new", "old")
def _(s: Story, topic_id: str) -> None:
    """A topic of this name was deleted, and partition 1 of the new one was added by its first resize."""
    s.serves(P, 0, 1)
    s.history.states[-1].topic_id = "new"
    s.history.resizes.shown.append(Shown(s.history.tick(), "c", "t", 0, {0: 0}, topic_id))


@case("B19 removed-too-early")
def _() -> tuple[Build, Build]:
    return lambda s: retired(s, sealed=False), retired


@case("B19 removed-too-early")
def _() -> tuple[Build, Build]:
    return lambda s: retired(s, log=(5, 5, 4)), retired  # a transaction is open


@case.pair("B19 removed-too-early", 4, 5)  # the latter is in the next life of the index
def _(s: Story, offset: int) -> None:
    retired(s)
    s.send("a", P, offset)


@case.pair("B20 unaffected-touched", 1, 0)
def _(s: Story, index: int) -> None:  # 2 -> 3 moves keys of partition 0 only
    s.state(place=("t", index))
    topic(s, 0, 2, (1, 2, 3))
    s.serves(("t", index), 1, 1)


@case.pair("B20 unaffected-touched", "t", "an earlier one")
def _(s: Story, topic_id: str) -> None:
    """A topic of this name was deleted, whose first resize moved other keys (seed 2876)."""
    s.state(place=("t", 1))
    topic(s, 0, 2, (1, 2, 3))
    s.history.resizes.topics[-1].topic_id = topic_id
    s.serves(("t", 1), 1, 1)
    for state in s.history.states:
        state.topic_id = "t"


@case.pair("B20 unaffected-touched", 3, 4)
def _(s: Story, count: int) -> None:
    s.state(place=Q)
    topic(s, 0, 2, (1, 2, count))
    s.state(place=Q, epoch=1)
    topic(s, 1, count)


@case.pair("B20 unaffected-touched", 1, 0)
def _(s: Story, index: int) -> None:
    s.resized(1, 2, 3)
    s.history.resizes.refused.append(Refused(s.history.tick(), 1, ("t", index), 1, 2, False))


@case.pair("B20 unaffected-touched", KeyEpoch(0, 1), KeyEpoch(2, 1))
def _(s: Story, key_epoch: KeyEpoch) -> None:
    s.resized(2, 3)
    s.history.resizes.gated.append(Gated(s.history.tick(), "r", "t", key_epoch))


@case("B21 step-repeated")
def _() -> tuple[Build, Build]:
    def generations(*served: int) -> Build:
        return lambda s: [s.serves(P, epoch, generation) for epoch, generation in enumerate(served)] and None

    return generations(0, 1, 0), generations(0, 1, 1, 2)


@case.pair("B21 step-repeated", "one", "another")
def _(s: Story, topic_id: str) -> None:
    for generation, identity in ((0, "one"), (1, "one"), (0, topic_id)):
        row = s.state(place=P, epoch=generation)
        row.generation, row.topic_id = generation, identity


@case.pair("B21 step-repeated", (2, 1, 2), (1, 1, 2))
def _(s: Story, plan: Plan) -> None:
    topic(s, 0, 1)
    topic(s, 0, 1, plan)
    topic(s, 1, 2)


@case.pair("B21 step-repeated", "one", "another")
def _(s: Story, topic_id: str) -> None:
    topic(s, 0, 1, (1, 1, 2), topic_id="one")
    topic(s, 1, 2, topic_id="one")
    topic(s, 0, 1, topic_id=topic_id)


@case("B21 step-repeated")
def _() -> tuple[Build, Build]:
    return lambda s: (retired(s), retired(s)), lambda s: (retired(s), retired(s, epoch=4))


@case.pair("B22 legacy-touched", None, (1, 2, 1))
def _(s: Story, plan: Plan | None) -> None:
    topic(s, 0, 2, plan)
    s.serves(P, 1, 1, sealed=True)


def let_in(s: Story, *, has_generations: bool, generation: int = 1, policy: str = "auto") -> None:
    s.history.resizes.let_in.append(LetIn(s.history.tick(), 1, P, has_generations, generation, policy))


@case("B23 mark-late")
def _() -> tuple[Build, Build]:
    def late(s: Story) -> None:
        topic(s, 0, 1)
        let_in(s, has_generations=True, generation=0)
        topic(s, 0, 1, has_generations=True)

    def in_time(s: Story) -> None:
        topic(s, 0, 1)
        let_in(s, has_generations=False, generation=0)
        topic(s, 0, 1, has_generations=True)
        let_in(s, has_generations=True, generation=0)

    return late, in_time


@case.pair("B23 mark-late", False, True)
def _(s: Story, has_generations: bool) -> None:
    topic(s, 0, 1, has_generations=True)
    topic(s, 0, 1, (1, 1, 2), has_generations=has_generations)


@case.pair("B23 mark-late", "one", "another")
def _(s: Story, topic_id: str) -> None:
    topic(s, 0, 1, has_generations=True, topic_id="one")
    topic(s, 0, 1, topic_id=topic_id)


@case.pair("B24 outsider-let-in", True, False)
def _(s: Story, has_generations: bool) -> None:
    topic(s, 0, 1, (1, 1, 2), has_generations=has_generations)
    topic(s, 1, 2, has_generations=True)
    let_in(s, has_generations=False)


@case("B24 outsider-let-in")
def _() -> tuple[Build, Build]:
    def by(policy: str, generation: int = 1) -> Build:
        return lambda s: let_in(s, has_generations=False, policy=policy, generation=generation)

    return by("refuse"), lambda s: (by("refuse", 0)(s), by("allow")(s), by("verify")(s))


@pytest.mark.parametrize(("checker", "bad", "near"), case.rows)
def test_checker_flags_bad_history_and_not_the_near_miss(checker: str, bad: Build, near: Build) -> None:
    case.hold(checker, bad, near)


def test_every_checker_has_a_case() -> None:
    assert case.are_complete()


def test_resize_invariants_and_checkers_correspond() -> None:
    assert [one.name.split()[0] for one in INVARIANTS] == [
        "I0", "I1", "I2", "I3", "I4", "I4'", *(f"I{n}" for n in range(5, 16)),
    ]  # fmt: skip
    named = {checker for one in INVARIANTS for checker in one.checkers}
    assert named <= {*ALL, PROGRESS, LIVENESS}
    assert named >= CHECKERS.keys()


def test_history_without_events_is_no_evidence() -> None:
    assert [one.name for one in INVARIANTS if one.evidence(Story().history)] == []
