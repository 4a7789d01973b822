"""Verifies partitions with transaction coordinators, or adds them to transactions, before an append (KIP-890).

A batch after the end of its transaction would open a transaction that never ends and block every read_committed
consumer (KIP-890 part 1). Only the first batch of a transaction in a partition is verified; `storage.producer_state`
uses the result.

One request is in flight per coordinator; the next one carries all that wait. A newer epoch of a producer displaces the
request of an older one. Source: Kafka's `AddPartitionsToTxnManager`, and the part of `ReplicaManager` that translates
its errors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from anabranch.broker.replication.partition import Partition
from anabranch.broker.tasks.supervised_task import OnFailure, supervised_task
from anabranch.clients.connection import Connection
from anabranch.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from anabranch.protocol.connection import NODE_SOFTWARE
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.hashing import partition_of_group
from anabranch.protocol.internal_topics import TRANSACTION_STATE_TOPIC
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.metadata.metadata_cache import BrokerImage, MetadataCache
    from anabranch.broker.storage.producer_state import Verification
    from anabranch.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnResponse

log = logging.getLogger(__name__)

FIRST_VERSION_THAT_VERIFIES: Final = 4
RETRY_PAUSE_S: Final = 0.02
RETRIES_MS: Final = 100
"""Kafka's `add.partitions.to.txn.retry.backoff.ms` and `.max.ms`."""
Key = tuple[str, int]
Answers = Mapping[Key, ErrorCode]


