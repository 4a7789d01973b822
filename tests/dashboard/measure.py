"""Measures what the dashboard costs: `python -m tests.dashboard.measure`. docs/dashboard.md has the figures.

A cluster of a thousand partitions and fifty groups under load; then, with a page open on its largest view: frames a
second in the browser, while it is scrolled, and what share of a processor the looking takes on the cluster's side.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import Any, Final

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.clock.cluster_clock import ClusterClock
from anabranch.clock.loop import ClockLoop
from anabranch.cluster.in_process import Cluster
from anabranch.control.endpoint import Address, ControlEndpoint
from anabranch.dashboard.feed import Feed
from tests.dashboard.chromium import Page, browser
from tests.dashboard.lively import elsewhere

TOPICS: Final = 10
PARTITIONS: Final = 100
GROUPS: Final = 50
RECORDS_PER_S: Final = 200
SECONDS: Final = 8
SPENT: Final = Path("/tmp/anabranch-dashboard-spent")

FRAMES: Final = """
const [seconds, scroll, done] = [arguments[0] * 1000, arguments[1], arguments[2]];
const main = document.querySelector("main");
const times = [];
const begin = performance.now();
const frame = (now) => {
  times.push(now);
  if (scroll) main.scrollTop = (main.scrollTop + 24) % (main.scrollHeight - main.clientHeight);
  if (now - begin < seconds) requestAnimationFrame(frame);
  else {
    const gaps = times.slice(1).map((one, at) => one - times[at]).sort((a, b) => a - b);
    done([gaps.length / ((times[times.length - 1] - times[0]) / 1000), gaps[Math.floor(gaps.length * 0.99)]]);
  }
};
requestAnimationFrame(frame);
"""


async def run() -> None:
    """The cluster, until a signal; writes down how long it has looked."""
    clock = ClusterClock.new()
    assert clock is not None
    spent = [0.0, 0]
    look = Feed.look

    def timed(feed: Feed) -> Any:
        begin_s = time.thread_time()
        try:
            return look(feed)
        finally:
            spent[0] += time.thread_time() - begin_s
            spent[1] += 1
            SPENT.write_text(f"{spent[0]} {spent[1]} {time.process_time()}")

    Feed.look = timed  # type: ignore[method-assign]
    cluster, door = Cluster(3), ControlEndpoint(Address("127.0.0.1", 0), "")
    async with clock.running(cluster), door.open(cluster, clock):
        servers = cluster.bootstrap_servers
        async with Admin(servers) as admin, Producer(servers) as producer, contextlib.AsyncExitStack() as stack:
            names = [f"topic-{number}" for number in range(TOPICS)]
            await admin.create_topics([NewTopic(name=name, partitions=PARTITIONS) for name in names])
            for name in names:
                await admin.wait_for_topic(name, replicas=3)
            reading = [asyncio.create_task(read(servers, names[one % TOPICS], f"group-{one}")) for one in range(GROUPS)]
            stack.callback(lambda: [one.cancel() for one in reading])
            print(f"ready {door.url}", flush=True)
            count = 0
            while True:
                for _ in range(RECORDS_PER_S // 10):
                    count += 1
                    await producer.send(names[count % TOPICS], b"x" * 100, b"%d" % count)
                await asyncio.sleep(0.1)


async def read(servers: str, topic: str, group: str) -> None:
    """Read as the one member of a group."""
    async with Consumer(topic, bootstrap_servers=servers, group_id=group) as consumer:
        async for _ in consumer:
            pass


def spent() -> tuple[float, int, float]:
    looked_s, looks, process_s = SPENT.read_text().split()
    return float(looked_s), int(looks), float(process_s)


def frames(page: Page, what: str, *, scroll: bool = False) -> None:
    """Measure for a while, and print the result."""
    before, begin_s = spent(), time.perf_counter()
    rate, worst_ms = page.driver.execute_async_script(FRAMES, SECONDS, scroll)
    after, took_s = spent(), time.perf_counter() - begin_s
    share = (after[0] - before[0]) / took_s
    whole = (after[2] - before[2]) / took_s
    looks = (after[1] - before[1]) / took_s
    print(
        f"{what:<28} {rate:5.1f} frames/s, 99 % within {worst_ms:5.1f} ms; looking takes {share:5.2%} of a core "
        f"({looks:.1f} looks/s) of the {whole:.0%} that the cluster takes"
    )


def main() -> None:
    """Measure and print."""
    with elsewhere("-m", "tests.dashboard.measure", "--cluster") as url, browser() as anybody:
        page = anybody.at(url)
        page.open("topics")
        page.see("a.total")
        time.sleep(10)
        frames(page, "topics, totals")
        page.click("totals only")
        page.see(".lane")
        frames(page, "topics")
        frames(page, "topics, scrolled", scroll=True)
        for view, seen in (("groups", ".member"), ("cluster", "svg.map"), ("lineage/topic-1", "svg.river")):
            page.go(view)
            page.see(seen)
            frames(page, view)


if __name__ == "__main__":
    if sys.argv[1:] == ["--cluster"]:
        with asyncio.Runner(loop_factory=ClockLoop) as runner:
            runner.run(run())
    else:
        main()
