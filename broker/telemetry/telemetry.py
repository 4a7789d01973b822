"""A broker's part in telemetry: who asks gets what subscriptions want of it, and what is pushed goes to the receivers.

Nobody here looks into metrics; they are only uncompressed, within bounds, and where that may take long in the thread
that does so for batches, one at a time. Nothing of this exists on brokers that do not take telemetry
(`client.telemetry.enable`), where clients see no such APIs, as in a Kafka without a receiver among its plug-ins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

from anabranch.broker.telemetry.instances import Instance, Instances, Push
from anabranch.broker.telemetry.subscriptions import Client
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.telemetry.client_metrics_configs import ClientMetricsConfigs

UNCOMPRESSED_BYTES_MAX: Final = 16 << 20
"""More than any client has to say, and no more than a broker can hold for a moment."""
Unpack = Callable[[int, bytes, int], Awaitable[bytes]]
"""Takes a compression, what is compressed so, and how much may come out at most. Raises DecodeError."""

Receiver = Callable[[Client, Push, bytes], None]
"""Takes a client, its push, and the metrics in it: OTLP's MetricsData, uncompressed; empty if it had nothing to say."""


class Telemetry:
    """Answers clients, and hands on what they push."""

    def __init__(self, configs: ClientMetricsConfigs, unpack: Unpack, clock_ms: Callable[[], int]) -> None:
        self.receivers: list[Receiver] = []
        """Called with each push that was taken."""
        self._unpack = unpack
        self._clock_ms = clock_ms
        self._instances = Instances()
        self.gone = self._instances.gone
        configs.on_change(self._instances.subscribe)

    def get(self, client_instance_id: bytes, client: Client) -> Instance:
        """What a client is asked for. Raises KafkaError."""
        return self._instances.get(client_instance_id, client, self._clock_ms())

    async def push(self, push: Push, client: Client, bytes_max: int) -> None:
        """Take what a client sends. Raises KafkaError: of what cannot be uncompressed INVALID_RECORD, as Kafka does."""
        instance = self._instances.push(push, client, self._clock_ms(), bytes_max)
        try:
            unpacked = (
                await self._unpack(push.compression, push.metrics, UNCOMPRESSED_BYTES_MAX) if push.metrics else b""
            )
        except DecodeError as error:
            instance.refused(ErrorCode.INVALID_RECORD)
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
        instance.taken()
        for receive in self.receivers:
            receive(client, push, unpacked)

    def clients(self) -> Iterator[Instance]:
        """Those that have come lately."""
        return self._instances.all(self._clock_ms())
