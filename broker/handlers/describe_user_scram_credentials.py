"""DescribeUserScramCredentials: list users' SCRAM mechanisms and iterations, but no secrets (KIP-554).

Version 0. No users mean all with credentials. A user without is RESOURCE_NOT_FOUND, a repeated one DUPLICATE_RESOURCE.
"""

from __future__ import annotations

from collections import Counter

from anabranch.broker.credentials import scram_store
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(DescribeUserScramCredentialsRequest, versions="0")
async def describe_user_scram_credentials(
    ctx: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Describe each user."""
    authorize(ctx, Operation.DESCRIBE, ResourceType.CLUSTER)
    session = ctx.services.session
    times = Counter(one.name for one in request.users or ())
    results, turns = [], YieldBudget()
    for user in times or await scram_store.users(session):
        await turns.spend()
        try:
            if user == "":
                raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty")
            if times[user] > 1:
                message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
                raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
            found = await scram_store.credentials_of(session, user)
            if not found and times:
                message = f"Attempt to describe a user credential that does not exist: {user}"
                raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
        except KafkaError as error:
            results.append(result_of(user, {}, error))
            continue
        if found:
            results.append(result_of(user, found))
    return DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, error_message=None, results=results)


def result_of(
    user: str, credentials: dict[int, int], error: KafkaError | None = None
) -> DescribeUserScramCredentialsResult:
    """Return the row of one user."""
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        credential_infos=[CredentialInfo(mechanism=one, iterations=count) for one, count in credentials.items()],
    )
