"""ListTransactions: the transactional ids that this broker coordinates (KIP-664, KIP-994).

Versions 0 and 1; v1 asks for what has been open for longer than so many milliseconds. Names of states that do not exist
match nothing and are told back. While a partition is being loaded the answer is COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from anabranch.broker.api import RequestContext, handles
from anabranch.broker.coordinators.transactional_id import Transaction, TransactionState
from anabranch.broker.rights import may
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis import list_transactions as messages
from anabranch.protocol.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from anabranch.protocol.errors import ErrorCode


@handles(ListTransactionsRequest, versions="0-1")
async def list_transactions(ctx: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """List those that pass the filters."""
    coordinator = ctx.services.transactions
    if coordinator.loading:
        return ListTransactionsResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, unknown_state_filters=[], transaction_states=[]
        )
    states = {state.title for state in TransactionState}
    now_ms = ctx.services.now_ms()
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[name for name in dict.fromkeys(request.state_filters) if name not in states],
        transaction_states=[
            messages.TransactionState(
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=one.state.title,
            )
            for one in coordinator.transactions()
            if passes(one, request, now_ms)
            and may(ctx, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, one.transactional_id)
        ],
    )


def passes(transaction: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    """Whether all filters let it pass; an empty or negative one lets everything pass."""
    if request.producer_id_filters and transaction.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and transaction.state.title not in request.state_filters:
        return False
    return request.duration_filter < 0 or now_ms - transaction.start_ms > request.duration_filter
