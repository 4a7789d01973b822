"""When clients may subscribe and push, refusals, and expiry, as in Kafka 4.1."""

from __future__ import annotations

import dataclasses

import pytest

from anabranch.broker.telemetry.instances import CLIENTS_MAX, Instance, Instances, Push
from anabranch.broker.telemetry.subscriptions import Client, subscription
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.wire import ZERO_UUID

INTERVAL_MS = 1000
START_MS = 1_700_000_000_000
MAX_BYTES = 100
ID = bytes(range(16))
CLIENT = Client(
    client_instance_id="AAECAwQFBgcICQoLDA0ODw",
    client_id="shop",
    software_name="rdkafka",
    software_version="2.6.1",
    host="10.0.0.7",
    port=5,
)


class Broker:
    """The instances of a broker, and a clock."""

    def __init__(self, clients_max: int = CLIENTS_MAX) -> None:
        self.instances = Instances(clients_max)
        self.now_ms = START_MS
        self.subscribe()

    def subscribe(self, metrics: str = "m.") -> None:
        said = {"metrics": metrics, "interval.ms": str(INTERVAL_MS)}
        self.instances.subscribe([subscription(said)] if metrics else [])

    def get(self, uuid: bytes = ID, *, port: int = 5) -> Instance:
        return self.instances.get(uuid, dataclasses.replace(CLIENT, port=port), self.now_ms)

    def push(self, subscription_id: int, uuid: bytes = ID, **changed: object) -> Instance:
        push = Push(uuid, subscription_id, terminating=False, compression=0, metrics=b"OTLP")
        push = dataclasses.replace(push, **changed)
        pushed = self.instances.push(push, CLIENT, self.now_ms, MAX_BYTES)
        pushed.count_push()
        return pushed


def refused(broker: Broker, subscription_id: int, **changed: object) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        broker.push(subscription_id, **changed)  # type: ignore[arg-type]
    return error.value.code


def test_client_may_get_and_push_once_per_interval() -> None:
    broker = Broker()
    wanted = broker.get()
    assert (wanted.subscription.metrics, wanted.subscription.interval_ms) == (("m.",), INTERVAL_MS)
    with pytest.raises(KafkaError, match="requests subscriptions too early") as early:
        broker.get()
    assert early.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert broker.push(wanted.subscription_id) is wanted, "the first push after asking may come at once"
    assert refused(broker, wanted.subscription_id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    broker.now_ms += INTERVAL_MS - 1
    assert refused(broker, wanted.subscription_id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    broker.now_ms += 1
    broker.push(wanted.subscription_id)
    assert wanted.pushes == 2


def test_terminating_push_is_accepted_at_any_time_once() -> None:
    broker = Broker()
    wanted = broker.get().subscription_id
    broker.push(wanted)
    broker.push(wanted, terminating=True)
    broker.now_ms += INTERVAL_MS
    assert refused(broker, wanted, terminating=True) is ErrorCode.INVALID_REQUEST
    assert refused(broker, wanted) is ErrorCode.INVALID_REQUEST
    assert broker.push(wanted).pushes == 3, "as in Kafka: what was refused has said that it is not the last one"


def test_changed_subscriptions_require_and_allow_a_new_get() -> None:
    broker = Broker()
    before = broker.get().subscription_id
    broker.push(before)
    broker.subscribe("other.")
    assert refused(broker, before) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    after = broker.get()
    assert after.subscription.metrics == ("other.",) and after.subscription_id != before
    broker.now_ms += INTERVAL_MS
    assert broker.push(after.subscription_id) is after


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"compression": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(MAX_BYTES + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"compression": 5, "metrics": bytes(MAX_BYTES + 1)}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"uuid": ZERO_UUID}, ErrorCode.INVALID_REQUEST),
        ({"uuid": bytes(15) + b"\1"}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_push_is_refused(changed: dict[str, object], code: ErrorCode) -> None:
    broker = Broker()
    assert refused(broker, broker.get().subscription_id, **changed) is code
    assert sum(one.pushes for one in broker.instances.all(broker.now_ms)) == 0


def test_client_refused_for_its_compression_may_get_at_once() -> None:
    broker = Broker()
    refused(broker, broker.get().subscription_id, compression=9)
    wanted = broker.get()
    broker.now_ms += INTERVAL_MS
    refused(broker, wanted.subscription_id, metrics=bytes(MAX_BYTES + 1))
    with pytest.raises(KafkaError, match="requests subscriptions too early"):
        broker.get()


def test_inactive_or_disconnected_client_is_removed() -> None:
    broker = Broker()
    silent = broker.get()
    broker.now_ms += 60_000 - 1
    assert list(broker.instances.all(broker.now_ms)) == [silent]
    broker.now_ms += 1
    assert not list(broker.instances.all(broker.now_ms))
    assert broker.get() is not silent
    broker.get(b"2" * 16, port=6)
    broker.instances.gone((CLIENT.host, 5))
    broker.instances.gone((CLIENT.host, 7))
    assert [one.client.port for one in broker.instances.all(broker.now_ms)] == [6]


def test_client_is_kept_for_three_push_intervals() -> None:
    broker = Broker()
    broker.subscribe("")  # the default: five minutes
    wanted = broker.get()
    broker.now_ms += 3 * 300_000 - 1
    assert list(broker.instances.all(broker.now_ms)) == [wanted]


def test_full_cache_evicts_the_longest_inactive_clients() -> None:
    broker = Broker(clients_max=3)
    for number in range(3):
        broker.get(bytes([number]) * 16, port=number)
    broker.now_ms += INTERVAL_MS
    broker.get(bytes(16 * [0]), port=0)
    broker.get(bytes(16 * [9]), port=9)
    assert [one.client.port for one in broker.instances.all(broker.now_ms)] == [2, 0, 9]
