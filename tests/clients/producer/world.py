"""Simulated leaders, controller and network around the real accumulator, with every order of events.

Leaders check what they get as brokers do (R5: duplicate, generation, sequence) and keep a log. They take up a resize
one by one, in any order; connections break with requests still inside, which may arrive later, or never; answers get
lost; leaders move; metadata arrives late, and from lagging brokers. Batches travel as the bytes that the producer made.

`check` holds the finished logs against the invariants of a resize: placement (I0), homogeneous epochs (I1), order
of each key across the lineage (I3), and every record exactly once (I6).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.clients.backoff import Backoff
from anabranch.clients.config import ProducerConfig
from anabranch.clients.producer.accumulator import Accumulator
from anabranch.clients.producer.producer_record import RecordMetadata
from anabranch.clients.producer.queues import Batch
from anabranch.clients.producer.routes import UNKEYED, explicit_route
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.linear_hashing import address, base_of
from anabranch.protocol.records.batch import SEQUENCES, read_header
from anabranch.protocol.records.record import iter_records

TOPIC = "t"
NODES = 2


class Violation(AssertionError):
    """An invariant does not hold."""


class Receipt:
    """Remembers what the application would be told."""

    def __init__(self) -> None:
        self.metadata: RecordMetadata | None = None
        self.error: Exception | None = None

    def done(self) -> bool:
        return self.metadata is not None or self.error is not None

    def set_result(self, metadata: RecordMetadata, /) -> None:
        assert not self.done(), "told twice"
        self.metadata = metadata

    def set_exception(self, error: Exception, /) -> None:
        assert not self.done(), "told twice"
        self.error = error


@dataclass
class Stored:
    """A record in a log."""

    generation: int
    key_hash: int
    number: int


@dataclass
class Leader:
    """The leader of one partition, wherever it is. `generation` is the partition's class generation."""

    generation: int
    sealed: bool = False
    log: list[Stored] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    recent: dict[int, deque[tuple[int, int, int, int]]] = field(default_factory=dict)


@dataclass
class Request:
    """One batch on its way, with the bytes, the topic's id and the generation it had when it left."""

    batch: Batch
    data: bytes
    topic_id: bytes
    batch_generation: int
    partition: int
    node: int


@dataclass
class Rules:
    """What leaders do; the defaults are right, the rest are known mistakes."""

    duplicates_first: bool = True
    compare_topic_ids: bool = True
    compare_counts: bool = False


