"""AlterClientQuotas: set and remove quotas of users, client ids and IP addresses (KIP-546, KIP-612).

Versions 0 and 1. Any broker writes the changes below /config, which every node watches. Each entity has its own error.
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.quotas import quota_configs as quotas
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    EntryDataResult,
)
from anabranch.protocol.apis.describe_client_quotas import EntityData
from anabranch.protocol.errors import ErrorCode, KafkaError

ORDER: Final = (quotas.CLIENT_ID, quotas.USER, quotas.IP)


@handles(AlterClientQuotasRequest, versions="0-1")
async def alter_client_quotas(ctx: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Alter each entity separately."""
    entries, turns = [], YieldBudget()
    for entry in request.entries:
        await turns.spend()
        entries.append(await alter(ctx, entry, validate_only=request.validate_only))
    return AlterClientQuotasResponse(entries=entries)


async def alter(ctx: RequestContext, entry: EntryData, *, validate_only: bool) -> EntryDataResult:
    """Alter one entity. Returns its row."""
    entity = {one.entity_type: one.entity_name for one in entry.entity}
    changes = [(op.key, None if op.remove else op.value) for op in entry.ops]
    code, message = ErrorCode.NONE, None
    try:
        authorize(ctx, Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
        await quotas.alter_quotas(ctx.services.session, entity, changes, validate_only=validate_only)
    except KafkaError as error:
        code, message = error.code, error.message
    return EntryDataResult(
        error_code=code,
        error_message=message,
        entity=[EntityData(entity_type=kind, entity_name=entity[kind]) for kind in sorted(entity, key=place)],
    )


def place(kind: str) -> int:
    """Return the position of an entity type in a row: the order of Java's map."""
    return ORDER.index(kind) if kind in ORDER else len(ORDER)
