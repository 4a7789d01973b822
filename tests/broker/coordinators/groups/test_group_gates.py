"""Assignments to stock members when their topic grows, and the later rest."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from anabranch import Admin, Cluster, Consumer, NewTopic, Producer, TopicPartition
from anabranch.broker.coordinators.groups import group_gates
from anabranch.broker.coordinators.groups.group_shards import GroupEntry
from anabranch.clients.group_admin import commit_offsets
from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.coordinators.gated_orders import EACH, Assigned, fill, orders, split_and_merge, withheld
from tests.broker.coordinators.stock_members import GROUP, TOPIC, StockMember, asked_until, committed

HOUR_MS = 3_600_000


async def created(admin: Admin) -> bool:
    """Whether the topic could be made: one of its name may still be on its way out."""
    try:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=1)])
    except KafkaError as error:
        assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        return False
    return True


async def test_child_is_assigned_once_its_parent_is_committed_to_the_cut() -> None:
    async with orders() as (_, admin, _):
        member = StockMember(admin)
        assert await member.take_part() == {0}
        await member.commit({0: EACH - 1})
        await admin.create_partitions(TOPIC, 2)
        assert await member.take_part() == {0}
        assert await withheld(admin) == {1: f"0@0 to reach offset {EACH} (committed: {EACH - 1})"}
        assert await committed(admin) == {0: EACH - 1, 1: 0}, "its start, whatever the reset policy would say"
        assert await member.heartbeat() is ErrorCode.NONE
        await member.commit({0: EACH})
        assert await member.told_to_rejoin() == {0, 1}
        assert await withheld(admin) == {}
        assert await member.heartbeat() is ErrorCode.NONE


async def test_gates_opening_together_cause_one_rebalance() -> None:
    async with orders(brokers=3, partitions=4) as (cluster, admin, _), Admin(cluster.bootstrap_servers) as other:
        members = [StockMember(admin), StockMember(other)]
        await members[0].take_part()
        await asyncio.gather(members[1].take_part(), members[0].told_to_rejoin())
        await admin.create_partitions(TOPIC, 8)
        halves = await asyncio.gather(members[0].take_part(), members[1].told_to_rejoin())
        assert halves[0] | halves[1] == {0, 1, 2, 3}
        generation = members[0].generation
        for member in members:
            await member.commit(dict.fromkeys(member.assigned, EACH))
        halves = await asyncio.gather(*(one.told_to_rejoin() for one in members))
        assert halves[0] | halves[1] == set(range(8))
        assert members[0].generation == generation + 1


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


async def test_gates_of_a_chain_open_through_empty_partitions() -> None:
    async with orders() as (_, admin, _):
        member = StockMember(admin)
        await member.take_part()
        await member.commit({0: 1})
        for count in (2, 4):
            await admin.create_partitions(TOPIC, count)
        assert await member.take_part() == {0}
        await member.commit({0: EACH})
        assert await member.told_to_rejoin() == {0, 1, 2, 3}, "nothing was ever in 1"


async def test_records_after_the_cut_do_not_keep_a_gate_closed() -> None:
    async with orders() as (_, admin, producer):
        member = StockMember(admin)
        await member.take_part()
        await admin.create_partitions(TOPIC, 2)
        await fill(producer, 1)
        assert await member.take_part() == {0}
        assert "committed: nothing" in (await withheld(admin))[1]
        await member.commit({0: 2 * EACH})
        assert await member.told_to_rejoin() == {0, 1}
        assert await committed(admin) == {0: 2 * EACH, 1: 0}, "it was there before the child, though it had no commit"


async def test_group_created_after_a_resize_starts_children_by_its_reset_policy() -> None:
    async with orders() as (_, admin, _):
        await admin.create_partitions(TOPIC, 2)
        member = StockMember(admin)
        assert await member.take_part() == {0}
        await member.commit({0: EACH})
        assert await member.told_to_rejoin() == {0, 1}
        assert await committed(admin) == {0: EACH}


async def test_gates_of_a_group_without_commits_open_after_the_configured_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_gates, "OPENING_DELAY_MS", 0)
    async with orders(reshard_legacy_consumers_uncommitted_ms="300") as (_, admin, _):
        await admin.create_partitions(TOPIC, 2)
        member = StockMember(admin)
        assert await member.take_part() == {0}
        assert await member.told_to_rejoin() == {0, 1}
        assert await member.take_part() == {0, 1}, "once let go, it stays so"


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


async def test_each_resize_is_waited_for_as_long_as_configured() -> None:
    """The wait for the second child counted from the first one's: a long time after that it was over at once."""
    async with orders(partitions=2, reshard_legacy_consumers_uncommitted_ms="60000") as (cluster, admin, _):
        member = StockMember(admin)
        assert await member.take_part() == {0, 1}
        await member.commit({0: 1})
        await admin.create_partitions(TOPIC, 3)
        assert await member.take_part() == {0, 1}
        (node,) = cluster.nodes.values()
        groups = node.services.groups
        slot = groups.table.slots[GROUP]
        gates = slot.gates
        gates.waiting_since_ms["of another topic, which is open"] = 0
        groups.gates.refresh(slot)
        assert set(gates.waiting_since_ms) == {TOPIC}
        await member.commit({0: EACH})
        assert await member.told_to_rejoin() == {0, 1, 2}
        for name in gates.waiting_since_ms:
            gates.waiting_since_ms[name] -= 60_000  # a minute later
        await admin.create_partitions(TOPIC, 4)
        assert await member.take_part() == {0, 1, 2}
        assert set(await withheld(admin)) == {3} and not gates.let_go, "1 has no commit yet"


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


