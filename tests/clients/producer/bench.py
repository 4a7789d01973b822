"""An accumulator for tests of its parts."""

from __future__ import annotations

import random

from anabranch.clients.backoff import Backoff
from anabranch.clients.config import ProducerConfig
from anabranch.clients.producer.accumulator import Accumulator
from anabranch.clients.producer.drain_order import Drained
from anabranch.clients.producer.producer_record import size_of
from anabranch.clients.producer.queues import Batch
from anabranch.clients.producer.routes import UNKEYED, explicit_route
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.records.record import Headers
from tests.clients.producer.world import Receipt

RECORD_BYTES = size_of(None, b"0123456789", ())


class AccumulatorBench:
    """An accumulator, a leader of every partition on node 0, and a clock that the test turns."""

    def __init__(self, **settings: object) -> None:
        config = ProducerConfig(**{"linger_ms": 0, **settings})  # type: ignore[arg-type]
        self.accumulator = Accumulator(config, Backoff(initial_ms=100, jitter=0), random.Random(1))
        if config.transactional_id is None:
            self.accumulator.numbering.producer_id = 7
            self.accumulator.numbering.wants_producer_id = False
        self.now = 0.0

    def adopt(self, *history: tuple[int, int]) -> None:
        """The topic's lineage, by generation and partitions."""
        lineage = Lineage(1, list(history))
        self.accumulator.adopt("t", b"id", lineage, range(lineage.count))

    def append(self, route: int, key: bytes | None, value: bytes, headers: Headers = ()) -> Receipt:
        receipt = Receipt()
        self.accumulator.append(self.accumulator.topic("t"), route, key, value, headers, 5, receipt, self.now)
        return receipt

    def drain(self, *, leader: int = 0, ready: bool = True) -> Drained:
        return self.accumulator.drain(self.now, lambda topic, partition: leader, lambda node: ready)

    def batches(self, *, leader: int = 0) -> list[Batch]:
        return [batch for batches in self.drain(leader=leader).requests.values() for batch in batches]

    def answer(self, batch: Batch, code: ErrorCode = ErrorCode.NONE, *, offset: int = 0, generation: int = -1) -> None:
        self.accumulator.delivery.complete(batch, code, self.now, base_offset=offset, generation=generation)


class Bench(AccumulatorBench):
    """A producer of some partitions; most tests choose the partition of each record."""

    def __init__(self, partitions: int = 1, **settings: object) -> None:
        super().__init__(**settings)
        self.adopt((0, partitions))
        self.topic = self.accumulator.topic("t")

    def send(self, partition: int | None = 0, value: bytes = b"0123456789") -> Receipt:
        return self.append(UNKEYED if partition is None else explicit_route(partition), None, value)

    def one(self) -> Batch:
        (batch,) = self.batches()
        return batch

    def establish(self) -> None:
        """Have the first batch acknowledged, after which several may be on the wire."""
        self.send()
        self.answer(self.one())
