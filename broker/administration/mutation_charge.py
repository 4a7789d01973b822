"""Charges a request for the partitions that it creates or deletes (controller mutation quota, KIP-599).

A handler creates one `MutationCharge` per request, calls `spend` before each change, and responds with `wait_ms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.dispatch.request_context import RequestContext


class MutationCharge:
    """The controller mutation quota as applied to one request."""

    def __init__(self, ctx: RequestContext, *, strict: bool) -> None:
        """`strict`: refuse a client over its quota, instead of throttling it after the response."""
        throttling = ctx.services.throttling
        self._quotas = None if throttling is None or not throttling.active else throttling.mutations
        self._client_id = ctx.client_id
        self._user = ctx.peer.user
        self._now_ms = ctx.services.now_ms
        self._strict = strict
        self.wait_ms = 0
        """The throttle time of the response."""

    def spend(self, partitions: int) -> None:
        """Charge for partitions. Raises THROTTLING_QUOTA_EXCEEDED if the client is over its quota."""
        if self._quotas is None:
            return
        allowed, wait_ms = self._quotas.spend(
            self._client_id, partitions, self._now_ms(), strict=self._strict, user=self._user
        )
        self.wait_ms = max(self.wait_ms, wait_ms)
        if not allowed:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
