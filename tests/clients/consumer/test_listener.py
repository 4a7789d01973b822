"""The contract of the callbacks (K618), and commits at a boundary."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from anabranch import Admin, Consumer, PartitionKeyRebalanceListener, Producer, TopicPartition
from anabranch.cluster.in_process import Cluster
from tests.clients.consumer.groups import TOPIC, History, Reader, cluster_and_admin, make_topic, readers, resize, send

WHERE = TopicPartition(TOPIC, 0)


class Failing(PartitionKeyRebalanceListener):
    """Fails once in each callback."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.calls.count(name) == 1:
            raise LookupError(name)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._call("assigned")

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._call("revoked")

    def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._call("maybe_revoked")

    async def on_partition_key_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._call("key_assigned")


async def a_backlog_with_a_cut(cluster: Cluster, admin: Admin) -> None:
    """20 records, a resize from 1 to 2, 20 records."""
    await make_topic(admin, 1)
    async with Producer(cluster.bootstrap_servers, audit=True) as producer:
        await send(producer, admin, 20)
        await resize(admin, 2)
        await send(producer, admin, 20)


def consumer_of(cluster: Cluster, listener: PartitionKeyRebalanceListener, *, automatic: bool = True) -> Consumer:
    return Consumer(
        TOPIC,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=automatic,
        auto_commit_interval_ms=60_000,
        fetch_max_wait_ms=20,
        listener=listener,
    )


async def test_failing_callback_is_raised_and_repeated_before_later_ones() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await a_backlog_with_a_cut(cluster, admin)
        listener = Failing()
        consumer = consumer_of(cluster, listener)
        await consumer.start()
        failures: list[str] = []
        offsets: list[tuple[int, int]] = []
        while len(offsets) < 40:
            try:
                batch = await consumer.getmany(timeout_ms=60_000)
            except LookupError as error:
                failures.append(str(error.args[0]))
                if failures[-1] == "maybe_revoked":
                    assert await consumer.committed(WHERE) in (None, 0), "not committed before it is flushed"
            else:
                offsets += [(one.partition, one.offset) for records in batch.values() for one in records]
        assert failures == ["assigned", "maybe_revoked", "key_assigned"]
        assert listener.calls == ["assigned"] * 2 + ["maybe_revoked"] * 2 + ["key_assigned"] * 2
        assert len(set(offsets)) == 40, "nothing twice"
        with pytest.raises(LookupError, match="revoked"):
            await consumer.stop()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith(("gates", "heartbeat"))]


async def test_callbacks_may_commit_and_seek() -> None:
    class Busy(PartitionKeyRebalanceListener):
        committed_at: list[int | None] = []

        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            consumer.seek(WHERE, 10)

        async def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> None:
            await consumer.commit()
            self.committed_at.append(await consumer.committed(WHERE))

        async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            await consumer.commit()

    consumer: Consumer
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await a_backlog_with_a_cut(cluster, admin)
        listener = Busy()
        async with consumer_of(cluster, listener, automatic=False) as consumer:
            offsets: list[tuple[int, int]] = []
            while len(offsets) < 30:
                batch = await consumer.getmany(timeout_ms=60_000)
                offsets += [(one.partition, one.offset) for records in batch.values() for one in records]
            assert (0, 9) not in offsets
            assert listener.committed_at[0] == 20


async def test_without_auto_commit_boundary_waits_for_application() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await a_backlog_with_a_cut(cluster, admin)
        history = History(cluster, group="g")
        async with consumer_of(cluster, Reader("m", history).listener, automatic=False) as consumer:
            count = 0
            while count < 20:
                batch = await consumer.getmany(timeout_ms=60_000, max_records=3)
                count += sum(len(records) for records in batch.values())
            for _ in range(5):
                assert await consumer.getmany(timeout_ms=50) == {}, "it has not said that anything is processed"
            names = [event.name for event in history.events]  # type: ignore[union-attr]
            assert names.count("maybe_revoked") == 1, "told once, however often it asks"
            assert await consumer.committed(WHERE) == 0
            await consumer.commit({WHERE: 19})
            assert await consumer.getmany(timeout_ms=50) == {}
            await consumer.commit({WHERE: 20})
            while count < 40:
                batch = await consumer.getmany(timeout_ms=60_000)
                assert batch
                count += sum(len(records) for records in batch.values())


async def test_application_commit_at_boundary_is_preceded_by_flush() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await a_backlog_with_a_cut(cluster, admin)
        history = History(cluster, group="g")
        seen: list[int] = []

        class Watching(PartitionKeyRebalanceListener):
            def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> None:
                seen.append(history.committed(0))

        async with consumer_of(cluster, Watching(), automatic=False) as consumer:
            count = 0
            while count < 20:
                batch = await consumer.getmany(timeout_ms=60_000, max_records=5)
                count += sum(len(records) for records in batch.values())
                await consumer.commit()
            assert seen[-1] < 20
            assert history.committed(0) == 20


