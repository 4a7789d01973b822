"""Resolved regular expressions of a group: a new group epoch if they match other topics than before."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.decision import Decision
from anabranch.broker.coordinators.consumer_groups.limits import ConsumerGroupLimits
from anabranch.broker.coordinators.consumer_groups.regular_expressions import ResolvedRegularExpression
from anabranch.broker.coordinators.consumer_groups.topics_view import TopicsView


def apply_resolved(
    group: ConsumerGroup,
    found: Mapping[str, ResolvedRegularExpression],
    *,
    topics: TopicsView,
    limits: ConsumerGroupLimits,
    now_ms: int,
) -> Decision:
    """Decide on newly resolved expressions: write them, and a new group epoch if their topics changed."""
    decision = Decision(group, topics, limits, now_ms)
    subscribed = {expression: one for expression, one in found.items() if group.regex_subscribers[expression]}
    changed = False
    for expression, one in subscribed.items():
        before = group.regexes.get(expression)
        changed = changed or (one.topics if before is None else one.topics ^ before.topics) != frozenset()
        decision.write_regex(expression, one)
    hashed = decision.hash_with(expressions={**group.regexes, **subscribed})
    if changed or (subscribed and hashed != group.metadata_hash):
        decision.write_epoch(group.epoch + 1, hashed)
    newest = topics.newest_topic
    decision.then.append(lambda: setattr(group, "newest_topic_seen", newest))
    return decision
