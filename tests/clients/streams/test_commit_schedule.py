"""Commits are an interval apart, and wait for the end of a rebalance while their transaction allows it."""

from __future__ import annotations

from pathlib import Path

from anabranch.clients.streams.commit_schedule import CommitSchedule
from anabranch.clients.streams.config import AT_LEAST_ONCE, EXACTLY_ONCE, StreamsConfig


def schedule(guarantee: str = EXACTLY_ONCE) -> CommitSchedule:
    config = StreamsConfig(
        application_id="app",
        bootstrap_servers="nowhere:1",
        state_dir=Path("state"),
        processing_guarantee=guarantee,
        commit_interval_ms=100,
        transaction_timeout_ms=10_000,
    )
    return CommitSchedule(config, 0.0)


def test_commits_are_an_interval_apart() -> None:
    one = schedule()
    assert one.due == 0
    assert one.may_begin(1.0, rebalancing=False)
    one.begin(1.0)
    assert one.due == 1.1
    one.hasten(1.05)
    assert one.due == 1.05


def test_commit_is_put_off_for_half_of_the_transaction_timeout() -> None:
    one = schedule()
    one.begin(0.0)
    for now, due in ((1.0, 1.1), (4.95, 5.0)):
        assert not one.may_begin(now, rebalancing=True)
        assert (one.put_off, one.due) == (True, due)
    assert one.may_begin(5.0, rebalancing=True), "the transaction would be aborted"
    assert not one.put_off


def test_commit_without_a_transaction_waits_for_the_end_of_the_rebalance() -> None:
    one = schedule(AT_LEAST_ONCE)
    assert not one.may_begin(3600.0, rebalancing=True)
    assert one.due == 3600.1
    assert one.may_begin(3600.05, rebalancing=False)
    assert not one.put_off
