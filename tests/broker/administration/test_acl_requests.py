"""Invalid ACL requests close the connection or are refused, as in Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch import Admin
from anabranch.clients.connection import Connection
from anabranch.clients.security_config import make_security
from anabranch.cluster.in_process import Cluster
from anabranch.controller.zk import acl_znodes
from anabranch.protocol.acls import Acl, AclFilter, Operation, Permission, ResourcePattern, ResourceType
from anabranch.protocol.errors import ErrorCode
from tests.broker.handlers.authorization_rows import request_for
from tests.broker.handlers.authorizing import ADMIN, LISTENER, PROPERTIES

ENTRY = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
FILTER = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
TOPIC = ResourcePattern(ResourceType.TOPIC, "t")


def reader(user: str) -> Acl:
    return Acl(f"User:{user}", "*", Operation.READ, Permission.ALLOW)


@pytest.fixture
async def cluster() -> Any:
    async with Cluster(1, listeners=[f"{LISTENER}://127.0.0.1:0"], properties=PROPERTIES) as one:
        yield one


async def ask(cluster: Cluster, api: str, version: int | None = None, **body: Any) -> Any:
    connection = await Connection.open(*cluster.address(1), client_id="test", security=make_security(**ADMIN))
    try:
        return await connection.call(request_for(api, body), version=version)
    finally:
        await connection.close()


OF_FILTERS = {"resource_type": "resource_type_filter", "resource_pattern_type": "pattern_type_filter"}
FIELDS = pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])


@FIELDS
async def test_unknown_enum_value_zero_closes_connection(cluster: Cluster, field: str) -> None:
    with pytest.raises(ConnectionError):
        await ask(cluster, "CreateAcls", creations=[{**ENTRY, field: 0}])
    wrong = {**FILTER, OF_FILTERS.get(field, field): 0}
    with pytest.raises(ConnectionError):
        await ask(cluster, "DeleteAcls", filters=[wrong])
    with pytest.raises(ConnectionError):
        await ask(cluster, "DescribeAcls", **wrong)
    assert (await ask(cluster, "DescribeAcls", **FILTER)).resources == []


@FIELDS
async def test_undefined_enum_value_is_not_created_and_matches_no_acl(cluster: Cluster, field: str) -> None:
    for number in (99, -1):
        answer = await ask(cluster, "CreateAcls", creations=[{**ENTRY, field: number}, ENTRY])
        assert [one.error_code for one in answer.results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
        wrong = {**FILTER, "resource_name_filter": "t", OF_FILTERS.get(field, field): number}
        assert (await ask(cluster, "DescribeAcls", **wrong)).resources == []
        (deleted,) = (await ask(cluster, "DeleteAcls", filters=[wrong])).filter_results
        assert (deleted.error_code, deleted.matching_acls) == (ErrorCode.NONE, [])
    assert len((await ask(cluster, "DescribeAcls", **FILTER)).resources) == 1


async def test_invalid_acl_creation_fails_without_failing_the_others(cluster: Cluster) -> None:
    wrong: list[dict[str, Any]] = [
        {"resource_type": 4, "resource_name": "another-cluster"},
        {"resource_name": ""},
        {"resource_name": "a/b"},
    ]
    creations = [*({**ENTRY, **one} for one in wrong), ENTRY, ENTRY]
    answer = await ask(cluster, "CreateAcls", creations=creations)
    codes = [one.error_code for one in answer.results]
    assert codes == [ErrorCode.INVALID_REQUEST] * len(wrong) + [ErrorCode.NONE, ErrorCode.NONE]
    assert answer.results[0].error_message == "The only valid name for the CLUSTER resource is kafka-cluster"


@FIELDS
async def test_filter_only_enum_value_fails_the_whole_create_request(cluster: Cluster, field: str) -> None:
    answer = await ask(cluster, "CreateAcls", creations=[ENTRY, {**ENTRY, field: 1}])
    assert [one.error_code for one in answer.results] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert (await ask(cluster, "DescribeAcls", **FILTER)).resources == []


@pytest.mark.parametrize("name", [".", "..", "a\0b", "a\x1fb", "a\x85b", "a\ue000b", "a\uffffb", "😀"])
async def test_resource_name_invalid_as_znode_name_is_refused(cluster: Cluster, name: str) -> None:
    wrong = {**ENTRY, "resource_name": name}
    answer = await ask(cluster, "CreateAcls", creations=[wrong, ENTRY])
    assert [one.error_code for one in answer.results] == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
    named = {**FILTER, "resource_type_filter": 2, "resource_name_filter": name}
    assert (await ask(cluster, "DeleteAcls", filters=[named])).filter_results[0].matching_acls == []
    assert [one.resource_name for one in (await ask(cluster, "DescribeAcls", **FILTER)).resources] == ["t"]


async def test_principal_without_type_fails_the_creations_of_its_resource(cluster: Cluster) -> None:
    creations = [{**ENTRY, "principal": "alice"}, ENTRY, {**ENTRY, "resource_name": "other"}]
    answer = await ask(cluster, "CreateAcls", creations=creations)
    assert [one.error_code for one in answer.results] == [-1, -1, 0]


async def test_acl_is_deleted_by_the_first_matching_filter(cluster: Cluster) -> None:
    async with Admin(cluster.bootstrap_servers, **ADMIN) as admin:
        await admin.create_acls([(TOPIC, reader("a")), (TOPIC, reader("b"))])
        of_a = {**FILTER, "principal_filter": "User:a"}
        answer = await ask(cluster, "DeleteAcls", filters=[of_a, FILTER, FILTER])
        gone = [[one.principal for one in each.matching_acls] for each in answer.filter_results]
        assert gone == [["User:a"], ["User:b"], []]
        assert await admin.describe_acls() == []


async def test_version_0_describes_literal_patterns_only(cluster: Cluster) -> None:
    creation = {**ENTRY, "resource_name": "ord", "resource_pattern_type": 4}
    await ask(cluster, "CreateAcls", creations=[creation, ENTRY])
    response = await ask(cluster, "DescribeAcls", 0, **{**FILTER, "pattern_type_filter": 3})
    assert [one.resource_name for one in response.resources] == ["t"]


async def test_acl_znode_of_unknown_version_is_not_overwritten(cluster: Cluster) -> None:
    """A newer version may have written it: an overwrite could drop a denial."""
    session = cluster.nodes[1].session
    await session.create(acl_znodes.path_of(TOPIC), b'{"version":2,"acls":[]}', make_parents=True)
    answer = await ask(cluster, "CreateAcls", creations=[ENTRY])
    assert [one.error_code for one in answer.results] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert "version 2 is not 1" in answer.results[0].error_message
    data, _ = await session.get(acl_znodes.path_of(TOPIC))
    assert data == b'{"version":2,"acls":[]}'


async def test_delete_with_named_resource_reads_acls_missing_from_the_cache(cluster: Cluster) -> None:
    session = cluster.nodes[1].session
    await session.create(acl_znodes.path_of(TOPIC), acl_znodes.encode_acls([reader("a")]), make_parents=True)
    async with Admin(cluster.bootstrap_servers, **ADMIN) as admin:
        assert await admin.delete_acls(AclFilter(resource_type=ResourceType.TOPIC, name="t")) == [(TOPIC, reader("a"))]
