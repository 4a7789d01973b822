"""Bugs to plant: each breaks one rule of the product while it is planted, and simulation has to notice.

A planted bug replaces functions of the product from outside; nothing in the product knows of it. `catch` runs
schedules until one is judged guilty, and says after how many and by which checker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

PLANTS: Final[dict[str, Callable[[Planter], None]]] = {}


@dataclass(frozen=True)
class Caught:
    """What became of a planted bug."""

    name: str
    schedules: int
    checker: str
    detail: str

    @property
    def found(self) -> bool:
        return bool(self.checker)


class Planter:
    """Replaces attributes and puts them back."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def replace(self, owner: Any, name: str, value: Any) -> Any:
        """Put `value` in the place of an attribute that must exist; returns what was there."""
        original = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
        setattr(owner, name, value)
        self._stack.callback(setattr, owner, name, original)
        return original


def plant(name: str) -> Callable[[Callable[[Planter], None]], Callable[[Planter], None]]:
    """Put a bug on the list."""

    def enter(function: Callable[[Planter], None]) -> Callable[[Planter], None]:
        PLANTS[name] = function
        return function

    return enter


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[None]:
    """The product with one bug in it."""
    with ExitStack() as stack:
        if name is not None:
            PLANTS[name](Planter(stack))
        yield


def catch(name: str, *, limit: int = 500, first_seed: int = 0) -> Caught:
    """Run schedules until one finds the bug."""
    from tests.sim.schedule import Schedule

    for count in range(1, limit + 1):
        with planted(name):
            violations = Schedule(first_seed + count - 1).run().violations
        if violations:
            # Of several, the checkers say more than "it did not converge" or an exception somewhere.
            told = next((one for one in violations if not one.startswith("run: ")), violations[0])
            return Caught(name, count, _checker_of(told), told)
    return Caught(name, limit, "", "")


def _checker_of(violation: str) -> str:
    if violation.startswith("run: L1"):
        return "L1 no convergence"
    if violation.startswith("run: "):
        return "an error that nobody handled"
    return violation.partition(":")[0]


# --- replication


@plant("acknowledge before replication")
def acknowledge_early(planter: Planter) -> None:
    from broker.replication.waiting import ReplicationWait
    from protocol.errors import ErrorCode

    def settled(wait: Any) -> bool:
        wait.code = ErrorCode.NONE
        return True

    planter.replace(ReplicationWait, "settled", settled)


@plant("acknowledge below min.insync.replicas")
def acknowledge_alone(planter: Planter) -> None:
    from broker.replication.partition import Partition

    planter.replace(Partition, "effective_min_isr", property(lambda partition: 1))


@plant("no truncation")
def no_truncation(planter: Planter) -> None:
    from broker.replication import fetcher

    planter.replace(fetcher, "truncate", lambda partition, leader: None)


@plant("truncation to the high watermark (before KIP-101)")
def truncate_to_high_watermark(planter: Planter) -> None:
    from broker.replication.fetcher import Fetcher

    def follow(fetcher: Any, partition: Any) -> None:
        partition.log.truncate_to(partition.high_watermark)
        original(fetcher, partition)

    original = planter.replace(Fetcher, "follow", follow)


@plant("leader epoch of a fetch not checked (before KIP-320)")
def epoch_not_checked(planter: Planter) -> None:
    from broker.replication.partition import Partition

    planter.replace(Partition, "check_epoch", lambda partition, believed: None)


@plant("divergence of a fetch not checked")
def divergence_not_checked(planter: Planter) -> None:
    from clients.connection import Connection
    from protocol.apis.fetch import FetchRequest

    def send(connection: Any, request: Any, **options: Any) -> Any:
        if isinstance(request, FetchRequest):
            for topic in request.topics:
                for row in topic.partitions:
                    row.last_fetched_epoch = -1
        return original(connection, request, **options)

    original = planter.replace(Connection, "send", send)


@plant("high watermark ignores a pending ISR")
def ignore_pending_isr(planter: Planter) -> None:
    from broker.replication.partition import Partition

    planter.replace(Partition, "maximal_isr", property(lambda partition: partition.isr))
    # The grace given to a replica that is about to join would hide it.
    planter.replace(Partition, "_eligible", lambda partition, replica, follower: not partition.pending)


@plant("high watermark from the fastest replica")
def high_watermark_of_the_fastest(planter: Planter) -> None:
    from broker.replication.partition import Partition, Role

    def advance(partition: Any, now_ms: float) -> bool:
        if partition.role is not Role.LEADER or not partition.followers:
            return False
        safe = min(partition.log.log_end_offset, max(one.log_end_offset for one in partition.followers.values()))
        if safe <= partition.high_watermark:
            return False
        partition.high_watermark = safe
        return True

    planter.replace(Partition, "advance_high_watermark", advance)


