"""ACLs that change while controllers and brokers die: no client may be served without permission.

Two administrators grant, deny and take away at whichever broker they come to, two guests ask all brokers all the time,
and whoever is the controller dies, sleeps or loses its session. A referee reads every state that the lists have had
from ZooKeeper's own transactions, and judges with rules of its own, not with the product's:

- an answer follows from states that have been, none older than what its broker had taken over when it was asked;
- a broker has taken over what there was when it started, what it has read, and what it has acknowledged, before it
  answers anybody; and it never goes back;
- an entry comes and goes only while somebody asks for that, so no change is lost and none is made up;
- in the end every node goes by the same lists.

    python -m tests.sim.rights [SEED] [--schedules 100]
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from anabranch import Admin, NewTopic, Producer
from anabranch.broker.authorization.authorizer import Authorizer
from anabranch.clients.acl_admin import creation_of, deletion_of
from anabranch.clients.connection import Connection
from anabranch.controller.zk import acl_znodes
from anabranch.protocol.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourcePattern, ResourceType
from anabranch.protocol.apis.create_acls import CreateAclsRequest
from anabranch.protocol.apis.delete_acls import DeleteAclsRequest
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.error_codes import error_codes
from anabranch.protocol.errors import ErrorCode
from tests.sim.clients import CLIENT_FAILURES
from tests.sim.cluster import PORT, SimCluster
from tests.sim.loop import PROCESS, Process
from tests.sim.probes import wrap
from tests.sim.processes import run_schedules, schedule_parser
from tests.sim.zookeeper import Change

CHANGES: Final = 25
TOPIC: Final = "guarded"
LITERAL: Final = ResourcePattern(ResourceType.TOPIC, TOPIC)
PREFIXED: Final = ResourcePattern(ResourceType.TOPIC, "guard", PatternType.PREFIXED)
PATTERNS: Final = {acl_znodes.path_of(one): one for one in (LITERAL, PREFIXED)}
KEEPERS: Final = Acl("User:*", "keeper", Operation.ALL, Permission.ALLOW)
"""Always there, so that the topic is never open to all."""
SETTINGS: Final = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "allow_everyone_if_no_acl_found": True,
}
FETCH_VERSION: Final = 11
Entry = tuple[ResourcePattern, Acl]
Life = tuple[int, int]
"""A node, and which of its processes."""


def entries_about(guest: str) -> list[Entry]:
    """The possible ACLs of a guest; every subset is valid."""

    def acl(operation: Operation, permission: Permission) -> Acl:
        return Acl("User:ANONYMOUS", guest, operation, permission)

    return [
        (LITERAL, acl(Operation.READ, Permission.ALLOW)),
        (LITERAL, acl(Operation.DESCRIBE, Permission.DENY)),
        (PREFIXED, acl(Operation.READ, Permission.DENY)),
        (PREFIXED, acl(Operation.DESCRIBE, Permission.ALLOW)),
    ]


def allowed(entries: frozenset[Acl], host: str, operation: Operation) -> bool:
    """Kafka's decision, for the operations used here."""
    said = {(one.permission, one.operation) for one in entries if one.host == host}
    if not entries:
        return True
    if (Permission.DENY, operation) in said:
        return False
    enough = {operation, Operation.ALL, *({Operation.READ} if operation is Operation.DESCRIBE else ())}
    return any((Permission.ALLOW, one) in said for one in enough)


@dataclass(slots=True)
class Wish:
    """An administrator asks for an entry to be, or not to be. It may come true until it is answered; or ever."""

    entry: Entry
    there: bool
    since: int
    """The newest state of its pattern when it was asked for."""
    answered: bool = False


