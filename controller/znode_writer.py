"""Acts the writes that the machine decides, each in a transaction fenced by the term, and reports what is committed.

A write is lost when somebody else's is there instead. Finding our own content counts as success: after a lost
connection the transaction is sent again, and the first attempt may have been carried out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from controller import events
from controller.effects import PartitionWrite, WriteFeatures, WritePartitions, WriteTopic
from controller.features import Features
from controller.fenced_writes import FencedWrites
from controller.model import Partition, TopicPartition
from controller.zk import paths, znodes
from controller.zk.session import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Set,
    Stat,
)
from controller.znode_reader import ZnodeReader, chunks

WRITES_AT_ONCE = 200
"""States in one transaction: far from the megabyte that ZooKeeper takes, and few enough that others get their turn."""


class ZnodeWriter:
    """All that the controller decides to write; each transaction is a step, for failure injection.

    `in_turn`: one state in each, so that a controller can be made to die between any two.
    """

    def __init__(self, writes: FencedWrites, reader: ZnodeReader, *, in_turn: bool) -> None:
        self._writes = writes
        self._reader = reader
        self._at_once = 1 if in_turn else WRITES_AT_ONCE

    async def partitions(self, effect: WritePartitions) -> events.PartitionsWritten:
        """Write partition states, each on its own condition."""
        written: dict[TopicPartition, Partition] = {}
        lost: dict[TopicPartition, Partition | None] = {}
        for name in sorted({write.partition.topic for write in effect.writes if write.expected_epoch is None}):
            await self._ensure("make-room", paths.partitions(name))
        count = 0
        for batch in chunks(effect.writes, self._at_once):
            count += len(batch)
            point = f"{effect.label}:{count}"
            for write, committed in zip(batch, await self._batch(point, batch), strict=True):
                ours = committed is not None and committed.state == write.state
                if ours and committed is not None:
                    written[write.partition] = committed
                else:
                    lost[write.partition] = committed
        if effect.writes:
            self._writes.taken(effect.label)
        return events.PartitionsWritten(written, lost, effect.is_new, effect.then, effect.quiet)

    async def topic(self, effect: WriteTopic) -> events.TopicWritten | events.TopicWriteLost:
        """Write a topic's znode with the states that change with it, and remove the partitions it no longer names."""
        ops: list[Op] = [Set(paths.topic(effect.name), znodes.encode_topic(effect.body), effect.expected_version)]
        for write in effect.states:
            assert write.expected_epoch is not None, "a state that is written with its topic exists"
            path = paths.partition_state(*write.partition)
            ops.append(Set(path, znodes.encode_partition_state(write.state), write.expected_epoch))
        for index in effect.removed:
            ops += [Delete(paths.partition_state(effect.name, index)), Delete(paths.partition(effect.name, index))]
        try:
            stat = (await self._writes.commit(effect.label, ops))[0]
            assert isinstance(stat, Stat)
            version = stat.version
        except (BadVersion, NoNode):
            topic = await self._reader.topic(effect.name)
            if topic is None or topic.body != effect.body:
                actual = {write.partition: await self._reader.partition(*write.partition) for write in effect.states}
                return events.TopicWriteLost(effect.name, topic, effect.label, actual)
            version = topic.version
        # All was committed together, by this attempt or by an earlier one whose answer was lost: each once.
        states = {write.partition: Partition(write.state, version_after(write)) for write in effect.states}
        return events.TopicWritten(effect.name, effect.body, version, effect.label, effect.removed, states)

    async def features(self, effect: WriteFeatures) -> events.FeaturesWritten:
        """Write what is finalized, unless somebody else has meanwhile."""
        data = znodes.encode_feature(effect.levels)
        try:
            if effect.expected_epoch < 0:
                await self._writes.commit("first-features", [Create(paths.FEATURE, data)])
                known = Features(effect.levels, 0)
            else:
                ops = [Set(paths.FEATURE, data, effect.expected_epoch)]
                stat = (await self._writes.commit("update-features", ops))[0]
                assert isinstance(stat, Stat)
                known = Features(effect.levels, stat.version)
        except (BadVersion, NodeExists, NoNode):
            known = await self._reader.features() or Features()
        return events.FeaturesWritten(known, effect.levels, effect.token, effect.results)

    async def remove_topic(self, name: str) -> events.TopicRemoved:
        """Remove a topic's znodes, its configuration and the request to delete it, in one transaction."""
        while True:
            ops = await self._removal(name)
            try:
                await self._writes.commit("delete-topic", ops)
                return events.TopicRemoved(name)
            except (NoNode, NotEmpty):
                continue  # something of it appeared or went in between: look again

    async def remove_deletion(self, name: str) -> None:
        """Drop a request to delete a topic."""
        with contextlib.suppress(NoNode):
            await self._writes.commit("remove-deletion", [Delete(paths.delete_topic(name))])

    async def _removal(self, name: str) -> list[Op]:
        ops: list[Op] = []
        indices = await self._reader.children(paths.partitions(name))
        for index in indices:
            path = f"{paths.partitions(name)}/{index}"
            ops += [Delete(f"{path}/{child}") for child in await self._reader.children(path)]
            ops.append(Delete(path))
        for path in (paths.partitions(name), paths.topic(name), paths.topic_config(name), paths.delete_topic(name)):
            if await self._reader.exists(path):
                ops.append(Delete(path))
        return ops

    async def _batch(self, point: str, batch: Sequence[PartitionWrite]) -> list[Partition | None]:
        """Write some states in one transaction; if one of them is refused, each in its own."""
        if len(batch) > 1:
            ops: list[Op] = []
            for write in batch:
                path, data = paths.partition_state(*write.partition), znodes.encode_partition_state(write.state)
                if write.expected_epoch is None:
                    ops += [Create(paths.partition(*write.partition), b""), Create(path, data)]
                else:
                    ops.append(Set(path, data, write.expected_epoch))
            with contextlib.suppress(BadVersion, NodeExists, NoNode):
                await self._writes.commit(point, ops)
                return [Partition(write.state, version_after(write)) for write in batch]
        if len(batch) == 1:
            return [await self._state(point, batch[0])]  # in no task of its own: who dies here dies as a whole
        return list(await asyncio.gather(*(self._state(point, write) for write in batch)))

    async def _state(self, point: str, write: PartitionWrite) -> Partition | None:
        """Write one state; what is committed afterwards, None if there is no such partition."""
        name, index = write.partition
        path, data = paths.partition_state(name, index), znodes.encode_partition_state(write.state)
        try:
            if write.expected_epoch is not None:
                stat = (await self._writes.commit(point, [Set(path, data, write.expected_epoch)]))[0]
                assert isinstance(stat, Stat)
                return Partition(write.state, stat.version)
            await self._ensure(point, paths.partition(name, index), Create(path, data))
            return Partition(write.state, 0)
        except (BadVersion, NodeExists, NoNode):
            return await self._reader.partition(name, index)

    async def _ensure(self, point: str, path: str, *then: Op) -> None:
        """Create a parent if it is missing, and what belongs below it in the same transaction."""
        try:
            await self._writes.commit(point, [Create(path, b""), *then])
        except NodeExists:
            if then:
                await self._writes.commit(point, then)
        except NoNode:
            if then:
                raise


def version_after(write: PartitionWrite) -> int:
    """The version of a state's znode once the write has happened: every write raises it by one."""
    return 0 if write.expected_epoch is None else write.expected_epoch + 1
