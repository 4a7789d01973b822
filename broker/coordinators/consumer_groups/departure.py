"""The removal of members from a KIP-848 group, on leave or when a timer expires.

Source: KIP-848; Kafka's GroupMetadataManager of 4.1 (consumerGroupFenceMembers).
"""

from __future__ import annotations

from collections.abc import Collection

from anabranch.broker.coordinators.consumer_groups import conversion
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.decision import Decision
from anabranch.broker.coordinators.consumer_groups.limits import ConsumerGroupLimits
from anabranch.broker.coordinators.consumer_groups.member import UNREVOKED, Member
from anabranch.broker.coordinators.consumer_groups.timers import Timer
from anabranch.broker.coordinators.consumer_groups.topics_view import TopicsView


def remove_members(decision: Decision, members: Collection[Member]) -> None:
    """Remove members. If only classic members remain, downgrade the group."""
    group, going = decision.group, {member.member_id for member in members}
    if conversion.may_downgrade(group, going, decision.limits):
        decision.delete_group()
        decision.becomes = conversion.downgrade(group, going, decision.topics, decision.now_ms)
    else:
        decision.remove(members)


def fence(
    group: ConsumerGroup, *, topics: TopicsView, limits: ConsumerGroupLimits, now_ms: int
) -> tuple[Decision, list[tuple[Member, Timer]]]:
    """Remove the members whose timers have expired; return them with the timers."""
    over = [(group.members[one], timer) for one, timer in group.timers.pop_due(now_ms) if one in group.members]
    decision = Decision(group, topics, limits, now_ms)
    if over:
        remove_members(decision, {member.member_id: member for member, _ in over}.values())
    return decision, over


def restart_session_timers(group: ConsumerGroup, limits: ConsumerGroupLimits, now_ms: int) -> None:
    """Restart the timers of all members after the group was read from the journal.

    The first session lasts at least the longest session timeout that the member was told: the previous coordinator may
    have had other settings.
    """
    for member in group.members.values():
        classic = member.classic
        own_ms = limits.session_timeout_ms if classic is None else classic.session_timeout_ms
        session_ms = max(own_ms, member.told_session_timeout_ms)
        group.timers.set(member.member_id, Timer.SESSION, now_ms + session_ms)
        if member.state is UNREVOKED and classic is None:
            group.timers.set(member.member_id, Timer.REBALANCE, now_ms + member.rebalance_timeout_ms)
