"""Kafka's election strategies, case by case."""

from __future__ import annotations

from anabranch.controller import elections
from anabranch.controller.elections import RECOVERING, Elected


def test_first_live_replica_leads_new_partition() -> None:
    assert elections.first_leader([3, 1, 2], {1, 2}) == Elected(1, (1, 2))
    assert elections.first_leader([3], {1, 2}) is None


def test_offline_election_takes_first_assigned_in_sync_replica() -> None:
    assert elections.elect_offline_leader([1, 2, 3], [3, 2], {2, 3}, unclean=False) == Elected(2, (3, 2))
    assert elections.elect_offline_leader([1, 2, 3], [1], {2, 3}, unclean=False) is None


def test_unclean_election_marks_partition_as_recovering() -> None:
    assert elections.elect_offline_leader([1, 2, 3], [1], {2, 3}, unclean=True) == Elected(2, (2,), RECOVERING)
    assert elections.elect_offline_leader([1, 2, 3], [1, 3], {2, 3}, unclean=True) == Elected(3, (3,)), (
        "a clean one comes first"
    )
    assert elections.elect_offline_leader([1], [1], {2}, unclean=True) is None


def test_preferred_leader_must_be_first_replica_alive_and_in_sync() -> None:
    assert elections.elect_preferred_leader([2, 1], [1, 2], {1, 2}) == Elected(2, (1, 2))
    assert elections.elect_preferred_leader([2, 1], [1], {1, 2}) is None
    assert elections.elect_preferred_leader([2, 1], [1, 2], {1}) is None
    assert elections.elect_preferred_leader([], [1], {1}) is None


def test_reassignment_elects_live_in_sync_target_replica() -> None:
    assert elections.elect_reassigned_leader([2, 3], 1, [1, 2, 3], {1, 2, 3}) == Elected(2, (2, 3))
    assert elections.elect_reassigned_leader([2, 3], 3, [1, 2, 3], {1, 2, 3}) == Elected(3, (2, 3)), (
        "the leader remains"
    )
    assert elections.elect_reassigned_leader([2, 3], 1, [1, 2, 3], {1, 3}) == Elected(3, (2, 3)), (
        "the first of them is dead"
    )
    assert elections.elect_reassigned_leader([2, 3], 3, [1, 2, 3], {1, 2}) == Elected(2, (2, 3)), "the leader is dead"
    assert elections.elect_reassigned_leader([2, 3], 1, [1, 2, 3], {1}) is None
    assert elections.elect_reassigned_leader([2, 3], 1, [1, 3], {1, 2}) is None, "alive, but not in sync"


def test_shutdown_moves_leadership_within_isr() -> None:
    assert elections.elect_for_shutdown([1, 2, 3], [1, 3], {1, 2, 3}, {1}) == Elected(3, (3,))
    assert elections.elect_for_shutdown([1, 2], [1], {1, 2}, {1}) is None, "nobody else has every record"


def test_last_isr_member_stays() -> None:
    assert elections.without_replica(1, [1], {1}) == Elected(-1, (1,))
    assert elections.without_replica(1, [1, 2], {1, 2}) == Elected(-1, (1, 2))
    assert elections.without_replica(1, [1, 2], {2}) == Elected(1, (1,))
