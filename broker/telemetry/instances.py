"""The client instances that push metrics to a broker: their subscriptions, intervals and errors.

A client gets its subscription, and pushes metrics at most once per interval; its first push and its terminating push
are exempt. A change of subscriptions replaces the instance: its next push has an unknown subscription id, and it may
get its subscription at once. An instance is removed after three silent intervals, or when its connection closes. Pure:
takes the time, and returns an instance or raises KafkaError. Sources: `ClientMetricsManager` and
`ClientMetricsInstance` of Kafka 4.1 (KIP-714).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

from anabranch.broker.telemetry.subscriptions import Client, ClientSubscription, Subscription, subscription_of
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.compression import Compression
from anabranch.protocol.values import value
from anabranch.protocol.wire import ZERO_UUID

CLIENTS_MAX: Final = 16_384
"""The maximum number of instances; beyond it, those silent for longest are removed."""
FORGOTTEN_LEAST_MS: Final = 60_000
INTERVALS_OF_SILENCE: Final = 3
COMPRESSIONS: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""The accepted compressions, the preferred first; uncompressed pushes are accepted, too."""
RESERVED: Final = frozenset({ZERO_UUID, bytes(15) + b"\1"})
MAY_ASK_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""Errors after which a client may get its subscription before the interval ends."""
Connection = tuple[str, int]


@value
class Push:
    """A PushTelemetry request."""

    client_instance_id: bytes
    subscription_id: int
    terminating: bool
    compression: int
    metrics: bytes
    """OTLP MetricsData, compressed."""


class Instance:
    """A client instance that pushes metrics."""

    __slots__ = (
        *("client", "connection", "failed_with", "got_at_ms", "pushed_at_ms", "pushes", "seen_at_ms"),
        *("subscription", "subscription_id", "terminating", "version"),
    )

    def __init__(self, client: Client, subscription: ClientSubscription, subscription_id: int, version: int) -> None:
        self.client = client
        self.subscription = subscription
        self.subscription_id = subscription_id
        self.version = version
        """The version of the subscriptions when this instance was created."""
        self.got_at_ms: int | None = None
        """The time of the last accepted GetTelemetrySubscriptions."""
        self.pushed_at_ms: int | None = None
        """The time of the last push within the rate limit."""
        self.pushes = 0
        self.seen_at_ms = 0
        self.terminating = False
        self.failed_with = ErrorCode.NONE

    @property
    def forgotten_at_ms(self) -> int:
        """The time at which a silent instance is removed."""
        return self.seen_at_ms + max(FORGOTTEN_LEAST_MS, INTERVALS_OF_SILENCE * self.subscription.interval_ms)

    def may_get(self, now_ms: int) -> bool:
        """Whether an interval has passed since the last request; if so, store the time."""
        last_ms = max((one for one in (self.got_at_ms, self.pushed_at_ms) if one is not None), default=None)
        if last_ms is not None and now_ms - last_ms < self.subscription.interval_ms:
            return False
        self.got_at_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Whether this is the first push or an interval has passed; if so, store the time."""
        if self.pushed_at_ms is not None and now_ms - self.pushed_at_ms < self.subscription.interval_ms:
            return False
        self.pushed_at_ms = now_ms
        return True

    def count_push(self) -> None:
        """Count an accepted push."""
        self.failed_with = ErrorCode.NONE
        self.pushes += 1

    def store_refusal(self, code: ErrorCode) -> None:
        """Store the error of a refused push."""
        self.failed_with = code


class Instances:
    """The client instances of one broker, by client instance id."""

    def __init__(self, clients_max: int = CLIENTS_MAX) -> None:
        self._clients_max = clients_max
        self._known: OrderedDict[bytes, Instance] = OrderedDict()
        """In order of the last request, the oldest first."""
        self._by_connection: dict[Connection, bytes] = {}
        self._subscriptions: Sequence[Subscription] = ()
        self._version = 0

    def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Replace the subscriptions."""
        self._subscriptions = subscriptions
        self._version += 1

    def get(self, client_instance_id: bytes, client: Client, now_ms: int) -> Instance:
        """Return a client's instance, with its subscription. Raises THROTTLING_QUOTA_EXCEEDED if it is too early."""
        instance = self._instance(client_instance_id, client, now_ms)
        if not instance.may_get(now_ms) and instance.failed_with not in MAY_ASK_AGAIN:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{client.client_id} requests subscriptions too early"
            )
        instance.failed_with = ErrorCode.NONE
        return instance

    def push(self, push: Push, client: Client, now_ms: int, bytes_max: int) -> Instance:
        """Check a push, and return its instance, or raise KafkaError.

        After decompression the caller reports `count_push` or `store_refusal`.
        """
        if push.client_instance_id in RESERVED:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{client.client_instance_id} is not a client instance id")
        instance = self._instance(push.client_instance_id, client, now_ms)
        try:
            _check(instance, push, now_ms, bytes_max)
        except KafkaError as error:
            instance.store_refusal(error.code)
            raise
        finally:
            instance.terminating = push.terminating
        return instance

    def gone(self, connection: Connection) -> None:
        """Remove the instance of a closed connection."""
        client_instance_id = self._by_connection.pop(connection, None)
        if client_instance_id is not None:
            self._known.pop(client_instance_id, None)

    def all(self, now_ms: int) -> Iterator[Instance]:
        """Iterate over the instances that are not expired."""
        return (one for one in self._known.values() if now_ms < one.forgotten_at_ms)

    def _instance(self, client_instance_id: bytes, client: Client, now_ms: int) -> Instance:
        instance = self._known.get(client_instance_id)
        if instance is None or instance.version < self._version or now_ms >= instance.forgotten_at_ms:
            subscription = subscription_of(self._subscriptions, client)
            instance = Instance(client, subscription, subscription.id_for(client_instance_id), self._version)
            self._known[client_instance_id] = instance
            self._by_connection[client.host, client.port] = client_instance_id
            if len(self._known) > self._clients_max:
                self._known.popitem(last=False)
        self._known.move_to_end(client_instance_id)
        instance.seen_at_ms = now_ms
        return instance


def _check(instance: Instance, push: Push, now_ms: int, bytes_max: int) -> None:
    name = instance.client.client_id
    if instance.terminating:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} pushed after its terminating push")
    if not instance.may_push(now_ms) and not push.terminating:
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{name} pushed too early")
    if push.subscription_id != instance.subscription_id:
        raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, f"{name} has another subscription")
    if push.compression not in Compression.__members__.values():
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{push.compression} is not a compression type")
    if len(push.metrics) > bytes_max:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, f"{len(push.metrics)} bytes, more than {bytes_max}")