@pytest.mark.parametrize(
    ("configs", "options"),
    [
        ({"reshard_legacy_consumers": "ignore"}, {}),
        ({"enable_ordered_delivery": "false"}, {}),
        ({}, {"protocol": "RoundRobinAssigner"}),
        ({}, {"protocol_type": "connect"}),  # whatever its protocols are called
        ({}, {"holds_gates": True}),
    ],
)
async def test_groups_exempt_from_gates_are_assigned_all_partitions(
    configs: dict[str, str], options: dict[str, object]
) -> None:
    async with orders(**configs) as (_, admin, _):
        member = StockMember(admin, **options)  # type: ignore[arg-type]
        await member.take_part()
        await admin.create_partitions(TOPIC, 2)
        assert await member.take_part() == {0, 1}
        assert await withheld(admin) == {}


async def test_topic_without_ordered_delivery_grows_without_gates() -> None:
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=1)])
        await admin.wait_for_topic(TOPIC)
        member = StockMember(admin)
        await member.take_part()
        await admin.create_partitions(TOPIC, 2)
        assert await member.take_part() == {0, 1}
        await admin.alter_configs(TOPIC, changes={"reshard.legacy.consumers": "gate"})
        assert await member.take_part() == {0, 1}, "nothing was ever in 0"


async def test_gates_are_not_applied_to_members_with_gate_support() -> None:
    async with orders() as (cluster, admin, _), Admin(cluster.bootstrap_servers) as other:
        members = [StockMember(admin), StockMember(other, holds_gates=True)]
        await members[0].take_part()
        await asyncio.gather(members[1].take_part(), members[0].told_to_rejoin())
        await admin.create_partitions(TOPIC, 4)
        stock, own = await asyncio.gather(members[0].take_part(), members[1].told_to_rejoin())
        dealt = sorted(one.member_id for one in members)
        all_of_own = {0, 2} if dealt[0] == members[1].member_id else {1, 3}
        assert own == all_of_own
        assert stock == {0} - all_of_own


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


async def test_gate_that_closed_again_applies_to_a_returning_static_member() -> None:
    async with orders() as (_, admin, _):
        await admin.create_partitions(TOPIC, 2)
        member = StockMember(admin, instance="till-1")
        await member.take_part()
        await member.commit({0: EACH})
        assert await member.told_to_rejoin() == {0, 1}
        await member.commit({0: 3})
        back = StockMember(admin, instance="till-1")
        await back.join()
        assert back.generation == member.generation, "nobody noticed"
        assert await back.sync() is ErrorCode.NONE
        assert back.assigned == {0}
        await back.commit({0: EACH})
        assert await back.told_to_rejoin() == {0, 1}


