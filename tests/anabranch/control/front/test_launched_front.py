"""`anabranch up --processes --control`: real processes are killed, frozen and started through HTTP."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anabranch.cluster.local_zookeeper import LocalZooKeeper
from anabranch.control.client import ControlClient
from anabranch.control.control_error import ControlError
from anabranch.faults.rule_fields import RuleFields

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

SESSION_MS = 6000
WAIT_S = 60.0
LOOK_S = 0.05
"""Between two looks: three processes answer each of them."""


@dataclass
class Up:
    """A running cluster of two processes."""

    control: ControlClient
    data_dir: str

    def controller(self) -> int:
        return next(int(row["node"]) for row in self.control.ask("GET", "/v1/nodes") if row.get("controller"))

    def frozen(self) -> list[int]:
        return [row["node"] for row in self.control.ask("GET", "/v1/nodes") if row.get("frozen")]

    def down(self) -> list[int]:
        return [row["node"] for row in self.control.ask("GET", "/v1/nodes") if not row["running"]]


@pytest.fixture(scope="module")
def up(local_zookeeper: LocalZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    words = ["--processes", "--brokers", "2", "--port", "0", "--zookeeper", f"{local_zookeeper.hosts}/front"]
    words += ["--control", "127.0.0.1:0", "--control-token", "secret", "--control-journal", "100"]
    data_dir = str(tmp_path_factory.mktemp("up"))
    words += ["--config", f"zookeeper.session.timeout.ms={SESSION_MS}", "--data-dir", data_dir]
    words += ["--config", "auto.leader.rebalance.enable=false"]  # leaders change in tests only when a test does it
    process = subprocess.Popen(
        [sys.executable, "-m", "anabranch.cli.main", "up", *words], stdout=subprocess.PIPE, stderr=None, text=True
    )
    assert process.stdout is not None
    try:
        ready = process.stdout.readline()
        assert " control=http://127.0.0.1:" in ready, ready
        control = ControlClient(ready.split("control=")[1].strip(), "secret")
        control.create_topic("t", 1, replicas=2)
        yield Up(control, data_dir)
    finally:
        process.terminate()
        status = process.wait(60)
        process.stdout.close()
    assert status == 0


@contextlib.contextmanager
def producing(up: Up) -> Iterator[None]:
    """A block beside which one record is stored."""
    stored: list[int] = []
    thread = threading.Thread(target=lambda: stored.append(up.control.produce("t", "x")["offset"]))
    thread.start()
    yield
    thread.join(60)
    assert stored


def until(reached: Callable[[], object], describe: Callable[[], object] = tuple) -> None:
    """Look until something is so, which no wait of the control plane is about; `describe` explains a failure."""
    deadline_s = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline_s, describe()
        time.sleep(LOOK_S)


def restart(up: Up) -> None:
    """Start what is down, and wait until all replicas are in sync."""
    for node in up.down():
        up.control.nodes[node].start()
    up.control.wait_for(topic="t", isr="2+", timeout_s=60)


def test_killed_node_gets_its_rules_when_it_returns(up: Up) -> None:
    up.control.nodes[2].kill()
    assert up.down() == [2]
    with up.control.faults(api="Metadata", delay_ms=1, name="slow", brokers=2, optional=True) as rule:
        assert rule.row()["waiting_for"] == [2]
        restart(up)
        assert "waiting_for" not in rule.row()
    kinds = [(one["kind"], one.get("node")) for one in up.control.events()]
    assert kinds.index(("node killed", 2)) < kinds.index(("node starting", 2)) < kinds.index(("node started", 2))
    with pytest.raises(ControlError, match="node 2 is already running"):
        up.control.nodes[2].start()


def test_controller_that_dies_at_a_step_is_one_hit_and_another_finishes(up: Up) -> None:
    controller = up.controller()
    with up.control.faults(step="create", node="kill", times=1, name="dies") as rule:
        up.control.create_topic("stepped", 1, replicas=2)
        rule.wait_hit()
        assert rule.hits == 1
    assert up.down() == [controller] and up.controller() != controller
    assert any(one["kind"] == "fault" and one.get("rule") == "dies" for one in up.control.events())
    restart(up)


def test_leader_that_a_rule_freezes_goes_on_when_the_rule_is_released(up: Up) -> None:
    with up.control.faults(api="Produce", topic="t", node="freeze", times=1) as rule, producing(up):
        rule.wait_hit()
        until(up.frozen)  # the decision reaches the node a moment later
        assert len(up.frozen()) == 1
        rule.release()
        assert up.frozen() == []
    up.control.wait_for(topic="t", isr="2+", timeout_s=60)


def test_session_that_expires_gives_the_node_a_new_broker_epoch(up: Up) -> None:
    def epoch() -> int:
        return next(int(row["broker_epoch"]) for row in up.control.ask("GET", "/v1/nodes") if row["node"] == 1)

    before = epoch()
    up.control.nodes[1].expire_session()
    until(lambda: epoch() != before)
    up.control.wait_for(topic="t", isr="2+", timeout_s=60)


def test_leader_that_cannot_reach_zookeeper_is_replaced_and_follows_when_it_can(up: Up) -> None:
    (partition,) = up.control.ask("GET", "/v1/topics/t")["partitions"]
    leader, other = partition["leader"], 3 - partition["leader"]
    up.control.nodes[leader].suspend_session()
    assert leader not in up.down(), "its process runs on"
    up.control.wait_for(topic="t", partition=0, leader=other, timeout_s=60)
    up.control.nodes[leader].resume_session()
    up.control.wait_for(topic="t", isr="2+", timeout_s=60)
    kinds = [(one["kind"], one.get("node")) for one in up.control.events()]
    assert kinds.index(("session suspended", leader)) < kinds.index(("session resumed", leader))


def test_slow_link_to_zookeeper_makes_the_controller_slow_in_both_directions(up: Up) -> None:
    controller, delay_s = up.controller(), 0.4
    node = up.control.nodes[controller]
    for refused, reason in (("0s", "the delay is 1ms to 60s, not 0s"), ("2m", "1ms to 60s"), (-1, "100 years, not -1")):
        with pytest.raises(ControlError, match=reason):
            node.delay_session(refused)
    node.delay_session(delay_s)
    (row,) = [one for one in up.control.ask("GET", "/v1/nodes") if one["node"] == controller]
    assert row["zookeeper_delay_ms"] == 400
    before_s = time.monotonic()
    up.control.create_topic("slow", 1, replicas=1)
    assert time.monotonic() - before_s > 2 * delay_s, "it writes to ZooKeeper, and waits for the response"
    node.resume_session()
    assert not any("zookeeper_delay_ms" in one for one in up.control.ask("GET", "/v1/nodes"))
    kinds = [(one["kind"], one.get("delay_ms")) for one in up.control.events()]
    assert ("session delayed", 400) in kinds


def test_session_that_a_rule_suspends_goes_on_when_the_rule_is_removed(up: Up) -> None:
    newest = up.control.events()[-1]["number"]
    with up.control.faults(api="Produce", topic="t", node="suspend", on=2, times=1) as rule:
        up.control.produce("t", "x")
        rule.wait_hit()
        until(lambda: any(one["kind"] == "session suspended" for one in up.control.events(newest)))
        with pytest.raises(ControlError, match="node 2 is cut off from ZooKeeper and cannot stop in order"):
            up.control.nodes[2].stop()
    up.control.wait_for(topic="t", isr="2+", timeout_s=60)
    up.control.nodes[2].suspend_session()  # it was resumed
    up.control.nodes[2].resume_session()
    up.control.wait_for(topic="t", isr="2+", timeout_s=60)


@pytest.mark.parametrize("effect", [{"hold": True}, {"disconnect": "before"}])
def test_follower_whose_link_to_the_leader_is_broken_replicates_nothing(up: Up, effect: dict[str, Any]) -> None:
    """The rule affects the follower's open connections and its new ones."""

    def partition() -> dict[str, Any]:
        (found,) = up.control.ask("GET", "/v1/topics/t")["partitions"]
        return dict(found)

    def ends() -> dict[int, int]:
        return {row["node"]: row["end"] for row in partition()["replicas"]}

    up.control.produce("t", "x")
    leader, before = partition()["leader"], ends()
    follower = 3 - leader
    assert before[follower] == before[leader] == partition()["high_watermark"]
    link = [f"{leader}:{follower}", f"{follower}:{leader}"]
    rule: RuleFields = {"link": link, "api": "Fetch", **effect}  # type: ignore[typeddict-item]
    with up.control.faults(**rule) as broken:
        broken.wait_hit()  # from now on no Fetch of the follower is under way
        with producing(up):
            until(lambda: ends()[leader] > before[leader], lambda: (leader, before, partition(), up.control.events()))
            assert ends()[follower] == before[follower]
            assert partition()["high_watermark"] == before[leader], "it is not acknowledged"
            broken.remove()
    assert partition()["high_watermark"] == before[leader] + 1


def test_token_of_an_agent_is_on_no_command_line(up: Up) -> None:
    nodes = [words for words in map(_words, Path("/proc").glob("[0-9]*")) if "node" in words and up.data_dir in words]
    assert len(nodes) == 2
    assert all("--control" in words and "--control-token" not in words for words in nodes)


def test_journals_of_both_nodes_are_one(up: Up) -> None:
    up.control.produce("t", "x")
    exchanges = up.control.journal.entries(api="Produce")
    assert exchanges[-1]["outcome"] == "answered"
    assert "was processed without an error" in up.control.journal.explain(exchanges[-1])[0]


def test_leader_that_dies_with_a_request_is_one_hit_though_it_cannot_report_it(up: Up) -> None:
    with up.control.faults(api="Produce", topic="t", node="kill", after_work=True, times=1) as rule, producing(up):
        rule.wait_hit()
    assert len(up.down()) == 1, "it stays down: this is the last test"


def _words(process: Path) -> list[str]:
    try:
        return [word.removesuffix("/node-1").removesuffix("/node-2") for word in _command_line(process)]
    except OSError:
        return []


def _command_line(process: Path) -> list[str]:
    return (process / "cmdline").read_text(errors="replace").split("\0")
