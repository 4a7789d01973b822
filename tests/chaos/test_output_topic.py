"""Output of applications in a chaos run is read as committed, and judged."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from anabranch import Admin, Producer
from anabranch.chaos.history import Send
from anabranch.chaos.output_topic import OutputTopic, judge_outputs
from anabranch.clients.security import SecurityArguments
from anabranch.cluster.in_process import Cluster

SENDS = [Send(number, "w", "k", number, f"k/{number}", "ok", ("orders", 0), number) for number in range(12)]


def judged(*numbers: int, sends: Sequence[Send] = SENDS) -> list[str]:
    return list(judge_outputs("copies", [("k", f"k/{number}") for number in numbers], sends))


def test_output_of_each_record_in_order_is_no_violation() -> None:
    assert judged(*range(12)) == []


def test_record_without_an_output_is_a_violation_if_it_was_acknowledged() -> None:
    assert judged(*range(11)) == ["copies: k/11 has no output"]
    unknown = Send(11, "w", "k", 11, "k/11")
    assert judged(*range(11), sends=[*SENDS[:11], unknown]) == []


def test_second_output_is_a_violation() -> None:
    assert judged(*range(12), 11) == ["copies: k/11 has 2 outputs"]


def test_output_behind_a_later_one_of_its_key_is_a_violation() -> None:
    assert judged(*range(9), 10, 9, 11) == ["copies: the output of k/9 is behind that of k/10"]


async def test_committed_output_is_read_and_aborted_output_is_not() -> None:
    async with Cluster(3) as cluster, Admin(cluster.bootstrap_servers) as admin:
        topic = OutputTopic("copies", cluster.bootstrap_servers, access=SecurityArguments())
        await topic.create(admin)
        async with Producer(cluster.bootstrap_servers, transactional_id="copier") as producer:
            for value, commits in ((b"k/0", True), (b"k/1", False), (b"k/1", True)):
                await producer.begin_transaction()
                await producer.send_and_wait("copies", value, b"k")
                await (producer.commit_transaction() if commits else producer.abort_transaction())
        assert await topic.read() == []
    assert topic.rows == [("k", "k/0"), ("k", "k/1")]


@pytest.mark.costly
async def test_topic_that_cannot_be_read_is_a_failure_of_the_run() -> None:
    """After half a minute."""
    topic = OutputTopic("copies", "127.0.0.1:1", access=SecurityArguments())
    [told] = await topic.read()
    assert told.startswith("copies cannot be read: no bootstrap server responded")
