"""Generated groups for task assignors: processes of all sizes and states."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

from anabranch.clients.streams.subscription_info import RUNNING
from anabranch.clients.streams.task_assignor import AssignorConfig, Client, Tasks
from anabranch.clients.streams.task_id import TaskId

ZONES = ("a", "b", "c")
END_SUM = 50_000


@dataclass(frozen=True)
class Cluster:
    """What a task assignor is asked."""

    clients: tuple[Client, ...]
    tasks: Tasks
    config: AssignorConfig

    def __str__(self) -> str:
        told = [f"{self.config}", f"stateful {sorted(self.tasks.stateful)}, of {sorted(self.tasks.every)}"]
        return "\n".join(told + [str(client) for client in self.clients])


def a_cluster(seed: int, *, standbys: int = 2, tags: bool = True, equal_capacity: bool = False) -> Cluster:
    """A group as it could be after any history: one in twenty has up to eight processes and sixty tasks."""
    rng = random.Random(seed)
    large = seed % 20 == 0
    tasks = _tasks(rng, subtopologies=4 if large else 3, partitions=15 if large else 6)
    config = AssignorConfig(
        acceptable_recovery_lag=rng.choice([0, 100, 10_000, 2**63 - 1]),
        max_warmup_replicas=rng.choice([1, 2, 2, 5]),
        num_standby_replicas=rng.randint(0, standbys),
        rack_aware_assignment_tags=rng.choice([(), ("zone",), ("zone", "rack")]) if tags else (),
    )
    capacity = rng.randint(1, 4)
    processes = [rng.randbytes(16) for _ in range(rng.randint(1, 8 if large else 5))]
    owner = {task: rng.choice([*processes, b""]) for task in sorted(tasks.every)}
    clients = []
    for process_id in processes:
        active = frozenset(task for task, process in owner.items() if process == process_id)
        lags = {task: _lag(rng, task in active) for task in sorted(tasks.stateful)}
        clients.append(
            Client(
                process_id=process_id,
                capacity=capacity if equal_capacity else rng.randint(1, 4),
                previous_active=active,
                previous_standby=frozenset(task for task, lag in lags.items() if 0 <= lag < END_SUM) - active,
                lags=lags,
                tags={"zone": rng.choice(ZONES), "rack": rng.choice("1234")} if tags else {},
            )
        )
    return Cluster(tuple(clients), tasks, config)


def _tasks(rng: random.Random, *, subtopologies: int, partitions: int) -> Tasks:
    every: list[TaskId] = []
    stateful: list[TaskId] = []
    for subtopology in range(rng.randint(1, subtopologies)):
        tasks = [TaskId(subtopology, partition) for partition in range(rng.randint(1, partitions))]
        every += tasks
        if rng.random() < 0.7:
            stateful += tasks
    return Tasks(every=frozenset(every), stateful=frozenset(stateful))


def _lag(rng: random.Random, active: bool) -> int:
    if active:
        return RUNNING if rng.random() < 0.8 else rng.randrange(END_SUM)
    return rng.choice([END_SUM, END_SUM, END_SUM, 0, rng.randrange(200), rng.randrange(END_SUM)])


def with_racks(cluster: Cluster, seed: int, *, racks: str = "xyz") -> Cluster:
    """The same group with all state everywhere, its clients and the one or two replicas of its inputs in racks."""
    rng = random.Random(seed)
    replicas = {
        task: [rng.sample(racks, rng.randint(1, len(racks) - 1)) for _ in range(rng.randint(1, 2))]
        for task in sorted(cluster.tasks.every)
    }
    lags = dict.fromkeys(cluster.tasks.stateful, 0)
    return Cluster(
        tuple(dataclasses.replace(client, rack=rng.choice(racks), lags=lags) for client in cluster.clients),
        dataclasses.replace(cluster.tasks, racks=replicas),
        dataclasses.replace(cluster.config, num_standby_replicas=0, rack_aware_assignment_strategy="min_traffic"),
    )
