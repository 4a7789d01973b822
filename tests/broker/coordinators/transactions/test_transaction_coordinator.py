"""Transactions from the first request to the last marker, and refused requests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.broker.coordinators.transactions import transaction_coordinator
from anabranch.broker.coordinators.transactions.transactional_id import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
)
from anabranch.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from anabranch.protocol.apis.end_txn import EndTxnRequest
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.internal_topics import TRANSACTION_STATE_TOPIC
from tests.broker.coordinators.transaction_world import transaction_world
from tests.broker.replication.replica_cluster import until

NONE, CONCURRENT, FENCED = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED
MAPPING, NOT_ATTEMPTED = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.OPERATION_NOT_ATTEMPTED


async def test_committed_transaction_writes_states_and_markers() -> None:
    async with transaction_world() as world:
        me = await world.begin()
        assert me[1] == 0
        assert await world.add(me, 0, 1) == [NONE, NONE]
        assert await world.add(me, 1) == [NONE], "is in: nothing to write"
        assert await world.add(me, 2) == [NONE]
        assert world.written() == [("tx", EMPTY), ("tx", ONGOING), ("tx", ONGOING)]
        assert await world.end(me) is NONE
        await world.reaches(COMPLETE_COMMIT)
        assert world.written()[3:] == [("tx", PREPARE_COMMIT), ("tx", COMPLETE_COMMIT)]
        assert [world.markers(index) for index in range(3)] == [[("COMMIT", 0, 0)]] * 3
        assert await world.end(me) is NONE, "a repeated request"
        assert await world.end(me, commit=False) is ErrorCode.INVALID_TXN_STATE
        assert await world.add(me, 1) == [NONE]
        assert await world.end(me, commit=False) is NONE
        await world.reaches(COMPLETE_ABORT)
        assert await world.end(me, commit=False) is NONE
        assert [world.markers(index) for index in (0, 1)] == [[("COMMIT", 0, 0)], [("COMMIT", 0, 0), ("ABORT", 0, 0)]]
        assert await world.begin() == (me[0], 1)


async def test_markers_reach_every_broker() -> None:
    async with transaction_world(brokers=3, partitions=6) as world:
        me = await world.begin()
        await world.add(me, *range(6))
        assert await world.end(me, commit=False) is NONE
        await world.reaches(COMPLETE_ABORT)
        assert [world.markers(index) for index in range(6)] == [[("ABORT", 0, 0)]] * 6


async def test_transaction_without_partitions_completes() -> None:
    async with transaction_world() as world:
        me = await world.begin()
        assert await world.add(me) == []
        assert world.state() is ONGOING
        assert await world.end(me) is NONE
        await world.reaches(COMPLETE_COMMIT)


# --- refusals --------------------------------------------------------------------------------------------------------


async def test_invalid_init_producer_id_is_refused() -> None:
    async with transaction_world() as world:
        for timeout_ms in (0, -1, 900_001):
            assert (await world.init(timeout_ms=timeout_ms)).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert (await world.init(timeout_ms=900_000)).error_code == NONE
        assert (await world.init("")).error_code == ErrorCode.INVALID_REQUEST
        for known in ((-1, 0), (5, -1)):
            refused = await world.init(known=known)
            assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (
                ErrorCode.INVALID_REQUEST,
                -1,
                -1,
            )
        for version, code in ((3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, FENCED)):
            assert (await world.init(known=(12345, 0), version=version)).error_code == code


async def test_requests_of_unknown_producers_are_refused() -> None:
    async with transaction_world() as world:
        me = await world.begin()
        stranger, late = (me[0] + 1, 0), (me[0], 9)
        for version, fenced in (
            (0, ErrorCode.INVALID_PRODUCER_EPOCH),
            (1, ErrorCode.INVALID_PRODUCER_EPOCH),
            (2, FENCED),
        ):
            assert await world.add(late, 0, 1, version=version) == [fenced, fenced]
            assert await world.add_offsets(late, version=version) is fenced
            assert await world.end(late, version=version) is fenced
        assert await world.add(stranger, 0) == [MAPPING]
        assert await world.add_offsets(stranger) is await world.end(stranger) is MAPPING
        assert await world.verify(stranger, 0, 1) == [MAPPING, MAPPING]
        assert await world.verify(late, 0) == [FENCED]
        assert await world.add(me, 0, transactional_id="unheard of") == [MAPPING]
        assert await world.add(me, 0, transactional_id="") == [ErrorCode.INVALID_REQUEST]
        assert await world.verify(me, 0, transactional_id="") == [ErrorCode.INVALID_REQUEST]
        assert await world.end(me, transactional_id="") is ErrorCode.INVALID_REQUEST
        assert await world.end(me) is ErrorCode.INVALID_TXN_STATE, "nothing was begun"
        assert world.written() == [("tx", EMPTY)]


async def test_unknown_partition_prevents_all_additions_of_the_request() -> None:
    async with transaction_world() as world:
        me = await world.begin()
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await world.add(me, 0, 7, 1) == [NOT_ATTEMPTED, unknown, NOT_ATTEMPTED]
        assert await world.add((99, 9), 7) == [unknown], "is noticed first"
        assert world.state() is EMPTY


async def test_client_that_adds_an_internal_topic_is_not_authorized() -> None:
    async with transaction_world() as world:
        me = await world.begin()
        assert await world.add(me, 0, topic=TRANSACTION_STATE_TOPIC) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert world.state() is EMPTY


async def test_one_request_verifies_many_transactions() -> None:
    async with transaction_world() as world:
        one, two = await world.begin("one"), await world.begin("two")
        await world.add(one, 0, 1, transactional_id="one")
        assert await world.verify(one, 1, 2, transactional_id="one") == [NONE, ErrorCode.TRANSACTION_ABORTABLE]
        topics = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=name, producer_id=who[0], producer_epoch=who[1], verify_only=verify, topics=topics
                )
                for name, who, verify in (("one", one, True), ("two", two, False), ("three", two, False))
            ]
        )
        response = await world.ask(request, version=5)
        assert [
            (row.transactional_id, ErrorCode(row.topic_results[0].results_by_partition[0].partition_error_code))
            for row in response.results_by_transaction
        ] == [("one", NONE), ("two", NONE), ("three", MAPPING)]
        assert world.state("two") is ONGOING
        await world.end(one, transactional_id="one")
        await world.reaches(COMPLETE_COMMIT, "one")
        assert await world.verify(one, 0, transactional_id="one") == [ErrorCode.TRANSACTION_ABORTABLE]


# --- producers come and go -------------------------------------------------------------------------------------------


async def test_new_producer_fences_the_old_one_and_aborts_its_transaction() -> None:
    async with transaction_world() as world:
        old = await world.begin()
        await world.add(old, 0, 1)
        first = await world.init()
        assert (first.error_code, first.producer_id) == (CONCURRENT, -1)
        assert await world.end(old) is FENCED and await world.add(old, 2) == [FENCED]
        await world.reaches(COMPLETE_ABORT)
        new = await world.begin()
        assert new == (old[0], 2), "one epoch fenced, the next is given out"
        assert world.markers(0) == world.markers(1) == [("ABORT", 1, 0)]
        assert await world.end(old, commit=False) is FENCED


async def test_producer_continues_with_the_next_epoch_after_a_failure() -> None:
    """KIP-360: it sends its id and gets the next epoch, again after a lost response, but not after fencing."""
    async with transaction_world() as world:
        me = await world.begin()
        for _ in range(2):
            response = await world.init(known=me)
            assert (response.error_code, response.producer_id, response.producer_epoch) == (NONE, me[0], 1)
        other = await world.begin()
        assert other[1] == 2
        for known in (me, (me[0], 1)):
            assert (await world.init(known=known)).error_code == FENCED
        assert (await world.init("fresh", known=(4711, 5))).error_code == NONE, "an id that expired meanwhile"


async def test_producer_id_with_exhausted_epochs_is_replaced() -> None:
    async with transaction_world() as world:
        me = await world.begin()
        one = world.coordinator().transaction("tx")
        assert one is not None
        one.producer_epoch = 32765
        assert (await world.begin()) == (me[0], 32766)
        response = await world.init(known=(me[0], 32766))
        assert response.error_code == NONE and response.producer_epoch == 0 and response.producer_id != me[0]
        again = await world.init(known=(me[0], 32766))
        assert (again.producer_id, again.producer_epoch) == (response.producer_id, 0), "the answer was lost"
        one.producer_epoch = 32766
        await world.add((one.producer_id, 32766), 0)
        assert (await world.init()).error_code == CONCURRENT
        await world.reaches(COMPLETE_ABORT)
        assert world.markers(0) == [("ABORT", 32767, 0)]
        fresh = await world.begin()
        assert fresh[1] == 0 and fresh[0] not in (me[0], response.producer_id)


async def test_end_of_version_2_with_exhausted_epochs_returns_a_new_producer_id() -> None:
    async with transaction_world() as world:
        me = await world.begin()
        one = world.coordinator().transaction("tx")
        assert one is not None
        one.producer_epoch = 32766
        assert await world.add((me[0], 32766), 0) == [NONE]
        request = EndTxnRequest(transactional_id="tx", producer_id=me[0], producer_epoch=32766, committed=True)
        ended = await world.ask(request, version=5)
        assert (ended.error_code, ended.producer_epoch) == (NONE, 0) and ended.producer_id != me[0]
        await world.reaches(COMPLETE_COMMIT)
        assert world.markers(0) == [("COMMIT", 32767, 0)]
        again = await world.ask(request, version=5)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (NONE, ended.producer_id, 0)
        assert await world.add((ended.producer_id, 0), 0) == [NONE]


async def test_concurrent_request_of_a_transactional_id_is_refused() -> None:
    """While a record waits for replication, other requests of the id get CONCURRENT_TRANSACTIONS."""
    async with transaction_world(brokers=2) as world:
        me = await world.begin()
        held = world[2].replicas.partition("__transaction_state", 0)
        world[2].replicas.fetchers.forget(held)
        adding = asyncio.ensure_future(world.add(me, 0))
        one = world.coordinator().transaction("tx")
        assert one is not None
        await until(lambda: one.pending is ONGOING)
        assert await world.add(me, 1) == [CONCURRENT]
        assert await world.end(me) is await world.add_offsets(me) is CONCURRENT
        assert (await world.init()).error_code == CONCURRENT
        assert await world.verify(me, 0) == [ErrorCode.TRANSACTION_ABORTABLE], "not in before it is written"
        assert (await world.describe()).transaction_state == "Empty"
        await world.tell("__transaction_state", 0, [2])
        await world.coordinate(1)
        await adding
        assert one.pending is None


# --- the journal refuses ---------------------------------------------------------------------------------------------


async def test_append_below_min_isr_is_refused() -> None:
    async with transaction_world(brokers=2, min_insync_replicas=2) as world:
        me = await world.begin()
        await world.add(me, 0)
        await world.coordinate(1, isr=(1,))
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await world.add(me, 1) == [unavailable]
        assert await world.end(me) is await world.add_offsets(me) is unavailable
        assert (await world.init("other")).error_code == unavailable
        assert world.state() is ONGOING
        for _ in range(2):
            assert (await world.init()).error_code == unavailable
        assert await world.end(me) is FENCED, "a fence holds in memory, and is not raised twice"
        await world.coordinate(1, isr=(1, 2))
        assert (await world.init()).error_code == CONCURRENT
        await world.reaches(COMPLETE_ABORT)
        assert world.markers(0) == [("ABORT", 1, world.assigned["__transaction_state", 0].leader_epoch)]


async def test_append_without_acknowledgement_times_out() -> None:
    async with transaction_world(brokers=2, partitions=1) as world:
        me = await world.begin(timeout_ms=100)
        await world.kill(2)
        assert await world.add(me, 0) == [ErrorCode.COORDINATOR_NOT_AVAILABLE], "after the transaction's own timeout"
        assert world.state() is EMPTY


async def test_failed_completion_is_retried() -> None:
    async with transaction_world(brokers=2) as world:
        me = await world.begin()
        await world.add(me, 0)
        partition = world.partition(1, "__transaction_state")

        def after_markers(step: str) -> None:
            world.steps.append(step)
            if step == "txn:after-markers":
                partition.min_insync_replicas = 2

        world.coordinator()._failpoint = after_markers
        await world.coordinate(1, isr=(1,))
        assert await world.end(me) is NONE
        await until(lambda: "txn:after-markers" in world.steps)
        for _ in range(3):
            assert await world.add(me, 0) == [CONCURRENT]
        assert world.written()[-1] == ("tx", PREPARE_COMMIT)
        partition.min_insync_replicas = 1
        await world.reaches(COMPLETE_COMMIT)


# --- time ------------------------------------------------------------------------------------------------------------


async def test_timed_out_transaction_is_aborted_and_its_producer_fenced() -> None:
    async with transaction_world(transaction_abort_timed_out_transaction_cleanup_interval_ms=20) as world:
        me = await world.begin(timeout_ms=5_000)
        await world.add(me, 0, 1)
        in_time = await world.begin("in time", timeout_ms=600_000)
        await world.add(in_time, 2, transactional_id="in time")
        world.late_ms = 6_000
        await world.reaches(COMPLETE_ABORT)
        assert world.markers(0) == world.markers(1) == [("ABORT", 1, 0)] and world.markers(2) == []
        assert world.state("in time") is ONGOING
        assert await world.end(me) is FENCED
        assert (await world.init(known=me)).error_code == FENCED
        assert await world.begin() == (me[0], 2)


async def test_unused_transactional_ids_expire() -> None:
    async with transaction_world(
        transaction_remove_expired_transaction_cleanup_interval_ms=20, transactional_id_expiration_ms=60_000
    ) as world:
        me = await world.begin()
        await world.begin("other")
        open_one = await world.begin("open", timeout_ms=900_000)
        await world.add(open_one, 0, transactional_id="open")
        world.late_ms = 999
        await world.begin("young")
        world.late_ms = 60_001
        await until(lambda: world.state() is None and world.state("other") is None)
        assert sorted(one.transactional_id for one in world.coordinator().transactions()) == ["open", "young"]
        assert sorted(world.written()[-2:]) == [("other", None), ("tx", None)]
        assert await world.end(me) is MAPPING
        assert (await world.describe()).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        await world.coordinate(1)
        assert (await world.begin())[0] != me[0]


async def test_expired_ids_are_kept_until_their_tombstones_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async with transaction_world(
        brokers=2, transaction_remove_expired_transaction_cleanup_interval_ms=20, transactional_id_expiration_ms=60_000
    ) as world:
        await world.begin()
        await world.coordinate(1, isr=(1,))
        partition = world.partition(1, "__transaction_state")
        partition.min_insync_replicas = 2
        world.late_ms = 60_001
        refused = 0
        before = partition.check_min_isr

        def counted() -> None:
            nonlocal refused
            refused += 1
            before()

        monkeypatch.setattr(partition, "check_min_isr", counted)
        await until(lambda: refused > 2)
        one = world.coordinator().transaction("tx")
        assert one is not None and one.pending is None
        partition.min_insync_replicas = 1
        await until(lambda: world.state() is None)


async def test_expired_id_that_is_used_again_before_its_tombstone_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tombstones are written in batches, and each is replicated before the next one is written."""
    monkeypatch.setattr(transaction_coordinator, "TOMBSTONES_PER_BATCH", 1)
    async with transaction_world(transactional_id_expiration_ms=60_000) as world:
        await world.begin()
        await world.begin("second")
        world.late_ms = 60_001
        coordinator = world.coordinator()
        append, replicated = coordinator._journal.append, asyncio.Event()

        async def append_late(*arguments: Any, **options: Any) -> int:
            offset = await append(*arguments, **options)
            if world.written()[-1] == ("tx", None):
                await replicated.wait()
            return offset

        monkeypatch.setattr(coordinator._journal, "append", append_late)
        removing = asyncio.create_task(coordinator._remove_expired(world.clock_ms()))
        await until(lambda: world.written()[-1] == ("tx", None))
        me = await world.begin("second")
        replicated.set()
        await removing
        assert world.state() is None
        assert await world.add(me, 0, transactional_id="second") == [NONE]


