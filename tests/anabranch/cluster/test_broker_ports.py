"""Behind a NAT clients are told another port than brokers listen on, which brokers themselves may not reach."""

from __future__ import annotations

import pytest

from anabranch.broker.config.broker_settings import ConfigError
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.metadata import MetadataRequest


async def told(cluster: Cluster, node_id: int) -> list[tuple[int, str, int]]:
    """The brokers that a client learns from Metadata, at the port where a broker really listens."""
    connection = await Connection.open("127.0.0.1", cluster.nodes[node_id].port, client_id="t")
    try:
        answer = await connection.call(MetadataRequest(topics=[]))
    finally:
        await connection.close()
    return sorted((one.node_id, one.host, one.port) for one in answer.brokers)


async def test_clients_get_mapped_ports_and_brokers_do_not_use_them() -> None:
    """The advertised host leads nowhere: brokers that used it would not find each other."""
    async with Cluster(3, advertised_host="nat.invalid", advertised_port=29092) as cluster:
        mapped = [(number, "nat.invalid", 29091 + number) for number in (1, 2, 3)]
        assert await told(cluster, 1) == await told(cluster, 3) == mapped
        assert cluster.bootstrap_servers == "nat.invalid:29092,nat.invalid:29093,nat.invalid:29094"
        between, _ = cluster.inter_broker_security
        assert all(address.startswith("127.0.0.1:") for address in between.split(","))
        await cluster.crash_broker(2)
        await cluster.start_broker(2)
        assert await told(cluster, 2) == mapped


async def test_ports_follow_the_first_on_both_sides() -> None:
    cluster = Cluster(2, port=9092, advertised_host="::1", advertised_port=443, properties={"broker.id": "0"})
    listeners = [cluster._settings[one].first_listener for one in cluster.node_ids]
    told_ports = [(one.port, one.advertised_port) for one in listeners]
    assert told_ports == [(9092, 443), (9093, 444)]
    assert cluster.bootstrap_servers == "[::1]:443,[::1]:444"


@pytest.mark.parametrize(
    "wrong",
    [{"advertised_port": 443}, {"advertised_port": 443, "advertised_host": "h", "listeners": ["A://127.0.0.1:1"]}],
)
def test_mapped_port_without_host_or_with_several_listeners_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="an advertised port needs an advertised host"):
        Cluster(1, **wrong)  # type: ignore[arg-type]
