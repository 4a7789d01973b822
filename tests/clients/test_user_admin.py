"""A new password authenticates its user at every broker, a wrong one does not, and none is sent or stored.

Method: a cluster whose listener takes SCRAM, and clients that log in as the user while it changes.
"""

from __future__ import annotations

import pytest

from anabranch import Admin, ErrorCode, KafkaError
from anabranch.clients.authentication import AuthenticationFailed
from anabranch.clients.connection import Connection
from anabranch.clients.security import Security
from anabranch.cluster.in_process import Cluster
from tests.broker.serving import until
from tests.secured.certificates import plain_users

PROPERTIES = {
    **plain_users("SASL_PLAINTEXT", admin="a"),
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
}
ADMIN = Security(None, "PLAIN", "admin", "a")


async def logs_in(cluster: Cluster, node_id: int, mechanism: str, password: str) -> bool:
    security = Security(None, mechanism, "al=ice,", password)
    try:
        connection = await Connection.open(*cluster.address(node_id), client_id="t", security=security)
    except AuthenticationFailed:
        return False
    await connection.close()
    return True


async def test_password_is_valid_at_every_broker_until_changed_or_deleted() -> None:
    async with (
        Cluster(2, listeners=["SASL_PLAINTEXT://127.0.0.1:0"], properties=PROPERTIES) as cluster,
        Admin(cluster.bootstrap_servers, security=ADMIN) as admin,
    ):
        caches = [node._credentials for node in cluster.nodes.values()]

        def known(mechanism: str) -> list[object]:
            return [one.of(mechanism, "al=ice,") for one in caches if one is not None]

        await admin.set_password("al=ice,", "first")
        assert await admin.describe_users() == {"al=ice,": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}}
        await until(lambda: all(known("SCRAM-SHA-512")))
        for node_id in (1, 2):
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                assert await logs_in(cluster, node_id, mechanism, "first")
                assert not await logs_in(cluster, node_id, mechanism, "second")
        before = known("SCRAM-SHA-256")
        await admin.set_password("al=ice,", "second", mechanisms=["SCRAM-SHA-256"], iterations=5000)
        await until(lambda: all(a != b for a, b in zip(before, known("SCRAM-SHA-256"), strict=True)))
        assert await logs_in(cluster, 2, "SCRAM-SHA-256", "second")
        assert await logs_in(cluster, 2, "SCRAM-SHA-512", "first")
        await admin.delete_user("al=ice,")
        await until(lambda: not any(known("SCRAM-SHA-256") + known("SCRAM-SHA-512")))
        assert not await logs_in(cluster, 1, "SCRAM-SHA-256", "second")
        await cluster.stop_broker(2)
        await cluster.start_broker(2)
        assert not await logs_in(cluster, 2, "SCRAM-SHA-512", "first")
        with pytest.raises(KafkaError) as caught:
            await admin.describe_users(["al=ice,"])
        assert caught.value.code is ErrorCode.RESOURCE_NOT_FOUND
        with pytest.raises(ValueError, match="is not one of SCRAM-SHA-256"):
            await admin.set_password("al=ice,", "x", mechanisms=["PLAIN"])


async def test_deletion_whose_response_is_lost_succeeds() -> None:
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.set_password("alice", "secret")
        lost = cluster.faults.add(api="AlterUserScramCredentials", times=1, disconnect="after")
        await admin.delete_user("alice", mechanisms=["SCRAM-SHA-256"])
        assert lost.hits == 1 and await admin.describe_users() == {"alice": {"SCRAM-SHA-512": 4096}}
        with pytest.raises(KafkaError) as refused:
            await admin.delete_user("alice", mechanisms=["SCRAM-SHA-256"])
        assert refused.value.code is ErrorCode.RESOURCE_NOT_FOUND
