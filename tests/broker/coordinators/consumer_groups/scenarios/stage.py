"""What a scenario of a KIP-848 group may say (`README.md` lists it), and what each phrase does.

Around the real group stand clients that know what they were told, and a journal: a list of records, written and read in
their real encoding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anabranch.broker.coordinators.classic_groups.group_events import Commit
from anabranch.broker.coordinators.consumer_groups import administration, departure, heartbeat, regular_expressions
from anabranch.broker.coordinators.consumer_groups.assignment import Assignment, size, to_rows, within
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.decision import Decision
from anabranch.broker.coordinators.consumer_groups.expressions import apply_resolved
from anabranch.broker.coordinators.consumer_groups.heartbeat import Sender
from anabranch.broker.coordinators.consumer_groups.limits import ConsumerGroupLimits
from anabranch.broker.coordinators.consumer_groups.member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE
from anabranch.protocol import group_records
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.broker.coordinators.consumer_groups.scenarios import rendering
from tests.broker.coordinators.consumer_groups.world import Topics
from tests.broker.coordinators.heartbeat_stage import HeartbeatStage
from tests.scenario_text import NotUnderstood, phrase

FILES: Final = sorted(Path(__file__).parent.glob("*.txt"))
GROUP: Final = "g"
VERSION: Final = 1
COMMIT_VERSION: Final = 9
KIND_BYTES: Final = 2
START_MS: Final = 1_000_000


@dataclass
class Client:
    """An application's consumer: what it says of itself, and what it was told last."""

    name: str
    topics: list[str] = field(default_factory=lambda: ["orders"])
    expression: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    lives: int = 1
    epoch: int = JOIN_EPOCH
    told: Assignment = field(default_factory=dict)
    """What it is to have, by the last answer."""
    has: Assignment = field(default_factory=dict)
    """What it reads: it goes on with what it was told to give up until the scenario says that it did."""
    said: Assignment | None = None
    """What it said last that it has."""

    @property
    def member_id(self) -> str:
        """Clients make their ids themselves (KIP-1082): one for each life."""
        return self.name if self.lives == 1 else f"{self.name}.{self.lives}"

    def forget(self) -> None:
        """It has no partitions, and has to join."""
        self.epoch, self.told, self.has, self.said = JOIN_EPOCH, {}, {}, None

    def request(self, epoch: int, *, full: bool) -> ConsumerGroupHeartbeatRequest:
        """A heartbeat; all that it wants of the group, if it is a full one."""
        rows = [TopicPartitions(topic_id=row.topic_id, partitions=row.partitions) for row in to_rows(self.has)]
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=60_000 if full else -1,
            subscribed_topic_names=self.topics if full else None,
            subscribed_topic_regex=self.expression if full else None,
            server_assignor=self.assignor if full else None,
            topic_partitions=rows if epoch >= JOIN_EPOCH and (full or self.has != self.said) else None,
        )


