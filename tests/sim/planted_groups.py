"""Bugs of consumer groups; see `planted`."""

from __future__ import annotations

from typing import Any

from tests.sim.planted import Planter, plant


@plant("commits of an old generation accepted", aim="a member of another make commits after it was replaced")
def zombie_commits(planter: Planter) -> None:
    from anabranch.broker.coordinators.classic_groups import group_machine

    def authorize(group: Any, event: Any, now_ms: int) -> None:
        if event.transactional:
            original(group, event, now_ms)

    original = planter.replace(group_machine, "authorize_commit", authorize)


@plant("commits acknowledged before they are stored")
def commits_not_stored(planter: Planter) -> None:
    from anabranch.broker.replication.replica_manager import ReplicaManager

    async def append(manager: Any, topic: str, index: int, records: Any, **options: Any) -> Any:
        return await original(manager, topic, index, records, **{**options, "acks": 1})

    original = planter.replace(ReplicaManager, "append", append)
