"""Cached rows of Metadata responses are valid exactly as long as the image is unchanged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.broker.handlers.metadata import hidden_row, metadata
from anabranch.broker.metadata.metadata_rows import GONE_MAX, MetadataRows
from anabranch.protocol import codec, layout
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.wire import ZERO_UUID, EncodedElements
from tests.broker.serving import lone_services
from tests.broker.test_metadata_handlers import IMAGE, SETTINGS, TOPICS, context

PLAIN = "PLAINTEXT"


def test_row_is_cached_per_topic_listener_and_version() -> None:
    rows = MetadataRows()
    first = rows.row(IMAGE, TOPICS["t"], PLAIN, 12, generation_aware=True)
    assert rows.row(replace(IMAGE, brokers=dict(IMAGE.brokers)), TOPICS["t"], PLAIN, 6, generation_aware=True) is first
    assert [one.error_code for one in first.partitions] == [0, 5, 5]
    elsewhere = rows.row(IMAGE, TOPICS["t"], "ANOTHER", 12, generation_aware=True)
    assert [one.error_code for one in elsewhere.partitions] == [ErrorCode.LISTENER_NOT_FOUND, 5, 5]
    old = rows.row(IMAGE, TOPICS["t"], PLAIN, 0, generation_aware=True)
    assert (old.partitions[0].replica_nodes, first.partitions[0].replica_nodes) == ([1, 2], [1, 2, 9])
    assert rows.row(IMAGE, TOPICS["t"], PLAIN, 12, generation_aware=True) is first


def test_rows_for_stock_clients_have_no_generations() -> None:
    rows = MetadataRows()
    ours = rows.row(IMAGE, TOPICS["t"], PLAIN, 12, generation_aware=True)
    stock = rows.row(IMAGE, TOPICS["t"], PLAIN, 12, generation_aware=False)
    assert (ours.generation, ours.partitions[0].partition_epoch) == (2, 7)
    assert (stock.generation, stock.history, stock.base, stock.min_insync_replicas) == (-1, [], -1, -1)
    assert {(one.partition_epoch, len(one.gen_start)) for one in stock.partitions} == {(-1, 0)}
    assert rows.row(IMAGE, TOPICS["t"], PLAIN, 9, generation_aware=False) is stock
    assert rows.row(IMAGE, TOPICS["t"], PLAIN, 9, generation_aware=True) is ours


def test_row_is_rebuilt_when_its_topic_or_brokers_change() -> None:
    rows = MetadataRows()
    before = rows.row(IMAGE, TOPICS["t"], PLAIN, 12, generation_aware=True)
    moved = replace(TOPICS["t"], partitions={0: replace(TOPICS["t"].partitions[0], leader=2)})
    assert [one.leader_id for one in rows.row(IMAGE, moved, PLAIN, 12, generation_aware=True).partitions] == [2]
    fewer = replace(IMAGE, brokers={2: IMAGE.brokers[2]})
    assert rows.row(fewer, TOPICS["t"], PLAIN, 12, generation_aware=True).partitions[0].leader_id == -1
    assert rows.row(IMAGE, TOPICS["t"], PLAIN, 12, generation_aware=True) == before


def test_rows_of_brokers_are_cached_per_listener_until_the_live_brokers_change() -> None:
    rows = MetadataRows()
    first = rows.broker_rows(IMAGE, PLAIN)
    assert [one.node_id for one in first] == [*IMAGE.brokers]
    assert rows.broker_rows(replace(IMAGE, brokers=dict(IMAGE.brokers)), PLAIN) is first
    assert rows.broker_rows(IMAGE, "ANOTHER") == []
    fewer = replace(IMAGE, brokers={2: IMAGE.brokers[2]})
    assert [one.node_id for one in rows.broker_rows(fewer, PLAIN)] == [2]
    moved = replace(IMAGE, brokers={2: replace(IMAGE.brokers[2], endpoints={PLAIN: ("elsewhere", 1)})})
    assert [(one.host, one.port) for one in rows.broker_rows(moved, PLAIN)] == [("elsewhere", 1)]


def test_number_of_cached_rows_of_deleted_topics_is_bounded() -> None:
    rows = MetadataRows()
    image = replace(IMAGE, topics={})
    for number in range(3 * GONE_MAX):
        rows.row(image, replace(TOPICS["t"], name=f"t-{number}"), PLAIN, 12, generation_aware=True)
    assert max(len(kept) for kept in rows._topics.values()) <= GONE_MAX + 1


@pytest.mark.parametrize("aware", [False, True])
@pytest.mark.parametrize("version", range(14))
async def test_response_from_cached_bytes_equals_the_one_from_its_rows(version: int, aware: bool) -> None:
    services = await lone_services(SETTINGS)
    services.metadata.image = IMAGE
    names: list[str | None] = ["t", "missing", "u", "t"]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], generation_aware=aware)
    for image in (IMAGE, IMAGE, replace(IMAGE, topics={**TOPICS, "t": replace(TOPICS["t"], partitions={})})):
        services.metadata.image = image
        response = await metadata(context(services, version), request)
        assert type(response.topics) is EncodedElements
        assert response.topics[0].partitions == [] or image is IMAGE
        plain = replace(response, topics=list(response.topics))
        assert codec.encode(response, version) == codec.encode(plain, version) == layout.encode(plain, version)


def test_row_that_is_no_longer_cached_is_sent_as_it_is() -> None:
    rows = MetadataRows()
    before = rows.row(IMAGE, TOPICS["t"], PLAIN, 12, generation_aware=True)
    after = rows.row(IMAGE, replace(TOPICS["t"], generation=9), PLAIN, 12, generation_aware=True)
    for row in (before, hidden_row("t", ZERO_UUID), after):
        encoded = rows.encoded([row], PLAIN, 12, generation_aware=True).encoded
        assert encoded == codec.encode(row, 12)


async def test_rows_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    services = await lone_services(SETTINGS)
    services.metadata.image = IMAGE
    first = await metadata(context(services, 12), MetadataRequest(topics=None))
    with monkeypatch.context() as patched:
        patched.setattr(codec, "encode", None)
        again = await metadata(context(services, 12), MetadataRequest(topics=None))
    assert codec.encode(again, 12) == codec.encode(first, 12)


async def test_authorized_operations_of_a_client_are_not_cached_for_another() -> None:
    services = await lone_services(SETTINGS)
    services.metadata.image = IMAGE
    mine = await metadata(context(services, 12), MetadataRequest(topics=None, include_topic_authorized_operations=True))
    others = await metadata(context(services, 12), MetadataRequest(topics=None))
    authorized = {topic.topic_authorized_operations for topic in mine.topics}
    assert authorized != {topic.topic_authorized_operations for topic in others.topics} == {-(1 << 31)}
