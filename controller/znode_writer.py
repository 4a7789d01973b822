"""Executes the state machine's writes, each in a transaction fenced by the tenure, and reports the outcome.

A write is lost when the znode has another writer's content instead. Finding the write's own content counts as success:
after a lost connection the transaction is resent, and the first attempt may have succeeded.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from anabranch.controller import events
from anabranch.controller.effects import PartitionWrite, WriteFeatures, WritePartitions, WriteTopic
from anabranch.controller.fenced_writes import FencedWrites
from anabranch.controller.model import Features, Partition, TopicPartition
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.session import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Set,
    Stat,
    TooLarge,
)
from anabranch.controller.zk.sizes import TRANSACTION_BYTES, bytes_of, pieces
from anabranch.controller.znode_reader import ZnodeReader

WRITES_AT_ONCE = 200
"""States in one transaction: few enough for other requests in between."""
ALL_BROKERS = "brokers/<default>"
TopicOutcome = events.TopicWritten | events.TopicWriteLost | events.TopicWriteRefused


class ZnodeWriter:
    """The controller's writes; each transaction is a step, for failure injection.

    `in_turn` tells whether transactions write one partition's state each, so that a controller can crash between any
    two.
    """

    def __init__(self, writes: FencedWrites, reader: ZnodeReader, *, in_turn: Callable[[], bool]) -> None:
        self._writes = writes
        self._reader = reader
        self._in_turn = in_turn

    async def partitions(self, effect: WritePartitions) -> events.PartitionsWritten:
        """Write partition states, each on its own condition."""
        written: dict[TopicPartition, Partition] = {}
        lost: dict[TopicPartition, Partition | None] = {}
        for name in sorted({write.partition.topic for write in effect.writes if write.expected_epoch is None}):
            await self._ensure("make-room", paths.partitions(name))
        count = 0
        waiting = iter(effect.writes)
        for ops in self._pieces(map(operations, effect.writes)):
            batch = list(itertools.islice(waiting, len(ops)))
            count += len(batch)
            point = f"{effect.label}:{count}"
            for write, committed in zip(batch, await self._batch(point, batch, ops), strict=True):
                ours = committed is not None and committed.state == write.state
                if ours and committed is not None:
                    written[write.partition] = committed
                else:
                    lost[write.partition] = committed
        if effect.writes:
            self._writes.taken(effect.label)
        return events.PartitionsWritten(written, lost, effect.is_new, effect.then, effect.quiet)

    async def topic(self, effect: WriteTopic) -> TopicOutcome:
        """Write a topic's znode and states in one transaction, and remove the partitions that it no longer names."""
        ops: list[Op] = [Set(paths.topic(effect.name), znodes.encode_topic(effect.body), effect.expected_version)]
        for write in effect.states:
            assert write.expected_epoch is not None, "the partition's state exists"
            path = paths.partition_state(*write.partition)
            ops.append(Set(path, znodes.encode_partition_state(write.state), write.expected_epoch))
        for index in effect.removed:
            ops += [Delete(paths.partition_state(effect.name, index)), Delete(paths.partition(effect.name, index))]
        try:
            stat = (await self._writes.commit(effect.label, ops))[0]
            assert isinstance(stat, Stat)
            version = stat.version
        except (BadVersion, NoNode, TooLarge) as refused:
            topic = await self._reader.topic(effect.name)
            if topic is None or topic.body != effect.body:
                if isinstance(refused, TooLarge):
                    return events.TopicWriteRefused(effect.name, effect.label, refused.size_bytes)
                actual = {write.partition: await self._reader.partition(*write.partition) for write in effect.states}
                return events.TopicWriteLost(effect.name, topic, effect.label, actual)
            version = topic.version
        # One transaction wrote everything, in this attempt or in an earlier one whose response was lost.
        states = {write.partition: Partition(write.state, version_after(write)) for write in effect.states}
        return events.TopicWritten(effect.name, effect.body, version, effect.label, effect.removed, states)

    async def features(self, effect: WriteFeatures) -> events.FeaturesWritten:
        """Write the finalized levels, unless another writer has replaced them."""
        data = znodes.encode_feature(effect.levels)
        try:
            if effect.expected_epoch < 0:
                ops: list[Op] = [Create(paths.FEATURE, data)]
                if effect.configs and not await self._reader.exists(paths.config(ALL_BROKERS)):
                    ops += [
                        Create(paths.config(ALL_BROKERS), znodes.encode_config(effect.configs)),
                        Create(paths.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(ALL_BROKERS), sequence=True),
                    ]
                await self._writes.commit("first-features", ops)
                known = Features(effect.levels, 0)
            else:
                replaced = Set(paths.FEATURE, data, effect.expected_epoch)
                stat = (await self._writes.commit("update-features", [replaced]))[0]
                assert isinstance(stat, Stat)
                known = Features(effect.levels, stat.version)
        except (BadVersion, NodeExists, NoNode):
            known = await self._reader.features() or Features()
        return events.FeaturesWritten(known, effect.levels, effect.token, effect.results)

    async def remove_topic(self, name: str) -> events.TopicRemoved:
        """Remove a topic's znodes: its partitions in as many transactions as needed, then the rest in one.

        Its configuration and deletion request are removed with the topic's own znode, so a controller that is killed in
        between leaves a topic that is still to be deleted.
        """
        listed = False
        (czxid,) = await self._reader.czxids([paths.topic(name)])
        while True:
            try:
                await self._remove_partitions(name, listed=listed)
                await self._writes.commit("delete-topic", await self._naming(name, czxid))
                return events.TopicRemoved(name)
            except (NoNode, NotEmpty):
                listed = True  # its znodes changed in between: list all of them, and retry

    async def remove_deletion(self, name: str) -> None:
        """Drop a request to delete a topic."""
        with contextlib.suppress(NoNode):
            await self._writes.commit("remove-deletion", [Delete(paths.delete_topic(name))])

    async def _remove_partitions(self, name: str, *, listed: bool) -> None:
        """Remove partitions; `listed`: everything below a partition, and not only its state."""
        above = paths.partitions(name)
        indices = await self._reader.children(above)
        found = await self._reader.children_of([f"{above}/{index}" for index in indices], listed=listed)
        for piece in self._pieces([*map(Delete, below), Delete(partition)] for partition, below in found.items()):
            try:
                await self._writes.commit("delete-partitions", [op for ops in piece for op in ops])
            except TooLarge:
                for ops in piece:
                    await self._writes.commit("delete-partitions", ops)

    async def _naming(self, name: str, czxid: int | None) -> list[Op]:
        """Return the deletions of what names the topic that this transaction created; none of a later one's znodes."""
        topic = paths.topic(name)
        known = (paths.partitions(name), topic, paths.topic_config(name), paths.delete_topic(name))
        found = dict(zip(known, await self._reader.czxids(known), strict=True))
        if found[topic] not in (None, czxid):
            return []  # the first attempt succeeded, its response was lost, and the name is in use again
        return [Delete(path) for path in known if found[path] is not None]

    def _pieces(self, groups: Iterable[list[Op]]) -> Iterator[list[list[Op]]]:
        """Yield groups of operations that belong together, as many as fit into a transaction."""
        count_max = 1 if self._in_turn() else WRITES_AT_ONCE
        return pieces(groups, lambda ops: sum(map(bytes_of, ops)), count_max=count_max, bytes_max=TRANSACTION_BYTES)

    async def _batch(
        self, point: str, batch: Sequence[PartitionWrite], ops: Sequence[list[Op]]
    ) -> list[Partition | None]:
        """Write some states in one transaction; if one of them is refused, each in its own."""
        if len(batch) > 1:
            with contextlib.suppress(BadVersion, NodeExists, NoNode, TooLarge):
                await self._writes.commit(point, list(itertools.chain.from_iterable(ops)))
                return [Partition(write.state, version_after(write)) for write in batch]
        if len(batch) == 1:
            return [
                await self._state(point, batch[0])
            ]  # not in a separate task, so that an injected crash ends the whole controller
        return list(await asyncio.gather(*(self._state(point, write) for write in batch)))

    async def _state(self, point: str, write: PartitionWrite) -> Partition | None:
        """Write one state; return the committed one, None without such a partition."""
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
        """Create a missing parent, with the znodes below it in the same transaction."""
        try:
            await self._writes.commit(point, [Create(path, b""), *then])
        except NodeExists:
            if then:
                await self._writes.commit(point, then)
        except NoNode:
            if then:
                raise


def operations(write: PartitionWrite) -> list[Op]:
    """Return the operations of one state; a new one includes its parent znode."""
    path, data = paths.partition_state(*write.partition), znodes.encode_partition_state(write.state)
    if write.expected_epoch is None:
        return [Create(paths.partition(*write.partition), b""), Create(path, data)]
    return [Set(path, data, write.expected_epoch)]


def version_after(write: PartitionWrite) -> int:
    """Return a state znode's version after the write, which is one higher."""
    return 0 if write.expected_epoch is None else write.expected_epoch + 1
