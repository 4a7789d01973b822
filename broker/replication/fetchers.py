"""The fetchers of this broker, one for each leader that it follows, and the leaders' addresses.

A fetcher starts with its first partition and closes without partitions, after the running request. Source: Kafka's
`ReplicaFetcherManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from anabranch.broker.replication.replica_fetcher import Fetcher

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.metadata.metadata_cache import MetadataCache
    from anabranch.broker.replication.partition import Partition
    from anabranch.broker.tasks.supervised_task import OnFailure


class Fetchers:
    """All fetchers of this broker."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        metadata: MetadataCache,
        *,
        broker_epoch: Callable[[], int],
        progressed: Callable[[Partition], object],
        died: OnFailure,
    ) -> None:
        """`progressed` is called with each partition that received bytes or another high watermark."""
        self._settings = settings
        self._metadata = metadata
        self._broker_epoch = broker_epoch
        self._progressed = progressed
        self._died = died
        self._addresses: dict[int, tuple[str, int]] = {}
        self._by_leader: dict[int, Fetcher] = {}
        self._of: dict[Partition, Fetcher] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def learn_addresses(self, addresses: Iterable[tuple[int, str, int]]) -> None:
        """Store the leaders' addresses of a LeaderAndIsr, for use until UpdateMetadata names them."""
        for broker_id, host, port in addresses:
            self._addresses[broker_id] = (host, port)

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its leader, if it has one, from the next `settle` on."""
        leader_id = partition.leader_id
        if leader_id < 0:
            return
        fetcher = self._by_leader.get(leader_id)
        if fetcher is None:
            make = partial(
                Fetcher,
                leader_id,
                self._settings(),
                address=lambda: self._address_of(leader_id),
                broker_epoch=self._broker_epoch,
                progressed=self._progressed,
                died=self._died,
            )
            fetcher = self._by_leader[leader_id] = make(make_entrance=make)
        self._of[partition] = fetcher
        fetcher.follow(partition)

    def forget(self, partition: Partition) -> None:
        """Stop fetching a partition."""
        fetcher = self._of.pop(partition, None)
        if fetcher is not None:
            fetcher.forget(partition)

    def settle(self) -> None:
        """Fetch the added partitions and close empty fetchers, after a LeaderAndIsr or StopReplica."""
        for fetcher in self._by_leader.values():
            fetcher.begin()
        for leader_id in [leader for leader, fetcher in self._by_leader.items() if not len(fetcher)]:
            closing = asyncio.get_running_loop().create_task(self._by_leader.pop(leader_id).close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close_one(self, leader_id: int) -> None:
        """Close the fetcher of one leader."""
        fetcher = self._by_leader.pop(leader_id, None)
        if fetcher is not None:
            await fetcher.close()

    async def close(self) -> None:
        """Close all fetchers."""
        while self._by_leader:  # meanwhile the controller may name more leaders
            await self._by_leader.popitem()[1].close()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        broker = self._metadata.broker(broker_id)
        return self._addresses.get(broker_id) if broker is None else (broker.host, broker.port)
