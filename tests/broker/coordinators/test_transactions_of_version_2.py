"""Transactions of version 2: EndTxn in each state, journal records, and failover."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

import pytest

from anabranch.broker.coordinators.transactions import transaction_requests as requests
from anabranch.broker.coordinators.transactions.transaction_journal import record_of, restore
from anabranch.broker.coordinators.transactions.transaction_requests import Producer
from anabranch.broker.coordinators.transactions.transactional_id import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    PRODUCER_EPOCH_MAX,
    Transaction,
    TransactionState,
)
from anabranch.broker.replication import transaction_verification
from anabranch.protocol.apis.end_txn import EndTxnRequest
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import iter_batches
from tests.broker.coordinators.test_transaction_failover import with_leader, without_leader
from tests.broker.coordinators.transaction_world import Identity, TransactionWorld, transaction_world
from tests.broker.coordinators.transactions.test_transaction_requests import ME, outcome
from tests.broker.coordinators.transactions.test_transactional_id import transaction
from tests.broker.replication.replica_cluster import until
from tests.broker.transactions import transactional_batch
from tests.cases import for_each

NONE, CONCURRENT, INVALID = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
FENCED, MAPPING = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING
BEFORE = Producer(ME.id, ME.epoch - 1)
"""With the epoch that the last end took."""


def of_version_2(state: TransactionState, **changes: object) -> Transaction:
    return transaction(state, client_version=2, **changes)


def end(one: Transaction, producer: Producer = ME, *, commit: bool = True) -> TransactionState | ErrorCode:
    return outcome(one, lambda: requests.end(one, producer, commit=commit, client_version=2, now_ms=50))


@pytest.mark.parametrize(
    ("state", "producer", "commit", "answer"),
    [
        (ONGOING, ME, True, PREPARE_COMMIT),
        (ONGOING, ME, False, PREPARE_ABORT),
        (ONGOING, BEFORE, True, FENCED),
        (EMPTY, ME, True, INVALID),
        (EMPTY, ME, False, PREPARE_ABORT),
        (EMPTY, BEFORE, False, FENCED),
        (COMPLETE_COMMIT, ME, True, INVALID),
        (COMPLETE_COMMIT, ME, False, PREPARE_ABORT),
        (COMPLETE_COMMIT, BEFORE, True, NONE),
        (COMPLETE_COMMIT, BEFORE, False, INVALID),
        (COMPLETE_ABORT, ME, True, INVALID),
        (COMPLETE_ABORT, ME, False, PREPARE_ABORT),
        (COMPLETE_ABORT, BEFORE, False, NONE),
        (COMPLETE_ABORT, BEFORE, True, INVALID),
        (PREPARE_COMMIT, ME, True, FENCED),
        (PREPARE_COMMIT, BEFORE, True, CONCURRENT),
        (PREPARE_COMMIT, BEFORE, False, INVALID),
        (PREPARE_ABORT, BEFORE, False, CONCURRENT),
        (PREPARE_ABORT, BEFORE, True, INVALID),
    ],
)
def test_end_of_version_2_is_answered_by_state(
    state: TransactionState, producer: Producer, commit: bool, answer: TransactionState | ErrorCode
) -> None:
    assert end(of_version_2(state), producer, commit=commit) == answer


@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_end_by_another_producer_is_refused(state: TransactionState) -> None:
    for wrong, answer in ((Producer(999, 3), MAPPING), (Producer(ME.id, 1), FENCED), (Producer(ME.id, 4), FENCED)):
        assert end(of_version_2(state), wrong) is answer
    assert end(of_version_2(state, pending=EMPTY), ME, commit=False) is CONCURRENT


@pytest.mark.parametrize("begun", [0, 2])
@pytest.mark.parametrize(
    ("asked", "state", "producer", "commit", "answer"),
    [
        (0, PREPARE_COMMIT, ME, True, CONCURRENT),
        (0, PREPARE_COMMIT, ME, False, INVALID),
        (0, PREPARE_COMMIT, BEFORE, True, FENCED),
        (0, PREPARE_ABORT, ME, False, CONCURRENT),
        (0, COMPLETE_COMMIT, ME, True, NONE),
        (0, COMPLETE_COMMIT, ME, False, INVALID),
        (0, COMPLETE_COMMIT, BEFORE, True, FENCED),
        (0, COMPLETE_ABORT, ME, False, NONE),
        (0, EMPTY, ME, False, INVALID),
        (2, PREPARE_COMMIT, ME, True, FENCED),
        (2, PREPARE_COMMIT, BEFORE, True, CONCURRENT),
        (2, PREPARE_ABORT, ME, False, FENCED),
        (2, COMPLETE_COMMIT, ME, True, INVALID),
        (2, COMPLETE_COMMIT, ME, False, PREPARE_ABORT),
        (2, COMPLETE_COMMIT, BEFORE, True, NONE),
        (2, COMPLETE_ABORT, BEFORE, False, NONE),
        (2, EMPTY, ME, False, PREPARE_ABORT),
    ],
)
def test_end_is_validated_by_the_version_of_its_request(
    begun: int,
    asked: int,
    state: TransactionState,
    producer: Producer,
    commit: bool,
    answer: TransactionState | ErrorCode,
) -> None:
    one = transaction(state, client_version=begun)
    move = outcome(one, lambda: requests.end(one, producer, commit=commit, client_version=asked, now_ms=50))
    assert move == answer


STATES = [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT]
WRONG = [(Producer(999, ME.epoch), MAPPING), (BEFORE, FENCED), (Producer(ME.id, ME.epoch + 1), FENCED)]


@for_each(product(STATES, [one for one in TransactionState if one is not PREPARE_EPOCH_FENCE], [True, False]))
def test_end_while_transition_is_pending_is_concurrent_for_any_producer(
    state: TransactionState, pending: TransactionState, commit: bool
) -> None:
    for producer in (ME, *(one for one, _ in WRONG)):
        assert end(of_version_2(state, pending=pending), producer, commit=commit) is CONCURRENT


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(("producer", "answer"), WRONG)
def test_end_while_fence_is_pending_depends_on_its_producer(
    producer: Producer, answer: ErrorCode, commit: bool
) -> None:
    assert end(of_version_2(ONGOING, pending=PREPARE_EPOCH_FENCE), producer, commit=commit) is answer


def test_end_of_version_2_bumps_the_epoch() -> None:
    one = of_version_2(ONGOING)
    move = requests.end(one, ME, commit=True, client_version=2, now_ms=50)
    assert move is not None and (move.producer_epoch, move.last_producer_epoch) == (4, 3)
    one.complete(move)
    assert one.producer_epoch == 4, "which the markers bear"
    one.partitions.clear()
    one.complete(one.prepare_complete(now_ms=60))
    assert (one.state, one.producer_epoch, one.client_version) == (COMPLETE_COMMIT, 4, 2)
    now = Producer(ME.id, 4)
    one.complete(one.prepare_add([("t", 0)], client_version=2, now_ms=70))
    move = requests.end(one, now, commit=True, now_ms=80)
    assert move is not None and (move.producer_epoch, move.client_version) == (4, 0)
    one.complete(move)
    one.partitions.clear()
    one.complete(one.prepare_complete(now_ms=90))
    assert requests.end(one, now, commit=True, now_ms=90) is None, "as version 0 has it"


def ended(one: Transaction, producer: Producer, drawn: int = -1) -> list[bytes]:
    """Ends a transaction to the last record; what the journal has of that."""
    records = []
    move = requests.end(one, producer, commit=True, client_version=2, next_producer_id=drawn, now_ms=50)
    assert move is not None
    records.append(record_of("tx", move)[1])
    one.complete(move)
    one.partitions.clear()
    move = one.prepare_complete(now_ms=60)
    records.append(record_of("tx", move)[1])
    one.complete(move)
    return records


def test_end_with_exhausted_epochs_assigns_a_new_producer_id() -> None:
    last = PRODUCER_EPOCH_MAX - 1
    mine = Producer(ME.id, last)
    one = of_version_2(ONGOING, producer_epoch=last)
    assert requests.wants_next_producer_id(one, mine, 2)
    assert not requests.wants_next_producer_id(one, mine, 0)
    assert not requests.wants_next_producer_id(one, Producer(ME.id, last - 1), 2)
    prepared, completed = (restore("tx", record) for record in ended(one, mine, drawn=2000))
    assert (prepared.producer_id, prepared.producer_epoch, prepared.next_producer_id) == (
        ME.id,
        PRODUCER_EPOCH_MAX,
        2000,
    )
    for after in (one, completed):
        assert (after.producer_id, after.producer_epoch, after.last_producer_id) == (2000, 0, ME.id)
        assert end(after, mine) is NONE, "asked again"
        assert end(after, mine, commit=False) is INVALID
        for never_told in (last - 1, PRODUCER_EPOCH_MAX):
            assert end(after, Producer(ME.id, never_told)) is MAPPING, "as in Kafka 4.2"
    again = requests.init_producer_id(one, mine, timeout_ms=9, new_producer_id=None, now_ms=70)
    assert (again.producer_id, again.producer_epoch) == (2000, 0), "the answer to its end was lost"
    move = prepared.prepare_complete(now_ms=70)
    assert (move.producer_id, move.producer_epoch) == (2000, 0), "the next coordinator goes on with that"


def test_repeated_end_is_recognized_after_a_replay() -> None:
    one = of_version_2(ONGOING)
    prepared, completed = (restore("tx", record) for record in ended(one, ME))
    assert (prepared.state, prepared.producer_epoch, prepared.client_version) == (PREPARE_COMMIT, 4, 2)
    assert end(prepared, ME) is CONCURRENT and end(completed, ME) is NONE
    plain = transaction(ONGOING)
    move = requests.end(plain, ME, commit=True, now_ms=50)
    assert move is not None and record_of("tx", move)[1][:2] == b"\0\0", "as Kafka 3.9 reads it"


def test_fence_bumps_the_epoch_once_in_either_version() -> None:
    for version in (0, 2):
        one = transaction(ONGOING, client_version=version)
        fence = one.prepare_fence()
        move = requests.end(
            one,
            Producer(fence.producer_id, fence.producer_epoch),
            commit=False,
            client_version=version,
            from_client=False,
            now_ms=50,
        )
        assert move is not None and move.producer_epoch == 4
        assert move.last_producer_epoch == (3 if version else -1), "who is late may go on, of version 2"


async def end_on(
    world: TransactionWorld, who: Identity, *, commit: bool = True, at: int = 1
) -> tuple[ErrorCode, Identity]:
    request = EndTxnRequest(transactional_id="tx", producer_id=who[0], producer_epoch=who[1], committed=commit)
    answer = await world.ask(request, version=5, at=at)
    return ErrorCode(answer.error_code), (answer.producer_id, answer.producer_epoch)


async def send(world: TransactionWorld, who: Identity, index: int, at: int, sequence: int = 0) -> ErrorCode:
    records = transactional_batch("v", producer=who, sequence=sequence)
    request = ProduceRequest(
        transactional_id="tx",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=index, records=records)])],
    )
    answer = await world.ask(request, version=12, at=at)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def epochs_of(world: TransactionWorld, index: int, leader: int) -> list[tuple[int, bool]]:
    """The epoch of each batch in a partition, and whether it is a marker."""
    log = world.partition(leader, "t", index).log
    return [(header.producer_epoch, header.is_control) for _, header in iter_batches(bytes(log.read(0, 1 << 30)))]


async def test_leaders_on_other_brokers_add_their_partitions() -> None:
    async with transaction_world(brokers=3, partitions=3) as world:
        me = await world.begin()
        for index, leader in ((0, 1), (1, 2), (2, 3)):
            assert await send(world, me, index, leader) is NONE
        assert (await world.describe()).topics[0].partitions == [0, 1, 2]
        code, after = await end_on(world, me)
        assert (code, after) == (NONE, (me[0], me[1] + 1))
        await world.reaches(COMPLETE_COMMIT)
        for index, leader in ((0, 1), (1, 2), (2, 3)):
            await until(lambda index=index, leader=leader: len(epochs_of(world, index, leader)) == 2)  # type: ignore[misc]
            assert epochs_of(world, index, leader) == [(me[1], False), (me[1] + 1, True)]
            assert await send(world, me, index, leader, sequence=1) is ErrorCode.INVALID_PRODUCER_EPOCH, "too late"


async def test_next_transaction_is_concurrent_until_the_previous_marker_is_written() -> None:
    """A batch before the marker would end with the previous transaction."""
    async with transaction_world(brokers=2, partitions=2) as world:
        me = await world.begin()
        assert await send(world, me, 0, 1) is NONE and await send(world, me, 1, 2) is NONE
        await without_leader(world, 1)
        code, after = await end_on(world, me)
        assert code is NONE
        await until(lambda: len(epochs_of(world, 0, 1)) == 2)
        assert await send(world, after, 0, 1) is CONCURRENT
        assert epochs_of(world, 0, 1) == [(me[1], False), (me[1] + 1, True)]
        await with_leader(world, 1, 2)
        await world.reaches(COMPLETE_COMMIT)
        assert await send(world, after, 0, 1) is NONE and await send(world, after, 1, 2) is NONE
        assert [epoch for epoch, _ in epochs_of(world, 1, 2)] == [me[1], me[1] + 1, after[1]]


async def test_next_transaction_may_start_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker arrives while the leader retries the verification."""
    monkeypatch.setattr(transaction_verification, "RETRIES_MS", 30_000)
    async with transaction_world(partitions=1) as world:
        me = await world.begin()
        assert await send(world, me, 0, 1) is NONE
        markers: Any = world.coordinator()._markers
        deliver, verified = markers._deliver, asyncio.Event()

        async def held(node: int, load: Any) -> None:
            await verified.wait()
            await deliver(node, load)

        monkeypatch.setattr(markers, "_deliver", held)
        code, after = await end_on(world, me)
        assert code is NONE
        following = asyncio.create_task(send(world, after, 0, 1))
        producers = world.partition(1, "t", 0).log.producers
        await until(lambda: producers._verifications.get(me[0]) is not None)
        verified.set()
        assert await following is NONE
        assert epochs_of(world, 0, 1) == [(me[1], False), (after[1], True), (after[1], False)]


