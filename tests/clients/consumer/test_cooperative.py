"""Cooperative rebalances (KIP-429): retained partitions, callbacks, and order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from anabranch import Consumer, Producer
from anabranch.clients.consumer.classic_group_session import ClassicGroupSession
from anabranch.clients.consumer.consumer_partition_assignor import (
    REJOIN_NOW,
    MemberAssignment,
    MemberView,
    PartitionAssignor,
)
from anabranch.clients.consumer.ownership import Ownership
from anabranch.clients.metadata import ClusterMetadata
from anabranch.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.lineage import KeyEpoch
from anabranch.protocol.topic_partition import TopicPartition
from tests.clients.consumer.groups import (
    TOPIC,
    Callback,
    History,
    Reader,
    cluster_and_admin,
    make_topic,
    readers,
    repeated,
    resize,
    send,
)
from tests.clients.consumer.librdkafka_member import LibrdkafkaMember

STRATEGY = "cooperative-sticky"


def session_of(consumer: Consumer) -> ClassicGroupSession:
    assert consumer._session is not None
    return consumer._session


def callbacks_of(history: History, member: str, *names: str) -> list[tuple[str, tuple[int, ...]]]:
    """The callbacks of one member about whole partitions, in order."""
    wanted = names or ("assigned", "revoked", "lost")
    events = [one for one in history.events if isinstance(one, Callback)]
    return [(one.name, one.partitions) for one in events if one.member == member and one.name in wanted]


async def test_only_moved_partitions_are_revoked_and_others_are_read_on() -> None:
    """While a busy member delays the rebalance, another one delivers; then it revokes only one partition."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 4)
        history = History(cluster)
        async with (
            Producer(cluster.bootstrap_servers, audit=True) as producer,
            readers(history, 2, partition_assignment_strategy=STRATEGY) as (first, busy),
        ):
            await history.until(lambda: len(first.owned) == len(busy.owned) == 2)
            kept = first.owned
            await busy.pause()
            third = await Reader("third", history, partition_assignment_strategy=STRATEGY).start()
            await history.until(lambda: first.consumer.rebalancing)
            for partition in sorted(kept):
                await producer.send_and_wait(TOPIC, b"x", b"only-%d" % partition, partition=partition)
            await history.until(lambda: {one.partition for one in history.deliveries} == kept)
            assert first.consumer.rebalancing, "it delivered in the middle of a rebalance"
            assert callbacks_of(history, first.name, "revoked") == []
            commit = asyncio.create_task(first.consumer.commit())
            busy.go_on.set()
            await commit
            await history.until(lambda: sorted(map(len, (first.owned, busy.owned, third.owned))) == [1, 1, 2])
            giver = first if len(first.owned) == 1 else busy
            (moved,) = third.owned
            assert callbacks_of(history, giver.name, "revoked") == [("revoked", (moved,))]
            assert [row for row in callbacks_of(history, third.name) if row[1]] == [("assigned", (moved,))]
            await send(producer, admin, 60)
            await history.until(lambda: len(history.distinct) == 62)
            assert repeated(history) == 0
            await third.stop()
            await history.until(lambda: len(first.owned) == len(busy.owned) == 2)
            assert callbacks_of(history, giver.name)[-1] == ("assigned", (moved,))
        assert history.wrong == []


async def test_keys_keep_order_through_4_6_8_5_and_a_crash() -> None:
    async with cluster_and_admin() as (cluster, admin):
        await make_topic(admin, 4)
        history = History(cluster)
        async with (
            Producer(cluster.bootstrap_servers, audit=True, linger_ms=1) as producer,
            readers(history, 3, pause_s=0.01, batch=40, partition_assignment_strategy=STRATEGY) as members,
        ):
            await send(producer, admin, 300)
            for count in (6, 8, 5):
                await resize(admin, count)
                await send(producer, admin, 300)
                if count == 8:
                    await members[0].crash()
            await history.until(lambda: len(history.distinct) == 1200)
            lineage = (await admin.describe_topic(TOPIC)).lineage
            assert lineage is not None
            history.judge(lineage, 1200)


