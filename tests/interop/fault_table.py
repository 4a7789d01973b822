"""Measures each client's reaction to a single fault: the tables of docs/faults.md.

    python -m tests.interop.fault_table [CLIENT ...] [--write]

Each cell is one run of one client without settings against a cluster in this process: of one broker, or of three where
one of them ends. The rule hits the first request about partition 1 of three, once. Told is what the application saw,
what the client asked between the fault and the next request of that kind, on which connection, after how long, and what
the log holds in the end. Cells run side by side, but those that are silent take a client as long as its patience is.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from anabranch import Admin, NewTopic, Producer
from anabranch.broker.authorization.peer import Peer
from anabranch.broker.dispatch.dispatcher import Dispatcher
from anabranch.clock.cluster_clock import ClusterClock
from anabranch.clock.loop import ClockLoop
from anabranch.cluster.in_process import Cluster
from anabranch.faults.active_rule import ActiveRule, Hit
from anabranch.faults.matching import BROKER_CLIENT, RequestView
from anabranch.faults.request_fields import values_of
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.suggestion import suggest
from anabranch.spark_jobs import java
from tests.interop.clients import CACHE, HERE, JARS
from tests.interop.drivers.faulted import VALUE

TOPIC: Final = "table"
PATIENCE_S: Final = 200.0
SETTLED_S: Final = 3.0
"""How long the log is watched for records that come twice, once the application has all it wants."""
AT_ONCE: Final = 6
PAGE: Final = Path(__file__).parents[2] / "docs/faults.md"
FAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "NOT_LEADER_OR_FOLLOWER in one partition of three": {"error": "NOT_LEADER_OR_FOLLOWER"},
    "the same, after the work was done": {"error": "NOT_LEADER_OR_FOLLOWER", "after_work": True},
    "an error code that no client knows": {"edit": 9999},
    "told to wait for two seconds": {"throttle_ms": 2000},
    "an answer two seconds late": {"delay_ms": 2000, "after_work": True},
    "twenty bytes a second": {"drip": 20},
    "the end, before anything is done": {"disconnect": "before"},
    "the end, after it is done": {"disconnect": "after"},
    "half an answer, then the end": {"disconnect": "middle"},
    "a whole frame, its message torn": {"truncate": 3},
    "a wrong byte in the frame": {"corrupt": "frame"},
    "a wrong correlation id": {"wrong_correlation_id": True},
    "an answer that never comes": {"silence": True, "after_work": True},
    "a machine that is gone": {"half_open": True},
    "the leader dies": {"node": "kill"},
    "the leader stands still": {"node": "freeze"},
}
"""Each kind of what a rule does to an answer, its bytes, its time, and the broker: fields of rules."""
ON_RECORDS: Final[Mapping[str, Mapping[str, Any]]] = {"a wrong byte among the records": {"corrupt": "records"}}
CODE_AT: Final = {
    "Produce": "responses[*].partition_responses[*].error_code",
    "Fetch": "responses[*].partitions[*].error_code",
}


CLIENTS: Final = ("confluent-kafka", "aiokafka", "kafka-python", "Java", "franz-go", "anabranch")


def driver_of(client: str) -> list[str]:
    """How a client is run. Java's needs a compiler, which is only looked for when it is asked for."""
    if client == "Java":
        compiler = java.find(module=java.COMPILER).command
        return [compiler, "-cp", f"{os.environ.get(JARS, '')}/*", str(HERE / "drivers/java/Faulted.java")]
    if client == "franz-go":
        return [str(CACHE / "franz")]
    return [sys.executable, "-m", "tests.interop.drivers.faulted", f"{client.removesuffix('-kafka')}:"]


@dataclass
class ReceivedRequest:
    """A request as it came."""

    at_s: float
    port: int
    api: str
    about_it: bool
    """Whether it is about partition 1, as far as it says."""
    node_id: int
    in_session: bool = False
    """Whether it names only what has changed since its sender has asked before."""


