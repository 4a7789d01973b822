"""Produce: the order of rule R5, refusals, acks=0."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.authorization.peer import ConnectionState, Peer
from anabranch.broker.dispatch.request_context import CloseConnection
from anabranch.broker.handlers.produce import produce
from anabranch.broker.tasks.yield_budget import ELEMENTS_PER_YIELD
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.message_set import Message, build_message
from tests.broker.replication.replica_cluster import (
    NOW_MS,
    batch,
    lead_partitions,
    log_values,
    produce_request,
    replica_cluster,
    topic_id_of,
    until,
)
from tests.broker.yields import context, refused_after_loss, while_it_yields, yields_of

PRODUCER = (7, 0)


def resized(**more: object) -> dict[str, object]:
    """A LeaderAndIsr after a resize that affected the partition."""
    return {"replicas": (1,), "generation": 1, "gen_start": ((0, 0), (1, 1)), **more}


async def test_duplicate_of_an_older_generation_gets_its_original_offset() -> None:
    """R5 (i) before (ii): the producer must learn that its batch was written before the resize."""
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,), generation=0, gen_start=((0, 0),))
        await cluster.produce(1, batch("before"), generation=0)
        first = await cluster.produce(1, batch("a", producer=PRODUCER, sequence=0), generation=0)
        await cluster.lead(1, **resized())
        again = await cluster.produce(1, batch("a", producer=PRODUCER, sequence=0), generation=0)
        assert (again.error_code, again.base_offset) == (0, first.base_offset) == (0, 1)
        assert log_values(cluster.partition(1)) == ["before", "a"]


async def test_duplicate_on_a_sealed_partition_gets_its_original_offset() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a", producer=PRODUCER, sequence=0), generation=0)
        await cluster.lead(1, **resized(sealed=True))
        again = await cluster.produce(1, batch("a", producer=PRODUCER, sequence=0), generation=0)
        assert (again.error_code, again.base_offset) == (0, 0)


async def test_batch_for_a_deleted_topic_of_the_same_name_is_refused() -> None:
    """Its generation may be the same number, although its keys had other partitions."""
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        for expected, code in ((b"another topic's", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (topic_id_of("t"), 0)):
            request = produce_request(batch("a"), generation=0)
            request.topic_data[0].expected_topic_id = expected.ljust(16)
            response = await cluster.call(cluster[1], request)
            assert response.responses[0].partition_responses[0].error_code == code
        assert log_values(cluster.partition(1)) == ["a"]


@pytest.mark.parametrize("generation", [0, 2])
async def test_batch_of_another_generation_is_refused_with_the_current_one(generation: int) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.lead(1, **resized())
        row = await cluster.produce(1, batch("a", producer=PRODUCER, sequence=0), generation=generation)
        assert (row.error_code, row.base_offset) == (ErrorCode.INVALID_PARTITION_METADATA, -1)
        assert row.generation == 1
        right = await cluster.produce(1, batch("a", producer=PRODUCER, sequence=0), generation=1)
        assert (right.error_code, right.base_offset) == (0, 0), "the refused batch left no trace, not even a sequence"
        assert right.generation == -1


async def test_refusal_names_the_generation_with_which_a_partition_was_created_again() -> None:
    """K504: it knows nothing of the batches that the removed partition of its index stored."""
    async with replica_cluster(1) as cluster:
        history = ((0, 0), (1, 1), (2, 4), (3, 5))
        for first_leader_epoch, first_generation in ((-1, 0), (4, 2)):
            await cluster.lead(1, **resized(generation=3, gen_start=history, first_leader_epoch=first_leader_epoch))
            row = await cluster.produce(1, batch("a", producer=PRODUCER, sequence=0), generation=1)
            assert (row.generation, row.first_generation) == (3, first_generation)


async def test_batch_for_a_sealed_partition_is_refused() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.lead(1, **resized(sealed=True))
        for generation in (0, 1):
            row = await cluster.produce(1, batch("a"), generation=generation)
            assert row.error_code == ErrorCode.INVALID_PARTITION_METADATA
        refused = await cluster.produce(1, batch("a"))
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert refused.error_message and not refused.error_message.startswith("POLICY_VIOLATION"), "clients add it"
        assert log_values(cluster.partition(1)) == []


async def test_generation_is_checked_before_the_sequence() -> None:
    """An old batch with a gap must not get OUT_OF_ORDER_SEQUENCE_NUMBER, which is fatal."""
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a", producer=PRODUCER, sequence=0), generation=0)
        await cluster.lead(1, **resized())
        row = await cluster.produce(1, batch("c", producer=PRODUCER, sequence=5), generation=0)
        assert row.error_code == ErrorCode.INVALID_PARTITION_METADATA


async def test_refused_partition_does_not_fail_another() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        rows = [
            PartitionProduceData(index=0, records=batch("a")),
            PartitionProduceData(index=9, records=batch("b")),
        ]
        request = ProduceRequest(
            acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name="t", partition_data=rows)]
        )
        response = await cluster.call(cluster[1], request)
        codes = [row.error_code for row in response.responses[0].partition_responses]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_invalid_produce_is_refused() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.lead(1, replicas=(1,), topic="__consumer_offsets")
        assert (await cluster.produce(1, batch("a"), acks=2)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert (await cluster.produce(1, b"", acks=2)).error_code == ErrorCode.INVALID_RECORD
        assert (await cluster.produce(1, bytes(70))).error_code == ErrorCode.CORRUPT_MESSAGE
        nowhere = await cluster.produce(1, b"", acks=2, topic="nowhere")
        assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        internal = await cluster.produce(1, batch("a"), topic="__consumer_offsets")
        assert internal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert (await cluster.produce(1, b"")).error_code == ErrorCode.INVALID_RECORD
        assert (await cluster.produce(1, batch("a") + batch("b"))).error_code == ErrorCode.INVALID_RECORD
        broken = bytearray(batch("a"))
        broken[-1] ^= 1
        assert (await cluster.produce(1, bytes(broken))).error_code == ErrorCode.CORRUPT_MESSAGE
        builder = BatchBuilder()
        builder.append(b"key", b"value")
        control = await cluster.produce(1, builder.build(control=True))
        assert (control.error_code, control.log_start_offset) == (ErrorCode.INVALID_RECORD, 0)
        assert (await cluster.produce(1, bytes(broken))).log_start_offset == -1
        assert log_values(cluster.partition(1)) == []


async def test_invalid_records_are_named_individually() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.session.create(
            "/config/topics/t", b'{"version":1,"config":{"cleanup.policy":"compact"}}', make_parents=True
        )
        await cluster.lead(1, replicas=(1,))
        builder = BatchBuilder()
        for key in (b"a", None, b"b", None):
            builder.append(key, b"value", timestamp_ms=1)
        row = await cluster.produce(1, builder.build())
        assert (row.error_code, row.log_start_offset) == (ErrorCode.INVALID_RECORD, 0)
        assert [one.batch_index for one in row.record_errors] == [1, 3]


async def test_record_formats_are_accepted_by_produce_version() -> None:
    """Old versions accept every format, as in Kafka; v3 and newer accept one batch, zstd only from v7 on."""
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        zstd = BatchBuilder("zstd")
        zstd.append(b"key", b"value", timestamp_ms=NOW_MS)
        offset = 0
        for version in range(12):
            for records, allowed in (
                (build_message(Message(0, 0, 0, -1, b"key", b"value")), version < 3),
                (build_message(Message(0, 1, 0, NOW_MS, b"key", b"value")), version < 3),
                (batch("value"), True),
                (zstd.build(), version < 3 or version >= 7),
            ):
                row = await cluster.produce(1, records, version=version)
                if allowed:
                    assert (row.error_code, row.base_offset) == (ErrorCode.NONE, offset), (version, records[16])
                    offset += 1
                elif records[16] < 2:
                    assert row.error_code == ErrorCode.INVALID_RECORD
                else:
                    assert row.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert log_values(cluster.partition(1)) == ["value"] * offset


async def test_wrong_leader_returns_the_current_one() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1)
        response = await cluster.call(cluster[2], produce_request(batch("a")))
        row = response.responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (1, 0)
        assert [(one.node_id, one.port) for one in response.node_endpoints] == [(1, cluster[1].server.port)]


async def test_acks_0_has_no_response_and_a_failure_closes_the_connection() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        connection = await cluster[1].connect()
        connection.send_oneway(produce_request(batch("a"), 0))
        await until(lambda: log_values(cluster.partition(1)) == ["a"])
        assert not connection.closed
        connection.send_oneway(produce_request(batch("b"), 0, topic="nowhere"))
        await until(lambda: connection.closed)


async def test_pipelined_batches_keep_their_order() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        connection = await cluster[1].connect()
        sent = [
            connection.send(produce_request(batch(str(n), producer=PRODUCER, sequence=n), generation=0))
            for n in range(50)
        ]
        rows = [response.responses[0].partition_responses[0] for response in await asyncio.gather(*sent)]
        assert [(row.error_code, row.base_offset) for row in rows] == [(0, n) for n in range(50)]
        await connection.close()


MANY = 3 * ELEMENTS_PER_YIELD


def produce_to_many(acks: int, timeout_ms: int = 60_000) -> ProduceRequest:
    request = produce_request(batch("a"), acks, timeout_ms=timeout_ms)
    request.topic_data[0].partition_data = [
        PartitionProduceData(index=index, records=batch("a")) for index in range(MANY)
    ]
    return request


async def test_request_with_many_batches_yields_between_appends() -> None:
    async with replica_cluster(1) as cluster:
        lead_partitions(cluster, range(MANY), 1, 1, [1, 2])
        response, others = await yields_of(produce(context(cluster[1].services, 9), produce_to_many(1)))
        rows = response.responses[0].partition_responses
        assert [(row.index, row.error_code, row.base_offset) for row in rows] == [(one, 0, 0) for one in range(MANY)]
        assert others >= 2


async def test_nothing_more_is_appended_once_the_connection_is_lost() -> None:
    """The client may have repeated the request by another connection, and sent later records."""
    async with replica_cluster(1) as cluster:
        lead_partitions(cluster, range(MANY), 1, 1, [1, 2])
        services = cluster[1].services
        await refused_after_loss(lambda peer: produce(context(services, 9, peer), produce_to_many(1)), after=1)
        assert log_values(cluster[1].replicas.partition("t", 0)) == ["a"], "it had begun"
        assert log_values(cluster[1].replicas.partition("t", MANY - 1)) == []
        lost = Peer("127.0.0.1", connection=ConnectionState(is_lost=True))
        with pytest.raises(CloseConnection):
            await produce(context(services, 9, lost), produce_request(batch("b"), 1))
        assert log_values(cluster[1].replicas.partition("t", 0)) == ["a"]


async def test_requests_with_acks_0_are_appended_although_the_connection_is_lost() -> None:
    async with replica_cluster(1) as cluster:
        lead_partitions(cluster, range(MANY), 1, 1, [1, 2])
        lost = Peer("127.0.0.1", connection=ConnectionState(is_lost=True))
        assert await produce(context(cluster[1].services, 9, lost), produce_to_many(0)) is None
        assert {tuple(log_values(cluster[1].replicas.partition("t", one))) for one in range(MANY)} == {("a",)}


async def test_append_is_refused_if_the_leadership_was_lost_between_two_batches_of_a_request() -> None:
    async with replica_cluster(1) as cluster:
        lead_partitions(cluster, range(MANY), 1, 1, [1, 2])
        last = [MANY - 1]
        response = await while_it_yields(
            produce(context(cluster[1].services, 9), produce_to_many(1)),
            lambda: lead_partitions(cluster, last, 2, 2, [1, 2]),
            after=1,
        )
        codes = [row.error_code for row in response.responses[0].partition_responses]
        assert codes == [0] * (MANY - 1) + [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert log_values(cluster[1].replicas.partition("t", MANY - 1)) == []


async def test_batch_is_not_acknowledged_if_the_leadership_was_lost_and_regained_while_the_request_yielded() -> None:
    """Another leader's log may have replaced it."""
    async with replica_cluster(1) as cluster:
        lead_partitions(cluster, range(MANY), 1, 1, [1, 2])

        def lose_and_regain() -> None:
            assert log_values(cluster[1].replicas.partition("t", 0)) == ["a"], "it is appended"
            lead_partitions(cluster, [0], 2, 2, [1, 2])
            lead_partitions(cluster, range(1, MANY), 1, 2, [1])
            lead_partitions(cluster, [0], 1, 3, [1])

        producing = produce(context(cluster[1].services, 9), produce_to_many(-1))
        response = await while_it_yields(producing, lose_and_regain, after=1)
        codes = [row.error_code for row in response.responses[0].partition_responses]
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] + [0] * (MANY - 1)
