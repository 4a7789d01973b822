"""SASL, ACLs, delegation tokens and SCRAM on a broker without security."""

from __future__ import annotations

from anabranch.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from anabranch.protocol.apis.create_acls import AclCreation, CreateAclsRequest
from anabranch.protocol.apis.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from anabranch.protocol.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from anabranch.protocol.apis.describe_acls import DescribeAclsRequest
from anabranch.protocol.apis.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from anabranch.protocol.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from anabranch.protocol.apis.envelope import EnvelopeRequest
from anabranch.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest
from anabranch.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest
from anabranch.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from anabranch.protocol.apis.sasl_handshake import SaslHandshakeRequest
from tests.differential.case import Run, case


@case("SaslHandshake")
async def mechanisms(run: Run) -> None:
    await run.ask(SaslHandshakeRequest(mechanism="PLAIN"))
    await run.ask(SaslHandshakeRequest(mechanism=""))


@case("SaslAuthenticate")
async def without_a_handshake(run: Run) -> None:
    await run.ask(SaslAuthenticateRequest(auth_bytes=b"\0user\0secret"))


@case("DescribeAcls")
async def rules(run: Run) -> None:
    everything = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    if run.version == 0:
        everything.pattern_type_filter = 3
    await run.ask(everything)


@case("CreateAcls")
async def rules_made(run: Run) -> None:
    one = AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3)
    await run.ask(CreateAclsRequest(creations=[one]))
    await run.ask(CreateAclsRequest(creations=[one, one]))
    await run.ask(CreateAclsRequest(creations=[]))


@case("DeleteAcls")
async def rules_removed(run: Run) -> None:
    one = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    await run.ask(DeleteAclsRequest(filters=[one]))
    await run.ask(DeleteAclsRequest(filters=[one, one]))
    await run.ask(DeleteAclsRequest(filters=[]))


@case("CreateDelegationToken")
async def tokens(run: Run) -> None:
    await run.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1))
    renewer = CreatableRenewers(principal_type="User", principal_name="a")
    await run.ask(CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=1000))
    if run.version >= 3:
        await run.ask(
            CreateDelegationTokenRequest(
                owner_principal_type="User", owner_principal_name="b", renewers=[], max_lifetime_ms=1000
            )
        )


@case("RenewDelegationToken")
async def tokens_renewed(run: Run) -> None:
    await run.ask(RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1000))


@case("ExpireDelegationToken")
async def tokens_expired(run: Run) -> None:
    await run.ask(ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1))


@case("DescribeDelegationToken")
async def tokens_described(run: Run) -> None:
    await run.ask(DescribeDelegationTokenRequest(owners=None))
    await run.ask(DescribeDelegationTokenRequest(owners=[]))
    owner = DescribeDelegationTokenOwner(principal_type="User", principal_name="a")
    await run.ask(DescribeDelegationTokenRequest(owners=[owner]))


@case("DescribeUserScramCredentials")
async def scram(run: Run) -> None:
    await run.ask(DescribeUserScramCredentialsRequest(users=[UserName(name="nobody")]))
    await run.ask(DescribeUserScramCredentialsRequest(users=[UserName(name="nobody"), UserName(name="nobody")]))
    await run.ask(DescribeUserScramCredentialsRequest(users=[UserName(name="")]))


def upsert(name: str, *, mechanism: int = 1, iterations: int = 8192) -> ScramCredentialUpsertion:
    """A credential."""
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"p" * 32
    )


@case("AlterUserScramCredentials")
async def scram_set(run: Run) -> None:
    name = run.name("user")
    view = DescribeUserScramCredentialsRequest(users=[UserName(name=name)])

    async def alter(*upsertions: ScramCredentialUpsertion, deletions: tuple[ScramCredentialDeletion, ...] = ()) -> None:
        await run.ask(AlterUserScramCredentialsRequest(deletions=list(deletions), upsertions=list(upsertions)))

    await alter(deletions=(ScramCredentialDeletion(name=name, mechanism=1),))
    await alter(upsert(name))
    await run.until(view, lambda answer: bool(answer.results[0].credential_infos))
    await alter(upsert(name, mechanism=2, iterations=4096))
    await run.until(view, lambda answer: len(answer.results[0].credential_infos) == 2)
    await alter(upsert(name, iterations=4095))
    await alter(upsert(name, iterations=16385))
    await alter(upsert(name, mechanism=0))
    await alter(upsert(name, mechanism=9))
    await alter(upsert(""))
    await alter(upsert(name), upsert(name))
    await alter(upsert(name), deletions=(ScramCredentialDeletion(name=name, mechanism=1),))
    for mechanism in (1, 2):
        await alter(deletions=(ScramCredentialDeletion(name=name, mechanism=mechanism),))
    await run.until(view, lambda answer: answer.results[0].error_code != 0)
    await alter()


@case("Envelope")
async def not_from_a_broker(run: Run) -> None:
    await run.ask(EnvelopeRequest(request_data=b"", request_principal=b"", client_host_address=b"\x7f\0\0\1"))
