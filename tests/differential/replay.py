"""Runs the corpus on a cluster, one case after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from tests.differential.case import Answer, Case, Run

log: Final = logging.getLogger(__name__)
SLOW_S: Final = 5.0
AT_ONCE: Final = 4
CLUSTER: Final[Mapping[str, str]] = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "default.replication.factor": "1",
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.retry.backoff.ms": "500",
}
"""What both clusters are told; everything else is a default, and defaults are compared too."""


async def replay(
    cases: Sequence[Case], addresses: Mapping[int, tuple[str, int]], whose: str, kafka: str = "3.9"
) -> list[Answer]:
    """The answers of a cluster to these cases at all their versions that this Kafka has."""
    await internal_topics(addresses)
    answers: list[Answer] = []

    async def one(case: Case) -> None:
        began = asyncio.get_running_loop().time()
        for version in case.versions_of(kafka):
            answers.extend(await _run(Run(case, version, addresses, kafka)))
        took_s = asyncio.get_running_loop().time() - began
        if took_s > SLOW_S:
            log.warning("%s took %.1f s for %s", whose, took_s, case.id)

    for case in cases:
        if case.alone:
            await one(case)
    places = asyncio.Semaphore(AT_ONCE)

    async def in_turn(case: Case) -> None:
        async with places:
            await one(case)

    await asyncio.gather(*(in_turn(case) for case in cases if not case.alone))
    return answers


async def internal_topics(addresses: Mapping[int, tuple[str, int]]) -> None:
    """Let the cluster make them, so that no case meets a cluster without."""
    prelude = Run(Case("FindCoordinator", "6", _nothing, 1, alone=True), 6, addresses)
    for kind in (0, 1):
        request = FindCoordinatorRequest(coordinator_keys=["x"], key_type=kind)
        await prelude.settled(request, lambda answer: answer.coordinators[0].error_code == 0)
    await prelude.close()


async def _run(run: Run) -> list[Answer]:
    try:
        await run.case.story(run)
    except Exception as error:  # a story that cannot go on is a difference, unless it is one on both sides
        run.answers.append(Answer(run.case.api, run.version, f"{run.case.id} v{run.version} end", "", told(error)))
    finally:
        await run.close()
    return run.answers


def told(error: Exception) -> Any:
    """Why a story ended early."""
    return f"the story ended with {type(error).__name__}: {error}"


async def _nothing(run: Run) -> None:
    """The prelude is no story."""
