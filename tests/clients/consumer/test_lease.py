"""How long a member without responses may keep its partitions, without a coordinator."""

from __future__ import annotations

import math

from anabranch.clients.consumer.lease import Lease


def lease(*, static: bool = False) -> Lease:
    return Lease(session_timeout_s=10, rebalance_timeout_s=30, heartbeat_interval_s=3, static=static)


def test_who_never_heard_anything_has_nothing() -> None:
    assert lease().until == -math.inf


def test_a_session_counts_from_when_the_question_was_sent() -> None:
    one = lease()
    one.renew(100)
    assert one.until == 110
    one.renew(104)
    assert one.until == 114
    one.renew(101)
    assert one.until == 114, "an answer that comes late takes nothing back"


def test_a_group_that_rebalances_waits_only_so_long() -> None:
    """Heartbeats keep the session, but only a join keeps the membership."""
    one = lease()
    one.renew(100)
    for second in range(101, 140):
        one.renew(second, rebalancing=True)
    assert one.until == 130
    assert one.known_until == 139 + 6, "it is still waited for, and may join"
    one.renew(140)
    assert one.until == one.known_until == 150


def test_whose_time_to_join_is_over_has_to_ask_whether_it_is_still_waited_for() -> None:
    one = Lease(session_timeout_s=100, rebalance_timeout_s=5, heartbeat_interval_s=3, static=False)
    one.renew(100)
    one.renew(104, rebalancing=True)
    assert one.until == one.known_until == 105
    one.renew(105, rebalancing=True)
    assert (one.until, one.known_until) == (105, 111)


def test_a_member_that_is_not_known_has_nothing_whatever_it_heard_before() -> None:
    one = lease()
    one.renew(100)
    one.end()
    assert one.until == -math.inf
    one.renew(100, rebalancing=True)
    assert one.until == -math.inf
    one.renew(101)
    assert one.until == 111, "it has joined again"


def test_the_place_of_a_static_member_can_be_taken_without_its_session_running_out() -> None:
    one = lease(static=True)
    one.renew(100)
    assert one.until == 106
    short = Lease(session_timeout_s=5, rebalance_timeout_s=30, heartbeat_interval_s=3, static=True)
    short.renew(100)
    assert short.until == 105
    hasty = Lease(session_timeout_s=5, rebalance_timeout_s=30, heartbeat_interval_s=0.1, static=True)
    hasty.renew(100)
    assert hasty.until == 101


def test_lease_follows_the_session_that_the_coordinator_tells() -> None:
    one = lease()
    one.agree(session_timeout_s=6, heartbeat_interval_s=3)
    one.renew(100)
    assert one.until == 106


def test_lease_without_a_told_session_lasts_two_heartbeat_intervals() -> None:
    one = Lease(session_timeout_s=None, rebalance_timeout_s=30, heartbeat_interval_s=3, static=False)
    one.renew(100)
    assert one.until == 106
