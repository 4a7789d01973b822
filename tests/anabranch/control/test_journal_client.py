"""A blocking test counts, awaits and follows exchanges of a cluster in another process."""

from __future__ import annotations

import itertools

import pytest

from anabranch.control.client import ControlClient, ControlError
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
