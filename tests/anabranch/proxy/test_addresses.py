"""Only hosts and ports of brokers are rewritten, in every version; all other bytes stay."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.protocol import codec
from anabranch.protocol.apis.common_structs import NodeEndpoint as FetchEndpoint
from anabranch.protocol.apis.fetch import FetchResponse
from anabranch.protocol.apis.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from anabranch.protocol.apis.produce import ProduceResponse
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.connection import encode_response
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.registry import BY_KEY
from anabranch.protocol.wire import fields_of
from anabranch.proxy.addresses import NAMING, addresses_in, distinct, names_brokers, replace, surely_names_none
from tests.protocol.messages import as_sent, values_of

ANSWERS = [
    (BY_KEY[key], version)
    for key, first in NAMING.items()
    if key in BY_KEY
    for version in range(first, BY_KEY[key].last_version + 1)
]
OTHER = ("a-longer-name.of-another-host.example", 19092)


def frame_of(message: Any, version: int) -> bytes:
    api = BY_KEY[next(one.key for one in BY_KEY.values() if one.response is type(message))]
    return b"".join(encode_response(DecodedRequest(api, version, 7, None, None), message))[4:]


def moved(struct: Any, version: int) -> Any:
    """The same message with every broker elsewhere, made by walking over the objects."""
    made = copy.copy(struct)
    if hasattr(made, "port") and hasattr(made, "host") and made.port > 0 and made.host:
        made.host, made.port = OTHER
    for field in fields_of(type(struct)):
        if field.struct is not None and field.exists(version):
            inner = getattr(struct, field.name)
            if isinstance(inner, list):
                setattr(made, field.name, [moved(one, version) for one in inner])
            elif inner is not None:
                setattr(made, field.name, moved(inner, version))
    return made


@pytest.mark.parametrize("api", dict.fromkeys(api for api, _ in ANSWERS), ids=lambda api: api.name)
def test_only_broker_addresses_are_replaced(api: Any) -> None:
    @given(values_of(api.response))
    def check(any_answer: Any) -> None:
        for version in (version for one, version in ANSWERS if one is api):
            answer = as_sent(any_answer, version)
            frame = frame_of(answer, version)
            found = addresses_in(frame, api.key, version)
            made = replace(found, [OTHER] * len(found.addresses), version, api.key)
            assert made == frame_of(moved(answer, version), version), version
            if surely_names_none(api.key, frame):
                assert not [one for one in found.addresses[-1:] if 0 < one.port < 65536], f"{version}: the last has one"

    check()


@example(9216, None, "h")  # whose last byte is zero
@given(st.integers(1, 65535), st.none() | st.text(max_size=3), st.sampled_from(["h", "broker-1", ""]))
def test_response_with_broker_addresses_is_never_skipped(port: int, rack: str | None, host: str) -> None:
    there = [FetchEndpoint(node_id=1, host=host, port=port, rack=rack)]
    fetched = FetchResponse(responses=[], node_endpoints=there)
    assert not surely_names_none(1, frame_of(fetched, 17))
    produced = ProduceResponse(responses=[], node_endpoints=there)  # type: ignore[arg-type]  # alike
    assert not surely_names_none(0, frame_of(produced, 11))


def test_ordinary_responses_are_skipped() -> None:
    from tests.anabranch.faults.samples import by_name

    for name, key, version in (("Produce", 0, 11), ("Fetch", 1, 17)):
        answer = by_name(name, version).api.response
        made = copy.copy(next_sample(answer, version))
        made.node_endpoints = []
        assert surely_names_none(key, frame_of(made, version)), name


def next_sample(answer: type[Any], version: int) -> Any:
    import itertools

    from tests.anabranch.faults.samples import sample

    made = sample(answer, version, itertools.count(1))
    for topic in made.responses:
        for one in topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions:
            for field in fields_of(type(one)):
                if field.tag is not None:
                    setattr(one, field.name, field.absent_value())
    made.throttle_time_ms = 0
    return made


def test_metadata_is_parsed_only_to_its_brokers_and_unknown_tags_are_kept() -> None:
    topic = MetadataResponseTopic(error_code=0, name="t", topic_id=b"i" * 16, is_internal=False, partitions=[])
    brokers = [MetadataResponseBroker(node_id=one, host=f"b{one}", port=9000 + one) for one in (1, 2, 2)]
    frame = frame_of(MetadataResponse(brokers=brokers, topics=[topic]), 12)
    assert frame.endswith(b"\0") and frame[4] == 0
    odd = frame[:4] + b"\1\5\3abc" + frame[5:-1] + b"\1\x63\2hi"  # tags of others, in the header and at the end
    cut = odd[:-20]
    found = addresses_in(cut, 3, 12)
    assert [one[:3] for one in distinct(found)] == [(1, "b1", 9001), (2, "b2", 9002)]
    made = replace(addresses_in(odd, 3, 12), [("x", 1)] * 3, 12, 3)
    assert b"\3abc" in made and made.endswith(b"\1\x63\2hi") and b"b1" not in made


@pytest.mark.parametrize(("api", "version"), ANSWERS, ids=lambda one: getattr(one, "name", one))
def test_malformed_response_is_a_decode_error(api: Any, version: int) -> None:
    @given(st.binary(max_size=60))
    def check(data: bytes) -> None:
        try:
            addresses_in(data, api.key, version)
        except DecodeError:
            return

    check()
    with pytest.raises(DecodeError):
        addresses_in(b"\0\0\0\1\0" + b"\xff\xff\xff\x7f" * 3, 3, 12)


def test_only_some_apis_return_broker_addresses() -> None:
    assert names_brokers(3, 0) and names_brokers(1, 16) and names_brokers(0, 10) and names_brokers(78, 1)
    assert not names_brokers(1, 15) and not names_brokers(0, 9) and not names_brokers(18, 3)
    assert codec.encode(MetadataResponse(brokers=[], topics=[]), 0) == bytes(8)
