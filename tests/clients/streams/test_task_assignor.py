"""Guarantees of task assignors over two thousand generated groups each, and planted bugs.

The groups are in any condition: clients of all sizes, tasks that run, lag, or are nowhere; standbys, tags, budgets.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from anabranch.clients.streams.high_availability_task_assignor import assign_highly_available
from anabranch.clients.streams.sticky_task_assignor import assign_as_before, assign_sticky
from anabranch.clients.streams.subscription_info import RUNNING
from anabranch.clients.streams.task_assignor import (
    AssignorConfig,
    Client,
    Placement,
    TaskAssignor,
    Tasks,
    process_order,
)
from anabranch.clients.streams.task_id import TaskId
from tests.clients.streams.clusters import END_SUM, Cluster, a_cluster

CLUSTERS = 2000
ASSIGNORS = [assign_highly_available, assign_sticky, assign_as_before]


@functools.cache
def the_clusters() -> list[Cluster]:
    return [a_cluster(seed) for seed in range(CLUSTERS)]


@functools.cache
def the_placements(assignor: TaskAssignor) -> list[tuple[Cluster, Placement]]:
    return [(cluster, place(assignor, cluster)) for cluster in the_clusters()]


@functools.cache
def the_ideal_placements() -> list[tuple[Cluster, Placement]]:
    """Where everything ends up when all state is everywhere."""
    return [(cluster, place(assign_highly_available, caught_up(cluster))) for cluster in the_clusters()]


def the_even_clusters(standbys: int = 2, *, tags: bool = True) -> Iterator[Cluster]:
    """All clients with as many threads as each other."""
    for seed in range(CLUSTERS):
        yield a_cluster(seed, standbys=standbys, tags=tags, equal_capacity=True)


def place(assignor: TaskAssignor, cluster: Cluster) -> Placement:
    return assignor(cluster.clients, cluster.tasks, cluster.config)


def after(cluster: Cluster, placement: Placement) -> Cluster:
    """The group later: placed tasks run or have caught up; others are deleted from disk."""
    return dataclasses.replace(
        cluster,
        clients=tuple(
            dataclasses.replace(
                client,
                previous_active=placement.active[client.process_id],
                previous_standby=placement.standby[client.process_id],
                lags={task: _lag_after(placement, client, task) for task in cluster.tasks.stateful},
            )
            for client in cluster.clients
        ),
    )


def _lag_after(placement: Placement, client: Client, task: TaskId) -> int:
    if task in placement.active[client.process_id]:
        return RUNNING
    return 0 if task in placement.standby[client.process_id] else END_SUM


def caught_up(cluster: Cluster) -> Cluster:
    """The same group, where all state is everywhere."""
    lags = dict.fromkeys(cluster.tasks.stateful, 0)
    clients = tuple(dataclasses.replace(client, lags=lags) for client in cluster.clients)
    return dataclasses.replace(cluster, clients=clients)


def owners(placed: Mapping[bytes, frozenset[TaskId]]) -> dict[TaskId, list[bytes]]:
    found: dict[TaskId, list[bytes]] = {}
    for process_id, tasks in placed.items():
        for task in tasks:
            found.setdefault(task, []).append(process_id)
    return found


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_every_task_is_active_once_and_standbys_are_on_other_clients(assignor: TaskAssignor) -> None:
    for cluster, placement in the_placements(assignor):
        active, standby = owners(placement.active), owners(placement.standby)
        assert active.keys() == cluster.tasks.every, cluster
        assert all(len(processes) == 1 for processes in active.values()), cluster
        assert standby.keys() <= cluster.tasks.stateful, cluster
        for process_id in placement.active:
            assert not placement.active[process_id] & placement.standby[process_id], cluster


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_assignment_does_not_depend_on_order_of_clients(assignor: TaskAssignor) -> None:
    for cluster, placement in the_placements(assignor):
        turned = dataclasses.replace(cluster, clients=cluster.clients[::-1])
        assert place(assignor, turned) == placement, cluster


def test_equal_clients_differ_by_at_most_one_task() -> None:
    for cluster in the_even_clusters():
        placement = place(assign_highly_available, caught_up(cluster))
        assert not placement.probing, cluster
        every = [len(tasks) for tasks in placement.active.values()]
        stateful = [len(tasks & cluster.tasks.stateful) for tasks in placement.active.values()]
        assert max(every) - min(every) <= 1, cluster
        assert max(stateful) - min(stateful) <= 1, cluster


def test_no_single_move_improves_balance() -> None:
    for cluster, placement in the_ideal_placements():
        load = {
            client.process_id: (len(placement.active[client.process_id] & cluster.tasks.stateful), client.capacity)
            for client in cluster.clients
        }
        for (much, its_threads), (little, threads) in itertools.permutations(load.values(), 2):
            skew = much / its_threads - little / threads
            moved = (much - 1) / its_threads - (little + 1) / threads
            assert not (much and 0 <= moved < skew), cluster


def test_task_runs_where_its_state_is() -> None:
    """Caught up, or with no client further ahead: no avoidable restoration."""
    for cluster, placement in the_placements(assign_highly_available):
        for client in cluster.clients:
            for task in placement.active[client.process_id] & cluster.tasks.stateful:
                lag, bound = client.lags[task], cluster.config.acceptable_recovery_lag
                assert lag <= bound or lag == min(other.lags[task] for other in cluster.clients), (task, str(cluster))


def test_warmup_replicas_stay_within_limit() -> None:
    for cluster, placement in the_placements(assign_highly_available):
        replicas = min(cluster.config.num_standby_replicas, len(cluster.clients) - 1)
        copies = Counter(task for tasks in placement.standby.values() for task in tasks)
        assert sum(max(0, count - replicas) for count in copies.values()) <= cluster.config.max_warmup_replicas, cluster


def test_ideal_assignment_is_left_unchanged() -> None:
    for cluster, placement in the_ideal_placements():
        assert place(assign_highly_available, after(cluster, placement)) == placement, cluster
        sticky = place(assign_sticky, dataclasses.replace(cluster, config=AssignorConfig()))
        again = dataclasses.replace(after(cluster, sticky), config=AssignorConfig())
        assert place(assign_sticky, again).active == sticky.active, cluster


def test_probing_rebalances_converge_and_move_tasks_only_to_caught_up_clients() -> None:
    most = 0
    for (cluster, placement), (_, ideal) in zip(
        the_placements(assign_highly_available), the_ideal_placements(), strict=True
    ):
        copies = len(cluster.tasks.stateful) * (1 + cluster.config.num_standby_replicas)
        bound = 2 + copies // cluster.config.max_warmup_replicas
        rounds = 0
        while placement.probing:
            rounds += 1
            assert rounds <= bound, cluster
            before, cluster = placement, after(cluster, placement)
            placement = place(assign_highly_available, cluster)
            for client in cluster.clients:
                gained = placement.active[client.process_id] - before.active[client.process_id]
                for task in gained & cluster.tasks.stateful:
                    assert client.lags[task] <= cluster.config.acceptable_recovery_lag, (task, str(cluster))
        assert place(assign_highly_available, after(cluster, placement)) == ideal, cluster
        most = max(most, rounds)
    assert most > 10, "some groups need many rounds, or nothing was shown"


def test_each_stateful_task_has_its_standbys() -> None:
    for cluster, placement in the_ideal_placements():
        copies = owners(placement.standby)
        replicas = min(cluster.config.num_standby_replicas, len(cluster.clients) - 1)
        for task in cluster.tasks.stateful:
            assert len(copies.get(task, ())) == replicas, (task, str(cluster))


def test_standbys_are_in_as_many_zones_as_possible() -> None:
    looked_at = 0
    for cluster in the_clusters():
        if cluster.config.rack_aware_assignment_tags != ("zone",):
            continue
        looked_at += 1
        placement = place(assign_highly_available, caught_up(cluster))
        zone = {client.process_id: client.tags["zone"] for client in cluster.clients}
        active, standby = owners(placement.active), owners(placement.standby)
        copies = 1 + min(cluster.config.num_standby_replicas, len(cluster.clients) - 1)
        for task in cluster.tasks.stateful:
            zones = {zone[process_id] for process_id in active[task] + standby.get(task, [])}
            assert len(zones) == min(copies, len(set(zone.values()))), (task, str(cluster))
    assert looked_at > CLUSTERS / 4


def test_sticky_keeps_equal_shares_of_previous_owners() -> None:
    for cluster, placement in the_placements(assign_sticky):
        quota = len(cluster.tasks.every) // sum(client.capacity for client in cluster.clients)
        for client in cluster.clients:
            had = client.previous_active & cluster.tasks.every
            kept = len(placement.active[client.process_id] & had)
            assert kept >= min(len(had), quota * client.capacity), (client.process_id.hex(), str(cluster))


def test_sticky_is_balanced_within_one_task_and_keeps_maximum() -> None:
    """Equal clients, with a task per thread: each gets a share; larger shares go to previous owners."""
    looked_at = 0
    for cluster in the_even_clusters(standbys=0):
        count = len(cluster.tasks.every)
        if count < sum(client.capacity for client in cluster.clients):
            continue
        looked_at += 1
        placement = place(assign_sticky, cluster)
        counts = [len(tasks) for tasks in placement.active.values()]
        assert max(counts) - min(counts) <= 1, cluster
        share, larger_shares = divmod(count, len(cluster.clients))
        had = [len(client.previous_active) for client in cluster.clients]
        may_keep = sum(min(one, share) for one in had) + min(larger_shares, sum(one > share for one in had))
        kept = sum(len(client.previous_active & placement.active[client.process_id]) for client in cluster.clients)
        assert kept >= may_keep, cluster
    assert looked_at > CLUSTERS / 2


def test_previous_assignment_is_kept_unchanged() -> None:
    for cluster, placement in the_placements(assign_as_before):
        assert placement.probing
        for client in cluster.clients:
            assert client.previous_active <= placement.active[client.process_id], cluster


def test_new_client_gets_warmups_first_and_tasks_when_caught_up() -> None:
    """KIP-441's example: two of six tasks move to the new client without downtime."""
    tasks = frozenset(TaskId(0, partition) for partition in range(6))
    old = Client(process_id=b"\1" * 16, capacity=1, previous_active=tasks, lags=dict.fromkeys(tasks, RUNNING))
    new = Client(process_id=b"\2" * 16, capacity=1, lags=dict.fromkeys(tasks, END_SUM))
    cluster = Cluster((old, new), Tasks(every=tasks, stateful=tasks), AssignorConfig(max_warmup_replicas=2))
    story = []
    placement = place(assign_highly_available, cluster)
    while placement.probing:
        story.append((len(placement.active[new.process_id]), sorted(placement.standby[new.process_id])))
        cluster = after(cluster, placement)
        placement = place(assign_highly_available, cluster)
    assert story == [(0, [TaskId(0, 1), TaskId(0, 3)]), (2, [TaskId(0, 5)])]
    assert sorted(placement.active[new.process_id]) == [TaskId(0, 1), TaskId(0, 3), TaskId(0, 5)]


