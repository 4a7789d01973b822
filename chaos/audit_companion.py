"""The interface of a process that runs beside a chaos run, such as an audit, and its inputs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from anabranch import Consumer
from anabranch.chaos.clients import CLIENT_FAILURES, TOPIC
from anabranch.chaos.faults import Fired
from anabranch.clients.clock import wall_clock_ms
from anabranch.report.timeline import Moment

FORGET_S: Final = 20.0
KINDS: Final = {
    "kill": "kill",
    "crash": "kill",
    "stop": "restart",
    "expire": "controller",
    "freeze": "freeze",
    "full": "disk",
}
"""The first word of a fault's name -> its lane in a timeline; the others concern links and members."""


class AuditCompanionProcess(Protocol):
    """A process that works on the cluster of a run."""

    async def begin(self, servers: str, client: Mapping[str, str]) -> None:
        """Start, when the topics exist and nothing is sent yet. `client`: its properties, by their Kafka names."""

    async def end(self, moments: Sequence[Moment]) -> None:
        """End, when the clients have ended and the brokers are healthy.

        `moments` are the actions on the cluster.
        """


async def forget_audit(consumer: Consumer) -> None:
    """Stop the audit of a crashed member; events of its deliveries are stored if possible."""
    if consumer._audit is not None:
        with contextlib.suppress(*CLIENT_FAILURES, RuntimeError):
            async with asyncio.timeout(FORGET_S):
                await consumer._audit.stop()


def moments(fired: Iterable[Fired], resizes: Iterable[tuple[float, float, int]]) -> list[Moment]:
    """Return the actions on the cluster for a timeline, by time of day."""
    offset_s = wall_clock_ms() / 1000 - asyncio.get_running_loop().time()
    made = [
        Moment(
            round((offset_s + one.started_s) * 1000),
            _lane(one.name),
            f"{one.name}: {one.what}, for {one.ended_s - one.started_s:.1f} s",
            one.name,
        )
        for one in fired
    ]
    made += [
        Moment(
            round((offset_s + published) * 1000),
            "resize",
            f"{TOPIC} has {partitions(count)}, {published - requested_s:.1f} s after it was asked",
            partitions(count),
        )
        for requested_s, published, count in resizes
    ]
    return sorted(made, key=lambda one: one.t_ms)


def partitions(count: int) -> str:
    """Format a count of partitions."""
    return f"{count} partition{'' if count == 1 else 's'}"


def _lane(name: str) -> str:
    if "consumer" in name or "member" in name:
        return "client"
    return KINDS.get(name.partition(" ")[0], "network")
