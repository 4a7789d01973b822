"""A consumer gets the most complete replica in its rack."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.broker.metadata.metadata_cache import BrokerImage, ClusterImage, MetadataCache
from anabranch.broker.replication.follower import Follower
from anabranch.broker.replication.replica_selector import LEADER, preferred_replica

RACKS = {1: "a", 2: "b", 3: "b", 4: "b", 5: None, 6: "a"}


def chosen(offset: int, rack: str, followers: dict[int, Follower], isr: tuple[int, ...] = (1, 2, 3, 4, 5, 6)) -> int:
    metadata = MetadataCache()
    metadata.image = ClusterImage(brokers={n: BrokerImage(n, "h", n, of, n) for n, of in RACKS.items() if n != 4})
    partition: Any = SimpleNamespace(leader_id=1, isr=isr, followers=followers)
    return preferred_replica(partition, offset, rack, metadata)


def follower(start: int, end: int, caught_up_ms: float = 0.0) -> Follower:
    return Follower(log_end_offset=end, log_start_offset=start, caught_up_ms=caught_up_ms)


@pytest.mark.parametrize(
    ("offset", "rack", "followers", "replica"),
    [
        (5, "b", {2: follower(0, 10), 3: follower(0, 11)}, 3),
        (5, "b", {2: follower(0, 11, 8.0), 3: follower(0, 11, 7.0)}, 2),
        (5, "b", {2: follower(6, 20), 3: follower(0, 11)}, 3),
        (12, "b", {2: follower(0, 10), 3: follower(0, 11)}, LEADER),
        (5, "a", {6: follower(0, 10)}, LEADER),
        (5, "c", {2: follower(0, 10)}, LEADER),
        (5, "b", {4: follower(0, 10)}, LEADER),
        (5, "b", {}, LEADER),
    ],
    ids=["longest", "last caught up", "begins later", "too short", "leader's", "nobody's", "not alive", "no leader"],
)
def test_in_sync_replica_in_the_clients_rack_is_preferred(
    offset: int, rack: str, followers: dict[int, Follower], replica: int
) -> None:
    assert chosen(offset, rack, followers) == replica


def test_a_replica_out_of_sync_is_not_preferred() -> None:
    followers = {2: follower(0, 10), 3: follower(0, 11)}
    assert chosen(5, "b", followers, isr=(1, 2)) == 2
