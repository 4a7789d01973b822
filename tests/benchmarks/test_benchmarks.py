"""The benchmarks run on small input. Absolute times are not checked; ratios are."""

from __future__ import annotations

import asyncio
import os

import pytest

from anabranch.clients.admin import Admin
from anabranch.clients.topic_admin import NewTopic
from anabranch.protocol.host_port import parse_host_port
from benchmarks import (
    audit_workers,
    beside_idle,
    codec,
    consume,
    control,
    inspection,
    latency,
    loop_holds,
    opening,
    processes,
    proxy,
    request_path,
    scale,
    security,
    small_requests,
    startup,
    yardsticks,
)
from benchmarks.__main__ import main
from benchmarks.peers import running, running_command
from benchmarks.report import curve, distribution, percentile


def test_generated_codecs_are_ten_times_faster_than_the_reference() -> None:
    (figure,) = codec.measure(partitions=10)
    assert figure.met, figure


def test_requests_pass_through_a_node() -> None:
    figures = request_path.measure(requests=70)
    assert [figure.what for figure in figures] == [
        *("Python time of a small Produce", "Python time of a small Fetch", "10 rules of faults that do not match"),
        "an authorizer with 10,000 entries adds",
    ]


def test_records_are_inspected() -> None:
    (figure,) = inspection.measure(requests=7)
    assert figure.what == "a look at a record of 100 B"


@pytest.mark.processes
@pytest.mark.parametrize("name", ["classic, cooperative-sticky", "KIP-848"])
def test_stock_group_is_assigned_children_after_last_commit(name: str) -> None:
    with running("anabranch", *opening.BROKERS) as peer:
        taken_ms = opening.openings_ms(peer.bootstrap, name, 2)
    assert len(taken_ms) == 2 and min(taken_ms) > 0


@pytest.mark.costly
@pytest.mark.processes
def test_one_process_and_one_for_each_broker_are_measured() -> None:
    (figure,) = processes.measure(rounds=1)
    assert "processor time" in figure.reached
    assert "one process" in figure.peer


@pytest.mark.costly
@pytest.mark.processes
def test_requests_pass_through_every_proxy() -> None:
    figures = proxy.measure(requests=20, rounds=1, throughput=False)
    assert len(figures) == 6 and all("us, p50" in one.reached for one in figures)


@pytest.mark.costly
@pytest.mark.processes
def test_agents_serve_requests_and_a_front_merges_their_events() -> None:
    agent, front = control.measure(requests=50, events=200, seconds=0.5)
    assert "without an agent" in agent.peer and "counting them" in front.peer


@pytest.mark.processes
def test_both_clusters_start_and_acknowledge() -> None:
    first_record, memory = startup.measure(rounds=1)
    assert memory.met, memory
    assert "mock cluster" in first_record.peer


@pytest.mark.processes
def test_both_clusters_answer_the_same_requests() -> None:
    produce, fetch = latency.measure(requests=20)
    assert "Produce" in produce.what
    assert "Fetch" in fetch.what


@pytest.mark.costly
@pytest.mark.processes
def test_clusters_are_measured_over_many_connections() -> None:
    figures = small_requests.measure(rounds=1, seconds=0.05, connections=4)  # librdkafka's mock is slow to accept
    assert len(figures) == len(small_requests.REQUESTS)
    assert all("mock" in figure.peer and "asyncio echo" in figure.peer for figure in figures)


@pytest.mark.processes
def test_echo_servers_answer_each_request_with_the_size_of_the_response() -> None:
    message = small_requests.REQUESTS["Metadata"][1]
    with yardsticks.echo_commands() as commands:
        for name, command in commands.items():
            size = len(small_requests.frame_of(message))
            with running_command(name, [*command, str(size), "300"]) as peer:
                address = parse_host_port(peer.bootstrap)
                assert small_requests.response_bytes(address, message) == 300
                assert small_requests.spent_us(peer, address, message, 0.05, connections=3) > 0


def test_echo_in_c_is_left_out_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with yardsticks.echo_commands() as commands:
        assert [*commands] == ["asyncio echo"]


