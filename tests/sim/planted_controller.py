"""Planted bugs of controllers and their peers; see `planted`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.broker.membership import registration
from anabranch.broker.membership.controller_fence import ControllerFence
from anabranch.broker.replication.partition import Partition
from anabranch.controller import alter_partition, elections, fenced_writes, machine, partitions
from anabranch.controller.candidacy import retry_connection_loss
from anabranch.controller.effects import PartitionWrite
from anabranch.controller.zk import paths
from anabranch.controller.znode_reader import ZnodeReader
from tests.sim.planted import Planter, plant


@plant("controller writes unfenced", aim="a controller is asked for producer ids while another takes over")
def unfenced(planter: Planter) -> None:
    async def write(session: Any, term: Any, ops: Any) -> Any:
        return await retry_connection_loss(lambda: session.multi(list(ops)))

    planter.replace(fenced_writes, "commit_fenced", write)


@plant("requests of a deposed controller accepted")
def stale_controller(planter: Planter) -> None:
    def admit(fence: Any, *, controller_epoch: int, broker_epoch: int) -> None:
        fence.controller_epoch = min(fence.controller_epoch, controller_epoch)
        original(fence, controller_epoch=controller_epoch, broker_epoch=broker_epoch)

    original = planter.replace(ControllerFence, "admit", admit)


@plant("requests for an earlier life of a broker accepted")
def earlier_life(planter: Planter) -> None:
    async def at_once(fence: Any) -> None:
        return

    def admit(fence: Any, *, controller_epoch: int, broker_epoch: int) -> None:
        original(fence, controller_epoch=controller_epoch, broker_epoch=-1)

    original = planter.replace(ControllerFence, "admit", admit)
    planter.replace(ControllerFence, "wait_registered", at_once)


@plant("unclean election although it is off")
def unclean(planter: Planter) -> None:
    def offline(assignment: Any, isr: Any, live: Any, *, unclean: bool) -> Any:
        return original(assignment, [one for one in assignment if one in live][-1:] or isr, live, unclean=True)

    original = planter.replace(elections, "elect_offline_leader", offline)


@plant("an election keeps the leader epoch")
def epoch_kept(planter: Planter) -> None:
    def led(committed: Any, elected: Any, controller_epoch: int) -> Any:
        after = original(committed, elected, controller_epoch)
        return replace(after, leader_epoch=committed.state.leader_epoch)

    original = planter.replace(partitions, "with_leader", led)


@plant("stale ISR accepted")
def stale_isr(planter: Planter) -> None:
    def decide(state: Any, partition: Any, row: Any, *, by_id: bool, requester: int) -> Any:
        committed = state.partitions[partition]
        isr = tuple(member.broker_id for member in row.new_isr_with_epochs)
        if isr == committed.state.isr:
            return None
        return PartitionWrite(partition, replace(committed.state, isr=isr), committed.epoch)

    planter.replace(alter_partition, "decide", decide)


@plant("broker epochs in an ISR not compared (before KIP-903)")
def kip_903_off(planter: Planter) -> None:
    planter.replace(alter_partition, "eligible", lambda state, isr, row: True)
    planter.replace(Partition, "_eligible", lambda partition, replica, follower: True)


@plant("a restarted broker is taken for its earlier life")
def lives_confused(planter: Planter) -> None:
    def on_brokers_read(state: Any, event: Any) -> Any:
        known = {one: state.brokers.get(one, broker) for one, broker in event.brokers.items()}
        return original(state, replace(event, brokers=known))

    original = planter.replace(machine, "on_brokers_read", on_brokers_read)


@plant("a watch that is not set again")
def watch_lost(planter: Planter) -> None:
    async def brokers(reader: Any) -> Any:
        if reader.__dict__.setdefault("_number", 0) >= 2:
            session, reader._session = reader._session, _WithoutWatches(reader._session)
            try:
                return await original(reader)
            finally:
                reader._session = session
        reader._number += 1
        return await original(reader)

    original = planter.replace(ZnodeReader, "brokers", brokers)


class _WithoutWatches:
    """A session on which nobody watches."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def get(self, path: str, watch: Any = None) -> Any:
        return await self._session.get(path)

    async def children(self, path: str, watch: Any = None) -> Any:
        return await self._session.children(path)

    async def exists(self, path: str, watch: Any = None) -> Any:
        return await self._session.exists(path)


@plant(
    "a restored node takes the registration of its earlier session for its own",
    aim="a node is restored while its session lives",
)
def earlier_registration(planter: Planter) -> None:
    async def register(session: Any, settings: Any, timestamp_ms: int) -> int:
        stat = await session.exists(paths.broker(settings.node_id))
        return int(await original(session, settings, timestamp_ms) if stat is None else stat.czxid)

    original = planter.replace(registration, "register", register)
