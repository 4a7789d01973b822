"""A share session with one leader (KIP-932): fetches and acknowledgements over its own connection.

Records acquired in a session are lost with it. A session ends with the first request that is refused as a whole or not
answered, or whose wait was cancelled; the outcome of that request's acknowledgements is unknown.
"""

from __future__ import annotations

import asyncio
import enum
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from anabranch.clients.connection import Connection
from anabranch.protocol.apis import share_acknowledge, share_fetch
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.record import iter_records

CLOSING: Final = -1
REFUSALS: Final = frozenset({ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST})
"""Errors after which the acknowledgement is not stored; after any other error it may be."""
PartitionId = tuple[bytes, int]


class Verdict(enum.IntEnum):
    """The acknowledgement types; values are the protocol's."""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


@dataclass(frozen=True, slots=True)
class SharedRecord:
    """A record that a member received."""

    topic: str
    where: PartitionId
    offset: int
    value: bytes
    delivery_count: int
    session: ShareSession

    @property
    def place(self) -> tuple[str, int]:
        """Its partition by name."""
        return self.topic, self.where[1]


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The acknowledgement of a record, and a callback for its outcome: True, False, or None if unknown."""

    record: SharedRecord
    verdict: Verdict
    settle: Callable[[bool | None], None]


class ShareSession:
    """A member's session with one leader."""

    def __init__(self, node: int, connection: Connection, group: str, member_id: str, topic: str) -> None:
        self.node = node
        self.over = False
        self.sent_away = False
        """Whether the last fetch response named another leader, or none, for a partition."""
        self._connection = connection
        self._group = group
        self._member_id = member_id
        self._topic = topic
        self._epoch = 0
        self._partitions: set[PartitionId] = set()
        self._to_say: list[Acknowledgement] = []

    @property
    def lives(self) -> bool:
        """Whether its next request may succeed."""
        return not self.over and not self._connection.closed

    async def fetch(self, partitions: set[PartitionId], *, max_records: int, max_wait_ms: int) -> list[SharedRecord]:
        """Fetch records of `partitions`, with pending acknowledgements. Raises the request's errors."""
        response = await self._fetch(partitions, self._epoch, max_records=max_records, max_wait_ms=max_wait_ms)
        self._partitions = set(partitions)
        rows = _rows(response)
        self.sent_away = any(row.error_code != ErrorCode.NONE for row in rows.values())
        return [record for where, row in rows.items() for record in self._records(where, row)]

    async def finish(self) -> None:
        """Send pending acknowledgements, and end the session. Raises the request's errors."""
        try:
            if self.lives:
                await self._fetch(self._partitions, CLOSING, max_records=0, max_wait_ms=0)
        finally:
            await self.drop()

    async def drop(self) -> None:
        """End the session abruptly."""
        self.over = True
        _settle(self._to_say, {}, False)
        self._to_say = []
        await self._connection.close()

    def acknowledge_later(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        """Add acknowledgements to the next fetch."""
        self._to_say += acknowledgements

    async def acknowledge(self, acknowledgements: list[Acknowledgement]) -> None:
        """Send acknowledgements now. Raises the request's errors."""
        by_partition = _by_partition(acknowledgements)
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            is_renew_ack=any(one.verdict is Verdict.RENEW for one in acknowledgements),
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        share_acknowledge.AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=_batches(by_partition[topic_id, index], share_acknowledge),
                        )
                        for index in indexes
                    ],
                )
                for topic_id, indexes in _by_topic(by_partition)
            ],
        )
        response = await self._ask(request, acknowledgements)
        _settle(acknowledgements, {where: row.error_code for where, row in _rows(response).items()})

    async def _fetch(self, partitions: set[PartitionId], epoch: int, *, max_records: int, max_wait_ms: int) -> Any:
        acknowledgements, self._to_say = self._to_say, []
        by_partition = _by_partition(acknowledgements)
        request = share_fetch.ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_records=max_records,
            batch_size=max(max_records, 1),
            topics=[
                share_fetch.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        share_fetch.FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=_batches(by_partition.get((topic_id, index), []), share_fetch),
                        )
                        for index in indexes
                    ],
                )
                for topic_id, indexes in _by_topic((partitions - self._partitions) | by_partition.keys())
            ],
            forgotten_topics_data=[
                share_fetch.ForgottenTopic(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in _by_topic(self._partitions - partitions)
            ],
        )
        response = await self._ask(request, acknowledgements)
        _settle(acknowledgements, {where: row.acknowledge_error_code for where, row in _rows(response).items()})
        return response

    async def _ask(self, request: Any, acknowledgements: list[Acknowledgement]) -> Any:
        """Send a request and return the response; a refusal ends the session. Raises the request's errors."""
        try:
            response = await self._connection.call(request)
            check(response.error_code, response.error_message)
        except (KafkaError, OSError, TimeoutError, asyncio.CancelledError):
            _settle(acknowledgements, {})
            await self.drop()
            raise
        self._epoch += 1
        return response

    def _records(self, where: PartitionId, row: share_fetch.PartitionData) -> Iterable[SharedRecord]:
        counts = {
            offset: one.delivery_count
            for one in row.acquired_records
            for offset in range(one.first_offset, one.last_offset + 1)
        }
        for position, header in iter_batches(row.records):
            if header.is_control:
                continue
            for record in iter_records(row.records, position):
                if record.offset in counts:
                    value = bytes(record.value or b"")
                    yield SharedRecord(self._topic, where, record.offset, value, counts[record.offset], self)


def check(code: int, message: str | None) -> None:
    """Raise KafkaError for an error code."""
    if code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(code), message or "")


def _rows(response: Any) -> dict[PartitionId, Any]:
    return {(topic.topic_id, row.partition_index): row for topic in response.responses for row in topic.partitions}


def _by_topic(partitions: Iterable[PartitionId]) -> list[tuple[bytes, list[int]]]:
    found: dict[bytes, list[int]] = defaultdict(list)
    for topic_id, index in sorted(partitions):
        found[topic_id].append(index)
    return list(found.items())


def _by_partition(acknowledgements: Iterable[Acknowledgement]) -> dict[PartitionId, list[Acknowledgement]]:
    found: dict[PartitionId, list[Acknowledgement]] = defaultdict(list)
    for one in acknowledgements:
        found[one.record.where].append(one)
    return found


def _batches(acknowledgements: Iterable[Acknowledgement], api: Any) -> list[Any]:
    """Combine adjacent records into batches, with a type for each."""
    batches: list[Any] = []
    for one in sorted(acknowledgements, key=lambda saying: saying.record.offset):
        if batches and batches[-1].last_offset + 1 == one.record.offset:
            batches[-1].last_offset += 1
            batches[-1].acknowledge_types.append(one.verdict)
        else:
            offset = one.record.offset
            batches.append(
                api.AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[one.verdict])
            )
    return batches


def _settle(
    acknowledgements: Iterable[Acknowledgement], codes: dict[PartitionId, int], otherwise: bool | None = None
) -> None:
    for one in acknowledgements:
        code = codes.get(one.record.where)
        if code is None:
            one.settle(otherwise)
        else:
            one.settle(True if code == ErrorCode.NONE else False if code in REFUSALS else None)
