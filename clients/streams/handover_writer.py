"""Writes hand-overs: the keys that leave a task, with marks, to the changelogs of the tasks that get them.

Keys are written to their targets and deleted in their task's own changelog by one transaction, which `Committer` begins
and commits. `state_handover` decides which keys go where; marks are in `changelog`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch.clients.producer.producer import Producer
from anabranch.clients.producer.producer_record import RecordMetadata
from anabranch.clients.streams import state_handover
from anabranch.clients.streams.changelog import (
    MARK_HEADERS,
    Marks,
    arrived_mark,
    changelog_topic,
    departed_mark,
    observed_time,
    time_mark,
)
from anabranch.clients.streams.internal_topic_manager import InternalTopicManager
from anabranch.clients.streams.task_effects import Departure
from anabranch.protocol.hashing import murmur2

HANDOVER_KEYS: Final = 20_000
"""Keys in one transaction: it has to end well before its timeout, and other keys wait for it."""


@dataclass(slots=True)
class Delivery:
    """One store's keys for one other task, and their offsets in its changelog."""

    store: str
    subtopology: int
    target: int
    rows: dict[bytes, bytes]
    receipts: list[asyncio.Future[RecordMetadata]] = field(default_factory=list)
    mark: Mapping[bytes, bytes] = field(default_factory=dict)
    """The marks of the complete delivery; empty before that."""
    stayed: int = 0
    """Number of keys that did not leave, in one of the deliveries of a store."""

    @property
    def offsets(self) -> list[int]:
        """The offsets of the rows and of the mark after them."""
        return [receipt.result().offset for receipt in self.receipts]


class HandoverWriter:
    """Writes the hand-overs of one instance."""

    def __init__(self, application_id: str, topics: InternalTopicManager) -> None:
        self._application_id = application_id
        self._topics = topics

    async def write(self, producer: Producer, departures: Sequence[Departure]) -> list[Delivery]:
        """Write leaving keys to their targets, and delete them here, in one transaction.

        A transaction has a key limit. The marks come with the last keys; until then the rest is due.
        """
        deliveries: list[Delivery] = []
        for departure in departures:
            for name, store in departure.task.stores.items():
                room = HANDOVER_KEYS - sum(len(delivery.rows) for delivery in deliveries)
                if Marks.read(store.marks).departed < departure.opened.generation and room > 0:
                    deliveries += await self._pass_on(producer, departure, name, room)
        return deliveries

    async def _pass_on(self, producer: Producer, departure: Departure, name: str, room: int) -> list[Delivery]:
        """Hand over at most `room` keys of one store."""
        task, opened, store = departure.task, departure.opened, departure.task.stores[name]
        targets = state_handover.receivers(departure.lineage, opened)
        topic = changelog_topic(self._application_id, name)
        await self._topics.prepare(topic, 1 + max(targets))
        await producer.wait_for_partitions(topic, 1 + max(targets))
        record_key = task.subtopology.record_key
        ways, kept = state_handover.leaving(
            departure.lineage, opened, store.rows(), lambda key: murmur2(record_key(name, key)), room
        )
        deliveries = [Delivery(name, task.id.subtopology, target, rows) for target, rows in ways.items()]
        for way in deliveries:
            for key, row in way.rows.items():
                store.put(key, None)
                value, timestamp_ms = store.logged(row)
                way.receipts.append(
                    await producer.send(topic, value, key, partition=way.target, timestamp_ms=timestamp_ms)
                )
            if kept is not None:
                way.mark = dict([arrived_mark(task.id.partition, opened.generation)])
                if (stream_time_ms := observed_time(store.marks)) >= 0:
                    way.mark |= dict([time_mark(task.id.partition, stream_time_ms)])
                for key, mark in way.mark.items():
                    way.receipts.append(
                        await producer.send(topic, mark, key, partition=way.target, headers=MARK_HEADERS)
                    )
        if kept is not None:
            store.marks.update([departed_mark(opened.generation)])
            deliveries[0].stayed = kept
        return deliveries