async def test_abort_after_commit_is_concurrent_until_the_markers_are_written() -> None:
    async with transaction_world(brokers=2, partitions=2) as world:
        me = await world.begin()
        assert await send(world, me, 1, 2) is NONE
        await without_leader(world, 1)
        code, after = await end_on(world, me)
        assert code is NONE
        assert (await end_on(world, after, commit=False))[0] is CONCURRENT
        await with_leader(world, 1, 2)
        await world.reaches(COMPLETE_COMMIT)
        assert await end_on(world, after, commit=False) == (NONE, (after[0], after[1] + 1))


@pytest.mark.parametrize(("kafka_version", "cleared"), [("3.9", False), ("4.0", False), ("4.1", True)])
async def test_start_of_the_last_transaction_is_cleared_by_init_producer_id_of_kafka_4_1(
    kafka_version: str, cleared: bool
) -> None:
    async with transaction_world(kafka_version=kafka_version) as world:
        me = await world.begin()
        assert await world.add(me, 0) == [NONE] and await world.end(me) is NONE
        await world.reaches(COMPLETE_COMMIT)
        assert (await world.describe()).transaction_start_time_ms > 0
        await world.begin()
        assert ((await world.describe()).transaction_start_time_ms == -1) is cleared


@pytest.mark.parametrize(("kafka_version", "answer"), [("3.9", FENCED), ("4.2", NONE)])
async def test_fenced_producer_may_continue_with_version_2_of_transactions(
    kafka_version: str, answer: ErrorCode
) -> None:
    async with transaction_world(kafka_version=kafka_version) as world:
        me = await world.begin()
        assert await world.add(me, 0) == [NONE]
        assert (await world.init()).error_code == CONCURRENT
        await world.reaches(COMPLETE_ABORT)
        after = await world.init(known=me)
        assert after.error_code == answer
        assert (await world.describe()).producer_epoch == me[1] + 1
        assert world.markers(0) == [("ABORT", me[1] + 1, 0)]


