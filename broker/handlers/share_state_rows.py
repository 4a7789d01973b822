"""The silhouette of the APIs of share coordinators: ask for each partition of each topic, and answer in rows.

Only nodes may ask. What one partition refuses does not spoil its neighbours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from anabranch.broker.coordinators.share_partitions.share_state import ShareKey
from anabranch.broker.dispatch.auth_helper import authorize_broker
from anabranch.broker.dispatch.request_context import RequestContext
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.errors import KafkaError

Answer = Callable[[ShareKey, Any], Awaitable[Any]]
"""The row of one partition. Raises KafkaError."""
Refuse = Callable[[int, KafkaError], Any]
"""The row of a partition for which that was raised."""


async def answered(
    ctx: RequestContext, request: Any, answer: Answer, refuse: Refuse
) -> Iterable[tuple[bytes, list[Any]]]:
    """The rows of a request, topic by topic. Other requests are served after every few rows: each stands alone."""
    topics, turns = [], YieldBudget()
    for topic in request.topics:
        rows = []
        await turns.spend()
        for asked in topic.partitions:
            await turns.spend()
            try:
                authorize_broker(ctx)
                rows.append(await answer(ShareKey(request.group_id, topic.topic_id, asked.partition), asked))
            except KafkaError as error:
                rows.append(refuse(asked.partition, error))
        topics.append((topic.topic_id, rows))
    return topics
