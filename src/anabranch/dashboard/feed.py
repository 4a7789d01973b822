"""What pages are sent: the whole state when they come, then what has changed, at most five times a second.

Only while somebody looks is anything looked at, for all pages at once, and never for more than `SHARE` of a processor:
the larger a cluster, the longer the pauses. A page that does not keep up gets the whole state again.

Once a page has been there, each burst of events is followed by a look, at most one a second, so that the history has
what happened while the page was closed; an hour after the last page that ends, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
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
"""Of a processor, at most, for looking."""
TRAFFIC_S: Final = 1.0
TRAFFIC_KEPT: Final = 600
MESSAGES_KEPT: Final = 50
"""A page that is further behind begins anew."""
QUIET_S: Final = 1.0
"""Between two looks that nobody waits for."""

Message = tuple[str, str]
"""What kind of message it is, and its JSON."""


class FeedEvent(Protocol):
    """Something that happened in the cluster."""

    def row(self) -> dict[str, Any]:
        """For a program."""


class Feed:
    """Looks at one cluster for all pages.

    Args:
        cluster: The cluster.
        clock: Its time, if it has one of its own.
        tell: Hears, as `tell(kind, **detail)`, of what is an event and shows only to who looks: rebalances, gates,
            slow requests.
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
        """What was seen."""
        self._traffic: Traffic | None = None
        self._traffic_kept: deque[dict[str, Any]] = deque(maxlen=TRAFFIC_KEPT)
        self._messages: deque[Message] = deque(maxlen=MESSAGES_KEPT)
        self._events: list[dict[str, Any]] = []
        """Those that pages are to be told."""
        self._number = 0
        self._news: asyncio.Future[None] | None = None
        self._watchers = 0
        self._left_s: float | None = None
        self._looking: asyncio.Task[None] | None = None
        self._hooked = False
        self._stirred = asyncio.Event()

    async def follow(self) -> AsyncGenerator[Message, None]:
        """The whole state, and then what changes, without an end."""
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
                if self._news is None:
                    self._news = self._loop.create_future()
                await asyncio.shield(self._news)
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._end()

    def on_event(self, event: FeedEvent) -> None:
        """Something has happened: pages are told, and if there are none, it is looked at once, for the history."""
        self._stirred.set()
        if self._watchers:
            self._events.append(event.row())

    def look(self) -> StateDelta:
        """Look at the cluster now; returns what has changed."""
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
        """The state that was seen last."""
        return self._sheet.rows

    def now_s(self) -> float:
        """The time of the cluster, from the same zero as that of events."""
        return round(self._loop.time() if self._clock is None else self._clock.now_s(), 3)

    async def stop(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
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
        if self._news is not None:
            self._news.set_result(None)
            self._news = None

    def _begin(self) -> None:
        self._left_s = None
        self._traffic = Traffic(self._loop.time, self._changed_rows)
        if not self._hooked:
            self._hooked = True
            self._cluster.on_node(self._on_node)
        else:
            for node in self._cluster.nodes.values():
                self._on_node(node)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_on(), name="dashboard")
        self._stirred.set()

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

    async def _look_on(self) -> None:
        """Look as long as somebody watches, and after each burst of events for an hour more."""
        told_s = self._loop.time()
        while self._left_s is None or self._loop.time() - self._left_s < SPAN_S:
            if not self._watchers:
                self._stirred.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stirred.wait(), SPAN_S)
                await asyncio.sleep(0 if self._watchers else QUIET_S)
            began_s, used_s = self._loop.time(), time.thread_time()
            try:
                self.look()
            except Exception:
                log.exception("bug in the dashboard: it looks again")
            if self._traffic is not None and began_s - told_s >= TRAFFIC_S:
                told_s = began_s
                taken = {"at": self.now_s(), **self._traffic.take()}
                self._traffic_kept.append(taken)
                self._send("traffic", taken)
            await asyncio.sleep(max(PERIOD_S, (time.thread_time() - used_s) / SHARE))