@pytest.mark.parametrize(
    ("kafka_version", "answer"), [("3.9", FENCED), ("4.0", CONCURRENT), ("4.1", CONCURRENT), ("4.2", CONCURRENT)]
)
async def test_add_with_stale_epoch_before_all_markers_depends_on_the_kafka_version(
    kafka_version: str, answer: ErrorCode
) -> None:
    async with transaction_world(brokers=2, partitions=2, kafka_version=kafka_version) as world:
        me = await world.begin()
        assert await world.add(me, 1) == [NONE]
        await without_leader(world, 1)
        assert await world.end(me) is NONE
        stale = (me[0], me[1] - 1)
        assert await world.add(stale, 0) == [answer]
        assert await world.add_offsets(stale) is answer


async def test_batch_of_newer_epoch_in_an_open_transaction_is_refused() -> None:
    """Even if the coordinator confirms it: the leader sees the open transaction."""
    async with transaction_world(partitions=1) as world:
        me = await world.begin()
        assert await send(world, me, 0, 1) is NONE
        coordinator: Any = world.coordinator()
        transaction = coordinator.transaction("tx")
        transaction.producer_epoch += 1
        assert await send(world, (me[0], me[1] + 1), 0, 1) is CONCURRENT
        transaction.producer_epoch -= 1
        assert (await end_on(world, me))[0] is NONE


