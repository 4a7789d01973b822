"""Planted bugs of consumer groups; see `planted`."""

from __future__ import annotations

from typing import Any

from anabranch.broker.coordinators.classic_groups import group_machine
from anabranch.broker.replication.replica_manager import ReplicaManager
from anabranch.clients.consumer.consumer_group_membership import ConsumerGroupMembership
from anabranch.clients.consumer.core import ConsumerCore
from tests.sim.planted import Planter, plant


@plant("commits of an old generation accepted", aim="a member of another make commits after it was replaced")
def zombie_commits(planter: Planter) -> None:
    def authorize(group: Any, event: Any, now_ms: int) -> None:
        if event.transactional:
            original(group, event, now_ms)

    original = planter.replace(group_machine, "authorize_commit", authorize)


@plant(
    "a start is committed in a later assignment than it was found for",
    aim="a member's search for its start outlasts its rebalance timeout",
)
def start_of_an_earlier_assignment(planter: Planter) -> None:
    def starts_to_commit(core: Any) -> Any:
        rows = {one: core.assignment.get(one) for one in core._starts}
        core._starts.update(
            {one: (row.begin_number, core._starts[one][1]) for one, row in rows.items() if row is not None}
        )
        return original(core)

    original = planter.replace(ConsumerCore, "_starts_to_commit", starts_to_commit)


@plant(
    "found: a member relies on its own session timeout, whatever its coordinator's is",
    aim="a member sleeps past the session of its coordinator, and believes in a longer one",
)
def own_session_timeout(planter: Planter) -> None:
    def renew_lease(membership: Any, response: Any, sent_at_s: float, *, rebalancing: bool = False) -> None:
        response.session_timeout_ms = 20_000
        original(membership, response, sent_at_s, rebalancing=rebalancing)

    original = planter.replace(ConsumerGroupMembership, "renew_lease", renew_lease)


@plant("commits acknowledged before they are stored")
def commits_not_stored(planter: Planter) -> None:
    async def append(manager: Any, topic: str, index: int, records: Any, **options: Any) -> Any:
        return await original(manager, topic, index, records, **{**options, "acks": 1})

    original = planter.replace(ReplicaManager, "append", append)