class Recording(Dispatcher):
    """Notes what clients ask, and not what brokers do."""

    def __init__(self, inner: Dispatcher, asked: list[ReceivedRequest], node_id: int) -> None:
        self._inner = inner
        self._node_id = node_id
        self._asked = asked
        self.audiences, self.requests = inner.audiences, inner.requests
        self.throttling, self.long_polls = inner.throttling, inner.long_polls

    async def answer(self, request: DecodedRequest, peer: Peer) -> Any:
        """See Dispatcher."""
        if request.body is None:  # ApiVersions of a version that is not served
            return await self._inner.answer(request, peer)
        named = values_of(request.body, request.version, "partition")
        in_session = getattr(request.body, "session_epoch", 0) > 0  # what has not changed is not named
        about_it = not in_session if named is None else 1 in named
        if BROKER_CLIENT.fullmatch(request.client_id or ""):
            return await self._inner.answer(request, peer)
        now_s = asyncio.get_running_loop().time()
        self._asked.append(ReceivedRequest(now_s, peer.port, request.api.name, about_it, self._node_id, in_session))
        return await self._inner.answer(request, peer)


@dataclass
class Run:
    """What was seen of one run."""

    asked: list[ReceivedRequest] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)
    hit: ReceivedRequest | None = None
    over_at_s: float = math.inf
    """When the driver was done, or was told to stop."""
    stored: int = 0

    def of(self, *events: str) -> list[dict[str, Any]]:
        """Return the driver's events of these kinds."""
        return [one for one in self.told if one["event"] in events]

    def story(self, what: str) -> str:
        """The cell."""
        if self.hit is None:
            return "the rule hit nothing"
        later = [one for one in self.asked if self.hit.at_s < one.at_s < self.over_at_s]
        again = next((one for one in later if one.api == self.hit.api and self._is_about_it(one)), None)
        parts = [self._outcome(what)]
        if again is None:
            return f"{parts[0]}; no {self.hit.api} about it any more"
        metadata = any(one.api == "Metadata" and one.at_s <= again.at_s for one in later)
        line = "the same connection" if again.port == self.hit.port else "a new connection"
        asks = ", after asking for metadata" if metadata else ""
        parts.append(f"{again.api} again after {seconds(again.at_s - self.hit.at_s)} on {line}{asks}")
        return "; ".join(parts)

    def _is_about_it(self, asked: ReceivedRequest) -> bool:
        assert self.hit is not None
        return asked.about_it or (asked.in_session and asked.node_id == self.hit.node_id)

    def _outcome(self, what: str) -> str:
        errors = sorted({one["error"] for one in self.of("failed", "error")})
        if what == "send":
            acked = {one["partition"] for one in self.of("acked")}
            stored = "" if self.stored <= 3 else f", {self.stored - 3} of them twice"
            if len(acked) == 3:
                return f"all delivered{stored}" + (f" (tells {', '.join(errors)})" if errors else "")
            failed = self.of("failed")
            if failed:
                assert self.hit is not None
                taken = seconds(max(one["at_s"] for one in failed) - self.hit.at_s)
                return f"{len(failed)} of 3 fail after {taken}: {', '.join(errors)}; {self.stored} stored"
            return f"{len(acked)} of 3 delivered in {PATIENCE_S:.0f} s; {self.stored} stored"
        had = [one["partition"] for one in self.of("record")]
        twice = len(had) - len(set(had))
        seen = f" (the application sees {', '.join(errors)})" if errors else ""
        damaged = "" if all(one["intact"] for one in self.of("record")) else ", the damaged one as it is"
        if len(set(had)) == 3:
            return f"all read{f', {twice} twice' if twice else ''}{damaged}{seen}"
        return f"{len(set(had))} of 3 read in {PATIENCE_S:.0f} s{seen}"


def versions() -> str:
    """Which clients these are."""
    python = [f"{name} {version(name)}" for name in ("confluent-kafka", "aiokafka", "kafka-python")]
    jar = next(Path(os.environ.get(JARS, "")).glob("kafka-clients-*.jar"), None)
    franz = re.search(r"franz-go (v\S+)", (HERE / "drivers/franz/go.mod").read_text())
    others = [f"Java's {jar.stem}" if jar else "", f"franz-go {franz.group(1)}" if franz else ""]
    return f"Measured with {', '.join(filter(None, [*python, *others]))}, and this project's own client."


def seconds(taken_s: float) -> str:
    """For people."""
    return f"{taken_s * 1000:.0f} ms" if taken_s < 0.95 else f"{taken_s:.1f} s" if taken_s < 9.5 else f"{taken_s:.0f} s"


