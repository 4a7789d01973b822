"""The actions of rules on nodes, applied in the background by the front that decides on their requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from anabranch.control.actions import ActionRefused
from anabranch.control.front.spread_rule import OWN_ACTIONS
from anabranch.faults.rule import CONTINUOUS, FREEZE

if TYPE_CHECKING:
    from anabranch.protocol.topic_partition import TopicPartition

log: Final = logging.getLogger(__name__)

SUSPEND: Final = "suspend"
SESSION_ACTIONS: Final = ("expire", SUSPEND)


class NodeActions(Protocol):
    """The interface of the actions on nodes."""

    async def kill(self, node_id: int) -> None:
        """Kill a node."""

    async def stop(self, node_id: int) -> None:
        """Stop a node."""

    async def start(self, node_id: int) -> None:
        """Start a node."""

    async def freeze(self, node_id: int, *, by_rule: bool = False) -> None:
        """Freeze a node."""

    async def thaw(self, node_id: int) -> None:
        """Resume a frozen node."""

    async def expire_session(self, node_id: int) -> None:
        """Expire a node's session."""

    async def suspend_session(self, node_id: int, *, by_rule: bool = False) -> None:
        """Cut a node off from ZooKeeper."""

    async def resume_session(self, node_id: int) -> None:
        """Let a node reach ZooKeeper again."""

    @property
    def can_suspend(self) -> bool:
        """Whether sessions can be suspended here."""

    @property
    def suspended_on_request(self) -> Collection[int]:
        """The nodes whose sessions are suspended by an action, and not by a rule."""

    @property
    def frozen_on_request(self) -> Collection[int]:
        """The nodes that are frozen by an action, and not by a rule."""


class RuleActions:
    """Applies the actions of rules that reach further than the node of the hit; see `FaultActions`."""

    def __init__(self, actions: NodeActions) -> None:
        self._actions = actions
        self.hit_at = -1
        """The node of the present hit: it applies some actions to itself."""
        self._under_way: set[asyncio.Task[None]] = set()

    def check_can_freeze(self) -> None:
        """Accept: a process can be stopped."""

    @property
    def can_suspend(self) -> bool:
        """Whether sessions can be suspended here."""
        return self._actions.can_suspend

    def apply(self, what: str, node_id: int) -> None:
        """Apply an action to a node, unless the node of the hit does it itself."""
        if node_id == self.hit_at and what in OWN_ACTIONS:
            return
        action = getattr(self._actions, f"{what}_session" if what in SESSION_ACTIONS else what)
        self._begin(action(node_id, by_rule=True) if what in CONTINUOUS else action(node_id))

    def undo(self, what: str, node_id: int) -> None:
        """Thaw a node that a rule froze, or resume a session that a rule suspended."""
        if what == FREEZE:
            self._begin(self.thaw(node_id))
        elif node_id not in self._actions.suspended_on_request:
            self._begin(self._actions.resume_session(node_id))

    async def thaw(self, node_id: int) -> None:
        """Thaw a node that a rule froze, if it is still frozen."""
        if node_id not in self._actions.frozen_on_request:
            with contextlib.suppress(ActionRefused):
                await self._actions.thaw(node_id)

    def elect(self, how: str, partitions: Collection[TopicPartition]) -> None:
        """Do nothing: the node of the hit requests the election."""

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run work in the background."""
        self._begin(work())

    async def wait_settled(self) -> None:
        """Wait for all actions in the background."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.log(logging.DEBUG if isinstance(error, ActionRefused) else logging.WARNING, "rule: %s", error)
