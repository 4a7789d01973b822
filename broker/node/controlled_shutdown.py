"""Moves the leaderships of a broker that is about to stop to other brokers.

The active controller moves them on ControlledShutdown, and returns those that no other replica can take over. The
request is repeated until none is left, or `controlled.shutdown.max.retries` are used up; then the broker stops
nevertheless. Source: Kafka's `KafkaServer.controlledShutdown`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from anabranch.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from anabranch.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.membership.controller_link import ControllerLink

log: Final = logging.getLogger(__name__)


async def move_leaderships_away(settings: BrokerSettings, controller: ControllerLink, broker_epoch: int) -> None:
    """Repeat ControlledShutdown until no partition remains, or the retries are used up."""
    request = ControlledShutdownRequest(broker_id=settings.node_id, broker_epoch=broker_epoch)
    for attempt in range(settings.controlled_shutdown_max_retries):
        try:
            response = await controller.call(request)
            if response.error_code == ErrorCode.NONE and not response.remaining_partitions:
                return
            log.info("controlled shutdown: error %d, %d left", response.error_code, len(response.remaining_partitions))
        except (ConnectionError, TimeoutError) as error:
            log.info("controlled shutdown: %s", error)
        if attempt + 1 < settings.controlled_shutdown_max_retries:
            await asyncio.sleep(settings.controlled_shutdown_retry_backoff_ms / 1000)
    log.warning("broker %d stops without a controlled shutdown", settings.node_id)
