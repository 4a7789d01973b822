"""A cluster on a simulated loop: nodes, machines, disks, ZooKeeper and the network, all from one seed.

Nodes are `broker.node.app.Node`, unchanged, each in a process of its own on a host of its own; what surrounds them is
simulated. A host keeps its disk when its process dies.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.coordinators.runtime import failpoints
from anabranch.broker.node.app import Node
from anabranch.broker.replication.partition import Partition
from anabranch.controller.failpoints import step_of
from anabranch.controller.model import TopicBody
from anabranch.controller.zk import paths, znodes
from tests.sim.files import DiskView, SimDisk
from tests.sim.history import EpochWritten, History, Published, StateWritten, ZnodeWritten
from tests.sim.loop import Process, ProcessKilled, SimLoop, outside
from tests.sim.network import SimNetwork
from tests.sim.zookeeper import Change, SimZooKeeper

log = logging.getLogger(__name__)

PORT: Final = 9092
RESTART_PAUSE_S: Final = 0.3

OWNED: Final = (paths.CONTROLLER, paths.FEATURE, paths.LATEST_PRODUCER_ID_BLOCK)
OWNED_BELOW: Final = tuple(f"{path}/" for path in (paths.TOPICS, paths.DELETE_TOPICS, paths.TOPIC_CONFIGS))
"""What controllers write, beside states and their epoch."""

SETTINGS: Final = BrokerSettings(
    port=PORT,
    zookeeper_session_timeout_ms=2000,
    request_timeout_ms=2000,
    auto_create_topics_enable=False,
    default_replication_factor=3,
    min_insync_replicas=2,
    replica_lag_time_max_ms=1500,
    replica_fetch_wait_max_ms=400,
    replica_fetch_backoff_ms=300,
    replica_high_watermark_checkpoint_interval_ms=1000,
    log_segment_bytes=3000,
    log_index_interval_bytes=512,
    controlled_shutdown_retry_backoff_ms=300,
    group_min_session_timeout_ms=1000,
    group_initial_rebalance_delay_ms=0,
    offsets_topic_num_partitions=1,
    offsets_topic_replication_factor=3,
    offsets_commit_timeout_ms=2000,
    transaction_state_log_num_partitions=1,
    transaction_abort_timed_out_transaction_cleanup_interval_ms=1000,
)
"""Everything a few times faster than in life, so that a short run sees timeouts and their consequences."""


def chance(seed: int | str, purpose: str) -> random.Random:
    """The source of chance that a cluster of this seed has for a purpose."""
    return random.Random(f"{seed}/{purpose}")


class Machine:
    """One host: its disk, and the node process that runs on it, if any."""

    def __init__(self, node_id: int, settings: BrokerSettings, disk: SimDisk) -> None:
        self.node_id = node_id
        self.settings = settings
        self.disk = disk
        self.life = 0
        self.wanted = False
        self.process: Process | None = None
        self.node: Node | None = None
        self.booting: asyncio.Task[None] | None = None
        self.skew_ms = 0
        self.failpoint = ""
        self.at_failpoint: Literal["killed", "frozen", "expired"] = "killed"
        self.powered = True
        self.started = False
        self.lost_power = False
        self.deceived = False
        """Whether power failed after its disk had lied about a flush: its files need not agree from then on."""

    @property
    def host(self) -> str:
        return self.settings.host

    def files(self, process: Process) -> DiskView | dict[str, DiskView]:
        """What a process on it sees of its disk: a volume for each log directory, if there are several."""
        paths = self.settings.log_dirs
        return {path: DiskView(self.disk, process, path) for path in paths} if paths else DiskView(self.disk, process)

    @property
    def up(self) -> bool:
        """Whether a node runs that has got through its start."""
        return self.node is not None and self.process is not None and self.process.alive and self.started


class SimCluster:
    """Three brokers and `spares` nodes that are controllers only."""

    def __init__(
        self, seed: int | str, *, brokers: int = 3, spares: int = 1, changes: dict[str, Any] | None = None
    ) -> None:
        self.seed = seed
        self.loop = SimLoop(self.rng("loop"))
        self.loop.hasty = True
        self.network = SimNetwork(self.loop, self.rng("network"))
        self.zookeeper = SimZooKeeper(self.loop, self.rng("zookeeper"))
        self.history = History()
        self.fired: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.machines: dict[int, Machine] = {}
        self.applications: dict[str, Any] = {}
        """Client processes by the name of their host."""
        self.zookeeper.on_change.append(self._note_change)
        base = dataclasses.replace(SETTINGS, **(changes or {}))
        for node_id in range(1, brokers + spares + 1):
            roles = ("broker", "controller") if node_id <= brokers else ("controller",)
            settings = dataclasses.replace(base, node_id=node_id, host=f"node-{node_id}", roles=roles)
            disk = SimDisk(self.loop, self.rng(f"disk-{node_id}"), settings.host)
            self.machines[node_id] = Machine(node_id, settings, disk)
        self.brokers = [one for one in self.machines.values() if one.settings.is_broker]
        self.bootstrap = [f"{one.host}:{PORT}" for one in self.brokers]

    def rng(self, purpose: str) -> random.Random:
        """A source of chance of its own for each purpose, so that more chance here changes nothing there."""
        return chance(self.seed, purpose)

    def now(self) -> float:
        return self.loop.time()

    def tell(self, line: str) -> None:
        self.history.tell(self.loop.time(), line)

    # --- life of nodes

    async def start(self) -> None:
        """Boot every machine and wait until all brokers are known."""
        for machine in self.machines.values():
            self.boot(machine.node_id)
        count = len(self.brokers)
        await self.until(
            lambda: all(m.up and m.node is not None and len(_image(m.node).brokers) == count for m in self.brokers),
            30,
            "all brokers know each other",
        )

    def boot(self, node_id: int) -> None:
        """Start a machine's node, and restart it until it is stopped."""
        machine = self.machines[node_id]
        machine.wanted = True
        if machine.booting is None or machine.booting.done():
            machine.booting = self.loop.spawn(None, self._boot(machine), f"boot {machine.host}")

    async def _boot(self, machine: Machine) -> None:
        while machine.wanted and not machine.up:
            if not machine.powered:
                machine.powered = True
                self.network.host_is_up(machine.host)
            machine.life += 1
            process = machine.process = Process(f"{machine.host}.{machine.life}", machine.host)
            task = self.loop.spawn(process, self._start_node(machine, process), f"start {process.name}")
            while not task.done() and process.alive:
                await asyncio.sleep(0.02)
            if process.alive and task.exception() is None:
                self.tell(f"{process.name} is up")
                return
            if process.alive:
                error = task.exception()
                if not isinstance(error, (OSError, TimeoutError)):
                    self.history.failures.append(f"{process.name} cannot start: {error!r}")
                    return
                self.tell(f"{process.name} gives up: {error!r}")
                self.crash(machine.node_id)
                machine.wanted = True
            await asyncio.sleep(RESTART_PAUSE_S)

    async def _start_node(self, machine: Machine, process: Process) -> None:
        timeout_ms = machine.settings.zookeeper_session_timeout_ms
        skew_ms = machine.skew_ms  # a process takes the time of day once: `clients.clock`
        node = Node(
            machine.settings,
            connect=lambda: self.zookeeper.connect(timeout_ms),
            files=machine.files(process),
            rng=self.rng(f"node-{process.name}"),
            clock_ms=lambda: self.loop.time_of_day_ms() + skew_ms,
            failpoint=lambda point: self._reached(machine, process, point),
            in_turn=lambda: bool(machine.failpoint),
        )
        machine.node = node
        await node.start()
        machine.started = True
        node.failed.add_done_callback(lambda _: self.loop.spawn(None, self._exits(machine, node), "exit"))

    async def _exits(self, machine: Machine, node: Node) -> None:
        if machine.node is node and machine.up:
            self.tell(f"{machine.host} exits: {node.failed.exception()!r}")
            self.crash(machine.node_id)
            self.boot(machine.node_id)

    def _reached(self, machine: Machine, process: Process, point: str) -> None:
        process.must_live()
        step = point if point in failpoints.STEPS else step_of(point)
        self.steps[step] += 1
        if machine.failpoint != point:
            return
        machine.failpoint = ""
        self.fired[f"controller {machine.at_failpoint} after {step}"] += 1
        self.tell(f"{process.name} is {machine.at_failpoint} after {point}")
        if machine.at_failpoint == "expired":
            self.expire_session(machine.node_id)
        elif machine.at_failpoint == "frozen":
            self.freeze(machine.node_id)
            for_s = 1.5 * machine.settings.zookeeper_session_timeout_ms / 1000
            self.loop.call_later(for_s, self._thaw_that, machine, process, context=outside())
        else:
            self.crash(machine.node_id)
            self.boot(machine.node_id)
            raise ProcessKilled(point)

    def _thaw_that(self, machine: Machine, process: Process) -> None:
        if machine.process is process:
            self.thaw(machine.node_id)

    def crash(self, node_id: int, *, power: bool = False) -> None:
        """SIGKILL, or a power failure, which also loses what was not flushed and resets no connection."""
        machine = self.machines[node_id]
        machine.wanted = False
        process = machine.process
        if process is None or not process.alive:
            return
        machine.started = False
        self.fired["power lost" if power else "process killed"] += 1
        self.loop.kill(process)
        self.network.process_died(process, silently=power)
        self.zookeeper.host_died(process)
        machine.node = None
        if power:
            machine.powered = False
            # Its files need not agree from now on: a checkpoint may know of records that the log has lost.
            machine.deceived |= machine.disk.lied
            machine.lost_power |= machine.disk.lied or machine.settings.log_flush_interval_messages > 1
            machine.disk.lose_power()

    async def stop(self, node_id: int, *, within_s: float = 6.0) -> None:
        """SIGTERM: a controlled shutdown, and SIGKILL for one that takes too long."""
        machine = self.machines[node_id]
        node, process = machine.node, machine.process
        if node is None or process is None or not process.alive or not hasattr(node, "services"):
            return
        machine.wanted = False
        task = self.loop.spawn(process, node.stop(), f"stop {process.name}")
        deadline = self.loop.time() + within_s
        while not task.done() and process.alive and self.loop.time() < deadline:
            await asyncio.sleep(0.02)
        if machine.process is process:
            if task.done() and process.alive and (error := task.exception()) is not None:
                self.history.failures.append(f"{process.name} cannot stop: {error!r}")
            self.crash(node_id)

    def freeze(self, node_id: int) -> None:
        """SIGSTOP."""
        process = self.machines[node_id].process
        if process is not None and process.alive:
            self.fired["process frozen"] += 1
            self.loop.freeze(process)
            self.zookeeper.host_froze(process)

    def thaw(self, node_id: int) -> None:
        """SIGCONT."""
        process = self.machines[node_id].process
        if process is not None and process.alive and process.frozen:
            self.zookeeper.host_thawed(process)
            self.loop.thaw(process)

    async def freeze_for(self, node_id: int, length_s: float) -> None:
        """SIGSTOP, and SIGCONT after a while unless the process has been replaced."""
        process = self.machines[node_id].process
        self.freeze(node_id)
        await asyncio.sleep(length_s)
        if self.machines[node_id].process is process:
            self.thaw(node_id)

    async def cut_off_for(self, node_id: int, length_s: float) -> None:
        """Keep a node from ZooKeeper for a while."""
        host = self.machines[node_id].host
        self.zookeeper.cut(host)
        await asyncio.sleep(length_s)
        self.zookeeper.mend(host)

    def end_faults(self) -> None:
        """Mend every link, and let every node run."""
        self.network.heal_all()
        self.zookeeper.watch_delay_ms = 0
        for machine in self.machines.values():
            self.zookeeper.mend(machine.host)
            self.thaw(machine.node_id)
            if not machine.up:
                self.boot(machine.node_id)

    def expire_session(self, node_id: int) -> int:
        """End the node's ZooKeeper session as the server would."""
        sessions = self.zookeeper.sessions_of(self.machines[node_id].host)
        for session in sessions:
            self.zookeeper.expire(session)
            self.fired["session expired"] += 1
        return len(sessions)

    def write_znode(self, path: str, body: bytes) -> None:
        """Create a znode, as a tool that talks to ZooKeeper would."""
        self.zookeeper.write(lambda: self.zookeeper.tree.create(path, body, owner=0))

    def partition(self, some: list[str], others: list[str], *, one_way: bool = False) -> None:
        """Block all links from some hosts to others, and back."""
        for source in some:
            for target in others:
                self.network.block(source, target)
                if not one_way:
                    self.network.block(target, source)

    # --- looking

    def active_controller(self) -> int:
        """The node in office by ZooKeeper's word; 0 if there is none."""
        known = self.zookeeper.tree.nodes.get(paths.CONTROLLER)
        return 0 if known is None else znodes.decode_controller(paths.CONTROLLER, known.data).broker_id

    def states(self) -> Iterator[tuple[tuple[str, int], Any]]:
        """Every partition's committed state."""
        nodes = self.zookeeper.tree.nodes
        for path in sorted(path for path in nodes if place_of(path) is not None):
            place = place_of(path)
            assert place is not None
            yield place, _partition_state(path, nodes[path].data)

    def leader(self, topic: str, index: int) -> int:
        """The leader by ZooKeeper's word; -1 if there is none."""
        state = self.state((topic, index))
        return -1 if state is None else int(state.leader)

    def isr(self, topic: str, index: int) -> tuple[int, ...]:
        """Who is in sync by ZooKeeper's word."""
        state = self.state((topic, index))
        return () if state is None else tuple(state.isr)

    def replica(self, node_id: int, topic: str, index: int) -> Partition | None:
        """What a live broker has of a partition."""
        machine = self.machines.get(node_id)
        if machine is None or machine.node is None or not machine.up or not hasattr(machine.node, "services"):
            return None
        broker = machine.node.services.broker
        return None if broker is None else broker.replicas._partitions.get((topic, index))

    def state(self, place: tuple[str, int]) -> Any:
        """A partition's committed state; None if it has none."""
        path = paths.partition_state(*place)
        node = self.zookeeper.tree.nodes.get(path)
        return None if node is None else _partition_state(path, node.data)

    def topic(self, name: str) -> TopicBody | None:
        """A topic's znode."""
        path = paths.topic(name)
        node = self.zookeeper.tree.nodes.get(path)
        return None if node is None else _topic(path, node.data)

    def topics(self) -> Iterator[tuple[str, TopicBody]]:
        """Every topic's znode."""
        nodes = self.zookeeper.tree.nodes
        for path in sorted(path for path in nodes if paths.parent(path) == paths.TOPICS):
            yield paths.name(path), _topic(path, nodes[path].data)

    def assignments(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """The replicas of every partition; while they are moved, the old and the new ones."""
        return {(name, index): ids for name, body in self.topics() for index, ids in body.assignment.items()}

    def resting(self) -> bool:
        """Whether no topic is to be deleted, moved or resized."""
        deleting = self.zookeeper.tree.nodes.get(paths.DELETE_TOPICS)
        if deleting is not None and deleting.children:
            return False
        return not any(body.reassigned or body.plan for _, body in self.topics())

    def all_in_isr(self) -> bool:
        """Whether every replica is in its partition's ISR by ZooKeeper's word."""
        assigned = self.assignments()
        return all(set(state.isr) == set(assigned.get(place, ())) for place, state in self.states())

    def in_sync(self) -> bool:
        """Whether every partition is led and has all its replicas in its ISR, in the leaders' eyes too."""
        if any(not machine.up for machine in self.machines.values()) or not self.active_controller():
            return False
        assigned = self.assignments()
        for place, state in self.states():
            if state.leader <= 0 or set(state.isr) != set(assigned.get(place, ())):
                return False
            led = self.replica(state.leader, *place)
            if led is None or not led.is_leader or led.leader_epoch != state.leader_epoch:
                return False
            for broker_id in assigned[place]:
                one = self.replica(broker_id, *place)
                if one is None or one.high_watermark != led.log.log_end_offset:
                    return False
        return self.resting()

    async def until(
        self, condition: Callable[[], bool], limit_s: float, what: str, *, rule: str = "L1 no convergence"
    ) -> bool:
        """Wait until a condition holds; failing that is a failure of the run."""
        deadline = self.loop.time() + limit_s
        while not condition():
            if self.loop.time() >= deadline:
                self.history.failures.append(f"{rule}: {what} did not happen within {limit_s:g} s")
                return False
            await asyncio.sleep(0.1)
        return True

    # --- the referee

    def _ordered(self, name: str) -> bool:
        node = self.zookeeper.tree.nodes.get(paths.topic_config(name))
        config = {} if node is None else znodes.decode_config(paths.topic_config(name), node.data)
        return config.get("enable.ordered.delivery", "true") == "true"

    def _topic_id(self, name: str) -> str:
        node = self.zookeeper.tree.nodes.get(paths.topic(name))
        return "" if node is None else _topic(paths.topic(name), node.data).topic_id.hex()

    def _note_change(self, change: Change) -> None:
        history = self.history
        if change.path == paths.CONTROLLER_EPOCH and change.data is not None:
            epoch = znodes.decode_controller_epoch(change.path, change.data)
            history.epochs.append(EpochWritten(history.tick(), epoch, change.session_id))
            return
        place = place_of(change.path)
        written = place is not None and change.data is not None
        if not written and (change.path in OWNED or change.path.startswith(OWNED_BELOW)):
            row = ZnodeWritten(history.tick(), change.zxid, change.path, change.kind, change.session_id)
            history.znodes.append(row)
        if place is not None and change.data is not None:
            state = _partition_state(change.path, change.data)
            registered = tuple(m.node_id for m in self.brokers if paths.broker(m.node_id) in self.zookeeper.tree.nodes)
            history.states.append(
                StateWritten(
                    history.tick(),
                    place,
                    change.version,
                    state.leader,
                    state.leader_epoch,
                    tuple(state.isr),
                    state.controller_epoch,
                    state.generation,
                    state.sealed,
                    change.session_id,
                    registered,
                    self._topic_id(place[0]),
                )
            )
        elif paths.parent(change.path) == paths.TOPICS and change.data is not None:
            topic = _topic(change.path, change.data)
            name = paths.name(change.path)
            generations = tuple(topic.history) if self._ordered(name) else ()  # otherwise keys move as it grows
            history.published.append(Published(history.tick(), name, topic.base, generations))


_partition_state: Final = functools.lru_cache(maxsize=4096)(znodes.decode_partition_state)
_topic: Final = functools.lru_cache(maxsize=1024)(znodes.decode_topic)
"""Faults and checks read the same few znodes hundreds of times a second; what is decoded is never changed."""


@functools.lru_cache(maxsize=4096)
def place_of(path: str) -> tuple[str, int] | None:
    """The partition that a state znode is of."""
    parts = path.split("/")
    if len(parts) == 7 and path.startswith(paths.TOPICS) and parts[6] == "state":
        return parts[3], int(parts[5])
    return None


def _image(node: Node) -> Any:
    return node.services.metadata.image if hasattr(node, "services") else _NOTHING


class _Nothing:
    brokers: dict[int, Any] = {}


_NOTHING = _Nothing()
