"""Measures requests: durations, error codes, requests and bytes per client id.

With metrics, a measuring dispatcher replaces the node's; without metrics this code does not run. A request's *work* is
the time until its response is complete or waits for something: processor time that blocks the event loop. The total
time includes waits for followers, records or a quorum. It excludes the time before dispatch, which `loop_delay_seconds`
measures for all requests together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.dispatch.dispatcher import Dispatcher
from anabranch.broker.metrics.histogram import Histogram
from anabranch.broker.network.eager_coroutine import EagerCoroutine, start_eagerly
from anabranch.broker.quotas.throttling import FETCH_KEY, PRODUCE_KEY, traffic
from anabranch.protocol.error_codes import error_codes

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import Peer
    from anabranch.protocol.codec import DecodedRequest

BOUNDS_S: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
CLIENTS_MAX: Final = 200
"""The most client ids that are counted by name; bounds the memory for clients that change their id."""
OTHERS: Final = "(others)"
MOVES: Final = {PRODUCE_KEY: "produced", FETCH_KEY: "fetched"}
"""API key -> label of the bytes that it moves."""


class RequestFigures:
    """The measurements of one node's requests."""

    def __init__(self) -> None:
        self.work_s: dict[int, Histogram] = {}
        """API key -> seconds of work."""
        self.total_s: dict[int, Histogram] = {}
        """API key -> seconds from dispatch to response."""
        self.errors: Counter[tuple[int, int]] = Counter()
        """(API key, error code) -> occurrences in responses, at any level."""
        self.clients: Counter[str] = Counter()
        """Client id -> requests; `OTHERS` beyond `CLIENTS_MAX`."""
        self.client_bytes: Counter[tuple[str, str]] = Counter()
        """(client id, "produced" or "fetched") -> bytes of records, as for quotas."""

    def note(self, request: DecodedRequest, response: Any, work_s: float, total_s: float) -> None:
        """Record a completed request."""
        key = request.api.key
        if key not in self.work_s:
            self.work_s[key], self.total_s[key] = Histogram(BOUNDS_S), Histogram(BOUNDS_S)
        self.work_s[key].observe(work_s)
        self.total_s[key].observe(total_s)
        client = request.client_id or ""
        if client not in self.clients and len(self.clients) >= CLIENTS_MAX:
            client = OTHERS
        self.clients[client] += 1
        if key in MOVES:
            self.client_bytes[client, MOVES[key]] += traffic(request, response)[1]
        if response is not None:
            for code in error_codes(response, type(response)):
                if code:
                    self.errors[key, code] += 1


class MeasuringDispatcher(Dispatcher):
    """A dispatcher that measures the requests of another one."""

    def __init__(self, measured: Dispatcher, figures: RequestFigures, clock_s: Callable[[], float]) -> None:
        self._measured = measured
        self._figures = figures
        self._clock_s = clock_s
        self.audiences = measured.audiences
        self.requests = measured.requests
        self.throttling = measured.throttling
        self.long_polls = measured.long_polls

    async def answer(self, request: DecodedRequest, peer: Peer) -> Any:
        """Dispatch and measure a request; one that closes its connection is not measured."""
        clock_s = self._clock_s
        start_s = clock_s()
        response = start_eagerly(self._measured.answer(request, peer))
        worked_s = clock_s()
        if type(response) is EagerCoroutine:
            response = await response
        self._figures.note(request, response, worked_s - start_s, clock_s() - start_s)
        return response
