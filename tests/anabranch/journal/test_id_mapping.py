"""Ids of another cluster replace those of the first one, in fields and in records."""

from __future__ import annotations

from anabranch.journal.id_mapping import IdMapping
from anabranch.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from anabranch.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.protocol.apis.end_txn import EndTxnRequest
from anabranch.protocol.apis.heartbeat import HeartbeatRequest
from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from anabranch.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.records.batch import check_crc, read_header
from tests.differential.case import batch


def producer(producer_id: int, epoch: int, error: int = 0) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=error, producer_id=producer_id, producer_epoch=epoch)


def mapping_with_producer() -> IdMapping:
    made = IdMapping()
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1)
    made.learn(request, producer(1000, 0), producer(2000, 7))
    return made


def produce(records: bytes) -> ProduceRequest:
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])]
    return ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=1, topic_data=data)


def test_producer_ids_are_mapped_in_requests_and_batches() -> None:
    made = mapping_with_producer()
    end = made.translate(EndTxnRequest(transactional_id="tx", producer_id=1000, producer_epoch=0, committed=True))
    assert (end.producer_id, end.producer_epoch, end.committed) == (2000, 7, True)
    old = AddPartitionsToTxnRequest(v3_and_below_producer_id=1000, v3_and_below_producer_epoch=0)
    added = made.translate(old)
    assert (added.v3_and_below_producer_id, added.v3_and_below_producer_epoch) == (2000, 7)
    records = batch(b"a", producer=(1000, 0, 5)) + batch(b"b", producer=(1000, 1, 6)) + batch(b"c")
    original = produce(records)
    now = made.translate(original).topic_data[0].partition_data[0].records
    heads, position = [], 0
    while position < len(now):
        head = read_header(now, position)
        assert check_crc(now, position, head)
        heads.append((head.producer_id, head.producer_epoch, head.base_sequence))
        position += head.size_bytes
    assert heads == [(2000, 7, 5), (2000, 1, 6), (-1, -1, -1)]
    assert original.topic_data[0].partition_data[0].records == records, "what was recorded stays as it was"


def test_failed_responses_are_not_learned_and_malformed_batches_stay() -> None:
    made = IdMapping()
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1)
    made.learn(request, producer(1000, 0), producer(-1, -1, error=51))
    made.learn(request, producer(-1, -1), producer(5, 5))
    from_zero = IdMapping()
    from_zero.learn(request, producer(0, 0), producer(8, 1))
    zero = from_zero.translate(EndTxnRequest(transactional_id="t", producer_id=0, producer_epoch=0, committed=True))
    assert (zero.producer_id, zero.producer_epoch) == (8, 1)
    end = EndTxnRequest(transactional_id="tx", producer_id=1000, producer_epoch=0, committed=True)
    assert made.translate(end) == end
    assert mapping_with_producer().translate(produce(b"\0" * 70)) == produce(b"\0" * 70)


def joined(member: str, generation: int, *, error: int = 0) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error, generation_id=generation, protocol_name="p", leader=member, member_id=member, members=[]
    )


def join(group: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group, session_timeout_ms=1, rebalance_timeout_ms=1, member_id="", protocol_type="c", protocols=[]
    )


def test_members_and_generations_are_mapped_per_group() -> None:
    made = IdMapping()
    made.learn(join("a"), joined("m", -1, error=79), joined("n", -1, error=79))
    made.learn(join("a"), joined("m", 3), joined("n", 1))
    made.learn(join("b"), joined("x", 3), joined("y", 9))
    beats = [
        made.translate(HeartbeatRequest(group_id=group, generation_id=3, member_id=member))
        for group, member in (("a", "m"), ("b", "x"), ("c", "z"))
    ]
    assert [(one.generation_id, one.member_id) for one in beats] == [(1, "n"), (9, "y"), (3, "z")]


def test_topic_ids_are_mapped_by_name_in_any_order() -> None:
    def told(*topics: tuple[str, int]) -> MetadataResponse:
        rows = [
            MetadataResponseTopic(error_code=0, name=name, topic_id=bytes([number]) * 16, partitions=[])
            for name, number in topics
        ]
        return MetadataResponse(brokers=[], topics=rows)

    made = IdMapping()
    made.learn(MetadataRequest(topics=None), told(("a", 1), ("b", 2)), told(("b", 8), ("c", 7), ("a", 9)))
    request = DeleteTopicsRequest(
        timeout_ms=1, topics=[DeleteTopicState(name=None, topic_id=bytes([one]) * 16) for one in (1, 2, 3)]
    )
    assert [one.topic_id[0] for one in made.translate(request).topics] == [9, 8, 3]