# --- administration --------------------------------------------------------------------------------------------------


async def test_transaction_is_described() -> None:
    async with transaction_world(offsets_topic_num_partitions=50) as world:
        me = await world.begin(timeout_ms=4321)
        row = await world.describe()
        assert (row.error_code, row.transaction_state, row.transaction_timeout_ms) == (0, "Empty", 4321)
        assert (row.producer_id, row.producer_epoch, row.transaction_start_time_ms, row.topics) == (*me, -1, [])
        before_ms = world.clock_ms()
        await world.add(me, 2, 0)
        assert await world.add_offsets(me) is NONE
        row = await world.describe()
        assert row.transaction_state == "Ongoing" and before_ms <= row.transaction_start_time_ms <= world.clock_ms()
        assert [(topic.topic, topic.partitions) for topic in row.topics] == [("__consumer_offsets", [3]), ("t", [0, 2])]
        row = await world.describe("unheard of")
        assert (row.error_code, row.transactional_id) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "unheard of")
        assert (row.transaction_state, row.producer_id, row.producer_epoch, row.topics) == ("", 0, 0, [])
        assert (await world.describe("")).error_code == ErrorCode.INVALID_REQUEST


async def test_transactions_are_listed_by_filters() -> None:
    async with transaction_world() as world:
        idle = await world.begin("idle")
        busy = await world.begin("busy")
        await world.add(busy, 0, transactional_id="busy")

        async def names(**filters: object) -> list[str]:
            response = await world.listed(**filters)
            assert response.error_code == 0
            return sorted(row.transactional_id for row in response.transaction_states)

        assert await names() == await names(version=0) == ["busy", "idle"]
        assert await names(state_filters=["Ongoing"]) == await names(producer_id_filters=[busy[0], 99]) == ["busy"]
        assert await names(state_filters=["Ongoing"], producer_id_filters=[idle[0]]) == []
        odd = await world.listed(state_filters=["Empty", "Odd", "ongoing", "Odd"])
        assert [row.transactional_id for row in odd.transaction_states] == ["idle"]
        assert odd.unknown_state_filters == ["Odd", "ongoing"]
        assert await names(state_filters=["Odd"]) == []
        (row,) = (await world.listed(state_filters=["Ongoing"])).transaction_states
        assert (row.producer_id, row.transaction_state) == (busy[0], "Ongoing")
        assert await names(duration_filter=60_000) == ["idle"], "the age of what never began is the age of the epoch"
        world.late_ms = 61_000
        assert await names(duration_filter=60_000) == ["busy", "idle"]


@pytest.mark.parametrize("elsewhere", [2])
async def test_request_to_wrong_coordinator_is_refused(elsewhere: int) -> None:
    async with transaction_world(brokers=2) as world:
        me = await world.begin()
        not_here = ErrorCode.NOT_COORDINATOR
        assert (await world.init(at=elsewhere)).error_code == not_here
        assert await world.add(me, 0, 1, at=elsewhere) == [not_here, not_here]
        assert await world.verify(me, 0, at=elsewhere) == [not_here]
        assert await world.end(me, at=elsewhere) is not_here
        assert (await world.describe(at=elsewhere)).error_code == not_here
        response = await world.listed(at=elsewhere)
        assert (response.error_code, response.transaction_states) == (0, [])
        world.coordinator()._leadership.stop()
        assert await world.end(me) is ErrorCode.COORDINATOR_NOT_AVAILABLE