@plant("a replica joins the ISR before it has caught up")
def join_early(planter: Planter) -> None:
    from broker.replication.partition import Partition

    def propose_expand(partition: Any, replica: int, own_broker_epoch: int) -> Any:
        if partition.pending is not None or replica in partition.isr or not partition.is_leader:
            return None
        return partition._propose((*partition.isr, replica), own_broker_epoch)

    planter.replace(Partition, "propose_expand", propose_expand)


@plant("a follower takes over a lower high watermark")
def high_watermark_back(planter: Planter) -> None:
    from broker.replication.partition import Partition

    def follow(partition: Any, offset: int) -> bool:
        partition.high_watermark = min(offset, partition.log.log_end_offset)
        return True

    planter.replace(Partition, "follow_high_watermark", follow)


@plant("consumers read above the high watermark")
def read_uncommitted_tail(planter: Planter) -> None:
    from broker.handlers import fetch

    owner = next(one for one in vars(fetch).values() if isinstance(one, type) and "_limit" in vars(one))
    planter.replace(owner, "_limit", lambda reader, partition: partition.log.log_end_offset)


@plant("late answer to an ISR proposal applied")
def late_answer(planter: Planter) -> None:
    from broker.replication.partition import Partition, Verdict

    def on_answer(partition: Any, change: Any, answer: Any) -> Any:
        partition.isr = change.isr
        partition.pending = None
        return Verdict.COMMITTED

    planter.replace(Partition, "on_answer", on_answer)


@plant("duplicates of a producer not recognised")
def duplicates_stored(planter: Planter) -> None:
    from broker.storage.producer_state import ProducerStates

    planter.replace(ProducerStates, "find_duplicate", lambda states, header: None)
    planter.replace(ProducerStates, "check", lambda states, header, **options: None)


@plant("producer state lost when a log is opened")
def producer_state_lost(planter: Planter) -> None:
    from broker.storage.log import PartitionLog
    from broker.storage.producer_state import ProducerStates

    def opened(cls: Any, *args: Any, **options: Any) -> Any:
        log = original.__func__(cls, *args, **options)
        log.producers = ProducerStates()
        return log

    original = planter.replace(PartitionLog, "open", classmethod(opened))


@plant("epoch cache not cut with the log")
def epochs_not_cut(planter: Planter) -> None:
    from broker.storage.epochs import LeaderEpochCache

    planter.replace(LeaderEpochCache, "truncate_from_end", lambda cache, end_offset: None)


# --- storage


@plant("a flush that does nothing")
def no_flush(planter: Planter) -> None:
    from broker.storage.log import PartitionLog

    planter.replace(PartitionLog, "flush", lambda log: None)


@plant("a torn end kept when a log is opened")
def torn_end_kept(planter: Planter) -> None:
    import broker.storage.segment as segment

    planter.replace(segment, "check_crc", lambda *args: True)


# --- the controller


@plant("controller writes unfenced")
def unfenced(planter: Planter) -> None:
    from controller import znode_writer

    async def write(session: Any, term: Any, ops: Any) -> Any:
        return await session.multi(list(ops))

    planter.replace(znode_writer, "fenced", write)


@plant("requests of a deposed controller accepted")
def stale_controller(planter: Planter) -> None:
    from broker.services import ControllerFence

    def admit(fence: Any, *, controller_epoch: int, broker_epoch: int) -> None:
        fence.controller_epoch = controller_epoch

    planter.replace(ControllerFence, "admit", admit)


@plant("requests for an earlier life of a broker accepted")
def earlier_life(planter: Planter) -> None:
    from broker.services import ControllerFence

    async def at_once(fence: Any) -> None:
        return

    def admit(fence: Any, *, controller_epoch: int, broker_epoch: int) -> None:
        original(fence, controller_epoch=controller_epoch, broker_epoch=-1)

    original = planter.replace(ControllerFence, "admit", admit)
    planter.replace(ControllerFence, "registered", at_once)


@plant("unclean election although it is off")
def unclean(planter: Planter) -> None:
    from controller import elections

    def offline(assignment: Any, isr: Any, live: Any, *, unclean: bool) -> Any:
        return original(assignment, [one for one in assignment if one in live][-1:] or isr, live, unclean=True)

    original = planter.replace(elections, "offline", offline)


@plant("an election keeps the leader epoch")
def epoch_kept(planter: Planter) -> None:
    from controller import partitions

    def led(committed: Any, elected: Any, controller_epoch: int) -> Any:
        after = original(committed, elected, controller_epoch)
        return replace(after, leader_epoch=committed.state.leader_epoch)

    original = planter.replace(partitions, "led", led)


