"""A client's access to the cluster: connections to nodes, and current metadata.

What the rest of `clients` relies on:

    await network.start()                   bootstrap from any of the addresses; `ConnectionError` if none answers
    await network.close()                   fails what is open, leaves nothing behind
    network.metadata                        the current `ClusterMetadata`: never None, never modified
    network.follow("t")                     the topics that every refresh asks for
    await network.refresh()                 a fresh snapshot; callers at the same time share one request
    await network.refresh_from(node_ids)    a snapshot of what several nodes know
    network.request_refresh()               the same without waiting
    network.on_metadata(listener)           called with each new snapshot; returns a function that ends it
    await network.wait_for(condition)       refreshes, with backoff, until condition(metadata) holds
    await network.wait_for_topic("t", condition)    the same, unless the topic is refused for good

    await network.call(node_id, request)    the response; connects if need be
    await network.call_any(request)         ... of whichever node answers
    await network.ask_any(request)          ... of a node that answers soon, if the request changes nothing
    await network.leader_of(tp)             the leader's node id, waiting while there is none
    await network.coordinator(group)        the coordinator's node id, cached; `forget_coordinator` drops it
    await network.call_coordinator(group, request, error_of)     sent again if the coordinator moved
    await network.retry(operation)          again after lost connections and retriable errors, with backoff

    await network.call(node_id, request, channel=GROUP)   over a connection of its own: a parked long poll
                                            holds up whatever is behind it on the same connection
    network.ready(node_id)                  for senders that never wait: the open connection, or None after making sure
                                            that one is being opened; `on_connection` listeners are called when to ask
                                            again

A lost connection fails its calls with `ConnectionError` and nothing else. Failed attempts to connect back off per node
and ask for fresh metadata. Only the methods that say so repeat a call: only the caller knows whether its request may be
carried out twice.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from anabranch.clients.config import NetworkConfig
from anabranch.clients.connection import Connection
from anabranch.clients.connection_pool import (
    DATA,
    GROUP,
    JOIN,
    MORE_DATA,
    POSITION_CHANNELS,
    POSITIONS,
    Address,
    ConnectionPool,
)
from anabranch.clients.coordinators import Coordinators
from anabranch.clients.metadata import NO_LEADER, ClusterMetadata
from anabranch.clients.metadata_updater import MetadataUpdater, PartitionRemoved
from anabranch.protocol.apis.metadata import MetadataResponse
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.topic_partition import TopicPartition

__all__ = ["DATA", "GROUP", "JOIN", "MORE_DATA", "POSITIONS", "POSITION_CHANNELS", "Network", "make_rng"]

log = logging.getLogger(__name__)

PATIENCE_S: Final = 1.0
"""After this time without an answer another node is asked, too."""
DOUBT_S: Final = 10.0
"""For this time a node whose answer was of no use is asked after others: it may be cut off from the cluster."""

Result = TypeVar("Result")


class Network:
    """One client's connections and metadata. It belongs to one event loop, and does nothing before `start`."""

    def __init__(self, config: NetworkConfig, rng: random.Random) -> None:
        self.config = config
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._pool = ConnectionPool(config, rng, address_of=self._address_of, on_failure=self.request_refresh)
        self._updater = MetadataUpdater(config, rng, self._pool, self.ask_any, self.doubt)
        self._coordinators = Coordinators(self)
        self._answered: dict[type[Any], int] = {}
        """Kind of request -> the last node that has answered it in `ask_any`."""
        self._doubted: dict[type[Any], tuple[int, float]] = {}
        """Kind of request -> the node whose answer was of no use, and since when."""

    # lifecycle

    async def start(self) -> None:
        """Bootstrap: connect to a node and fetch the metadata.

        Raises ConnectionError if no node answers in time, and AuthenticationFailed at once if one refuses the login.
        """
        await self._updater.start()

    async def close(self) -> None:
        """Close every connection; open calls fail with `ConnectionError`. Leaves no task behind."""
        self._updater.close()
        await self._pool.close()
        await self._updater.wait_closed()

    # metadata

    @property
    def metadata(self) -> ClusterMetadata:
        """The current snapshot."""
        return self._updater.metadata

    def follow(self, *topics: str) -> None:
        """Include these topics in every refresh from now on. Raises TypeError or ValueError for an impossible name."""
        self._updater.follow(*topics)

    def unfollow(self, topic: str) -> None:
        """Leave a topic out of refreshes."""
        self._updater.unfollow(topic)

    def without_auto_creation(self) -> None:
        """Disable auto-creation by metadata requests: for admins and consumers."""
        self._updater.without_auto_creation()

    def on_metadata(self, listener: Callable[[ClusterMetadata], None]) -> Callable[[], None]:
        """Call `listener` with every new snapshot, before waiting callers resume. Returns a function that stops it."""
        return self._updater.on_metadata(listener)

    def await_epochs(self, seen: Mapping[TopicPartition, int]) -> None:
        """Use no leader that is older than these epochs, which others have seen."""
        self._updater.await_epochs(seen)

    async def refresh(self) -> ClusterMetadata:
        """Return a snapshot requested after this call began. Raises `ConnectionError` when no node answers."""
        return await self._updater.refresh()

    async def refresh_from(self, node_ids: Iterable[int], *, timeout_ms: float) -> ClusterMetadata:
        """Return the snapshot after the responses of those nodes that answer in time. The newest leaders count.

        A single node may be cut off from the controller, and show a leader that was replaced.
        """

        async def ask(node_id: int) -> MetadataResponse:
            async with asyncio.timeout(timeout_ms / 1000):  # for a connection, too
                response: MetadataResponse = await self.call(node_id, self._updater.request())
                return response

        for answer in await asyncio.gather(*map(ask, node_ids), return_exceptions=True):
            if isinstance(answer, MetadataResponse):
                self._updater.apply(answer)
        return self.metadata

    def request_refresh(self) -> None:
        """Refresh soon, without waiting; failures are retried with backoff until one succeeds."""
        self._updater.request_refresh()

    async def wait_for(
        self, condition: Callable[[ClusterMetadata], bool], *, timeout_ms: float | None = None
    ) -> ClusterMetadata:
        """Refresh until the snapshot satisfies `condition`. Raises `TimeoutError` if the time is up first."""
        return await self._updater.wait_for(condition, timeout_ms=timeout_ms)

    async def wait_for_topic(
        self,
        topic: str,
        condition: Callable[[ClusterMetadata], bool],
        *,
        index: int = -1,
        timeout_ms: float | None = None,
    ) -> ClusterMetadata:
        """Refresh until a topic, or its partition `index`, satisfies `condition`.

        Raises `KafkaError` if the topic is refused for good, `PartitionRemoved`, `TimeoutError`.
        """
        return await self._updater.wait_for_topic(topic, condition, index=index, timeout_ms=timeout_ms)

    # calls

    def on_connection(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with a node id when its connection is ready, or when another attempt may start."""
        self._pool.listeners.append(listener)

    def ready(self, node_id: int, *, channel: int = DATA) -> Connection | None:
        """Return the open connection to a node; None while an attempt is in progress or backed off."""
        return self._pool.ready(node_id, channel)

    def error_for(self, topic: str, index: int) -> str:
        """Describe why a partition's leader cannot be reached; empty if no reason is known."""
        known = self.metadata.obstacle(topic, index)
        return known or self._pool.last_error(self.metadata.leader(topic, index), DATA)

    async def connection(self, node_id: int, *, channel: int = DATA) -> Connection:
        """Connect to a node. Raises `ConnectionError` if it cannot be reached now."""
        return await self._pool.connection(node_id, channel)

    async def call(
        self,
        node_id: int,
        request: Any,
        *,
        version: int | None = None,
        timeout_ms: float | None = None,
        channel: int = DATA,
    ) -> Any:
        """Send a request to one node and wait for its response.

        `version` None: the highest that both sides support; `timeout_ms` None: the client's request timeout. Raises
        ConnectionError when the node cannot be reached or the connection is lost, TimeoutError without an answer.
        """
        try:
            connection = await self.connection(node_id, channel=channel)
            response = await connection.call(request, version=version, timeout_ms=timeout_ms)
        except TimeoutError:
            self._pool.silent.add(node_id)
            raise
        self._pool.silent.discard(node_id)
        return response

    async def call_any(self, request: Any) -> Any:
        """Return the response of the first node that answers; open connections are tried first, silent nodes last."""
        error: Exception = ConnectionError("no node is known")
        for node_id in self._nodes_by_preference():
            try:
                return await self.call(node_id, request)
            except (ConnectionError, TimeoutError) as failure:
                error = failure
        raise error

    async def ask_any(self, request: Any) -> Any:
        """Return the first response of any node to a request that changes nothing.

        A node that does not answer for `PATIENCE_S` may be frozen: the next one is asked, too. `doubt` lets others be
        asked before the node that has answered last.
        """
        error: Exception = ConnectionError("no node is known")
        node_id, since_s = self._doubted.get(type(request), (-1, 0.0))
        doubted = node_id if self._loop.time() - since_s < DOUBT_S else None
        nodes, asked = self._nodes_by_preference(doubted), dict[asyncio.Task[Any], int]()
        try:
            while nodes or asked:
                if nodes:
                    node_id = nodes.pop(0)
                    asked[self._loop.create_task(self.call(node_id, request))] = node_id
                patience_s = PATIENCE_S if nodes else None
                done, _ = await asyncio.wait(asked, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    self._pool.silent.update(asked.values())
                for task in done:
                    node_id = asked.pop(task)
                    try:
                        answer = task.result()
                    except (ConnectionError, TimeoutError) as failure:
                        error = failure
                    else:
                        self._answered[type(request)] = node_id
                        return answer
            raise error
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    def doubt(self, kind: type[Any]) -> None:
        """Note that the last answer to this kind of request was of no use, perhaps old: ask another node next time."""
        if kind in self._answered:
            self._doubted[kind] = self._answered[kind], self._loop.time()

    async def leader_of(self, partition: TopicPartition) -> int:
        """Return the leader's node id, waiting for one up to the request timeout.

        Raises `KafkaError` if the topic is refused for good, `PartitionRemoved`, `TimeoutError`.
        """
        metadata = await self.wait_for_topic(
            partition.topic,
            lambda metadata: metadata.leader(*partition) != NO_LEADER,
            index=partition.partition,
            timeout_ms=self.config.request_timeout_ms,
        )
        return metadata.leader(*partition)

    async def coordinator(self, key: str, *, key_type: int = 0) -> int:
        """Return the coordinator's node id, for a group (key type 0) or a transactional id (1). Cached until
        forgotten.
        """
        return await self._coordinators.find(key, key_type)

    def forget_coordinator(self, key: str, *, key_type: int = 0) -> None:
        """Drop a cached coordinator that is wrong or dead; `coordinator` looks it up again."""
        self._coordinators.forget(key, key_type)

    async def call_coordinator(
        self,
        key: str,
        request: Any,
        error_of: Callable[[Any], int],
        *,
        timeout_ms: float | None = None,
        channel: int = GROUP,
        doubt_ms: float | None = None,
        on_unknown_outcome: Callable[[], None] = lambda: None,
    ) -> Any:
        """Send a request to the coordinator of a group, and to its successor if it has moved.

        `error_of` reads the error code of a response. Errors other than a moved or loading coordinator are left in the
        response for the caller. After each `doubt_ms` without a response, other nodes are asked whether the coordinator
        has moved. `on_unknown_outcome` is called before the next attempt, if the last one may have succeeded.
        """
        return await self._coordinators.call(
            key,
            request,
            error_of,
            timeout_ms=timeout_ms,
            channel=channel,
            doubt_ms=doubt_ms,
            on_unknown_outcome=on_unknown_outcome,
        )

    async def retry(self, operation: Callable[[], Awaitable[Result]], *, timeout_ms: float | None = None) -> Result:
        """Run `operation` until it neither loses its connection nor fails with a retriable `KafkaError`."""
        limit_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._loop.time() + limit_ms / 1000
        failures = 0
        while True:
            try:
                return await operation()
            except (ConnectionError, TimeoutError) as error:
                if self._pool.closed or self._loop.time() >= deadline:
                    raise
                log.debug("retrying: %s", error)
                self.request_refresh()
            except KafkaError as error:
                is_final = isinstance(error, PartitionRemoved) or not error.code.retriable
                if is_final or self._pool.closed or self._loop.time() >= deadline:
                    raise
                log.debug("retrying: %s", error)
                if error.code.invalid_metadata:
                    self.request_refresh()
            failures += 1
            await asyncio.sleep(self.config.retry_backoff.wait_ms(failures, self._rng) / 1000)

    def _address_of(self, node_id: int) -> Address | None:
        node = self.metadata.nodes.get(node_id)
        return None if node is None else (node.host, node.port)

    def _nodes_by_preference(self, doubted: int | None = None) -> list[int]:
        nodes = list(self.metadata.nodes)
        self._rng.shuffle(nodes)
        return sorted(nodes, key=lambda node_id: self._pool.preference(node_id, doubted=node_id == doubted))


def make_rng(rng: random.Random | None) -> random.Random:
    """Return the given random generator, or one seeded by the system."""
    return rng if rng is not None else random.Random()
