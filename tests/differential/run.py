"""Runs Apache Kafka and Anabranch side by side, each with a ZooKeeper and brokers."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence
from typing import Final

import tests.differential.corpus  # noqa: F401  # fills CASES
from anabranch.broker.config.broker_settings import BrokerSettings, property_name
from anabranch.cluster.processes import ProcessCluster
from tests.differential import telemetry_receiver
from tests.differential.case import CASES, Answer, Case
from tests.differential.compare import Comparison, compare
from tests.differential.kafka_server import KafkaCluster
from tests.differential.kraft_server import KraftCluster
from tests.differential.replay import CLUSTER, replay

log: Final = logging.getLogger(__name__)


def selected(names: Sequence[str]) -> list[Case]:
    """The cases of these APIs, with these names, or for so many brokers; all without a name."""
    return [case for case in CASES if not names or not {case.api, case.id, str(case.brokers)}.isdisjoint(names)]


async def compared(cases: Sequence[Case], kafka: str = "3.9") -> Comparison:
    """Replay on both, at the same time; clusters are shared by the cases that want the same number of brokers."""
    cases = [case for case in cases if case.versions_of(kafka)]
    if reason := telemetry_receiver.why_absent():
        log.warning("TELEMETRY IS NOT COMPARED: %s", reason)
        cases = [case for case in cases if not takes_telemetry(case)]
    theirs_all: list[Answer] = []
    ours: list[Answer] = []
    for brokers, telemetry in sorted({(case.brokers, takes_telemetry(case)) for case in cases}):
        part = [case for case in cases if (case.brokers, takes_telemetry(case)) == (brokers, telemetry)]
        theirs, own = await asyncio.gather(
            answers_of_kafka(part, brokers, kafka, telemetry=telemetry),
            answers_of_ours(part, brokers, kafka, telemetry=telemetry),
        )
        theirs_all += theirs
        ours += own
    return compare(theirs_all, ours)


def takes_telemetry(case: Case) -> bool:
    """Whether it is for clusters that take metrics of clients."""
    return case.api in telemetry_receiver.APIS


async def answers_of_kafka(cases: Sequence[Case], brokers: int, kafka: str, *, telemetry: bool) -> list[Answer]:
    """What Kafka answers."""
    if kafka < "4":
        cluster: KafkaCluster | KraftCluster = KafkaCluster(brokers, properties=CLUSTER)
    else:
        cluster = KraftCluster(brokers, properties=CLUSTER, telemetry=telemetry)
    async with cluster:
        return await replay(cases, cluster.addresses, "Kafka", kafka)


async def answers_of_ours(cases: Sequence[Case], brokers: int, kafka: str, *, telemetry: bool) -> list[Answer]:
    """What Anabranch answers."""
    known = {property_name(field.name) for field in dataclasses.fields(BrokerSettings)}
    properties = {name: value for name, value in CLUSTER.items() if name in known}
    if telemetry:
        properties["client.telemetry.enable"] = "true"
    shown = dict.fromkeys(range(1, brokers + 1), kafka)
    async with ProcessCluster(
        brokers, zookeeper="local", properties=properties, log_level="warning", kafka=shown
    ) as cluster:
        addresses = {node.node_id: (node.host, node.port) for node in cluster.brokers}
        return await replay(cases, addresses, "Anabranch", kafka)
