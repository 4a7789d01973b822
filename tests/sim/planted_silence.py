"""Planted bugs of members behind a coordinator that is silent; see `planted`."""

from __future__ import annotations

from typing import Any, Final

from tests.sim.planted import Planter, plant

FROZEN: Final = "a coordinator freezes, and its members have the default timeouts"
FROZEN_848: Final = "a coordinator of KIP-848 freezes, and its members have the default timeouts"


@plant("found: a heartbeat waits for a silent coordinator as long as for any response", aim=FROZEN_848)
def patient_heartbeats(planter: Planter) -> None:
    from anabranch.clients.consumer.classic_group_session import ClassicGroupSession

    planter.replace(
        ClassicGroupSession, "patience_ms", property(lambda session: session._network.config.request_timeout_ms)
    )


@plant("found: a frozen node that is asked for the coordinator is waited for", aim=FROZEN)
def patient_questions(planter: Planter) -> None:
    from anabranch.clients.network import Network

    async def one_by_one(network: Any, request: Any) -> Any:
        return await network.call_any(request)

    planter.replace(Network, "ask_any", one_by_one)


@plant("found: a join waits at a node that coordinates no longer", aim=FROZEN)
def patient_joins(planter: Planter) -> None:
    import asyncio

    from anabranch.clients.coordinators import Coordinators

    async def never(coordinators: Any, key: str, node_id: int, interval_s: float) -> None:
        await asyncio.Event().wait()

    planter.replace(Coordinators, "_wait_until_moved", never)
