"""The judge's placement against the one that brokers and clients use: two implementations of one specification."""

from __future__ import annotations

import random

import pytest

from anabranch.judge.placement import base_of, murmur2, partition_of, partitions_of
from anabranch.protocol import hashing, linear_hashing


@pytest.mark.parametrize("size", range(12))
def test_hash_equals_that_of_the_clients(size: int) -> None:
    rng = random.Random(size)
    for _ in range(100):
        key = rng.randbytes(size)
        assert murmur2(key) == hashing.murmur2(key)


@pytest.mark.parametrize("initial_count", [1, 2, 3, 4, 5, 6, 7, 12, 40])
def test_partitions_equal_those_of_the_clients_at_each_count(initial_count: int) -> None:
    rng = random.Random(initial_count)
    base = base_of(initial_count)
    assert base == linear_hashing.base_of(initial_count)
    for count in (*range(1, 20), 40, 127, 128):
        for _ in range(20):
            key = rng.randbytes(7)
            assert partition_of(key, base, count) == linear_hashing.address(hashing.murmur2(key), base, count)


def test_partitions_of_all_generations() -> None:
    places = partitions_of(b"key", [4, 8, 1])
    assert places == [partition_of(b"key", 1, 4), partition_of(b"key", 1, 8), 0]
    assert places[1] % 4 == places[0]
