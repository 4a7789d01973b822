"""Goal: how far a group is behind: where it has committed, where it has not, and where the log went on without it."""

from __future__ import annotations

import json

import pytest

from anabranch.clients.group_admin import Group, Member
from anabranch.group_lag import PartitionLag, Standing
from anabranch.protocol.topic_partition import TopicPartition


@pytest.mark.parametrize(
    ("committed", "start", "end", "lag"),
    [
        (3, 0, 10, 7),
        (10, 0, 10, 0),
        (None, 4, 10, 6),
        (2, 4, 10, 6),
        (12, 0, 10, 0),
        (5, -1, -1, 0),
    ],
)
def test_lag(committed: int | None, start: int, end: int, lag: int) -> None:
    assert PartitionLag(committed, start, end, "").lag == lag


def test_a_group_is_told_to_a_person_and_to_a_program() -> None:
    first, second, gone = (TopicPartition("t", number) for number in range(3))
    member = Member("m-1", "app", "/10.0.0.1", (first,))
    standing = Standing(
        Group("g", "Stable", "range", (member,)),
        {
            second: PartitionLag(None, 0, 1500, ""),
            first: PartitionLag(1200, 0, 1500, str(member)),
            gone: PartitionLag(7, -1, -1, ""),
        },
    )
    assert list(standing.lines()) == [
        "g: Stable, 1 members, protocol range, lag 1,800",
        "  t-0                              committed        1,200  end        1,500  lag        300  app/10.0.0.1",
        "  t-1                              committed            -  end        1,500  lag      1,500  no member",
        "  t-2                              committed            7  end         gone  lag          0  no member",
    ]
    row = json.loads(json.dumps(standing.row()))
    assert row["lag"] == 1800
    assert row["members"] == [{"member": "m-1", "client": "app", "host": "/10.0.0.1", "partitions": ["t-0"]}]
    assert row["partitions"][1] == {
        "topic": "t",
        "partition": 1,
        "committed": None,
        "end": 1500,
        "lag": 1500,
        "owner": None,
    }
