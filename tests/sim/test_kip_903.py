"""KIP-903's test plan on the simulated loop: a delayed AlterPartition races a reboot.

A follower catches up; the leader's request to take it into the ISR is delayed; the follower reboots with an empty disk;
the request arrives. The end is put before the judges of all simulations: with the check they find nothing, without it
they find the lost record. The story `lost-record` of the tour runs the race on processes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.broker.membership.controller_link import ControllerLink
from anabranch.broker.replication.follower import Follower
from anabranch.broker.replication.partition import Partition
from anabranch.chaos.archive import records
from anabranch.chaos.checkers import data_plane
from anabranch.controller import alter_partition
from anabranch.controller.state import ClusterState
from anabranch.controller.zk import paths
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest, PartitionData
from tests.sim.cluster import SimCluster
from tests.sim.files import SimDisk
from tests.sim.history import Send
from tests.sim.loop import Process

LEADER, FOLLOWER = 1, 2
PLACE = ("t", 0)


class Race:
    """One run, up to the verdict."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = SimCluster(seed, brokers=2, changes={"min_insync_replicas": 1, "default_replication_factor": 2})
        self.held = 0
        self.released = False
        self.answers: list[int] = []
        call = ControllerLink.call

        async def held_back(link: ControllerLink, request: Any, **options: Any) -> Any:
            if not isinstance(request, AlterPartitionRequest) or request.broker_id != LEADER or self.released:
                return await call(link, request, **options)
            self.held += 1
            while not self.released:
                await asyncio.sleep(0.01)
            response = await call(link, request, **options)
            self.answers += [row.error_code for topic in response.topics for row in topic.partitions]
            return response

        monkeypatch.setattr(ControllerLink, "call", held_back)

    async def run(self) -> None:
        """The race, then the leader's death, then the end."""
        cluster = self.cluster
        await cluster.start()
        self.released = True
        await self.as_client(self.create())
        await self.die(FOLLOWER)
        await self.until(lambda: self.state().isr == (LEADER,), "the ISR is the leader alone")
        await self.as_client(self.produce())
        self.released = False
        cluster.boot(FOLLOWER)
        await self.until(lambda: self.held > 0, "the leader proposes the follower")
        await self.die(FOLLOWER)
        cluster.machines[FOLLOWER].disk = SimDisk(cluster.loop, cluster.rng("new disk"), f"node-{FOLLOWER}")
        cluster.network.block(f"node-{FOLLOWER}", f"node-{LEADER}")
        cluster.boot(FOLLOWER)
        await self.until(lambda: paths.broker(FOLLOWER) in cluster.zookeeper.tree.nodes, "it is registered anew")
        await self.until(lambda: cluster.machines[FOLLOWER].up, "the follower is up")
        assert self.state().isr == (LEADER,)
        self.released = True
        await self.until(lambda: bool(self.answers), "the delayed request is answered")
        self.isr_after = self.state().isr
        await self.die(LEADER)
        await self.until(lambda: self.state().leader != LEADER, "the leader's death is noticed")
        await self.until(lambda: self.state().leader != -1 or self.isr_after == (LEADER,), "an election")
        self.leader_after = self.state().leader
        cluster.network.heal_all()
        cluster.boot(LEADER)
        await self.until(cluster.in_sync, "all is in sync")
        self.collect()

    async def die(self, node_id: int) -> None:
        self.cluster.crash(node_id)
        self.cluster.expire_session(node_id)

    async def until(self, condition: Any, what: str) -> None:
        assert await self.cluster.until(condition, 30, what), what

    def state(self) -> Any:
        return next(state for place, state in self.cluster.states() if place == PLACE)

    async def as_client(self, work: Any) -> None:
        await self.cluster.loop.spawn(Process("client.1", "client"), work, "client")

    async def create(self) -> None:
        async with Admin(self.cluster.bootstrap, rng=self.cluster.rng("admin")) as admin:
            await admin.create_topics([NewTopic(name="t", assignments={0: [LEADER, FOLLOWER]})])
            await admin.wait_for_topic("t", replicas=2)

    async def produce(self) -> None:
        history = self.cluster.history
        send = Send(history.tick(), "client", "k", 0, "acknowledged")
        history.sends.append(send)
        async with Producer(self.cluster.bootstrap, rng=self.cluster.rng("producer")) as producer:
            stored = await producer.send_and_wait("t", b"acknowledged", b"k")
        send.outcome, send.place, send.offset, send.acked_order = "ok", PLACE, stored.offset, history.tick()

    def collect(self) -> None:
        leader = self.cluster.replica(self.state().leader, *PLACE)
        assert leader is not None
        end = leader.log.log_end_offset
        self.cluster.history.stored += records(PLACE, bytes(leader.log.read(0, 1 << 20, limit_offset=end)))

    def lost(self) -> list[str]:
        """The violations of the log checkers; without readers there are no others."""
        assert not self.cluster.history.failures
        return [line for line in data_plane.a4_unseen(self.cluster.history) if "never delivered" not in line]


def live_is_enough(state: ClusterState, isr: tuple[int, ...], row: PartitionData) -> bool:
    """Kafka's rule before KIP-903: every member is alive."""
    return set(isr) <= state.live


def seen_is_enough(partition: Partition, replica: int, follower: Follower) -> bool:
    """The leader's part of it."""
    return partition._rules.broker_epoch_of(replica) is not None


@contextlib.contextmanager
def unchecked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(alter_partition, "eligible", live_is_enough)
        patch.setattr(Partition, "_eligible", seen_is_enough)
        yield


@pytest.mark.parametrize("seed", range(5))
def test_with_the_check_delayed_request_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    race = Race(seed, monkeypatch)
    race.cluster.loop.run(race.run())
    assert race.answers[0] == 107, "INELIGIBLE_REPLICA"
    assert race.isr_after == (LEADER,)
    assert race.leader_after == -1, "the empty replica is not elected: the partition waits for the one that has it"
    assert [record.value for record in race.cluster.history.stored] == ["acknowledged"]
    assert not race.lost()


@pytest.mark.parametrize("seed", range(5))
def test_without_the_check_acknowledged_record_is_lost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with unchecked(monkeypatch):
        race = Race(seed, monkeypatch)
        race.cluster.loop.run(race.run())
    assert race.answers[0] == 0
    assert race.isr_after == (LEADER, FOLLOWER)
    assert race.leader_after == FOLLOWER
    assert race.lost() == ["acknowledged, acknowledged at t-0@0, is not in the log"]
