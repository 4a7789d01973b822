"""Coordinator cost of a consumer group (KIP-848) with a thousand members and a thousand partitions.

The coordinator of a cluster in this process is called directly, so the figures include no socket and no client. They
are the processor time of an idle heartbeat, of computing and storing all target assignments when the topic doubles, and
of the heartbeats with which all members adopt theirs.

    python -m benchmarks.assigning [--members 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

from anabranch import Admin, Cluster
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.heartbeat import Sender
from anabranch.clients.connection import Connection
from anabranch.clients.topic_admin import NewTopic
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.errors import KafkaError
from benchmarks.report import Figure, console, summary, table, working

MEMBERS: Final = 1000
GROUP: Final = "g"
HEARTBEAT_US: Final = 100
REASSIGNMENT_S: Final = 1.0
SENDER: Final = Sender(client_id="member", client_host="/127.0.0.1")


@dataclass
class Member:
    """One member, with a client's state."""

    name: str
    epoch: int = 0
    owned: list[TopicPartitions] | None = None


class Coordinator:
    """Calls the coordinator of one group as its members do."""

    def __init__(self, groups: Any, topic: str, count: int) -> None:
        self._groups = groups
        self._topic = topic
        self.members = [Member(f"member-{number:05}") for number in range(count)]

    @property
    def group(self) -> ConsumerGroup:
        """The group."""
        found = self._groups.group(GROUP)
        assert isinstance(found, ConsumerGroup)
        return found

    async def beat(self, member: Member) -> None:
        """Send one heartbeat: a full one if the member joins; with the owned partitions if they are new."""
        joins = member.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member.name,
            member_epoch=member.epoch,
            rebalance_timeout_ms=300_000 if joins else -1,
            subscribed_topic_names=[self._topic] if joins else None,
            topic_partitions=[] if joins else member.owned,
        )
        answer = await self._groups.consumers.heartbeat(
            request, version=1, sender=SENDER, may_describe=lambda name: True
        )
        assert answer.error_code == 0, answer
        member.epoch, member.owned = answer.member_epoch, None
        if answer.assignment is not None:
            member.owned = answer.assignment.topic_partitions

    async def beat_all(self) -> None:
        """Send one heartbeat for each member."""
        for member in self.members:
            await self.beat(member)

    async def settle(self) -> int:
        """Send heartbeats until every member has its target assignment; returns the number of rounds."""
        rounds = 0
        while self.group.state.value != "Stable":
            await self.beat_all()
            rounds += 1
        return rounds


@dataclass(frozen=True)
class Found:
    """Processor seconds."""

    join: float
    """Mean of one member, while the group grows to its size."""
    beat: float
    target: float
    """Computing and storing all target assignments, within one heartbeat."""
    reconciled: float
    """The total: the target assignments, and the heartbeats with which all members adopt theirs."""
    rounds: int


async def measured(count: int) -> Found:
    """Build the group, wait until it is stable, double its topic."""
    async with Cluster(1, kafka="4.1", properties={"offsets.topic.num.partitions": "1"}) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=count)])
            groups = cluster.nodes[1].services.groups
            coordinator = Coordinator(groups, "t", count)
            await _coordinated(cluster, coordinator)
            start_s = time.process_time()
            for member in coordinator.members[1:]:
                await coordinator.beat(member)
            join_s = (time.process_time() - start_s) / max(count - 1, 1)
            await coordinator.settle()
            start_s = time.process_time()
            for _ in range(10):
                await coordinator.beat_all()
            beat_s = (time.process_time() - start_s) / (10 * count)
            await admin.create_partitions("t", 2 * count)
            await _grown(cluster, "t", 2 * count)
        start_s = time.process_time()
        await coordinator.beat(coordinator.members[0])
        target_s = time.process_time() - start_s
        rounds = await coordinator.settle()
        return Found(join_s, beat_s, target_s, time.process_time() - start_s, rounds)


async def _coordinated(cluster: Cluster, coordinator: Coordinator) -> None:
    """Wait until the first member has joined: the internal topic is created at the first coordinator lookup."""
    connection = await Connection.open("127.0.0.1", cluster.nodes[1].port, client_id="benchmark")
    try:
        while True:
            await connection.call(FindCoordinatorRequest(coordinator_keys=[GROUP]))
            try:
                await coordinator.beat(coordinator.members[0])
            except KafkaError:
                await asyncio.sleep(0.05)
            else:
                return
    finally:
        await connection.close()


async def _grown(cluster: Cluster, topic: str, count: int) -> None:
    while True:
        image = cluster.nodes[1].services.metadata.topic(topic)
        if image is not None and len(image.partitions) == count:
            return
        await asyncio.sleep(0.05)


def measure(count: int = MEMBERS) -> list[Figure]:
    with working(f"assigning: {count:,} members, {count:,} partitions"):
        found = asyncio.run(measured(count))
    table(
        f"assigning: processor time of a coordinator, {count:,} members over {count:,} partitions, then twice as many",
        *("", "time"),
        rows=[
            ("a heartbeat with nothing new", f"{found.beat * 1e6:,.0f} us"),
            ("a join, while the group grows", f"{found.join * 1e3:,.1f} ms"),
            ("all targets anew", f"{found.target * 1e3:,.0f} ms"),
            (f"until all have theirs ({found.rounds} rounds)", f"{found.reconciled * 1e3:,.0f} ms"),
        ],
    )
    return [
        Figure(
            f"heartbeat in a group of {count:,}",
            f"< {HEARTBEAT_US} us",
            f"{found.beat * 1e6:,.0f} us",
            "",
            found.beat * 1e6 < HEARTBEAT_US,
        ),
        Figure(
            f"full reassignment of {2 * count:,} partitions",
            f"< {REASSIGNMENT_S:.0f} s",
            f"{found.reconciled:.2f} s",
            "",
            found.reconciled < REASSIGNMENT_S,
        ),
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--members", type=int, default=MEMBERS, help=f"and partitions (default: {MEMBERS:,})")
    figures = measure(parser.parse_args(arguments).members)
    console.print()
    summary(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
