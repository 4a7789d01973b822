"""The lag of a group: committed, uncommitted, and deleted records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.clients.group_admin import SHARE, Group, Member, commit_offsets
from anabranch.inspect import group_lag
from anabranch.inspect.group_lag import GroupStanding, PartitionLag
from anabranch.protocol.topic_partition import TopicPartition
from tests.clients.consumer.groups import GROUP, TOPIC, cluster_and_admin, make_topic, resize


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
def test_lag_is_end_minus_commit(committed: int | None, start: int, end: int, lag: int) -> None:
    assert PartitionLag(committed, start, end, "").lag == lag


def test_group_is_printed_as_text_or_json() -> None:
    first, second, gone = (TopicPartition("t", number) for number in range(3))
    member = Member("m-1", "app", "/10.0.0.1", (first,))
    standing = GroupStanding(
        Group("g", "Stable", "range", (member,)),
        {
            second: PartitionLag(None, 0, 1500, ""),
            first: PartitionLag(1200, 0, 1500, str(member)),
            gone: PartitionLag(7, -1, -1, ""),
        },
    )
    assert list(standing.lines()) == [
        "g: classic group, Stable, 1 members, protocol range, lag 1,800",
        "  t-0                              committed        1,200  end        1,500  lag        300  app/10.0.0.1",
        "  t-1                              committed            -  end        1,500  lag      1,500  no member",
        "  t-2                              committed            7  end         gone  lag          0  no member",
    ]
    row = json.loads(json.dumps(standing.row()))
    assert row["lag"] == 1800
    assert (row["type"], row["epoch"]) == ("classic", None)
    assert row["members"] == [
        {
            "member": "m-1",
            "client": "app",
            "host": "/10.0.0.1",
            "epoch": None,
            "partitions": ["t-0"],
            "tasks": None,
            "application_server": None,
        }
    ]
    assert row["partitions"][1] == {
        "topic": "t",
        "partition": 1,
        "committed": None,
        "end": 1500,
        "lag": 1500,
        "owner": None,
    }


def test_instance_of_a_streams_application_has_tasks_and_an_address() -> None:
    members = tuple(
        Member(name, name, "/10.0.0.1", (), tasks=tasks, application_server=server)
        for name, tasks, server in (("one", "active 0_0 0_1", "one:80"), ("two", "standby 0_0", ""), ("idle", "", ""))
    )
    standing = GroupStanding(Group("g", "Stable", "stream", members), {})
    assert list(standing.lines())[1:] == [
        "  member one/10.0.0.1                     has active 0_0 0_1  queries at one:80",
        "  member two/10.0.0.1                     has standby 0_0",
    ]


def test_share_group_has_start_offsets_and_many_owners() -> None:
    place = TopicPartition("t", 0)
    members = tuple(Member(name, name, "/10.0.0.1", (place,), epoch=3) for name in ("a", "b"))
    group = Group("g", "Stable", "simple", members, kind=SHARE, epoch=3, assignment_epoch=3)
    standing = GroupStanding(group, {place: PartitionLag(4, 0, 10, ", ".join(map(str, group.owners(place))), left=5)})
    assert list(standing.lines()) == [
        "g: share group, Stable, epoch 3 (assigned 3), 2 members, protocol simple, lag 5",
        f"  {place!s:<32} start            4  end           10  lag          5  a/10.0.0.1, b/10.0.0.1",
        "  member a/10.0.0.1                       epoch 3  has t-0",
        "  member b/10.0.0.1                       epoch 3  has t-0",
    ]


async def test_partition_that_is_removed_meanwhile_is_gone_and_the_others_have_their_lag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster_and_admin(brokers=1) as (_, admin):
        await make_topic(admin, 2)
        kept, removed = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
        await commit_offsets(admin.network, GROUP, {kept: 0, removed: 0})
        found = group_lag.find_offsets

        async def after_merge(*arguments: Any) -> Any:
            monkeypatch.setattr(group_lag, "find_offsets", found)
            await resize(admin, 1)
            await admin.wait_until(lambda metadata: metadata.partition(*removed) is None, TOPIC)
            return await found(*arguments)

        monkeypatch.setattr(group_lag, "find_offsets", after_merge)
        standing = await group_lag.standing(admin, GROUP)
        assert {one: lag.end for one, lag in standing.partitions.items()} == {kept: 0, removed: -1}
