"""Assignments to stock members when their topic grows, and the later rest."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from anabranch import Admin, Cluster, NewTopic, Producer
from anabranch.broker.coordinators.groups import group_gates
from anabranch.broker.coordinators.groups.group_shards import GroupEntry
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.coordinators.gated_orders import EACH, Assigned, fill, orders, withheld
from tests.broker.coordinators.stock_members import GROUP, TOPIC, StockMember, asked_until, committed


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


async def test_gates_of_a_group_without_commits_open_after_the_configured_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_gates, "OPENING_DELAY_MS", 0)
    async with orders(reshard_legacy_consumers_uncommitted_ms="300") as (_, admin, _):
        await admin.create_partitions(TOPIC, 2)
        member = StockMember(admin)
        assert await member.take_part() == {0}
        assert await member.told_to_rejoin() == {0, 1}
        assert await member.take_part() == {0, 1}, "once let go, it stays so"


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


async def test_topic_whose_gates_wait_without_bound_is_not_let_go_with_another() -> None:
    async with orders(reshard_legacy_consumers_uncommitted_ms="60000") as (cluster, admin, _):
        await admin.create_partitions(TOPIC, 2)
        assert await StockMember(admin).take_part() == {0}
        (node,) = cluster.nodes.values()
        groups = node.services.groups
        slot = groups.table.slots[GROUP]
        slot.gates.patient_until_ms = 0  # a minute later
        slot.gates.waiting_since_ms[TOPIC] -= 60_000
        slot.gates.waiting_since_ms["whose gates wait without bound"] = 0
        groups.gates.is_due(slot)
        assert slot.gates.let_go == {TOPIC}


@pytest.mark.parametrize(
    ("configs", "options"),
    [
        ({"reshard_legacy_consumers": "ignore"}, {}),
        ({"enable_ordered_delivery": "false"}, {}),
        ({}, {"protocol": "stream"}),  # that of Kafka Streams
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


async def test_configuration_of_a_topic_is_read_before_its_gates_are_held() -> None:
    """The coordinator may have no replica of the topic."""
    async with orders(reshard_legacy_consumers="ignore") as (cluster, admin, _):
        await admin.create_partitions(TOPIC, 2)
        (node,) = cluster.nodes.values()
        node.services.topic_configs.forget(TOPIC)
        assert await StockMember(admin).take_part() == {0, 1}


async def test_unknown_topic_has_no_gates() -> None:
    """A member's assignment may have a topic that was deleted meanwhile."""
    async with orders() as (cluster, admin, _):
        await StockMember(admin).take_part()
        (node,) = cluster.nodes.values()
        groups = node.services.groups
        slot = groups.table.slots[GROUP]
        await groups.gates.prepare(slot, ["deleted"])
        assert groups.gates.assignable(slot, ["deleted"]) == {}


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


async def test_next_coordinator_withholds_nothing_from_members_with_gate_support() -> None:
    async with orders() as (cluster, admin, _):
        member = StockMember(admin, holds_gates=True)
        assert await member.take_part() == {0}
        await admin.create_partitions(TOPIC, 2)
        (node,) = cluster.nodes.values()
        groups = node.services.groups
        slot = groups.table.slots[GROUP]
        groups.gates.on_loaded(slot)
        await groups.gates.prepare(slot, [TOPIC])  # as long as it would take to find what no member has
        assert await member.heartbeat() is ErrorCode.NONE
        assert await withheld(admin) == {}


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
