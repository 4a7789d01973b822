"""The demonstration: its processes, its schedule of resizes and failures, and the expected result.

It runs a real ZooKeeper, three broker processes and a spare controller. The replay sends the flights; three readers of
one group deliver them and record each delivery; a Spark job audits the deliveries meanwhile. The topic grows from 4
partitions to 6 and to 8, its controller is killed in the middle of a resize, it shrinks to 5, the leader of one of its
partitions is killed, and the killed nodes restart. A second, shorter replay does the same resizes as Kafka does them
today; the audit must find violations there, which proves that it can.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from anabranch import Admin, NewTopic
from anabranch.clients.clock import wall_clock_ms
from anabranch.cluster.local_zookeeper import java_version
from anabranch.cluster.processes import FIRST_CONTROLLER_ID, ProcessCluster
from anabranch.demo import flights
from anabranch.demo.child_process import Child, ChildProcessFailed, Line
from anabranch.demo.progress import Story
from anabranch.demo.report import VIOLATIONS
from anabranch.demo.view import View
from anabranch.runtime.stall_detection import Stalled, wait_while_progressing
from anabranch.spark_jobs.verdict import MEANINGS
from anabranch.state.data_directory import LOCAL

PARTITIONS: Final = 4
REPLICATION_FACTOR: Final = 3
READERS: Final = 3
JOB_RATE: Final = 3600.0
CONTROL_FLIGHTS: Final = 40_000
CONTROL_RATE: Final = 4000.0
CONTROL_READER_RATE: Final = 900.0
"""The control's readers are slow, as applications are: with a backlog in the old partition, order must break."""
POLL_S: Final = 0.05
TICK_S: Final = 0.25
"""How often the view is told the time."""
STARTING: Final = "starting"
"""The event that reports a step of Spark's start."""
SPARE: Final = FIRST_CONTROLLER_ID
CRASH_STEP: Final = "resize:after-bump:1"
PROPERTIES: Final = {"zookeeper.session.timeout.ms": "2000", "replica.lag.time.max.ms": "3000"}


