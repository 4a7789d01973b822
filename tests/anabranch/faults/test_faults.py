"""Rules act on the sockets of a real cluster, across restarts of nodes; without rules nothing changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.broker.dispatch.dispatcher import Dispatcher
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.faults.active_rule import RuleNeverHit
from anabranch.faults.rule import Rule
from anabranch.faults.rule_json import InvalidRule
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.protocol.errors import ErrorCode
from tests.broker.serving import until


@asynccontextmanager
async def cluster(brokers: int = 1) -> AsyncIterator[Cluster]:
    async with Cluster(brokers, seed=1) as made, asyncio.timeout(60):
        yield made


@asynccontextmanager
async def connected(to: Cluster, node_id: int = 1, timeout_ms: int = 30000) -> AsyncIterator[Connection]:
    connection = await Connection.open(*to.address(node_id), client_id="app", request_timeout_ms=timeout_ms)
    try:
        yield connection
    finally:
        await connection.close()


async def groups(connection: Connection) -> int:
    answered: ListGroupsResponse = await connection.call(ListGroupsRequest(states_filter=[], types_filter=[]))
    return answered.error_code


async def test_producer_recovers_from_not_leader_error() -> None:
    async with cluster() as made, Admin(made.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="orders", partitions=3)])
        said = Rule(api=("Produce",), topic=("orders",), partition=(1,), error="NOT_LEADER_OR_FOLLOWER", times=2)
        with made.faults(said) as armed:
            async with Producer(made.bootstrap_servers) as producer:
                sent = [await producer.send("orders", b"x", partition=index) for index in range(3)]
                assert [(await one).offset for one in sent] == [0, 0, 0]
            assert armed.hits == 2
        assert len(made.faults) == 0


async def test_node_without_rules_has_its_own_dispatcher() -> None:
    async with cluster(brokers=2) as made:
        before = {node_id: node.server.dispatcher for node_id, node in made.nodes.items()}
        armed = made.faults.add(api="ListGroups", error="COORDINATOR_NOT_AVAILABLE", brokers=2, name="one")
        assert [type(node.server.dispatcher) is Dispatcher for node in made.nodes.values()] == [True, False]
        assert list(made.faults) == [armed] and made.faults.get("one") is armed
        made.faults.clear()
        assert {node_id: node.server.dispatcher for node_id, node in made.nodes.items()} == before


async def test_rule_applies_to_nodes_started_later() -> None:
    async with cluster(brokers=2) as made:
        await made.crash_broker(2)
        rule = made.faults.add(api="ListGroups", error="COORDINATOR_NOT_AVAILABLE", brokers=2)
        heard = []
        made.faults.on_hit(lambda armed, node_id, view: heard.append((armed, node_id, view.request.api.name)))
        await made.start_broker(2)
        async with connected(made, 2) as connection:
            assert await groups(connection) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            made.faults.remove(rule.rule.name)
            assert await groups(connection) == 0
        assert heard == [(rule, 2, "ListGroups")]


async def test_block_with_unhit_rule_fails_unless_optional() -> None:
    async with cluster() as made:
        with (
            pytest.raises(RuleNeverHit, match="rule rule-1 matched no request"),
            made.faults(api="Fetch", hold=True),
        ):
            pass
        with made.faults(api="Fetch", hold=True, optional=True) as rule:
            assert rule.rule.name == "rule-2"
        with pytest.raises(ZeroDivisionError), made.faults(api="Fetch", hold=True):
            raise ZeroDivisionError  # what went wrong first is told
        with made.faults(api="Fetch", hold=True, optional=True) as rule:
            made.faults.remove(rule.rule.name)
        assert len(made.faults) == 0


async def test_impossible_rule_is_refused() -> None:
    async with cluster() as made:
        with pytest.raises(InvalidRule, match="there is no broker 2; there are 1"):
            made.faults.add(api="Fetch", hold=True, brokers=2)
        with pytest.raises(InvalidRule, match="unknown listener 'SSL'; there are PLAINTEXT"):
            made.faults.add(api="Fetch", hold=True, listener="SSL")
        with pytest.raises(InvalidRule, match="Produce has no version 12-; served are 0-11"):
            made.faults.add(api="Produce", versions="12-", hold=True)  # a Kafka 3.9, as far as anybody sees
        with pytest.raises(InvalidRule, match="a Rule has all of its fields: set times there"):
            made.faults.add(Rule(hold=True), times=2)
        for unlike in ({"hold": True}, "hold"):
            with pytest.raises(InvalidRule, match="a rule is a Rule, or its fields"):
                made.faults.add(unlike)  # type: ignore[arg-type]
        made.faults.add(Rule(name="mine", hold=True))
        with pytest.raises(InvalidRule, match="rule mine already exists"):
            made.faults.add(Rule(name="mine", hold=True))
        made.faults.add(Rule(name="rule-1", hold=True))
        assert made.faults.add(Rule(silence=True)).rule.name == "rule-4"


async def test_client_falls_back_to_the_oldest_version_when_a_rule_refuses_the_newer_ones() -> None:
    async with cluster() as made:
        with made.faults(api="ApiVersions", versions="1-", error="UNSUPPORTED_VERSION") as rule:
            async with connected(made) as connection:
                assert await groups(connection) == 0
            assert rule.hits == 1


async def test_request_is_held_until_released() -> None:
    async with cluster() as made, connected(made) as connection:
        rule = made.faults.add(api="ListGroups", hold=True)
        asking = asyncio.create_task(groups(connection))
        await rule.wait_hit()
        assert rule.held == 1 and not asking.done()
        rule.release()
        assert await asking == 0


async def test_silence_lasts_as_long_as_its_connection() -> None:
    async with cluster() as made:
        rule = made.faults.add(api="ListGroups", silence=True, times=1)
        async with connected(made) as silent, connected(made) as other:
            asking = asyncio.create_task(groups(silent))
            await rule.wait_hit()
            behind = asyncio.create_task(silent.call(MetadataRequest(topics=[])))
            assert await groups(other) == 0, "another connection is served"
            assert not asking.done() and not behind.done() and not silent.closed
            server = made.nodes[1].server
            count = server.connection_count
            await silent.close()
            await asyncio.gather(asking, behind, return_exceptions=True)
            await until(lambda: server.connection_count < count)


@pytest.mark.parametrize("said", [{"silence": True}, {"half_open": True}, {"hold": True}])
async def test_node_stops_with_pending_response(said: dict[str, bool]) -> None:
    async with cluster() as made, connected(made) as connection:
        rule = made.faults.add(api="ListGroups", **said)
        asking = asyncio.create_task(groups(connection))
        await rule.wait_hit()
        await made.crash_broker(1)
        with pytest.raises(ConnectionError):
            await asking


async def test_half_open_connection_is_reset_with_its_rule() -> None:
    async with cluster() as made, connected(made) as connection:
        rule = made.faults.add(api="ListGroups", half_open=True)
        asking = asyncio.create_task(groups(connection))
        await rule.wait_hit()
        await asyncio.sleep(0)
        made.faults.clear()
        with pytest.raises(ConnectionError):
            await asking


@pytest.mark.parametrize(
    "said",
    [
        {"disconnect": "before"},
        {"disconnect": "after"},
        {"disconnect": "middle"},
        {"wrong_correlation_id": True},
        {"truncate": 3},
    ],
)
async def test_damaged_response_closes_connection_and_next_one_is_served(said: dict[str, object]) -> None:
    async with cluster() as made:
        made.faults.add(api="ListGroups", times=1, **said)
        async with connected(made) as connection:
            with pytest.raises(ConnectionError):
                await groups(connection)
        async with connected(made) as connection:
            assert await groups(connection) == 0


async def test_slow_response_and_later_ones_arrive() -> None:
    async with cluster() as made, connected(made) as connection:
        rule = made.faults.add(api="FindCoordinator", drip=4000, times=1)
        first = connection.send(FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g"]))
        second = connection.send(ListGroupsRequest(states_filter=[], types_filter=[]))
        assert (await first) is not None and (await second).error_code == 0 and rule.hits == 1


async def test_delay_does_not_block_other_connections() -> None:
    async with cluster() as made, connected(made) as slow, connected(made) as fast:
        made.faults.add(api="ListGroups", delay_ms=[200, 300], times=1)
        asking = asyncio.create_task(groups(slow))
        await next(iter(made.faults)).wait_hit()
        assert await groups(fast) == 0 and not asking.done()
        assert await asking == 0


async def test_stale_metadata_rule_keeps_metadata_of_broker() -> None:
    async with cluster(brokers=2) as made, Admin(made.bootstrap_servers) as admin:
        stale = made.faults.add(brokers=2, stale_metadata=True)
        clients = made.faults.add(api="CreateTopics", throttle_ms=1)
        known = [made.nodes[node_id].services.metadata for node_id in (1, 2)]
        for topic in ("orders", "payments"):
            await admin.create_topics([NewTopic(name=topic, partitions=2, replication_factor=1)])
            assert await known[0].wait_until(lambda image, topic=topic: topic in image.topics, 60000)  # type: ignore[misc]
        assert stale.hits >= 2 and not known[1].image.topics
        assert {"orders", "payments"} <= {
            topic
            for topic in ("orders", "payments")
            if made.nodes[2].services.replicas.replica(topic, 0) or made.nodes[2].services.replicas.replica(topic, 1)
        }, "it is told of its replicas all the same"
        stale.release()
        assert await known[1].wait_until(lambda image: len(image.topics) == 2, 60000)
        assert clients.hits, "what clients ask is another matter"
        await admin.create_topics([NewTopic(name="returns", partitions=1, replication_factor=1)])
        assert await known[1].wait_until(lambda image: len(image.topics) == 3, 60000), "and hears of what comes"


async def test_stale_metadata_ends_with_the_hits_of_its_rule() -> None:
    """What was held back came at the removal, over everything newer."""
    async with cluster(brokers=2) as made, Admin(made.bootstrap_servers) as admin:
        known = made.nodes[2].services.metadata
        stale = made.faults.add(brokers=2, stale_metadata=True, times=1)
        await admin.create_topics([NewTopic(name="orders", partitions=1, replication_factor=1)])
        await stale.wait_hit()
        assert not known.image.topics
        await admin.create_topics([NewTopic(name="payments", partitions=1, replication_factor=1)])
        assert await known.wait_until(lambda image: len(image.topics) == 2, 60000)


async def test_stale_metadata_ends_with_the_time_of_its_rule() -> None:
    async with cluster(brokers=2) as made, Admin(made.bootstrap_servers) as admin:
        known = made.nodes[2].services.metadata
        made.faults.add(brokers=2, stale_metadata=True, until="1s")
        await admin.create_topics([NewTopic(name="orders", partitions=1, replication_factor=1)])
        assert await known.wait_until(lambda image: "orders" in image.topics, 60000)


@pytest.mark.parametrize(
    "said",
    [
        {"api": "Fetch", "topic": "orders", "hold": True, "between_brokers": True},
        {"api": "Fetch", "topic": "orders", "error": "NOT_LEADER_OR_FOLLOWER", "between_brokers": True},
        {"link": ["1:2", "2:1"], "hold": True},
        {"api": "Fetch", "link": ["1:2"], "silence": True},
    ],
    ids=["held", "refused", "cut off", "answers lost"],
)
async def test_follower_with_dropped_fetches_leaves_isr_and_returns(said: dict[str, Any]) -> None:
    properties = {
        "replica.lag.time.max.ms": "300",
        "replica.fetch.backoff.ms": "50",
    }
    async with Cluster(2, seed=1, properties=properties) as made, asyncio.timeout(60):
        async with Admin(made.bootstrap_servers) as admin:
            await admin.create_topics(
                [NewTopic(name="orders", assignments={0: [1, 2]}), NewTopic(name="u", assignments={0: [1, 2]})]
            )
            for topic in ("orders", "u"):
                await admin.wait_for_topic(topic, replicas=2)

        def isr(topic: str = "orders") -> int:
            image = made.nodes[1].services.replicas.replica(topic, 0)
            return 0 if image is None else len(image.isr)

        async def produced(topic: str, acks: Any) -> None:
            async with Producer(made.bootstrap_servers, acks=acks) as producer:
                await producer.send_and_wait(topic, b"x")

        await produced("orders", "all")
        await until(lambda: isr() == 2)
        with made.faults(**said) as rule:
            await produced("orders", 1)
            await rule.wait_hit()
            await produced("orders", 1)
            await until(lambda: isr() == 1)
            if said.get("error"):
                await produced("u", "all")
                assert isr("u") == 2, "what is not meant is replicated"
            if said.get("silence"):
                rule.release()
        if not said.get("silence"):  # its connection is silent until its request's time is up
            await until(lambda: isr() == 2)
            await produced("orders", "all")


async def test_link_has_two_directions() -> None:
    async with cluster(brokers=2) as made, Admin(made.bootstrap_servers) as admin:
        controller = next(one for one, node in made.nodes.items() if node.controller and node.controller.active)
        other = 3 - controller
        requests = made.faults.add(link=f"{controller}:{other}", api="UpdateMetadata", delay_ms=1)
        answers = made.faults.add(link=f"*:{controller}", api="UpdateMetadata", delay_ms=1)
        elsewhere = made.faults.add(link=f"{other}:*", api="LeaderAndIsr", brokers=other, hold=True)
        await admin.create_topics([NewTopic(name="orders", assignments={0: [other]})])
        await elsewhere.wait_hit()
        await until(lambda: made.nodes[other].services.replicas.replica("orders", 0))  # done; the answer is on its way
        elsewhere.release()
        await requests.wait_hit()
        await answers.wait_hit()


async def test_rules_kill_brokers_and_expire_sessions() -> None:
    async with cluster(brokers=3) as made:
        killing = made.faults.add(api="ListGroups", node="kill", brokers=2)
        stopping = made.faults.add(api="ListGroups", node="stop", brokers=3)
        async with connected(made, 2) as second, connected(made, 3) as third:
            asked = [asyncio.create_task(groups(second)) for _ in range(2)]
            done = await asyncio.gather(*asked, return_exceptions=True)
            assert all(isinstance(one, ConnectionError) for one in done) and killing.hits >= 1
            await until(lambda: 2 not in made.nodes)
            assert await groups(third) == 0 and stopping.hits == 1
            await until(lambda: list(made.nodes) == [1])
        made.faults.clear()
        await made.start_broker(2)
        before = made.nodes[1].services.session
        made.faults.add(api="ListGroups", node="expire", times=1)
        async with connected(made, 1) as connection:
            assert await groups(connection) == 0
        await until(lambda: made.nodes[1].services.session is not before)


async def test_broker_killed_after_work_has_stored_records() -> None:
    async with cluster(brokers=3) as made, Admin(made.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="orders", partitions=1)])
        await admin.wait_for_topic("orders", replicas=3)
        rule = made.faults.add(api="Produce", topic="orders", after=2, times=1, node="kill", after_work=True)
        async with Producer(made.bootstrap_servers) as producer:
            sent = [(await producer.send_and_wait("orders", b"x")).offset for _ in range(4)]
        assert sent == [0, 1, 2, 3] and rule.hits == 1 and len(made.nodes) == 2


async def test_rule_applies_while_another_does() -> None:
    async with cluster() as made, connected(made) as connection:
        first = made.faults.add(name="first", api="Metadata", throttle_ms=1, times=1)
        second = made.faults.add(api="ListGroups", error="COORDINATOR_NOT_AVAILABLE", while_rule="first")
        assert await groups(connection) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await connection.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        assert first.spent and await groups(connection) == 0
        assert second.hits == 1
