"""The metrics of a node: names, help texts, and the functions that read their values at each scrape.

Values come from the node's state where possible, without separate counters; a scrape visits each partition once.
`FAMILIES` is the complete list, and docs/metrics.md documents each (`tests/broker/metrics/test_readings.py`). Most
metrics have topics as labels but not partitions, which would be too many time series.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from anabranch.broker.coordinators.classic_groups.group_state import DEAD, GroupState
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroupState
from anabranch.broker.coordinators.transactions.transactional_id import ONGOING, PREPARE_ABORT, PREPARE_COMMIT
from anabranch.broker.metrics.fences import FenceDurations
from anabranch.broker.metrics.histogram import Histogram
from anabranch.broker.metrics.pulse import LoopLatencyProbe
from anabranch.broker.metrics.requests import MeasuringDispatcher, RequestFigures
from anabranch.broker.metrics.resizes import Resizes
from anabranch.controller.model import PartitionPhase
from anabranch.controller.zk import paths
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.registry import BY_KEY

if TYPE_CHECKING:
    from anabranch.broker.coordinators.groups.group_coordinator import GroupCoordinator
    from anabranch.broker.node.app import Node
    from anabranch.broker.replication.partition import Partition
    from anabranch.controller.state import ClusterState

Samples = Iterable[tuple[Mapping[str, str], float | Histogram]]


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


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """Counts over the replicas of a broker."""

    led: int
    followed: int
    under_replicated: int
    under_min_isr: int
    draining: int
    size_bytes: Mapping[str, int]
    end_offsets: Mapping[str, int]
    high_watermarks: Mapping[tuple[str, int], int]

    @classmethod
    def of(cls, partitions: Collection[Partition]) -> Self:
        """Count the partitions of a broker. Requests wait meanwhile, and partitions may be thousands."""
        size_bytes: Counter[str] = Counter()
        end_offsets: Counter[str] = Counter()
        for one in partitions:
            size_bytes[one.topic] += one.log.size_bytes
        led = [one for one in partitions if one.is_leader]
        for one in led:
            end_offsets[one.topic] += one.log.log_end_offset
        incomplete = [one for one in led if len(one.isr) < len(one.replicas)]
        return cls(
            led=len(led),
            followed=len(partitions) - len(led),
            under_replicated=len(incomplete),
            under_min_isr=sum(len(one.isr) < one.effective_min_isr for one in incomplete),
            draining=sum(one.sealed for one in led),
            size_bytes=size_bytes,
            end_offsets=end_offsets,
            high_watermarks={(one.topic, one.index): one.high_watermark for one in partitions},
        )


class Reading:
    """The state of a node for one scrape."""

    def __init__(self, watched: WatchedNode) -> None:
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
        self.replicas = ReplicaCounts.of(list(node.services.replicas.partitions()) if self.is_broker else ())


@dataclass(frozen=True, slots=True)
class Family:
    """One metric; `read` returns a value, or one for each set of labels."""

    name: str
    kind: str
    help: str
    read: Callable[[Reading], float | Histogram | Samples]

    @property
    def full_name(self) -> str:
        """The metric's name with the prefix `anabranch_`."""
        return f"anabranch_{self.name}"

    def samples(self, reading: Reading) -> Samples:
        """Read the values with their labels."""
        found = self.read(reading)
        return [({}, found)] if isinstance(found, int | float | Histogram) else found


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


def lags_of_partitions(reading: Reading) -> Iterator[tuple[str, str, int, int]]:
    """Group, topic, partition and lag of the committed partitions that this broker replicates."""
    groups = _groups(reading)
    if groups is None:
        return
    ends = reading.replicas.high_watermarks
    for group in groups.groups():
        for (topic, index), one in groups.offsets.of(group.group_id).committed.items():
            if (topic, index) in ends:
                yield group.group_id, topic, index, max(ends[topic, index] - one.offset, 0)


def partition_lags(reading: Reading) -> Samples:
    """The lags of the `LAGS_MAX` partitions with the largest lag."""
    most = heapq.nlargest(LAGS_MAX, lags_of_partitions(reading), key=lambda one: one[3])
    return [({"group": group, "topic": topic, "partition": str(index)}, lag) for group, topic, index, lag in most]


def group_lags(reading: Reading, together: Callable[[Iterable[int]], int]) -> Samples:
    """The lag of each group and topic: `together` combines the lags of its partitions."""
    lags: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for group, topic, _, lag in lags_of_partitions(reading):
        lags[group, topic].append(lag)
    return [({"group": group, "topic": topic}, together(ones)) for (group, topic), ones in sorted(lags.items())]


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


GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"
LAGS_MAX: Final = 1000
"""The most partitions in `group_partition_lag`: each is a time series."""
FAMILIES: Final[tuple[Family, ...]] = (
    Family("brokers", GAUGE, "Live brokers in the node's metadata.", lambda r: len(r.services.metadata.image.brokers)),
    Family(
        "controller_active", GAUGE, "1 on the node that is the active controller.", lambda r: int(bool(r.controller))
    ),
    Family("controller_epoch", GAUGE, "The newest controller epoch in the node's metadata.", controller_epoch),
    Family("partitions_led", GAUGE, "Partitions that the broker leads.", lambda r: r.replicas.led),
    Family("partitions_followed", GAUGE, "Partitions that the broker follows.", lambda r: r.replicas.followed),
    Family(
        "partitions_under_replicated",
        GAUGE,
        "Partitions that the broker leads and that have replicas out of sync.",
        lambda r: r.replicas.under_replicated,
    ),
    Family(
        "partitions_under_min_isr",
        GAUGE,
        "Partitions that the broker leads and that have fewer than min.insync.replicas in sync.",
        lambda r: r.replicas.under_min_isr,
    ),
    Family("partitions_offline", GAUGE, "Partitions without a leader; only the active controller reports it.", offline),
    Family("isr_shrinks_total", COUNTER, "Replicas that the broker, as leader, removed from an ISR.", isr_shrinks),
    Family("isr_expansions_total", COUNTER, "Replicas that the broker, as leader, added to an ISR.", isr_expansions),
    Family(
        "topic_log_size_bytes",
        GAUGE,
        "Size of the broker's logs of a topic.",
        lambda r: by_topic(r.replicas.size_bytes),
    ),
    Family(
        "topic_log_end_offset",
        GAUGE,
        "Sum of the log end offsets of the partitions of a topic that the broker leads.",
        lambda r: by_topic(r.replicas.end_offsets),
    ),
    Family("groups", GAUGE, "Consumer groups that the broker coordinates, by state.", groups),
    Family(
        "group_lag",
        GAUGE,
        "Lag of a group in a topic: high watermarks minus committed offsets, summed over partitions.",
        lambda r: group_lags(r, sum),
    ),
    Family(
        "group_lag_max",
        GAUGE,
        "Lag of a group in the topic's partition with the largest lag.",
        lambda r: group_lags(r, max),
    ),
    Family(
        "group_partition_lag",
        GAUGE,
        "Lag of a group by partition, for the partitions with the largest lags.",
        partition_lags,
    ),
    Family("transactions_open", GAUGE, "Open transactions that the broker coordinates, by state.", open_transactions),
    Family("connections", GAUGE, "Connections to the node.", lambda r: r.node.server.connection_count),
    Family("requests_total", COUNTER, "Requests received, by API.", requests),
    Family(
        "request_seconds",
        HISTOGRAM,
        "Time from reading a request to its response.",
        lambda r: by_api(r.requests.total_s),
    ),
    Family(
        "request_work_seconds",
        HISTOGRAM,
        "Processing time of a request, without the time in purgatory.",
        lambda r: by_api(r.requests.work_s),
    ),
    Family("request_errors_total", COUNTER, "Error codes in responses, at any level, by API.", errors),
    Family("client_requests_total", COUNTER, "Responses sent, by client id.", client_requests),
    Family("client_bytes_total", COUNTER, "Bytes of records produced and fetched, by client id.", client_bytes),
    Family(
        "loop_delay_seconds", HISTOGRAM, "Scheduling delay of the node's event loop.", lambda r: r.pulse.loop_delay_s
    ),
    Family("zookeeper_seconds", HISTOGRAM, "Latency of ZooKeeper reads.", lambda r: r.pulse.zookeeper_s),
    Family("received_bytes_total", COUNTER, "Bytes read from connections.", lambda r: r.node.server.received_bytes),
    Family("sent_bytes_total", COUNTER, "Bytes written to connections.", lambda r: r.node.server.sent_bytes),
    Family("throttled_requests_total", COUNTER, "Requests throttled by a quota.", throttled_requests),
    Family("throttled_seconds_total", COUNTER, "Sum of throttle times.", throttled_s),
    Family("topic_generation", GAUGE, "The published generation of a topic: the number of its resizes.", generations),
    Family(
        "reshard_planned_total", COUNTER, "Resizes planned by this node as controller.", lambda r: r.resizes.planned
    ),
    Family(
        "reshard_published_total",
        COUNTER,
        "Resizes published by this node as controller.",
        lambda r: r.resizes.published,
    ),
    Family(
        "reshard_plan_age_seconds",
        GAUGE,
        "Age of the plan of a topic's current resize, since the last controller election at most.",
        plan_ages,
    ),
    Family(
        "reshard_fence_seconds",
        HISTOGRAM,
        "How long the broker refused produce requests to a partition during a resize.",
        lambda r: r.fences.lengths_s,
    ),
    Family(
        "reshard_fenced_partitions",
        GAUGE,
        "Partitions that refuse produce requests during a resize.",
        lambda r: r.fences.closed,
    ),
    Family(
        "reshard_draining_partitions",
        GAUGE,
        "Retiring partitions that the broker leads.",
        lambda r: r.replicas.draining,
    ),
    Family(
        "reshard_refused_batches_total",
        COUNTER,
        "Batches refused because their generation is not the partition's.",
        refused_batches,
    ),
)
