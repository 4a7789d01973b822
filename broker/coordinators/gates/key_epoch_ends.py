"""Queries the leaders of resized topics for key epoch ends and log starts, for the gates of this broker (R7).

Each leader gets one request, with the leader epochs from the metadata. A leader that has not adopted a cut rejects it,
and so does one with an open transaction below the cut. `gated_topic` keeps the answers per leader epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from anabranch.broker.coordinators.gates.gated_topic import GatedTopic, LeaderAnswer
from anabranch.broker.membership.peer_connections import PeerConnections
from anabranch.protocol.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.order_gates import UNKNOWN

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.metadata.metadata_cache import MetadataCache
    from anabranch.protocol.lineage import KeyEpoch

log: Final = logging.getLogger(__name__)

ANSWER_TIMEOUT_MS: Final = 5000
"""How long to wait for one leader: the questions about other partitions of the topic wait meanwhile."""


class KeyEpochEnds:
    """Query leaders for the coordinators of this broker."""

    def __init__(self, settings: BrokerSettings, metadata: MetadataCache) -> None:
        self._peers = PeerConnections(lambda: settings, metadata, name="group-coordinator")
        self._queries: dict[str, asyncio.Future[None]] = {}

    async def close(self) -> None:
        """Close the connections to leaders."""
        await self._peers.close()

    async def ask(self, topic: GatedTopic, partitions: Iterable[int]) -> None:
        """Query the leaders of these partitions and store their answers; concurrent calls share one query."""
        name = topic.image.name
        under_way = self._queries.get(name)
        if under_way is not None:
            await asyncio.shield(under_way)
            return
        done = self._queries[name] = asyncio.get_running_loop().create_future()
        try:
            by_leader: dict[int, list[int]] = {}
            for index in partitions:
                by_leader.setdefault(topic.image.partitions[index].leader, []).append(index)
            await asyncio.gather(*(self._ask(leader, topic, rows) for leader, rows in by_leader.items()))
        finally:
            del self._queries[name]
            done.set_result(None)

    async def _ask(self, leader: int, topic: GatedTopic, partitions: list[int]) -> None:
        image, questions = topic.image, []
        requested: dict[int, list[KeyEpoch | None]] = {}
        for index in partitions:
            epoch = image.partitions[index].leader_epoch
            # A partition without a cut is queried with its current epoch, for its log start only.
            cuts: list[tuple[KeyEpoch | None, int]] = [*topic.cuts_of(index)]
            for key_epoch, cut in cuts or [(None, epoch + 1)]:
                requested.setdefault(index, []).append(key_epoch)
                questions.append(
                    OffsetForLeaderPartition(
                        partition=index, current_leader_epoch=epoch, leader_epoch=cut - 1, deliverable=True
                    )
                )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=image.name, partitions=questions)]
        )
        try:
            connection = await self._peers.to(leader)
            response: OffsetForLeaderEpochResponse = await connection.call(request, timeout_ms=ANSWER_TIMEOUT_MS)
        except (OSError, TimeoutError, KafkaError) as error:
            log.info("cannot read key epoch ends of %s from broker %d: %s", image.name, leader, error)
            return
        rows: dict[int, list[EpochEndOffset]] = {}
        for row in response.topics[0].partitions if response.topics else []:
            rows.setdefault(row.partition, []).append(row)
        for index, key_epochs in requested.items():
            answer = answers_of(rows.get(index, []), key_epochs, image.partitions[index].leader_epoch)
            if answer is not None:
                topic.record_answer(index, answer)


def answers_of(rows: list[EpochEndOffset], key_epochs: list[KeyEpoch | None], leader_epoch: int) -> LeaderAnswer | None:
    """Convert the rows of one partition to an answer; None if the leader could not report everything."""
    if len(rows) != len(key_epochs) or any(
        row.error_code != ErrorCode.NONE or row.log_start_offset < 0 for row in rows
    ):
        return None
    pairs = [(key_epoch, row) for key_epoch, row in zip(key_epochs, rows, strict=True) if key_epoch is not None]
    if any(row.end_offset == UNKNOWN for _, row in pairs):
        return None
    return LeaderAnswer(
        leader_epoch,
        rows[0].log_start_offset,
        {key_epoch: row.end_offset for key_epoch, row in pairs},
        {key_epoch: row.deliverable_end for key_epoch, row in pairs},
    )
