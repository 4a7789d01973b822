"""AlterUserScramCredentials: store and delete SCRAM credentials of users (KIP-554).

Version 0. The controller applies the changes; each user has its own error, and gets all its changes or none.
"""

from __future__ import annotations

from anabranch.broker.administration.topic_creation import refuse_unless_controller
from anabranch.broker.credentials import scram_store
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(AlterUserScramCredentialsRequest, versions="0")
async def alter_user_scram_credentials(
    ctx: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Alter each user separately."""
    upsertions = [
        scram_store.Upsertion(one.name, one.mechanism, one.iterations, bytes(one.salt), bytes(one.salted_password))
        for one in request.upsertions
    ]
    deletions = [scram_store.Deletion(one.name, one.mechanism) for one in request.deletions]
    outcome: dict[str, KafkaError | None]
    try:
        await refuse_unless_controller(ctx.services)
        authorize(ctx, Operation.ALTER, ResourceType.CLUSTER)
    except KafkaError as error:
        outcome = dict.fromkeys([one.user for one in deletions] + [one.user for one in upsertions], error)
    else:
        outcome = await scram_store.alter(ctx.services.session, upsertions, deletions)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=user,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
            )
            for user, error in outcome.items()
        ]
    )
