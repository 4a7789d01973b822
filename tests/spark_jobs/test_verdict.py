"""The findings of many buckets form one verdict."""

from __future__ import annotations

from anabranch.spark_jobs.verdict import unread_of
from tests.anabranch.audit.test_causes import LOST


def test_losses_of_one_partition_in_several_buckets_are_merged() -> None:
    found = [LOST, LOST._replace(offset=3998, records=2), LOST._replace(partition=0)]
    assert unread_of(found) == [LOST._replace(partition=0), LOST._replace(offset=3998, records=14)]
