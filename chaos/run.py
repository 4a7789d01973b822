"""A chaos run: real processes under load and faults, then convergence without faults, and a verdict.

While faults come in bursts with pauses, producers send keyed records, a group reads them and the topic is resized. Then
all faults end, all nodes are started, and the cluster must converge: every replica in sync, every record acknowledged,
delivered and committed. Then the logs are read from the brokers' directories and the history is judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch import Admin, NewTopic
from anabranch.chaos import archive, judgement
from anabranch.chaos import share_readers as sharers
from anabranch.chaos.archive import ClusterHistory
from anabranch.chaos.audit_companion import AuditCompanionProcess, moments
from anabranch.chaos.clients import CLIENT_FAILURES, GROUP, TOPIC, Operator, Reader, Record, Writer, watching
from anabranch.chaos.cluster import ChaosCluster, controlled
from anabranch.chaos.copiers import CopiedTopic
from anabranch.chaos.faults import FAULTS, Fired
from anabranch.chaos.history import Place
from anabranch.chaos.lagging_group import describe_lag
from anabranch.chaos.members import MemberGroup, write_sent
from anabranch.chaos.numbered_topic import NumberedTopic
from anabranch.chaos.plan import Plan
from anabranch.chaos.scene import Scene
from anabranch.chaos.share_readers import SharedTopic
from anabranch.chaos.side_topic import SideTopic, has_committed, read_commits
from anabranch.chaos.verdict import Verdict
from anabranch.cluster.node_process import NodeFailed
from anabranch.control.actions import ActionRefused
from anabranch.control.front.front_journal import find_exchanges
from anabranch.controller.model import LeaderAndIsr
from anabranch.controller.zk.kazoo_session import open_kazoo
from anabranch.controller.zk.session import ZkError

if TYPE_CHECKING:
    from anabranch.control.endpoint import ControlEndpoint
    from anabranch.journal.entry import ExchangeRow


POLL_S: Final = 0.25
JOURNAL: Final = 2000
"""How many exchanges each node keeps in runs with members, whose reports show the last ones."""
EXCHANGES: Final = 20
"""How many exchanges of a member its report shows."""
FIRST_COUNT: Final = 3
COUNTS: Final = (1, 2, 3, 4, 5, 6, 8, 12, 16)
STEPS_UP: Final = (1, 1, 2, 3)
"""By how many partitions a topic grows that may only grow."""
SENT: Final = "sent.jsonl"
PROPERTIES: Final = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "5000",
    "request.timeout.ms": "8000",
    "group.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "auto.create.topics.enable": "false",
    "log.segment.bytes": "65536",
}
Say = Callable[[str], None]


class ChaosRun:
    """One run on one cluster."""

    def __init__(
        self, plan: Plan, cluster: ChaosCluster, *, say: Say, companion: AuditCompanionProcess | None = None
    ) -> None:
        self.plan = plan
        self.cluster = cluster
        self.history = ClusterHistory(complete=False)
        self.record = Record(self.history)
        self.fired: list[Fired] = []
        self._say = say
        self._companion = companion
        self._rng = random.Random(plan.seed)
        servers, access = cluster.bootstrap_servers, cluster.access
        self._writers = [
            Writer(
                f"w{one}", servers, self.record, self._chance(f"w{one}"), keys=plan.keys, rate=plan.rate, access=access
            )
            for one in range(plan.writers)
        ]
        self._readers = [
            Reader(f"r{one}", servers, self.record, audit=plan.audit, access=access) for one in range(plan.readers)
        ]
        self._operator = Operator(
            servers, self.record, self._chance("operator"), pause_s=plan.resize_every_s, access=access
        )
        self._groups = [
            MemberGroup(name, command, servers, cluster.directory / "members") for name, command in plan.members.items()
        ]
        shared = copied = numbered = None
        if plan.sharers:
            shared = SharedTopic(servers, self._chance, members=plan.sharers, rate=plan.rate, access=access)
        if plan.copiers:
            copied = CopiedTopic(servers, self._chance, members=plan.copiers, access=access)
        if plan.instances:
            numbered = NumberedTopic(
                servers,
                cluster.directory / "streams",
                instances=plan.instances,
                access=access,
                client_properties=cluster.client_properties,
            )
        self._sides: list[SideTopic] = [one for one in (shared, copied, numbered) if one is not None]
        self.scene = Scene(
            cluster,
            self._chance("victims"),
            self._resize,
            self._readers,
            set(),
            self._groups,
            shared,
            copied,
            numbered,
        )
        self._started_s = 0.0

    def _chance(self, purpose: str) -> random.Random:
        return random.Random(f"{self.plan.seed}/{purpose}")

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _tell(self, line: str) -> None:
        at = self._now() - self._started_s
        self.history.tell(at, line)
        self._say(f"{at:7.1f}  {line}")

    # --- phases

    async def run(self) -> Verdict:
        """Run the faults, wait for convergence, and judge. Returns the verdict."""
        self._started_s = self._now()
        async with Admin(self.cluster.bootstrap_servers, **self.cluster.access) as admin:
            others = await self._create_topics(admin)
        if self._companion is not None:
            await self._companion.begin(self.cluster.bootstrap_servers, self.cluster.client_properties)
        with watching():
            readers = [asyncio.create_task(one.run(), name=one.name) for one in self._readers]
            writers = [asyncio.create_task(one.run(), name=one.name) for one in self._writers]
            operator = asyncio.create_task(self._operator.run(self._other_count), name="operator")
            groups = [(one, one.tasks()) for one in self._groups]
            members = [task for _, tasks in groups for task in tasks]
            try:
                await self._watched(self._disturb(), [*readers, *writers, operator, *members, *others])
                await self._converge(operator, writers)
            finally:
                await asyncio.gather(*(one.stop(tasks) for one, tasks in groups))
                await asyncio.gather(*(one.stop() for one in self._sides))
                for one in self._readers:
                    one.stopping = True
                    one.replace()
                _, late = await asyncio.wait(readers, timeout=20)
                for task in (*late, *writers, operator):
                    task.cancel()
                await asyncio.gather(*readers, *writers, operator, return_exceptions=True)
        for side in self._sides:
            self.history.failures += await side.failures()
        if self._companion is not None:
            await self._companion.end(moments(self.fired, self.record.resizes))
        await self._collect()
        if self._groups:
            write_sent(self.history.sends, self.cluster.directory / "members" / SENT)
        return Verdict(
            self.plan,
            judgement.judge(self.history, self._groups, self._sides),
            self.fired,
            self.record,
            self._now() - self._started_s,
            sum(one.restarts for one in self._readers),
            self._groups,
            self._sides,
            judgement.judge_again(self.history, self._groups),
        )

    async def _create_topics(self, admin: Admin) -> list[asyncio.Task[None]]:
        """Create all topics; return the tasks of the clients of topics beside the resized one, which have begun."""
        for topic in filter(None, (TOPIC, self.plan.audit)):
            configs = {} if self.plan.gated else {"reshard.legacy.consumers": "ignore"}
            if self.plan.shrinks:
                configs["reshard.legacy.consumers.shrink"] = "warn"
            await admin.create_topics(
                [NewTopic(name=topic, partitions=FIRST_COUNT, replication_factor=3, configs=configs)]
            )
            await admin.wait_for_topic(topic, replicas=3)
        return [task for side in self._sides for task in await side.begin(admin)]

    async def _watched(self, work: Awaitable[None], clients: Iterable[asyncio.Task[None]]) -> None:
        """Do the work; fail if a client ends with a bug."""
        working = asyncio.ensure_future(work)
        done, _ = await asyncio.wait([working, *clients], return_when=asyncio.FIRST_COMPLETED)
        if working not in done:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        for one in done:
            one.result()

    def _other_count(self, count: int) -> int:
        chance, known = self._chance(f"count {len(self.record.resizes)}"), count or FIRST_COUNT
        if self._groups and not self.plan.shrinks:
            return known + chance.choice(STEPS_UP)
        return chance.choice([one for one in COUNTS if one != known])

    async def _resize(self) -> None:
        known = self.record.resizes[-1][2] if self.record.resizes else FIRST_COUNT
        await self._operator.resize(self._other_count(known))

    async def _disturb(self) -> None:
        end = self._now() + self.plan.duration_s
        under_way: set[asyncio.Task[None]] = set()
        try:
            while (left := end - self._now()) > 0 or not self.plan.enough(self.fired):
                pause_s = self._rng.expovariate(1 / self.plan.pace_s)
                await asyncio.sleep(min(left, pause_s) if left > 0 else pause_s)
                for group in self._groups:
                    group.look()  # all lines at once would hold the loop, and the links to ZooKeeper, for long
                for _ in range(self._rng.choice((1, 1, 1, 2, 2, 3))):  # overlapping faults find most bugs
                    name = self._rng.choice(self.plan.faults)
                    under_way.add(asyncio.create_task(self._fault(name), name=name))
                for task in [task for task in under_way if task.done()]:
                    under_way.discard(task)
                    task.result()
            self._tell("no more faults")
            await asyncio.gather(*under_way)
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _fault(self, name: str) -> None:
        started_s = self._now()
        try:
            what = await FAULTS[name](self.scene)
        except NodeFailed as error:
            self.history.failures.append(f"{name}: {error}")
            return
        except ActionRefused as error:  # the node has ended by itself, or another fault has it
            self._tell(f"{name}: {error}")
            return
        if what is not None:
            self.fired.append(Fired(name, what, started_s, self._now()))
            self.cluster.publish("chaos fault", fault=name, what=what)
            self._tell(f"{name}: {what} (began {started_s - self._started_s:.1f})")

    async def _converge(self, operator: asyncio.Task[None], writers: list[asyncio.Task[None]]) -> None:
        """Wait until the cluster has recovered by itself.

        Add a failure to the history for each step that times out.
        """
        for row in self.cluster.front.rules.known_rows():
            self._tell(f"still in force: {row['rule']}")
        self._operator.stop()
        for one in self._writers:
            one.stopping = True
        for side in self._sides:
            side.end_of_faults()
        await self._until(lambda: all(task.done() for task in writers), "the writers' records are acknowledged")
        await self._until(operator.done, "the last resize is done")
        for task in (operator, *writers):
            if task.done() and task.exception() is not None:
                self.history.failures.append(f"{task.get_name()} failed: {task.exception()!r}")
        await self._until(self._in_sync, "all replicas are in sync")
        async with Admin(self.cluster.bootstrap_servers, **self.cluster.access) as admin:
            delivered = partial(has_committed, admin, GROUP, self._ends())
            self.history.complete = await self._until(delivered, "every record is delivered and committed")
            if not self.history.complete:
                self.history.failures += self._undelivered(await read_commits(admin, GROUP))
            for side in self._sides:
                await self._until(partial(side.done, admin, self._ends()), side.awaited)
            for group in self._groups:
                if not await self._until(partial(self._all_handed, group), f"{group.name}: every record is delivered"):
                    self.history.failures.append(await self._describe_lag(admin, group))

    async def _describe_lag(self, admin: Admin, group: MemberGroup) -> str:
        found = describe_lag(admin, group, self.history.sends, self._exchanges)
        return f"{group.name} lacks records:\n      " + "\n      ".join([line async for line in found])

    async def _exchanges(self, client_id: str) -> list[ExchangeRow]:
        return await find_exchanges(self.cluster.front, {"client_id": client_id, "limit": str(EXCHANGES)})

    def _all_handed(self, group: MemberGroup) -> bool:
        return not group.missing(self.history.sends)

    async def _until(self, condition: Callable[[], bool | Awaitable[bool]], what: str) -> bool:
        started_s = self._now()
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                self._tell(f"{what} ({self._now() - started_s:.1f} s)")
                return True
            if self._now() - started_s > self.plan.patience_s:
                patience = f"{self.plan.patience_s:g} s"
                self.history.failures.append(f"L1 no convergence: {what} did not happen within {patience}")
                self._tell(self.history.failures[-1])
                return False
            await asyncio.sleep(POLL_S)

    async def _states(self) -> dict[Place, LeaderAndIsr]:
        session = await open_kazoo(self.cluster.zookeeper)
        try:
            return await archive.read_states(session, TOPIC, self.history)
        finally:
            await session.close()

    async def _in_sync(self) -> bool:
        try:
            states = await self._states()
        except (ZkError, OSError):
            return False
        return all(state.leader > 0 and len(state.isr) == len(self.cluster.broker_ids) for state in states.values())

    def _ends(self) -> dict[Place, int]:
        ends: dict[Place, int] = {}
        for send in self.history.sends:
            if send.outcome == "ok" and send.place is not None:
                ends[send.place] = max(ends.get(send.place, 0), send.offset + 1)
        return ends

    def _undelivered(self, committed: Mapping[Place, int]) -> Iterator[str]:
        for place, end in self._ends().items():
            if committed.get(place, 0) < end:
                yield f"{place} committed to {committed.get(place, 0)} of {end}"
        for reader in self._readers:
            if reader.consumer is not None:
                with contextlib.suppress(*CLIENT_FAILURES):
                    yield f"{reader.identity}: {sorted(reader.consumer.assignment())}, gates {reader.consumer.gates()}"

    async def _collect(self) -> None:
        try:
            states = await self._states()
        except (ZkError, OSError) as error:
            self.history.failures.append(f"the states cannot be read: {error}")
            return
        for node_id in self.cluster.broker_ids:
            await self.cluster.kill(node_id)
        self.history.failures += archive.tracebacks(node.log_path for node in self.cluster.nodes.values())
        directories = {one: self.cluster.directory / f"node-{one}" for one in self.cluster.broker_ids}
        led = {place: state for place, state in states.items() if state.leader > 0}
        archive.read_logs(directories, led, self.history)


async def chaos(
    plan: Plan,
    *,
    say: Say,
    directory: Path | None = None,
    module: str = "anabranch.cli.main",
    companion: AuditCompanionProcess | None = None,
    login: bool = False,
    kafka: str | None = None,
    endpoint: ControlEndpoint | None = None,
) -> Verdict:
    """Start a cluster, run, and end it. A given directory is kept, with the nodes' logs.

    `module` is what nodes run, possibly with a planted bug. With `login`, clients and nodes need a password. `kafka` is
    the version of Kafka that brokers show: by default 4.2 with `sharers`. `endpoint` serves the run's control plane.
    """
    with contextlib.ExitStack() as stack:
        place = directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="anabranch-chaos-")))
        properties = dict(PROPERTIES)
        if plan.sharers:
            properties |= sharers.PROPERTIES
            kafka = kafka or "4.2"
        if kafka is not None:
            properties |= {"kafka.version": kafka, "kafka.release": kafka}
        cluster = ChaosCluster(
            place,
            controllers=2,
            properties=properties,
            module=module,
            login=login,
            journal_size=JOURNAL if plan.members else 0,
        )
        async with cluster, controlled(cluster, endpoint):
            verdict = await ChaosRun(plan, cluster, say=say, companion=companion).run()
            cluster.publish("chaos verdict", **verdict.event())
            await cluster.front.settle()  # clients that follow the run get the verdict before the control plane ends
            return verdict
