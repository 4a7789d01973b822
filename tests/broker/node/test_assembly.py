"""The parts of a node: frozen bundles that follow configuration changes."""

from __future__ import annotations

import dataclasses
import random

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.dispatch.services import Services
from anabranch.broker.membership.cluster_membership import ClusterMembership
from anabranch.broker.node.assembly import assemble
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tests.broker.replication.replica_cluster import replica_cluster


async def assembled(**settings: object) -> Services:
    session = await MemoryZooKeeper().connect()
    return assemble(
        BrokerSettings(port=0, **settings),  # type: ignore[arg-type]
        ClusterMembership(session),
        files=MemoryFiles(),
        cluster_id="c",
        rng=random.Random(1),
        clock_ms=lambda: 0,
        steady_ms=lambda: 0,
        failpoint=None,
        died=pytest.fail,
    )


async def test_services_are_frozen() -> None:
    services = await assembled()
    assert services.broker is not None
    for bundle in (services, services.broker):
        for field in dataclasses.fields(bundle):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(bundle, field.name, None)


async def test_settings_and_session_are_the_current_ones() -> None:
    services = await assembled()
    assert services.dynamic.update(own={"log.retention.ms": "5"})
    assert services.settings.log_retention_ms == 5
    services.membership.session = other = await MemoryZooKeeper().connect()
    assert services.session is other
    assert services.controller is None


async def test_coordinator_is_built_on_leadership_or_on_first_use() -> None:
    services = await assembled()
    broker = services.broker
    assert broker is not None
    listeners = broker.replicas._on_leader
    assert broker.groups.built is None
    assert broker.transactions.built is None
    for tell in list(listeners):
        tell(CONSUMER_OFFSETS_TOPIC, 0, 0)
    assert broker.groups.built is services.groups
    assert broker.transactions.built is None, "groups need none"
    for tell in list(listeners):
        tell(TRANSACTION_STATE_TOPIC, 0, 0)
    assert broker.transactions.built is not None
    assert services.transactions is broker.transactions.built
    await services.groups.stop()
    await services.transactions.stop()
    assembled_services = await assembled()
    assert assembled_services.transactions is assembled_services.transactions
    await assembled_services.transactions.stop()


async def test_controller_only_node_has_no_replicas_and_no_throttling() -> None:
    services = await assembled(roles=("controller",))
    assert services.broker is None and services.throttling is None
    with pytest.raises(AssertionError, match="only a controller candidate"):
        _ = services.replicas


async def test_group_coordinator_built_late_loads_the_partitions_its_broker_leads() -> None:
    async with replica_cluster(1) as cluster:
        broker = cluster[1].services.broker
        assert broker is not None
        broker.replicas._on_leader.clear()  # it hears of nothing, before it is asked for
        await cluster.lead(1, replicas=(1,), topic=CONSUMER_OFFSETS_TOPIC)
        assert broker.groups.built is None
        assert list(broker.groups.get().table.leadership.shards) == [0]
