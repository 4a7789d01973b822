"""The pytest plugin in another project."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.running import PYTEST

THEIR_INI = """\
[pytest]
anabranch_brokers = 2
anabranch_properties =
    num.partitions=5
"""
THEIR_TEST = """\
import pytest
from confluent_kafka import Producer
from anabranch.faults.rule import Rule

def test_their_code(anabranch_cluster):
    assert anabranch_cluster.bootstrap_servers.count(":") == 2
    producer = Producer({"bootstrap.servers": anabranch_cluster.bootstrap_servers})
    sent = []
    producer.produce("orders", b"x", on_delivery=lambda error, message: sent.append((error, message.offset())))
    assert producer.flush(60) == 0
    assert sent == [(None, 0)]
    assert len(producer.list_topics("orders").topics["orders"].partitions) == 5

def test_their_cluster_breaks_and_mends(anabranch_cluster):
    topic = anabranch_cluster.topic(partitions=2, retention_ms="60000")
    anabranch_cluster.wait_for(topic=topic, isr="1,2")
    with anabranch_cluster.nodes[2].killed():
        anabranch_cluster.wait_for(topic=topic, isr="1")
    anabranch_cluster.wait_for(topic=topic, isr="1,2", node=2)

@pytest.mark.anabranch(rules=[
    {"api": "Produce", "topic": "retried", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2},
    {"rule": Rule(api=("DeleteTopics",), hold=True), "optional": True},
])
def test_their_retries(anabranch_cluster):
    topic = anabranch_cluster.topic("retried")
    producer = Producer({"bootstrap.servers": anabranch_cluster.bootstrap_servers, "retry.backoff.ms": 10})
    producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    assert [row["hits"] for row in anabranch_cluster.faults.rows()] == [2, 0]
    with anabranch_cluster.faults(api="ListGroups", hold=True, optional=True) as rule:
        assert rule.hits == 0

def test_their_rules_are_gone(anabranch_cluster):
    assert anabranch_cluster.faults.rows() == []
"""
THEIR_MISTAKES = """\
import pytest

@pytest.mark.anabranch(rules=[{"api": "DeleteTopics", "hold": True}])
def test_that_tests_nothing(anabranch_cluster):
    pass

@pytest.mark.anabranch(rules=[{"api": "DeleteTopics", "hold": True}])
def test_that_fails_anyway(anabranch_cluster):
    raise ZeroDivisionError

@pytest.mark.anabranch(rules=[{"api": "DeleteTopic", "hold": True}])
def test_whose_rule_is_none(anabranch_cluster):
    pass

@pytest.mark.anabranch(rules=[])
def test_without_a_cluster():
    pass

@pytest.mark.anabranch(journal=10, rules=[{"name": "slow", "api": "Metadata", "delay_ms": 1}])
def test_that_tells_what_was_done(anabranch):
    from confluent_kafka import Producer
    anabranch.topic("orders")
    assert Producer({"bootstrap.servers": anabranch.bootstrap_servers}).list_topics(timeout=60) is None
"""
THEIR_ASYNCHRONOUS_TEST = """\
import pytest
from anabranch import Admin, Producer

{mark}
async def test_their_asynchronous_code(anabranch_cluster):
    async with Admin(anabranch_cluster.bootstrap_servers) as admin:
        assert len((await admin.describe_cluster()).brokers) == 2

{mark}
async def test_a_cluster_as_new_for_a_coroutine(anabranch):
    async with Admin(anabranch.bootstrap_servers) as admin:
        assert await admin.list_topics() == []
    topic = anabranch.topic("orders")
    with anabranch.faults(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=1) as rule:
        async with Producer(anabranch.bootstrap_servers) as producer:
            await producer.send_and_wait(topic, b"x")
        assert rule.hits == 1
