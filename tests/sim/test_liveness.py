"""Undelivered records of a group are reported; `test_aims` shows that schedules find them."""

from __future__ import annotations

from anabranch.chaos.history import Delivery, History
from tests.sim import liveness
from tests.sim.cluster import SimCluster

P, Q = ("t", 0), ("t", 1)
FOUND = {(P, 3), (P, 4), (Q, 0)}


def handed(*rows: tuple[tuple[str, int], int]) -> History:
    deliveries = [Delivery(number, "r", 1, *row, "k", "v", 0, 1) for number, row in enumerate(rows)]
    return History(deliveries=deliveries)


def test_group_with_every_delivery_misses_nothing() -> None:
    assert liveness.first_missing(FOUND, handed((P, 4), (P, 3), (Q, 0), (Q, 7))) == ""


def test_first_missing_record_of_each_partition_is_named() -> None:
    assert liveness.first_missing(FOUND, handed()) == "3 records, the first at {('t', 0): 3, ('t', 1): 0}"


def test_records_deleted_unread_are_not_missing() -> None:
    history = handed((Q, 0))
    history.note_deletion(P, 5)
    assert liveness.first_missing(FOUND, history) != ""
    history.note_deletion(P, 5, only_read=False)
    assert liveness.first_missing(FOUND, history) == ""


def test_late_delivery_is_a_failure_of_the_run() -> None:
    cluster = SimCluster("a group without members", spares=0)
    late = handed((P, 3), (P, 4))
    cluster.loop.call_later(1, late.deliveries.append, handed((Q, 0)).deliveries[0])
    groups = {"late": late, "idle": handed()}
    assert not cluster.loop.run(liveness.found_is_handed_out(cluster, groups, FOUND, limit_s=2))
    [failure] = cluster.history.failures
    assert failure.startswith(
        "L2 not handed out: every record is handed to every group did not happen within 2 s; idle: "
    )
    assert "late" not in failure
