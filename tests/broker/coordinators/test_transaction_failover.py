"""Coordinators change: the next one completes decided transactions, and none is reported too early."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from anabranch.broker.coordinators.runtime import journal
from anabranch.broker.coordinators.transactions import marker_sender
from anabranch.broker.coordinators.transactions.transactional_id import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_COMMIT,
)
from anabranch.clients.backoff import Backoff
from anabranch.controller.zk import paths
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.internal_topics import TRANSACTION_STATE_TOPIC
from tests.broker.coordinators.transaction_world import Identity, TransactionWorld, transaction_world
from tests.broker.replication.replica_cluster import Assigned, until

NONE, LOADING = ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def open_transaction(world: TransactionWorld, *indexes: int) -> Identity:
    me = await world.begin()
    assert await world.add(me, *indexes) == [NONE] * len(indexes)
    return me


async def without_leader(world: TransactionWorld, index: int, topic: str = "t") -> None:
    """The partition is offline in the metadata."""
    one = world.assigned[topic, index]
    await world.assign(topic, index, Assigned(one.replicas, -1, one.leader_epoch + 1, one.isr, one.partition_epoch + 1))


async def with_leader(world: TransactionWorld, index: int, leader: int, topic: str = "t") -> None:
    one = world.assigned[topic, index]
    isr = tuple(sorted(world.brokers))
    await world.assign(topic, index, Assigned(one.replicas, leader, one.leader_epoch + 1, isr, one.partition_epoch + 1))


@pytest.mark.parametrize("commit", [True, False])
async def test_the_next_coordinator_sends_the_markers_that_are_missing(commit: bool) -> None:
    """One partition had its marker, the other was offline when the first coordinator died."""
    async with transaction_world(brokers=3, partitions=2) as world:
        me = await open_transaction(world, 0, 1)
        await without_leader(world, 1)
        assert await world.end(me, commit=commit) is NONE
        await until(lambda: "txn:after-some-markers" in world.steps)
        await world.kill(1)
        await world.coordinate(2, isr=(2, 3))
        await with_leader(world, 0, 2)
        await with_leader(world, 1, 3)
        await world.reaches(COMPLETE_COMMIT if commit else COMPLETE_ABORT, at=2)
        kind = "COMMIT" if commit else "ABORT"
        assert world.markers(0) == [(kind, 0, 0), (kind, 0, 1)], "twice does no harm"
        assert world.markers(1) == [(kind, 0, 1)]
        assert await world.end(me, commit=commit, at=2) is NONE, "the producer may not have heard"
        assert await world.begin(at=2) == (me[0], 1)


async def test_open_transaction_continues_at_the_next_coordinator() -> None:
    async with transaction_world(brokers=2, partitions=2) as world:
        me = await open_transaction(world, 0)
        await world.coordinate(2)
        assert await world.end(me) is ErrorCode.NOT_COORDINATOR
        assert await world.add(me, 1, at=2) == [NONE]
        assert await world.end(me, at=2) is NONE
        await world.reaches(COMPLETE_COMMIT, at=2)
        assert world.markers(0) == world.markers(1) == [("COMMIT", 0, 1)]
        assert (await world.init(known=me, at=2)).error_code == NONE
        await world.coordinate(1)
        assert (await world.init(known=me)).error_code == ErrorCode.PRODUCER_FENCED, "last epochs are not written"


async def test_unreplicated_prepare_is_not_acted_on_by_the_next_coordinator() -> None:
    """The Prepare reached broker 2, not broker 3, and was not acknowledged: 3 may still truncate it."""
    async with transaction_world(brokers=3, partitions=1) as world:
        me = await open_transaction(world, 0)
        world[3].replicas.fetchers.forget(world.partition(3, TRANSACTION_STATE_TOPIC))
        ending = asyncio.ensure_future(world.end(me))
        await until(lambda: world.partition(2, TRANSACTION_STATE_TOPIC).log.log_end_offset == 3)
        await world.lead(2, isr=(2, 3), topic=TRANSACTION_STATE_TOPIC, only=[1, 2])
        assert await ending is ErrorCode.NOT_COORDINATOR
        assert (await world.init(at=2)).error_code == LOADING
        assert await world.add(me, 0, at=2) == await world.verify(me, 0, at=2) == [LOADING]
        assert await world.end(me, at=2) is LOADING
        assert (await world.describe(at=2)).error_code == LOADING
        assert (await world.listed(at=2)).error_code == LOADING
        assert world.markers(0) == []
        await world.tell(TRANSACTION_STATE_TOPIC, 0, [3])
        await world.reaches(COMPLETE_COMMIT, at=2)
        assert world.markers(0) == [("COMMIT", 0, 1)]


async def test_leadership_lost_during_a_load_drops_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    async with transaction_world(brokers=2, partitions=1) as world:
        for number in range(20):
            await world.begin(f"tx-{number}")
        monkeypatch.setattr(journal, "LOAD_BYTES", 100)
        await world.coordinate(2, wait=False)
        assert world.coordinator(2).loading
        await world.coordinate(1)
        assert not world.coordinator(2).loading and world.coordinator(2).transactions() == []
        assert len(world.coordinator(1).transactions()) == 20


async def test_leadership_lost_before_all_markers_leaves_them_to_the_next_coordinator() -> None:
    """The live old coordinator leaves the markers to the new one."""
    async with transaction_world(brokers=2, partitions=2) as world:
        me = await open_transaction(world, 0, 1)
        await without_leader(world, 1)
        assert await world.end(me) is NONE
        await until(lambda: "txn:after-some-markers" in world.steps)
        await world.coordinate(2)
        await with_leader(world, 1, 2)
        await world.reaches(COMPLETE_COMMIT, at=2)
        assert world.markers(1) == [("COMMIT", 0, 1)]
        assert world.coordinator(1).transactions() == []


async def test_new_epoch_of_the_same_coordinator_completes_the_markers() -> None:
    async with transaction_world(brokers=2, partitions=2) as world:
        me = await open_transaction(world, 0, 1)
        await without_leader(world, 1)
        assert await world.end(me) is NONE
        await until(lambda: "txn:after-some-markers" in world.steps)
        await world.coordinate(1)
        await with_leader(world, 1, 2)
        await world.reaches(COMPLETE_COMMIT)
        assert (world.markers(0), world.markers(1)) == ([("COMMIT", 0, 0)], [("COMMIT", 0, 1)])


async def test_markers_follow_a_leader_change() -> None:
    """The coordinator uses the old leader, is refused, and finds the new one by metadata."""
    async with transaction_world(brokers=2, partitions=2) as world:
        me = await open_transaction(world, 1)
        one = world.assigned["t", 1]
        moved = Assigned(one.replicas, 1, one.leader_epoch + 1, one.isr, one.partition_epoch + 1)
        world.assigned["t", 1] = moved
        await world.tell("t", 1)
        assert await world.end(me) is NONE
        assert world.state() is PREPARE_COMMIT
        await world.publish()
        await world.reaches(COMPLETE_COMMIT)
        assert world.markers(1) == [("COMMIT", 0, 0)]


@pytest.mark.parametrize("waits_for", ["a leader", "another leader"])
async def test_metadata_update_sends_pending_markers(monkeypatch: pytest.MonkeyPatch, waits_for: str) -> None:
    """A metadata change ends the pause between attempts."""
    monkeypatch.setattr(marker_sender, "RETRY", Backoff(initial_ms=10**8, limit_ms=10**8))
    async with transaction_world(brokers=2, partitions=2) as world:
        me = await open_transaction(world, 1)
        pauses = noted_pauses(world)
        if waits_for == "a leader":
            await without_leader(world, 1)
        one = world.assigned["t", 1]
        world.assigned["t", 1] = Assigned(one.replicas, 1, one.leader_epoch + 1, one.isr, one.partition_epoch + 1)
        await world.tell("t", 1)
        assert await world.end(me) is NONE
        await until(lambda: bool(pauses))
        assert world.state() is PREPARE_COMMIT
        await world.publish()
        await world.reaches(COMPLETE_COMMIT)


def noted_pauses(world: TransactionWorld) -> list[int]:
    """Filled when the coordinator begins to pause between attempts."""
    sender, pauses = world.coordinator()._markers, list[int]()
    pause = sender.pause

    async def noted(failures: int) -> None:
        pauses.append(failures)
        await pause(failures)

    sender.pause = noted  # type: ignore[method-assign]
    return pauses


async def test_markers_are_sent_after_a_broker_restart() -> None:
    async with transaction_world(brokers=2, partitions=2) as world:
        await world.lead(1, replicas=(1,), isr=(1,), topic=TRANSACTION_STATE_TOPIC)
        me = await open_transaction(world, 1)
        files = await world.kill(2)
        assert await world.end(me) is NONE
        assert world.state() is PREPARE_COMMIT
        await world.start(2, files)
        await with_leader(world, 1, 2)
        await world.reaches(COMPLETE_COMMIT)
        assert [kind for kind, _, _ in world.markers(1)] == ["COMMIT"]


@pytest.mark.parametrize("how", ["gone", "fewer partitions", "being deleted"])
async def test_deleted_partition_needs_no_marker(how: str) -> None:
    async with transaction_world(partitions=2) as world:
        me = await open_transaction(world, 0, 1)
        removed = 1 if how == "fewer partitions" else 0
        await forget(world, *(range(removed, 2)))
        assert await world.end(me) is NONE
        await looked_up(world, 2 * (2 - removed))
        assert world.state() is PREPARE_COMMIT, "it may just not have been heard of"
        if how == "gone":
            await world.session.delete(paths.topic("t"))
        elif how == "being deleted":
            await world.session.create(paths.delete_topic("t"), make_parents=True)
        else:
            await world.session.delete(paths.topic("t"))
            await world.create_topic_znode("t", 1)
        await world.reaches(COMPLETE_COMMIT)


async def looked_up(world: TransactionWorld, times: int) -> None:
    """Wait until ZooKeeper was asked about so many partitions."""
    sender, requests = world.coordinator()._markers, []
    is_gone = sender._is_gone

    async def noted(partition: tuple[str, int]) -> bool:
        requests.append(partition)
        return await is_gone(partition)

    sender._is_gone = noted  # type: ignore[method-assign]
    await until(lambda: len(requests) >= times)


async def forget(world: TransactionWorld, *indexes: int) -> None:
    """Remove partitions from the metadata of all brokers."""
    for index in indexes:
        del world.assigned["t", index]
    for broker in world.brokers.values():
        image = broker.services.metadata.image
        kept = {one: image.topics["t"].partitions[one] for one in image.topics["t"].partitions if one not in indexes}
        object.__setattr__(image.topics["t"], "partitions", kept)


async def test_permanently_refused_marker_leaves_the_transaction_prepared() -> None:
    """A later epoch has written there: this coordinator makes no decisions."""
    async with transaction_world(brokers=2, partitions=1) as world:
        me = await open_transaction(world, 0)
        shard = world.coordinator()._leadership.shards[0]
        shard.leader_epoch = 5
        assert await world.end(me) is NONE
        await world.reaches(COMPLETE_COMMIT)
        shard.leader_epoch = 4
        assert await world.add(me, 0) == [NONE]
        assert await world.end(me) is NONE
        await until(lambda: not world.coordinator()._markers._sending)
        assert world.markers(0) == [("COMMIT", 0, 5)] and world.state() is PREPARE_COMMIT
        assert await world.add(me, 0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        for _ in range(6):
            await world.coordinate(2)
            await world.coordinate(1)
        await world.reaches(COMPLETE_COMMIT)


async def test_stopped_coordinator_leaves_pending_transactions() -> None:
    async with transaction_world(partitions=1) as world:
        me = await open_transaction(world, 0)
        await without_leader(world, 0)
        assert await world.end(me) is NONE
        await world.coordinator().stop()
        assert await world.end(me) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.steps.count("txn:after-prepare") == 1
        assert ONGOING not in {one.state for one in world.coordinator().transactions()}


async def test_leadership_lost_and_regained_during_an_append_drops_the_old_state() -> None:
    """The record persists and the new load has read it: the old state must not be used."""
    async with transaction_world(partitions=1) as world:
        me = await open_transaction(world, 0)
        coordinator = world.coordinator()
        old = coordinator.transaction("tx")
        append = coordinator._journal.append

        async def overtaken(*arguments: object, **options: object) -> int:
            offset = await append(*arguments, **options)  # type: ignore[arg-type]
            coordinator._journal.append = append  # type: ignore[method-assign]
            coordinator._leadership.on_resign(TRANSACTION_STATE_TOPIC, 0)
            coordinator._leadership.on_leader(TRANSACTION_STATE_TOPIC, 0, 7)
            return offset

        coordinator._journal.append = overtaken  # type: ignore[method-assign]
        assert await world.end(me) is ErrorCode.NOT_COORDINATOR
        await world.reaches(COMPLETE_COMMIT)
        assert old is not None and old.state is ONGOING
        assert world.markers(0) == [("COMMIT", 0, 7)]


async def test_markers_are_sent_once_the_brokers_address_is_valid() -> None:
    """UpdateMetadata may name any host: the markers wait, and the sending task survives."""
    async with transaction_world(brokers=2, partitions=2) as world:
        me = await open_transaction(world, 0, 1)
        metadata = world.brokers[1].services.metadata
        right = metadata.image
        wrong = {**right.brokers, 2: dataclasses.replace(right.brokers[2], host="a..b", port=70000)}
        metadata.image = dataclasses.replace(right, brokers=wrong)
        errors: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        assert await world.end(me) is NONE
        sender = world.coordinator()._markers
        await until(lambda: bool(errors) or sender._failures.get(2, 0) >= 2)
        assert not errors
        assert world.state() is PREPARE_COMMIT
        await world.publish()
        await world.reaches(COMPLETE_COMMIT)
        assert world.markers(0) == world.markers(1) == [("COMMIT", 0, 0)]
