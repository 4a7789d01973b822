"""The ledger accepts valid deliveries, and reports each violation."""

from __future__ import annotations

import pytest

from anabranch.chaos.ledger import Ledger

KEY = b"k"
Step = tuple[int, int, int]
"""(sequence, partition, offset)"""


def judged(*steps: Step) -> Ledger:
    ledger = Ledger()
    for sequence, partition, offset in steps:
        ledger.hand_out(KEY, sequence, partition, offset)
    return ledger


@pytest.mark.parametrize(
    "steps",
    [
        [(0, 0, 0), (1, 0, 1), (2, 3, 0), (3, 3, 1)],
        [(0, 0, 0), (1, 0, 1), (0, 0, 0), (1, 0, 1), (2, 0, 2)],
        [(0, 0, 0), (1, 1, 0), (2, 1, 1), (1, 1, 0), (2, 1, 1), (3, 0, 1)],
    ],
    ids=["moves on", "repeats after a crash", "repeats after a cut"],
)
def test_ordered_deliveries_have_no_anomaly(steps: list[Step]) -> None:
    ledger = judged(*steps)
    assert (ledger.found, ledger.anomalies) == (0, [])
    assert ledger.delivered == len({sequence for sequence, _, _ in steps})
    assert ledger.delivered + ledger.repeated == len(steps)
    assert ledger.missing({KEY: ledger.delivered}) == 0


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([(0, 0, 0), (2, 1, 0), (1, 0, 1)], "I4 out of order: k/2 at 1:0 before k/1"),
        ([(0, 0, 0), (1, 1, 0), (0, 0, 0)], "I4 out of order: k/0 again at 0:0, after k/1 elsewhere"),
        ([(0, 0, 0), (1, 0, 1), (1, 0, 2)], "I6 twice: k/1 at 0:2 is stored a second time"),
        ([(0, 0, 0), (0, 1, 0)], "I6 twice: k/0 at 1:0 is stored a second time"),
        ([(0, 0, 0), (1, 0, 1), (2, 0, 2), (0, 0, 0), (2, 0, 2)], "I4 out of order: k/2 at 0:2 before k/1"),
    ],
    ids=["overtaken", "repeated behind a cut", "stored twice", "stored in two partitions", "a hole in a repetition"],
)
def test_anomaly_names_its_records(steps: list[Step], says: str) -> None:
    assert judged(*steps).anomalies[0] == says


def test_records_are_not_missing_while_their_repetition_goes_on() -> None:
    """A run may end then: it waits until nothing is missing, and counts again when its readers have stopped."""
    ledger = judged(*((sequence, 0, sequence) for sequence in range(5)), (1, 0, 1), (2, 0, 2))
    assert (ledger.missing({KEY: 5}), ledger.missing({KEY: 6}), ledger.found) == (0, 1, 0)


def test_undelivered_records_are_missing() -> None:
    assert judged((0, 0, 0)).missing({KEY: 3, b"other": 2}) == 4