@value
class Transaction:
    """The producer of the batches. `abortable`: the client understands TRANSACTION_ABORTABLE.

    `adds`: the broker adds partitions to the transaction for the client (version 2).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    abortable: bool = False
    adds: bool = False


class VerifiedPartitions:
    """The outcome per partition: the verification to append with, or the error."""

    __slots__ = ("refused", "verifications")

    def __init__(self) -> None:
        self.verifications: dict[Partition, Verification] = {}
        self.refused: dict[Key, ErrorCode] = {}

    def check(self, topic: str, index: int) -> None:
        """Raise KafkaError for a refused partition."""
        code = self.refused.get((topic, index))
        if code is not None:
            raise KafkaError(code, f"{topic}-{index} is not confirmed as part of the transaction")


class VerificationRequest:
    """The pending verification of one transaction; several requests may wait for it."""

    __slots__ = ("answer", "partitions", "transaction")

    def __init__(self, transaction: Transaction, partitions: Iterable[Key]) -> None:
        self.transaction = transaction
        self.partitions = dict.fromkeys(partitions)
        self.answer: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()

    def refuse(self, code: ErrorCode) -> None:
        """Set the same error for every partition."""
        self.answer.set_result(dict.fromkeys(self.partitions, code))


class CoordinatorQueue:
    """The pending verifications for one broker, and the task that sends them."""

    def __init__(self, broker_id: int, metadata: MetadataCache, settings: BrokerSettings, died: OnFailure) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._settings = settings
        self._waiting: dict[str, VerificationRequest] = {}
        self._in_flight: dict[str, VerificationRequest] = {}
        self._wakeup = asyncio.Event()
        self._connection: Connection | None = None
        self._connected_to: BrokerImage | None = None
        self._task = supervised_task(self._run(), f"verification-{settings.node_id}-at-{broker_id}", died)

    def ask(self, transaction: Transaction, partitions: Sequence[Key]) -> VerificationRequest:
        """Add a verification to the next request. One that a newer producer epoch displaces is refused at once."""
        mine = VerificationRequest(transaction, partitions)
        waiting = self._waiting.get(transaction.transactional_id)
        if waiting is not None:
            other = waiting.transaction
            if other.producer_id != transaction.producer_id:
                waiting.refuse(ErrorCode.NETWORK_EXCEPTION)  # the client repeats the request with the present leader
            elif other.producer_epoch < transaction.producer_epoch:
                waiting.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
            elif other.producer_epoch > transaction.producer_epoch:
                mine.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
                return mine
            elif other.adds is not transaction.adds:
                mine.refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
                return mine
            else:
                waiting.partitions.update(mine.partitions)
                return waiting
        self._waiting[transaction.transactional_id] = mine
        self._wakeup.set()
        return mine

    async def close(self) -> None:
        """Stop sending; waiting requests get an error that makes clients repeat them."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for question in (*self._in_flight.values(), *self._waiting.values()):
            question.refuse(ErrorCode.NETWORK_EXCEPTION)
        if self._connection is not None:
            await self._connection.close()

    async def _run(self) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            self._in_flight, self._waiting = self._waiting, {}
            answers = await self._ask(self._in_flight)
            for transactional_id, question in self._in_flight.items():
                question.answer.set_result(answers[transactional_id])
            self._in_flight = {}

    async def _ask(self, questions: Mapping[str, VerificationRequest]) -> Mapping[str, Answers]:
        code = ErrorCode.NETWORK_EXCEPTION
        try:
            connection = await self._connect()
            if connection.version_for(AddPartitionsToTxnRequest) >= FIRST_VERSION_THAT_VERIFIES:
                response = await connection.call(request_for(questions.values()))
                if response.error_code == ErrorCode.NONE:
                    return answers_of(response, questions)
                log.warning("broker %d did not verify transactions: error %d", self._broker_id, response.error_code)
                code = ErrorCode(response.error_code)
                if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                    code = ErrorCode.INVALID_TXN_STATE  # the authorization of brokers does not concern the client
            else:
                code = (
                    ErrorCode.NONE
                )  # a coordinator from before KIP-890 confirms everything; this project's have KIP-890
        except (OSError, TimeoutError) as error:
            log.info("cannot verify transactions at broker %d: %s", self._broker_id, error)
        except KafkaError as error:
            log.warning("cannot verify transactions at broker %d: %s", self._broker_id, error)
            code = ErrorCode.NONE if error.code is ErrorCode.UNSUPPORTED_VERSION else ErrorCode.NETWORK_EXCEPTION
        return {name: dict.fromkeys(question.partitions, code) for name, question in questions.items()}

    async def _connect(self) -> Connection:
        broker = self._metadata.broker(self._broker_id)
        if broker is None:
            raise ConnectionError("it is not alive")
        if self._connection is not None:
            if not self._connection.closed and self._connected_to == broker:
                return self._connection
            await self._connection.close()
        self._connection = await Connection.open(
            broker.host,
            broker.port,
            client_id=f"broker-{self._settings.node_id}",
            request_timeout_ms=self._settings.request_timeout_ms,
            security=self._settings.security,
            software_name=NODE_SOFTWARE,
        )
        self._connected_to = broker
        return self._connection


