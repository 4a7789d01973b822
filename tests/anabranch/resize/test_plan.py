"""The text of a resize before and after it."""

from __future__ import annotations

import pytest

from anabranch.clients.metadata import Topic
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.resize.plan import lineage_lines, lineage_rows, plan_lines


def topic(*counts: int, base: int = 1) -> Topic:
    return Topic("t", b"", {}, lineage=Lineage(base, list(enumerate(counts))))


def test_cuts_show_where_keys_moved() -> None:
    ends = {KeyEpoch(0, 0): 1500, KeyEpoch(1, 1): 7, KeyEpoch(0, 1): 2500}
    assert lineage_lines(topic(1, 2, 1), ends)[-3:] == [
        "     0 cut at offset      1,500 by generation 1: split, 1 took some of its keys",
        "     0 cut at offset      2,500 by generation 2: took the keys of 1",
        "     1 cut at offset          7 by generation 2: merged into 0",
    ]


def test_lineage_is_available_as_rows() -> None:
    ends = {KeyEpoch(0, 0): 1500, KeyEpoch(1, 1): 7, KeyEpoch(0, 1): 2500}
    rows = lineage_rows(topic(1, 2, 1), ends)
    assert [(row["partition"], row["generation"], row["end"]) for row in rows] == [
        *((0, 0, 1500), (0, 1, 2500), (0, 2, None)),
        (1, 1, 7),
    ]
    assert rows[2]["predecessors"] == [[1, 1]] and rows[3]["successors"] == [[0, 2]]
    assert lineage_rows(topic(1, 2, 1), ends, 1) == rows


def test_plan_has_moved_keys_and_waiting_partitions() -> None:
    assert plan_lines(topic(4, base=1), 6) == [
        "t: 4 -> 6 partitions, generation 1",
        "  keys that move      25.0%",
        "  fullest over mean   1.00 now, 1.50 then",
        "  share of keys then  25.0% on each of 2, 3; 12.5% on each of 0, 1, 4, 5",
        "  fenced for a moment 0, 1; 2 untouched",
        "  4 waits until 0 is read to the cut",
        "  5 waits until 1 is read to the cut",
    ]
    assert plan_lines(topic(4), 1)[-1] == "  0 waits until 1, 2, 3 are read to the cut"
    assert plan_lines(topic(100), 200)[-1] == "  ... and 85 more"


def test_plan_below_the_odd_part_has_future_shares_of_keys() -> None:
    """3 -> 2 leaves two thirds on one partition."""
    assert plan_lines(topic(3, base=3), 2) == [
        "t: 3 -> 2 partitions, generation 1",
        "  keys that move      33.3%",
        "  fullest over mean   1.00 now, 1.33 then",
        "  share of keys then  66.7% on 0; 33.3% on 1",
        "  fenced for a moment 0, 2; 1 untouched",
        "  0 waits until 2 is read to the cut",
    ]
    assert "  share of keys then  40.0% on 0; 20.0% on each of 1, 2, 3" in plan_lines(topic(10, base=5), 4)
    assert not [line for line in plan_lines(topic(3, base=3), 1) if "share of keys" in line]


@pytest.mark.parametrize(("count", "says"), [(3, "already has 3 partitions"), (0, "at least one")])
def test_impossible_plan_is_refused(count: int, says: str) -> None:
    with pytest.raises(KafkaError, match=says):
        plan_lines(topic(3, base=3), count)