async def test_returning_static_member_is_assigned_new_partitions_by_a_rebalance() -> None:
    """A returning static member causes no assignment (KIP-345, KIP-814)."""
    async with orders() as (_, admin, _):
        member = StockMember(admin, instance="till-1")
        await member.take_part()
        await member.commit({0: EACH})
        await admin.create_partitions(TOPIC, 2)
        back = StockMember(admin, instance="till-1")
        await back.join()
        assert await back.told_to_rejoin() == {0, 1}
        assert await committed(admin) == {0: EACH, 1: 0}


async def test_returning_static_member_is_assigned_new_partitions_beside_one_behind_a_closed_gate() -> None:
    async with orders(partitions=2) as (_, admin, _):
        member = StockMember(admin, instance="till-1")
        await member.take_part()
        await member.commit({0: 1, 1: EACH})
        await admin.create_partitions(TOPIC, 3)
        assert await member.take_part() == {0, 1} and set(await withheld(admin)) == {2}
        await admin.create_partitions(TOPIC, 4)
        back = StockMember(admin, instance="till-1")
        await back.join()
        assert await back.told_to_rejoin() == {0, 1, 3}
        assert set(await withheld(admin)) == {2}


async def test_next_coordinator_keeps_gated_partitions() -> None:
    async with orders(brokers=3) as (cluster, admin, _):
        member = StockMember(admin)
        await member.take_part()
        await member.commit({0: 1})
        await admin.create_partitions(TOPIC, 2)
        assert await member.take_part() == {0}
        known = next(node for node in cluster.nodes.values() if GROUP in node.services.groups.table.slots)
        await cluster.crash_broker(known.settings.node_id)
        await asked_until(member.heartbeat, lambda code: code is ErrorCode.NONE)
        await asked_until(lambda: withheld(admin), bool)
        await member.commit({0: EACH})
        assert await member.told_to_rejoin() == {0, 1}


async def test_next_coordinator_that_learns_of_a_resize_after_the_load_keeps_its_gates() -> None:
    async with orders() as (cluster, admin, _):
        (node,) = cluster.nodes.values()
        groups, metadata = node.services.groups, node.services.metadata
        member = StockMember(admin)
        await member.take_part()
        await member.commit({0: EACH - 1})
        stale = metadata.image
        await admin.create_partitions(TOPIC, 2)
        assert await member.take_part() == {0}
        slot, known = groups.table.slots[GROUP], metadata.image
        slot.classic.withhold_nothing()
        groups.gates.update_watch(slot)
        metadata.image = stale  # a coordinator that loads the group has nothing else
        groups.gates.on_loaded(slot)
        await asyncio.sleep(0)
        assert groups.withheld(GROUP) == {}
        metadata.image = known
        groups.gates.on_topics_changed([TOPIC])
        await asked_until(lambda: withheld(admin), lambda found: set(found) == {1})
        await member.commit({0: EACH})
        assert await member.told_to_rejoin() == {0, 1}


async def test_transaction_markers_below_a_cut_do_not_keep_its_gate_closed() -> None:
    async with orders() as (cluster, admin, _):
        member = StockMember(admin)
        await member.take_part()
        async with Producer(cluster.bootstrap_servers, transactional_id="till") as producer:
            await producer.begin_transaction()
            await producer.send(TOPIC, b"aborted", partition=0)
            await producer.flush()
            await producer.abort_transaction()
        await admin.create_partitions(TOPIC, 2)
        assert await member.take_part() == {0}
        assert (await withheld(admin))[1].startswith(f"0@0 to reach offset {EACH} ")
        await member.commit({0: EACH})
        assert await member.told_to_rejoin() == {0, 1}


async def test_gated_partitions_are_assigned_when_gating_is_disabled() -> None:
    async with orders() as (_, admin, _):
        await admin.create_partitions(TOPIC, 2)
        member = StockMember(admin)
        assert await member.take_part() == {0}
        await admin.alter_configs(TOPIC, changes={"reshard.legacy.consumers": "ignore"})
        assert await member.told_to_rejoin() == {0, 1}