async def cell(command: Sequence[str], what: str, said: Mapping[str, Any]) -> Run:
    """One run: against one broker, or three if one of them is to end."""
    run = Run()
    cluster, clock = Cluster(3 if "node" in said else 1, seed=1), ClusterClock.new()
    async with cluster if clock is None else clock.running(cluster):
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name=TOPIC, partitions=3)])
            await admin.wait_for_topic(TOPIC, replicas=len(cluster.node_ids))
        if what == "read":
            async with Producer(cluster.bootstrap_servers) as producer:
                for partition in range(3):
                    await producer.send_and_wait(TOPIC, VALUE, partition=partition)
        api = "Produce" if what == "send" else "Fetch"
        if "edit" in said:
            said = {"edit": {CODE_AT[api]: said["edit"]}}
        cluster.faults.add(api=api, topic=TOPIC, partition=1, times=1, **said)

        def hit(armed: ActiveRule, node_id: int, what: Hit) -> None:
            assert isinstance(what, RequestView)
            run.hit = ReceivedRequest(
                asyncio.get_running_loop().time(), what.peer.port, what.request.api.name, True, node_id
            )

        cluster.faults.on_hit(hit)
        for node_id, node in cluster.nodes.items():
            node.server.dispatcher = Recording(node.server.dispatcher, run.asked, node_id)
        await drive(run, command, what, cluster.bootstrap_servers)
        run.stored = sum(stored(cluster, index) for index in range(3))
    return run


def stored(cluster: Cluster, partition: int) -> int:
    """How many records the log of a partition holds, as its leader has it."""
    replicas = (node.services.replicas.replica(TOPIC, partition) for node in cluster.nodes.values())
    return max(one.log.log_end_offset for one in replicas if one is not None)


async def drive(run: Run, command: Sequence[str], what: str, servers: str) -> None:
    """Run the driver until it is done, or patience is at its end."""
    last = [*command[:-1], command[-1] + what] if command[-1].endswith(":") else [*command, what]
    process = await asyncio.create_subprocess_exec(
        *last,
        json.dumps({"servers": servers, "topic": TOPIC}),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for line in process.stdout:
                run.told.append({**json.loads(line), "at_s": asyncio.get_running_loop().time()})
                if run.told[-1]["event"] == "done":
                    break
    except TimeoutError:
        pass
    finally:
        run.over_at_s = asyncio.get_running_loop().time()
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), SETTLED_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def table(what: str, faults: Mapping[str, Mapping[str, Any]], chosen: Mapping[str, Sequence[str]]) -> list[str]:
    """The lines of a table."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(command: Sequence[str], said: Mapping[str, Any]) -> str:
        async with (
            contextlib.nullcontext() if said.keys() & {"silence", "half_open"} else room
        ):  # there is little to do there
            return (await cell(command, what, said)).story(what)

    cells = await asyncio.gather(*(one(command, said) for said in faults.values() for command in chosen.values()))
    lines = [f"| {'producing' if what == 'send' else 'consuming'} | what it does |", "|---|---|"]
    rest = iter(cells)
    for fault in faults:
        lines.append(f"| **{fault}** | |")
        lines += [f"| {client} | {next(rest)} |" for client in chosen]
    return lines


async def tables(chosen: Mapping[str, Sequence[str]]) -> str:
    """Both."""
    sending, reading = await asyncio.gather(
        table("send", FAULTS, chosen), table("read", {**FAULTS, **ON_RECORDS}, chosen)
    )
    return "\n".join([versions(), "", *sending, "", *reading])


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments. Exits with a message for an unknown client."""
    description = "Measure each client's reaction to a single fault: the tables of docs/faults.md."
    parser = argparse.ArgumentParser(prog="python -m tests.interop.fault_table", description=description)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"of {', '.join(CLIENTS)}; all without one")
    parser.add_argument("--write", action="store_true", help="write the tables into the page")
    arguments = parser.parse_args(words)
    for name in arguments.clients:
        if name not in CLIENTS:
            parser.error(f"no client {name!r}; {suggest(name, CLIENTS)}")
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and show or write."""
    arguments = parse(words)
    chosen = {client: driver_of(client) for client in CLIENTS if client in (arguments.clients or CLIENTS)}
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        measured = runner.run(tables(chosen))
    print(measured)
    if arguments.write:
        begin, end = "<!-- clients: begin -->", "<!-- clients: end -->"
        before, _, rest = PAGE.read_text().partition(begin)
        PAGE.write_text(f"{before}{begin}\n\n{measured}\n\n{end}{rest.partition(end)[2]}")


if __name__ == "__main__":
    main()
