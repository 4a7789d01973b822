"""A tester sees whether a client pushes metrics, which, and its last push (KIP-714).

Method: stock clients that know nothing of it: librdkafka does this by itself, if a broker asks for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import pytest

from anabranch.control.client import ControlError
from anabranch.testing.running_cluster import RunningCluster
from tests.interop.clients import CLIENTS, Client

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = [
    pytest.mark.interop,
    pytest.mark.anabranch(brokers=1, kafka="4.1", config={"client.telemetry.enable": "true"}),
]
INTERVAL_MS: Final = 100
PATIENCE_S: Final = 60.0
CODECS: Final = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
PUSHES_TRIED: Final = 20
CLOSED_OFTEN: Final = 20
OTHERS: Final = {"java": ("producer-1", "consumer-g-1"), "franz-go": ("kgo", "kgo")}
"""Client -> the ids that its producers and members of `g` have by themselves."""
LIBRDKAFKA: Final = "org.apache.kafka.producer.connection.creation.total"


def subscribe(cluster: RunningCluster, name: str, metrics: str = "*", match: str = "") -> None:
    changes = {"metrics": metrics, "interval.ms": str(INTERVAL_MS)} | ({"match": match} if match else {})
    cluster.admin.alter_configs(client_metrics=name, changes=changes)


@contextlib.contextmanager
def producer(cluster: RunningCluster, client_id: str, **config: Any) -> Iterator[None]:
    """A producer that has sent a record, for the length of a block; it is closed in the end."""
    made = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": client_id, **config})
    made.produce(cluster.topic(), b"value")
    assert made.flush(PATIENCE_S) == 0
    try:
        yield
    finally:
        del made


def read(cluster: RunningCluster, client_id: str) -> list[dict[str, Any]]:
    pytest.importorskip("opentelemetry.proto", reason="NO EXTRA: pip install 'anabranch[telemetry]'; OTLP was NOT read")
    return cluster.telemetry.metrics(client_id)


def test_librdkafka_pushes_subscribed_metrics(anabranch: RunningCluster) -> None:
    subscribe(anabranch, "all")
    with producer(anabranch, "shop"):
        (row,) = anabranch.telemetry.wait_for("shop", 3, timeout_s=PATIENCE_S)
        assert (row["wanted"], row["interval_ms"], row["refused"]) == (["*"], INTERVAL_MS, "")
        assert row["last"]["compression"] == "zstd" and row["last"]["compressed_bytes"] < row["last"]["bytes"]
        points = read(anabranch, "shop")
        assert LIBRDKAFKA in {one["name"] for one in points}
        assert {one["temporality"] for one in points if one["kind"] == "sum"} == {"delta"}, "as it was told to"
        assert all(one["value"] is not None and one["until_ns"] > one["from_ns"] for one in points)


def test_librdkafka_pushes_once_more_when_closed(anabranch: RunningCluster) -> None:
    """It takes the response to a pending push for the last one's, and does not send the last one."""
    subscribe(anabranch, "all")
    for number in range(CLOSED_OFTEN):
        with producer(anabranch, f"closed-{number}"):
            anabranch.telemetry.wait_for(f"closed-{number}", timeout_s=PATIENCE_S)
        (row,) = [one for one in anabranch.telemetry.clients() if one["client"] == f"closed-{number}"]
        if row["terminated"]:
            break
    assert row["terminated"] and row["pushes"] >= 2
    kinds = [one["kind"] for one in anabranch.control.events() if one.get("instance") == row["instance"]]
    assert kinds == ["telemetry began", "telemetry ended"]


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_pushes_in_every_compression(anabranch: RunningCluster, codec: str) -> None:
    """It uses the first one offered that it supports."""
    subscribe(anabranch, "all")
    told = {"accepted_compression_types[*]": CODECS[codec]}
    with anabranch.faults(api="GetTelemetrySubscriptions", edit=told), producer(anabranch, codec):
        (row,) = anabranch.telemetry.wait_for(codec, timeout_s=PATIENCE_S)
        assert (row["last"]["compression"], row["refused"]) == (codec, "")
        assert LIBRDKAFKA in {one["name"] for one in read(anabranch, codec)}


