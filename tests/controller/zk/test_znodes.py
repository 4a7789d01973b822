"""Znodes are compatible with stock tools, and malformed ones are reported."""

from __future__ import annotations

import json

import pytest

from anabranch.controller.model import Broker, Endpoint, LeaderAndIsr, Plan, Retired, TopicBody
from anabranch.controller.zk import znodes
from anabranch.controller.zk.body import MalformedZnode
from anabranch.protocol.wire import ZERO_UUID

UUID = bytes(range(16))
RESIZED = TopicBody(
    topic_id=UUID,
    assignment={0: (1, 2, 3), 1: (2, 3, 1), 10: (3, 1, 2)},
    adding_replicas={0: (4,)},
    removing_replicas={0: (1,), 1: ()},
    initial_partition_count=2,
    undeleted_partition_count=2,
    base=1,
    generation=3,
    history=((0, 2), (1, 3), (3, 2)),
    plan=Plan(generation=4, before=2, after=6),
    retired={7: Retired(leader_epoch=5, end_offset=99, gen_start=((0, 0), (2, 4)))},
)
SEALED = LeaderAndIsr(
    leader=-1,
    leader_epoch=5,
    isr=(1, 2),
    controller_epoch=3,
    leader_recovery_state=1,
    generation=2,
    gen_start=((0, 0), (2, 5)),
    sealed=True,
    leader_epoch_after_creation=((0, 4),),
    leader_epoch_before_deletion=((1, 2), (3, 7)),
)


def test_topic_survives_the_round_trip() -> None:
    again = znodes.decode_topic("/brokers/topics/t", znodes.encode_topic(RESIZED))
    assert again == TopicBody(**{**fields_of(RESIZED), "removing_replicas": {0: (1,)}})  # empty lists are not written


def test_topic_has_the_fields_of_kafka_version_3() -> None:
    body = json.loads(znodes.encode_topic(RESIZED))
    assert body["version"] == 3
    assert body["topic_id"] == "AAECAwQFBgcICQoLDA0ODw"
    assert body["partitions"] == {"0": [1, 2, 3], "1": [2, 3, 1], "10": [3, 1, 2]}
    assert (body["adding_replicas"], body["removing_replicas"]) == ({"0": [4]}, {"0": [1]})
    assert body["plan"] == {"generation": 4, "from": 2, "to": 6}
    idle = json.loads(znodes.encode_topic(TopicBody(assignment={0: (1,)})))
    assert (idle["adding_replicas"], idle["removing_replicas"]) == ({}, {})  # version 3 always has both
    assert "plan" not in idle


@pytest.mark.parametrize(
    ("stock", "topic_id"),
    [
        ('{"version":1,"partitions":{"1":[2],"0":[1]}}', ZERO_UUID),
        ('{"partitions":{"0":[1],"1":[2]},"version":2,"adding_replicas":{},"removing_replicas":{}}', ZERO_UUID),
        ('{"version":3,"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"0":[1],"1":[2]},"later":[{}]}', UUID),
    ],
)
def test_stock_tool_topic_has_default_fields(stock: str, topic_id: bytes) -> None:
    body = znodes.decode_topic("/brokers/topics/t", stock.encode())
    assert body == TopicBody(topic_id=topic_id, assignment={0: (1,), 1: (2,)})
    assert list(body.assignment) == [0, 1]


def test_partition_state_survives_the_round_trip() -> None:
    path = "/brokers/topics/t/partitions/0/state"
    assert znodes.decode_partition_state(path, znodes.encode_partition_state(SEALED)) == SEALED
    body = json.loads(znodes.encode_partition_state(SEALED))
    assert body["leaderEpochAfterCreation"] == {"0": 4}
    assert body["leaderEpochBeforeDeletion"] == {"1": 2, "3": 7}
    assert body["leader_recovery_state"] == 1


def test_stock_controller_state_has_generation_0() -> None:
    stock = b'{"version":1,"leader":1,"leader_epoch":5,"controller_epoch":3,"isr":[1,2]}'
    state = znodes.decode_partition_state("/s", stock)
    assert state == LeaderAndIsr(leader=1, leader_epoch=5, isr=(1, 2), controller_epoch=3)
    assert "leader_recovery_state" not in json.loads(znodes.encode_partition_state(state))  # absent means recovered


def test_broker_survives_the_round_trip() -> None:
    broker = Broker(7, 42, (Endpoint("INTERNAL", "::1", 9092), Endpoint("OUT", "b7.example", 19092, "SSL")), rack="a")
    data = znodes.encode_broker(broker, timestamp_ms=123)
    assert znodes.decode_broker("/brokers/ids/7", data, czxid=42) == broker
    body = json.loads(data)
    assert (body["version"], body["host"], body["port"], body["timestamp"]) == (5, "::1", 9092, "123")
    assert body["endpoints"] == ["INTERNAL://[::1]:9092", "OUT://b7.example:19092"]
    assert body["listener_security_protocol_map"] == {"INTERNAL": "PLAINTEXT", "OUT": "SSL"}
    plain = json.loads(znodes.encode_broker(Broker(7, 42, ()), timestamp_ms=0))
    assert (plain["host"], plain["port"], "rack" in plain) == (None, -1, False)


