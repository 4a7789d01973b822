"""Kafka's Java client, franz-go and kafkajs as group members under faults (examples/members).

Each group is handed every record, and each key's in their order, while nodes and members die and freeze and the topic
grows; where it shrinks, too, every record, and each partition's in their order.
tests/chaos/test_members.py does the same with librdkafka and aiokafka, which are always there.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.chaos.faults import Fired
from anabranch.chaos.plan import Plan
from anabranch.chaos.run import chaos
from anabranch.chaos.verdict import report
from anabranch.spark_jobs import java

log = logging.getLogger(__name__)

MEMBERS = Path(__file__).parents[2] / "examples/members"
JARS = "ANABRANCH_KAFKA_4_JARS"
PATIENCE_S = 300.0

pytestmark = [
    pytest.mark.interop,
    pytest.mark.processes,
    pytest.mark.zookeeper,
    pytest.mark.skipif(
        not os.environ.get("ANABRANCH_INTEROP"),
        reason="JAVA, FRANZ-GO AND KAFKAJS ARE NOT TRIED UNDER FAULTS: set ANABRANCH_INTEROP",
    ),
]


@pytest.fixture(scope="module")
def java_member(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of Kafka's own client, but for its group protocol."""
    jars = os.environ.get(JARS, "")
    if not jars or not list(Path(jars).glob("kafka-clients-*.jar")) or java.why_missing(module=java.COMPILER):
        pytest.skip(f"JAVA IS NOT TRIED UNDER FAULTS: {JARS}={jars!r} has no kafka-clients, or there is no JDK")
    jdk, classes = java.find(module=java.COMPILER).home / "bin", tmp_path_factory.mktemp("classes")
    compiler = (jdk / "javac", "-Werror", "-Xlint:all", "-cp", f"{jars}/*", "-d", classes)
    subprocess.run([*compiler, MEMBERS / "Member.java"], check=True, timeout=PATIENCE_S)
    small = ("-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    return [str(jdk / "java"), *small, "-cp", f"{classes}:{jars}/*", "Member"]


@pytest.fixture(scope="module")
def franz_member(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The same of franz-go."""
    if shutil.which("go") is None:
        pytest.skip("FRANZ-GO IS NOT TRIED UNDER FAULTS: there is no go")
    program = tmp_path_factory.mktemp("franz") / "member"
    subprocess.run(["go", "build", "-o", program, "."], cwd=MEMBERS / "franz", check=True, timeout=PATIENCE_S)
    return [str(program)]


@pytest.fixture(scope="module")
def kafkajs_member(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The same of kafkajs, which has one protocol."""
    if shutil.which("npm") is None:
        pytest.skip("KAFKAJS IS NOT TRIED UNDER FAULTS: there is no npm")
    folder = shutil.copytree(MEMBERS / "kafkajs", tmp_path_factory.mktemp("kafkajs") / "member")
    subprocess.run(["npm", "ci", "--silent", "--ignore-scripts"], cwd=folder, check=True, timeout=PATIENCE_S)
    return ["node", str(folder / "member.js")]


def enough(fired: Sequence[Fired]) -> bool:
    names = [one.name for one in fired]
    return "kill a stock member" in names and "kill the controller" in names and len(set(names)) >= 4


@pytest.mark.parametrize("shrinks", [False, True], ids=["growth", "shrinking"])
@pytest.mark.parametrize("client", ["java_member", "franz_member", "kafkajs_member"])
async def test_members_under_faults_keep_their_guarantees(
    tmp_path: Path, request: pytest.FixtureRequest, client: str, shrinks: bool
) -> None:
    words = request.getfixturevalue(client)
    members = {protocol: shlex.join([*words, protocol]) for protocol in ("classic", "cooperative", "consumer")}
    if client == "kafkajs_member":
        members = {"kafkajs": shlex.join(words)}  # it has one protocol
    faults = (
        *("kill", "freeze", "kill the controller", "isolate", "lose ZooKeeper"),
        *("kill a stock member", "freeze a stock member"),
    )
    plan = Plan(
        duration_s=60,
        enough=enough,
        seed=7,
        resize_every_s=6,
        faults=faults,
        patience_s=PATIENCE_S,
        members=members,
        shrinks=shrinks,
    )
    verdict = await chaos(plan, say=log.info, directory=tmp_path, kafka="4.1")
    table = "\n".join(report(verdict))
    print(table)
    assert not verdict.anomalies, table
    assert verdict.record.resizes, table
