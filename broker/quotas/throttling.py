"""Applies client quotas to requests: records usage, sets throttle times, mutes connections (KIP-13, KIP-219).

A response is sent at once with its throttle time, for which the broker mutes the connection. A Fetch over the limit
gets an empty response, its session stays as it was, and its bytes are not charged. A ShareFetch keeps its records,
because its member has acquired them. (Kafka leaves them out until their locks expire.) Requests between brokers are
exempt. Without limits this code does not run.

Source: the uses of `QuotaManagers` in Kafka's KafkaApis.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.quotas.client_quotas import ANONYMOUS, FETCH, PRODUCE, REQUEST
from anabranch.broker.quotas.controller_mutation_quotas import MutationQuotas

if TYPE_CHECKING:
    from anabranch.broker.quotas.client_quotas import ClientQuotas
    from anabranch.protocol.codec import DecodedRequest

FREE: Final = frozenset({4, 5, 6, 7, 27, 56, 58, 67})
"""Exempt API keys: LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, WriteTxnMarkers, AlterPartition,
Envelope, AllocateProducerIds."""
PRODUCE_KEY: Final = 0
FETCH_KEY: Final = 1
SHARE_FETCH_KEY: Final = 78
FETCH_KEYS: Final = frozenset({FETCH_KEY, SHARE_FETCH_KEY})


class Throttling:
    """The quotas of one broker."""

    def __init__(
        self,
        quotas: ClientQuotas,
        *,
        clock_ms: Callable[[], int],
        clock_s: Callable[[], float],
        request_longest_ms: int,
        take_back: Callable[[Any, Any], int],
    ) -> None:
        """`clock_s` measures processor time; `request_longest_ms` bounds the throttle time of the request quota.

        `take_back(request, response)` notes that a Fetch response is not sent, and returns its session's id.
        """
        self.quotas = quotas
        self.mutations = MutationQuotas(quotas)
        self.throttled_requests = 0
        self.throttled_ms = 0
        """The sum of all throttle times."""
        self._clock_ms = clock_ms
        self._clock_s = clock_s
        self._request_longest_ms = request_longest_ms
        self._take_back = take_back

    @property
    def active(self) -> bool:
        """Whether any limit is set."""
        return bool(self.quotas.limited)

    async def answer(
        self, request: DecodedRequest, work: Coroutine[Any, Any, Any], user: str = ANONYMOUS
    ) -> tuple[Any, int]:
        """Await the response of `work`, and apply quotas. Return it with the ms to mute the connection."""
        if request.api.key in FREE or is_follower(request):
            return await work, 0
        client_id = request.client_id or ""
        self._bound_fetch(request, client_id, user)
        busy_s = 0.0
        if REQUEST in self.quotas.limited:
            timed = TimedCoroutine(work, self._clock_s)
            response = await timed
            busy_s = timed.busy_s
        else:
            response = await work
        now_ms = self._clock_ms()
        what, size = traffic(request, response)
        bandwidth_ms = self.quotas.record(what, client_id, size, now_ms, user=user) if what else 0
        request_ms = 0
        if response is not None:
            percent = busy_s * 100
            request_ms = self.quotas.record(
                REQUEST, client_id, percent, now_ms, user=user, longest_ms=self._request_longest_ms
            )
        wait_ms = max(bandwidth_ms, request_ms, getattr(response, "throttle_time_ms", 0))  # set by mutation quotas
        if not wait_ms:
            return response, 0
        self.throttled_requests += 1
        self.throttled_ms += wait_ms
        if what == FETCH and request.api.key == FETCH_KEY:
            self.quotas.refund(FETCH, client_id, size, now_ms, user=user)
            session_id = self._take_back(request.body, response)
            response = dataclasses.replace(response, session_id=session_id, responses=[])
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = wait_ms
        return response, wait_ms

    def _bound_fetch(self, request: DecodedRequest, client_id: str, user: str) -> None:
        """Bound the `max_bytes` of a fetch to the burst, because a larger response would always exceed the limit."""
        if request.api.key in FETCH_KEYS and (most := self.quotas.burst(FETCH, client_id, user)) is not None:
            request.body.max_bytes = min(request.body.max_bytes, most)


class TimedCoroutine:
    """Runs a coroutine and measures its processor time, without its waits."""

    def __init__(self, work: Coroutine[Any, Any, Any], clock_s: Callable[[], float]) -> None:
        self._work = work
        self._clock_s = clock_s
        self.busy_s = 0.0

    def __await__(self) -> Generator[Any, None, Any]:
        work, thrown = self._work, None
        while True:
            began_s = self._clock_s()
            try:
                waits_for = work.send(None) if thrown is None else work.throw(thrown)
            except StopIteration as done:
                return done.value
            finally:
                self.busy_s += self._clock_s() - began_s
            thrown = None
            try:
                yield waits_for
            except BaseException as error:
                thrown = error


def is_follower(request: DecodedRequest) -> bool:
    """Whether a request is a follower's Fetch."""
    if request.api.key != FETCH_KEY:
        return False
    state = request.body.replica_state
    return bool(request.body.replica_id >= 0 or (state is not None and state.replica_id >= 0))


def traffic(request: DecodedRequest, response: Any) -> tuple[str, int]:
    """The byte rate limit of a request ("" for none), and the bytes of records that it moved."""
    if request.api.key == PRODUCE_KEY:
        rows = (row for topic in request.body.topic_data for row in topic.partition_data)
        return PRODUCE, sum(len(row.records) for row in rows if row.records is not None)
    if request.api.key in FETCH_KEYS and response is not None:
        rows = (row for topic in response.responses for row in topic.partitions)
        return FETCH, sum(len(row.records) for row in rows if row.records is not None)
    return "", 0