def test_broker_of_version_1_has_one_plaintext_endpoint() -> None:
    data = b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1"}'
    assert znodes.decode_broker("/brokers/ids/3", data, czxid=9) == Broker(3, 9, (Endpoint("PLAINTEXT", "h", 9092),))


def test_controller_may_be_a_node_without_broker() -> None:
    body = znodes.ControllerBody(4, "127.0.0.1", 9096, 1700000000000)
    assert znodes.decode_controller("/controller", znodes.encode_controller(body)) == body
    stock = b'{"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}'
    assert znodes.decode_controller("/controller", stock) == znodes.ControllerBody(1, "", -1, 1700000000000)
    assert znodes.decode_controller_epoch("/controller_epoch", znodes.encode_controller_epoch(7)) == 7


def test_small_bodies_survive_the_round_trip() -> None:
    config = {"min.insync.replicas": "2", "odd": "\u00e4"}
    assert znodes.decode_config("/config/topics/t", znodes.encode_config(config)) == config
    assert znodes.decode_config("/config/topics/t", b"") == {}
    assert znodes.encode_cluster_id("abc") == b'{"version":"1","id":"abc"}'
    assert znodes.decode_cluster_id("/cluster/id", b'{"version":"1","id":"abc"}') == "abc"
    assert znodes.decode_feature("/feature", znodes.encode_feature({"resize": 1})) == {"resize": 1}
    assert znodes.decode_feature("/feature", b'{"version":2,"status":0,"features":{}}') == {}
    block = znodes.ProducerIdBlock(1, 2000, 2999)
    assert json.loads(znodes.encode_producer_id_block(block))["block_start"] == "2000"
    assert znodes.decode_producer_id_block("/p", znodes.encode_producer_id_block(block)) == block
    assert znodes.decode_producer_id_block("/p", b"") is None
    assert znodes.decode_config_change("/c", znodes.encode_config_change("topics/t")) == "topics/t"


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "not JSON"),
        (b"\xff{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "the body should be a JSON object, not [1]"),
        (b"{}", "partitions should be there, not null"),
        (b'{"partitions":{"0":[1,"2"]}}', 'partitions.0 should be a list of integers, not [1, "2"]'),
        (b'{"partitions":{"x":[1]}}', 'partitions should be keyed by partition numbers, not "x"'),
        (b'{"partitions":{},"generation":true}', "generation should be an integer, not true"),
        (b'{"partitions":{},"topic_id":"short"}', 'topic_id should be a 22-character id, not "short"'),
        (b'{"partitions":{},"history":[[0,1,2]]}', "history should be a list of pairs of integers, not [[0, 1, 2]]"),
        (b'{"partitions":{},"history":[[1,4],[1,6]]}', "history should be a list of increasing pairs"),
        (b'{"partitions":{},"plan":{"generation":1,"to":6}}', "plan.from should be an integer, not null"),
        (
            b'{"partitions":{},"retired":{"3":{"leader_epoch":1}}}',
            "retired.3.end_offset should be an integer, not null",
        ),
    ],
)
def test_malformed_topic_is_named_with_its_field(data: bytes, complaint: str) -> None:
    with pytest.raises(MalformedZnode) as raised:
        znodes.decode_topic("/brokers/topics/t", data)
    assert str(raised.value).startswith("/brokers/topics/t: ")
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b'{"endpoints":"x"}', "endpoints should be a list"),
        (b'{"endpoints":["PLAINTEXT:/h:1"]}', 'endpoints should be LISTENER://host:port, not "PLAINTEXT:/h:1"'),
        (b'{"host":null,"port":1}', "host should be a string, not null"),
    ],
)
def test_malformed_broker_is_named_with_its_field(data: bytes, complaint: str) -> None:
    with pytest.raises(MalformedZnode, match="/brokers/ids/1: ") as raised:
        znodes.decode_broker("/brokers/ids/1", data, czxid=1)
    assert complaint in str(raised.value)


def test_other_malformed_bodies_are_refused() -> None:
    with pytest.raises(MalformedZnode, match=r"/controller_epoch: should be a decimal number, not b'x'"):
        znodes.decode_controller_epoch("/controller_epoch", b"x")
    with pytest.raises(MalformedZnode, match=r"block_end should be an integer in a string, not null"):
        znodes.decode_producer_id_block("/p", b'{"broker":1,"block_start":"0"}')
    with pytest.raises(ValueError, match="22-character id"):
        znodes.uuid_from_text("AAECAwQFBgcICQoLDA0OD*")


def fields_of(body: TopicBody) -> dict[str, object]:
    return {name: getattr(body, name) for name in TopicBody.__dataclass_fields__}