"""


@pytest.mark.parametrize(
    ("words", "mark"),
    [
        pytest.param(("-p", "no:asyncio"), None, marks=pytest.mark.costly),
        pytest.param(("--asyncio-mode=strict",), "@pytest.mark.asyncio", marks=pytest.mark.costly),
        (("--asyncio-mode=auto",), ""),
    ],
    ids=["without pytest-asyncio", "with its strict mode", "with its auto mode"],
)
def test_fixture_provides_a_running_cluster(words: tuple[str, ...], mark: str | None, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(THEIR_INI)
    (tmp_path / "test_theirs.py").write_text(THEIR_TEST)
    if mark is not None:
        (tmp_path / "test_asynchronous.py").write_text(THEIR_ASYNCHRONOUS_TEST.format(mark=mark))
    done = run(tmp_path, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{4 if mark is None else 6} passed" in done.stdout


def test_rule_without_hits_fails_its_test(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers")
    (tmp_path / "test_mistakes.py").write_text(THEIR_MISTAKES)
    told = run(tmp_path).stdout
    assert "4 failed, 1 error" in told
    unhit = told.partition("test_that_tests_nothing ___")[2].partition("___ test_")[0].splitlines()
    assert unhit[1] == "@pytest.mark.anabranch: rule rule-1 has no hits: no request matched it"
    assert "FAILED test_mistakes.py::test_that_fails_anyway - ZeroDivisionError" in told
    refused = told.partition("test_whose_rule_is_none ___")[2].partition("___ test_")[0].splitlines()
    assert refused[1] == "@pytest.mark.anabranch: rules: unknown API 'DeleteTopic'; did you mean DeleteTopics?"
    assert "@pytest.mark.anabranch: it needs the fixture anabranch or anabranch_cluster" in told
    shown = told.partition("test_that_fails_anyway ___")[2].partition("___ test_")[0]
    assert "anabranch rules" in shown and "rule-2: 0 hits in 0 requests" in shown
    shown = told.partition("test_that_tells_what_was_done ___")[2]
    for title, content in (
        ("rules", "slow: "),
        ("events", "topic=orders"),
        ("exchanges", "Metadata v"),
    ):
        assert content in shown.partition(f"- anabranch {title} -")[2].partition("- anabranch")[0], title
    (kept,) = re.findall(r"^/.*anabranch-.*[.]jsonl$", shown, re.MULTILINE)
    rows = [json.loads(line) for line in Path(kept).read_text().splitlines()]
    assert {row["row"] for row in rows} == {"rule", "exchange", "event"}


FAILURES = """\
import sys
import pytest
from confluent_kafka import Consumer, Producer

def send(kafka, topic, count=1):
    refused = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "message.timeout.ms": 1000, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"x", key=b"%d" % number, on_delivery=lambda error, _: error and refused.append(error))
    producer.flush()
    return refused

def test_rule_that_hits(anabranch):
    topic = anabranch.topic("orders")
    with anabranch.faults(api="Produce", topic=topic, error="MESSAGE_TOO_LARGE"):
        assert send(anabranch, topic) == []

@pytest.mark.anabranch(brokers=3)
def test_killed_node(anabranch):
    topic = anabranch.topic("orders", partitions=3, replicas=1)
    anabranch.nodes[2].kill()
    assert not send(anabranch, topic, count=30)

def test_timeout_of_a_client(anabranch):
    topic = anabranch.topic("orders", partitions=8)
    anabranch.faults.add(api="Fetch", hold=True)
    settings = {"bootstrap.servers": anabranch.bootstrap_servers, "group.id": "billing", "log_level": 0}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    message = consumer.poll(1.5)
    consumer.close()
    assert message is not None

def test_wait_in_vain(anabranch):
    topic = anabranch.topic("orders")
    anabranch.wait_for(topic=topic, partitions=4, timeout_s=0.1)

@pytest.fixture
def loud():
    yield
    for number in range(99):
        print(f"cannot connect, attempt {number}", file=sys.stderr)

def test_client_that_outlives_its_cluster(anabranch, loud):
    assert anabranch.topic("orders") == ""

@pytest.mark.anabranch(brokers=0)
def test_wrong_number(anabranch):
    pass

@pytest.fixture
def seeded(anabranch):
    topic = anabranch.topic("orders")
    anabranch.faults.add(api="Produce", error="MESSAGE_TOO_LARGE")
    assert not send(anabranch, topic)

def test_fixture_that_fails(seeded):
    pass

def test_cluster_that_a_test_requests(request):
    kafka = request.getfixturevalue("anabranch")
    kafka.nodes[1].expire_session()
    assert kafka is None

@pytest.fixture
def shared(anabranch_cluster):
    anabranch_cluster.topic("shared")
    anabranch_cluster.nodes[1].expire_session()
    assert anabranch_cluster is None

def test_fixture_of_a_session_that_fails(shared):
    pass
