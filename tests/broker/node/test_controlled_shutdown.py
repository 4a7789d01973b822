"""A broker that stops repeats ControlledShutdown until it leads nothing, and not forever."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.node.controlled_shutdown import move_leaderships_away
from anabranch.protocol.apis.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from anabranch.protocol.errors import ErrorCode

SETTINGS = BrokerSettings(node_id=3, controlled_shutdown_max_retries=3, controlled_shutdown_retry_backoff_ms=0)
DONE = ControlledShutdownResponse(error_code=0, remaining_partitions=[])
ONE_LEFT = ControlledShutdownResponse(
    error_code=0, remaining_partitions=[RemainingPartition(topic_name="t", partition_index=0)]
)
REFUSED = ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, remaining_partitions=[])


class Link:
    """The connection to a controller with these responses."""

    def __init__(self, *responses: Any) -> None:
        self.responses = list(responses)
        self.requests: list[ControlledShutdownRequest] = []

    async def call(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        self.requests.append(request)
        response = self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        assert isinstance(response, ControlledShutdownResponse)
        return response


@pytest.mark.parametrize("first", [ONE_LEFT, REFUSED, ConnectionError("no controller"), TimeoutError()])
async def test_request_is_repeated_until_no_partition_remains(first: Any, caplog: pytest.LogCaptureFixture) -> None:
    link = Link(first, DONE, DONE)
    await move_leaderships_away(SETTINGS, link, 7)  # type: ignore[arg-type]
    assert [(one.broker_id, one.broker_epoch) for one in link.requests] == [(3, 7)] * 2
    assert "stops without" not in caplog.text


async def test_broker_stops_after_the_configured_retries(caplog: pytest.LogCaptureFixture) -> None:
    link = Link(*[ONE_LEFT] * 5)
    await move_leaderships_away(SETTINGS, link, 7)  # type: ignore[arg-type]
    assert len(link.requests) == 3
    assert "broker 3 stops without a controlled shutdown" in caplog.text
