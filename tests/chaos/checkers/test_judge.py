"""All checkers together: a valid history passes, and a run without an end is checked in part."""

from __future__ import annotations

from anabranch.chaos.checkers import judge
from anabranch.chaos.replication_events import HighWatermark
from tests.chaos.checkers.story import P, Q, Story, split


def good(story: Story) -> None:
    """Everything at once, as it should be."""
    story.in_office()
    split(story)
    story.history.high_watermarks.insert(0, HighWatermark(0, 1, 1, P, 0, True, 0, 1, {1: 1, 2: 1}))
    story.history.high_watermarks.insert(0, HighWatermark(0, 1, 1, Q, 0, True, 0, 1, {1: 1}))


def test_good_history_is_flagged_by_no_checker() -> None:
    story = Story()
    good(story)
    assert judge(story.history) == []


def test_incomplete_run_is_judged_by_broker_events_only() -> None:
    """Losses need the final logs; beliefs of brokers do not."""
    story = Story()
    story.send("a")
    story.state(leader=3)
    story.history.complete = False
    assert [line.partition(":")[0] for line in judge(story.history)] == ["C1 leader-in-isr", "C11 stale-controller"]
