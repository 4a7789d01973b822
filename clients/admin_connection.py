"""`AdminConnection`: the connections of an `Admin`, and its waits for metadata of the cluster."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Self

from anabranch.clients.config import NetworkConfig
from anabranch.clients.metadata import ClusterMetadata, Topic
from anabranch.clients.network import Network, make_rng


class AdminConnection:
    """The lifecycle of an `Admin`; an async context manager."""

    def __init__(self, config: NetworkConfig, rng: random.Random | None) -> None:
        self._config = config
        self._rng = make_rng(rng)
        self._network: Network | None = None

    async def start(self) -> Self:
        """Connect to the cluster. `async with` calls it.

        Returns:
            The client itself.

        Raises:
            ConnectionError: No bootstrap server answers.
        """
        network = Network(self._config, self._rng)
        network.without_auto_creation()
        try:
            await network.start()
        except BaseException:
            await network.close()
            raise
        self._network = network
        return self

    async def stop(self) -> None:
        """Disconnect. Stopping twice is harmless."""
        network, self._network = self._network, None
        if network is not None:
            await network.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def network(self) -> Network:
        """The connections behind this client. Raises RuntimeError when it is not started."""
        if self._network is None:
            raise RuntimeError("the admin client is not started")
        return self._network

    # waiting

    async def wait_until(
        self, condition: Callable[[ClusterMetadata], bool], *topics: str, timeout_ms: float = 30000
    ) -> ClusterMetadata:
        """Wait until the metadata of some topics satisfies a condition.

        Args:
            condition: Called with every new snapshot of the metadata.
            *topics: The topics that the snapshots are to have.
            timeout_ms: How long to wait.

        Returns:
            The snapshot that satisfies the condition.

        Raises:
            TimeoutError: The time was up first.
        """
        self.network.follow(*topics)
        before = self.network.metadata
        return await self.network.wait_for(
            lambda metadata: metadata is not before and condition(metadata), timeout_ms=timeout_ms
        )

    async def wait_for_generation(self, topic: str, generation: int, *, timeout_ms: float = 30000) -> Topic:
        """Wait until a topic has been resized.

        Args:
            topic: The topic's name.
            generation: The number of the resize, from 1 on: one more than the topic's `generation` was before.
            timeout_ms: How long to wait.

        Returns:
            The topic.

        Raises:
            TimeoutError: The time was up first.
        """

        def is_published(metadata: ClusterMetadata) -> bool:
            known = metadata.topics.get(topic)
            return known is not None and known.generation >= generation

        return (await self.wait_until(is_published, topic, timeout_ms=timeout_ms)).topics[topic]

    async def wait_for_topic(self, topic: str, *, replicas: int = 1, timeout_ms: float = 30000) -> Topic:
        """Wait until every live partition of a topic has a leader.

        Args:
            topic: The topic's name.
            replicas: How many in-sync replicas each partition must have as well.
            timeout_ms: How long to wait.

        Returns:
            The topic.

        Raises:
            TimeoutError: The time was up first.
        """

        def has_leaders(metadata: ClusterMetadata) -> bool:
            known = metadata.topics.get(topic)
            if known is None or not known.live:
                return False
            partitions = [known.partitions.get(index) for index in known.live]
            return all(
                one is not None and one.leader in metadata.nodes and len(one.isr) >= replicas for one in partitions
            )

        return (await self.wait_until(has_leaders, topic, timeout_ms=timeout_ms)).topics[topic]