class Demonstration:
    """Both replays on one cluster, with one audit process."""

    def __init__(self, directory: Path, view: View, *, limit: int | None = None) -> None:
        self._directory = directory
        self._view = view
        self._limit = limit
        self._stories: dict[str, Story] = {}
        self._began_s = asyncio.get_running_loop().time()
        self._cluster = ProcessCluster(
            3,
            controllers=1,
            zookeeper=LOCAL,
            directory=directory / "cluster",
            properties=PROPERTIES,
            first_start={SPARE: {"crash.at": CRASH_STEP}},
        )
        self._admin: Admin | None = None
        self._audit: Child | None = None
        self._children: list[Child] = []

    async def run(self) -> list[Story]:
        """Run the job and the control. Returns the stories of both, with their verdicts."""
        ticking = asyncio.create_task(self._tick(), name="view")
        try:
            async with contextlib.AsyncExitStack() as stack:
                await self._start(stack)
                job = await self._job()
                control = await self._control()
                return [job, control]
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)

    # the cluster

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        java, _ = java_version()
        self._say("phase", f"starting ZooKeeper, three brokers, a spare controller, and Spark, on {java.name}")
        with self._waiting_for("the cluster"):
            await stack.enter_async_context(self._cluster)
        self._say("phase", f"cluster is up on {self._cluster.bootstrap_servers}")
        self._admin = await stack.enter_async_context(Admin(bootstrap_servers=self._cluster.bootstrap_servers))
        words = ["anabranch.cli.main", "audit", "--serve", "--bootstrap-servers", self._cluster.bootstrap_servers]
        self._audit = self._child("audit", [*words, "--out", str(self._directory / "audit")])
        await self._audit.start()
        self._say("phase", "Spark loads its Python libraries")
        stack.push_async_callback(self._audit.stop)

    def _child(self, name: str, words: list[str]) -> Child:
        return Child(name, words, log_path=self._directory / f"{name}.log", on_line=self._take)

    @property
    def _servers(self) -> str:
        return self._cluster.bootstrap_servers

    # the job

    async def _job(self) -> Story:
        story = await self._prepare(
            "flights", {"min.insync.replicas": "2"}, min(flights.COUNT, self._limit or flights.COUNT)
        )
        async with self._replay(story, rate=JOB_RATE, limit=self._limit, ordered=True) as producer:
            await self._at(story, 0.08)
            await self._resize_and_kill_controller(story, 6)
            await self._at(story, 0.24)
            await self._resize(story, 8)
            await self._at(story, 0.38)
            await self._restart(story, SPARE, "the killed controller is back, as a candidate")
            await self._at(story, 0.50)
            await self._resize(story, 5)
            await self._at(story, 0.66)
            victim = await self._kill_leader(story)
            await self._at(story, 0.82)
            await self._restart(story, victim, f"broker {victim} is back")
            await self._line(producer, "done", "the last acknowledgements")
            self._say("phase", f"all {story.acked:,} flights are acknowledged", story)
            await self._wait_delivered(story)
        return await self._judge(story)

    async def _resize(self, story: Story, count: int) -> None:
        assert self._admin is not None
        began = wall_clock_ms()
        self._say("resize", f"resize {story.topic} to {count} partitions", story)
        await self._admin.create_partitions(story.topic, count, allow_shrink=True)
        self._say(
            "resize",
            f"{story.topic} has {count} partitions, {wall_clock_ms() - began} ms after it was asked",
            story,
            f"{count} partitions",
        )

    async def _resize_and_kill_controller(self, story: Story, count: int) -> None:
        """Resize the topic, and kill the active controller at a chosen step; its successor completes the plan."""
        assert self._admin is not None
        began = wall_clock_ms()
        self._say("resize", f"resize {story.topic} to {count} partitions", story)
        request = asyncio.create_task(self._admin.create_partitions(story.topic, count, allow_shrink=True))
        spare = self._cluster.nodes[SPARE]
        await self._until(lambda: not spare.running, "the active controller to crash", story)
        self._say(
            "kill",
            f"the active controller was killed in the middle of the resize (at {CRASH_STEP})",
            story,
            "controller killed",
        )
        await request  # the first request failed with the controller; the successor continues the plan
        self._say(
            "resize",
            f"{story.topic} has {count} partitions, {wall_clock_ms() - began} ms after it was asked",
            story,
            f"{count} partitions",
        )

    async def _kill_leader(self, story: Story) -> int:
        assert self._admin is not None
        victim = (await self._admin.describe_topic(story.topic)).partitions[0].leader
        await self._cluster.kill(victim)
        self._say(
            "kill", f"broker {victim} was killed, the leader of {story.topic}-0", story, f"broker {victim} killed"
        )
        return victim

    async def _restart(self, story: Story, node_id: int, text: str) -> None:
        await self._cluster.restart(node_id)
        self._say("restart", text, story, f"node {node_id} back")

    # the control

    async def _control(self) -> Story:
        total = min(CONTROL_FLIGHTS, self._limit or CONTROL_FLIGHTS)
        story = await self._prepare("flights-today", {"enable.ordered.delivery": "false"}, total)
        async with self._replay(story, rate=CONTROL_RATE, limit=total, ordered=False) as producer:
            await self._at(story, 0.30)
            await self._resize_plainly(story, 6)
            await self._at(story, 0.60)
            await self._resize_plainly(story, 8)
            await self._line(producer, "done", "the last acknowledgements")
            await self._wait_delivered(story)
        return await self._judge(story)

    async def _resize_plainly(self, story: Story, count: int) -> None:
        assert self._admin is not None
        await self._admin.create_partitions(story.topic, count)
        self._say("resize", f"{story.topic} has {count} partitions", story, f"{count} partitions")

    # both

    async def _prepare(self, topic: str, configs: dict[str, str], total: int) -> Story:
        assert self._admin is not None and self._audit is not None
        story = self._stories[topic] = Story(topic, total)
        await self._admin.create_topics(
            [
                NewTopic(name=name, partitions=PARTITIONS, replication_factor=REPLICATION_FACTOR, configs=its_configs)
                for name, its_configs in ((topic, configs), (_audit_topic(topic), {}))
            ]
        )
        if topic == "flights":
            await self._line(self._audit, "ready", "Spark to start")
            self._say("phase", "Spark is up; its first batch will take some seconds more than the others")
        await self._audit.send_line(json.dumps({"audit": _audit_topic(topic), "expect": topic}))
        return story

    @contextlib.asynccontextmanager
    async def _replay(self, story: Story, *, rate: float, limit: int | None, ordered: bool) -> AsyncIterator[Child]:
        """Run the producer and the readers while the block runs."""
        common = ["--bootstrap-servers", self._servers, "--topic", story.topic]
        words = ["anabranch.demo.replay", *common, "--rate", str(rate)]
        words += ["--partitioner", "linear" if ordered else "modulo", *(["--limit", str(limit)] if limit else [])]
        producer = self._child(f"{story.topic}-replay", words)
        readers = []
        for number in range(1, READERS + 1):
            name = f"{story.topic}-reader-{number}"
            words = ["anabranch.demo.reader", *common, "--group", f"{story.topic}-readers", "--name", name]
            words += ["--audit", _audit_topic(story.topic)]
            words += [] if ordered else ["--unordered", "--records-per-s", str(CONTROL_READER_RATE)]
            readers.append(self._child(name, words))
        children = self._children = [producer, *readers]
        for child in children:
            await child.start()
        try:
            for child in children:
                doing = "load the flights" if child is producer else "join its group"
                await self._line(child, "ready", f"{child.name} to {doing}")
            self._view.follow(story)
            story.began_ms = wall_clock_ms()
            self._say("phase", f"replaying {story.total:,} flights into {story.topic}", story)
            await producer.send_line("go")
            yield producer
        finally:
            story.ended_ms = wall_clock_ms()
            await asyncio.gather(*(child.stop() for child in children))

    async def _at(self, story: Story, share: float) -> None:
        """Wait until this share of the flights has been sent."""
        await self._until(lambda: story.sent >= share * story.total, f"{share:.0%} of {story.topic} to be sent", story)

    async def _wait_delivered(self, story: Story) -> None:
        await self._until(lambda: story.delivered >= story.total, f"all of {story.topic} to be delivered", story)

    async def _until(self, condition: Callable[[], bool], what: str, story: Story) -> None:
        """Wait for a condition as long as the story's counts grow and no process fails."""
        with self._waiting_for(what):
            try:
                await wait_while_progressing(
                    self._wait_for(condition, what), lambda: (story.sent, story.acked, story.delivered)
                )
            except Stalled as error:
                raise ChildProcessFailed(f"waited for {what}: {error}") from None

    async def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        while not condition():
            for child in self._children:
                if child.failed:
                    raise ChildProcessFailed(f"{child.name} ended; waited for {what}\n{child.log_tail()}")
            await asyncio.sleep(POLL_S)  # the end of a process sets no event here

    async def _line(self, child: Child, event: str, what: str) -> Line:
        """Wait for a line of a process; `what` says to people what is awaited."""
        with self._waiting_for(what):
            return await child.wait_for(event)

    def _waiting_for(self, what: str) -> contextlib.AbstractContextManager[None]:
        return self._view.waiting_for(what, self._now_s)

    async def _judge(self, story: Story) -> Story:
        assert self._audit is not None
        await self._audit.send_line(json.dumps({"finish": _audit_topic(story.topic)}))
        line = await self._line(self._audit, "verdict", f"Spark to judge {story.topic}")
        story.verdict, story.examples = dict(line["verdict"]), list(line["examples"])
        self._say("phase", f"the audit of {story.topic} has its verdict", story)
        return story

    # reporting

    def _take(self, name: str, line: Line) -> None:
        """Add an output line to the story that it belongs to."""
        if line.get("event") == STARTING:
            self._say("phase", f"Spark {line['doing']}")
        topic = str(line.get("topic", ""))
        for story in self._stories.values():
            if name.startswith((f"{story.topic}-replay", f"{story.topic}-reader")):
                story.take(name, line)
            elif topic == _audit_topic(story.topic) and line.get("event") == "progress":
                story.audited = dict(line)

    def _say(self, kind: str, text: str, story: Story | None = None, label: str = "") -> None:
        now_ms = wall_clock_ms()
        target = story or Story("", 0)
        self._view.tell(target.note(now_ms, kind, text, label), self._now_s())

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time() - self._began_s

    async def _tick(self) -> None:
        while True:
            self._view.tick(self._now_s())
            await asyncio.sleep(TICK_S)


def _audit_topic(topic: str) -> str:
    return f"{topic}-audit"


def failures(job: Story, control: Story) -> list[str]:
    """The reasons why the demonstration failed; empty if it succeeded."""
    checks: list[tuple[bool, str]] = [
        (job.acked == job.total, f"{job.acked:,} of {job.total:,} flights were acknowledged"),
        (job.verdict.get("delivered") == job.total, f"{job.verdict.get('delivered')} flights were delivered"),
        *((job.verdict.get(kind) == 0, f"{job.verdict.get(kind)} {MEANINGS[kind]}") for kind in VIOLATIONS),
        (
            control.verdict.get("out_of_order", 0) > 0,
            "the audit found no violations in the control: its check does not work",
        ),
    ]
    return [text for good, text in checks if not good]
