"""A quarter of a minute of chaos in every test run, and a run on a planted bug, which must be noticed."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

import pytest

from anabranch import Admin, NewTopic
from anabranch.chaos.audited import CLIENT, REPORT, AuditCompanion
from anabranch.chaos.clients import GROUP, TOPIC
from anabranch.chaos.cluster import LOGIN, ChaosCluster
from anabranch.chaos.copiers import CopiedTopic
from anabranch.chaos.faults import FAULTS, Fired
from anabranch.chaos.history import Send
from anabranch.chaos.numbered_topic import NumberedTopic
from anabranch.chaos.plan import Plan
from anabranch.chaos.run import PROPERTIES, ChaosRun, chaos
from anabranch.chaos.scene import Scene
from anabranch.chaos.side_topic import has_committed
from anabranch.chaos.verdict import report
from anabranch.clients.group_admin import commit_offsets
from anabranch.cluster.in_process import Cluster
from anabranch.cluster.launched_agent import AgentOptions, LaunchedAgent
from anabranch.control.client import ControlClient
from anabranch.control.endpoint import Address, ControlEndpoint
from anabranch.control.events import EventRow
from anabranch.protocol.topic_partition import TopicPartition
from tests.secured.test_leaks import leaks

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


PATIENCE_S = 300.0
"""With a cluster that has half a processor."""


async def test_faults_continue_until_enough_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine too busy for faults in the planned time."""
    tries = 0

    async def late(scene: Scene) -> str | None:
        nonlocal tries
        tries += 1
        return "something" if tries > 5 else None

    monkeypatch.setitem(FAULTS, "late", late)
    plan = Plan(duration_s=0, enough=lambda fired: len(fired) >= 2, pace_s=0.001, faults=("late",))
    run = ChaosRun(plan, ChaosCluster(tmp_path), say=log.info)
    await run._disturb()
    assert len(run.fired) >= 2


async def test_deliveries_of_members_are_read_while_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour's lines take half a minute to read, during which the run would hold its links to ZooKeeper."""

    async def nothing(scene: Scene) -> str | None:
        return None

    monkeypatch.setitem(FAULTS, "nothing", nothing)
    plan = Plan(duration_s=0.01, pace_s=0.001, faults=("nothing",), members={"g": "true"})
    run = ChaosRun(plan, ChaosCluster(tmp_path), say=log.info)
    [group] = run._groups
    group.file.parent.mkdir()
    group.file.write_text(json.dumps({"key": "k", "sequence": 0, "partition": 0, "offset": 0}) + "\n")
    await run._disturb()
    assert len(group.deliveries) == 1


async def test_commit_with_lost_response_counts(tmp_path: Path) -> None:
    """It is stored, and not repeated if no record follows."""
    run = ChaosRun(Plan(), ChaosCluster(tmp_path), say=log.info)
    run.history.sends.append(Send(0, "w", "k", 0, "k/0", outcome="ok", place=(TOPIC, 0), offset=0))
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=1)])
        await admin.wait_for_topic(TOPIC)
        assert not await has_committed(admin, GROUP, run._ends())
        await commit_offsets(admin.network, GROUP, {TopicPartition(TOPIC, 0): 1})
        assert await has_committed(admin, GROUP, run._ends())


def many_kinds(fired: Sequence[Fired]) -> bool:
    return len({one.name for one in fired}) >= 5


def follow(url: str, events: list[EventRow]) -> None:
    """Collect the events of a control plane until it ends."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        events.extend(ControlClient(url).follow())


TOKEN_KEY = "planted-under-all-tokens"
AGENT_TOKEN = "planted-for-agents"
SECRETS = (LOGIN["sasl_plain_password"], AGENT_TOKEN, TOKEN_KEY)


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes have passwords and tokens that a search can find; they refuse those of TLS, which no listener uses."""

    def with_known_token(port: int, options: AgentOptions) -> LaunchedAgent:
        return LaunchedAgent(port, AGENT_TOKEN, options)

    monkeypatch.setattr(LaunchedAgent, "new", with_known_token)
    monkeypatch.setitem(PROPERTIES, "delegation.token.secret.key", TOKEN_KEY)


def leaking(outputs: dict[str, bytes]) -> set[str]:
    """The outputs that contain a secret."""
    return {name for name, content in outputs.items() if leaks(content, *(one.encode() for one in SECRETS))}


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


