"""Numbers of audit events: new, repeated, missing."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.spark_jobs.numbering import AGAIN, BEHIND, NEW, Numbers


def admit(numbers: Numbers, *them: int, incarnation: int = 1) -> list[int]:
    return numbers.admit(np.full(len(them), incarnation, np.uint64), np.array(them, np.int64)).tolist()


def test_seen_numbers_are_repetitions_and_skipped_numbers_are_late() -> None:
    numbers = Numbers()
    assert admit(numbers, 0, 1, 2, 5, 6) == [NEW] * 5
    assert numbers.seen[1].holes == [(3, 4)]
    assert admit(numbers, 2, 3, 4, 5, 7) == [AGAIN, BEHIND, BEHIND, AGAIN, NEW]
    assert numbers.seen[1].holes == []


def test_incarnations_are_numbered_separately() -> None:
    numbers = Numbers()
    assert admit(numbers, 0, 1) == admit(numbers, 0, 1, incarnation=2) == [NEW, NEW]


def test_events_without_numbers_are_new() -> None:
    assert admit(Numbers(), -1, -1, -1) == [NEW] * 3


@given(st.integers(1, 40), st.randoms(use_true_random=False), st.integers(0, 10))
def test_numbers_behave_like_a_set(length: int, rng: random.Random, missing: int) -> None:
    numbers, model = Numbers(), set[int]()
    stream = [number for number in range(length) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
    for _ in range(missing):
        one = rng.randrange(len(stream) + 1)
        stream.insert(one, rng.randrange(length))
    for begin in range(0, len(stream), 5):
        batch = stream[begin : begin + 5]
        for number, what in zip(batch, admit(numbers, *batch), strict=True):
            assert (what == AGAIN) == (number in model)
            assert (what == BEHIND) == (number not in model and number < max(model, default=-1))
            model.add(number)
        numbers = Numbers.of_json(numbers.as_json())
    if model:
        holes = {n for first, last in numbers.seen[1].holes for n in range(first, last + 1)}
        assert holes == set(range(max(model))) - model
