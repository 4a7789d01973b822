"""How long single callbacks hold the event loop of a cluster with many partitions and connections, while a lot happens.

Three brokers run in one process. Topics of 500 partitions with three replicas make up the partitions, and each of the
connections sends a small Produce with acks=all once a second. Meanwhile, in turn, a keyed topic grows and shrinks, and
members join and leave a KIP-848 and a classic group that subscribe to all topics. The process times each callback: by
the processor time of its thread, because other programs may take the core away meanwhile. The garbage collector's
pauses are part of the callback that they interrupt.

    python -m benchmarks.loop_holds [--partitions 10000] [--connections 1000] [--seconds 10]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch import Admin, Consumer, NewTopic
from anabranch.clients.connection import Connection
from benchmarks.latency import leader_of, small_produce
from benchmarks.peers import Peer, running_command
from benchmarks.report import Figure, console, run_benchmark, table, working

if TYPE_CHECKING:
    from types import FrameType

PARTITIONS: Final = 10_000
CONNECTIONS: Final = 1_000
SECONDS: Final = 10.0
IN_A_TOPIC: Final = 500
REPLICAS: Final = 3
WRITTEN: Final = 8
MEMBERS: Final = 4
PAUSE_S: Final = 1.0
AIM_MS: Final = 10.0
NOTED_MS: Final = 2.0
SHOWN: Final = 12
SAMPLE_S: Final = 0.003
DEPTH: Final = 5
FILE: Final = "ANABRANCH_BENCHMARK_HOLDS"
WAIT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Hold:
    """One callback that took long."""

    what: str
    """Functions of this project that a sample found in it, outermost first."""
    processor_ms: float
    elapsed_ms: float


# --- in the process of the cluster


class CallbackTimer:
    """Times each callback of the main thread's event loop, and samples the stacks of long ones."""

    def __init__(self) -> None:
        self.holds: list[tuple[str, float, float]] = []
        self._start_s = math.inf
        self._stacks: Counter[str] = Counter()
        self._main = threading.get_ident()

    def start(self) -> None:
        """Time all callbacks from now on."""
        run, clock, processor_clock = asyncio.Handle._run, time.perf_counter, time.thread_time

        def timed(handle: asyncio.Handle) -> None:
            self._start_s, processor_start_s = clock(), processor_clock()
            run(handle)
            processor_ms = (processor_clock() - processor_start_s) * 1e3
            start_s, self._start_s = self._start_s, math.inf
            if processor_ms >= NOTED_MS:
                stacks, self._stacks = self._stacks, Counter()
                what = stacks.most_common(1)[0][0] if stacks else "too short for a sample"
                self.holds.append((what, processor_ms, (clock() - start_s) * 1e3))
            elif self._stacks:
                self._stacks = Counter()

        asyncio.Handle._run = timed  # type: ignore[method-assign]
        threading.Thread(target=self._sample, name="samples", daemon=True).start()

    def _sample(self) -> None:
        while True:
            time.sleep(SAMPLE_S)
            if time.perf_counter() - self._start_s > NOTED_MS / 1e3:
                self._stacks[stack_of(sys._current_frames()[self._main])] += 1


def stack_of(frame: FrameType | None) -> str:
    """The innermost functions of this project, outermost first."""
    names: list[str] = []
    while frame is not None and len(names) < DEPTH:
        if f"{os.sep}anabranch{os.sep}" in frame.f_code.co_filename:
            names.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return " > ".join(reversed(names)) or "outside of this project"


def serve() -> int:
    """Run `anabranch` with the arguments of this process; write the holds since the last time at each SIGUSR1."""
    from anabranch.cli.main import main as anabranch

    timer = CallbackTimer()
    timer.start()

    def write(*_: object) -> None:
        target = Path(os.environ[FILE])
        draft = target.with_suffix(".draft")
        holds, timer.holds = timer.holds, []
        draft.write_text(json.dumps(holds))
        draft.rename(target)

    signal.signal(signal.SIGUSR1, write)
    return anabranch()


# --- in the process of the clients


def holds_of(peer: Peer, target: Path) -> list[Hold]:
    """The holds since the last call. Raises RuntimeError if the cluster has ended."""
    target.unlink(missing_ok=True)
    peer.process.send_signal(signal.SIGUSR1)
    while not target.exists():
        if peer.process.poll() is not None:
            raise RuntimeError("the cluster has ended")
        time.sleep(0.02)
    return [Hold(*each) for each in json.loads(target.read_text())]


async def keep_producing(bootstrap: str, connections: int) -> None:
    """Send a small Produce on each connection once a second, spread over the second."""
    opened: list[Connection] = []
    places = [f"written-{number}" for number in range(WRITTEN)]
    addresses = {topic: await asyncio.to_thread(leader_of, bootstrap, topic) for topic in places}

    async def produce(number: int) -> None:
        topic = places[number % WRITTEN]
        connection = await Connection.open(*addresses[topic], client_id="holds")
        opened.append(connection)
        message = small_produce(topic, acks=-1)
        await asyncio.sleep(number / connections)
        while True:
            answer = await connection.call(message)
            if code := answer.responses[0].partition_responses[0].error_code:
                raise RuntimeError(f"a record was refused with error {code}")
            await asyncio.sleep(1)

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(connections):
                group.create_task(produce(number))
    finally:
        for connection in opened:
            await connection.close()


