"""The task assignors compared with Kafka Streams' own.

The high-availability assignor is deterministic in Kafka: the answers are equal. Two places where it walks a hash table
are left out of that: ties between several standbys of one task, and copies that cannot be kept apart in several
dimensions. The sticky assignor walks hash tables throughout: there, what both keep and how evenly they share is
compared.
"""

from __future__ import annotations

import dataclasses
import random
import uuid
from pathlib import Path
from typing import Any

import pytest

from anabranch.clients.streams.high_availability_task_assignor import assign_highly_available
from anabranch.clients.streams.sticky_task_assignor import assign_as_before, assign_sticky
from anabranch.clients.streams.task_assignor import Placement
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.threads import Threads
from tests.clients.streams.clusters import Cluster, a_cluster, with_racks
from tests.clients.streams.oracle import ask, jars_or_skip

pytestmark = pytest.mark.kafka_jars

CLUSTERS = 600
END_SUM = 1000


@pytest.fixture(scope="module")
def jars() -> Path:
    return jars_or_skip()


def names(tasks: Any) -> list[str]:
    return [str(task) for task in sorted(tasks)]


def question(assignor: str, cluster: Cluster) -> dict[str, Any]:
    config = cluster.config
    racks = {"racks": {str(task): rows for task, rows in cluster.tasks.racks.items()}} if cluster.tasks.racks else {}
    return racks | {
        "assignor": assignor,
        "config": {
            "lag": config.acceptable_recovery_lag,
            "warmups": config.max_warmup_replicas,
            "standbys": config.num_standby_replicas,
            "tags": config.rack_aware_assignment_tags,
        },
        "every": names(cluster.tasks.every),
        "stateful": names(cluster.tasks.stateful),
        "clients": [
            {
                "id": str(uuid.UUID(bytes=client.process_id)),
                "capacity": client.capacity,
                "active": names(client.previous_active),
                "standby": names(client.previous_standby),
                "lags": {str(task): lag for task, lag in client.lags.items()},
                "tags": client.tags,
                "rack": client.rack,
            }
            for client in cluster.clients
        ],
    }


def answer(placement: Placement) -> dict[str, Any]:
    return {
        "probing": placement.probing,
        "active": {str(uuid.UUID(bytes=one)): names(tasks) for one, tasks in placement.active.items()},
        "standby": {str(uuid.UUID(bytes=one)): names(tasks) for one, tasks in placement.standby.items()},
    }


def test_high_availability_assignor_decides_as_in_kafka(jars: Path) -> None:
    clusters = [a_cluster(seed) for seed in range(CLUSTERS)]
    theirs = ask(jars, "decide", [question("high_availability", cluster) for cluster in clusters])
    comparable = equal = others = 0
    for cluster, expected in zip(clusters, theirs, strict=True):
        ours = answer(assign_highly_available(cluster.clients, cluster.tasks, cluster.config))
        if cluster.config.num_standby_replicas < 2 and len(cluster.config.rack_aware_assignment_tags) < 2:
            comparable += 1
            assert ours == expected, cluster
        else:
            others += 1
            equal += ours == expected
    assert comparable > CLUSTERS / 3
    assert equal > 0.9 * others, f"{equal} of {others} of the rest"


def kept(cluster: Cluster, active: dict[str, list[str]]) -> int:
    return sum(
        len(set(names(client.previous_active)) & set(active[str(uuid.UUID(bytes=client.process_id))]))
        for client in cluster.clients
    )


def spread(cluster: Cluster, active: dict[str, list[str]]) -> float:
    loads = [len(active[str(uuid.UUID(bytes=client.process_id))]) / client.capacity for client in cluster.clients]
    return max(loads) - min(loads)


def test_sticky_assignor_keeps_as_many_tasks_as_in_kafka_and_is_as_balanced(jars: Path) -> None:
    clusters = [a_cluster(seed, standbys=1, tags=False) for seed in range(CLUSTERS)]
    theirs = ask(jars, "decide", [question("sticky", cluster) for cluster in clusters])
    our_kept = their_kept = 0
    our_spread = their_spread = 0.0
    for cluster, expected in zip(clusters, theirs, strict=True):
        ours = answer(assign_sticky(cluster.clients, cluster.tasks, cluster.config))
        assert ours["probing"] == expected["probing"] is False
        assert {one: len(tasks) for one, tasks in ours["standby"].items()}.keys() == expected["standby"].keys()
        assert sum(map(len, ours["standby"].values())) == sum(map(len, expected["standby"].values())), cluster
        our_kept, their_kept = our_kept + kept(cluster, ours["active"]), their_kept + kept(cluster, expected["active"])
        our_spread += spread(cluster, ours["active"])
        their_spread += spread(cluster, expected["active"])
    assert our_kept >= 0.99 * their_kept, f"{our_kept} tasks stay where they were, with Kafka {their_kept}"
    assert our_spread <= 1.02 * their_spread, f"{our_spread} tasks per thread between most and least, {their_spread}"