def test_pinned_loop_gives_the_cores_back() -> None:
    cores = os.sched_getaffinity(0)
    assert yardsticks.loop_ms() > 0
    assert os.sched_getaffinity(0) == cores


@pytest.mark.processes
def test_both_consumers_read_the_same_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "SIZES", {"10 B": (10, 10, 2000)})
    figures = consume.measure(rounds=1)
    assert [figure.what.rpartition(", ")[2] for figure in figures] == [*consume.WAYS]


@pytest.mark.costly
@pytest.mark.processes
def test_every_login_mechanism_is_measured() -> None:
    figures = security.measure(logins=8, rounds=1, passes=1)
    assert [one.what.split(",")[0] for one in figures] == ["login"] * 6 + ["produce", "consume"] * 2


@pytest.mark.costly
@pytest.mark.processes
def test_long_callbacks_are_found_and_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_holds, "AIM_MS", 2.0)
    figures = loop_holds.measure(partitions=500, connections=20, seconds=0.1)
    assert [one.what.partition(": ")[2] for one in figures][-1] == "everything at once"
    assert "Dispatcher.__init__" in capsys.readouterr().out  # a start takes longer, and its place is sampled


@pytest.mark.costly
@pytest.mark.processes
def test_topics_are_created_deleted_and_resized() -> None:
    figures = scale.measure(topics=(10, 40), partitions=(40,))
    assert len(figures) == 4
    assert figures[-1].met, figures[-1]


@pytest.mark.costly
@pytest.mark.processes
def test_active_partitions_are_measured_beside_idle_ones() -> None:
    figures = beside_idle.measure(partitions=(6, 40), seconds=0.5, rounds=1)
    assert [one.what for one in figures] == [
        "processor time for a request beside 40 partitions",
        "processor time for a request, and reading what it wrote, beside 40 partitions",
        "requests a second beside 40 partitions",
        "one core while 40 partitions are idle",
    ]


async def test_only_brokers_with_leaders_are_measured() -> None:
    """Leaders are placed randomly, so a fetch session may be empty."""
    with running("anabranch") as peer:
        async with Admin(peer.bootstrap) as admin:
            await admin.create_topics([NewTopic(name="one", partitions=1, replication_factor=1)])
        found = await beside_idle.read_along(peer.bootstrap)
        await asyncio.sleep(0)  # they have begun, and close their connections in the end
        for reader in found:
            reader.cancel()
        await asyncio.wait(found)
    assert len(found) == 1


def test_unknown_benchmark_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["speed"])
    assert "no benchmark is called speed" in capsys.readouterr().err


def test_single_benchmark_takes_its_own_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["scale", "--topics", "many"])
    assert "argument --topics: invalid int value: 'many'" in capsys.readouterr().err


def test_percentiles_are_nearest_ranks() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (percentile(values, 50), percentile(values, 99), percentile([7.0], 99)) == (51.0, 100.0, 7.0)


def test_curves_are_drawn_linear_or_logarithmic(capsys: pytest.CaptureFixture[str]) -> None:
    curve("stalls", [("10", 0.0), ("100", 5.0), ("1000", 50.0)], unit="ms")
    nothing, tenth, whole = capsys.readouterr().out.splitlines()[1:]
    assert [line.count("█") for line in (nothing, tenth, whole)] == [0, 5, 50]
    distribution("hand-off", [1.0, 10.0, 100.0], unit="ms")
    lengths = [line.count("█") for line in capsys.readouterr().out.splitlines()[1:]]
    assert lengths == sorted(lengths)
    assert lengths[-1] == 50 > lengths[0] > 0


@pytest.mark.spark_cluster
def test_both_sizes_of_a_spark_cluster_audit_a_topic() -> None:
    if not os.environ.get("ANABRANCH_SPARK_CLUSTER"):
        pytest.skip("NO SPARK CLUSTER: set ANABRANCH_SPARK_CLUSTER, as `make audit-cluster` does")
    (figure,) = audit_workers.measure(records=20_000, keys=1_000, rounds=1)
    assert figure.what == "order audit, two workers of one core"
