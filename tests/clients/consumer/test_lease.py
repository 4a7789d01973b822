"""How long a member without responses may keep its partitions, without a coordinator."""

from __future__ import annotations

import math

from anabranch.clients.consumer.lease import Lease


def lease(*, static: bool = False) -> Lease:
    return Lease(session_timeout_s=10, rebalance_timeout_s=30, heartbeat_interval_s=3, static=static)


def test_new_lease_has_expired() -> None:
    assert lease().until == -math.inf


def test_session_starts_when_heartbeat_was_sent() -> None:
    one = lease()
    one.renew(100)
    assert one.until == 110
    one.renew(104)
    assert one.until == 114
    one.renew(101)
    assert one.until == 114, "an answer that comes late takes nothing back"


def test_lease_during_rebalance_ends_with_rebalance_timeout() -> None:
    """Heartbeats keep the session, but only a join keeps the membership."""
    one = lease()
    one.renew(100)
    for second in range(101, 140):
        one.renew(second, rebalancing=True)
    assert one.until == 130
    assert one.known_until == 139 + 6, "it is still waited for, and may join"
    one.renew(140)
    assert one.until == one.known_until == 150


def test_member_past_rebalance_timeout_is_known_until_next_heartbeat_is_due() -> None:
    one = Lease(session_timeout_s=100, rebalance_timeout_s=5, heartbeat_interval_s=3, static=False)
    one.renew(100)
    one.renew(104, rebalancing=True)
    assert one.until == one.known_until == 105
    one.renew(105, rebalancing=True)
    assert (one.until, one.known_until) == (105, 111)


def test_ended_lease_is_not_renewed_during_rebalance() -> None:
    one = lease()
    one.renew(100)
    one.end()
    assert one.until == -math.inf
    one.renew(100, rebalancing=True)
    assert one.until == -math.inf
    one.renew(101)
    assert one.until == 111, "it has joined again"


def test_lease_of_static_member_is_shorter_than_its_session() -> None:
    one = lease(static=True)
    one.renew(100)
    assert one.until == 106
    short = Lease(session_timeout_s=5, rebalance_timeout_s=30, heartbeat_interval_s=3, static=True)
    short.renew(100)
    assert short.until == 105
    hasty = Lease(session_timeout_s=5, rebalance_timeout_s=30, heartbeat_interval_s=0.1, static=True)
    hasty.renew(100)
    assert hasty.until == 101


def test_lease_uses_session_timeout_of_coordinator() -> None:
    one = lease()
    one.agree(session_timeout_s=6, heartbeat_interval_s=3)
    one.renew(100)
    assert one.until == 106


def test_lease_without_session_timeout_lasts_two_heartbeat_intervals() -> None:
    one = Lease(session_timeout_s=None, rebalance_timeout_s=30, heartbeat_interval_s=3, static=False)
    one.renew(100)
    assert one.until == 106