@plant("stale ISR accepted")
def stale_isr(planter: Planter) -> None:
    from controller import alter_partition
    from controller.effects import PartitionWrite

    def decide(state: Any, partition: Any, row: Any, *, by_id: bool) -> Any:
        committed = state.partitions[partition]
        isr = tuple(member.broker_id for member in row.new_isr_with_epochs)
        if isr == committed.state.isr:
            return None
        return PartitionWrite(partition, replace(committed.state, isr=isr), committed.epoch)

    planter.replace(alter_partition, "decide", decide)


@plant("broker epochs in an ISR not compared (before KIP-903)")
def kip_903_off(planter: Planter) -> None:
    from broker.replication.partition import Partition
    from controller import alter_partition

    planter.replace(alter_partition, "eligible", lambda state, isr, row: True)
    planter.replace(Partition, "_eligible", lambda partition, replica, follower: True)


@plant("a restarted broker is taken for its earlier life")
def lives_confused(planter: Planter) -> None:
    from controller import machine

    def on_brokers_read(state: Any, event: Any) -> Any:
        known = {one: state.brokers.get(one, broker) for one, broker in event.brokers.items()}
        return original(state, replace(event, brokers=known))

    original = planter.replace(machine, "on_brokers_read", on_brokers_read)


@plant("a watch that is not set again")
def watch_lost(planter: Planter) -> None:
    from controller.znode_reader import ZnodeReader

    async def brokers(reader: Any) -> Any:
        if reader.__dict__.setdefault("_asked", 0) >= 2:
            session, reader._session = reader._session, _WithoutWatches(reader._session)
            try:
                return await original(reader)
            finally:
                reader._session = session
        reader._asked += 1
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


# --- groups


@plant("commits of an old generation accepted")
def zombie_commits(planter: Planter) -> None:
    from broker.coordinators.groups import Group

    planter.replace(Group, "authorize_commit", lambda *args, **options: None)


@plant("commits acknowledged before they are stored")
def commits_not_stored(planter: Planter) -> None:
    from broker.replication.replica_manager import ReplicaManager

    async def append(manager: Any, topic: str, index: int, records: Any, **options: Any) -> Any:
        return await original(manager, topic, index, records, **{**options, "acks": 1})

    original = planter.replace(ReplicaManager, "append", append)


# --- resizes


@plant("generation of a batch not checked")
def generation_not_checked(planter: Planter) -> None:
    from broker.replication.partition import Partition

    planter.replace(Partition, "check_generation", lambda partition, stamp: None)


@plant("sealed partitions accept records")
def seal_ignored(planter: Planter) -> None:
    from broker.replication.partition import Partition

    def adopt(partition: Any, state: Any, role: Any) -> None:
        generation = partition.generation
        original(partition, state, role)
        if partition.sealed:
            partition.sealed = False
            partition.generation = generation

    original = planter.replace(Partition, "_adopt", adopt)


@plant("a generation is published before its leaders are fenced")
def publish_early(planter: Planter) -> None:
    from controller import resize

    planter.replace(resize, "all_adopted", lambda state, topic, indices: True)
    planter.replace(resize, "bumped", _bumped_without_generation(resize.bumped))


def _bumped_without_generation(original: Any) -> Any:
    """The new leader epoch and generation are written, but no leader is told to take them over."""

    def bumped(committed: Any, generation: int, *, sealed: bool, controller_epoch: int) -> Any:
        after = original(committed, generation, sealed=sealed, controller_epoch=controller_epoch)
        return replace(after, leader_epoch=committed.state.leader_epoch)

    return bumped


@plant("gates are always open")
def gates_open(planter: Planter) -> None:
    from clients.consumer.gatekeeper import Gatekeeper

    planter.replace(Gatekeeper, "passes", lambda keeper, topic, segment: True)


@plant("boundaries are crossed without a flush")
def no_flush_callback(planter: Planter) -> None:
    from clients.consumer import listener

    async def tell(callback: Any, about: Any) -> None:
        if "maybe_revoked" not in callback.__name__:
            await original(callback, about)

    original = planter.replace(listener, "tell", tell)
    from clients.consumer import handover

    planter.replace(handover, "tell", tell)


@plant("a producer does not wait at the barrier of a resize")
def no_barrier(planter: Planter) -> None:
    from clients.producer import accumulator, switch

    planter.replace(switch, "stale_classes", lambda topic: set())
    planter.replace(switch, "closed_partitions", lambda topic: frozenset())
    for name in ("stale_classes", "closed_partitions"):
        if name in vars(accumulator):
            planter.replace(accumulator, name, getattr(switch, name))


from tests.sim import planted_found, planted_transactions  # noqa: E402, F401  (they enter their bugs on the list)
