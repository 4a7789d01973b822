"""The product's decisions about a member of a KIP-848 group, as functions of relative times in seconds.

`ConsumerGroupMembership` and its `Lease` decide whether a member may hand out records, `Timers` and
`restart_session_timers` when its session ends, `check_epoch` and `authorize_commit` whether its requests are accepted.
"""

from __future__ import annotations

import functools
import random
from typing import Final, NamedTuple

from anabranch.broker.coordinators.classic_groups.group_events import Commit
from anabranch.broker.coordinators.consumer_groups import administration, admission, departure
from anabranch.broker.coordinators.consumer_groups import member as broker
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.limits import ConsumerGroupLimits
from anabranch.broker.coordinators.consumer_groups.timers import Timer, Timers
from anabranch.clients.consumer.assignors import CooperativeSticky
from anabranch.clients.consumer.consumer_group_membership import ConsumerGroupMembership
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from anabranch.protocol.errors import KafkaError

OUTSIDE: Final = 0
"""The epoch of a member that the coordinator does not know, and of a request to join."""
SILENT: Final = -1
"""The coordinator announces no session timeout."""
SECOND_MS: Final = 1000
LONG_MS: Final = 10**9
TOPIC: Final = b"topic"
Renewals = tuple[tuple[int, int], ...]
"""(age, announced session timeout) of answered heartbeats."""


class Entry(NamedTuple):
    """What the coordinator knows of a member."""

    epoch: int = OUTSIDE
    previous: int = OUTSIDE
    left: int = 0
    """Seconds until the session ends."""
    announced: int = SILENT


@functools.cache
def may_hand_out(renewals: Renewals) -> bool:
    """Whether a member with these renewals may hand out records now."""
    member = ConsumerGroupMembership(
        "group",
        ["topic"],
        session_timeout_ms=LONG_MS,
        rebalance_timeout_ms=LONG_MS,
        heartbeat_interval_ms=SECOND_MS,
        assignors=[CooperativeSticky()],
        rng=random.Random(0),
    )
    for age, announced in renewals:
        response = ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_epoch=1,
            heartbeat_interval_ms=SECOND_MS,
            session_timeout_ms=announced if announced == SILENT else announced * SECOND_MS,
        )
        member.on_heartbeat_response(response)
        member.renew_lease(response, -age)
    return member.may_commit(0.0)


@functools.cache
def prolonged(left: int, session: int) -> int:
    """The rest of a session after a heartbeat."""
    timers = Timers()
    timers.set("m", Timer.SESSION, left)
    timers.extend("m", Timer.SESSION, session)
    return timers.due("m", Timer.SESSION) or 0


@functools.cache
def is_over(left: int) -> bool:
    """Whether the coordinator ends the session."""
    timers = Timers()
    timers.set("m", Timer.SESSION, left)
    return bool(timers.pop_due(0))


@functools.cache
def restarted(session: int, announced: int) -> int:
    """The rest of a session at a new coordinator."""
    told = announced if announced == SILENT else announced * SECOND_MS
    group = ConsumerGroup("group", members={"m": broker.Member(member_id="m", told_session_timeout_ms=told)})
    departure.restart_session_timers(group, ConsumerGroupLimits(session_timeout_ms=session * SECOND_MS), 0)
    return (group.timers.due("m", Timer.SESSION) or 0) // SECOND_MS


@functools.cache
def accepts_heartbeat(entry: Entry, epoch: int, *, claims: bool, owns: bool) -> bool:
    """Whether a full heartbeat with this epoch is one of this member."""
    one, nothing = {TOPIC: frozenset({0})}, dict[bytes, frozenset[int]]()
    assigned = one if owns else nothing
    member = broker.Member(member_id="m", epoch=entry.epoch, previous_epoch=entry.previous, assigned=assigned)
    try:
        admission.check_epoch(member, epoch, one if claims else nothing)
    except KafkaError:
        return False
    return True


@functools.cache
def accepts_commit(member_epoch: int, epoch: int) -> bool:
    """Whether a commit with this epoch is accepted from a member; the group has another one."""
    group = ConsumerGroup("group", members={"other": broker.Member(member_id="other", epoch=1)})
    if member_epoch != OUTSIDE:
        group.members["m"] = broker.Member(member_id="m", epoch=member_epoch)
    try:
        administration.authorize_commit(group, Commit(member_id="m", instance_id=None, generation=epoch))
    except KafkaError:
        return False
    return True
