"""`anabranch cluster` shows replicas and leaders, and moves them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.anabranch.cli.conftest import Command, cluster


@pytest.fixture(scope="module")
def three() -> Iterator[tuple[str, str]]:
    with cluster(3) as servers:
        yield ("--bootstrap-servers", servers)


def replicas(anabranch: Command, topic: str, at: tuple[str, str]) -> list[list[int]]:
    described = json.loads(anabranch("topics", "describe", topic, "--json", *at).output)
    return [one["replicas"] for one in described["partitions"]]


def test_brokers_are_described_with_their_replicas(three: tuple[str, str], anabranch: Command) -> None:
    assert anabranch("topics", "create", "held", "--partitions", "6", "--replicas", "2", *three).exit_code == 0
    row = json.loads(anabranch("cluster", "describe", "--json", *three).output)
    assert row["partitions"] == 6 and row["without_leader"] == 0 and row["dead"] == []
    assert row["controller"] in {one["broker"] for one in row["brokers"]} == {1, 2, 3}
    assert sum(one["leads"] for one in row["brokers"]) == 6
    assert sum(one["replicas"] for one in row["brokers"]) == 12
    head, *lines = anabranch("cluster", "describe", *three).output.splitlines()
    assert head == f"cluster {row['cluster']}, controller {row['controller']}: 6 partitions"
    first = row["brokers"][0]
    assert lines[0] == f"  broker 1 at {first['host']}:{first['port']}: leads {first['leads']} of {first['replicas']}"


def test_partition_is_reassigned_with_its_leader(three: tuple[str, str], anabranch: Command) -> None:
    assert anabranch("topics", "create", "nomad", "--replicas", "1", *three).exit_code == 0
    assert anabranch("produce", "nomad", "a", "b", *three).exit_code == 0
    ((home,),) = replicas(anabranch, "nomad", three)
    away = [one for one in (1, 2, 3) if one != home]
    text = ",".join(map(str, away))
    assert anabranch("cluster", "move", "nomad", "0", "--to", text, *three).output == f"nomad-0: moves to {text}\n"
    watched = anabranch("cluster", "moves", "--watch", *three)
    assert watched.exit_code == 0 and watched.output.endswith("no moves in progress\n"), watched.output
    assert replicas(anabranch, "nomad", three) == [away]
    assert anabranch("cluster", "elect", "nomad", *three).exit_code == 0
    assert anabranch("cluster", "elect", "nomad", *three).output == "nothing to do\n"
    assert anabranch("consume", "nomad", "--values", "--until-end", *three).output == "a\nb\n"
    idle = anabranch("cluster", "moves", "--json", *three)
    assert (idle.exit_code, idle.output) == (0, "")


def test_invalid_reassignments_are_refused(three: tuple[str, str], anabranch: Command) -> None:
    assert anabranch("topics", "create", "fixed", *three).exit_code == 0
    for words, code, reason in [
        (("move", "fixed", "0", "--to", "9"), 1, "INVALID_REPLICA_ASSIGNMENT"),
        (("move", "fixed", "0", "--to", "a"), 2, "ids of brokers"),
        (("move", "fixed", "0"), 2, "--to ID[,ID...] or --cancel"),
        (("move", "fixed", "0", "--to", "1", "--cancel"), 2, "--to ID[,ID...] or --cancel"),
        (("move", "fixed", "0", "--cancel"), 1, "NO_REASSIGNMENT_IN_PROGRESS"),
        (("move", "nowhere", "0", "--to", "1"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("elect", "nowhere"), 1, "no such topic: `anabranch topics list` shows the topics"),
        (("elect", "fixed", "--partition", "5"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("elect", "--partition", "5"), 2, "--partition needs a TOPIC"),
    ]:
        result = anabranch("cluster", *words, *three)
        assert (result.exit_code, reason in result.output) == (code, True), (words, result.output)
