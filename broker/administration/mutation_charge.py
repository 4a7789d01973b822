"""Charges one request for the partitions that it creates or deletes (KIP-599).

A handler makes one `MutationCharge` per request, spends before each change, and puts `wait_ms` into its answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.dispatch.request_context import RequestContext


class MutationCharge:
    """The charges of one request."""

    def __init__(self, ctx: RequestContext, *, strict: bool) -> None:
        """`strict`: refuse a client that has changed too much, instead of making it wait after its answer."""
        throttling = ctx.services.throttling
        self._quotas = None if throttling is None or not throttling.active else throttling.mutations
        self._client_id = ctx.client_id
        self._user = ctx.peer.user
        self._now_ms = ctx.services.now_ms
        self._strict = strict
        self.wait_ms = 0
        """How long the client should wait before its next request."""

    def spend(self, partitions: int) -> None:
        """Raise THROTTLING_QUOTA_EXCEEDED if the client has changed too much already."""
        if self._quotas is None:
            return
        allowed, wait_ms = self._quotas.spend(
            self._client_id, partitions, self._now_ms(), strict=self._strict, user=self._user
        )
        self.wait_ms = max(self.wait_ms, wait_ms)
        if not allowed:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
