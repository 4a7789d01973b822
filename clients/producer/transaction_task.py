"""The transactional producer's second task: sends the requests of its `TransactionManager` to the coordinators.

It runs beside the sender, because adding partitions must not wait for records to be stored, nor they for it. One
request at a time; after a lost connection or a moved coordinator it is sent again. The application's calls (begin,
commit, abort, offsets) change the state at once and then wait; a caller that was cancelled may call again, and
continues from the new state.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final

from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.network import GROUP, Network
from anabranch.clients.producer.accumulator import Accumulator
from anabranch.clients.producer.sender import Sender
from anabranch.clients.producer.transaction_calls import ADD_PARTITIONS_VERSION_MAX, TransactionCall, outcome
from anabranch.clients.producer.transaction_errors import AbortableError, FatalError, Step, Verdict
from anabranch.clients.producer.transaction_manager import State, TransactionManager
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

CONCURRENT_RETRY_S: Final = 0.02
"""The previous transaction is still being completed, which takes no longer than writing its markers."""


class TransactionTask:
    """Runs the transactions of one producer."""

    def __init__(
        self,
        transactions: TransactionManager,
        network: Network,
        accumulator: Accumulator,
        sender: Sender,
        rng: random.Random,
        *,
        max_block_ms: int,
    ) -> None:
        self._transactions = transactions
        self._network = network
        self._accumulator = accumulator
        self._sender = sender
        self._rng = rng
        self._max_block_ms = max_block_ms
        self._loop = asyncio.get_running_loop()
        self._wakeup = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._obstacle = ""
        """Why the last request was not successful; empty if it was."""

    # calls of the application

    async def start(self) -> None:
        """Take the transactional id over. Raises KafkaError if its coordinator refuses it, or cannot be found."""
        self._sender.on_enlisting = self.wake
        self._task = self._loop.create_task(self._run(), name="producer transactions")
        self._task.add_done_callback(lambda task: self._notify())
        self._transactions.initialize()
        await self._until(self._ready, "no producer id")

    async def stop(self) -> None:
        """Abort an open transaction, if possible, and end the task."""
        if self._task is None:
            return
        try:
            if self._transactions.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
                await self.abort()
        except KafkaError as error:
            log.warning("cannot abort the transaction; it ends by its timeout: %s", error)
        finally:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def begin(self) -> None:
        """Begin a transaction, once the new epoch that the last one required has arrived."""
        if self._transactions.state is State.INITIALIZING:
            await self._until(self._ready, "no new producer epoch")
        self._transactions.begin()
        if self._accumulator.delivery.marks is not None:
            self._accumulator.delivery.marks.begin_transaction()

    async def commit(self) -> None:
        """End the transaction once every record in it is stored."""
        self._transactions.commit()
        self._accumulator.hurry += 1
        try:
            self._sender.wake()
            await self._until(self._over, "the outcome of the commit is unknown")
            self._transactions.on_end_reported()
            if self._accumulator.delivery.marks is not None:
                self._accumulator.delivery.marks.on_committed()
        finally:
            self._accumulator.hurry -= 1

    async def abort(self) -> None:
        """Abort the transaction: read_committed consumers never see its records."""
        self._transactions.abort()
        self._accumulator.delivery.drop_doomed()
        await self._until(self._over, "the transaction is not aborted yet")
        self._transactions.on_end_reported()

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], group: ConsumerGroupMetadata) -> None:
        """Add these offsets to the transaction, and wait until the group's coordinator has accepted them."""
        self._transactions.check_open()
        if group.before_commit is not None:
            await group.before_commit()
        self._transactions.add_offsets(offsets, group)
        await self._until(lambda: not self._transactions.offsets_pending, "whether the offsets were added is unknown")

    def check_open(self) -> None:
        """Refuse a record outside a transaction, or in one that failed."""
        self._transactions.check_open()

    def wake(self) -> None:
        """Check again for the next request and for waiting calls."""
        self._wakeup.set()
        self._notify()

    # task

    async def _run(self) -> None:
        while True:
            self._wakeup.clear()
            call = self._transactions.next(settled=not self._accumulator.outstanding)
            self._notify()
            if call is None:
                await self._wakeup.wait()
                continue
            wait_s = await self._ask(call)
            if self._transactions.doomed:
                self._accumulator.delivery.drop_doomed()
            self._sender.wake()
            if wait_s > 0:
                await asyncio.sleep(wait_s)

    async def _ask(self, call: TransactionCall) -> float:
        """Send one request. Returns the delay in seconds before the next."""
        try:
            node_id = await self._network.coordinator(call.key, key_type=call.key_type)
            response = await self._call(node_id, call)
        except (ConnectionError, TimeoutError) as error:
            log.debug("%s: %s", call.step.value, error)
            self._obstacle = f"{call.step.value}: {error}"
            self._transactions.on_lost(call)
            self._network.forget_coordinator(call.key, key_type=call.key_type)
            return self._backoff_s()
        except KafkaError as error:
            if error.code.retriable:
                self._obstacle = f"{call.step.value}: {error}"
                return self._backoff_s()
            log.warning("%s: %s", call.step.value, error)
            self._transactions.on_refusal(call, error.code)
            return 0
        verdict = self._transactions.on_response(call, response)
        if verdict is Verdict.DONE:
            self._failures = 0
            self._obstacle = ""
            return 0
        self._obstacle = f"{call.step.value} was answered with {outcome(call.step, response)[0].name}"
        log.debug("%s: %s", self._obstacle, verdict.value)
        if verdict is Verdict.MOVED:
            self._network.forget_coordinator(call.key, key_type=call.key_type)
        if verdict is Verdict.LATER and getattr(response, "error_code", None) == ErrorCode.CONCURRENT_TRANSACTIONS:
            return CONCURRENT_RETRY_S
        return self._backoff_s() if verdict in (Verdict.LATER, Verdict.UNCERTAIN, Verdict.MOVED) else 0

    async def _call(self, node_id: int, call: TransactionCall) -> Any:
        connection = await self._network.connection(node_id, channel=GROUP)
        version = connection.version_for(type(call.request))
        if call.step is Step.ADD_PARTITIONS:
            version = min(version, ADD_PARTITIONS_VERSION_MAX)
        return await connection.call(call.request, version=version)

    def _backoff_s(self) -> float:
        self._failures += 1
        return self._network.config.retry_backoff.wait_ms(self._failures, self._rng) / 1000

    # waiting calls

    def _ready(self) -> bool:
        return self._transactions.state is State.READY

    def _over(self) -> bool:
        """Whether the last transaction has ended; a new epoch may still be pending."""
        return self._transactions.state in (State.READY, State.INITIALIZING)

    async def _until(self, reached: Callable[[], bool], otherwise: str) -> None:
        """Wait until `reached()`. Raises the error that prevents it, or REQUEST_TIMED_OUT after `max_block_ms`."""
        assert self._task is not None, "the transaction task is not started"
        self.wake()
        try:
            async with asyncio.timeout(self._max_block_ms / 1000):
                while not reached():
                    if self._transactions.failure is not None:
                        raise self._transactions.failure
                    if self._task.cancelled():
                        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{otherwise}: the producer was stopped")
                    if self._task.done():
                        self._task.result()
                    turn = self._loop.create_future()
                    self._waiting.append(turn)
                    await turn
        except TimeoutError:
            text = f"{otherwise} after {self._max_block_ms} ms"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{text}: {self._reason()}") from None

    def _reason(self) -> str:
        """Describe what a call has waited for."""
        outstanding = self._accumulator.outstanding
        return self._obstacle or (f"{outstanding} records are not stored yet" if outstanding else "no answer yet")

    def _notify(self) -> None:
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)


class TransactionScope:
    """`async with producer.transaction():` commits at its end, and aborts if an exception leaves it."""

    def __init__(self, task: TransactionTask) -> None:
        self._task = task

    async def __aenter__(self) -> None:
        await self._task.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            try:
                await self._task.commit()
            except AbortableError:
                await self._task.abort()
                raise
        elif not isinstance(error, FatalError):
            await self._task.abort()
