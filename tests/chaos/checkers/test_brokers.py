"""Beliefs of brokers and controllers: the smallest violation of each checker, and its near miss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.chaos.checkers.brokers import CHECKERS
from anabranch.chaos.history import ZnodeWritten
from anabranch.chaos.replication_events import (
    Acked,
    Admitted,
    DeletionRequested,
    IsrAnswered,
    IsrRequest,
    IsrVersion,
    Led,
    Proposed,
    Stray,
    Truncated,
)
from anabranch.controller.zk import paths
from tests.chaos.checkers.story import Build, Cases, P, Story

case = Cases(CHECKERS)


@case("C1 leader-in-isr")
def _() -> tuple[Build, Build]:
    return lambda s: s.state(leader=3), lambda s: s.state(leader=-1)


@case("C2 strong-isr")
def _() -> tuple[Build, Build]:
    return lambda s: s.high_watermark(5, ends={1: 5, 2: 4}), lambda s: s.high_watermark(5, ends={1: 5, 2: 5, 3: -1})


@case.pair("C2 strong-isr", True, False)
def _(s: Story, leads: bool) -> None:  # a follower's is behind its leader's, whatever the others have
    s.high_watermark(5, leads=leads, ends={1: 5, 2: 4})


@case("C5 high-watermark-back")
def _() -> tuple[Build, Build]:
    return lambda s: s.high_watermark(4, before=5), lambda s: s.high_watermark(5, before=4)


@case.pair("C5 high-watermark-back", 4, 5)
def _(s: Story, offset: int) -> None:
    s.history.truncations.append(Truncated(1, 1, P, 0, offset, 5))


@case("C6 epochs")
def _() -> tuple[Build, Build]:
    return lambda s: (s.state(epoch=2), s.state(epoch=1)), lambda s: (s.state(epoch=1), s.state(epoch=1, isr=(1,)))


@case.pair("C6 epochs", 2, 1)
def _(s: Story, second: int) -> None:
    s.history.led.extend([Led(1, 1, 1, P, 4), Led(2, second, 1, P, 4)])


@case.pair("C6 epochs", "x", "y")  # deleted and made again
def _(s: Story, second: str) -> None:
    for topic_id, epoch in (("x", 3), (second, 0)):
        s.state(epoch=epoch).topic_id = topic_id
        s.history.led.append(Led(s.history.tick(), 1 + epoch, 1, P, 7, topic_id))


@case.pair("C7 epoch-lineage", 1, 2)
def _(s: Story, second: int) -> None:
    s.history.epoch_caches.update({P: {1: ((0, 0), (2, 5)), 2: ((0, 0), (second, 5))}})


@case.pair("C8 early-join", 4, 5)
def _(s: Story, end: int) -> None:
    s.history.proposals.append(Proposed(1, P, (2, 3), {}, {2: 1, 3: 1}, 5, {2: end, 3: -1}))


@case.pair("C9 unfit-isr", 20, -1)
def _(s: Story, named: int) -> None:
    s.history.proposals.append(Proposed(1, P, (2,), {2: named}, {2: 30}))


@case("C10 isr-changes")
def _() -> tuple[Build, Build]:
    def asked(first_heard: int) -> Build:
        rows = [IsrRequest(1, 1, 1, P, first_heard), IsrRequest(3, 1, 1, P, 4)]
        return lambda s: s.history.isr_requests.extend(rows)

    return asked(4), asked(2)


@case("C10 isr-changes")
def _() -> tuple[Build, Build]:
    def never_heard(life: int) -> Build:
        rows = [IsrRequest(1, 1, 1, P), IsrRequest(3, 1, life, P, 4)]
        return lambda s: s.history.isr_requests.extend(rows)

    return never_heard(1), never_heard(2)


@case("C10 isr-changes")
def _() -> tuple[Build, Build]:
    def answered(partition_epoch: int) -> Build:
        known, granted = IsrVersion(2, 5, (1,)), IsrVersion(2, partition_epoch, (1, 2))
        return lambda s: s.history.isrs_answered.append(IsrAnswered(1, 1, P, granted, known, granted))

    return answered(4), answered(6)


@case("C10 isr-changes")
def _() -> tuple[Build, Build]:
    def taken_up(isr: tuple[int, ...]) -> Build:  # an answer to what was asked in an earlier leader epoch
        known, granted = IsrVersion(2, 5, (1,)), IsrVersion(1, 6, (1, 2))
        return lambda s: s.history.isrs_answered.append(IsrAnswered(1, 1, P, granted, known, replace(known, isr=isr)))

    return taken_up((1, 2)), taken_up((1,))


@case("C12 stale-request")
def _() -> tuple[Build, Build]:
    def then(controller_epoch: int, life: int = 1) -> Build:
        return lambda s: s.history.admitted.extend(
            [Admitted(1, 1, 1, 3, 7, 7), Admitted(2, 1, life, controller_epoch, 7, 7)]
        )

    return then(2), then(2, life=2)  # a broker that was started again knows nothing


@case.pair("C12 stale-request", 6, -1)  # the controller does not say which one it means
def _(s: Story, broker_epoch: int) -> None:
    s.history.admitted.append(Admitted(1, 1, 1, 3, broker_epoch, 7))


@case.pair("C12 stale-request", 1, 2)
def _(s: Story, life: int) -> None:
    s.history.led.extend([Led(1, 1, 1, P, 4), Led(2, 1, life, P, 4)])


@case("C11 stale-controller")
def _() -> tuple[Build, Build]:
    return lambda s: (s.in_office(7), s.in_office(8, 2), s.state()), lambda s: (
        s.in_office(7),
        s.state(),
        s.in_office(8, 2),
    )


@case("C11 stale-controller")
def _() -> tuple[Build, Build]:
    return lambda s: s.state(), lambda s: (s.in_office(7), s.state())


@case.pair("C11 stale-controller", 1, 2)
def _(s: Story, epoch: int) -> None:
    s.in_office(7, 1)
    s.state()
    s.in_office(7, 2)
    s.state().controller_epoch = epoch


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (paths.topic("t"), "changed"),
        (paths.topic("t"), "deleted"),
        (paths.partitions("t"), "created"),
        (paths.partition_state("t", 1), "deleted"),
        (paths.topic_config("t"), "deleted"),
        (paths.delete_topic("t"), "deleted"),
        (paths.FEATURE, "created"),
        (paths.FEATURE, "changed"),
        (paths.LATEST_PRODUCER_ID_BLOCK, "changed"),
    ],
)
def test_only_active_controller_may_write_its_znodes(path: str, kind: str) -> None:
    def deposed(session: int) -> Build:
        return lambda s: (s.in_office(7), s.in_office(8, 2), s.znode(path, kind, session))

    case.hold("C11 stale-controller", deposed(7), deposed(8))
    case.hold("C11 stale-controller", lambda s: s.znode(path, kind), lambda s: (s.in_office(), s.znode(path, kind)))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (paths.topic("t"), "created"),
        (paths.delete_topic("t"), "created"),
        (paths.topic_config("t"), "created"),
        (paths.topic_config("t"), "changed"),
        (paths.LATEST_PRODUCER_ID_BLOCK, "created"),
    ],
)
def test_brokers_and_tools_may_write_other_znodes(path: str, kind: str) -> None:
    assert case.told(lambda s: (s.in_office(7), s.znode(path, kind, 9)), "C11 stale-controller") == []


@case.pair("C11 stale-controller", 7, 8)
def _(s: Story, session: int) -> None:
    s.znode(paths.CONTROLLER, "created", 7)
    s.znode(paths.CONTROLLER, "deleted", 0)
    s.znode(paths.CONTROLLER, "created", 8)
    s.znode(paths.CONTROLLER, "deleted", session)


@case("C13 unsafe-ack")
def _() -> tuple[Build, Build]:
    def ack(isr: tuple[int, ...], end: int) -> Build:
        return lambda s: s.history.acks.append(Acked(1, 1, P, 5, isr, {1: 5, 2: end}, 2))

    return ack((1, 2), 4), ack((1, 2), 5)


@case.pair("C13 unsafe-ack", (1,), (1, 2))
def _(s: Story, isr: tuple[int, ...]) -> None:
    s.history.acks.append(Acked(1, 1, P, 5, isr, {1: 5}, 2))


@case("C14 delivered-unsafe")
def _() -> tuple[Build, Build]:
    return lambda s: (s.high_watermark(1), s.deliver("b", P, 1)), lambda s: (s.high_watermark(2), s.deliver("b", P, 1))


@case("C15 epoch-of-generation")
def _() -> tuple[Build, Build]:
    return lambda s: (s.serves(P, 3, 1), s.serves(P, 3, 2)), lambda s: (s.serves(P, 3, 1), s.serves(P, 4, 2))


@case.pair("C15 epoch-of-generation", 3, 4)
def _(s: Story, epoch: int) -> None:
    s.serves(P, 3, 1)
    s.serves(P, epoch, 1, sealed=True)


@case("C16 replicas-differ")
def _() -> tuple[Build, Build]:
    return (
        lambda s: s.history.replicas.update({P: {1: b"ab", 2: b"ac"}}),
        lambda s: s.history.replicas.update({P: {1: b"ab", 2: b"ab"}}),
    )


@case("C19 stray-replica")
def _() -> tuple[Build, Build]:
    return lambda s: s.history.strays.append(Stray(1, P, "id")), lambda s: s.history.gone.add("t")


@case.pair("C20 deleted-unasked", 1, 2)
def _(s: Story, requests: int) -> None:  # both lives of a name are deleted
    mark, topic = f"{paths.DELETE_TOPICS}/t", f"{paths.TOPICS}/t"
    for life in range(2):
        if life < requests:
            s.history.deletions.append(DeletionRequested(s.history.tick(), 1, "t"))
        for path, kind in ((topic, "created"), (mark, "created"), (topic, "deleted"), (mark, "deleted")):
            s.history.znodes.append(ZnodeWritten(s.history.tick(), 1, path, kind, 7))


@case.pair("C20 deleted-unasked", False, True)
def _(s: Story, marked: bool) -> None:
    mark, topic = f"{paths.DELETE_TOPICS}/t", f"{paths.TOPICS}/t"
    s.history.deletions.append(DeletionRequested(s.history.tick(), 1, "t"))
    rows = [(topic, "created"), (mark, "created"), (topic, "deleted")]
    for path, kind in rows if marked else rows[::2]:
        s.history.znodes.append(ZnodeWritten(s.history.tick(), 1, path, kind, 7))


@pytest.mark.parametrize(("checker", "bad", "near"), case.rows)
def test_checker_flags_bad_history_and_not_the_near_miss(checker: str, bad: Build, near: Build) -> None:
    case.hold(checker, bad, near)


def test_every_checker_has_a_case() -> None:
    assert case.are_complete()