class TransactionVerifier:
    """The verifications of this broker with all transaction coordinators."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        metadata: MetadataCache,
        clock_ms: Callable[[], int],
        died: OnFailure,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._clock_ms = clock_ms
        self._died = died
        self._lanes: dict[int, CoordinatorQueue] = {}
        self._closed = False

    async def close(self) -> None:
        """Stop sending, also for requests that are still processed."""
        self._closed = True
        while self._lanes:
            await self._lanes.popitem()[1].close()

    async def verify(
        self, transaction: Transaction, first_sequences: Iterable[tuple[Partition, int]]
    ) -> VerifiedPartitions:
        """Verify a transaction in partitions with these first sequences (-1: group offsets, without sequences).

        Returns at once if the transaction is open in all of them, or if verification is off. A producer of version 2
        may begin its next transaction while the last one completes: the verification is repeated until then, for a
        short time.
        """
        verified = VerifiedPartitions()
        if not transaction.adds and not self._settings().transaction_partition_verification_enable:
            return verified
        first_sequences = list(first_sequences)
        self._begin(transaction, first_sequences, verified)
        if verified.verifications:
            partitions = [(partition.topic, partition.index) for partition in verified.verifications]
            answers = await self._ask(transaction, partitions)
            if transaction.adds:
                answers = await self._ask_again(transaction, partitions, answers)
                # The end of the last transaction has removed the begun verification. A batch that is late now has an
                # older epoch than the marker, and is refused for that.
                self._begin(transaction, first_sequences, verified)
            for key in partitions:
                code = answers[key]
                if code is ErrorCode.TRANSACTION_ABORTABLE and not transaction.abortable:
                    code = ErrorCode.INVALID_TXN_STATE
                if code is not ErrorCode.NONE:
                    verified.refused[key] = code
        return verified

    def _begin(
        self, transaction: Transaction, first_sequences: Iterable[tuple[Partition, int]], verified: VerifiedPartitions
    ) -> None:
        producer_id, epoch, now_ms = transaction.producer_id, transaction.producer_epoch, self._clock_ms()
        for partition, sequence in first_sequences:
            try:
                verification = partition.log.producers.begin_verification(
                    producer_id, epoch, sequence, now_ms, adds=transaction.adds
                )
            except KafkaError as error:
                verified.refused[partition.topic, partition.index] = error.code
                continue
            if verification is not None:
                verified.verifications[partition] = verification

    async def _ask_again(self, transaction: Transaction, partitions: Sequence[Key], answers: Answers) -> Answers:
        """Repeat the verification until the last transaction is completed, or for as long as a Kafka broker tries."""
        deadline_ms = self._clock_ms() + RETRIES_MS
        while ErrorCode.CONCURRENT_TRANSACTIONS in answers.values() and self._clock_ms() < deadline_ms:
            await asyncio.sleep(RETRY_PAUSE_S)
            answers = await self._ask(transaction, partitions)
        return answers

    async def _ask(self, transaction: Transaction, partitions: Sequence[Key]) -> Answers:
        if self._closed:
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        coordinator = self._coordinator_of(transaction.transactional_id)
        if coordinator is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        lane = self._lanes.get(coordinator)
        if lane is None:
            lane = self._lanes[coordinator] = CoordinatorQueue(
                coordinator, self._metadata, self._settings(), self._died
            )
        return await asyncio.shield(lane.ask(transaction, partitions).answer)

    def _coordinator_of(self, transactional_id: str) -> int | None:
        topic = self._metadata.topic(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return None
        index = partition_of_group(transactional_id, len(topic.partitions))
        partition = self._metadata.partition(TRANSACTION_STATE_TOPIC, index)
        if partition is None or self._metadata.broker(partition.leader) is None:
            return None
        return partition.leader


def request_for(questions: Iterable[VerificationRequest]) -> AddPartitionsToTxnRequest:
    """Return the request that only verifies, except for clients that want their partitions added."""
    transactions = []
    for question in questions:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, index in question.partitions:
            topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic, partitions=[])).partitions.append(index)
        transactions.append(
            AddPartitionsToTxnTransaction(
                transactional_id=question.transaction.transactional_id,
                producer_id=question.transaction.producer_id,
                producer_epoch=question.transaction.producer_epoch,
                verify_only=not question.transaction.adds,
                topics=list(topics.values()),
            )
        )
    return AddPartitionsToTxnRequest(transactions=transactions)


def answers_of(
    response: AddPartitionsToTxnResponse, questions: Mapping[str, VerificationRequest]
) -> Mapping[str, Answers]:
    """Return the answers per transactional id; missing rows are not confirmed."""
    found: dict[str, dict[Key, ErrorCode]] = {
        name: dict.fromkeys(question.partitions, ErrorCode.UNKNOWN_SERVER_ERROR) for name, question in questions.items()
    }
    for transaction in response.results_by_transaction:
        answers = found.get(transaction.transactional_id)
        if answers is None:
            continue
        for topic in transaction.topic_results:
            for row in topic.results_by_partition:
                code = ErrorCode(row.partition_error_code)
                fenced = code is ErrorCode.PRODUCER_FENCED  # producers expect the other code in this API
                answers[topic.name, row.partition_index] = ErrorCode.INVALID_PRODUCER_EPOCH if fenced else code
    return found