class World:
    """One run. `rng` decides everything."""

    def __init__(
        self,
        counts: Sequence[int],
        rng: random.Random,
        *,
        rules: Rules | None = None,
        barrier: bool = True,
        faults: bool = True,
        lagging: bool = True,
        expiring: bool = False,
    ) -> None:
        self.rng = rng
        self.topic_id = b"id"
        self.counts = counts
        self.base = min(base_of(count) for count in counts[:1])
        self.lineages = [
            Lineage(self.base, list(enumerate(counts[: generation + 1]))) for generation in range(len(counts))
        ]
        self.rules = rules or Rules()
        self.barrier = barrier
        self.faults = 6 if faults else 0
        self.lagging = lagging
        self.planned = 0
        self.published = 0
        self.leaders = {p: Leader(0) for p in range(counts[0])}
        self.where = {p: rng.randrange(NODES) for p in range(max(counts))}
        self.believed = dict(self.where)
        self.now = 0.0
        self.limit_bytes = rng.choice([10**9, 110])
        """What a topic allows a batch: anything, or hardly more than one record."""
        config = ProducerConfig(
            linger_ms=0, batch_bytes=rng.choice([30, 80, 200]), delivery_timeout_ms=3_000 if expiring else 10**9
        )
        self.accumulator = Accumulator(config, Backoff(jitter=0), rng)
        self.accumulator.numbering.producer_id = 7
        self.accumulator.numbering.wants_producer_id = False
        self.wires: dict[int, deque[Request]] = {node: deque() for node in range(NODES)}
        self.zombies: list[deque[Request]] = []
        self.answers: dict[int, deque[tuple[Request, tuple[ErrorCode, int, int]]]] = {
            node: deque() for node in range(NODES)
        }
        self.sent: list[tuple[int, int, Receipt]] = []
        self.trace: list[str] = []
        self.weights: dict[str, float] = {}
        self.learn(0)

    # the cluster

    def plan(self) -> None:
        self.planned += 1
        for p in range(self.counts[self.planned - 1], self.counts[self.planned]):
            if p not in self.leaders:
                self.leaders[p] = Leader(self.lineage().class_generation(p))
        if not self.barrier:
            self.published = self.planned

    def lineage(self) -> Lineage:
        return self.lineages[self.planned]

    def behind(self) -> list[int]:
        return [p for p, leader in self.leaders.items() if leader.generation != self.lineage().class_generation(p)]

    def take_up(self, p: int) -> None:
        leader = self.leaders[p]
        leader.generation = self.lineage().class_generation(p)
        leader.sealed = not self.lineage().live(p)

    def receive(self, request: Request) -> tuple[ErrorCode, int, int]:
        """What the leader answers: code, base offset, its generation."""
        p = request.partition
        if self.where[p] != request.node:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1
        leader = self.leaders.get(p)
        if leader is None or (self.rules.compare_topic_ids and request.topic_id != self.topic_id):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1
        header = read_header(request.data)
        if len(request.data) > self.limit_bytes and header.record_count > 1:
            return ErrorCode.MESSAGE_TOO_LARGE, -1, leader.generation
        duplicate = self._duplicate(leader, header)
        accepted = self._accepts(leader, p, request.batch_generation)
        if duplicate is not None and (self.rules.duplicates_first or accepted):
            return ErrorCode.NONE, duplicate, leader.generation
        if not accepted:
            return ErrorCode.INVALID_PARTITION_METADATA, -1, leader.generation
        if not self._in_sequence(leader, header):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, leader.generation
        offset = len(leader.log)
        for record in iter_records(request.data):
            assert record.key is not None and record.value is not None
            leader.log.append(Stored(leader.generation, int(record.key), int(record.value)))
        pid = header.producer_id
        if header.producer_epoch != leader.epochs.get(pid):
            leader.recent[pid] = deque(maxlen=5)
        leader.epochs[pid] = header.producer_epoch
        leader.last[pid] = header.last_sequence
        leader.recent[pid].append((header.producer_epoch, header.base_sequence, header.last_sequence, offset))
        return ErrorCode.NONE, offset, leader.generation

    def _duplicate(self, leader: Leader, header: Any) -> int | None:
        for epoch, first, last, offset in leader.recent.get(header.producer_id, ()):
            if (epoch, first, last) == (header.producer_epoch, header.base_sequence, header.last_sequence):
                return offset
        return None

    def _accepts(self, leader: Leader, p: int, batch_generation: int) -> bool:
        if self.rules.compare_counts:
            known = self.lineages[leader.generation]
            return known.live(p) and self.lineages[batch_generation].count == known.count
        return not leader.sealed and batch_generation == leader.generation

    def _in_sequence(self, leader: Leader, header: Any) -> bool:
        known = leader.epochs.get(header.producer_id)
        if known is None:
            return True
        if header.producer_epoch != known:
            return bool(header.producer_epoch > known and header.base_sequence == 0)
        return bool(header.base_sequence == (leader.last[header.producer_id] + 1) % SEQUENCES)

    # the producer and its network

    def learn(self, generation: int) -> None:
        lineage = self.lineages[generation]
        self.accumulator.adopt(TOPIC, self.topic_id, lineage, range(lineage.count))

    def send(self, key_hash: int, route: int | None = None) -> None:
        number = len(self.sent)
        receipt = Receipt()
        topic = self.accumulator.topic(TOPIC)
        self.accumulator.append(
            topic,
            key_hash if route is None else route,
            str(key_hash).encode(),
            str(number).encode(),
            (),
            0,
            receipt,
            self.now,
        )
        self.sent.append((key_hash, number, receipt))

    def transmit(self) -> None:
        drained = self.accumulator.drain(self.now, lambda topic, p: self.believed[p], lambda node: True)
        for node, batches in drained.requests.items():
            for batch in batches:
                data = batch.bytes_with("none")
                self.wires[node].append(
                    Request(batch, data, batch.topic_id, batch.batch_generation, batch.queue.index, node)
                )

    def arrive(self, node: int) -> None:
        request = self.wires[node].popleft()
        self.answers[node].append((request, self._with_faults(request)))

    def _with_faults(self, request: Request) -> tuple[ErrorCode, int, int]:
        if self.faults and self.rng.random() < 0.1:
            self.faults -= 1
            if self.rng.random() < 0.5:
                return ErrorCode.NOT_ENOUGH_REPLICAS, -1, -1
            self.receive(request)
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1, -1
        return self.receive(request)

    def answer(self, node: int) -> None:
        request, (code, offset, generation) = self.answers[node].popleft()
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.believed[request.partition] = self.where[request.partition]
        self.accumulator.delivery.complete(request.batch, code, self.now, base_offset=offset, generation=generation)

    def break_connection(self, node: int) -> None:
        """Answers are lost; requests inside may still arrive, later, but in their order."""
        self.faults -= 1
        lost = [request for request, _ in self.answers[node]] + list(self.wires[node])
        self.zombies.append(self.wires[node])
        self.wires[node] = deque()
        self.answers[node].clear()
        for request in lost:
            self.accumulator.delivery.on_lost(request.batch, self.now)

    def zombie_step(self) -> None:
        wire = self.rng.choice(self.zombies)
        if self.rng.random() < 0.3 or not wire:
            self.zombies.remove(wire)
        else:
            self.receive(wire.popleft())

    def move_leader(self) -> None:
        self.faults -= 1
        p = self.rng.choice(list(self.leaders))
        self.where[p] = (self.where[p] + 1) % NODES

    # a run

    def options(self) -> list[tuple[str, Any]]:
        """Everything that may happen next."""
        options: list[tuple[str, Any]] = [("transmit", self.transmit), ("wait", self.wait)]
        behind = self.behind()
        if self.planned + 1 < len(self.counts) and self.planned == self.published and not behind:
            options.append(("plan", self.plan))
        options += [(f"take-up {p}", lambda p=p: self.take_up(p)) for p in behind]
        if self.published < self.planned and not behind:
            options.append(("publish", self.publish))
        known = self.accumulator.topic(TOPIC).generation
        low = 0 if self.lagging else known
        options += [(f"learn {g}", lambda g=g: self.learn(g)) for g in range(low, self.published + 1) if g != known]
        options += [(f"arrive {n}", lambda n=n: self.arrive(n)) for n in range(NODES) if self.wires[n]]
        options += [(f"answer {n}", lambda n=n: self.answer(n)) for n in range(NODES) if self.answers[n]]
        options += [("zombie", self.zombie_step)] if self.zombies else []
        if self.faults > 0:
            busy = [n for n in range(NODES) if self.wires[n] or self.answers[n]]
            options += [(f"break {n}", lambda n=n: self.break_connection(n)) for n in busy]
            options.append(("move leader", self.move_leader))
        return options

    def weight(self, name: str) -> float:
        """Each run has its own habits, some things in it rare and others frequent: long shots come up that way."""
        known = self.weights.get(name)
        if known is None:
            known = self.weights[name] = self.weights.setdefault(name.split()[0], self.rng.choice((0.1, 1, 1, 4)))
        return known

    def publish(self) -> None:
        self.published = self.planned

    def wait(self) -> None:
        self.now += self.rng.choice([0.01, 0.1, 0.5])

    def step(self) -> None:
        options = self.options()
        ((name, act),) = self.rng.choices(options, [self.weight(name) for name, _ in options])
        self.trace.append(name)
        act()

    def finish(self) -> None:
        """No more faults, everything is taken up and published: all records must come to rest."""
        self.faults = 0
        for _ in range(4000):
            if self.accumulator.outstanding == 0 and not any(self.zombies):
                return
            if self.published == len(self.counts) - 1 and not self.behind():
                known = self.accumulator.topic(TOPIC).generation
                if known < self.published:
                    self.learn(self.published)
                self.transmit()
                for node in range(NODES):
                    while self.wires[node]:
                        self.arrive(node)
                    while self.answers[node]:
                        self.answer(node)
                for zombie in self.zombies:
                    while zombie:
                        self.receive(zombie.popleft())
                self.zombies.clear()
                self.now += 0.05
            else:
                self.step()
        raise Violation(f"stuck with {self.accumulator.outstanding} records: {self.accumulator.topic(TOPIC).queues}")

    def run(self, *, keys: Sequence[int], records: int, steps: int) -> None:
        for _ in range(steps):
            if len(self.sent) < records and self.rng.random() < 0.3:
                key_hash = self.rng.choice(keys)
                self.trace.append(f"send #{len(self.sent)} of {key_hash}")
                self.send(key_hash)
            else:
                self.step()
        self.finish()
        self.check()

    # the judge

    def check(self) -> None:
        lineage = self.lineages[-1]
        places: dict[int, tuple[int, int, int]] = {}
        for p, leader in self.leaders.items():
            generations = [stored.generation for stored in leader.log]
            if generations != sorted(generations):
                raise Violation(f"I1: generations fall in partition {p}: {generations}")
            for offset, stored in enumerate(leader.log):
                if stored.number in places:
                    raise Violation(f"I6: #{stored.number} is stored twice: {places[stored.number]}, {(p, offset)}")
                places[stored.number] = p, offset, stored.generation
                keyed = stored.key_hash >= 0
                if keyed and address(stored.key_hash, self.base, lineage.count_at(stored.generation)) != p:
                    raise Violation(f"I0: #{stored.number} in {p}@{stored.generation} does not belong there")
        for _, number, receipt in self.sent:
            if receipt.metadata is not None and number not in places:
                raise Violation(f"I6: #{number} was acknowledged and is not stored")
            if receipt.metadata is not None and receipt.metadata[1:3] != places[number][:2]:
                raise Violation(f"#{number} was told {receipt.metadata}, but is at {places[number]}")
        self._check_order(lineage, places)

    def _check_order(self, lineage: Lineage, places: dict[int, tuple[int, int, int]]) -> None:
        last: dict[int, int] = {}
        for key_hash, number, _ in self.sent:
            if number not in places or key_hash < 0:
                continue
            before = last.get(key_hash)
            last[key_hash] = number
            if before is None:
                continue
            (p, offset, generation), (q, later, newer) = places[before], places[number]
            if p == q and offset < later:
                continue
            if not reaches(lineage, KeyEpoch(p, generation), KeyEpoch(q, newer)):
                raise Violation(f"I3: #{before} at {places[before]} is not before #{number} at {places[number]}")


def reaches(lineage: Lineage, first: KeyEpoch, second: KeyEpoch) -> bool:
    """Whether the second key epoch can only be delivered after the first."""
    if first == second:
        return False
    open_ends = [first]
    while open_ends:
        key_epoch = open_ends.pop()
        if key_epoch == second:
            return True
        following = lineage.next(key_epoch)
        open_ends += lineage.successors(key_epoch) + ((following,) if following else ())
    return False


__all__ = ["NODES", "TOPIC", "UNKEYED", "Receipt", "Rules", "Violation", "World", "explicit_route"]