@pytest.mark.parametrize("commit", [True, False])
async def test_repeated_end_is_recognized_by_the_next_coordinator(commit: bool) -> None:
    async with transaction_world(brokers=3, partitions=2) as world:
        me = await world.begin()
        assert await send(world, me, 0, 1) is NONE and await send(world, me, 1, 2) is NONE
        await without_leader(world, 1)
        code, after = await end_on(world, me, commit=commit)
        assert code is NONE
        await until(lambda: "txn:after-some-markers" in world.steps)
        await world.kill(1)
        await world.coordinate(2, isr=(2, 3))
        assert (await end_on(world, me, commit=commit, at=2))[0] is CONCURRENT
        await with_leader(world, 0, 2)
        await with_leader(world, 1, 3)
        await world.reaches(COMPLETE_COMMIT if commit else COMPLETE_ABORT, at=2)
        kind = "COMMIT" if commit else "ABORT"
        assert [(what, epoch) for what, epoch, _ in world.markers(0)] == [(kind, after[1])] * 2, "twice does no harm"
        assert await end_on(world, me, commit=commit, at=2) == (NONE, after)
        assert await send(world, after, 0, 2) is NONE


async def test_produce_without_coordinator_is_retriable() -> None:
    async with transaction_world(brokers=2, partitions=1) as world:
        me = await world.begin()
        await without_leader(world, 0, "__transaction_state")
        assert await send(world, me, 0, 1) is ErrorCode.NOT_ENOUGH_REPLICAS
        await world.coordinate(2)
        async with asyncio.timeout(30):
            while await send(world, me, 0, 1) is not NONE:
                pass


def test_first_batch_of_a_partition_added_by_the_leader_has_sequence_0() -> None:
    from anabranch.broker.storage.producer_state import ProducerStates
    from anabranch.protocol.records.batch import read_header

    states = ProducerStates()
    verification = states.begin_verification(7, 0, 3, 0, adds=True)
    header = read_header(transactional_batch("v", producer=(7, 0), sequence=3))
    with pytest.raises(KafkaError) as refused:
        states.check(header, from_client=True, verification=verification, verified_only=True)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
