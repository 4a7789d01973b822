"""The cost of a control plane: for a request in a node that has an agent, and for a front that merges events.

Requests go through whole nodes without a socket, as in `request_path`: one without an agent, one with an agent and no
rule, one whose agent also keeps a journal. The rounds take turns; the figure is the difference of the best ones.

Events come from the agents of three nodes in another process, over HTTP, as many in a second as are asked for. The
figure is the processor time of the front, less what it uses without events. A front that counts the lines of the same
streams, and does nothing else, is the peer.

    python -m benchmarks control [--requests 5000] [--events 1000] [--seconds 10]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from anabranch.control.front.agent_client import AgentClient, open_http
from anabranch.control.front.front import Front
from benchmarks.latency import small_fetch, small_produce
from benchmarks.report import Figure, run_benchmark, table, times, working
from benchmarks.request_path import ROUNDS, TOPIC, opened
from tests.anabranch.control.agents import running_agent
from tests.anabranch.control.front.fronts import LocalNode, RecordedActions, agents_of

REQUESTS: Final = 5000
REQUEST_AIM_US: Final = 3.0
EVENTS: Final = 1000
SECONDS: Final = 10.0
SHARE_AIM: Final = 0.05
NODES: Final = 3
KEPT: Final = 1000
TICK_S: Final = 0.05
SETTLED_S: Final = 2.0
PLAIN, AGENT, JOURNAL = "no agent", "an agent", f"an agent with a journal of {KEPT:,}"


async def requests_us(count: int) -> dict[str, list[float]]:
    """Kind of node -> microseconds for a small Produce and a small Fetch."""
    messages = [small_produce(TOPIC), small_fetch(TOPIC)]
    best: dict[str, list[float]] = {}
    async with contextlib.AsyncExitStack() as stack:
        paths = {}
        for kind, journal, watched in ((PLAIN, 0, False), (AGENT, 0, True), (JOURNAL, KEPT, True)):
            on = await stack.enter_async_context(running_agent(journal=journal, watched=watched))
            paths[kind] = await opened(on.node, on.bootstrap_servers, messages)
        for _ in range(ROUNDS):
            for kind, both in paths.items():
                found = [await path.whole_us(max(1, count // ROUNDS)) for path in both]
                best[kind] = [min(pair) for pair in zip(best.get(kind, found), found, strict=True)]
        for both in paths.values():
            for path in both:
                await path.connection.stop()
    return best


async def publish(per_s: int) -> None:
    """In the other process: print the URLs of the agents, and publish events until the input ends."""
    async with agents_of(NODES) as agents:
        print(json.dumps({one: agent.url for one, agent in agents.items()}), flush=True)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, sys.stdin.readline)
        over = loop.run_in_executor(None, sys.stdin.readline)
        begun_s, published = loop.time(), 0
        while not over.done():
            while published < (loop.time() - begun_s) * per_s:
                agent = agents[published % NODES + 1].agent
                agent.events.publish("group", group=f"g{published % 7}", state="Stable", generation=published)
                published += 1
            await asyncio.sleep(TICK_S)


@contextlib.asynccontextmanager
async def publisher(per_s: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[int, str]]]:
    """The other process, and the URLs of its agents."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"import asyncio; from benchmarks.control import *; asyncio.run(publish({per_s}))"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        urls = json.loads(await process.stdout.readline())
        yield process, {int(one): url for one, url in urls.items()}
        process.stdin.write(b"\n")
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()


async def share_of(seconds: float) -> float:
    """The share of a core that this process uses."""
    begun_s, used_s = time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    return (time.process_time() - used_s) / (time.perf_counter() - begun_s)


async def merging(per_s: int, seconds: float) -> tuple[float, float, float]:
    """The shares of a core of a front with events, and without; and how many events it merged in a second."""
    async with publisher(per_s) as (process, urls), open_http() as http:
        clients = {one: AgentClient(http, url, "") for one, url in urls.items()}
        acting: Any = RecordedActions()
        nodes = {one: LocalNode(one) for one in urls}
        async with Front(nodes, clients.__getitem__, lambda _: acting, str) as front:
            for one in nodes:
                await front.wait_up(one)
            await asyncio.sleep(SETTLED_S)
            idle = await share_of(seconds)
            assert process.stdin is not None
            process.stdin.write(b"\n")
            await asyncio.sleep(SETTLED_S)
            before, begun_s = front.events.newest, time.perf_counter()
            busy = await share_of(seconds)
            merged = (front.events.newest - before) / (time.perf_counter() - begun_s)
    return busy, idle, merged


async def counting(per_s: int, seconds: float) -> float:
    """The share of a core of a process that takes in the same streams, and only counts events."""
    async with publisher(per_s) as (process, urls), open_http() as http:
        seen = 0

        async def count(client: AgentClient) -> None:
            nonlocal seen
            async for _ in client.follow("/v1/events", {"after": "0"}):
                seen += 1

        tasks = [asyncio.create_task(count(AgentClient(http, url, ""))) for url in urls.values()]
        assert process.stdin is not None
        process.stdin.write(b"\n")
        await asyncio.sleep(SETTLED_S)
        share = await share_of(seconds)
        assert seen
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return share


def measure(requests: int = REQUESTS, events: int = EVENTS, seconds: float = SECONDS) -> list[Figure]:
    with working("requests of nodes with agents"), asyncio.Runner() as runner:
        found = runner.run(requests_us(requests))
    rows = [(kind, *(f"{one:.1f}" for one in both)) for kind, both in found.items()]
    table(f"microseconds of a small request, best of {ROUNDS} rounds", "node", "Produce", "Fetch", rows=rows)
    with working("events of three agents"), asyncio.Runner() as runner:
        busy, idle, merged = runner.run(merging(events, seconds))
        counted = runner.run(counting(events, seconds))
    added_us = max(one - plain for one, plain in zip(found[AGENT], found[PLAIN], strict=True))
    share = busy - idle
    return [
        Figure(
            "an agent without a rule adds to a request",
            f"< {REQUEST_AIM_US:.0f} us",
            f"{added_us:.2f} us",
            f"without an agent {found[PLAIN][0]:.0f} us",
            added_us < REQUEST_AIM_US,
        ),
        Figure(
            f"a front that merges {merged:,.0f} events a second",
            f"< {SHARE_AIM:.0%} of a core",
            f"{share:.1%}",
            f"counting them {counted:.1%} ({times(share, counted)}); no events {idle:.1%}",
            share < SHARE_AIM,
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    return run_benchmark(
        __doc__,
        measure,
        arguments,
        requests=(REQUESTS, "requests of each kind"),
        events=(EVENTS, "events in a second"),
        seconds=(SECONDS, "how long the front is measured"),
    )


if __name__ == "__main__":
    sys.exit(main())
