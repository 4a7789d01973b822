"""What `topics alter` says of groups whose members hold no gates, and when it leaves a topic alone for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch import Consumer
from anabranch.clients.config_admin import ConfigEntry
from anabranch.clients.group_admin import Group, Member
from anabranch.clients.metadata import Topic
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.topic_partition import TopicPartition
from anabranch.stock_groups import GATES, ORDERED, PRODUCERS, SHRINK, group_lines, plan, stock_groups
from tests.broker.coordinators.stock_members import GROUP, TOPIC, StockMember
from tests.broker.coordinators.test_group_gates import Assigned, orders

KNOWN = Topic(TOPIC, b"", {}, lineage=Lineage(1, [(0, 4)]))
STRANGER = Member("m-1", "rdkafka", "/10.0.0.7", (TopicPartition(TOPIC, 0),))
DEFAULT, TOPIC_SOURCE = 5, 1


def told(count: int, *, stamped: bool = True, groups: int = 1, **set_here: str) -> tuple[str, str]:
    values = {GATES: "auto", SHRINK: "auto", PRODUCERS: "auto", ORDERED: "true"}
    set_names = {name.replace("_", "."): text for name, text in set_here.items()}
    configs = {
        name: ConfigEntry(
            name=name,
            value=set_names.get(name, value),
            source=TOPIC_SOURCE if name in set_names else DEFAULT,
            read_only=False,
            sensitive=False,
        )
        for name, value in values.items()
    }
    readers = [Group(f"readers-{number}", "Stable", "range", (STRANGER, STRANGER)) for number in range(groups)]
    lines, refusal = group_lines(replace(KNOWN, stamped=stamped), count, configs, readers)
    return "\n".join(lines), refusal


def test_growth_keeps_the_order_where_somebody_has_asked_for_it() -> None:
    assert "read it in the group readers-0: rdkafka/10.0.0.7 and 1 more" in told(5)[0]
    assert "keys keep their order for them" in told(5)[0]
    assert "keys do not keep their order for them (reshard.legacy.consumers=auto)" in told(5, stamped=False)[0]
    assert "keys keep their order" in told(5, stamped=False, reshard_legacy_producers="verify")[0]
    assert "keys keep their order" in told(5, stamped=False, enable_ordered_delivery="true")[0]
    assert "do not keep" in told(5, enable_ordered_delivery="false")[0]
    assert "do not keep" in told(5, reshard_legacy_consumers="ignore")[0]
    assert "keys keep their order" in told(5, stamped=False, reshard_legacy_consumers="gate")[0]
    assert all(told(count, groups=0) == ("", "") for count in (2, 5))
    assert "and 2 more" in told(5, groups=7)[0]


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ({}, True),
        ({"stamped": False}, False),
        ({"reshard_legacy_consumers_shrink": "warn"}, False),
        ({"stamped": False, "reshard_legacy_consumers_shrink": "refuse"}, True),
        ({"reshard_legacy_consumers": "ignore"}, False),
    ],
)
def test_a_topic_shrinks_under_them_only_where_their_order_is_not_kept(more: dict[str, str], refused: bool) -> None:
    lines, refusal = told(2, **more)  # type: ignore[arg-type]
    assert "across a merge" in lines
    assert bool(refusal) == refused
    assert ("set reshard.legacy.consumers.shrink=warn" in refusal) == refused


async def test_members_are_known_by_whether_they_hold_gates() -> None:
    async with orders() as (cluster, admin, _):
        async with Consumer(
            TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id="ours", auto_offset_reset="earliest"
        ) as ours:
            await ours.getmany(timeout_ms=10_000)
            assert await stock_groups(admin, TOPIC) == []
        await StockMember(admin).take_part()
        (found,) = await stock_groups(admin, TOPIC)
        assert found.group_id == GROUP
        assert await stock_groups(admin, "another") == []


async def test_members_to_whom_the_broker_assigns_are_known_too() -> None:
    async with orders(kafka="4.1") as (_, admin, _):
        admin.network.follow(TOPIC)
        await Assigned(admin).beat()
        (found,) = await stock_groups(admin, TOPIC)
        assert [member.partitions for member in found.members] == [(TopicPartition(TOPIC, 0),)]


async def test_a_cluster_that_cannot_say_is_no_reason_to_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_network: object) -> dict[str, str]:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no")

    monkeypatch.setattr("anabranch.stock_groups.list_groups", fails)
    async with orders() as (_, admin, _):
        lines, refusal = await plan(admin, KNOWN, 2, {})
    assert "is not known" in lines[0]
    assert refusal == ""
