"""Shrinks that are refused because of stock consumers, from any client."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from anabranch import Admin, Consumer
from anabranch.broker.administration import shrink_check
from anabranch.broker.administration.shrink_check import SHRINK
from anabranch.broker.coordinators.groups.consumer_group_requests import ConsumerGroupRequests
from anabranch.broker.coordinators.groups.group_coordinator import GroupCoordinator
from anabranch.broker.coordinators.runtime.journal import Journal
from anabranch.clients.controller_calls import call_controller
from anabranch.faults.rule import Rule
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from anabranch.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.coordinators.gated_orders import Assigned, orders
from tests.broker.coordinators.stock_members import GROUP, TOPIC, StockMember, asked_until
from tests.broker.coordinators.streams_groups.world import subtopology


async def shrink(admin: Admin, *, validate_only: bool = False) -> tuple[ErrorCode, str]:
    """Ask for one partition as any program can, with nothing of our client but its connections."""
    topic = CreatePartitionsTopic(name=TOPIC, count=1, assignments=None, allow_shrink=True)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=20_000, validate_only=validate_only)
    answer = await call_controller(admin.network, request, lambda one: one.results[0].error_code)
    (row,) = answer.results
    return ErrorCode(row.error_code), row.error_message or ""


async def refusal(admin: Admin) -> str:
    """With what it is refused, by trial and in earnest."""
    said = [await shrink(admin, validate_only=dry) for dry in (True, False)]
    assert [code for code, _ in said] == [ErrorCode.POLICY_VIOLATION] * 2, said
    assert (await admin.describe_topic(TOPIC)).live == (0, 1)
    return said[1][1]


async def join(admin: Admin, group: str, *, names: Sequence[str] = (), expression: str = "") -> None:
    """Become a member to which the broker assigns."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="by-subscription",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=list(names),
        subscribed_topic_regex=expression,
        topic_partitions=[],
    )
    answer = await admin.network.call_coordinator(group, request, lambda one: one.error_code)
    assert answer.error_code == ErrorCode.NONE, answer
    assert bool(names) == bool(answer.assignment.topic_partitions)


@pytest.mark.parametrize(
    ("configs", "refused"),
    [
        ({}, True),
        ({"reshard_legacy_consumers_shrink": "warn"}, False),
        ({"reshard_legacy_consumers": "ignore"}, False),
        ({"reshard_legacy_consumers": "ignore", "reshard_legacy_consumers_shrink": "refuse"}, True),
    ],
)
async def test_shrink_with_stock_consumers_is_refused_unless_the_policy_allows_it(
    configs: dict[str, str], refused: bool
) -> None:
    async with orders(partitions=2, **configs) as (_, admin, _):
        await StockMember(admin).take_part()
        code, said = await shrink(admin)
        assert code is (ErrorCode.POLICY_VIOLATION if refused else ErrorCode.NONE), said


async def test_refused_shrink_names_the_groups_and_the_config_that_allows_it() -> None:
    async with orders(partitions=2) as (_, admin, _):
        member = StockMember(admin)
        await member.take_part()
        said = await refusal(admin)
        assert said.startswith(f"{TOPIC} cannot shrink while stock consumers read it"), said
        assert f"({SHRINK}=auto; the group {GROUP}: anabranch-admin/127.0.0.1)" in said
        assert f"set {SHRINK}=warn" in said
        await admin.alter_configs(TOPIC, changes={SHRINK: "warn"})
        assert await shrink(admin) == (ErrorCode.NONE, "")


async def test_create_partitions_grows_topic_of_stock_consumers_but_does_not_shrink_it() -> None:
    async with orders(partitions=2) as (_, admin, _):
        await StockMember(admin).take_part()
        await admin.create_partitions(TOPIC, 3, allow_shrink=True)
        with pytest.raises(KafkaError, match="cannot shrink while") as refused:
            await admin.create_partitions(TOPIC, 2, allow_shrink=True)
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        with pytest.raises(KafkaError, match="already has 3 partitions"):
            await admin.create_partitions(TOPIC, 3, allow_shrink=True)


async def test_groups_of_every_coordinator_prevent_a_shrink() -> None:
    async with orders(3, kafka="4.1", partitions=2) as (_, admin, _):
        named: dict[int, str] = {}
        for group in map("till-{}".format, itertools.count()):
            named.setdefault(await admin.network.coordinator(group), group)
            if len(named) == 3:
                break
        for group in named.values():
            await join(admin, group, names=[TOPIC])
        said = await refusal(admin)
        assert all(f"the group {group}: " in said for group in named.values()), said