class AssigningStage(HeartbeatStage):
    """One group, its clients, its coordinator, the topics that this one knows, and its journal."""

    rendering = rendering
    administration = administration

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS
        self.limits: dict[str, int] = {}
        self.topics = Topics()
        self.clients: dict[str, Client] = {}
        self.group = ConsumerGroup(GROUP)
        self.journal: list[tuple[bytes, bytes | None]] = []

    # --- what is prepared ----------------------------------------------------------------------------------------

    @phrase("setting NAME VALUE")
    def setting(self, name: str, value: str) -> None:
        """A limit of `ConsumerGroupLimits`."""
        if name not in ConsumerGroupLimits.__dataclass_fields__:
            raise NotUnderstood(f"{name} is none of {list(ConsumerGroupLimits.__dataclass_fields__)}")
        self.limits[name] = int(value)

    @phrase("topic TOPIC has COUNT partitions")
    def makes(self, topic: str, count: str) -> None:
        """The topic is made, or grows."""
        self.topics.make(topic, int(count))

    @phrase("only partitions PARTITIONS of TOPIC may be assigned")
    def withholds(self, indexes: str, topic: str) -> None:
        """The others wait for what comes before them, or are the stubs of merged ones."""
        self.topics.known[topic] = tuple(map(int, indexes.split(",")))
        self.topics.image = object()

    @phrase("topic TOPIC is deleted")
    def deletes(self, topic: str) -> None:
        """The topic is no more."""
        del self.topics.known[topic]
        self.topics.image = object()

    @phrase("MEMBER is instance INSTANCE")
    def static(self, client: str, instance: str) -> None:
        """A static member (KIP-345)."""
        self.member(client).instance_id = instance

    @phrase("MEMBER wants TOPICS")
    def wants(self, client: str, topics: str) -> None:
        """What it subscribes to by name, from its next full heartbeat on."""
        self.member(client).topics = [] if topics == "nothing" else topics.split(",")

    @phrase("MEMBER wants what matches EXPRESSION")
    def wants_matching(self, client: str, expression: str) -> None:
        """It subscribes by an expression, from its next full heartbeat on."""
        one = self.member(client)
        one.topics, one.expression = [], expression

    @phrase("MEMBER asks for ASSIGNOR")
    def asks_for(self, client: str, assignor: str) -> None:
        """The assignor that it wants the broker to use."""
        self.member(client).assignor = assignor

    # --- what clients do -----------------------------------------------------------------------------------------

    @phrase("MEMBER joins")
    def joins(self, client: str) -> None:
        """A heartbeat with epoch 0; what it had is given up."""
        one = self.member(client)
        one.forget()
        self._beat(one, full=True)

    @phrase("MEMBER sends a full heartbeat")
    def beats_in_full(self, client: str) -> None:
        """It says all that it wants, as after a lost answer."""
        self._beat(self.member(client), full=True)

    @phrase("MEMBER restarts")
    def restarts(self, client: str) -> None:
        """The application is started again, with another member id."""
        one = self.member(client)
        one.lives += 1
        one.forget()

    @phrase("MEMBER leaves")
    def leaves(self, client: str) -> None:
        """A heartbeat with epoch -1."""
        self._goes(self.member(client), LEAVE_EPOCH)

    @phrase("MEMBER goes away for a while")
    def goes_away(self, client: str) -> None:
        """A static member's heartbeat with epoch -2: it will be back."""
        self._goes(self.member(client), STATIC_LEAVE)

    @phrase("MEMBER commits")
    def commits(self, client: str) -> None:
        """OffsetCommit of version 9, with the epoch that the client believes in."""
        one = self.member(client)
        event = Commit(
            member_id=one.member_id,
            instance_id=one.instance_id,
            generation=one.epoch,
            transactional=False,
            version=COMMIT_VERSION,
        )
        self.show_commit(client, event)

    # --- what goes wrong -----------------------------------------------------------------------------------------

    @phrase("the coordinator dies and another one takes over")
    def fails_over(self) -> None:
        """The next one knows what the journal has; timers begin anew."""
        self.group = ConsumerGroup(GROUP)
        for key, content in self.journal:
            known = group_records.decode_key(int.from_bytes(key[:KIND_BYTES], "big"), key)
            assert known is not None
            self.group.apply((known, None if content is None else group_records.decode_value(known, content)))
        departure.restart_session_timers(self.group, self._limits(), self.now_ms)
        self.lines.append(f"loaded {rendering.state(self.group)}")

    @phrase("MS ms pass")
    def passes(self, ms: str) -> None:
        """Time passes; the coordinator looks at the group at every deadline on the way."""
        begun_ms, end_ms = self.now_ms, self.now_ms + int(ms)
        while (due_ms := self.group.next_deadline()) is not None and due_ms <= end_ms:
            self.now_ms = max(due_ms, self.now_ms)
            decision, over = departure.fence(self.group, topics=self.topics, limits=self._limits(), now_ms=self.now_ms)
            self.lines += [f"after {self.now_ms - begun_ms} ms {one.member_id}: {why.value}" for one, why in over]
            self._take(decision)
        self.now_ms = end_ms

    # --- what can be asked ---------------------------------------------------------------------------------------

    @phrase("clients")
    def asked_clients(self) -> None:
        """What each client reads now; a partition that two of them have is said to be."""
        readers: dict[tuple[bytes, int], str] = {}
        for one in self.clients.values():
            self.lines.append(f"{one.name} reads {rendering.partitions(one.has)}")
            for topic_id, indexes in one.has.items():
                for index in indexes:
                    other = readers.setdefault((topic_id, index), one.name)
                    if other != one.name:
                        self.lines.append(f"BOTH {other} and {one.name} read {rendering.name(topic_id)}-{index}")

    # --- the machine and what is around it -----------------------------------------------------------------------

    def the_group(self) -> ConsumerGroup:
        return self.group

    def member(self, name: str) -> Client:
        """A client, which exists from when it is first named."""
        return self.clients.setdefault(name, Client(name))

    def _limits(self) -> ConsumerGroupLimits:
        return ConsumerGroupLimits(**self.limits)  # type: ignore[arg-type] - every limit that scenarios set is a number

    def _beat(self, one: Client, *, full: bool = False) -> None:
        has = one.has
        told = self.send(one, one.request(one.epoch, full=full))
        if told is None:
            return
        one.said, one.epoch = has, told.epoch
        if told.assignment is not None:
            one.told = told.assignment
            if size(one.has) == 0 or within(one.has, one.told):
                one.has = one.told

    def _goes(self, one: Client, epoch: int) -> None:
        self.send(one, one.request(epoch, full=False))
        one.forget()

    def decide(self, one: Client, request: ConsumerGroupHeartbeatRequest) -> Decision:
        limits = self._limits()
        heartbeat.check_request(request, VERSION, limits.assignors)
        sender = Sender(client_id=one.name, client_host="/127.0.0.1")
        return heartbeat.heartbeat(self.group, request, sender, topics=self.topics, limits=limits, now_ms=self.now_ms)

    def resolve(self, decision: Decision) -> None:
        if not decision.resolve:
            return
        found = regular_expressions.resolve(
            decision.resolve, self.topics.names(), lambda _: True, version=self.topics.newest_topic, now_ms=self.now_ms
        )
        self._take(apply_resolved(self.group, found, topics=self.topics, limits=self._limits(), now_ms=self.now_ms))

    def _take(self, decision: Decision) -> None:
        for record in decision.records:
            self.lines.append(f"write {rendering.record(record)}")
            self.journal.append(group_records.encode(record))
            self.group.apply(record)
        for act in decision.then:
            act()
