"""The properties of a broker that have an effect here: one line each, in the columns of
`broker.config.property_declaration`.

A property is what the settings field of its name holds (`num.partitions` is `num_partitions`), and its default "=" is
the field's. Kafka's other properties are in `inert_properties`: known, checked, described, and without effect. Both
together are what Kafka 3.9 knows, so what a tool may set there it may set here.

Sources: Kafka's `KafkaConfig`, and `DynamicBrokerConfig` for what may change while a broker runs. Listeners are
described as Kafka's; a change of them is refused with its reason (`config_requests`), as a node has one that stays.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from anabranch.broker.config.broker_settings import BrokerSettings, own_default
from anabranch.broker.config.property_declaration import ConfigKey, table
from anabranch.broker.config.security_properties import SECURITY
from anabranch.broker.config.unsupported_properties import UNSUPPORTED

_EFFECTIVE: Final = """
advertised.listeners | string | - |  | broker | What clients and other nodes connect to.
auto.create.topics.enable | boolean | = |  |  | Whether a topic that is asked for and does not exist is made.
auto.leader.rebalance.enable | boolean | = |  |  | Whether preferred replicas get their leaderships back.
broker.id | int | -1 |  |  | The id of this node, unique in the cluster.
broker.rack | string | - |  |  | Where the node stands; replicas are spread over racks.
client.telemetry.enable | boolean | = |  |  | Whether a Kafka 4 takes metrics that clients push.
compression.gzip.level | int | = | -1 or 1..9 | cluster | How hard gzip tries, where the broker compresses.
compression.lz4.level | int | = | 1..17 | cluster | How hard lz4 tries, where the broker compresses.
compression.type | string | = | uncompressed, zstd, lz4, snappy, gzip, producer | cluster | The codec of stored batches.
compression.zstd.level | int | = | -131072..22 | cluster | How hard zstd tries, where the broker compresses.
connections.max.idle.ms | long | = |  |  | After how much silence a connection is closed.
controlled.shutdown.enable | boolean | = |  |  | Whether leaderships move away before the node stops.
controlled.shutdown.max.retries | int | = |  |  | How often the controller is asked to move them.
controlled.shutdown.retry.backoff.ms | long | = |  |  | The pause between two of these requests.
default.replication.factor | int | = |  |  | Replicas of a topic whose creator names no number.
delete.topic.enable | boolean | = |  |  | Whether topics may be deleted.
fetch.max.bytes | int | = | 1024.. |  | The most bytes that one Fetch is answered with.
group.consumer.assignors | list | = | uniform, range |  | The assignors of groups whose broker assigns, default first.
group.consumer.heartbeat.interval.ms | int | = | 1.. |  | How often their members send heartbeats.
group.consumer.max.heartbeat.interval.ms | int | = | 1.. |  | The longest interval that a group may be given.
group.consumer.max.session.timeout.ms | int | = | 1.. |  | The longest session that a group may be given.
group.consumer.max.size | int | = | 1.. |  | The most members of one group whose broker assigns.
group.consumer.migration.policy | string | = | bidirectional, upgrade, downgrade, disabled |  | Who changes kinds.
group.consumer.min.heartbeat.interval.ms | int | = | 1.. |  | The shortest interval that a group may be given.
group.consumer.min.session.timeout.ms | int | = | 1.. |  | The shortest session that a group may be given.
group.consumer.session.timeout.ms | int | = | 1.. |  | After how much silence a member of such a group is out.
group.coordinator.rebalance.protocols | list | classic | consumer, classic, share, streams, unknown |  | Kinds of group.
group.initial.rebalance.delay.ms | int | = |  |  | How long a new group waits for more members.
group.max.session.timeout.ms | int | = |  |  | The longest session that a member may ask for.
group.max.size | int | = | 1.. |  | The most members of one group.
group.min.session.timeout.ms | int | = |  |  | The shortest session that a member may ask for.
group.share.delivery.count.limit | int | = | 2..10 |  | How often a shared record is handed out before it is given up.
group.share.heartbeat.interval.ms | int | = | 1.. |  | How often members of groups that share send heartbeats.
group.share.max.share.sessions | int | = | 1.. |  | The most share sessions at a time.
group.share.max.size | short | = | 1..1000 |  | The most members of one group that shares.
group.share.partition.max.record.locks | int | = | 100..10000 |  | The most records of a partition in flight.
group.share.record.lock.duration.ms | int | = | 1000..60000 |  | For how long a shared record is its member's.
group.share.session.timeout.ms | int | = | 1.. |  | After how much silence a member of such a group is out.
listeners | string | - |  | broker | Where this node listens.
log.cleaner.backoff.ms | long | = | 0.. | cluster | The pause when there is nothing to compact.
log.cleaner.delete.retention.ms | long | = | 0.. | cluster | How long compaction keeps tombstones.
log.cleaner.enable | boolean | = |  |  | Whether logs are compacted.
log.cleaner.max.compaction.lag.ms | long | = | 1.. | cluster | After how long a record is compacted at any ratio.
log.cleaner.min.cleanable.ratio | double | = | 0..1 | cluster | Which part of a log is dirty before it is compacted.
log.cleaner.min.compaction.lag.ms | long | = | 0.. | cluster | For how long a record is not compacted.
log.cleanup.policy | list | = | compact, delete | cluster | What becomes of old segments.
log.dir | string | - |  |  | The directory of the logs, if log.dirs names none.
log.dirs | string | - |  |  | The directories of the logs, separated by commas.
log.flush.interval.messages | long | = | 1.. | cluster | After how many records a log is flushed.
log.index.interval.bytes | int | = | 0.. | cluster | How many bytes of records an index entry stands for.
log.index.size.max.bytes | int | = | 4.. | cluster | The size at which a full index rolls its segment.
log.message.downconversion.enable | boolean | = |  | cluster | Whether old clients get message sets.
log.message.timestamp.after.max.ms | long | = | 0.. | cluster | How far a record's time may lie in the future.
log.message.timestamp.before.max.ms | long | = | 0.. | cluster | How far a record's time may lie in the past.
log.message.timestamp.difference.max.ms | long | = | 0.. | cluster | Both of these in one; deprecated.
log.message.timestamp.type | string | = | CreateTime, LogAppendTime | cluster | Whose time records bear.
log.retention.bytes | long | = |  | cluster | How large a partition may grow; -1 without bound.
log.retention.check.interval.ms | long | = | 1.. |  | How often expired segments are looked for.
log.retention.hours | int | 168 |  |  | See log.retention.ms.
log.retention.minutes | int | - |  |  | See log.retention.ms.
log.retention.ms | long | - |  | cluster | For how long records are kept; -1 for ever.
log.roll.hours | int | 168 | 1.. |  | See log.roll.ms.
log.roll.ms | long | - |  | cluster | After how long a new segment begins. Without it log.roll.hours.
log.segment.bytes | int | = | 14.. | cluster | The size at which a new segment begins.
log.segment.delete.delay.ms | long | = | 0.. | cluster | How long the files of a deleted log stay.
max.connection.creation.rate | int | = | 0.. | cluster | How many connections may come per second.
max.connections | int | = | 0.. | cluster | The most connections at a time.
max.connections.per.ip | int | = | 0.. | cluster | The most connections at a time from one address.
max.connections.per.ip.overrides | string |  |  | cluster | Other bounds of single addresses: 10.0.0.1:5,10.0.0.2:9.
max.incremental.fetch.session.cache.slots | int | = | 0.. |  | The most fetch sessions at a time.
max.request.partition.size.limit | int | = | 1.. |  | The most topics, partitions and the like that a request may name.
message.max.bytes | int | = | 0.. | cluster | The largest batch that is taken.
message.max.decompressed.ratio | int | = | 1.. |  | How many times max.message.bytes records are, uncompressed.
min.insync.replicas | int | = | 1.. | cluster | How many replicas must be in sync for acks=all.
node.id | int | -1 |  |  | The id of this node, unique in the cluster.
num.partitions | int | = | 1.. |  | Partitions of a topic whose creator names no number.
offset.metadata.max.bytes | int | = |  |  | The most metadata that a committed offset may carry.
offsets.commit.timeout.ms | int | = | 1.. |  | How long a commit waits to be replicated.
offsets.retention.check.interval.ms | long | = | 1.. |  | How often expired offsets are looked for.
offsets.retention.minutes | int | = | 1.. |  | How long the offsets of a group without members are kept.
offsets.topic.compression.codec | int | = |  |  | The codec of the offsets topic.
offsets.topic.num.partitions | int | = | 1.. |  | Partitions of the offsets topic.
offsets.topic.replication.factor | short | = | 1.. |  | Replicas of the offsets topic.
offsets.topic.segment.bytes | int | = | 1.. |  | Segment size of the offsets topic.
producer.id.expiration.ms | int | = | 1.. | cluster | After how much silence an idempotent producer is forgotten.
queued.max.request.bytes | long | = |  |  | How many bytes of requests are held before others stop being read; -1: any.
queued.max.response.bytes | long | = |  |  | How many bytes of unread responses are held before others wait; -1: any.
quota.window.num | int | = | 1.. |  | Over how many windows the rates of clients are measured.
quota.window.size.seconds | int | = | 1.. |  | How long such a window is.
replica.fetch.backoff.ms | int | = | 0.. |  | The pause after a failed fetch of a follower.
replica.fetch.max.bytes | int | = | 0.. |  | What a follower fetches of one partition at a time.
replica.fetch.min.bytes | int | = |  |  | What a follower waits for.
replica.fetch.response.max.bytes | int | = | 0.. |  | What a follower fetches at a time.
replica.fetch.wait.max.ms | int | = |  |  | How long a follower waits.
replica.high.watermark.checkpoint.interval.ms | long | = |  |  | How often high watermarks are written down.
replica.lag.time.max.ms | long | = |  |  | After how long a follower that lags is out of sync.
replica.selector.class | string | - |  |  | Where consumers read; RackAwareReplicaSelector: in their rack.
request.timeout.ms | int | = |  |  | How long a request between nodes may take.
reshard.legacy.consumers | string | = | auto, gate, ignore | cluster | Whether coordinators keep order for stock members
reshard.legacy.consumers.shrink | string | = | auto, warn, refuse | cluster | Whether topics shrink under stock members
reshard.legacy.consumers.uncommitted.ms | long | = | -1.. | cluster | How long groups without a commit are waited for
reshard.legacy.producers | string | = | auto, refuse, allow, verify | cluster | What resized topics let old producers do
share.coordinator.snapshot.update.records.per.snapshot | int | = | 0..500 |  | Updates between two snapshots.
share.coordinator.state.topic.min.isr | short | = | 1.. |  | Replicas that must have such state.
share.coordinator.state.topic.num.partitions | int | = | 1.. |  | Partitions of the topic of that state.
share.coordinator.state.topic.replication.factor | short | = | 1.. |  | Replicas of the topic of that state.
share.coordinator.state.topic.segment.bytes | int | = | 1.. |  | Segment size of the topic of that state.
socket.request.max.bytes | int | = | 1.. |  | The largest request that is read.
telemetry.max.bytes | int | = | 1.. |  | The largest push of metrics that is taken from a client.
transaction.abort.timed.out.transaction.cleanup.interval.ms | int | = | 1.. |  | The pause between looks for late ones.
transaction.max.timeout.ms | int | = | 1.. |  | The longest transaction that a producer may ask for.
transaction.partition.verification.enable | boolean | = |  | cluster | Whether leaders ask its coordinator first.
transaction.remove.expired.transaction.cleanup.interval.ms | int | = | 1.. |  | The pause between looks for expired ids.
transaction.state.log.min.isr | int | = | 1.. |  | Replicas that must have what the transactions topic is to keep.
transaction.state.log.num.partitions | int | = | 1.. |  | Partitions of the transactions topic.
transaction.state.log.replication.factor | short | = | 1.. |  | Replicas of the transactions topic.
transaction.state.log.segment.bytes | int | = | 1.. |  | Segment size of the transactions topic.
transactional.id.expiration.ms | int | = | 1.. |  | After how much silence a transactional id is forgotten.
unclean.leader.election.enable | boolean | = |  | cluster | Whether a replica out of sync may lead when no other can.
withheld.features | list |  |  |  | Features that the node does not own up to, like an older release.
zookeeper.auth | password | - |  |  | As whom the node logs in at ZooKeeper: digest:USER:PASSWORD.
zookeeper.session.timeout.ms | int | = |  |  | After how much silence ZooKeeper ends the session.
zookeeper.set.acl | boolean | = |  |  | Whether znodes belong to the login of the nodes.
"""

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}
"""Properties that set the same thing, the ones that take precedence first."""

COARSE: Final[Mapping[str, tuple[str, int]]] = {
    "log.retention.hours": ("log.retention.ms", 3600000),
    "log.retention.minutes": ("log.retention.ms", 60000),
    "log.roll.hours": ("log.roll.ms", 3600000),
}
"""Property in a coarse unit -> the one in milliseconds, and how many of them one is. Weaker ones first."""

THREADS: Final = frozenset(
    {
        "background.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    }
)
"""Properties that may only change to a value between half and double the present one."""


@functools.cache
def broker_properties() -> Mapping[str, ConfigKey]:
    """Every property that a Kafka 3.9 broker knows, by name."""
    return dict(
        sorted(
            table(
                _EFFECTIVE.strip() + SECURITY.rstrip() + UNSUPPORTED, lambda name: own_default(BrokerSettings, name)
            ).items()
        )
    )


@functools.cache
def _effective() -> frozenset[str]:
    return frozenset(line.partition("|")[0].strip() for line in (_EFFECTIVE + SECURITY).split("\n") if line)


def has_effect(name: str) -> bool:
    """Whether any part of a node uses this property."""
    return name in _effective()


def synonyms_of(name: str) -> tuple[str, ...]:
    """The names under which a property may be set, the strongest first."""
    return next((names for names in SYNONYMS.values() if name in names), (name,))
