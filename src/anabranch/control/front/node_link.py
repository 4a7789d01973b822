"""The connection of the front to one node's agent: it follows the node's events, and connects again after each loss.

A frozen node keeps its connections, and answers nothing: it stays linked, and is left out of requests.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from anabranch.control.actions import ActionRefused
from anabranch.control.front.agent_client import AgentUnreachable
from anabranch.control.front.event_order import NodeEvent

if TYPE_CHECKING:
    from anabranch.control.front.agent_client import AgentClient

log: Final = logging.getLogger(__name__)

RETRY_S: Final = 0.1
SAME_CLOCK_S: Final = 0.05
"""Two clocks that differ by less are taken for one: processes of one machine share it."""
GREETINGS: Final = 5
"""How often an agent whose answers take longer than that is asked for its clock."""
ROW_ONLY: Final = ("number", "at", "kind")

OnUp = Callable[["NodeLink"], Coroutine[Any, Any, None]]


class LinkedNode(Protocol):
    """The interface of a node that a front controls."""

    @property
    def node_id(self) -> int:
        """The node's id."""

    @property
    def host(self) -> str:
        """The host of its first listener."""

    @property
    def port(self) -> int:
        """The port of its first listener."""

    @property
    def running(self) -> bool:
        """Whether its process runs."""

    @property
    def frozen(self) -> bool:
        """Whether its process is stopped by SIGSTOP."""

    @property
    def refusal(self) -> str:
        """Why this front cannot signal its process; empty if it can."""


class NodeLink:
    """The link to one node.

    Args:
        node: The node.
        client: Its agent.
        on_up: Called when the agent answers, before its events are read.
        on_down: Called when the agent does not answer any more.
        on_event: Called for each event, with its time on this process's clock.
    """

    def __init__(
        self,
        node: LinkedNode,
        client: AgentClient,
        on_up: OnUp,
        on_down: OnUp,
        on_event: Callable[[NodeEvent], None],
    ) -> None:
        self.node = node
        self.client = client
        self._on_up = on_up
        self._on_down = on_down
        self._on_event = on_event
        self.pid = -1
        """The process id of the agent that was linked last."""
        self.is_new = False
        """Whether the node had another process, or none, when it was linked before."""
        self.offset_s = 0.0
        """The seconds that this process's clock is ahead of the node's."""
        self.refusal = ""
        """Why the agent refused this front last; empty if it has accepted it since."""
        self._is_up = asyncio.Event()
        self._newest = 0

    @property
    def node_id(self) -> int:
        """The node's id."""
        return self.node.node_id

    @property
    def reachable(self) -> bool:
        """Whether the agent can answer now."""
        return self._is_up.is_set() and not self.node.frozen

    async def wait_up(self) -> None:
        """Wait until the agent answers and has its rules."""
        await self._is_up.wait()

    async def run(self) -> None:
        """Keep the link up until cancelled."""
        while True:
            try:
                async for event in self._events():
                    self._on_event(event)
            except (AgentUnreachable, TimeoutError) as error:
                log.debug("node %d: %s", self.node_id, error)
            except (ActionRefused, ValueError) as error:
                if str(error) != self.refusal:
                    log.warning("node %d refuses this front: %s", self.node_id, error)
                self.refusal = str(error)
            finally:
                await self._on_lost()
            await asyncio.sleep(RETRY_S)

    async def _on_lost(self) -> None:
        self._is_up.clear()
        await self._on_down(self)

    async def _events(self) -> AsyncIterator[NodeEvent]:
        """Connect, and iterate over the node's events. Raises AgentUnreachable when the connection ends."""
        await self._greet()
        await self._on_up(self)
        self.refusal = ""
        self._is_up.set()
        async for kind, row in self.client.follow("/v1/events", {"after": str(self._newest)}):
            self._newest = row["number"]
            at_s = min(row["at"] + self.offset_s, asyncio.get_running_loop().time())
            detail = {name: value for name, value in row.items() if name not in ROW_ONLY}
            yield NodeEvent(self.node_id, at_s, kind, detail)

    async def _greet(self) -> None:
        """Learn the agent's process and clock: the quickest of some answers tells the time best.

        A node that starts accepts the connection, and answers later.
        """
        loop = asyncio.get_running_loop()
        best_s, ahead_s, pid = math.inf, 0.0, -1
        for _ in range(GREETINGS):
            began_s = loop.time()
            row = await self.client.ask("GET", "/v1/agent", timeout_s=None)
            took_s, pid = loop.time() - began_s, row["pid"]
            if took_s < best_s:
                best_s, ahead_s = took_s, began_s + took_s / 2 - row["at"]
            if took_s <= SAME_CLOCK_S:
                break
        self.offset_s = 0.0 if abs(ahead_s) < max(SAME_CLOCK_S, best_s / 2) else ahead_s
        self.is_new = pid != self.pid
        if self.is_new:
            self.pid, self._newest = pid, 0
