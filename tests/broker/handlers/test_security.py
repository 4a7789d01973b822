"""The security APIs of a broker without SASL and authorizer: every version is refused."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.clients.connection import Connection
from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.apis.create_acls import AclCreation, CreateAclsRequest
from anabranch.protocol.apis.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from anabranch.protocol.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from anabranch.protocol.apis.describe_acls import DescribeAclsRequest
from anabranch.protocol.apis.describe_delegation_token import DescribeDelegationTokenRequest
from anabranch.protocol.apis.envelope import EnvelopeRequest
from anabranch.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest
from anabranch.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest
from anabranch.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from anabranch.protocol.apis.sasl_handshake import SaslHandshakeRequest
from anabranch.protocol.errors import ErrorCode
from tests.broker.serving import serving

ACL = {"principal": "User:x", "host": "*", "operation": 3, "permission_type": 3}
FILTER = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
REFUSED: list[tuple[Any, int, ErrorCode]] = [
    (SaslHandshakeRequest(mechanism="PLAIN"), 1, ErrorCode.ILLEGAL_SASL_STATE),
    (SaslAuthenticateRequest(auth_bytes=b"\0user\0password"), 2, ErrorCode.ILLEGAL_SASL_STATE),
    (
        DescribeAclsRequest(resource_type_filter=1, resource_name_filter=None, **FILTER),
        3,
        ErrorCode.SECURITY_DISABLED,
    ),
    (CreateAclsRequest(creations=[AclCreation(resource_type=2, resource_name="t", **ACL)] * 2), 3, ErrorCode.NONE),
    (
        DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=1, resource_name_filter=None, **FILTER)]),
        3,
        ErrorCode.NONE,
    ),
    (
        CreateDelegationTokenRequest(
            renewers=[CreatableRenewers(principal_type="User", principal_name="r")], max_lifetime_ms=-1
        ),
        3,
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    ),
    (
        RenewDelegationTokenRequest(hmac=b"1", renew_period_ms=1),
        2,
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    ),
    (
        ExpireDelegationTokenRequest(hmac=b"1", expiry_time_period_ms=1),
        2,
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    ),
    (DescribeDelegationTokenRequest(owners=None), 3, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
]


@pytest.mark.parametrize(("request_", "last", "error"), REFUSED, ids=lambda one: type(one).__name__)
async def test_acl_requests_are_refused_in_every_version(request_: Any, last: int, error: ErrorCode) -> None:
    async with serving() as server:
        connection = await Connection.open("127.0.0.1", server.port, client_id="test")
        for version in range(last + 1):
            response = await connection.call(request_, version=version)
            if error is ErrorCode.NONE:
                rows = response.results if isinstance(request_, CreateAclsRequest) else response.filter_results
                entries = request_.creations if isinstance(request_, CreateAclsRequest) else request_.filters
                assert [row.error_code for row in rows] == [ErrorCode.SECURITY_DISABLED] * len(entries)
            else:
                assert ErrorCode(response.error_code) is error
        await connection.close()


async def test_refused_token_request_names_owner_and_requester() -> None:
    async with serving() as server:
        connection = await Connection.open("127.0.0.1", server.port, client_id="test")
        mine = await connection.call(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1))
        theirs = await connection.call(
            CreateDelegationTokenRequest(
                owner_principal_type="User", owner_principal_name="o", renewers=[], max_lifetime_ms=-1
            )
        )
        assert (mine.principal_name, mine.token_requester_principal_name) == ("ANONYMOUS", "ANONYMOUS")
        assert (theirs.principal_name, theirs.token_requester_principal_name) == ("o", "ANONYMOUS")
        assert (mine.issue_timestamp_ms, mine.expiry_timestamp_ms, mine.max_timestamp_ms) == (-1, -1, -1)
        await connection.close()


async def test_envelope_closes_only_its_own_connection() -> None:
    async with serving() as server:
        connection = await Connection.open("127.0.0.1", server.port, client_id="test")
        other = await Connection.open("127.0.0.1", server.port, client_id="test")
        with pytest.raises(ConnectionError):
            await connection.call(
                EnvelopeRequest(request_data=b"", request_principal=None, client_host_address=b"\x7f\0\0\1")
            )
        await other.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
        await other.close()