async def test_end_that_becomes_known_after_crossing_is_not_committed_without_flush() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await a_backlog_with_a_cut(cluster, admin)
        history = History(cluster, group="g")
        flushed: list[TopicPartition] = []

        class Watching(PartitionKeyRebalanceListener):
            def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> None:
                flushed.extend(partitions)

        async with consumer_of(cluster, Watching()) as consumer:
            count = 0
            while count < 20:
                count += sum(map(len, (await consumer.getmany(timeout_ms=60_000)).values()))
            while not consumer._core.deliveries.boundaries():  # asks for the end until it is known
                consumer._gatekeeper.refresh()
                consumer._wakeup.clear()
                await consumer._wakeup.wait()
            due = consumer._core.commit_of_positions()
            if due is not None:
                await consumer._polling._carry_out(due)
            assert history.committed(0) < 20
            assert not flushed
            await consumer.getmany(timeout_ms=60_000)
            assert flushed == [WHERE]
            assert history.committed(0) == 20


@pytest.mark.parametrize("automatic", [True, False], ids=["auto-commit", "own commits"])
async def test_seek_behind_boundary_flushes_and_commits_it_again(automatic: bool) -> None:
    """K608: a committed boundary does not cover what was read since."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await a_backlog_with_a_cut(cluster, admin)
        flushed: list[TopicPartition] = []

        class Watching(PartitionKeyRebalanceListener):
            def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> None:
                flushed.extend(partitions)

        async with consumer_of(cluster, Watching(), automatic=automatic) as consumer:

            async def read(count: int) -> None:
                while count > 0:
                    batch = await consumer.getmany(timeout_ms=60_000, max_records=5)
                    count -= sum(map(len, batch.values()))
                    if not automatic:
                        await consumer.commit()

            await read(40)
            before = len(flushed)
            consumer.seek(WHERE, 10)
            again = 0
            while again < 10:
                again += sum(map(len, (await consumer.getmany(timeout_ms=60_000, max_records=5)).values()))
            assert again == 10
            if not automatic:
                assert await consumer.getmany(timeout_ms=50) == {}, "it has not said that these are processed"
                await consumer.commit()
            await read(9)
            assert flushed[before:] == [WHERE]


async def test_without_auto_commit_boundary_of_empty_parent_is_committed() -> None:
    """An empty parent has no record whose commit could open the child."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        await resize(admin, 2)
        history = History(cluster)
        async with (
            Producer(cluster.bootstrap_servers, audit=True) as producer,
            readers(history, 2, enable_auto_commit=False),
        ):
            await send(producer, admin, 20)
            await history.until(lambda: len(history.distinct) == 20)
            assert history.committed(0) == 0


async def test_start_offset_does_not_overwrite_commit_of_open_transaction() -> None:
    """The start could not be committed during the rebalance; an open transaction has passed it by now."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await a_backlog_with_a_cut(cluster, admin)
        async with (
            consumer_of(cluster, PartitionKeyRebalanceListener(), automatic=False) as consumer,
            Producer(cluster.bootstrap_servers, transactional_id="copier") as copier,
        ):
            ownership = consumer._core.ownership
            ownership.joining = True
            async with asyncio.timeout(60):
                while consumer.assignment() == set() or consumer.position(WHERE) < 5:
                    await consumer.getmany(timeout_ms=100, max_records=5)
            await copier.begin_transaction()
            await copier.send_offsets_to_transaction({WHERE: 5}, consumer.group_metadata())
            ownership.joining = False
            await consumer.getmany(timeout_ms=0, max_records=1)
            await copier.commit_transaction()
            assert await consumer.committed(WHERE) == 5


async def test_records_deleted_after_fetch_do_not_block_gate() -> None:
    """A new request returns the log start, beyond the position, as the end."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        async with (
            Producer(cluster.bootstrap_servers, audit=True) as producer,
            consumer_of(cluster, PartitionKeyRebalanceListener()) as consumer,
        ):
            await send(producer, admin, 10)
            await resize(admin, 2)
            await send(producer, admin, 20)
            async with asyncio.timeout(60):
                while not (taken := await consumer.getmany(timeout_ms=100, max_records=1)):
                    pass
                assert [one.offset for one in taken[WHERE]] == [0]
                progress = consumer._core.assignment[WHERE]
                while progress.fetch_offset < progress.high_watermark or progress.high_watermark <= 12:
                    await consumer.getmany(timeout_ms=20, max_records=0)
                await admin.delete_records({WHERE: 12})
                await resize(admin, 3)
                found = [0]
                while found[-1] != progress.high_watermark - 1:
                    for record in (await consumer.getmany(timeout_ms=100)).get(WHERE, []):
                        found.append(record.offset)
                missing = {*range(progress.high_watermark)} - {*found}
                assert found == sorted(found) and missing <= {*range(12)}, "a rebalance meanwhile begins behind them"
