"""The functions that read the values of a node's metrics at each scrape.

Values come from the node's state where possible, without separate counters; a scrape visits each partition once, in
steps. Most metrics have topics as labels but not partitions, which would be too many time series.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.coordinators.classic_groups.group_state import DEAD, GroupState
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroupState
from anabranch.broker.coordinators.transactions.transactional_id import ONGOING, PREPARE_ABORT, PREPARE_COMMIT
from anabranch.broker.metrics.family import Samples
from anabranch.broker.metrics.fences import FenceDurations
from anabranch.broker.metrics.group_lags import GroupLags, committed_by
from anabranch.broker.metrics.histogram import Histogram
from anabranch.broker.metrics.pulse import LoopLatencyProbe
from anabranch.broker.metrics.replica_counts import ReplicaCounts
from anabranch.broker.metrics.requests import MeasuringDispatcher, RequestFigures
from anabranch.broker.metrics.resizes import Resizes
from anabranch.controller.model import PartitionPhase
from anabranch.controller.zk import paths
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.registry import BY_KEY

if TYPE_CHECKING:
    from anabranch.broker.coordinators.groups.group_coordinator import GroupCoordinator
    from anabranch.broker.node.app import Node
    from anabranch.controller.state import ClusterState

LAGS_MAX: Final = 1000
"""The most partitions in `group_partition_lag`: each is a time series."""


class WatchedNode:
    """A node, with collectors of events that its state does not record."""

    def __init__(self, node: Node) -> None:
        """`node` must be started."""
        self.node = node
        loop = asyncio.get_running_loop()
        self.clock_s = loop.time
        self.fences = FenceDurations(self.clock_s)
        self.resizes = Resizes(self.clock_s())
        self.requests = RequestFigures()
        node.server.dispatcher = MeasuringDispatcher(node.server.dispatcher, self.requests, self.clock_s)
        self.pulse = LoopLatencyProbe(lambda: node.services.session.exists(paths.CONTROLLER), loop)
        node.on_controller_event(self.resizes.on_event)
        if node.settings.is_broker:
            node.services.metadata.on_change(self.fences.on_metadata)
            node.services.replicas.on_leader(self._on_leader)
            node.services.replicas.on_resign(self.fences.on_resign)
            for partition in node.services.replicas.partitions():
                if partition.is_leader:
                    self._on_leader(partition.topic, partition.index, partition.leader_epoch)

    def stop(self) -> None:
        """Stop the latency probe."""
        self.pulse.stop()

    def _on_leader(self, topic: str, index: int, _leader_epoch: int) -> None:
        services = self.node.services
        self.fences.on_leader(
            topic, index, services.replicas.partition(topic, index).generation, services.metadata.image
        )


class Reading:
    """The state of a node for one scrape."""

    def __init__(self, watched: WatchedNode, replicas: ReplicaCounts, lags: GroupLags) -> None:
        node = watched.node
        self.node = node
        self.fences = watched.fences
        self.resizes = watched.resizes
        self.requests = watched.requests
        self.pulse = watched.pulse
        self.services = node.services
        self.now_s = watched.clock_s()
        self.is_broker = node.settings.is_broker
        self.controller = None if node.controller is None else node.controller.state
        self.replicas = replicas
        self.lags = lags


async def read_node(watched: WatchedNode) -> Reading:
    """Read the state of a node; partitions and committed offsets in steps."""
    services = watched.node.services
    is_broker = watched.node.settings.is_broker
    replicas = await ReplicaCounts.of(services.replicas.partitions() if is_broker else ())
    coordinator = None if services.broker is None else services.broker.groups.built
    committed = [] if coordinator is None else committed_by(coordinator)
    return Reading(watched, replicas, await GroupLags.of(committed, replicas.high_watermarks))


def by_topic(counts: Mapping[str, float]) -> Samples:
    """Label the values of topics."""
    return [({"topic": topic}, value) for topic, value in sorted(counts.items())]


def groups(reading: Reading) -> Samples:
    """The number of groups in each state, including states without groups."""
    coordinator = _groups(reading)
    known = [] if coordinator is None else coordinator.groups()
    found = Counter(group.state.value for group in known)
    states = dict.fromkeys(state.value for state in (*GroupState, *ConsumerGroupState))
    return [({"state": state}, found[state]) for state in states if state != DEAD.value]


def _groups(reading: Reading) -> GroupCoordinator | None:
    """The group coordinator, if this node has created it."""
    return None if reading.services.broker is None else reading.services.broker.groups.built


def open_transactions(reading: Reading) -> Samples:
    """The number of open transactions in each state."""
    broker = reading.services.broker
    coordinator = None if broker is None else broker.transactions.built
    known = () if coordinator is None else coordinator.transactions()
    found = Counter(one.state for one in known)
    return [({"state": state.title}, found[state]) for state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)]


def requests(reading: Reading) -> Samples:
    """The number of received requests of each API; APIs without requests are omitted."""
    taken_up = reading.node.server.dispatcher.requests
    return [({"api": BY_KEY[key].name}, count) for key, count in taken_up.items() if count]


def by_api(histograms: Mapping[int, Histogram]) -> Samples:
    """Label the histograms of APIs."""
    return [({"api": BY_KEY[key].name}, one) for key, one in sorted(histograms.items())]


def errors(reading: Reading) -> Samples:
    """The number of returned error codes, by API and code."""
    return [
        ({"api": BY_KEY[key].name, "code": ErrorCode(code).name}, count)
        for (key, code), count in sorted(reading.requests.errors.items())
    ]


def client_requests(reading: Reading) -> Samples:
    """The number of requests of each client id."""
    return [({"client": client}, count) for client, count in sorted(reading.requests.clients.items())]


def client_bytes(reading: Reading) -> Samples:
    """The bytes of records that each client id has produced and fetched."""
    return [
        ({"client": client, "moved": moved}, count)
        for (client, moved), count in sorted(reading.requests.client_bytes.items())
    ]


def partition_lags(reading: Reading) -> Samples:
    """The lags of the `LAGS_MAX` partitions with the largest lag."""
    most = heapq.nlargest(LAGS_MAX, reading.lags.partitions, key=lambda one: one[3])
    return [({"group": group, "topic": topic, "partition": str(index)}, lag) for group, topic, index, lag in most]


def by_group(lags: Mapping[tuple[str, str], int]) -> Samples:
    """Label the lags of groups in topics."""
    return [({"group": group, "topic": topic}, lag) for (group, topic), lag in sorted(lags.items())]


def offline(reading: Reading) -> int:
    """The number of partitions without a leader, by the active controller's state."""
    state = reading.controller
    if state is None:
        return 0
    return sum(state.phase(one) is PartitionPhase.OFFLINE for one in state.leaderless)


