"""KIP-848 groups over TCP: responses are replicated, and survive the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.consumer_groups import regular_expressions
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.member import UNREVOKED
from anabranch.broker.coordinators.groups.group_coordinator import GroupCoordinator
from anabranch.broker.coordinators.groups.group_shards import GroupEntry
from anabranch.clients.connection import Connection
from anabranch.controller.zk.session import ConnectionLoss
from anabranch.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from anabranch.protocol.apis.delete_groups import DeleteGroupsRequest
from anabranch.protocol.apis.describe_groups import DescribeGroupsRequest
from anabranch.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.protocol.apis.list_groups import ListGroupsRequest
from anabranch.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_assignment,
    encode_subscription,
)
from anabranch.protocol.consumer_protocol import TopicPartitions as ConsumerProtocolTopic
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC
from tests.broker.coordinators.world import (
    TOPIC,
    GroupWorld,
    commit_errors,
    commit_request,
    fetch_offsets_request,
    group_world,
    heartbeat_request,
    join_request,
    offsets_in,
    sync_request,
)
from tests.broker.replication.replica_cluster import until


@dataclass
class Wired:
    """Brokers that show themselves as Kafka 4.1, and connections to them."""

    world: GroupWorld
    connections: list[Connection] = field(default_factory=list)

    async def connect(self, broker: int = 1) -> Connection:
        self.connections.append(await self.world[broker].connect())
        return self.connections[-1]


@asynccontextmanager
async def wired(brokers: int = 1, **settings: Any) -> AsyncIterator[Wired]:
    async with group_world(brokers=brokers, **{"kafka_version": "4.1", **settings}) as world:
        made = Wired(world)
        try:
            yield made
        finally:
            for connection in made.connections:
                await connection.close()


def beat(
    member_id: str, epoch: int = 0, *, owned: dict[bytes, list[int]] | None = None, **more: Any
) -> ConsumerGroupHeartbeatRequest:
    if epoch == 0:
        more = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [TOPIC], "topic_partitions": []} | more
    elif owned is not None:
        more["topic_partitions"] = [TopicPartitions(topic_id=one, partitions=owned[one]) for one in owned]
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **more)


def assigned(response: Any) -> dict[bytes, list[int]] | None:
    assert response.error_code == ErrorCode.NONE, response
    given = response.assignment
    return None if given is None else {row.topic_id: list(row.partitions) for row in given.topic_partitions}


def group_of(world: GroupWorld, broker: int = 1) -> ConsumerGroup:
    group = world.groups(broker).group("g")
    assert isinstance(group, ConsumerGroup)
    return group


async def describe(connection: Connection) -> Any:
    response = await connection.call(ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False))
    return response.groups[0]


async def test_two_members_share_a_topic() -> None:
    async with wired() as wire:
        world = wire.world
        connection = await wire.connect()
        topic = world.brokers[1].services.metadata.topic_id(TOPIC)
        assert assigned(await connection.call(beat("a"))) == {topic: [0, 1, 2, 3]}
        assert assigned(await connection.call(beat("b"))) == {}
        assert assigned(await connection.call(beat("a", 1))) == {topic: [0, 1]}
        assert assigned(await connection.call(beat("b", 2))) is None
        assert (await connection.call(beat("a", 1, owned={topic: [0, 1]}))).member_epoch == 2
        assert assigned(await connection.call(beat("b", 2))) == {topic: [2, 3]}
        description = await describe(connection)
        assert (
            description.group_state,
            description.group_epoch,
            description.assignment_epoch,
            description.assignor_name,
        ) == (
            "Stable",
            2,
            2,
            "uniform",
        )
        assert {one.member_id: one.assignment.topic_partitions[0].partitions for one in description.members} == {
            "a": [0, 1],
            "b": [2, 3],
        }
        assert all(one.member_type == 1 and one.assignment == one.target_assignment for one in description.members)


async def test_rebalance_continues_after_a_coordinator_failover() -> None:
    async with wired(2) as wire:
        world = wire.world
        first = await wire.connect()
        await first.call(beat("a"))
        await first.call(beat("b"))
        assert (await first.call(beat("a", 1))).member_epoch == 1  # has to give up two
        before = group_of(world)
        await world.kill(1)
        await world.coordinate(2, isr=(2,))
        after = group_of(world, 2)
        assert after is not before and (after.members, after.targets) == (before.members, before.targets)
        second = await wire.connect(2)
        topic = world.brokers[2].services.metadata.topic_id(TOPIC)
        assert (await second.call(beat("a", 1, owned={topic: [0, 1]}))).member_epoch == 2
        assert assigned(await second.call(beat("b", 2))) == {topic: [2, 3]}


async def test_responses_wait_for_replication() -> None:
    """Broker 2 is in the ISR but dead: the leader has the records, but they are not committed."""
    async with wired(2) as wire:
        world = wire.world
        connection = await wire.connect()
        await connection.call(beat("a"))
        await world.kill(2)
        describing = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
        pending = [asyncio.create_task(connection.call(beat("b")))]
        await until(lambda: group_of(world).epoch == 2)
        for request in (describing, beat("a", 1)):
            pending.append(asyncio.create_task((await wire.connect()).call(request)))
        leader = world.partition(1, CONSUMER_OFFSETS_TOPIC)
        await until(lambda: group_of(world).members["a"].state is UNREVOKED)
        assert leader.high_watermark < leader.log.log_end_offset and not any(one.done() for one in pending)
        await world.coordinate(1, isr=(1,))
        joined, description, stayed = await asyncio.gather(*pending)
        assert (joined.member_epoch, description.groups[0].group_epoch, stayed.member_epoch) == (2, 2, 1)


async def test_change_refused_by_the_log_is_not_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    async with wired(2) as wire:
        world = wire.world
        connection = await wire.connect()
        await connection.call(beat("a"))
        partition = world.brokers[1].services.replicas.leader_of(CONSUMER_OFFSETS_TOPIC, 0)

        def refuse() -> None:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "one is too few")

        monkeypatch.setattr(partition, "check_min_isr", refuse)
        try:
            refused = await connection.call(beat("b"))
            assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert (await connection.call(beat("a", 1))).error_code == ErrorCode.NONE
            assert group_of(world).epoch == 1 and list(group_of(world).members) == ["a"]
        finally:
            monkeypatch.undo()
        assert (await connection.call(beat("b"))).member_epoch == 2


async def without_zookeeper(slot: object, names: object) -> None:
    raise ConnectionLoss("it does not answer")


async def test_member_retries_while_zookeeper_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with wired() as wire:
        groups, connection = wire.world.groups(1), await wire.connect()
        monkeypatch.setattr(groups.gates, "prepare", without_zookeeper)
        refused = await connection.call(beat("a"))
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert groups.groups() == [], "a refused join leaves no group behind"
        joined = await connection.call(join_request(), version=3)
        synced = await connection.call(sync_request(joined.member_id, joined.generation_id))
        assert synced.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        monkeypatch.undo()
        assert (await connection.call(sync_request(joined.member_id, joined.generation_id))).error_code == 0


async def test_member_with_expired_session_is_removed() -> None:
    async with wired() as wire:
        world = wire.world
        connection = await wire.connect()
        await connection.call(beat("a"))
        await connection.call(beat("b"))
        coordinator: GroupCoordinator = world.groups(1)
        world.late_ms = 30_000
        await connection.call(beat("a", 1))
        world.late_ms = 46_000
        coordinator.alarm.wake()
        await until(lambda: list(group_of(world).members) == ["a"])
        assert (await connection.call(beat("b", 2))).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_offsets_are_fenced_by_the_member_epoch_and_survive_the_members() -> None:
    async with wired() as wire:
        world = wire.world
        connection = await wire.connect()
        await connection.call(beat("a"))
        refused = await connection.call(commit_request({0: 5}, member=("a", 2)))
        assert commit_errors(refused) == [ErrorCode.STALE_MEMBER_EPOCH]
        assert commit_errors(await connection.call(commit_request({0: 5}, member=("a", 1)))) == [ErrorCode.NONE]
        assert offsets_in(await connection.call(fetch_offsets_request(9, [0]), version=9), 9) == {0: 5}
        assert (await connection.call(DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code == (
            ErrorCode.NON_EMPTY_GROUP
        )
        assert (await connection.call(beat("a", -1))).member_epoch == -1
        assert (await describe(connection)).group_state == "Empty"
        assert commit_errors(await connection.call(commit_request({0: 7}))) == [ErrorCode.NONE]
        await world.restart(1)
        await world.coordinate(1)
        connection = await wire.connect()
        assert offsets_in(await connection.call(fetch_offsets_request(9, [0]), version=9), 9) == {0: 7}
        assert (await describe(connection)).group_state == "Empty"
        assert (await connection.call(DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code == 0
        assert (await describe(connection)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await world.restart(1)
        await world.coordinate(1)
        assert world.groups(1).groups() == []


async def test_list_and_describe_distinguish_group_types() -> None:
    async with wired() as wire:
        connection = await wire.connect()
        await connection.call(beat("a"))
        await connection.call(commit_request({0: 5}, group="offsets"))
        listed = await connection.call(ListGroupsRequest(states_filter=[], types_filter=[]))
        assert [(one.group_id, one.group_type, one.group_state, one.protocol_type) for one in listed.groups] == [
            ("g", "consumer", "Stable", "consumer"),
            ("offsets", "classic", "Empty", ""),
        ]
        only = await connection.call(ListGroupsRequest(states_filter=["STABLE"], types_filter=["Consumer"]))
        assert [one.group_id for one in only.groups] == ["g"]
        for version, state, code in ((5, "Dead", ErrorCode.NONE), (6, "Dead", ErrorCode.GROUP_ID_NOT_FOUND)):
            request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=False)
            (group,) = (await connection.call(request, version=version)).groups
            assert (group.group_state, group.error_code) == (state, code)


async def test_group_that_becomes_a_classic_group_meanwhile_is_described_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with wired() as wire:
        connection = await wire.connect()
        await connection.call(beat("a"))
        runtime = wire.world.groups(1).consumers._runtime
        slot, waits = runtime.table.find("g"), runtime.journal.wait_replicated
        assert slot is not None
        group = slot.group

        async def convert(*arguments: Any) -> None:
            await waits(*arguments)
            slot.group = ClassicGroup.__new__(ClassicGroup)

        monkeypatch.setattr(runtime.journal, "wait_replicated", convert)
        request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
        try:
            described = await connection.call(request)
        finally:
            slot.group = group
        assert [one.member_id for one in described.groups[0].members] == ["a"]


async def test_empty_group_changes_its_type() -> None:
    async with wired() as wire:
        world = wire.world
        connection = await wire.connect()
        joined = await connection.call(join_request(), version=3)
        refused = await connection.call(beat("a", 1))
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await connection.call(LeaveGroupRequest(group_id="g", member_id=joined.member_id), version=2)
        assert (await connection.call(beat("a"))).member_epoch == 3, "no generation comes twice"
        await world.restart(1)
        await world.coordinate(1)
        assert list(group_of(world).members) == ["a"]
        assert group_of(world).epoch == 3


async def test_an_expression_is_resolved_after_its_heartbeat() -> None:
    async with wired() as wire:
        world = wire.world
        connection = await wire.connect()
        more = {"subscribed_topic_names": None, "subscribed_topic_regex": f"{TOPIC}|x.*"}
        assert assigned(await connection.call(beat("a", **more))) == {}
        await until(lambda: bool(group_of(world).regexes))
        answer = await connection.call(beat("a", 1))
        assert (answer.member_epoch, list(assigned(answer).values())) == (2, [[0, 1, 2, 3]])  # type: ignore[union-attr]


async def test_epoch_of_a_group_that_was_classic_survives_although_nothing_matches_its_expression() -> None:
    async with wired() as wire:
        world = wire.world
        connection = await wire.connect()
        joined = await connection.call(join_request(), version=3)
        await connection.call(LeaveGroupRequest(group_id="g", member_id=joined.member_id), version=2)
        more = {"subscribed_topic_names": None, "subscribed_topic_regex": "later"}
        assert (await connection.call(beat("a", **more))).member_epoch == 3, "no generation comes twice"
        await until(lambda: "later" in group_of(world).regexes)
        await world.restart(1)
        await world.coordinate(1)
        assert (group_of(world).epoch, group_of(world).assignment_epoch) == (3, 3)
        await world.create_topic(2, "later")
        connection = await wire.connect()
        world.late_ms = regular_expressions.REFRESH_MIN_MS + 1
        await connection.call(beat("a", 3))
        await until(lambda: bool(group_of(world).regexes["later"].topics))
        assert (await connection.call(beat("a", 3))).member_epoch == 4
        assert [list(rows) for rows in group_of(world).members["a"].assigned.values()] == [[0, 1]]


@pytest.mark.parametrize("version", ["4.0", "4.1", "4.2"])
async def test_leave_group_with_instance_id_removes_consumer_protocol_member(version: str) -> None:
    async with wired(kafka_version=version) as made:
        connection = await made.connect()
        assert (await connection.call(beat("a", instance_id="i"))).error_code == ErrorCode.NONE
        leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="", group_instance_id="i")])
        assert [row.error_code for row in (await connection.call(leave)).members] == [ErrorCode.NONE]
        assert (await connection.call(beat("a", 1, instance_id="i"))).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def classic_member(connection: Connection) -> tuple[str, int]:
    """A classic member of a Stable group, which subscribes to the topic."""
    metadata = encode_subscription(ConsumerProtocolSubscription(topics=[TOPIC], user_data=None))
    joining = join_request()
    joining.protocols[0].metadata = metadata
    joined = await connection.call(joining, version=3)
    rows = [ConsumerProtocolTopic(topic=TOPIC, partitions=[0, 1, 2, 3])]
    given = encode_assignment(ConsumerProtocolAssignment(assigned_partitions=rows, user_data=None))
    request = sync_request(joined.member_id, joined.generation_id, {joined.member_id: given})
    assert (await connection.call(request)).error_code == ErrorCode.NONE
    return joined.member_id, joined.generation_id


async def test_classic_group_is_upgraded_while_members_run() -> None:
    async with wired(2) as wire:
        world = wire.world
        connection = await wire.connect()
        member_id, generation = await classic_member(connection)
        joined = await connection.call(beat("new"))
        assert (joined.member_epoch, assigned(joined)) == (generation + 1, {})
        response = await connection.call(heartbeat_request(member_id, generation))
        assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        describing = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
        (row,) = (await connection.call(describing)).groups
        assert {one.member_id: one.member_type for one in row.members} == {member_id: 0, "new": 1}
        await world.kill(1)
        await world.coordinate(2, isr=(2,))
        assert group_of(world, 2).members.keys() == {member_id, "new"}
        connection = await wire.connect(2)
        await connection.call(beat("new", -1))
        left = world.groups(2).group("g")
        assert isinstance(left, ClassicGroup) and left.state.value == "PreparingRebalance"
        assert left.members.by_id.keys() == {member_id}
        response = await connection.call(heartbeat_request(member_id, generation + 2))
        assert response.error_code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
        await world.restart(2)
        await world.coordinate(2, isr=(2,))
        again = world.groups(2).group("g")
        assert isinstance(again, ClassicGroup) and again.members.by_id.keys() == {member_id}


async def test_returning_static_member_is_answered_if_its_group_is_upgraded_while_it_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its join does not wait in the group: it is answered when the journal has its new id."""
    async with wired() as wire:
        connection, other = await wire.connect(), await wire.connect()
        metadata = encode_subscription(ConsumerProtocolSubscription(topics=[TOPIC], user_data=None))
        static = join_request(instance_id="till")
        static.protocols[0].metadata = metadata
        joined = await connection.call(static, version=5)
        assignment = encode_assignment(ConsumerProtocolAssignment(assigned_partitions=[], user_data=None))
        synced = sync_request(joined.member_id, joined.generation_id, {joined.member_id: assignment})
        assert (await connection.call(synced, version=5)).error_code == ErrorCode.NONE
        write, appended, replicated = GroupEntry.write, asyncio.Event(), asyncio.Event()

        async def slow(slot: GroupEntry, *arguments: Any, **named: Any) -> int:
            offset = await write(slot, *arguments, **named)
            if not named:
                appended.set()
                await replicated.wait()
            return offset

        monkeypatch.setattr(GroupEntry, "write", slow)
        returning = asyncio.create_task(other.call(static, version=5))
        await appended.wait()
        assert (await connection.call(beat("new"))).error_code == ErrorCode.NONE
        replicated.set()
        async with asyncio.timeout(20):
            assert (await returning).error_code == ErrorCode.REBALANCE_IN_PROGRESS


