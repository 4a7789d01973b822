"""A broker with an authorizer, whose listener wants a password: its administrator, and alice, who needs rights."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from anabranch import Admin, NewTopic
from anabranch.clients.connection import Connection
from anabranch.clients.security import SecurityArguments
from anabranch.clients.security_config import make_security
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.acls import Acl, AclFilter, Operation, Permission, ResourcePattern, ResourceType
from anabranch.protocol.connection import NODE_SOFTWARE
from anabranch.protocol.errors import ErrorCode
from tests.broker.handlers.authorization_rows import NAMES, Row, partitions, request_for
from tests.contracts.error_codes import codes_in
from tests.secured.certificates import plain_users

LISTENER = "SASL_PLAINTEXT"
AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:admin"}
SMALL = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
ALL_GROUPS = {"group.coordinator.rebalance.protocols": "classic,consumer,share,streams"}
PROPERTIES = {**plain_users(LISTENER, admin="a", alice="b"), **AUTHORIZER, **SMALL, **ALL_GROUPS}
ADMIN: SecurityArguments = {
    "security_protocol": LISTENER,
    "sasl_plain_username": "admin",
    "sasl_plain_password": "a",
}
ALICE: SecurityArguments = {
    "security_protocol": LISTENER,
    "sasl_plain_username": "alice",
    "sasl_plain_password": "b",
}
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Asking:
    """A broker's administrator, and alice's connection to it."""

    def __init__(self, admin: Admin, alice: Connection) -> None:
        self.admin, self.alice = admin, alice

    async def grant(self, *rights: tuple[Operation, ResourceType]) -> None:
        """Give alice these rights, and no others."""
        await self.admin.delete_acls(AclFilter())
        await self.admin.create_acls(
            [
                (ResourcePattern(kind, NAMES[kind]), Acl("User:alice", "*", operation, Permission.ALLOW))
                for operation, kind in rights
            ]
        )

    async def ask(self, asked: Row) -> set[int]:
        """The codes of the answer to alice."""
        request = request_for(asked.api, asked.body)
        return codes_in(await self.alice.call(request, version=asked.version))


async def coordinating(host: str, port: int) -> None:
    """Wait until the broker coordinates the group, which has an offset then, and the transactional id."""
    connection = await Connection.open(host, port, client_id="admin", security=make_security(**ADMIN))
    for kind, key in ((0, "g"), (1, "x")):
        request = request_for("FindCoordinator", {"coordinator_keys": [key], "key_type": kind})
        while codes_in(await connection.call(request)) != {0}:
            pass
    committing = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": partitions(committed_offset=0)}
    while codes_in(await connection.call(request_for("OffsetCommit", committing), version=2)) != {0}:
        pass
    await connection.close()


class Place(Asking):
    """The same, and the cluster."""

    def __init__(self, cluster: Cluster, admin: Admin, alice: Connection) -> None:
        super().__init__(admin, alice)
        self.cluster = cluster


@pytest.fixture
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A parameter is the version of Kafka that the broker shows."""
    async with (
        Cluster(
            1, kafka=getattr(request, "param", "3.9"), listeners=[f"{LISTENER}://127.0.0.1:0"], properties=PROPERTIES
        ) as cluster,
        Admin(cluster.bootstrap_servers, **ADMIN) as admin,
    ):
        await admin.create_topics([NewTopic(name="t"), NewTopic(name="hidden")])
        await admin.wait_for_topic("t")
        await coordinating(*cluster.address(1))
        alice = await Connection.open(
            *cluster.address(1), client_id="alice", security=make_security(**ALICE), software_name=NODE_SOFTWARE
        )
        yield Place(cluster, admin, alice)
        await alice.close()
