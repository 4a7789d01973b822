"""The actions of a story on a cluster of processes: kills are real, and a session ends by its timeout."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from anabranch.cluster.processes import known_brokers
from anabranch.control import state
from anabranch.control.actions import ActionRefused
from anabranch.control.front.reset import delete_topics, start_all
from anabranch.control.front.state_merge import MergedState
from anabranch.control.tour import scene
from anabranch.control.tour.scene import DescribedPartition, Scene
from anabranch.faults.rule_json import from_json

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.clients.security import Security, SecurityArguments
    from anabranch.control.front.front import Front
    from anabranch.faults.rule_fields import RuleFields

WAIT_MS: Final = 30_000
EMPTY: Final[state.ClusterStateRow] = {"nodes": [], "topics": [], "groups": [], "transactions": []}


class ProcessScene(Scene):
    """The actions of one story on one cluster of processes. Queries return the state of the last `refresh`."""

    def __init__(self, on: Front) -> None:
        controlled: Any = on  # it has what the other methods of Scene use
        super().__init__(controlled)
        self._front = on
        self._state = EMPTY

    def check_can_play(self) -> None:
        """See Scene: processes always have the time of their machine."""

    async def close(self) -> None:
        """See Scene."""
        for name in list(self._rules):
            with contextlib.suppress(ActionRefused):
                await self._front.rules.remove(name)
        with contextlib.suppress(ActionRefused):
            await start_all(self._front)
        await self._stack.aclose()

    async def act(self, what: str, node_id: int) -> None:
        """See Scene."""
        await getattr(self._front.actions, what)(node_id)
        if what == "start":
            await self._front.wait_up(node_id)
        elif what == "thaw":
            await self._front.catch_up(node_id)

    async def end_session(self, node_id: int) -> None:
        """Do nothing: the story waits for the next controller, and so for the session's timeout."""

    async def _add_rule(self, fields: RuleFields) -> str:
        return (await self._front.rules.add(from_json(fields)))["name"]

    async def _remove_rule(self, name: str) -> None:
        await self._front.rules.remove(name)

    async def _delete(self, admin: Admin, name: str) -> None:
        await self.refresh()
        if self.find_topic(name) is not None:
            await delete_topics(admin, [name])
            await self.until(lambda: self.find_topic(name) is None, f"{name} to be deleted")

    # --- queries

    async def refresh(self) -> None:
        """Ask the agents."""
        self._state = await self._front.state()

    @property
    def node_ids(self) -> tuple[int, ...]:
        """See Scene; spare controllers are left out, as they hold no data."""
        return tuple(row["node"] for row in self._state["nodes"] if row.get("broker_epoch", -1) >= 0)

    def find_topic(self, name: str) -> state.TopicRow | None:
        """See Scene."""
        return MergedState(self._state).topic(name)

    async def is_complete(self) -> None:
        """See Scene; nodes are compared by the number of brokers that they know."""

        async def know_each_other() -> None:
            for node_id in self.node_ids:
                host, port, security = await self._inter_broker_address(node_id)
                while await known_brokers(host, port, security) != len(self.node_ids):
                    await self.refresh()

        running = "all nodes to run and to see each other"
        await self.until(
            lambda: all(one.reachable for one in self._front.links.values()) and self.controller(), running
        )
        await self.done(know_each_other(), running)

    def controller(self) -> int:
        """See Scene."""
        return next(iter(self.controllers()), 0)

    def controllers(self) -> list[int]:
        """See Scene; a frozen node cannot be asked."""
        rows = self._state["nodes"]
        return [row["node"] for row in rows if row.get("controller") and not row.get("frozen")]

    async def controller_epoch(self, node_id: int) -> int:
        """See Scene."""
        rows = (await self._front.links[node_id].client.ask("GET", "/v1/watch"))["rows"]
        epoch: int = rows[f"node/{node_id}"]["controller_epoch"]
        return epoch

    def has_stopped_as_controller(self, node_id: int) -> bool:
        """Whether the node is still stopped: it has executed nothing since it was the controller."""
        return self._front.links[node_id].node.frozen

    async def until_resigned(self, node_id: int, epoch: int) -> None:
        """See Scene."""
        await self.until(lambda: self.controllers() not in ([], [node_id]), scene.DEPOSED)
        await self.until(lambda: len(self.controllers()) == 1, scene.DEPOSED)

    def broker_epoch(self, node_id: int) -> int:
        """See Scene."""
        return next(row["broker_epoch"] for row in self._state["nodes"] if row["node"] == node_id)

    async def described(self, topic: str) -> DescribedPartition:
        """See Scene."""
        async with self._front.admin() as admin:
            found = (await admin.describe_topics([topic]))[topic]
        one = found.partitions[0]
        return DescribedPartition(found.topic_id, one.leader_epoch, one.partition_epoch, list(one.isr))

    async def _inter_broker_address(self, node_id: int) -> tuple[str, int, Security | None]:
        async with self._front.admin() as admin:
            metadata = await admin.network.wait_for(lambda metadata: node_id in metadata.nodes, timeout_ms=WAIT_MS)
        node = metadata.nodes[node_id]
        return node.host, node.port, self._front.security

    @property
    def _servers(self) -> str:
        return self._front.servers

    @property
    def _security(self) -> SecurityArguments:
        return {} if self._front.security is None else {"security": self._front.security}
