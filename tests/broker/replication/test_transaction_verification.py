"""Verification at transaction coordinators: few requests, and one result for each waiter."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from anabranch.broker.dispatch.request_context import RequestContext
from anabranch.broker.replication.transaction_verification import Transaction, VerifiedPartitions
from anabranch.protocol.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.control import build_end_transaction
from anabranch.protocol.registry import BY_NAME
from tests.broker.replication.replica_cluster import ReplicaCluster, replica_cluster, until
from tests.broker.transactions import coordinate_transactions

TOPICS = ("t", "u")


async def led(cluster: ReplicaCluster) -> None:
    for topic in TOPICS:
        await cluster.lead(1, replicas=(1,), topic=topic)


def ask(
    cluster: ReplicaCluster, topics: Iterable[str], transactional_id: str = "tx", *, pid: int = 7, epoch: int = 0
) -> asyncio.Task[VerifiedPartitions]:
    wanted = [(cluster.partition(1, topic), 0) for topic in topics]
    transaction = Transaction(transactional_id, pid, epoch)
    return asyncio.create_task(cluster[1].replicas.verifier.verify(transaction, wanted))


def code_of(cluster: ReplicaCluster, verified: VerifiedPartitions, topic: str) -> ErrorCode:
    try:
        verified.check(topic, 0)
        assert cluster.partition(1, topic) in verified.verifications
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


async def test_verifications_during_a_request_are_batched() -> None:
    async with replica_cluster(1) as cluster:
        await led(cluster)
        coordinator = await coordinate_transactions(cluster, 1)
        coordinator.ongoing = {name: {("t", 0), ("u", 0)} for name in ("tx", "other", "third")}
        coordinator.hold = asyncio.Event()
        first = ask(cluster, ["t"])
        await until(lambda: len(coordinator.asked) == 1)
        rest = [
            ask(cluster, ["u"]),
            ask(cluster, ["t"], "other", pid=8),
            ask(cluster, ["t"]),
            ask(cluster, ["t"], "third", pid=9),
        ]
        await asyncio.sleep(0)
        coordinator.hold.set()
        for task, topic in zip([first, *rest], "tuttt", strict=True):
            assert code_of(cluster, await task, topic) is ErrorCode.NONE
        assert coordinator.questions == [
            ("tx", 0, [("t", 0)]),
            ("tx", 0, [("u", 0), ("t", 0)]),
            ("other", 0, [("t", 0)]),
            ("third", 0, [("t", 0)]),
        ]
        assert len(coordinator.asked) == 2


async def test_partition_with_a_later_epoch_refuses_the_producer_without_a_request() -> None:
    async with replica_cluster(1) as cluster:
        await led(cluster)
        coordinator = await coordinate_transactions(cluster, 1)
        coordinator.ongoing = {"tx": {("t", 0), ("u", 0)}}
        marker = build_end_transaction(
            commit=True, producer_id=7, producer_epoch=1, coordinator_epoch=0, timestamp_ms=0
        )
        cluster[1].replicas.append_local(
            cluster.partition(1, "t"), marker, acks=1, generation=None, origin="coordinator"
        )
        verified = await ask(cluster, ["t", "u"])
        assert code_of(cluster, verified, "t") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert code_of(cluster, verified, "u") is ErrorCode.NONE
        assert coordinator.questions == [("tx", 0, [("u", 0)])]


@pytest.mark.parametrize(
    ("newcomer", "codes"),
    [
        ({"epoch": 6}, ("INVALID_PRODUCER_EPOCH", "NONE")),
        ({"epoch": 4}, ("NONE", "INVALID_PRODUCER_EPOCH")),
        ({"pid": 8, "epoch": 0}, ("NETWORK_EXCEPTION", "NONE")),
    ],
)
async def test_one_epoch_of_a_producer_is_verified_at_a_time(newcomer: dict[str, int], codes: tuple[str, str]) -> None:
    async with replica_cluster(1) as cluster:
        await led(cluster)
        coordinator = await coordinate_transactions(cluster, 1, [("t", 0), ("u", 0)])
        coordinator.hold = asyncio.Event()
        busy = ask(cluster, ["u"], "busy", pid=1)
        await until(lambda: len(coordinator.asked) == 1)
        waiting, coming = ask(cluster, ["t"], epoch=5), ask(cluster, ["u"], **newcomer)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        coordinator.hold.set()
        await busy
        found = (code_of(cluster, await waiting, "t"), code_of(cluster, await coming, "u"))
        assert tuple(code.name for code in found) == codes


async def test_failing_or_silent_coordinator_is_retriable() -> None:
    async with replica_cluster(2) as cluster:
        await led(cluster)
        coordinator = await coordinate_transactions(cluster, 2, [("t", 0)])
        coordinator.refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert code_of(cluster, await ask(cluster, ["t"]), "t") is ErrorCode.INVALID_TXN_STATE
        coordinator.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert code_of(cluster, await ask(cluster, ["t"]), "t") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        coordinator.refusal, coordinator.silent = ErrorCode.NONE, True
        assert code_of(cluster, await ask(cluster, ["t"]), "t") is ErrorCode.UNKNOWN_SERVER_ERROR
        coordinator.silent, coordinator.hold = False, asyncio.Event()
        request_count = len(coordinator.asked)
        waiting = ask(cluster, ["t"])
        await until(lambda: len(coordinator.asked) > request_count)
        await cluster.kill(2)
        assert code_of(cluster, await waiting, "t") is ErrorCode.NETWORK_EXCEPTION
        await cluster.start(2)
        coordinator = await coordinate_transactions(cluster, 2, [("t", 0)])
        assert code_of(cluster, await ask(cluster, ["t"]), "t") is ErrorCode.NONE, "it is found at its new address"


@pytest.mark.parametrize("nothing", [True, False])
async def test_coordinator_without_verification_support_confirms_every_producer(nothing: bool) -> None:
    async with replica_cluster(1) as cluster:
        await led(cluster)
        await coordinate_transactions(cluster, 1)

        async def old(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
            spoken = {"ApiVersions": 4} if nothing else {"ApiVersions": 4, "AddPartitionsToTxn": 3}
            keys = [
                ApiVersion(api_key=BY_NAME[name].key, min_version=0, max_version=last) for name, last in spoken.items()
            ]
            return ApiVersionsResponse(error_code=0, api_keys=keys)

        cluster[1].server.dispatcher._handlers[BY_NAME["ApiVersions"].key] = old
        assert code_of(cluster, await ask(cluster, ["t"]), "t") is ErrorCode.NONE


async def test_stopping_broker_fails_pending_verifications() -> None:
    async with replica_cluster(2) as cluster:
        await led(cluster)
        coordinator = await coordinate_transactions(cluster, 2, [("t", 0)])
        coordinator.hold = asyncio.Event()
        asked, waiting = ask(cluster, ["t"]), ask(cluster, ["t"], "other", pid=8)
        await until(lambda: len(coordinator.asked) == 1)
        connection = cluster[1].replicas.verifier._lanes[2]._connection
        await cluster.kill(1)
        for task in (asked, waiting):
            assert (await task).refused["t", 0] is ErrorCode.NETWORK_EXCEPTION
        assert connection is not None and connection.closed


async def test_verification_after_the_stop_fails_without_a_request() -> None:
    async with replica_cluster(1) as cluster:
        await led(cluster)
        coordinator = await coordinate_transactions(cluster, 1)
        coordinator.ongoing = {"tx": {("t", 0)}}
        await cluster[1].replicas.verifier.close()
        assert code_of(cluster, await ask(cluster, ["t"]), "t") is ErrorCode.NETWORK_EXCEPTION
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("verification")]
        assert coordinator.asked == []
