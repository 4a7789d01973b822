"""Conditional writes: successful, failed, repeated, and failpoints."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from anabranch.controller import topic_admin
from anabranch.controller.candidacy import Candidacy, NoLongerController
from anabranch.controller.effects import PartitionWrite, WritePartitions, WriteTopic
from anabranch.controller.events import TopicWriteLost, TopicWritten
from anabranch.controller.fenced_writes import FencedWrites
from anabranch.controller.model import LeaderAndIsr, TopicPartition
from anabranch.controller.settings import ControllerSettings
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.memory import MemorySession, MemoryZooKeeper
from anabranch.controller.zk.session import Delete, Op
from anabranch.controller.znode_reader import ZnodeReader
from anabranch.controller.znode_writer import ZnodeWriter

STATE = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,), controller_epoch=1, gen_start=((0, 0),))
NEXT = LeaderAndIsr(leader=1, leader_epoch=1, isr=(1,), controller_epoch=1, gen_start=((0, 0),))


@dataclass
class Desk:
    zookeeper: MemoryZooKeeper
    session: MemorySession
    writer: ZnodeWriter
    reader: ZnodeReader
    steps: list[str]


async def desk(*, in_turn: bool = True) -> Desk:
    zookeeper = MemoryZooKeeper()
    session = await zookeeper.connect()
    for path in paths.ALWAYS_CREATED:
        await session.create(path, make_parents=True)
    term = await Candidacy(session, ControllerSettings(node_id=1), lambda: 0).elect()
    assert term is not None
    reader = ZnodeReader(session, random.Random(1), lambda read: None)
    steps: list[str] = []
    await topic_admin.create_topic(
        session, name="t", topic_id=b"t" * 16, assignment={0: [1], 1: [1]}, configs={"a": "b"}
    )
    writer = ZnodeWriter(FencedWrites(session, term, steps.append), reader, in_turn=lambda: in_turn)
    return Desk(zookeeper, session, writer, reader, steps)


def write(index: int, state: LeaderAndIsr, expected: int | None) -> PartitionWrite:
    return PartitionWrite(TopicPartition("t", index), state, expected)


async def test_states_are_created_with_parents_and_updated_by_version() -> None:
    at = await desk()
    made = await at.writer.partitions(WritePartitions((write(0, STATE, None), write(1, STATE, None)), "create", True))
    assert {one.epoch for one in made.written.values()} == {0} and not made.lost and made.is_new
    changed = await at.writer.partitions(WritePartitions((write(0, NEXT, 0), write(1, NEXT, 7)), "isr"))
    assert [one.partition for one in changed.written] == [0]
    assert changed.written[TopicPartition("t", 0)].epoch == 1
    assert changed.lost[TopicPartition("t", 1)].state == STATE  # type: ignore[union-attr]
    assert at.steps == ["make-room", "create:1", "create:2", "create", "isr:1", "isr"]


async def test_existing_equal_content_counts_as_written() -> None:
    at = await desk()
    for _ in range(2):
        outcome = await at.writer.partitions(WritePartitions((write(0, STATE, None),), "create"))
        assert list(outcome.written) == [TopicPartition("t", 0)]
    assert (await at.session.get(paths.partition_state("t", 0)))[1].version == 0


async def test_partition_of_missing_topic_is_lost() -> None:
    at = await desk()
    stray = PartitionWrite(TopicPartition("gone", 0), STATE, None)
    outcome = await at.writer.partitions(WritePartitions((stray,), "create"))
    assert outcome.lost == {TopicPartition("gone", 0): None}


async def test_topic_and_its_removed_partitions_change_in_one_transaction() -> None:
    at = await desk()
    await at.writer.partitions(WritePartitions((write(0, STATE, None), write(1, STATE, None)), "create"))
    topic = await at.reader.topic("t")
    assert topic is not None
    smaller = topic_admin.new_topic(b"t" * 16, {0: [1]})
    lost = await at.writer.topic(WriteTopic("t", smaller, topic.version + 1, "remove:after-remove", removed=(1,)))
    assert isinstance(lost, TopicWriteLost) and lost.topic == topic
    assert await at.session.exists(paths.partition("t", 1)) is not None
    won = await at.writer.topic(WriteTopic("t", smaller, topic.version, "remove:after-remove", removed=(1,)))
    assert isinstance(won, TopicWritten) and won.version == topic.version + 1
    assert await at.session.exists(paths.partition("t", 1)) is None
    again = await at.writer.topic(WriteTopic("t", smaller, topic.version, "remove:after-remove", removed=(1,)))
    assert isinstance(again, TopicWritten), "the reply to the first attempt may have been lost"


async def test_topic_removal_is_complete_and_idempotent() -> None:
    at = await desk()
    await at.writer.partitions(WritePartitions((write(0, STATE, None),), "create"))
    await topic_admin.delete_topic(at.session, "t")
    for _ in range(2):
        await at.writer.remove_topic("t")
        await at.writer.remove_deletion("t")
    for path in (paths.topic("t"), paths.topic_config("t"), paths.delete_topic("t")):
        assert await at.session.exists(path) is None


async def test_removal_whose_reply_was_lost_leaves_the_next_topic_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node creates it as soon as the name is free, before the controller is connected again."""
    at = await desk()
    other = await at.zookeeper.connect()
    await topic_admin.delete_topic(at.session, "t")
    write = at.session.multi

    async def lose_reply(ops: Sequence[Op]) -> object:
        if Delete(paths.topic("t")) not in ops:
            return await write(ops)
        monkeypatch.undo()
        writing = asyncio.ensure_future(write(ops))
        await asyncio.sleep(0)
        at.session.lose_connection(carry_out=True)
        await topic_admin.create_topic(other, name="t", topic_id=b"u" * 16, assignment={0: [1]}, configs={"c": "d"})
        at.session.reconnect()
        return await writing

    monkeypatch.setattr(at.session, "multi", lose_reply)
    await at.writer.remove_topic("t")
    topic = await at.reader.topic("t")
    assert topic is not None and (topic.body.topic_id, topic.config) == (b"u" * 16, {"c": "d"})


async def test_ended_tenure_writes_nothing() -> None:
    at = await desk()
    await at.session.set(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(9))
    with pytest.raises(NoLongerController):
        await at.writer.partitions(WritePartitions((write(0, STATE, None),), "create"))
    with pytest.raises(NoLongerController):
        await at.writer.remove_topic("t")
    assert await at.session.exists(paths.topic("t")) is not None
