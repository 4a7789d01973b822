"""Damage is reported to the application at each poll, and intact records are delivered."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from anabranch import Admin, Consumer, Producer, TopicPartition
from anabranch.clients.config import NetworkConfig, parse_servers
from anabranch.clients.consumer.assignment import Assignment
from anabranch.clients.consumer.delivery import AWAITED_LOG_S, Deliveries
from anabranch.clients.consumer.topic_gates import Gates
from anabranch.clients.network import Network
from anabranch.clients.streams.changelog_reader import ChangelogReader
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.lineage import KeyEpoch
from tests.broker.storage.unreadable import UNREADABLE
from tests.clients.consumer.core_member import TOPIC as GATED
from tests.clients.consumer.core_member import metadata
from tests.clients.consumer.groups import TOPIC, make_topic
from tests.clients.consumer.test_progress import batch
from tests.protocol.stored_batch import stored_at


@pytest.mark.parametrize("second", ["damaged here", "damaged there"])
async def test_records_taken_before_corruption_are_delivered(second: str) -> None:
    assignment = Assignment()
    deliveries = Deliveries(assignment, Gates(ordered=False), in_group=False, holds_back=lambda *_: False)
    sound, rotten = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
    assignment.replace([sound, rotten])
    for progress in assignment:
        progress.begin(0)
    assignment[sound].receive(batch(0, [b"a", b"b"]), 0)
    assignment[rotten].receive(batch(0, [b"c"]), 0)
    if second == "damaged here":
        damaged = bytearray(batch(1, [b"d"]))
        damaged[-1] ^= 1
        assignment[rotten].receive(bytes(damaged), 1)
    else:
        assignment[rotten].damaged = True
    taken: dict[TopicPartition, list[bytes | None]] = {sound: [], rotten: []}
    for _ in range(3):
        try:
            for partition, records in deliveries.take(100, 0.0).items():
                taken[partition] += [record.value for record in records]
        except KafkaError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE
            assert str(rotten) in str(error)
            break
    else:
        raise AssertionError("nobody was told")
    assert taken == {sound: [b"a", b"b"], rotten: [b"c"]}
    assert assignment[rotten].position == 1


def test_key_epoch_waits_for_empty_predecessors_without_commits() -> None:
    """R9: a child without records in its first key epoch still waits for the parent at its second. From a simulated
    schedule: a member went from generation 3 to 6, past empty key epochs.
    """
    assignment, gates = Assignment(), Gates(ordered=True)
    gates.refresh(metadata(1, 2, 4))
    deliveries = Deliveries(assignment, gates, in_group=True, holds_back=lambda *_: False)
    child = TopicPartition(GATED, 1)
    assignment.replace([child])
    assignment.note_generations({GATED: 1})
    progress = assignment[child]
    progress.begin(0)
    progress.crossed.add(KeyEpoch(1, 1))
    progress.receive(batch(0, [b"a"], epoch=2), 0)
    assert not deliveries.take(100, 0.0)
    assert gates.note_end(GATED, KeyEpoch(0, 0), 5, leader_epoch=2)
    assert not deliveries.take(100, 0.0)
    gates.note_committed({TopicPartition(GATED, 0): 5})
    assert [record.value for record in deliveries.take(100, 0.0)[child]] == [b"a"]


@pytest.mark.parametrize("records", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_unreadable_batch_is_reported_and_skipped_by_seek(records: bytes) -> None:
    assignment = Assignment()
    where = TopicPartition(TOPIC, 3)
    assignment.replace([where])
    progress = assignment[where]
    progress.begin(0)
    progress.receive(batch(0, [b"a"]) + stored_at(records, 1), 0)
    assert [record.value for record in progress.take(9)] == [b"a"]
    if records is UNREADABLE["an unknown marker"]:
        assert progress.take(9) == []  # markers are not for the application
        return
    after = progress.buffered[-1].next_offset
    for _ in range(2):
        with pytest.raises(KafkaError, match=rf"{TOPIC}-3.*offset 1 .*; seek to offset {after}") as caught:
            progress.take(9)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        assert progress.position == 1
    progress.seek(after)
    progress.receive(batch(after, [b"b"]), after)
    assert [record.value for record in progress.take(9)] == [b"b"]


async def test_corrupt_record_is_reported_and_skipped_by_seek(tmp_path: Path) -> None:
    """A bit of a closed segment flips on a stopped broker's disk."""

    def damage() -> None:
        segments = sorted(tmp_path.glob(f"**/{TOPIC}-0/*.log"))
        content = bytearray(segments[0].read_bytes())
        assert len(segments) > 1
        content[content.index(b"v25")] ^= 1
        segments[0].write_bytes(content)

    async def story() -> None:
        where = TopicPartition(TOPIC, 0)
        async with (
            Cluster(1, seed=1, data_dir=str(tmp_path)) as cluster,
            Admin(cluster.bootstrap_servers) as admin,
            Producer(cluster.bootstrap_servers) as producer,
        ):
            await make_topic(admin, 1, segment_bytes="3000")
            for number in range(60):
                await producer.send_and_wait(TOPIC, b"v%02d" % number)
        damage()
        async with (
            Cluster(1, seed=1, data_dir=str(tmp_path)) as cluster,
            Consumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer,
        ):

            async def read_to(end: int) -> list[bytes | None]:
                values: list[bytes | None] = []
                while consumer.position(where) < end:
                    values += [one.value for some in (await consumer.getmany(timeout_ms=500)).values() for one in some]
                return values

            assert await read_to(25) == [b"v%02d" % number for number in range(25)]
            for _ in range(2):
                with pytest.raises(KafkaError, match="offset 25 is damaged; seek behind it"):
                    await read_to(26)
                with pytest.raises(KafkaError, match="offset 25 is damaged; seek behind it"):
                    await consumer.getone()
            consumer.seek(where, 26)
            assert await read_to(60) == [b"v%02d" % number for number in range(26, 60)]
            await restore(cluster, where)

    async def restore(cluster: Cluster, where: TopicPartition) -> None:
        """Readers of changelogs also report damage instead of waiting."""
        config = NetworkConfig(bootstrap_servers=parse_servers(cluster.bootstrap_servers))
        questions, arrived = Network(config, random.Random(1)), asyncio.Event()
        reader = ChangelogReader(config, random.Random(2), arrived.set, questions)
        await reader.start()
        try:
            reader.follow({where: 20})
            with pytest.raises(KafkaError, match="offset 25 is damaged"):
                while True:
                    await arrived.wait()
                    arrived.clear()
                    for partition in reader.waiting():
                        reader.take(partition, 100)
        finally:
            await reader.stop()

    async with asyncio.timeout(120):
        await story()


