"""When a topic does not shrink, for the sake of groups whose members hold no gates."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from anabranch import Admin, Consumer
from anabranch.clients.shrinking import SHRINK, may_shrink, stock_groups
from anabranch.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition
from tests.anabranch.test_stock_groups import KNOWN, configured
from tests.broker.coordinators.stock_members import GROUP, TOPIC, StockMember, asked_until
from tests.broker.coordinators.streams_groups.world import subtopology
from tests.broker.coordinators.test_group_gates import Assigned, orders


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
def test_a_topic_shrinks_under_them_only_where_their_order_is_not_kept(more: dict[str, object], refused: bool) -> None:
    set_here = {name: str(value) for name, value in more.items() if name != "stamped"}
    known = replace(KNOWN, stamped=bool(more.get("stamped", True)))
    assert may_shrink(known, configured(**set_here)) != refused


async def test_members_are_known_by_whether_they_hold_gates() -> None:
    async with orders() as (cluster, admin, _):
        async with Consumer(
            TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id="ours", auto_offset_reset="earliest"
        ) as ours:
            await ours.getmany(timeout_ms=10_000)
            assert await stock_groups(admin.network, TOPIC) == []
        await StockMember(admin).take_part()
        (found,) = await stock_groups(admin.network, TOPIC)
        assert found.group_id == GROUP
        assert await stock_groups(admin.network, "another") == []


async def test_members_to_whom_the_broker_assigns_are_known_too() -> None:
    async with orders(kafka="4.1", partitions=2) as (_, admin, _):
        admin.network.follow(TOPIC)
        await Assigned(admin).beat()
        (found,) = await stock_groups(admin.network, TOPIC)
        assert [member.partitions for member in found.members] == [(TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))]
        with pytest.raises(KafkaError, match="does not shrink"):
            await admin.create_partitions(TOPIC, 1, allow_shrink=True)


async def test_our_own_members_to_whom_the_broker_assigns_hold_gates() -> None:
    async with orders(kafka="4.1", partitions=2) as (cluster, admin, _):
        ours = Consumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="ours",
            group_protocol="consumer",
            auto_offset_reset="earliest",
        )
        async with ours:
            await ours.getmany(timeout_ms=10_000)
            assert await stock_groups(admin.network, TOPIC) == []
            await admin.create_partitions(TOPIC, 1, allow_shrink=True)


async def test_an_application_of_kafka_streams_whose_broker_deals_the_tasks_is_known_too() -> None:
    async with orders(kafka="4.2", partitions=2) as (_, admin, _):
        request = StreamsGroupHeartbeatRequest(
            group_id="app",
            member_id="thread",
            member_epoch=0,
            endpoint_information_epoch=-1,
            rebalance_timeout_ms=1000,
            topology=Topology(epoch=0, subtopologies=[subtopology("0", TOPIC)]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )
        await admin.network.call_coordinator("app", request, lambda answer: answer.error_code)
        (found,) = await stock_groups(admin.network, TOPIC)
        assert found.group_id == "app"
        with pytest.raises(KafkaError, match=r"does not shrink while .* the group app"):
            await admin.create_partitions(TOPIC, 1, allow_shrink=True)


async def test_a_group_that_rebalances_is_not_overlooked() -> None:
    """Until all its members are back, a coordinator tells of a group neither what it subscribes to nor what it has."""
    async with orders(partitions=2) as (cluster, admin, _), Admin(cluster.bootstrap_servers) as elsewhere:
        member = StockMember(admin)
        await member.take_part()
        joining = asyncio.create_task(StockMember(elsewhere).join())
        try:
            await asked_until(member.heartbeat, lambda code: code is ErrorCode.REBALANCE_IN_PROGRESS)
            (found,) = await stock_groups(admin.network, TOPIC)
            assert found.state == "PreparingRebalance"
            for dry in (True, False):
                with pytest.raises(KafkaError, match="does not shrink while consumers without gates") as refused:
                    await admin.create_partitions(TOPIC, 1, allow_shrink=True, validate_only=dry)
                assert refused.value.code is ErrorCode.POLICY_VIOLATION
            assert (await admin.describe_topic(TOPIC)).live == (0, 1)
        finally:
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)


async def test_no_client_of_ours_goes_around_the_policy() -> None:
    async with orders(partitions=2) as (_, admin, _):
        await StockMember(admin).take_part()
        await admin.create_partitions(TOPIC, 3, allow_shrink=True)
        with pytest.raises(KafkaError, match="does not shrink while") as refused:
            await admin.create_partitions(TOPIC, 2, allow_shrink=True)
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        with pytest.raises(KafkaError, match="already has 3 partitions"):
            await admin.create_partitions(TOPIC, 3, allow_shrink=True)
        await admin.alter_configs(TOPIC, changes={SHRINK: "warn"})
        await admin.create_partitions(TOPIC, 2, allow_shrink=True)
        assert (await admin.describe_topic(TOPIC)).live == (0, 1)


async def test_a_topic_whose_readers_are_not_known_does_not_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_network: object) -> dict[str, str]:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no")

    monkeypatch.setattr("anabranch.clients.shrinking.list_groups", fails)
    async with orders(partitions=2) as (_, admin, _):
        with pytest.raises(KafkaError, match="it is not known whether consumers without gates read it") as refused:
            await admin.create_partitions(TOPIC, 1, allow_shrink=True)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await admin.alter_configs(TOPIC, changes={SHRINK: "warn"})
        await admin.create_partitions(TOPIC, 1, allow_shrink=True)