async def test_recreated_topic_has_no_gates_of_its_predecessor() -> None:
    async with orders() as (_, admin, producer):
        member = StockMember(admin)
        await member.take_part()
        await member.commit({0: EACH})
        for count in (2, 4):
            await admin.create_partitions(TOPIC, count)
            await member.take_part()
        await admin.delete_topics([TOPIC])
        await asked_until(lambda: committed(admin), lambda known: not known)
        await asked_until(partial(created, admin), bool)
        await admin.wait_for_topic(TOPIC)
        await fill(producer, 1)
        await member.take_part()
        await member.commit({0: 1})
        await admin.create_partitions(TOPIC, 2)
        assert await member.take_part() == {0}
        assert await committed(admin) == {0: 1, 1: 0}


# --- KIP-848 groups ---------------------------------------------------------------------------------


async def test_consumer_group_excludes_gated_partitions_and_bumps_its_epoch_on_opening() -> None:
    async with orders(kafka="4.1") as (cluster, admin, _):
        admin.network.follow(TOPIC)
        member = Assigned(admin)
        assert await member.beat() == {0}
        await member.commit({0: EACH - 1})
        epoch = member.epoch
        await admin.create_partitions(TOPIC, 4)
        assert await member.beat() == {0}
        assert member.epoch == epoch, "what it may have has not changed"
        (node,) = cluster.nodes.values()
        assert node.services.groups.withheld(GROUP) == {
            (TOPIC, index): f"0@0 to reach offset {EACH} (committed: {EACH - 1})" for index in (1, 2, 3)
        }
        assert await committed(admin) == {0: EACH - 1, 1: 0, 2: 0, 3: 0}
        await member.commit({0: EACH})
        assert await asked_until(member.beat, lambda owned: owned != {0}) == {0, 1, 2, 3}
        assert member.epoch == epoch + 1
        assert node.services.groups.withheld(GROUP) == {}


async def test_gate_that_opens_while_targets_are_replicated_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async with orders(kafka="4.1") as (cluster, admin, _), Admin(cluster.bootstrap_servers) as other:
        admin.network.follow(TOPIC)
        other.network.follow(TOPIC)
        member, joining = Assigned(admin), Assigned(other, "till-2")
        assert await member.beat() == {0}
        await member.commit({0: EACH - 1})
        await admin.create_partitions(TOPIC, 2)
        assert await member.beat() == {0}
        write, appended, replicated = GroupEntry.write, asyncio.Event(), asyncio.Event()

        async def slow(slot: GroupEntry, *arguments: Any, **named: Any) -> int:
            offset = await write(slot, *arguments, **named)
            if "appended" in named:
                appended.set()
                await replicated.wait()
            return offset

        monkeypatch.setattr(GroupEntry, "write", slow)
        joined = asyncio.create_task(joining.beat())
        await appended.wait()
        await member.commit({0: EACH})
        replicated.set()
        await joined

        async def both() -> set[int]:
            return await member.beat() | await joining.beat()

        assert await asked_until(both, lambda owned: owned != {0}) == {0, 1}


async def test_targets_after_a_departure_belong_to_the_gates_of_their_time() -> None:
    async with orders(kafka="4.1") as (_, admin, _producer):
        admin.network.follow(TOPIC)
        stays, leaves = Assigned(admin), Assigned(admin, "till-2")
        assert await stays.beat() == {0}
        await leaves.beat()
        await stays.commit({0: EACH})
        await admin.create_partitions(TOPIC, 2)
        before = stays.epoch
        await asked_until(stays.beat, lambda _: stays.epoch > before)
        await leaves.leave()
        await stays.commit({0: EACH - 1})  # closes the gate again, before the targets without the other are computed
        assert await stays.beat() == {0}
        await stays.commit({0: EACH})
        assert await asked_until(stays.beat, lambda owned: owned != {0}) == {0, 1}


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


async def test_next_coordinator_of_a_consumer_group_keeps_gated_partitions() -> None:
    async with orders(brokers=3, kafka="4.1") as (cluster, admin, _):
        admin.network.follow(TOPIC)
        member = Assigned(admin)
        assert await member.beat() == {0}
        await member.commit({0: 1})
        await admin.create_partitions(TOPIC, 2)
        assert await member.beat() == {0}
        known = next(node for node in cluster.nodes.values() if GROUP in node.services.groups.table.slots)
        await cluster.crash_broker(known.settings.node_id)
        assert await member.beat() == {0}
        await member.commit({0: EACH})
        assert await asked_until(member.beat, lambda owned: owned != {0}) == {0, 1}
