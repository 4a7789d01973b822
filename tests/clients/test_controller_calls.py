"""Requests to the controller follow it, and tell when their outcome is unknown."""

from __future__ import annotations

import asyncio

from anabranch.clients.controller_calls import call_controller
from anabranch.protocol.apis.heartbeat import HeartbeatRequest
from anabranch.protocol.errors import ErrorCode
from tests.clients.test_network import connected, error_of, heartbeat


async def test_controller_requests_follow_the_controller() -> None:
    async with connected() as (brokers, network):
        brokers.heartbeat_errors = [ErrorCode.NOT_CONTROLLER]
        brokers.controller = 2
        response = await call_controller(network, heartbeat(), error_of)
        assert response.throttle_time_ms == 2


async def test_change_without_response_is_reported_before_it_is_repeated() -> None:
    async with connected() as (brokers, network):
        unknown = []
        brokers.silent = {1}
        pending = asyncio.ensure_future(
            call_controller(network, heartbeat(), error_of, on_unknown_outcome=lambda: unknown.append(1))
        )
        while not brokers.count(HeartbeatRequest):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        brokers.controller = 2
        brokers.peers[1].drop_connections()
        assert (await pending).throttle_time_ms == 2
        assert unknown == [1]