"""


def test_failures_of_each_kind_fit_on_a_screen_and_begin_with_the_assertion(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_failures.py").write_text(FAILURES)
    told = run(tmp_path, "-p", "no:asyncio", CI="true").stdout  # pytest cuts no assertion then
    assert "6 failed, 3 errors" in told
    parts = re.split(
        r"^_{3,} (?:ERROR at setup of )?(\w+) _{3,}$", told.partition("= short test summary")[0], flags=re.M
    )
    shown = dict(zip(parts[1::2], parts[2::2], strict=True))
    for name, failed, evidence in (
        ("test_rule_that_hits", ">           assert send", r"^rule-1: 1 hits in 1 requests "),
        ("test_killed_node", ">       assert not send", r"^ +[0-9.]+  node killed  node=2$"),
        ("test_timeout_of_a_client", ">       assert message", r"Fetch v\d+ .* by rule-1$"),
        ("test_wait_in_vain", ">       anabranch.wait_for", r"^E .*ControlError: after 0.1 s orders has 1 partitions$"),
        ("test_client_that_outlives_its_cluster", ">       assert anabranch.topic", r"^\.\.\. and 94 lines more$"),
        ("test_wrong_number", "the cluster did not start", "brokers must be a number of at least 1, not 0$"),
        ("test_fixture_that_fails", ">       assert not send", r"^rule-1: 1 hits in 1 requests "),
        ("test_cluster_that_a_test_requests", ">       assert kafka is", r"^ +[0-9.]+  session expired  node=1$"),
        ("test_fixture_of_a_session_that_fails", ">       assert ana", r"^ +[0-9.]+  session expired  node=1$"),
    ):
        lines = [line for line in shown[name].splitlines() if not line.startswith("E ")]
        assert len(lines) < 40, shown[name]
        assert re.search(evidence, shown[name], re.M), shown[name]
        assert failed in shown[name].partition("anabranch rules")[0].partition("anabranch events")[0], shown[name]
        assert "/src/anabranch/" not in shown[name] and "__consumer_offsets" not in shown[name], shown[name]


REFUSED = """\
import pytest

@pytest.mark.anabranch(broker=3)
def test_misspelt(anabranch):
    pass

@pytest.mark.anabranch("Produce")
def test_nameless(anabranch):
    pass

@pytest.mark.anabranch(brokers="3")
def test_impossible(anabranch):
    pass

@pytest.mark.anabranch(brokers=3)
def test_shared(anabranch_cluster):
    pass

@pytest.mark.anabranch(listeners=["PLAINTEXT://127.0.0.1:0"])
def test_other_doors(anabranch_processes):
    pass

@pytest.mark.anabranch(rules={"api": "Produce", "hold": True})
def test_not_a_list(anabranch):
    pass

@pytest.mark.anabranch(config=["num.partitions=4"])
def test_no_properties(anabranch):
    pass

@pytest.mark.anabranch(brokers=2)
class TestOfTwo:
    @pytest.mark.anabranch(journal=5)
    def test_both_markers_count(self, anabranch):
        assert anabranch.bootstrap_servers.count(":") == 2 and anabranch.journal.entries() == []
"""


def test_invalid_marker_is_refused_and_class_markers_count(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_refused.py").write_text(REFUSED)
    told = run(tmp_path).stdout
    assert "1 passed, 7 errors" in told
    for reason in (
        "@pytest.mark.anabranch: unknown argument 'broker'; did you mean brokers?",
        "@pytest.mark.anabranch: rules is a list of rules, not {'api': 'Produce', 'hold': True}",
        '@pytest.mark.anabranch: config has properties and their values, such as {"num.partitions": 4}, not [',
        "@pytest.mark.anabranch: it takes keyword arguments, such as rules=, not 'Produce'",
        "brokers must be a number of at least 1, not '3'",
        "@pytest.mark.anabranch: brokers: anabranch_cluster is shared by the session",
        "@pytest.mark.anabranch: listeners: the fixture anabranch_processes has one listener",
    ):
        assert reason in told


def test_non_numeric_setting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nanabranch_brokers = two\n")
    (tmp_path / "test_any.py").write_text("def test_any(anabranch): pass")
    assert "anabranch_brokers of pytest.ini is a number, not 'two'" in run(tmp_path).stdout


OWN = """\
import pytest
from confluent_kafka import Producer

def produced(kafka):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "retry.backoff.ms": 10})
    sent = []
    producer.produce("orders", b"x", partition=0, on_delivery=lambda error, message: sent.append(message.offset()))
    assert producer.flush(60) == 0
    return sent

@pytest.mark.parametrize("time", range(5))
def test_a_cluster_as_new(anabranch, time):
    assert produced(anabranch) == [0]

