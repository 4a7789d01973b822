"""A blocking test counts, awaits and follows exchanges of a cluster in another process."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from anabranch.control.client import ControlClient, ControlError
from anabranch.control.journal_client import Following, JournalClient
from tests.anabranch.cli.test_journal import told  # noqa: F401


def test_blocking_client_queries_awaits_and_follows_journal(told: dict[str, str]) -> None:  # noqa: F811
    control = ControlClient(told["control"])
    control.journal.clear()
    control.create_topic("followed")
    assert control.journal.count(api=["CreateTopics", "DeleteTopics"], topic="followed") == 1
    control.ask("DELETE", "/v1/topics/followed")
    rows = control.journal.wait_for(2, api=["CreateTopics", "DeleteTopics"], topic="followed")
    following = control.journal.follow(api=("CreateTopics", "DeleteTopics"), topic="followed")
    assert list(itertools.islice(following, 2)) == rows
    assert [row["api"] for row in rows] == ["CreateTopics", "DeleteTopics"]
    assert control.journal.count(between_brokers=True) > 0
    with pytest.raises(ControlError, match="after 0 s 0 of 1 such exchanges"):
        control.journal.wait_for(timeout_s=0, topic="nowhere")
    with pytest.raises(ControlError, match="unknown API"):
        next(control.journal.follow(api="x"))


def exchange(number: int, outcome: str = "answered", *errors: str) -> Any:
    return {"number": number, "outcome": outcome, "errors": errors, "rules": ["gate"] if number == 1 else []}


def taken(following: Following, *rows: Any) -> list[int]:
    return [row["number"] for row in following.take([row for row in rows if row["number"] > following.after])]


def test_followed_exchange_is_shown_once_when_it_has_ended_in_whatever_order_exchanges_end() -> None:
    following = Following([], {})
    assert taken(following, exchange(1, "open"), exchange(2)) == [2] and following.has_open
    assert taken(following, exchange(1, "open"), exchange(2), exchange(3)) == [3]
    assert following.known == 3, "a wait for more must not count these"
    assert taken(following, exchange(1), exchange(2), exchange(3), exchange(4, "open")) == [1]
    assert (following.after, following.known, following.has_open) == (3, 1, True)
    assert taken(following, exchange(4, "closed")) == [4]
    assert (following.after, following.known, following.has_open) == (4, 0, False)


def test_followed_exchange_may_meet_a_condition_only_when_it_ends() -> None:
    refused = Following([], {"error": "REQUEST_TIMED_OUT"})
    assert taken(refused, exchange(1, "open"), exchange(2, "answered", "REQUEST_TIMED_OUT"), exchange(3)) == [2]
    assert taken(refused, exchange(1, "answered", "REQUEST_TIMED_OUT"), exchange(2), exchange(3)) == [1]
    assert taken(Following([], {"rule": "gate"}), exchange(1), exchange(2)) == [1]
    assert taken(Following([], {"outcome": "closed"}), exchange(1), exchange(2, "closed")) == [2]
    opened = Following([], {"outcome": "open"})
    assert taken(opened, exchange(1, "open"), exchange(2)) == [1] and opened.has_open and opened.after == 2


def test_exchanges_are_followed_from_a_number_or_from_the_last_ones() -> None:
    rows = [exchange(number) for number in range(1, 6)]
    assert taken(Following(rows[2:], {"after": "2"}), *rows) == [3, 4, 5]
    assert taken(Following(rows[-2:], {"limit": "2"}), *rows) == [4, 5]
    asked = []

    def ask(method: str, path: str, **_: Any) -> Any:
        asked.append(path)
        return rows

    shown = JournalClient(ask).follow(api="Fetch", error="REQUEST_TIMED_OUT", limit=5)
    rows[3] = exchange(4, "answered", "REQUEST_TIMED_OUT")
    assert next(shown)["number"] == 4
    assert asked[0] == "/v1/journal?api=Fetch&error=REQUEST_TIMED_OUT&limit=5", "refuses what nothing can match"
    assert asked[1] == "/v1/journal?api=Fetch&after=0"