async def test_a_quarter_of_a_minute_of_faults_violates_nothing(tmp_path: Path, secrets: None) -> None:
    """Three brokers, two spare controllers and three ZooKeeper servers are killed, frozen, cut off, slowed down and
    expired under load and resizes; then every checker runs. Copiers and a Streams application process each record
    exactly once. A client of the control plane follows the run. All log in, and no password or token is in what the run
    prints, publishes or leaves, but in the properties of nodes and programs.
    """
    plan = Plan(duration_s=15, enough=many_kinds, seed=903, patience_s=PATIENCE_S, copiers=2, instances=2)
    endpoint = ControlEndpoint(Address("127.0.0.1", 0), "")
    events: list[EventRow] = []
    following = Thread(target=follow, args=(endpoint.url, events), daemon=True)
    following.start()
    said: list[str] = []
    verdict = await chaos(plan, say=said.append, directory=tmp_path, endpoint=endpoint, login=True)
    following.join(30)
    told = [(row["fault"], row["what"]) for row in map(dict, events) if row["kind"] == "chaos fault"]
    assert told == [(one.name, one.what) for one in verdict.fired]
    assert next(row for row in map(dict, events) if row["kind"] == "chaos verdict").items() >= verdict.event().items()
    table = "\n".join(report(verdict))
    assert not verdict.anomalies, table
    assert many_kinds(verdict.fired), table
    assert sum(send.outcome == "ok" for send in verdict.record.history.sends) > 100, table
    processed = [len(one.output.rows) for one in verdict.sides if isinstance(one, CopiedTopic | NumberedTopic)]
    assert len(processed) == 2 and min(processed) > 100, table
    files = files_below(tmp_path)
    assert len(said) > 10 and any(name.endswith(".log") and b"node" in content for name, content in files.items())
    outputs = {
        "said": "\n".join(said).encode(),
        "table": table.encode(),
        "events": json.dumps(events).encode(),
        **files,
    }
    properties = {name for name in files if name.endswith(".properties") and "/" not in name}
    properties.add("streams/client.properties")
    assert len(properties) == 6 and leaking(outputs) == properties
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in properties} == {0o600}


@pytest.mark.costly
@pytest.mark.spark
async def test_report_of_an_audited_run_contains_no_password(tmp_path: Path, secrets: None) -> None:
    """The HTML report, verdicts, checkpoints, Spark's log and the violations: only the file of the client has it."""
    companion = AuditCompanion(tmp_path / "audit", log.info)
    plan = Plan(duration_s=5, seed=904, patience_s=PATIENCE_S, audit=companion.audit_topic)
    try:
        verdict = await chaos(plan, say=log.info, directory=tmp_path / "run", companion=companion, login=True)
    finally:
        await companion.stop()
    assert verdict.good and companion.good, "\n".join((*report(verdict), *companion.lines()))
    files = files_below(tmp_path / "audit")
    assert {REPORT, "stream.log", "batch.log"} <= files.keys() and b"<html" in files[REPORT]
    assert leaking(files) == {CLIENT}
    assert (tmp_path / "audit" / CLIENT).stat().st_mode & 0o777 == 0o600


def deadly(fired: Sequence[Fired]) -> bool:
    """Whether leaders with records of their own have died: each time that both die, and often when one does."""
    return sum(2 if one.name == "kill two brokers" else 1 for one in fired) >= 4


@pytest.mark.costly
async def test_premature_acknowledgement_is_detected(tmp_path: Path) -> None:
    """A kill shows it only if the leader has just appended records."""
    faults = ("kill", "kill two brokers")
    impatient = 8  # the lost never come, and what is lost is seen in the logs of the nodes
    tables = []
    for seed in (1, 2, 3):
        plan = Plan(duration_s=8, enough=deadly, seed=seed, pace_s=1.5, rate=100, faults=faults, patience_s=impatient)
        assert set(plan.faults) < set(FAULTS)
        verdict = await chaos(plan, say=log.info, directory=tmp_path / str(seed), module="tests.chaos.acks_too_early")
        if {line.partition(" ")[0] for line in verdict.anomalies} & {"A1", "A3", "A4"}:
            return
        tables += report(verdict)
    pytest.fail("\n".join(tables))
