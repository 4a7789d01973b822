"""Invalid settings are refused with the reason and a remedy."""

from __future__ import annotations

import pytest

from anabranch.clients.config import ProducerConfig, parse_acks, parse_servers


def make(**changes: object) -> ProducerConfig:
    settings: dict[str, object] = {
        "acks": "all",
        "enable_idempotence": None,
        "compression_type": None,
        "partitioner": "linear",
    }
    return ProducerConfig.make(**{**settings, **changes})  # type: ignore[arg-type]


def test_bootstrap_servers_are_parsed() -> None:
    assert parse_servers("a:1, b:2,") == (("a", 1), ("b", 2))
    assert parse_servers(["[::1]:9092"]) == (("::1", 9092),)


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:x", "a:0", "a:65536", ","])
def test_malformed_bootstrap_servers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|127\.0\.0\.1:9092"):
        parse_servers(text)


def test_acks_is_parsed() -> None:
    assert [parse_acks(acks) for acks in ("all", "-1", -1, 0, "0", 1, "1")] == [-1, -1, -1, 0, 0, 1, 1]
    with pytest.raises(ValueError, match='acks is 0, 1 or "all", not 2'):
        parse_acks(2)


def test_idempotence_follows_acks_unless_demanded() -> None:
    assert make().enable_idempotence
    assert make().in_flight_max == 5
    assert not make(acks=1).enable_idempotence
    assert make(acks=1).in_flight_max == 1
    with pytest.raises(ValueError, match='needs acks="all"'):
        make(acks=1, enable_idempotence=True)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"compression_type": "rar"}, "none, gzip, snappy, lz4, zstd"),
        ({"partitioner": "random"}, "linear, modulo"),
        ({"linger_ms": -1}, "linger_ms must be positive"),
        ({"batch_bytes": 0}, "batch_bytes must be positive"),
        ({"linger_ms": float("nan")}, "linger_ms must be positive"),
        ({"linger_ms": 120_000}, "linger_ms must be below delivery_timeout_ms"),
        ({"request_timeout_ms": 1e4}, "request_timeout_ms is a whole number"),
        ({"transaction_timeout_ms": 2**31}, "transaction_timeout_ms is a whole number"),
    ],
)
def test_invalid_producer_settings_are_refused(changes: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make(**changes)
