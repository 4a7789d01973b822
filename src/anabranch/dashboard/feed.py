"""Sends pages the cluster's state: first all of it, then the changes, at most five times a second.

The state is collected only while a page is open, once for all pages, and with at most `SHARE` of a processor: a larger
cluster is collected less often. A page that does not keep up gets the whole state again.

Once a page has been open, each burst of events triggers a collection, at most one a second, so that the history covers
times without a page; an hour after the last page this ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from anabranch.dashboard.collectors import nodes, rest
from anabranch.dashboard.collectors.groups import GroupCollector
from anabranch.dashboard.collectors.topics import TopicCollector
from anabranch.dashboard.history import SPAN_S, History
from anabranch.dashboard.state_delta import StateDelta, StateSheet
from anabranch.dashboard.traffic import Traffic

if TYPE_CHECKING:
    from anabranch.broker.node.app import Node
    from anabranch.clock.cluster_clock import ClusterClock
    from anabranch.cluster.in_process import Cluster

log: Final = logging.getLogger(__name__)

PERIOD_S: Final = 0.2
SHARE: Final = 0.02
"""The maximum share of a processor for collections."""
TRAFFIC_S: Final = 1.0
TRAFFIC_KEPT: Final = 600
MESSAGES_KEPT: Final = 50
"""A page that is further behind gets the whole state again."""
QUIET_S: Final = 1.0
"""The interval of collections without an open page."""

Message = tuple[str, str]
"""The kind of a message, and its JSON."""


class FeedEvent(Protocol):
    """The interface of a cluster event."""

    def row(self) -> Mapping[str, Any]:
        """The event as a JSON row."""


class Feed:
    """Collects the state of one cluster for all pages.

    Args:
        cluster: The cluster.
        clock: Its clock, if it has its own.
        tell: Called as `tell(kind, **detail)` for events that only a collection reveals: rebalances, gates, slow
            requests.
    """

    def __init__(
        self, cluster: Cluster, clock: ClusterClock | None = None, tell: Callable[..., None] = lambda kind, **_: None
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._sheet = StateSheet()
        self._topics = TopicCollector(cluster)
        self._groups = GroupCollector(cluster, self._topics, self._changed_rows)
        self._tell_event = tell
        self._untold: list[tuple[str, dict[str, Any]]] = []
        self.history = History()
        """The collected states."""
        self._traffic: Traffic | None = None
        self._traffic_kept: deque[dict[str, Any]] = deque(maxlen=TRAFFIC_KEPT)
        self._messages: deque[Message] = deque(maxlen=MESSAGES_KEPT)
        self._events: list[Mapping[str, Any]] = []
        """The events that pages have not yet received."""
        self._number = 0
        self._changed: asyncio.Future[None] | None = None
        self._watchers = 0
        self._left_s: float | None = None
        self._collecting: asyncio.Task[None] | None = None
        self._hooked = False
        self._wakeup = asyncio.Event()

    async def follow(self) -> AsyncGenerator[Message, None]:
        """Yield the whole state, then the changes, without end."""
        self._watchers += 1
        try:
            if self._watchers == 1:
                self._begin()
            self.look()
            seen = self._number
            yield "snapshot", self._snapshot()
            while True:
                while seen < self._number:
                    behind = self._number - seen
                    if behind > len(self._messages):
                        seen = self._number
                        yield "snapshot", self._snapshot()
                        continue
                    seen += 1
                    yield self._messages[-behind]
                if self._changed is None:
                    self._changed = self._loop.create_future()
                await asyncio.shield(self._changed)
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._end()

    def on_event(self, event: FeedEvent) -> None:
        """Send an event to the pages; without a page, collect the state once for the history."""
        self._wakeup.set()
        if self._watchers:
            self._events.append(event.row())

    def look(self) -> StateDelta:
        """Collect the state now; returns the changes."""
        sheet = self._sheet
        nodes.collect_nodes(self._cluster, sheet)
        self._topics.collect(sheet)
        self._groups.collect(sheet)
        rest.collect_resizes(self._cluster, sheet)
        rest.collect_transactions(self._cluster, sheet)
        rest.collect_rules(self._cluster, sheet)
        rest.collect_clock(self._clock, sheet)
        untold, self._untold = self._untold, []
        for kind, detail in untold:
            self._tell_event(kind, **detail)
        delta, at_s = sheet.take(), self.now_s()
        if delta:
            self.history.note(at_s, delta, sheet.rows)
        if delta or self._events:
            self._send("delta", {"at": at_s, **delta.body(), "events": self._events})
            self._events = []
        return delta

    def _changed_rows(self, kind: str, **detail: Any) -> None:
        self._untold.append((kind, detail))

    @property
    def rows(self) -> dict[str, Any]:
        """The state of the last collection."""
        return self._sheet.rows

    def now_s(self) -> float:
        """The cluster's time, from the same zero as that of events."""
        return round(self._loop.time() if self._clock is None else self._clock.now_s(), 3)

    async def stop(self) -> None:
        """Stop collecting."""
        if self._collecting is not None:
            self._collecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._collecting
        if self._traffic is not None:
            self._traffic.stop()
            self._traffic = None

    def _snapshot(self) -> str:
        day_ms = None if self._clock is None else self._clock.day_ms()
        begin_s = self.history.begin_s
        body = {
            "at": self.now_s(),
            "day_ms": day_ms,
            "begin": begin_s,
            "rows": self._sheet.rows,
            "traffic": list(self._traffic_kept),
        }
        return json.dumps(body, separators=(",", ":"))

    def _send(self, kind: str, body: dict[str, Any]) -> None:
        if not self._watchers:
            return
        self._number += 1
        self._messages.append((kind, json.dumps(body, separators=(",", ":"), default=str)))
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    def _begin(self) -> None:
        self._left_s = None
        self._traffic = Traffic(self._loop.time, self._changed_rows)
        if not self._hooked:
            self._hooked = True
            self._cluster.on_node(self._on_node)
        else:
            for node in self._cluster.nodes.values():
                self._on_node(node)
        if self._collecting is None or self._collecting.done():
            self._collecting = asyncio.create_task(self._collect_while_watched(), name="dashboard")
        self._wakeup.set()

    def _end(self) -> None:
        self._left_s = self._loop.time()
        self._messages.clear()
        self._events.clear()
        if self._traffic is not None:
            self._traffic.stop()
            self._traffic = None

    def _on_node(self, node: Node) -> None:
        if self._traffic is not None:
            self._traffic.watch(node)

    async def _collect_while_watched(self) -> None:
        """Collect while a page is open, and after bursts of events for another hour."""
        traffic_sent_s = self._loop.time()
        while self._left_s is None or self._loop.time() - self._left_s < SPAN_S:
            if not self._watchers:
                self._wakeup.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wakeup.wait(), SPAN_S)
                await asyncio.sleep(0 if self._watchers else QUIET_S)
            began_s, used_s = self._loop.time(), time.thread_time()
            try:
                self.look()
            except Exception:
                log.exception("bug in the dashboard, retrying")
            if self._traffic is not None and began_s - traffic_sent_s >= TRAFFIC_S:
                traffic_sent_s = began_s
                taken = {"at": self.now_s(), **self._traffic.take()}
                self._traffic_kept.append(taken)
                self._send("traffic", taken)
            await asyncio.sleep(max(PERIOD_S, (time.thread_time() - used_s) / SHARE))
