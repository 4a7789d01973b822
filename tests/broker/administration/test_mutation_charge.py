"""A request is charged for each partition that it changes, if a quota is set."""

from __future__ import annotations

import dataclasses

import pytest

from anabranch.broker.administration.mutation_charge import MutationCharge
from anabranch.broker.authorization.peer import UNKNOWN_PEER
from anabranch.broker.dispatch.request_context import RequestContext
from anabranch.broker.quotas.client_quotas import DEFAULT
from anabranch.broker.quotas.controller_mutation_quotas import MUTATIONS
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.node.test_assembly import assembled
from tests.broker.serving import lone_services


async def test_strict_client_over_mutation_quota_is_refused() -> None:
    services = await assembled()
    assert services.throttling is not None
    services.throttling.quotas.set_limits((None, DEFAULT), {MUTATIONS: 1.0})
    ctx = RequestContext(services, 6, "client", UNKNOWN_PEER)
    strict = MutationCharge(ctx, strict=True)
    strict.spend(1_000)
    with pytest.raises(KafkaError) as refused:
        strict.spend(1)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert strict.wait_ms > 0
    permissive = MutationCharge(dataclasses.replace(ctx, version=5), strict=False)
    permissive.spend(1)
    assert permissive.wait_ms >= strict.wait_ms, "it is let through, and has to wait"


async def test_mutations_without_quota_are_not_throttled() -> None:
    for services in (await assembled(), await lone_services()):
        spending = MutationCharge(RequestContext(services, 6, "client", UNKNOWN_PEER), strict=True)
        spending.spend(1_000_000)
        assert spending.wait_ms == 0
