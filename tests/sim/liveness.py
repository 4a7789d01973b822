"""L2: after the faults end, every group is handed every record that a reader from the log starts finds.

The reader has no group. It reads the topic from where the logs begin, after all writers and administrators have
stopped, so that it finds what is stored and readable. Records that were deleted whether groups had read them or not
do not count: a leader that dies may take such a deletion with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from anabranch import Consumer
from anabranch.chaos.checkers.invariants import LIVENESS
from tests.sim.clients import CLIENT_FAILURES, TOPIC, Application
from tests.sim.cluster import SimCluster
from tests.sim.history import History, Place


class LogReader(Application):
    """Reads a topic from the log starts, without a group."""

    def __init__(self, cluster: SimCluster, name: str = "log reader") -> None:
        super().__init__(cluster, name)
        self.found: set[tuple[Place, int]] = set()
        self._consumer: Consumer | None = None

    async def run(self) -> None:
        while not self.stopping:
            consumer = self._consumer = Consumer(
                TOPIC,
                bootstrap_servers=self.cluster.bootstrap,
                client_id=self.identity,
                auto_offset_reset="earliest",
                request_timeout_ms=2500,
                metadata_max_age_ms=3000,
                clock_ms=self.clock_ms,
                rng=self.chance("consumer"),
            )
            try:
                await consumer.start()
                while not self.stopping:
                    for partition, records in (await consumer.getmany(timeout_ms=200)).items():
                        self.found |= {((partition.topic, partition.partition), one.offset) for one in records}
            except CLIENT_FAILURES as error:
                self.tell(f"starts over: {error}")
                await asyncio.sleep(0.2)
            await consumer.stop()

    def begin(self, place: Place, offset: int) -> None:
        """No checker judges where it begins."""

    def position(self, place: Place) -> int:
        """The next offset that it reads in a partition; -1 if that is not known."""
        rows: Any = () if self._consumer is None else self._consumer._core.assignment
        return next((int(one.position) for one in rows if tuple(one.partition) == place), -1)


async def all_handed_out(
    cluster: SimCluster,
    groups: Mapping[str, History],
    ends: Callable[[], Mapping[Place, int]],
    *,
    limit_s: float,
) -> bool:
    """Whether each group gets all records of the reader in time; missing ones fail the run. `groups` has the history of
    each group, and `ends` the log ends of the topic.
    """
    reader = LogReader(cluster)
    reader.start()

    def has_read_all() -> bool:
        return all(reader.position(place) >= end for place, end in ends().items())

    if not await cluster.until(has_read_all, limit_s, "a reader without a group reads the whole log", rule=LIVENESS):
        return False
    reader.stopping = True
    return await found_is_handed_out(cluster, groups, reader.found, limit_s=limit_s)


async def found_is_handed_out(
    cluster: SimCluster, groups: Mapping[str, History], found: set[tuple[Place, int]], *, limit_s: float
) -> bool:
    """Whether each group is handed these records in time."""
    missing = dict.fromkeys(groups, "")

    def nothing_is_missing() -> bool:
        for group, history in groups.items():
            if group in missing:
                missing[group] = first_missing(found, history)
        for group in [group for group, text in missing.items() if not text]:
            del missing[group]
        return not missing

    happened = await cluster.until(nothing_is_missing, limit_s, "every record is handed to every group", rule=LIVENESS)
    if not happened:
        cluster.history.failures[-1] += "; " + "; ".join(f"{group}: {text}" for group, text in missing.items())
        cluster.history.failures[-1] += "".join(f"; {line}" for line in where_members_stand(cluster))
    return happened


def first_missing(found: set[tuple[Place, int]], history: History) -> str:
    """How many of these records a group was never handed, and the first of each partition; empty if there are none."""
    handed = {(one.place, one.offset) for one in history.deliveries}
    missing = [one for one in found - handed if one[1] >= history.deleted_unread.get(one[0], 0)]
    firsts = dict(sorted(missing, reverse=True))
    return f"{len(missing)} records, the first at {dict(sorted(firsts.items()))}" if missing else ""


def where_members_stand(cluster: SimCluster) -> Iterator[str]:
    """What each member waits for."""
    for application in cluster.applications.values():
        consumer = getattr(application, "consumer", None)
        if consumer is not None and consumer._started:
            yield f"{application.identity}: gates {consumer.gates()}, assigned {sorted(consumer.assignment())}"
