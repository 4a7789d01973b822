"""Offsets that a coordinator commits for a group: the starts of children, and log starts past deleted records."""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Admin, Consumer, Producer, TopicPartition
from anabranch.broker.coordinators.groups import group_gates
from anabranch.clients.group_admin import commit_offsets
from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.protocol.errors import ErrorCode
from tests.broker.coordinators.gated_orders import EACH, Assigned, orders, split_and_merge, withheld
from tests.broker.coordinators.stock_members import GROUP, TOPIC, StockMember, asked_until, committed

HOUR_MS = 3_600_000


async def test_start_of_a_child_is_not_committed_for_a_group_that_was_loaded_again_meanwhile() -> None:
    """The entry from before does not know what was committed since; the start would be read at the next load."""
    async with orders() as (cluster, admin, _):
        await admin.create_partitions(TOPIC, 2)
        member = StockMember(admin)
        await member.take_part()
        await member.commit({0: EACH})
        assert await member.told_to_rejoin() == {0, 1}
        (node,) = cluster.nodes.values()
        groups = node.services.groups
        former = groups.table.slots[GROUP]
        former.gates.noted.clear()

        async def load_again() -> None:
            groups.step_down()
            for partition in node.services.replicas.partitions():
                groups.on_leader(partition.topic, partition.index, partition.leader_epoch)
            await asked_until(member.heartbeat, lambda code: code is ErrorCode.NONE)

        await load_again()
        await member.commit({1: 5})
        await groups.gates.prepare(former, [TOPIC])
        await load_again()
        assert await committed(admin) == {0: EACH, 1: 5}


async def test_group_created_after_a_resize_starts_children_by_its_reset_policy() -> None:
    async with orders() as (_, admin, _):
        await admin.create_partitions(TOPIC, 2)
        member = StockMember(admin)
        assert await member.take_part() == {0}
        await member.commit({0: EACH})
        assert await member.told_to_rejoin() == {0, 1}
        assert await committed(admin) == {0: EACH}


async def test_start_of_a_child_has_the_time_of_day_as_any_commit() -> None:
    """Retention counts from it. The broker's time for deadlines does not follow its time of day."""
    async with orders() as (cluster, admin, _):
        member = StockMember(admin)
        await member.take_part()
        await member.commit({0: 1})
        (node,) = cluster.nodes.values()
        cluster.shift_clock(node.settings.node_id, HOUR_MS)
        await admin.create_partitions(TOPIC, 2)
        await member.take_part()
        start = node.services.groups.offsets.of(GROUP).committed[TOPIC, 1]
        assert start.offset == 0 and node.clock.now_ms() - start.commit_timestamp_ms < HOUR_MS


async def test_children_of_a_topic_that_was_let_go_start_at_their_log_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a commit there, members with `auto.offset.reset=latest` would skip what is in them."""
    monkeypatch.setattr(group_gates, "OPENING_DELAY_MS", 0)
    async with orders(reshard_legacy_consumers_uncommitted_ms="300") as (_, admin, _):
        await admin.create_partitions(TOPIC, 2)
        member = StockMember(admin)
        assert await member.take_part() == {0}
        assert await member.told_to_rejoin() == {0, 1}
        assert await committed(admin) == {}, "the group is younger than the child"
        await admin.create_partitions(TOPIC, 4)
        assert await member.take_part() == {0, 1, 2, 3}
        assert await committed(admin) == {2: 0, 3: 0}


async def test_start_of_a_child_is_not_committed_over_the_offset_of_an_open_transaction() -> None:
    """The next coordinator does not know whether the child's start was committed; the transaction may be about to."""
    async with orders() as (cluster, admin, _):
        await admin.create_partitions(TOPIC, 2)
        member = StockMember(admin)
        assert await member.take_part() == {0}
        await member.commit({0: EACH})
        assert await member.told_to_rejoin() == {0, 1}
        (node,) = cluster.nodes.values()
        groups = node.services.groups
        slot = groups.table.slots[GROUP]
        async with Producer(cluster.bootstrap_servers, transactional_id="till") as producer:
            await producer.begin_transaction()
            identity = ConsumerGroupMetadata(GROUP, member.generation, member.member_id)
            await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 1): 5}, identity)
            slot.gates.noted.clear()  # a coordinator that loads the group has no notes
            await groups.gates.prepare(slot, [TOPIC])
            await producer.commit_transaction()
        await asked_until(lambda: committed(admin), lambda known: 1 in known)
        assert await committed(admin) == {0: EACH, 1: 5}
        await groups.gates.prepare(slot, [TOPIC])
        assert slot.gates.noted == {TOPIC: 1} and await committed(admin) == {0: EACH, 1: 5}


