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
from tests.clients.producer.world import Receipt

RECORD_BYTES = size_of(None, b"0123456789", ())


class Bench:
    """An accumulator with one topic of some partitions on node 0, and a clock that the test turns."""

    def __init__(self, partitions: int = 1, **settings: object) -> None:
        config = ProducerConfig(**{"linger_ms": 0, **settings})  # type: ignore[arg-type]
        self.accumulator = Accumulator(config, Backoff(initial_ms=100, jitter=0), random.Random(1))
        self.accumulator.numbering.producer_id = 7
        self.accumulator.numbering.wants_producer_id = False
        self.accumulator.adopt("t", b"id", Lineage(1, [(0, partitions)]), range(partitions))
        self.topic = self.accumulator.topic("t")
        self.now = 0.0

    def send(self, partition: int | None = 0, value: bytes = b"0123456789") -> Receipt:
        receipt = Receipt()
        route = UNKEYED if partition is None else explicit_route(partition)
        self.accumulator.append(self.topic, route, None, value, (), 5, receipt, self.now)
        return receipt

    def drain(self, *, leader: int = 0, ready: bool = True) -> Drained:
        return self.accumulator.drain(self.now, lambda topic, partition: leader, lambda node: ready)

    def batches(self) -> list[Batch]:
        return [batch for batches in self.drain().requests.values() for batch in batches]

    def one(self) -> Batch:
        (batch,) = self.batches()
        return batch

    def answer(self, batch: Batch, code: ErrorCode = ErrorCode.NONE, offset: int = 0) -> None:
        self.accumulator.complete(batch, code, self.now, base_offset=offset)

    def establish(self) -> None:
        """Have the first batch acknowledged, after which several may be on the wire."""
        self.send()
        self.answer(self.one())