async def test_consumer_protocol_member_prevents_a_shrink() -> None:
    async with orders(kafka="4.1", partitions=2) as (_, admin, _):
        admin.network.follow(TOPIC)
        await Assigned(admin).beat()
        assert f"the group {GROUP}: " in await refusal(admin)


async def test_unresolved_regular_expression_prevents_a_shrink_of_matching_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ConsumerGroupRequests, "_resolve", lambda *_: None)
    async with orders(kafka="4.1", partitions=2) as (_, admin, _):
        await join(admin, "elsewhere", expression=f"{TOPIC}-.*")
        await join(admin, "everywhere", expression=f"{TOPIC[:-1]}.")
        assert f"({SHRINK}=auto; the group everywhere: anabranch-admin/127.0.0.1)" in await refusal(admin)


async def test_generation_aware_consumers_do_not_prevent_a_shrink() -> None:
    async with orders(kafka="4.1", partitions=2) as (cluster, admin, _):
        for protocol in ("classic", "consumer"):
            ours = Consumer(
                TOPIC,
                bootstrap_servers=cluster.bootstrap_servers,
                group_id=f"ours-{protocol}",
                group_protocol=protocol,
                auto_offset_reset="earliest",
            )
            async with ours:
                await ours.getmany(timeout_ms=10_000)
                assert await shrink(admin, validate_only=True) == (ErrorCode.NONE, "")


async def test_streams_group_member_prevents_a_shrink() -> None:
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
        assert "the group app" in await refusal(admin)


async def test_rebalancing_group_prevents_a_shrink() -> None:
    """During a rebalance no member has partitions."""
    async with orders(partitions=2) as (cluster, admin, _), Admin(cluster.bootstrap_servers) as elsewhere:
        member = StockMember(admin)
        await member.take_part()
        joining = asyncio.create_task(StockMember(elsewhere).join())
        try:
            await asked_until(member.heartbeat, lambda code: code is ErrorCode.REBALANCE_IN_PROGRESS)
            assert f"the group {GROUP}" in await refusal(admin)
        finally:
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)


async def test_shrink_fails_when_groups_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrink_check, "SHARE_OF_TIME", 0.0)
    monkeypatch.setattr(shrink_check, "TIMEOUT_MIN_S", 0.2)
    async with orders(partitions=2) as (_, admin, _):
        await StockMember(admin).take_part()
        with monkeypatch.context() as patched:
            patched.setattr(GroupCoordinator, "coordinated", [])
            patched.setattr(GroupCoordinator, "groups", lambda _: [])
            code, said = await shrink(admin)
            assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert "the broker cannot check for stock consumers" in said
            await admin.alter_configs(TOPIC, changes={SHRINK: "warn"})
            assert await shrink(admin) == (ErrorCode.NONE, "")


async def asked_again_until(admin: Admin, wanted: ErrorCode) -> None:
    """Ask for the shrink until it is answered so. It must never be let through."""
    codes = set()
    while wanted not in codes:
        with suppress(ConnectionError, TimeoutError):
            codes.add((await shrink(admin, validate_only=True))[0])
        assert ErrorCode.NONE not in codes


@pytest.mark.parametrize("informed", [False, True], ids=["has not heard of it", "reads the groups"])
async def test_group_of_failed_coordinator_prevents_a_shrink(monkeypatch: pytest.MonkeyPatch, informed: bool) -> None:
    """The next coordinator does not list the group yet, which proves nothing."""
    monkeypatch.setattr(shrink_check, "SHARE_OF_TIME", 0.0)
    monkeypatch.setattr(shrink_check, "TIMEOUT_MIN_S", 0.2)
    reading, replay = asyncio.Event(), Journal.replay

    async def slow_replay(journal: Journal, *words: Any) -> None:
        await reading.wait()
        await replay(journal, *words)

    async with orders(3, partitions=2) as (cluster, admin, _):
        await StockMember(admin).take_part()
        rule = cluster.faults.add(Rule(api=("LeaderAndIsr",), between_brokers=True, hold=True))
        monkeypatch.setattr(Journal, "replay", slow_replay)
        await cluster.crash_broker(await admin.network.coordinator(GROUP))
        await rule.wait_hit()
        if informed:
            rule.release()
            rule.remove()
            while not any(node.services.groups.loading for node in cluster.nodes.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await asked_again_until(admin, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        reading.set()
        if not informed:
            rule.release()
            rule.remove()
        await asked_again_until(admin, ErrorCode.POLICY_VIOLATION)
