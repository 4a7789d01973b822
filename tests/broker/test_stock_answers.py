"""Responses to stock clients have no additional tagged fields, also after a resize (D27)."""

from __future__ import annotations

import json

from anabranch.clients.connection import Connection
from anabranch.clients.group_admin import describe_group
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.describe_groups import DescribeGroupsRequest
from anabranch.protocol.apis.metadata import MetadataRequest
from tests.broker import stock_answers
from tests.broker.coordinators.gated_orders import orders
from tests.broker.coordinators.stock_members import GROUP, StockMember
from tests.protocol.messages import own_tags


async def test_responses_to_stock_requests_for_a_resized_topic_equal_the_recorded_ones() -> None:
    recorded = json.loads(stock_answers.FILE.read_text())
    answered = await stock_answers.all_answers()
    assert list(answered) == list(recorded)
    assert not [name for name, frame in answered.items() if frame != recorded[name]]


async def test_resized_topic_metadata_has_generations_for_generation_aware_clients_only() -> None:
    async with Cluster(1) as cluster:
        await stock_answers.resized_topic(cluster)
        host, port = cluster.address(1)
        connection = await Connection.open(host, port, client_id="t")
        for version in range(9, 13):
            stock = await connection.call(MetadataRequest(topics=None), version=version)
            assert not list(own_tags(stock, version))
            aware = await connection.call(MetadataRequest(topics=None, generation_aware=True), version=version)
            found = set(own_tags(aware, version))
            assert {2531, 2533, 2536, 2537, 2538, 2540} <= found, found
        await connection.close()


async def test_described_groups_have_gates_for_generation_aware_clients_only() -> None:
    async with orders() as (cluster, admin, _):
        member = StockMember(admin, holds_gates=False)
        await member.take_part()
        await admin.create_partitions("orders", 2)
        await member.take_part()
        assert (await describe_group(admin.network, GROUP)).withheld
        host, port = cluster.address(1)
        connection = await Connection.open(host, port, client_id="t")
        stock = await connection.call(DescribeGroupsRequest(groups=[GROUP]), version=5)
        assert stock.groups[0].members
        assert not list(own_tags(stock, 5))
        aware = await connection.call(DescribeGroupsRequest(groups=[GROUP], generation_aware=True), version=5)
        assert 2546 in set(own_tags(aware, 5))
        await connection.close()
