"""The estimated size of a record."""

from __future__ import annotations

import random

from anabranch.clients.producer.producer_record import size_of
from anabranch.protocol.records.batch_builder import BatchBuilder


def test_size_estimates_are_upper_bounds() -> None:
    rng = random.Random(1)
    for _ in range(200):
        key = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(200))
        value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(2000))
        headers = [("h" * rng.randrange(20), rng.randbytes(rng.randrange(50))) for _ in range(rng.randrange(3))]
        builder = BatchBuilder(limit_bytes=1 << 30)
        empty = builder.size_bytes
        builder.append(key, value, headers, 123456)
        assert builder.size_bytes - empty <= size_of(key, value, headers)