async def test_join_of_a_classic_member_to_a_group_that_is_loaded_again_meanwhile_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The entry from before has an older epoch: its decision would set the journal's back."""
    async with wired() as wire:
        groups, connection = wire.world.groups(1), await wire.connect()
        member_id, _ = await classic_member(connection)
        await connection.call(beat("new"))

        async def load_again() -> None:
            groups.table.leadership.on_resign(CONSUMER_OFFSETS_TOPIC, 0)
            groups.on_leader(CONSUMER_OFFSETS_TOPIC, 0, 1)
            await until(lambda: not groups.loading)

        other = await wire.connect()

        async def slowly(*_: Any) -> None:
            monkeypatch.undo()
            await load_again()
            await other.call(beat("newer"))

        monkeypatch.setattr(groups.gates, "prepare_for_member", slowly)
        again = join_request(member_id)
        again.protocols[0].metadata = encode_subscription(
            ConsumerProtocolSubscription(topics=[TOPIC, "another"], user_data=None)
        )
        assert (await connection.call(again, version=3)).error_code == ErrorCode.NOT_COORDINATOR
        epoch = group_of(wire.world).epoch
        await load_again()
        assert group_of(wire.world).epoch == epoch


async def test_pending_join_of_an_upgraded_classic_group_must_rejoin() -> None:
    async with wired() as wire:
        world = wire.world
        connection, waiting = await wire.connect(), await wire.connect()
        await classic_member(connection)
        metadata = encode_subscription(ConsumerProtocolSubscription(topics=[TOPIC], user_data=None))
        second = join_request()
        second.protocols[0].metadata = metadata
        join = asyncio.create_task(waiting.call(second, version=3))
        group = world.groups(1).group("g")
        assert isinstance(group, ClassicGroup)
        await until(lambda: group.state.value == "PreparingRebalance")
        joined = await connection.call(beat("new"))
        assert joined.error_code == ErrorCode.NONE
        assert (await join).error_code == ErrorCode.REBALANCE_IN_PROGRESS


