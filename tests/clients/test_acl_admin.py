"""ACLs through `Admin`, and its refusals."""

from __future__ import annotations

import pytest

from anabranch import Admin
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.acls import MATCH, Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from anabranch.protocol.acls import ResourcePattern as Pattern
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.handlers.authorizing import ADMIN, ALICE, LISTENER, PROPERTIES

ORDERS = Pattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED)
READER = Acl("User:alice", "*", Operation.READ, Permission.ALLOW)


async def test_acls_are_created_described_and_deleted() -> None:
    async with (
        Cluster(1, listeners=[f"{LISTENER}://127.0.0.1:0"], properties=PROPERTIES) as cluster,
        Admin(cluster.bootstrap_servers, **ADMIN) as admin,
        Admin(cluster.bootstrap_servers, **ALICE) as alice,
    ):
        await admin.create_acls([(ORDERS, READER)])
        await admin.create_acls([(ORDERS, READER)])
        falls_under = AclFilter(resource_type=ResourceType.TOPIC, name="orders", pattern_type=MATCH)
        assert await admin.describe_acls(falls_under) == [(ORDERS, READER)]
        assert await admin.describe_acls(AclFilter(name="other", pattern_type=MATCH)) == []
        for refused in (alice.describe_acls(), alice.create_acls([(ORDERS, READER)]), alice.delete_acls(AclFilter())):
            with pytest.raises(KafkaError) as error:
                await refused
            assert error.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        with pytest.raises(KafkaError, match="only valid name for the CLUSTER resource"):
            await admin.create_acls([(Pattern(ResourceType.CLUSTER, "mine"), READER)])
        assert await admin.delete_acls(falls_under, AclFilter()) == [(ORDERS, READER)]
        assert await admin.describe_acls() == []


async def test_cluster_without_authorizer_refuses_with_security_disabled() -> None:
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        for refused in (admin.describe_acls(), admin.create_acls([(ORDERS, READER)]), admin.delete_acls(AclFilter())):
            with pytest.raises(KafkaError) as error:
                await refused
            assert error.value.code is ErrorCode.SECURITY_DISABLED
