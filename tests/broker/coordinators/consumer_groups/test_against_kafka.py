"""The assignors compared with Kafka's own classes, if their jars are available.

    ANABRANCH_KAFKA_4_JARS=DIR pytest tests/broker/coordinators/consumer_groups/test_against_kafka.py

DIR has the libraries of a Kafka 4.1: kafka-group-coordinator, kafka-group-coordinator-api, kafka-clients and what these
need. Members are given to Kafka in our order; in which order it takes the topics of a group that subscribes alike only
its hash tables know, so there the sizes of targets are compared, and how much stays where it is.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from anabranch.broker.coordinators.consumer_groups.assignment import Assignment, size
from anabranch.broker.coordinators.consumer_groups.group_spec import AssignorMember, GroupSpec
from anabranch.broker.coordinators.consumer_groups.target_assignment import ASSIGNORS
from anabranch.spark_jobs import java

VARIABLE = "ANABRANCH_KAFKA_4_JARS"
GROUPS = 3000


def topic_id(name: str) -> bytes:
    return (1).to_bytes(8, "big") + ord(name).to_bytes(8, "big")


def jars_or_skip() -> Path:
    given = os.environ.get(VARIABLE, "")
    if (
        not given
        or not list(Path(given).glob("kafka-group-coordinator-4*.jar"))
        or java.why_missing(module=java.COMPILER)
    ):
        pytest.skip(
            f"NOT COMPARED WITH KAFKA'S ASSIGNORS: {VARIABLE}={given!r} has no kafka-group-coordinator 4, or no JDK"
        )
    return Path(given)


def group(rng: random.Random, assignor: str, *, alike: bool) -> tuple[GroupSpec, str]:
    """A group with targets of an earlier state, and the line that describes it to Kafka."""
    counts = {name: rng.randint(1, 12) for name in rng.sample("tuvwxyz", rng.randint(1, 6))}
    names = [f"m{number:02}" for number in range(rng.randint(1, 9))]
    one = rng.sample(sorted(counts), rng.randint(1, len(counts)))
    subscribed = {name: one if alike else rng.sample(sorted(counts), rng.randint(0, len(counts))) for name in names}
    targets: Mapping[str, Assignment] = {}
    if rng.random() < 0.8:
        before = rng.sample(names, rng.randint(1, len(names)))
        fewer = {name: rng.randint(1, count) for name, count in counts.items()}
        lived = {name: rng.sample(sorted(counts), rng.randint(1, len(counts))) for name in before}
        targets = ASSIGNORS["uniform"](spec(fewer, lived, {}, {}))
    instances = {name: f"i{rng.randint(0, 99)}{name}" for name in names if rng.random() < 0.3}
    made = spec(counts, subscribed, targets, instances)
    columns = [
        f"{name}|{instances.get(name, '-')}|{','.join(subscribed[name]) or '-'}|{rendered(made.members[name].target)}"
        for name in names
    ]
    kind = "even" if made.is_homogeneous else "uneven"
    return made, " ".join([assignor, kind, ",".join(f"{name}={counts[name]}" for name in counts), *columns])


def spec(
    counts: Mapping[str, int],
    subscribed: Mapping[str, list[str]],
    targets: Mapping[str, Assignment],
    instances: Mapping[str, str],
) -> GroupSpec:
    return GroupSpec(
        members={
            name: AssignorMember(
                instance_id=instances.get(name),
                topics=frozenset(map(topic_id, subscribed[name])),
                target={topic: targets[name][topic] for topic in sorted(targets.get(name, {}))},
            )
            for name in sorted(subscribed)
        },
        partitions={topic_id(name): tuple(range(count)) for name, count in counts.items()},
    )


def rendered(target: Assignment) -> str:
    rows = (f"{chr(topic[-1])}:{'.'.join(map(str, sorted(target[topic])))}" for topic in sorted(target))
    return ";".join(rows) or "-"


def stays(made: GroupSpec, targets: Mapping[str, str]) -> int:
    """How many partitions are where they were."""
    count = 0
    for name, member in made.members.items():
        rows = dict(row.split(":") for row in targets[name].split(";")) if targets[name] != "-" else {}
        for topic, indexes in member.target.items():
            count += len(indexes & {int(one) for one in rows.get(chr(topic[-1]), "").split(".") if one})
    return count


@pytest.mark.parametrize(
    ("assignor", "alike"), [("range", False), ("range", True), ("uniform", False), ("uniform", True)]
)
def test_target_assignments_equal_kafkas(assignor: str, alike: bool) -> None:
    jars, rng = jars_or_skip(), random.Random(f"{assignor} {alike}")
    groups = [group(rng, assignor, alike=alike) for _ in range(GROUPS)]
    program = str(Path(__file__).with_name("AssignorOracle.java"))
    ran = subprocess.run(
        [java.find(module=java.COMPILER).command, "-cp", f"{jars}/*", program],
        input="".join(line + "\n" for _, line in groups),
        capture_output=True,
        encoding="utf-8",
        timeout=110,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    answers = [line for line in ran.stdout.splitlines() if "|" in line]
    assert len(answers) == GROUPS
    for (made, line), answer in zip(groups, answers, strict=True):
        theirs = dict(row.split("|") for row in answer.split(" "))
        targets = ASSIGNORS[assignor](made)
        ours = {name: rendered(target) for name, target in targets.items()}
        if assignor == "uniform" and made.is_homogeneous:
            sizes = {
                name: sum(len(row.split(".")) for row in row.split(";")) if row != "-" else 0
                for name, row in theirs.items()
            }
            assert {name: size(target) for name, target in targets.items()} == sizes, line
            assert stays(made, ours) == stays(made, theirs), line
        else:
            assert ours == theirs, line
