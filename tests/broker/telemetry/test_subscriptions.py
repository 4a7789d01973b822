"""Valid subscriptions, matching clients, and their combination for one client."""

from __future__ import annotations

import dataclasses

import pytest

from anabranch.broker.config.config_def import Scope, config_def
from anabranch.broker.telemetry.subscriptions import (
    INTERVAL_DEFAULT_MS,
    Client,
    ClientSubscription,
    Subscription,
    check,
    subscription,
    subscription_of,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

CLIENT = Client(
    client_instance_id="AAECAwQFBgcICQoLDA0ODw",
    client_id="shop-1",
    software_name="librdkafka",
    software_version="2.6.1",
    host="10.0.0.7",
    port=50_000,
)


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("interval", "1000", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "soon", ErrorCode.INVALID_CONFIG),
        ("interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "100", None),
        ("interval.ms", "3600000", None),
        ("match", "client_id", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a=b", ErrorCode.INVALID_CONFIG),
        ("match", "colour=red", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=[", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a,,client_source_port=1", ErrorCode.INVALID_CONFIG),
        ("match", "", None),
        ("match", "client_id=a , client_source_port = 1", None),
        ("metrics", "a.,a.", None),
    ],
)
def test_subscription_configs_are_checked(name: str, text: str, code: ErrorCode | None) -> None:
    if code is None:
        check({name: text})
        return
    with pytest.raises(KafkaError) as refused:
        check({name: text})
    assert refused.value.code is code


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("", True),
        ("client_id=shop-.*", True),
        ("client_id=shop", False),
        ("client_id=shop-1, client_software_name=apache-kafka-java", False),
        ("client_software_name=librdkafka,client_software_version=2\\.6.*", True),
        ("client_source_address=10\\..*,client_source_port=5[0-9]+", True),
        ("client_instance_id=AAEC.*", True),
        ("client_id=nobody,client_id=shop-1", True),
    ],
)
def test_subscription_matches_clients_by_all_its_expressions(match: str, expected: bool) -> None:
    assert subscription({"match": match}).matches(CLIENT) is expected


def test_backtracking_expression_is_matched_in_bounded_time() -> None:
    client = dataclasses.replace(CLIENT, client_id="a" * 30_000 + "b")
    assert not subscription({"match": "client_id=(a+)+c"}).matches(client)


def test_metrics_of_matching_subscriptions_are_merged_with_the_shortest_interval() -> None:
    said = [
        subscription({"metrics": "b., a.", "interval.ms": "2000"}),
        subscription({"metrics": "a.,c.", "interval.ms": "1000"}),
        subscription({"metrics": "d.", "interval.ms": "100", "match": "client_id=other"}),
    ]
    assert subscription_of(said, CLIENT) == ClientSubscription(("a.", "b.", "c."), 1000)
    assert subscription_of([*said, subscription({"metrics": "*"})], CLIENT) == ClientSubscription(("*",), 1000)
    assert subscription_of([], CLIENT) == ClientSubscription((), INTERVAL_DEFAULT_MS)
    assert subscription_of([Subscription((), 3_600_000, {})], CLIENT).interval_ms == INTERVAL_DEFAULT_MS, "as in Kafka"


def test_subscription_ids_equal_kafkas() -> None:
    """Noted from Kafka 4.1.1; with several metrics, Kafka uses the order of a hash map."""
    assert ClientSubscription((), 300_000).id_for(bytes(range(16))) == -725132322
    assert ClientSubscription(("org.apache.kafka.producer.",), 200_000).id_for(bytes(range(16))) == 865627704
    assert ClientSubscription(("*",), 100).id_for(b"\xff" * 8 + bytes(8)) == 899611809


def test_subscription_without_an_interval_has_the_default() -> None:
    assert config_def(Scope.CLIENT_METRICS).keys_by_name()["interval.ms"].default == str(INTERVAL_DEFAULT_MS)
    assert subscription({}).interval_ms == INTERVAL_DEFAULT_MS