async def test_disabled_migration_policy_refuses_an_upgrade() -> None:
    async with wired(group_consumer_migration_policy="disabled") as wire:
        connection = await wire.connect()
        member_id, generation = await classic_member(connection)
        assert (await connection.call(beat("new"))).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        response = await connection.call(heartbeat_request(member_id, generation))
        assert response.error_code == ErrorCode.NONE


async def test_empty_consumer_group_becomes_a_classic_group() -> None:
    async with wired() as wire:
        world = wire.world
        connection = await wire.connect()
        await connection.call(beat("a"))
        await connection.call(commit_request({0: 5}, member=("a", 1)))
        await connection.call(beat("a", -1))
        await classic_member(connection)
        await world.restart(1)
        await world.coordinate(1)
        group = world.groups(1).group("g")
        assert isinstance(group, ClassicGroup) and len(group.members) == 1
        assert world.groups(1).offsets.of("g").offset_of((TOPIC, 0)) == 5


async def test_generations_continue_if_the_coordinator_fails_before_a_group_that_became_classic_has_one() -> None:
    """Seed 2663: the group began at 0 again, and a frozen member's generation was that of two owners."""
    async with wired() as wire:
        world = wire.world
        connection = await wire.connect()
        await connection.call(beat("a"))
        await connection.call(beat("a", -1))
        joined = await connection.call(join_request(), version=3)
        assert joined.generation_id == 3
        await world.restart(1)
        await world.coordinate(1)
        group = world.groups(1).group("g")
        assert isinstance(group, ClassicGroup) and (group.generation, len(group.members)) == (2, 0)