class Referee:
    """Knows all states of the lists, which of them each process has taken over, and what that allows."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self.states: dict[ResourcePattern, list[frozenset[Acl]]] = {one: [frozenset()] for one in PATTERNS.values()}
        self._since_s: dict[tuple[ResourcePattern, int], float] = {}
        self._wishes: list[Wish] = []
        self.taken: dict[Life, dict[ResourcePattern, int]] = {}
        """Process -> the state of each pattern that it goes by, or an earlier one."""
        self.violations: list[str] = []
        self.windows_s: list[float] = []
        """How long after a change each process had taken it over."""
        self.fired: Counter[str] = Counter()
        cluster.zookeeper.on_change.append(self._changed)

    def wrong(self, line: str) -> None:
        """Note a violation."""
        self._cluster.tell(f"VIOLATION {line}")
        self.violations.append(f"{self._cluster.now():.3f} {line}")

    # --- what is true

    def wish(self, entry: Entry, *, there: bool) -> Wish:
        """A request for a change."""
        wish = Wish(entry, there, len(self.states[entry[0]]) - 1)
        self._wishes.append(wish)
        return wish

    def granted(self, wish: Wish, life: Life) -> None:
        """A process confirms the change: it was in force in between, and this process knows it."""
        wish.answered = True
        pattern, acl = wish.entry
        states = self.states[pattern]
        when = next((n for n in range(wish.since, len(states)) if (acl in states[n]) == wish.there), None)
        if when is None:
            self.wrong(f"node {life[0]} acknowledged what never was: {acl} there: {wish.there}")
        else:
            self.taken[life][pattern] = max(self.taken[life][pattern], when)

    def _changed(self, change: Change) -> None:
        pattern = PATTERNS.get(change.path)
        if pattern is None:
            return
        after = frozenset() if change.data is None else acl_znodes.decode_acls(change.path, change.data)
        states = self.states[pattern]
        before = states[-1]
        for acl in before ^ after:
            there = acl in after
            asked = any(one.entry == (pattern, acl) and one.there == there for one in self._wishes if not one.answered)
            if acl != KEEPERS and not asked:
                self.wrong(f"nobody asks that {acl} {'be' if there else 'go'}")
        states.append(after)
        self._since_s[pattern, len(states) - 1] = self._cluster.now()
        self.fired["change"] += 1

    # --- what processes believe

    def born(self, original: Any, authorizer: Authorizer, *args: Any, **options: Any) -> None:
        """A process will read the lists."""
        original(authorizer, *args, **options)
        self.taken[self._life()] = {pattern: len(states) - 1 for pattern, states in self.states.items()}

    def replace(self, original: Any, authorizer: Authorizer, pattern: ResourcePattern, acls: Any) -> None:
        """A process takes the entries of a pattern over."""
        entries = frozenset(acls)
        original(authorizer, pattern, entries)
        life = self._life()
        if pattern not in self.states:
            return
        known = self.taken[life]
        low, states = known[pattern], self.states[pattern]
        now = next((n for n in range(low, len(states)) if states[n] == entries), None)
        if now is None:
            self.wrong(f"node {life[0]} goes back, or makes up what {pattern} says: {entries}")
            return
        known[pattern] = now
        for passed in range(low + 1, now + 1):
            self.windows_s.append(self._cluster.now() - self._since_s[pattern, passed])

    def _life(self) -> Life:
        process = PROCESS.get()
        assert process is not None, "brokers alone do this"
        machine = next(one for one in self._cluster.machines.values() if one.process is process)
        return machine.node_id, machine.life

    # --- what they answer

    def known_to(self, life: Life) -> dict[ResourcePattern, int]:
        """What a process has taken over."""
        return dict(self.taken[life])

    def answered(
        self, life: Life, known: dict[ResourcePattern, int], guest: str, operation: Operation, refused: bool
    ) -> None:
        """Judge a response by all states that the process may have had since the request."""
        choices = [states[known[pattern] :] for pattern, states in self.states.items()]
        verdicts = {allowed(frozenset().union(*each), guest, operation) for each in itertools.product(*choices)}
        self.fired["refused" if refused else "served"] += 1
        self.fired["judged for sure"] += len(verdicts) == 1
        if (not refused) not in verdicts:
            what = "refused" if refused else "served"
            self.wrong(f"node {life[0]} {what} {operation.name} to {guest}, and knew states {list(known.values())}")


class Rights:
    """One schedule."""

    def __init__(self, seed: int) -> None:
        self.cluster = SimCluster(f"rights-{seed}", spares=1, changes=SETTINGS)
        self.rng = self.cluster.rng("rights")
        self.referee = Referee(self.cluster)
        self.fired = self.referee.fired
        self.over = False

    def run(self) -> list[str]:
        """The violations."""
        with self._watching():
            self.cluster.loop.run(self._life())
        return [*self.cluster.history.failures, *self.cluster.loop.failures, *self.referee.violations]

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            wrap(
                stack,
                (Authorizer, "__init__", self.referee.born),
                (Authorizer, "replace", self.referee.replace),
            )
            yield

    async def _life(self) -> None:
        cluster = self.cluster
        await cluster.start()
        await self._as("keeper", self._open())
        others = [self._spawn(f"guest-{n}", self._ask(f"guest-{n}")) for n in (1, 2)]
        others.append(self._spawn("keeper", self._write()))
        suffering = asyncio.ensure_future(self._suffer())
        await asyncio.gather(*(self._as(f"admin-{n}", self._administer(f"admin-{n}", f"guest-{n}")) for n in (1, 2)))
        suffering.cancel()
        cluster.end_faults()
        await cluster.until(lambda: all(one.up for one in cluster.machines.values()), 30, "all are up")
        await cluster.until(self._agree, 30, "all go by the same lists")
        await asyncio.sleep(1)
        self.over = True
        await asyncio.gather(*others)

    def _spawn(self, host: str, work: Any) -> Any:
        return self.cluster.loop.spawn(Process(f"{host}.1", host), work, host)

    async def _as(self, host: str, work: Any) -> None:
        await self._spawn(host, work)

    async def _open(self) -> None:
        async with Admin(self.cluster.bootstrap, rng=self.cluster.rng("keeper")) as admin:
            await admin.create_topics([NewTopic(name=TOPIC, assignments={0: [1, 2, 3]})])
            await admin.wait_for_topic(TOPIC, replicas=3)
            await admin.create_acls([(LITERAL, KEEPERS)])

    def _agree(self) -> bool:
        newest = {pattern: states[-1] for pattern, states in self.referee.states.items()}
        lists = [one.node.services.authorizer for one in self.cluster.machines.values() if one.up and one.node]
        return len(lists) == len(self.cluster.machines) and all(
            one is not None and {pattern: one.acls.get(pattern, frozenset()) for pattern in newest} == newest
            for one in lists
        )

    # --- those who change the lists

    async def _administer(self, name: str, guest: str) -> None:
        rng, about = self.cluster.rng(name), entries_about(guest)
        there = dict.fromkeys(about, False)
        for _ in range(CHANGES):
            entry = rng.choice(about)
            there[entry] = not there[entry]
            while not await self._insist(entry, there[entry], rng.choice(self.cluster.brokers).node_id):
                await asyncio.sleep(rng.uniform(0, 0.3))
            await asyncio.sleep(rng.uniform(0, 0.5))

    async def _insist(self, entry: Entry, there: bool, node: int) -> bool:
        machine = self.cluster.machines[node]
        wish = self.referee.wish(entry, there=there)
        try:
            connection = await Connection.open(machine.host, PORT, client_id="admin", request_timeout_ms=3000)
            life = (node, machine.life)
            try:
                answer = await connection.call(_created(entry) if there else _deleted(entry))
            finally:
                await connection.close()
        except CLIENT_FAILURES:
            self.fired["nobody knows whether a change was made"] += 1
            return False
        if codes := set(error_codes(answer, type(answer))) - {ErrorCode.NONE}:
            self.referee.wrong(f"node {node} refuses a change: {codes}")
            return False
        self.cluster.tell(f"node {node} says that {entry[1]} is {'there' if there else 'gone'}")
        self.referee.granted(wish, life)
        return True

    # --- those who ask

    async def _ask(self, guest: str) -> None:
        rng = self.cluster.rng(guest)
        connections: dict[int, tuple[Life, Connection]] = {}
        while not self.over:
            node = rng.choice(self.cluster.brokers).node_id
            try:
                if node not in connections or connections[node][1].closed:
                    machine = self.cluster.machines[node]
                    opened = await Connection.open(machine.host, PORT, client_id=guest, request_timeout_ms=3000)
                    connections[node] = ((node, machine.life), opened)
                await self._ask_one(guest, *connections[node], fetching=rng.random() < 0.5, at=rng.choice((0, 10**6)))
            except CLIENT_FAILURES:
                self.fired["no answer"] += 1
                connections.pop(node, None)
            await asyncio.sleep(rng.uniform(0, 0.08))
        for _, connection in connections.values():
            await connection.close()

    async def _ask_one(self, guest: str, life: Life, connection: Connection, *, fetching: bool, at: int) -> None:
        known = self.referee.known_to(life)
        if fetching:
            answer = await connection.call(_fetched(at), version=FETCH_VERSION)
        else:
            answer = await connection.call(_described())
        codes = set(error_codes(answer, type(answer)))
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes
        operation = Operation.READ if fetching else Operation.DESCRIBE
        self.referee.answered(life, known, guest, operation, refused)
        if refused and fetching and any(one.records for row in answer.responses for one in row.partitions):
            self.referee.wrong(f"node {life[0]} refused {guest}, and gave records")

    async def _write(self) -> None:
        producer = Producer(self.cluster.bootstrap, delivery_timeout_ms=3000, request_timeout_ms=1500,
                            rng=self.cluster.rng("writer"))  # fmt: skip
        await producer.start()
        while not self.over:
            with contextlib.suppress(*CLIENT_FAILURES):
                await producer.send_and_wait(TOPIC, b"secret")
            await asyncio.sleep(0.4)
        with contextlib.suppress(*CLIENT_FAILURES):
            await producer.stop()

    # --- what goes wrong

    async def _suffer(self) -> None:
        cluster, rng = self.cluster, self.rng
        while True:
            await asyncio.sleep(rng.uniform(0.1, 0.8))
            anybody = rng.choice(list(cluster.machines))
            victim = cluster.active_controller() or anybody if rng.random() < 0.6 else anybody
            what = rng.choice(["kill", "expire", "freeze", "cut off", "late watches"])
            self.fired[what] += 1
            self.fired["the controller is hit"] += victim == cluster.active_controller()
            cluster.tell(f"{what}: node {victim}")
            pause_s = rng.choice((0.2, 1.0, 2.5))
            if what == "kill":
                cluster.crash(victim)
                await asyncio.sleep(rng.uniform(0, 1))
                cluster.boot(victim)
            elif what == "expire":
                cluster.expire_session(victim)
            elif what == "freeze":
                await cluster.freeze_for(victim, pause_s)
            elif what == "cut off":
                await cluster.cut_off_for(victim, pause_s)
            else:
                cluster.zookeeper.watch_delay_ms = 2000
                await asyncio.sleep(pause_s)
                cluster.zookeeper.watch_delay_ms = 0


def _created(entry: Entry) -> CreateAclsRequest:
    return CreateAclsRequest(creations=[creation_of(entry)])


def _deleted(entry: Entry) -> DeleteAclsRequest:
    pattern, acl = entry
    place = pattern.resource_type, pattern.name, pattern.pattern_type
    exactly = AclFilter(*place, acl.principal, acl.host, acl.operation, acl.permission)
    return DeleteAclsRequest(filters=[deletion_of(exactly)])


def _described() -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)


def _fetched(offset: int) -> FetchRequest:
    row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    topics = [FetchTopic(topic=TOPIC, partitions=[row])]
    return FetchRequest(replica_id=-1, max_wait_ms=300, min_bytes=5000, max_bytes=5000, session_epoch=-1, topics=topics)


def play(seed: int, *, tell: bool = False) -> tuple[int, list[str], Counter[str], list[float]]:
    """Run one schedule."""
    run = Rights(seed)
    violations = run.run()
    if tell:
        for at_s, line in run.cluster.history.story:
            print(f"{at_s:9.3f}  {line}")
    return seed, violations, run.fired, run.referee.windows_s


def main(arguments: list[str] | None = None) -> int:
    """Many seeds, or one with its story."""
    return run_schedules(play, schedule_parser("tests.sim.rights", __doc__).parse_args(arguments), _delays)


def _delays(windows: list[list[float]]) -> str:
    windows_s = sorted(one for run in windows for one in run)
    shares = ", ".join(f"{share} %: {windows_s[len(windows_s) * share // 100] * 1000:.0f} ms" for share in (50, 90, 99))
    return f"a change was in force at another node after {shares}, {windows_s[-1]:.1f} s at most"


if __name__ == "__main__":
    sys.exit(main())
