"""The actions of a story on a real cluster: each is recorded, and undone at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack

from anabranch.clients.connection import Connection
from anabranch.clients.consumer.consumer import Consumer
from anabranch.clients.producer.producer import Producer
from anabranch.clients.topic_admin import NewTopic
from anabranch.control import state
from anabranch.control.actions import ActionRefused
from anabranch.control.tour.step import Action, Claim, Notes, Step, StoryFailed
from anabranch.protocol.connection import NODE_SOFTWARE

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.clients.consumer.consumer_record import ConsumerRecord
    from anabranch.clients.security import Security, SecurityArguments
    from anabranch.control.controlled_cluster import ControlledCluster
    from anabranch.faults.rule_fields import RuleFields

PATIENCE_S: Final = 30.0
LOOK_S: Final = 0.02
DEPOSED: Final = "the old controller to learn that it is deposed"


@dataclass(frozen=True, slots=True)
class DescribedPartition:
    """The epochs of a partition, and its ISR."""

    topic_id: bytes
    leader_epoch: int
    partition_epoch: int
    isr: list[int]


class Scene:
    """The actions of one story on one cluster."""

    def __init__(self, on: ControlledCluster) -> None:
        self.on = on
        self._notes = Notes()
        self._stack = contextlib.AsyncExitStack()
        self._rules: list[str] = []

    async def close(self) -> None:
        """Close the story's clients, remove its rules, and start or resume its nodes."""
        for name in self._rules:
            with contextlib.suppress(KeyError):
                self.on.faults.remove(name)
        cluster = self.on.cluster
        for node_id in cluster.node_ids:
            if cluster.is_frozen(node_id):
                await self.thaw(node_id)
            elif node_id not in cluster.nodes:
                with contextlib.suppress(ActionRefused):
                    await self.on.run(self.on.actions.start(node_id))
        await self._stack.aclose()

    def check_can_play(self) -> None:
        """Raise ActionRefused if no story can be played now."""
        if self.on.clock is not None and not self.on.clock.scale:
            raise ActionRefused("the cluster's clock is stopped, but stories need it: let it run")

    # --- steps

    def step(self, title: str, text: str, look: str) -> Step:
        """The next step, with the actions and claims since the last one."""
        return self._notes.step(title, text, look)

    def claim(self, text: str, holds: bool) -> None:
        """Record a claim, and whether it holds."""
        self._notes.claims.append(Claim(text, holds))

    def add_action(self, title: str, path: str, python: str, body: Any = None, method: str = "POST") -> None:
        """Record an action, with the HTTP request and the Python call that perform it."""
        self._notes.deeds.append(Action(title, method, path, body, python))

    # --- actions

    async def act(self, what: str, node_id: int) -> None:
        """Execute an action on a node: kill, start, freeze or thaw."""

        async def act() -> None:
            done = getattr(self.on.actions, what)(node_id)
            if isinstance(done, Coroutine):
                await done

        await self.on.run(act())

    async def kill(self, node_id: int) -> None:
        """Kill a node abruptly."""
        await self.act("kill", node_id)
        self.add_action(f"kill node {node_id}", f"/v1/nodes/{node_id}/kill", f"control.nodes[{node_id}].kill()")

    async def start(self, node_id: int) -> None:
        """Start a node again."""
        await self.act("start", node_id)
        self.add_action(f"start node {node_id}", f"/v1/nodes/{node_id}/start", f"control.nodes[{node_id}].start()")

    async def freeze(self, node_id: int) -> None:
        """Freeze a node."""
        await self.act("freeze", node_id)
        self.add_action(f"freeze node {node_id}", f"/v1/nodes/{node_id}/freeze", f"control.nodes[{node_id}].freeze()")

    async def thaw(self, node_id: int) -> None:
        """Resume a frozen node."""
        await self.act("thaw", node_id)
        self.add_action(f"thaw node {node_id}", f"/v1/nodes/{node_id}/thaw", f"control.nodes[{node_id}].thaw()")

    async def end_session(self, node_id: int) -> None:
        """Let the session of a frozen node expire: at once, if the cluster has its own clock."""
        span_s = self.on.cluster.nodes[node_id].settings.zookeeper_session_timeout_ms / 1000 + 2
        clock = self.on.clock
        if clock is None:
            await asyncio.sleep(span_s)
            return
        await clock.advance(span_s)
        span = f"{span_s:g}s"
        self.add_action(
            f"advance the clock by {span}", "/v1/clock", f'control.clock.advance("{span}")', body={"advance": span}
        )

    async def rule(self, **fields: Unpack[RuleFields]) -> str:
        """Add a rule until the story ends, or until `drop_rule`; returns its name."""
        name = await self._add_rule(fields)
        self._rules.append(name)
        words = ", ".join(f"{word}={one!r}" for word, one in fields.items())
        self.add_action(f"add the rule {name}", "/v1/faults", f"control.faults.add({words})", body=fields)
        return name

    async def _add_rule(self, fields: RuleFields) -> str:
        return self.on.faults.add(**fields).rule.name

    async def _remove_rule(self, name: str) -> None:
        self.on.faults.remove(name)

    async def drop_rule(self, name: str) -> None:
        """Remove a rule."""
        await self._remove_rule(name)
        self._rules.remove(name)
        self.add_action(
            f"remove the rule {name}", f"/v1/faults/{name}", f'control.faults.remove("{name}")', method="DELETE"
        )

    async def topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; delete an older one of this name."""
        async with self.on.admin() as admin:
            await self._delete(admin, name)
            new = NewTopic(name=name, partitions=partitions, configs=dict(configs or {}))
            if assignments is not None:
                new = NewTopic(name=name, assignments=assignments, configs=dict(configs or {}))
            await admin.create_topics([new])
        await self.until(lambda: self.is_settled(name), f"{name} to have leaders and all replicas in sync")
        body = {"topic": name, "partitions": partitions} | ({"configs": dict(configs)} if configs else {})
        self.add_action(f"create {name}", "/v1/topics", f'control.create_topic("{name}", {partitions})', body=body)

    async def _delete(self, admin: Admin, name: str) -> None:
        """Delete a topic, if it exists, to the end."""
        if name in state.newest_image(self.on.cluster):
            await admin.delete_topics([name])
            await self.until(lambda: self._gone(name), f"{name} to be deleted")

    async def resize(self, name: str, count: int) -> None:
        """Change a topic's number of partitions."""
        async with self.on.admin() as admin:
            await admin.create_partitions(name, count, allow_shrink=True)
        path = f"/v1/topics/{name}/partitions"
        self.add_action(
            f"resize {name} to {count}", path, f'control.resize("{name}", {count})', body={"partitions": count}
        )

    async def producer(self, **options: Any) -> Producer:
        """Create a producer, closed when the story ends."""
        return await self._stack.enter_async_context(Producer(self._servers, linger_ms=0, **options, **self._security))

    async def consumer(self, *topics: str, **options: Any) -> Consumer:
        """Create a consumer, closed when the story ends."""
        chosen: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, **options}
        consumer = Consumer(*topics, bootstrap_servers=self._servers, **chosen, **self._security)
        return await self._stack.enter_async_context(consumer)

    async def done(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Await work. Raises StoryFailed if it takes too long."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await work
        except TimeoutError:
            raise StoryFailed(f"waited {PATIENCE_S:g} s for {what}, without success") from None

    def run_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in the background until the story ends."""
        task = asyncio.create_task(work)

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._stack.push_async_callback(end)

    # --- queries

    async def is_complete(self) -> None:
        """Wait until all nodes run and know each other's current broker epochs. Raises StoryFailed on timeout."""
        await self.until(self._all_know, "all nodes to run and to see each other")

    def _all_know(self) -> bool:
        nodes = self.on.cluster.nodes
        epochs = {node_id: node.services.fence.broker_epoch for node_id, node in nodes.items()}
        seen = [{one.id: one.epoch for one in node.services.metadata.image.brokers.values()} for node in nodes.values()]
        return (
            len(nodes) == len(self.on.cluster.node_ids) and self.controller() > 0 and all(one == epochs for one in seen)
        )

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition. Raises StoryFailed on timeout."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + PATIENCE_S
        await self.refresh()
        while not condition():
            if loop.time() > deadline_s:
                raise StoryFailed(f"waited {PATIENCE_S:g} s for {what}, without success")
            await asyncio.sleep(LOOK_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Read the state that queries return, unless it is always the present one."""

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of all nodes."""
        return self.on.cluster.node_ids

    def find_topic(self, name: str) -> state.TopicRow | None:
        """A topic as a row; None if it does not exist."""
        image = state.newest_image(self.on.cluster).get(name)
        return None if image is None else state.topic_row(self.on.cluster, image)

    def topic_row(self, name: str) -> state.TopicRow:
        """A topic as a row. Raises StoryFailed if it does not exist."""
        row = self.find_topic(name)
        if row is None:
            raise StoryFailed(f"there is no topic {name}")
        return row

    def partition(self, topic: str, index: int = 0) -> state.PartitionRow:
        """A partition as a row."""
        return next(one for one in self.topic_row(topic)["partitions"] if one["partition"] == index)

    def is_settled(self, topic: str) -> bool:
        """Whether each partition of a topic has a leader and all its replicas in sync."""
        row = self.find_topic(topic)
        rows = [] if row is None else row["partitions"]
        led = all(row["high_watermark"] >= 0 for row in rows)
        return bool(rows) and led and all(len(row["isr"]) == len(row["replicas"]) for row in rows)

    def _gone(self, topic: str) -> bool:
        node = self.on.cluster.nodes.get(self.controller())
        believed = None if node is None or node.controller is None else node.controller.state
        return believed is not None and topic not in believed.topics

    def controller(self) -> int:
        """The running node that is the active controller; 0 if there is none."""
        cluster = self.on.cluster
        return next(
            (
                node_id
                for node_id, node in cluster.nodes.items()
                if not cluster.is_frozen(node_id) and node.controller is not None and node.controller.active
            ),
            0,
        )

    def controllers(self) -> list[int]:
        """The nodes that are active controllers, or believe it."""
        nodes = self.on.cluster.nodes.items()
        return [node_id for node_id, node in nodes if node.controller is not None and node.controller.active]

    async def controller_epoch(self, node_id: int) -> int:
        """The epoch in which a node is or was the controller."""
        controller = self.on.cluster.nodes[node_id].controller
        return 0 if controller is None else controller.epoch

    def has_stopped_as_controller(self, node_id: int) -> bool:
        """Whether a frozen node was stopped while it was the controller."""
        return node_id in self.controllers()

    async def until_resigned(self, node_id: int, epoch: int) -> None:
        """Wait until a node is no longer the controller of this epoch. Raises StoryFailed on timeout."""
        controller = self.on.cluster.nodes[node_id].controller
        assert controller is not None
        await self.until(lambda: not controller.active or controller.epoch != epoch, DEPOSED)

    def broker_epoch(self, node_id: int) -> int:
        """The broker epoch of a running node."""
        return self.on.cluster.nodes[node_id].services.fence.broker_epoch

    async def described(self, topic: str) -> DescribedPartition:
        """The first partition of a topic, as its leader knows it."""
        leader = self.on.cluster.nodes[self.partition(topic)["leader"]]
        one = leader.services.replicas.partition(topic, 0)
        return DescribedPartition(one.topic_id, one.leader_epoch, one.partition_epoch, list(one.isr))

    async def call(self, node_id: int, request: Any, client_id: str) -> Any:
        """Send a node a request as another node does; returns the response."""
        host, port, security = await self._inter_broker_address(node_id)
        connection = await Connection.open(
            host, port, client_id=client_id, security=security, software_name=NODE_SOFTWARE
        )
        try:
            return await connection.call(request)
        finally:
            await connection.close()

    async def _inter_broker_address(self, node_id: int) -> tuple[str, int, Security | None]:
        node = self.on.cluster.nodes[node_id]
        listener = node.settings.bound(node.server.ports).between_brokers
        return listener.reachable_host, listener.reachable_port(listener.port), node.settings.security

    async def read(self, consumer: Consumer, count: int) -> list[ConsumerRecord]:
        """Read `count` records. Raises StoryFailed if they do not arrive."""
        found: list[ConsumerRecord] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                while len(found) < count:
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        found += records
        except TimeoutError:
            raise StoryFailed(f"{len(found)} of {count} records came in {PATIENCE_S:g} s") from None
        return found

    @property
    def _servers(self) -> str:
        return self.on.cluster.inter_broker_security[0]

    @property
    def _security(self) -> SecurityArguments:
        security = self.on.cluster.inter_broker_security[1]
        return {} if security is None else {"security": security}


def out_of_order(records: Sequence[tuple[bytes | None, bytes | None]]) -> int:
    """Count the records that follow a later one of the same key; values are numbers that grow with time."""
    newest: dict[bytes | None, int] = {}
    wrong = 0
    for key, value in records:
        number = int(value or b"0")
        wrong += number < newest.get(key, -1)
        newest[key] = max(number, newest.get(key, -1))
    return wrong