@pytest.mark.parametrize("rule", [True, False], ids=["with the rule", "without the rule"])
async def test_keys_of_other_owner_wait_for_rebalance(rule: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything before the cut is committed, so the gate is open; but the other owner has not flushed. Without the
    rule, the merge target's owner would deliver its keys too early.
    """
    if not rule:
        remember = Ownership._remember

        def forgetful(self: Ownership, shapes: Any) -> None:
            remember(self, shapes)
            self._assignment.note_generations({})

        monkeypatch.setattr(Ownership, "_remember", forgetful)
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)
        history = History(cluster)
        async with (
            Producer(cluster.bootstrap_servers, audit=True) as producer,
            readers(history, 2, partition_assignment_strategy=STRATEGY) as members,
        ):
            await history.until(lambda: sorted(sorted(one.owned) for one in members) == [[0], [1]])
            survivor, victim = sorted(members, key=lambda one: sorted(one.owned))
            await send(producer, admin, 40)
            await history.until(lambda: len(history.distinct) == 40)
            ends = {part: sum(1 for one in history.deliveries if one.partition == part) for part in (0, 1)}
            await history.until(lambda: all(history.committed(part) == end for part, end in ends.items()))
            await victim.pause()
            await survivor.pause()
            await resize(admin, 1)
            await send(producer, admin, 40)
            # What the survivor may know: where the key epochs end, and that the other partition is read to there.
            await survivor.consumer._network.wait_for(lambda metadata: metadata.topics[TOPIC].generation == 1)
            gates = survivor.consumer._core.gates
            gate = gates.gate(TOPIC)
            assert gate is not None
            for partition in (0, 1):
                gates.want_end(TOPIC, KeyEpoch(partition, 0))
            survivor.consumer._gatekeeper.refresh()
            await history.until(lambda: [gate.end(KeyEpoch(part, 0)) for part in (0, 1)] == [ends[0], ends[1]])
            gate.note_committed(1, ends[1])
            survivor.go_on.set()
            await history.until(lambda: survivor.consumer._core.assignment[TopicPartition(TOPIC, 0)].crossed)
            await survivor.polled()
            assert survivor.consumer.rebalancing
            assert gate.is_open(KeyEpoch(0, 1))
            assert bool([one for one in history.deliveries if one.generation == 1]) != rule
            victim.go_on.set()
            await history.until(lambda: len(history.distinct) == 80)
            lineage = (await admin.describe_topic(TOPIC)).lineage
            assert lineage is not None
            found = history.callbacks_out_of_order(lineage)
            assert bool(found) != rule, found


async def test_removed_member_loses_all_partitions_before_it_rejoins() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)
        history = History(cluster)
        async with (
            Producer(cluster.bootstrap_servers, audit=True) as producer,
            readers(history, 1, partition_assignment_strategy=STRATEGY) as (reader,),
        ):
            await send(producer, admin, 10)
            await history.until(lambda: len(history.distinct) == 10)
            await reader.pause()
            consumer, membership = reader.consumer, session_of(reader.consumer).membership
            request = LeaveGroupRequest(
                group_id=membership.group_id,
                member_id=membership.member_id,
                members=[MemberIdentity(member_id=membership.member_id)],
            )
            await consumer._network.call(await consumer._network.coordinator(membership.group_id), request)
            await history.until(lambda: session_of(consumer).membership.lost)
            with pytest.raises(KafkaError) as refused:
                await consumer.commit({TopicPartition(TOPIC, 0): 0})
            assert refused.value.code == ErrorCode.UNKNOWN_MEMBER_ID
            assert membership.generation == -1, "it does not join before it has said what is lost"
            reader.go_on.set()
            await history.until(lambda: len(callbacks_of(history, reader.name)) == 3)
            assert callbacks_of(history, reader.name) == [("assigned", (0, 1)), ("lost", (0, 1)), ("assigned", (0, 1))]


async def test_group_listing_both_assignors_is_upgraded() -> None:
    """Eager members are replaced by ones with both protocols, and those by cooperative ones."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 4)
        history = History(cluster)
        sent = 0
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            members: list[Reader] = []
            protocols = []
            for bounce, strategy in enumerate(("range", f"{STRATEGY},range", STRATEGY)):
                for place in range(2):
                    name = f"{bounce}-{place}"
                    joined = await Reader(name, history, partition_assignment_strategy=strategy).start()
                    if len(members) == 2:
                        await members.pop(0).stop()
                    members.append(joined)
                    await history.until(lambda: sum(len(one.owned) for one in members) == 4 and members[-1].owned)
                    await send(producer, admin, 20)
                    sent += 20
                    await history.until(lambda sent=sent: len(history.distinct) == sent)  # type: ignore[misc]
                    protocols.append(session_of(joined.consumer).membership.protocol)
            for one in members:
                await one.stop()
        assert protocols == ["range"] * 3 + [STRATEGY] * 3
        assert history.wrong == []


class Everything(PartitionAssignor):
    """An application's own: the first member reads everything, after it was asked to join once more."""

    name = "everything"

    def __init__(self) -> None:
        self.assignments: list[tuple[MemberAssignment, int]] = []

    def subscription_user_data(self, topics: Any) -> bytes:
        return b"I read " + ",".join(topics).encode()

    async def assign(self, metadata: ClusterMetadata, members: Sequence[MemberView]) -> Mapping[str, MemberAssignment]:
        await asyncio.sleep(0)
        first = min(members, key=lambda one: one.member_id)
        assert first.user_data == b"I read t"
        topic = metadata.topics[TOPIC]
        return {
            one.member_id: MemberAssignment(
                tuple(TopicPartition(TOPIC, index) for index in topic.partitions) if one is first else (), b"\x00mine"
            )
            for one in members
        }

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> int | None:
        self.assignments.append((assignment, generation))
        return REJOIN_NOW if len(self.assignments) == 1 else None


async def test_application_assignor_is_used() -> None:
    """It has user data in both directions, awaits things, and asks to rejoin; R19 holds as well."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)
        history = History(cluster)
        assignor = Everything()
        async with (
            Producer(cluster.bootstrap_servers, audit=True) as producer,
            readers(history, 1, partition_assignment_strategy=[assignor]) as (reader,),
        ):
            await history.until(lambda: len(assignor.assignments) == 2)
            (given, generation), (again, later) = assignor.assignments
            assert later == generation + 1
            assert given == again == MemberAssignment((TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)), b"\x00mine")
            assert reader.consumer._core.ownership._made_from is not None
            reader.consumer.enforce_rebalance()
            await history.until(lambda: len(assignor.assignments) == 3)
            await send(producer, admin, 20)
            await resize(admin, 4)
            await send(producer, admin, 20)
            await history.until(lambda: len(history.distinct) == 40)
            assert history.wrong == []


@pytest.mark.interop
@pytest.mark.parametrize("leads", ["theirs", "ours"])
async def test_group_shared_with_librdkafka(leads: str) -> None:
    """Partitions move in both directions, with either leader, and nothing is lost or read twice."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 6)
        history = History(cluster)
        other = LibrdkafkaMember(cluster, STRATEGY)
        members: list[Reader] = []
        passed_on = 0

        async def join() -> None:
            name = f"ours-{len(members)}"
            members.append(await Reader(name, history, partition_assignment_strategy=STRATEGY).start())

        async def balanced(*sizes: int) -> None:
            await history.until(
                lambda: sorted([len(other.owned), *(len(one.owned) for one in members)], reverse=True) == list(sizes)
            )

        async def pass_on() -> None:
            nonlocal passed_on
            passed_on += 120
            await send(producer, admin, 120)
            await history.until(lambda: len(history.distinct | set(other.read)) == passed_on)

        try:
            async with Producer(cluster.bootstrap_servers, audit=True) as producer:
                if leads == "theirs":
                    other.start()
                    await balanced(6)
                    # First it has to have read: if a rebalance comes while librdkafka 2.16 asks where its partitions
                    # start, it asks again after half a second, and reads them from there, whosever they are by then.
                    await pass_on()
                    await join()
                else:
                    await join()
                    await balanced(6, 0)
                    other.start()
                await balanced(3, 3)
                assert session_of(members[0].consumer).membership.is_leader == (leads == "ours")
                await pass_on()
                await join()
                await balanced(2, 2, 2)
                revoked = [row for one in members for row in callbacks_of(history, one.name, "revoked")]
                assert sum(len(partitions) for _, partitions in revoked) == (1 if leads == "theirs" else 4)
                await pass_on()
                await members.pop().stop()
                await balanced(3, 3)
                await pass_on()
                await other.end()
                await history.until(lambda: len(members[0].owned) == 6)
                await pass_on()
                assert not history.distinct & set(other.read)
                assert repeated(history) == 0
        finally:
            if other.is_alive():
                await other.end()
            for one in members:
                await one.stop()
