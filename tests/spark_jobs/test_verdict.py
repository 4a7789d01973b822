"""The findings of many buckets form one verdict."""

from __future__ import annotations

from anabranch.spark_jobs.verdict import spans_of, unread_of
from tests.anabranch.audit.test_causes import LOST


def test_losses_of_one_partition_in_several_buckets_are_merged() -> None:
    found = [LOST, LOST._replace(offset=3998, records=2), LOST._replace(partition=0)]
    assert unread_of(found) == [LOST._replace(partition=0), LOST._replace(offset=3998, records=14)]


def test_spans_are_the_runs_of_consecutive_numbers() -> None:
    assert spans_of([]) == []
    assert spans_of([1, 2, 3, 5, 7, 8]) == [(1, 3), (5, 5), (7, 8)]
