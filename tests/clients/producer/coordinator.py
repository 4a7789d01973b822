"""A simple transaction coordinator and group coordinator with Kafka's behavior.

Answers the requests of `clients.producer.transaction_calls`; a marker is written at the moment a
transaction ends. `mood` makes it answer something else, before or instead of doing what was asked.
"""

from __future__ import annotations

from typing import Any

from anabranch.clients.producer.transaction_calls import TransactionCall
from anabranch.clients.producer.transaction_errors import Step, Verdict
from anabranch.clients.producer.transaction_manager import TransactionManager
from anabranch.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnResponse
from anabranch.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from anabranch.protocol.apis.end_txn import EndTxnResponse
from anabranch.protocol.apis.init_producer_id import InitProducerIdResponse
from anabranch.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.topic_partition import TopicPartition


class Coordinator:
    """One transactional id, one group."""

    def __init__(self) -> None:
        self.producer_id = -1
        self.epoch = -1
        self.ongoing = False
        self.partitions: set[TopicPartition] = set()
        self.group_added = False
        self.pending: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.ended: list[bool] = []
        self.last_end: bool | None = None
        self.completing = 0
        """How many more questions are answered with CONCURRENT_TRANSACTIONS."""

    def answer(self, question: TransactionCall, code: ErrorCode = ErrorCode.NONE) -> Any:
        """Process the request, or return `code`."""
        request = question.request
        if code == ErrorCode.NONE and question.step is not Step.COMMIT_OFFSETS:
            code = self._refusal(question)
        match question.step:
            case Step.INITIALIZE:
                # A retry with the epoch before the raise: the response was lost (KIP-360).
                if code == ErrorCode.NONE and not 0 <= request.producer_epoch < self.epoch:
                    self._initialize()
                return InitProducerIdResponse(error_code=code, producer_id=self.producer_id, producer_epoch=self.epoch)
            case Step.ADD_PARTITIONS:
                if code == ErrorCode.NONE:
                    self.ongoing = True
                    self.partitions |= {
                        TopicPartition(topic.name, index)
                        for topic in request.v3_and_below_topics
                        for index in topic.partitions
                    }
                return add_partitions_response(request, code)
            case Step.ADD_OFFSETS:
                if code == ErrorCode.NONE:
                    self.ongoing = self.group_added = True
                return AddOffsetsToTxnResponse(error_code=code)
            case Step.COMMIT_OFFSETS:
                if code == ErrorCode.NONE:
                    assert self.group_added, "offsets of a group that is not part of the transaction"
                    for topic in request.topics:
                        for row in topic.partitions:
                            self.pending[TopicPartition(topic.name, row.partition_index)] = row.committed_offset
                return offsets_response(request, code)
            case Step.END:
                if code == ErrorCode.NONE and self.ongoing:
                    self._end(committed=request.committed)
                return EndTxnResponse(error_code=code)

    def _refusal(self, question: TransactionCall) -> ErrorCode:
        request = question.request
        if question.step is Step.INITIALIZE:
            stranger = (request.producer_id, request.producer_epoch) not in ((-1, -1), (self.producer_id, self.epoch))
            if stranger and request.producer_epoch != self.epoch - 1:
                return ErrorCode.PRODUCER_FENCED
            return self._busy()
        if question.step is Step.ADD_PARTITIONS:
            identity = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        else:
            identity = request.producer_id, request.producer_epoch
        if identity != (self.producer_id, self.epoch):
            return ErrorCode.PRODUCER_FENCED
        if question.step is Step.END and not self.ongoing:
            return ErrorCode.NONE if self.last_end is request.committed else ErrorCode.INVALID_TXN_STATE
        return self._busy()

    def _busy(self) -> ErrorCode:
        if self.completing:
            self.completing -= 1
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE

    def _initialize(self) -> None:
        if self.ongoing:
            self._end(committed=False)
        self.producer_id = 7
        self.epoch += 1
        self.last_end = None

    def _end(self, *, committed: bool) -> None:
        if committed:
            self.committed |= self.pending
        self.ended.append(committed)
        self.last_end = committed
        self.ongoing = self.group_added = False
        self.partitions.clear()
        self.pending.clear()


def add_partitions_response(request: Any, code: ErrorCode) -> AddPartitionsToTxnResponse:
    """The same code for every partition."""
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def offsets_response(request: Any, code: ErrorCode) -> TxnOffsetCommitResponse:
    """The same code for every partition."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=row.partition_index, error_code=code)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def ask(transactions: TransactionManager, coordinator: Coordinator, *, settled: bool = True) -> list[Step]:
    """Ask everything there is to ask; the steps in their order."""
    steps: list[Step] = []
    while (question := transactions.next(settled=settled)) is not None:
        steps.append(question.step)
        verdict = transactions.on_response(question, coordinator.answer(question))
        assert verdict in (Verdict.DONE, Verdict.LATER), verdict
    return steps
