"""Appends the application's records to a producer's accumulator, in the order of the `send` calls.

`append` needs a known topic and free space in the buffer. `append_in_turn` waits for both, behind earlier calls and at
most `max_block_ms`. Every record gets a future (its receipt) and, with audit, the header of `audit_marks`. Source:
Kafka's `KafkaProducer.doSend` and `waitOnMetadata`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from anabranch.clients.network import Network
from anabranch.clients.producer.accumulator import Accumulator
from anabranch.clients.producer.flow_control import SendQueue
from anabranch.clients.producer.producer_record import (
    TIMESTAMP_MAX_MS,
    RecordMetadata,
    checked_headers,
    checked_timestamp,
)
from anabranch.clients.producer.queues import TopicQueues
from anabranch.clients.producer.routes import check_accepted, route_of
from anabranch.clients.producer.sender import Sender
from anabranch.clients.producer.transaction_task import TransactionTask
from anabranch.protocol.errors import ErrorCode, KafkaError

Headers = Sequence[tuple[str, bytes | None]]


class RecordAppender:
    """Accepts the records of one running producer. `check_running` raises once the producer has ended."""

    def __init__(
        self,
        accumulator: Accumulator,
        network: Network,
        sender: Sender,
        transactions: TransactionTask | None,
        *,
        clock_ms: Callable[[], int],
        max_block_ms: int,
        check_running: Callable[[], None],
    ) -> None:
        self.queue = SendQueue(accumulator, sender.wake)
        self.max_block_ms = max_block_ms
        self._accumulator = accumulator
        self._marks = accumulator.delivery.marks
        self._network = network
        self._sender = sender
        self._transactions = transactions
        self._clock_ms = clock_ms
        self._check_running = check_running
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time

    def append(
        self,
        queues: TopicQueues,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
    ) -> asyncio.Future[RecordMetadata]:
        """Append a record now.

        Raises KafkaError if its partition accepts none, TypeError or ValueError for a mistake of the caller.
        """
        if (key is not None and key.__class__ is not bytes) or (value is not None and value.__class__ is not bytes):
            raise TypeError("keys and values must be bytes: encode them first")
        if self._transactions is not None:
            self._transactions.check_open()
        route = route_of(key, partition)
        if headers:
            headers = checked_headers(headers)
        created_ms = self._clock_ms() if timestamp_ms is None else timestamp_ms
        if created_ms.__class__ is not int or not -1 <= created_ms <= TIMESTAMP_MAX_MS:
            created_ms = checked_timestamp(created_ms)
        now = self._clock()
        receipt: asyncio.Future[RecordMetadata]
        receipt = self._loop.create_future() if self._transactions is None else _QuietReceipt(loop=self._loop)
        if self._marks is not None and key is not None:
            headers = (*headers, self._marks.next_header(queues.name, key))
            wake = self._accumulator.append(queues, route, key, value, headers, created_ms, receipt, now)
            self._marks.on_accepted(queues.name, key, transactional=self._transactions is not None)
        else:
            wake = self._accumulator.append(queues, route, key, value, headers, created_ms, receipt, now)
        if wake:
            self._sender.wake()
        return receipt

    async def append_in_turn(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
    ) -> asyncio.Future[RecordMetadata]:
        """Append a record after waiting for the topic's metadata, then for buffer space, in order of the calls.

        A partition that is not known is looked up once more, since it may have been added.
        """
        self._check_running()
        deadline = self._loop.time() + self.max_block_ms / 1000
        queues = await self.topic(topic)
        if queues.refused and (self._accumulator.partitioner is None or partition is not None):
            check_accepted(queues, route_of(key, partition))
        if partition is not None and partition not in queues.live:
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._network.refresh()
        try:
            async with asyncio.timeout_at(deadline), self.queue.turn():
                self._check_running()
                return self.append(queues, value, key, partition, timestamp_ms, headers)
        except TimeoutError:
            text = f"{topic}: no room in the buffer within {self.max_block_ms} ms"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text) from None

    async def topic(self, name: str) -> TopicQueues:
        """Return a topic's queues once it is usable. Raises KafkaError after `max_block_ms`, with what was missing."""
        queues = self._accumulator.topic(name)
        if queues.live:
            return queues
        self._sender.adopt(self._network.metadata)
        try:
            await self._network.wait_for_topic(name, lambda metadata: bool(queues.live), timeout_ms=self.max_block_ms)
        except TimeoutError as error:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{name}: {error}") from None
        return queues


class _QuietReceipt(asyncio.Future[RecordMetadata]):
    """A receipt whose error may be ignored: the commit of a transaction raises it, too.

    A callback for each record would do the same, and is a turn of the event loop for each record.
    """

    def set_exception(self, exception: type | BaseException, /) -> None:
        """Fail, and count as looked at."""
        super().set_exception(exception)
        self.exception()
