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
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from anabranch.dashboard.history import SPAN_S, History
from anabranch.dashboard.state_delta import StateDelta, StateSheet

if TYPE_CHECKING:
    from anabranch.clock.cluster_clock import ClusterClock
    from anabranch.dashboard.row_source import RowSource, Tell

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
        source: Makes the source of the rows, which reports events to the given function.
        clock: The cluster's clock, if it has its own.
        tell: See `Tell`.
        has_history: Whether past states are kept.
    """

    def __init__(
        self,
        source: Callable[[Tell], RowSource],
        clock: ClusterClock | None = None,
        tell: Tell = lambda kind, **_: None,
        *,
        has_history: bool = True,
    ) -> None:
        self._source = source(self._changed_rows)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._sheet = StateSheet()
        self._tell_event = tell
        self._has_history = has_history
        self._untold: list[tuple[str, dict[str, Any]]] = []
        self.history = History()
        """The collected states."""
        self._traffic_kept: deque[dict[str, Any]] = deque(maxlen=TRAFFIC_KEPT)
        self._messages: deque[Message] = deque(maxlen=MESSAGES_KEPT)
        self._events: list[Mapping[str, Any]] = []
        """The events that pages have not yet received."""
        self._run = secrets.token_hex(8)
        """Tells a page that is still open after a restart: events are counted from 1 again."""
        self._number = 0
        self._changed: asyncio.Future[None] | None = None
        self._watchers = 0
        self._left_s: float | None = None
        self._measured_s = 0.0
        """When requests were last taken, or began to be counted."""
        self._collecting: asyncio.Task[None] | None = None
        self._wakeup = asyncio.Event()

    async def follow(self) -> AsyncGenerator[Message, None]:
        """Yield the whole state, then the changes, without end."""
        self._watchers += 1
        try:
            if self._watchers == 1:
                self._begin()
            await self.collect()
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

    async def collect(self) -> StateDelta:
        """Collect the state now, also from other processes; returns the changes."""
        await self._source.refresh()
        return self.look()

    def look(self) -> StateDelta:
        """Collect the state that this process has now; returns the changes."""
        sheet = self._sheet
        self._source.collect(sheet)
        untold, self._untold = self._untold, []
        for kind, detail in untold:
            self._tell_event(kind, **detail)
        delta, at_s = sheet.take(), self.now_s()
        if delta and self._has_history:
            self.history.note(at_s, delta, sheet.rows)
        if delta or self._events:
            self._send("delta", {"at": at_s, "day_ms": self._day_ms(), **delta.body(), "events": self._events})
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

    def _day_ms(self) -> int | None:
        """The cluster's time of day, if it has its own clock; a restored or reset cluster returns to another one."""
        return None if self._clock is None else self._clock.day_ms()

    async def stop(self) -> None:
        """Stop collecting."""
        if self._collecting is not None:
            self._collecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._collecting
        self._source.close()

    def _snapshot(self) -> str:
        begin_s = self.history.begin_s
        body = {
            "at": self.now_s(),
            "run": self._run,
            "day_ms": self._day_ms(),
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
        self._source.open()
        self._measured_s = self._loop.time()
        if self._collecting is None or self._collecting.done():
            self._collecting = asyncio.create_task(self._collect_while_watched(), name="dashboard")
        self._wakeup.set()

    def _end(self) -> None:
        self._left_s = self._loop.time()
        self._messages.clear()
        self._events.clear()
        self._source.close()

    async def _collect_while_watched(self) -> None:
        """Collect while a page is open, and after bursts of events for another hour."""
        used_s = time.thread_time()
        while self._left_s is None or self._loop.time() - self._left_s < SPAN_S:
            if not self._watchers:
                self._wakeup.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wakeup.wait(), SPAN_S)
                await asyncio.sleep(0 if self._watchers else QUIET_S)
            began_s = self._loop.time()
            try:
                await self._source.refresh()
                used_s = time.thread_time()
                self.look()
            except Exception:
                log.exception("bug in the dashboard, retrying")
            due = began_s - self._measured_s >= TRAFFIC_S
            if due and (traffic := self._source.take_traffic()) is not None:
                self._measured_s = began_s
                taken = {"at": self.now_s(), **traffic}
                self._traffic_kept.append(taken)
                self._send("traffic", taken)
            await asyncio.sleep(max(PERIOD_S, (time.thread_time() - used_s) / SHARE))