async def test_gated_merge_target_is_committed_to_its_log_start_for_members_with_gates() -> None:
    """0 has no reader and its records are deleted; the member with gates waits until the group has passed them."""
    async with (
        orders() as (cluster, admin, _),
        Admin(cluster.bootstrap_servers, client_id="a-stock") as first,
        Admin(cluster.bootstrap_servers, client_id="b-gates") as second,
    ):
        await split_and_merge(cluster, admin)
        merged, gone = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
        await commit_offsets(admin.network, GROUP, {merged: 2 * EACH, gone: 0})
        start = 2 * EACH + 3
        await admin.delete_records({merged: start})
        stock, gated = StockMember(first), StockMember(second, holds_gates=True)
        await stock.take_part()
        await asyncio.gather(gated.take_part(), stock.told_to_rejoin())
        assert (stock.assigned, gated.assigned) == (set(), {1})
        await asked_until(lambda: committed(admin), lambda offsets: offsets[0] == start)
        assert await withheld(admin) == {0: f"1@1 to reach offset {EACH} (committed: 0)"}
        await gated.commit({1: EACH})
        halves = await asyncio.gather(stock.told_to_rejoin(), gated.told_to_rejoin())
        assert halves[0] == {0}


async def test_consumer_continues_beside_stock_member_after_deletion_in_gated_partition() -> None:
    """1@1 waits until the group has passed 0@0, which ends at the log start; 0 is unassigned."""
    async with (
        orders() as (cluster, admin, _),
        Admin(cluster.bootstrap_servers, client_id="a-stock") as other,
    ):
        await split_and_merge(cluster, admin)
        merged, gone = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
        await commit_offsets(admin.network, GROUP, {merged: 2 * EACH, gone: 0})
        await admin.delete_records({merged: 2 * EACH + 3})
        stock = StockMember(other)

        async def take_part() -> None:
            while True:
                await stock.take_part()
                await asked_until(stock.heartbeat, lambda code: code is not ErrorCode.NONE)

        taking_part = asyncio.create_task(take_part())
        async with Consumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap_servers,
            client_id="b-gates",
            group_id=GROUP,
            partition_assignment_strategy=("range",),
        ) as consumer:
            found: list[int] = []
            while len(found) < EACH:
                for partition, rows in (await consumer.getmany(timeout_ms=200)).items():
                    assert partition == gone and not stock.assigned
                    found += [row.offset for row in rows]
        assert found == list(range(EACH))
        taking_part.cancel()


async def test_log_start_of_gated_merge_target_is_not_committed_for_stock_members_only() -> None:
    """The coordinator has their gates and knows log starts; their start follows their reset policy."""
    async with orders() as (cluster, admin, _):
        await split_and_merge(cluster, admin)
        await admin.delete_records({TopicPartition(TOPIC, 0): 2 * EACH})
        await commit_offsets(admin.network, GROUP, {TopicPartition(TOPIC, 1): 0})
        member = StockMember(admin)
        assert await member.take_part() == {1}
        await member.commit({1: EACH})
        assert await member.told_to_rejoin() == {0, 1}
        assert 0 not in await committed(admin)


async def test_unassigned_merge_target_is_committed_to_its_log_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_gates, "AGAIN_S", 0.1)
    async with orders(kafka="4.1") as (cluster, admin, _):
        admin.network.follow(TOPIC)
        await split_and_merge(cluster, admin)
        merged, gone = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
        await commit_offsets(admin.network, GROUP, {merged: 2 * EACH, gone: 0})
        stock, gated = Assigned(admin, "a-stock"), Assigned(admin, "b-gates", holds_gates=True)
        assert await stock.beat() | await gated.beat() == {1}
        assert (await committed(admin))[0] == 2 * EACH, "nothing is deleted"
        await admin.delete_records({merged: 2 * EACH + 3})
        await asked_until(lambda: committed(admin), lambda offsets: offsets[0] == 2 * EACH + 3)
