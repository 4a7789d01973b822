"""Any message becomes JSON with the fields of its version; records become headers."""

from __future__ import annotations

import json

from anabranch.journal.plain import holds_records, plain, records, records_bytes, without_records
from anabranch.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from anabranch.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.registry import BY_NAME
from tests.anabranch.faults.samples import request_of, served


def test_every_message_is_converted_to_json() -> None:
    for api, version in served():
        request = request_of(api, version)
        fields = plain(request.body, version)
        assert json.loads(json.dumps(fields)) == fields


def test_message_without_records_is_converted_as_with_them_and_is_not_changed() -> None:
    builder = BatchBuilder()
    builder.append(b"key", b"value", (), 1)
    partition = PartitionProduceData(index=3, records=builder.build())
    message = ProduceRequest(acks=1, timeout_ms=5, topic_data=[TopicProduceData(name="a", partition_data=[partition])])
    stripped = without_records(message)
    assert plain(stripped, 9) == plain(message, 9)
    assert stripped != message and records_bytes(message) == len(builder.build())


def test_fields_are_those_of_the_version() -> None:
    message = MetadataRequest(topics=[MetadataRequestTopic(name="a")])
    assert plain(message, 1) == {"topics": [{"name": "a"}]}
    fields = plain(message, 10)
    assert fields["topics"] == [{"topic_id": "AAAAAAAAAAAAAAAAAAAAAA", "name": "a"}]
    assert fields["allow_auto_topic_creation"] is True
    assert plain(MetadataRequest(topics=None), 1) == {"topics": None}


def test_long_bytes_are_truncated() -> None:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"a" * 100)
    message = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="", protocol_type="consumer", protocols=[protocol]
    )
    assert plain(message, 0)["protocols"] == [{"name": "range", "metadata": {"bytes": 100, "hex": "61" * 64}}]


def test_records_have_count_and_producer() -> None:
    builder = BatchBuilder()
    for _ in range(3):
        builder.append(b"key", b"value", (), 1)
    batch = builder.build()
    assert records(batch) == {
        "bytes": len(batch), "base_offset": 0, "records": 3, "producer_id": -1, "producer_epoch": -1,
        "base_sequence": -1, "transactional": False,
    }  # fmt: skip
    assert records(b"") == {"bytes": 0} and records(b"\0" * 61) == {"bytes": 61}
    assert holds_records(ProduceRequest) and holds_records(BY_NAME["Fetch"].response)
    assert not holds_records(MetadataRequest)


def test_secrets_are_hidden() -> None:
    """Also in the text of a message, which a handler's bug may log."""
    changes = {"retention.ms": "1", "ssl.keystore.password": "mellon", "sasl.jaas.config": "deux", "unknown": "three"}
    changes |= {"listener.name.a.plain.sasl.jaas.config": "quatre", "num.network.threads": "5"}
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=4,
                resource_name="1",
                configs=[AlterableConfig(name=name, config_operation=0, value=one) for name, one in changes.items()],
            )
        ],
        validate_only=False,
    )
    values = {one["name"]: one["value"] for one in plain(request, 1)["resources"][0]["configs"]}
    assert {name for name, one in values.items() if one == {"secret": True}} == changes.keys() - {
        "retention.ms",
        "num.network.threads",
    }
    assert values["retention.ms"] == "1"
    assert plain(SaslAuthenticateRequest(auth_bytes=b"opensesame"), 2) == {"auth_bytes": {"secret": True}}
    shown = repr(request) + repr(SaslAuthenticateRequest(auth_bytes=b"opensesame"))
    assert not any(one in shown for one in ("mellon", "deux", "quatre", "opensesame"))
