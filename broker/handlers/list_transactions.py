"""ListTransactions: list the transactional ids that this broker coordinates (KIP-664, KIP-994, KIP-1152).

Versions 0 to 2; v1 filters by a minimum duration in milliseconds, v2 by a regular expression (RE2) for the whole id.
Unknown states match nothing and are returned. COORDINATOR_LOAD_IN_PROGRESS while a partition is being loaded.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.broker.coordinators.consumer_groups.regular_expressions import matcher
from anabranch.broker.coordinators.transactions.transactional_id import Transaction, TransactionState
from anabranch.broker.dispatch.auth_helper import is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis import list_transactions as messages
from anabranch.protocol.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(ListTransactionsRequest, versions="0-2")
async def list_transactions(ctx: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """List the transactions that match the filters."""
    coordinator = ctx.services.transactions
    if coordinator.loading:
        return error_response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    try:
        matches = matcher(request.transactional_id_pattern) if request.transactional_id_pattern else anything
    except KafkaError as error:
        return error_response(error.code)
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
            if passes(one, request, now_ms, matches)
            and is_authorized(ctx, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, one.transactional_id)
        ],
    )


def error_response(code: ErrorCode) -> ListTransactionsResponse:
    """Return an empty response with an error."""
    return ListTransactionsResponse(error_code=code, unknown_state_filters=[], transaction_states=[])


def anything(_transactional_id: str) -> bool:
    """Match any id, for requests without a pattern."""
    return True


def passes(
    transaction: Transaction, request: ListTransactionsRequest, now_ms: int, matches: Callable[[str], bool]
) -> bool:
    """Return whether a transaction matches all filters; an empty or negative filter matches everything."""
    if not matches(transaction.transactional_id):
        return False
    if request.producer_id_filters and transaction.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and transaction.state.title not in request.state_filters:
        return False
    return request.duration_filter < 0 or now_ms - transaction.start_ms > request.duration_filter