def test_previous_assignment_is_kept_as_in_kafka(jars: Path) -> None:
    clusters = [a_cluster(seed, standbys=0, tags=False) for seed in range(100)]
    theirs = ask(jars, "decide", [question("as_before", cluster) for cluster in clusters])
    for cluster, expected in zip(clusters, theirs, strict=True):
        ours = answer(assign_as_before(cluster.clients, cluster.tasks, cluster.config))
        assert ours["probing"] == expected["probing"] is True
        assert kept(cluster, ours["active"]) == kept(cluster, expected["active"]), cluster


def traffic(cluster: Cluster, active: dict[str, list[str]]) -> int:
    """How many partitions are read from another rack."""
    rack = {str(uuid.UUID(bytes=client.process_id)): client.rack for client in cluster.clients}
    rows = {str(task): replicas for task, replicas in cluster.tasks.racks.items()}
    return sum(rack[one] not in replicas for one, tasks in active.items() for task in tasks for replicas in rows[task])


@pytest.mark.parametrize("name", ["high_availability", "sticky"])
def test_cross_rack_traffic_is_no_higher_than_in_kafka(jars: Path, name: str) -> None:
    clusters = [with_racks(a_cluster(seed, tags=False), seed) for seed in range(CLUSTERS)]
    theirs = ask(jars, "decide", [question(name, cluster) for cluster in clusters])
    assignor = assign_sticky if name == "sticky" else assign_highly_available
    ours_total = theirs_total = without = 0
    for cluster, expected in zip(clusters, theirs, strict=True):
        ours = answer(assignor(cluster.clients, cluster.tasks, cluster.config))
        plain = dataclasses.replace(cluster.config, rack_aware_assignment_strategy="none")
        blind = answer(assignor(cluster.clients, cluster.tasks, plain))
        without += traffic(cluster, blind["active"])
        ours_total += traffic(cluster, ours["active"])
        theirs_total += traffic(cluster, expected["active"])
        if name == "high_availability":
            assert {one: len(tasks) for one, tasks in ours["active"].items()} == {
                one: len(tasks) for one, tasks in expected["active"].items()
            }, cluster
            stateful = {*names(cluster.tasks.stateful)}
            parts = [
                {one: [task for task in tasks if task in stateful] for one, tasks in placed["active"].items()}
                for placed in (ours, expected)
            ]
            assert traffic(cluster, parts[0]) == traffic(cluster, parts[1]), cluster
    assert ours_total <= 1.01 * theirs_total, f"{ours_total} partitions from other racks, with Kafka {theirs_total}"
    assert ours_total < 0.97 * without, f"{ours_total} of {without}"


def threads_question(seed: int) -> dict[str, Any]:
    """Three rounds of sharing out among the threads of one client."""
    rng = random.Random(seed)
    members = [f"thread-{number}" for number in range(rng.randint(1, 5))]
    stateful = [TaskId(part, index) for part in range(rng.randint(1, 3)) for index in range(rng.randint(1, 8))]
    rng.shuffle(stateful)
    cut = rng.randint(0, len(stateful))
    had: dict[str, dict[str, int]] = {member: {} for member in members}
    for task in stateful:
        if rng.random() < 0.8:
            had[rng.choice(members)][str(task)] = rng.choice([-2, 0, rng.randrange(END_SUM)])
    stateless = [TaskId(9, index) for index in range(rng.randint(0, 6))]
    return {
        "members": had,
        "ends": {str(task): END_SUM for task in stateful},
        "rounds": [
            {"tasks": names(stateful[:cut]), "stateful": True},
            {"tasks": names(stateful[cut:]), "stateful": True},
            {"tasks": names(stateless), "stateful": False},
        ],
    }


def test_tasks_are_distributed_to_threads_as_in_kafka(jars: Path) -> None:
    """Equal counts, and stable owners; for the remainder Kafka uses heap order."""
    questions = [threads_question(seed) for seed in range(CLUSTERS)]
    for asked, expected in zip(questions, ask(jars, "decide", questions), strict=True):
        had = {}
        for member, sums in asked["members"].items():
            lags = {TaskId.parse(name): -2 if one == -2 else END_SUM - one for name, one in sums.items()}
            had[member] = sorted(lags, key=lambda task: (lags[task], task))
        threads = Threads(asked["members"], had)
        for round_, given in zip(asked["rounds"], expected["rounds"], strict=True):
            shares = threads.share([TaskId.parse(name) for name in round_["tasks"]], stateful=round_["stateful"])
            for member, tasks in shares.items():
                assert len(tasks) == len(given[member]), asked
                assert {*names(tasks)} & {*names(had[member])} == {*given[member]} & {*names(had[member])}, asked
