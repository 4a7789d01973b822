"""Counts and times requests per API while a page is open; otherwise it is not installed.

A request's *work* is the processor time during which no other request of the loop runs; its total time includes waits
for replicas, for records, or for a quorum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.dispatch.dispatcher import Dispatcher
from anabranch.broker.network.eager_coroutine import EagerCoroutine, start_eagerly
from anabranch.protocol.registry import BY_KEY

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import Peer
    from anabranch.broker.node.app import Node
    from anabranch.protocol.codec import DecodedRequest

Sums = dict[int, list[float]]
"""API key -> count, total seconds, seconds of work, maximum."""
SLOW_S: Final = 1.0
LONG_POLLS: Final = frozenset({"JoinGroup", "SyncGroup"})
"""These wait for other members."""


class TimedDispatcher(Dispatcher):
    """The outermost dispatcher of a node, which counts and times requests."""

    outermost = True

    def __init__(
        self, inner: Dispatcher, clock_s: Callable[[], float], slow: Callable[[DecodedRequest, float], None]
    ) -> None:
        """`slow` is called for each request that took longer than `SLOW_S`, except long polls."""
        self.inner = inner
        self.audiences = inner.audiences
        self.requests = inner.requests
        self.throttling = inner.throttling
        self.long_polls = inner.long_polls
        self._clock_s = clock_s
        self._slow = slow
        self.sums: Sums = {}

    async def answer(self, request: DecodedRequest, peer: Peer) -> Any:
        """See Dispatcher; requests that end in a closed connection are not counted."""
        clock_s = self._clock_s
        start_s = clock_s()
        response = start_eagerly(self.inner.answer(request, peer))
        worked_s = clock_s()
        if type(response) is EagerCoroutine:
            response = await response
        took_s = clock_s() - start_s
        sums = self.sums.setdefault(request.api.key, [0, 0.0, 0.0, 0.0])
        sums[0] += 1
        sums[1] += took_s
        sums[2] += worked_s - start_s
        sums[3] = max(sums[3], took_s)
        if took_s > SLOW_S and request.api.key not in self.long_polls and request.api.name not in LONG_POLLS:
            self._slow(request, took_s)
        return response


class Traffic:
    """The requests of all nodes since the last collection."""

    def __init__(self, clock_s: Callable[[], float], tell: Callable[..., None]) -> None:
        """`tell` is called for slow requests, with their details."""
        self._clock_s = clock_s
        self._tell = tell
        self._timed: dict[int, tuple[Node, TimedDispatcher]] = {}
        self._since_s = clock_s()

    def watch(self, node: Node) -> None:
        """Count a node's requests from now on."""
        node_id = node.settings.node_id

        def slow(request: DecodedRequest, took_s: float) -> None:
            self._tell(
                "slow request", node=node_id, api=request.api.name, client=request.client_id, ms=round(took_s * 1000)
            )

        timed = TimedDispatcher(node.server.dispatcher, self._clock_s, slow)
        node.server.dispatcher = timed
        self._timed[node_id] = node, timed

    def stop(self) -> None:
        """Remove the dispatchers from all nodes."""
        for node, timed in self._timed.values():
            _take_out(node, timed)
        self._timed.clear()

    def take(self) -> dict[str, Any]:
        """The requests since the last call: per API the count, mean and maximum milliseconds, and mean work."""
        now_s = self._clock_s()
        span_s, self._since_s = now_s - self._since_s, now_s
        apis: Sums = {}
        nodes = {}
        for node_id, (_, timed) in self._timed.items():
            taken, timed.sums = timed.sums, {}
            nodes[node_id] = int(sum(one[0] for one in taken.values()))
            for key, (count, total_s, work_s, longest_s) in taken.items():
                sums = apis.setdefault(key, [0, 0.0, 0.0, 0.0])
                sums[0] += count
                sums[1] += total_s
                sums[2] += work_s
                sums[3] = max(sums[3], longest_s)
        return {
            "span": round(span_s, 3),
            "apis": {
                BY_KEY[key].name: [
                    int(count),
                    round(total_s / count * 1000, 3),
                    round(work_s / count * 1000, 3),
                    round(longest_s * 1000, 3),
                ]
                for key, (count, total_s, work_s, longest_s) in sorted(apis.items())
            },
            "nodes": nodes,
        }


def _take_out(node: Node, timed: TimedDispatcher) -> None:
    server = node.server
    if server.dispatcher is timed:
        server.dispatcher = timed.inner
        return
    outer = server.dispatcher
    while outer.outermost and outer.inner is not timed:
        outer = outer.inner
    if outer.outermost:
        outer.inner = timed.inner