PARTS = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))


class Together:
    """Two partitions that are read together, and one that is read alone."""

    def __init__(self) -> None:
        self.assignment = Assignment()
        self.deliveries = Deliveries(
            self.assignment,
            Gates(ordered=False),
            in_group=False,
            holds_back=lambda *_: False,
            read_together=lambda one: PARTS if one in PARTS else (),
        )
        self.assignment.replace([*PARTS, TopicPartition(TOPIC, 2)])
        for progress in self.assignment:
            progress.begin(0)

    def fetched(self, partition: int, *times_ms: int, end: int | None = None) -> None:
        """Records of these times came; the partition ends behind them, or at `end`."""
        progress = self.assignment[TopicPartition(TOPIC, partition)]
        base = progress.fetch_offset
        end = base + len(times_ms) if end is None else end
        progress.note_ends(high_watermark=end, last_stable_offset=end, committed_only=False)
        if times_ms:
            progress.receive(batch(base, [b"%d" % at for at in times_ms], times_ms=times_ms), base)

    def take(self, limit: int = 100, *, now_s: float = 0.0) -> dict[int, list[int]]:
        taken = self.deliveries.take(limit, now_s)
        return {one.partition: [row.timestamp for row in rows] for one, rows in sorted(taken.items())}


def test_partitions_that_are_read_together_are_delivered_by_time() -> None:
    one = Together()
    one.fetched(0, 10, 20)
    one.fetched(0, 30, 40)
    one.fetched(1, 15, 5, 35)
    one.fetched(1, 36)
    assert [one.take(2) for _ in range(5)] == [
        {0: [10], 1: [15]},
        {0: [20], 1: [5]},
        {0: [30], 1: [35]},
        {0: [40], 1: [36]},
        {},
    ]
    assert [progress.position for progress in one.assignment][:2] == [4, 4]


def test_record_waits_for_older_ones_that_may_still_be_fetched() -> None:
    one = Together()
    one.fetched(0, 10, 20, 30)
    one.fetched(2, 99)
    assert one.take() == {2: [99]}, "nothing is known of partition 1"
    one.fetched(1, 15, end=2)
    assert one.take() == {0: [10], 1: [15]}, "partition 1 has one more"
    one.fetched(1, 25)
    assert one.take() == {0: [20, 30], 1: [25]}, "there are no more"


def test_long_wait_for_a_partition_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    one = Together()
    one.fetched(0, 10, 20)
    one.fetched(1, 5, end=2)
    for now_s in (1.0, AWAITED_LOG_S, AWAITED_LOG_S + 2, AWAITED_LOG_S + 3, 99.0):
        assert bool(caplog.text) == (now_s > AWAITED_LOG_S + 2)
        one.take(now_s=now_s)
    assert caplog.text.count(f"records that are read together with {PARTS[1]} wait") == 1
    one.fetched(1, 15)
    assert one.take(now_s=100.0) == {0: [10, 20], 1: [15]}
    one.fetched(0, 30)
    one.fetched(1, end=4)
    one.take(now_s=200.0)
    one.take(now_s=200.0 + AWAITED_LOG_S)
    assert caplog.text.count("wait") == 2, "another wait"


def test_record_does_not_wait_for_a_partition_that_waits_itself() -> None:
    one = Together()
    one.fetched(0, 10)
    one.fetched(1, end=7)
    assert one.take() == {}
    one.assignment[PARTS[1]].pause()
    assert one.take() == {0: [10]}


def test_damage_among_partitions_that_are_read_together_is_reported() -> None:
    one = Together()
    one.fetched(0, 10)
    one.fetched(1, end=1)
    one.assignment[PARTS[1]].damaged = True
    with pytest.raises(KafkaError, match="is damaged"):
        one.take()
    assert one.take() == {}, "it is fetched again"
