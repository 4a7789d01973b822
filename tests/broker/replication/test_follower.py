"""A follower that keeps up is in sync at any write rate; one that lags is not."""

from __future__ import annotations

from anabranch.broker.replication.follower import Follower, LastSeen

LAG_MS = 100.0


def fetch(follower: Follower, offset: int, leader_end: int, now_ms: float) -> None:
    follower.record_fetch(offset, 0, 7, leader_end=leader_end, now_ms=now_ms)


def test_follower_without_fetch_is_not_caught_up() -> None:
    assert not Follower().caught_up(0, 0.0, LAG_MS)


def test_follower_at_the_log_end_stays_caught_up() -> None:
    follower = Follower()
    fetch(follower, 5, 5, 0.0)
    assert follower.caught_up(5, 1e9, LAG_MS)
    assert follower.caught_up(6, LAG_MS, LAG_MS) and not follower.caught_up(6, LAG_MS + 1, LAG_MS)


def test_follower_at_the_log_end_of_its_last_fetch_is_caught_up() -> None:
    follower = Follower()
    for step in range(1, 20):
        fetch(follower, 10 * (step - 1), 10 * step, now_ms=90.0 * step)
    assert follower.caught_up_ms == 90.0 * 18, "at the fetch before the last"
    assert follower.caught_up(200, 90.0 * 19, LAG_MS)


def test_fetches_behind_the_last_log_end_do_not_catch_up() -> None:
    follower = Follower()
    fetch(follower, 10, 10, 0.0)
    for step in range(1, 20):
        fetch(follower, 10 + step, 10 + 10 * step, now_ms=90.0 * step)
    assert follower.caught_up_ms == 0.0, "what it asks for now had been there two fetches before"
    assert not follower.caught_up(200, 90.0 * 19, LAG_MS)


def test_fetch_updates_all_follower_state() -> None:
    follower = Follower()
    follower.record_fetch(8, 3, 42, leader_end=9, now_ms=5.0)
    known = (follower.log_end_offset, follower.log_start_offset, follower.broker_epoch, follower.last_fetch_ms)
    assert known == (8, 3, 42, 5.0)


def test_resting_follower_is_caught_up_until_a_change() -> None:
    follower, presence = Follower(), LastSeen()
    fetch(follower, 5, 5, 0.0)
    follower.mark_idle(presence)
    presence.seen_ms = 70.0
    assert (follower.seen_caught_up_ms, follower.caught_up_ms) == (70.0, 0.0)
    follower.stir()
    presence.seen_ms = 500.0
    assert (follower.seen_caught_up_ms, follower.caught_up_ms, follower.last_fetch_ms) == (70.0, 70.0, 70.0)
    assert follower.caught_up(6, 70.0 + LAG_MS, LAG_MS) and not follower.caught_up(6, 71.0 + LAG_MS, LAG_MS)
    follower.stir()
    assert follower.caught_up_ms == 70.0