def test_process_ids_are_sorted_as_in_java() -> None:
    assert sorted([b"\x00" * 16, b"\xff" * 16, b"\x7f" * 16, b"\x80" * 16], key=process_order) == [
        b"\x80" * 16,
        b"\xff" * 16,
        b"\x00" * 16,
        b"\x7f" * 16,
    ]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("acceptable_recovery_lag", -1),
        ("max_warmup_replicas", 0),
        ("num_standby_replicas", -1),
        ("probing_rebalance_interval_ms", 59_999),
        ("rack_aware_assignment_tags", tuple("abcdef")),
    ],
)
def test_invalid_assignor_settings_are_refused(setting: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{setting} (must be|has 6 tags)"):
        AssignorConfig(**{setting: value})


def test_exhausted_rack_tag_no_longer_constrains_standbys() -> None:
    """Two zones, three racks, two copies: the second copy may share a zone, but not a rack."""
    task = TaskId(0, 0)
    where = ("a1", "b1", "b2", "a2", "a3")
    clients = tuple(
        Client(process_id=bytes([number]) * 16, capacity=1, lags={task: 0}, tags={"zone": place[0], "rack": place[1]})
        for number, place in enumerate(where)
    )
    config = AssignorConfig(num_standby_replicas=2, rack_aware_assignment_tags=("zone", "rack"))
    one = frozenset({task})
    placement = assign_highly_available(clients, Tasks(every=one, stateful=one), config)
    holders = owners(placement.active)[task] + sorted(owners(placement.standby)[task])
    assert [where[process_id[0]] for process_id in holders] == ["a1", "b2", "a3"]
