"""A walk through every operation of the control plane, on one running cluster.

    python -m tests.anabranch.control.recorded

writes what was asked and answered into `src/anabranch/control/examples.json`, from which the OpenAPI document has its
examples. The tests of the document go the same way, and hold each answer against its schema.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer

from anabranch.control import openapi
from anabranch.control.client import ControlClient
from anabranch.control.openapi import operation_id
from anabranch.control.routes import ROUTES
from anabranch.testing.blocking_admin import BlockingAdmin

EXAMPLES: Final = Path(openapi.__file__).parent / "examples.json"
TOPIC: Final = {"topic": "orders"}
UP: Final = (
    *("up", "--kafka", "4.1", "--control-journal", "1000", "--control-frames"),
    *("--config", "client.telemetry.enable=true", "--config", "group.initial.rebalance.delay.ms=0"),
    *("--config", "auto.leader.rebalance.enable=false"),  # the controller would be first to elect a preferred leader
)
SHOWN: Final = 3
"""How many elements of a list an example shows."""
PATIENCE_S: Final = 60.0


@dataclass
class Answers:
    """What was answered so far, the last answer of each operation."""

    last: dict[str, Any] = field(default_factory=dict)

    def preferred(self, node: int) -> int:
        """A partition whose preferred leader is this node."""
        rows = self.last["getTopic"]["partitions"]
        return next(one["partition"] for one in rows if one["replicas"][0]["node"] == node)


@dataclass
class Ask:
    """A request: its operation, and the words of its path, query and body, or how to make them of earlier answers."""

    operation: str
    path: dict[str, Any] = field(default_factory=dict)
    query: dict[str, Any] | Callable[[Answers], dict[str, Any]] = field(default_factory=dict)
    body: Any = None
    words: Callable[[Answers], dict[str, Any]] | None = None
    """Makes the words of the path."""
    shown: bool = True
    """Whether it is an example, or only leads to the next one."""


RECORDS: Final = [
    {"key": "alice", "value": "created", "headers": [["source", "shop"]]},
    {"key": "bob", "value": {"base64": "/wAB"}},
    {"key": "carol", "value": None, "partition": 0},
]
WALK: Final[tuple[Ask | str, ...]] = (
    Ask(
        "createTopic", body={"topic": "orders", "partitions": 3, "replicas": 3, "configs": {"retention.ms": "3600000"}}
    ),
    Ask("waitForState", query={"topic": "orders", "isr": "3+", "timeout": 10}),
    Ask("writeRecords", TOPIC, body={"records": RECORDS}),
    Ask("readRecords", TOPIC, {"partition": 0, "limit": 2}),
    Ask("searchRecords", TOPIC, {"key": "ali", "limit": 2}),
    Ask("alterTopicConfigs", TOPIC, body={"set": {"retention.ms": "60000"}, "unset": ["cleanup.policy"]}),
    Ask("getTopicConfigs", TOPIC),
    Ask("getAcls"),
    Ask("getUsers"),
    Ask("getQuotas"),
    "clients",
    Ask("getTopics"),
    Ask("getTopic", TOPIC),
    Ask("getPlan", TOPIC, {"partitions": 4}),
    Ask("resizeTopic", TOPIC, body={"partitions": 4}),
    Ask("getCapabilities"),
    Ask("getNodes"),
    Ask("getGroups"),
    Ask("getState"),
    Ask("addFault", body={"name": "slow", "api": "Produce", "topic": ["orders"], "delay_ms": 1, "times": 1}),
    Ask("writeRecords", TOPIC, body={"records": RECORDS[:1]}, shown=False),
    Ask("waitForHits", {"rule": "slow"}, {"hits": 1, "timeout": 10}),
    Ask("getFaults", query={"removed": True}),
    Ask("getFault", {"rule": "slow"}),
    Ask("getDashboardRows"),
    Ask("getPastDashboardRows", query=lambda got: {"at": got.last["getDashboardRows"]["at"]}),
    Ask("releaseFault", {"rule": "slow"}),
    Ask("removeFault", {"rule": "slow"}),
    Ask("removeFaults"),
    Ask("waitForExchanges", query={"api": ["Produce"], "topic": ["orders"], "count": 1, "timeout": 10}),
    Ask("getJournal", query={"api": ["Produce", "Metadata"], "limit": 2, "bytes": True}),
    Ask("explainExchange", words=lambda got: {"number": got.last["getJournal"][-1]["number"]}),
    Ask("getCapture", query={"api": ["Produce"]}),
    Ask("waitForPushes", {"client": "shop"}, {"pushes": 1, "timeout": 30}),
    Ask("getTelemetry"),
    Ask("getPushedMetrics", {"client": "shop"}),
    Ask("getOtlp", {"client": "shop"}),
    "close",
    Ask("resetGroupOffsets", {"group": "billing"}, body={"topic": "orders", "to": "earliest", "dry_run": True}),
    Ask("killNode", {"node": 2}),
    Ask("waitForState", query={"topic": "orders", "isr": "1,3"}, shown=False),
    Ask("startNode", {"node": 2}),
    Ask("waitForState", query={"node": 2}, shown=False),
    Ask("electLeader", words=lambda got: {"topic": "orders", "partition": got.preferred(2)}, body={"how": "preferred"}),
    Ask("stopNode", {"node": 3}),
    Ask("startNode", {"node": 3}, shown=False),
    Ask("shiftClock", {"node": 3}, body={"offset": "-30s"}),
    Ask("freezeNode", {"node": 3}),
    Ask("thawNode", {"node": 3}),
    Ask("delaySession", {"node": 3}, body={"delay": "200ms"}),
    Ask("resumeSession", {"node": 3}, shown=False),
    Ask("suspendSession", {"node": 3}),
    Ask("resumeSession", {"node": 3}),
    Ask("expireSession", {"node": 3}),
    Ask("waitForState", query={"topic": "orders", "isr": "3+"}, shown=False),
    Ask("getEvents", query={"after": 3}),
    Ask("getClock"),
    Ask("changeClock", body={"advance": "1s"}),
    Ask("getZnode", query={"path": "/brokers/topics"}),
    Ask("takeSnapshot", {"name": "seeded"}),
    Ask("getSnapshots"),
    Ask("getSnapshotFile", {"name": "seeded"}),
    Ask("putSnapshotFile", {"name": "copied"}),
    Ask("forkState", body={"snapshot": "seeded"}),
    Ask("endFork", words=lambda got: {"fork": got.last["forkState"]["fork"]}),
    Ask("restoreSnapshot", {"name": "seeded"}),
    Ask("removeSnapshot", {"name": "seeded"}),
    Ask("beginStory", {"story": "leader"}),
    Ask("continueStory"),
    Ask("getTour"),
    Ask("endStory"),
    Ask("deleteTopic", TOPIC),
    Ask("clearJournal"),
    Ask("resetState"),
)


@contextmanager
def cluster(*more: str) -> Iterator[tuple[str, str]]:
    """A cluster in a process of its own: its bootstrap servers, and the URL of its control plane."""
    command = [sys.executable, "-m", "anabranch.cli.main", *UP, *more]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            log.seek(0)
            assert line.startswith("ready"), log.read()
            words = dict(word.split("=", 1) for word in line.split()[1:])
            yield words["bootstrap"], words["control"]
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def clients(bootstrap: str) -> Iterator[None]:
    """A producer that pushes metrics, a group with a member and commits, and an open transaction."""
    settings = {"bootstrap.servers": bootstrap}
    transactional = Producer({**settings, "transactional.id": "payments"})
    consumer = Consumer({**settings, "group.id": "billing", "auto.offset.reset": "earliest"})
    producer = Producer({**settings, "client.id": "shop"})
    try:
        transactional.init_transactions(PATIENCE_S)
        transactional.begin_transaction()
        transactional.produce("orders", b"paid", b"alice")
        producer.produce("orders", b"created", b"alice")
        assert transactional.flush(PATIENCE_S) == producer.flush(PATIENCE_S) == 0
        consumer.subscribe(["orders"])
        deadline_s = time.monotonic() + PATIENCE_S
        while (record := consumer.poll(0.1)) is None:
            assert time.monotonic() < deadline_s, "the consumer gets no record"
        consumer.commit(record, asynchronous=False)
        yield
        transactional.abort_transaction(PATIENCE_S)
    finally:
        consumer.close()


def walk(bootstrap: str, url: str) -> Iterator[tuple[Ask, dict[str, Any], Any]]:
    """Ask everything: each request, its words as an example has them, and the answer."""
    control, answers = ControlClient(url), Answers()
    BlockingAdmin(bootstrap).alter_configs(client_metrics="all", changes={"metrics": "*", "interval.ms": "100"})
    routes = {operation_id(one): one for one in ROUTES}
    with ExitStack() as stack:
        for ask in WALK:
            if isinstance(ask, str):
                if ask == "clients":
                    stack.enter_context(clients(bootstrap))
                else:
                    stack.close()
                continue
            route = routes[ask.operation]
            path = ask.path if ask.words is None else ask.words(answers)
            query = ask.query(answers) if callable(ask.query) else ask.query
            body = answers.last["getSnapshotFile"] if route.takes_file else ask.body
            target = re.sub(r"{(\w+)}", lambda match, path=path: urllib.parse.quote(str(path[match[1]])), route.path)
            if query:
                target += "?" + urllib.parse.urlencode({name: in_url(one) for name, one in query.items()})
            answer = answers.last[ask.operation] = control.ask(route.method, target, body)
            asked = {"path": path, "query": query} | ({} if body is None or route.takes_file else {"body": body})
            yield ask, {name: one for name, one in asked.items() if one}, answer


def in_url(value: Any) -> str:
    """A value of a query, as text."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def shortened(value: Any) -> Any:
    """An answer, with so many elements of its lists as an example needs; of rows by key, one of each kind."""
    if isinstance(value, list):
        return [shortened(one) for one in value if not _is_internal(one)][:SHOWN]
    if not isinstance(value, dict):
        return value
    kinds: dict[str, str] = {}
    for key in value:
        if "/" in key and "/__" not in key:
            kinds.setdefault(key.partition("/")[0], key)
    return {
        key: shortened(one) for key, one in value.items() if "/" not in key or kinds.get(key.partition("/")[0]) == key
    }


def _is_internal(row: Any) -> bool:
    return isinstance(row, dict) and str(row.get("topic", "")).startswith("__")


def main() -> None:
    """Write the examples."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", default="9092")
    port = parser.parse_args().port
    found: dict[str, Any] = {}
    with cluster("--port", port, "--control", "127.0.0.1:9190") as (bootstrap, url):
        for ask, asked, answer in walk(bootstrap, url):
            if ask.shown:
                found[ask.operation] = asked | ({} if isinstance(answer, bytes) else {"response": shortened(answer)})
    EXAMPLES.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(found)} operations in {EXAMPLES}")


if __name__ == "__main__":
    main()
