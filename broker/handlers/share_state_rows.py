"""Processes the requests to share coordinators, partition by partition.

Only brokers may send them. Each partition has its own error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from anabranch.broker.coordinators.share_partitions.share_state import ShareKey
from anabranch.broker.dispatch.auth_helper import authorize_broker
from anabranch.broker.dispatch.request_context import RequestContext
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.errors import KafkaError

Result = TypeVar("Result")
Row = TypeVar("Row")


async def answer_rows(
    ctx: RequestContext,
    request: Any,
    result: Callable[..., Result],
    row: Callable[..., Row],
    answer: Callable[[ShareKey, Any], Awaitable[Row]],
) -> list[Result]:
    """Return a `result` per topic; `row` makes the row of a partition for which `answer` raises KafkaError.

    Other tasks run after every few rows.
    """
    results, turns = [], YieldBudget()
    for topic in request.topics:
        rows: list[Row] = []
        await turns.spend()
        for partition in topic.partitions:
            await turns.spend()
            try:
                authorize_broker(ctx)
                rows.append(await answer(ShareKey(request.group_id, topic.topic_id, partition.partition), partition))
            except KafkaError as error:
                message = error.message or None
                rows.append(row(partition=partition.partition, error_code=error.code, error_message=message))
        results.append(result(topic_id=topic.topic_id, partitions=rows))
    return results
