"""Rack-aware task swaps: balanced, and with minimal cost."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import pytest

from anabranch.clients.streams.high_availability_task_assignor import (
    NON_OVERLAP_COST,
    TRAFFIC_COST,
    assign_highly_available,
)
from anabranch.clients.streams.sticky_task_assignor import assign_sticky
from anabranch.clients.streams.task_assignor import AssignorConfig, Client, TaskAssignor, Tasks
from anabranch.clients.streams.task_id import TaskId
from tests.clients.streams.clusters import Cluster, a_cluster, with_racks

CLUSTERS = 600


def active(
    assignor: TaskAssignor, cluster: Cluster, strategy: str = "min_traffic"
) -> Mapping[bytes, frozenset[TaskId]]:
    config = dataclasses.replace(cluster.config, rack_aware_assignment_strategy=strategy)
    return assignor(cluster.clients, cluster.tasks, config).active


def crossing(cluster: Cluster, task: TaskId, client: Client) -> int:
    """How many partitions of a task a client would read from another rack."""
    return sum(client.rack not in replicas for replicas in cluster.tasks.racks[task])


@pytest.mark.parametrize("assignor", [assign_highly_available, assign_sticky])
def test_rack_aware_assignment_keeps_balance_and_reduces_cross_rack_traffic(assignor: TaskAssignor) -> None:
    blind_total = total = 0
    for seed in range(CLUSTERS):
        cluster = with_racks(a_cluster(seed, tags=False), seed)
        blind, aware = active(assignor, cluster, "none"), active(assignor, cluster)
        for client in cluster.clients:
            for kind in (cluster.tasks.stateful, cluster.tasks.every - cluster.tasks.stateful):
                assert len(blind[client.process_id] & kind) == len(aware[client.process_id] & kind), cluster
            blind_total += sum(crossing(cluster, task, client) for task in blind[client.process_id])
            total += sum(crossing(cluster, task, client) for task in aware[client.process_id])
        assert sorted(itertools.chain(*aware.values())) == sorted(cluster.tasks.every)
    assert total < 0.95 * blind_total, f"{total} of {blind_total}"


def test_rack_aware_assignment_has_minimal_cost() -> None:
    """Compares with every other assignment of the same places."""
    looked_at = 0
    for seed in range(CLUSTERS):
        cluster = with_racks(a_cluster(seed, tags=False), seed)
        tasks = sorted(cluster.tasks.stateful)
        if not 3 <= len(tasks) <= 6 or len(cluster.clients) < 2:
            continue
        looked_at += 1
        client_of = {client.process_id: client for client in cluster.clients}
        blind, aware = (
            {task: process_id for process_id, placed in active(assign_highly_available, cluster, one).items()
             for task in placed & cluster.tasks.stateful}
            for one in ("none", "min_traffic")
        )  # fmt: skip

        def cost(placed: Mapping[TaskId, bytes]) -> int:
            return sum(
                TRAFFIC_COST * crossing(cluster, task, client_of[process_id])  # noqa: B023
                + NON_OVERLAP_COST * (blind[task] != process_id)  # noqa: B023
                for task, process_id in placed.items()
            )

        places = [blind[task] for task in tasks]
        best = min(cost(dict(zip(tasks, other, strict=True))) for other in itertools.permutations(places))
        assert cost(aware) == best, cluster
    assert looked_at > 100


@pytest.mark.parametrize("unknown", ["client", "replica"])
def test_unknown_rack_disables_rack_aware_swaps(unknown: str) -> None:
    for seed in range(50):
        cluster = with_racks(a_cluster(seed, tags=False), seed)
        if unknown == "client":
            first, *rest = cluster.clients
            cluster = dataclasses.replace(cluster, clients=(dataclasses.replace(first, rack=""), *rest))
        else:
            racks = {**cluster.tasks.racks, min(cluster.tasks.every): [[]]}
            cluster = dataclasses.replace(cluster, tasks=dataclasses.replace(cluster.tasks, racks=racks))
        assert active(assign_highly_available, cluster) == active(assign_highly_available, cluster, "none")


def test_rotation_of_three_tasks_is_found_where_no_two_can_swap() -> None:
    tasks = [TaskId(0, index) for index in range(3)]
    clients = [
        Client(process_id=bytes([number]) * 16, capacity=1, lags=dict.fromkeys(tasks, 0), rack=rack)
        for number, rack in enumerate("abc")
    ]
    racks = {tasks[0]: ["b"], tasks[1]: ["c"], tasks[2]: ["a"]}
    config = AssignorConfig(rack_aware_assignment_strategy="min_traffic")
    every = Tasks(every=frozenset(tasks), stateful=frozenset(tasks), racks=racks)
    placed = assign_highly_available(clients, every, config).active
    assert [sorted(placed[client.process_id]) for client in clients] == [[tasks[2]], [tasks[0]], [tasks[1]]]
    unwilling = dataclasses.replace(config, rack_aware_assignment_traffic_cost=0)
    placed = assign_highly_available(clients, every, unwilling).active
    assert [sorted(placed[client.process_id]) for client in clients] == [[task] for task in tasks]


def test_unknown_rack_aware_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rack_aware_assignment_strategy is one of .*, not 'balance'"):
        AssignorConfig(rack_aware_assignment_strategy="balance")
