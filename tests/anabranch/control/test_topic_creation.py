"""A topic is created as soon as the earlier one of its name is deleted, and refused if it exists."""

from __future__ import annotations

import asyncio

import pytest

from anabranch import KafkaError, NewTopic
from anabranch.control.topic_creation import create_after_deletion
from anabranch.faults.rule import Rule
from tests.anabranch.control.conftest import controlled
from tests.anabranch.control.test_routes import ask


async def test_topic_is_created_when_brokers_have_deleted_the_logs_of_the_earlier_one() -> None:
    async with controlled(2) as on, asyncio.timeout(60):
        await ask(on, "create_topic", body={"topic": "orders"})
        rule = on.cluster.faults.add(Rule(api=("StopReplica",), between_brokers=True, delay_ms=(300,)))
        await ask(on, "delete_topic", topic="orders")
        made = await ask(on, "create_topic", body={"topic": "orders", "partitions": 3})
        assert rule.hits and len(made["partitions"]) == 3


async def test_deletion_that_takes_too_long_is_named_and_an_existing_topic_is_refused_at_once() -> None:
    async with controlled(2) as on, asyncio.timeout(60), on.admin() as admin:
        await ask(on, "create_topic", body={"topic": "orders"})
        with pytest.raises(KafkaError, match="'orders' already exists"):
            await create_after_deletion(admin, NewTopic(name="orders"), deletion_s=3600)
        on.cluster.faults.add(Rule(api=("StopReplica",), between_brokers=True, hold=True))
        await ask(on, "delete_topic", topic="orders")
        with pytest.raises(KafkaError, match="'orders' is marked for deletion"):
            await create_after_deletion(admin, NewTopic(name="orders"), deletion_s=0.1)