def controller_epoch(reading: Reading) -> int:
    """The newest controller epoch that this node has received or holds."""
    own = reading.node.controller.epoch if reading.node.controller is not None else 0
    return max(own, reading.services.fence.controller_epoch)


def generations(reading: Reading) -> Samples:
    """The published generation of each topic that has one."""
    topics = reading.services.metadata.image.topics.values()
    return by_topic({topic.name: topic.generation for topic in topics if topic.generation >= 0})


def plan_ages(reading: Reading) -> Samples:
    """The ages of the unfinished resizes."""
    if reading.controller is None:
        return []
    planned = planned_topics(reading.controller)
    return by_topic(dict(reading.resizes.ages_s(planned, reading.now_s)))


def planned_topics(state: ClusterState) -> list[str]:
    """The topics with an unfinished resize."""
    return [name for name, topic in state.topics.items() if topic.body.plan is not None and name not in state.deleting]


def throttled_requests(reading: Reading) -> int:
    """The number of throttled requests; 0 for a node without quotas."""
    throttling = reading.services.throttling
    return 0 if throttling is None else throttling.throttled_requests


def throttled_s(reading: Reading) -> float:
    """The sum of all throttle times in seconds."""
    throttling = reading.services.throttling
    return 0.0 if throttling is None else throttling.throttled_ms / 1000


def isr_shrinks(reading: Reading) -> int:
    """The number of ISR shrinks granted to this broker as leader."""
    return reading.services.replicas.isr_changes.shrinks if reading.is_broker else 0


def isr_expansions(reading: Reading) -> int:
    """The number of ISR expansions granted to this broker as leader."""
    return reading.services.replicas.isr_changes.expansions if reading.is_broker else 0


def refused_batches(reading: Reading) -> Samples:
    """The number of batches refused with INVALID_PARTITION_METADATA, by topic."""
    return by_topic(reading.services.replicas.refused_batches) if reading.is_broker else []
