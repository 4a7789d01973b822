"""Reads znodes into events, and sets a watch on each: a `Read` names the read to repeat when it fires.

A znode with an invalid body is logged and left out; its writer's bug must not end the controller's tenure. A topic
whose configuration is invalid has the brokers' settings.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeVar

from anabranch.controller.candidacy import retry_connection_loss
from anabranch.controller.events import TopicSnapshot
from anabranch.controller.model import Broker, Features, Partition, Topic
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.body import MalformedZnode
from anabranch.controller.zk.session import NoNode, WatchCallback, WatchEvent, ZkSession
from anabranch.protocol.values import value

log = logging.getLogger(__name__)

T = TypeVar("T")

READS_AT_ONCE = 256
STATES_AT_ONCE = 500
"""States per request: the response stays well below a megabyte."""


@value
class Read:
    """A read to repeat: `name` is the topic, for "topic"."""

    what: Literal["brokers", "topics", "topic", "deletions", "controller"]
    name: str = ""


@value
class ReadAgain:
    """The watch of a read. Equal ones count once: a znode that is read again, but not changed, has no second watch."""

    read: Read
    changed: Callable[[Read], None]

    def __call__(self, _event: WatchEvent) -> None:
        """Report that the read is to be repeated."""
        self.changed(self.read)


class ZnodeReader:
    """The controller's reads, through one session."""

    def __init__(self, session: ZkSession, rng: random.Random, changed: Callable[[Read], None]) -> None:
        self._session = session
        self._rng = rng
        self._changed = changed

    async def brokers(self) -> dict[int, Broker]:
        """Read /brokers/ids: the registered brokers, with their broker epochs."""
        watch = self._watch(Read("brokers"))
        names = await retry_connection_loss(lambda: self._session.children(paths.BROKER_IDS, watch))
        found = await gather_bounded(self._broker(f"{paths.BROKER_IDS}/{name}", watch) for name in names)
        return {broker.id: broker for broker in found if broker is not None}

    async def topic_names(self) -> list[str]:
        """Read the children of /brokers/topics."""
        watch = self._watch(Read("topics"))
        return await retry_connection_loss(lambda: self._session.children(paths.TOPICS, watch))

    async def deletions(self) -> frozenset[str]:
        """Read the children of /admin/delete_topics."""
        watch = self._watch(Read("deletions"))
        return frozenset(await retry_connection_loss(lambda: self._session.children(paths.DELETE_TOPICS, watch)))

    async def features(self) -> Features | None:
        """Read the finalized features; None if there never were any."""
        try:
            data, stat = await retry_connection_loss(lambda: self._session.get(paths.FEATURE))
            return Features(znodes.decode_feature(paths.FEATURE, data), stat.version)
        except NoNode:
            return None
        except MalformedZnode as error:
            log.error("assuming that no feature is finalized: %s", error)
            return Features()

    async def snapshots(self, names: Iterable[str]) -> tuple[TopicSnapshot, ...]:
        """Read these topics with their partitions' states; missing and invalid ones are left out."""
        found = await gather_bounded(self._snapshot(name) for name in names)
        return tuple(snapshot for snapshot in found if snapshot is not None)

    async def topic(self, name: str) -> Topic | None:
        """Read one topic's znode and configuration."""
        path, watch = paths.topic(name), self._watch(Read("topic", name))
        try:
            data, stat = await retry_connection_loss(lambda: self._session.get(path, watch))
            body = znodes.decode_topic(path, data)
            return Topic(name, body, stat.version, await self._config(name, watch))
        except NoNode:
            return None
        except MalformedZnode as error:
            log.error("ignoring topic %s: %s", name, error)
            return None

    async def partitions(self, name: str, indices: Iterable[int]) -> dict[int, Partition]:
        """Read the existing states of these partitions."""
        known: dict[int, Partition] = {}
        for some in chunks(sorted(indices), STATES_AT_ONCE):
            names = [paths.partition_state(name, index) for index in some]
            found = await retry_connection_loss(lambda names=names: self._session.get_many(names))  # type: ignore[misc]
            for index, path, one in zip(some, names, found, strict=True):
                if one is not None:
                    known[index] = Partition(znodes.decode_partition_state(path, one[0]), one[1].version)
        return known

    async def partition(self, name: str, index: int) -> Partition | None:
        """Read one partition's state, None if it has none."""
        path = paths.partition_state(name, index)
        try:
            data, stat = await retry_connection_loss(lambda: self._session.get(path))
            return Partition(znodes.decode_partition_state(path, data), stat.version)
        except NoNode:
            return None

    async def children(self, path: str) -> list[str]:
        """Read the names of a znode's children; empty without the znode."""
        try:
            return await retry_connection_loss(lambda: self._session.children(path))
        except NoNode:
            return []

    async def children_of(self, above: Sequence[str], *, listed: bool) -> dict[str, list[str]]:
        """Read the znodes directly below these partitions' znodes: their states, or, `listed`, whatever exists."""
        if listed:
            names = await gather_bounded(self.children(path) for path in above)
            return {path: [f"{path}/{name}" for name in below] for path, below in zip(above, names, strict=True)}
        found: dict[str, list[str]] = {}
        for some in chunks(above, STATES_AT_ONCE):
            states = [paths.state_below(path) for path in some]
            read = await retry_connection_loss(lambda states=states: self._session.get_many(states))  # type: ignore[misc]
            found |= {path: [] if one is None else [state] for path, state, one in zip(some, states, read, strict=True)}
        return found

    async def czxids(self, names: Sequence[str]) -> list[int | None]:
        """Read in one snapshot which transaction created each of these znodes; None for missing ones."""
        found = await retry_connection_loss(lambda: self._session.get_many(names))
        return [None if one is None else one[1].czxid for one in found]

    async def exists(self, path: str) -> bool:
        """Whether the znode exists."""
        return await retry_connection_loss(lambda: self._session.exists(path)) is not None

    async def _snapshot(self, name: str) -> TopicSnapshot | None:
        topic = await self.topic(name)
        if topic is None:
            return None
        try:
            return TopicSnapshot(topic, await self.partitions(name, topic.body.assignment), self._rng.randbytes(16))
        except MalformedZnode as error:
            log.error("ignoring topic %s: %s", name, error)
            return None

    async def _broker(self, path: str, watch: WatchCallback) -> Broker | None:
        try:
            data, stat = await retry_connection_loss(lambda: self._session.get(path, watch))
            return znodes.decode_broker(path, data, czxid=stat.czxid)
        except NoNode:
            return None
        except MalformedZnode as error:
            log.error("ignoring a broker: %s", error)
            return None

    async def _config(self, name: str, watch: WatchCallback) -> dict[str, str]:
        path = paths.topic_config(name)
        while True:
            try:
                data, _ = await retry_connection_loss(lambda: self._session.get(path, watch))
                return znodes.decode_config(path, data)
            except NoNode:
                if await retry_connection_loss(lambda: self._session.exists(path, watch)) is None:
                    return {}
            except MalformedZnode:
                log.error("%s is malformed: the topic has the brokers' settings", path)
                return {}

    def _watch(self, read: Read) -> WatchCallback:
        return ReadAgain(read, self._changed)


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in order, in slices."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def gather_bounded(reads: Iterable[Awaitable[T]]) -> list[T]:
    """Return the results of many reads, with bounded concurrency."""
    waiting = list(reads)
    results: list[T] = []
    for start in range(0, len(waiting), READS_AT_ONCE):
        results += await asyncio.gather(*waiting[start : start + READS_AT_ONCE])
    return results
