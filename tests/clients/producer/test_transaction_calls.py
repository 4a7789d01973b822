"""Each request goes to its coordinator completely, and a response counts as its worst part."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.producer import transaction_calls as questions
from anabranch.clients.producer.transaction_calls import (
    GROUP_KEY,
    TRANSACTION_KEY,
    TransactionalProducer,
    TransactionCall,
)
from anabranch.clients.producer.transaction_errors import Step
from anabranch.clients.producer.transaction_manager import State, TransactionManager
from anabranch.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from anabranch.protocol.apis.end_txn import EndTxnResponse
from anabranch.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.topic_partition import TopicPartition

ASKER = TransactionalProducer("id", 7, 3)
GROUP = ConsumerGroupMetadata("g", 3, "m")
KNOWING = GROUP._replace(leader_epoch_of=lambda topic, index: 10 + index)
FINE, TOLD_OF_OTHERS = ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED
CURABLE, INCURABLE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("question", "key", "key_type"),
    [
        (questions.initialize(ASKER, 60000), "id", TRANSACTION_KEY),
        (questions.add_partitions(ASKER, [TopicPartition("t", 0)]), "id", TRANSACTION_KEY),
        (questions.add_group(ASKER, "g"), "id", TRANSACTION_KEY),
        (questions.commit_offsets(ASKER, GROUP, {TopicPartition("t", 0): 5}), "g", GROUP_KEY),
        (questions.end(ASKER, commit=True), "id", TRANSACTION_KEY),
    ],
    ids=[step.value for step in Step],
)
def test_every_request_has_coordinator_key_and_producer_identity(
    question: TransactionCall, key: str, key_type: int
) -> None:
    request = question.request
    prefix = "v3_and_below_" if question.step is Step.ADD_PARTITIONS else ""
    fields = (f"{prefix}{field}" for field in ("transactional_id", "producer_id", "producer_epoch"))
    assert tuple(getattr(request, field) for field in fields) == ASKER
    assert (question.key, question.key_type) == (key, key_type)


@pytest.mark.parametrize(
    ("offsets", "error"),
    [
        ({TopicPartition("t", 0): None}, TypeError),
        ({TopicPartition("t", 0): 5.0}, TypeError),
        ({TopicPartition("t", 0): -1}, ValueError),
        ({TopicPartition("t", 0): 2**63}, ValueError),
        ({("t", "0"): 5}, TypeError),
        ({"t0": 5}, TypeError),
        ([TopicPartition("t", 0)], TypeError),
    ],
    ids=repr,
)
def test_offsets_that_no_request_can_carry_are_refused(offsets: Any, error: type[Exception]) -> None:
    """Not the request later: its failure would end the producer."""
    transactions = TransactionManager("id", 60000)
    transactions.state = State.IN_TRANSACTION
    with pytest.raises(error):
        transactions.add_offsets(offsets, GROUP)
    assert not transactions.offsets_pending


@pytest.mark.parametrize(("group", "epochs"), [(GROUP, [-1, -1]), (KNOWING, [10, 12])])
def test_offsets_carry_the_leader_epochs_that_the_member_knows(group: ConsumerGroupMetadata, epochs: list[int]) -> None:
    offsets = {TopicPartition("t", 0): 5, TopicPartition("t", 2): 6}
    (topic,) = questions.commit_offsets(ASKER, group, offsets).request.topics
    assert [row.committed_leader_epoch for row in topic.partitions] == epochs


def test_partitions_and_offsets_are_grouped_by_topic() -> None:
    wanted = [TopicPartition("t", 2), TopicPartition("u", 0), TopicPartition("t", 1)]
    topics = questions.add_partitions(ASKER, wanted).request.v3_and_below_topics
    assert [(topic.name, topic.partitions) for topic in topics] == [("t", [2, 1]), ("u", [0])]
    request = questions.commit_offsets(ASKER, GROUP, dict.fromkeys(wanted, 5)).request
    rows = [(topic.name, [row.partition_index for row in topic.partitions]) for topic in request.topics]
    assert rows == [("t", [1, 2]), ("u", [0])]
    assert (request.group_id, request.generation_id, request.member_id) == ("g", 3, "m")


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([FINE, FINE], (FINE, "")),
        ([FINE, CURABLE, TOLD_OF_OTHERS], (CURABLE, "t-1")),
        ([CURABLE, INCURABLE, CURABLE], (INCURABLE, "t-1")),
        ([TOLD_OF_OTHERS, FINE], (TOLD_OF_OTHERS, "t-0")),
    ],
)
def test_most_severe_partition_error_decides_outcome(codes: list[ErrorCode], expected: tuple[ErrorCode, str]) -> None:
    added: Any = AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name="t",
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index, code in enumerate(codes)
                ],
            )
        ]
    )
    committed = TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)
                    for index, code in enumerate(codes)
                ],
            )
        ]
    )
    assert questions.outcome(Step.ADD_PARTITIONS, added) == expected
    assert questions.outcome(Step.COMMIT_OFFSETS, committed) == expected


def test_single_result_response_has_one_error() -> None:
    assert questions.outcome(Step.END, EndTxnResponse(error_code=CURABLE)) == (CURABLE, "")
