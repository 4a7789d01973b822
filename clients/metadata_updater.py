"""Keeps a client's metadata current: bootstraps, refreshes it, and waits until it satisfies a condition.

At most one refresh is in progress, and callers share it. A refresh that a caller waits for is requested after the call
began. A failed refresh is repeated with backoff. While no known node answers, the client bootstraps again: the cluster
may have moved (KIP-899). Source: Kafka's `Metadata` and `NetworkClient.DefaultMetadataUpdater`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from anabranch.clients.authentication import AuthenticationFailed
from anabranch.clients.config import NetworkConfig
from anabranch.clients.connection_pool import ConnectionPool
from anabranch.clients.metadata import REFUSED_FOR_GOOD, ClusterMetadata
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.host_port import format_host_port
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

QUIET_S: Final = 1.0
"""How long bootstrapping takes before it is logged."""


class PartitionRemoved(KafkaError):
    """A merge has removed the partition. The error code is retriable, but a retry does not help."""


class MetadataUpdater:
    """The current metadata of one client, and its refreshes.

    Connections to bootstrap servers come from the pool. `ask_any` sends a request to any node that answers; after
    `doubt` it asks another one next time. A refresh without news leads to doubt: a node that is cut off from the
    cluster may be the only one with a connection, and would show its old metadata for ever.
    """

    def __init__(
        self,
        config: NetworkConfig,
        rng: random.Random,
        pool: ConnectionPool,
        ask_any: Callable[[Any], Awaitable[Any]],
        doubt: Callable[[type[Any]], None],
    ) -> None:
        self.metadata = ClusterMetadata()
        self._config = config
        self._rng = rng
        self._pool = pool
        self._ask_any = ask_any
        self._doubt = doubt
        self._loop = asyncio.get_running_loop()
        self._topics: dict[str, None] = {}
        self._create_topics = True
        self._refreshing: asyncio.Task[ClusterMetadata] | None = None
        self._refresh_again = False
        self._refresh_failures = 0
        self._wake_up: asyncio.TimerHandle | None = None
        self._listeners: list[Callable[[ClusterMetadata], None]] = []

    # lifecycle

    async def start(self) -> None:
        """Bootstrap: fetch the metadata from any bootstrap server.

        Raises ConnectionError if none answers in time, and AuthenticationFailed at once if one refuses the login. Logs
        once if it takes longer than a moment.
        """
        slow_log = self._loop.call_later(QUIET_S, self._log_waiting)
        try:
            await self._find_cluster()
        finally:
            slow_log.cancel()
        self._plan_refresh(self._config.metadata_max_age_ms)

    def _log_waiting(self) -> None:
        names = ", ".join(format_host_port(*one) for one in self._config.bootstrap_servers)
        log.warning("waiting for an answer from %s, up to %g s", names, self._config.bootstrap_timeout_ms / 1000)

    async def _find_cluster(self) -> None:
        deadline = self._loop.time() + self._config.bootstrap_timeout_ms / 1000
        failures = 0
        while True:
            error = await self._bootstrap()
            if error is None:
                break
            if isinstance(error, AuthenticationFailed):
                raise error  # another attempt would be refused too
            failures += 1
            wait_s = self._config.retry_backoff.wait_ms(failures, self._rng) / 1000
            if self._loop.time() + wait_s >= deadline:
                names = ", ".join(format_host_port(*one) for one in self._config.bootstrap_servers)
                raise ConnectionError(f"no bootstrap server responded ({names}): {error}") from error
            await asyncio.sleep(wait_s)

    def close(self) -> None:
        """Cancel the refresh in progress. The caller closes the pool next, and awaits `wait_closed` after that."""
        if self._wake_up is not None:
            self._wake_up.cancel()
        if self._refreshing is not None:
            self._refreshing.cancel()

    async def wait_closed(self) -> None:
        """Wait until a cancelled refresh has ended."""
        if self._refreshing is not None:
            await asyncio.gather(self._refreshing, return_exceptions=True)

    # topics and listeners

    def follow(self, *topics: str) -> None:
        """Include these topics in every refresh from now on. Does not refresh by itself.

        Raises TypeError or ValueError for a name that cannot be encoded, since no refresh could succeed any more.
        """
        for topic in topics:
            if not isinstance(topic, str):
                raise TypeError(f"the name of a topic is a str, not {topic!r}")
            topic.encode()
        self._topics.update(dict.fromkeys(topics))

    def unfollow(self, topic: str) -> None:
        """Leave a topic out of refreshes."""
        self._topics.pop(topic, None)

    def without_auto_creation(self) -> None:
        """Disable auto-creation by metadata requests: for admins and consumers."""
        self._create_topics = False

    def on_metadata(self, listener: Callable[[ClusterMetadata], None]) -> Callable[[], None]:
        """Call `listener` with every new snapshot, before waiting callers resume. Returns a function that stops it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def await_epochs(self, seen: Mapping[TopicPartition, int]) -> None:
        """Use no leader that is older than these epochs, which others have seen: a stale node sends old metadata."""
        found = self.metadata.await_epochs(seen)
        if found is not self.metadata:
            self.metadata = found
            self.request_refresh()

    # refreshes

    async def refresh(self) -> ClusterMetadata:
        """Return a snapshot requested after this call began. Raises `ConnectionError` when no node answers."""
        if self._refreshing is not None:
            # A pending request may predate the caller's reason, or lack the caller's topic.
            await asyncio.wait([self._refreshing])
        if self._pool.closed:
            raise ConnectionError("the client is closed")
        if self._refreshing is None:
            self._begin_refresh()
        task = self._refreshing
        assert task is not None, "a refresh was begun"
        return await self._pool.outcome(task)

    def request_refresh(self) -> None:
        """Refresh soon, without waiting; failures are retried with backoff until one succeeds."""
        if self._pool.closed:
            return
        if self._refreshing is not None:
            self._refresh_again = True
        else:
            self._begin_refresh()

    def _begin_refresh(self) -> None:
        self._refresh_again = False
        task = self._refreshing = self._loop.create_task(self._ask_for_metadata(), name="metadata refresh")
        task.add_done_callback(self._on_refreshed)

    async def _ask_for_metadata(self) -> ClusterMetadata:
        try:
            response = await self._ask_any(self.request())
        except (ConnectionError, TimeoutError):
            # All known nodes may be gone while the cluster continues elsewhere.
            error = await self._bootstrap()
            if error is not None:
                raise ConnectionError(f"no node responded: {error}") from error
        else:
            before = self.metadata
            self.apply(response)
            if self.metadata == before:
                self._doubt(MetadataRequest)
        return self.metadata

    async def _bootstrap(self) -> Exception | None:
        """Fetch metadata from one address after another; return the last error if none answers."""
        addresses = list(self._config.bootstrap_servers)
        self._rng.shuffle(addresses)
        failure: Exception | None = None
        for address in addresses:
            try:
                connection = await self._pool.open(address)
                try:
                    self.apply(await connection.call(self.request()))
                finally:
                    await connection.close()
            except (ConnectionError, TimeoutError, KafkaError) as error:
                failure = error
            else:
                if self.metadata.nodes:
                    return None
                failure = ConnectionError(f"{format_host_port(*address)} has no metadata of brokers yet")
        return failure

    def request(self) -> MetadataRequest:
        """Return a request for the metadata of all followed topics."""
        topics = [MetadataRequestTopic(name=topic) for topic in self._topics]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=self._create_topics, generation_aware=True)

    def apply(self, response: MetadataResponse) -> None:
        """Adopt what is newer in a response."""
        self.metadata = self.metadata.update(response, complete=False)
        self._pool.prune()
        for listener in list(self._listeners):
            listener(self.metadata)

    def _on_refreshed(self, task: asyncio.Task[ClusterMetadata]) -> None:
        self._refreshing = None
        if task.cancelled() or self._pool.closed:
            return
        error = task.exception()
        if error is None:
            self._refresh_failures = 0
            if self._refresh_again:
                self._begin_refresh()
            else:
                self._plan_refresh(self._config.metadata_max_age_ms)
            return
        if not isinstance(error, ConnectionError | TimeoutError):
            log.error("metadata refresh failed", exc_info=error)
        self._refresh_failures += 1
        self._plan_refresh(self._config.retry_backoff.wait_ms(self._refresh_failures, self._rng))

    def _plan_refresh(self, wait_ms: float) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
        self._wake_up = self._loop.call_later(wait_ms / 1000, self.request_refresh)

    # waits

    async def wait_for(
        self, condition: Callable[[ClusterMetadata], bool], *, timeout_ms: float | None = None
    ) -> ClusterMetadata:
        """Refresh until the snapshot satisfies `condition`. Raises `TimeoutError` if the time is up first."""
        failures = 0
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            while not condition(self.metadata):
                if failures:
                    await asyncio.sleep(self._config.retry_backoff.wait_ms(failures, self._rng) / 1000)
                try:
                    await self.refresh()
                except (ConnectionError, TimeoutError) as error:
                    if self._pool.closed:
                        raise
                    log.debug("metadata refresh failed, retrying: %s", error)
                failures += 1
        return self.metadata

    async def wait_for_topic(
        self,
        topic: str,
        condition: Callable[[ClusterMetadata], bool],
        *,
        index: int = -1,
        timeout_ms: float | None = None,
    ) -> ClusterMetadata:
        """Refresh until a topic, or its partition `index`, satisfies `condition`.

        Raises `KafkaError` when a response to this call's own request refuses the topic for good, or lacks a partition
        that a merge has removed; the result of an earlier request may have changed since. The `TimeoutError` describes
        the topic's problem.
        """
        self.follow(topic)
        started_s = self._loop.time()
        if self._refreshing is not None and not condition(self.metadata):
            # Another caller may have refreshed for the same condition.
            await asyncio.wait([self._refreshing], timeout=None if timeout_ms is None else timeout_ms / 1000)
        before = self.metadata
        left_ms = None if timeout_ms is None else timeout_ms - (self._loop.time() - started_s) * 1000

        def is_reached(metadata: ClusterMetadata) -> bool:
            if condition(metadata):
                return True
            code = metadata.errors.get(topic, ErrorCode.NONE)
            if code in REFUSED_FOR_GOOD and metadata is not before:
                raise KafkaError(code, topic)
            if metadata is not before and metadata.has_removed(topic, index):
                raise PartitionRemoved(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, metadata.obstacle(topic, index))
            return False

        try:
            return await self.wait_for(is_reached, timeout_ms=left_ms)
        except TimeoutError:
            obstacle = self.metadata.obstacle(topic, None if index < 0 else index)
            obstacle = obstacle or f"{topic} does not meet the condition"
            raise TimeoutError(f"not usable within {timeout_ms} ms: {obstacle}") from None
