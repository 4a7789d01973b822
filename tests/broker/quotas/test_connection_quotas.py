"""Connection creation rates: arithmetic, real sockets, and changes at run time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.network.connection import BrokerConnection
from anabranch.broker.quotas.client_quotas import DEFAULT
from anabranch.broker.quotas.connection_quotas import UNLIMITED, ConnectionQuotas
from anabranch.broker.quotas.quota_configs import IP
from anabranch.clients.admin import Admin
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from anabranch.protocol.errors import ErrorCode
from tests.broker.quotas.test_quota_configs import alter, connect
from tests.broker.serving import Peer, peer, request_frame, serving, until

API_VERSIONS_V0 = request_frame(18, 0)
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"


def quotas(**limits: float) -> ConnectionQuotas:
    """Two windows of a second: a rate is what came in the last second or two, per second."""
    return ConnectionQuotas(window_ms=1000, samples=2, **limits)


# --- the arithmetic ----------------------------------------------------------------------------------------------


def test_connection_rate_is_not_measured_without_a_limit() -> None:
    one = quotas()
    assert [one.active] == [False]
    assert {one.wait_ms(0) for _ in range(100)} == {one.hold_ms(HERE, 0) for _ in range(100)} == {0}
    one.per_second = 1
    assert [one.active, one.wait_ms(0)] == [True, 0], "what came before counts for nothing"


def test_connections_over_the_broker_rate_wait_at_most_one_window() -> None:
    one = quotas(per_second=2)
    assert [one.wait_ms(0), one.wait_ms(0), one.wait_ms(0), one.wait_ms(0)] == [0, 0, 500, 1000]
    assert one.wait_ms(0) == 1000, "1500 ms would bring the rate back"
    assert one.wait_ms(5000) == 0


def test_connections_over_the_ip_rate_are_delayed_and_not_counted() -> None:
    one = quotas(per_second=4)
    one.set_address_limits({HERE: 2, DEFAULT: 2})
    assert [(one.wait_ms(0), one.hold_ms(HERE, 0)) for _ in range(5)] == [*[(0, 0)] * 2, *[(0, 500)] * 3]
    assert [(one.wait_ms(0), one.hold_ms(ELSEWHERE, 0)) for _ in range(2)] == [(0, 0), (0, 0)]
    assert one.hold_ms(ELSEWHERE, 0) == 500 and one.hold_ms("127.0.0.3", 0) == 0, "each has the default for itself"
    assert one.hold_ms(HERE, 1500) == 0, "it waited"
    one.set_address_limits({DEFAULT: 1})
    assert one.hold_ms(HERE, 1500) == 1000, "the default is its limit now"
    one.set_address_limits({})
    assert {one.hold_ms(HERE, 2000) for _ in range(100)} == {0}


def test_ip_rate_of_zero_refuses_connections() -> None:
    one = quotas()
    one.set_address_limits({HERE: 0})
    assert one.hold_ms(HERE, 0) == one.hold_ms(HERE, 10_000) == 1000


def test_listener_between_brokers_is_exempt_from_the_broker_rate() -> None:
    one = quotas(per_second=2, exempt="INTERNAL")
    assert [one.wait_ms(0, "EXTERNAL") for _ in range(4)] == [0, 0, 500, 1000]
    assert {one.wait_ms(0, "INTERNAL") for _ in range(100)} == {0}
    assert one.wait_ms(5000, "EXTERNAL") == 0, "those of brokers do not count"


def test_listener_has_its_own_rate() -> None:
    one = quotas(exempt="INTERNAL")
    one.listener_limits = {"INTERNAL": 2}
    assert one.active
    assert [one.wait_ms(0, "INTERNAL") for _ in range(4)] == [0, 0, 500, 1000]
    assert {one.wait_ms(0, "EXTERNAL") for _ in range(100)} == {0}
    one.per_second = 4
    one.set_address_limits({HERE: 0})
    assert one.hold_ms(HERE, 0, "INTERNAL") == 1000
    assert [one.wait_ms(0, "EXTERNAL") for _ in range(5)] == [0, 0, 0, 0, 250], "what is refused does not count"


# --- at a server -------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def peer_at(address: str, port: int) -> AsyncIterator[Peer]:
    """A raw connection from another address of this machine."""
    reader, writer = await asyncio.open_connection(HERE, port, local_addr=(address, 0))
    one = Peer(reader, writer)
    try:
        yield one
    finally:
        await one.close()


async def test_connections_over_the_broker_rate_are_served_later_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served: list[tuple[str, float]] = []
    serve = BrokerConnection.serve

    def noting(connection: BrokerConnection) -> None:
        served.append((str(connection.peer), asyncio.get_running_loop().time()))
        serve(connection)

    monkeypatch.setattr(BrokerConnection, "serve", noting)
    began = asyncio.get_running_loop().time()
    # Over a minute, so that a slow machine changes nothing: three are within the limit, the others wait a second.
    async with serving(quota_window_num=61, quota_window_size_seconds=1) as server:
        server.connection_quotas.per_second = 0.05
        async with contextlib.AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(peer(server.port)) for _ in range(5)]
            for one in reversed(peers):
                one.send(API_VERSIONS_V0)
            for one in reversed(peers):
                await one.frame()
            names = [one.writer.get_extra_info("sockname") for one in peers]
    assert [name for name, _ in served] == [f"{host}:{port}" for host, port in names]
    times = [at for _, at in served]
    assert times[3] - began >= 0.99 and times[4] - times[3] >= 0.99


async def test_connection_over_the_ip_rate_is_closed_unprocessed() -> None:
    # Over a minute, so that a slow machine changes nothing: three are within the limit, and a fourth is not.
    async with serving(quota_window_num=61, quota_window_size_seconds=1) as server:
        server.connection_quotas.set_address_limits({HERE: 0.05})
        async with peer_at(ELSEWHERE, server.port) as other, contextlib.AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(peer(server.port)) for _ in range(4)]
            for one in (*peers, other):
                one.send(API_VERSIONS_V0)
            for one in (*peers[:-1], other):
                await one.frame()
            assert await peers[-1].closed()
            await until(lambda: server.connection_count == 4)
            server.connection_quotas.set_address_limits({})
            async with peer(server.port) as late:
                late.send(API_VERSIONS_V0)
                await late.frame()


async def test_server_stops_with_delayed_connections() -> None:
    async with serving(quota_window_num=2, quota_window_size_seconds=60) as server:
        server.connection_quotas.per_second = 0
        async with peer(server.port) as one, peer(server.port) as two, peer(server.port) as gone:
            await until(lambda: server.connection_count == 3)
            await gone.close()
            await server.stop()
            assert await one.closed() and await two.closed()
            assert server.connection_count == 0


async def test_max_connections_per_ip_is_enforced() -> None:
    bounds = {"max_connections_per_ip": 2, "max_connections_per_ip_overrides": (f"{ELSEWHERE}:1",)}
    async with serving(**bounds) as server, contextlib.AsyncExitStack() as stack:

        async def connect_from(address: str) -> Peer:
            one = await stack.enter_async_context(peer_at(address, server.port))
            one.send(API_VERSIONS_V0)
            return one

        inside = [await connect_from(address) for address in (HERE, HERE, ELSEWHERE, "127.0.0.3")]
        for one in inside:
            await one.frame()
        for address in (HERE, ELSEWHERE):
            assert await (await connect_from(address)).closed()
        await inside[0].close()
        await until(lambda: server.connection_count == 3)
        await (await connect_from(HERE)).frame()
        server.add_connection(
            BrokerSettings(max_connections_per_ip=1, max_connections_per_ip_overrides=(f"{ELSEWHERE}:2",))
        )
        await (await connect_from(ELSEWHERE)).frame()
        assert await (await connect_from("127.0.0.3")).closed()
        await until(lambda: server.connection_count == 5)


# --- in a cluster ------------------------------------------------------------------------------------------------


async def test_connection_quotas_can_be_changed_dynamically() -> None:
    async with Cluster(brokers=2) as cluster, asyncio.timeout(60):
        connection = await connect(cluster)
        rates = [node.server.connection_quotas for node in cluster.nodes.values()]
        await alter(connection, {IP: None}, connection_creation_rate=1000)
        await alter(connection, {IP: HERE}, connection_creation_rate=0)
        await until(lambda: all(one._limits == {DEFAULT: 1000, HERE: 0} for one in rates))
        for node in cluster.nodes.values():
            async with peer(node.port) as shut_out, peer_at(ELSEWHERE, node.port) as other:
                for one in (shut_out, other):
                    one.send(API_VERSIONS_V0)
                await other.frame()
                assert await shut_out.closed()
        await alter(connection, {IP: HERE}, connection_creation_rate=None)
        await alter(connection, {IP: None}, connection_creation_rate=None)
        await until(lambda: not any(one.active for one in rates))
        for value, limit in (("70", 70), (None, UNLIMITED)):
            config = AlterableConfig(
                name="max.connection.creation.rate", config_operation=0 if value else 1, value=value
            )
            resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
            said = await connection.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
            assert said.responses[0].error_code == 0
            await until(lambda limit=limit: all(one.per_second == limit for one in rates), 30)  # type: ignore[misc]
        async with Admin(f"{HERE}:{cluster.nodes[2].port}") as admin:
            await admin.list_topics()
        await connection.close()


async def test_limits_of_a_listener_can_be_changed_dynamically() -> None:
    async with Cluster(brokers=2) as cluster, asyncio.timeout(60):
        connection = await connect(cluster)
        first, second = (cluster.nodes[number].server for number in (1, 2))
        name = "listener.name.plaintext.max.connection.creation.rate"
        for broker, value, code in (
            ("1", "many", ErrorCode.INVALID_REQUEST),
            ("", "many", ErrorCode.INVALID_REQUEST),
            ("", "50", ErrorCode.NONE),
            ("1", "70", ErrorCode.NONE),
        ):
            config = AlterableConfig(name=name, config_operation=0, value=value)
            resource = AlterConfigsResource(resource_type=4, resource_name=broker, configs=[config])
            said = await connection.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
            assert said.responses[0].error_code == code, (broker, value)
        await until(lambda: first.connection_quotas.listener_limits == {"PLAINTEXT": 70})
        await until(lambda: second.connection_quotas.listener_limits == {"PLAINTEXT": 50})
        await connection.close()