async def resize(admin: Admin, _: str) -> None:
    """Grow the keyed topic, and shrink it again."""
    for count in (2 * WRITTEN, WRITTEN):
        await admin.create_partitions("keyed", count, allow_shrink=True)
        await asyncio.sleep(PAUSE_S)


async def rebalance(bootstrap: str, topics: list[str], protocol: str) -> None:
    """Let members join a group one after the other, and leave it."""

    async def take_part(number: int) -> None:
        await asyncio.sleep(number * PAUSE_S)
        end_s = time.perf_counter() + MEMBERS * PAUSE_S
        async with Consumer(
            *topics,
            bootstrap_servers=bootstrap,
            group_id=f"of-{protocol}",
            group_protocol=protocol,
            client_id=f"member-{number}",
        ) as member:
            while time.perf_counter() < end_s:
                await member.getmany(timeout_ms=100)

    async with asyncio.TaskGroup() as group:
        for number in range(MEMBERS):
            group.create_task(take_part(number))


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do other work while the block runs, whose errors end the block."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        yield
        task.cancel()


async def holds_by_action(
    peer: Peer, target: Path, partitions: int, connections: int, seconds: float, say: Callable[[str], None]
) -> dict[str, list[Hold]]:
    """Create everything, then take each action; the holds of each."""
    idle = [f"idle-{start}" for start in range(0, partitions, IN_A_TOPIC)]
    found: dict[str, list[Hold]] = {}
    async with Admin(peer.bootstrap, request_timeout_ms=int(WAIT_S * 1000)) as admin:
        for name, count in {
            **{f"written-{number}": 1 for number in range(WRITTEN)},
            "keyed": WRITTEN,
            **dict.fromkeys(idle, IN_A_TOPIC),
        }.items():
            await admin.create_topics([NewTopic(name=name, partitions=count, replication_factor=REPLICAS)])
        found["topics are created"] = await asyncio.to_thread(holds_of, peer, target)
        async with beside(keep_producing(peer.bootstrap, connections)):
            await asyncio.sleep(PAUSE_S)
            found["connections are opened"] = await asyncio.to_thread(holds_of, peer, target)
            actions: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
                "nothing else": lambda: asyncio.sleep(seconds),
                "a topic is resized": lambda: resize(admin, peer.bootstrap),
                "a KIP-848 group changes": lambda: rebalance(peer.bootstrap, idle, "consumer"),
                "a classic group changes": lambda: rebalance(peer.bootstrap, idle, "classic"),
            }
            for what, action in actions.items():
                say(what)
                await action()
                found[what] = await asyncio.to_thread(holds_of, peer, target)
            say("everything at once")
            async with asyncio.TaskGroup() as group:
                for action in actions.values():
                    group.create_task(action())
            found["everything at once"] = await asyncio.to_thread(holds_of, peer, target)
    return found


def measure(partitions: int = PARTITIONS, connections: int = CONNECTIONS, seconds: float = SECONDS) -> list[Figure]:
    with working("a busy cluster") as status, tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "holds.json"
        os.environ[FILE] = str(target)
        command = [sys.executable, "-m", "benchmarks.loop_holds", "serve", "up", "--port", "0", "--kafka=4.1"]
        with running_command("anabranch", command) as peer:
            found = asyncio.run(
                holds_by_action(peer, target, partitions, connections, seconds, lambda what: status.update(what))
            )
    longest = {what: max((hold.processor_ms for hold in holds), default=0.0) for what, holds in found.items()}
    table(
        f"callbacks of a cluster with {partitions} partitions and {connections} connections",
        *("meanwhile", "longest, ms", f"over {AIM_MS:.0f} ms", f"over {NOTED_MS:.0f} ms"),
        rows=[
            (what, f"{longest[what]:.1f}", f"{sum(one.processor_ms > AIM_MS for one in holds)}", f"{len(holds)}")
            for what, holds in found.items()
        ],
    )
    for what, holds in found.items():
        long = sorted((one for one in holds if one.processor_ms > AIM_MS), key=lambda hold: -hold.processor_ms)
        if long:
            console.print(f"\n[bold]{what}[/]: the longest callbacks, ms of processor time")
            for one in long[:SHOWN]:
                console.print(f"{one.processor_ms:6.1f}  {one.what}", soft_wrap=True, highlight=False)
    return [
        Figure(f"longest callback: {what}", f"{AIM_MS:.0f} ms", f"{ms:.1f} ms", "", ms <= AIM_MS)
        for what, ms in longest.items()
        if what not in {"topics are created", "connections are opened"}
    ]


def main(arguments: list[str] | None = None) -> int:
    if arguments is None and sys.argv[1:2] == ["serve"]:
        del sys.argv[1]
        return serve()
    return run_benchmark(
        __doc__,
        measure,
        arguments,
        partitions=(PARTITIONS, "of the idle topics together"),
        connections=(CONNECTIONS, "that produce"),
        seconds=(SECONDS, "in which nothing else happens"),
    )


if __name__ == "__main__":
    sys.exit(main())
