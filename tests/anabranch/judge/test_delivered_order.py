"""Every kind of violation in a group's deliveries is found, and redeliveries after a failure are none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.judge.delivered_order import (
    NEVER,
    OUT_OF_ORDER,
    PHANTOM,
    STALE_OWNER,
    TWICE,
    DeliveryOrder,
)
from anabranch.judge.records import Delivery, StoredRecord, Stream
from anabranch.judge.verdict import Verdict

STORED: dict[Stream, list[StoredRecord]] = {(b"k", ""): [StoredRecord(0, number, b"k", number) for number in range(4)]}


def delivery(number: int, *, member: str = "a", generation: int = 1, key: bytes = b"k", offset: int = -1) -> Delivery:
    return Delivery(0, number if offset < 0 else offset, key, number, member, generation)


def judged(*deliveries: Delivery, sent: list[Delivery] | None = None) -> Verdict:
    verdict = Verdict()
    order = DeliveryOrder(verdict, STORED)
    order.follow(deliveries)
    order.end(sent or [])
    return verdict


ALL = tuple(map(delivery, range(4)))


def test_deliveries_in_order_are_no_violation() -> None:
    assert judged(*ALL).violations == []


def test_redelivery_by_a_new_owner_is_counted() -> None:
    again = [delivery(number, member="b", generation=2) for number in range(1, 4)]
    verdict = judged(*ALL[:3], *again)
    assert (verdict.violations, verdict.delivered, verdict.redelivered) == ([], 6, 2)


@pytest.mark.parametrize(
    ("deliveries", "kind"),
    [
        ([delivery(0), delivery(2), delivery(1), delivery(3)], OUT_OF_ORDER),
        ([delivery(0), delivery(1), delivery(3)], NEVER),
        ([*ALL, delivery(4, member="b", key=b"other", offset=2)], PHANTOM),
        ([*ALL[:3], delivery(3, member="b", generation=2), delivery(3, generation=1)], STALE_OWNER),
        ([*ALL, delivery(3)], TWICE),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_violation_is_found(deliveries: list[Delivery], kind: str) -> None:
    assert [one.kind for one in judged(*deliveries).violations] == [kind]


def test_member_that_lost_the_partition_may_receive_again_in_the_same_generation() -> None:
    verdict = judged(*ALL, *(replace(one, assignment=1) for one in ALL[2:]))
    assert (verdict.violations, verdict.redelivered) == ([], 2)
    assert [one.kind for one in judged(*ALL, *[replace(ALL[3], assignment=1)] * 2).violations] == [TWICE]


def test_acknowledged_record_of_a_removed_partition_must_have_been_delivered() -> None:
    verdict = judged(*ALL, sent=[Delivery(5, 0, b"k", 4)])
    assert [(one.kind, one.text) for one in verdict.violations] == [(NEVER, "number 4 at 5@0")]


def test_record_that_was_read_and_is_not_there_is_a_phantom() -> None:
    def judged_in(read: range) -> list[str]:
        verdict = Verdict()
        order = DeliveryOrder(verdict, STORED, {0: read})
        order.follow([*ALL, delivery(4), Delivery(1, 4, b"k", 5)])
        return [str(one) for one in verdict.violations]

    assert judged_in(range(6)) == ["delivered, but not stored: key k: number 4: at 0@4 is nothing"]
    assert judged_in(range(5, 6)) == [], "below the log start"
    assert judged_in(range(4)) == [], "stored after the read"


def test_record_without_a_key_is_the_stored_one_of_its_partition() -> None:
    rows = [StoredRecord(0, 0, None, 0), StoredRecord(1, 0, None, 0), StoredRecord(0, 1, b"k", 0)]
    verdict = Verdict()
    order = DeliveryOrder(verdict, {one.stream: [one] for one in rows})
    order.follow([Delivery(0, 0, None, 0)])
    order.end()
    assert [str(one) for one in verdict.violations] == [
        "never delivered: key k: number 0 at 0@1",
        "never delivered: no key: number 0 at 1@0",
    ]


def test_without_generations_of_the_group_owners_are_not_judged() -> None:
    verdict = judged(*ALL, delivery(3, generation=-1), delivery(3, generation=-1))
    assert verdict.violations == []


def test_producers_number_one_key_independently() -> None:
    verdict = Verdict()
    order = DeliveryOrder(verdict, None)
    order.follow(Delivery(0, offset, b"k", number, producer=who) for offset, (who, number) in enumerate(NUMBERED))
    order.end()
    assert (verdict.violations, verdict.redelivered) == ([], 0)


NUMBERED = (("a", 0), ("b", 0), ("b", 2), ("a", 1))