@pytest.mark.anabranch(brokers=1, kafka="4.1", config={"client.telemetry.enable": "true"}, journal=100)
def test_only_subscribed_and_enabled_clients_push(anabranch: RunningCluster) -> None:
    subscribe(anabranch, "some", "org.apache.kafka.producer.connection.", "client_id=asked")
    with (
        producer(anabranch, "asked"),
        producer(anabranch, "not-asked"),
        producer(anabranch, "off", **{"enable.metrics.push": False}),
    ):
        anabranch.telemetry.wait_for("asked", timeout_s=PATIENCE_S)
        names = {one["name"] for one in read(anabranch, "asked")}
        assert LIBRDKAFKA in names and all(".producer.connection." in one for one in names)
        anabranch.journal.wait_for(
            api="GetTelemetrySubscriptions", client_id="not-asked", outcome="answered", timeout_s=PATIENCE_S
        )
        with pytest.raises(ControlError, match="not-asked has pushed 0 of 1 times: no subscription matches it"):
            anabranch.telemetry.wait_for("not-asked", timeout_s=0)
        with pytest.raises(ControlError, match="no client 'off' has requested a subscription"):
            anabranch.telemetry.wait_for("off", timeout_s=0)


@pytest.mark.anabranch(brokers=1, kafka="4.1", config={"client.telemetry.enable": "true", "telemetry.max.bytes": "10"})
def test_refused_push_is_reported(anabranch: RunningCluster) -> None:
    subscribe(anabranch, "all")
    with producer(anabranch, "large"):
        with anabranch.faults(api="PushTelemetry", delay_ms=0) as pushed:
            pushed.wait_hit(2, timeout_s=PATIENCE_S)
        (row,) = anabranch.telemetry.clients()
        assert (row["pushes"], row["refused"], row["last"]) == (0, "TELEMETRY_TOO_LARGE", None)


def told_by(cluster: RunningCluster, client_id: str) -> list[dict[str, Any]]:
    """The metrics of the first push that has any: franz-go leaves out what is zero."""
    for pushes in range(1, PUSHES_TRIED):
        cluster.telemetry.wait_for(client_id, pushes, timeout_s=PATIENCE_S)
        if points := read(cluster, client_id):
            return points
    raise AssertionError(f"nothing in {PUSHES_TRIED} pushes")


@pytest.mark.parametrize("work", ["produce", "consume"])
@pytest.mark.parametrize("client", [pytest.param(one, id=one.name) for one in CLIENTS if one.name in OTHERS])
def test_other_clients_push(anabranch: RunningCluster, client: Client, work: str) -> None:
    if client.absent:
        pytest.skip(f"TELEMETRY WAS NOT TRIED WITH {client.name}: {client.absent}")
    subscribe(anabranch, "all", f"org.apache.kafka.{work}r.")  # franz-go takes * for the beginning of a name
    topic, client_id = anabranch.topic(), OTHERS[client.name][work == "consume"]
    with client.run(work, servers=anabranch.bootstrap_servers, topic=topic, group="g", pace_ms=20) as driver:
        points = told_by(anabranch, client_id)
        assert all(one["name"].startswith(f"org.apache.kafka.{work}r.") for one in points)
        assert {one["temporality"] for one in points if one["kind"] == "sum"} <= {"delta"}
        anabranch.telemetry.wait_for(client_id, 3, timeout_s=PATIENCE_S)
        driver.stop()
    if (client.name, work) == ("java", "produce"):
        return  # its sender of 4.1 ends without a last push if nothing is under way
    (row,) = anabranch.telemetry.wait_for(client_id, terminated=True, timeout_s=PATIENCE_S)
    assert row["pushes"] >= 4 and not row["refused"]