async def test_no_partition_is_gated_when_all_members_support_gates() -> None:
    async with wired(2) as wire:
        world = wire.world
        connection = await wire.connect()
        topics = world.groups(1).consumers.topics
        before = topics.assignable
        topics.assignable = lambda group_id, topic: before(group_id, topic)[:2]
        every = [[0, 1, 2, 3]]
        joined = await connection.call(beat("a", holds_gates=True))
        assert list((assigned(joined) or {}).values()) == every
        await connection.call(beat("stock"))
        response = await connection.call(beat("a", 1, holds_gates=True))
        assert sum(map(len, (assigned(response) or {}).values())) == 1
        await world.kill(1)
        await world.coordinate(2, isr=(2,))
        assert group_of(world, 2).gated_by_broker() and not group_of(world, 2).gated_by_broker(but="stock")
        world.groups(2).consumers.topics.assignable = topics.assignable
        connection = await wire.connect(2)
        await connection.call(beat("stock", -1))
        topic = world.brokers[2].services.metadata.topic_id(TOPIC)
        response = await connection.call(beat("a", 1, owned={topic: [0]}, holds_gates=True))
        assert list((assigned(response) or {}).values()) == every


@pytest.mark.parametrize(("version", "epochs"), [("4.1", 0), ("4.2", 1)])
async def test_dropped_expression_bumps_the_epoch_in_the_kafka_4_2_profile(version: str, epochs: int) -> None:
    async with wired(kafka_version=version) as made:
        connection = await made.connect()
        by_expression = {"subscribed_topic_names": None, "subscribed_topic_regex": f"{TOPIC}.*"}
        epoch = (await connection.call(beat("a", **by_expression))).member_epoch
        async with asyncio.timeout(60):
            while not assigned(response := await connection.call(beat("a", epoch, owned={}))):
                epoch = response.member_epoch
        dropped = await connection.call(beat("a", response.member_epoch, subscribed_topic_regex="", owned={}))
        assert dropped.member_epoch == response.member_epoch + epochs


async def test_session_timeout_is_sent_only_on_request() -> None:
    async with wired(group_consumer_session_timeout_ms=50_000) as wire:
        connection = await wire.connect()
        assert (await connection.call(beat("stock"))).session_timeout_ms == -1
        assert (await connection.call(beat("ours", asks_session_timeout=True))).session_timeout_ms == 50_000