@pytest.mark.anabranch(brokers=3, config={"num.partitions": 4}, journal=50,
                       rules=[{"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 1}])
def test_a_cluster_as_the_test_wants_it(anabranch):
    assert anabranch.bootstrap_servers.count(":") == 3
    assert produced(anabranch) == [0]
    assert anabranch.journal.count(api="Produce", topic="orders") == 2
    assert len(anabranch.control.state()["topics"][0]["partitions"]) == 4

def test_two_clusters(anabranch, anabranch_clusters):
    with anabranch_clusters.running() as other:
        assert produced(anabranch) == produced(other) == [0]
        assert anabranch.bootstrap_servers != other.bootstrap_servers

def test_settings(anabranch):
    assert anabranch.bootstrap_servers.count(":") == 2
    assert produced(anabranch) == [0]
    assert len(anabranch.control.state()["topics"][0]["partitions"]) == 5
"""


@pytest.mark.parametrize(
    "words",
    [(), pytest.param(("-n", "2"), marks=pytest.mark.costly)],
    ids=["in one process", "with xdist"],
)
def test_each_test_has_an_empty_cluster(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(THEIR_INI + "addopts = --strict-markers\n")
    (tmp_path / "test_own.py").write_text(OWN)
    done = run(tmp_path, *words)
    assert "8 passed" in done.stdout, done.stdout + done.stderr


ON_PROCESSES = """\
import pytest
from confluent_kafka import Consumer, Producer

pytestmark = pytest.mark.anabranch(journal=100)

def producer(kafka):
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "retry.backoff.ms": 50})

def test_leader_is_killed_while_a_producer_writes(anabranch_processes):
    kafka = anabranch_processes
    topic, writing, stored = kafka.topic("orders"), producer(kafka), []
    for number in range(200):
        writing.produce(topic, str(number), on_delivery=lambda error, message: stored.append((error, message.offset())))
        writing.poll(0)
        if number == 100:
            (row,) = [row for row in kafka.control.state()["topics"] if row["topic"] == topic]
            leader = row["partitions"][0]["leader"]
            kafka.nodes[leader].kill()
    assert writing.flush(60) == 0
    assert stored == [(None, number) for number in range(200)]
    assert not kafka.nodes[leader].running
    group = {"group.id": "billing", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, **group})
    consumer.subscribe([topic])
    assert consumer.poll(60).value() == b"0"
    consumer.close()

@pytest.mark.anabranch(rules=[{"api": "Produce", "topic": "orders", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}])
def test_rule_hits_twice(anabranch_processes):
    kafka = anabranch_processes
    assert [node.running for node in kafka.nodes.values()] == [True] * 3
    assert kafka.control.state()["groups"] == []
    writing = producer(kafka)
    writing.produce(kafka.topic("orders"), b"x", partition=0)
    assert writing.flush(60) == 0
    assert [row["hits"] for row in kafka.faults.rows()] == [2]
    assert kafka.journal.count(api="Produce", topic="orders") == 3

def test_frozen_node_leaves_the_isr(anabranch_processes):
    kafka = anabranch_processes
    topic = kafka.topic("orders")
    kafka.nodes[2].freeze()
    kafka.wait_for(topic=topic, isr="1,3", timeout_s=60)
    assert kafka.journal.count(api="Produce") == 0
    assert topic == "payments"
"""


@pytest.mark.costly
@pytest.mark.processes
def test_project_kills_and_freezes_real_processes(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers")
    (tmp_path / "test_processes.py").write_text(ON_PROCESSES)
    told = run(tmp_path).stdout
    assert "1 failed, 2 passed" in told, told
    shown = told.partition("test_frozen_node_leaves_the_isr ___")[2]
    (kept,) = re.findall(r"^/.*anabranch-.*[.]jsonl$", shown, re.MULTILINE)
    rows = [json.loads(line) for line in Path(kept).read_text().splitlines()]
    assert "event" in {row["row"] for row in rows} <= {"exchange", "event"}
    assert ("node frozen", 2) in [(row.get("kind"), row.get("node")) for row in rows]
    assert "anabranch events" in shown
    assert "anabranch rules" not in shown, "the rules of the tests before are none of this one"


def test_tests_of_processes_are_skipped_loudly_without_their_libraries(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(
        "from anabranch.testing import process_clusters\nprocess_clusters.why_unavailable = lambda: 'it needs more'\n"
    )
    (tmp_path / "test_processes.py").write_text("def test_one(anabranch_processes): pass\ndef test_two(): pass\n")
    told = run(tmp_path).stdout
    assert "1 passed, 1 skipped" in told
    assert "NO CLUSTER OF PROCESSES, 1 tests skipped: Skipped: anabranch_processes: it needs more" in told


def run(directory: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PYTEST, *words],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
