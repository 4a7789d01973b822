"""Handles client telemetry (KIP-714): returns subscriptions to clients, and passes their pushes to receivers.

Pushed metrics are only decompressed, within a size limit. Large pushes are decompressed one at a time in the thread for
batches. A broker without telemetry (`client.telemetry.enable`) creates none of this, and clients do not see the APIs,
as in Kafka without a receiver plug-in.
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
"""Larger than any client's metrics, and small enough to hold in memory briefly."""
Unpack = Callable[[int, bytes, int], Awaitable[bytes]]
"""Decompresses: takes the compression, the data and the maximum size of the result. Raises DecodeError."""

Receiver = Callable[[Client, Push, bytes], None]
"""Takes a client, its push, and the decompressed OTLP MetricsData; empty for a push without metrics."""


class Telemetry:
    """Handles telemetry requests of clients."""

    def __init__(self, configs: ClientMetricsConfigs, unpack: Unpack, clock_ms: Callable[[], int]) -> None:
        self.receivers: list[Receiver] = []
        """Called with each accepted push."""
        self._unpack = unpack
        self._clock_ms = clock_ms
        self._instances = Instances()
        self.gone = self._instances.gone
        configs.on_change(self._instances.subscribe)

    def get(self, client_instance_id: bytes, client: Client) -> Instance:
        """Return a client's instance, with its subscription. Raises KafkaError."""
        return self._instances.get(client_instance_id, client, self._clock_ms())

    async def push(self, push: Push, client: Client, bytes_max: int) -> None:
        """Accept a client's push. Raises KafkaError; INVALID_RECORD if decompression fails, as in Kafka."""
        instance = self._instances.push(push, client, self._clock_ms(), bytes_max)
        try:
            unpacked = (
                await self._unpack(push.compression, push.metrics, UNCOMPRESSED_BYTES_MAX) if push.metrics else b""
            )
        except DecodeError as error:
            instance.store_refusal(ErrorCode.INVALID_RECORD)
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
        instance.count_push()
        for receive in self.receivers:
            receive(client, push, unpacked)

    def clients(self) -> Iterator[Instance]:
        """Iterate over the instances that are not expired."""
        return self._instances.all(self._clock_ms())
